//! What happens when keys die: how late subscribers hear of it (`lag`), and what it does to those who read other keys
//! and to memory (`mass-expiry`).

use crate::encode::{Command, KeyForm, Part, Ttl};
use crate::failure::{Failure, Result};
use crate::flags::{Flags, Rate};
use crate::load;
use crate::memory::{Added, Back, LEFT_SHARE, Memory};
use crate::metric::{LAG, MASS_EXPIRY};
use crate::report::{Report, Rounds};
use crate::round::{Plan, Round, server_pid};
use crate::setting::{self, Setting};
use crate::workload::Kind;
use emberdb::measure::client::{Client, Login};
use emberdb::measure::report::quantile_of;
use emberdb::measure::resp::Value;
use emberdb::measure::target::Target;
use emberdb::measure::wall;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Live keys die no earlier than in a day.
const FAR: Ttl = Ttl { from: 86_400, to: 2 * 86_400 };
/// Between loading what dies and its deadline.
const LAG_LEAD_MS: i64 = 1_000;
/// Time for loading a million keys that die.
const LOAD_ALLOWANCE_MS_A_MILLION: i64 = 5_000;
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
    client: Client,
    /// notify-keyspace-events.
    events: Setting,
    form: KeyForm,
}

impl<'a> Deaths<'a> {
    fn prepare(flags: &'a Flags, plan: &'a Plan, target: &Target, round: u64) -> Result<Deaths<'a>> {
        let mut client = Client::open(target, &plan.login)?;
        let events = Setting::change(target, &plan.login, "notify-keyspace-events", b"Ex")?;
        client.call(&[b"CONFIG", b"RESETSTAT"])?;
        let prefix = format!("{}dying-{round}:", plan.recipe.form.prefix);
        let form = KeyForm::new(&prefix, flags.key_size as usize, flags.dying());
        Ok(Deaths { flags, plan, target: target.clone(), client, events, form })
    }

    /// Sets the keys that die, which has to be done by `ready_ms`.
    fn load_dying(&mut self, deadline_ms: i64, ready_ms: i64) -> Result<()> {
        let deadline = deadline_ms.to_string();
        let value = &self.plan.recipe.value;
        let parts =
            [Part::Word(b"SET"), Part::Key, Part::Word(value), Part::Word(b"PXAT"), Part::Word(deadline.as_bytes())];
        let command = Command::new(&self.form, &parts);
        self.client.load(0..self.flags.dying(), command.writer(), |_| ())?;
        if wall::unix_ms() >= ready_ms {
            return Err(Failure::Unfit(format!(
                "{}: loading {} keys took longer than expected; take fewer (--dying)",
                self.target,
                self.flags.dying()
            )));
        }
        Ok(())
    }

    fn lag_round(mut self, rounds: &mut Rounds) -> Result<()> {
        let deadline_ms = wall::unix_ms() + LAG_LEAD_MS + self.allowance_ms();
        let subscriber = Subscriber::start(&self.target, &self.plan.login, &self.form.prefix)?;
        self.load_dying(deadline_ms, deadline_ms)?;
        let limit = wall::instant_at(deadline_ms) + Duration::from_secs_f64(self.flags.wait);
        let lags_ms = subscriber.wait(self.flags.dying(), deadline_ms, limit)?;
        let info = self.client.info("everything")?;
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
        let before = Memory::read(&mut self.client, pid)?;
        let ahead_ms = (self.plan.warmup + phase).as_millis() as i64;
        let deadline_ms = wall::unix_ms() + ahead_ms + LAG_LEAD_MS + self.allowance_ms();
        let subscriber = Subscriber::start(&self.target, &self.plan.login, &self.form.prefix)?;
        self.load_dying(deadline_ms, deadline_ms - phase.as_millis() as i64)?;
        let loaded = Memory::read(&mut self.client, pid)?;
        let mut plan = self.plan.clone();
        (plan.phases, plan.interval) = (vec![phase; 3], TIMELINE);
        plan.begin = Some(wall::instant_at(deadline_ms) - phase);
        let limit = wall::instant_at(deadline_ms) + Duration::from_secs_f64(self.flags.wait);
        let target = self.target.clone();
        let load = std::thread::spawn(move || plan.run(&target));
        std::thread::sleep(wall::instant_at(deadline_ms).saturating_duration_since(Instant::now()));
        let dead = wall::instant_at(deadline_ms);
        let back = Added { before, loaded, dead }.watch(&mut self.client, pid, limit)?;
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

    fn allowance_ms(&self) -> i64 {
        self.flags.dying() as i64 * LOAD_ALLOWANCE_MS_A_MILLION / 1_000_000
    }

    /// Leaves the server as it was; an access kills what it has not found by itself.
    fn finish(mut self) -> Result<()> {
        let exists = Command::new(&self.form, &[Part::Word(b"EXISTS"), Part::Key]);
        self.client.load(0..self.flags.dying(), exists.writer(), |_| ())?;
        self.events.restore()
    }
}

/// A connection that notes when each `expired` event of the dying keys came, in a thread of its own.
struct Subscriber {
    thread: JoinHandle<Result<()>>,
    stop: Arc<AtomicBool>,
    arrivals_us: Arc<std::sync::Mutex<Vec<i64>>>,
}

impl Subscriber {
    fn start(target: &Target, login: &Login, prefix: &str) -> Result<Subscriber> {
        let mut client = Client::open(target, login)?;
        client.call(&[b"PSUBSCRIBE", b"__keyevent@*__:expired"])?;
        let stop = Arc::new(AtomicBool::new(false));
        let arrivals_us = Arc::new(std::sync::Mutex::new(Vec::new()));
        let (prefix, stopped, noted) = (prefix.as_bytes().to_vec(), stop.clone(), arrivals_us.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let event = client.next_before(Instant::now() + Duration::from_millis(100))?;
                let arrival_us = wall::unix_us();
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
    fn wait(self, events: u64, deadline_ms: i64, limit: Instant) -> Result<Vec<f64>> {
        let seen = || self.arrivals_us.lock().expect("nobody panics with it").len() as u64;
        while seen() < events && Instant::now() < limit && !self.thread.is_finished() {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the subscriber does not panic")?;
        let arrivals_us = self.arrivals_us.lock().expect("nobody panics with it");
        let lag_ms = |arrival_us: &i64| (*arrival_us - deadline_ms * 1_000) as f64 / 1e3;
        let mut lags_ms: Vec<f64> = arrivals_us.iter().map(lag_ms).collect();
        lags_ms.sort_by(f64::total_cmp);
        Ok(lags_ms)
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
