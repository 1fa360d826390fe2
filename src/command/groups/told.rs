//! What the log, a primary or a snapshot says of groups is taken in.

use super::{NAME, death_stream, in_too_many, row, spec};
use crate::command::grouped::{KILLED, NEVER};
use crate::command::spec::flag::{ADMIN, NO_SCRIPT, NO_TOUCH, WRITE};
use crate::command::spec::{Keys, Row, Spec};
use crate::command::{Ctx, Merge, Run};
use crate::config::DeathStream;
use crate::keyspace::{GROUPS_A_KEY_MAX, GroupName, Membership, Span};
use crate::resp::{Error, Request, Result};
use crate::value::number::parse_i64;
use std::sync::Arc;

pub const OWN: Row<Run> = row(
    Spec {
        summary: "Says in which groups a key is, and which deadline it would have without them. For replicas and the log.",
        syntax: "key own-deadline:unix-time [group_epoch:(group epoch:integer)...]",
        keys: Keys::THIRD,
        ..spec("group-own", -5, WRITE | ADMIN | NO_SCRIPT | NO_TOUCH, "O(n) in the number of groups")
    },
    Run::Key(own),
)
.for_the_system();

pub const DATE: Row<Run> = row(
    Spec {
        summary: "Says how long a group lives, or that it is no more. For replicas and the log.",
        syntax: "group epoch:integer deadline:unix-time life:integer is-sliding:integer [stream:(stream:string \
                 maxlen:integer [KILLED])]",
        ..spec("group-date", -8, WRITE | ADMIN | NO_SCRIPT, "O(n) in the number of members")
    },
    Run::Everywhere(date, Merge::Ok),
)
.for_the_system();

pub const TOLD: Row<Run> = row(
    Spec {
        summary: "Says that the death of a group stands in its stream. For replicas and the log.",
        syntax: "group epoch:integer",
        ..spec("group-told", 5, WRITE | ADMIN | NO_SCRIPT, "O(n) in the number of members that are not deleted")
    },
    Run::Everywhere(told, Merge::Ok),
)
.for_the_system();

/// A moment that another server or the log says.
fn moment_ms(ctx: &Ctx, request: Request, index: usize) -> Result<Option<u64>> {
    let wall_ms = request.int(index)?;
    Ok((wall_ms != NEVER).then(|| ctx.clock.to_store_ms(wall_ms)))
}

fn whole(request: Request, index: usize) -> Result<u64> {
    parse_i64(request.arg(index)).and_then(|number| number.try_into().ok()).ok_or(Error::NotAnInteger)
}

fn own(ctx: &mut Ctx, request: Request) -> Result {
    if request.len().is_multiple_of(2) {
        return Err(Error::Syntax);
    }
    let own_ms = moment_ms(ctx, request, 4)?;
    let pair = |index: usize| Ok((GroupName::from(request.arg(index)), whole(request, index + 1)?));
    let groups: Vec<(GroupName, u64)> = (5..request.len()).step_by(2).map(pair).collect::<Result<_>>()?;
    if groups.len() > GROUPS_A_KEY_MAX {
        return Err(in_too_many());
    }
    ctx.propagate_nothing();
    let key = ctx.other_key(request.arg(NAME));
    // (What is not there is in no group: it has died by now.)
    if ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch).is_some() {
        let redated = ctx.keyspace.recall_membership(ctx.db, key, &Membership { own_ms, groups }, ctx.now);
        ctx.say_member(key);
        ctx.say_redated(redated);
        ctx.keyspace.effects.dirty += 1;
    }
    ctx.reply.ok();
    Ok(())
}

fn date(ctx: &mut Ctx, request: Request) -> Result {
    let (epoch, deadline_ms) = (whole(request, 4)?, moment_ms(ctx, request, 5)?);
    let (life_ms, is_sliding) = (whole(request, 6)?, whole(request, 7)? != 0);
    let (to, is_killed) = match request.len() {
        8 => (None, false),
        10 => (Some(stream(request)?), false),
        11 if request.is(10, KILLED) => (Some(stream(request)?), true),
        _ => return Err(Error::Syntax),
    };
    // (One that has neither a deadline nor a stream any more is told with its epoch; without, one that is no more.)
    if epoch == 0 && (deadline_ms.is_some() || to.is_some()) || is_killed && deadline_ms.is_none() {
        return Err(Error::Syntax);
    }
    let (name, span) = (request.arg(NAME), Span { epoch, deadline_ms, life_ms, is_sliding, to, is_killed });
    let redated = ctx.keyspace.recall_group(ctx.db, name, span.clone(), ctx.now);
    ctx.say_group(name, &span, redated);
    ctx.reply.ok();
    Ok(())
}

fn stream(request: Request) -> Result<Arc<DeathStream>> {
    let max_len = Some(whole(request, 9)?).filter(|most| *most > 0);
    death_stream(request.arg(8), max_len)
}

fn told(ctx: &mut Ctx, request: Request) -> Result {
    let epoch = whole(request, 4)?;
    ctx.settle_death(request.arg(NAME), epoch);
    ctx.reply.ok();
    Ok(())
}

/// Takes in what a snapshot says of a group or of a member: one of the two commands.
pub fn recall(ctx: &mut Ctx, request: Request) -> Result {
    match () {
        () if request.is(2, "own") && OWN.spec.accepts(request.len()) => own(ctx, request),
        () if request.is(2, "date") && DATE.spec.accepts(request.len()) => date(ctx, request),
        () => Err(Error::Syntax),
    }
}
