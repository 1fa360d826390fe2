//! What the server tells of itself and of its commands, beside what redis-server tells: clients, proxies and monitors decide
//! by it what they ask for.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use crate::common::{
    Client, Kind, Server, Value, error, int, on_embers, on_every_server, server::have_redis, wait_until,
};

const PATIENCE: Duration = Duration::from_secs(10);

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// All places that tell a version of Redis, and what they tell.
fn versions(server: &Server) -> Vec<(&'static str, String)> {
    let mut client = server.client3();
    let info = client.call("INFO server").text();
    let art = client.call("LOLWUT").text();
    let packed = client.command(&["EVAL", "return redis.REDIS_VERSION_NUM", "0"]).number();
    let library = "#!lua name=v\nlocal v = redis.REDIS_VERSION\n\
                   redis.register_function('v', function() return {v, redis.REDIS_VERSION} end)";
    client.command(&["FUNCTION", "LOAD", "REPLACE", library]);
    let of_functions = client.call("FCALL v 0");
    assert_eq!(client.call("SAVE"), Value::ok());
    let snapshot = fs::read(server.folder().join("dump.rdb")).expect("a snapshot");
    let name = b"redis-ver";
    let at = snapshot.windows(name.len()).position(|bytes| bytes == name).expect("the field") + name.len();
    let length = usize::from(snapshot[at]);
    vec![
        ("HELLO", client.call("HELLO 3").field("version").expect("a version").text()),
        ("INFO", field(&info, "redis_version").expect("the line").to_owned()),
        ("LOLWUT", art.split("as Redis ver. ").nth(1).and_then(|rest| rest.split(')').next()).expect("it").to_owned()),
        ("scripts", client.command(&["EVAL", "return redis.REDIS_VERSION", "0"]).text()),
        ("scripts, packed", format!("{}.{}.{}", packed >> 16, packed >> 8 & 0xff, packed & 0xff)),
        ("libraries while they load", of_functions.items()[0].text()),
        ("functions", of_functions.items()[1].text()),
        ("snapshots", String::from_utf8_lossy(&snapshot[at + 1..at + 1 + length]).into_owned()),
        ("CONFIG GET", client.call("CONFIG GET redis-version").field("redis-version").expect("it").text()),
    ]
}

#[test]
fn one_version_is_told_everywhere() {
    for (flags, expected) in [(&[][..], "7.4.0"), (&["--redis-version", "7.0.15"], "7.0.15")] {
        on_embers(flags, |server| {
            for (place, version) in versions(server) {
                assert_eq!(version, expected, "{place}");
            }
            let mut client = server.client();
            let info = client.call("INFO server").text();
            assert_eq!(field(&info, "emberdb_version"), Some(env!("CARGO_PKG_VERSION")), "ours is told as it is");
            let refused = client.call("CONFIG SET redis-version 8.0.0");
            let text =
                "ERR CONFIG SET failed (possibly related to argument 'redis-version') - can't set immutable config";
            assert_eq!(refused, error(text));
        });
    }
}

/// What the servers may tell differently of a command, and why.
const UNLIKE: &[(&str, &str)] = &[
    ("zrank", "takes WITHSCORE, as Redis 7.2"),
    ("zrevrank", "takes WITHSCORE, as Redis 7.2"),
    ("spublish", "without a cluster its channels are no keys"),
    ("ssubscribe", "without a cluster its channels are no keys"),
    ("sunsubscribe", "without a cluster its channels are no keys"),
];

/// The items of COMMAND by name, subcommands too, without these.
fn told_of_commands(server: &Server) -> BTreeMap<String, Vec<Value>> {
    fn add(items: &[Value], of_all: &mut BTreeMap<String, Vec<Value>>) {
        for item in items {
            let parts = item.items();
            add(parts[9].items(), of_all);
            of_all.insert(parts[0].text(), parts[1..9].to_vec());
        }
    }
    let mut of_all = BTreeMap::new();
    add(server.client().call("COMMAND").items(), &mut of_all);
    of_all
}

#[test]
fn commands_are_described_as_redis_describes_them() {
    if !have_redis() {
        return;
    }
    let ours = told_of_commands(&Server::start(Kind::Ember { shards: 1 }, &[]));
    let redis = told_of_commands(&Server::start(Kind::Redis, &[]));
    assert!(redis.len() > 360 && redis.contains_key("client|help"), "{}", redis.len());
    for (name, theirs) in redis.iter().filter(|(name, _)| UNLIKE.iter().all(|(unlike, _)| unlike != name)) {
        // Arity, flags, first key, last key, step, categories, tips, keys: to the byte, in this order.
        assert_eq!(ours.get(name), Some(theirs), "{name}");
    }
}

/// What COMMAND DOCS says of each command but for its texts, arguments and history, in its order.
fn documented(server: &Server) -> BTreeMap<String, Vec<String>> {
    fn add(entries: &Value, of_all: &mut BTreeMap<String, Vec<String>>) {
        let Value::Map(entries) = entries else { panic!("a map, not {entries:?}") };
        for (name, docs) in entries {
            let Value::Map(docs) = docs else { panic!("a map, not {docs:?}") };
            let mut said = Vec::new();
            for (field, value) in docs {
                match field.text().as_str() {
                    "subcommands" => add(value, of_all),
                    "doc_flags" => said.push(format!("doc_flags {:?}", value.items())),
                    field @ ("since" | "group" | "deprecated_since" | "replaced_by") => {
                        said.push(format!("{field} {}", value.text()));
                    }
                    _ => {}
                }
            }
            of_all.insert(name.text(), said);
        }
    }
    let mut of_all = BTreeMap::new();
    add(&server.client3().call("COMMAND DOCS"), &mut of_all);
    of_all
}

#[test]
fn commands_are_documented_with_their_age_and_what_replaces_them() {
    if !have_redis() {
        return;
    }
    let ours = documented(&Server::start(Kind::Ember { shards: 1 }, &[]));
    for (name, theirs) in documented(&Server::start(Kind::Redis, &[])) {
        assert_eq!(ours.get(&name), Some(&theirs), "{name}");
    }
}

/// Lines of INFO that Redis has and we have not, since there is nothing to tell.
const UNTOLD: &[&str] = &[
    "monotonic_clock",
    "atomicvar_api",
    "gcc_version",
    "process_supervised",
    "client_recent_max_input_buffer",
    "client_recent_max_output_buffer",
    "allocator_allocated",
    "allocator_active",
    "allocator_resident",
    "allocator_frag_ratio",
    "allocator_frag_bytes",
    "allocator_rss_ratio",
    "allocator_rss_bytes",
    "rss_overhead_ratio",
    "rss_overhead_bytes",
    "current_fork_perc",
    "current_save_keys_processed",
    "current_save_keys_total",
    "module_fork_in_progress",
    "module_fork_last_cow_size",
    "active_defrag_hits",
    "active_defrag_misses",
    "active_defrag_key_hits",
    "active_defrag_key_misses",
    "total_active_defrag_time",
    "current_active_defrag_time",
    "unexpected_error_replies",
    "dump_payload_sanitizations",
    "io_threaded_reads_processed",
    "io_threaded_writes_processed",
    "reply_buffer_shrinks",
    "reply_buffer_expands",
    "used_cpu_sys_main_thread",
    "used_cpu_user_main_thread",
];

/// The headers of INFO, and the names behind them.
fn told(server: &Server, request: &str) -> Vec<String> {
    let text = server.client().call(request).text();
    text.lines().filter(|line| !line.is_empty()).map(|line| line.split(':').next().unwrap().to_owned()).collect()
}

#[test]
fn info_has_the_lines_of_redis_in_its_order() {
    if !have_redis() {
        return;
    }
    let (ours, redis) = (Server::start(Kind::Ember { shards: 1 }, &[]), Server::start(Kind::Redis, &[]));
    for request in ["INFO", "INFO default", "INFO everything", "INFO modules", "INFO clients cpu", "INFO nosuch"] {
        // What was called is listed in the order in which the servers number their commands.
        let of_commands = |line: &String| line.starts_with("cmdstat_") || line.starts_with("latency_percentiles_usec_");
        let mut theirs = told(&redis, request);
        theirs.retain(|line| !UNTOLD.contains(&line.as_str()) && !of_commands(line));
        let known: BTreeSet<&String> = theirs.iter().collect();
        let mut own = told(&ours, request);
        own.retain(|line| known.contains(line));
        assert_eq!(own, theirs, "{request}");
    }
}

fn number(client: &mut Client, name: &str) -> i64 {
    let info = client.call("INFO clients").text();
    field(&info, name).and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no {name} in {info}"))
}

#[test]
fn info_counts_who_watches_and_who_waits() {
    on_embers(&[], |server| {
        let mut client = server.client();
        let mut counts = |expected: [i64; 6]| {
            let names = [
                "watching_clients",
                "total_watched_keys",
                "blocked_clients",
                "clients_in_timeout_table",
                "total_blocking_keys",
                "total_blocking_keys_on_nokey",
            ];
            let mut now = [0; 6];
            let same = || {
                now = names.map(|name| number(&mut client, name));
                now == expected
            };
            assert!(wait_until(PATIENCE, same), "{now:?}, not {expected:?}");
        };
        counts([0; 6]);
        let (mut one, mut two) = (server.client(), server.client());
        one.call("WATCH a b c");
        two.call("WATCH c d");
        counts([2, 4, 0, 0, 0, 0]);
        one.call("UNWATCH");
        counts([1, 2, 0, 0, 0, 0]);
        two.call("RESET");
        one.call("XGROUP CREATE s g $ MKSTREAM");
        one.send("BLPOP x y z 0");
        two.send("BLPOP y 100");
        let mut three = server.client();
        three.send("XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
        counts([0, 0, 3, 1, 4, 1]);
        drop((one, two, three));
        counts([0; 6]);
    });
}

/// The ids of the lines of CLIENT LIST.
fn listed(client: &mut Client, conditions: &str) -> Vec<i64> {
    let text = client.call(&format!("CLIENT LIST {conditions}")).text();
    let id = |line: &str| line.strip_prefix("id=")?.split(' ').next()?.parse().ok();
    text.lines().map(|line| id(line).expect("an id")).collect()
}

#[test]
fn connections_are_listed_and_ended_by_conditions() {
    on_embers(&["--databases", "16"], |server| {
        let mut boss = server.client();
        let mut others: Vec<Client> = (0..4).map(|_| server.client()).collect();
        let ids: Vec<i64> = others.iter_mut().map(|client| client.call("CLIENT ID").number()).collect();
        let boss_id = boss.call("CLIENT ID").number();
        others[0].call("CLIENT SETNAME worker");
        others[1].call("SELECT 3");
        others[2].call("CLIENT SETINFO LIB-NAME lib");
        others[2].call("CLIENT SETINFO LIB-VER 1.2");
        others[3].call("CLIENT NO-TOUCH on");
        others[3].call("MULTI");
        for (conditions, expected) in [
            ("NAME worker", vec![ids[0]]),
            ("DB 3", vec![ids[1]]),
            ("LIB-NAME lib", vec![ids[2]]),
            ("LIB-VER 1.2", vec![ids[2]]),
            ("FLAGS Tx", vec![ids[3]]),
            ("NOT-FLAGS N", vec![ids[3]]),
            ("NOT-DB 0", vec![ids[1]]),
            ("IP 127.0.0.1 NAME worker", vec![ids[0]]),
            ("IP 127.0.0.2", vec![]),
            ("CAPA r", vec![]),
            ("USER default SKIPME yes", ids.clone()),
            ("NOT-USER default", vec![]),
            ("TYPE normal NOT-NAME worker NOT-DB 3 NOT-LIB-NAME lib NOT-FLAGS x", vec![boss_id]),
            ("MAXAGE 1000000", vec![]),
            ("IDLE 1000000", vec![]),
            ("TYPE pubsub", vec![]),
        ] {
            assert_eq!(listed(&mut boss, conditions), expected, "{conditions}");
        }
        assert_eq!(listed(&mut boss, &format!("ID {} {} NOT-ID {}", ids[1], ids[0], ids[0])), [ids[1]]);
        assert_eq!(listed(&mut boss, &format!("ID {} {0} {}", ids[1], ids[0])), [ids[1], ids[1], ids[0]]);
        assert_eq!(boss.call("CLIENT LIST MAXAGE 0"), error("ERR maxage should be greater than 0"));
        assert_eq!(boss.call("CLIENT KILL MAXAGE 1000000"), int(0));
        assert_eq!(boss.call("CLIENT KILL NAME worker LIB-NAME lib"), int(0), "all have to hold");
        assert_eq!(boss.call(&format!("CLIENT KILL ID {} {} DB 0", ids[0], ids[1])), int(1));
        assert!(others[0].is_closed_by_server());
        assert_eq!(boss.call("CLIENT KILL USER default NOT-LIB-NAME lib"), int(2));
        assert_eq!(listed(&mut boss, "SKIPME yes"), [ids[2]]);
        assert_eq!(boss.call("CLIENT KILL IP 127.0.0.1"), int(1));
    });
}

/// Some clients refuse a line with a field that they do not know.
#[test]
fn a_connection_is_shown_as_by_the_version_that_is_told() {
    on_embers(&[], |server| {
        let info = server.client().call("CLIENT INFO").text();
        assert!(info.trim_end().ends_with(" redir=-1 resp=2 lib-name= lib-ver="), "{info}");
        assert_eq!(server.client().call("SCRIPT DEBUG NO"), Value::ok());
        assert!(server.client().call("SCRIPT DEBUG YES").is_error());
    });
}

#[test]
fn a_connection_counts_what_it_sends_and_gets() {
    on_embers(&["--redis-version", "8.2.0"], |server| {
        let mut client = server.client();
        client.call("PING");
        let mut observer = server.client();
        let id = client.call("CLIENT ID").number();
        let ends = |text: &str| text.ends_with(" lib-name= lib-ver= tot-net-in=38 tot-net-out=11 tot-cmds=2\n");
        let told = wait_until(PATIENCE, || ends(&observer.call(&format!("CLIENT LIST ID {id}")).text()));
        assert!(told, "{}", observer.call(&format!("CLIENT LIST ID {id}")).text());
    });
}

#[test]
fn help_is_a_subcommand_of_its_container() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        client.call("CONFIG RESETSTAT");
        let help = client.call("OBJECT HELP");
        assert_eq!(help.items().last().map(Value::text), Some("    Prints this help.".to_owned()));
        assert_eq!(client.call("OBJECT HELP x"), error("ERR wrong number of arguments for 'object|help' command"));
        assert_eq!(client.call("COMMAND INFO object|help").items()[0].items()[1], int(2));
        let info = client.call("INFO commandstats").text();
        assert!(info.contains("cmdstat_object|help:calls=1,"), "{info}");
        client.call("MULTI");
        client.call("OBJECT HELP");
        client.call("COMMAND HELP");
        let replies = client.call("EXEC");
        assert_eq!(replies.items()[0], help);
        assert!(replies.items()[1].items().len() > 10);
        assert_eq!(
            client.command(&["EVAL", "return redis.call('object', 'help')", "0"]).items().len(),
            help.items().len()
        );
    });
}
