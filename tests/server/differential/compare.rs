//! When the replies of two servers count as the same. Whatever is not named here must be equal to the byte.

use std::time::Duration;

use crate::common::{Value, bulk};
use crate::differential::generate;

/// Fields of consumers that Redis 7.2 added.
const NEWER_FIELDS: &[&str] = &["inactive", "active-time"];
/// Fields of groups that Redis 7.0 reckons as if nothing had been deleted or trimmed; `wire/stream_groups.rs` has what Redis 8.2
/// says.
const COUNTED_ANEW: &[&str] = &["entries-read", "lag"];
/// Encodings that differ on purpose: Redis's, EmberDB's, and why.
const OTHER_ENCODINGS: &[(&str, &str, &str)] = &[
    ("skiplist", "listpack", "SORT unpacks a sorted set that it reads"),
    ("raw", "embstr", "commands on HyperLogLogs copy a string before they look whether it changes"),
    ("hashtable", "intset", "what SDIFFSTORE and SPOP leave of a set is looked at anew"),
];
/// Fields of XINFO STREAM that tell how Redis keeps a stream in memory.
pub const STREAM_INSIDE: &[&str] = &["radix-tree-keys", "radix-tree-nodes"];

/// What two clocks may differ by, in addition to the time during which the servers worked on the same commands.
const CLOCK_TOLERANCE_MS: i64 = 150;
/// OBJECT IDLETIME counts seconds since the last access; no run takes longer.
const IDLE_TOLERANCE_S: i64 = 3600;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Equal to the byte.
    Exact,
    /// The elements of an array or a set in any order, those of a map as pairs: KEYS, SMEMBERS.
    Unordered,
    /// HGETALL: pairs in any order, flat or as a map.
    Pairs,
    /// Arrays of as many elements each: what is in them is up to the server.
    SameLength,
    /// OBJECT ENCODING, see [`OTHER_ENCODINGS`].
    Encoding,
    /// Commands on sorted sets: in Redis a score of -0 loses its sign where a packed sorted set has been in between, also
    /// for a moment.
    Scores,
    /// XPENDING: entries with the time since their delivery.
    Pending,
    /// XINFO: maps with times, and with fields that are a server's own.
    StreamInfo,
    /// PTTL: numbers of milliseconds that pass. Replies below zero (no key, no deadline) and errors must be equal.
    Milliseconds,
    /// TTL: the same in seconds.
    Seconds,
    /// PEXPIRETIME: a moment. Equal if it was given as one, else as far apart as the commands were executed.
    WallMilliseconds,
    /// EXPIRETIME: the same in seconds.
    WallSeconds,
    /// BITCOUNT and BITPOS: Redis 7.0 judges their arguments where there is a string only, Redis 7.4 everywhere.
    EarlyErrors,
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
            (b"KEYS" | b"SMEMBERS" | b"SINTER" | b"SUNION" | b"SDIFF" | b"HKEYS" | b"HVALS", _) => Rule::Unordered,
            (b"HGETALL", _) => Rule::Pairs,
            (_, b"HELP") => Rule::FirstLine,
            (b"OBJECT", b"ENCODING") => Rule::Encoding,
            ([b'Z', ..] | [b'B', b'Z', ..], _) => Rule::Scores,
            (b"BITCOUNT" | b"BITPOS", _) => Rule::EarlyErrors,
            (b"XPENDING", _) => Rule::Pending,
            (b"XINFO", _) => Rule::StreamInfo,
            (b"PTTL", _) => Rule::Milliseconds,
            (b"TTL", _) => Rule::Seconds,
            (b"PEXPIRETIME", _) => Rule::WallMilliseconds,
            (b"EXPIRETIME", _) => Rule::WallSeconds,
            (b"OBJECT", b"IDLETIME") => Rule::Idle,
            (b"OBJECT", b"REFCOUNT") | (b"CLIENT", b"ID") => Rule::AnyInteger,
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
            (Rule::EarlyErrors, Value::Error(_), Value::Int(0 | -1)) => true,
            (Rule::EarlyErrors, Value::Error(_), Value::Error(oracle)) if oracle.starts_with("WRONGTYPE") => true,
            (Rule::Idle, Value::Int(a), Value::Int(b)) => near(*a, *b, IDLE_TOLERANCE_S),
            (Rule::Unordered, Value::Array(a), Value::Array(b)) => sorted(a) == sorted(b),
            (Rule::Unordered, Value::Set(a), Value::Set(b)) => sorted(a) == sorted(b),
            (Rule::Pairs, Value::Map(a), Value::Map(b)) => sorted(a) == sorted(b),
            (Rule::Pairs, Value::Array(a), Value::Array(b)) => {
                let pairs = |items: &[Value]| sorted(&items.chunks(2).map(<[Value]>::to_vec).collect::<Vec<_>>());
                pairs(a) == pairs(b)
            }
            (Rule::SameLength, Value::Array(a), Value::Array(b)) => a.len() == b.len(),
            (Rule::FirstLine, Value::Array(a), Value::Array(b)) => a.first() == b.first(),
            (Rule::Encoding, subject, oracle) => {
                OTHER_ENCODINGS.iter().any(|(theirs, ours, _)| *oracle == bulk(theirs) && *subject == bulk(ours))
            }
            (Rule::Scores, subject, oracle) => without_sign_of_zero(subject) == without_sign_of_zero(oracle),
            (Rule::Pending, Value::Array(a), Value::Array(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_at(2, a, b, tolerance_ms))
            }
            (Rule::StreamInfo, subject, oracle) => same_info("", subject, oracle, tolerance_ms),
            _ => false,
        }
    }
}

/// Two arrays that are equal but for the element at this index, a number of milliseconds.
fn same_at(time: usize, a: &Value, b: &Value, tolerance_ms: i64) -> bool {
    let (Value::Array(a), Value::Array(b)) = (a, b) else {
        return a == b;
    };
    let same = |(index, (a, b)): (usize, (&Value, &Value))| match (a, b) {
        (Value::Int(a), Value::Int(b)) if index == time => near(*a, *b, tolerance_ms),
        _ => a == b,
    };
    a.len() == b.len() && a.iter().zip(b).enumerate().all(same)
}

/// XINFO's maps, flat in RESP2, may be inside arrays and inside each other; `field` is where this value is found.
/// A reply without what Redis 7.0 does not say.
fn without_newer_fields(info: &Value) -> Value {
    let is_newer = |name: &Value| matches!(name, Value::Bulk(_)) && NEWER_FIELDS.contains(&name.text().as_str());
    match info {
        Value::Map(pairs) => Value::Map(pairs.iter().filter(|(name, _)| !is_newer(name)).cloned().collect()),
        Value::Array(items) if items.len().is_multiple_of(2) && items.iter().any(is_newer) => {
            Value::Array(items.chunks(2).filter(|pair| !is_newer(&pair[0])).flatten().cloned().collect())
        }
        other => other.clone(),
    }
}

fn same_info(field: &str, a: &Value, b: &Value, tolerance_ms: i64) -> bool {
    let a = &without_newer_fields(a);
    let same = |a: &Value, b: &Value| same_info(field, a, b, tolerance_ms);
    let same_field = |name: &Value, a: &Value, b: &Value| same_info(&name.text(), a, b, tolerance_ms);
    match (field, a, b) {
        // From Redis 7.2 on a consumer is seen where it asks, too, and gets nothing.
        ("idle", Value::Int(a), Value::Int(b)) => a <= b || near(*a, *b, tolerance_ms),
        ("seen-time", Value::Int(a), Value::Int(b)) => a >= b || near(*a, *b, tolerance_ms),
        (field, Value::Int(_), Value::Int(_)) if STREAM_INSIDE.contains(&field) => true,
        (field, ..) if COUNTED_ANEW.contains(&field) => true,
        // Entry, consumer, time, count; a consumer's own list has no consumer in it.
        ("pending" | "pel", Value::Array(a), Value::Array(b)) => {
            let same = |(a, b): (&Value, &Value)| match a {
                Value::Array(items) => same_at(items.len().saturating_sub(2), a, b, tolerance_ms),
                _ => a == b,
            };
            a.len() == b.len() && a.iter().zip(b).all(same)
        }
        (_, Value::Map(a), Value::Map(b)) => {
            let same = |((x, a), (y, b)): (&(Value, Value), &(Value, Value))| x == y && same_field(x, a, b);
            a.len() == b.len() && a.iter().zip(b).all(same)
        }
        (_, Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let is_map = a.len().is_multiple_of(2) && a.chunks(2).all(|pair| matches!(pair[0], Value::Bulk(_)));
            if is_map && field != "entries" {
                let mut pairs = a.chunks(2).zip(b.chunks(2));
                pairs.all(|(a, b)| a[0] == b[0] && same_field(&a[0], &a[1], &b[1]))
            } else {
                a.iter().zip(b).all(|(a, b)| same(a, b))
            }
        }
        _ => a == b,
    }
}

fn without_sign_of_zero(reply: &Value) -> Value {
    match reply {
        Value::Bulk(text) if text == b"-0" => bulk("0"),
        Value::Double(text) if text == "-0" => Value::Double("0".to_string()),
        Value::Array(items) => Value::Array(items.iter().map(without_sign_of_zero).collect()),
        other => other.clone(),
    }
}

/// Replies below zero are answers of their own kind, and equality has been looked at before.
fn near(a: i64, b: i64, tolerance: i64) -> bool {
    a >= 0 && b >= 0 && a.abs_diff(b) <= tolerance.unsigned_abs()
}

fn sorted<T: Ord + Clone>(values: &[T]) -> Vec<T> {
    let mut values = values.to_vec();
    values.sort();
    values
}
