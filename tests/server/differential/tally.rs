//! Whether a run says anything: how often each command answered with an error, with nothing, and with something.

use std::collections::BTreeMap;
use std::fmt;

use crate::common::Value;

#[derive(Default)]
pub struct Tally {
    commands: BTreeMap<String, Counts>,
}

#[derive(Default)]
struct Counts {
    errors: u64,
    /// Null, zero, or a collection without elements.
    nothing: u64,
    something: u64,
}

impl Tally {
    pub fn count(&mut self, command: &[u8], reply: &Value) {
        let name = String::from_utf8_lossy(command).to_uppercase();
        let counts = self.commands.entry(name).or_default();
        match reply {
            reply if reply.is_error() => counts.errors += 1,
            Value::Int(0) => counts.nothing += 1,
            Value::Array(items) | Value::Set(items) if items.is_empty() => counts.nothing += 1,
            Value::Map(pairs) if pairs.is_empty() => counts.nothing += 1,
            reply if reply.is_null() => counts.nothing += 1,
            _ => counts.something += 1,
        }
    }

    /// The share of replies that say something.
    pub fn share(&self, command: &str) -> f64 {
        self.commands.get(command).map_or(0.0, |counts| counts.something as f64 / counts.sum() as f64)
    }
}

impl Counts {
    fn sum(&self) -> u64 {
        self.errors + self.nothing + self.something
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<22} {:>9}  something  nothing  error", "command", "replies")?;
        // What no server knows is made up, and of any length.
        for (name, counts) in self.commands.iter().filter(|(name, _)| name.len() <= 22) {
            let percent = |count: u64| 100.0 * count as f64 / counts.sum() as f64;
            let [something, nothing, errors] = [counts.something, counts.nothing, counts.errors].map(percent);
            let name = name.escape_debug().to_string();
            writeln!(f, "{name:<22} {:>9} {something:>9.1}% {nothing:>7.1}% {errors:>5.1}%", counts.sum())?;
        }
        Ok(())
    }
}
