//! INCREX: a counter with bounds and a deadline, in one command as Redis 8.8 has it.

use super::deadlines::Expiry;
use super::spec::flag::{DENY_OOM, FAST, OWN_DEADLINE, WRITE};
use super::spec::{Group, Keys, Row, Spec};
use super::strings::{as_bytes, find_string, propagate_set};
use super::{Ctx, Run};
use crate::keyspace::{Change, Event, Live, Touch, Value};
use crate::resp::{Error, Request, Result};
use crate::value::number::{I64_TEXT_BYTES_MAX, LongDouble, format_i64, parse_i64};

pub const ROWS: &[Row<Run>] = &[Row::new(
    Spec {
        name: "increx",
        arity: -2,
        flags: WRITE | DENY_OOM | FAST | OWN_DEADLINE,
        keys: Keys::ONE,
        group: Group::String,
        since: "8.8.0",
        complexity: "O(1)",
        summary: "Adds to the number under a key, within bounds, and sets or clears its deadline.",
        syntax: "key [increment:(BYFLOAT float:double|BYINT integer:integer)] [SATURATE] [LBOUND lowerbound:string] \
                 [UBOUND upperbound:string] [expiration:(EX seconds:integer|PX milliseconds:integer|EXAT \
                 unix-time-seconds:unix-time|PXAT unix-time-milliseconds:unix-time|PERSIST)] [ENX]",
    },
    Run::Key(increx),
)];

const INCREMENT_NOT_INTEGER: Error = Error::text("ERR Increment is not an integer or out of range");
const INCREMENT_NOT_FLOAT: Error = Error::text("ERR Increment is not a valid float");
const INCREMENT_INFINITE: Error = Error::text("ERR BYFLOAT increment cannot be Infinity");
/// What is said of a bound, behind its name.
const NOT_INTEGER: &str = "is not an integer or out of range";
const NOT_FLOAT: &str = "is not a valid float";
const BOUNDS_CROSSED: Error = Error::text("ERR LBOUND can't be greater than UBOUND");
const VALUE_INFINITE: Error = Error::text("ERR value cannot be Infinity");
const APPLIED_OVERFLOW: Error = Error::text("ERR the applied increment would overflow");

/// What the arguments say; numbers by their index.
#[derive(Default)]
struct Options {
    by_int: Option<usize>,
    by_float: Option<usize>,
    lower: Option<usize>,
    upper: Option<usize>,
    saturate: bool,
    expiry: Option<Expiry>,
    persist: bool,
    /// A deadline that is there stays.
    only_without_deadline: bool,
}

impl Options {
    fn parse(request: Request) -> Result<Options> {
        let mut options = Options::default();
        let mut index = 2;
        while index < request.len() {
            let word = request.arg(index).to_ascii_lowercase();
            let flag = match &word[..] {
                b"saturate" => Some(&mut options.saturate),
                b"persist" => Some(&mut options.persist),
                b"enx" => Some(&mut options.only_without_deadline),
                _ => None,
            };
            if let Some(flag) = flag {
                if std::mem::replace(flag, true) {
                    return Err(Error::Syntax);
                }
                index += 1;
                continue;
            }
            let argument = index + 1;
            let is_again = match &word[..] {
                b"byint" => options.by_int.replace(argument).is_some(),
                b"byfloat" => options.by_float.replace(argument).is_some(),
                b"lbound" => options.lower.replace(argument).is_some(),
                b"ubound" => options.upper.replace(argument).is_some(),
                word => {
                    let expiry = Expiry::named(word, argument).ok_or(Error::Syntax)?;
                    options.expiry.replace(expiry).is_some()
                }
            };
            if is_again || argument == request.len() {
                return Err(Error::Syntax);
            }
            index += 2;
        }
        let excluded = options.expiry.is_some() || options.only_without_deadline;
        if options.persist && excluded || options.by_int.is_some() && options.by_float.is_some() {
            return Err(Error::Syntax);
        }
        if options.only_without_deadline && options.expiry.is_none() {
            return Err(Error::text("ERR ENX flag requires an expiration"));
        }
        Ok(options)
    }

    /// Both bounds, as `parse` reads them.
    fn bounds<N: PartialOrd + Copy>(
        &self,
        request: Request,
        parse: impl Fn(&[u8]) -> Option<N>,
        is_wrong: &str,
    ) -> Result<Bounds<N>> {
        let bound = |name: &str, index: Option<usize>| match index {
            Some(index) => {
                parse(request.arg(index)).map(Some).ok_or_else(|| Error::err(format_args!("{name} {is_wrong}")))
            }
            None => Ok(None),
        };
        let bounds = Bounds { lower: bound("LBOUND", self.lower)?, upper: bound("UBOUND", self.upper)? };
        if bounds.are_crossed() { Err(BOUNDS_CROSSED) } else { Ok(bounds) }
    }
}

/// The bounds of a number; without one it may be anything.
#[derive(Clone, Copy, Debug)]
struct Bounds<N> {
    lower: Option<N>,
    upper: Option<N>,
}

impl<N: PartialOrd + Copy> Bounds<N> {
    fn are_crossed(&self) -> bool {
        matches!((self.lower, self.upper), (Some(lower), Some(upper)) if lower > upper)
    }

    /// The number itself where it is within them, else the bound that it is beyond.
    fn nearest(&self, number: N) -> N {
        match (self.lower, self.upper) {
            (Some(lower), _) if number < lower => lower,
            (_, Some(upper)) if number > upper => upper,
            _ => number,
        }
    }
}

/// What a counter becomes, and what was added to it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sum<N> {
    value: N,
    applied: N,
}

/// `None` where the sum is out of bounds and is not to be put at the bound.
fn add_int(current: i64, increment: i64, bounds: &Bounds<i64>, saturate: bool) -> Result<Option<Sum<i64>>> {
    let sum = i128::from(current) + i128::from(increment);
    let fitting = sum.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
    let value = bounds.nearest(fitting);
    if i128::from(value) != sum && !saturate {
        return Ok(None);
    }
    let applied = value.checked_sub(current).ok_or(APPLIED_OVERFLOW)?;
    Ok(Some(Sum { value, applied }))
}

/// The same for decimal numbers.
fn add_float(
    current: LongDouble,
    increment: LongDouble,
    bounds: &Bounds<LongDouble>,
    saturate: bool,
) -> Result<Option<Sum<LongDouble>>> {
    let sum = current.checked_add(increment);
    let value = bounds.nearest(sum.unwrap_or(increment.largest()));
    if sum == Some(value) {
        return Ok(Some(Sum { value, applied: increment }));
    }
    if !saturate {
        return Ok(None);
    }
    let applied = value.checked_sub(current).ok_or(APPLIED_OVERFLOW)?;
    Ok(Some(Sum { value, applied }))
}

fn increx(ctx: &mut Ctx, request: Request) -> Result {
    let options = Options::parse(request)?;
    match options.by_float {
        Some(index) => increase_float(ctx, request, &options, index),
        None => increase_int(ctx, request, &options),
    }
}

fn increase_int(ctx: &mut Ctx, request: Request, options: &Options) -> Result {
    let increment = options.by_int.map_or(Some(1), |index| parse_i64(request.arg(index)));
    let increment = increment.ok_or(INCREMENT_NOT_INTEGER)?;
    let bounds = options.bounds(request, parse_i64, NOT_INTEGER)?;
    let deadline = Deadline::of(ctx, request, options)?;
    let current = match find_string(ctx, request)?.as_ref().map(Live::value) {
        None => 0,
        Some(Value::Int(n)) => n,
        Some(Value::Bytes(bytes)) => parse_i64(bytes).ok_or(Error::NotAnInteger)?,
    };
    let sum = add_int(current, increment, &bounds, options.saturate)?;
    if let Some(Sum { value, .. }) = sum {
        let mut text = [0; I64_TEXT_BYTES_MAX];
        store(ctx, request, Value::Int(value), format_i64(value, &mut text), deadline, Event::IncrBy)?;
    }
    let Sum { value, applied } = sum.unwrap_or(Sum { value: current, applied: 0 });
    ctx.reply.array(2);
    ctx.reply.int(value);
    ctx.reply.int(applied);
    Ok(())
}

fn increase_float(ctx: &mut Ctx, request: Request, options: &Options, index: usize) -> Result {
    let increment = LongDouble::parse(request.arg(index)).ok_or(INCREMENT_NOT_FLOAT)?;
    if increment.is_infinite() {
        return Err(INCREMENT_INFINITE);
    }
    let bounds = options.bounds(request, LongDouble::parse, NOT_FLOAT)?;
    let deadline = Deadline::of(ctx, request, options)?;
    let found = find_string(ctx, request)?;
    let mut text = [0; I64_TEXT_BYTES_MAX];
    let current = found.as_ref().map_or(&b"0"[..], |live| as_bytes(live.value(), &mut text));
    let current = LongDouble::parse(current).ok_or(Error::NotAFloat)?;
    if current.is_infinite() {
        return Err(VALUE_INFINITE);
    }
    let sum = add_float(current, increment, &bounds, options.saturate)?;
    let (mut value, mut applied) = (Vec::new(), Vec::new());
    match sum {
        Some(sum) => {
            sum.value.write(&mut value);
            sum.applied.write(&mut applied);
            // Kept as text even where it looks like an integer, as by INCRBYFLOAT.
            store(ctx, request, Value::Bytes(&value), &value, deadline, Event::IncrByFloat)?;
        }
        None => {
            current.write(&mut value);
            applied.push(b'0');
        }
    }
    ctx.reply.array(2);
    ctx.reply.number_text(&value);
    ctx.reply.number_text(&applied);
    Ok(())
}

/// What becomes of the deadline.
#[derive(Clone, Copy)]
enum Deadline {
    Stays,
    Goes,
    Is(super::deadlines::Deadline, IfThere),
}

/// Whether a deadline that is there gives way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IfThere {
    Replaced,
    Kept,
}

impl Deadline {
    fn of(ctx: &Ctx, request: Request, options: &Options) -> Result<Deadline> {
        let if_there = if options.only_without_deadline { IfThere::Kept } else { IfThere::Replaced };
        Ok(match options.expiry {
            Some(expiry) => Deadline::Is(expiry.positive_deadline(ctx, request, "increx")?, if_there),
            None if options.persist => Deadline::Goes,
            None => Deadline::Stays,
        })
    }
}

/// Stores the sum, which reads like `text`. A key whose deadline has passed is deleted instead.
fn store(ctx: &mut Ctx, request: Request, value: Value, text: &[u8], deadline: Deadline, event: Event) -> Result {
    let key = ctx.key(request.arg(1));
    match deadline {
        Deadline::Is(..) => {}
        Deadline::Stays => ctx.check_kept_deadline(key)?,
        Deadline::Goes => ctx.check_deadline(key.bytes, false)?,
    }
    let edit = ctx.keyspace.edit(ctx.db, key, ctx.now, Touch::NOTHING);
    let had_deadline = edit.as_ref().is_some_and(|edit| edit.deadline_ms().is_some());
    let deadline = match deadline {
        Deadline::Is(_, IfThere::Kept) if had_deadline => Deadline::Stays,
        deadline => deadline,
    };
    let new_ms = match deadline {
        Deadline::Is(deadline, _) if deadline.is_past(ctx.now) => {
            if let Some(edit) = edit {
                edit.remove();
                ctx.commit_deletion(key);
            }
            return Ok(());
        }
        Deadline::Is(deadline, _) => Some(deadline.store_ms()),
        Deadline::Stays | Deadline::Goes => None,
    };
    let loses_deadline = had_deadline && matches!(deadline, Deadline::Goes);
    match edit {
        Some(mut edit) => {
            edit.set_value(value);
            if new_ms.is_some() || loses_deadline {
                edit.set_deadline(new_ms);
            }
        }
        None => drop(ctx.keyspace.insert_new(ctx.db, key, value, new_ms, ctx.now)),
    }
    let change = Change::of(event).and_if(new_ms.is_some(), Event::Expire).and_if(loses_deadline, Event::Persist);
    ctx.commit(key, change);
    match deadline {
        Deadline::Stays => ctx.propagate(&[b"SET", key.bytes, text, b"KEEPTTL"]),
        Deadline::Goes | Deadline::Is(..) => propagate_set(ctx, key, text, new_ms),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within(lower: i64, upper: i64) -> Bounds<i64> {
        Bounds { lower: Some(lower), upper: Some(upper) }
    }

    #[test]
    fn sums_stay_within_bounds() {
        let free = Bounds { lower: None, upper: None };
        let sum = |value, applied| Ok(Some(Sum { value, applied }));
        assert_eq!(add_int(5, 2, &within(0, 10), false), sum(7, 2));
        assert_eq!(add_int(5, 5, &within(0, 10), false), sum(10, 5), "a bound is within");
        assert_eq!(add_int(5, 6, &within(0, 10), false), Ok(None));
        assert_eq!(add_int(5, 6, &within(0, 10), true), sum(10, 5));
        assert_eq!(add_int(5, -9, &within(0, 10), true), sum(0, -5));
        assert_eq!(add_int(50, 5, &within(0, 30), false), Ok(None), "it was outside before");
        assert_eq!(add_int(50, 5, &within(0, 30), true), sum(30, -20));
        assert_eq!(add_int(50, -25, &within(0, 30), false), sum(25, -25));
        assert_eq!(add_int(i64::MAX - 7, i64::MAX, &free, false), Ok(None));
        assert_eq!(add_int(i64::MAX - 7, i64::MAX, &free, true), sum(i64::MAX, 7));
        assert_eq!(add_int(i64::MIN + 8, i64::MIN, &free, true), sum(i64::MIN, -8));
        assert_eq!(add_int(i64::MAX - 7, 1, &within(i64::MIN, i64::MIN), true), Err(APPLIED_OVERFLOW));
    }

    /// Whatever the numbers are, what is said to have been added was added, and nothing leaves the bounds.
    #[test]
    fn what_was_applied_leads_to_the_sum() {
        let mut rng = fastrand::Rng::with_seed(88);
        let draw = |rng: &mut fastrand::Rng| match rng.u32(..4) {
            0 => rng.i64(..),
            1 => [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX][rng.usize(..7)],
            _ => rng.i64(-20..20),
        };
        for _ in 0..100_000 {
            let (current, increment, a, b) = (draw(&mut rng), draw(&mut rng), draw(&mut rng), draw(&mut rng));
            let bounds = within(a.min(b), a.max(b));
            if let Ok(Some(Sum { value, applied })) = add_int(current, increment, &bounds, true) {
                assert_eq!(current.checked_add(applied), Some(value));
                assert!((a.min(b)..=a.max(b)).contains(&value));
            }
            match add_int(current, increment, &bounds, false) {
                Ok(Some(sum)) => {
                    assert_eq!((current.checked_add(increment), sum.applied), (Some(sum.value), increment))
                }
                refused => assert_eq!(refused, Ok(None)),
            }
        }
    }

    #[test]
    fn decimal_sums_stay_within_bounds() {
        let number = |text: &str| LongDouble::parse(text.as_bytes()).unwrap();
        let text = |number: LongDouble| {
            let mut text = Vec::new();
            number.write(&mut text);
            String::from_utf8(text).unwrap()
        };
        let add = |current: &str, increment: &str, upper: Option<&str>, saturate: bool| {
            let bounds = Bounds { lower: None, upper: upper.map(number) };
            let sum = add_float(number(current), number(increment), &bounds, saturate)?;
            Ok::<_, Error>(sum.map(|sum| (text(sum.value), text(sum.applied))))
        };
        let sum = |value: &str, applied: &str| Ok(Some((value.to_owned(), applied.to_owned())));
        assert_eq!(add("1.5", "0.25", None, false), sum("1.75", "0.25"));
        assert_eq!(add("10", "10", Some("15.5"), false), Ok(None));
        assert_eq!(add("10", "10", Some("15.5"), true), sum("15.5", "5.5"));
        assert_eq!(add("50.5", "5.5", Some("30"), true), sum("30", "-20.5"));
        assert_eq!(add("1e4932", "1e4932", None, false), Ok(None));
        let largest = add("1e4932", "1e4932", None, true).unwrap().unwrap().0;
        assert!(largest.len() == 4933 && largest.starts_with("1189731495357231765"), "{largest}");
    }
}
