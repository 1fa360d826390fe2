//! Counting different elements in 12 KB: PFADD, PFCOUNT, PFMERGE, and what looks inside.

use super::spec::flag::{ADMIN, COUNTED, DENY_OOM, FAST, MAY_REPLICATE, READ, WRITE};
use super::spec::{Group, Keys, Row, Spec};
use super::strings::find_string;
use super::{Across, Ctx, Run};
use crate::keyspace::{Change, Event, Key, KeyEdit, Kind, Live, Owned, Touch, Value};
use crate::resp::{Error, Request, Result, printable};
use crate::value::hll::{self, DENSE_BYTES, Encoding, Hll, HllError, Mark, Registers};
use std::sync::Arc;

pub const ROWS: &[Row<Run>] = &[
    Row::new(
        Spec {
            name: "pfadd",
            arity: -2,
            flags: WRITE | DENY_OOM | FAST,
            keys: Keys::ONE,
            group: Group::HyperLogLog,
            since: "2.8.9",
            complexity: "O(1) for each element",
            summary: "Adds elements to a HyperLogLog.",
            syntax: "key [element...]",
        },
        Run::Key(pfadd),
    ),
    Row::new(
        Spec {
            name: "pfcount",
            arity: -2,
            flags: READ | MAY_REPLICATE,
            keys: Keys::ALL,
            group: Group::HyperLogLog,
            since: "2.8.9",
            complexity: "O(1) for one key whose count is known, else O(n) in the number of keys",
            summary: "Counts, approximately, the different elements of HyperLogLogs together.",
            syntax: "key...",
        },
        Run::Atomic(pfcount, |across| Box::pin(pfcount_across(across))),
    ),
    Row::new(
        Spec {
            name: "pfmerge",
            arity: -2,
            flags: WRITE | COUNTED | DENY_OOM,
            keys: Keys::ALL,
            group: Group::HyperLogLog,
            since: "2.8.9",
            complexity: "O(n) in the number of keys",
            summary: "Adds the elements of HyperLogLogs to another.",
            syntax: "destkey:key [sourcekey:key...]",
        },
        Run::Atomic(pfmerge, |across| Box::pin(pfmerge_across(across))),
    ),
    Row::new(
        Spec {
            name: "pfdebug",
            arity: 3,
            flags: WRITE | DENY_OOM | ADMIN,
            keys: Keys::SECOND,
            group: Group::HyperLogLog,
            since: "2.8.9",
            complexity: "O(1)",
            summary: "Shows how a HyperLogLog is kept: GETREG, DECODE, ENCODING, TODENSE.",
            syntax: "subcommand key",
        },
        Run::Key(pfdebug),
    )
    .for_the_system(),
    Row::new(
        Spec {
            name: "pfselftest",
            arity: 1,
            flags: ADMIN,
            keys: Keys::NONE,
            group: Group::HyperLogLog,
            since: "2.8.9",
            complexity: "O(1)",
            summary: "Checks that registers hold what is written to them and that counts are near the truth.",
            syntax: "",
        },
        Run::Coordinated(|across| Box::pin(pfselftest(across))),
    )
    .for_the_system(),
];

fn refused(error: HllError) -> Error {
    Error::Text(error.to_string().into())
}

/// A HyperLogLog and how it is kept; an integer is none.
fn sound<'l>(live: &'l Live) -> Result<(Encoding, &'l [u8])> {
    match live.kind() {
        Kind::String => match live.value() {
            Value::Bytes(bytes) => Encoding::of(bytes).map(|encoding| (encoding, bytes)).map_err(refused),
            Value::Int(_) => Err(refused(HllError::NotHll)),
        },
        _ => Err(Error::WrongType),
    }
}

/// The encoding of a HyperLogLog that may be about to change. The string counts as changed in place from now on, which
/// OBJECT ENCODING shows: so it does in Redis.
fn to_change(live: &mut KeyEdit) -> Result<Encoding> {
    let (encoding, bytes) = sound(live)?;
    let len = bytes.len();
    if !live.is_raw() {
        live.resize(len);
    }
    Ok(encoding)
}

/// Puts a HyperLogLog where it belongs; a deadline stays.
fn store(ctx: &mut Ctx, key: Key, hll: Hll) {
    match ctx.keyspace.find(ctx.db, key, ctx.now, Touch::NOTHING) {
        Some(live) => live.edit().resize(hll.bytes().len()).copy_from_slice(hll.bytes()),
        None => {
            let value = Owned::Bytes { bytes: hll.into_bytes(), raw: true };
            ctx.keyspace.insert_owned(ctx.db, key, value, None, ctx.now);
        }
    }
}

fn pfadd(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    let marks = request.from(2).map(Mark::of);
    let max_bytes = ctx.limits.hll_sparse_bytes;
    let (mut hll, mut is_changed) = match find_string(ctx, request)?.map(Live::edit) {
        None => (Hll::new(max_bytes), true),
        Some(mut live) => match to_change(&mut live)? {
            Encoding::Sparse => (Hll::of(sound(&live)?.1, max_bytes).map_err(refused)?, false),
            Encoding::Dense => {
                let bytes = live.resize(DENSE_BYTES);
                let is_changed = marks.fold(false, |any, mark| any | hll::raise_dense(bytes, mark));
                return added(ctx, key, is_changed);
            }
        },
    };
    for mark in marks {
        is_changed |= hll.raise(mark).map_err(refused)?;
    }
    if is_changed {
        store(ctx, key, hll);
    }
    added(ctx, key, is_changed)
}

fn added(ctx: &mut Ctx, key: Key, is_changed: bool) -> Result {
    ctx.commit_if(is_changed, key, Event::PfAdd);
    ctx.reply.int(i64::from(is_changed));
    Ok(())
}

fn pfcount(ctx: &mut Ctx, request: Request) -> Result {
    let count = if request.len() == 2 {
        count_one(ctx, request)?
    } else {
        let mut registers = Registers::new();
        request.from(1).try_for_each(|key| add_registers(ctx, key, &mut registers))?;
        registers.count()
    };
    ctx.reply.int(count as i64);
    Ok(())
}

/// The count of one key, which is kept with it.
fn count_one(ctx: &mut Ctx, request: Request) -> Result<u64> {
    let key = ctx.key(request.arg(1));
    let Some(live) = find_string(ctx, request)? else { return Ok(0) };
    let mut edit = live.edit();
    to_change(&mut edit)?;
    let (_, bytes) = sound(&edit)?;
    let kept = hll::kept_count(bytes);
    let count = match kept {
        Some(count) => count,
        None => {
            let (count, len) = (hll::count(bytes).map_err(refused)?, bytes.len());
            hll::keep_count(edit.resize(len), count);
            count
        }
    };
    ctx.commit_if(kept.is_none(), key, Change::untold());
    Ok(count)
}

/// Adds the registers of a key, if it is there.
fn add_registers(ctx: &mut Ctx, bytes: &[u8], registers: &mut Registers) -> Result {
    let key = ctx.other_key(bytes);
    match ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch) {
        Some(live) => registers.add(sound(&live)?.1).map_err(refused),
        None => Ok(()),
    }
}

/// The registers of all keys of a request, wherever they are. The first of them that is none says what is wrong.
async fn registers_across(across: &Across) -> Result<Registers> {
    let request = Arc::new(across.request.clone());
    let shards = across.shards_of(request.as_request().from(1));
    let read = move |ctx: &mut Ctx, shard: usize| {
        let hasher = ctx.keyspace.hasher().clone();
        let mut registers = Registers::new();
        for (index, key) in request.as_request().from(1).enumerate() {
            if super::shard_of(&hasher, key) == shard {
                add_registers(ctx, key, &mut registers).map_err(|error| (index, error))?;
            }
        }
        Ok(registers)
    };
    let mut all = Registers::new();
    let mut wrong: Option<(usize, Error)> = None;
    for read in across.on_all(&shards, read).await {
        match read {
            Ok(registers) => all.add_all(&registers),
            Err((index, error)) if wrong.as_ref().is_none_or(|(first, _)| index < *first) => {
                wrong = Some((index, error));
            }
            Err(_) => {}
        }
    }
    wrong.map_or(Ok(all), |(_, error)| Err(error))
}

async fn pfcount_across(across: Across) -> Result<Vec<u8>> {
    let count = registers_across(&across).await?.count();
    Ok(across.reply(|reply| reply.int(count as i64)))
}

fn pfmerge(ctx: &mut Ctx, request: Request) -> Result {
    let mut registers = Registers::new();
    request.from(1).try_for_each(|key| add_registers(ctx, key, &mut registers))?;
    merge_into(ctx, request.arg(1), &registers)?;
    ctx.reply.ok();
    Ok(())
}

fn merge_into(ctx: &mut Ctx, bytes: &[u8], registers: &Registers) -> Result {
    let key = ctx.other_key(bytes);
    let max_bytes = ctx.limits.hll_sparse_bytes;
    let mut hll = match ctx.keyspace.find(ctx.db, key, ctx.now, Touch::NOTHING) {
        Some(live) => Hll::of(sound(&live)?.1, max_bytes).map_err(refused)?,
        None => Hll::new(max_bytes),
    };
    hll.merge(registers).map_err(refused)?;
    ctx.check_kept_deadline(key)?;
    store(ctx, key, hll);
    // As if they had been added one by one.
    ctx.commit(key, Event::PfAdd);
    Ok(())
}

async fn pfmerge_across(across: Across) -> Result<Vec<u8>> {
    let registers = registers_across(&across).await?;
    let target = across.request.as_request().arg(1).to_vec();
    let shard = across.shard_of(&target);
    across.on(shard, move |ctx| merge_into(ctx, &target, &registers)).await?;
    Ok(across.reply(|reply| reply.ok()))
}

fn pfdebug(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(2));
    let Some(mut live) = ctx.keyspace.edit(ctx.db, key, ctx.now, ctx.touch) else {
        return Err(Error::text("ERR The specified key does not exist"));
    };
    let encoding = to_change(&mut live)?;
    let (_, bytes) = sound(&live)?;
    match &request.arg(1).to_ascii_lowercase()[..] {
        b"getreg" => {
            let mut registers = Registers::new();
            registers.add(bytes).map_err(refused)?;
            make_dense(ctx, key)?;
            ctx.reply.array(registers.ranks().len());
            registers.ranks().iter().for_each(|rank| ctx.reply.int(i64::from(*rank)));
        }
        b"decode" => match hll::describe(bytes).map_err(refused)? {
            Some(words) => ctx.reply.bulk(words.as_bytes()),
            None => return Err(Error::text("ERR HLL encoding is not sparse")),
        },
        b"encoding" => ctx.reply.simple(encoding.name()),
        b"todense" => {
            make_dense(ctx, key)?;
            ctx.reply.int(i64::from(encoding == Encoding::Sparse));
        }
        _ => {
            let unknown = printable(request.arg(1), request.arg(1).len());
            return Err(Error::quoting(&[b"ERR Unknown PFDEBUG subcommand '", unknown, b"'"]));
        }
    }
    ctx.unchanged(key);
    Ok(())
}

fn make_dense(ctx: &mut Ctx, key: Key) -> Result {
    let Some(live) = ctx.keyspace.find(ctx.db, key, ctx.now, Touch::NOTHING) else { return Ok(()) };
    let mut hll = Hll::of(sound(&live)?.1, 0).map_err(refused)?;
    if hll.make_dense().map_err(refused)? {
        store(ctx, key, hll);
        // The elements are the same: a change to those only who copy the bytes.
        ctx.commit(key, Change::untold().unseen());
    }
    Ok(())
}

async fn pfselftest(across: Across) -> Result<Vec<u8>> {
    let mut rng = across.rng.clone();
    hll::self_test(&mut rng).map_err(|wrong| Error::Text(wrong.into()))?;
    Ok(across.reply(|reply| reply.ok()))
}
