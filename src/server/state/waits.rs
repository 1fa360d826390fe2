//! The connections of one shard that wait for a key.

use crate::acl::Denied;
use crate::command::{CommandId, OwnedRequest};
use crate::net::Notify;
use crate::resp::Error;
use crate::shard::{Claim, News};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// A connection's wait.
#[derive(Default)]
pub struct Blocked {
    pub claim: Arc<Claim>,
    pub news: RefCell<Option<News>>,
    pub end: Cell<Option<End>>,
    /// Whoever set `end` has ended the claim, too.
    pub is_ended: Cell<bool>,
    pub alarm: Notify,
    /// The wait ends by itself.
    pub has_timeout: bool,
    /// What it has asked for.
    pub asked: Option<(CommandId, Arc<OwnedRequest>)>,
}

/// Why a wait ends without an answer to its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As if its time were over.
    Timeout,
    /// With an error.
    Error,
    /// The server is not what it was: with an error, and with the connection.
    NewRole,
    /// Its user may not have any more what it waits for.
    Denied(Denied),
    /// The connection is gone.
    Gone,
}

/// The answer of a command whose wait CLIENT UNBLOCK has ended with an error.
pub const UNBLOCKED: Error = Error::text("UNBLOCKED client unblocked via CLIENT UNBLOCK");
pub const NEW_ROLE: Error =
    Error::text("UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)");

impl Blocked {
    /// Ends the wait, unless somebody is about to serve it: from now on nobody does. Whether it did.
    pub fn finish(&self, end: End) -> bool {
        let is_mine = self.claim.take_back();
        if is_mine {
            self.claim.end();
            self.end.set(Some(end));
            self.is_ended.set(true);
            self.alarm.notify();
        }
        is_mine
    }
}

#[derive(Default)]
pub struct Waits(RefCell<HashMap<u64, Rc<Blocked>>>);

impl Waits {
    pub fn add(&self, client: u64, blocked: Rc<Blocked>) {
        self.0.borrow_mut().insert(client, blocked);
    }

    pub fn remove(&self, client: u64) {
        self.0.borrow_mut().remove(&client);
    }

    /// The connections that wait.
    pub fn clients(&self) -> Vec<u64> {
        self.0.borrow().keys().copied().collect()
    }

    pub fn of(&self, client: u64) -> Option<Rc<Blocked>> {
        self.0.borrow().get(&client).cloned()
    }

    /// Whether a connection waits.
    pub fn has(&self, client: u64) -> bool {
        self.0.borrow().contains_key(&client)
    }

    /// Whether its reply is there, or on the way.
    pub fn is_over(&self, client: u64) -> bool {
        self.of(client).is_none_or(|blocked| blocked.claim.is_over())
    }

    /// How many waits end by themselves.
    pub fn with_timeout(&self) -> usize {
        self.0.borrow().values().filter(|blocked| blocked.has_timeout).count()
    }

    /// Whether its reply may be on the way.
    pub fn is_decided(&self, client: u64) -> bool {
        self.of(client).is_none_or(|blocked| !blocked.claim.is_waiting())
    }

    /// Ends the wait of a connection that is to end, if it waits: nobody serves it any more, but for whoever is about to.
    pub fn withdraw(&self, client: u64) {
        if let Some(blocked) = self.of(client) {
            blocked.claim.withdraw();
            blocked.end.set(Some(End::Gone));
            blocked.alarm.notify();
        }
    }

    /// What has become of a connection's wait.
    pub fn tell(&self, client: u64, claim: &Arc<Claim>, news: News) {
        match self.of(client) {
            Some(blocked) if Arc::ptr_eq(&blocked.claim, claim) => {
                blocked.news.replace(Some(news));
                blocked.alarm.notify();
            }
            // It has ended since: a client can be called in vain, not served.
            _ => debug_assert!(matches!(news, News::Called), "a wait ends with its claim"),
        }
    }
}
