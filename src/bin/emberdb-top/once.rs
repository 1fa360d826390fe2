//! One screen, as plain text or as JSON.

use crate::flags::Flags;
use crate::info::{Info, Several};
use crate::model::Model;
use crate::panels::{PANELS, header};
use crate::watch::{Part, Told};
use serde_json::{Map, Value, json};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How long the walks over the keys are waited for, beside the interval.
const WALKS: Duration = Duration::from_secs(10);
/// How long a server that says nothing at all is waited for.
const SILENCE: Duration = Duration::from_secs(30);
/// As wide as plain text is, and how many rows a panel has there.
const WIDTH: usize = 100;
const ROWS: usize = 20;

/// Waits until everything is told: rates need two looks.
///
/// # Errors
/// The server is away, or wants nothing to do with us.
pub fn gather(flags: &Flags, model: &mut Model, told: &Receiver<Told>) -> Result<(), String> {
    let silence = Instant::now() + SILENCE + flags.interval();
    let walks = Instant::now() + WALKS + flags.interval();
    let (mut deaths, mut forecast) = (flags.no_walks, flags.no_walks);
    loop {
        let limit = if model.has_rates() { walks } else { silence };
        match told.recv_timeout(limit.saturating_duration_since(Instant::now())) {
            Ok(Told::Lost(why)) => return Err(why),
            Ok(news) => {
                deaths |= matches!(news, Told::Deaths(_));
                forecast |= matches!(news, Told::Forecast(_));
                model.hear(news);
            }
            Err(RecvTimeoutError::Timeout) if model.has_rates() => return Ok(()),
            Err(_) => return Err(format!("no reply for {} s", SILENCE.as_secs())),
        }
        if model.has_rates() && deaths && forecast {
            return Ok(());
        }
    }
}

pub fn text(model: &Model, now: Instant) -> String {
    let mut text = format!("{}\n", header(model));
    for panel in PANELS {
        text += &format!("\n{}\n", panel.title());
        let lines = panel.lines(model, now, WIDTH);
        for line in lines.iter().take(ROWS) {
            text += format!("  {line}").trim_end();
            text.push('\n');
        }
        if lines.len() > ROWS {
            text += &format!("  ... {} more\n", lines.len() - ROWS);
        }
    }
    text.trim_end().to_owned()
}

/// Numbers that the server does not tell are null; a part that is missing says why.
pub fn json(model: &Model) -> Value {
    let Some(facts) = &model.facts else { return Value::Null };
    let info = &facts.info;
    let databases =
        info.numbered("db").into_iter().map(|(number, row)| counts(&row, &["keys", "expires", "avg_ttl"], number));
    json!({
        "address": model.address,
        "server": {
            "emberdb_version": info.text("emberdb_version"),
            "redis_version": info.text("redis_version"),
            "role": info.text("role"),
            "uptime_s": info.count("uptime_in_seconds"),
            "loading": info.count("loading").map(|loading| loading != 0),
        },
        "lag_us": of_info(info, &[
            ("promised", "expire_lag_promised_us"),
            ("p50", "expire_lag_p50_us"),
            ("p99", "expire_lag_p99_us"),
            ("max", "expire_lag_max_us"),
            ("due_now", "expire_oldest_due_us"),
        ]),
        "expired": of_info(info, &[("keys", "expired_keys"), ("members", "expired_subkeys"), ("evicted_keys", "evicted_keys")]),
        "rates": rates(model),
        "commands": model.command_rates(usize::MAX).iter().map(|row| {
            json!({ "name": row.name, "calls_a_second": row.calls, "us_per_call": row.us_per_call })
        }).collect::<Vec<_>>(),
        "next_deaths": part(&model.deaths, |death| json!({ "key": death.key, "at_ms": death.at_ms })),
        "forecast": part(&model.forecast, |horizon| {
            json!({ "within": horizon.within, "keys": horizon.keys, "bytes": horizon.bytes })
        }),
        "policies": part(&facts.policies, |policy| json!({ "prefix": policy.prefix, "policy": policy.words })),
        "databases": databases.collect::<Vec<_>>(),
        "shards": shards(model, info),
        "memory": of_info(info, &[
            ("used", "used_memory"),
            ("peak", "used_memory_peak"),
            ("resident", "used_memory_rss"),
            ("data", "used_memory_dataset"),
            ("overhead", "used_memory_overhead"),
            ("limit", "maxmemory"),
        ]),
        "connections": of_info(info, &[
            ("connected", "connected_clients"),
            ("most", "maxclients"),
            ("blocked", "blocked_clients"),
            ("refused", "rejected_connections"),
        ]),
        "clients": part(&facts.clients, |client| json!({
            "id": client.id,
            "addr": client.addr,
            "user": client.user,
            "name": client.name,
            "command": client.command,
            "age_s": client.age_s,
            "idle_s": client.idle_s,
            "bytes": client.bytes,
        })),
    })
}

fn of_info(info: &Info, fields: &[(&str, &str)]) -> Value {
    fields.iter().map(|(name, field)| ((*name).to_owned(), json!(info.count(field)))).collect::<Map<_, _>>().into()
}

fn counts(row: &Several<'_>, fields: &[&str], number: u32) -> Value {
    let fields = fields.iter().map(|name| ((*name).to_owned(), json!(row.count(name))));
    std::iter::once(("number".to_owned(), json!(number))).chain(fields).collect::<Map<_, _>>().into()
}

/// A second.
fn rates(model: &Model) -> Value {
    let fields = [
        ("commands", "total_commands_processed"),
        ("deaths", "expired_keys"),
        ("evictions", "evicted_keys"),
        ("hits", "keyspace_hits"),
        ("misses", "keyspace_misses"),
        ("errors", "total_error_replies"),
        ("in_bytes", "total_net_input_bytes"),
        ("out_bytes", "total_net_output_bytes"),
        ("connections", "total_connections_received"),
    ];
    fields.iter().map(|(name, field)| ((*name).to_owned(), json!(model.rate(field)))).collect::<Map<_, _>>().into()
}

fn shards(model: &Model, info: &Info) -> Value {
    const FIELDS: [&str; 6] = ["keys", "expires", "bytes", "connections", "lag_p99_us", "oldest_due_us"];
    let shard = |(number, row): (u32, Several<'_>)| {
        let mut shard = counts(&row, &FIELDS, number);
        shard["commands_a_second"] = json!(model.rate_of_shard(number, "commands"));
        shard
    };
    info.numbered("shard").into_iter().map(shard).collect()
}

fn part<T>(part: &Part<Vec<T>>, each: impl Fn(&T) -> Value) -> Value {
    match part {
        Ok(rows) => rows.iter().map(each).collect(),
        Err(why) => json!({ "missing": why }),
    }
}
