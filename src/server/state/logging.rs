//! A shard's way to the append-only log: what it has changed in a turn, and which connections wait for the disk.

use super::global::Global;
use super::waits::Blocked;
use crate::journal::Record;
use crate::net::{Notify, sleep};
use crate::server::client::ClientRef;
use crate::server::client::for_disk::Push;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// How long until somebody looks whether what is not settled has to be.
const LOOK_AFTER: Duration = Duration::from_millis(10);

pub struct Logging {
    global: Arc<Global>,
    shard: usize,
    /// The last push, where it was not settled then: what leaves this shard waits for it, but under `always`, where each
    /// reply knows what it shows.
    unsettled: Cell<u64>,
    /// The last push, where somebody has yet to look whether it is settled.
    awaited: Cell<u64>,
    alarm: Notify,
    /// Connections with replies that wait for the disk, or the file.
    pub waiting: RefCell<Vec<ClientRef>>,
    /// Connections in a WAITAOF.
    alarms: RefCell<HashMap<u64, Rc<Blocked>>>,
}

impl Logging {
    pub fn new(global: Arc<Global>, shard: usize) -> Logging {
        Logging {
            global,
            shard,
            unsettled: Cell::new(0),
            awaited: Cell::new(0),
            alarm: Notify::default(),
            waiting: RefCell::default(),
            alarms: RefCell::default(),
        }
    }

    #[inline]
    pub fn is_on(&self) -> bool {
        self.global.log.is_on()
    }

    /// Whether anybody wants to know what changes.
    #[inline]
    pub fn hands_over(&self) -> bool {
        self.is_on() || self.global.feed.is_streamed()
    }

    /// Something that only this server understands is put behind what was handed over. The number of that push, where there is a
    /// log.
    pub fn note(&self, words: Vec<String>, is_kept: bool) -> Option<u64> {
        if !self.is_on() {
            return None;
        }
        let push = self.global.log.push_note(self.shard, words);
        self.await_push(push, is_kept);
        Some(push)
    }

    /// The turn is over: hands over what it has changed, where there is anything or somebody waits for it. The number of
    /// that push.
    pub fn end_turn(&self, records: Vec<Record>, is_promised: bool, is_kept: bool) -> Option<u64> {
        let is_due = is_promised || !records.is_empty();
        let push = is_due.then(|| self.global.log.push(self.shard, records))?;
        self.await_push(push, is_kept);
        Some(push)
    }

    /// `is_kept`: it is known of each reply what it shows.
    fn await_push(&self, push: u64, is_kept: bool) {
        if self.awaited.replace(push) == 0 {
            self.alarm.notify();
        }
        if self.is_on() && !is_kept {
            self.unsettled.set(push);
        }
    }

    /// It is not known any more of each reply what it shows: all that leaves waits for what was handed over.
    pub fn await_all(&self) {
        self.unsettled.set(self.global.log.pushed(self.shard));
    }

    /// It is known of each reply what it shows from now on: what shows nothing does not wait for a disk that may be full.
    pub fn await_shown(&self) {
        self.unsettled.set(0);
    }

    /// Returns when something that was handed over has not been settled for a while.
    pub async fn settles_late(&self) {
        loop {
            if self.is_settled(self.awaited.get()) {
                self.awaited.set(0);
                self.alarm.wait().await;
            }
            let awaited = self.awaited.get();
            sleep(LOOK_AFTER).await;
            if !self.is_settled(awaited) {
                return;
            }
        }
    }

    fn is_settled(&self, push: u64) -> bool {
        !self.is_on() || self.global.log.settled(self.shard) >= push
    }

    /// Whether what leaves this shard may have to wait for a push.
    #[inline]
    pub fn has_unsettled(&self) -> bool {
        self.unsettled.get() != 0
    }

    /// The push that all waits for which leaves this shard now; 0 for none.
    #[inline]
    pub fn unsettled(&self) -> u64 {
        match self.unsettled.get() {
            0 => 0,
            push => self.look_at_unsettled(push),
        }
    }

    #[cold]
    fn look_at_unsettled(&self, push: u64) -> u64 {
        if self.is_settled(push) {
            self.unsettled.set(0);
        }
        self.unsettled.get()
    }

    /// What is not settled of these; none where the log is off, by now perhaps.
    pub fn keep_missing(&self, pushes: &mut Vec<Push>) {
        let log = &self.global.log;
        if !pushes.is_empty() && !log.is_on() {
            pushes.clear();
        }
        pushes.retain(|(shard, push)| log.settled(usize::from(*shard)) < *push);
    }

    /// This shard hears when more is settled, of any shard.
    pub fn await_disk(&self) {
        self.global.log.await_sync(self.shard);
    }

    /// Whether anybody here waits for the disk.
    pub fn is_awaited(&self) -> bool {
        !self.waiting.borrow().is_empty() || !self.alarms.borrow().is_empty()
    }

    /// Alarms the wait of a client whenever more has reached the disk.
    pub fn add_alarm(&self, client: u64, blocked: Rc<Blocked>) {
        self.alarms.borrow_mut().insert(client, blocked);
    }

    pub fn remove_alarm(&self, client: u64) {
        self.alarms.borrow_mut().remove(&client);
    }

    pub fn sound_alarms(&self) {
        self.alarms.borrow().values().for_each(|blocked| blocked.alarm.notify());
    }

    /// What every other shard has handed over by now and is not settled.
    pub fn pushed_by_others(&self) -> impl Iterator<Item = Push> {
        let log = &self.global.log;
        let shards = (0..self.global.bells.len()).filter(|shard| *shard != self.shard);
        let pushed = shards.map(|shard| (shard, log.pushed(shard)));
        pushed.filter(|(shard, push)| log.settled(*shard) < *push).map(|(shard, push)| (shard as u16, push))
    }
}
