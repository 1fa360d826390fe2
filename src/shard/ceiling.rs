//! The ceiling: `maxmemory`, one number for the process. Before a command that may need memory runs alone, and for a
//! transaction before it begins, its shard sees to it that there is room.
//!
//! ```text
//!  counted here <= allowed        yes: nothing is asked
//!  counted of all <= maxmemory    yes: the shard is allowed a part of the rest
//!  else what this shard has       garbage, copies of dead keys (`STALE`), dead keys, then keys that the policy lets go, if they
//!                                 come next of all
//!       what others have          they are asked for it; the command runs while they are about it, up to the bound
//! ```
//!
//! What all threads have allocated is known exactly (`observe/memory.rs`), but to add it up costs a look at each other
//! thread's counter. So a shard that has looked may grow by a share of what was left before it looks again, and all shares
//! together are no more than that.
//!
//! Names of changed keys that are on their way to those who keep copies are no reason for more keys to go: they count
//! against the bound only.
//!
//! No live key goes while any shard has a dead one, or a copy of one: shards tell each other when their earliest deadline is. Nothing goes
//! that a transaction holds, nor anything during a transaction that holds nothing since it runs on this shard alone.
//!
//! Live keys go in the order of all shards. Each publishes what the keys are worth that it would lose next, and none loses
//! a key that is clearly worth more than those of another shard: that one is asked, and gives until its keys are worth more in turn.
//! So that nobody waits for that, they begin ahead, while there is a reserve below the ceiling. Where memory grows faster than
//! they give, beyond half of the least bound, a shard takes what it has itself.
//!
//! Where memory is past the bound while others are still about to give, commands that may need memory wait for that.
//! Buffers that are kept for reuse go where no key does. Where nobody has anything to give, those commands are refused.
//! A command is not kept waiting by what its own shard evicts for longer than `maxmemory-eviction-tenacity` says: where a
//! ceiling was lowered, the task here goes on, a slice a turn.

use super::Shard;
use super::message::{At, Lock, Message};
use crate::clock::{Now, store_us};
use crate::command::spec::flag::DENY_OOM;
use crate::config::{Config, EvictionOrder, MaxmemoryPolicy};
use crate::keyspace::{Clocking, Evicted, Eviction, Keyspace, NEVER_MS, Prospect};
use crate::net::{Notify, sleep, step_back};
use crate::observe::{Event, machine, memory};
use crate::resp::Request;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// What the shards tell each other.
pub struct Ceiling {
    shards: Vec<Means>,
    /// When memory was seen above the ceiling that could not be brought below it at once, store microseconds; 0 where it
    /// is below.
    exceeded_from_us: AtomicU64,
    exceeded_us: AtomicU64,
    /// Somebody has seen memory above the ceiling: whoever may need more looks, too.
    is_short: AtomicBool,
}

/// What a shard has to give.
#[repr(align(64))]
#[derive(Default)]
struct Means {
    /// When its next key dies, or has died, store milliseconds.
    due_ms: AtomicU64,
    /// It has keys that the policy lets go, or garbage.
    has_some: AtomicBool,
    /// It keeps buffers for reuse. It is asked for them, but that is no reason to hope: new ones come with what it is
    /// asked to do next.
    keeps_buffers: AtomicBool,
    /// It was asked, and has not looked yet.
    is_asked: AtomicBool,
    /// What the keys are worth that it would lose next, see [`Prospect::until`].
    worth: AtomicU64,
}

/// Whoever has published this has to look first.
const WORTH_UNKNOWN: u64 = 0;
/// There is nothing to lose.
const WORTH_OF_NONE: u64 = u64::MAX;

/// A shard's part.
pub(super) struct Room {
    ceiling: Arc<Ceiling>,
    /// 0: there is no ceiling.
    max_bytes: Cell<u64>,
    /// What this thread may have allocated before it has to look.
    allowed: Cell<i64>,
    policy: Cell<MaxmemoryPolicy>,
    /// A replica evicts nothing.
    leaves_to_primary: Cell<bool>,
    samples: Cell<usize>,
    longest_us: Cell<u64>,
    /// What was used when the ceiling was set, where that was more, and what has been made of it since: no command may bring
    /// it above that again.
    left_bytes: Cell<u64>,
    /// How many changes there were when this shard had nothing to give: nothing, until there are others.
    empty_at: Cell<Option<u64>>,
    /// What the least is worth that this shard would lose next, see [`Prospect::from`], and when that was seen.
    next_from: Cell<u64>,
    next_seen_us: Cell<u64>,
    /// When the next key dies, or one of its elements, as it was known when the next deadlines were published.
    next_due_ms: Cell<u64>,
    /// How often keys were evicted here.
    rounds: Cell<u64>,
    /// Since when commands wait here for others to make room, store microseconds; 0 where none has to.
    awaited_from_us: Cell<u64>,
    alarm: Notify,
}

/// Whether there is room for what may need memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    Enough,
    /// There is none yet, but somebody is about to make some: what needs it waits.
    Soon,
    None,
}

/// How much memory is used.
#[derive(Clone, Copy)]
struct Used {
    /// What counts against the bound.
    all: u64,
    /// What counts against the ceiling, see [`Room::uncounted`].
    counted: u64,
}

/// What has become of an attempt to give memory back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gave {
    Some,
    /// There is something, which has to stay for now.
    NotNow,
    /// There is something, but another shard has what is worth less; it is asked for that.
    NotNext,
    Nothing,
}

/// The bound is above the ceiling by this part of it, and by no less than so many bytes.
const SLACK_PART: u64 = 100;
const SLACK_BYTES: u64 = 5 << 19;
/// A shard is allowed no more than this part of the ceiling at once.
const ALLOWED_PART: u64 = 2048;
/// What is given back together: dead keys, elements of garbage, copies of dead keys, bytes of live keys.
const DEAD_AT_ONCE: usize = 64;
const GARBAGE_AT_ONCE: usize = 256;
const STALE_AT_ONCE: usize = 64;
const BYTES_AT_ONCE: u64 = 64 << 10;
/// Copies of what has died are no more than this part of the ceiling, or of the machine's memory where there is none.
const STALE_PART: u64 = 4;
/// Where keys go in an order, shards begin so early to make room: this part of the ceiling before it, and no earlier than so
/// many bytes.
const RESERVE_PART: u64 = 256;
const RESERVE_BYTES: u64 = 256 << 10;
/// Where much is to go, a shard gives this part of it, by shards, and then looks whether it is still its turn; but no less than
/// so many bytes.
const PART_AT_ONCE: u64 = 32;
const BYTES_AT_ONCE_LEAST: u64 = 8 << 10;
/// For how long a command believes what this shard has seen of its own keys: it is not their turn, so nothing is looked for.
const SEEN_US: u64 = 500;
/// After so many evictions all shards look anew what they would lose.
const ROUNDS_A_LOOK: u64 = 256;
/// How long until the task looks again whether what had to stay may go.
const NOT_NOW: Duration = Duration::from_millis(5);
/// How long until those look again who wait for others to make room.
const SOON: Duration = Duration::from_micros(500);
/// Where memory has been past the limit for so long whatever others had to give, commands are refused: what they have is
/// held, by a script maybe that goes on for long.
const AWAITED_US: u64 = 1_000_000;
/// A turn of the task.
const SLICE_US: u64 = 100;

impl Ceiling {
    pub fn new(shards: usize) -> Arc<Ceiling> {
        Arc::new(Ceiling {
            shards: (0..shards)
                .map(|_| Means {
                    due_ms: AtomicU64::new(NEVER_MS),
                    worth: AtomicU64::new(WORTH_UNKNOWN),
                    ..Means::default()
                })
                .collect(),
            exceeded_from_us: AtomicU64::new(0),
            exceeded_us: AtomicU64::new(0),
            is_short: AtomicBool::new(false),
        })
    }

    /// For how long memory was above the ceiling: this time, and in all, in microseconds.
    pub fn exceeded_us(&self) -> (u64, u64) {
        let now_us = match self.exceeded_from_us.load(Ordering::Relaxed) {
            0 => 0,
            from_us => store_us().saturating_sub(from_us),
        };
        (now_us, self.exceeded_us.load(Ordering::Relaxed) + now_us)
    }

    /// From now on (CONFIG RESETSTAT).
    pub fn reset(&self) {
        self.exceeded_us.store(0, Ordering::Relaxed);
        let from_us = &self.exceeded_from_us;
        let _ = from_us.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |from_us| (from_us > 0).then(store_us));
    }

    fn note_short(&self, is_short: bool) {
        if self.is_short.load(Ordering::Relaxed) != is_short {
            self.is_short.store(is_short, Ordering::Relaxed);
        }
    }

    fn note(&self, is_exceeded: bool) {
        if is_exceeded {
            let _ = self.exceeded_from_us.compare_exchange(0, store_us(), Ordering::Relaxed, Ordering::Relaxed);
        } else if self.exceeded_from_us.load(Ordering::Relaxed) != 0 {
            let from_us = self.exceeded_from_us.swap(0, Ordering::Relaxed);
            if from_us != 0 {
                self.exceeded_us.fetch_add(store_us().saturating_sub(from_us), Ordering::Relaxed);
            }
        }
    }
}

impl Room {
    pub fn new(ceiling: Arc<Ceiling>) -> Room {
        Room {
            ceiling,
            max_bytes: Cell::new(0),
            allowed: Cell::new(i64::MAX),
            policy: Cell::default(),
            leaves_to_primary: Cell::new(true),
            samples: Cell::new(1),
            longest_us: Cell::new(0),
            left_bytes: Cell::new(0),
            empty_at: Cell::new(None),
            next_from: Cell::new(WORTH_UNKNOWN),
            next_seen_us: Cell::new(0),
            next_due_ms: Cell::new(NEVER_MS),
            rounds: Cell::new(0),
            awaited_from_us: Cell::new(0),
            alarm: Notify::default(),
        }
    }

    /// - `shard`: whose room it is
    pub fn configure(&self, shard: usize, config: &Config) {
        let before = self.max_bytes.replace(config.maxmemory.of(machine::memory_bytes()));
        self.policy.set(config.maxmemory_policy);
        self.next_from.set(WORTH_UNKNOWN);
        self.means(shard).worth.store(WORTH_UNKNOWN, Ordering::Relaxed);
        self.leaves_to_primary.set(config.replica_ignore_maxmemory);
        self.samples.set(config.maxmemory_samples as usize);
        self.longest_us.set(match config.maxmemory_eviction_tenacity {
            tenacity @ ..=10 => u64::from(tenacity) * 50,
            100.. => u64::MAX,
            tenacity => (500.0 * 1.15f64.powi(tenacity as i32 - 10)) as u64,
        });
        // Everybody looks anew.
        self.allowed.set(if self.is_bounded() { i64::MIN } else { i64::MAX });
        self.empty_at.set(None);
        if before != self.max_bytes.get() {
            self.left_bytes.set(memory::used_now());
            self.ceiling.note(false);
            self.ceiling.note_short(false);
        }
        self.alarm.notify();
    }

    /// Whether a replica evicts nothing.
    pub fn leaves_to_primary(&self) -> bool {
        self.leaves_to_primary.get()
    }

    #[inline]
    fn is_bounded(&self) -> bool {
        self.max_bytes.get() > 0
    }

    fn bound(&self) -> u64 {
        let max_bytes = self.max_bytes.get();
        max_bytes.saturating_add((max_bytes / SLACK_PART).max(SLACK_BYTES))
    }

    fn used(&self) -> Used {
        // What waits for the disk or for replicas has bounds of its own: no data has to go for that, and no command is refused.
        let all = memory::used_now().saturating_sub(memory::bounded_elsewhere());
        Used { all, counted: all.saturating_sub(self.uncounted()) }
    }

    /// What is only on its way to be told, as far as that is no more than may be above the ceiling.
    fn uncounted(&self) -> u64 {
        memory::transient_bytes().min(self.bound() - self.max_bytes.get())
    }

    /// So much is used, which is not too much: the shard may grow by a share of the rest.
    fn allow(&self, used: u64) {
        let (max_bytes, shards) = (self.max_bytes.get(), self.ceiling.shards.len() as u64);
        let share = (max_bytes.saturating_sub(used) / (2 * shards)).min(max_bytes / ALLOWED_PART);
        self.allowed.set(memory::counted_here().saturating_add(share as i64));
        self.left_bytes.set(0);
        self.awaited_from_us.set(0);
        self.ceiling.note(false);
        self.ceiling.note_short(false);
    }

    /// So much more is used than may be. What may be used at the most for commands to run: the bound, or what a lowered
    /// ceiling has left.
    fn limit(&self, used: u64) -> u64 {
        self.ceiling.note_short(true);
        self.left_bytes.set(self.left_bytes.get().min(used));
        self.bound().max(self.left_bytes.get().saturating_add(SLACK_BYTES))
    }

    /// What that means for commands, where so much is used and somebody is about to give something back.
    fn space(&self, used: u64, limit: u64) -> Space {
        if used <= limit {
            self.awaited_from_us.set(0);
            return Space::Enough;
        }
        if self.awaited_from_us.get() == 0 {
            self.awaited_from_us.set(store_us());
        }
        if self.is_awaited() { Space::Soon } else { Space::None }
    }

    fn is_awaited(&self) -> bool {
        let from_us = self.awaited_from_us.get();
        from_us > 0 && store_us().saturating_sub(from_us) < AWAITED_US
    }

    /// Whether this shard is as sure as it can be, without looking, that there is room.
    #[inline]
    fn is_ample(&self) -> bool {
        !self.is_bounded()
            || memory::counted_here() <= self.allowed.get() && !self.ceiling.is_short.load(Ordering::Relaxed)
    }

    /// Whether keys go in an order that all shards keep.
    fn has_order(&self) -> bool {
        self.ceiling.shards.len() > 1 && self.policy.get().order().is_some_and(|order| order != EvictionOrder::Random)
    }

    /// Down to what keys go once they do.
    fn aim(&self) -> u64 {
        let max_bytes = self.max_bytes.get();
        let reserve = if self.has_order() { (max_bytes / RESERVE_PART).min(RESERVE_BYTES) } else { 0 };
        max_bytes - reserve
    }

    /// How much may be used where a shard still leaves it to others to give what is worth less: half of what a bound is above
    /// its ceiling at the least, or above what a lowered ceiling has left.
    fn in_order_until(&self) -> u64 {
        self.max_bytes.get().max(self.left_bytes.get()).saturating_add(SLACK_BYTES / 2)
    }

    /// How much to give where so much is used too much, before somebody else may have his turn. Deadlines are sought
    /// together: a little more than is needed goes with hardly more work than a single key.
    fn at_once(&self, excess: u64) -> u64 {
        if self.has_order() {
            let part = excess / (PART_AT_ONCE * self.ceiling.shards.len() as u64);
            return part.clamp(BYTES_AT_ONCE_LEAST, BYTES_AT_ONCE);
        }
        let is_sought = self.policy.get().order() == Some(EvictionOrder::Deadline);
        excess.clamp(if is_sought { BYTES_AT_ONCE_LEAST } else { 0 }, BYTES_AT_ONCE)
    }

    /// What the keys may be worth that go, where others have such, and so many bytes are to go. Where it is much, one shard
    /// gives a little more than it should before another does, so that there are not too many turns; the last parts, which are
    /// small, make up for it.
    fn limit_of(&self, worth: u64, bytes: usize, now: Now) -> u64 {
        if self.policy.get().order() != Some(EvictionOrder::Deadline) || worth == WORTH_UNKNOWN {
            return worth;
        }
        let more = (bytes as u64).min(BYTES_AT_ONCE).saturating_sub(BYTES_AT_ONCE_LEAST);
        worth.saturating_add((worth.saturating_sub(now.ms) / 64).saturating_mul(more) / BYTES_AT_ONCE)
    }

    fn means(&self, shard: usize) -> &Means {
        &self.ceiling.shards[shard]
    }
}

impl Shard {
    /// The ceiling in bytes; 0 where there is none.
    pub fn max_bytes(&self) -> u64 {
        self.room.max_bytes.get()
    }

    pub fn ceiling(&self) -> &Ceiling {
        &self.room.ceiling
    }

    pub(super) fn configure_room(&self, config: &Config) {
        self.room.configure(self.id, config);
        let mut keyspace = self.keyspace.borrow_mut();
        let whole = if self.room.is_bounded() { self.max_bytes() } else { machine::memory_bytes() };
        keyspace.stale_bytes_max = usize::try_from(whole / STALE_PART / self.count as u64).unwrap_or(usize::MAX);
        keyspace.set_clocking(Clocking::of(config));
        if keyspace.has_former_clocks() {
            self.garbage_alarm.notify();
        }
    }

    /// Whether there is room for commands that may need memory.
    #[inline]
    pub fn space(&self) -> Space {
        if self.room.is_ample() { Space::Enough } else { self.make_room(0) }
    }

    /// Whether there is room for a command that runs alone.
    #[inline]
    pub fn space_for(&self, at: &At, request: Request) -> Space {
        if !at.write || self.room.is_ample() || !self.spec(at.command).has(DENY_OOM) {
            return Space::Enough;
        }
        self.make_room(request.bytes())
    }

    /// Whether commands have to wait here for others to make room.
    pub fn awaits_room(&self) -> bool {
        self.room.is_awaited()
    }

    /// Returns when there is room, or none to come.
    pub async fn room_made(&self) {
        while self.awaits_room() && self.space() == Space::Soon {
            sleep(SOON).await;
        }
    }

    /// Whether memory is so far above the ceiling that not even what has begun may go on to need more.
    #[inline]
    pub fn is_past_bound(&self) -> bool {
        !self.room.is_ample() && self.room.used().all > self.room.bound()
    }

    #[cold]
    #[inline(never)]
    fn make_room(&self, needed: usize) -> Space {
        let (room, now) = (&self.room, self.clock.now());
        let (max_bytes, bound) = (room.max_bytes.get(), room.bound());
        let mut used = self.used();
        if used.counted <= max_bytes || self.evicts_nothing(now) {
            room.allow(used.counted);
            if used.counted > room.aim() {
                self.begin();
            }
            return Space::Enough;
        }
        let (began_us, was_over, limit) = (store_us(), used.all > bound, room.limit(used.all));
        while used.counted > max_bytes {
            let bytes = room.at_once(used.counted - room.aim()) as usize + needed;
            // Whoever has less to lose is about to give it, as long as that is soon enough.
            let in_order = room.has_order() && used.all <= room.in_order_until();
            if in_order && self.is_not_next() {
                room.awaited_from_us.set(0);
                return Space::Enough;
            }
            match self.give_some(bytes, used.all > bound, in_order, now) {
                Gave::Some => {}
                Gave::NotNext => {
                    room.awaited_from_us.set(0);
                    return Space::Enough;
                }
                Gave::NotNow => {
                    self.ask_others(now);
                    return room.space(used.all, limit);
                }
                Gave::Nothing => {
                    // Buffers may have gone. Only where that is enough does it count as room.
                    used = self.used();
                    if used.counted <= max_bytes {
                        break;
                    }
                    room.ceiling.note(true);
                    if self.ask_others(now) {
                        return room.space(used.all, limit);
                    }
                    room.awaited_from_us.set(0);
                    return Space::None;
                }
            }
            used = self.used();
            // Where the ceiling was lowered, each command makes up for itself, and the task for the rest.
            let is_late = store_us().saturating_sub(began_us) > room.longest_us.get();
            if is_late || was_over && used.all <= limit {
                room.ceiling.note(used.counted > max_bytes);
                room.alarm.notify();
                return room.space(used.all, limit);
            }
        }
        room.allow(used.counted);
        Space::Enough
    }

    /// There is little room left, or none: whoever comes next begins to make some.
    fn begin(&self) {
        let from = self.room.next_from.get();
        if self.next_of_others().is_some_and(|(_, worth)| worth < from) {
            self.ask_next();
        } else {
            self.room.alarm.notify();
        }
    }

    /// Who of the others has the least to lose, and what that is worth.
    fn next_of_others(&self) -> Option<(usize, u64)> {
        let all = (0..self.count).filter(|other| *other != self.id);
        all.map(|other| (other, self.room.means(other).worth.load(Ordering::Relaxed))).min_by_key(|(_, worth)| *worth)
    }

    /// Whether what this shard has seen of its own keys a moment ago is clearly worth more than what another has, which is
    /// asked.
    fn is_not_next(&self) -> bool {
        let room = &self.room;
        let from = room.next_from.get();
        let is_later = from != WORTH_OF_NONE && self.next_of_others().is_some_and(|(_, worth)| worth < from);
        let is_fresh = is_later && store_us().saturating_sub(room.next_seen_us.get()) < SEEN_US;
        if is_fresh {
            self.ask_next();
        }
        is_fresh
    }

    /// Tells the others what this shard would lose next.
    fn publish(&self, next: Option<Prospect>, keyspace: &Keyspace) {
        let room = &self.room;
        let next = next.unwrap_or(Prospect { from: WORTH_OF_NONE, until: WORTH_OF_NONE });
        room.next_from.set(next.from);
        room.next_seen_us.set(store_us());
        room.next_due_ms.set(keyspace.next_due_hint_ms());
        room.means(self.id).worth.store(next.until.max(WORTH_UNKNOWN + 1), Ordering::Relaxed);
    }

    /// Keys may have come that are worth less than all that were there, or the first that may go at all.
    fn note_nearer(&self, due_ms: u64, has_victims: bool) {
        let (room, worth) = (&self.room, &self.room.means(self.id).worth);
        let is_by_deadline = room.policy.get().order() == Some(EvictionOrder::Deadline);
        if is_by_deadline && has_victims && due_ms < room.next_due_ms.get() {
            room.next_due_ms.set(due_ms);
            room.next_from.set(room.next_from.get().min(due_ms));
            worth.store(worth.load(Ordering::Relaxed).min(due_ms.max(WORTH_UNKNOWN + 1)), Ordering::Relaxed);
        } else if has_victims && room.next_from.get() == WORTH_OF_NONE {
            room.next_from.set(WORTH_UNKNOWN);
            worth.store(WORTH_UNKNOWN, Ordering::Relaxed);
        }
    }

    /// How much is used, what has changed in this turn included.
    fn used(&self) -> Used {
        if let Ok(mut keyspace) = self.keyspace.try_borrow_mut() {
            keyspace.effects.count_transient();
        }
        self.room.used()
    }

    /// What of all that is used does not count against the ceiling.
    pub fn uncounted_bytes(&self) -> u64 {
        if self.room.is_bounded() { self.room.uncounted() + memory::bounded_elsewhere() } else { 0 }
    }

    /// Gives some memory back: garbage first, then dead keys, then, where no shard has dead ones or it has to be, live
    /// ones: where it is to be in order, if no other shard has some that are worth less.
    fn give_some(&self, bytes: usize, at_any_price: bool, in_order: bool, now: Now) -> Gave {
        let Ok(mut keyspace) = self.keyspace.try_borrow_mut() else { return Gave::NotNow };
        if keyspace.has_garbage() {
            keyspace.collect_garbage(GARBAGE_AT_ONCE);
            return Gave::Some;
        }
        if keyspace.give_stale(STALE_AT_ONCE, now) > 0 {
            return Gave::Some;
        }
        // (What is dead on a replica is not its own to take away.)
        let may_sweep = !self.is_following() && !self.is_busy();
        if may_sweep && keyspace.next_due_hint_ms() < now.ms && !keyspace.deaths.is_full() {
            while let Some((_, db, _)) = keyspace.earliest().filter(|(at_ms, ..)| *at_ms < now.ms) {
                if keyspace.sweep_earliest(db, now.ms, now, DEAD_AT_ONCE).deleted > 0 {
                    self.records.end_outside(&mut keyspace.effects);
                    return Gave::Some;
                }
            }
        }
        let is_due = !self.is_following() && keyspace.earliest().is_some_and(|(at_ms, ..)| at_ms < now.ms);
        if !at_any_price && (is_due || self.others().any(|other| other.is_due(now))) {
            // Dead ones are held, or still to be told; or another shard has them.
            return Gave::NotNow;
        }
        if !self.has_victims(&keyspace, now) {
            self.publish(None, &keyspace);
            return self.give_kept();
        }
        let next_of_others = self.next_of_others().filter(|_| in_order && self.room.has_order());
        let how = Eviction {
            policy: self.room.policy.get(),
            samples: self.room.samples.get(),
            limit: next_of_others.map_or(WORTH_OF_NONE, |(_, worth)| self.room.limit_of(worth, bytes, now)),
        };
        let began_us = store_us();
        let Evicted { count, next, looks_on } = match self.locks_taken() {
            Some(is_held) => keyspace.evict(how, bytes, now, &is_held),
            None => Evicted::default(),
        };
        self.meter.count_event(Event::EvictionCycle, store_us().saturating_sub(began_us).saturating_mul(1_000));
        self.records.end_outside(&mut keyspace.effects);
        if looks_on {
            // Of those that were looked at none may go: the search goes on, with others' turns in between.
            return Gave::Some;
        }
        self.publish(next, &keyspace);
        self.look_anew();
        match count {
            0 if next.is_some_and(|next| next.from > how.limit) => {
                self.ask_next();
                Gave::NotNext
            }
            0 if self.is_busy() || is_due => Gave::NotNow,
            0 => {
                self.room.empty_at.set(Some(keyspace.effects.dirty));
                self.give_kept()
            }
            _ => Gave::Some,
        }
    }

    /// Asks whoever of the others comes next, and those who have to look first.
    fn ask_next(&self) {
        let Some((next, worth)) = self.next_of_others() else { return };
        if worth != WORTH_UNKNOWN {
            return self.ask(next);
        }
        let unknown = |other: &usize| self.room.means(*other).worth.load(Ordering::Relaxed) == WORTH_UNKNOWN;
        (0..self.count).filter(|other| *other != self.id).filter(unknown).for_each(|other| self.ask(other));
    }

    /// What others have published long ago may have changed since.
    fn look_anew(&self) {
        let rounds = self.room.rounds.get() + 1;
        self.room.rounds.set(rounds);
        if rounds.is_multiple_of(ROUNDS_A_LOOK) && self.room.has_order() {
            (0..self.count).filter(|other| *other != self.id).for_each(|other| self.ask(other));
        }
    }

    /// Where no key goes, buffers do that are kept for reuse. That may be enough, but it is no progress: there will be new
    /// ones after the next command.
    fn give_kept(&self) -> Gave {
        self.drop_kept();
        Gave::Nothing
    }

    /// Whether there may be keys that go; not where none was found and nothing has changed since.
    fn has_victims(&self, keyspace: &Keyspace, now: Now) -> bool {
        self.room.empty_at.get() != Some(keyspace.effects.dirty) && keyspace.has_victims(self.room.policy.get(), now)
    }

    /// Whether somebody holds a key of this hash; none where everything is held.
    fn locks_taken(&self) -> Option<impl Fn(u64) -> bool> {
        let is_free = !self.is_busy() || !self.is_everything_locked()?;
        is_free.then_some(move |hash| self.is_locked(Lock { hash, write: true }))
    }

    fn others(&self) -> impl Iterator<Item = &Means> {
        (0..self.count).filter(|other| *other != self.id).map(|other| self.room.means(other))
    }

    /// Asks other shards to give what they have, if they have something.
    fn ask_others(&self, now: Now) -> bool {
        let mut any = false;
        for other in (0..self.count).filter(|other| *other != self.id) {
            let means = self.room.means(other);
            let gives = means.is_due(now) || means.has_some.load(Ordering::Relaxed);
            any |= gives;
            let is_of_use = gives || means.keeps_buffers.load(Ordering::Relaxed);
            if is_of_use {
                self.ask(other);
            }
        }
        any
    }

    fn ask(&self, other: usize) {
        if !self.room.means(other).is_asked.swap(true, Ordering::Relaxed) {
            self.post(other, Message::Tell(Box::new(|shard| shard.room.alarm.notify())));
        }
    }

    /// Tells the others what this shard has to give, and the task that memory is short. To be called after commands have
    /// run.
    #[inline]
    pub(super) fn tell_means(&self) {
        if self.room.is_bounded() {
            self.tell_means_now();
        }
    }

    #[inline(never)]
    fn tell_means_now(&self) {
        let (mut keyspace, means) = (self.keyspace.borrow_mut(), self.room.means(self.id));
        keyspace.effects.count_transient();
        let has_victims = self.has_victims(&keyspace, self.clock.now());
        let has_garbage = keyspace.has_garbage();
        let has_stale = keyspace.stale_copies() > 0;
        let has_some = has_victims || has_garbage || has_stale;
        means.has_some.store(has_some, Ordering::Relaxed);
        means.keeps_buffers.store(self.kept_bytes() > 0, Ordering::Relaxed);
        let due_ms = if self.is_following() { NEVER_MS } else { keyspace.next_due_hint_ms() };
        // (A copy of what has died goes before all that lives, too.)
        means.due_ms.store(if has_stale { 0 } else { due_ms }, Ordering::Relaxed);
        self.note_nearer(due_ms, has_victims);
        // What is not a write may need memory, too, and what is part of a transaction does not ask.
        if memory::counted_here() > self.room.allowed.get() {
            let used = self.room.used().counted;
            if used <= self.room.max_bytes.get() {
                self.room.allow(used);
                return;
            }
            self.room.ceiling.note_short(true);
            if has_garbage || has_stale || due_ms < self.clock.now().ms || has_some && !self.room.has_order() {
                self.room.alarm.notify();
            } else if has_some {
                self.begin();
            }
        }
    }
}

impl Means {
    fn is_due(&self, now: Now) -> bool {
        self.due_ms.load(Ordering::Relaxed) < now.ms
    }
}

/// The task that brings memory below the ceiling, whoever needs it.
pub(super) async fn keep_below(shard: Rc<Shard>) {
    loop {
        shard.room.alarm.wait().await;
        while shard.room.is_bounded() {
            let now = shard.catch_up();
            if shard.evicts_nothing(now) {
                sleep(NOT_NOW).await;
                continue;
            }
            let (began_us, aim) = (store_us(), shard.room.aim());
            shard.room.means(shard.id).is_asked.store(false, Ordering::Relaxed);
            let (mut gave, mut used) = (Gave::Nothing, shard.used().counted);
            while used > aim {
                let bytes = shard.room.at_once(used - aim) as usize;
                gave = shard.give_some(bytes, false, true, now);
                used = shard.used().counted;
                if gave != Gave::Some || store_us().saturating_sub(began_us) > SLICE_US {
                    break;
                }
            }
            shard.after_commands();
            let is_below = used <= shard.room.max_bytes.get();
            if is_below {
                shard.room.allow(used);
            }
            if used <= aim || is_below && gave != Gave::Some {
                break;
            }
            match gave {
                Gave::Some => step_back().await,
                // Whoever is next says so when it is somebody else's turn.
                Gave::NotNext => {
                    step_back().await;
                    break;
                }
                // Not by the alarm, which this task may have rung itself: others have to have their turns.
                Gave::NotNow => {
                    shard.ask_others(now);
                    sleep(NOT_NOW).await;
                }
                Gave::Nothing => {
                    shard.room.ceiling.note(true);
                    shard.ask_others(now);
                    sleep(NOT_NOW).await;
                    break;
                }
            }
        }
        shard.room.means(shard.id).is_asked.store(false, Ordering::Relaxed);
    }
}
