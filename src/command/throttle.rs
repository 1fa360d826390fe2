//! Rate limits: CL.THROTTLE, as the module redis-cell has it, by the generic cell rate algorithm (ITU-T I.371).
//!
//! Each action takes up one *emission interval*, the period divided by the actions that it allows. What is kept is one
//! moment, the *theoretical arrival time*: when all that was allowed has been taken up at that pace. An action is
//! allowed if that moment, moved on by it, is no further from now than the burst and one more action take.
//!
//! The key's value is that moment as redis-cell keeps it, in nanoseconds of wall time. Its deadline is the same moment,
//! rounded up to a millisecond: then the limit has nothing to remember and forgets itself. As long as there is a
//! deadline, it says the milliseconds, since it stands firm when the wall clock is set.

use super::spec::flag::{DENY_OOM, FAST, OWN_DEADLINE, WRITE};
use super::spec::{Group, Keys, Row, Spec};
use super::strings::propagate_set;
use super::{Ctx, Run};
use crate::keyspace::{Change, Event, Kind, Live, Value};
use crate::resp::{Error, Request, Result};
use crate::value::number::{I64_TEXT_BYTES_MAX, format_i64};

pub const ROWS: &[Row<Run>] = &[Row::new(
    Spec {
        name: "cl.throttle",
        arity: -5,
        flags: WRITE | DENY_OOM | FAST | OWN_DEADLINE,
        keys: Keys::ONE,
        group: Group::Module,
        since: "0.1.0",
        complexity: "O(1)",
        summary: "Asks whether an action may be taken: so many in a period, after a burst of some more.",
        syntax: "key max-burst:integer count-per-period:integer period:integer [quantity:integer]",
    },
    Run::Key(throttle),
)];

const NS_A_SECOND: i128 = 1_000_000_000;
const NS_A_MS: i128 = 1_000_000;

/// Errors look as those of the module do.
fn cell_error(text: impl std::fmt::Display) -> Error {
    Error::Text(format!("Cell error: {text}").into())
}

fn store_error(text: impl std::fmt::Display) -> Error {
    cell_error(format_args!("Store error: {text}"))
}

/// An integer as Rust reads it, which takes a plus and leading zeros.
fn parse_int(text: &[u8]) -> Result<i64> {
    let text = String::from_utf8_lossy(text);
    text.parse().map_err(|_| store_error(format_args!("Couldn't parse as integer: {text}")))
}

/// What is allowed. Durations are in nanoseconds and never overflow: they stay at the greatest.
#[derive(Clone, Copy, Debug)]
struct Quota {
    /// Of one action.
    interval_ns: i128,
    /// How far ahead of now the theoretical arrival time may be.
    tolerance_ns: i128,
    limit: i64,
}

/// What becomes of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Decision {
    is_limited: bool,
    remaining: i64,
    /// `None` where it is allowed, or never can be.
    retry_after_ns: Option<i128>,
    reset_after_ns: i128,
    /// The theoretical arrival time from now on, unless it stays.
    arrival_ns: Option<i128>,
}

impl Quota {
    fn new(max_burst: i64, count: i64, period_s: i64) -> Result<Quota> {
        let period_ns = i128::from(period_s) * NS_A_SECOND;
        let interval_ns = period_ns.checked_div(count.into()).unwrap_or(0);
        match interval_ns {
            0 => Err(store_error("Zero rates are not supported")),
            ..0 => Err(store_error("Negative rates are not supported")),
            1.. => Ok(Quota {
                interval_ns,
                tolerance_ns: interval_ns.saturating_mul(i128::from(max_burst) + 1),
                limit: max_burst.saturating_add(1),
            }),
        }
    }

    /// Decides on an action of some size; a negative one gives back. All moments count from the same start.
    fn decide(&self, arrival_ns: Option<i128>, quantity: i64, now_ns: i128) -> Decision {
        let arrival_ns = arrival_ns.map_or(now_ns, |arrival_ns| arrival_ns.max(now_ns));
        let increment_ns = self.interval_ns.saturating_mul(quantity.into());
        let next_ns = arrival_ns.saturating_add(increment_ns).max(now_ns);
        let allowed_at_ns = next_ns.saturating_sub(self.tolerance_ns);
        let is_limited = now_ns < allowed_at_ns;
        let reset_after_ns = if is_limited { arrival_ns } else { next_ns } - now_ns;
        let left = self.tolerance_ns.saturating_sub(reset_after_ns) / self.interval_ns;
        Decision {
            is_limited,
            remaining: left.clamp(0, i64::MAX.into()) as i64,
            retry_after_ns: (is_limited && increment_ns <= self.tolerance_ns).then(|| allowed_at_ns - now_ns),
            reset_after_ns,
            arrival_ns: (!is_limited && next_ns != arrival_ns).then_some(next_ns),
        }
    }
}

/// Full seconds: a part of one that shows in milliseconds counts as one, as in the module, so that nobody comes back too
/// early.
fn seconds(duration_ns: i128) -> i64 {
    (duration_ns / NS_A_MS + 999).div_euclid(1000).min(i64::MAX.into()) as i64
}

/// The theoretical arrival time of a key, in store time.
fn arrival_ns(live: &Live, wall_offset_ms: i64) -> Result<i128> {
    let wall_ns = match live.value() {
        Value::Int(n) => n,
        Value::Bytes(bytes) => parse_wall_ns(bytes).map_err(cell_error)?,
    };
    Ok(match live.deadline_ms() {
        Some(deadline_ms) => arrival_before(deadline_ms, wall_ns),
        None => i128::from(wall_ns) - i128::from(wall_offset_ms) * NS_A_MS,
    })
}

/// Reads a number as Rust does, which is what the module is written in. A value of any length may be there: what is wrong
/// with it shows among the first digits that count.
fn parse_wall_ns(bytes: &[u8]) -> std::result::Result<i64, std::num::ParseIntError> {
    const DIGITS_MAX: usize = 20;
    let (sign, digits) = bytes.split_at(usize::from(matches!(bytes, [b'+' | b'-', ..])));
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    let counting = &digits[zeros.min(digits.len().saturating_sub(1))..];
    let text = [sign, &counting[..counting.len().min(DIGITS_MAX)]].concat();
    String::from_utf8_lossy(&text).parse()
}

/// The latest moment up to a deadline with the part of a millisecond that another has.
fn arrival_before(deadline_ms: u64, other_ns: i64) -> i128 {
    let part_ns = i128::from(other_ns).rem_euclid(NS_A_MS);
    i128::from(deadline_ms) * NS_A_MS - (NS_A_MS - part_ns) % NS_A_MS
}

fn throttle(ctx: &mut Ctx, request: Request) -> Result {
    if request.len() > 6 {
        return Err(Error::WrongArity("cl.throttle".to_owned()));
    }
    let max_burst = parse_int(request.arg(2))?;
    let (count, period_s) = (parse_int(request.arg(3))?, parse_int(request.arg(4))?);
    let quantity = request.get(5).map_or(Ok(1), parse_int)?;
    let quota = Quota::new(max_burst, count, period_s)?;
    let wall_offset_ms = ctx.clock.wall_offset_ms();
    let now_ns = i128::from(ctx.now.us) * 1000;
    let key = ctx.key(request.arg(1));
    let arrival_ns = match ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch) {
        Some(live) if live.kind() != Kind::String => return Err(Error::WrongType),
        Some(live) => Some(arrival_ns(&live, wall_offset_ms)?),
        None => None,
    };
    // The deadline is part of the limiter's state: no policy governs it.
    ctx.keyspace.take_used();
    let decision = quota.decide(arrival_ns, quantity, now_ns);
    if let Some(arrival_ns) = decision.arrival_ns {
        let wall_ns = i64::try_from(arrival_ns.saturating_add(i128::from(wall_offset_ms) * NS_A_MS))
            .map_err(|_| Error::InvalidExpireTime("cl.throttle"))?;
        let deadline_ms = (arrival_ns + NS_A_MS - 1) / NS_A_MS;
        ctx.keyspace.insert(ctx.db, key, Value::Int(wall_ns), Some(deadline_ms as u64), ctx.now);
        ctx.keyspace.commit(ctx.db, key, Change::of(Event::Set).and(Event::Expire), ctx.now);
        if ctx.is_journaled() {
            let mut text = [0; I64_TEXT_BYTES_MAX];
            propagate_set(ctx, key, format_i64(wall_ns, &mut text), Some(deadline_ms as u64));
        }
    }
    ctx.reply.array(5);
    ctx.reply.int(i64::from(decision.is_limited));
    ctx.reply.int(quota.limit);
    ctx.reply.int(decision.remaining);
    ctx.reply.int(decision.retry_after_ns.map_or(-1, seconds));
    ctx.reply.int(seconds(decision.reset_after_ns));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i128 = NS_A_SECOND;

    /// A limiter whose key remembers.
    struct Limiter {
        quota: Quota,
        arrival_ns: Option<i128>,
    }

    impl Limiter {
        fn new(max_burst: i64, count: i64, period_s: i64) -> Limiter {
            Limiter { quota: Quota::new(max_burst, count, period_s).unwrap(), arrival_ns: None }
        }

        fn ask(&mut self, quantity: i64, now_ns: i128) -> Decision {
            let decision = self.quota.decide(self.arrival_ns, quantity, now_ns);
            self.arrival_ns = decision.arrival_ns.or(self.arrival_ns);
            decision
        }
    }

    /// Five at once, one a second; by hand.
    #[test]
    fn a_burst_then_one_an_interval() {
        let start_ns = 1_000 * SECOND;
        let mut limiter = Limiter::new(4, 1, 1);
        // Asked after so many ms, how many; limited, remaining, retry after and reset after in ms.
        for (at_ms, quantity, is_limited, remaining, retry_ms, reset_ms) in [
            (0, 6, true, 5, None, 0),
            (0, 1, false, 4, None, 1000),
            (0, 1, false, 3, None, 2000),
            (0, 1, false, 2, None, 3000),
            (0, 1, false, 1, None, 4000),
            (0, 1, false, 0, None, 5000),
            (0, 1, true, 0, Some(1000), 5000),
            (500, 1, true, 0, Some(500), 4500),
            (999, 0, false, 0, None, 4001),
            (1000, 1, false, 0, None, 5000),
            (4000, 1, false, 2, None, 3000),
            (4100, 1, false, 1, None, 3900),
            (9000, 1, false, 4, None, 1000),
            (10_500, 1, false, 4, None, 1000),
            (10_500, 0, false, 4, None, 1000),
            (10_500, 2, false, 2, None, 3000),
            (10_500, 5, true, 2, Some(3000), 3000),
            (10_500, -1, false, 3, None, 2000),
            (10_500, -9, false, 5, None, 0),
        ] {
            let decision = limiter.ask(quantity, start_ns + at_ms * NS_A_MS);
            let shown = (decision.is_limited, decision.remaining, decision.retry_after_ns, decision.reset_after_ns);
            let expected = (is_limited, remaining, retry_ms.map(|ms: i128| ms * NS_A_MS), reset_ms * NS_A_MS);
            assert_eq!(shown, expected, "{quantity} at {at_ms} ms");
        }
    }

    #[test]
    fn asking_for_nothing_changes_nothing() {
        let quota = Quota::new(4, 1, 1).unwrap();
        for arrival_ns in [None, Some(0), Some(7 * SECOND), Some(9 * SECOND), Some(20 * SECOND)] {
            assert_eq!(quota.decide(arrival_ns, 0, 7 * SECOND).arrival_ns, None);
        }
        assert!(quota.decide(Some(20 * SECOND), 0, 7 * SECOND).is_limited, "the limit has become stricter");
    }

    /// However somebody asks, no window sees more than the burst and what the rate allows in its time.
    #[test]
    fn no_window_sees_more_than_burst_and_rate() {
        let mut rng = fastrand::Rng::with_seed(21);
        for _ in 0..300 {
            let (max_burst, count, period_s) = (rng.i64(0..20), rng.i64(1..50), rng.i64(1..20));
            let mut limiter = Limiter::new(max_burst, count, period_s);
            let interval_ns = limiter.quota.interval_ns;
            let mut now_ns = 1_000 * SECOND;
            let mut allowed: Vec<(i128, i64)> = Vec::new();
            for _ in 0..300 {
                now_ns += [0, rng.i128(0..interval_ns), rng.i128(0..interval_ns * 8)][rng.usize(..3)];
                let quantity = rng.i64(0..4);
                let decision = limiter.ask(quantity, now_ns);
                assert_eq!(decision.retry_after_ns.is_some(), decision.is_limited && quantity <= max_burst + 1);
                if !decision.is_limited {
                    allowed.push((now_ns, quantity));
                }
                if let Some(retry_after_ns) = decision.retry_after_ns {
                    let later = limiter.quota.decide(limiter.arrival_ns, quantity, now_ns + retry_after_ns);
                    let earlier = limiter.quota.decide(limiter.arrival_ns, quantity, now_ns + retry_after_ns - 1);
                    assert!(!later.is_limited && earlier.is_limited);
                }
            }
            for start in 0..allowed.len() {
                let mut actions = 0;
                for (at_ns, quantity) in &allowed[start..] {
                    actions += i128::from(*quantity);
                    let window_ns = at_ns - allowed[start].0;
                    assert!(actions <= i128::from(max_burst) + 1 + window_ns / interval_ns);
                }
            }
        }
    }

    #[test]
    fn who_waits_gets_all_of_the_rate() {
        let mut limiter = Limiter::new(0, 10, 1);
        let allowed = (0..10_000).filter(|ms| !limiter.ask(1, ms * NS_A_MS).is_limited).count();
        assert_eq!(allowed, 100);
    }

    #[test]
    fn quotas_that_make_no_sense() {
        let message = |max_burst, count, period_s| Quota::new(max_burst, count, period_s).unwrap_err().to_string();
        let zero = "Cell error: Store error: Zero rates are not supported";
        assert_eq!(message(1, 0, 1), zero);
        assert_eq!(message(1, 1, 0), zero);
        assert_eq!(message(1, 2_000_000_000, 1), zero);
        assert_eq!(message(1, -1, 1), "Cell error: Store error: Negative rates are not supported");
        assert!(Quota::new(1, -1, -1).is_ok());
        let never = Quota::new(-3, 1, 1).unwrap().decide(None, 1, 0);
        assert_eq!((never.is_limited, never.remaining, never.retry_after_ns), (true, 0, None));
    }

    #[test]
    fn numbers_of_any_size_do_not_overflow() {
        let edges = [i64::MIN, i64::MIN + 1, -1, 0, 1, 2, 1_000_000_000, i64::MAX - 1, i64::MAX];
        for max_burst in edges {
            for count in edges {
                for period_s in edges {
                    let Ok(quota) = Quota::new(max_burst, count, period_s) else { continue };
                    for quantity in edges {
                        for arrival_ns in [None, Some(-1), Some(i128::from(i64::MAX) * 1_000_000)] {
                            let decision = quota.decide(arrival_ns, quantity, 1 << 60);
                            seconds(decision.reset_after_ns);
                            assert!(decision.reset_after_ns >= 0 && decision.remaining >= 0);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_value_is_read_as_rust_reads_it() {
        let mut texts: Vec<String> =
            ["", "+", "-", "0", "-0", "00012", "+5", "--5", "5x", "x", "\u{fc}1", "- 1"].map(Into::into).into();
        for digits in 17..24 {
            texts.extend(["9", "1", "0"].map(|digit| digit.repeat(digits)));
        }
        texts.extend([i64::MAX.to_string(), i64::MIN.to_string(), "9223372036854775808".into()]);
        texts.extend(["0".repeat(100) + "7", "7".repeat(100), "7".repeat(19) + "x", "0".repeat(50) + "x"]);
        for text in texts {
            for text in [text.clone(), format!("-{text}")] {
                assert_eq!(parse_wall_ns(text.as_bytes()), text.parse(), "{text}");
            }
        }
    }

    #[test]
    fn seconds_are_rounded_up_from_a_millisecond_on() {
        for (duration_ns, expected) in
            [(0, 0), (1, 0), (999_999, 0), (NS_A_MS, 1), (SECOND, 1), (SECOND + 999_999, 1), (SECOND + NS_A_MS, 2)]
        {
            assert_eq!(seconds(duration_ns), expected, "{duration_ns}");
        }
    }

    #[test]
    fn a_moment_survives_in_a_deadline_and_a_part_of_a_millisecond() {
        let offset_ns = 1_700_000_000_000 * 1_000_000;
        for arrival_ns in [5_000_000, 5_000_001, 5_999_999, 6_000_000, 123_456_789] {
            let deadline_ms = (arrival_ns + 999_999) / 1_000_000;
            assert_eq!(arrival_before(deadline_ms as u64, offset_ns + arrival_ns), i128::from(arrival_ns));
        }
    }
}
