//! The connections of a shard whose next request names a password and has to wait, since there were too many wrong ones:
//! each goes on when its time has come.

use crate::clock::store_us;
use crate::net::{Notify, sleep};
use crate::server::client::ClientRef;
use futures_lite::future::or;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Default)]
pub struct Slowed {
    /// By the moment, store microseconds, and the connection's number.
    clients: RefCell<BTreeMap<(u64, u64), ClientRef>>,
    earlier: Notify,
}

impl Slowed {
    pub fn add(&self, client: &ClientRef, until_us: u64) {
        self.clients.borrow_mut().insert((until_us, client.id), client.clone());
        self.earlier.notify();
    }

    /// Those whose time has come, as soon as there are some.
    pub async fn next(&self) -> Vec<ClientRef> {
        loop {
            let now_us = store_us();
            let first_us = self.clients.borrow().first_key_value().map(|((us, _), _)| *us);
            match first_us {
                None => self.earlier.wait().await,
                Some(us) if us > now_us => {
                    or(self.earlier.wait(), sleep(Duration::from_micros(us - now_us))).await;
                }
                Some(_) => {
                    let mut clients = self.clients.borrow_mut();
                    let later = clients.split_off(&(now_us + 1, 0));
                    return std::mem::replace(&mut *clients, later).into_values().collect();
                }
            }
        }
    }
}
