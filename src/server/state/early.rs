//! Replies that are ready while those behind them are on their way from other shards: for a moment they stay, since one send
//! then takes all of them. A pipeline whose keys are on two shards would be answered in two sends otherwise, and the other
//! side woken twice.

use crate::clock::store_us;
use crate::net::{Notify, sleep};
use crate::server::client::{ClientRef, State};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::Duration;

/// The longest that a reply stays: several times what another shard takes that is awake and not busy.
const STAYS_US: u64 = 200;
/// So much is worth a send of its own.
const WORTH_A_SEND_BYTES: usize = 16 * 1024;

#[derive(Default)]
pub struct Early {
    /// The connections whose replies stay, each with the moment since when; by that moment, store microseconds. One whose
    /// replies have left since is passed over.
    clients: RefCell<VecDeque<(u64, ClientRef)>>,
    news: Notify,
}

impl Early {
    /// Whether what is ready for a connection of shard `me` stays for now.
    #[inline]
    pub fn keeps(&self, client: &ClientRef, state: &mut State, me: usize) -> bool {
        if state.replies.is_idle() {
            state.flow.early_since_us = None;
            return false;
        }
        self.keeps_open(client, state, me)
    }

    fn keeps_open(&self, client: &ClientRef, state: &mut State, me: usize) -> bool {
        let State { replies, flow, .. } = state;
        let awaits_others = !flow.barrier && replies.awaited_shard() != Some(me as u16);
        if !awaits_others || replies.out.len() >= WORTH_A_SEND_BYTES {
            flow.early_since_us = None;
            return false;
        }
        if flow.early_since_us.is_none() {
            let now_us = store_us();
            flow.early_since_us = Some(now_us);
            let mut clients = self.clients.borrow_mut();
            if clients.is_empty() {
                self.news.notify();
            }
            clients.push_back((now_us, client.clone()));
        }
        true
    }

    /// Connections whose replies have stayed long enough and leave now, when there are some.
    pub async fn next(&self) -> Vec<ClientRef> {
        loop {
            let first_us = self.clients.borrow().front().map(|(since_us, _)| *since_us);
            let now_us = store_us();
            match first_us {
                None => self.news.wait().await,
                Some(since_us) if now_us < since_us + STAYS_US => {
                    sleep(Duration::from_micros(since_us + STAYS_US - now_us)).await;
                }
                Some(_) => return self.take_due(now_us),
            }
        }
    }

    fn take_due(&self, now_us: u64) -> Vec<ClientRef> {
        let mut clients = self.clients.borrow_mut();
        let due = clients.iter().take_while(|(since_us, _)| now_us >= since_us + STAYS_US).count();
        let leaves = |(since_us, client): (u64, ClientRef)| {
            let flow = &mut client.state.borrow_mut().flow;
            flow.early_since_us.take_if(|us| *us == since_us).map(|_| client.clone())
        };
        clients.drain(..due).filter_map(leaves).collect()
    }
}
