//! Steps that take more than one command: what chance decides is looked at by its properties, and the oracle is then
//! brought to where EmberDB is.

use std::collections::BTreeSet;

use crate::common::{Client, Value, words};
use crate::differential::generate::Args;

/// What a step said to EmberDB and to Redis; equal, or the test fails.
pub type Outcome = (Value, Value);

/// Runs SCAN, SSCAN, HSCAN or ZSCAN to its end. What was found comes sorted, because servers walk in different orders; a
/// key returned twice counts once, because Redis may do so.
pub fn scan(client: &mut Client, begin: &Args, options: &Args) -> Value {
    // Fields and members come with their values and scores.
    let width = if matches!(begin[0].as_slice(), b"HSCAN" | b"ZSCAN") { 2 } else { 1 };
    let mut found = BTreeSet::new();
    let mut cursor = b"0".to_vec();
    loop {
        let reply = client.command(&[begin.as_slice(), &[cursor], options].concat());
        if reply.is_error() {
            return reply;
        }
        let [next, items] = reply.items() else {
            panic!("SCAN answers a cursor and what it found, not {reply:?}");
        };
        found.extend(items.items().chunks(width).map(<[Value]>::to_vec));
        cursor = next.bytes().expect("a cursor").to_vec();
        if cursor == b"0" {
            return Value::Array(found.into_iter().flatten().collect());
        }
    }
}

/// RANDOMKEY's answer with the choice taken out of it: null, or whether the key it names is there.
pub fn random_key_exists(client: &mut Client) -> Value {
    let reply = client.call("RANDOMKEY");
    match reply.bytes() {
        Some(key) => client.command(&[b"EXISTS", key]),
        None => reply,
    }
}

/// A reply with the choice taken out of it: each item that `all` has becomes OK, so that replies with as many items of
/// the same form are equal. Items that are not there stay. Where the command's count is not negative, so do repeated
/// ones.
pub fn sample(client: &mut Client, args: &Args, all: &Args) -> Value {
    let everything = client.command(all);
    let reply = client.command(args);
    if everything.is_error() || reply.is_error() {
        return reply;
    }
    let with_values = args.len() == 4;
    let pairs = matches!(everything, Value::Map(_)) || !all[0].starts_with(b"SM");
    let known = items(&everything, if pairs { 2 } else { 1 });
    let known: BTreeSet<Vec<Value>> = known.into_iter().map(|item| shortened(item, with_values)).collect();
    if !matches!(reply, Value::Array(_) | Value::Set(_)) {
        return masked(&known, vec![reply], &mut None);
    }
    let may_repeat = args.get(2).is_some_and(|count| count.starts_with(b"-"));
    let mut seen = if may_repeat { None } else { Some(BTreeSet::new()) };
    let nested = matches!(reply.items().first(), Some(Value::Array(_)));
    let masks = items(&reply, if with_values { 2 } else { 1 }).into_iter().map(|item| masked(&known, item, &mut seen));
    // RESP3 has pairs in arrays of their own.
    Value::Array(std::iter::once(Value::Bool(nested)).chain(masks).collect())
}

fn shortened(mut item: Vec<Value>, with_values: bool) -> Vec<Value> {
    item.truncate(if with_values { 2 } else { 1 });
    item
}

fn masked(known: &BTreeSet<Vec<Value>>, item: Vec<Value>, seen: &mut Option<BTreeSet<Vec<Value>>>) -> Value {
    let is_new = seen.as_mut().is_none_or(|seen| seen.insert(item.clone()));
    if known.contains(&item) && is_new { Value::ok() } else { Value::Array(item) }
}

/// The items of an array, a set or a map, each of so many values; pairs may be arrays of their own.
fn items(reply: &Value, width: usize) -> Vec<Vec<Value>> {
    match reply {
        Value::Map(pairs) => pairs.iter().map(|(name, value)| vec![name.clone(), value.clone()]).collect(),
        Value::Array(all) | Value::Set(all) => match all.first() {
            Some(Value::Array(_)) => all.iter().map(|pair| pair.items().to_vec()).collect(),
            _ => all.chunks(width).map(<[Value]>::to_vec).collect(),
        },
        other => panic!("expected a collection, got {other:?}"),
    }
}

/// SPOP on both. Where each has taken its own choice of members, the oracle gets its own back and gives the others away.
pub fn pop(subject: &mut Client, oracle: &mut Client, args: &Args) -> Outcome {
    let key = &args[1];
    let all: Vec<Value> = match oracle.command(&[b"SMEMBERS", key.as_slice()]) {
        Value::Array(members) | Value::Set(members) => members,
        _ => Vec::new(),
    };
    let (ours, theirs) = (subject.command(args), oracle.command(args));
    let (Some(our_members), Some(their_members)) = (members(&ours), members(&theirs)) else {
        return (ours, theirs);
    };
    let distinct: BTreeSet<&Value> = our_members.iter().collect();
    let legal = our_members.iter().all(|member| all.contains(member)) && distinct.len() == our_members.len();
    let alike =
        our_members.len() == their_members.len() && std::mem::discriminant(&ours) == std::mem::discriminant(&theirs);
    if !legal || !alike {
        return (ours, theirs);
    }
    if our_members.len() < all.len() && !our_members.is_empty() {
        assert_eq!(oracle.command(&give(b"SADD", key, &their_members)).number(), their_members.len() as i64);
        assert_eq!(oracle.command(&give(b"SREM", key, &our_members)).number(), our_members.len() as i64);
        // Redis looks for a new encoding when it takes many; what it finds depends on what is left.
        let again = [b"SUNIONSTORE", key.as_slice(), key.as_slice()];
        subject.command(&again);
        oracle.command(&again);
    }
    (Value::ok(), Value::ok())
}

/// SADD or SREM of these members.
fn give(name: &[u8], key: &[u8], members: &[Value]) -> Args {
    let members = members.iter().filter_map(|member| member.bytes().map(<[u8]>::to_vec));
    [name.to_vec(), key.to_vec()].into_iter().chain(members).collect()
}

/// The members in SPOP's reply; `None` for an error.
fn members(reply: &Value) -> Option<Vec<Value>> {
    match reply {
        Value::Error(_) => None,
        Value::Array(members) | Value::Set(members) => Some(members.clone()),
        member if member.is_null() => Some(Vec::new()),
        member => Some(vec![member.clone()]),
    }
}

/// XSETID on both. Redis 7.0 takes an id below the greatest that was deleted, which later versions refuse: then the oracle
/// is not asked.
pub fn set_id(subject: &mut Client, oracle: &mut Client, args: &Args) -> Outcome {
    let reply = subject.command(args);
    if matches!(&reply, Value::Error(text) if text.contains("current max_deleted_entry_id")) {
        return (reply.clone(), reply);
    }
    (reply, oracle.command(args))
}

/// XREADGROUP on both. From Redis 7.2 on its consumer is there afterwards, also where there was nothing for it: who has not
/// made it is told to make it.
pub fn read_group(subject: &mut Client, oracle: &mut Client, args: &Args) -> Outcome {
    let outcome = (subject.command(args), oracle.command(args));
    let behind = args.iter().position(|arg| arg.eq_ignore_ascii_case(b"STREAMS"));
    if let (Some(behind), false) = (behind, outcome.0.is_error()) {
        let names = &args[behind + 1..];
        for key in &names[..names.len() / 2] {
            for client in [&mut *subject, &mut *oracle] {
                client.command(&[&b"XGROUP"[..], b"CREATECONSUMER", key.as_slice(), &args[2], &args[3]]);
            }
        }
    }
    outcome
}

/// XADD or XTRIM with `~` on both; then both streams are cut to the length of the shorter one.
pub fn trim(subject: &mut Client, oracle: &mut Client, args: &Args, key: &[u8]) -> Outcome {
    let len = |client: &mut Client| match client.command(&[b"XLEN", key]) {
        Value::Int(len) => len,
        _ => 0,
    };
    let before = len(oracle);
    let (ours, theirs) = (subject.command(args), oracle.command(args));
    if ours.is_error() || theirs.is_error() {
        return (ours, theirs);
    }
    let (our_len, their_len) = (len(subject), len(oracle));
    let trims = args[0].eq_ignore_ascii_case(b"XTRIM");
    if trims && ours != Value::Int(before - our_len) || our_len > before + i64::from(!trims) {
        return (ours, Value::Int(before - our_len));
    }
    let least = our_len.min(their_len).to_string();
    let exact = [b"XTRIM", key, b"MAXLEN", b"=", least.as_bytes()];
    subject.command(&exact);
    oracle.command(&exact);
    if trims { (Value::ok(), Value::ok()) } else { (ours, theirs) }
}

/// DUMP on both; one payload, EmberDB's or the oracle's, is restored by both. What they say to that, and the command that
/// returns what they then have.
pub fn exchange(
    subject: &mut Client,
    oracle: &mut Client,
    ours: bool,
    from: &[u8],
    restore: impl Fn(&[u8]) -> Args,
) -> (Outcome, Option<Args>) {
    let dumps = (subject.command(&[b"DUMP", from]), oracle.command(&[b"DUMP", from]));
    let (Some(our_payload), Some(their_payload)) = (dumps.0.bytes(), dumps.1.bytes()) else {
        return (dumps, None);
    };
    let args = restore(if ours { our_payload } else { their_payload });
    let outcome = (subject.command(&args), oracle.command(&args));
    let to = &args[1];
    let kind = oracle.command(&[b"TYPE", to.as_slice()]).text();
    (outcome, content_command(&kind, to))
}

/// The command that returns all that a key of this type holds.
pub fn content_command(kind: &str, key: &[u8]) -> Option<Args> {
    let (name, rest) = match kind {
        "string" => ("GET", ""),
        "list" => ("LRANGE", "0 -1"),
        "set" => ("SMEMBERS", ""),
        "hash" => ("HGETALL", ""),
        "zset" => ("ZRANGE", "0 -1 WITHSCORES"),
        "stream" => ("XRANGE", "- +"),
        _ => return None,
    };
    Some([vec![name.as_bytes().to_vec(), key.to_vec()], words(rest)].concat())
}
