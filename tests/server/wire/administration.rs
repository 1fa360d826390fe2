//! CONFIG, COMMAND, INFO, TIME, DEBUG and EXPIRY: what an operator and a client library ask a server about itself.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::common::{
    Client, Kind, Server, Value, bulk, error, have_tool, int, on_embers, on_every_server, simple, wait_until,
};

const DEBUG_REFUSED: &str = "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", \
                             you can run it from a local connection, otherwise you need to set this option in the \
                             configuration file, and then restart the server.";

#[test]
fn config_get_takes_names_and_patterns() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("CONFIG GET hz"), Value::bulks(&["hz", "10"]));
        assert_eq!(client.call("CONFIG GET HZ").items()[1], bulk("10"));
        assert_eq!(client.call("CONFIG GET no-such-thing"), Value::Array(vec![]));
        let both = client.call("CONFIG GET hz databases hz");
        assert_eq!(both.items().len(), 4, "each once: {both:?}");
        assert_eq!(both.field("databases"), Some(bulk("16")));
        let limits = client.call("CONFIG GET proto-*-len");
        assert_eq!(limits, Value::bulks(&["proto-max-bulk-len", "536870912"]));
        assert!(client.call("CONFIG GET *").items().len() > 20);
        let port = server.port().to_string();
        assert_eq!(client.call("CONFIG GET port"), Value::bulks(&["port", &port]));
    });
}

#[test]
fn config_set_changes_what_config_get_shows_everywhere() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("CONFIG SET hz 20 proto-max-bulk-len 2mb"), Value::ok());
        // New connections land on every shard in turn.
        for _ in 0..6 {
            let mut client = server.client();
            assert_eq!(client.call("CONFIG GET hz"), Value::bulks(&["hz", "20"]));
            let len = client.call("CONFIG GET proto-max-bulk-len");
            assert_eq!(len.field("proto-max-bulk-len"), Some(bulk("2097152")));
        }
        assert_eq!(client.call("CONFIG SET notify-keyspace-events KEA"), Value::ok());
        assert_eq!(client.call("CONFIG GET notify-keyspace-events"), Value::bulks(&["notify-keyspace-events", "AKE"]));
    });
}

#[test]
fn config_set_refuses_bad_names_and_values_and_then_changes_nothing() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        assert_eq!(
            client.call("CONFIG SET no-such-thing 1"),
            error("ERR Unknown option or number of arguments for CONFIG SET - 'no-such-thing'")
        );
        assert_eq!(
            client.call("CONFIG SET hz many"),
            error(
                "ERR CONFIG SET failed (possibly related to argument 'hz') - argument couldn't be parsed into an \
                 integer"
            )
        );
        assert_eq!(
            client.call("CONFIG SET timeout 80 hz x"),
            error(
                "ERR CONFIG SET failed (possibly related to argument 'hz') - argument couldn't be parsed into an \
                 integer"
            ),
        );
        assert_eq!(
            client.call("CONFIG SET databases 4"),
            error("ERR CONFIG SET failed (possibly related to argument 'databases') - can't set immutable config")
        );
        assert_eq!(
            client.call("CONFIG SET hz 20 hz 30"),
            error("ERR CONFIG SET failed (possibly related to argument 'hz') - duplicate parameter")
        );
        assert!(client.call("CONFIG SET hz 20 notify-keyspace-events Q").is_error());
        assert_eq!(client.call("CONFIG GET hz"), Value::bulks(&["hz", "10"]));
    });
}

#[test]
fn expiry_directives_have_their_defaults_and_change_at_run_time() {
    on_embers(&[], |server| {
        let mut client = server.client();
        for (name, default, other, bad) in [
            ("active-expire-enabled", "yes", "no", "maybe"),
            ("active-expire-interval-ms", "10", "0", "-1"),
            ("active-expire-cpu-percent", "25", "5", "101"),
            ("active-expire-fast-us", "1000", "500", "-1"),
            ("active-expire-sample-size", "20", "100", "0"),
            ("active-expire-acceptable-stale", "10", "25", "101"),
            ("active-expire-effort", "1", "10", "11"),
        ] {
            let get = format!("CONFIG GET {name}");
            assert_eq!(client.call(&get), Value::bulks(&[name, default]));
            let set = client.command(&["CONFIG", "SET", name, bad]);
            let start = format!("ERR CONFIG SET failed (possibly related to argument '{name}') - ");
            assert!(set.is_error() && set.text().starts_with(&start), "{set:?}");
            assert_eq!(client.call(&get), Value::bulks(&[name, default]));
            assert_eq!(client.command(&["CONFIG", "SET", name, other]), Value::ok());
            assert_eq!(client.call(&get), Value::bulks(&[name, other]));
        }
    });
}

#[test]
fn resetstat_sets_the_counters_to_zero() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        client.call("SET k v");
        client.call("GET k");
        client.call("GET nothing");
        client.call("SET dead v PX 1");
        let expired = || server.info("expired_keys").as_deref() == Some("1");
        assert!(wait_until(Duration::from_secs(10), expired));
        assert_eq!(server.info("keyspace_hits").as_deref(), Some("1"));
        assert_eq!(server.info("keyspace_misses").as_deref(), Some("1"));
        assert_eq!(client.call("CONFIG RESETSTAT"), Value::ok());
        for field in ["keyspace_hits", "keyspace_misses", "expired_keys"] {
            assert_eq!(server.info(field).as_deref(), Some("0"), "{field}");
        }
    });
}

#[test]
fn rewrite_writes_the_file_that_the_next_start_reads() {
    on_every_server(&[], |server| {
        assert_eq!(server.client().call("CONFIG REWRITE"), error("ERR The server is running without a config file"));
    });
    for kind in [Kind::Ember { shards: 3 }, Kind::Redis] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ember.conf");
        let path = path.to_str().expect("a path in UTF-8");
        std::fs::write(path, "# mine\nhz 15\n").expect("a file");
        let server = Server::start(kind, &[path]);
        let mut client = server.client();
        assert_eq!(client.call("CONFIG GET hz"), Value::bulks(&["hz", "15"]));
        assert_eq!(client.call("CONFIG SET hz 50"), Value::ok());
        assert_eq!(client.call("CONFIG SET notify-keyspace-events Ex"), Value::ok());
        assert_eq!(client.call("CONFIG REWRITE"), Value::ok());
        let text = std::fs::read_to_string(path).expect("the file");
        assert!(text.starts_with("# mine\n"), "comments stay: {text}");
        let server = server.restart(&[path]);
        let mut client = server.client();
        assert_eq!(client.call("CONFIG GET hz"), Value::bulks(&["hz", "50"]));
        let events = client.call("CONFIG GET notify-keyspace-events");
        assert_eq!(events.items()[1].text().chars().collect::<BTreeSet<_>>(), BTreeSet::from(['E', 'x']));
    }
}

#[test]
fn command_lists_what_it_counts() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        let count = client.call("COMMAND COUNT").number();
        let names: BTreeSet<String> = names(&client.call("COMMAND LIST"));
        // The list names subcommands as well: "client|id".
        let commands = names.iter().filter(|name| !name.contains('|'));
        assert_eq!(commands.count() as i64, count);
        assert_eq!(client.call("COMMAND").items().len() as i64, count);
        for name in ["get", "set", "expire", "subscribe", "client", "hello"] {
            assert!(names.contains(name), "{name}");
        }
        let filtered = self::names(&client.call("COMMAND LIST FILTERBY PATTERN p*expire*"));
        let expected = ["pexpire", "pexpireat", "pexpiretime"].map(String::from);
        assert_eq!(filtered, BTreeSet::from(expected));
        let dangerous = self::names(&client.call("COMMAND LIST FILTERBY ACLCAT dangerous"));
        assert!(dangerous.contains("keys") && !dangerous.contains("get"));
    });
}

fn names(list: &Value) -> BTreeSet<String> {
    list.items().iter().map(Value::text).collect()
}

#[test]
fn command_info_gives_arity_flags_and_key_positions() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        // name, arity, a flag, first key, last key, step
        for (name, arity, flag, first, last, step) in [
            ("get", 2, "readonly", 1, 1, 1),
            ("set", -3, "write", 1, 1, 1),
            ("mget", -2, "fast", 1, -1, 1),
            ("mset", -3, "denyoom", 1, -1, 2),
            ("rename", 3, "write", 1, 2, 1),
            ("expire", -3, "fast", 1, 1, 1),
            ("ping", -1, "fast", 0, 0, 0),
            ("subscribe", -2, "pubsub", 0, 0, 0),
        ] {
            let reply = client.call(&format!("COMMAND INFO {name}"));
            let info = reply.items()[0].items();
            assert_eq!(info[0], bulk(name));
            assert_eq!(info[1], int(arity), "{name}");
            assert!(names(&info[2]).contains(flag), "{name}: {:?}", info[2]);
            let keys = [int(first), int(last), int(step)];
            assert_eq!(info[3..6], keys, "{name}");
        }
        let reply = client.call("COMMAND INFO get no-such-thing SET");
        assert_eq!(reply.items()[1], Value::NullBulk);
        assert_eq!(reply.items()[2].items()[0], bulk("set"));
    });
}

#[test]
fn command_docs_summarises_each_command() {
    on_every_server(&[], |server| {
        let mut client = server.client3();
        let docs = client.call("COMMAND DOCS expire no-such-thing");
        let Value::Map(entries) = &docs else {
            panic!("a map, not {docs:?}");
        };
        assert_eq!(entries.len(), 1, "unknown names are left out");
        let expire = docs.field("expire").expect("expire");
        for field in ["summary", "since", "group", "complexity", "arguments"] {
            assert!(expire.field(field).is_some(), "{field}: {expire:?}");
        }
    });
}

#[test]
fn command_getkeys_finds_the_keys() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        let mut keys = |command: &str| client.call(&format!("COMMAND GETKEYS {command}"));
        assert_eq!(keys("GET a"), Value::bulks(&["a"]));
        assert_eq!(keys("MSET a 1 b 2 c 3"), Value::bulks(&["a", "b", "c"]));
        assert_eq!(keys("DEL a b c"), Value::bulks(&["a", "b", "c"]));
        assert_eq!(keys("RENAME a b"), Value::bulks(&["a", "b"]));
        assert_eq!(keys("SET a b EX 10"), Value::bulks(&["a"]));
        assert_eq!(keys("PING hello"), error("ERR The command has no key arguments"));
        assert_eq!(keys("SET a"), error("ERR Invalid number of arguments specified for command"));
        assert_eq!(keys("NOSUCH a"), error("ERR Invalid command specified"));
    });
}

#[test]
fn info_has_its_sections_alone_and_together() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        client.call("SET k v EX 1000");
        let sections = |text: &str| -> Vec<String> {
            let titles = text.lines().filter_map(|line| line.strip_prefix("# "));
            titles.map(String::from).collect()
        };
        let all = client.call("INFO").text();
        for title in ["Server", "Clients", "Memory", "Stats", "CPU", "Keyspace"] {
            let alone = client.call(&format!("INFO {}", title.to_lowercase())).text();
            assert_eq!(sections(&alone), [title], "INFO {title}");
            assert!(sections(&all).contains(&title.to_string()), "{title}");
            assert!(alone.lines().count() > 1, "{title} is empty");
        }
        let two = client.call("INFO keyspace server").text();
        assert_eq!(sections(&two).len(), 2);
        assert_eq!(client.call("INFO no-such-thing").text(), "");
        let line = all.lines().find(|line| line.starts_with("db0:"));
        let line = line.expect("database 0");
        assert!(line.starts_with("db0:keys=1,expires=1,avg_ttl="), "{line}");
        let pid = server.pid().to_string();
        assert_eq!(server.info("process_id"), Some(pid));
        assert_eq!(server.info("tcp_port"), Some(server.port().to_string()));
    });
}

#[test]
fn info_reports_expiry_and_shards() {
    on_embers(&[], |server| {
        for field in [
            "expired_keys",
            "expired_keys_active",
            "expired_stale_perc",
            "expired_time_cap_reached_count",
            "expire_cycle_cpu_milliseconds",
            "expire_lag_p50_us",
            "expire_lag_p99_us",
            "expire_lag_max_us",
            "expire_lag_promised_us",
            "expire_oldest_due_us",
            "expired_bytes",
            "active_expire_enabled",
            "active_expire_interval_ms",
        ] {
            let value = server.info(field).unwrap_or_else(|| panic!("no {field}"));
            assert!(value.parse::<f64>().is_ok(), "{field}:{value}");
        }
        let text = server.client().call("INFO shards").text();
        assert!(text.starts_with("# Shards"), "{text}");
        let Kind::Ember { shards } = server.kind() else {
            unreachable!("EmberDB only");
        };
        let lines = text.lines().filter(|line| line.starts_with("shard"));
        assert!(lines.count() >= shards, "{text}");
    });
}

#[test]
fn memory_in_use_follows_what_is_stored() {
    on_every_server(&[], |server| {
        const KEYS: usize = 1000;
        const VALUE_BYTES: usize = 10_000;
        let used = || -> usize {
            let text = server.info("used_memory").expect("used_memory");
            text.parse().expect("bytes")
        };
        let before = used();
        let mut client = server.client();
        let value = vec![b'v'; VALUE_BYTES];
        for i in 0..KEYS {
            let key = format!("key:{i}");
            assert_eq!(client.command(&[b"SET", key.as_bytes(), &value]), Value::ok());
        }
        let full = used();
        assert!(full >= before + KEYS * VALUE_BYTES, "{before} {full}");
        client.call("FLUSHALL");
        let freed = || used() < before + KEYS * VALUE_BYTES / 10;
        assert!(wait_until(Duration::from_secs(10), freed), "{}", used());
    });
}

#[test]
fn time_is_the_wall_clock_in_seconds_and_microseconds() {
    on_every_server(&[], |server| {
        let wall_us = || {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            since.expect("after 1970").as_micros()
        };
        let before = wall_us();
        let reply = server.client().call("TIME");
        let after = wall_us();
        let part = |i: usize| reply.items()[i].text().parse::<u128>().expect("a number");
        assert!(part(1) < 1_000_000);
        let time = part(0) * 1_000_000 + part(1);
        // A server may read its clock once for a batch of commands.
        assert!(time + 10_000 >= before && time <= after, "{before} {time} {after}");
    });
}

#[test]
fn debug_is_refused_unless_enabled() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("DEBUG SLEEP 0"), error(DEBUG_REFUSED));
        assert_eq!(client.call("DEBUG NOSUCH"), error(DEBUG_REFUSED));
        assert_eq!(
            client.call("CONFIG SET enable-debug-command yes"),
            error(
                "ERR CONFIG SET failed (possibly related to argument 'enable-debug-command') - can't set immutable \
                 config"
            )
        );
    });
    for value in ["yes", "local"] {
        on_every_server(&["--enable-debug-command", value], |server| {
            assert_eq!(server.client().call("DEBUG SLEEP 0"), Value::ok());
        });
    }
}

#[test]
fn debug_tells_how_full_tables_are_and_how_long_strings() {
    on_every_server(&["--enable-debug-command", "yes"], |server| {
        let mut client = server.client();
        let empty = "Hash table 0 stats (main hash table):\nNo stats available for empty dictionaries\n";
        let stats = client.call("DEBUG HTSTATS 0").text();
        assert_eq!(stats, format!("[Dictionary HT]\n{empty}[Expires HT]\n{empty}"));
        client.call("DEBUG POPULATE 1000");
        client.call("EXPIRE key:7 1000");
        // A table of Redis may be on its way to another.
        let sum = |stats: &str, name: &str| -> usize {
            let values = stats.lines().filter_map(|line| line.trim().strip_prefix(name));
            values.map(|value| value.parse::<usize>().expect("a number")).sum()
        };
        let stats = client.call("DEBUG HTSTATS 0").text();
        let (keys, deadlines) = stats.split_once("[Expires HT]").expect("two parts");
        assert_eq!((sum(keys, "number of elements: "), sum(deadlines, "number of elements: ")), (1000, 1), "{stats}");
        assert!(sum(keys, "table size: ") >= sum(keys, "different slots: "), "{stats}");
        assert_eq!(client.call("DEBUG HTSTATS 99"), error("ERR Out of range database"));
        assert_eq!(client.call("DEBUG HTSTATS x"), error("ERR value is not an integer or out of range"));

        (0..700).for_each(|n| drop(client.call(&format!("SADD set m{n}"))));
        let stats = client.call("DEBUG HTSTATS-KEY set").text();
        assert_eq!(sum(&stats, "number of elements: "), 700, "{stats}");
        let no_table = "ERR The value stored at the specified key is not represented using an hash table";
        assert_eq!(client.call("DEBUG HTSTATS-KEY key:1"), error(no_table));
        assert_eq!(client.call("DEBUG HTSTATS-KEY nothing"), error("ERR no such key"));

        client.command(&["SET", "text", "hello world"]);
        let lengths = client.call("DEBUG SDSLEN text").text();
        assert!(lengths.starts_with("key_sds_len:4, key_sds_avail:0, key_zmalloc: "), "{lengths}");
        assert!(lengths.contains(", val_sds_len:11, val_sds_avail:0, val_zmalloc: "), "{lengths}");
        client.call("SET number 12");
        assert_eq!(client.call("DEBUG SDSLEN number"), error("ERR Not an sds encoded string."));
        assert_eq!(client.call("DEBUG SDSLEN set"), error("ERR Not an sds encoded string."));
        assert_eq!(client.call("DEBUG SDSLEN nothing"), error("ERR no such key"));
    });
}

#[test]
fn debug_tells_about_values_and_the_whole_dataset() {
    on_every_server(&["--enable-debug-command", "yes"], |server| {
        let mut client = server.client();
        let empty = "0".repeat(40);
        assert_eq!(client.call("DEBUG DIGEST"), simple(&empty));
        client.call("MSET a 1 b two");
        let object = client.call("DEBUG OBJECT b").text();
        assert!(object.contains("encoding:embstr"), "{object}");
        assert_eq!(client.call("DEBUG OBJECT nothing"), error("ERR no such key"));
        let digest = client.call("DEBUG DIGEST").text();
        assert_ne!(digest, empty);
        let values = client.call("DEBUG DIGEST-VALUE a nothing");
        assert_ne!(values.items()[0].text(), empty);
        assert_eq!(values.items()[1].text(), empty);
        // The same data give the same digest, however they came about; a deadline makes a difference.
        client.call("FLUSHALL");
        client.call("SET b two");
        client.call("INCR a");
        assert_eq!(client.call("DEBUG DIGEST").text(), digest);
        client.call("EXPIRE a 1000");
        assert_ne!(client.call("DEBUG DIGEST").text(), digest);
        let unknown = client.call("DEBUG NOSUCH");
        assert_eq!(unknown, error("ERR unknown subcommand or wrong number of arguments for 'NOSUCH'. Try DEBUG HELP."));
    });
}

#[test]
fn debug_set_active_expire_stops_and_starts_the_cycle() {
    on_every_server(&["--enable-debug-command", "yes"], |server| {
        let mut client = server.client();
        assert_eq!(client.call("DEBUG SET-ACTIVE-EXPIRE 0"), Value::ok());
        for i in 0..30 {
            client.call(&format!("SET key:{i} v PX 1"));
        }
        client.call("SET later v PX 30");
        // Dead by access, long after the others died; nobody touched these.
        let later = || client.call("GET later").is_null();
        assert!(wait_until(Duration::from_secs(10), later));
        assert_eq!(server.info("expired_keys").as_deref(), Some("1"));
        let mut client = server.client();
        assert_eq!(client.call("DEBUG SET-ACTIVE-EXPIRE 1"), Value::ok());
        let all = || server.info("expired_keys").as_deref() == Some("31");
        assert!(wait_until(Duration::from_secs(10), all));
    });
}

#[test]
fn there_are_no_functions_or_scripts_to_flush() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("FUNCTION FLUSH"), Value::ok());
        assert_eq!(client.call("SCRIPT FLUSH"), Value::ok());
    });
}

#[test]
fn purge_deletes_what_is_due_on_all_shards_and_counts_it() {
    on_embers(&["--active-expire-interval-ms", "0"], |server| {
        let mut client = server.client();
        for i in 0..100 {
            client.call(&format!("SET token:{i} v PX 1"));
            client.call(&format!("SET live:{i} v EX 1000"));
        }
        for i in 0..50 {
            client.call(&format!("SET session:{i} v PX 1"));
        }
        client.call("SET later v PX 20");
        let later = || client.call("GET later").is_null();
        assert!(wait_until(Duration::from_secs(10), later));
        let mut client = server.client();
        assert_eq!(client.call("EXPIRY PURGE PREFIX token:"), int(100));
        assert_eq!(client.call("EXPIRY PURGE PREFIX token:"), int(0));
        assert_eq!(client.call("EXPIRY PURGE"), int(50));
        assert_eq!(client.call("EXPIRY PURGE"), int(0));
        assert_eq!(client.call("DBSIZE"), int(100));
        assert_eq!(client.call("EXPIRY PURGE PREFIX"), error("ERR syntax error"));
    });
}

#[test]
fn debug_error_answers_what_it_is_told() {
    on_every_server(&["--enable-debug-command", "yes"], |server| {
        let mut client = server.client();
        assert_eq!(client.command(&["DEBUG", "ERROR", "LOADING a\r\nmessage"]), error("LOADING a  message"));
        client.assert_in_step();
    });
}

/// What tools and tests read and set: each directive of Redis has a value here, and may be changed where it may there.
#[test]
fn every_directive_of_redis_is_known() {
    if !have_tool("redis-server") {
        return;
    }
    let (ours, redis) = (Server::start(Kind::Ember { shards: 1 }, &[]), Server::start(Kind::Redis, &[]));
    let (mut ours, mut redis) = (ours.client(), redis.client());
    let all = redis.call("CONFIG GET *");
    for name in all.items().chunks(2).map(|pair| pair[0].text()) {
        let there = ours.call(&format!("CONFIG GET {name}"));
        assert_eq!(there.items().len(), 2, "{name}");
        // Those that listen are there before the first client.
        if matches!(name.as_str(), "bind" | "port") {
            continue;
        }
        let set = |client: &mut Client| {
            let value = client.call(&format!("CONFIG GET {name}")).items()[1].bytes().expect("a value").to_vec();
            client.command(&[&b"CONFIG"[..], b"SET", name.as_bytes(), &value])
        };
        let (here, there) = (set(&mut ours), set(&mut redis));
        assert!(here == there || name.starts_with("tls-"), "{name}: {here:?}, {there:?}");
    }
    for (name, value) in [("maxmemory", "0"), ("save", ""), ("appendonly", "no"), ("list-compress-depth", "0")] {
        assert_eq!(ours.call(&format!("CONFIG GET {name}")), Value::bulks(&[name, value]));
    }
}
