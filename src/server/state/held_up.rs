//! The connections of a shard whose next request has a script in its way: they are looked at again and again.

use crate::net::{Notify, sleep};
use crate::server::client::ClientRef;
use crate::shard::HELD_FOR;
use std::cell::RefCell;
use std::time::Duration;

/// Of a shard's time they take one part in so many: there may be thousands of them, or one whose request names a million keys.
const PARTS: u32 = 8;

#[derive(Default)]
pub struct HeldUp {
    clients: RefCell<Vec<ClientRef>>,
    alarm: Notify,
}

impl HeldUp {
    pub fn add(&self, client: &ClientRef) {
        self.clients.borrow_mut().push(client.clone());
        self.alarm.notify();
    }

    /// Those that are to be looked at, when it is time; `took` is how long it took the last time.
    pub async fn next(&self, took: Duration) -> Vec<ClientRef> {
        self.alarm.wait().await;
        sleep(HELD_FOR.max(took * (PARTS - 1))).await;
        self.clients.take()
    }
}
