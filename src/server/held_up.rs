//! The connections of a shard whose next request has a script in its way: they are looked at again and again.

use super::client::ClientRef;
use crate::net::{Notify, sleep};
use crate::shard::HELD_FOR;
use std::cell::RefCell;

/// For each so many they are looked at [`HELD_FOR`] later.
const LOOKED_AT_ONCE: usize = 64;

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

    /// Those that are to be looked at, when it is time.
    pub async fn next(&self) -> Vec<ClientRef> {
        self.alarm.wait().await;
        let count = self.clients.borrow().len();
        sleep(HELD_FOR * (1 + count / LOOKED_AT_ONCE) as u32).await;
        self.clients.take()
    }
}
