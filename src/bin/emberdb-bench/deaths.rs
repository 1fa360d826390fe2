//! What happens when keys die: how late subscribers hear of it (`lag`), and what it does to those who read other keys
//! and to memory (`mass-expiry`).

use crate::control::{Control, Login, Value};
use crate::encode::{Command, KeyForm, Part, Ttl};
use crate::failure::{Failure, Result};
use crate::flags::{Flags, Rate};
use crate::load;
use crate::memory::{Added, Back, LEFT_SHARE, Memory};
use crate::metric::{LAG, MASS_EXPIRY};
use crate::report::{Report, Rounds};
use crate::round::{Plan, Round, server_pid};
use crate::setting::{self, Setting};
use crate::target::Target;
use crate::workload::Kind;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Live keys die no earlier than in a day.
const FAR: Ttl = Ttl { from: 86_400, to: 2 * 86_400 };
/// Between loading what dies and its deadline.
const LAG_LEAD_MS: u64 = 1_000;
/// Time for loading a million keys that die.
const LOAD_ALLOWANCE_MS_A_MILLION: u64 = 5_000;
const TIMELINE: Duration = Duration::from_millis(100);
/// Where no rate is given.
const LOAD_SHARE: Rate = Rate::Share(0.5);

/// Rounds of either experiment, targets in turn.
pub fn run(flags: &Flags) -> Result<Report<'_>> {
    setting::restore_on_signals()?;
    let mut plan = Plan::new(flags);
    let live = live_keys(&plan);
    let lag = flags.workload == Kind::Lag;
    if !flags.no_load {
        for target in &flags.targets {
            load::keys(&plan, target, &live)?;
        }
    }
    if !lag {
        plan.set_rate(Some(flags.rate.unwrap_or(LOAD_SHARE)), &flags.targets[0])?;
    }
    let rate = plan.rate.unwrap_or(0.0);
    let mut targets: Vec<Rounds> = flags.targets.iter().map(Rounds::new).collect();
    for round in 0..flags.rounds() {
        for rounds in &mut targets {
            let deaths = Deaths::prepare(flags, &plan, &rounds.target, round)?;
            match lag {
                true => deaths.lag_round(rounds)?,
                false => deaths.mass_round(rounds)?,
            }
        }
    }
    let dying = flags.dying();
    let title = match lag {
        true => format!("lag: {dying} keys die at one moment among {} live ones", flags.keys()),
        false => format!(
            "mass expiry: {dying} keys die at one moment while {rate:.0} GETs a second read {} live ones (open loop)",
            flags.keys()
        ),
    };
    let remarks = match lag {
        true => vec!["Arrival of expired events at a subscriber minus the deadline.".to_owned()],
        false => vec![
            format!("Phases of {} s: before the deadline, from it on (during), and after that.", flags.seconds()),
            format!("Memory is back when {:.0} % of what loading added is left.", LEFT_SHARE * 100.0),
        ],
    };
    let metrics = if lag { LAG } else { MASS_EXPIRY };
    Ok(Report { flags, title, metrics, targets, remarks })
}

fn live_keys(plan: &Plan) -> Command {
    let parts = [Part::Word(b"SET"), Part::Key, Part::Word(&plan.recipe.value), Part::Word(b"EX"), Part::Ttl(FAR)];
    Command::new(&plan.recipe.form, &parts)
}

/// One round: a target with its subscriber, and keys that will die.
struct Deaths<'a> {
    flags: &'a Flags,
    plan: &'a Plan,
    target: Target,
    control: Control,
    /// notify-keyspace-events.
    events: Setting,
    form: KeyForm,
}

impl<'a> Deaths<'a> {
    fn prepare(flags: &'a Flags, plan: &'a Plan, target: &Target, round: u64) -> Result<Deaths<'a>> {
        let mut control = Control::open(target, &plan.login)?;
        let events = Setting::change(target, &plan.login, "notify-keyspace-events", b"Ex")?;
        control.call(&[b"CONFIG", b"RESETSTAT"])?;
        let prefix = format!("{}dying-{round}:", plan.recipe.form.prefix);
        let form = KeyForm::new(&prefix, flags.key_size as usize, flags.dying());
        Ok(Deaths { flags, plan, target: target.clone(), control, events, form })
    }

    /// Sets the keys that die, which has to be done by `ready_ms`.
    fn load_dying(&mut self, deadline_ms: u64, ready_ms: u64) -> Result<()> {
        let deadline = deadline_ms.to_string();
        let value = &self.plan.recipe.value;
        let parts =
            [Part::Word(b"SET"), Part::Key, Part::Word(value), Part::Word(b"PXAT"), Part::Word(deadline.as_bytes())];
        self.control.load(&Command::new(&self.form, &parts), self.flags.dying(), |_| ())?;
        if unix_ms() >= ready_ms {
            return Err(Failure::Unfit(format!(
                "{}: loading {} keys took longer than expected; take fewer (--dying)",
                self.target,
                self.flags.dying()
            )));
        }
        Ok(())
    }

    fn lag_round(mut self, rounds: &mut Rounds) -> Result<()> {
        let deadline_ms = unix_ms() + LAG_LEAD_MS + self.allowance_ms();
        let subscriber = Subscriber::start(&self.target, &self.plan.login, &self.form.prefix)?;
        self.load_dying(deadline_ms, deadline_ms)?;
        let limit = instant_at(deadline_ms) + Duration::from_secs_f64(self.flags.wait);
        let lags_ms = subscriber.wait(self.flags.dying(), deadline_ms, limit)?;
        let info = self.control.info("everything")?;
        let published = |field: &str| info.get(field).and_then(|value| value.parse().ok()).unwrap_or(f64::NAN);
        let within = |ms: f64| lags_ms.iter().filter(|&&lag| lag <= ms).count() as f64;
        rounds.figures.push(vec![
            quantile_of(&lags_ms, self.flags.dying(), 0.5),
            quantile_of(&lags_ms, self.flags.dying(), 0.99),
            quantile_of(&lags_ms, self.flags.dying(), 1.0),
            within(25.0),
            within(100.0),
            lags_ms.len() as f64,
            published("expire_lag_p50_us"),
            published("expire_lag_p99_us"),
            published("expire_lag_max_us"),
        ]);
        rounds.details.push(json!({ "lags_ms": lags_ms.iter().map(|lag| rounded(*lag)).collect::<Vec<_>>() }));
        self.finish()
    }

    fn mass_round(mut self, rounds: &mut Rounds) -> Result<()> {
        let phase = Duration::from_secs_f64(self.flags.seconds());
        let pid = server_pid(&self.target, &self.plan.login)?;
        let before = Memory::read(&mut self.control, pid)?;
        let ahead_ms = (self.plan.warmup + phase).as_millis() as u64;
        let deadline_ms = unix_ms() + ahead_ms + LAG_LEAD_MS + self.allowance_ms();
        let subscriber = Subscriber::start(&self.target, &self.plan.login, &self.form.prefix)?;
        self.load_dying(deadline_ms, deadline_ms - phase.as_millis() as u64)?;
        let loaded = Memory::read(&mut self.control, pid)?;
        let mut plan = self.plan.clone();
        (plan.phases, plan.interval) = (vec![phase; 3], TIMELINE);
        plan.begin = Some(instant_at(deadline_ms) - phase);
        let limit = instant_at(deadline_ms) + Duration::from_secs_f64(self.flags.wait);
        let target = self.target.clone();
        let load = std::thread::spawn(move || plan.run(&target));
        std::thread::sleep(instant_at(deadline_ms).saturating_duration_since(Instant::now()));
        let dead = instant_at(deadline_ms);
        let back = Added { before, loaded, dead }.watch(&mut self.control, pid, limit)?;
        let round = load.join().expect("the load does not panic")?;
        let lags_ms = subscriber.wait(self.flags.dying(), deadline_ms, limit)?;
        rounds.figures.push(self.mass_figures(&round, &lags_ms, &back));
        rounds.details.push(json!({ "timeline": round.timeline, "memory": back.json() }));
        for (label, phase) in ["before", "during", "after"].into_iter().zip(&round.outcome.phases) {
            rounds.add_latency(label, &phase.latency_ns);
        }
        rounds.first_error = rounds.first_error.take().or(round.outcome.first_error);
        self.finish()
    }

    fn mass_figures(&self, round: &Round, lags_ms: &[f64], back: &Back) -> Vec<f64> {
        let us = |ns: u64| ns as f64 / 1e3;
        let mut figures = vec![self.plan.rate.unwrap_or(f64::NAN)];
        for phase in &round.outcome.phases {
            let latency = &phase.latency_ns;
            figures.extend([latency.value_at_quantile(0.99), latency.value_at_quantile(0.999), latency.max()].map(us));
        }
        figures.extend([0.5, 0.99, 1.0].map(|quantile| quantile_of(lags_ms, self.flags.dying(), quantile)));
        figures.extend([lags_ms.len() as f64, back.used_s, back.rss_s]);
        figures.extend([us(round.outcome.late_ns.value_at_quantile(0.999)), round.outcome.errors as f64]);
        figures
    }

    fn allowance_ms(&self) -> u64 {
        self.flags.dying() * LOAD_ALLOWANCE_MS_A_MILLION / 1_000_000
    }

    /// Leaves the server as it was; an access kills what it has not found by itself.
    fn finish(mut self) -> Result<()> {
        let exists = Command::new(&self.form, &[Part::Word(b"EXISTS"), Part::Key]);
        self.control.load(&exists, self.flags.dying(), |_| ())?;
        self.events.restore()
    }
}

/// A connection that notes when each `expired` event of the dying keys came, in a thread of its own.
struct Subscriber {
    thread: JoinHandle<Result<()>>,
    stop: Arc<AtomicBool>,
    arrivals_us: Arc<std::sync::Mutex<Vec<u64>>>,
}

impl Subscriber {
    fn start(target: &Target, login: &Login, prefix: &str) -> Result<Subscriber> {
        let mut control = Control::open(target, login)?;
        control.call(&[b"PSUBSCRIBE", b"__keyevent@*__:expired"])?;
        let stop = Arc::new(AtomicBool::new(false));
        let arrivals_us = Arc::new(std::sync::Mutex::new(Vec::new()));
        let (prefix, stopped, noted) = (prefix.as_bytes().to_vec(), stop.clone(), arrivals_us.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let event = control.next_before(Instant::now() + Duration::from_millis(100))?;
                let arrival_us = unix_us();
                if let Some(Value::List(parts)) = event
                    && parts.last().and_then(Value::text).is_some_and(|key| key.starts_with(&prefix))
                {
                    noted.lock().expect("nobody panics with it").push(arrival_us);
                }
            }
            Ok(())
        });
        Ok(Subscriber { thread, stop, arrivals_us })
    }

    /// Waits for `events` of them, up to `limit`; milliseconds after the deadline, sorted.
    fn wait(self, events: u64, deadline_ms: u64, limit: Instant) -> Result<Vec<f64>> {
        let seen = || self.arrivals_us.lock().expect("nobody panics with it").len() as u64;
        while seen() < events && Instant::now() < limit && !self.thread.is_finished() {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the subscriber does not panic")?;
        let arrivals_us = self.arrivals_us.lock().expect("nobody panics with it");
        let lag_ms = |arrival_us: &u64| (*arrival_us as f64 - deadline_ms as f64 * 1e3) / 1e3;
        let mut lags_ms: Vec<f64> = arrivals_us.iter().map(lag_ms).collect();
        lags_ms.sort_by(f64::total_cmp);
        Ok(lags_ms)
    }
}

/// The quantile among `all`, of which those that did not come are infinitely late.
fn quantile_of(sorted: &[f64], all: u64, quantile: f64) -> f64 {
    let rank = ((all as f64 * quantile).ceil() as usize).max(1);
    sorted.get(rank - 1).copied().unwrap_or(f64::INFINITY)
}

fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

fn unix_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970").as_micros() as u64
}

fn unix_ms() -> u64 {
    unix_us() / 1000
}

/// A moment of the wall clock on the clock that does not jump.
fn instant_at(unix_ms: u64) -> Instant {
    let ahead_us = (unix_ms * 1000) as i64 - unix_us() as i64;
    match ahead_us {
        ..0 => Instant::now() - Duration::from_micros(ahead_us.unsigned_abs()),
        _ => Instant::now() + Duration::from_micros(ahead_us as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_come_is_infinitely_late() {
        let lags = [1.0, 2.0, 3.0];
        assert_eq!(quantile_of(&lags, 4, 0.5), 2.0);
        assert_eq!(quantile_of(&lags, 4, 0.75), 3.0);
        assert_eq!(quantile_of(&lags, 4, 1.0), f64::INFINITY);
        assert_eq!(quantile_of(&lags, 3, 1.0), 3.0);
    }
}
