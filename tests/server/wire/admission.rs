//! May a command run? Which of several reasons against it is told, and that each is asked on all ways in which a command can
//! run.

use crate::common::server::have_redis;
use crate::common::{Client, Kind, Server, Value, on_embers, simple, wait_until};
use crate::hostile::table::words_of;
use std::fs;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);
const FLAGS: [&str; 10] = [
    "--save",
    "3600 1",
    "--dbfilename",
    "data.rdb",
    "--enable-debug-command",
    "yes",
    "--enable-protected-configs",
    "yes",
    "--appendonly",
    "no",
];
const COMMANDS: [&[&str]; 17] = [
    &["SET", "k", "v"],
    &["GET", "k"],
    &["GET"],
    &["NOSUCH", "k"],
    &["PING"],
    &["WATCH", "k"],
    &["MULTI"],
    &["EXEC"],
    &["PUBLISH", "channel", "message"],
    &["CLIENT", "GETNAME"],
    &["CONFIG", "GET", "port-that-is-none"],
    &["DEBUG", "NOSUCH"],
    &["SAVE", "now"],
    &["EVAL", "return redis.call('SET', KEYS[1], 'x')", "1", "k"],
    &["EVAL", "return redis.call('GET', KEYS[1])", "1", "k"],
    &["EVAL", "#!lua flags=no-writes\nreturn redis.call('GET', KEYS[1])", "1", "k"],
    &["EVAL", "#!lua flags=allow-stale,allow-oom\nreturn redis.call('PING')", "0"],
];

/// What holds at the same time.
#[derive(Clone, Copy, Debug)]
struct Holds {
    full: bool,
    unsaved: bool,
    read_only: bool,
    stale: bool,
}

fn all_holds() -> impl Iterator<Item = Holds> {
    (0..12).map(|n| Holds { full: n & 1 != 0, unsaved: n & 2 != 0, read_only: n >= 4, stale: n >= 8 })
}

impl Holds {
    fn begin(self, server: &Server, client: &mut Client) {
        set(client, "CONFIG SET maxmemory 0");
        follow(server, client, false, false);
        let in_the_way = server.folder().join("data.rdb");
        if self.unsaved {
            let _ = fs::remove_file(&in_the_way);
            fs::create_dir_all(&in_the_way).expect("a folder");
        } else {
            let _ = fs::remove_dir(&in_the_way);
        }
        let status = if self.unsaved { "err" } else { "ok" };
        assert!(wait_until(PATIENCE, || {
            let is_saving = server.info("rdb_bgsave_in_progress").as_deref() != Some("0");
            let is_so = server.info("rdb_last_bgsave_status").as_deref() == Some(status);
            if !is_saving && !is_so {
                client.call("BGSAVE");
            }
            !is_saving && is_so
        }));
        follow(server, client, self.read_only, self.stale);
        set(client, &format!("CONFIG SET maxmemory {}", i32::from(self.full)));
    }
}

fn set(client: &mut Client, line: &str) {
    assert_eq!(client.call(line), Value::ok(), "{line}");
}

fn follow(server: &Server, client: &mut Client, read_only: bool, stale: bool) {
    if server.kind().is_ember() {
        set(client, &format!("DEBUG REPLICA READ-ONLY {}", i32::from(read_only)));
        set(client, &format!("DEBUG REPLICA STALE {}", i32::from(stale)));
    } else {
        set(client, "CONFIG SET replica-ignore-maxmemory no");
        client.call(if read_only { "REPLICAOF 127.0.0.1 1" } else { "REPLICAOF NO ONE" });
        set(client, &format!("CONFIG SET replica-serve-stale-data {}", if stale { "no" } else { "yes" }));
    }
}

/// What a server answers to everything, with everything that holds.
fn transcript(kind: Kind) -> Vec<String> {
    let server = Server::start(kind, &FLAGS);
    let (mut said, mut admin) = (Vec::new(), server.client());
    let none = Holds { full: false, unsaved: false, read_only: false, stale: false };
    let show = |reply: &Value| if reply.is_error() { format!("{reply:?}") } else { "admitted".to_owned() };
    for holds in all_holds() {
        none.begin(&server, &mut admin);
        admin.call("SET k v");
        // Queued while nothing was in the way.
        let mut queued: Vec<(Client, &[&str])> = Vec::new();
        for command in COMMANDS {
            let mut client = server.client();
            client.call("MULTI");
            if client.command(command) == simple("QUEUED") {
                queued.push((client, command));
            }
        }
        let mut subscriber = server.client();
        subscriber.call("SUBSCRIBE channel-of-nobody");
        holds.begin(&server, &mut admin);
        for command in COMMANDS {
            let mut client = server.client();
            said.push(format!("{holds:?} {command:?}: {}", show(&client.command(command))));
            let mut client = server.client();
            let multi = client.call("MULTI");
            let reply = client.command(command);
            said.push(format!("{holds:?} MULTI {command:?}: {} {}", show(&multi), show(&reply)));
            if !["PUBLISH", "PING"].contains(&command[0]) {
                said.push(format!("{holds:?} subscribed {command:?}: {}", show(&subscriber.command(command))));
            }
        }
        for (mut client, command) in queued {
            let reply = client.call("EXEC");
            let first = match &reply {
                Value::Array(items) => items.first().map(show),
                _ => None,
            };
            said.push(format!("{holds:?} EXEC of {command:?}: {} {first:?}", show(&reply)));
        }
    }
    none.begin(&server, &mut admin);
    assert_eq!(admin.call("CONFIG SET requirepass secret"), Value::ok());
    for command in COMMANDS {
        said.push(format!("stranger {command:?}: {}", show(&server.client().command(command))));
    }
    said
}

#[test]
fn the_first_of_several_reasons_is_told() {
    let one = transcript(Kind::Ember { shards: 1 });
    assert_eq!(one, transcript(Kind::Ember { shards: 3 }));
    if have_redis() {
        let redis = transcript(Kind::Redis);
        let differ = one.iter().zip(&redis).filter(|(one, other)| one != other);
        let told: Vec<String> = differ.map(|(one, other)| format!("{one}\n     redis: {other}\n")).collect();
        assert!(told.is_empty() && one.len() == redis.len(), "{}", told.concat());
    }
}

/// Each command of the table, with as many arguments as it needs.
fn all_commands(client: &mut Client) -> Vec<(Vec<String>, Vec<String>)> {
    let Value::Array(rows) = client.call("COMMAND") else { panic!("no table") };
    let words = |value: &Value| value.items().iter().map(Value::text).collect::<Vec<String>>();
    let of_row = |row: &Value| -> Vec<(Vec<String>, Vec<String>)> {
        let fields = row.items();
        let of_one = |name: String, arity: i64, flags: Vec<String>| {
            let mut request = words_of(&name);
            request.resize(usize::try_from(arity.abs()).expect("a number").max(request.len()), "1".to_owned());
            (request, flags)
        };
        let subcommands = fields[9].items();
        if subcommands.is_empty() {
            return vec![of_one(fields[0].text(), fields[1].number(), words(&fields[2]))];
        }
        let of_subcommand = |of: &Value| of_one(of.items()[0].text(), of.items()[1].number(), words(&of.items()[2]));
        subcommands.iter().map(of_subcommand).collect()
    };
    rows.iter().flat_map(of_row).collect()
}

/// They would end the connection, or wait.
const APART: [&str; 6] = ["quit", "reset", "shutdown", "monitor", "debug", "psync"];

#[test]
fn every_command_of_the_table_is_asked() {
    on_embers(&FLAGS, |server| {
        let mut client = server.client();
        let all = all_commands(&mut client);
        assert!(all.len() > 300);
        for (switch, prefix) in [("READ-ONLY", "READONLY "), ("STALE", "MASTERDOWN ")] {
            assert_eq!(client.call(&format!("DEBUG REPLICA {switch} 1")), Value::ok());
            let mut refused = 0;
            for (request, flags) in &all {
                let has = |flag: &str| flags.iter().any(|of| of == flag);
                let may = if switch == "STALE" { has("stale") } else { !has("write") };
                if may || APART.contains(&request[0].as_str()) {
                    continue;
                }
                for in_multi in [false, true] {
                    if in_multi && has("no_multi") {
                        continue;
                    }
                    let mut client = server.client();
                    if in_multi {
                        client.call("MULTI");
                    }
                    let reply = client.command(request);
                    assert!(reply.is_error() && reply.text().starts_with(prefix), "{request:?}: {reply:?}");
                    refused += 1;
                }
            }
            assert!(refused > 200, "{refused}");
            assert_eq!(client.call(&format!("DEBUG REPLICA {switch} 0")), Value::ok());
        }
    });
}

/// One key here or elsewhere, keys on several shards, scripts, functions, transactions whose commands were queued before,
/// commands that wait.
#[test]
fn a_replica_is_not_written_to_whichever_way_a_command_runs() {
    on_embers(&FLAGS, |server| {
        let mut client = server.client();
        let library =
            "#!lua name=l\nredis.register_function('f', function(keys) return redis.call('SET', keys[1], 'x') end)";
        assert!(!client.command(&["FUNCTION", "LOAD", library]).is_error());
        for n in 0..8 {
            client.call(&format!("SADD s{n} member"));
        }
        let before = client.call("DEBUG DIGEST");
        let mut waiting: Vec<Client> = (0..4)
            .map(|n| {
                let mut waiter = server.client();
                waiter.send(&format!("BLPOP list{n} 0"));
                waiter
            })
            .collect();
        assert!(wait_until(PATIENCE, || server.info("blocked_clients").as_deref() == Some("4")));
        let mut queued = server.client();
        for line in ["MULTI", "SET s1 x", "SET s2 x"] {
            queued.call(line);
        }
        assert_eq!(client.call("DEBUG REPLICA READ-ONLY 1"), Value::ok());
        for waiter in &mut waiting {
            let reply = waiter.read();
            assert!(reply.text().starts_with("UNBLOCKED force unblock"), "{reply:?}");
            assert!(waiter.is_closed_by_server());
        }
        let reply = queued.call("EXEC");
        assert!(reply.text().starts_with("EXECABORT Transaction discarded because of: READONLY"), "{reply:?}");
        let mut lines: Vec<Vec<String>> =
            (0..8).map(|n| vec!["SET".to_owned(), format!("s{n}"), "x".to_owned()]).collect();
        let more = [
            "MSET s0 x s1 x s2 x",
            "DEL s0 s1 s2 s3",
            "RENAME s0 s1",
            "SMOVE s0 s1 member",
            "SUNIONSTORE s9 s0 s1",
            "BLPOP list0 list1 0.01",
            "BLMOVE list0 list1 LEFT LEFT 0.01",
            "FLUSHALL",
            "SWAPDB 0 1",
            "FCALL f 1 s0",
            "EXPIRE s0 1",
            "GETDEL s0",
        ];
        lines.extend(more.iter().map(|line| line.split(' ').map(str::to_owned).collect()));
        let script = "return redis.call(KEYS[2] and 'RENAME' or 'SET', KEYS[1], KEYS[2] or 'x')";
        for keys in [&["s0"][..], &["s1"], &["s0", "s1"], &["s3", "s6"]] {
            let mut line: Vec<String> = ["EVAL", script].map(str::to_owned).to_vec();
            line.push(keys.len().to_string());
            line.extend(keys.iter().map(|key| (*key).to_owned()));
            lines.push(line);
        }
        // In one go, beside a reader of everything.
        let replies = client.pipeline(&lines);
        for (line, reply) in lines.iter().zip(&replies) {
            assert!(reply.is_error() && reply.text().contains("READONLY"), "{line:?}: {reply:?}");
        }
        assert_eq!(client.call("DEBUG DIGEST"), before);
        assert_eq!(client.call("PUBLISH channel message").number(), 0);
        assert_eq!(client.call("EVAL return(redis.call('SCARD',KEYS[1])) 1 s1").number(), 1);
        assert_eq!(client.call("DEBUG REPLICA READ-ONLY 0"), Value::ok());
        assert_eq!(client.call("SET s0 x"), Value::ok());
    });
}

/// What was done before is done again, whoever may write now.
#[test]
fn a_log_is_loaded_whatever_holds() {
    on_embers(&["--save", "", "--appendonly", "yes", "--enable-debug-command", "yes"], |server| {
        let mut client = server.client();
        assert_eq!(client.call("MSET a 1 b 2 c 3"), Value::ok());
        for line in ["DEBUG REPLICA READ-ONLY 1", "DEBUG REPLICA STALE 1", "DEBUG LOADAOF", "DEBUG REPLICA STALE 0"] {
            assert_eq!(client.call(line), Value::ok(), "{line}");
        }
        assert_eq!(client.call("MGET a b c"), Value::bulks(&["1", "2", "3"]));
        assert!(client.call("SET a 2").text().starts_with("READONLY"));
    });
}
