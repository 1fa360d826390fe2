//! Strings as bits: SETBIT, BITCOUNT, BITOP, BITFIELD and their kin.

use super::spec::flag::{COUNTED, DENY_OOM, FAST, READ, WRITE};
use super::spec::{Group, Keys, Row, Spec};
use super::strings::{as_bytes, find_string};
use super::{Across, Ctx, Run};
use crate::keyspace::{Change, Event, Kind, Live, Owned, Value};
use crate::resp::{Error, Request, Result};
use crate::value::bits::{self, Combined, Field, Op, Overflow};
use crate::value::number::{I64_TEXT_BYTES_MAX, parse_i64};
use std::ops::Range;
use std::sync::Arc;

pub const ROWS: &[Row<Run>] = &[
    Row::new(
        Spec {
            name: "setbit",
            arity: 4,
            flags: WRITE | DENY_OOM,
            keys: Keys::ONE,
            group: Group::Bitmap,
            since: "2.2.0",
            complexity: "O(1)",
            summary: "Sets or clears a bit of a string, which grows as far as needed, and returns what it was.",
            syntax: "key offset:integer value:integer",
        },
        Run::Key(setbit),
    ),
    Row::new(
        Spec {
            name: "getbit",
            arity: 3,
            flags: READ | FAST,
            keys: Keys::ONE,
            group: Group::Bitmap,
            since: "2.2.0",
            complexity: "O(1)",
            summary: "Returns a bit of a string.",
            syntax: "key offset:integer",
        },
        Run::Key(getbit),
    ),
    Row::new(
        Spec {
            name: "bitcount",
            arity: -2,
            flags: READ,
            keys: Keys::ONE,
            group: Group::Bitmap,
            since: "2.6.0",
            complexity: "O(n) in the length of the part",
            summary: "Counts the bits that are set in a string or a part of it.",
            syntax: "key [index:(start:integer end:integer [index_unit:(BYTE|BIT)])]",
        },
        Run::Key(bitcount),
    ),
    Row::new(
        Spec {
            name: "bitpos",
            arity: -3,
            flags: READ,
            keys: Keys::ONE,
            group: Group::Bitmap,
            since: "2.8.7",
            complexity: "O(n) in the length of the part",
            summary: "Returns the position of the first bit that is set, or clear, in a string or a part of it.",
            syntax: "key bit:integer [index:(start:integer [end_index:(end:integer [index_unit:(BYTE|BIT)])])]",
        },
        Run::Key(bitpos),
    ),
    Row::new(
        Spec {
            name: "bitop",
            arity: -4,
            flags: WRITE | COUNTED | DENY_OOM,
            keys: Keys::FROM_SECOND,
            group: Group::Bitmap,
            since: "2.6.0",
            complexity: "O(n) in the length of all strings",
            summary: "Combines strings bit by bit and stores the result.",
            syntax: "operation:(AND|OR|XOR|NOT|DIFF|DIFF1|ANDOR|ONE) destkey:key key...",
        },
        Run::Atomic(bitop, |across| Box::pin(bitop_across(across))),
    ),
    Row::new(
        Spec {
            name: "bitfield",
            arity: -2,
            flags: WRITE | DENY_OOM,
            keys: Keys::ONE,
            group: Group::Bitmap,
            since: "3.2.0",
            complexity: "O(1) for each operation",
            summary: "Reads, writes and counts with integers of any width at any position of a string.",
            syntax: "key [operation:(GET encoding_offset:(encoding offset:integer)\
                     |write:([OVERFLOW wrap_sat_fail:(WRAP|SAT|FAIL)] \
                     write_operation:(SET encoding_offset_value:(encoding offset:integer value:integer)\
                     |INCRBY encoding_offset_increment:(encoding offset:integer increment:integer))))]...",
        },
        Run::Key(|ctx, request| bitfield(ctx, request, false)),
    ),
    Row::new(
        Spec {
            name: "bitfield_ro",
            arity: -2,
            flags: READ | FAST,
            keys: Keys::ONE,
            group: Group::Bitmap,
            since: "6.0.0",
            complexity: "O(1) for each operation",
            summary: "Reads integers of any width at any position of a string.",
            syntax: "key [GET encoding_offset:(encoding offset:integer)]...",
        },
        Run::Key(|ctx, request| bitfield(ctx, request, true)),
    ),
];

const BAD_OFFSET: Error = Error::text("ERR bit offset is not an integer or out of range");
const BAD_BIT: Error = Error::text("ERR bit is not an integer or out of range");
const BAD_FIELD: Error =
    Error::text("ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.");

/// A bit's position, which the longest string has.
fn offset(ctx: &Ctx, text: &[u8]) -> Result<u64> {
    valid_offset(ctx, parse_i64(text))
}

fn valid_offset(ctx: &Ctx, offset: Option<i64>) -> Result<u64> {
    let offset = offset.and_then(|offset| u64::try_from(offset).ok());
    offset.filter(|offset| offset / 8 < ctx.limits.string_bytes as u64).ok_or(BAD_OFFSET)
}

/// What `work` makes of the first key's string, empty where there is none.
fn read<R>(ctx: &mut Ctx, request: Request, work: impl FnOnce(&[u8]) -> R) -> Result<R> {
    let found = find_string(ctx, request)?;
    let mut text = [0; I64_TEXT_BYTES_MAX];
    Ok(work(found.as_ref().map_or(&[], |live| as_bytes(live.value(), &mut text))))
}

/// What `work` does to the first key's string, made so long at least; and whether it has grown.
fn change<R>(ctx: &mut Ctx, request: Request, bytes: usize, work: impl FnOnce(&mut [u8]) -> R) -> Result<(R, bool)> {
    if let Some(mut live) = find_string(ctx, request)?.map(Live::edit) {
        let old = as_bytes(live.value(), &mut [0; I64_TEXT_BYTES_MAX]).len();
        return Ok((work(live.resize(bytes.max(old))), bytes > old));
    }
    let key = ctx.key(request.arg(1));
    let mut live = ctx.keyspace.insert_new(ctx.db, key, Value::Bytes(b""), None, ctx.now);
    Ok((work(live.resize(bytes)), true))
}

fn setbit(ctx: &mut Ctx, request: Request) -> Result {
    let offset = offset(ctx, request.arg(2))?;
    let bit = match parse_i64(request.arg(3)) {
        Some(bit @ (0 | 1)) => bit == 1,
        _ => return Err(BAD_BIT),
    };
    let (old, has_grown) = change(ctx, request, (offset / 8) as usize + 1, |bytes| bits::set(bytes, offset, bit))?;
    ctx.commit_if(has_grown || old != bit, ctx.key(request.arg(1)), Event::SetBit);
    ctx.reply.int(i64::from(old));
    Ok(())
}

fn getbit(ctx: &mut Ctx, request: Request) -> Result {
    let offset = offset(ctx, request.arg(2))?;
    let bit = read(ctx, request, |bytes| bits::get(bytes, offset))?;
    ctx.reply.int(i64::from(bit));
    Ok(())
}

/// Whether positions are those of bits, as argument `index` says if it is there.
fn counts_bits(request: Request, index: usize) -> Result<bool> {
    match request.get(index) {
        None => Ok(false),
        Some(_) if request.is(index, "bit") => Ok(true),
        Some(_) if request.is(index, "byte") => Ok(false),
        Some(_) => Err(Error::Syntax),
    }
}

/// The bits from `start` to `end` inclusive of a string of this many bytes; negative positions count from the end.
fn bit_range(len: usize, start: i64, end: i64, in_bits: bool) -> Range<u64> {
    let unit_bits = if in_bits { 1 } else { 8 };
    let units = len as i64 * 8 / unit_bits;
    let from_end = |at: i64| if at < 0 { (units + at).max(0) } else { at };
    let (start, end) = (from_end(start), from_end(end).min(units - 1));
    if start > end { 0..0 } else { (start * unit_bits) as u64..((end + 1) * unit_bits) as u64 }
}

fn bitcount(ctx: &mut Ctx, request: Request) -> Result {
    let part = Part::counted(request)?;
    let count = match find_string(ctx, request)? {
        None => 0,
        // Though both may lie before the beginning of the string, and be the same then.
        Some(_) if part.is_backward() => 0,
        Some(live) => {
            let mut text = [0; I64_TEXT_BYTES_MAX];
            let bytes = as_bytes(live.value(), &mut text);
            bits::count(bytes, part.of(bytes.len()))
        }
    };
    ctx.reply.int(count as i64);
    Ok(())
}

/// The part of a string that is looked at, as the arguments say it. They are judged before the key is looked up, as in
/// Redis 7.4: whether there is a string changes no error.
struct Part {
    start: i64,
    end: Option<i64>,
    in_bits: bool,
}

impl Part {
    const WHOLE: Part = Part { start: 0, end: None, in_bits: false };

    /// What BITCOUNT counts.
    fn counted(request: Request) -> Result<Part> {
        match request.len() {
            2 => Ok(Part::WHOLE),
            4 | 5 => {
                let (start, end) = (request.int(2)?, request.int(3)?);
                Ok(Part { start, end: Some(end), in_bits: counts_bits(request, 4)? })
            }
            _ => Err(Error::Syntax),
        }
    }

    /// What BITPOS searches.
    fn searched(request: Request) -> Result<Part> {
        match request.len() {
            3 => Ok(Part::WHOLE),
            4..=6 => {
                let start = request.int(3)?;
                let in_bits = counts_bits(request, 5)?;
                let end = if request.len() > 4 { Some(request.int(4)?) } else { None };
                Ok(Part { start, end, in_bits })
            }
            _ => Err(Error::Syntax),
        }
    }

    /// Whether it ends before it begins, both counted from the end of the string.
    fn is_backward(&self) -> bool {
        self.end.is_some_and(|end| self.start < 0 && end < 0 && self.start > end)
    }

    /// Its bits in a string of this many bytes.
    fn of(&self, len: usize) -> Range<u64> {
        bit_range(len, self.start, self.end.unwrap_or(-1), self.in_bits)
    }
}

fn bitpos(ctx: &mut Ctx, request: Request) -> Result {
    let bit = match request.int(2)? {
        bit @ (0 | 1) => bit == 1,
        _ => return Err(Error::text("ERR The bit argument must be 1 or 0.")),
    };
    let part = Part::searched(request)?;
    let position = match find_string(ctx, request)? {
        // Zeros without end.
        None => (!bit).then_some(0),
        Some(live) => {
            let mut text = [0; I64_TEXT_BYTES_MAX];
            let bytes = as_bytes(live.value(), &mut text);
            let range = part.of(bytes.len());
            // So they are behind a string whose end is not that of the search.
            let behind = (!bit && part.end.is_none() && !range.is_empty()).then_some(range.end);
            bits::find(bytes, bit, range).or(behind)
        }
    };
    ctx.reply.int(position.map_or(-1, |position| position as i64));
    Ok(())
}

fn parse_bitop(request: Request) -> Result<Op> {
    let sources = request.len() - 3;
    let two = |op, text| if sources < 2 { Err(Error::text(text)) } else { Ok(op) };
    match &request.arg(1).to_ascii_lowercase()[..] {
        b"and" => Ok(Op::And),
        b"or" => Ok(Op::Or),
        b"xor" => Ok(Op::Xor),
        b"not" if sources > 1 => Err(Error::text("ERR BITOP NOT must be called with a single source key.")),
        b"not" => Ok(Op::Not),
        b"diff" => two(Op::Diff, "ERR BITOP DIFF must be called with at least two source keys."),
        b"diff1" => two(Op::Diff1, "ERR BITOP DIFF1 must be called with at least two source keys."),
        b"andor" => two(Op::AndOr, "ERR BITOP ANDOR must be called with at least two source keys."),
        b"one" => Ok(Op::One),
        _ => Err(Error::Syntax),
    }
}

/// What `work` makes of the string under some key, empty where there is none.
fn read_source<R>(ctx: &mut Ctx, bytes: &[u8], work: impl FnOnce(&[u8]) -> R) -> Result<R> {
    let key = ctx.other_key(bytes);
    match ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch) {
        None => Ok(work(b"")),
        Some(live) if live.kind() != Kind::String => Err(Error::WrongType),
        Some(live) => Ok(work(as_bytes(live.value(), &mut [0; I64_TEXT_BYTES_MAX]))),
    }
}

/// Puts the result of BITOP where it belongs; returns its length.
fn store(ctx: &mut Ctx, bytes: &[u8], result: Vec<u8>) -> Result<i64> {
    let len = result.len() as i64;
    let key = ctx.other_key(bytes);
    if result.is_empty() {
        if ctx.keyspace.remove(ctx.db, key, ctx.now) {
            ctx.commit(key, Event::Del);
        }
        return Ok(0);
    }
    ctx.check_deadline(bytes, false)?;
    // Raw, which OBJECT ENCODING shows.
    ctx.keyspace.insert_owned(ctx.db, key, Owned::Bytes { bytes: result, raw: true }, None, ctx.now);
    ctx.commit(key, Event::Set);
    Ok(len)
}

fn bitop(ctx: &mut Ctx, request: Request) -> Result {
    let mut combined = Combined::new(parse_bitop(request)?);
    for source in request.from(3) {
        read_source(ctx, source, |bytes| combined.add(bytes))?;
    }
    let len = store(ctx, request.arg(2), combined.finish())?;
    ctx.reply.int(len);
    Ok(())
}

/// What is combined so far goes from shard to shard: it takes as much memory as on one, whatever the sources are.
async fn bitop_across(across: Across) -> Result<Vec<u8>> {
    let request = Arc::new(across.request.clone());
    let mut combined = Combined::new(parse_bitop(request.as_request())?);
    // Only the first source is not like the others: its shard is the first one.
    let first = across.shard_of(request.as_request().arg(3));
    let mut shards = across.shards_of(request.as_request().from(3));
    shards.sort_by_key(|shard| *shard != first);
    for shard in shards {
        let request = request.clone();
        let add = move |ctx: &mut Ctx| {
            let hasher = ctx.keyspace.hasher().clone();
            let mut mine = request.as_request().from(3).filter(|key| super::shard_of(&hasher, key) == shard);
            mine.try_for_each(|key| read_source(ctx, key, |bytes| combined.add(bytes)))?;
            Result::Ok(combined)
        };
        combined = across.on(shard, add).await?;
    }
    let result = combined.finish();
    let shard = across.shard_of(request.as_request().arg(2));
    let len = across.on(shard, move |ctx| store(ctx, request.as_request().arg(2), result)).await?;
    Ok(across.reply(|reply| reply.int(len)))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Get,
    Set,
    Add,
}

/// One operation of BITFIELD.
struct FieldOp {
    verb: Verb,
    field: Field,
    offset: u64,
    operand: i64,
    overflow: Overflow,
}

impl FieldOp {
    /// Bytes up to the end of the field.
    fn end_bytes(&self) -> usize {
        (self.offset + u64::from(self.field.bits)).div_ceil(8) as usize
    }
}

fn parse_field_ops(ctx: &Ctx, request: Request) -> Result<Vec<FieldOp>> {
    let mut ops = Vec::new();
    let mut overflow = Overflow::Wrap;
    let mut index = 2;
    while index < request.len() {
        let more = request.len() - index - 1;
        let verb = match &request.arg(index).to_ascii_lowercase()[..] {
            b"get" if more >= 2 => Verb::Get,
            b"set" if more >= 3 => Verb::Set,
            b"incrby" if more >= 3 => Verb::Add,
            b"overflow" if more >= 1 => {
                overflow = parse_overflow(request.arg(index + 1))?;
                index += 2;
                continue;
            }
            _ => return Err(Error::Syntax),
        };
        let field = Field::parse(request.arg(index + 1)).ok_or(BAD_FIELD)?;
        let offset = field_offset(ctx, request.arg(index + 2), field)?;
        let operand = if verb == Verb::Get { 0 } else { request.int(index + 3)? };
        ops.push(FieldOp { verb, field, offset, operand, overflow });
        index += if verb == Verb::Get { 3 } else { 4 };
    }
    Ok(ops)
}

fn parse_overflow(text: &[u8]) -> Result<Overflow> {
    match &text.to_ascii_lowercase()[..] {
        b"wrap" => Ok(Overflow::Wrap),
        b"sat" => Ok(Overflow::Saturate),
        b"fail" => Ok(Overflow::Fail),
        _ => Err(Error::text("ERR Invalid OVERFLOW type specified")),
    }
}

/// A position in bits, or, behind `#`, in fields of this width.
fn field_offset(ctx: &Ctx, text: &[u8], field: Field) -> Result<u64> {
    match text.strip_prefix(b"#") {
        None => offset(ctx, text),
        Some(nth) => valid_offset(ctx, parse_i64(nth).and_then(|nth| nth.checked_mul(field.bits.into()))),
    }
}

fn bitfield(ctx: &mut Ctx, request: Request, read_only: bool) -> Result {
    let ops = parse_field_ops(ctx, request)?;
    let writes = ops.iter().filter(|op| op.verb != Verb::Get);
    let Some(end_bytes) = writes.map(FieldOp::end_bytes).max() else {
        ctx.touch = ctx.reading();
        let values: Vec<i64> =
            read(ctx, request, |bytes| ops.iter().map(|op| op.field.get(bytes, op.offset)).collect())?;
        ctx.reply.array(values.len());
        values.into_iter().for_each(|value| ctx.reply.int(value));
        return Ok(());
    };
    if read_only {
        return Err(Error::text("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    let mut written = Written::default();
    let (_, has_grown) = change(ctx, request, end_bytes, |bytes| ops.iter().for_each(|op| written.run(op, bytes)))?;
    let key = ctx.key(request.arg(1));
    if written.changed || has_grown && written.stored {
        ctx.commit(key, Event::SetBit);
    } else {
        // A string that has only grown, since nothing fitted, is no change to those who watch it: so it is in Redis.
        ctx.commit_if(has_grown, key, Change::untold().unseen());
    }
    ctx.reply.array(written.values.len());
    for value in written.values {
        match value {
            Some(value) => ctx.reply.int(value),
            None => ctx.reply.nil(),
        }
    }
    Ok(())
}

/// What the operations of BITFIELD have done.
#[derive(Default)]
struct Written {
    /// An answer each; none where a value did not fit and had to.
    values: Vec<Option<i64>>,
    /// Some value was stored, be it the one that was there.
    stored: bool,
    changed: bool,
}

impl Written {
    fn run(&mut self, op: &FieldOp, bytes: &mut [u8]) {
        let old = op.field.get(bytes, op.offset);
        let new = match op.verb {
            Verb::Get => None,
            Verb::Set => op.field.fit(op.operand, op.overflow),
            Verb::Add => op.field.add(old, op.operand, op.overflow),
        };
        if let Some(new) = new {
            op.field.set(bytes, op.offset, new);
            self.stored = true;
            self.changed |= new != old;
        }
        self.values.push(match op.verb {
            Verb::Get => Some(old),
            Verb::Set => new.map(|_| old),
            Verb::Add => new,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_bytes_and_bits() {
        let bytes = |start, end| bit_range(10, start, end, false);
        assert_eq!(bytes(0, -1), 0..80);
        assert_eq!(bytes(2, 3), 16..32);
        assert_eq!(bytes(-2, 100), 64..80);
        assert_eq!(bytes(-100, -100), 0..8);
        assert_eq!(bytes(5, 4), 0..0);
        assert_eq!(bytes(10, 20), 0..0);
        assert_eq!(bytes(i64::MIN, i64::MAX), 0..80);
        assert_eq!(bytes(i64::MAX, i64::MAX), 0..0);
        let bits = |start, end| bit_range(10, start, end, true);
        assert_eq!(bits(3, 3), 3..4);
        assert_eq!(bits(-3, -1), 77..80);
        assert_eq!(bits(-80, -80), 0..1);
        assert_eq!(bits(80, 90), 0..0);
        assert_eq!(bit_range(0, 0, -1, false), 0..0);
    }
}
