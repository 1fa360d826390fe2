//! Messages over queues between two threads each (single producer, single consumer). glommio's shared channels are not
//! used: their ends, and its mesh builder, can wait for each other for ever while they connect.

use super::{Message, TransactionLinks};
use crate::net::Host;
use crate::shard::Shard;
use rtrb::{Consumer, Producer, PushError, RingBuffer};
use std::cell::RefCell;
use std::rc::Rc;

/// Messages a link holds.
const LINK_MESSAGES: usize = 256;
/// Messages taken from one neighbour before the others, and connections, have their turn.
const MESSAGES_A_TURN: usize = 32;

/// A shard's ends of the links to and from each other shard.
pub struct Links {
    producers: Vec<Option<Producer<Message>>>,
    consumers: Vec<Option<Consumer<Message>>>,
    transactions: TransactionLinks,
}

/// Two links, for messages and for transactions, from every shard to every other.
pub fn links(shards: usize) -> Vec<Links> {
    let none = || Links {
        producers: (0..shards).map(|_| None).collect(),
        consumers: (0..shards).map(|_| None).collect(),
        transactions: TransactionLinks {
            producers: (0..shards).map(|_| None).collect(),
            consumers: (0..shards).map(|_| None).collect(),
        },
    };
    let mut ends: Vec<Links> = (0..shards).map(|_| none()).collect();
    for from in 0..shards {
        for to in (0..shards).filter(|to| *to != from) {
            let (producer, consumer) = RingBuffer::new(LINK_MESSAGES);
            ends[from].producers[to] = Some(producer);
            ends[to].consumers[from] = Some(consumer);
            let (producer, consumer) = RingBuffer::new(LINK_MESSAGES);
            ends[from].transactions.producers[to] = Some(producer);
            ends[to].transactions.consumers[from] = Some(consumer);
        }
    }
    ends
}

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

    fn has_outgoing(&self) -> bool {
        self.shard.outbox.has_outgoing() || self.shard.transactions.has_outgoing()
    }

    fn send_mail(&self, wake: &mut dyn FnMut(usize)) {
        self.shard.end_turn();
        // Before anything else: steps follow the transaction they belong to.
        self.shard.exchange_transactions(wake);
        let outbox = &self.shard.outbox;
        outbox.send_batches();
        if outbox.waiting.get() == 0 {
            return;
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
