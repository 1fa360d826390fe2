//! A connection's turn: what a request works with, and may change of its connection.

use super::rights;
use crate::acl::Denied;
use crate::acl::log::Context;
use crate::clock::realtime_us;
use crate::command::CommandId;
use crate::command::spec::flag::SKIP_SLOWLOG;
use crate::resp::{Error, Reply, Request};
use crate::server::admit::{Admission, Asked, Conditions, Flags, Gate, Standing, admit};
use crate::server::client::replies::Replies;
use crate::server::client::session::{Close, ReplyMode, Session};
use crate::server::client::{ClientRef, Flow};
use crate::server::state::slowlog::{Entry, SlowLog};
use crate::server::state::{Command, Run, Server};
use crate::shard::At;
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// What has become of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is answered, or on its way.
    Taken,
    /// It stays in the input: something before it, or a pause, is in its way.
    NotYet,
}

pub struct Turn<'a> {
    pub server: &'a Rc<Server>,
    pub client: &'a ClientRef,
    pub session: &'a mut Session,
    pub replies: &'a mut Replies,
    pub flow: &'a mut Flow,
    pub conditions: Conditions,
    /// Replies of different shards are not asked for at the same time (`pipeline-order strict`).
    pub strict: bool,
}

impl Turn<'_> {
    /// Writes a reply that is there at once, unless it is muted.
    pub fn reply(&mut self, muted: bool, write: impl FnOnce(&mut Reply)) {
        let proto = self.session.proto;
        self.replies.write(|out| {
            if !muted {
                write(&mut Reply::new(out, proto));
            }
        });
    }

    /// A command has run, and answers an error.
    pub fn fail(&mut self, command: CommandId, error: Error) -> Progress {
        let meter = &self.server.shard.meter;
        meter.note(command);
        meter.failed(command, &error.to_bytes());
        let muted = self.take_muted();
        self.reply(muted, |reply| reply.error(error));
        Progress::Taken
    }

    /// Whether the command that runs now is not to be answered.
    pub fn take_muted(&mut self) -> bool {
        match self.session.reply_mode {
            ReplyMode::On => false,
            ReplyMode::Off => true,
            ReplyMode::SkipNext | ReplyMode::Skipped => {
                self.session.reply_mode = ReplyMode::On;
                true
            }
        }
    }

    /// Whether a transaction may start, or (with `false`) a command on one shard: those of the same kind keep their
    /// order among themselves, others wait until everything before them is answered.
    #[inline]
    pub fn may_start(&mut self, transaction: bool) -> bool {
        if self.replies.is_idle() {
            self.flow.transactions = transaction;
        }
        self.flow.transactions == transaction
    }

    /// Whether strict order wants what is open to be answered first.
    #[inline]
    pub fn strict_order_forbids(&self, target: usize) -> bool {
        self.strict && !self.replies.is_idle() && self.flow.last_target != target
    }

    /// The request waits until less is on its way to other shards.
    pub fn wait_for_room(&self) -> Progress {
        self.server.go_on_later(self.client);
        Progress::NotYet
    }

    /// The request waits until less is to be written to the log.
    pub fn wait_for_log(&self) -> Progress {
        self.server.go_on_with_log(self.client);
        Progress::NotYet
    }

    /// The request waits until CLIENT PAUSE is over.
    pub fn pause(&mut self) -> Progress {
        self.flow.paused = true;
        if self.flow.finished {
            self.flow.close = Close::AfterReplies;
        }
        self.server.wait_for_unpause(self.client);
        Progress::NotYet
    }

    /// To be called when a command has changed what the connection may do.
    pub fn set_gate(&mut self) {
        self.session.gate = Gate::of(self.session.standing(), &self.conditions);
    }

    /// What becomes of a command under conditions, with flags of its own, or of those that EXEC runs.
    ///
    /// The request is none for EXEC: its user was asked about each command, and will be again.
    pub fn admit(
        &self,
        command: &Command,
        request: Option<Request>,
        flags: Flags,
        conditions: Conditions,
    ) -> Admission {
        let standing = self.session.standing();
        admit(&Asked {
            full_name: command.full_name,
            flags,
            standing: Standing { is_restricted: standing.is_restricted && request.is_some(), ..standing },
            conditions,
            log_trouble: &|| self.server.global.log.failure(),
            denied: &|| self.denied(command, request?),
        })
    }

    /// Whether nothing but the user may be in the way of a request, and the user may run the request. Whoever may not is asked
    /// again, with the other conditions, to be told why.
    #[inline(never)]
    pub fn is_allowed(&self, command: &Command, request: Request) -> bool {
        if !self.session.gate.admits_but_for_user(command.spec.flags) || !matches!(command.run, Run::Data(_)) {
            return false;
        }
        rights::restricted(self.session).is_some_and(|user| {
            let vocabulary = &self.server.global.users.vocabulary;
            user.check(vocabulary, command.id, request).is_ok()
                && user.check_patterns(vocabulary, command.id, request).is_ok()
        })
    }

    fn denied(&self, command: &Command, request: Request) -> Option<Denied> {
        let user = rights::restricted(self.session)?;
        let context = if self.session.multi.is_some() { Context::Multi } else { Context::TopLevel };
        rights::denied(self.server, (self.session.peer.id, user), context, command, request)
    }

    /// In which place a command of this connection runs.
    #[inline]
    pub fn at(&self, command: &Command, request: Request) -> At {
        at(command, request, self.session)
    }

    /// A command that was measured alone has run here.
    #[inline(never)]
    pub fn ran(&self, command: CommandId, request: Request, ns: u64) {
        let meter = &self.server.shard.meter;
        meter.ran(command, ns);
        if meter.is_slow(ns) {
            log_slow(self.server, self.session, command, ns, SlowLog::args(self.server.secrets(command), request));
        }
    }
}

/// In which place a command of a connection runs.
#[inline]
pub fn at(command: &Command, request: Request, session: &Session) -> At {
    At {
        db: session.db,
        proto: session.proto,
        touch: command.touch(session.no_touch),
        hash: 0,
        command: command.id,
        write: command.writes,
        is_quick: command.is_quick(request.len()),
        is_told: session.is_primary,
        is_script: matches!(command.run, Run::Script(_)),
        in_script: false,
        tracker: session.tracker,
    }
}

/// Puts a command into the slow log. Without its arguments, which a part of a transaction may have left behind, it is
/// there under its name.
pub fn log_slow(server: &Server, session: &Session, command: CommandId, ns: u64, mut args: Vec<Vec<u8>>) {
    let command = server.table.get(command);
    if command.spec.has(SKIP_SLOWLOG) {
        return;
    }
    if args.is_empty() {
        args = command.full_name.split('|').map(|word| word.as_bytes().to_vec()).collect();
    }
    let entry = Entry {
        id: server.global.slow_commands.fetch_add(1, Ordering::Relaxed),
        time_s: realtime_us() / 1_000_000,
        took_us: ns / 1_000,
        args,
        addr: session.peer.addr.clone(),
        name: session.name.clone(),
    };
    server.slowlog.borrow_mut().push(entry, server.shard.config().slowlog_max_len);
}
