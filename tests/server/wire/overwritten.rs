//! The events `overwritten` and `type_changed` (Redis 8.2).

use super::transactions::exec;
use crate::common::{Client, Server, Value, bulk, error, on_embers};

fn listener(server: &Server) -> Client {
    let mut listener = server.client();
    listener.call("PSUBSCRIBE __keyevent@*__:*");
    listener
}

/// What was told since this was asked, `event key` each.
fn told(client: &mut Client, listener: &mut Client) -> Vec<String> {
    client.call("DEL {k}end");
    client.call("RPUSH {k}end x");
    let mut told = Vec::new();
    loop {
        let message = listener.read();
        let (channel, key) = (message.items()[2].text(), message.items()[3].text());
        let event = channel.split("__:").last().expect("an event").to_owned();
        match (event.as_str(), key.as_str()) {
            ("rpush", "{k}end") => return told,
            (_, "{k}end") => {}
            _ => told.push(format!("{event} {key}")),
        }
    }
}

/// All keys are on one shard, since events of several have no order.
const CASES: &[(&str, &str, &[&str])] = &[
    ("", "SET {k} 1", &["set {k}"]),
    ("SET {k} 1", "SET {k} 2", &["overwritten {k}", "set {k}"]),
    ("RPUSH {k} a", "SET {k} 2 EX 100", &["overwritten {k}", "type_changed {k}", "set {k}", "expire {k}"]),
    ("RPUSH {k} a", "SET {k} 2 NX", &[]),
    ("SET {k} 1", "SET {k} 2 KEEPTTL GET", &["overwritten {k}", "set {k}"]),
    ("SET {k} 1", "SET {k} 2 PXAT 1", &["overwritten {k}", "set {k}", "expire {k}", "expired {k}"]),
    ("SET {k} 1", "GETSET {k} 2", &["overwritten {k}", "set {k}"]),
    ("SET {k} 1", "SETEX {k} 100 2", &["overwritten {k}", "set {k}", "expire {k}"]),
    ("HSET {k} f v", "MSET {k} 1 {k}2 2", &["overwritten {k}", "type_changed {k}", "set {k}", "set {k}2"]),
    ("SET {k} 1", "APPEND {k} 1", &["append {k}"]),
    ("SET {k} 1", "INCR {k}", &["incrby {k}"]),
    ("SET {k} 1", "SETRANGE {k} 0 x", &["setrange {k}"]),
    ("SADD {k} 1", "SADD {k} a", &["sadd {k}"]),
    ("SET {k} 1", "BITOP NOT {k} {k}", &["overwritten {k}", "set {k}"]),
    ("SET {k} 1", "SUNIONSTORE {k} {k}set", &["overwritten {k}", "type_changed {k}", "sunionstore {k}"]),
    ("SADD {k} 1", "SINTERSTORE {k} {k}set", &["overwritten {k}", "sinterstore {k}"]),
    ("SADD {k} 1", "SDIFFSTORE {k} {k}none", &["del {k}"]),
    ("SADD {k} 1", "ZUNIONSTORE {k} 1 {k}zset", &["overwritten {k}", "type_changed {k}", "zunionstore {k}"]),
    ("ZADD {k} 1 a", "ZRANGESTORE {k} {k}zset 0 -1", &["overwritten {k}", "zrangestore {k}"]),
    ("SADD {k} 1", "SORT {k}set STORE {k}", &["overwritten {k}", "type_changed {k}", "sortstore {k}"]),
    (
        "SADD {k} 1",
        "GEOSEARCHSTORE {k} {k}zset FROMLONLAT 0 0 BYRADIUS 30000 km",
        &["overwritten {k}", "type_changed {k}", "geosearchstore {k}"],
    ),
    (
        "SET {k} 1",
        "RENAME {k}zset {k}",
        &["rename_from {k}zset", "rename_to {k}", "overwritten {k}", "type_changed {k}"],
    ),
    ("ZADD {k} 1 x", "RENAME {k}zset {k}", &["rename_from {k}zset", "rename_to {k}", "overwritten {k}"]),
    ("", "RENAME {k}zset {k}", &["rename_from {k}zset", "rename_to {k}"]),
    ("SET {k} 1", "COPY {k}zset {k} REPLACE", &["copy_to {k}", "overwritten {k}", "type_changed {k}"]),
    ("SET {k} 1", "COPY {k}zset {k}", &[]),
    ("", "COPY {k}zset {k} DB 1", &["copy_to {k}"]),
];

#[test]
fn what_takes_the_place_of_a_value_is_told() {
    on_embers(&["--notify-keyspace-events", "EAoc"], |server| {
        let (mut client, mut listener) = (server.client(), listener(server));
        for (before, command, expected) in CASES {
            for line in ["FLUSHALL", "SADD {k}set 1 2", "GEOADD {k}zset 1 1 a", before] {
                assert!(line.is_empty() || !client.call(line).is_error(), "{line}");
            }
            told(&mut client, &mut listener);
            assert!(!client.call(command).is_error(), "{command}");
            assert_eq!(told(&mut client, &mut listener), *expected, "{before}; {command}");
        }
        for (before, expected) in [
            ("SET {k} 1", &["restore {k}", "overwritten {k}", "type_changed {k}"][..]),
            ("RPUSH {k} 1", &["restore {k}", "overwritten {k}"]),
            ("DEL {k}", &["restore {k}"]),
        ] {
            client.call("RPUSH {k}list a");
            let dumped = client.call("DUMP {k}list");
            let payload = dumped.bytes().expect("a payload");
            client.call(before);
            told(&mut client, &mut listener);
            let restored = client.command(&[b"RESTORE".as_slice(), b"{k}", b"0", payload, b"REPLACE"]);
            assert_eq!(restored, Value::ok());
            assert_eq!(told(&mut client, &mut listener), expected);
            client.call("DEL {k}");
        }
    });
}

#[test]
fn it_is_told_within_transactions_and_scripts_and_to_none_but_those_who_ask() {
    on_embers(&["--notify-keyspace-events", "EA"], |server| {
        let (mut client, mut listener) = (server.client(), listener(server));
        client.call("MSET {k}1 1 {k}2 2");
        client.call("RENAME {k}1 {k}2");
        let quiet = ["set {k}1", "set {k}2", "rename_from {k}1", "rename_to {k}2"];
        assert_eq!(told(&mut client, &mut listener), quiet);
        client.call("CONFIG SET notify-keyspace-events Eo$l");
        assert_eq!(client.call("CONFIG GET notify-keyspace-events"), Value::bulks(&["notify-keyspace-events", "$lEo"]));
        exec(&mut client, &["SET {k}2 3", "SADD {k}s 1", "SET {k}s x"]);
        client.call("EVAL return{redis.call('SET',KEYS[1],'y'),redis.call('SET','{k}s','z')} 1 {k}2");
        let both = ["overwritten {k}2", "set {k}2", "overwritten {k}s", "set {k}s"];
        let expected = [&both[..], &both].concat();
        assert_eq!(told(&mut client, &mut listener), expected);
        client.call("CONFIG SET notify-keyspace-events Ec");
        assert!(client.call("CONFIG SET notify-keyspace-events Eo!").is_error());
        client.call("CONFIG SET notify-keyspace-events Ecl");
        client.call("SET {k}s still");
        client.call("SUNIONSTORE {k}s {k}none");
        client.call("RPUSH {k}l 1");
        client.call("SET {k}l 1");
        assert_eq!(told(&mut client, &mut listener), ["rpush {k}l", "type_changed {k}l"]);
        assert_eq!(client.call("GET {k}l"), bulk("1"));
        assert_eq!(
            client.call("LLEN {k}l"),
            error("WRONGTYPE Operation against a key holding the wrong kind of value")
        );
    });
}
