//! Memory of a server: what keys take (`memory`), and when it is given back.

use crate::failure::Result;
use crate::flags::Flags;
use crate::load;
use crate::metric::MEMORY;
use crate::report::{Report, Rounds};
use crate::round::{Plan, server_pid};
use emberdb::measure::client::Client;
use emberdb::measure::process;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Memory is back when no more than this share of what was added is left.
pub const LEFT_SHARE: f64 = 0.1;
const POLL: Duration = Duration::from_millis(100);

/// Bytes.
#[derive(Clone, Copy)]
pub struct Memory {
    pub used: u64,
    pub rss: u64,
}

impl Memory {
    pub fn read(client: &mut Client, pid: Option<u32>) -> Result<Memory> {
        let info = client.info("memory")?;
        let field = |name: &str| info.get(name).and_then(|value| value.parse().ok()).unwrap_or(0);
        let rss = pid.and_then(process::resident_bytes).unwrap_or_else(|| field("used_memory_rss"));
        Ok(Memory { used: field("used_memory"), rss })
    }
}

/// What was added and is to go again.
#[derive(Clone, Copy)]
pub struct Added {
    pub before: Memory,
    pub loaded: Memory,
    /// The moment it is dead from.
    pub dead: Instant,
}

/// When it was back (infinite: not within the wait), and what was seen until then.
pub struct Back {
    pub used_s: f64,
    pub rss_s: f64,
    /// Seconds after the moment.
    samples: Vec<(f64, Memory)>,
}

impl Added {
    /// Looks on until it is back, no longer than until `limit`.
    pub fn watch(&self, client: &mut Client, pid: Option<u32>, limit: Instant) -> Result<Back> {
        let is_back = |now: u64, before: u64, loaded: u64| {
            now as f64 <= before as f64 + LEFT_SHARE * loaded.saturating_sub(before) as f64
        };
        let mut back = Back { used_s: f64::INFINITY, rss_s: f64::INFINITY, samples: Vec::new() };
        while Instant::now() < limit && (back.used_s.is_infinite() || back.rss_s.is_infinite()) {
            let memory = Memory::read(client, pid)?;
            let at_s = self.dead.elapsed().as_secs_f64();
            back.samples.push((at_s, memory));
            if back.used_s.is_infinite() && is_back(memory.used, self.before.used, self.loaded.used) {
                back.used_s = at_s;
            }
            if back.rss_s.is_infinite() && is_back(memory.rss, self.before.rss, self.loaded.rss) {
                back.rss_s = at_s;
            }
            std::thread::sleep(POLL);
        }
        Ok(back)
    }
}

impl Back {
    pub fn json(&self) -> Value {
        let rounded = |at_s: f64| (at_s * 1e3).round() / 1e3;
        self.samples.iter().map(|(at_s, memory)| json!([rounded(*at_s), memory.used, memory.rss])).collect()
    }
}

/// Loads each target and tells what that has added.
pub fn run(flags: &Flags) -> Result<Report<'_>> {
    let plan = Plan::new(flags);
    let command = plan.recipe.load();
    let mut targets = Vec::new();
    for target in &flags.targets {
        let pid = server_pid(target, &plan.login)?;
        let mut client = Client::open(target, &plan.login)?;
        let before = Memory::read(&mut client, pid)?;
        load::keys(&plan, target, &command)?;
        // For buffers of the load to be given back.
        std::thread::sleep(plan.warmup);
        let after = Memory::read(&mut client, pid)?;
        let a_key = |before: u64, after: u64| (after as f64 - before as f64) / flags.keys() as f64;
        let mut rounds = Rounds::new(target);
        rounds.figures.push(vec![
            a_key(before.used, after.used),
            a_key(before.rss, after.rss),
            after.used as f64,
            after.rss as f64,
        ]);
        rounds.details.push(json!({ "used_before": before.used, "rss_before": before.rss }));
        targets.push(rounds);
    }
    let title = format!("memory of {} times {}", flags.keys(), load::given(&flags.load_command));
    let remarks = vec![
        "Bytes of used_memory (INFO) and resident ones after loading less those before, for each time; the latter say \
         something where the server was started for this run."
            .to_owned(),
    ];
    Ok(Report { flags, title, metrics: MEMORY, targets, remarks })
}
