//! The active cycle of one shard.
//!
//! The blocks' minima say where something is due. While they do and budget is left, the cycle takes the block whose
//! minimum is earliest and deletes from it what is due, in slices of [`KEYS_A_SLICE`] keys, between which the shard
//! serves. Where it cannot keep up it does not take everything that a block has, but only what died within an eighth
//! of the oldest key's age: so the keys that died first go first, and no block is swept so often that the sweeps
//! themselves would count. The next cycle continues with what is earliest then; there is no cursor to lose.
//!
//! Three limits hold at once:
//! - every form together spends at most `cpu_percent` of each second (`budget.rs`);
//! - the slow form, `interval_ms` apart, spends at most that share of its interval. Where a random sample of
//!   `sample_size` keys then shows more than `acceptable_stale_percent` dead, it goes on at once;
//! - the fast form, where the shard is about to block and the slow one ran out of time, spends at most `fast_us`, and
//!   two of them are twice that apart.
//!
//! Beside that, `hz` times a second while the shard serves, samples keep the published stale share and average lifetimes honest: they do not
//! depend on what the minima say. (Sampling and the 25 % rule: Redis, `expire.c`.)

use super::budget::{Budget, Share};
use crate::clock::Now;
use crate::keyspace::{Keyspace, NEVER_MS};

/// Keys deleted between two looks at the clock and at the work that waits: 20 to 40 us.
pub const KEYS_A_SLICE: usize = 64;
/// A key is deleted by the cycle this long after it is dead, so that no cached clock still sees it alive.
const GRACE_MS: u64 = 1;
/// Weight of a new sample in the average lifetime, as in Redis.
const TTL_WEIGHT: f64 = 0.02;
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
    /// CPU time this cycle may still spend.
    left_ns: u64,
    /// Whether the last slow cycle left something due.
    ran_out: bool,
    started_us: u64,
    last_fast_us: u64,
    next_sample_us: u64,
    pub cpu_ns: u64,
    pub time_cap_reached: u64,
    pub cycles: u64,
    /// Share of dead keys among keys with deadlines, percent, smoothed.
    pub stale_percent: f64,
    /// Average remaining lifetime by database, milliseconds, smoothed.
    pub average_ttl_ms: Vec<f64>,
}

impl Cycle {
    /// When the task has to look again, as store microseconds: the next deadline, but not before the interval has
    /// passed; the next sample; or, out of budget, when there is some again.
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
        let mut wake_us = (due_ms.saturating_add(GRACE_MS + 1).saturating_mul(1000))
            .max(self.started_us + settings.interval_ms * 1000);
        if self.budget.left_ns(now.us, settings.share()) == 0 {
            wake_us = wake_us.max(self.budget.refilled_us(settings.share()));
        } else if self.ran_out && due_ms < now.ms {
            wake_us = wake_us.min(self.next_fast_us(settings));
        }
        wake_us.min(sample_us)
    }

    fn next_fast_us(&self, settings: &Settings) -> u64 {
        if settings.fast_us == 0 { u64::MAX } else { self.last_fast_us + 2 * settings.fast_us }
    }

    /// The form a cycle takes that starts now, if one may.
    pub fn due_form(&self, now: Now, settings: &Settings) -> Option<Form> {
        if !settings.automatic() {
            None
        } else if now.us >= self.started_us + settings.interval_ms * 1000 {
            Some(Form::Slow)
        } else if self.ran_out && now.us >= self.next_fast_us(settings) {
            Some(Form::Fast)
        } else {
            None
        }
    }

    pub fn start(&mut self, form: Form, now: Now, settings: &Settings) {
        self.cycles += 1;
        match form {
            Form::Slow => {
                self.started_us = now.us;
                self.left_ns = self.slow_ns(settings);
            }
            Form::Fast => {
                self.last_fast_us = now.us;
                self.left_ns = settings.fast_us * 1000;
            }
        }
    }

    /// The slow form's share of its interval.
    fn slow_ns(&self, settings: &Settings) -> u64 {
        settings.interval_ms * 10_000 * u64::from(settings.cpu_percent)
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
        let started_ns = cpu_ns();
        let more = sweep_earliest(keyspace, now, settings);
        let mut goes_on = more && form == Form::Slow && self.left_ns <= cpu_ns().saturating_sub(started_ns);
        if goes_on {
            let stale_percent = self.sample_all(keyspace, rng, now, settings);
            goes_on = stale_percent > f64::from(settings.acceptable_stale_percent);
        }
        let spent_ns = cpu_ns().saturating_sub(started_ns);
        self.cpu_ns += spent_ns;
        self.budget.spend(spent_ns);
        self.left_ns = self.left_ns.saturating_sub(spent_ns);
        if goes_on {
            self.left_ns = self.slow_ns(settings);
        }
        match (more, self.left_ns) {
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
    /// a second, since only time has passed.
    pub fn sample(
        &mut self,
        keyspace: &Keyspace,
        rng: &mut fastrand::Rng,
        now: Now,
        settings: &Settings,
        idle: bool,
        cpu_ns: impl Fn() -> u64,
    ) {
        if now.us < self.next_sample_us {
            return;
        }
        let hz = if idle { 1 } else { settings.hz.max(1) };
        self.next_sample_us = now.us + 1_000_000 / u64::from(hz);
        let started_ns = cpu_ns();
        self.sample_all(keyspace, rng, now, settings);
        let spent_ns = cpu_ns().saturating_sub(started_ns);
        self.cpu_ns += spent_ns;
        self.budget.spend(spent_ns);
    }

    /// Samples every database; returns the dead share of this sample in percent.
    fn sample_all(&mut self, keyspace: &Keyspace, rng: &mut fastrand::Rng, now: Now, settings: &Settings) -> f64 {
        self.average_ttl_ms.resize(keyspace.databases(), 0.0);
        let (mut seen, mut dead) = (0, 0);
        for db in 0..keyspace.databases() {
            if keyspace.with_deadline(db) == 0 {
                self.average_ttl_ms[db] = 0.0;
                continue;
            }
            let sample = keyspace.sample(db, settings.sample_size, rng, now);
            seen += sample.seen;
            dead += sample.dead;
            if sample.seen > sample.dead {
                let ttl_ms = sample.ttl_ms / (sample.seen - sample.dead) as f64;
                let average = &mut self.average_ttl_ms[db];
                *average = if *average == 0.0 { ttl_ms } else { *average + (ttl_ms - *average) * TTL_WEIGHT };
            }
        }
        let stale_percent = if seen == 0 { 0.0 } else { dead as f64 * 100.0 / seen as f64 };
        self.stale_percent += (stale_percent - self.stale_percent) * STALE_WEIGHT;
        stale_percent
    }
}

/// Sweeps the earliest blocks for one slice. Whether anything is due still.
fn sweep_earliest(keyspace: &mut Keyspace, now: Now, settings: &Settings) -> bool {
    let before_ms = now.ms.saturating_sub(GRACE_MS);
    let Some((oldest_ms, db, _)) = keyspace.earliest() else { return false };
    if oldest_ms >= before_ms {
        return false;
    }
    // Of what is due, that which is about as old as the oldest.
    let quantum_ms = ((before_ms - oldest_ms) / 8).max(settings.interval_ms);
    keyspace.sweep_earliest(db, before_ms.min(oldest_ms + quantum_ms + 1), now, KEYS_A_SLICE);
    keyspace.next_due_hint_ms() < before_ms
}

/// Deletes everything that is due, a slice at a time; returns the number of keys, or `None` when nothing is left.
pub fn purge_slice(keyspace: &mut Keyspace, now: Now) -> Option<usize> {
    let (oldest_ms, db, _) = keyspace.earliest()?;
    (oldest_ms < now.ms).then(|| keyspace.sweep_earliest(db, now.ms, now, KEYS_A_SLICE).deleted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NotifyFlags;
    use crate::keyspace::{Hasher, Value};
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
        spent: Vec<(u64, u64)>,
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
                let now = Now::from_us(self.now_us);
                let Some(form) = self.cycle.due_form(now, settings) else {
                    let wake_us = self.cycle.next_wake_us(&self.keyspace, now, settings);
                    self.now_us = wake_us.clamp(self.now_us + 100, end_us.max(self.now_us + 100));
                    continue;
                };
                self.cycle.start(form, now, settings);
                loop {
                    let now = Now::from_us(self.now_us);
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
                let wake_us = self.cycle.next_wake_us(&self.keyspace, Now::from_us(self.now_us), settings);
                self.now_us = wake_us.clamp(self.now_us, end_us.max(self.now_us));
            }
        }
    }

    #[test]
    fn due_keys_go_within_the_interval() {
        let mut rig = Rig::new();
        for i in 0..1000 {
            rig.insert(&format!("far{i}"), 5_000_000);
            rig.insert(&format!("due{i}"), 1_000_500);
        }
        rig.run(499_000, 30_000, &SETTINGS);
        assert_eq!(rig.keyspace.counters.expired_by_cycle, 0);
        rig.run(50_000, 30_000, &SETTINGS);
        assert_eq!(rig.keyspace.counters.expired_by_cycle, 1000);
        assert!(rig.keyspace.lag.max_us() < 20_000, "{}", rig.keyspace.lag.max_us());
        rig.keyspace.check();
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
    fn samples_see_the_stale_share_and_the_average_lifetime() {
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
        assert!((rig.cycle.average_ttl_ms[0] - 9000.0).abs() < 100.0);
    }
}
