//! Corners in which EmberDB has answered otherwise than Redis.

use std::time::Duration;

use crate::common::server::have_redis;
use crate::common::{Client, Kind, Server, Value, bulk, encode, error, int, on_embers, on_every_server, wait_until};

const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes that are no UTF-8 were replaced.
#[test]
fn errors_quote_what_was_sent_byte_by_byte() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        let mut refused = |args: &[&[u8]], text: &[u8]| {
            client.send_raw(&encode(args));
            let mut reply = vec![0; text.len()];
            std::io::Read::read_exact(&mut client.stream(), &mut reply).expect("a reply");
            assert_eq!(reply.escape_ascii().to_string(), text.escape_ascii().to_string());
        };
        let text = b"-ERR unknown command '\xff\xc3 ', with args beginning with: '\x80  ' \r\n";
        refused(&[b"\xff\xc3\n", b"\x80\r\n"], text);
        refused(&[b"OBJECT", b"\xfe"], b"-ERR unknown subcommand '\xfe'. Try OBJECT HELP.\r\n");
        refused(&[b"EXPIRE", b"k", b"1", b"\xfe"], b"-ERR Unsupported option \xfe\r\n");
        let text = b"-NOGROUP No such key '\xff' or consumer group '\xfe'\r\n";
        refused(&[b"XPENDING", b"\xff", b"\xfe"], text);
        let text = b"-ERR Unknown option or number of arguments for CONFIG SET - '\xff'\r\n";
        refused(&[b"CONFIG", b"SET", b"\xff", b"1"], text);
    });
}

#[test]
fn databases_are_named_by_small_numbers() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        client.call("SET a 1");
        let no_integer = error("ERR value is not an integer or out of range");
        let too_large = error("ERR value is out of range, value must between -2147483648 and 2147483647");
        for command in ["COPY a b DB", "MOVE a", "SELECT"] {
            for (number, reply) in [
                ("9223372036854775808", &no_integer),
                ("x", &no_integer),
                ("9223372036854775807", &too_large),
                ("2147483648", &too_large),
                ("-2147483649", &too_large),
                ("2147483647", &error("ERR DB index is out of range")),
                ("-1", &error("ERR DB index is out of range")),
            ] {
                assert_eq!(client.call(&format!("{command} {number}")), *reply, "{command} {number}");
            }
        }
    });
}

#[test]
fn the_longest_timeout_is_one() {
    on_every_server(&[], |server| {
        let (mut waiting, mut other) = (server.client(), server.client());
        waiting.send("XREAD BLOCK 9223372036854775807 STREAMS s 0");
        assert!(wait_until(PATIENCE, || server.info("blocked_clients").as_deref() == Some("1")));
        other.call("XADD s 1-1 f v");
        assert!(!waiting.read().is_error());
        let no_integer = error("ERR timeout is not an integer or out of range");
        assert_eq!(other.call("XREAD BLOCK 9223372036854775808 STREAMS s 0"), no_integer);
    });
}

/// Redis tries one number of open files after the other, for minutes.
#[test]
fn more_clients_than_open_files_are_refused() {
    on_embers(&[], |server| {
        let refused = server.client().call("CONFIG SET maxclients 4000000000").text();
        assert!(refused.contains("The operating system is not able to handle"), "{refused}");
        assert_ne!(server.info("maxclients").as_deref(), Some("4000000000"));
    });
}

#[test]
fn confirmations_and_messages_come_whatever_client_reply_says() {
    on_every_server(&[], |server| {
        let mut other = server.client();
        for hello in ["HELLO 2", "HELLO 3"] {
            let mut client = server.client();
            client.call(hello);
            client.send("CLIENT REPLY OFF");
            client.send("PING");
            client.send("SUBSCRIBE channel");
            assert_eq!(client.read().items()[0], bulk("subscribe"), "{hello}");
            other.call("PUBLISH channel hello");
            assert_eq!(client.read().items()[2], bulk("hello"), "{hello}");
            client.send("UNSUBSCRIBE channel");
            assert_eq!(client.read().items()[2], int(0), "{hello}");
            client.send("CLIENT REPLY SKIP");
            client.send("PING");
            client.send("CLIENT REPLY ON");
            assert_eq!(client.read(), Value::ok());
            client.send("CLIENT REPLY SKIP");
            client.send("SUBSCRIBE channel");
            assert_eq!(client.read().items()[0], bulk("subscribe"), "{hello}");
        }
    });
}

#[test]
fn who_waits_for_the_end_of_a_pause_is_blocked() {
    on_every_server(&[], |server| {
        let (mut paused, mut control) = (server.client(), server.client());
        control.call("CLIENT PAUSE 600000 WRITE");
        paused.send("SET k v");
        assert!(wait_until(PATIENCE, || server.info("blocked_clients").as_deref() == Some("1")));
        let list = control.call("CLIENT LIST").text();
        let line = list.lines().find(|line| line.contains(" cmd=set "));
        assert!(line.is_some_and(|line| line.contains(" flags=b ")), "{list}");
        control.call("CLIENT UNPAUSE");
        assert_eq!(paused.read(), Value::ok());
        assert_eq!(server.info("blocked_clients").as_deref(), Some("0"));
    });
}

/// Every field of these sections, but for those of a fork, whose memory and progress there are none of here.
#[test]
fn info_says_that_there_is_no_replica_and_nothing_saved() {
    if !have_redis() {
        return;
    }
    let fields = |kind: Kind, section: &str| -> Vec<String> {
        let text = Server::start(kind, &[]).client().call(&format!("INFO {section}")).text();
        let names = text.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.to_string());
        let of_fork = ["current_fork", "current_save", "module_fork"];
        names.filter(|name| !of_fork.iter().any(|prefix| name.starts_with(prefix))).collect()
    };
    for section in ["replication", "persistence"] {
        assert_eq!(fields(Kind::Ember { shards: 2 }, section), fields(Kind::Redis, section));
    }
}

#[test]
fn info_counts_what_is_freed_later_and_dead_fields() {
    on_embers(&[], |server| {
        let mut client = server.client();
        assert_eq!(server.info("lazyfreed_objects").as_deref(), Some("0"));
        for key in 0..5000 {
            client.call(&format!("SET key:{key} v"));
        }
        client.call("FLUSHALL");
        assert!(wait_until(PATIENCE, || server.info("lazyfreed_objects").as_deref() == Some("5000")));
        assert_eq!(server.info("lazyfree_pending_objects").as_deref(), Some("0"));
        client.call("HSET h f 1 g 2 h 3");
        client.call("HPEXPIRE h 1 FIELDS 2 f g");
        assert!(wait_until(PATIENCE, || server.info("expired_subkeys").as_deref() == Some("2")));
    });
}

/// The fields in the order of Redis, with those of later versions among and behind them.
#[test]
fn client_list_has_the_fields_of_redis_in_its_order() {
    let fields = |server: &Server| -> Vec<String> {
        let line = server.client().call("CLIENT INFO").text();
        line.split_whitespace().map(|field| field.split('=').next().unwrap_or_default().to_string()).collect()
    };
    if !have_redis() {
        return;
    }
    let mut ours = fields(&Server::start(Kind::Ember { shards: 1 }, &[]));
    // What newer ones have.
    let newer = ["watch", "live", "lib-name", "lib-ver", "tot-net-in", "tot-net-out", "tot-cmds"];
    ours.retain(|name| !newer.contains(&name.as_str()));
    assert_eq!(ours, fields(&Server::start(Kind::Redis, &[])));
}

#[test]
fn debug_has_what_tests_of_clients_use() {
    on_every_server(&["--enable-debug-command", "yes"], |server| {
        let mut client = server.client();
        for line in [
            "REPLYBUFFER PEAK-RESET-TIME NEVER",
            "REPLYBUFFER peak-reset-time 100",
            "REPLYBUFFER RESIZING 0",
            "QUICKLIST-PACKED-THRESHOLD 100b",
            "PAUSE-CRON 0",
            "CHANGE-REPL-ID",
            "LOG hello",
            "POPULATE 3",
            "POPULATE 2 some 10",
        ] {
            assert_eq!(client.call(&format!("DEBUG {line}")), Value::ok(), "{line}");
        }
        let no_integer = error("ERR value is not an integer or out of range");
        assert_eq!(client.call("DEBUG REPLYBUFFER PEAK-RESET-TIME x"), no_integer);
        let no_size = error("ERR argument must be a memory value bigger than 1 and smaller than 4gb");
        assert_eq!(client.call("DEBUG QUICKLIST-PACKED-THRESHOLD 4gb"), no_size);
        assert_eq!(client.call("DEBUG POPULATE x"), error("ERR value is out of range, must be positive"));
        assert_eq!(client.call("DBSIZE"), int(5));
        assert_eq!(client.call("GET key:2"), bulk("value:2"));
        assert_eq!(client.call("GET some:1"), bulk("value:1\0\0\0"));
        let id = || server.info("master_replid");
        let before = id();
        client.call("DEBUG CHANGE-REPL-ID");
        assert_ne!(id(), before);
    });
    on_embers(&["--enable-debug-command", "yes"], |server| {
        let reply = server.client().call("DEBUG LOADAOF").text();
        assert!(reply.contains("append only file is off"), "{reply}");
        assert_eq!(server.client().call("DEBUG STRINGMATCH-LEN a* abc"), int(1));
    });
}

/// What COMMAND says of keys that are named by options.
#[test]
fn command_tells_keys_behind_options() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        let mut keys = |command: &str| client.call(&format!("COMMAND GETKEYS {command}"));
        assert_eq!(keys("SORT_RO a STORE d"), Value::bulks(&["a"]));
        assert_eq!(keys("SORT a GET p_* STORE d"), Value::bulks(&["a", "d"]));
        assert_eq!(keys("XREAD COUNT STREAMS a 0"), Value::bulks(&["a"]));
        assert_eq!(keys("XREAD BLOCK 1 COUNT 2 STREAMS a b 0 0"), Value::bulks(&["a", "b"]));
        assert_eq!(keys("XREADGROUP GROUP STREAMS c STREAMS a 0"), Value::bulks(&["a"]));
        assert_eq!(keys("GEORADIUS k 1 2 3 km STOREDIST b STORE a"), Value::bulks(&["k", "a", "b"]));
        assert_eq!(keys("GEORADIUSBYMEMBER k m 3 km STORE a STOREDIST b"), Value::bulks(&["k", "a", "b"]));
        let info = |client: &mut Client, name: &str| client.call(&format!("COMMAND INFO {name}"));
        assert_eq!(info(&mut client, "sort").items()[0].items()[8].items().len(), 3);
        assert_eq!(info(&mut client, "sort_ro").items()[0].items()[8].items().len(), 2);
        assert!(format!("{:?}", info(&mut client, "exec")).contains("skip_slowlog"));
    });
}
