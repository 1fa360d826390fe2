//! What is visible before a restart is visible behind it, with the same deadlines, and what was dead stays dead: whatever it comes
//! back from, on other numbers of shards, and on replicas. Nothing dead is deleted by the cycle meanwhile.
//!
//! - `EMBERDB_RESTARTS_ROUNDS`: how often that is tried (default [`ROUNDS`])
//! - `EMBERDB_RESTARTS_SEED`: the seed

use crate::common::{Client, Kind, Server, Value, ok, setting, wait_until};
use std::fmt::Write;
use std::time::Duration;

const ROUNDS: u64 = 2;
const STEPS: usize = 4;
const COMMANDS: usize = 300;
const PATIENCE: Duration = Duration::from_secs(30);
/// Deadlines are shorter than this, or of hours.
const SHORT: Duration = Duration::from_millis(20);
const DATABASES: usize = 2;
/// Deaths of groups are written there, whenever that is.
const DEATHS: &str = "deaths";

/// `s`, `h`, `t`, `z`, `l` stand for a key of that type, `k` for one of any, `p` for one with a policy's prefix, `g` for a group,
/// `m` for a member or field, `#` for a lifetime.
const LINES: &[&str] = &[
    "SET s v",
    "SET s v PX #",
    "SET s w KEEPTTL",
    "GETEX s PX #",
    "GETEX s PERSIST",
    "APPEND s x",
    "MSETEX 2 s 1 s 2 PX #",
    "SET p v",
    "SET p v PX #",
    "HSET p m v",
    "PERSIST p",
    "EXPIRY POLICY SET p: 2h MAX 3h",
    "EXPIRY POLICY SET p: NONE REQUIRE",
    "EXPIRY POLICY SET p: 20 JITTER 50",
    "EXPIRY POLICY DEL p:",
    "PEXPIRE k #",
    "PEXPIRE k # GT",
    "PEXPIRE k # NX",
    "PERSIST k",
    "DEL k",
    "UNLINK k",
    "RENAME k k",
    "COPY k k REPLACE",
    "MOVE k 1",
    "SWAPDB 0 1",
    "HSET h m v m w",
    "HINCRBY h n 1",
    "HDEL h m",
    "HPEXPIRE h # FIELDS 2 m m",
    "HPERSIST h FIELDS 1 m",
    "HSETEX h PX # FIELDS 2 m v m w",
    "HSETEX h KEEPTTL FIELDS 1 m x",
    "HGETDEL h FIELDS 1 m",
    "SADD t m m 1 2",
    "SREM t m",
    "SADDEX t PX # MEMBERS 2 m m",
    "SPEXPIRE t # MEMBERS 2 m m",
    "SPERSIST t MEMBERS 1 m",
    "SMOVE t t m",
    "SUNIONSTORE t t t",
    "ZADD z 1 m 2 m",
    "ZREM z m",
    "ZPEXPIRE z # MEMBERS 2 m m",
    "ZPERSIST z MEMBERS 1 m",
    "ZINCRBY z 1 m",
    "RPUSH l a b",
    "LMOVE l l LEFT RIGHT",
    "EXPIRY GROUP ADD g k k",
    "EXPIRY GROUP ADD g k k k p",
    "EXPIRY GROUP REM g k",
    "EXPIRY GROUP EXPIRE g #",
    "EXPIRY GROUP EXPIRE g # SLIDING",
    "EXPIRY GROUP TOUCH g",
    "EXPIRY GROUP PERSIST g",
    "EXPIRY GROUP KILL g",
    "EXPIRY GROUP EVENTS g deaths",
    "EXPIRY GROUP EVENTS g NONE",
    "BLESS SET k NO-EVICT",
    "BLESS CLEAR k NO-EVICT",
    "LEASE TAKE s #",
    "SELECT 0",
    "SELECT 1",
    "PAUSE",
];

struct Story {
    rng: fastrand::Rng,
}

impl Story {
    fn line(&mut self) -> String {
        let line = self.rng.choice(LINES).expect("some");
        line.split(' ').map(|word| self.word(word)).collect::<Vec<_>>().join(" ")
    }

    fn word(&mut self, word: &str) -> String {
        let rng = &mut self.rng;
        match word {
            "s" | "h" | "t" | "z" | "l" => format!("{word}{}", rng.usize(..8)),
            "k" => format!("{}{}", rng.choice(["s", "h", "t", "z", "l"]).expect("some"), rng.usize(..8)),
            "p" => format!("p:{}", rng.usize(..5)),
            "g" => format!("g{}", rng.usize(..4)),
            "m" => format!("m{}", rng.usize(..6)),
            "#" if rng.bool() => rng.u64(1..SHORT.as_millis() as u64).to_string(),
            "#" => (7_200_000 + rng.u64(..1_000_000)).to_string(),
            other => other.to_owned(),
        }
    }

    /// Errors are answers like others.
    fn tell(&mut self, client: &mut Client) {
        for _ in 0..COMMANDS {
            match self.line() {
                line if line == "PAUSE" => std::thread::sleep(Duration::from_millis(self.rng.u64(..10))),
                line if self.rng.u8(..20) == 0 => {
                    client.call("MULTI");
                    client.call(&line);
                    (0..self.rng.usize(..4)).for_each(|_| drop(client.call(&self.line())));
                    client.call("EXEC");
                }
                line => drop(client.call(&line)),
            }
        }
        client.call("SELECT 0");
        std::thread::sleep(2 * SHORT);
    }
}

fn texts(reply: &Value) -> Vec<String> {
    let mut all: Vec<String> = reply.items().iter().map(Value::text).collect();
    all.sort_unstable();
    all
}

/// All that can be seen, line by line.
fn seen(server: &Server) -> String {
    let mut client = server.client();
    ok(&mut client, "CLIENT NO-TOUCH ON");
    let mut out = format!("policies {:?}\n", client.call("EXPIRY POLICY LIST"));
    for db in 0..DATABASES {
        ok(&mut client, &format!("SELECT {db}"));
        for key in texts(&client.call("KEYS *")).into_iter().filter(|key| key != DEATHS) {
            let ask = |client: &mut Client, line: &str| client.call(&line.replace('@', &key));
            let kind = ask(&mut client, "TYPE @").text();
            let (content, times) = match &*kind {
                "string" => (ask(&mut client, "GET @").text(), String::new()),
                "list" => (format!("{:?}", ask(&mut client, "LRANGE @ 0 -1")), String::new()),
                "hash" => (
                    pairs(&ask(&mut client, "HGETALL @")),
                    times(&mut client, "HKEYS @", "HPEXPIRETIME @ FIELDS", &key),
                ),
                "set" => {
                    let members = texts(&ask(&mut client, "SMEMBERS @")).join(" ");
                    (members, times(&mut client, "SMEMBERS @", "SPEXPIRETIME @ MEMBERS", &key))
                }
                "zset" => {
                    let scores = format!("{:?}", ask(&mut client, "ZRANGE @ 0 -1 WITHSCORES"));
                    (scores, times(&mut client, "ZRANGE @ 0 -1", "ZPEXPIRETIME @ MEMBERS", &key))
                }
                other => (other.to_owned(), String::new()),
            };
            let (dies, groups) =
                (ask(&mut client, "PEXPIRETIME @").number(), texts(&ask(&mut client, "EXPIRY GROUP OF @")));
            let pins = ask(&mut client, "BLESS GET @");
            writeln!(out, "{db} {key} {kind} {dies} {groups:?} {pins:?} {content} {times}").expect("memory");
        }
        for group in texts(&client.call("EXPIRY GROUP LIST")) {
            let members = texts(&client.call(&format!("EXPIRY GROUP MEMBERS {group}")));
            let lasts = client.call(&format!("EXPIRY GROUP PTTL {group}")).number() > 0;
            writeln!(out, "{db} group {group} {lasts} {members:?}").expect("memory");
        }
        writeln!(out, "{db} size {:?}", client.call("DBSIZE")).expect("memory");
    }
    out
}

fn pairs(reply: &Value) -> String {
    let mut pairs: Vec<String> =
        reply.items().chunks(2).map(|pair| pair.iter().map(Value::text).collect::<Vec<_>>().join("=")).collect();
    pairs.sort_unstable();
    pairs.join(" ")
}

fn times(client: &mut Client, all: &str, of: &str, key: &str) -> String {
    let names = texts(&client.call(&all.replace('@', key)));
    let line = format!("{} {} {}", of.replace('@', key), names.len(), names.join(" "));
    format!("{:?}", client.call(&line))
}

fn expect(server: &Server, expected: &str, what: &str) {
    let found = seen(server);
    let lines = |text: &str, other: &str| {
        let lines: Vec<String> =
            text.lines().filter(|line| !other.lines().any(|other| other == *line)).map(str::to_owned).collect();
        lines.join("\n")
    };
    assert!(found == expected, "{what}: was\n{}\nis\n{}", lines(expected, &found), lines(&found, expected));
}

fn wait_for_replica(server: &Server, replica: &Server) {
    let has_all = || {
        let is_up = replica.info("master_link_status").as_deref() == Some("up");
        let offset = |of: &Server| of.info("master_repl_offset");
        is_up && server.client().call("WAIT 1 1000") == Value::Int(1) && offset(server) == offset(replica)
    };
    assert!(wait_until(PATIENCE, has_all), "{}", replica.output());
}

/// What a server comes back from.
#[derive(Clone, Copy, Debug)]
enum From {
    Reload,
    LogAgain,
    Log,
    Base,
    Snapshot,
}

impl From {
    fn again(self, server: Server, flags: &[&str], shards: usize) -> Server {
        let shards = shards.to_string();
        let mut client = server.client();
        match self {
            From::Reload => ok(&mut client, "DEBUG RELOAD"),
            From::LogAgain => ok(&mut client, "DEBUG LOADAOF"),
            From::Log => {}
            From::Base => server.rewrite_log(),
            From::Snapshot => ok(&mut client, "SAVE"),
        }
        match self {
            From::Reload | From::LogAgain => server,
            From::Log | From::Base | From::Snapshot => server.restart(&[flags, &["--shards", &shards]].concat()),
        }
    }
}

#[test]
fn what_is_visible_stays_so_and_what_is_dead_stays_dead() {
    let seed = setting("EMBERDB_RESTARTS_SEED").unwrap_or_else(|| fastrand::u64(..));
    eprintln!("EMBERDB_RESTARTS_SEED={seed}");
    let rounds = setting("EMBERDB_RESTARTS_ROUNDS").unwrap_or(ROUNDS);
    let mut story = Story { rng: fastrand::Rng::with_seed(seed) };
    for round in 0..rounds {
        let preamble = if story.rng.bool() { "yes" } else { "no" };
        let has_log = story.rng.u8(..4) > 0;
        let log = ["--appendonly", "yes", "--aof-use-rdb-preamble", preamble];
        let flags =
            ["--active-expire-interval-ms", "0", "--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"];
        let flags = [&flags[..], if has_log { &log } else { &[] }].concat();
        let ways: &[From] = if has_log {
            &[From::Reload, From::LogAgain, From::Log, From::Base]
        } else {
            &[From::Reload, From::Snapshot]
        };
        let mut server = Server::start(Kind::Ember { shards: story.rng.usize(1..4) }, &flags);
        let port = server.port().to_string();
        let of_replica = [&flags[..], &["--replicaof", "127.0.0.1", &port]].concat();
        let mut replica = Server::start(Kind::Ember { shards: story.rng.usize(1..4) }, &of_replica);
        for step in 0..STEPS {
            let way = *story.rng.choice(ways).expect("some");
            eprintln!("round {round}, {flags:?}: {way:?}");
            if step > 0 && story.rng.bool() {
                // A new one begins with a snapshot.
                replica = Server::start(Kind::Ember { shards: story.rng.usize(1..4) }, &of_replica);
            }
            wait_for_replica(&server, &replica);
            story.tell(&mut server.client());
            let expected = seen(&server);
            wait_for_replica(&server, &replica);
            expect(&replica, &expected, "the replica");
            server = way.again(server, &flags, story.rng.usize(1..4));
            expect(&server, &expected, "behind the restart");
        }
    }
}
