//! A command that one shard runs: this one, at once; another, as a part of the turn's batch; or this one later, where a
//! transaction holds the key.

use super::turn::{Progress, Turn};
use crate::command::Handler;
use crate::resp::Request;
use crate::shard::{At, LONG_REPLY_BYTES, Part, Space, Ticket};

#[inline]
pub fn run(turn: &mut Turn, handler: Handler, target: usize, at: At, request: Request) -> Progress {
    let shard = &turn.server.shard;
    if !turn.may_start(false) || turn.strict_order_forbids(target) {
        return Progress::NotYet;
    }
    if target != shard.id {
        if shard.is_congested() {
            return turn.wait_for_room();
        }
        send(turn, handler, target, at, request);
        return Progress::Taken;
    }
    if shard.must_wait(&at, request, turn.client.id) {
        // One at a time: all of them could run, and answer, in the moment in which a lock is let go.
        if !turn.replies.is_idle() {
            return Progress::NotYet;
        }
        let ticket = ticket(turn, target, request);
        shard.defer_own_command(handler, request, at, ticket);
        return Progress::Taken;
    }
    if shard.space_for(&at, request) == Space::Soon {
        return turn.wait_for_room();
    }
    let muted = turn.take_muted();
    let (meter, is_quick) = (&shard.meter, shard.is_quick(at));
    if !is_quick {
        meter.begin();
    }
    let out = turn.replies.begin();
    let start = out.len();
    shard.execute_alone(handler, request, at, shard.clock.now(), out, &mut Vec::new());
    let is_long = out.len() - start >= LONG_REPLY_BYTES;
    meter.answered(at.command, &out[start..]);
    if muted {
        out.truncate(start);
    }
    turn.replies.end(start);
    if is_quick && !is_long {
        meter.note(at.command);
    } else {
        turn.ran(at.command, request, meter.end());
    }
    shard.serve_waiters();
    Progress::Taken
}

/// Another shard runs it, behind what it was sent before.
#[inline]
pub fn send(turn: &mut Turn, handler: Handler, target: usize, at: At, request: Request) {
    let ticket = ticket(turn, target, request);
    turn.server.shard.send_part(target, request, Part::new(handler, at, ticket));
}

/// The name of a reply that a shard gives later.
#[inline]
fn ticket(turn: &mut Turn, target: usize, request: Request) -> Ticket {
    let muted = turn.take_muted();
    turn.flow.last_target = target;
    let reply = turn.replies.expect(muted, target, request.bytes());
    Ticket { client: turn.client.id, reply, part: 0 }
}
