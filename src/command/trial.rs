//! A shard for tests, on which commands run through their rows.

use super::spec::flag::WRITE;
use super::{Ctx, Run, groups, rows};
use crate::clock::{Clock, Now};
use crate::config::{Limits, PackLimits};
use crate::keyspace::{Hasher, Keyspace, Stored};
use crate::resp::{Proto, Reply, Request};
use crate::value::pack::BYTES_MAX;

/// Whatever is due is gone after fewer sweeps, however small they are.
const ROUNDS_MOST: usize = 1_000_000;

pub struct Trial {
    pub keyspace: Keyspace,
    pub limits: Limits,
    clock: Clock,
    rng: fastrand::Rng,
}

impl Trial {
    pub fn new(seed: u64, limits: Limits) -> Trial {
        Trial {
            keyspace: Keyspace::new(1, Hasher::new(seed, 1)),
            limits: Limits { reply_bytes: usize::MAX, ..limits },
            clock: Clock::manual(1_000_000),
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    /// The reply to a command in RESP2; of an error its text.
    pub fn run(&mut self, args: &[&[u8]]) -> Vec<u8> {
        let of_groups = || groups::ROWS.iter().find(|row| row.spec.name.as_bytes() == [b"group-", args[2]].concat());
        let row = match args[0] {
            b"expiry" => of_groups(),
            name => rows().find(|row| row.spec.name.as_bytes() == name),
        };
        let row = row.expect("a command");
        let handler = match row.run {
            Run::Key(handler)
            | Run::Spread(handler, _)
            | Run::Everywhere(handler, _)
            | Run::Cursor(handler, _)
            | Run::Atomic(handler, _) => handler,
            Run::Blocking(blocking) => blocking.once.0,
            _ => unreachable!("it needs more than one shard"),
        };
        let (mut buffer, mut spans) = (Vec::new(), Vec::new());
        for arg in args {
            let start = buffer.len() as u32;
            buffer.extend_from_slice(arg);
            spans.push((start, buffer.len() as u32));
        }
        let request = Request::new(&buffer, &spans);
        let first_key = row.spec.keys.indexes(request).next().map_or(&b""[..], |index| request.arg(index));
        let hash = self.keyspace.hasher().hash(first_key);
        let mut out = Vec::new();
        let mut ctx = Ctx {
            keyspace: &mut self.keyspace,
            db: 0,
            now: self.clock.now(),
            clock: &self.clock,
            rng: &mut self.rng,
            reply: Reply::new(&mut out, Proto::Resp2),
            hash,
            limits: &self.limits,
            touch: row.spec.touch(false),
            ends: &mut Vec::new(),
            shards: 1,
            in_script: false,
        };
        let result = match row.spec.has(WRITE) && ctx.keyspace.has_required_deadlines() {
            true => ctx.check_required(&row.spec, request).and_then(|()| handler(&mut ctx, request)),
            false => handler(&mut ctx, request),
        };
        ctx.renew_used(ctx.now);
        match result {
            Ok(()) => out,
            Err(error) => error.to_string().into_bytes(),
        }
    }

    /// The payload of a key that is there.
    pub fn dumped(&mut self, key: &[u8]) -> Vec<u8> {
        let reply = self.run(&[b"dump", key]);
        let start = reply.iter().position(|byte| *byte == b'\n').expect("a bulk string") + 1;
        reply[start..reply.len() - 2].to_vec()
    }

    /// Puts what a key has under another one, by way of its payload.
    pub fn restore(&mut self, key: &[u8], to: &[u8]) {
        let payload = self.dumped(key);
        assert_eq!(self.run(&[b"restore", to, b"0", &payload, b"replace"]), b"+OK\r\n");
    }

    /// All pages of a walk over a key, by this command and with these options.
    pub fn pages(&mut self, command: &str, key: &str, options: &str) -> Vec<String> {
        let (mut pages, mut cursor) = (Vec::new(), "0".to_owned());
        loop {
            let reply = self.say(&format!("{command} {key} {cursor} {options}"));
            let (_, rest) = reply.split_once("\r\n").expect("an array");
            let (_, rest) = rest.split_once("\r\n").expect("a cursor");
            let (next, page) = rest.split_once("\r\n").expect("a page");
            pages.push(page.to_owned());
            cursor = next.to_owned();
            if cursor == "0" {
                return pages;
            }
        }
    }

    pub fn now(&self) -> Now {
        self.clock.now()
    }

    /// The cycle takes out all that is due.
    pub fn sweep(&mut self, limit: usize) {
        let now = self.clock.now();
        let mut rounds = 0;
        while self.keyspace.next_due_hint_ms() < now.ms {
            assert!(self.keyspace.sweep_earliest(0, now.ms, now, limit).deleted <= limit);
            rounds += 1;
            assert!(rounds < ROUNDS_MOST, "a sweep comes no further");
        }
        assert_eq!(self.keyspace.oldest_due_ms(now), None);
        while self.keyspace.collect_garbage(100) {}
    }

    /// Moves the clock.
    pub fn pass_ms(&mut self, ms: u64) {
        self.clock.advance_ms(ms);
    }

    /// The same with words.
    pub fn say(&mut self, line: &str) -> String {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        String::from_utf8_lossy(&self.run(&words)).into_owned()
    }
}

/// Whether a condition holds of an old deadline and a new one.
pub type Holds = fn(Option<u64>, u64) -> bool;

/// What may stand behind the time in SPEXPIRE, ZPEXPIRE and their kin.
pub const CONDITIONS: [(&str, Holds); 5] = [
    ("", |_, _| true),
    ("nx", |old, _| old.is_none()),
    ("xx", |old, _| old.is_some()),
    ("gt", |old, new| old.is_some_and(|old| new > old)),
    ("lt", |old, new| old.is_none_or(|old| new < old)),
];

/// Short and long times are equally likely.
pub fn draw_ms(rng: &mut fastrand::Rng, bits: u32) -> u64 {
    let bits = rng.u32(1..bits);
    rng.u64(1..1 << bits)
}

/// The reply that is a number.
pub fn int(n: i64) -> String {
    format!(":{n}\r\n")
}

/// The bulk strings of a reply, in their order.
pub fn texts(reply: &str) -> Vec<String> {
    let lines: Vec<&str> = reply.split("\r\n").collect();
    let pairs = lines.windows(2).filter(|pair| pair[0].starts_with('$') && pair[0] != "$-1");
    pairs.map(|pair| pair[1].to_owned()).collect()
}

/// The reply that is an array of these.
pub fn array<T: AsRef<[u8]>>(items: impl ExactSizeIterator<Item = T>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut reply = Reply::new(&mut out, Proto::Resp2);
    reply.array(items.len());
    items.for_each(|item| reply.bulk(item.as_ref()));
    out
}

/// Whatever the directives allow.
#[test]
fn collections_are_unpacked_before_their_packs_are_too_large() {
    let wide = PackLimits { entries: 60_000, value_bytes: 1 << 30 };
    let limits = Limits { string_bytes: 1 << 30, hash: wide, set: wide, zset: wide, ..Limits::default() };
    let mut trial = Trial::new(1, limits);
    let text = |n: usize| [format!("{n}:").into_bytes(), vec![b'x'; BYTES_MAX / 4]].concat();
    let packed = |trial: &Trial, key: &[u8]| {
        let key = trial.keyspace.hasher().key(key);
        matches!(trial.keyspace.peek(0, key, trial.clock.now()), Some(Stored::Packed(..)))
    };
    for n in 0..6 {
        trial.run(&[b"hset", b"hash", &text(n), b"v"]);
        trial.run(&[b"hset", b"of values", format!("{n}").as_bytes(), &text(n)]);
        trial.run(&[b"sadd", b"set", &text(n)]);
        trial.run(&[b"zadd", b"zset", b"1", &text(n)]);
        for key in [&b"hash"[..], b"of values", b"set", b"zset"] {
            assert_eq!(packed(&trial, key), n < 3, "{} after {n}", String::from_utf8_lossy(key));
        }
    }
    trial.run(&[b"zunionstore", b"union", b"1", b"zset"]);
    trial.run(&[b"sunionstore", b"members", b"set"]);
    assert!(!packed(&trial, b"union") && !packed(&trial, b"members"));
    for key in [&b"hash"[..], b"of values", b"set", b"zset"] {
        let payload = trial.dumped(key);
        trial.run(&[b"del", key]);
        let restored = trial.run(&[b"restore", key, b"0", &payload]);
        assert_eq!(restored, b"+OK\r\n");
        assert!(!packed(&trial, key), "{} restored", String::from_utf8_lossy(key));
    }
}
