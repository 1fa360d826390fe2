//! BLESS: keys that are never evicted, as Redis 8.12 has them. Which keys those are is in [`crate::keyspace`]
//! (`keyspace/pins.rs`).

use super::scanning::{self, reply_page};
use super::spec::flag::{DENY_OOM, FAST, NO_TOUCH, READ, WRITE};
use super::spec::{Group, Keys, Row, Spec, tip};
use super::{Across, Ctx, Run};
use crate::journal::Command;
use crate::keyspace::{Change, Cursor, Event, Key};
use crate::resp::{Error, Request, Result};
use crate::value::glob::glob_match;
use std::sync::Arc;

pub const ROWS: &[Row<Run>] = &[Row::container(
    Spec {
        complexity: "Depends on the subcommand",
        summary: "Groups what is done with keys that are never evicted.",
        keys: Keys::NONE,
        syntax: "",
        ..spec("bless", -2, 0)
    },
    Run::Container,
    &[
        Row::new(
            Spec {
                summary: "Keeps a key that exists from being evicted.",
                syntax: "key NO-EVICT",
                ..spec("set", 4, WRITE | DENY_OOM | FAST | NO_TOUCH)
            },
            Run::Key(|ctx, request| bless(ctx, request, true)),
        ),
        Row::new(
            Spec {
                summary: "Lets a key be evicted again.",
                syntax: "key NO-EVICT",
                ..spec("clear", 4, WRITE | FAST | NO_TOUCH)
            },
            Run::Key(|ctx, request| bless(ctx, request, false)),
        ),
        Row::new(
            Spec {
                summary: "Returns what a key is protected from.",
                syntax: "key",
                ..spec("get", 3, READ | FAST | NO_TOUCH)
            },
            Run::Key(get),
        ),
        Row::new(
            Spec {
                summary: "Walks the keys of the database that are protected so.",
                syntax: "cursor:integer NO-EVICT [MATCH pattern:pattern] [COUNT count:integer]",
                keys: Keys::NONE,
                complexity: "O(1) a call, O(n) for a whole walk over the protected keys",
                ..spec("scan", -4, READ | NO_TOUCH)
            },
            Run::Cursor(scan, |across| Box::pin(scan_across(across))),
        )
        .tips(&[tip::NONDETERMINISTIC_OUTPUT, tip::ASK_SPECIAL]),
    ],
)];

const fn spec(name: &'static str, arity: i32, flags: u32) -> Spec {
    Spec {
        name,
        arity,
        flags,
        keys: Keys::SECOND,
        group: Group::Generic,
        since: "8.12.0",
        complexity: "O(1)",
        summary: "",
        syntax: "",
    }
}

/// The only thing that a key is protected from.
const NO_EVICT: &str = "NO-EVICT";
/// About as many keys are shown where nobody says how many, as in Redis.
const COUNT_DEFAULT: usize = 1024;

/// What says of a key that it is pinned, or not.
pub fn pin_command(db: usize, key: &[u8], is_pinned: bool) -> Command {
    let word: &[u8] = if is_pinned { b"SET" } else { b"CLEAR" };
    Command::new(db, [b"BLESS", word, key, NO_EVICT.as_bytes()].into_iter())
}

fn bless(ctx: &mut Ctx, request: Request, is_pinned: bool) -> Result {
    if !request.is(3, "no-evict") {
        return Err(Error::Syntax);
    }
    let key = ctx.key(request.arg(2));
    if ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch).is_none() {
        return Err(Error::NoSuchKey);
    }
    let changes = ctx.keyspace.set_pinned(ctx.db, key, is_pinned);
    if changes {
        let event = if is_pinned { Event::Bless } else { Event::Unbless };
        // (The value is what it was, and so is the deadline: no policy has a say, and whoever computes it anew goes on.)
        ctx.keyspace.effects.record(ctx.db, key.bytes, Change::of(event));
        ctx.propagate(&[b"BLESS", if is_pinned { b"SET" } else { b"CLEAR" }, key.bytes, NO_EVICT.as_bytes()]);
    }
    ctx.reply.int(changes.into());
    Ok(())
}

fn get(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(2));
    if ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch).is_none() {
        return Err(Error::NoSuchKey);
    }
    let is_pinned = ctx.keyspace.is_pinned(ctx.db, key.bytes);
    ctx.reply.array(is_pinned.into());
    if is_pinned {
        ctx.reply.bulk(NO_EVICT.as_bytes());
    }
    Ok(())
}

/// What follows the cursor.
struct Options<'r> {
    count: usize,
    pattern: Option<&'r [u8]>,
}

impl<'r> Options<'r> {
    fn parse(request: Request<'r>) -> Result<Options<'r>> {
        let mut options = Options { count: COUNT_DEFAULT, pattern: None };
        if !request.is(3, "no-evict") {
            return Err(Error::Syntax);
        }
        for index in (4..request.len()).step_by(2) {
            let argument = request.get(index + 1).ok_or(Error::Syntax)?;
            if request.is(index, "count") {
                options.count = scanning::count(argument)?;
            } else if request.is(index, "match") {
                options.pattern = Some(argument).filter(|pattern| *pattern != b"*");
            } else {
                return Err(Error::Syntax);
            }
        }
        Ok(options)
    }
}

/// What one call shows.
#[derive(Default)]
struct Page {
    next: Option<Cursor>,
    seen: usize,
    found: Vec<Vec<u8>>,
}

impl Page {
    /// Looks at about `count` pinned keys of the cursor's shard.
    fn add(&mut self, ctx: &Ctx, cursor: Cursor, count: usize, options: &Options) {
        let Page { next, seen, found } = self;
        *next = ctx.keyspace.scan_pinned(ctx.db, cursor, count, ctx.shards, ctx.now, |key| {
            *seen += 1;
            if options.pattern.is_none_or(|pattern| glob_match(pattern, key, false)) {
                found.push(key.to_vec());
            }
        });
    }
}

fn scan(ctx: &mut Ctx, request: Request) -> Result {
    let cursor = Cursor::from_u64(scanning::cursor(request, 2)?);
    let options = Options::parse(request)?;
    let mut page = Page::default();
    if cursor.shard < ctx.shards {
        page.add(ctx, cursor, options.count, &options);
    }
    reply_page(&mut ctx.reply, page.next.map_or(0, Cursor::to_u64), &page.found);
    Ok(())
}

/// The same over several shards: few keys are shown by one call, wherever they are.
async fn scan_across(across: Across) -> Result<Vec<u8>> {
    let request = Arc::new(across.request.clone());
    let cursor = Cursor::from_u64(scanning::cursor(request.as_request(), 2)?);
    let count = Options::parse(request.as_request())?.count;
    let mut page = Page::default();
    let mut from = Some(cursor).filter(|cursor| cursor.shard < across.hop.shards());
    while let Some(cursor) = from {
        let request = request.clone();
        let of_shard = move |ctx: &mut Ctx| {
            let options = Options::parse(request.as_request())?;
            page.add(ctx, cursor, count - page.seen, &options);
            Result::Ok(page)
        };
        page = across.on(cursor.shard, of_shard).await?;
        // The shard is done, and the page is not full.
        from = page.next.filter(|next| next.shard != cursor.shard && page.seen < count);
    }
    Ok(across.reply(|reply| reply_page(reply, page.next.map_or(0, Cursor::to_u64), &page.found)))
}

impl Ctx<'_> {
    /// Whoever is told what a key is keeps a pin that it may have had there.
    pub(super) fn say_pin(&mut self, db: usize, key: Key) {
        if self.keyspace.knows_pins() {
            let command = pin_command(db, key.bytes, self.keyspace.is_pinned(db, key.bytes));
            self.keyspace.effects.said.say(command);
        }
    }
}
