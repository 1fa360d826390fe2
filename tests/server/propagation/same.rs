//! Whether two servers hold the same.

use std::time::Duration;

use crate::common::{Client, Server, Value, words};
use crate::differential::compare::Rule;

const DATABASES: usize = 16;
const TIMES: &[&[u8]] = &[b"seen-time", b"active-time", b"idle", b"inactive"];
/// Times of deliveries are as far apart as the clocks.
const SKEW: Duration = Duration::from_secs(3 * 365 * 24 * 3600);

/// What is not the same: the database, the key between bars, and both.
pub fn differences(source: &Server, target: &Server) -> Vec<String> {
    let (mut ours, mut theirs) = (source.client(), target.client());
    let kind = target.kind();
    let strip = if source.kind().is_ember() { Value::clone } else { without_new_consumers };
    let mut found = Vec::new();
    for db in 0..DATABASES {
        let names: Vec<Vec<Vec<u8>>> = [&mut ours, &mut theirs].map(|client| keys(client, db)).into();
        let mut all: Vec<&Vec<u8>> = names.iter().flatten().collect();
        all.sort_unstable();
        all.dedup();
        for key in all {
            if let Some(difference) = of_key(&mut ours, &mut theirs, key, strip) {
                found.push(format!("{kind:?} db {db} |{}| {difference}", key.escape_ascii()));
            }
        }
    }
    found
}

fn keys(client: &mut Client, db: usize) -> Vec<Vec<u8>> {
    client.call(&format!("SELECT {db}"));
    client.call("KEYS *").items().iter().filter_map(Value::bytes).map(<[u8]>::to_vec).collect()
}

fn of_key(ours: &mut Client, theirs: &mut Client, key: &[u8], strip: fn(&Value) -> Value) -> Option<String> {
    let kind = theirs.command(&[b"TYPE".to_vec(), key.to_vec()]).text();
    let contents: &[(&str, &str, Rule)] = match kind.as_str() {
        "string" => &[("GET", "", Rule::Exact)],
        "list" => &[("LRANGE", "0 -1", Rule::Exact)],
        "set" => &[("SMEMBERS", "", Rule::Unordered)],
        "zset" => &[("ZRANGE", "0 -1 WITHSCORES", Rule::Scores)],
        "stream" => &[("XRANGE", "- +", Rule::Exact), ("XINFO STREAM", "FULL COUNT 0", Rule::StreamInfo)],
        "hash" => &[("HGETALL", "", Rule::Pairs)],
        _ => &[],
    };
    // Where the first of them differ nothing else tells more.
    let all = [("TYPE", "", Rule::Exact), ("PEXPIRETIME", "", Rule::Exact)];
    let different = all.iter().chain(contents).find_map(|(line, rest, rule)| {
        let args = [words(line), vec![key.to_vec()], words(rest)].concat();
        let [a, b] = [&mut *ours, &mut *theirs].map(|client| strip(&without_times(&client.command(&args))));
        let [a, b] =
            if kind == "zset" && *line == "ZRANGE" { [a, b].map(|value| with_numbers(&value)) } else { [a, b] };
        (!rule.same(&a, &b, SKEW)).then(|| format!("{line}: {a:?} and {b:?}"))
    });
    different.or_else(|| match kind.as_str() {
        "hash" => of_elements(ours, theirs, key, ["HKEYS", "HPEXPIRETIME", "FIELDS"]),
        "set" => of_elements(ours, theirs, key, ["SMEMBERS", "SPEXPIRETIME", "MEMBERS"]),
        "zset" => of_elements(ours, theirs, key, ["ZUNION 1", "ZPEXPIRETIME", "MEMBERS"]),
        _ => None,
    })
}

/// When a consumer was seen or did something is not told.
fn without_times(info: &Value) -> Value {
    let is_time = |name: &Value| matches!(name, Value::Bulk(name) if TIMES.contains(&&name[..]));
    match info {
        Value::Array(items) => {
            let is_map = items.len().is_multiple_of(2) && items.iter().any(is_time);
            let kept = items.chunks(2).filter(|pair| !is_map || !is_time(&pair[0])).flatten();
            Value::Array(kept.map(without_times).collect())
        }
        other => other.clone(),
    }
}

/// Newer servers show a score with as few digits as tell it from others, Redis 7.0 with 17.
fn with_numbers(members: &Value) -> Value {
    let Value::Array(items) = members else { return members.clone() };
    let shown = |score: &Value| {
        let number: Option<f64> = score.bytes().and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        number.map_or(score.clone(), |number| Value::Bulk(number.to_string().into_bytes()))
    };
    let pairs = items.chunks(2).flat_map(|pair| pair[..1].iter().cloned().chain(pair[1..].iter().map(shown)));
    Value::Array(pairs.collect())
}

/// Redis 7.0 and Valkey 9.1 tell nobody of a consumer that XREADGROUP or XAUTOCLAIM has made and that was given nothing, as
/// their own replicas show.
fn without_new_consumers(info: &Value) -> Value {
    let is_text = |value: &Value, text: &str| matches!(value, Value::Bulk(bytes) if bytes == text.as_bytes());
    let is_new = |value: &Value| {
        let items = if let Value::Array(items) = value { &items[..] } else { &[] };
        let has_none = items.windows(2).any(|pair| is_text(&pair[0], "pel-count") && pair[1] == Value::Int(0));
        has_none && !items.iter().any(|item| is_text(item, "consumers"))
    };
    match info {
        Value::Array(items) => {
            Value::Array(items.iter().filter(|item| !is_new(item)).map(without_new_consumers).collect())
        }
        other => other.clone(),
    }
}

/// The deadlines of a hash's fields, or of the members of a set or a sorted set.
fn of_elements(ours: &mut Client, theirs: &mut Client, key: &[u8], [all, times, word]: [&str; 3]) -> Option<String> {
    let elements = ours.command(&all.split(' ').map(str::as_bytes).chain([key]).collect::<Vec<_>>());
    if elements.is_error() {
        // (The other server said a moment ago that it is such a collection, and has caught up since.)
        return Some(format!("{all}: {elements:?}"));
    }
    let names: Vec<Vec<u8>> = elements.items().iter().filter_map(Value::bytes).map(<[u8]>::to_vec).collect();
    let count = names.len().to_string();
    let head = [times.as_bytes(), key, word.as_bytes(), count.as_bytes()].map(<[u8]>::to_vec);
    let args: Vec<Vec<u8>> = head.into_iter().chain(names).collect();
    let (a, b) = (ours.command(&args), theirs.command(&args));
    // Redis 7.0 knows of no such thing, and was told of none.
    (!a.is_error() && !b.is_error() && a != b).then(|| format!("{times} of {elements:?}: {a:?} and {b:?}"))
}
