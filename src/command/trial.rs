//! A shard for tests, on which commands run through their rows.

use super::spec::flag::WRITE;
use super::{Ctx, Run, rows};
use crate::clock::{Clock, Now};
use crate::config::{Limits, PackLimits};
use crate::keyspace::{Hasher, Keyspace, Stored};
use crate::resp::{Proto, Reply, Request};
use crate::value::pack::BYTES_MAX;

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
            limits,
            clock: Clock::manual(1_000_000),
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    /// The reply to a command in RESP2; of an error its text.
    pub fn run(&mut self, args: &[&[u8]]) -> Vec<u8> {
        let row = rows().find(|row| row.spec.name.as_bytes() == args[0]).expect("a command");
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

    pub fn now(&self) -> Now {
        self.clock.now()
    }

    /// The cycle takes out all that is due.
    pub fn sweep(&mut self, limit: usize) {
        let now = self.clock.now();
        while self.keyspace.next_due_hint_ms() < now.ms {
            assert!(self.keyspace.sweep_earliest(0, now.ms, now, limit).deleted <= limit);
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
        let payload = trial.run(&[b"dump", key]);
        let start = payload.iter().position(|byte| *byte == b'\n').expect("a bulk string") + 1;
        trial.run(&[b"del", key]);
        let restored = trial.run(&[b"restore", key, b"0", &payload[start..payload.len() - 2]]);
        assert_eq!(restored, b"+OK\r\n");
        assert!(!packed(&trial, key), "{} restored", String::from_utf8_lossy(key));
    }
}
