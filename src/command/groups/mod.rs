//! EXPIRY GROUP: keys that die together.
//!
//! What a group is and how its members get their deadlines is in [`crate::keyspace`] (`keyspace/groups.rs`). A group that has a
//! deadline is known on all shards, so that whatever changes one is a transaction over all of them, which nothing runs beside:
//! nobody sees a part of it. Everything that changes a group says what has become of it in two commands that are for other
//! servers and the log, GROUP OWN for a member and GROUP DATE for the group, and behind them, in words that every server
//! knows, the deadlines that the members have by that. A group that has died and has a stream is told of until its entry is
//! written, which is GROUP TOLD.
//!
//! | file | what |
//! |---|---|
//! | `told.rs` | GROUP OWN, GROUP DATE and GROUP TOLD: what the log, primaries and snapshots say of groups |

#[cfg(test)]
mod model_test;
mod told;

pub use told::{DATE, OWN, TOLD, recall};

use super::grouped::{date_command, own_command, told_command};
use super::hop::check_gathered;
use super::spec::flag::{DENY_OOM, FAST, NO_SCRIPT, NO_TOUCH, READ, WRITE};
use super::spec::{Group, Keys, Row, Spec};
use super::{Across, Ctx, Merge, Run};
use crate::config::DeathStream;
use crate::journal::Command;
use crate::keyspace::{Event, GROUPS_A_KEY_MAX, GroupName, Key, Membership, Redated, Span, Touch};
use crate::resp::{Error, Request, Result};
use std::collections::BTreeSet;
use std::sync::Arc;

pub const ADD: Row<Run> = row(
    Spec {
        summary: "Adds keys that exist to a group, which dies with all its members, and counts those that were not in it.",
        syntax: "group key...",
        keys: Keys::GROUP_AND_ALL,
        ..spec("group-add", -5, WRITE | DENY_OOM | NO_SCRIPT | NO_TOUCH, "O(n) in the number of keys")
    },
    Run::Atomic(add_here, |across| Box::pin(add_across(across))),
);

pub const REM: Row<Run> = row(
    Spec {
        summary: "Takes keys out of a group, which have their own deadlines again, and counts those that were in it.",
        syntax: "group key...",
        keys: Keys::GROUP_AND_ALL,
        ..spec("group-rem", -5, WRITE | NO_SCRIPT | NO_TOUCH, "O(n) in the number of keys")
    },
    Run::Spread(remove, Merge::Sum),
);

pub const MEMBERS: Row<Run> = row(
    Spec {
        summary: "Lists the keys that are in a group.",
        syntax: "group",
        ..spec("group-members", 4, READ | NO_TOUCH, "O(n) in the number of members")
    },
    Run::Everywhere(members, Merge::Concat),
);

pub const OF: Row<Run> = row(
    Spec {
        summary: "Lists the groups that a key is in.",
        syntax: "key",
        keys: Keys::THIRD,
        ..spec("group-of", 4, READ | FAST | NO_TOUCH, "O(n) in the number of groups of the key")
    },
    Run::Key(groups_of),
);

pub const TTL: Row<Run> = row(
    Spec {
        summary: "Returns for how many seconds a group lives: -1 where it has no deadline, -2 where it is not there.",
        syntax: "group",
        ..spec("group-ttl", 4, READ | NO_TOUCH, "O(n) in the number of shards")
    },
    Run::Coordinated(|across| Box::pin(ttl(across, 1000))),
);

pub const PTTL: Row<Run> = row(
    Spec {
        summary: "Returns for how many milliseconds a group lives: -1 where it has no deadline, -2 where it is not there.",
        syntax: "group",
        ..spec("group-pttl", 4, READ | NO_TOUCH, "O(n) in the number of shards")
    },
    Run::Coordinated(|across| Box::pin(ttl(across, 1))),
);

pub const EXPIRE: Row<Run> = row(
    Spec {
        summary: "Lets a group live for a time from now on, or, sliding, from the last use of a member on; counts the members.",
        syntax: "group ttl [SLIDING]",
        ..spec("group-expire", -5, WRITE | DENY_OOM | NO_SCRIPT, "O(n) in the number of members")
    },
    Run::Everywhere(expire, Merge::Sum),
);

pub const TOUCH: Row<Run> = row(
    Spec {
        summary: "Lets the life of a group that has a deadline begin anew, and counts the members.",
        syntax: "group",
        ..spec("group-touch", 4, WRITE | NO_SCRIPT, "O(n) in the number of members")
    },
    Run::Everywhere(touch, Merge::Sum),
);

pub const KILL: Row<Run> = row(
    Spec {
        summary: "Deletes a group and all its members in one moment, and counts them.",
        syntax: "group",
        ..spec("group-kill", 4, WRITE | NO_SCRIPT, "O(n) in the number of members and their elements")
    },
    Run::Everywhere(kill, Merge::Sum),
);

pub const EVENTS: Row<Run> = row(
    Spec {
        summary: "Writes the death of a group to a stream, or does so no more.",
        syntax: "group to:(stream:key|NONE) [MAXLEN maxlen:integer]",
        keys: Keys::GROUP_AND_STREAM,
        ..spec("group-events", -5, WRITE | DENY_OOM | NO_SCRIPT | NO_TOUCH, "O(n) in the number of members")
    },
    Run::Everywhere(events, Merge::Ok),
);

pub const PERSIST: Row<Run> = row(
    Spec {
        summary: "Takes the deadline of a group away: 1, or 0 where it has none.",
        syntax: "group",
        ..spec("group-persist", 4, WRITE | NO_SCRIPT | NO_TOUCH, "O(n) in the number of members")
    },
    Run::Everywhere(persist, Merge::Most),
);

pub const LIST: Row<Run> = row(
    Spec {
        summary: "Lists the groups of the database.",
        keys: Keys::NONE,
        ..spec("group-list", 3, READ | NO_TOUCH, "O(n log n) in the number of groups")
    },
    Run::Coordinated(|across| Box::pin(list(across))),
);

/// All of them.
#[cfg(test)]
pub const ROWS: &[Row<Run>] =
    &[ADD, DATE, EVENTS, EXPIRE, KILL, LIST, MEMBERS, OF, OWN, PERSIST, PTTL, REM, TOLD, TOUCH, TTL];

/// A subcommand of EXPIRY GROUP, whose name is two words.
const fn row(spec: Spec, run: Run) -> Row<Run> {
    Row::new(spec, run).of_two_words()
}

const fn spec(name: &'static str, arity: i32, flags: u32, complexity: &'static str) -> Spec {
    Spec {
        name,
        arity,
        flags,
        keys: Keys::GROUP,
        group: Group::Generic,
        since: "0.1.0",
        complexity,
        summary: "",
        syntax: "",
    }
}

/// Where the name of a group stands, and where keys begin behind it.
const NAME: usize = 3;
const FIRST_KEY: usize = 4;
/// A command deletes no more keys than this.
const DELETED_TOGETHER: usize = 64;

fn is_mine(_: Key) -> bool {
    true
}

fn in_too_many() -> Error {
    Error::err(format_args!("a key is in no more than {GROUPS_A_KEY_MAX} groups"))
}

fn check_places(ctx: &Ctx, request: Request, mine: impl Fn(Key) -> bool) -> Result {
    let mut keys = request.from(FIRST_KEY).map(|bytes| ctx.other_key(bytes)).filter(|key| mine(*key));
    match keys.find(|key| !ctx.keyspace.may_join(ctx.db, key.bytes, request.arg(NAME))) {
        None => Ok(()),
        Some(_) => Err(in_too_many()),
    }
}

fn add(ctx: &mut Ctx, request: Request, mine: impl Fn(Key) -> bool) -> i64 {
    ctx.propagate_nothing();
    ctx.keyspace.end_groups(ctx.db, ctx.now);
    let (name, mut added) = (request.arg(NAME), 0);
    for bytes in request.from(FIRST_KEY) {
        let key = ctx.other_key(bytes);
        if !mine(key) || ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch).is_none() {
            continue;
        }
        if let Some(redated) = ctx.keyspace.join_group(ctx.db, key, name, ctx.now) {
            ctx.say_member(key);
            ctx.say_redated(redated);
            ctx.keyspace.effects.dirty += 1;
            added += 1;
        }
    }
    added
}

fn add_here(ctx: &mut Ctx, request: Request) -> Result {
    check_places(ctx, request, is_mine)?;
    let added = add(ctx, request, is_mine);
    ctx.reply.int(added);
    Ok(())
}

/// Whether there is room for all of them is asked on all shards before any of them joins.
async fn add_across(across: Across) -> Result<Vec<u8>> {
    let request = Arc::new(across.request.clone());
    let keys = across.keys;
    let shards = across.shards_of(keys.indexes(request.as_request()).map(|index| request.as_request().arg(index)));
    let of_check = request.clone();
    let check = move |ctx: &mut Ctx, shard: usize| {
        let hasher = ctx.keyspace.hasher().clone();
        check_places(ctx, of_check.as_request(), |key| hasher.shard_of(key) == shard)
    };
    for checked in across.on_all(&shards, check).await {
        checked?;
    }
    let join = move |ctx: &mut Ctx, shard: usize| {
        let hasher = ctx.keyspace.hasher().clone();
        add(ctx, request.as_request(), |key| hasher.shard_of(key) == shard)
    };
    let added: i64 = across.on_all(&shards, join).await.into_iter().sum();
    Ok(across.reply(|reply| reply.int(added)))
}

fn remove(ctx: &mut Ctx, request: Request) -> Result {
    ctx.propagate_nothing();
    let mut removed = 0;
    for bytes in request.from(FIRST_KEY) {
        let key = ctx.other_key(bytes);
        if ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch).is_none() {
            continue;
        }
        if let Some(redated) = ctx.keyspace.leave_group(ctx.db, key, request.arg(NAME), ctx.now) {
            ctx.say_member(key);
            ctx.say_redated(redated);
            // Its policy may want it to have a deadline, now that it has none of a group.
            ctx.apply_policy(key);
            ctx.keyspace.effects.dirty += 1;
            removed += 1;
        }
    }
    ctx.reply.int(removed);
    Ok(())
}

fn members(ctx: &mut Ctx, request: Request) -> Result {
    for key in ctx.keyspace.group_members(ctx.db, request.arg(NAME), ctx.now) {
        ctx.reply.bulk(&key);
        ctx.end_item();
    }
    Ok(())
}

fn groups_of(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(NAME));
    let lives = ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch).is_some();
    let groups = ctx.keyspace.membership(ctx.db, key.bytes).filter(|_| lives).unwrap_or_default().groups;
    ctx.reply.array(groups.len());
    groups.iter().for_each(|(name, _)| ctx.reply.bulk(name));
    Ok(())
}

/// Where a group has a deadline all shards know of it; where it has none, those that have members.
async fn ttl(across: Across, unit_ms: u64) -> Result<Vec<u8>> {
    let name = across.request.as_request().arg(NAME).to_vec();
    let shards: Vec<usize> = (0..across.hop.shards()).collect();
    let look = move |ctx: &mut Ctx, _: usize| {
        let span = ctx.keyspace.group_span(ctx.db, &name, ctx.now)?;
        Some(span.deadline_ms.map(|deadline_ms| deadline_ms.saturating_sub(ctx.now.ms)))
    };
    let left = across.on_all(&shards, look).await.into_iter().flatten().max();
    let answer = match left {
        None => -2,
        Some(None) => -1,
        Some(Some(left_ms)) => (left_ms.saturating_add(unit_ms / 2) / unit_ms) as i64,
    };
    Ok(across.reply(|reply| reply.int(answer)))
}

fn expire(ctx: &mut Ctx, request: Request) -> Result {
    let life_ms = request.duration(FIRST_KEY)?;
    let is_sliding = match request.len() {
        5 => false,
        6 if request.is(5, "sliding") => true,
        _ => return Err(Error::Syntax),
    };
    let now = ctx.present();
    ctx.keyspace.end_groups(ctx.db, now);
    // (All shards look at the same moment, whatever becomes of the wall clock meanwhile.)
    let epoch = now.ms.max(1);
    let deadline_ms = Some(now.ms.saturating_add(life_ms));
    let span = Span { epoch, deadline_ms, life_ms, is_sliding, ..Span::default() };
    let name = request.arg(NAME);
    let (span, redated) = ctx.keyspace.date_group(ctx.db, name, span, now);
    ctx.say_group(name, &span, redated);
    let members = ctx.keyspace.group_members(ctx.db, name, now).len();
    ctx.reply.int(members as i64);
    Ok(())
}

/// The stream with this name, for deaths of groups.
fn death_stream(name: &[u8], max_len: Option<u64>) -> Result<Arc<DeathStream>> {
    let name =
        std::str::from_utf8(name).map_err(|_| Error::err("the name of a stream of deaths must be text in UTF-8"))?;
    Ok(Arc::new(DeathStream { key: name.into(), with_value: false, max_len }))
}

fn events(ctx: &mut Ctx, request: Request) -> Result {
    let to = match request.len() {
        5 if request.is(FIRST_KEY, "none") => None,
        5 => Some(death_stream(request.arg(FIRST_KEY), None)?),
        7 if request.is(5, "maxlen") && !request.is(FIRST_KEY, "none") => {
            let max_len = u64::try_from(request.int(6)?).ok().filter(|most| *most > 0);
            let max_len = max_len.ok_or(Error::err("MAXLEN must be greater than zero"))?;
            Some(death_stream(request.arg(FIRST_KEY), Some(max_len))?)
        }
        _ => return Err(Error::Syntax),
    };
    ctx.propagate_nothing();
    let (name, now) = (request.arg(NAME), ctx.present());
    ctx.keyspace.end_groups(ctx.db, now);
    if let Some(span) = ctx.keyspace.set_group_stream(ctx.db, name, to, now.ms.max(1), now) {
        ctx.say_group(name, &span, Vec::new());
    }
    ctx.reply.ok();
    Ok(())
}

fn persist(ctx: &mut Ctx, request: Request) -> Result {
    let (name, now) = (request.arg(NAME), ctx.present());
    ctx.propagate_nothing();
    let persisted = ctx.keyspace.persist_group(ctx.db, name, now);
    ctx.reply.int(persisted.is_some().into());
    if let Some((span, redated)) = persisted {
        ctx.say_group(name, &span, redated);
    }
    Ok(())
}

fn touch(ctx: &mut Ctx, request: Request) -> Result {
    let name = request.arg(NAME);
    let members = match ctx.renew_group(name, false) {
        true => ctx.keyspace.group_members(ctx.db, name, ctx.now).len(),
        false => 0,
    };
    ctx.reply.int(members as i64);
    Ok(())
}

fn kill(ctx: &mut Ctx, request: Request) -> Result {
    let name = request.arg(NAME);
    ctx.propagate_nothing();
    let Some(span) = ctx.keyspace.group_span(ctx.db, name, ctx.now) else {
        ctx.reply.int(0);
        return Ok(());
    };
    let mut killed: Vec<GroupName> = ctx.keyspace.group_members(ctx.db, name, ctx.now);
    killed.retain(|bytes| {
        let key = ctx.other_key(bytes);
        let was_there = ctx.keyspace.remove(ctx.db, key, ctx.now);
        if was_there {
            ctx.commit(key, Event::Del);
        }
        was_there
    });
    for keys in killed.chunks(DELETED_TOGETHER) {
        let args: Vec<&[u8]> = std::iter::once(&b"DEL"[..]).chain(keys.iter().map(|key| &**key)).collect();
        ctx.propagate(&args);
    }
    if span.to.is_some() {
        let now = ctx.present();
        if let Some(span) = ctx.keyspace.kill_group(ctx.db, name, killed.len() as u64, now) {
            ctx.say_group(name, &span, Vec::new());
        }
    } else {
        ctx.keyspace.forget_group(ctx.db, name);
        if span.deadline_ms.is_some() {
            ctx.say_group(name, &Span::default(), Vec::new());
        }
    }
    ctx.reply.int(killed.len() as i64);
    Ok(())
}

async fn list(across: Across) -> Result<Vec<u8>> {
    let shards: Vec<usize> = (0..across.hop.shards()).collect();
    let look = |ctx: &mut Ctx, _: usize| {
        ctx.keyspace.end_groups(ctx.db, ctx.now);
        ctx.keyspace.group_names(ctx.db, ctx.now)
    };
    let names: BTreeSet<GroupName> = across.on_all(&shards, look).await.into_iter().flatten().collect();
    check_gathered(names.iter().map(|name| name.len()).sum(), &across.limits)?;
    Ok(across.reply(|reply| {
        reply.array(names.len());
        names.iter().for_each(|name| reply.bulk(name));
    }))
}

impl Ctx<'_> {
    /// Lets the life of a group begin anew, as [`crate::keyspace::Keyspace::renew_group`] says; whether it does.
    pub fn renew_group(&mut self, name: &[u8], only_due: bool) -> bool {
        self.propagate_nothing();
        let renewed = self.keyspace.renew_group(self.db, name, only_due, self.now);
        let Some((span, redated)) = renewed else { return false };
        self.say_group(name, &span, redated);
        true
    }

    /// The death of a group stands in its stream: how it lived, and how many members it had here. None where it is not known.
    pub fn settle_death(&mut self, name: &[u8], epoch: u64) -> Option<(Span, u64)> {
        self.propagate_nothing();
        let settled = self.keyspace.settle_death(self.db, name, epoch);
        self.keyspace.effects.dirty += 1;
        // All shards say the same.
        if self.is_journaled() {
            let command = told_command(self.db, name, epoch);
            self.keyspace.effects.said.say(Command { is_whole: true, ..command });
        }
        settled
    }

    fn say_member(&mut self, key: Key) {
        if self.is_journaled() {
            let found = self.keyspace.find(self.db, key, self.now, Touch::NOTHING);
            let deadline_ms = found.and_then(|live| live.deadline_ms());
            // (A key that is in no group has its own deadline.)
            let alone = || Membership { own_ms: deadline_ms, groups: Vec::new() };
            let said = self.keyspace.membership(self.db, key.bytes).unwrap_or_else(alone);
            let command = own_command(self.db, key.bytes, &said, |ms| self.clock.to_log_ms(ms));
            self.keyspace.effects.said.say(command);
        }
    }

    fn say_redated(&mut self, redated: Option<Redated>) {
        let Some(Redated { key, deadline_ms }) = redated else { return };
        match deadline_ms {
            Some(deadline_ms) => self.propagate_at(&[b"PEXPIREAT", &key], deadline_ms),
            None => self.propagate(&[b"PERSIST", &key]),
        }
    }

    /// All shards say the same of the group, and each what has become of its members.
    fn say_group(&mut self, name: &[u8], span: &Span, redated: Vec<Redated>) {
        self.keyspace.effects.dirty += 1;
        if self.is_journaled() {
            let command = date_command(self.db, name, span, |ms| self.clock.to_log_ms(ms));
            self.keyspace.effects.said.say(Command { is_whole: true, ..command });
        }
        redated.into_iter().for_each(|redated| self.say_redated(Some(redated)));
    }
}
