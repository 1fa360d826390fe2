//! The share of dead keys in memory in the steady state, with the same CPU time for each contestant.
//!
//! The number of live keys stays the same: whenever keys die, as many new ones come, with lifetimes spread evenly over
//! 20 minutes (10 on average). Virtual time goes on in ticks of 10 ms; in each tick a contestant may spend so many
//! nanoseconds for each key that dies, and what it spent too much (a cascade, a batch) is taken from the next ticks.
//! The budgets are tried one after the other, the largest first, each with a time to settle.

use crate::contest::{BATCH, Budget, START_MS, timed};
use crate::{Entry, MANY_KEYS};
use emberdb::clock::Now;

const TICK_MS: u64 = 10;
const TICKS_A_SECOND: u64 = 1000 / TICK_MS;
const LIFETIME_MS: u64 = 20 * 60_000;
/// Ticks between two points of the series.
const POINT_TICKS: u64 = 100;

/// CPU nanoseconds for each death, fewer of them where a run takes long.
fn budgets(keys: u64) -> &'static [u64] {
    if keys <= MANY_KEYS { &[4_000, 2_000, 1_000, 500] } else { &[2_000, 1_000] }
}

/// Virtual seconds.
#[derive(Clone, Copy)]
pub struct Phases {
    settle_s: u64,
    measure_s: u64,
}

impl Phases {
    pub fn new(quick: bool) -> Phases {
        if quick { Phases { settle_s: 60, measure_s: 20 } } else { Phases { settle_s: 200, measure_s: 60 } }
    }
}

/// The steady state under one budget.
#[derive(Clone, Debug)]
pub struct Steady {
    pub budget_ns: u64,
    /// Of one core.
    pub cpu_share: f64,
    pub cpu_share_used: f64,
    pub stale_average: f64,
    pub stale_worst: f64,
    /// CPU time of the longest call, whatever its budget was.
    pub longest_call_ns: u64,
}

/// Numbers a budget in what [`measure`] returns, before the series.
const FIGURES: usize = 6;

pub struct Stale {
    pub name: &'static str,
    pub keys: u64,
    pub steady: Vec<Steady>,
    /// Virtual second, budget, stale share.
    pub series: Vec<(f64, u64, f64)>,
}

impl Stale {
    /// From what [`measure`] returned.
    pub fn of(entry: &Entry, keys: u64, numbers: &[f64]) -> Stale {
        let (steady, series) = numbers.split_at(budgets(keys).len() * FIGURES);
        let steady = steady.chunks_exact(FIGURES).map(|figures| Steady {
            budget_ns: figures[0] as u64,
            cpu_share: figures[1],
            cpu_share_used: figures[2],
            stale_average: figures[3],
            stale_worst: figures[4],
            longest_call_ns: figures[5] as u64,
        });
        let series = series.chunks_exact(3).map(|point| (point[0], point[1] as u64, point[2]));
        Stale { name: entry.name, keys, steady: steady.collect(), series: series.collect() }
    }
}

pub fn measure(entry: &Entry, keys: u64, phases: Phases) -> Vec<f64> {
    let budgets = budgets(keys);
    let mut contestant = (entry.new)();
    let mut population = Population::new(budgets.len() as u64 * (phases.settle_s + phases.measure_s) * TICKS_A_SECOND);
    population.fill(keys, |batch, now| contestant.insert(batch, now));
    let (mut steady, mut series) = (Vec::new(), Vec::new());
    let deaths_a_tick = keys as f64 * TICK_MS as f64 / (LIFETIME_MS / 2) as f64;
    let mut dead = 0;
    for &budget_ns in budgets {
        let a_tick_ns = (budget_ns as f64 * deaths_a_tick) as u64;
        let (mut debt_ns, mut spent_ns, mut longest_call_ns) = (0, 0, 0);
        let mut shares = Vec::new();
        for tick in 0..(phases.settle_s + phases.measure_s) * TICKS_A_SECOND {
            dead += population.tick(|batch, now| contestant.insert(batch, now));
            let now = population.now();
            let mut used_ns = 0;
            if debt_ns < a_tick_ns {
                let (deleted, cpu_ns) = timed(|| contestant.expire(now, &Budget::of(a_tick_ns - debt_ns)));
                dead -= deleted as u64;
                used_ns = cpu_ns;
                longest_call_ns = longest_call_ns.max(cpu_ns);
            }
            debt_ns = (debt_ns + used_ns).saturating_sub(a_tick_ns);
            let share = dead as f64 / (keys + dead) as f64;
            if tick >= phases.settle_s * TICKS_A_SECOND {
                shares.push(share);
                spent_ns += used_ns;
            }
            if tick % POINT_TICKS == 0 {
                series.extend([(now.ms - START_MS) as f64 / 1000.0, budget_ns as f64, share]);
            }
        }
        let of_core = |ns: f64| ns / (TICK_MS * 1_000_000) as f64;
        steady.extend([
            budget_ns as f64,
            of_core(a_tick_ns as f64),
            of_core(spent_ns as f64 / shares.len() as f64),
            shares.iter().sum::<f64>() / shares.len() as f64,
            shares.iter().copied().fold(0.0, f64::max),
            longest_call_ns as f64,
        ]);
    }
    assert_eq!(contestant.store().len() as u64, keys + dead, "the keys that are not dead are all there");
    steady.extend(series);
    steady
}

/// Who lives and who dies, the same for every contestant.
struct Population {
    rng: fastrand::Rng,
    tick: u64,
    next_id: u64,
    /// Keys that are dead from this tick on.
    deaths: Vec<u32>,
}

impl Population {
    fn new(ticks: u64) -> Population {
        let deaths = vec![0; (ticks + LIFETIME_MS / TICK_MS + 2) as usize];
        Population { rng: fastrand::Rng::with_seed(7), tick: 0, next_id: 0, deaths }
    }

    fn now(&self) -> Now {
        Now::from_ms(START_MS + self.tick * TICK_MS)
    }

    /// The keys of the beginning: what is left of evenly spread lifetimes in the steady state.
    fn fill(&mut self, keys: u64, insert: impl FnMut(&[(u64, u64)], Now)) {
        self.bring(keys, insert, |rng| (LIFETIME_MS as f64 * (1.0 - rng.f64().sqrt())) as u64);
    }

    /// Time goes on; returns how many died, which is also how many came.
    fn tick(&mut self, insert: impl FnMut(&[(u64, u64)], Now)) -> u64 {
        self.tick += 1;
        let died = u64::from(self.deaths[self.tick as usize]);
        self.bring(died, insert, |rng| rng.u64(..LIFETIME_MS));
        died
    }

    fn bring(
        &mut self,
        mut keys: u64,
        mut insert: impl FnMut(&[(u64, u64)], Now),
        lifetime_ms: impl Fn(&mut fastrand::Rng) -> u64,
    ) {
        let now = self.now();
        while keys > 0 {
            let count = keys.min(BATCH as u64);
            let mut batch = [(0, 0); BATCH];
            for slot in &mut batch[..count as usize] {
                let deadline_ms = now.ms + lifetime_ms(&mut self.rng);
                // Dead is past the deadline: the tick after the one in which it lies.
                self.deaths[((deadline_ms - START_MS) / TICK_MS + 1) as usize] += 1;
                *slot = (self.next_id, deadline_ms);
                self.next_id += 1;
            }
            insert(&batch[..count as usize], now);
            keys -= count;
        }
    }
}
