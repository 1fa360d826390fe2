//! Keys of any type: deleting, renaming, copying, asking what they are.

use super::spec::flag::{ALWAYS_TOUCH, COUNTED, DENY_OOM, FAST, NO_MISS_EVENT, NO_RENEWAL, NO_TOUCH, READ, WRITE};
use super::spec::{Group, Keys, Row, Spec, tip};
use super::{Across, Ctx, Merge, Run};
use crate::keyspace::{Change, Clocking, Event, Key, KeyEdit, Kind, Live, Owned, Touch, Value};
use crate::resp::{Error, Request, Result};
use crate::value::number::parse_i64;

pub const ROWS: &[Row<Run>] = &[
    Row::new(
        Spec { summary: "Deletes keys.", ..many_keys("del", WRITE, "1.0.0", "O(n) in the number of keys") },
        Run::Spread(del, Merge::Sum),
    )
    .tips(&[tip::ASK_MULTI_SHARD, tip::AGG_SUM]),
    Row::new(
        Spec {
            summary: "Deletes keys; the memory of large values is given back later.",
            ..many_keys("unlink", WRITE | FAST, "4.0.0", "O(1) for each key")
        },
        Run::Spread(del, Merge::Sum),
    )
    .tips(&[tip::ASK_MULTI_SHARD, tip::AGG_SUM]),
    Row::new(
        Spec {
            summary: "Counts how many of the keys exist; a key named twice counts twice.",
            ..many_keys("exists", READ | FAST | NO_TOUCH, "1.0.0", "O(n) in the number of keys")
        },
        Run::Spread(exists, Merge::Sum),
    )
    .tips(&[tip::ASK_MULTI_SHARD, tip::AGG_SUM]),
    Row::new(
        Spec {
            summary: "Marks keys as used and counts those that exist.",
            ..many_keys("touch", READ | FAST | ALWAYS_TOUCH, "3.2.1", "O(n) in the number of keys")
        },
        Run::Spread(exists, Merge::Sum),
    )
    .tips(&[tip::ASK_MULTI_SHARD, tip::AGG_SUM]),
    Row::new(
        Spec {
            name: "type",
            arity: 2,
            flags: READ | FAST | NO_TOUCH,
            keys: Keys::ONE,
            group: Group::Generic,
            since: "1.0.0",
            complexity: "O(1)",
            summary: "Returns the type of the value under a key.",
            syntax: "key",
        },
        Run::Key(type_of),
    ),
    Row::new(
        Spec {
            name: "rename",
            arity: 3,
            flags: WRITE,
            keys: Keys::TWO,
            group: Group::Generic,
            since: "1.0.0",
            complexity: "O(1), or O(n) in the length of the value between shards",
            summary: "Renames a key, deadline and all, over whatever was there.",
            syntax: "key newkey:key",
        },
        Run::Atomic(|ctx, request| rename(ctx, request, false), |across| Box::pin(rename_across(across, false))),
    ),
    Row::new(
        Spec {
            name: "renamenx",
            arity: 3,
            flags: WRITE | FAST | NO_RENEWAL,
            keys: Keys::TWO,
            group: Group::Generic,
            since: "1.0.0",
            complexity: "O(1), or O(n) in the length of the value between shards",
            summary: "Renames a key where the new name is free.",
            syntax: "key newkey:key",
        },
        Run::Atomic(|ctx, request| rename(ctx, request, true), |across| Box::pin(rename_across(across, true))),
    ),
    Row::new(
        Spec {
            name: "copy",
            arity: -3,
            flags: WRITE | COUNTED | DENY_OOM,
            keys: Keys::TWO,
            group: Group::Generic,
            since: "6.2.0",
            complexity: "O(n) in the length of the value",
            summary: "Copies a value with its deadline to another key.",
            syntax: "source:key destination:key [DB destination-db:integer] [REPLACE]",
        },
        Run::Atomic(copy_here, |across| Box::pin(copy_across(across))),
    ),
    Row::new(
        Spec {
            name: "move",
            arity: 3,
            flags: WRITE | FAST | NO_RENEWAL,
            keys: Keys::ONE,
            group: Group::Generic,
            since: "1.0.0",
            complexity: "O(1)",
            summary: "Moves a key, deadline and all, to another database, unless it is there already.",
            syntax: "key db:integer",
        },
        Run::Key(move_key),
    ),
    Row::container(
        Spec {
            name: "object",
            arity: -2,
            flags: 0,
            keys: Keys::NONE,
            group: Group::Generic,
            since: "2.2.3",
            complexity: "Depends on the subcommand",
            summary: "Groups questions about the value under a key.",
            syntax: "",
        },
        Run::Container,
        &[
            Row::new(
                object_spec("encoding", "Returns how the value under a key is kept."),
                Run::Key(|ctx, request| object(ctx, request, |live| Ok(Answer::Text(encoding(live))))),
            )
            .tips(&[tip::NONDETERMINISTIC_OUTPUT]),
            Row::new(
                object_spec("refcount", "Returns the reference count of the value under a key."),
                Run::Key(|ctx, request| object(ctx, request, |live| Ok(Answer::Int(refcount(live))))),
            )
            .tips(&[tip::NONDETERMINISTIC_OUTPUT]),
            Row::new(object_spec("idletime", "Returns the seconds since the key was used."), Run::Key(idletime))
                .tips(&[tip::NONDETERMINISTIC_OUTPUT]),
            Row::new(
                Spec {
                    since: "4.0.0",
                    ..object_spec("freq", "Returns how often the key is used, under an LFU policy.")
                },
                Run::Key(freq),
            )
            .tips(&[tip::NONDETERMINISTIC_OUTPUT]),
        ],
    ),
];

const fn many_keys(name: &'static str, flags: u32, since: &'static str, complexity: &'static str) -> Spec {
    Spec {
        name,
        arity: -2,
        flags,
        keys: Keys::ALL,
        group: Group::Generic,
        since,
        complexity,
        summary: "",
        syntax: "key...",
    }
}

const fn object_spec(name: &'static str, summary: &'static str) -> Spec {
    Spec {
        name,
        arity: 3,
        flags: READ | NO_TOUCH | NO_MISS_EVENT,
        keys: Keys::SECOND,
        group: Group::Generic,
        since: "2.2.3",
        complexity: "O(1)",
        summary,
        syntax: "key",
    }
}

fn del(ctx: &mut Ctx, request: Request) -> Result {
    let mut deleted = 0;
    for bytes in request.from(1) {
        let key = ctx.other_key(bytes);
        if ctx.keyspace.remove(ctx.db, key, ctx.now) {
            ctx.commit(key, Event::Del);
            deleted += 1;
        }
    }
    ctx.reply.int(deleted);
    Ok(())
}

fn exists(ctx: &mut Ctx, request: Request) -> Result {
    let mut found = 0;
    for bytes in request.from(1) {
        let key = ctx.other_key(bytes);
        found += i64::from(ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch).is_some());
    }
    ctx.reply.int(found);
    Ok(())
}

fn type_of(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    let kind = ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch).map_or("none", |live| live.kind().name());
    ctx.reply.simple(kind);
    Ok(())
}

/// A value with its deadline on its way to another key, perhaps on another shard.
struct Carried {
    value: Owned,
    deadline_ms: Option<u64>,
    /// The access clock, where it goes with the key.
    clock: Option<u32>,
    /// It is never evicted, and neither is what it becomes.
    is_pinned: bool,
}

impl Carried {
    fn copy_of(live: &Live) -> Carried {
        let is_pinned = live.is_pinned();
        Carried { value: live.to_owned(), deadline_ms: live.deadline_ms(), clock: None, is_pinned }
    }

    fn take(live: KeyEdit) -> Carried {
        let (deadline_ms, clock) = (live.deadline_ms(), Some(live.clock()));
        let is_pinned = live.is_pinned();
        Carried { value: live.take(), deadline_ms, clock, is_pinned }
    }

    /// What stands there goes first: the key is new then, as in Redis. Returns what is to be committed: this event, behind
    /// which those of the value that was there are told.
    fn put(self, ctx: &mut Ctx, db: usize, key: Key, event: Event) -> Change {
        let new = self.value.kind();
        let old = ctx.keyspace.edit(db, key, ctx.now, Touch::NOTHING).map(|edit| {
            let old = edit.kind();
            edit.remove();
            old
        });
        ctx.keyspace.insert_owned(db, key, self.value, self.deadline_ms, ctx.now);
        if self.is_pinned {
            ctx.keyspace.set_pinned(db, key, true);
        }
        // For a client with NO-TOUCH the key is as idle as before.
        if let Some(clock) = self.clock
            && let Some(live) = ctx.keyspace.find(db, key, ctx.now, Touch::NOTHING)
        {
            live.set_clock(clock);
        }
        Change::of(event).over(old, new)
    }
}

fn rename(ctx: &mut Ctx, request: Request, only_new: bool) -> Result {
    let (from, to) = (ctx.key(request.arg(1)), ctx.other_key(request.arg(2)));
    if ctx.keyspace.find(ctx.db, from, ctx.now, ctx.touch).is_none() {
        return Err(Error::NoSuchKey);
    }
    let same = from.bytes == to.bytes;
    if only_new && (same || ctx.keyspace.find(ctx.db, to, ctx.now, ctx.touch).is_some()) {
        ctx.reply.int(0);
        return Ok(());
    }
    if !same {
        check_carried(ctx, from, to.bytes)?;
        ctx.keyspace.take_dead_elements(ctx.db, from, ctx.now);
    }
    if !same && let Some(carried) = ctx.keyspace.edit(ctx.db, from, ctx.now, Touch::NOTHING).map(Carried::take) {
        let change = carried.put(ctx, ctx.db, to, Event::RenameTo);
        ctx.commit(from, Event::RenameFrom);
        ctx.commit(to, change.uncounted());
    }
    if only_new {
        ctx.reply.int(1)
    } else {
        ctx.reply.ok()
    }
    Ok(())
}

/// Refuses to bring a key without a deadline to one whose policy requires it.
fn check_carried(ctx: &mut Ctx, from: Key, to: &[u8]) -> Result {
    let found = ctx.keyspace.find(ctx.db, from, ctx.now, Touch::NOTHING);
    let has_deadline = found.is_none_or(|live| live.deadline_ms().is_some());
    ctx.check_deadline(to, has_deadline)
}

/// Both keys are held, so that nobody sees the moment between the steps.
async fn rename_across(across: Across, only_new: bool) -> Result<Vec<u8>> {
    let request = across.request.as_request();
    let (from, to) = (request.arg(1).to_vec(), request.arg(2).to_vec());
    let (from_shard, to_shard) = (across.shard_of(&from), across.shard_of(&to));
    let exists = |key: Vec<u8>| {
        move |ctx: &mut Ctx| ctx.keyspace.find(ctx.db, ctx.other_key(&key), ctx.now, ctx.touch).is_some()
    };
    if !across.on(from_shard, exists(from.clone())).await {
        return Err(Error::NoSuchKey);
    }
    if only_new && across.on(to_shard, exists(to.clone())).await {
        return Ok(across.reply(|reply| reply.int(0)));
    }
    let name = to.clone();
    let take = move |ctx: &mut Ctx| {
        let key = ctx.other_key(&from);
        check_carried(ctx, key, &name)?;
        ctx.keyspace.take_dead_elements(ctx.db, key, ctx.now);
        let carried = ctx.keyspace.edit(ctx.db, key, ctx.now, Touch::NOTHING).map(Carried::take);
        let carried = carried.ok_or(Error::NoSuchKey)?;
        ctx.commit(key, Change::of(Event::RenameFrom).uncounted());
        Ok(carried)
    };
    let carried = across.on(from_shard, take).await?;
    let put = move |ctx: &mut Ctx| {
        let key = ctx.other_key(&to);
        let change = carried.put(ctx, ctx.db, key, Event::RenameTo);
        ctx.commit(key, change);
    };
    across.on(to_shard, put).await;
    Ok(across.reply(|reply| if only_new { reply.int(1) } else { reply.ok() }))
}

fn copied(ctx: &mut Ctx, db: usize, bytes: &[u8]) -> Option<Carried> {
    let key = ctx.other_key(bytes);
    ctx.keyspace.take_dead_elements(db, key, ctx.now);
    ctx.keyspace.find(db, key, ctx.now, ctx.touch).map(|live| Carried::copy_of(&live))
}

struct CopyOptions {
    to_db: usize,
    replace: bool,
}

fn parse_copy(request: Request, db: usize, databases: usize) -> Result<CopyOptions> {
    let mut options = CopyOptions { to_db: db, replace: false };
    let mut index = 3;
    while index < request.len() {
        if request.is(index, "replace") {
            options.replace = true;
        } else if request.is(index, "db") && index + 1 < request.len() {
            index += 1;
            options.to_db = parse_db(request.arg(index), databases)?;
        } else {
            return Err(Error::Syntax);
        }
        index += 1;
    }
    if request.arg(1) == request.arg(2) && options.to_db == db {
        return Err(SAME_OBJECTS);
    }
    Ok(options)
}

const SAME_OBJECTS: Error = Error::text("ERR source and destination objects are the same");

/// The database that an argument of SELECT, COPY or MOVE names.
pub fn parse_db(text: &[u8], databases: usize) -> Result<usize> {
    let db = parse_i64(text).ok_or(Error::NotAnInteger)?;
    if i32::try_from(db).is_err() {
        return Err(Error::text("ERR value is out of range, value must between -2147483648 and 2147483647"));
    }
    usize::try_from(db).ok().filter(|db| *db < databases).ok_or(Error::DbOutOfRange)
}

/// Puts a copy where it belongs, unless something is there that is not to be replaced; whether it did.
fn put_copy(ctx: &mut Ctx, carried: Carried, to: &[u8], options: &CopyOptions) -> Result<bool> {
    let key = ctx.other_key(to);
    // (A key that is in the way is not used.)
    let touch = ctx.writing().without_renewal();
    if !options.replace && ctx.keyspace.find(options.to_db, key, ctx.now, touch).is_some() {
        return Ok(false);
    }
    ctx.check_deadline(to, carried.deadline_ms.is_some())?;
    let change = carried.put(ctx, options.to_db, key, Event::CopyTo);
    ctx.commit_in(options.to_db, key, change);
    Ok(true)
}

fn copy_here(ctx: &mut Ctx, request: Request) -> Result {
    let options = parse_copy(request, ctx.db, ctx.keyspace.databases())?;
    let read = copied(ctx, ctx.db, request.arg(1));
    let copied = read.map_or(Ok(false), |carried| put_copy(ctx, carried, request.arg(2), &options))?;
    ctx.reply.int(i64::from(copied));
    Ok(())
}

async fn copy_across(across: Across) -> Result<Vec<u8>> {
    let request = across.request.as_request();
    let options = parse_copy(request, across.db, across.databases)?;
    let (from, to) = (request.arg(1).to_vec(), request.arg(2).to_vec());
    let (from_shard, to_shard) = (across.shard_of(&from), across.shard_of(&to));
    let read = across.on(from_shard, move |ctx| copied(ctx, ctx.db, &from)).await;
    let Some(carried) = read else {
        return Ok(across.reply(|reply| reply.int(0)));
    };
    let copied = across.on(to_shard, move |ctx| put_copy(ctx, carried, &to, &options)).await?;
    Ok(across.reply(|reply| reply.int(i64::from(copied))))
}

/// A key has its shard whatever its database is.
fn move_key(ctx: &mut Ctx, request: Request) -> Result {
    let to_db = parse_db(request.arg(2), ctx.keyspace.databases())?;
    if to_db == ctx.db {
        return Err(SAME_OBJECTS);
    }
    let key = ctx.key(request.arg(1));
    let there = ctx.keyspace.find(to_db, key, ctx.now, ctx.touch).is_some();
    if !there {
        check_carried(ctx, key, key.bytes)?;
    }
    ctx.keyspace.take_dead_elements(ctx.db, key, ctx.now);
    let found = ctx.keyspace.edit(ctx.db, key, ctx.now, ctx.touch).filter(|_| !there).map(Carried::take);
    let moved = match found {
        Some(carried) => {
            let change = carried.put(ctx, to_db, key, Event::MoveTo);
            ctx.commit(key, Event::MoveFrom);
            ctx.commit_in(to_db, key, change.uncounted());
            true
        }
        None => false,
    };
    ctx.reply.int(i64::from(moved));
    Ok(())
}

/// Answers about the value under a key; nil where there is none.
fn object(ctx: &mut Ctx, request: Request, answer: impl Fn(&Live) -> Result<Answer>) -> Result {
    let key = ctx.key(request.arg(2));
    match ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch) {
        None => ctx.reply.nil(),
        Some(live) => match answer(&live)? {
            Answer::Text(text) => ctx.reply.bulk(text.as_bytes()),
            Answer::Int(n) => ctx.reply.int(n),
        },
    }
    Ok(())
}

enum Answer {
    Text(&'static str),
    Int(i64),
}

/// Longest string that Redis keeps together with its header.
const EMBEDDED_BYTES: usize = 44;
/// Integers below this are shared objects in Redis, whose reference count is this constant.
const SHARED_INTEGERS: i64 = 10_000;

/// How a value is kept, in the words of Redis 7.0.
pub fn encoding(live: &Live) -> &'static str {
    match (live.kind(), live.packed()) {
        (Kind::String, _) => match live.value() {
            Value::Int(_) => "int",
            Value::Bytes(bytes) if bytes.len() <= EMBEDDED_BYTES && !live.is_raw() => "embstr",
            Value::Bytes(_) => "raw",
        },
        (Kind::Set, Some(_)) if live.is_marked() => "intset",
        (Kind::Hash | Kind::Zset, Some(_)) => "listpack",
        // Packed they have names of their own from Redis 7.2 on only, which is not the version that we say we are.
        (Kind::List, _) => "quicklist",
        (Kind::Set | Kind::Hash, _) => "hashtable",
        (Kind::Zset, None) => "skiplist",
        (Kind::Stream, _) => "stream",
    }
}

pub fn refcount(live: &Live) -> i64 {
    match live.string() {
        Some(Value::Int(n)) if (0..SHARED_INTEGERS).contains(&n) => i64::from(i32::MAX),
        _ => 1,
    }
}

fn idletime(ctx: &mut Ctx, request: Request) -> Result {
    let now = ctx.now;
    answer_clock(ctx, request, false, NO_IDLE_TIMES, |_, clock| Clocking::idle_s(clock, now))
}

fn freq(ctx: &mut Ctx, request: Request) -> Result {
    let now = ctx.now;
    answer_clock(ctx, request, true, NO_FREQUENCIES, |clocking, clock| clocking.frequency(clock, now))
}

const NO_IDLE_TIMES: &str = "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when \
                             switching between policies at runtime LRU and LFU data will take some time to adjust.";
const NO_FREQUENCIES: &str = "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that \
                              when switching between policies at runtime LRU and LFU data will take some time to adjust.";

/// What a key's access clock says, where it says what is asked for.
fn answer_clock(
    ctx: &mut Ctx,
    request: Request,
    of_uses: bool,
    otherwise: &'static str,
    says: impl Fn(Clocking, u32) -> u32,
) -> Result {
    let clocking = ctx.keyspace.clocking();
    object(ctx, request, |live| match clocking.counts() == of_uses {
        true => Ok(Answer::Int(says(clocking, live.clock()).into())),
        false => Err(Error::text(otherwise)),
    })
}
