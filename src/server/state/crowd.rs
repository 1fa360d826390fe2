//! The connections of a shard whose next request changes something, while more waits to be written to the log than may: they go
//! on when the disk has taken some of that, or when it is given up and writes are refused.

use crate::net::{Notify, sleep};
use crate::persist::aof::log::Log;
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

    /// Those that wait, as soon as they need not.
    pub async fn next(&self, log: &Log) -> Vec<ClientRef> {
        self.alarm.wait().await;
        while is_kept(log) {
            log.look();
            sleep(LOOK_AFTER).await;
        }
        self.clients.take()
    }

    /// These have to wait again, before those that have come since.
    pub fn put_back(&self, mut clients: Vec<ClientRef>) {
        clients.append(&mut self.clients.borrow_mut());
        if !clients.is_empty() {
            self.clients.replace(clients);
            self.alarm.notify();
        }
    }
}

/// Whether anybody is to wait at the moment.
pub fn is_kept(log: &Log) -> bool {
    log.is_crowded() && !log.refuses_writes()
}
