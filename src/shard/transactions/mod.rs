//! Transactions: what takes effect on several shards in one moment.
//!
//! ```text
//!   connections ── outgoing ── numbers from the Sequence ──┬── link to another shard ──┐
//!   coordinators ──┘            (once a turn)              └── this shard's own part ──┤
//!                                                                                      v
//!   replies <── run, in the order of the sequence, where nobody who is before ── take_in (before anything else
//!               has locked one of the keys (`locks.rs`)                           of the turn runs)
//! ```
//!
//! Two forms. Where each shard can do its part without knowing of the others (MSET, MGET, DEL, most of EXEC), the parts
//! travel with the locks and run as soon as it is their turn: one message there, one back. Where a coordinator has to
//! look at one shard before it knows what to do on the next (RENAME, MSETNX), it *holds* its keys on all of them, takes
//! steps, and lets go.
//!
//! # Why histories are strictly serializable
//! - Parts run in the order of one sequence wherever they share a key: a shard runs a part when the watermark is past it
//!   ([`Sequence::watermark`]) and everybody before it in the queues of its keys is done. So there is no deadlock.
//! - When the first part of a transaction runs, every part has been handed to its shard. A command that is sent after
//!   somebody saw an effect of the transaction therefore finds it: shards take in what was handed to them before they
//!   run anything that came after it ([`Shard::begin_turn`]). Then it waits for the keys' turn, if that is not over.
//! - A part that waits for a key leaves a gap in the journal where the other parts have run: what follows those on their shards is
//!   on no disk before it has run, too. Whoever holds keys for long, which only scripts do, therefore lets such parts pass:
//!   the script is undone and begins again behind them ([`Shard::keeps_others_waiting`]; not where it has written or published under
//!   `script-undeclared-keys deny`, which keeps no copies: then they wait to its end), and others, who know of it by then, send no
//!   more of them. Coordinators that came before they could know of the script are let pass with them; later ones look
//!   themselves whether the script is busy, and are refused then ([`Transaction::turn_unless`](super::Transaction::turn_unless)). A
//!   coordinator that waits for a script on one shard and has keys on another, where such a part may wait for these, lets go of all
//!   within 20 ms, and tries again ([`Shard::hold_in_turn`]).
//! - A transaction has one `now`, which is in its number. No clock of a shard has left it behind when it is taken in, and
//!   the cycle deletes nothing that one that waits may still see.
//!
//! # Who waits for whom
//! | who | has | waits for |
//! |---|---|---|
//! | a command of one shard | its keys, for as long as it runs | whoever is before it in the queues of its keys, and its connection's command before it |
//! | a part of a transaction | the same | whoever is before it in those queues; the watermark |
//! | a coordinator (a hold): RENAME, EXEC in steps, a script with keys on several shards | its keys on its shards, in which nobody else takes steps | as a part does on each of its shards, until it has started there; then for its own steps, which wait for nobody |
//! | a script that lasts, begun at once | its keys, in front of everybody ([`BEFORE_ALL`]) | nobody; see below for one that wants more |
//! | a hold that wants everything on the only shard ([`Transaction::take_everything`](super::Transaction::take_everything)) | what it has | holds that have started, while none begins: it is the `stopper` |
//!
//! There is no circle, since everybody has one place, the same on all shards, and waits in queues for smaller places alone:
//! - Parts and holds stand at their number of the sequence. Commands of one shard stand behind the greatest that was taken in there,
//!   and among themselves in the order in which they came; nobody on another shard waits for them while they wait.
//! - Who has started waits in no queue any more. [`BEFORE_ALL`] is the place of those who start in the moment in which they enter,
//!   on keys that nobody has; they get more keys only where nobody wants these (`widen`), and never wait for them.
//! - A script that needs what others have is undone, lets go of all, and takes a new place at the end, with everything. Where it
//!   cannot be undone, which is so on the only shard alone, it becomes the stopper: what it waits for has started, and waits for nobody.
//! - No command takes a second hold within a coordinator's transaction: it has what the transaction has, and what needs more (the log
//!   begun or ended, a snapshot, REPLICAOF NO ONE) is done after EXEC, or refused in it. Who holds everything to change the server
//!   waits without a place, before that, until no script lasts. A script that begins to last meanwhile lets that pass, as above; where
//!   the script cannot be undone, and stays, the place is given up (`server/run/in_the_way.rs`).
//! - The watermark waits for the turns of shards, which end whatever they wait for.
//! - Parts and commands whose turn it is wait besides while much of what their shard has answered is under way (`under_way.rs`). The
//!   shards of the connections take answers in whatever they wait for themselves.
//!
//! Whoever has a key for long keeps those who want it waiting: scripts, until they are busy (`busy-reply-threshold`), and a long EXEC,
//! which ends since what it does was queued before. BUSY is told to commands and coordinators that want what a busy script has, those
//! who have begun to wait ([`Shard::refuse_waiting`], [`Transaction::turn_unless`](super::Transaction::turn_unless)) and those who come
//! (`server/run/in_the_way.rs`); never to a part or a hold that may have taken effect elsewhere.
//!
//! DEBUG WAITS draws this graph (`waits.rs`), and the tests look for circles that last.
//!
//! One-key commands pay one comparison a turn, and one a command: the table of locks is empty nearly always.

mod here;
mod holds;
mod locks;
mod outgoing;
mod parked;
mod waits;

pub use outgoing::Builder;
pub use parked::{Deferred, Heard};

use super::Shard;
use super::execute::Laps;
use super::links::TransactionLinks;
use super::message::{At, Batch, EVERYTHING, Lock, PART_BYTES, Ticket};
use super::under_way::ANSWERED_AT_BYTES;
use crate::clock::{Now, Sequence, sequence_ms, thread_cpu_ns};
use crate::command::{Handler, OwnedRequest};
use crate::journal;
use crate::keyspace::Lookup;
use crate::resp::Request;
use locks::Place;
use outgoing::Outgoing;
use parked::{BEFORE_ALL, Held, Hold, Parked, Pending, What};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

pub struct Transactions {
    sequence: Arc<Sequence>,
    links: RefCell<TransactionLinks>,
    outgoing: RefCell<Outgoing>,
    /// This shard's own parts, numbered.
    #[allow(clippy::vec_box)]
    handed_over: RefCell<Vec<Box<Batch>>>,
    /// Replies to this shard's own connections that did not travel.
    #[allow(clippy::vec_box)]
    answered: RefCell<Vec<Box<Batch>>>,
    waiting: RefCell<Parked>,
    /// Connections of other shards whose command has run that waited for a lock.
    may_go_on: RefCell<SmallVec<[u64; 1]>>,
    /// Whether anybody is in the table of locks.
    busy: Cell<bool>,
    /// The count of arrivals when they were last looked at.
    seen: Cell<u64>,
    /// The first number that the watermark has to pass before those can run who wait for nothing else.
    stuck_at: Cell<Option<u64>>,
    next_hold: Cell<u64>,
    /// Some that have run were answered with much.
    has_long: Cell<bool>,
    /// Off, parts run when they come, whatever that does to others: for the test that shows what is lost then.
    ordered: Cell<bool>,
}

/// With more locked keys than this the cycle waits for those who hold them.
const SET_ASIDE_MAX: usize = 4_096;

/// How long until somebody looks again who waits for what a transaction holds without a place in the queue.
pub const HELD_FOR: Duration = Duration::from_millis(1);

/// Rounds of sending and answering in one turn; what is left then waits for the next.
const ROUNDS: usize = 4;

impl Transactions {
    pub fn new(me: usize, shards: usize, sequence: Arc<Sequence>) -> Transactions {
        Transactions {
            sequence,
            links: RefCell::default(),
            outgoing: RefCell::new(Outgoing::new(me, shards)),
            handed_over: RefCell::default(),
            answered: RefCell::default(),
            waiting: RefCell::default(),
            may_go_on: RefCell::default(),
            busy: Cell::new(false),
            seen: Cell::new(0),
            stuck_at: Cell::new(None),
            has_long: Cell::new(false),
            next_hold: Cell::new(1),
            ordered: Cell::new(true),
        }
    }

    /// The number of a coordinator's next hold.
    pub fn next_hold(&self) -> u64 {
        let number = self.next_hold.get();
        self.next_hold.set(number + 1);
        number
    }

    pub fn connect(&self, links: TransactionLinks) {
        *self.links.borrow_mut() = links;
    }

    /// Whether there is something to take in.
    #[inline]
    fn has_news(&self, me: usize) -> bool {
        self.sequence.arrivals(me) != self.seen.get()
            || self.stuck_at.get().is_some_and(|at| self.sequence.watermark() > at)
    }

    /// Whether the shard should not wait for anything else.
    pub fn has_work(&self, me: usize) -> bool {
        self.has_news(me)
            || !self.answered.borrow().is_empty()
            || !self.handed_over.borrow().is_empty()
            || self.outgoing.borrow().may_leave(&self.links.borrow())
    }

    pub fn has_outgoing(&self) -> bool {
        !self.outgoing.borrow().is_empty()
    }
}

impl Shard {
    /// Begins to write a transaction; it leaves at the end of the turn.
    pub fn transaction(&self) -> Builder<'_> {
        self.outbox.kick();
        Builder::new(self.transactions.outgoing.borrow_mut(), &self.outbox)
    }

    /// Whether anybody waits or holds a key here.
    pub fn is_busy(&self) -> bool {
        self.transactions.busy.get()
    }

    /// Whether a command has to wait until a transaction has let go of one of its keys. Then it is to be handed to
    /// [`Shard::defer_own_command`].
    #[inline]
    pub fn must_wait(&self, at: &At, request: Request, client: u64) -> bool {
        self.transactions.busy.get() && self.finds_locked(at, request, client)
    }

    #[cold]
    fn finds_locked(&self, at: &At, request: Request, client: u64) -> bool {
        let waiting = self.transactions.waiting.borrow();
        waiting.locks.is_everything_taken()
            || waiting.locks.is_taken(client_lock(client))
            || self.locks_of(at, request).any(|lock| waiting.locks.is_taken(lock))
    }

    /// Whether somebody who needs this lock has to wait for it.
    pub fn is_locked(&self, lock: Lock) -> bool {
        self.transactions.busy.get() && self.transactions.waiting.borrow().locks.are_taken(&[lock])
    }

    /// Whether everybody who comes now has to wait; none while the locks change.
    pub(super) fn is_everything_locked(&self) -> Option<bool> {
        self.transactions.waiting.try_borrow().ok().map(|waiting| waiting.locks.is_everything_taken())
    }

    /// The moment for whoever gets a key before all who wait for it: see [`Parked::moment_before`].
    pub(super) fn moment_before_all(&self, hash: u64) -> Now {
        let now = self.clock.now();
        if !self.is_busy() {
            return now;
        }
        let first = Place { sequence: BEFORE_ALL, arrival: 0 };
        let locks = [Lock { hash, write: true }, Lock { hash: EVERYTHING, write: false }];
        self.transactions.waiting.borrow().moment_before(&locks, first, now)
    }

    /// Whether a coordinator has a key, and is not done.
    pub fn is_held(&self, hash: u64) -> bool {
        self.transactions.busy.get() && {
            let waiting = self.transactions.waiting.borrow();
            let holds = |id: usize| matches!(&waiting.pending[id].what, What::Hold(hold) if hold.started);
            [hash, EVERYTHING].into_iter().filter_map(|hash| waiting.locks.first_writer(hash)).any(holds)
        }
    }

    /// Whether a coordinator has everything, and is not done.
    pub(super) fn is_everything_held(&self) -> bool {
        self.is_held(EVERYTHING)
    }

    fn locks_of<'r>(&'r self, at: &At, request: Request<'r>) -> impl Iterator<Item = Lock> + use<'r> {
        let write = at.write;
        self.spec(at.command)
            .keys
            .indexes(request)
            .map(move |index| Lock { hash: self.hasher.hash(request.arg(index)), write })
    }

    /// Puts a command of this shard's own connection behind those whose keys it needs.
    pub fn defer_own_command(&self, handler: Handler, request: Request, at: At, ticket: Ticket) {
        self.outbox.count_unanswered(PART_BYTES + request.bytes());
        let (owed, request) = (request.bytes() as isize, OwnedRequest::of(request));
        self.defer_command(Deferred { handler, request, at, ticket, origin: self.id, owed });
    }

    /// Puts a command behind those whose keys it needs, and behind what its connection has waiting here already.
    pub(super) fn defer_command(&self, deferred: Deferred) {
        let request = deferred.request.as_request();
        let mut locks: SmallVec<[Lock; 4]> = self.locks_of(&deferred.at, request).collect();
        locks.push(client_lock(deferred.ticket.client));
        let waiting = &mut *self.transactions.waiting.borrow_mut();
        let place = waiting.highest.max(BEFORE_ALL + 1);
        waiting.enter(place, place, locks, What::Command(Some(Box::new(deferred))));
        self.transactions.busy.set(true);
    }

    /// Reads the clock, and takes in the transactions that have come: nothing may run before that.
    #[inline]
    pub fn catch_up(&self) -> Now {
        let now = self.clock.refresh();
        self.meter.lap(now.us);
        if self.transactions.has_news(self.id) {
            self.take_in();
        }
        now
    }

    /// The moment for which the cycle may delete: transactions that wait may look at an earlier one than the clock's.
    /// None while one holds everything: it is told when it is over, and may have moved the databases in which the dead
    /// would be told before that; and while one has changed something and has very many keys.
    pub fn cycle_now(&self) -> Option<Now> {
        let now = self.catch_up();
        if !self.transactions.busy.get() {
            return Some(now);
        }
        if self.is_everything_held() {
            return None;
        }
        let waiting = self.transactions.waiting.borrow();
        let seen_from = waiting.seen_from();
        // What a hold has changed is told at its end: of what it has changed nothing may be said to have died before that.
        let has_heard = waiting.has_heard();
        let few = if waiting.locks.is_everything_taken() { None } else { waiting.locks.hashes(SET_ASIDE_MAX) };
        Some(match few {
            Some(_) if seen_from >= now && !has_heard => now,
            Some(hashes) => {
                // Those who wait or hold look at these keys only: the others may go.
                let began_ns = thread_cpu_ns();
                self.keyspace.borrow_mut().set_aside(hashes, now);
                // There may be thousands of them, and the cycle may ask once a millisecond.
                self.cycle.borrow_mut().charge(thread_cpu_ns().saturating_sub(began_ns));
                now
            }
            None if has_heard => return None,
            None => now.min(seen_from),
        })
    }

    /// Before anybody looks who may look at an earlier moment than the clock's.
    #[inline]
    fn bring_back(&self) {
        let mut keyspace = self.keyspace.borrow_mut();
        if keyspace.has_aside() {
            let seen_from = keyspace.seen_from;
            keyspace.bring_back(seen_from.min(self.clock.now()));
        }
    }

    /// Sends what was written in this turn and runs what can run. `wake` rings another shard.
    pub(super) fn exchange_transactions(&self, wake: &mut dyn FnMut(usize)) {
        let mine = &self.transactions;
        let held_back = self.take_held_back();
        let mut goes_on = held_back.is_some();
        if let Some(clients) = held_back {
            {
                let waiting = &mut *mine.waiting.borrow_mut();
                waiting.ready.extend(waiting.held_back.drain(..));
            }
            clients.into_iter().for_each(|client| self.go_on_with_stalled(client));
        }
        for _ in 0..ROUNDS {
            if mine.has_outgoing() {
                self.number_and_send(wake);
            }
            if !mine.handed_over.borrow().is_empty() || mine.has_news(self.id) || goes_on {
                goes_on = false;
                self.take_in();
            }
            if !self.deliver_answers() {
                break;
            }
        }
    }

    fn number_and_send(&self, wake: &mut dyn FnMut(usize)) {
        let mine = &self.transactions;
        let now_ms = self.clock.now().ms;
        let own = {
            let (mut outgoing, mut links) = (mine.outgoing.borrow_mut(), mine.links.borrow_mut());
            outgoing.send(&mine.sequence, &mut links, now_ms, || self.delay(), wake)
        };
        mine.handed_over.borrow_mut().extend(own);
        (0..self.count).filter(|shard| *shard != self.id && mine.sequence.is_waiting(*shard)).for_each(wake);
    }

    /// Hands replies to this shard's own connections; whether there were any.
    #[inline]
    pub(super) fn deliver_answers(&self) -> bool {
        let any = !self.transactions.answered.borrow().is_empty();
        if any {
            self.deliver_all();
        }
        any
    }

    #[cold]
    fn deliver_all(&self) {
        for batch in self.transactions.answered.take() {
            self.take_replies(batch);
        }
    }

    #[cold]
    #[inline(never)]
    fn take_in(&self) {
        let mine = &self.transactions;
        // The watermark before the links: what is below it is in them.
        let watermark = mine.sequence.watermark();
        mine.seen.set(mine.sequence.arrivals(self.id));
        let mut news: SmallVec<[(u64, usize, usize); 32]> = SmallVec::new();
        {
            let waiting = &mut *mine.waiting.borrow_mut();
            let mut links = mine.links.borrow_mut();
            let came =
                links.consumers.iter_mut().flatten().flat_map(|link| std::iter::from_fn(move || link.pop().ok()));
            for batch in came.chain(mine.handed_over.take()) {
                self.delay();
                let first = batch.first;
                let held = waiting.batches.vacant_key();
                let intents = batch.transactions.iter().enumerate();
                news.extend(intents.map(|(index, intent)| (first + u64::from(intent.order), held, index)));
                let unfinished = batch.transactions.len();
                waiting.batches.insert(Held { unfinished, batch, unanswered: SmallVec::new() });
            }
        }
        news.sort_unstable();
        for (sequence, held, intent) in news {
            self.admit(sequence, watermark, held, intent);
            self.answer_long();
            self.serve_waiters();
        }
        self.go_on(watermark);
        self.after_commands();
    }

    /// A transaction runs at once, or takes its place among those who wait.
    fn admit(&self, sequence: u64, watermark: u64, held: usize, index: usize) {
        let mine = &self.transactions;
        let waiting = &mut *mine.waiting.borrow_mut();
        waiting.highest = waiting.highest.max(sequence);
        let batch = &mut waiting.batches[held].batch;
        let intent = batch.transactions[index];
        let locks = &batch.locks[intent.locks.0 as usize..intent.locks.1 as usize];
        let ordered = mine.ordered.get();
        let may_run = !ordered || sequence < watermark && !waiting.locks.are_taken(locks);
        if intent.hold == 0 && may_run && !self.must_hold_back() {
            self.run_parts(batch, index, sequence);
            self.count_done(waiting, held, Some(index));
            return;
        }
        let mut locks: SmallVec<[Lock; 4]> = locks.into();
        let what = match intent.hold {
            0 => What::Parts { held, intent: index },
            _ => What::Hold(Hold {
                origin: batch.origin,
                number: intent.hold,
                is_patient: intent.is_patient,
                started: false,
                is_let_go: false,
                steps: Vec::new(),
                heard: Heard::default(),
                writers: intent.writers,
            }),
        };
        let hold = (intent.hold != 0).then_some((batch.origin, intent.hold));
        if hold.is_some() {
            self.count_done(waiting, held, None);
        }
        if !ordered {
            locks.clear();
        }
        let id = waiting.enter(sequence, sequence, locks, what);
        if let Some(hold) = hold {
            waiting.holds.insert(hold, id);
        }
        mine.busy.set(true);
        self.keyspace.borrow_mut().seen_from = waiting.seen_from();
    }

    /// Runs whoever has all locks and is below the watermark.
    fn go_on(&self, watermark: u64) {
        let mine = &self.transactions;
        self.bring_back();
        self.end_let_go(watermark);
        {
            let waiting = &mut *mine.waiting.borrow_mut();
            while let Some((sequence, id)) = waiting.early.pop_first() {
                if sequence >= watermark {
                    waiting.early.insert((sequence, id));
                    break;
                }
                waiting.ready.push_back(id);
            }
        }
        while let Some(id) = self.next_ready(watermark) {
            if self.run_ready(id) {
                mine.waiting.borrow_mut().leave(id);
                self.answer_long();
                self.serve_waiters();
                mine.may_go_on.take().into_iter().for_each(|client| self.go_on_with_stalled(client));
            } else if !self.end_if_let_go(id) {
                self.take_steps(id);
            }
        }
        self.answer_partly_done();
        let waiting = mine.waiting.borrow();
        mine.busy.set(!waiting.locks.is_empty());
        self.keyspace.borrow_mut().seen_from = waiting.seen_from();
        let stuck_at = waiting.first_stuck(watermark);
        if stuck_at.is_some() || mine.stuck_at.get().is_some() {
            mine.sequence.set_waiting(self.id, stuck_at.is_some());
            // Whoever drives this shard looks at the windows once more before it waits.
            self.outbox.kick();
        }
        mine.stuck_at.set(stuck_at);
    }

    /// Runs somebody whose turn it is; whether that was all of it. A hold only starts.
    fn run_ready(&self, id: usize) -> bool {
        let mut borrowed = self.transactions.waiting.borrow_mut();
        let waiting = &mut *borrowed;
        let sequence = waiting.pending[id].place.sequence;
        match &mut waiting.pending[id].what {
            What::Hold(hold) => {
                hold.started = true;
                return false;
            }
            What::Parts { held, intent } => {
                let (held, intent) = (*held, *intent);
                self.run_parts(&mut waiting.batches[held].batch, intent, sequence);
                self.count_done(waiting, held, Some(intent));
            }
            What::Command(deferred) => {
                // A script may turn out to hold its keys for longer: it has to find the table of locks.
                let deferred = deferred.take().expect("it runs once");
                let Pending { place, locks, .. } = &waiting.pending[id];
                let now = waiting.moment_before(locks, *place, self.clock.now());
                drop(borrowed);
                if self.run_granted(&deferred, now) {
                    self.transactions.may_go_on.borrow_mut().push(deferred.ticket.client);
                }
            }
        }
        true
    }

    fn next_ready(&self, watermark: u64) -> Option<usize> {
        let waiting = &mut *self.transactions.waiting.borrow_mut();
        while let Some(id) = waiting.ready.pop_front() {
            // It may have lost a lock again, or be gone.
            let Some(pending) = waiting.pending.get(id).filter(|pending| pending.missing == 0) else { continue };
            let sequence = pending.place.sequence;
            if waiting.stopper.is_some() && matches!(pending.what, What::Hold(_)) {
                waiting.stopped.push(id);
                continue;
            }
            let is_due = sequence < watermark || !self.transactions.ordered.get();
            let (may_run, answers) = match pending.what {
                What::Parts { .. } => (is_due, true),
                What::Command(_) => (true, true),
                What::Hold(_) => (is_due, false),
            };
            if may_run && answers && self.must_hold_back() {
                waiting.held_back.push(id);
                continue;
            }
            if may_run {
                return Some(id);
            }
            waiting.early.insert((sequence, id));
        }
        None
    }

    /// Runs a transaction's parts on this shard.
    fn run_parts(&self, batch: &mut Batch, index: usize, sequence: u64) {
        let now = Now::from_ms(sequence_ms(sequence));
        self.clock.pass(now);
        let Batch { buffer, spans, parts, out, ends, transactions, locks, .. } = batch;
        let intent = transactions[index];
        let parts = &mut parts[intent.parts.0 as usize..intent.parts.1 as usize];
        let Some(db) = parts.first().map(|part| part.at.db) else { return };
        self.meter.lap_noted();
        for locks in locks[intent.locks.0 as usize..intent.locks.1 as usize].chunks(crate::keyspace::PREFETCHED) {
            self.keyspace.borrow().prefetch(locks.iter().map(|lock| Lookup::key(db, lock.hash)));
        }
        self.begin_unit();
        let (mut refused, first) = (false, out.len());
        let mut laps = Laps::default();
        for next in 0..parts.len() {
            laps.before(self, parts, next);
            let part = &mut parts[next];
            part.out.0 = out.len();
            part.ends.0 = ends.len();
            if !refused {
                let request = part.request(buffer, spans);
                self.execute(part.handler, request, part.at, now, out, ends);
                self.keep_short(first, part.out.0, part.at.proto, out);
                refused = part.guard && out.get(part.out.0) == Some(&b'-');
            }
            part.out.1 = out.len();
            part.ends.1 = ends.len();
            laps.after(self, parts, next);
        }
        laps.end(self, parts);
        if out.len() >= ANSWERED_AT_BYTES {
            self.transactions.has_long.set(true);
        }
        let part_of = journal::Transaction { number: sequence, shards: intent.writers };
        self.record(Some(part_of), self.end_unit());
    }

    /// One more of a batch is done; `answered` is its index where it has a reply. With the last of them the batch goes
    /// back.
    fn count_done(&self, waiting: &mut Parked, held: usize, answered: Option<usize>) {
        let batch = &mut waiting.batches[held];
        batch.unfinished -= 1;
        if batch.unfinished == 0 {
            let batch = waiting.batches.remove(held).batch;
            self.send_answers(batch);
        } else if let Some(index) = answered {
            if batch.unanswered.is_empty() {
                waiting.partly_done.push(held);
            }
            batch.unanswered.push(index);
        }
    }

    /// What is long leaves before more is made.
    fn answer_long(&self) {
        if self.transactions.has_long.take() {
            self.answer_partly_done();
        }
    }

    /// Answers those that are done where others of their batch, strangers perhaps, still have to wait.
    fn answer_partly_done(&self) {
        let mut waiting = self.transactions.waiting.borrow_mut();
        for held in std::mem::take(&mut waiting.partly_done) {
            // A batch that went back meanwhile has answered all of its own.
            let Some(Held { batch, unanswered, .. }) = waiting.batches.get_mut(held) else { continue };
            let mut answers = self.outbox.empty_batch();
            answers.origin = batch.origin;
            answers.out = std::mem::take(&mut batch.out);
            answers.ends = std::mem::take(&mut batch.ends);
            let Batch { buffer, spans, parts, transactions, .. } = &mut **batch;
            for intent in unanswered.drain(..).map(|index| transactions[index]) {
                for part in &mut parts[intent.parts.0 as usize..intent.parts.1 as usize] {
                    let request = self.meter.is_slow(part.ns).then(|| part.request(buffer, spans));
                    answers.answer(*part, request);
                    part.deferred = true;
                }
            }
            // They count with the batch that they came in.
            answers.owed -= (answers.parts.len() * PART_BYTES) as isize;
            if !answers.parts.is_empty() {
                self.send_answers(answers);
            }
        }
    }

    pub(super) fn send_answers(&self, mut batch: Box<Batch>) {
        batch.target = self.id as u16;
        batch.shows = self.durable.everything();
        if batch.origin == self.id {
            self.count_own_replies(&batch);
            self.transactions.answered.borrow_mut().push(batch);
            self.outbox.kick();
        } else {
            self.post_replies(batch);
        }
    }

    /// Whether transactions run in the order of their sequence; see [`Transactions::ordered`].
    pub fn set_transaction_order(&self, ordered: bool) {
        self.transactions.ordered.set(ordered);
    }
}

/// Keeps a connection's commands on one shard in their order while one of them waits.
pub(super) fn client_lock(client: u64) -> Lock {
    // Fibonacci hashing (Knuth, The Art of Computer Programming, volume 3, 6.4); zero locks everything.
    Lock { hash: (client + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15), write: true }
}
