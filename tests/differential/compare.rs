//! When the replies of two servers count as the same. Whatever is not named here must be equal to the byte.

use std::time::Duration;

use crate::common::Value;
use crate::generate;

/// What two clocks may differ by, in addition to the time during which the servers worked on the same commands.
const CLOCK_TOLERANCE_MS: i64 = 150;
/// OBJECT IDLETIME counts seconds since the last access; no run takes longer.
const IDLE_TOLERANCE_S: i64 = 3600;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Equal to the byte.
    Exact,
    /// The elements of an array in any order: KEYS.
    Unordered,
    /// PTTL: numbers of milliseconds that pass. Replies below zero (no key, no deadline) and errors must be equal.
    Milliseconds,
    /// TTL: the same in seconds.
    Seconds,
    /// PEXPIRETIME: a moment. Equal if it was given as one, else as far apart as the commands were executed.
    WallMilliseconds,
    /// EXPIRETIME: the same in seconds.
    WallSeconds,
    /// OBJECT IDLETIME.
    Idle,
    /// Two integers of any size (CLIENT ID; OBJECT REFCOUNT, where Redis shares small integers), or equal.
    AnyInteger,
    /// HELP: arrays that begin with the same line, or equal.
    FirstLine,
}

impl Rule {
    /// The rule for the reply to this command.
    pub fn of(args: &[Vec<u8>]) -> Rule {
        let upper = |index: usize| args.get(index).map(|arg| arg.to_ascii_uppercase());
        let (command, subcommand) = (upper(0).unwrap_or_default(), upper(1).unwrap_or_default());
        match (command.as_slice(), subcommand.as_slice()) {
            (b"KEYS", _) => Rule::Unordered,
            (b"PTTL", _) => Rule::Milliseconds,
            (b"TTL", _) => Rule::Seconds,
            (b"PEXPIRETIME", _) => Rule::WallMilliseconds,
            (b"EXPIRETIME", _) => Rule::WallSeconds,
            (b"OBJECT", b"IDLETIME") => Rule::Idle,
            (b"OBJECT", b"REFCOUNT") | (b"CLIENT", b"ID") => Rule::AnyInteger,
            (_, b"HELP") => Rule::FirstLine,
            _ => Rule::Exact,
        }
    }

    /// `skew` is how far apart in time the two servers may have executed the same command.
    pub fn same(self, subject: &Value, oracle: &Value, skew: Duration) -> bool {
        if subject == oracle {
            return true;
        }
        // Twice: once for when the deadline was set, once for when it was asked for.
        let tolerance_ms = CLOCK_TOLERANCE_MS + 2 * skew.as_millis() as i64;
        let tolerance_s = tolerance_ms / 1000 + 1;
        match (self, subject, oracle) {
            (Rule::AnyInteger, Value::Int(_), Value::Int(_)) => true,
            (Rule::Milliseconds, Value::Int(a), Value::Int(b)) => near(*a, *b, tolerance_ms),
            (Rule::Seconds, Value::Int(a), Value::Int(b)) => near(*a, *b, tolerance_s),
            (Rule::WallMilliseconds, Value::Int(a), Value::Int(b)) => {
                !generate::is_absolute_ms(*b) && near(*a, *b, tolerance_ms)
            }
            (Rule::WallSeconds, Value::Int(a), Value::Int(b)) => {
                !generate::is_absolute_s(*b) && near(*a, *b, tolerance_s)
            }
            (Rule::Idle, Value::Int(a), Value::Int(b)) => near(*a, *b, IDLE_TOLERANCE_S),
            (Rule::Unordered, Value::Array(a), Value::Array(b)) => sorted(a) == sorted(b),
            (Rule::FirstLine, Value::Array(a), Value::Array(b)) => a.first() == b.first(),
            _ => false,
        }
    }
}

/// Replies below zero are answers of their own kind, and equality has been looked at before.
fn near(a: i64, b: i64, tolerance: i64) -> bool {
    a >= 0 && b >= 0 && a.abs_diff(b) <= tolerance.unsigned_abs()
}

fn sorted(values: &[Value]) -> Vec<Value> {
    let mut values = values.to_vec();
    values.sort();
    values
}
