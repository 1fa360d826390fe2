//! DEBUG: what tests need, where `enable-debug-command` allows it. Not a container, since whether it is allowed is
//! asked before anything else.

use crate::clock::Now;
use crate::command::dump::{self, Wall};
use crate::command::keys::{encoding, refcount};
use crate::command::spec::flag::{ADMIN, LOADING, NO_SCRIPT, PROTECTED, STALE};
use crate::command::spec::{Group, Keys, Row, Spec};
use crate::command::{Ctx, shard_of};
use crate::config::parse_memory;
use crate::keyspace::{Change, Live, Touch, Value};
use crate::net;
use crate::observe::log;
use crate::resp::{Error, Proto, Reply, Request, Result, printable};
use crate::script::Catalog;
use crate::server::facts::LRU_CLOCK_BITS;
use crate::server::kept::loading;
use crate::server::kept::rewriting;
use crate::server::kept::saving;
use crate::server::run::in_the_way;
use crate::server::run::wait;
use crate::server::state::Server;
use crate::server::state::replication::Ids;
use crate::server::state::{Run, TaskCtx};
use crate::server::wire::journal;
use crate::shard::snapshot::TakeIn;
use crate::shard::{At, CallResult, Shard};
use crate::value::glob::glob_match;
use crate::value::number::{parse_f64, parse_i64};
use digest::{Sum, dataset_digest, value_digest};
use std::rc::Rc;
use std::time::{Duration, Instant};

mod digest;
mod slots;

pub const ROWS: &[Row<Run>] = &[Row::new(
    Spec {
        name: "debug",
        arity: -2,
        flags: ADMIN | NO_SCRIPT | LOADING | STALE | PROTECTED,
        keys: Keys::NONE,
        group: Group::Server,
        since: "1.0.0",
        complexity: "Depends on the subcommand",
        summary: "Does what tests and people who search for defects need.",
        syntax: "subcommand [arg]...",
    },
    Run::Task(|ctx| Box::pin(debug(ctx))),
)
.for_the_system()];

const HELP: &[&str] = &[
    "DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CHANGE-REPL-ID",
    "    Change the replication ID of the instance.",
    "DIGEST",
    "    Output a hex signature representing the current DB content.",
    "DIGEST-VALUE <key> [<key> ...]",
    "    Output a hex signature of the values of all the specified keys.",
    "ERROR <string>",
    "    Return a Redis protocol error with <string> as message. Useful for clients",
    "    unit tests to simulate Redis errors.",
    "HTSTATS <dbid>",
    "    Return hash table statistics of the specified database, of all shards together.",
    "HTSTATS-KEY <key>",
    "    Like HTSTATS but for the hash table stored at <key>'s value.",
    "JOURNAL",
    "    Show all changes from now on, as commands that make them again, in one order.",
    "LOADAOF",
    "    Load the append-only log in place of what there is. Others are answered LOADING.",
    "LOG <message>",
    "    Write <message> to the server log.",
    "OBJECT <key>",
    "    Show low level info about `key` and associated value.",
    "PAUSE-CRON <0|1>, QUICKLIST-PACKED-THRESHOLD <size>,",
    "REPLYBUFFER PEAK-RESET-TIME <NEVER|RESET|time>, REPLYBUFFER RESIZING <0|1>",
    "    Accepted and without effect: there is nothing of the kind here.",
    "POPULATE <count> [<prefix>] [<size>]",
    "    Create <count> string keys named key:<num>. If <prefix> is specified then",
    "    it is used instead of the 'key' prefix. They have <size> bytes, if that is",
    "    specified. Keys that are there already stay as they are.",
    "PROTOCOL <type>",
    "    Reply with a test value of the specified type. <type> can be: string,",
    "    integer, double, bignum, null, array, set, map, attrib, push, verbatim,",
    "    true, false.",
    "RELOAD [option ...]",
    "    Save the dataset on disk and reload it back to memory. Options are: MERGE",
    "    (keys of the file replace those that are there), NOFLUSH (what is there stays),",
    "    NOSAVE (the file that is there is loaded).",
    "REPLICA <READ-ONLY|STALE> <0|1>",
    "    Refuse writes like a replica; refuse what may be old like one without its primary.",
    "REPLICATE <command> [<arg> ...]",
    "    Replicas are told the command, which is not run here.",
    "SDSLEN <key>",
    "    Show the lengths of `key` and of its string, and the memory they have. They are",
    "    in one allocation: what is not the key counts as the value's.",
    "SET-ACTIVE-EXPIRE <0|1>",
    "    Setting it to 0 disables expiring keys in background when they are not",
    "    accessed. Setting it to 1 reenables it.",
    "SET-TRANSACTION-ORDER <0|1>",
    "    Setting it to 0 lets shards run their parts of multi-key commands in any order,",
    "    so that others see half of them. Setting it to 1 puts it right.",
    "SHARD-DELAY <shard> <microseconds>",
    "    The shard takes what others send it as late as this, by chance.",
    "SLEEP <seconds>",
    "    Stop all shards for <seconds>. Decimals allowed.",
    "STRINGMATCH-LEN <pattern> <string>",
    "    Whether <string> matches the glob-style <pattern>.",
    "WAITS",
    "    Show who waits for whom at this moment, as lines of `waiter -> holder`: in the",
    "    graph of all lines no circle may last.",
    "HELP",
    "    Prints this help.",
];

const NO_SUCH_TYPE: Error = Error::text(
    "ERR Wrong protocol type name. Please use one of the following: \
     string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false",
);

async fn debug(ctx: TaskCtx) -> Result<Vec<u8>> {
    let request = ctx.request.as_request();
    let subcommand = request.arg(1).to_ascii_lowercase();
    match (&subcommand[..], request.len()) {
        (b"help", 2) => Ok(ctx.reply(help)),
        (b"change-repl-id", 2) => {
            ctx.server.global.replication.set_ids(Ids::new());
            Ok(ctx.reply(|reply| reply.ok()))
        }
        (b"digest", 2) => Ok(digest_all(&ctx).await),
        (b"digest-value", _) => Ok(digest_values(&ctx).await),
        (b"error", 3) => Err(Error::quoting(&[printable(request.arg(2), usize::MAX)])),
        (b"htstats", 3) => slots::of_database(&ctx, request).await,
        (b"htstats-key", 3) => slots::of_key(&ctx, request.arg(2)).await,
        (b"object", 3) => object(&ctx, request.arg(2)).await,
        (b"journal", 2) if ctx.in_exec => Err(Error::text("ERR DEBUG JOURNAL isn't allowed within EXEC")),
        (b"journal", 2) => {
            journal::begin(&ctx.server, ctx.client.id).await?;
            Ok(ctx.reply(|reply| reply.ok()))
        }
        (b"reload", _) if ctx.in_exec => Err(Error::text("ERR DEBUG RELOAD isn't allowed within EXEC")),
        (b"reload", _) => {
            reload(&ctx.server, request).await?;
            Ok(ctx.reply(|reply| reply.ok()))
        }
        (b"loadaof", 2) if ctx.in_exec => Err(Error::text("ERR DEBUG LOADAOF isn't allowed within EXEC")),
        (b"loadaof", 2) => {
            rewriting::load_again(&ctx.server).await?;
            Ok(ctx.reply(|reply| reply.ok()))
        }
        (b"log", 3) => {
            log::warning(format_args!("DEBUG LOG: {}", String::from_utf8_lossy(request.arg(2))));
            Ok(ctx.reply(|reply| reply.ok()))
        }
        (b"pause-cron", 3) => Ok(ctx.reply(|reply| reply.ok())),
        (b"quicklist-packed-threshold", 3) => quicklist_packed_threshold(&ctx, request.arg(2)),
        (b"replybuffer", 4) if request.is(2, "peak-reset-time") => reply_buffer_reset(&ctx, request),
        (b"replybuffer", 4) if request.is(2, "resizing") => Ok(ctx.reply(|reply| reply.ok())),
        (b"populate", _) if ctx.in_exec => Err(Error::text("ERR DEBUG POPULATE isn't allowed within EXEC")),
        (b"populate", 3..=5) => populate(&ctx, request).await,
        (b"stringmatch-len", 4) => {
            let matches = glob_match(request.arg(2), request.arg(3), false);
            Ok(ctx.reply(|reply| reply.int(matches.into())))
        }
        (b"protocol", 3) => protocol(&ctx, request.arg(2)),
        (b"replica", 4) => replica(&ctx, request).await,
        (b"replicate", 3..) => {
            ctx.server.tell_replicas((2..request.len()).map(|index| request.arg(index)));
            ctx.server.shard.after_commands();
            Ok(ctx.reply(|reply| reply.ok()))
        }
        (b"sdslen", 3) => string_lengths(&ctx, request.arg(2)).await,
        (b"set-active-expire", 3) => Ok(set_active_expire(&ctx, request.arg(2)).await),
        (b"set-transaction-order", 3) => Ok(set_transaction_order(&ctx, request.arg(2)).await),
        (b"shard-delay", 4) => shard_delay(&ctx, request).await,
        (b"sleep", 3) => sleep(&ctx, request.arg(2)).await,
        (b"waits", 2) => {
            let lines = ctx.server.shard.call_all(|shard| shard.waits()).await.concat();
            Ok(ctx.reply(|reply| {
                reply.array(lines.len());
                lines.iter().for_each(|line| reply.bulk(line.as_bytes()));
            }))
        }
        _ => Err(Error::bad_subcommand("DEBUG", request.arg(1))),
    }
}

/// Nobody sees anything between the old and the new.
async fn reload(server: &Rc<Server>, request: Request<'_>) -> Result {
    let (mut saves, mut flushes, mut merges) = (true, true, false);
    for index in 2..request.len() {
        let options = [("nosave", &mut saves, false), ("noflush", &mut flushes, false), ("merge", &mut merges, true)];
        let named = options.into_iter().find(|(word, ..)| request.is(index, word));
        let (_, option, value) =
            named.ok_or(Error::text("ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options."))?;
        *option = value;
    }
    let transaction = in_the_way::hold_everything(server).await?;
    if saves {
        saving::save_held(server).await?;
    }
    if flushes {
        server.shard.call_all(Shard::empty).await;
        server.global.libraries.change(|_| Ok(Catalog::default()))?;
    }
    let how = TakeIn { replace: merges, drop_dead: false, beside: false };
    let loaded = loading::load_held(server, how).await;
    drop(transaction);
    match loaded {
        Ok(_) => Ok(()),
        Err(reason) => {
            log::warning(format_args!("Error trying to load the RDB dump: {reason}"));
            Err(Error::text("ERR Error trying to load the RDB dump"))
        }
    }
}

fn help(reply: &mut Reply) {
    reply.array(HELP.len());
    HELP.iter().for_each(|line| reply.simple(line));
}

async fn digest_all(ctx: &TaskCtx) -> Vec<u8> {
    let of_shard = |shard: &Rc<Shard>| {
        let now = shard.clock.refresh();
        let keyspace = shard.keyspace.borrow();
        let of_db = |db| {
            let mut sum = Sum::default();
            keyspace.for_each(db, now, |key, entry, deadline_ms| {
                sum.add(key, entry.content(), deadline_ms.is_some(), now.ms);
            });
            sum
        };
        (0..keyspace.databases()).map(of_db).collect::<Vec<Sum>>()
    };
    let shards = ctx.server.shard.call_all(of_shard).await;
    ctx.reply(|reply| reply.simple(&dataset_digest(&shards).to_string()))
}

async fn digest_values(ctx: &TaskCtx) -> Vec<u8> {
    let mut calls = Vec::new();
    for key in ctx.request.as_request().from(2) {
        calls.push(on_key(ctx, key, |ctx, bytes| {
            let live = find(ctx, bytes)?;
            Some(value_digest(live.content(), live.deadline_ms().is_some(), live.now_ms()))
        }));
    }
    let mut digests = Vec::new();
    for call in calls {
        digests.push(call.await.unwrap_or_default());
    }
    ctx.reply(|reply| {
        reply.array(digests.len());
        digests.iter().for_each(|digest| reply.simple(&digest.to_string()));
    })
}

async fn object(ctx: &TaskCtx, key: &[u8]) -> Result<Vec<u8>> {
    let described = on_key(ctx, key, |ctx, bytes| {
        let wall = Wall::of(ctx);
        find(ctx, bytes).map(|live| describe(&live, wall))
    });
    let text = described.await.ok_or(Error::NoSuchKey)?;
    Ok(ctx.reply(|reply| reply.simple(&text)))
}

async fn string_lengths(ctx: &TaskCtx, key: &[u8]) -> Result<Vec<u8>> {
    let described = on_key(ctx, key, |ctx, bytes| {
        let live = find(ctx, bytes).ok_or(Error::NoSuchKey)?;
        let Some(Value::Bytes(value)) = live.string() else {
            return Err(Error::text("ERR Not an sds encoded string."));
        };
        let (allocated, spare) = live.entry_bytes();
        Ok(format!(
            "key_sds_len:{key}, key_sds_avail:0, key_zmalloc: {key}, val_sds_len:{}, val_sds_avail:{spare}, \
             val_zmalloc: {}",
            value.len(),
            allocated - bytes.len(),
            key = bytes.len(),
        ))
    });
    let text = described.await?;
    Ok(ctx.reply(|reply| reply.simple(&text)))
}

/// Runs `work` where the key lives.
fn on_key<R: Send + 'static>(
    ctx: &TaskCtx,
    key: &[u8],
    work: impl FnOnce(&mut Ctx, &[u8]) -> R + Send + 'static,
) -> CallResult<R> {
    let (shard, key) = (&ctx.server.shard, key.to_vec());
    let at = At::unseen(ctx.command, ctx.db, ctx.proto);
    shard.call(shard_of(&shard.hasher, &key), move |shard| {
        // As the cycle: a dead key that a transaction may still see stays.
        let now = shard.cycle_now().unwrap_or(Now::from_ms(0));
        let (result, _) = shard.step_of(at, now, |ctx| work(ctx, &key));
        shard.after_commands();
        result
    })
}

fn find<'c>(ctx: &'c mut Ctx, bytes: &[u8]) -> Option<Live<'c>> {
    let key = ctx.other_key(bytes);
    ctx.keyspace.find(ctx.db, key, ctx.now, Touch::NOTHING)
}

fn describe(live: &Live, wall: Wall) -> String {
    let mut serialized = Vec::new();
    dump::write(&mut serialized, live.content(), wall);
    let idle_s = live.idle_s();
    let lru = (wall.now_ms() / 1000).wrapping_sub(u64::from(idle_s)) & ((1 << LRU_CLOCK_BITS) - 1);
    format!(
        "Value at:{:#x} refcount:{} encoding:{} serializedlength:{} lru:{lru} lru_seconds_idle:{idle_s}",
        live.address(),
        refcount(live),
        encoding(live),
        // Its type is not counted.
        serialized.len() - 1
    )
}

fn protocol(ctx: &TaskCtx, kind: &[u8]) -> Result<Vec<u8>> {
    const BIG_NUMBER: &str = "1234567999999999999999999999999999999";
    let resp3 = ctx.proto == Proto::Resp3;
    let kind = kind.to_ascii_lowercase();
    let write: fn(&mut Reply) = match &kind[..] {
        b"string" => |reply| reply.bulk(b"Hello World"),
        b"integer" => |reply| reply.int(12345),
        // 3.141, which is not meant to be pi.
        b"double" => |reply| reply.double(3141.0 / 1000.0),
        b"null" => |reply| reply.nil(),
        b"array" => |reply| {
            reply.array(3);
            (0..3).for_each(|n| reply.int(n));
        },
        b"set" => |reply| {
            reply.set(3);
            (0..3).for_each(|n| reply.int(n));
        },
        b"map" => |reply| {
            reply.map(3);
            for n in 0..3 {
                reply.int(n);
                reply.bool(n == 1);
            }
        },
        b"attrib" => write_attribute,
        b"push" if !resp3 => return Err(Error::text("ERR RESP2 is not supported by this command")),
        b"push" => |reply| {
            reply.push(2);
            reply.bulk(b"server-cpu-usage");
            reply.int(42);
            reply.bulk(b"Some real reply following the push reply");
        },
        b"verbatim" => |reply| reply.verbatim("txt", "This is a verbatim\nstring"),
        b"true" => |reply| reply.bool(true),
        b"false" => |reply| reply.bool(false),
        b"bignum" if resp3 => |reply| reply.raw(format!("({BIG_NUMBER}\r\n").as_bytes()),
        b"bignum" => |reply| reply.bulk(BIG_NUMBER.as_bytes()),
        _ => return Err(NO_SUCH_TYPE),
    };
    Ok(ctx.reply(write))
}

/// RESP2 has no attributes: only what follows.
fn write_attribute(reply: &mut Reply) {
    if reply.proto == Proto::Resp3 {
        reply.raw(b"|1\r\n");
        reply.bulk(b"key-popularity");
        reply.array(2);
        reply.bulk(b"key:123");
        reply.int(90);
    }
    reply.bulk(b"Some real reply following the attribute");
}

/// What replication is going to say.
async fn replica(ctx: &TaskCtx, request: Request<'_>) -> Result<Vec<u8>> {
    let (role, wants) = (&ctx.server.global.following, request.int(3)? != 0);
    if request.is(2, "read-only") {
        role.set_read_only(wants);
        wait::unblock_all(&ctx.server).await;
    } else if request.is(2, "stale") {
        role.set_stale(wants);
    } else {
        return Err(Error::Syntax);
    }
    Ok(ctx.reply(|reply| reply.ok()))
}

/// Lists have no such threshold: only whether it is one is looked at.
fn quicklist_packed_threshold(ctx: &TaskCtx, size: &[u8]) -> Result<Vec<u8>> {
    const TOO_LARGE_BYTES: u64 = 1 << 32;
    let size_bytes = std::str::from_utf8(size).ok().and_then(parse_memory);
    match size_bytes.filter(|bytes| *bytes < TOO_LARGE_BYTES) {
        Some(_) => Ok(ctx.reply(|reply| reply.ok())),
        None => Err(Error::text("ERR argument must be a memory value bigger than 1 and smaller than 4gb")),
    }
}

/// Reply buffers have no peak that is remembered.
fn reply_buffer_reset(ctx: &TaskCtx, request: Request) -> Result<Vec<u8>> {
    if !request.is(3, "never") && !request.is(3, "reset") {
        request.int(3)?;
    }
    Ok(ctx.reply(|reply| reply.ok()))
}

/// So many keys are looked at before others have their turn.
const POPULATED_A_TURN: i64 = 10_000;

async fn populate(ctx: &TaskCtx, request: Request<'_>) -> Result<Vec<u8>> {
    let number = |index: usize| {
        let number = request.get(index).map(|text| parse_i64(text).filter(|n| *n >= 0));
        number.map(|n| n.ok_or(Error::text("ERR value is out of range, must be positive"))).transpose()
    };
    let count = number(2)?.unwrap_or(0);
    let size = number(4)?.unwrap_or(0) as usize;
    if size > ctx.server.shard.config().limits.string_bytes {
        return Err(Error::StringTooLong);
    }
    let prefix = request.get(3).unwrap_or(b"key");
    let shard = &ctx.server.shard;
    let at = At::unseen(ctx.command, ctx.db, ctx.proto);
    for start in (0..count).step_by(POPULATED_A_TURN as usize) {
        // Nobody else's transaction, which is told when it is over, has these keys or moves their database meanwhile.
        let transaction = in_the_way::hold_everything(&ctx.server).await?;
        let end = count.min(start + POPULATED_A_TURN);
        let on_shard = |target| {
            let prefix = prefix.to_vec();
            let make = move |ctx: &mut Ctx| (start..end).for_each(|n| make_key(ctx, target, &prefix, n, size));
            transaction.on(target, move |shard, now| shard.step_of(at, now, make))
        };
        // All shards at the same time.
        let steps: Vec<_> = (0..shard.count).map(on_shard).collect();
        for step in steps {
            step.await;
        }
    }
    Ok(ctx.reply(|reply| reply.ok()))
}

/// One key of DEBUG POPULATE, if it belongs to this shard and is not there.
fn make_key(ctx: &mut Ctx, shard: usize, prefix: &[u8], n: i64, size: usize) {
    let name = [prefix, b":", n.to_string().as_bytes()].concat();
    let key = ctx.other_key(&name);
    if ctx.keyspace.hasher().shard_of(key) != shard || ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch).is_some() {
        return;
    }
    let mut value = format!("value:{n}").into_bytes();
    if size > 0 {
        value.resize(size, 0);
    }
    ctx.keyspace.insert_new(ctx.db, key, Value::of(&value), None, ctx.now);
    ctx.commit(key, Change::untold());
    ctx.propagate(&[b"SET", &name, &value]);
}

/// What is no number counts as 0, as in Redis.
async fn set_active_expire(ctx: &TaskCtx, value: &[u8]) -> Vec<u8> {
    let enabled = parse_i64(value).is_some_and(|value| value != 0);
    ctx.server.shard.call_all(move |shard| shard.set_active_expire(enabled)).await;
    ctx.reply(|reply| reply.ok())
}

async fn set_transaction_order(ctx: &TaskCtx, value: &[u8]) -> Vec<u8> {
    let ordered = parse_i64(value).is_some_and(|value| value != 0);
    ctx.server.shard.call_all(move |shard| shard.set_transaction_order(ordered)).await;
    ctx.reply(|reply| reply.ok())
}

/// A longer delay is a mistake.
const SHARD_DELAY_US_MAX: i64 = 1_000_000;

async fn shard_delay(ctx: &TaskCtx, request: Request<'_>) -> Result<Vec<u8>> {
    let shards = ctx.server.shard.count;
    let target = usize::try_from(request.int(2)?).ok().filter(|target| *target < shards);
    let target = target.ok_or_else(|| Error::err(format_args!("there are shards 0 to {}", shards - 1)))?;
    let delay_us = request.int(3)?;
    if !(0..=SHARD_DELAY_US_MAX).contains(&delay_us) {
        return Err(Error::NotAnInteger);
    }
    ctx.server.shard.call(target, move |shard| shard.set_delay_us(delay_us as u64)).await;
    Ok(ctx.reply(|reply| reply.ok()))
}

/// A longer sleep is a mistake.
const SLEEP_MAX: Duration = Duration::from_secs(3600);
/// Time for messages to leave before the thread that sends them blocks.
const SENT_AFTER: Duration = Duration::from_millis(1);

/// Blocks the threads of all shards until the same moment.
async fn sleep(ctx: &TaskCtx, seconds: &[u8]) -> Result<Vec<u8>> {
    let seconds = parse_f64(seconds).unwrap_or(0.0).max(0.0);
    let duration = Duration::try_from_secs_f64(seconds).ok().filter(|duration| *duration <= SLEEP_MAX);
    let duration = duration
        .ok_or_else(|| Error::err(format_args!("DEBUG SLEEP takes at most {} seconds", SLEEP_MAX.as_secs())))?;
    let end = Instant::now() + duration;
    let block = move || std::thread::sleep(end.saturating_duration_since(Instant::now()));
    let shard = &ctx.server.shard;
    let others = (0..shard.count).filter(|target| *target != shard.id);
    let calls: Vec<CallResult<()>> = others.map(|target| shard.call(target, move |_| block())).collect();
    if !calls.is_empty() {
        net::sleep(SENT_AFTER).await;
    }
    block();
    for call in calls {
        call.await;
    }
    Ok(ctx.reply(|reply| reply.ok()))
}
