//! GETFRESH: reading a cache without stampedes.
//!
//! Shortly before a value dies one of its readers is told to compute it anew, while all others go on using it. How early
//! is drawn for each read (XFetch; Vattani, Chierichetti, Lowenstein, Optimal Probabilistic Cache Stampede Prevention,
//! VLDB 2015): the closer the deadline and the dearer the value, the likelier. With it comes a lease, so that only one is
//! told; where there is no value, all others are told to wait. Leases end when the key is written, and by themselves
//! ([`crate::keyspace::Leases`]).
//!
//! Where the policy of a key says `STALE`, nobody has to wait for a while after its death: all others are shown what it was, and are
//! told that this is stale (`keyspace/stale.rs`).

use super::spec::flag::{FAST, READ};
use super::spec::{Group, Keys, Row, Spec};
use super::strings::reply_value;
use super::{Ctx, Run};
use crate::config::LONGEST_DURATION_MS as LONGEST_MS;
use crate::keyspace::Kind;
use crate::resp::{Error, Request, Result};
use crate::value::number::parse_f64;

const NAME: &str = "getfresh";

pub const ROWS: &[Row<Run>] = &[Row::new(
    Spec {
        name: NAME,
        arity: -4,
        flags: READ | FAST,
        keys: Keys::ONE,
        group: Group::String,
        since: "0.1.0",
        complexity: "O(1)",
        summary: "Returns the string under a key, and tells one of its readers in time to compute it anew.",
        syntax: "key COST cost:string [BETA beta:double] [LEASE lease:string]",
    },
    Run::Key(getfresh),
)];

/// A lease lasts so many times as long as the computation, unless it is said.
const LEASE_COSTS: u64 = 10;

struct Options {
    /// How long the value takes to compute.
    cost_ms: u64,
    /// Above one: earlier.
    beta: f64,
    lease_ms: u64,
}

impl Options {
    fn parse(request: Request) -> Result<Options> {
        let (mut cost_ms, mut beta, mut lease_ms) = (None, None, None);
        for index in (2..request.len()).step_by(2) {
            let argument = request.get(index + 1).ok_or(Error::Syntax)?;
            if request.is(index, "cost") && cost_ms.is_none() {
                cost_ms = Some(request.duration(index + 1)?);
            } else if request.is(index, "lease") && lease_ms.is_none() {
                lease_ms = Some(request.duration(index + 1)?);
            } else if request.is(index, "beta") && beta.is_none() {
                let number = parse_f64(argument).filter(|beta| beta.is_finite() && *beta >= 0.0);
                beta = Some(number.ok_or(Error::text("ERR BETA is not a number of at least 0"))?);
            } else {
                return Err(Error::Syntax);
            }
        }
        let cost_ms = cost_ms.ok_or(Error::Syntax)?;
        let lease_ms = lease_ms.unwrap_or((cost_ms * LEASE_COSTS).min(LONGEST_MS));
        Ok(Options { cost_ms, beta: beta.unwrap_or(1.0), lease_ms })
    }

    /// Whether a reader shall compute a value anew that lives for so long still. `draw` is uniform in (0, 1].
    fn is_early(&self, left_ms: u64, draw: f64) -> bool {
        self.cost_ms as f64 * self.beta * -draw.ln() >= left_ms as f64
    }
}

/// What was found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    /// It has died, and is to be shown still.
    Stale,
    Immortal,
    /// It lives for so long still.
    Mortal(u64),
}

impl Found {
    /// As PTTL says it.
    fn pttl(self) -> i64 {
        match self {
            Found::Nothing | Found::Stale => -2,
            Found::Immortal => -1,
            Found::Mortal(left_ms) => left_ms as i64,
        }
    }
}

fn getfresh(ctx: &mut Ctx, request: Request) -> Result {
    let options = Options::parse(request)?;
    let key = ctx.key(request.arg(1));
    let found = match ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch) {
        Some(live) if live.kind() != Kind::String => return Err(Error::WrongType),
        Some(live) => {
            ctx.reply.array(4);
            reply_value(&mut ctx.reply, live.value());
            live.deadline_ms()
                .map_or(Found::Immortal, |deadline_ms| Found::Mortal(deadline_ms.saturating_sub(ctx.now.ms)))
        }
        None => {
            ctx.reply.array(4);
            match ctx.keyspace.stale_value(ctx.db, key.bytes, ctx.now) {
                Some(value) => {
                    reply_value(&mut ctx.reply, value);
                    Found::Stale
                }
                None => {
                    ctx.reply.nil();
                    Found::Nothing
                }
            }
        }
    };
    let is_wanted = match found {
        Found::Nothing | Found::Stale => true,
        Found::Immortal => false,
        Found::Mortal(left_ms) => options.is_early(left_ms, 1.0 - ctx.rng.f64()),
    };
    let leases = &mut ctx.keyspace.leases;
    let (advice, lease_ms) = match leases.until_ms(ctx.db, key.hash, ctx.now) {
        None if is_wanted => {
            leases.grant(ctx.db, key.hash, ctx.now.ms.saturating_add(options.lease_ms));
            ("refresh", options.lease_ms)
        }
        until_ms => {
            let advice = match found {
                Found::Nothing => "wait",
                Found::Stale => "stale",
                Found::Immortal | Found::Mortal(_) => "hit",
            };
            (advice, until_ms.map_or(0, |until_ms| until_ms - ctx.now.ms))
        }
    };
    ctx.reply.bulk(advice.as_bytes());
    ctx.reply.int(found.pttl());
    ctx.reply.int(lease_ms as i64);
    Ok(())
}

/// Whether a command has given its caller the lease of its key, as its reply says behind the value.
pub fn gives_lease(full_name: &str, reply: &[u8]) -> bool {
    full_name == NAME && {
        let mut lines = reply.rsplit(|byte| *byte == b'\n').skip(1);
        let [_lease_ms, _pttl, advice] = [lines.next(), lines.next(), lines.next()];
        advice == Some(b"refresh\r")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Now;
    use crate::command::trial::Trial;
    use crate::config::{Limits, Policies};

    fn reply(value: Option<&str>, advice: &str, pttl: i64, lease_ms: i64) -> String {
        let value = value.map_or("$-1".to_owned(), |value| format!("${}\r\n{value}", value.len()));
        format!("*4\r\n{value}\r\n${}\r\n{advice}\r\n:{pttl}\r\n:{lease_ms}\r\n", advice.len())
    }

    #[test]
    fn the_reply_says_who_was_given_a_lease() {
        let value = "refresh\r\n:-2\r\n:10\r\nwait";
        for (value, advice) in [(None, "refresh"), (None, "wait"), (Some(value), "hit"), (Some(value), "refresh")] {
            let reply = reply(value, advice, -2, 10);
            assert_eq!(gives_lease(NAME, reply.as_bytes()), advice == "refresh");
            assert!(!gives_lease("get", reply.as_bytes()));
        }
        assert!(!gives_lease(NAME, b"-WRONGTYPE\r\n") && !gives_lease(NAME, b""));
    }

    #[test]
    fn one_of_many_computes_what_is_missing() {
        let mut trial = Trial::new(1, Limits::default());
        let ask = |trial: &mut Trial| trial.say("getfresh k COST 200ms LEASE 1s");
        assert_eq!(ask(&mut trial), reply(None, "refresh", -2, 1000));
        assert_eq!(ask(&mut trial), reply(None, "wait", -2, 1000));
        trial.pass_ms(999);
        assert_eq!(ask(&mut trial), reply(None, "wait", -2, 1));
        trial.pass_ms(1);
        assert_eq!(ask(&mut trial), reply(None, "refresh", -2, 1000), "whoever had the lease is gone");
        trial.say("set k v px 100000");
        assert_eq!(ask(&mut trial), reply(Some("v"), "hit", 100_000, 0));
        trial.pass_ms(100_001);
        assert_eq!(ask(&mut trial), reply(None, "refresh", -2, 1000), "the write has ended the lease");
        trial.say("set k v");
        for _ in 0..1000 {
            assert_eq!(ask(&mut trial), reply(Some("v"), "hit", -1, 0), "what never dies is never too old");
        }
    }

    /// Whatever changes the key ends the lease.
    #[test]
    fn a_lease_ends_with_any_change_of_its_key() {
        for change in ["set k 1", "incr k", "rename other k", "copy other k", "append k x", "flushdb", "mset a 1 k 1"] {
            let mut trial = Trial::new(2, Limits::default());
            trial.say("set other x");
            assert_eq!(trial.say("getfresh k COST 1s"), reply(None, "refresh", -2, 10_000));
            assert_eq!(trial.say("getfresh k COST 1s"), reply(None, "wait", -2, 10_000));
            assert!(!trial.say(change).contains("ERR"), "{change}");
            let hash = trial.keyspace.hasher().hash(b"k");
            assert_eq!(trial.keyspace.leases.until_ms(0, hash, Now::from_ms(0)), None, "{change}");
        }
        let mut trial = Trial::new(2, Limits::default());
        trial.say("getfresh k COST 1s");
        for read in ["get k", "exists k", "del k", "expire k 10", "getdel k", "set x 1"] {
            trial.say(read);
            assert_eq!(trial.say("getfresh k COST 1s"), reply(None, "wait", -2, 10_000), "{read}");
        }
    }

    /// A policy lets strings be shown for a minute after their deaths.
    fn with_stale() -> Trial {
        let mut trial = Trial::new(6, Limits::default());
        let (_, policy, _) = Policies::parse(["k", "NONE", "STALE", "1m"].into_iter()).expect("a policy");
        trial.keyspace.set_policy(b"k", Some(policy));
        trial
    }

    const ASK: &str = "getfresh k COST 100ms";

    #[test]
    fn what_was_there_is_shown_while_one_computes_it_anew() {
        for swept in [false, true] {
            let mut trial = with_stale();
            trial.say("set k v px 1000");
            trial.pass_ms(1001);
            if swept {
                trial.sweep(100);
                assert_eq!(trial.keyspace.stale_copies(), 1);
            }
            assert_eq!(trial.say(ASK), reply(Some("v"), "refresh", -2, 1000));
            assert_eq!(trial.say(ASK), reply(Some("v"), "stale", -2, 1000));
            for (gone, answer) in
                [("get k", "$-1\r\n"), ("exists k", ":0\r\n"), ("dbsize", ":0\r\n"), ("pttl k", ":-2\r\n")]
            {
                assert_eq!(trial.say(gone), answer, "{gone}");
            }
            assert_eq!(trial.say("keys *"), "", "none");
            trial.pass_ms(1000);
            assert_eq!(trial.say(ASK), reply(Some("v"), "refresh", -2, 1000), "whoever had the lease is gone");
            trial.pass_ms(58_998);
            assert_eq!(trial.say(ASK), reply(Some("v"), "refresh", -2, 1000));
            trial.pass_ms(2);
            assert_eq!(trial.say(ASK), reply(None, "wait", -2, 998), "its time is over");
            assert_eq!(trial.keyspace.stale_copies(), 1);
            let now = trial.now();
            assert!(!trial.keyspace.sweep_stale(10, now));
            assert_eq!((trial.keyspace.stale_copies(), trial.keyspace.stale_bytes()), (0, 0));
            trial.say("set k w px 100000");
            assert_eq!(trial.say("getfresh k COST 1ms"), reply(Some("w"), "hit", 100_000, 0));
            trial.keyspace.check();
        }
    }

    #[test]
    fn a_policy_that_says_less_holds_for_what_has_died_before() {
        let mut trial = with_stale();
        let set = |trial: &mut Trial, stale: &str| {
            let (_, policy, _) = Policies::parse(["k", "NONE", "STALE", stale].into_iter()).expect("a policy");
            trial.keyspace.set_policy(b"k", Some(policy));
        };
        trial.say("set k 7 px 10");
        trial.pass_ms(2_000);
        assert!(trial.say(ASK).contains("$1\r\n7"));
        set(&mut trial, "10ms");
        assert!(trial.say(ASK).starts_with("*4\r\n$-1"));
        // A longer time is not that of what has died before.
        set(&mut trial, "1h");
        assert!(trial.say(ASK).contains("$1\r\n7"));
        trial.pass_ms(60_000);
        assert!(trial.say(ASK).starts_with("*4\r\n$-1"));
    }

    #[test]
    fn nothing_brings_back_what_has_died() {
        let changes = ["set k 1", "append k x", "incr k", "rename other k", "copy other k", "mset a 1 k 1"];
        for change in changes {
            let mut trial = with_stale();
            trial.say("set other 1");
            trial.say("set k 7 px 10");
            trial.pass_ms(11);
            assert!(trial.say(ASK).contains("$1\r\n7"), "{change}");
            assert!(!trial.say(change).contains("ERR"), "{change}");
            trial.say("rename k away");
            assert!(trial.say(ASK).starts_with("*4\r\n$-1"), "{change}");
        }
        for end in ["del k", "unlink k", "flushdb", "flushall"] {
            let mut trial = with_stale();
            trial.say("set k 7 px 10");
            trial.pass_ms(11);
            trial.say(end);
            assert!(trial.say(ASK).starts_with("*4\r\n$-1"), "{end}");
            assert_eq!(trial.keyspace.stale_copies(), 0, "{end}");
        }
        for no_change in ["rename k away", "copy k away", "persist k", "expire k 10", "getdel k", "get k", "set k x xx"]
        {
            let mut trial = with_stale();
            trial.say("set k 7 px 10");
            trial.pass_ms(11);
            trial.say(no_change);
            assert!(trial.say("get away").starts_with("$-1"), "{no_change}");
            assert!(trial.say(ASK).contains("$1\r\n7"), "{no_change}");
        }
    }

    /// Only strings, only what has died in its time, and only as long as the policy says so.
    #[test]
    fn what_was_deleted_is_not_shown() {
        for end in ["del k", "expire k -1", "getdel k", "set k x pxat 1", "rename k away"] {
            let mut trial = with_stale();
            trial.say("set k 7 px 10");
            trial.say(end);
            trial.pass_ms(11);
            assert!(trial.say(ASK).starts_with("*4\r\n$-1"), "{end}");
        }
        for other in ["rpush k a", "sadd k a", "hset k a b"] {
            let mut trial = with_stale();
            trial.say(other);
            trial.say("pexpire k 10");
            trial.pass_ms(11);
            assert!(trial.say(ASK).starts_with("*4\r\n$-1"), "{other}");
        }
        let mut trial = with_stale();
        trial.say("set x 7 px 10");
        trial.say("set k 7 px 10");
        trial.pass_ms(11);
        assert!(trial.say("getfresh x COST 1s").starts_with("*4\r\n$-1"));
        trial.keyspace.set_policy(b"k", None);
        assert!(trial.say(ASK).starts_with("*4\r\n$-1"));
    }

    #[test]
    fn copies_take_no_more_room_than_they_may() {
        let mut trial = with_stale();
        trial.keyspace.stale_bytes_max = 30_000;
        for i in 0..2_000 {
            trial.say(&format!("set k{i} {} px 10", "x".repeat(100)));
        }
        trial.run(&[b"set", b"k-large", &vec![b'x'; 40_000], b"px", b"10"]);
        trial.pass_ms(11);
        trial.sweep(100);
        let now = trial.now();
        let (copies, bytes) = (trial.keyspace.stale_copies(), trial.keyspace.stale_bytes());
        assert!((50..300).contains(&copies) && bytes <= 30_000, "{copies} with {bytes} bytes");
        assert!(trial.say("getfresh k-large COST 1s").starts_with("*4\r\n$-1"));
        assert_eq!(trial.keyspace.give_stale(10, now), 10);
        assert_eq!(trial.keyspace.give_stale(10_000, now), copies - 10);
        assert_eq!((trial.keyspace.stale_copies(), trial.keyspace.stale_bytes()), (0, 0));
    }

    /// A value of 10 s that takes 100 ms to compute, read every millisecond: in each of its lives one reader is told, soon
    /// before the end, and the value never goes missing.
    #[test]
    fn one_of_many_is_told_before_the_deadline() {
        const LIFE_MS: u64 = 10_000;
        let mut trial = Trial::new(3, Limits::default());
        trial.say("set k v px 10000");
        let (mut age_ms, mut told, mut missed, mut least_ms) = (0, 0, 0, LIFE_MS);
        let mut done_at_ms = None;
        for _ in 0..100 * LIFE_MS {
            let advice = trial.say("getfresh k COST 100ms");
            missed += u64::from(advice.contains("$-1"));
            if advice.contains("refresh") {
                assert_eq!(done_at_ms, None, "nobody else is told meanwhile");
                told += 1;
                least_ms = least_ms.min(age_ms);
                done_at_ms = Some(age_ms + 100);
            }
            if done_at_ms == Some(age_ms) {
                trial.say("set k v px 10000");
                (age_ms, done_at_ms) = (0, None);
            }
            trial.pass_ms(1);
            age_ms += 1;
        }
        assert!((100..108).contains(&told), "{told} computations in the time of a hundred lives");
        assert_eq!(missed, 0);
        assert!(least_ms > LIFE_MS - 3000, "{least_ms} ms after it was stored");
    }

    /// The share of readers that are told is exp(-left / (cost beta)).
    #[test]
    fn the_draw_is_that_of_the_paper() {
        let mut rng = fastrand::Rng::with_seed(4);
        for (cost_ms, beta, left_ms) in [(100, 1.0, 50), (100, 1.0, 300), (100, 2.0, 300), (7, 0.5, 1)] {
            let options = Options { cost_ms, beta, lease_ms: 1 };
            let told = (0..100_000).filter(|_| options.is_early(left_ms, 1.0 - rng.f64())).count();
            let expected = (-(left_ms as f64) / (cost_ms as f64 * beta)).exp();
            assert!((told as f64 / 100_000.0 - expected).abs() < 0.01, "{told} of 100000, {expected}");
            let never = Options { beta: 0.0, ..options };
            assert!((0..1000).all(|_| !never.is_early(left_ms, 1.0 - rng.f64())));
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let mut trial = Trial::new(5, Limits::default());
        for wrong in ["getfresh k BETA 1", "getfresh k COST 1s BETA", "getfresh k COST 1s FOO 1"] {
            assert_eq!(trial.say(wrong), "ERR syntax error", "{wrong}");
        }
        for wrong in ["-1", "nan", "inf", "x"] {
            let text = trial.say(&format!("getfresh k COST 1s BETA {wrong}"));
            assert_eq!(text, "ERR BETA is not a number of at least 0", "{wrong}");
        }
        assert!(trial.say("getfresh k COST 0s").starts_with("ERR invalid duration '0s': it is not greater than zero"));
        trial.say("rpush l x");
        assert!(trial.say("getfresh l COST 1s").starts_with("WRONGTYPE"));
        assert!(trial.say("getfresh k COST 1s").contains("refresh"), "nothing was leased by mistake");
    }
}
