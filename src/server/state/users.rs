//! The users: one set for the process, of which each shard has the newest that it was told of; and what they were refused,
//! on its way to the log of that.

use super::Server;
use crate::acl::log::{Context, Entry, Log, REASONS, Reason};
use crate::acl::{Denied, Users, Vocabulary};
use crate::clock::realtime_us;
use crate::command::CommandId;
use crate::config::Config;
use crate::resp::Request;
use crate::server::client::line::line;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What all shards share.
pub struct KnownUsers {
    pub vocabulary: Arc<Vocabulary>,
    newest: Mutex<Arc<Users>>,
    log: Mutex<Log>,
    /// How often something was refused, by its reason.
    refusals: [AtomicU64; REASONS.len()],
}

impl KnownUsers {
    pub fn new(vocabulary: Vocabulary, users: Users) -> KnownUsers {
        KnownUsers {
            vocabulary: Arc::new(vocabulary),
            newest: Mutex::new(Arc::new(users)),
            log: Mutex::default(),
            refusals: Default::default(),
        }
    }

    pub fn refusals(&self, reason: Reason) -> &AtomicU64 {
        &self.refusals[reason as usize]
    }

    pub fn newest(&self) -> Arc<Users> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the users, unless that fails. The shards are to be told ([`crate::server::told::users`]).
    pub fn change<R, E>(
        &self,
        work: impl FnOnce(&mut Users) -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let mut users = (**newest).clone();
        let done = work(&mut users)?;
        *newest = Arc::new(users);
        Ok(done)
    }

    /// The configuration says from now on of the users what CONFIG REWRITE has to write.
    pub fn declare(&self, config: &Config, users: &Users) {
        let is_in_file = !config.aclfile.is_empty();
        let lines =
            if is_in_file { Vec::new() } else { users.declarations(&self.vocabulary, config.requirepass.as_bytes()) };
        config.users.replace(lines);
    }

    pub fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one shard knows.
pub struct UsersOfShard {
    current: RefCell<Arc<Users>>,
    /// The default user is not for everybody.
    asks_for_password: Cell<bool>,
    /// What was refused in this turn. Its connections are described when the turn is over.
    refused: RefCell<Log>,
    has_refused: Cell<bool>,
}

impl UsersOfShard {
    pub fn new(users: Arc<Users>) -> UsersOfShard {
        let of_shard = UsersOfShard {
            current: RefCell::new(users.clone()),
            asks_for_password: Cell::default(),
            refused: RefCell::default(),
            has_refused: Cell::default(),
        };
        of_shard.set(users);
        of_shard
    }

    pub fn get(&self) -> Arc<Users> {
        self.current.borrow().clone()
    }

    pub fn set(&self, users: Arc<Users>) {
        self.asks_for_password.set(!users.default_user().is_for_everybody());
        self.current.replace(users);
    }

    #[inline]
    pub fn asks_for_password(&self) -> bool {
        self.asks_for_password.get()
    }

    /// Whether something was refused that does not stand in the log yet.
    #[inline]
    pub fn has_refused(&self) -> bool {
        self.has_refused.get()
    }
}

impl Server {
    /// Notes that a request was refused, for the log.
    pub fn note_denied(
        &self,
        (client, user): (u64, &[u8]),
        context: Context,
        denied: Denied,
        (command, request): (CommandId, Request),
    ) {
        let (reason, object) = match denied {
            Denied::Command => (Reason::Command, self.table.get(command).full_name.as_bytes()),
            Denied::Key(index) => (Reason::Key, request.arg(index)),
            Denied::Channel(index) => (Reason::Channel, request.arg(index)),
        };
        self.note_refused(client, user, context, reason, object);
    }

    pub fn note_refused(&self, client: u64, user: &[u8], context: Context, reason: Reason, object: &[u8]) {
        self.global.users.refusals(reason).fetch_add(1, Ordering::Relaxed);
        let entry = Entry::new((client, user), context, (reason, object), realtime_us() / 1_000);
        self.users.refused.borrow_mut().add(entry, self.refusals_kept());
        self.users.has_refused.set(true);
    }

    /// Writes down what was refused. No connection of this shard has its turn.
    #[cold]
    pub fn log_refused(&self) {
        self.users.has_refused.set(false);
        let keep = self.refusals_kept();
        let refused = self.users.refused.borrow_mut().take();
        for entry in refused {
            let client = self.client(entry.client_id);
            let client = client
                .map(|client| line(&client, self.shard.config().redis_version).trim_end().to_owned())
                .unwrap_or_default();
            self.global.users.log().add(Entry { client, ..entry }, keep);
        }
    }

    /// So many entries are kept.
    fn refusals_kept(&self) -> usize {
        usize::try_from(self.shard.config().acllog_max_len).unwrap_or(usize::MAX)
    }
}
