//! BLESS: keys that are never evicted, as Redis 8.12 has them. Which keys those are is in [`crate::keyspace`]
//! (`keyspace/pins.rs`).

use super::scanning::{Page, ScanOptions, Walk};
use super::spec::flag::{DENY_OOM, FAST, NO_TOUCH, READ, WRITE};
use super::spec::{Group, Keys, Row, Spec, tip};
use super::{Ctx, Run};
use crate::journal::Command;
use crate::keyspace::{Change, Cursor, Event, Key};
use crate::resp::{Error, Request, Result};

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
            Run::Cursor(|ctx, request| SCAN.run(ctx, request), |across| Box::pin(SCAN.run_across(across))),
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

const SCAN: Walk = Walk { cursor_at: 2, options, look: look_at_pins };

/// What follows the cursor.
fn options(request: Request<'_>) -> Result<ScanOptions<'_>> {
    let mut options = ScanOptions::of(COUNT_DEFAULT);
    if !request.is(3, "no-evict") {
        return Err(Error::Syntax);
    }
    (4..request.len()).step_by(2).try_for_each(|index| options.add(request, index))?;
    Ok(options)
}

fn look_at_pins(page: &mut Page, ctx: &Ctx, cursor: Cursor, count: usize, options: &ScanOptions) {
    let Page { next, seen, found } = page;
    *next = ctx.keyspace.scan_pinned(ctx.db, cursor, count, ctx.shards, ctx.now, |key| {
        *seen += 1;
        if options.matches(key) {
            found.push(key.to_vec());
        }
    });
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
