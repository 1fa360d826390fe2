//! What is known of the server, put together from what the watchers tell.

use crate::info::{Info, Several};
use crate::watch::{Death, Facts, Horizon, Part, Told};
use std::collections::{HashMap, VecDeque};
use std::time::Instant;

/// Looks that are remembered, as many as the widest terminal has columns for.
const REMEMBERED: usize = 240;
const NOT_YET: &str = "not told yet";

#[derive(Clone)]
pub struct Model {
    /// Which server this is, as it may be shown.
    pub address: String,
    pub facts: Option<Facts>,
    /// The look before, of the same server: rates are what changed since then.
    before: Option<Facts>,
    pub deaths: Part<Vec<Death>>,
    pub forecast: Part<Vec<Horizon>>,
    /// Why there is no news.
    pub lost: Option<String>,
    pub history: History,
}

/// The newest last.
#[derive(Clone, Default)]
pub struct History {
    pub commands: VecDeque<f64>,
    pub deaths: VecDeque<f64>,
    /// How late the oldest dead key was, in microseconds.
    pub due_us: VecDeque<f64>,
}

/// What a command has done since the look before.
#[derive(Debug, PartialEq)]
pub struct CommandRate {
    pub name: String,
    /// A second.
    pub calls: f64,
    pub us_per_call: f64,
}

impl Model {
    pub fn new(address: String, walks: bool) -> Model {
        let missing = if walks { NOT_YET } else { "not asked for (--no-walks)" };
        Model {
            address,
            facts: None,
            before: None,
            deaths: Err(missing.to_owned()),
            forecast: Err(missing.to_owned()),
            lost: None,
            history: History::default(),
        }
    }

    pub fn hear(&mut self, told: Told) {
        match told {
            Told::Facts(facts) => self.learn(*facts),
            Told::Deaths(deaths) => self.deaths = deaths,
            Told::Forecast(forecast) => self.forecast = forecast,
            Told::Lost(why) => {
                self.lost = Some(why);
                // What happens while nobody looks belongs to no interval.
                self.before = None;
            }
        }
    }

    fn learn(&mut self, facts: Facts) {
        let was_lost = self.lost.take().is_some();
        let before = self.facts.replace(facts);
        let same = |before: &Facts| self.facts.as_ref().is_some_and(|facts| is_one_run(&before.info, &facts.info));
        if before.as_ref().is_some_and(|before| !same(before)) {
            self.history = History::default();
        }
        self.before = before.filter(|before| !was_lost && same(before));
        let rates = [self.rate("total_commands_processed"), self.rate("expired_keys")];
        let due = self.info().and_then(|info| info.real("expire_oldest_due_us"));
        let History { commands, deaths, due_us } = &mut self.history;
        for (row, number) in [(commands, rates[0]), (deaths, rates[1]), (due_us, due)] {
            row.extend(number);
            if row.len() > REMEMBERED {
                row.pop_front();
            }
        }
    }

    pub fn info(&self) -> Option<&Info> {
        self.facts.as_ref().map(|facts| &facts.info)
    }

    pub fn has_rates(&self) -> bool {
        self.before.is_some()
    }

    /// By how much a counter grows a second.
    pub fn rate(&self, name: &str) -> Option<f64> {
        let (before, now, seconds) = self.interval()?;
        grown(before.real(name)?, now.real(name)?, seconds)
    }

    /// The same of a counter of a shard.
    pub fn rate_of_shard(&self, shard: u32, name: &str) -> Option<f64> {
        let (before, now, seconds) = self.interval()?;
        let of = |info: &Info| {
            info.numbered("shard").into_iter().find(|(number, _)| *number == shard).and_then(|(_, row)| row.real(name))
        };
        grown(of(before)?, of(now)?, seconds)
    }

    /// The commands that are called most.
    pub fn command_rates(&self, most: usize) -> Vec<CommandRate> {
        let Some((before, now, seconds)) = self.interval() else { return Vec::new() };
        let earlier: HashMap<&str, Several> = before.beginning("cmdstat_").collect();
        let rate = |(name, row): (&'_ str, Several<'_>)| {
            let grew = |field| {
                let was = earlier.get(name).and_then(|row| row.real(field)).unwrap_or(0.0);
                Some(row.real(field)? - was)
            };
            let (calls, usec) = (grew("calls")?, grew("usec")?);
            (calls >= 1.0).then(|| CommandRate {
                name: name.to_owned(),
                calls: calls / seconds,
                us_per_call: usec.max(0.0) / calls,
            })
        };
        let mut rates: Vec<CommandRate> = now.beginning("cmdstat_").filter_map(rate).collect();
        rates.sort_by(|a, b| b.calls.total_cmp(&a.calls).then_with(|| a.name.cmp(&b.name)));
        rates.truncate(most);
        rates
    }

    /// The server's wall clock in milliseconds, as far as it tells.
    pub fn server_ms(&self, now: Instant) -> Option<i64> {
        let facts = self.facts.as_ref()?;
        let then_ms = i64::try_from(facts.info.count("server_time_usec")? / 1_000).ok()?;
        let since_ms = now.saturating_duration_since(facts.at).as_millis();
        Some(then_ms.saturating_add(i64::try_from(since_ms).unwrap_or(i64::MAX)))
    }

    fn interval(&self) -> Option<(&Info, &Info, f64)> {
        let (before, facts) = (self.before.as_ref()?, self.facts.as_ref()?);
        let seconds = facts.at.saturating_duration_since(before.at).as_secs_f64();
        (seconds > 0.0).then_some((&before.info, &facts.info, seconds))
    }
}

/// Whether both are of one server that was not restarted in between.
fn is_one_run(before: &Info, now: &Info) -> bool {
    ["run_id", "process_id"].iter().all(|name| before.text(name) == now.text(name))
}

/// A counter that is less than it was has been set back, and tells nothing.
fn grown(before: f64, now: f64, seconds: f64) -> Option<f64> {
    (now >= before).then(|| (now - before) / seconds)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::time::Duration;

    /// A model that has heard these texts of INFO, one a second.
    pub fn told(texts: &[&[u8]]) -> (Model, Instant) {
        let mut model = Model::new("127.0.0.1:6379".to_owned(), true);
        let mut at = Instant::now();
        for text in texts {
            at += Duration::from_secs(1);
            model.hear(facts(text, at));
        }
        (model, at)
    }

    pub fn facts(text: &[u8], at: Instant) -> Told {
        let nothing = || "nothing".to_owned();
        let (policies, clients) = (Err(nothing()), Err(nothing()));
        Told::Facts(Box::new(Facts { at, info: Info::parse(text), policies, clients }))
    }

    #[test]
    fn rates_are_what_changed_since_the_look_before() {
        let (model, _) = told(&[
            b"expired_keys:5\ncmdstat_get:calls=1,usec=10\nshard0:commands=1\n",
            b"expired_keys:8\ncmdstat_get:calls=3,usec=16\ncmdstat_set:calls=9,usec=9\nshard0:commands=3\n",
        ]);
        assert_eq!((model.rate("expired_keys"), model.rate("evicted_keys")), (Some(3.0), None));
        assert_eq!((model.rate_of_shard(0, "commands"), model.rate_of_shard(1, "commands")), (Some(2.0), None));
        let rate = |name: &str, calls, us_per_call| CommandRate { name: name.to_owned(), calls, us_per_call };
        assert_eq!(model.command_rates(5), [rate("set", 9.0, 1.0), rate("get", 2.0, 3.0)]);
        assert_eq!(model.command_rates(1).len(), 1);
    }

    #[test]
    fn neither_a_restart_nor_a_pause_is_a_rate() {
        let (model, _) = told(&[b"run_id:a\nexpired_keys:5\n", b"run_id:b\nexpired_keys:9\n"]);
        assert_eq!(model.rate("expired_keys"), None);
        let (model, _) = told(&[b"expired_keys:5\n", b"expired_keys:4\n"]);
        assert_eq!(model.rate("expired_keys"), None, "CONFIG RESETSTAT");
        let (mut model, at) = told(&[b"expired_keys:5\n"]);
        model.hear(Told::Lost("gone".to_owned()));
        assert!(model.lost.is_some());
        model.hear(facts(b"expired_keys:9\n", at + Duration::from_secs(60)));
        assert_eq!((model.rate("expired_keys"), model.lost), (None, None));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let texts: Vec<String> = (0..600).map(|number| format!("expire_oldest_due_us:{number}\n")).collect();
        let texts: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
        let (model, _) = told(&texts);
        assert_eq!((model.history.due_us.len(), model.history.due_us.back()), (REMEMBERED, Some(&599.0)));
    }

    #[test]
    fn the_clock_is_that_of_the_server() {
        let (model, at) = told(&[b"server_time_usec:5000000\n"]);
        assert_eq!(model.server_ms(at + Duration::from_millis(20)), Some(5_020));
        let (model, at) = told(&[b"server_time_usec:18446744073709551615\n"]);
        assert!(model.server_ms(at).is_some());
        assert_eq!(told(&[b""]).0.server_ms(at), None);
    }
}
