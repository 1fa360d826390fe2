//! What the server tells of itself, as data: gathered once from all shards, and told by INFO as lines, by the metrics as
//! what Prometheus reads, and to the live page as JSON.
//!
//! | file | what |
//! |---|---|
//! | `metrics.rs` | the facts as metrics |
//! | `sections.rs` | the facts, section by section in the order of INFO |
//! | `replication.rs` | those about replication |
//! | `snapshot.rs` | what one shard knows of itself at a moment, and all shards together |
//! | `foresight.rs` | what all shards find when they look ahead |

pub mod foresight;
pub mod metrics;
mod replication;
mod sections;
mod snapshot;

pub use replication::online as online_replicas;
pub use sections::{LATENCYSTATS, ON_REQUEST, SECTIONS};
pub use snapshot::Snapshot;

use crate::config::Config;
use crate::observe::memory;
use crate::server::state::Server;
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::fmt::{self, Display, Formatter};
use std::rc::Rc;

/// What the facts are told from.
pub struct Gathered {
    server: Rc<Server>,
    /// Memory before all of this was gathered.
    used_bytes: u64,
    config: Rc<Config>,
    shards: Vec<Snapshot>,
    pub total: Snapshot,
}

/// Asks all shards. Histograms of latencies are taken where that is asked for.
pub async fn gather(server: &Rc<Server>, with_latency: bool) -> Gathered {
    let used_bytes = memory::used_bytes();
    let shards = server.shard.call_all(move |shard| Snapshot::take(shard, with_latency)).await;
    Gathered {
        server: server.clone(),
        used_bytes,
        config: server.shard.config(),
        total: Snapshot::sum(&shards),
        shards,
    }
}

impl Gathered {
    /// All that INFO tells without being asked for a section.
    pub fn facts(&self) -> Facts {
        let mut facts = Facts::default();
        for (_, tell) in SECTIONS.iter().filter(|(name, _)| !ON_REQUEST.contains(name)) {
            tell(&mut facts, self);
        }
        facts
    }

    /// The lag that is promised, beside the work on what is due.
    pub fn promised_lag_us(&self) -> u64 {
        PROMISED_US + self.server.shard.settings().interval_ms * 1000
    }
}

/// What the promise of lag allows beside the cycle's interval.
const PROMISED_US: u64 = 2_000;

/// One fact: `used_memory:1024`.
pub struct Fact {
    pub name: Cow<'static, str>,
    pub value: Value,
}

pub enum Value {
    Count(u64),
    Whole(i64),
    /// With so many digits behind the point.
    Real(f64, usize),
    Percent(f64),
    Text(String),
    /// `keys=1,expires=0`
    Several(Vec<(Cow<'static, str>, Value)>),
}

fn several<const N: usize>(all: [(&'static str, Value); N]) -> Value {
    Value::Several(all.into_iter().map(|(name, value)| (name.into(), value)).collect())
}

impl Value {
    /// As a number, if it is one, as exactly as INFO tells it.
    pub fn number(&self) -> Option<f64> {
        let rounded = |number: f64, digits: usize| {
            let factor = 10_f64.powi(digits as i32);
            (number * factor).round() / factor
        };
        match *self {
            Value::Count(number) => Some(number as f64),
            Value::Whole(number) => Some(number as f64),
            Value::Real(number, digits) => Some(rounded(number, digits)),
            Value::Percent(number) => Some(rounded(number, 2)),
            Value::Text(_) | Value::Several(_) => None,
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Count(number) => to.serialize_u64(*number),
            Value::Whole(number) => to.serialize_i64(*number),
            Value::Text(text) => to.serialize_str(text),
            Value::Several(all) => to.collect_map(all.iter().map(|(name, value)| (name, value))),
            Value::Real(..) | Value::Percent(_) => self.number().serialize(to),
        }
    }
}

impl Serialize for Facts {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|fact| (&fact.name, &fact.value)))
    }
}

impl Display for Value {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            Value::Count(number) => number.fmt(f),
            Value::Whole(number) => number.fmt(f),
            Value::Real(number, digits) => write!(f, "{number:.digits$}"),
            Value::Percent(number) => write!(f, "{number:.2}%"),
            Value::Text(text) => f.write_str(text),
            Value::Several(all) => all
                .iter()
                .enumerate()
                .try_for_each(|(index, (name, value))| write!(f, "{}{name}={value}", if index > 0 { "," } else { "" })),
        }
    }
}

macro_rules! values {
    ($($kind:ty => $variant:ident as $number:ty),*) => {
        $(impl From<$kind> for Value {
            fn from(number: $kind) -> Value {
                Value::$variant(number as $number)
            }
        })*
    };
}

values!(u8 => Count as u64, u16 => Count as u64, u32 => Count as u64, u64 => Count as u64, usize => Count as u64,
    i32 => Whole as i64, i64 => Whole as i64);

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

/// The facts of a section.
#[derive(Default)]
pub struct Facts(pub Vec<Fact>);

impl Facts {
    fn field(&mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Value>) {
        self.0.push(Fact { name: name.into(), value: value.into() });
    }

    /// A size, and the same for people.
    fn size(&mut self, name: &'static str, bytes: u64) {
        self.field(name, bytes);
        self.field(format!("{name}_human"), human(bytes));
    }
}

/// Moments at which keys were used are told as seconds in so many bits, which begin anew every half a year.
pub const LRU_CLOCK_BITS: u32 = 24;

/// As Redis prints sizes: `1.50K`.
pub fn human(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let (mut size, mut unit) = (bytes as f64 / 1024.0, 0);
    const UNITS: [char; 5] = ['K', 'M', 'G', 'T', 'P'];
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    format!("{size:.2}{}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_in_redis() {
        let sizes = [(0, "0B"), (1023, "1023B"), (1361192, "1.30M"), (12382208, "11.81M"), (25274793984, "23.54G")];
        for (bytes, text) in sizes {
            assert_eq!(human(bytes), text);
        }
    }

    #[test]
    fn values_read_as_in_redis() {
        let several = Value::Several(vec![("keys".into(), 1_usize.into()), ("avg_ttl".into(), Value::Real(2.5, 0))]);
        let values = [
            (Value::from(3_u64), "3"),
            (Value::from(-1), "-1"),
            (Value::Real(1.0 / 3.0, 2), "0.33"),
            (Value::Percent(50.0), "50.00%"),
            ("x".into(), "x"),
            (several, "keys=1,avg_ttl=2"),
        ];
        for (value, text) in values {
            assert_eq!(value.to_string(), text);
        }
    }
}
