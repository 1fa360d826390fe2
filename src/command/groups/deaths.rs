//! The streams to which deaths of groups are written: one entry a group, in the moment in which a group is killed, or a little
//! after its deadline (`shard/groups.rs`).

use super::{NAME, row, spec};
use crate::clock::Clock;
use crate::command::deaths::APPEND;
use crate::command::spec::flag::{DENY_OOM, NO_SCRIPT, WRITE};
use crate::command::spec::{Keys, Row, Spec};
use crate::command::{Across, Ctx, OwnedRequest, Run};
use crate::keyspace::{Counted, Event, EventStream, GroupName};
use crate::observe::log;
use crate::resp::{Error, Request, Result};
use std::sync::Arc;

pub const EVENTS: Row<Run> = row(
    Spec {
        summary: "Has the death of a group written to a stream, or, where none is named, to none; counts the members.",
        syntax: "group [events:(stream [MAXLEN maxlen:integer])]",
        keys: Keys::GROUP_AND_STREAM,
        ..spec("group-events", -4, WRITE | DENY_OOM | NO_SCRIPT, "O(n) in the number of members")
    },
    Run::Coordinated(|across| Box::pin(events(across))),
);

pub const KILL: Row<Run> = row(
    Spec {
        summary: "Deletes a group and all its members in one moment, and counts them.",
        syntax: "group",
        ..spec("group-kill", 4, WRITE | NO_SCRIPT, "O(n) in the number of members and their elements")
    },
    Run::Coordinated(|across| Box::pin(kill(across))),
);

/// A command deletes no more keys than this.
const DELETED_TOGETHER: usize = 64;
/// Where the name of the stream stands.
const STREAM: usize = 4;

/// How a group has died.
pub enum End<'a> {
    /// Its deadline has passed so many microseconds ago.
    Expired(&'a Counted, u64),
    /// So many members were deleted.
    Killed(u64),
}

/// The request that writes the death of a group to its stream.
pub fn death_entry(to: &EventStream, name: &[u8], end: &End, clock: &Clock) -> OwnedRequest {
    let mut request = OwnedRequest::default();
    let mut push = |args: &[&[u8]]| args.iter().for_each(|arg| request.push(arg));
    push(&[b"XADD", &to.key]);
    if let Some(max_len) = to.max_len {
        push(&[b"MAXLEN", b"~", max_len.to_string().as_bytes()]);
    }
    push(&[b"*", b"group", name, b"cause"]);
    match end {
        End::Expired(Counted { members, deadline_ms, .. }, lag_us) => {
            let deadline_ms = clock.to_wall_ms(*deadline_ms).to_string();
            let lag_ms = format!("{}.{:03}", lag_us / 1000, lag_us % 1000);
            push(&[b"expired", b"members", members.to_string().as_bytes()]);
            push(&[b"deadline", deadline_ms.as_bytes(), b"lag", lag_ms.as_bytes()]);
        }
        End::Killed(members) => push(&[b"killed", b"members", members.to_string().as_bytes()]),
    }
    request
}

fn parse(request: Request) -> Result<Option<Arc<EventStream>>> {
    let max_len = match request.len() {
        4 => return Ok(None),
        5 => None,
        7 if request.is(5, "maxlen") => {
            Some(u64::try_from(request.int(6)?).map_err(|_| Error::err("MAXLEN must not be negative"))?)
        }
        _ => return Err(Error::Syntax),
    };
    match request.arg(STREAM) {
        b"" => Err(Error::err("the name of the stream is empty")),
        key => Ok(Some(Arc::new(EventStream { key: key.into(), max_len }))),
    }
}

/// A group that has a stream is known on all shards, wherever its members are.
async fn events(across: Across) -> Result<Vec<u8>> {
    let request = across.request.as_request();
    let (to, name) = (parse(request)?, GroupName::from(request.arg(NAME)));
    let shards: Vec<usize> = (0..across.hop.shards()).collect();
    let of_look = name.clone();
    let look = move |ctx: &mut Ctx, _: usize| {
        let span = ctx.keyspace.group_span(ctx.db, &of_look, ctx.now)?;
        Some((ctx.keyspace.group_members(ctx.db, &of_look, ctx.now).len(), span))
    };
    let found: Vec<_> = across.on_all(&shards, look).await.into_iter().flatten().collect();
    if !found.is_empty() {
        let set = move |ctx: &mut Ctx, _: usize| ctx.set_group_stream(&name, to);
        across.on_all(&shards, set).await;
    }
    let members: usize = found.iter().map(|(members, _)| members).sum();
    Ok(across.reply(|reply| reply.int(members as i64)))
}

async fn kill(across: Across) -> Result<Vec<u8>> {
    let name = GroupName::from(across.request.as_request().arg(NAME));
    let shards: Vec<usize> = (0..across.hop.shards()).collect();
    let of_kill = name.clone();
    let killed = across.on_all(&shards, move |ctx: &mut Ctx, _| ctx.kill_group(&of_kill)).await;
    let members: u64 = killed.iter().flatten().map(|(members, _)| members).sum();
    // (Where it has no deadline, shards on which it has no members need not know of it.)
    let to = killed.into_iter().flatten().find_map(|(_, to)| to);
    if let Some(to) = to {
        let target = across.shard_of(&to.key);
        let append = move |ctx: &mut Ctx| {
            let entry = death_entry(&to, &name, &End::Killed(members), ctx.clock);
            ctx.append_group_death(&entry);
        };
        across.on(target, append).await;
    }
    Ok(across.reply(|reply| reply.int(members as i64)))
}

/// EVENTS and KILL where there is one shard.
#[cfg(test)]
pub fn on_one_shard(ctx: &mut Ctx, request: Request) -> Result {
    let name = GroupName::from(request.arg(NAME));
    let members = match request.arg(2) {
        b"kill" => {
            let killed = ctx.kill_group(&name);
            let members = killed.as_ref().map_or(0, |(members, _)| *members);
            if let Some((_, Some(to))) = killed {
                let entry = death_entry(&to, &name, &End::Killed(members), ctx.clock);
                let reply_bytes = ctx.reply.len();
                ctx.append_group_death(&entry);
                ctx.reply.truncate(reply_bytes);
            }
            members
        }
        _ => {
            let to = parse(request)?;
            let members = ctx.keyspace.group_members(ctx.db, &name, ctx.now).len() as u64;
            if ctx.keyspace.group_span(ctx.db, &name, ctx.now).is_some() {
                ctx.set_group_stream(&name, to);
            }
            members
        }
    };
    ctx.reply.int(members as i64);
    Ok(())
}

impl Ctx<'_> {
    /// The death of a group is written to this stream, or to none, which all shards say.
    fn set_group_stream(&mut self, name: &[u8], to: Option<Arc<EventStream>>) {
        self.propagate_nothing();
        self.keyspace.end_groups(self.db, self.now);
        let span = self.keyspace.set_group_stream(self.db, name, to, self.now);
        self.say_group(name, span, Vec::new());
    }

    /// Deletes the members of a group that are here, and the group; how many they were, and where its death is to be written.
    fn kill_group(&mut self, name: &[u8]) -> Option<(u64, Option<Arc<EventStream>>)> {
        self.propagate_nothing();
        self.keyspace.forget_stale_of_group(self.db, name, self.now);
        let to = self.keyspace.group_stream(self.db, name, self.now);
        let span = self.keyspace.group_span(self.db, name, self.now);
        let is_known_everywhere = span.is_some_and(|span| span.deadline_ms.is_some()) || to.is_some();
        if span.is_none() && to.is_none() {
            return None;
        }
        let mut killed: Vec<GroupName> = self.keyspace.group_members(self.db, name, self.now);
        killed.retain(|bytes| {
            let key = self.other_key(bytes);
            let was_there = self.keyspace.remove(self.db, key, self.now);
            if was_there {
                self.commit(key, Event::Del);
            }
            was_there
        });
        for keys in killed.chunks(DELETED_TOGETHER) {
            let args: Vec<&[u8]> = std::iter::once(&b"DEL"[..]).chain(keys.iter().map(|key| &**key)).collect();
            self.propagate(&args);
        }
        self.keyspace.forget_group(self.db, name);
        if is_known_everywhere {
            self.say_end_of_group(name);
        }
        span.map(|_| (killed.len() as u64, to))
    }

    /// A group without a deadline has lost its last member.
    pub fn forget_group(&mut self, name: &[u8]) {
        self.propagate_nothing();
        self.keyspace.forget_group(self.db, name);
        self.say_end_of_group(name);
    }

    /// Appends an entry to a stream of this shard, which is no client's write: nothing is asked of policies.
    pub fn append_group_death(&mut self, entry: &OwnedRequest) {
        let request = entry.as_request();
        self.hash = self.keyspace.hasher().hash(request.arg(1));
        match APPEND(self, request) {
            Ok(()) => self.keyspace.counters.deaths_written += 1,
            Err(error) => {
                self.keyspace.counters.deaths_lost += 1;
                log::warning(format_args!("the death of a group could not be written to its stream: {error}"));
            }
        }
    }
}
