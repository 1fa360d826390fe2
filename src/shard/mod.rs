//! A shard: one pinned executor that owns a part of the keyspace outright.
//!
//! ```text
//!   connections ──┐                              ┌── run_batch ── replies back to the origin
//!                 ├─ outbox ─ links to others ───┤
//!   coordinators ─┘   (one batch a target        └── calls (jobs of coordinators, control)
//!                      and turn)
//!   cycle task (a slice a turn, under its budget)
//! ```
//!
//! Commands with keys on several shards are transactions: `transactions/` has their order and their locks. Connections of
//! other shards that were answered with much wait here until they have room for more: `stalled.rs`. Handlers run, and are
//! measured, in `execute.rs`.
//!
//! Nothing here is shared with another thread: shards talk by messages, and nobody who receives awaits. What the
//! rooms above do with replies and events comes through [`Front`].

mod execute;
mod expire;
mod hop;
mod mailbox;
mod stalled;
mod transactions;
mod waiters;

use execute::Laps;
pub use execute::{LONG_REPLY_BYTES, Meter};
pub use expire::GARBAGE_A_SLICE;
pub use hop::{CallResult, ShardHop};
pub use mailbox::{Batch, Links, Message, Part, Ticket, links};
pub use transactions::{Builder, Deferred, EVERYTHING, Lock, Transaction};
pub use waiters::{Claim, News, Waiter};

use crate::clock::{Clock, Now, Sequence, store_us};
use crate::command::spec::Spec;
use crate::command::{CommandId, Ctx, OwnedRequest};
use crate::config::{Config, Limits};
use crate::expiry::{Cycle, Settings};
use crate::keyspace::{Hasher, Keyspace, Lookup, Notice, PREFETCHED, Touch};
use crate::net::{Notify, Transport, note_woken};
use crate::resp::{Proto, Reply, Request};
use mailbox::{Mail, Outbox, PART_BYTES};
use smallvec::SmallVec;
use stalled::{Answered, Stalled};
use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use transactions::Transactions;
use waiters::Waiters;

/// What the rooms above do for a shard.
pub trait Front {
    /// Replies to parts of a batch that this shard sent have come back.
    fn replies(&self, batch: &Batch);
    /// Connections that were postponed go on.
    fn resume(&self);
    /// Keys changed or died.
    fn notices(&self, notices: Vec<Notice>);
    /// What has become of a connection's wait for a key.
    fn waited(&self, client: u64, claim: &Arc<Claim>, news: News);
    fn as_any(&self) -> &dyn Any;
}

pub struct Shard {
    pub id: usize,
    pub count: usize,
    /// What is said of each command, by its number.
    specs: Arc<[Spec]>,
    pub meter: Meter,
    pub clock: Clock,
    pub hasher: Hasher,
    pub keyspace: RefCell<Keyspace>,
    pub rng: RefCell<fastrand::Rng>,
    /// A copy of its own, so that looking at it costs no atomic operation.
    config: RefCell<Rc<Config>>,
    limits: RefCell<Limits>,
    settings: Cell<Settings>,
    pub cycle: RefCell<Cycle>,
    /// The moment the cycle's task sleeps until, store milliseconds.
    cycle_wakes_ms: Cell<u64>,
    cycle_alarm: Notify,
    garbage_alarm: Notify,
    waiters: RefCell<Waiters>,
    has_waiters: Cell<bool>,
    /// When the transport's turn began, store microseconds; 0 before it has worked on anything.
    turn_began_us: Cell<u64>,
    /// The clock was read for whatever runs next.
    is_fresh: Cell<bool>,
    /// Batches of others that are not done, by where they come from.
    unfinished: RefCell<Vec<VecDeque<Unfinished>>>,
    unfinished_batches: Cell<usize>,
    /// Whether connections were postponed.
    postponed: Cell<bool>,
    /// Turns of serving: the cycle sees from it whether somebody was served meanwhile.
    turns: Cell<u64>,
    /// Store microseconds until which nothing is deleted by the cycle (CLIENT PAUSE).
    hold_until_us: Cell<u64>,
    outbox: Outbox,
    transactions: Transactions,
    stalled: Stalled,
    /// Messages are taken as late as this, by chance, in microseconds (DEBUG SHARD-DELAY).
    delay_us: Cell<u64>,
    waiting: RefCell<HashMap<u64, Rc<hop::Waiting>>>,
    next_call: Cell<u64>,
    front: OnceCell<Rc<dyn Front>>,
    scratch_ends: RefCell<Vec<usize>>,
}

impl Shard {
    pub fn new(
        id: usize,
        keyspace: Keyspace,
        clock: Clock,
        sequence: Arc<Sequence>,
        specs: Arc<[Spec]>,
        seed: u64,
        config: Arc<Config>,
    ) -> Rc<Shard> {
        let count = sequence.shards();
        let shard = Rc::new(Shard {
            id,
            count,
            specs,
            meter: Meter::default(),
            clock,
            hasher: keyspace.hasher().clone(),
            keyspace: RefCell::new(keyspace),
            rng: RefCell::new(fastrand::Rng::with_seed(seed)),
            limits: RefCell::new(config.limits.feasible()),
            settings: Cell::new(expire::settings(&config)),
            config: RefCell::new(Rc::new(Config::clone(&config))),
            cycle: RefCell::new(Cycle::default()),
            cycle_wakes_ms: Cell::new(0),
            cycle_alarm: Notify::default(),
            garbage_alarm: Notify::default(),
            waiters: RefCell::default(),
            has_waiters: Cell::new(false),
            turn_began_us: Cell::new(0),
            is_fresh: Cell::new(false),
            unfinished: RefCell::new((0..count).map(|_| VecDeque::new()).collect()),
            unfinished_batches: Cell::new(0),
            postponed: Cell::new(false),
            turns: Cell::new(0),
            hold_until_us: Cell::new(0),
            outbox: Outbox::new(id, count),
            transactions: Transactions::new(id, count, sequence),
            stalled: Stalled::default(),
            delay_us: Cell::new(0),
            waiting: RefCell::new(HashMap::new()),
            next_call: Cell::new(0),
            front: OnceCell::new(),
            scratch_ends: RefCell::new(Vec::new()),
        });
        shard.configure(config);
        shard
    }

    /// What is said of a command.
    #[inline]
    pub fn spec(&self, command: CommandId) -> &Spec {
        &self.specs[command.index()]
    }

    pub fn set_front(&self, front: Rc<dyn Front>) {
        assert!(self.front.set(front).is_ok(), "a shard has one front");
    }

    pub fn front(&self) -> &Rc<dyn Front> {
        self.front.get().expect("the front is set before the shard serves")
    }

    pub fn config(&self) -> Rc<Config> {
        self.config.borrow().clone()
    }

    /// Takes over a changed configuration.
    pub fn configure(&self, config: Arc<Config>) {
        *self.limits.borrow_mut() = config.limits.feasible();
        self.settings.set(expire::settings(&config));
        self.keyspace.borrow_mut().effects.wanted = config.notify_keyspace_events;
        self.meter.configure(config.latency_tracking, config.slowlog_log_slower_than_us);
        self.outbox.set_spin(Duration::from_micros(config.spin_us));
        *self.config.borrow_mut() = Rc::new(Config::clone(&config));
        self.cycle_alarm.notify();
    }

    pub fn settings(&self) -> Settings {
        self.settings.get()
    }

    /// Turns the cycle on or off (DEBUG SET-ACTIVE-EXPIRE), until the configuration changes.
    pub fn set_active_expire(&self, enabled: bool) {
        self.settings.set(Settings { enabled, ..self.settings.get() });
        self.cycle_alarm.notify();
    }

    /// Holds the cycle until then.
    pub fn hold_expiry_until(&self, until_us: u64) {
        self.hold_until_us.set(until_us);
        self.cycle_alarm.notify();
    }

    /// Runs something on this shard's data, as of `now`.
    pub fn with_ctx<R>(
        &self,
        (db, touch): (usize, Touch),
        now: Now,
        out: &mut Vec<u8>,
        proto: Proto,
        work: impl FnOnce(&mut Ctx) -> R,
    ) -> R {
        let mut ends = self.scratch_ends.take();
        ends.clear();
        let result = work(&mut Ctx {
            keyspace: &mut self.keyspace.borrow_mut(),
            db,
            now,
            clock: &self.clock,
            rng: &mut self.rng.borrow_mut(),
            reply: Reply::new(out, proto),
            hash: 0,
            limits: &self.limits.borrow(),
            touch,
            ends: &mut ends,
            shards: self.count,
        });
        self.scratch_ends.replace(ends);
        result
    }

    /// Hands events to the front; wakes the cycle where a deadline is earlier than it expects. To be called after
    /// commands have run, when no part of the shard is borrowed.
    #[inline]
    pub fn after_commands(&self) {
        self.serve_waiters();
        let mut keyspace = self.keyspace.borrow_mut();
        if keyspace.next_due_hint_ms() < self.cycle_wakes_ms.get() {
            self.cycle_alarm.notify();
        }
        if keyspace.has_garbage() {
            self.garbage_alarm.notify();
        }
        if !keyspace.effects.is_empty() {
            let notices = keyspace.effects.take();
            drop(keyspace);
            self.front().notices(notices);
        }
    }

    /// A turn of serving begins: the clock is read, and what must come first is done.
    #[inline]
    pub fn begin_turn(&self) {
        self.turns.set(self.turns.get() + 1);
        if !self.is_fresh.take() {
            self.catch_up();
        }
    }

    /// The same for what the transport works on next, [`Shard::begin_turn`] follows; whether the transport's turn has
    /// lasted long.
    #[inline]
    fn begin_line(&self) -> bool {
        self.catch_up();
        self.is_fresh.set(true);
        self.has_lasted_long()
    }

    /// Whether the transport's turn has lasted long, as far as the cached clock knows.
    #[inline]
    pub fn has_lasted_long(&self) -> bool {
        let now_us = self.clock.now().us;
        if self.turn_began_us.get() == 0 {
            self.turn_began_us.set(now_us);
        }
        now_us - self.turn_began_us.get() > LONG_US
    }

    /// What was written is on its way: the transport's next turn begins.
    fn end_turn(&self) {
        self.turn_began_us.set(0);
        self.is_fresh.set(false);
    }

    /// A connection has more to do, after the others: [`Front::resume`] follows.
    pub fn postpone(&self) {
        self.postponed.set(true);
        self.outbox.kick();
    }

    fn resume_postponed(&self) -> bool {
        if self.has_waiters_to_serve() {
            self.begin_turn();
            self.after_commands();
        }
        let postponed = self.postponed.take();
        if postponed {
            self.front().resume();
        }
        postponed
    }

    fn has_unfinished_work(&self) -> bool {
        self.postponed.get() || self.unfinished_batches.get() > 0 || self.has_waiters_to_serve()
    }

    /// See [`Shard::delay`].
    pub fn set_delay_us(&self, delay_us: u64) {
        self.delay_us.set(delay_us);
    }

    /// Does nothing for some time, where a test wants it.
    fn delay(&self) {
        let delay_us = self.delay_us.get();
        if delay_us > 0 {
            std::thread::sleep(Duration::from_micros(self.rng.borrow_mut().u64(..=delay_us)));
        }
    }

    /// Queues a command for another shard; it leaves with the batch at the end of the turn.
    pub fn send_part(&self, target: usize, request: Request, part: Part) {
        self.outbox.add(target, request, part);
    }

    /// Whether so much waits to be sent that connections should not be read.
    pub fn is_congested(&self) -> bool {
        self.outbox.is_congested()
    }

    pub async fn decongested(&self) {
        self.outbox.decongested().await;
    }

    pub fn post(&self, target: usize, message: Message) {
        self.outbox.post(target, message);
    }

    /// Runs something in a task of its own, after what runs now; in the order of these calls.
    pub fn defer(&self, work: impl FnOnce() + 'static) {
        note_woken();
        glommio::spawn_local(async move {
            // glommio runs a new task at once.
            futures_lite::future::yield_now().await;
            work();
        })
        .detach();
    }

    /// Starts the transport and the cycle.
    pub fn start(self: &Rc<Shard>, links: Links, transport: Transport) {
        self.outbox.set_transport(transport.clone());
        transport.set_spin(Duration::from_micros(self.config().spin_us));
        glommio::spawn_local(transport.clone().drive(Rc::new(Mail::new(self.clone(), links)))).detach();
        expire::start(self, &transport);
    }

    pub(crate) fn receive(self: &Rc<Shard>, message: Message) {
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
            Message::Replies(batch) => {
                self.front().replies(&batch);
                self.outbox.recycle(batch);
            }
            Message::Call { call, origin, work } => hop::answer(self, call, origin, work),
            Message::Answer { call, result } => self.answered(call, result),
            Message::Tell(work) => work(self),
            Message::Step { origin, number, step } => self.step(origin, number, step),
            Message::Release { origin, number } => self.release(origin, number),
            Message::GoOn { client, ended: true } => self.drop_stalled(client),
            Message::GoOn { client, ended: false } => self.go_on_with_stalled(client),
        }
        self.after_commands();
    }

    /// Runs the commands of a batch in their order. Where they take long, the replies that are there leave, and the rest
    /// waits until others had their turn.
    fn run_batch(&self, mut unfinished: Unfinished) {
        let began = self.clock.now();
        let Batch { origin, target, buffer, spans, parts, out, ends, owed, .. } = &mut *unfinished.batch;
        let mut pace = Pace::new(began.us);
        let mut answered = Answered::default();
        *target = self.id as u16;
        let mut laps = Laps::new(unfinished.done);
        while unfinished.done < parts.len() {
            let next = unfinished.done;
            if next.is_multiple_of(PREFETCHED) {
                let lookups = parts[next..].iter().take(PREFETCHED).map(|part| {
                    let request = part.request(buffer, spans);
                    Lookup {
                        db: part.at.db,
                        hash: part.at.hash,
                        element: self.spec(part.at.command).group.sought().element(request),
                    }
                });
                let lookups: SmallVec<[Lookup; PREFETCHED]> = lookups.collect();
                self.keyspace.borrow().prefetch(lookups.iter().copied());
            }
            let part = &mut parts[next];
            let request = part.request(buffer, spans);
            part.out.0 = out.len();
            part.ends.0 = ends.len();
            let Part { handler, at, ticket, .. } = *part;
            laps.before(self, parts, next);
            let part = &mut parts[next];
            if self.is_stalled(ticket.client) {
                part.deferred = true;
                self.hold_back(handler, request, at, ticket, *origin);
            } else if self.must_wait(&at, request, ticket.client) {
                part.deferred = true;
                let bytes = request.bytes() as isize;
                *owed -= bytes + PART_BYTES as isize;
                let request = OwnedRequest::of(request);
                self.defer_command(Deferred { handler, request, at, ticket, origin: *origin, owed: bytes });
                self.stall(ticket.client);
            } else {
                self.execute(handler, request, at, began, out, ends);
                self.serve_waiters();
                if answered.is_much(ticket.client, out.len() - part.out.0) {
                    part.stalls = true;
                    self.stall(ticket.client);
                }
            }
            part.out.1 = out.len();
            part.ends.1 = ends.len();
            laps.after(self, parts, next);
            unfinished.done += 1;
            if pace.is_long() && unfinished.done < parts.len() {
                let origin = *origin;
                laps.end(self, &mut parts[..=next]);
                self.post(origin, Message::Replies(unfinished.take_done(self.outbox.empty_batch(), &self.meter)));
                self.unfinished.borrow_mut()[origin].push_front(unfinished);
                self.unfinished_batches.set(self.unfinished_batches.get() + 1);
                return;
            }
        }
        laps.end(self, parts);
        self.post(unfinished.batch.origin, Message::Replies(unfinished.batch));
    }

    /// Each other shard's oldest unfinished batch goes on; whether there was one.
    fn go_on_with_batches(&self) -> bool {
        if self.unfinished_batches.get() == 0 {
            return false;
        }
        for origin in 0..self.count {
            let Some(batch) = self.unfinished.borrow_mut()[origin].pop_front() else { continue };
            self.unfinished_batches.set(self.unfinished_batches.get() - 1);
            self.begin_turn();
            self.run_batch(batch);
            self.after_commands();
        }
        true
    }
}

/// What takes longer lets others have their turn.
const LONG_US: u64 = 200;

/// How long the executor's own work may have to wait for a task that does not yield.
pub const PREEMPT: Duration = Duration::from_millis(1);

/// Commands of another shard of which the first `done` are answered.
struct Unfinished {
    batch: Box<Batch>,
    done: usize,
}

impl Unfinished {
    /// Moves what is answered to another box.
    fn take_done(&mut self, mut answered: Box<Batch>, meter: &Meter) -> Box<Batch> {
        answered.origin = self.batch.origin;
        answered.target = self.batch.target;
        for part in &mut self.batch.parts[..self.done] {
            let request = meter.is_slow(part.ns).then(|| part.request(&self.batch.buffer, &self.batch.spans));
            answered.answer(*part, request);
        }
        self.batch.parts.drain(..self.done);
        std::mem::swap(&mut answered.out, &mut self.batch.out);
        std::mem::swap(&mut answered.ends, &mut self.batch.ends);
        self.done = 0;
        answered
    }
}

/// Watches over commands that run one after the other. They are short nearly always: the clock is read after the first
/// and then once in a while, or after each where they are not.
pub struct Pace {
    began_us: u64,
    commands: u64,
    slow: bool,
}

impl Pace {
    pub fn new(began_us: u64) -> Pace {
        Pace { began_us, commands: 0, slow: false }
    }

    /// One more command has run: whether others should have their turn now.
    #[inline]
    pub fn is_long(&mut self) -> bool {
        self.commands += 1;
        if !self.slow && self.commands != 1 && !self.commands.is_multiple_of(PREFETCHED as u64) {
            return false;
        }
        let spent_us = store_us().saturating_sub(self.began_us);
        self.slow = spent_us / self.commands > LONG_US / PREFETCHED as u64;
        spent_us > LONG_US
    }
}

/// In which place a handler runs.
#[derive(Clone, Copy, Debug)]
pub struct At {
    pub db: usize,
    pub proto: Proto,
    pub touch: Touch,
    /// The hash of the first key.
    pub hash: u64,
    pub command: CommandId,
    /// Whether it may change its keys.
    pub write: bool,
    /// Whether it takes about as long as reading the clock.
    pub is_quick: bool,
}
