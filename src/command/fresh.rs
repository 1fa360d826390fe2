//! GETFRESH: reading a cache without stampedes.
//!
//! Shortly before a value dies one of its readers is told to compute it anew, while all others go on using it. How early
//! is drawn for each read (XFetch; Vattani, Chierichetti, Lowenstein, Optimal Probabilistic Cache Stampede Prevention,
//! VLDB 2015): the closer the deadline and the dearer the value, the likelier. With it comes a lease, so that only one is
//! told; where there is no value, all others are told to wait. Leases end when the key is written, and by themselves
//! ([`crate::keyspace::Leases`]).

use super::spec::flag::{FAST, READ};
use super::spec::{Group, Keys, Row, Spec};
use super::strings::reply_value;
use super::{Ctx, Run};
use crate::config::LONGEST_DURATION_MS as LONGEST_MS;
use crate::keyspace::Kind;
use crate::resp::{Error, Request, Result};
use crate::value::number::parse_f64;

pub const ROWS: &[Row<Run>] = &[Row::new(
    Spec {
        name: "getfresh",
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
        let (mut cost_ms, mut beta, mut lease_ms) = (None, 1.0, None);
        for index in (2..request.len()).step_by(2) {
            let argument = request.get(index + 1).ok_or(Error::Syntax)?;
            if request.is(index, "cost") {
                cost_ms = Some(request.duration(index + 1)?);
            } else if request.is(index, "lease") {
                lease_ms = Some(request.duration(index + 1)?);
            } else if request.is(index, "beta") {
                let number = parse_f64(argument).filter(|beta| beta.is_finite() && *beta >= 0.0);
                beta = number.ok_or(Error::text("ERR BETA is not a number of at least 0"))?;
            } else {
                return Err(Error::Syntax);
            }
        }
        let cost_ms = cost_ms.ok_or(Error::Syntax)?;
        let lease_ms = lease_ms.unwrap_or((cost_ms * LEASE_COSTS).min(LONGEST_MS));
        Ok(Options { cost_ms, beta, lease_ms })
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
    Immortal,
    /// It lives for so long still.
    Mortal(u64),
}

impl Found {
    /// As PTTL says it.
    fn pttl(self) -> i64 {
        match self {
            Found::Nothing => -2,
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
            ctx.reply.nil();
            Found::Nothing
        }
    };
    let is_wanted = match found {
        Found::Nothing => true,
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
            let advice = if found == Found::Nothing { "wait" } else { "hit" };
            (advice, until_ms.map_or(0, |until_ms| until_ms - ctx.now.ms))
        }
    };
    ctx.reply.bulk(advice.as_bytes());
    ctx.reply.int(found.pttl());
    ctx.reply.int(lease_ms as i64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Now;
    use crate::command::trial::Trial;
    use crate::config::Limits;

    fn reply(value: Option<&str>, advice: &str, pttl: i64, lease_ms: i64) -> String {
        let value = value.map_or("$-1".to_owned(), |value| format!("${}\r\n{value}", value.len()));
        format!("*4\r\n{value}\r\n${}\r\n{advice}\r\n:{pttl}\r\n:{lease_ms}\r\n", advice.len())
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
