//! Connections of a shard that cannot go on while there is too much of something: of what is on its way to other shards, of what
//! waits to be written to the log. They go on in the order in which they came, as far as what has become free lasts.

use crate::net::{Notify, sleep};
use crate::persist::aof::log::Log;
use crate::resp::{Error, Result};
use crate::server::client::ClientRef;
use std::cell::RefCell;
use std::time::Duration;

/// How often a shard looks whether the disk has taken something.
const LOOK_AFTER: Duration = Duration::from_millis(5);

#[derive(Default)]
pub struct Crowd {
    clients: RefCell<Vec<ClientRef>>,
    alarm: Notify,
}

impl Crowd {
    pub fn add(&self, client: &ClientRef) {
        self.clients.borrow_mut().push(client.clone());
        self.alarm.notify();
    }

    /// Waits until there is a connection that waits.
    pub async fn gathers(&self) {
        self.alarm.wait().await;
    }

    /// Has one connection after the other go on, until too much is there again. Connections without a turn stay in front of
    /// those that have to wait again.
    pub fn let_go_on(&self, go_on: impl Fn(&ClientRef), is_too_much: impl Fn() -> bool) {
        let mut waiting = self.clients.take().into_iter();
        for client in waiting.by_ref() {
            client.unread.set(false);
            go_on(&client);
            if is_too_much() {
                break;
            }
        }
        let mut rest: Vec<ClientRef> = waiting.collect();
        rest.append(&mut self.clients.borrow_mut());
        if !rest.is_empty() {
            self.clients.replace(rest);
            self.alarm.notify();
        }
    }
}

/// Whether whoever changes something is to wait for the log at the moment. (Where the log is given up writes are refused, for
/// which nobody has to wait.)
pub fn must_wait_for(log: &Log) -> bool {
    log.is_crowded() && !log.refuses_writes()
}

/// For a change of what is kept beside the data: it waits as a write does.
///
/// # Errors
/// The disk does not move.
pub async fn admit_change(log: &Log) -> Result {
    relief_of(log).await;
    if log.is_full() {
        return Err(Error::quoting(&[b"MISCONF Errors writing to the AOF file: ", log.failure().as_bytes()]));
    }
    Ok(())
}

/// Waits until the disk has taken some of what is to be written, or the log is given up.
pub async fn relief_of(log: &Log) {
    while must_wait_for(log) {
        log.look();
        sleep(LOOK_AFTER).await;
    }
}
