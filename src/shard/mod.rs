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
//! A file imports only files below it in this table.
//!
//! | file | what |
//! |---|---|
//! | `expire.rs` | the tasks of the cycle and of garbage |
//! | `snapshot.rs` | a shard's part of a snapshot: what it writes, and what it takes in |
//! | `groups.rs` | the tasks that renew groups of keys and tell of their deaths; groups as snapshots have them |
//! | `deaths.rs` | the task that writes deaths to streams |
//! | `mail.rs` | the order of a turn: what has come, what leaves |
//! | `batches.rs`, `stalled.rs` | commands of other shards, and connections of theirs that were answered with much |
//! | `coordinator.rs`, `calls.rs` | keys that a coordinator holds, and its way to them; work for a task of another shard |
//! | `asking.rs` | who is about to ask for keys |
//! | `transactions/` | commands with keys on several shards: their order and their locks |
//! | `waiters.rs` | who waits for keys of this shard |
//! | `records.rs` | what has changed, on its way to the journal |
//! | `durable.rs` | what of it is not on the disk for certain |
//! | `execute.rs` | where handlers run, and are measured |
//! | `under_way.rs` | long replies that were made here, until the shards of their connections have them |
//! | `ceiling.rs` | the ceiling of memory: who gives what, and the task of it |
//! | `outbox.rs`, `links.rs`, `message.rs` | messages between shards: on their way out, their queues, what they are |
//! | `pool.rs` | what is kept for reuse |
//! | `pace.rs` | for how long something may go on |
//!
//! Nothing here is shared with another thread: shards talk by messages, and nobody who receives awaits. What the
//! rooms above do with replies and events comes through [`Front`].

mod asking;
mod batches;
mod calls;
mod ceiling;
mod coordinator;
mod deaths;
mod durable;
mod execute;
mod expire;
mod groups;
mod links;
mod mail;
mod message;
mod outbox;
mod pace;
mod pool;
mod records;
pub mod snapshot;
mod stalled;
mod transactions;
mod under_way;
mod waiters;

pub use asking::AboutToAsk;
pub use calls::CallResult;
pub use ceiling::{Ceiling, Space};
pub use coordinator::{Moment, ShardHop, Transaction};
pub use durable::Durable;
pub use execute::{LONG_REPLY_BYTES, Meter};
pub use expire::GARBAGE_A_SLICE;
pub use groups::{GROUP, Note};
pub use links::{Links, links};
pub use message::{At, Batch, EVERYTHING, Lock, Message, Part, Ticket};
pub use pace::{PREEMPT, Pace};
pub use transactions::{Builder, Deferred, HELD_FOR};
pub use under_way::UnderWay;
pub use waiters::{Claim, News, Wish};

use crate::clock::{Clock, Now, Sequence};
use crate::command::spec::{Group, Spec};
use crate::command::{CommandId, TokenFuture};
use crate::config::{Config, Limits};
use crate::executor::{self, Queue};
use crate::expiry::{Cycle, Settings};
use crate::journal::Record;
use crate::keyspace::{Hasher, Invalidated, Keyspace, Notice, ViewNews};
use crate::net::{Notify, Transport, note_woken};
use crate::observe::Event;
use crate::resp::Request;
use asking::Asking;
use batches::Unfinished;
use ceiling::Room;
use mail::Mail;
use outbox::Outbox;
use pace::LONG_US;
use pool::Pool;
use records::Records;
use stalled::Stalled;
use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use transactions::Transactions;
use under_way::HeldBack;
use waiters::Waiters;

/// What the rooms above do for a shard.
pub trait Front {
    /// Replies to parts of a batch that this shard sent have come back. Whoever keeps them may take them out of the batch.
    fn replies(&self, batch: &mut Batch);
    /// Connections that were postponed go on.
    fn resume(&self);
    /// Keys changed or died.
    fn notices(&self, notices: Vec<Notice>);
    /// This is what was changed in a turn, for whoever keeps the journal, and what was said in the turn is about to leave.
    fn leaves(&self, records: Vec<Record>);
    /// The shard's last push to the log, where what leaves has to wait for it; else 0.
    fn unsettled(&self) -> u64;
    /// What connections remember does not hold any more.
    fn invalidated(&self, invalidated: Invalidated);
    /// Something is to be done about the views of this shard's keys.
    fn views(&self, news: ViewNews);
    /// A script whose keys are here, and which a connection of another shard has called, or one of this shard's that had
    /// to wait for them: whether its reply was written. Else it lasts, and has it later ([`Shard::answer_script`]).
    fn script(&self, request: Request, at: At, now: Now, out: &mut Vec<u8>, later: Later) -> bool;
    /// What has become of a connection's wait for a key.
    fn waited(&self, client: u64, claim: &Arc<Claim>, news: News);
    /// Whether connections, of whichever shard, are about to be ended, and which was not decided yet.
    fn ends_some(&self) -> bool;
    /// A fencing token greater than all before, when that is certain.
    fn token(&self) -> TokenFuture;
    fn as_any(&self) -> &dyn Any;
}

/// Where a reply belongs that comes later.
#[derive(Clone, Copy)]
pub struct Later {
    ticket: Ticket,
    /// The shard of the connection.
    origin: usize,
    /// [`Batch::owed`] of the batch in which it leaves.
    owed: isize,
}

impl Later {
    /// The shard of the connection.
    pub fn origin(&self) -> usize {
        self.origin
    }

    pub fn client(&self) -> u64 {
        self.ticket.client
    }
}

/// What all shards have in common.
#[derive(Clone)]
pub struct Shared {
    pub sequence: Arc<Sequence>,
    pub ceiling: Arc<Ceiling>,
    pub under_way: UnderWay,
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
    /// No reply is longer.
    reply_bytes: Cell<usize>,
    settings: Cell<Settings>,
    pub cycle: RefCell<Cycle>,
    /// The moment the cycle's task sleeps until, store milliseconds.
    cycle_wakes_ms: Cell<u64>,
    cycle_alarm: Notify,
    garbage_alarm: Notify,
    /// What has died is to be shown for a while.
    stale_alarm: Notify,
    deaths_alarm: Notify,
    /// Lives of groups of keys are to be renewed.
    groups_alarm: Notify,
    /// Deaths of groups are to be written to their streams.
    telling_alarm: Notify,
    /// The deadline that the task of those deaths knows of, store milliseconds; 0 where it does not run.
    telling_wakes_ms: Cell<u64>,
    /// Keys for which readers are remembered here, at the most.
    tracked_keys: Cell<usize>,
    waiters: RefCell<Waiters>,
    has_waiters: Cell<bool>,
    /// When the transport's turn began, store microseconds; 0 before it has worked on anything.
    turn_began_us: Cell<u64>,
    /// The clock was read for whatever runs next.
    is_fresh: Cell<bool>,
    /// Batches of others that are not done, by where they come from.
    unfinished: RefCell<Vec<VecDeque<Unfinished>>>,
    unfinished_batches: Cell<usize>,
    under_way: UnderWay,
    held_back: HeldBack,
    /// Whether connections were postponed.
    postponed: Cell<bool>,
    /// Turns of serving: the cycle sees from it whether somebody was served meanwhile.
    turns: Cell<u64>,
    /// Store microseconds until which data stand still (CLIENT PAUSE).
    hold_until_us: Cell<u64>,
    /// See [`Shard::write_deaths_in_pause`].
    writes_deaths_in_pause: Cell<bool>,
    /// Another server says what dies: see [`Shard::set_following`].
    is_following: Cell<bool>,
    /// What runs comes from a log: no key is dead before the log says so.
    is_replaying: Cell<bool>,
    records: Records,
    pub durable: Durable,
    room: Room,
    /// A snapshot's part.
    written: RefCell<Option<Rc<RefCell<snapshot::Written>>>>,
    outbox: Outbox,
    /// Buffers for replies that are kept for reuse.
    pub spare: Pool<Vec<u8>>,
    transactions: Transactions,
    asking: Asking,
    stalled: Stalled,
    /// Messages are taken as late as this, by chance, in microseconds (DEBUG SHARD-DELAY).
    delay_us: Cell<u64>,
    /// Calls that others have not answered yet.
    unanswered_calls: RefCell<HashMap<u64, Rc<calls::Unanswered>>>,
    next_call: Cell<u64>,
    front: OnceCell<Rc<dyn Front>>,
    /// That of the tasks of serving.
    serving_queue: OnceCell<Queue>,
}

/// Buffers for replies that are kept for reuse.
const SPARE: pool::Limits = pool::Limits { count: 64, item_bytes: 64 * 1024, bytes: 4 << 20 };

impl Shard {
    pub fn new(
        id: usize,
        keyspace: Keyspace,
        clock: Clock,
        Shared { sequence, ceiling, under_way }: Shared,
        specs: Arc<[Spec]>,
        seed: u64,
        config: Arc<Config>,
    ) -> Rc<Shard> {
        let count = sequence.shards();
        let shard = Rc::new(Shard {
            id,
            count,
            specs: specs.clone(),
            meter: Meter::new(specs),
            clock,
            hasher: keyspace.hasher().clone(),
            keyspace: RefCell::new(keyspace),
            rng: RefCell::new(fastrand::Rng::with_seed(seed)),
            limits: RefCell::new(config.feasible_limits()),
            reply_bytes: Cell::new(0),
            settings: Cell::new(expire::settings(&config)),
            config: RefCell::new(Rc::new(Config::clone(&config))),
            cycle: RefCell::new(Cycle::default()),
            cycle_wakes_ms: Cell::new(0),
            cycle_alarm: Notify::default(),
            garbage_alarm: Notify::default(),
            stale_alarm: Notify::default(),
            deaths_alarm: Notify::default(),
            groups_alarm: Notify::default(),
            telling_alarm: Notify::default(),
            telling_wakes_ms: Cell::new(0),
            tracked_keys: Cell::new(0),
            waiters: RefCell::default(),
            has_waiters: Cell::new(false),
            turn_began_us: Cell::new(0),
            is_fresh: Cell::new(false),
            unfinished: RefCell::new((0..count).map(|_| VecDeque::new()).collect()),
            unfinished_batches: Cell::new(0),
            under_way,
            held_back: HeldBack::default(),
            postponed: Cell::new(false),
            turns: Cell::new(0),
            hold_until_us: Cell::new(0),
            writes_deaths_in_pause: Cell::new(false),
            is_following: Cell::new(false),
            is_replaying: Cell::new(false),
            records: Records::default(),
            durable: Durable::default(),
            room: Room::new(ceiling),
            written: RefCell::default(),
            outbox: Outbox::new(id, count),
            spare: Pool::new(SPARE),
            transactions: Transactions::new(id, count, sequence),
            asking: Asking::default(),
            stalled: Stalled::default(),
            delay_us: Cell::new(0),
            unanswered_calls: RefCell::default(),
            next_call: Cell::new(0),
            front: OnceCell::new(),
            serving_queue: OnceCell::new(),
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
        self.take_limits(&config);
        self.settings.set(expire::settings(&config));
        self.keyspace.borrow_mut().effects.set_wanted(config.notify_keyspace_events);
        self.meter.configure(&config);
        self.tracked_keys.set(match config.tracking_table_max_keys {
            0 => usize::MAX,
            keys => keys.div_ceil(self.count as u64) as usize,
        });
        self.keyspace.borrow_mut().deaths.value_bytes_max = config.expiry_event_value_bytes;
        self.keyspace.borrow_mut().times_deaths = config.latency_monitor_threshold_ms > 0;
        self.outbox.set_spin(Duration::from_micros(config.spin_us));
        self.configure_room(&config);
        *self.config.borrow_mut() = Rc::new(Config::clone(&config));
        self.cycle_alarm.notify();
    }

    /// Looks what policy holds for a prefix now. While another server is followed none does: see `suspend_policies`.
    pub fn take_over_policy(&self, prefix: &str) {
        if self.is_following() {
            return;
        }
        let policy = self.config().expiry_policies.lock().get(prefix).cloned();
        self.keyspace.borrow_mut().set_policy(prefix.as_bytes(), policy);
    }

    /// Bytes that are kept for reuse, for replies and for messages to other shards.
    pub fn kept_bytes(&self) -> usize {
        self.spare.bytes() + self.outbox.pool.bytes()
    }

    /// Gives back what was kept for reuse and has not been needed since the last time.
    pub fn trim_kept(&self) {
        self.spare.trim();
        self.outbox.pool.trim();
    }

    /// Gives back all that is kept for reuse.
    fn drop_kept(&self) {
        self.spare.clear();
        self.outbox.pool.clear();
    }

    pub fn settings(&self) -> Settings {
        self.settings.get()
    }

    /// Turns the cycle on or off (DEBUG SET-ACTIVE-EXPIRE), until the configuration changes.
    pub fn set_active_expire(&self, enabled: bool) {
        self.settings.set(Settings { enabled, ..self.settings.get() });
        self.cycle_alarm.notify();
    }

    /// Nothing dies by its deadline until then, nor goes because memory is short.
    pub fn hold_expiry_until(&self, until_us: u64) {
        self.hold_until_us.set(until_us);
        self.follow_hold();
    }

    fn follow_hold(&self) {
        self.keyspace.borrow_mut().still_until_us = self.still_until_us();
        self.cycle_alarm.notify();
        self.telling_alarm.notify();
    }

    /// Until when data stand still, store microseconds.
    fn still_until_us(&self) -> u64 {
        if self.is_following.get() || self.is_replaying.get() { u64::MAX } else { self.hold_until_us.get() }
    }

    /// From now on these are another server's data, which says when a key dies: what is dead here is hidden, and stays; or
    /// they are this server's own again, and what is late dies at once.
    pub fn set_following(&self, wants: bool) {
        self.is_following.set(wants);
        self.meter.set_following(wants);
        self.follow_hold();
    }

    /// Whether these are another server's data.
    pub fn is_following(&self) -> bool {
        self.is_following.get()
    }

    /// Whether data stand still at this moment, see [`Shard::hold_expiry_until`].
    #[inline]
    pub fn stands_still(&self, now: Now) -> bool {
        now.us < self.still_until_us()
    }

    /// Whether nothing is given up for memory at this moment. What dies here is another server's to say; what is evicted is so
    /// where this one does not keep to a ceiling of its own.
    pub(in crate::shard) fn evicts_nothing(&self, now: Now) -> bool {
        match self.is_following.get() && !self.room.leaves_to_primary() {
            true => self.is_replaying.get() || now.us < self.hold_until_us.get(),
            false => self.stands_still(now),
        }
    }

    /// Hands events to the front; wakes the cycle where a deadline is earlier than it expects. To be called after
    /// commands have run, when no part of the shard is borrowed.
    #[inline]
    pub fn after_commands(&self) {
        self.serve_waiters();
        self.tell_means();
        let mut keyspace = self.keyspace.borrow_mut();
        if keyspace.next_due_hint_ms() < self.cycle_wakes_ms.get() {
            self.cycle_alarm.notify();
        }
        if keyspace.times_deaths {
            self.meter.count_event(Event::ExpireDel, keyspace.take_longest_death_us().saturating_mul(1_000));
        }
        if keyspace.has_garbage() {
            self.garbage_alarm.notify();
        }
        if keyspace.stale_copies() > 0 {
            self.stale_alarm.notify();
        }
        if !keyspace.deaths.is_empty() {
            self.deaths_alarm.notify();
        }
        if keyspace.wants_renewals() {
            self.groups_alarm.notify();
        }
        if keyspace.next_owed_ms() < self.telling_wakes_ms.get() {
            self.telling_alarm.notify();
        }
        let effects = &mut keyspace.effects;
        if effects.has_invalidated() {
            // That is told at the end of the turn, see `tell_invalidated`.
            self.outbox.kick();
        }
        let (has_views, tells) = (effects.has_views(), !effects.is_empty() || effects.is_journaled());
        drop(keyspace);
        if has_views {
            self.look_at_views();
        }
        if tells {
            self.hand_out();
        }
    }

    /// Tells the front what is to be done about views.
    #[cold]
    fn look_at_views(&self) {
        let news = self.keyspace.borrow_mut().take_view_news();
        if news != ViewNews::default() {
            self.front().views(news);
        }
    }

    /// Tells the front of events that have come together by now: before the replies of those commands leave for another shard, and
    /// before a connection begins to listen.
    pub fn tell_events(&self) {
        if !self.keyspace.borrow().effects.is_empty() {
            self.hand_out();
        }
    }

    /// Tells the front of changes.
    #[cold]
    fn hand_out(&self) {
        let notices = self.keyspace.borrow_mut().effects.take();
        if !notices.is_empty() {
            self.front().notices(notices);
        }
        if self.has_records() {
            // Where nothing else comes, as behind deaths, the turn has to end all the same.
            self.end_turn_soon();
        }
    }

    /// Tells the front what has changed in this turn of what connections have read. To be called before the turn's
    /// messages leave: so it comes behind the replies that have the old values.
    fn tell_invalidated(&self) {
        let invalidated = {
            let effects = &mut self.keyspace.borrow_mut().effects;
            effects.has_invalidated().then(|| effects.take_invalidated())
        };
        if let Some(invalidated) = invalidated {
            self.front().invalidated(invalidated);
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
        self.has_given();
    }

    /// A connection has more to do, after the others: [`Front::resume`] follows.
    pub fn postpone(&self) {
        self.postponed.set(true);
        self.outbox.kick();
    }

    /// The turn ends soon, whether or not anything else comes: what was changed in it is handed over then.
    pub fn end_turn_soon(&self) {
        self.outbox.kick();
    }

    fn resume_postponed(&self) -> bool {
        // Who looks after them may be a task that has yet to have its turn: so there was something to do, as there is again.
        let has_waiters = self.has_waiters_to_serve();
        if has_waiters {
            self.begin_turn();
            self.after_commands();
        }
        let postponed = self.postponed.take();
        if postponed {
            self.front().resume();
        }
        postponed || has_waiters
    }

    fn has_unfinished_work(&self) -> bool {
        let may_go_on = self.unfinished_batches.get() > 0 && !self.is_held_back();
        self.postponed.get() || may_go_on || self.has_held_back_to_go_on() || self.has_waiters_to_serve()
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

    /// Runs something in a task of its own, after what runs now; in the order of these calls, whoever makes them: the
    /// cycle's tasks may be in a queue of their own, whose turns come at other times.
    pub fn defer(&self, work: impl FnOnce() + 'static) {
        note_woken();
        let queue = *self.serving_queue.get().expect("set when the shard starts");
        // (A task that is spawned without a queue is run at once; one like this waits for its turn.)
        executor::spawn_into(queue, async move { work() });
    }

    /// Starts the transport and the cycle.
    pub fn start(self: &Rc<Shard>, links: Links, transport: Transport) {
        assert!(self.serving_queue.set(Queue::current()).is_ok(), "a shard starts once");
        self.outbox.set_transport(transport.clone());
        transport.set_spin(Duration::from_micros(self.config().spin_us));
        executor::spawn(transport.clone().drive(Rc::new(Mail::new(self.clone(), links))));
        expire::start(self, &transport);
        executor::spawn(ceiling::keep_below(self.clone()));
        executor::spawn(stalled::go_on_with_room(self.clone()));
        if let Some(xadd) = CommandId::named(&self.specs, "xadd", Group::Stream) {
            executor::spawn(deaths::write_deaths(self.clone(), xadd));
        }
        if let Some(touch) = CommandId::named(&self.specs, "group-touch", Group::Generic) {
            executor::spawn(groups::renew_groups(self.clone(), touch));
        }
        let named = |name, group| CommandId::named(&self.specs, name, group);
        let commands = named("xadd", Group::Stream).zip(named("group-told", Group::Generic));
        if let Some((xadd, told)) = commands.filter(|_| self.id == 0) {
            executor::spawn(groups::tell_deaths(self.clone(), xadd, told));
        }
    }
}
