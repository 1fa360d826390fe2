//! The active cycle of one shard.
//!
//! The blocks' minima say where something is due. While they do and budget is left, the cycle takes the block whose
//! minimum is earliest and deletes from it what is due, in slices of [`KEYS_A_SLICE`] keys, between which the shard
//! serves. Where it cannot keep up it does not take everything that a block has, but only what died within an eighth
//! of the oldest key's age: so the keys that died first go first, and no block is swept so often that the sweeps
//! themselves would count. The next cycle continues with what is earliest then; there is no cursor to lose.
//!
//! # When it runs
//! A key's death is a timer: the cycle starts in the first microsecond in which the earliest minimum is past, and not
//! before. Deadlines are whole milliseconds, and a cycle takes all that are past, so that two cycles are a millisecond
//! apart, however densely deadlines lie. Only what a cycle has left waits for `interval_ms` to pass: what it had no time
//! for, and what it may not delete because a transaction still sees it alive; and where more than half of the budget is
//! spent, cycles are so far apart, too. So nothing ever keeps the shard awake that
//! a cycle cannot change, a minimum that is too early least of all: the sweep that it causes makes it exact.
//!
//! Three limits hold at once:
//! - every form together spends at most `cpu_percent` of each second (`budget.rs`);
//! - all slow cycles within `interval_ms` together spend at most that share of it. Where a random sample of
//!   `sample_size` keys then shows more than `acceptable_stale_percent` dead, they go on at once;
//! - the fast form, where the shard is about to block and the slow one ran out of time, spends at most `fast_us`, and
//!   two of them are twice that apart.
//!
//! Beside that, `hz` times a second while the shard serves, samples keep the published stale share and average lifetimes
//! honest: they do not depend on what the minima say. (Sampling and the 25 % rule: Redis, `expire.c`.)
//!
//! # Why it need not wait until every clock has passed the deadline
//! The cycle deletes what is dead for an access at the same moment, `deadline_ms < now.ms`, without any time of grace, and
//! that a key is dead is told as it is deleted. Nobody can see it alive after that, whatever clock he reads:
//! - Keys are looked at on their own shard alone, by its clock, which never goes back. Other shards' clocks decide nothing
//!   about them. Whoever took an earlier moment from that clock, and looks after the deletion, finds no key at all.
//! - A transaction looks at one earlier moment on all its shards: there, a key that it finds dead on one shard must not be
//!   alive on another. `Shard::cycle_now` therefore is not later than the moment of any transaction that waits here for a
//!   key (or puts the keys that such transactions may look at aside). And none is on its way with an earlier moment than
//!   the clock's: a transaction takes its moment from the system's clock while its shard's window in the
//!   [`Sequence`](crate::clock::Sequence) is open; a clock that moves to a later millisecond looks at the windows after
//!   it has read the system's, and stops at those that are open; and what was handed over before they were closed is
//!   taken in before the cycle is told the moment.
//! - Keys that are found dead by an access are deleted and told by the same rule, at any time: an earlier deletion by the
//!   cycle shows nothing that an access could not have shown.

use super::budget::{Budget, Share};
use crate::clock::Now;
use crate::keyspace::{Keyspace, NEVER_MS};

/// Keys deleted between two looks at the clock and at the work that waits: 20 to 40 us.
pub const KEYS_A_SLICE: usize = 64;
/// Weight of a new sample in the stale share, as in Redis.
const STALE_WEIGHT: f64 = 0.05;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    pub enabled: bool,
    pub interval_ms: u64,
    pub cpu_percent: u32,
    pub fast_us: u64,
    pub sample_size: usize,
    pub acceptable_stale_percent: u32,
    pub hz: u32,
}

impl Settings {
    /// Whether cycles start by themselves.
    pub fn automatic(&self) -> bool {
        self.enabled && self.interval_ms > 0
    }

    fn share(&self) -> Share {
        Share { percent: self.cpu_percent, interval_ms: self.interval_ms }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Slow,
    Fast,
}

/// How a slice left things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// More is due and there is budget: another slice should follow after whatever else waits.
    More,
    /// Nothing is due.
    Done,
    /// This cycle's time, or the second's, is used up.
    OutOfTime,
}

#[derive(Default)]
pub struct Cycle {
    budget: Budget,
    /// When the interval began in which slow cycles share their time.
    interval_from_us: u64,
    /// CPU time they may still spend in it.
    slow_left_ns: u64,
    last_fast_us: u64,
    /// CPU time the last fast cycle may still spend.
    fast_left_ns: u64,
    /// Whether the last cycle had no time for all that was due.
    ran_out: bool,
    /// The clock when the last cycle started: what was due before, and is due still, it has left.
    looked_ms: u64,
    next_sample_us: u64,
    pub cpu_ns: u64,
    pub time_cap_reached: u64,
    pub cycles: u64,
    /// Share of dead keys among keys with deadlines, percent, smoothed.
    pub stale_percent: f64,
}

impl Cycle {
    /// When the task has to look again, as store microseconds: as soon as the next deadline is past, or the interval
    /// where a cycle has left something; for the next sample; or, out of budget, when there is some again.
    pub fn next_wake_us(&mut self, keyspace: &Keyspace, now: Now, settings: &Settings) -> u64 {
        if !settings.automatic() {
            return u64::MAX;
        }
        let has_deadlines = (0..keyspace.databases()).any(|db| keyspace.with_deadline(db) > 0);
        let sample_us = if has_deadlines { self.next_sample_us } else { u64::MAX };
        let due_ms = keyspace.next_due_hint_ms();
        if due_ms == NEVER_MS {
            return sample_us;
        }
        let mut wake_us = self.next_slow_us(due_ms, settings);
        if self.budget.left_ns(now.us, settings.share()) == 0 {
            wake_us = wake_us.max(self.budget.refilled_us(settings.share()));
        } else if self.ran_out && due_ms < now.ms {
            wake_us = wake_us.min(self.next_fast_us(settings));
        }
        wake_us.min(sample_us)
    }

    /// When a slow cycle may start, where the earliest minimum is this.
    fn next_slow_us(&self, due_ms: u64, settings: &Settings) -> u64 {
        // A key lives to the end of the millisecond that is its deadline.
        let dead_us = due_ms.saturating_add(1).saturating_mul(1000);
        // Each cycle has a cost of its own: where the budget is scarce it goes to keys, and few cycles take many.
        let is_scarce = self.budget.is_low(settings.share());
        let waits = self.ran_out || self.slow_left_ns == 0 || is_scarce || due_ms < self.looked_ms;
        if waits { dead_us.max(self.interval_ends_us(settings)) } else { dead_us }
    }

    fn interval_ends_us(&self, settings: &Settings) -> u64 {
        self.interval_from_us + settings.interval_ms * 1000
    }

    fn next_fast_us(&self, settings: &Settings) -> u64 {
        if settings.fast_us == 0 { u64::MAX } else { self.last_fast_us + 2 * settings.fast_us }
    }

    /// The form a cycle takes that starts now, if one may and the earliest minimum is past.
    pub fn due_form(&self, due_ms: u64, now: Now, settings: &Settings) -> Option<Form> {
        if !settings.automatic() || due_ms >= now.ms {
            None
        } else if now.us >= self.next_slow_us(due_ms, settings) {
            Some(Form::Slow)
        } else if self.ran_out && now.us >= self.next_fast_us(settings) {
            Some(Form::Fast)
        } else {
            None
        }
    }

    /// `now` is the shard's clock, which may be later than the moment for which the cycle deletes.
    pub fn start(&mut self, form: Form, now: Now, settings: &Settings) {
        self.cycles += 1;
        self.looked_ms = now.ms;
        match form {
            Form::Slow => {
                if now.us >= self.interval_ends_us(settings) {
                    self.interval_from_us = now.us;
                    self.slow_left_ns = self.slow_ns(settings);
                }
            }
            Form::Fast => {
                self.last_fast_us = now.us;
                self.fast_left_ns = settings.fast_us * 1000;
            }
        }
    }

    /// The slow form's share of its interval.
    fn slow_ns(&self, settings: &Settings) -> u64 {
        settings.interval_ms * 10_000 * u64::from(settings.cpu_percent)
    }

    fn left_ns(&mut self, form: Form) -> &mut u64 {
        match form {
            Form::Slow => &mut self.slow_left_ns,
            Form::Fast => &mut self.fast_left_ns,
        }
    }

    /// CPU time was spent for the cycle's sake.
    pub fn charge(&mut self, ns: u64) {
        self.cpu_ns += ns;
        self.budget.spend(ns);
    }

    /// Deletes up to [`KEYS_A_SLICE`] keys. `cpu_ns` reads the CPU time of the thread.
    pub fn slice(
        &mut self,
        form: Form,
        keyspace: &mut Keyspace,
        rng: &mut fastrand::Rng,
        now: Now,
        settings: &Settings,
        cpu_ns: impl Fn() -> u64,
    ) -> Outcome {
        if self.budget.left_ns(now.us, settings.share()) == 0 {
            return self.out_of_time(form);
        }
        if keyspace.deaths.is_full() {
            // They are written to their streams first.
            self.ran_out = true;
            return Outcome::OutOfTime;
        }
        let started_ns = cpu_ns();
        let more = sweep_earliest(keyspace, now, settings);
        let mut goes_on = more && form == Form::Slow && self.slow_left_ns <= cpu_ns().saturating_sub(started_ns);
        if goes_on {
            let stale_percent = self.sample_all(keyspace, rng, now, settings);
            goes_on = stale_percent > f64::from(settings.acceptable_stale_percent);
        }
        let spent_ns = cpu_ns().saturating_sub(started_ns);
        self.charge(spent_ns);
        let left_ns = self.left_ns(form).saturating_sub(spent_ns);
        *self.left_ns(form) = if goes_on { self.slow_ns(settings) } else { left_ns };
        match (more, *self.left_ns(form)) {
            (false, _) => {
                self.ran_out = false;
                Outcome::Done
            }
            (true, 0) => self.out_of_time(form),
            (true, _) => Outcome::More,
        }
    }

    fn out_of_time(&mut self, form: Form) -> Outcome {
        if form == Form::Slow {
            self.time_cap_reached += 1;
        }
        self.ran_out = true;
        Outcome::OutOfTime
    }

    /// Takes the samples that are due `hz` times a second; where nobody was served since the last one (`idle`), once
    /// a second, since only time has passed. Whether any was due.
    pub fn sample(
        &mut self,
        keyspace: &Keyspace,
        rng: &mut fastrand::Rng,
        now: Now,
        settings: &Settings,
        idle: bool,
        cpu_ns: impl Fn() -> u64,
    ) -> bool {
        if now.us < self.next_sample_us {
            return false;
        }
        let hz = if idle { 1 } else { settings.hz.max(1) };
        self.next_sample_us = now.us + 1_000_000 / u64::from(hz);
        let started_ns = cpu_ns();
        self.sample_all(keyspace, rng, now, settings);
        self.charge(cpu_ns().saturating_sub(started_ns));
        true
    }

    /// Samples every database; returns the dead share of this sample in percent.
    fn sample_all(&mut self, keyspace: &Keyspace, rng: &mut fastrand::Rng, now: Now, settings: &Settings) -> f64 {
        let (mut seen, mut dead) = (0, 0);
        for db in 0..keyspace.databases() {
            if keyspace.with_deadline(db) == 0 {
                continue;
            }
            let sample = keyspace.sample(db, settings.sample_size, rng, now);
            seen += sample.seen;
            dead += sample.dead;
        }
        let stale_percent = if seen == 0 { 0.0 } else { dead as f64 * 100.0 / seen as f64 };
        self.stale_percent += (stale_percent - self.stale_percent) * STALE_WEIGHT;
        stale_percent
    }
}

/// Sweeps the earliest blocks for one slice. Whether anything is due still.
fn sweep_earliest(keyspace: &mut Keyspace, now: Now, settings: &Settings) -> bool {
    let Some((oldest_ms, db, _)) = keyspace.earliest().filter(|(oldest_ms, ..)| *oldest_ms < now.ms) else {
        return false;
    };
    // Of what is due, that which is about as old as the oldest.
    let quantum_ms = ((now.ms - oldest_ms) / 8).max(settings.interval_ms);
    keyspace.sweep_earliest(db, now.ms.min(oldest_ms + quantum_ms + 1), now, KEYS_A_SLICE);
    keyspace.next_due_hint_ms() < now.ms
}

/// Deletes everything that is due, a slice at a time; returns the number of keys, or `None` when nothing is left.
pub fn purge_slice(keyspace: &mut Keyspace, now: Now) -> Option<usize> {
    let (oldest_ms, db, _) = keyspace.earliest()?;
    (oldest_ms < now.ms).then(|| {
        let swept = keyspace.sweep_earliest(db, now.ms, now, KEYS_A_SLICE);
        swept.deleted - swept.fields
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{NotifyFlags, Policies};
    use crate::keyspace::{Hasher, LATEST, Value};
    use std::cell::Cell;

    const SETTINGS: Settings = Settings {
        enabled: true,
        interval_ms: 10,
        cpu_percent: 5,
        fast_us: 1000,
        sample_size: 20,
        acceptable_stale_percent: 10,
        hz: 10,
    };

    /// A shard whose clocks are moved by hand: each slice costs a fixed CPU time.
    struct Rig {
        keyspace: Keyspace,
        cycle: Cycle,
        rng: fastrand::Rng,
        now_us: u64,
        cpu_ns: Cell<u64>,
        /// When each slice was, and what it took.
        spent: Vec<(u64, u64)>,
        /// When slow cycles started.
        slow_us: Vec<u64>,
        /// How often the task looked.
        wakes: usize,
        /// A transaction looks at this moment.
        seen_from: Now,
    }

    impl Rig {
        fn new() -> Rig {
            let mut keyspace = Keyspace::new(2, Hasher::new(1, 1));
            keyspace.effects.set_wanted(NotifyFlags::EXPIRED);
            let rng = fastrand::Rng::with_seed(9);
            Rig {
                keyspace,
                cycle: Cycle::default(),
                rng,
                now_us: 1_000_000_000,
                cpu_ns: Cell::new(0),
                spent: Vec::new(),
                slow_us: Vec::new(),
                wakes: 0,
                seen_from: LATEST,
            }
        }

        fn insert(&mut self, name: &str, deadline_ms: u64) {
            let hasher = self.keyspace.hasher().clone();
            let now = Now::from_us(self.now_us);
            self.keyspace.insert(0, hasher.key(name.as_bytes()), Value::Int(1), Some(deadline_ms), now);
        }

        /// Runs the task for this long, with a slice costing `slice_ns`.
        fn run(&mut self, for_us: u64, slice_ns: u64, settings: &Settings) {
            let end_us = self.now_us + for_us;
            while self.now_us < end_us {
                self.wakes += 1;
                let now = Now::from_us(self.now_us);
                self.cycle.sample(&self.keyspace, &mut self.rng, now, settings, true, || 0);
                let form = self.cycle.due_form(self.keyspace.next_due_hint_ms(), now, settings);
                if let Some(form) = form {
                    self.run_one(form, slice_ns, settings);
                }
                let now = Now::from_us(self.now_us);
                let wake_us = self.cycle.next_wake_us(&self.keyspace, now, settings);
                assert!(form.is_some() || wake_us > now.us, "it would look again at once, and do nothing");
                self.now_us = wake_us.clamp(self.now_us, end_us.max(self.now_us));
            }
        }

        fn run_one(&mut self, form: Form, slice_ns: u64, settings: &Settings) {
            self.cycle.start(form, Now::from_us(self.now_us), settings);
            if form == Form::Slow {
                self.slow_us.push(self.now_us);
            }
            loop {
                let now = Now::from_us(self.now_us).min(self.seen_from);
                let before = self.cycle.cpu_ns;
                let reads = Cell::new(0);
                let outcome = self.cycle.slice(form, &mut self.keyspace, &mut self.rng, now, settings, || {
                    if reads.replace(reads.get() + 1) > 0 {
                        self.cpu_ns.set(self.cpu_ns.get() + slice_ns / 3);
                    }
                    self.cpu_ns.get()
                });
                self.spent.push((self.now_us, self.cycle.cpu_ns - before));
                self.now_us += slice_ns / 1000;
                if outcome != Outcome::More {
                    break;
                }
            }
        }

        /// What slices took from then on until so much later.
        fn spent_ns(&self, from_us: u64, for_us: u64) -> u64 {
            let within = self.spent.iter().filter(|(at_us, _)| (from_us..from_us + for_us).contains(at_us));
            within.map(|(_, ns)| ns).sum()
        }
    }

    #[test]
    fn what_is_due_goes_as_soon_as_it_is_dead() {
        let mut rig = Rig::new();
        for i in 0..1000 {
            rig.insert(&format!("far{i}"), 5_000_000);
            rig.insert(&format!("due{i}"), 1_000_500);
        }
        rig.run(500_999, 30_000, &SETTINGS);
        assert_eq!(rig.keyspace.counters.expired_by_cycle, 0, "alive to the end of its last millisecond");
        rig.run(1_001, 30_000, &SETTINGS);
        assert_eq!(rig.keyspace.counters.expired_by_cycle, 1000);
        rig.keyspace.check();
    }

    #[test]
    fn a_key_dies_within_two_milliseconds_of_its_deadline() {
        let mut rig = Rig::new();
        let start_ms = rig.now_us / 1000;
        for i in 0..5_000 {
            rig.insert(&format!("far{i}"), 50_000_000);
        }
        let deadlines: Vec<u64> = (0..1000).map(|_| start_ms + rig.rng.u64(1..10_000)).collect();
        for (i, deadline_ms) in deadlines.iter().enumerate() {
            rig.insert(&format!("timer{i}"), *deadline_ms);
        }
        rig.run(10_100_000, 30_000, &SETTINGS);
        assert_eq!(rig.keyspace.counters.expired_by_cycle, 1000);
        let lag = &rig.keyspace.lag;
        assert!(
            lag.quantile_us(0.0) >= 1_000 && lag.max_us() < 2_000,
            "{} to {} us",
            lag.quantile_us(0.0),
            lag.max_us()
        );
        let moments = deadlines.iter().collect::<std::collections::BTreeSet<_>>().len();
        assert_eq!(rig.slow_us.len(), moments, "a cycle for each moment at which something dies");
        // A few more for the samples.
        assert!(rig.wakes <= moments + 20, "{}", rig.wakes);
        rig.keyspace.check();
    }

    #[test]
    fn dense_deadlines_take_one_cycle_a_millisecond() {
        let mut rig = Rig::new();
        for i in 0..20_000 {
            rig.insert(&format!("key{i}"), 1_000_001 + i / 10);
        }
        rig.run(2_100_000, 30_000, &SETTINGS);
        assert_eq!(rig.keyspace.counters.expired_by_cycle, 20_000);
        assert!(rig.keyspace.lag.max_us() < 2_100, "{}", rig.keyspace.lag.max_us());
        assert!(rig.slow_us.len() <= 2_000 && rig.wakes <= 2_010, "{} {}", rig.slow_us.len(), rig.wakes);
    }

    #[test]
    fn the_interval_bounds_only_cycles_that_ran_out() {
        let settings = Settings { fast_us: 0, acceptable_stale_percent: 100, ..SETTINGS };
        let mut rig = Rig::new();
        for i in 0..3_000 {
            rig.insert(&format!("burst{i}"), 1_000_050);
        }
        rig.insert("before", 1_000_045);
        rig.insert("after", 1_000_900);
        rig.insert("soon after", 1_000_902);
        rig.run(1_000_000, 100_000, &settings);
        assert_eq!(rig.keyspace.counters.expired_by_cycle, 3_003);
        let (burst, single): (Vec<u64>, Vec<u64>) = rig.slow_us.iter().partition(|at_us| **at_us < 1_000_900_000);
        // The burst ran out in the interval that began with the key before it.
        assert_eq!(burst[..2], [1_000_046_000, 1_000_051_000]);
        assert_eq!(burst[2], 1_000_056_000);
        assert!(burst.len() > 5 && burst[1..].windows(2).skip(1).all(|pair| pair[1] - pair[0] >= 10_000), "{burst:?}");
        assert_eq!(single, [1_000_901_000, 1_000_903_000]);
    }

    /// Each millisecond has enough to do for more than its share: cycles that are so close together have one share among
    /// them.
    #[test]
    fn all_cycles_within_an_interval_share_its_time() {
        let settings = Settings { fast_us: 0, acceptable_stale_percent: 100, ..SETTINGS };
        let slice_ns = 90_000;
        let mut rig = Rig::new();
        for i in 0..100_000 {
            rig.insert(&format!("key{i}"), 1_000_001 + i / 100);
        }
        rig.run(3_000_000, slice_ns, &settings);
        let share_ns = 500_000;
        for at_us in (1_000_000_000..1_003_000_000).step_by(1_000) {
            // An interval begins somewhere within it.
            let spent_ns = rig.spent_ns(at_us, 10_000);
            assert!(spent_ns <= 2 * (share_ns + slice_ns), "{spent_ns} ns in the interval from {at_us}");
            let spent_ns = rig.spent_ns(at_us, 1_000_000);
            assert!(spent_ns <= 50_000_000 + slice_ns, "{spent_ns} ns in the second from {at_us}");
        }
    }

    /// Keys whose deadlines were put off, or that were deleted, leave their blocks' minima too early.
    #[test]
    fn minima_that_are_too_early_wake_once() {
        let mut rig = Rig::new();
        let hasher = rig.keyspace.hasher().clone();
        for i in 0..20_000 {
            rig.insert(&format!("key{i}"), 1_000_100 + i % 10);
        }
        let now = Now::from_us(rig.now_us);
        for i in 0..20_000 {
            if i % 2 == 0 {
                rig.keyspace.remove(0, hasher.key(format!("key{i}").as_bytes()), now);
            } else {
                rig.insert(&format!("key{i}"), 9_000_000);
            }
        }
        rig.run(900_000, 30_000, &SETTINGS);
        assert_eq!(rig.keyspace.counters.expired_by_cycle, 0);
        assert!(rig.keyspace.next_due_hint_ms() >= 9_000_000);
        assert!(rig.wakes <= 25, "{} times for ten moments that never came", rig.wakes);
        rig.keyspace.check();
    }

    #[test]
    fn what_a_transaction_still_sees_stays_and_keeps_nobody_awake() {
        let mut rig = Rig::new();
        for (name, deadline_ms) in [("dead before", 1_000_099), ("seen", 1_000_100), ("later", 1_000_101)] {
            rig.insert(name, deadline_ms);
        }
        rig.seen_from = Now::from_ms(1_000_100);
        rig.run(1_000_000, 30_000, &SETTINGS);
        assert_eq!(rig.keyspace.counters.expired_by_cycle, 1);
        assert_eq!(rig.keyspace.len(0), 2);
        assert!(rig.wakes <= 110, "{} times within a hundred intervals", rig.wakes);
        rig.seen_from = LATEST;
        rig.run(10_000, 30_000, &SETTINGS);
        assert_eq!(rig.keyspace.len(0), 0);
    }

    #[test]
    fn the_share_of_cpu_holds_in_every_second_and_the_oldest_go_first() {
        let mut rig = Rig::new();
        for i in 0..60_000 {
            rig.insert(&format!("key{i}"), 1_000_000 + i / 15);
        }
        let slice_ns = 300_000;
        rig.run(8_000_000, slice_ns, &SETTINGS);
        for (index, (start_us, _)) in rig.spent.iter().enumerate() {
            let window: u64 = rig.spent[index..]
                .iter()
                .take_while(|(at_us, _)| *at_us < start_us + 1_000_000)
                .map(|(_, ns)| ns)
                .sum();
            assert!(window <= 50_000_000 + slice_ns, "{window} ns in the second from {start_us}");
        }
        assert!(rig.cycle.time_cap_reached > 0);
        // Events come about in the order of the deadlines.
        let mut latest = 0;
        let mut worst = 0;
        for notice in rig.keyspace.effects.take() {
            let i: u64 = std::str::from_utf8(&notice.key[3..]).unwrap().parse().unwrap();
            latest = latest.max(i / 15);
            worst = worst.max(latest - i / 15);
        }
        assert!(worst < 1200, "a key went {worst} ms after one that died later");
        rig.keyspace.check();
    }

    /// What a policy wants to be written down is taken by nobody here.
    #[test]
    fn deaths_that_wait_to_be_written_are_bounded() {
        let mut rig = Rig::new();
        let (_, policy, _) = Policies::parse("key 1h EVENTS deaths".split(' ')).unwrap();
        rig.keyspace.set_policy(b"key", Some(policy));
        for i in 0..20_000 {
            rig.insert(&format!("key{i}"), 1_000_100);
        }
        rig.run(2_000_000, 1_000, &SETTINGS);
        let waiting = rig.keyspace.deaths.len();
        assert!(rig.keyspace.deaths.is_full() && waiting < 10_000, "{waiting}");
        assert_eq!(rig.keyspace.len(0), 20_000 - waiting);
        let mut taken = 0;
        while taken < 20_000 {
            let first: Vec<u64> = rig.keyspace.deaths.first(1000, usize::MAX).map(|death| death.number).collect();
            taken += rig.keyspace.deaths.take(&first).len();
            rig.run(20_000, 1_000, &SETTINGS);
        }
        assert_eq!((taken, rig.keyspace.len(0)), (20_000, 0));
        assert_eq!(rig.cycle.time_cap_reached, 0);
    }

    #[test]
    fn nothing_happens_when_it_is_turned_off() {
        for settings in [Settings { enabled: false, ..SETTINGS }, Settings { interval_ms: 0, ..SETTINGS }] {
            let mut rig = Rig::new();
            rig.insert("a", 1_000_010);
            rig.run(1_000_000, 10_000, &settings);
            assert_eq!(rig.keyspace.counters.expired_by_cycle, 0);
            assert_eq!(rig.cycle.next_wake_us(&rig.keyspace, Now::from_us(rig.now_us), &settings), u64::MAX);
        }
    }

    /// A backlog that a flush takes away leaves the cycle out of time, and nothing to do.
    #[test]
    fn a_backlog_that_somebody_else_removed_keeps_nobody_awake() {
        let mut rig = Rig::new();
        for i in 0..5_000 {
            rig.insert(&format!("due{i}"), 1_000_100);
        }
        rig.run(200_000, 300_000, &SETTINGS);
        assert!(rig.cycle.ran_out);
        rig.keyspace.flush(0, Now::from_us(rig.now_us));
        rig.insert("later", 9_000_000);
        for _ in 0..200 {
            let now = Now::from_us(rig.now_us);
            rig.cycle.sample(&rig.keyspace, &mut rig.rng, now, &SETTINGS, true, || 0);
            let wake_us = rig.cycle.next_wake_us(&rig.keyspace, now, &SETTINGS);
            assert!(wake_us > now.us, "the next deadline is hours away");
            rig.now_us += 1_000;
        }
    }

    #[test]
    fn samples_see_the_stale_share() {
        let mut rig = Rig::new();
        let now = Now::from_us(rig.now_us);
        for i in 0..2000 {
            rig.insert(&format!("key{i}"), now.ms + if i % 2 == 0 { 1 } else { 10_000 });
        }
        let later = Now::from_ms(now.ms + 1000);
        for step in 0..200u64 {
            let at = Now::from_ms(later.ms + step * 100);
            let seen_at = Now { us: at.us, ms: later.ms };
            rig.cycle.sample(&rig.keyspace, &mut rig.rng, seen_at, &SETTINGS, false, || 0);
        }
        assert!((rig.cycle.stale_percent - 50.0).abs() < 15.0, "{}", rig.cycle.stale_percent);
    }
}
