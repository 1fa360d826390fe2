//! What a command has handed to a consumer of a group, as the journal is told of it: XREADGROUP, XCLAIM and XAUTOCLAIM
//! depend on the time and on what was pending.

use super::super::Ctx;
use crate::keyspace::Key;
use crate::value::stream::{Group, Id, Pending};

#[derive(Default)]
pub struct Handed {
    /// Whether anybody wants to know.
    wanted: bool,
    /// The consumer is new.
    pub created: bool,
    given: Vec<(Id, Pending)>,
    /// No longer pending, since the entries are gone.
    forgotten: Vec<Id>,
    /// Where the group stands now, if it has moved.
    position: Option<(Id, Option<i64>)>,
}

impl Handed {
    pub fn of(wanted: bool) -> Handed {
        Handed { wanted, ..Handed::default() }
    }

    pub fn give(&mut self, id: Id, pending: Pending) {
        if self.wanted {
            self.given.push((id, pending));
        }
    }

    pub fn forget(&mut self, id: Id) {
        if self.wanted {
            self.forgotten.push(id);
        }
    }

    pub fn has_moved(&mut self, group: &Group) {
        self.position = Some((group.last_delivered(), group.entries_read()));
    }

    /// Says it. What was delivered together in the same way is one command.
    pub fn propagate(self, ctx: &mut Ctx, key: Key, group: &[u8], consumer: &[u8]) {
        if !self.wanted {
            return;
        }
        ctx.propagate_nothing();
        if self.created {
            ctx.propagate(&[b"XGROUP", b"CREATECONSUMER", key.bytes, group, consumer]);
        }
        let same = |a: &(Id, Pending), b: &(Id, Pending)| {
            (a.1.delivered_ms, a.1.deliveries) == (b.1.delivered_ms, b.1.deliveries)
        };
        for given in self.given.chunk_by(same) {
            let Pending { delivered_ms, deliveries, .. } = given[0].1;
            let ids: Vec<String> = given.iter().map(|(id, _)| id.to_string()).collect();
            let time = ctx.clock.signed_to_log_ms(delivered_ms).to_string();
            let retries = (deliveries as i64).to_string();
            let head: [&[u8]; 5] = [b"XCLAIM", key.bytes, group, consumer, b"0"];
            let tail: [&[u8]; 6] = [b"TIME", time.as_bytes(), b"RETRYCOUNT", retries.as_bytes(), b"FORCE", b"JUSTID"];
            let args: Vec<&[u8]> = head.into_iter().chain(ids.iter().map(String::as_bytes)).chain(tail).collect();
            ctx.propagate(&args);
        }
        if !self.forgotten.is_empty() {
            let ids: Vec<String> = self.forgotten.iter().map(Id::to_string).collect();
            let head: [&[u8]; 3] = [b"XACK", key.bytes, group];
            let args: Vec<&[u8]> = head.into_iter().chain(ids.iter().map(String::as_bytes)).collect();
            ctx.propagate(&args);
        }
        if let Some((last, entries_read)) = self.position {
            let (last, read) = (last.to_string(), entries_read.unwrap_or(-1));
            let head: [&[u8]; 6] = [b"XGROUP", b"SETID", key.bytes, group, last.as_bytes(), b"ENTRIESREAD"];
            ctx.propagate_with(&head, read);
        }
    }
}
