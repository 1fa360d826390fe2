//! What is shown, panel by panel, as lines: the same on a screen and as plain text.

use crate::info::{Info, Several};
use crate::model::Model;
use crate::text::{bytes, clipped, columns, count, micros, rate, span};
use crate::watch::{ClientRow, Death, Policy};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use std::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Panel {
    Lag,
    Rates,
    Deaths,
    Shards,
    Policies,
    Memory,
    Clients,
}

/// In the order of the keyboard.
pub const PANELS: [Panel; 7] =
    [Panel::Lag, Panel::Rates, Panel::Deaths, Panel::Shards, Panel::Policies, Panel::Memory, Panel::Clients];

/// Commands among the rates, and characters of a name in a table; JSON has all of it.
const COMMANDS: usize = 8;
const NAME: usize = 60;
/// What is not told.
const UNTOLD: &str = "-";
const LABEL: usize = 10;
/// Columns of a bar that is full.
const BAR: usize = 20;

impl Panel {
    pub fn title(self) -> &'static str {
        match self {
            Panel::Lag => "Lag",
            Panel::Rates => "Rates",
            Panel::Deaths => "Next deaths",
            Panel::Shards => "Shards",
            Panel::Policies => "Policies",
            Panel::Memory => "Memory",
            Panel::Clients => "Clients",
        }
    }

    /// As wide as `width`, if that is enough; whatever is wider may be cut off.
    pub fn lines(self, model: &Model, now: Instant, width: usize) -> Vec<Line<'static>> {
        let Some(info) = model.info() else { return vec![missing("nothing is told yet")] };
        match self {
            Panel::Lag => lag(model, info, width),
            Panel::Rates => rates(model, width),
            Panel::Deaths => deaths(model, now),
            Panel::Shards => shards(model, info),
            Panel::Policies => policies(model),
            Panel::Memory => memory(info),
            Panel::Clients => clients(model, info),
        }
    }
}

/// Which server this is, and how it is.
pub fn header(model: &Model) -> Line<'static> {
    let mut spans = vec![Span::styled(clipped(&model.address, NAME), Modifier::BOLD)];
    if let Some(info) = model.info() {
        let version = |name: &str, field: &str| info.text(field).map(|text| format!("{name} {}", clipped(text, 20)));
        let name = version("EmberDB", "emberdb_version").or_else(|| version("Redis", "redis_version"));
        let parts = [
            name,
            info.text("role").map(|role| clipped(role, 10)),
            info.count("uptime_in_seconds").map(|s| format!("up {}", span(to_ms(s)))),
            Some(format!("{} keys", count(info.of_databases("keys")))),
            (info.count("loading") == Some(1)).then(|| "loading".to_owned()),
        ];
        spans.extend(parts.into_iter().flatten().map(|part| Span::raw(format!("  {part}"))));
    }
    if let Some(why) = &model.lost {
        spans.push(Span::styled(format!("  away: {why}"), Style::new().fg(Color::Red).add_modifier(Modifier::BOLD)));
    }
    Line::from(spans)
}

fn lag(model: &Model, info: &Info, width: usize) -> Vec<Line<'static>> {
    let room = width.saturating_sub(LABEL + 12);
    let promised = info.count("expire_lag_promised_us");
    let measured = |label, field| {
        let Some(us) = info.count(field) else { return labelled(label, UNTOLD.to_owned()) };
        let mut line = labelled(label, format!("{:>9}", micros(us)));
        if let Some(bound) = promised.filter(|bound| *bound > 0) {
            let share = us as f64 / bound as f64;
            let style = Style::new().fg(match share {
                _ if us > bound => Color::Red,
                0.5.. => Color::Yellow,
                _ => Color::Green,
            });
            if us > bound {
                line.push_span(Span::styled("  over the bound", style));
            } else {
                let filled = (share * room.min(BAR) as f64).round() as usize;
                line.push_span(Span::styled(format!("  {}", "█".repeat(filled)), style));
                line.push_span(Span::styled("░".repeat(room.min(BAR).saturating_sub(filled)), Modifier::DIM));
            }
        }
        line
    };
    let mut lines = Vec::new();
    if info.is_ember() {
        lines.push(labelled("promised", promised.map_or(UNTOLD.to_owned(), |us| format!("{:>9}", micros(us)))));
        lines.push(measured("median", "expire_lag_p50_us"));
        lines.push(measured("p99", "expire_lag_p99_us"));
        lines.push(measured("longest", "expire_lag_max_us"));
        let mut due = measured("due now", "expire_oldest_due_us");
        let history: Vec<f64> = model.history.due_us.iter().copied().collect();
        let picture = columns(&history, promised.unwrap_or(0) as f64, room.saturating_sub(BAR + 4));
        due.push_span(Span::raw(format!("  {picture}")));
        lines.push(due);
    } else {
        lines.push(missing("this server does not tell how late keys die"));
    }
    let history: Vec<f64> = model.history.deaths.iter().copied().collect();
    let most = history.iter().copied().fold(1.0, f64::max);
    let mut died = labelled("deaths/s", format!("{:>9}", told_rate(model.rate("expired_keys"))));
    died.push_span(Span::raw(format!("  {}", columns(&history, most, room))));
    lines.push(died);
    let so_far = format!("{} keys, {} members", told(info.count("expired_keys")), told(info.count("expired_subkeys")));
    lines.push(labelled("died", so_far));
    // Milliseconds a second are tenths of a percent of one core.
    let cpu = model.rate("expire_cycle_cpu_milliseconds").map_or(UNTOLD.to_owned(), |ms| format!("{:.2} %", ms / 10.0));
    let stale = info.real("expired_stale_perc").map_or(UNTOLD.to_owned(), |share| format!("{share:.2} %"));
    let cycle = format!("{cpu} of a core, {stale} of keys are dead");
    lines.push(labelled("cycle", cycle));
    lines
}

fn rates(model: &Model, width: usize) -> Vec<Line<'static>> {
    let room = width.saturating_sub(LABEL + 12);
    let history: Vec<f64> = model.history.commands.iter().copied().collect();
    let most = history.iter().copied().fold(1.0, f64::max);
    let mut commands = labelled("commands", format!("{:>9}", told_rate(model.rate("total_commands_processed"))));
    commands.push_span(Span::raw(format!("  {}", columns(&history, most, room))));
    let of = |name: &str| model.rate(name);
    let traffic = |name: &str| of(name).map_or(UNTOLD.to_owned(), |rate| bytes(rate as u64));
    let mut lines = vec![
        commands,
        labelled("hits", format!("{:>9}  misses {}", told_rate(of("keyspace_hits")), told_rate(of("keyspace_misses")))),
        labelled(
            "evicted",
            format!("{:>9}  errors {}", told_rate(of("evicted_keys")), told_rate(of("total_error_replies"))),
        ),
        labelled("in", format!("{:>9}  out {}", traffic("total_net_input_bytes"), traffic("total_net_output_bytes"))),
        labelled("connected", format!("{:>9}", told_rate(of("total_connections_received")))),
    ];
    let rows: Vec<Vec<String>> = model
        .command_rates(COMMANDS)
        .into_iter()
        .map(|row| vec![clipped(&row.name, 24), rate(row.calls), format!("{:.1} µs", row.us_per_call)])
        .collect();
    if !rows.is_empty() {
        lines.extend(table(&["command", "a second", "each"], rows, 1));
    }
    lines
}

fn deaths(model: &Model, now: Instant) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    match &model.forecast {
        Ok(horizons) => lines.extend(horizons.iter().map(|horizon| {
            labelled(
                &format!("within {}", horizon.within),
                format!("{} keys, {}", count(horizon.keys), bytes(horizon.bytes)),
            )
        })),
        Err(why) => lines.push(missing(why)),
    }
    match &model.deaths {
        Ok(next) if next.is_empty() => lines.push(missing("no key has a deadline")),
        Ok(next) => {
            let rows = next.iter().map(|death| vec![left(model, death, now), clipped(&death.key, NAME)]).collect();
            lines.extend(table(&["in", "key"], rows, 2));
        }
        Err(why) => lines.push(missing(why)),
    }
    lines
}

/// How long a key has to live.
fn left(model: &Model, death: &Death, now: Instant) -> String {
    model.server_ms(now).map_or(UNTOLD.to_owned(), |now_ms| span(death.at_ms.saturating_sub(now_ms)))
}

fn shards(model: &Model, info: &Info) -> Vec<Line<'static>> {
    let shards = info.numbered("shard");
    if shards.is_empty() {
        return vec![missing("this server has no shards")];
    }
    let row = |(number, shard): &(u32, Several<'_>)| {
        let of = |name| told(shard.count(name));
        let time = |name| shard.count(name).map_or(UNTOLD.to_owned(), micros);
        vec![
            number.to_string(),
            of("keys"),
            of("expires"),
            shard.count("bytes").map_or(UNTOLD.to_owned(), bytes),
            of("connections"),
            told_rate(model.rate_of_shard(*number, "commands")),
            time("lag_p99_us"),
            time("oldest_due_us"),
        ]
    };
    let names = ["shard", "keys", "expires", "bytes", "clients", "cmds/s", "p99", "due now"];
    table(&names, shards.iter().map(row).collect(), 0)
}

fn policies(model: &Model) -> Vec<Line<'static>> {
    let policies = match model.facts.as_ref().map(|facts| &facts.policies) {
        Some(Ok(policies)) => policies,
        Some(Err(why)) => return vec![missing(why)],
        None => return Vec::new(),
    };
    if policies.is_empty() {
        return vec![missing("no policies")];
    }
    let row = |policy: &Policy| vec![format!("\"{}\"", clipped(&policy.prefix, NAME)), policy.words.clone()];
    table(&["prefix", "policy"], policies.iter().map(row).collect(), 2)
}

fn memory(info: &Info) -> Vec<Line<'static>> {
    let size = |name| info.count(name).map_or(UNTOLD.to_owned(), bytes);
    let mut used = size("used_memory");
    match (info.count("used_memory"), info.count("maxmemory")) {
        (Some(bytes_used), Some(most)) if most > 0 => {
            used += &format!(" of {}, {:.0} %", bytes(most), bytes_used as f64 / most as f64 * 100.0);
        }
        (_, Some(0)) => used += ", no limit",
        _ => {}
    }
    let policy = info.text("maxmemory_policy").map_or(UNTOLD.to_owned(), |text| clipped(text, 20));
    let text = |name| info.text(name).map_or(UNTOLD.to_owned(), |text| clipped(text, 20));
    let lines = [
        ("used", used),
        ("peak", size("used_memory_peak")),
        ("resident", format!("{}, fragmentation {}", size("used_memory_rss"), text("mem_fragmentation_ratio"))),
        ("data", format!("{}, overhead {}", size("used_memory_dataset"), size("used_memory_overhead"))),
        ("clients", format!("{}, scripts {}", size("mem_clients_normal"), size("used_memory_scripts"))),
        ("full", format!("{policy}, {} evicted", told(info.count("evicted_keys")))),
    ];
    lines.into_iter().map(|(label, value)| labelled(label, value)).collect()
}

fn clients(model: &Model, info: &Info) -> Vec<Line<'static>> {
    let of = |name| told(info.count(name));
    let all = format!(
        "{} of {}, {} blocked, {} tracking, {} refused",
        of("connected_clients"),
        of("maxclients"),
        of("blocked_clients"),
        of("tracking_clients"),
        of("rejected_connections")
    );
    let mut lines = vec![Line::raw(all)];
    match model.facts.as_ref().map(|facts| &facts.clients) {
        Some(Ok(clients)) => {
            let row = |client: &ClientRow| {
                vec![
                    client.id.to_string(),
                    clipped(&client.addr, 24),
                    clipped(&client.user, 16),
                    clipped(&client.name, 20),
                    clipped(&client.command, 20),
                    span(to_ms(client.age_s)),
                    span(to_ms(client.idle_s)),
                    bytes(client.bytes),
                ]
            };
            let names = ["id", "address", "user", "name", "command", "age", "idle", "memory"];
            lines.extend(table(&names, clients.iter().map(row).collect(), 5));
        }
        Some(Err(why)) => lines.push(missing(why)),
        None => {}
    }
    lines
}

fn to_ms(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1_000)
}

fn told(number: Option<u64>) -> String {
    number.map_or(UNTOLD.to_owned(), count)
}

fn told_rate(number: Option<f64>) -> String {
    number.map_or(UNTOLD.to_owned(), rate)
}

fn labelled(label: &str, value: String) -> Line<'static> {
    Line::from(vec![Span::styled(format!("{label:<LABEL$} "), Modifier::DIM), Span::raw(value)])
}

fn missing(why: &str) -> Line<'static> {
    Line::styled(format!("({why})"), Modifier::DIM)
}

/// The first `left` columns begin where their names begin, the others end where those end.
fn table(names: &[&str], rows: Vec<Vec<String>>, left: usize) -> Vec<Line<'static>> {
    let width_of = |text: &str| Span::raw(text).width();
    let mut widths: Vec<usize> = names.iter().map(|name| width_of(name)).collect();
    for row in &rows {
        widths.iter_mut().zip(row).for_each(|(width, cell)| *width = (*width).max(width_of(cell)));
    }
    let write = |cells: &[String]| {
        let mut text = String::new();
        for (at, (cell, width)) in cells.iter().zip(&widths).enumerate() {
            let padding = " ".repeat(width - width_of(cell));
            match at < left {
                true => text += &format!("{cell}{padding}  "),
                false => text += &format!("{padding}{cell}  "),
            }
        }
        text.trim_end().to_owned()
    };
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let heading = Line::styled(write(&names), Modifier::DIM);
    std::iter::once(heading).chain(rows.iter().map(|row| Line::raw(write(row)))).collect()
}
