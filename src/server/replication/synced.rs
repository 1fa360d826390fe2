//! How much of a primary's stream is on this server's disk, which is what WAITAOF on the primary asks for.

use crate::net::{Notify, sleep};
use crate::replicate::link::Shared;
use crate::server::state::Server;
use std::rc::Rc;
use std::time::Duration;

/// How long until somebody looks whether the disk has what is waited for, at first and at most. (Under `appendfsync no` nobody
/// knows when it will.)
const FIRST_LOOK: Duration = Duration::from_millis(10);
const LAST_LOOK: Duration = Duration::from_millis(100);

/// Of one link.
#[derive(Default)]
pub struct Synced {
    has_more: Notify,
}

impl Synced {
    /// A part of the stream is done, or what stands before it is.
    pub fn note_progress(&self, server: &Server, shared: &Shared) {
        if server.global.log.is_on() {
            self.has_more.notify();
        } else {
            shared.set_synced(None);
        }
    }

    /// Tells the primary how much of the stream is on the disk, whenever that has become more, for as long as there is a log.
    pub async fn follow<R>(&self, server: &Rc<Server>, shared: &Shared) -> R {
        loop {
            self.has_more.wait().await;
            while shared.synced() != Some(shared.position()) {
                let position = shared.position();
                if !reaches_disk(server).await {
                    shared.set_synced(None);
                    break;
                }
                shared.set_synced(Some(position));
                shared.acknowledge();
            }
        }
    }
}

/// Waits until everything that was changed by now is on the disk; whether it is, or there is no log any more.
async fn reaches_disk(server: &Rc<Server>) -> bool {
    let log = &server.global.log;
    server.shard.call_all(|shard| shard.hand_over_records()).await;
    let pushed: Vec<u64> = (0..server.shard.count).map(|shard| log.pushed(shard)).collect();
    let mut pause = FIRST_LOOK;
    loop {
        sleep(pause).await;
        pause = (2 * pause).min(LAST_LOOK);
        if !log.is_on() {
            return false;
        }
        if pushed.iter().enumerate().all(|(shard, pushed)| log.synced(shard) >= *pushed) {
            return true;
        }
    }
}
