//! Who waits, who is served, and with what: several connections wait for the same few keys on both servers, one puts
//! something there, or takes waiters away, and the same ones must get the same replies. After each step both servers
//! have as many waiting clients, so none was served too many.

use std::time::Duration;

use fastrand::Rng;

use crate::common::{Client, Kind, Server, Value, encode, have_tool, wait_until, words};
use crate::differential::generate::Args;
use crate::differential::{setting, unknown_commands};

/// So many steps of other runs take as long as one of these.
const STEPS_PER_STEP: u64 = 20;
const DEFAULT_STEPS: u64 = 400;
const WAITERS: usize = 7;
/// After so many steps all values are compared.
const STEPS_PER_AUDIT: u64 = 20;
const SHOWN: usize = 40;
const LIMIT: Duration = Duration::from_secs(10);
const LISTS: [&str; 4] = ["l0", "l1", "{t}l2", "l3"];
/// Lists that nobody waits for.
const TARGETS: [&str; 2] = ["m0", "{t}m1"];
const ZSETS: [&str; 3] = ["z0", "{t}z1", "z2"];
const STREAMS: [&str; 2] = ["s0", "{t}s1"];

#[test]
fn one_shard_serves_whom_redis_serves() {
    compare(Kind::Ember { shards: 1 }, "HELLO 2");
}

#[test]
fn three_shards_serve_whom_redis_serves() {
    compare(Kind::Ember { shards: 3 }, "HELLO 3");
}

#[test]
fn redis_serves_whom_redis_serves() {
    compare(Kind::Redis, "HELLO 3");
}

fn compare(kind: Kind, hello: &str) {
    if !have_tool("redis-server") {
        return;
    }
    let seed = setting("EMBERDB_DIFF_SEED").unwrap_or_else(|| fastrand::u64(..));
    let steps = setting("EMBERDB_DIFF_STEPS").map_or(DEFAULT_STEPS, |steps| steps.div_ceil(STEPS_PER_STEP));
    let mut subject = Side::new(kind, hello);
    let unknown = unknown_commands(&mut subject.actor);
    let mut run = Run {
        subject,
        oracle: Side::new(Kind::Redis, hello),
        unknown: unknown.into_iter().collect(),
        rng: Rng::with_seed(seed),
        seed,
        count: 0,
        served: 0,
        then: None,
        waits: [None; WAITERS],
        log: Vec::new(),
    };
    for step in 1..=steps {
        run.step();
        if step.is_multiple_of(STEPS_PER_AUDIT) {
            run.audit();
        }
    }
    if kind == Kind::Redis {
        assert!(run.served >= steps / 10, "in {steps} steps only {} were served", run.served);
    }
}

/// One server, the connections that wait, and one that acts.
struct Side {
    server: Server,
    hello: String,
    actor: Client,
    waiters: Vec<Waiter>,
}

struct Waiter {
    client: Client,
    id: i64,
}

impl Side {
    fn new(kind: Kind, hello: &str) -> Side {
        let server = Server::start(kind, &[]);
        let mut actor = server.client();
        assert!(!actor.call(hello).is_error());
        let mut side = Side { server, hello: hello.to_string(), actor, waiters: Vec::new() };
        for _ in 0..WAITERS {
            let waiter = side.connect();
            side.waiters.push(waiter);
        }
        side
    }

    fn connect(&self) -> Waiter {
        let mut client = self.server.client();
        assert!(!client.call(&self.hello).is_error());
        let id = client.call("CLIENT ID").number();
        Waiter { client, id }
    }

    /// How many clients wait.
    fn blocked(&mut self) -> usize {
        let text = self.actor.call("INFO clients").text();
        let value = text.lines().find_map(|line| line.strip_prefix("blocked_clients:"));
        value.and_then(|value| value.trim().parse().ok()).expect("blocked_clients")
    }

    /// Sends a request that may wait; its reply, if it did not.
    fn wait(&mut self, waiter: usize, bytes: &[u8], blocked_before: usize) -> Option<Value> {
        self.waiters[waiter].client.send_raw(bytes);
        let mut reply = None;
        let settled = wait_until(LIMIT, || {
            reply = self.waiters[waiter].client.read_within(Duration::from_micros(200));
            reply.is_some() || self.blocked() == blocked_before + 1
        });
        assert!(settled, "{:?} neither answers nor waits", self.server.kind());
        reply
    }
}

struct Run {
    subject: Side,
    oracle: Side,
    unknown: Vec<Vec<u8>>,
    rng: Rng,
    seed: u64,
    /// What is put somewhere is numbered, so that a reply tells which it was.
    count: u64,
    /// How many had to wait and were served.
    served: u64,
    /// What is done next, whatever chance says.
    then: Option<Args>,
    /// What each waiter waits for, and the text that it asked to hear after it.
    waits: [Option<u64>; WAITERS],
    log: Vec<String>,
}

impl Run {
    fn step(&mut self) {
        let waiting: Vec<usize> = (0..WAITERS).filter(|waiter| self.waits[*waiter].is_some()).collect();
        let idle: Vec<usize> = (0..WAITERS).filter(|waiter| self.waits[*waiter].is_none()).collect();
        match self.rng.u32(..20) {
            0..9 if !idle.is_empty() => {
                let waiter = self.pick(&idle);
                self.wait(waiter);
            }
            9 if !waiting.is_empty() => {
                let waiter = self.pick(&waiting);
                self.unblock(waiter);
            }
            10 if !waiting.is_empty() => {
                let waiter = self.pick(&waiting);
                self.disconnect(waiter);
            }
            11 if !idle.is_empty() => {
                let waiter = self.pick(&idle);
                self.time_out(waiter);
            }
            _ => self.act(),
        }
    }

    /// A waiter asks for something, and often for an echo behind it.
    fn wait(&mut self, waiter: usize) {
        let args = self.request("0");
        if self.is_unknown(&args) {
            return;
        }
        let before = self.oracle.blocked();
        let echo = self.next();
        let bytes = [encode(&args), encode(&[b"ECHO".to_vec(), echo.to_string().into()])].concat();
        self.note(&format!("waiter {waiter}: {}", shown(&args)));
        let theirs = self.oracle.wait(waiter, &bytes, before);
        let ours = self.subject.wait(waiter, &bytes, before);
        if ours != theirs {
            self.fail(&format!("EmberDB: {ours:?}\n  Redis:   {theirs:?}\n  (None: it waits)"));
        }
        self.waits[waiter] = Some(echo);
        if let Some(theirs) = theirs {
            self.note(&format!("    waiter {waiter} gets {theirs:?} at once"));
            self.hear_echo(waiter);
            // What it moved may be what another waits for.
            self.serve();
        }
        self.audit_waiters();
    }

    fn hear_echo(&mut self, waiter: usize) {
        let echo = self.waits[waiter].take().map(|echo| Value::Bulk(echo.to_string().into()));
        for side in [&mut self.oracle, &mut self.subject] {
            assert_eq!(Some(side.waiters[waiter].client.read()), echo, "behind the reply comes that to ECHO");
        }
    }

    /// A request whose time is over soon.
    fn time_out(&mut self, waiter: usize) {
        let args = self.request("0.01");
        if self.is_unknown(&args) {
            return;
        }
        self.note(&format!("waiter {waiter}: {}", shown(&args)));
        let theirs = self.oracle.waiters[waiter].client.command(&args);
        let ours = self.subject.waiters[waiter].client.command(&args);
        if ours != theirs {
            self.fail(&format!("EmberDB: {ours:?}\n  Redis:   {theirs:?}"));
        }
        self.serve();
    }

    fn unblock(&mut self, waiter: usize) {
        let how = self.pick(&["", "TIMEOUT", "ERROR", "error", "FOO"]);
        self.note(&format!("CLIENT UNBLOCK (waiter {waiter}) {how}"));
        let [theirs, ours] = [&mut self.oracle, &mut self.subject].map(|side| {
            let id = side.waiters[waiter].id;
            side.actor.call(&format!("CLIENT UNBLOCK {id} {how}"))
        });
        if ours != theirs {
            self.fail(&format!("EmberDB: {ours:?}\n  Redis:   {theirs:?}"));
        }
        self.serve();
    }

    fn disconnect(&mut self, waiter: usize) {
        self.note(&format!("waiter {waiter} hangs up"));
        let before = self.oracle.blocked();
        self.waits[waiter] = None;
        let left = [&mut self.oracle, &mut self.subject].map(|side| {
            side.waiters[waiter] = side.connect();
            wait_until(LIMIT, || side.blocked() == before - 1);
            side.blocked()
        });
        if left != [before - 1; 2] {
            self.fail(&format!("before, {before} were waiting\n  EmberDB: {}\n  Redis:   {}", left[1], left[0]));
        }
    }

    /// Commands that may serve those who wait, or not.
    fn act(&mut self) {
        let transaction = self.rng.u32(..3) == 0;
        // Where one transaction changes keys on several shards, which of them serves who waits for both is open.
        let is_one_of_many = matches!(self.subject.server.kind(), Kind::Ember { shards: 2.. });
        let count = if transaction && !is_one_of_many { self.rng.usize(1..4) } else { 1 };
        let mut commands: Vec<Args> = (0..count).map(|_| self.action()).collect();
        commands.retain(|args| !self.is_unknown(args));
        if transaction {
            commands.insert(0, words("MULTI"));
            commands.push(words("EXEC"));
        }
        for args in commands {
            self.note(&shown(&args));
            let theirs = self.oracle.actor.command(&args);
            let ours = self.subject.actor.command(&args);
            if ours != theirs {
                self.fail(&format!("EmberDB: {ours:?}\n  Redis:   {theirs:?}"));
            }
        }
        self.serve();
    }

    /// Those who no longer wait on the oracle get the same from EmberDB, and nobody else gets anything.
    fn serve(&mut self) {
        let waiting = self.waits.iter().flatten().count();
        let left = self.oracle.blocked();
        let mut served = Vec::new();
        let found = wait_until(LIMIT, || {
            for waiter in 0..WAITERS {
                if self.waits[waiter].is_none() || served.iter().any(|(one, _)| *one == waiter) {
                    continue;
                }
                let reply = self.oracle.waiters[waiter].client.read_within(Duration::from_micros(50));
                served.extend(reply.map(|reply| (waiter, reply)));
            }
            served.len() == waiting - left
        });
        if !found {
            self.fail(&format!("{waiting} were waiting, {left} are left; Redis served {served:?}"));
        }
        self.served += served.len() as u64;
        for (waiter, theirs) in served {
            let ours = self.subject.waiters[waiter].client.read_within(LIMIT);
            if ours.as_ref() != Some(&theirs) {
                self.fail(&format!("waiter {waiter}:\n  EmberDB: {ours:?}\n  Redis:   {theirs:?}"));
            }
            self.note(&format!("    waiter {waiter} gets {theirs:?}"));
            self.hear_echo(waiter);
        }
        self.audit_waiters();
    }

    fn audit_waiters(&mut self) {
        let waiting = self.oracle.blocked();
        if !wait_until(LIMIT, || self.subject.blocked() == waiting) {
            let ours = self.subject.blocked();
            self.fail(&format!("clients that wait:\n  EmberDB: {ours}\n  Redis:   {waiting}"));
        }
    }

    fn audit(&mut self) {
        let lists = LISTS.iter().chain(&TARGETS).map(|key| format!("LRANGE {key} 0 -1"));
        let sorted_sets = ZSETS.iter().map(|key| format!("ZRANGE {key} 0 -1 WITHSCORES"));
        let streams = STREAMS.iter().map(|key| format!("XRANGE {key} - +"));
        for line in lists.chain(sorted_sets).chain(streams) {
            let args = words(&line);
            if self.is_unknown(&args) {
                continue;
            }
            let (theirs, ours) = (self.oracle.actor.command(&args), self.subject.actor.command(&args));
            if ours != theirs {
                self.note(&line);
                self.fail(&format!("EmberDB: {ours:?}\n  Redis:   {theirs:?}"));
            }
        }
    }

    /// A request that waits so many seconds.
    fn request(&mut self, seconds: &str) -> Args {
        let milliseconds = if seconds == "0" { "0" } else { "10" };
        let (lists, zsets, streams) = (self.keys(&LISTS), self.keys(&ZSETS), self.keys(&STREAMS));
        // What is moved between shards for one who waits comes to the others at a moment of its own: which of two keys
        // serves who waits for both is open then.
        let one_moment = !matches!(self.subject.server.kind(), Kind::Ember { shards: 2.. });
        let (one, other) = (self.pick(&LISTS), if one_moment { self.pick(&LISTS) } else { self.pick(&TARGETS) });
        let [side, other_side] = [(); 2].map(|()| self.pick(&["LEFT", "RIGHT"]));
        let end = self.pick(&["MIN", "MAX"]);
        let counted = |keys: &str| format!("{} {keys}", keys.split(' ').count());
        let each = |what: &str| vec![what; streams.split(' ').count()].join(" ");
        words(&match self.rng.u32(..12) {
            0 | 1 => format!("BLPOP {lists} {seconds}"),
            2 => format!("BRPOP {lists} {seconds}"),
            3 => format!("BLMOVE {one} {other} {side} {other_side} {seconds}"),
            4 => format!("BRPOPLPUSH {one} {other} {seconds}"),
            5 => format!("BLMPOP {seconds} {} {side} COUNT {}", counted(&lists), self.rng.u32(1..4)),
            6 => format!("BZPOPMIN {zsets} {seconds}"),
            7 => format!("BZPOPMAX {zsets} {seconds}"),
            8 => format!("BZMPOP {seconds} {} {end} COUNT {}", counted(&zsets), self.rng.u32(1..4)),
            9 => format!("XREAD BLOCK {milliseconds} STREAMS {streams} {}", each("$")),
            10 => format!("XREAD COUNT 1 BLOCK {milliseconds} STREAMS {streams} {}", each("5-0")),
            _ => format!("XREADGROUP GROUP g c BLOCK {milliseconds} STREAMS {streams} {}", each(">")),
        })
    }

    fn action(&mut self) -> Args {
        if let Some(args) = self.then.take() {
            return args;
        }
        let (list, zset, stream) = (self.pick(&LISTS), self.pick(&ZSETS), self.pick(&STREAMS));
        let (other_list, other_zset, other_stream) = (self.pick(&LISTS), self.pick(&ZSETS), self.pick(&STREAMS));
        let push = self.pick(&["LPUSH", "RPUSH"]);
        let (value, other) = (self.next(), self.next());
        words(&match self.rng.u32(..40) {
            0..5 => format!("{push} {list} {value}"),
            5..8 => format!("{push} {list} {value} {other} x{value} x{other}"),
            8 => format!("LPUSHX {list} {value}"),
            9 | 10 => format!("LMOVE {list} {other_list} LEFT RIGHT"),
            11 => format!("LPOP {list}"),
            12 => {
                // In the place of another type Redis serves nobody.
                self.then = Some(words(&format!("SORT {list} STORE {other_list}")));
                format!("DEL {other_list}")
            }
            13 => format!("LINSERT {list} BEFORE {} {value}", value.saturating_sub(2)),
            14..19 => format!("ZADD {zset} {} {value}", self.rng.i32(-5..5)),
            19 | 20 => format!("ZADD {zset} 1 {value} 2 {other} 3 x{value}"),
            21 => format!("ZINCRBY {zset} 5 {value}"),
            22 => format!("ZUNIONSTORE {zset} 2 {zset} {other_zset}"),
            23 => format!("ZPOPMIN {zset}"),
            24..27 => format!("XADD {stream} {value}-0 f v"),
            27 => format!("XGROUP CREATE {stream} g 0 MKSTREAM"),
            28 => format!("XGROUP CREATE {stream} g $"),
            29 => format!("XGROUP DESTROY {stream} g"),
            30 => format!("XTRIM {stream} MAXLEN 1"),
            31 | 32 => format!("DEL {list} {zset} {stream}"),
            33 => format!("RENAME {list} {other_list}"),
            34 => format!("RENAME {zset} {other_zset}"),
            35 => format!("COPY {stream} {other_stream} REPLACE"),
            36 => format!("COPY {list} {other_list} REPLACE"),
            37 => format!("SET {} {value}", self.pick(&[list, zset, stream])),
            38 => self.pick(&["FLUSHDB", "FLUSHALL"]).to_string(),
            _ => format!("PEXPIRE {} -1", self.pick(&[list, zset, stream])),
        })
    }

    fn keys(&mut self, keys: &[&str]) -> String {
        let count = self.rng.usize(1..4);
        (0..count).map(|_| self.pick(keys)).collect::<Vec<_>>().join(" ")
    }

    fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.rng.usize(..choices.len())]
    }

    fn is_unknown(&self, args: &Args) -> bool {
        self.unknown.contains(&args[0])
    }

    fn note(&mut self, line: &str) {
        self.log.push(line.to_string());
    }

    fn fail(&self, difference: &str) -> ! {
        let first = self.log.len().saturating_sub(SHOWN);
        let waits = self.waits.iter().enumerate().filter(|(_, wait)| wait.is_some());
        panic!(
            "{:?} differs from redis-server\n  {difference}\nbefore it:\n    {}\nstill waiting on both: {:?}\n\
             again: EMBERDB_DIFF_SEED={} cargo test --test differential blocking",
            self.subject.server.kind(),
            self.log[first..].join("\n    "),
            waits.map(|(waiter, _)| waiter).collect::<Vec<_>>(),
            self.seed,
        );
    }
}

fn shown(args: &Args) -> String {
    args.iter().map(|arg| String::from_utf8_lossy(arg)).collect::<Vec<_>>().join(" ")
}
