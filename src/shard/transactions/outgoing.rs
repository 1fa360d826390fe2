//! Transactions on their way out: written during a turn, one batch for each shard that takes part, then numbered and
//! handed over together.

use crate::clock::{Sequence, store_us};
use crate::command::Handler;
use crate::journal::Shards;
use crate::net::Notify;
use crate::shard::links::TransactionLinks;
use crate::shard::message::{At, Batch, Intent, Lock, PART_BYTES, Part, Ticket};
use crate::shard::outbox::Outbox;
use smallvec::SmallVec;
use std::cell::{Cell, RefMut};
use std::rc::Rc;

/// A coordinator's transaction, until it has its number.
#[derive(Default)]
pub struct Start {
    pub number: Cell<u64>,
    pub taken: Notify,
}

/// A batch with more bytes of arguments takes no further transaction.
const FULL_BYTES: usize = u32::MAX as usize / 4;

pub struct Outgoing {
    me: usize,
    batches: Vec<Option<Box<Batch>>>,
    /// Batches that take no more, since their spans are 32 bits, with their targets.
    full: Vec<(usize, Box<Batch>)>,
    /// Transactions written in this turn.
    count: u32,
    /// Those of coordinators among them.
    starts: Vec<(u32, Rc<Start>)>,
}

impl Outgoing {
    pub fn new(me: usize, shards: usize) -> Outgoing {
        Outgoing { me, batches: (0..shards).map(|_| None).collect(), full: Vec::new(), count: 0, starts: Vec::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether there is something to hand over, and room in every link it has to take.
    pub fn may_leave(&self, links: &TransactionLinks) -> bool {
        let has_room = |target: usize| {
            let producer = links.producers.get(target).and_then(Option::as_ref);
            let full = self.full.iter().filter(|(to, _)| *to == target).count();
            let needed = full + usize::from(self.batches[target].is_some());
            needed == 0 || producer.is_none_or(|producer| producer.slots() >= needed)
        };
        self.count > 0 && (0..self.batches.len()).all(has_room)
    }

    /// Numbers what was written and hands it over, if every link has room: a number that is taken and not handed over
    /// would stop everybody. Returns this shard's own share; wakes the others.
    pub fn send(
        &mut self,
        sequence: &Sequence,
        links: &mut TransactionLinks,
        before_ms: u64,
        delay: impl Fn(),
        wake: &mut dyn FnMut(usize),
    ) -> SmallVec<[Box<Batch>; 1]> {
        let mut own = SmallVec::new();
        if !self.may_leave(links) {
            return own;
        }
        sequence.open(self.me, before_ms);
        let first = sequence.take(self.count.into(), store_us() / 1000);
        delay();
        let last = self.batches.iter_mut().enumerate().filter_map(|(target, batch)| Some((target, batch.take()?)));
        for (target, mut batch) in self.full.drain(..).chain(last) {
            batch.origin = self.me;
            batch.first = first;
            if target == self.me {
                own.push(batch);
            } else {
                let link = links.producers[target].as_mut().expect("a link to every other shard");
                link.push(batch).unwrap_or_else(|_| unreachable!("there was room"));
                sequence.arrived(target);
                wake(target);
            }
        }
        sequence.close(self.me);
        self.count = 0;
        for (order, start) in self.starts.drain(..) {
            start.number.set(first + u64::from(order));
            start.taken.notify();
        }
        own
    }
}

/// Writes one transaction. Nothing else may be written to it before this is dropped.
pub struct Builder<'a> {
    outgoing: RefMut<'a, Outgoing>,
    outbox: &'a Outbox,
    shards: SmallVec<[usize; 4]>,
    /// Those where something may be written.
    writers: Shards,
    bytes: usize,
}

impl<'a> Builder<'a> {
    pub fn new(outgoing: RefMut<'a, Outgoing>, outbox: &'a Outbox) -> Builder<'a> {
        Builder { outgoing, outbox, shards: SmallVec::new(), writers: Shards::default(), bytes: 0 }
    }

    /// What was written so far counts for so much until it is answered.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn batch(&mut self, target: usize) -> &mut Batch {
        let order = self.outgoing.count;
        let batch = self.outgoing.batches[target].get_or_insert_with(|| self.outbox.empty_batch());
        if !self.shards.contains(&target) {
            self.shards.push(target);
            let (parts, locks) = (batch.parts.len() as u32, batch.locks.len() as u32);
            batch.transactions.push(Intent {
                order,
                parts: (parts, parts),
                locks: (locks, locks),
                hold: 0,
                is_patient: false,
                writers: Shards::default(),
            });
        }
        batch
    }

    /// Begins a command's part on a shard; its arguments follow.
    pub fn part(&mut self, target: usize, handler: Handler, at: At, ticket: Ticket) {
        self.bytes += PART_BYTES;
        if at.write {
            self.writers.insert(target);
        }
        let batch = self.batch(target);
        let spans = batch.spans.len() as u32;
        batch.parts.push(Part { spans: (spans, spans), ..Part::new(handler, at, ticket) });
        batch.last_intent().parts.1 += 1;
    }

    /// The part that was begun last decides: where it answers an error, those behind it do not run.
    pub fn guard(&mut self, target: usize) {
        self.batch(target).parts.last_mut().expect("begun before").guard = true;
    }

    /// An argument of the part that was begun last on this shard.
    pub fn arg(&mut self, target: usize, arg: &[u8]) {
        self.bytes += arg.len();
        let batch = self.batch(target);
        let start = batch.buffer.len() as u32;
        batch.buffer.extend_from_slice(arg);
        batch.spans.push((start, batch.buffer.len() as u32));
        batch.parts.last_mut().expect("begun before").spans.1 += 1;
    }

    pub fn lock(&mut self, target: usize, lock: Lock) {
        let batch = self.batch(target);
        batch.locks.push(lock);
        batch.last_intent().locks.1 += 1;
    }

    /// A lock of a coordinator's. Whether it looks itself if a script keeps it waiting: see [`Shard::hold_patiently`](crate::shard::Shard::hold_patiently).
    pub fn hold(&mut self, target: usize, number: u64, lock: Lock, is_patient: bool) {
        self.lock(target, lock);
        if lock.write {
            self.writers.insert(target);
        }
        let intent = self.batch(target).last_intent();
        (intent.hold, intent.is_patient) = (number, is_patient);
    }

    /// For a coordinator: who takes part, and how it hears of its number.
    pub fn start(mut self) -> (SmallVec<[usize; 4]>, Rc<Start>) {
        let start = Rc::new(Start::default());
        let order = self.outgoing.count;
        self.outgoing.starts.push((order, start.clone()));
        (self.shards.clone(), start)
    }
}

impl Drop for Builder<'_> {
    fn drop(&mut self) {
        self.outbox.count_unanswered(self.bytes);
        let (any, writers) = (!self.shards.is_empty(), self.writers);
        for target in std::mem::take(&mut self.shards) {
            let batch = self.outgoing.batches[target].as_mut().expect("written to");
            batch.last_intent().writers = writers;
            if batch.buffer.len() > FULL_BYTES {
                let batch = self.outgoing.batches[target].take().expect("written to");
                self.outgoing.full.push((target, batch));
            }
        }
        self.outgoing.count += u32::from(any);
    }
}
