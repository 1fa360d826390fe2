//! The order of a turn: what has come is worked on, what was written leaves.

use super::Shard;
use super::batches::Unfinished;
use super::calls;
use super::links::Links;
use super::message::Message;
use crate::net::Host;
use rtrb::{Consumer, Producer, PushError};
use std::cell::RefCell;
use std::rc::Rc;

/// Messages taken from one neighbour before the others, and connections, have their turn.
const MESSAGES_A_TURN: usize = 32;

/// A shard's mail, as its transport sees it.
pub struct Mail {
    shard: Rc<Shard>,
    producers: RefCell<Vec<Option<Producer<Message>>>>,
    consumers: RefCell<Vec<Option<Consumer<Message>>>>,
}

impl Mail {
    pub fn new(shard: Rc<Shard>, ends: Links) -> Mail {
        shard.transactions.connect(ends.transactions);
        Mail { shard, producers: RefCell::new(ends.producers), consumers: RefCell::new(ends.consumers) }
    }
}

impl Host for Mail {
    fn receive_mail(&self) -> bool {
        self.shard.catch_up();
        let mut any = self.shard.deliver_answers();
        for source in 0..self.shard.count {
            for _ in 0..MESSAGES_A_TURN {
                let message = match &mut self.consumers.borrow_mut()[source] {
                    Some(consumer) => consumer.pop().ok(),
                    None => None,
                };
                let Some(message) = message else { break };
                any = true;
                self.shard.receive(message);
                if self.shard.has_lasted_long() {
                    break;
                }
            }
        }
        any | self.shard.go_on_with_batches() | self.shard.resume_postponed()
    }

    fn has_mail(&self) -> bool {
        self.consumers.borrow().iter().flatten().any(|consumer| !consumer.is_empty())
            || self.shard.transactions.has_work(self.shard.id)
            || self.shard.has_unfinished_work()
    }

    fn is_overdue(&self) -> bool {
        self.shard.begin_line()
    }

    fn now_us(&self) -> u64 {
        self.shard.clock.now().us
    }

    fn has_outgoing(&self) -> bool {
        self.shard.outbox.has_outgoing() || self.shard.transactions.has_outgoing()
    }

    fn send_mail(&self, wake: &mut dyn FnMut(usize)) {
        self.shard.end_turn();
        self.shard.tell_invalidated();
        // Before anything else: steps follow the transaction they belong to.
        self.shard.exchange_transactions(wake);
        self.shard.hand_over_records();
        let outbox = &self.shard.outbox;
        outbox.send_batches();
        if outbox.waiting.get() == 0 {
            return;
        }
        let unsettled = self.shard.front().unsettled();
        if unsettled > 0 {
            outbox.replies_show(unsettled);
        }
        for (target, producer) in self.producers.borrow_mut().iter_mut().enumerate() {
            let Some(producer) = producer else { continue };
            let mut messages = outbox.queues[target].borrow_mut();
            let mut pushed = false;
            while let Some(message) = messages.pop_front() {
                if let Err(PushError::Full(message)) = producer.push(message) {
                    messages.push_front(message);
                    break;
                }
                outbox.sent();
                pushed = true;
            }
            if pushed {
                wake(target);
            }
        }
    }
}

impl Shard {
    fn receive(self: &Rc<Shard>, message: Message) {
        self.delay();
        // What was handed over before this message was sent must be in, however fresh the clock is.
        self.is_fresh.set(false);
        self.begin_turn();
        match message {
            Message::Batch(batch) => {
                let origin = batch.origin;
                let batch = Unfinished { batch, done: 0 };
                let comes_next = self.unfinished.borrow()[origin].is_empty();
                if comes_next {
                    self.run_batch(batch);
                } else {
                    self.unfinished.borrow_mut()[origin].push_back(batch);
                    self.unfinished_batches.set(self.unfinished_batches.get() + 1);
                }
            }
            Message::Replies(batch) => self.take_replies(batch),
            Message::Call { call, origin, work } => calls::answer(self, call, origin, work),
            Message::Answer { call, result } => self.answered(call, result),
            Message::Tell(work) => work(self),
            Message::Step { origin, number, step } => self.step(origin, number, step),
            Message::Release { origin, number } => self.release(origin, number),
            Message::GoOn { client, ended: true } => self.drop_stalled(client),
            Message::GoOn { client, ended: false } => self.go_on_with_stalled(client),
        }
        self.after_commands();
    }
}
