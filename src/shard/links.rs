//! Queues between two threads each (single producer, single consumer), which the transport looks at in its turns.
//! glommio's shared channels are not used: their ends, and its mesh builder, can wait for each other for ever while they
//! connect.

use super::message::{Batch, Message};
use rtrb::{Consumer, Producer, RingBuffer};

/// Messages a link holds.
const LINK_MESSAGES: usize = 256;
/// A shard's ends of the links to and from each other shard.
pub struct Links {
    pub producers: Vec<Option<Producer<Message>>>,
    pub consumers: Vec<Option<Consumer<Message>>>,
    pub transactions: TransactionLinks,
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

/// A shard's ends of the links that carry nothing but transactions.
#[derive(Default)]
pub struct TransactionLinks {
    pub producers: Vec<Option<Producer<Box<Batch>>>>,
    pub consumers: Vec<Option<Consumer<Box<Batch>>>>,
}
