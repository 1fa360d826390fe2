//! Who is in the way of everybody else.

use std::io::Result;
use std::time::Duration;

use super::actors::{Act, LIBRARY, LISTS, SORTED_SETS};
use super::link::Link;
use super::{COUNTED_DATABASES, EMPTIED_DATABASE, Odd, Round, is_done};
use crate::common::{Client, Value, encode, words};

pub const ALL: &[(&str, Act)] = &[
    ("prober", probe),
    ("prober", probe),
    ("killer", kill),
    ("pauser", pause),
    ("holder", hold),
    ("setter", set),
    ("loader", load),
    ("spinner", spin),
    ("spinner", spin),
    ("script-killer", kill_scripts),
    ("listener", listen),
    ("listener", listen),
    ("hog", hog),
    ("dier", die),
];

/// What a round begins with, as far as settings go.
pub const RESTORE: &[&str] = &[
    "CONFIG SET maxmemory 0 maxmemory-clients 0 maxmemory-policy noeviction",
    "CONFIG SET busy-reply-threshold 100 busy-script-scope keys script-undeclared-keys allow",
    "CONFIG SET pipeline-order relaxed tracking-table-max-keys 1000000",
    "CONFIG SET hz 10 active-expire-cpu-percent 25 latency-monitor-threshold 0 slowlog-log-slower-than 10000",
    "CONFIG SET appendfsync everysec",
];

const SETTINGS: &[&str] = &[
    "maxmemory 0",
    "maxmemory 64mb",
    "maxmemory 8mb",
    "maxmemory-policy volatile-lru",
    "maxmemory-policy volatile-lfu",
    "maxmemory-policy volatile-ttl",
    "maxmemory-policy volatile-random",
    "maxmemory-clients 0",
    "maxmemory-clients 1mb",
    "maxmemory-clients 3mb",
    "busy-reply-threshold 20",
    "busy-reply-threshold 100",
    "busy-script-scope server",
    "busy-script-scope keys",
    "script-undeclared-keys deny",
    "script-undeclared-keys allow",
    "notify-keyspace-events KEA",
    "notify-keyspace-events KEmn",
    "pipeline-order strict",
    "pipeline-order relaxed",
    "tracking-table-max-keys 5",
    "hz 100",
    "active-expire-cpu-percent 1",
    "latency-monitor-threshold 1",
    "slowlog-log-slower-than 0",
    "appendfsync no",
];

const ENDLESS: &str = "redis.call('TYPE', KEYS[1]) while true do end";
const ENDLESS_IN_PCALL: &str = "redis.call('TYPE', KEYS[1]) while true do pcall(function() while true do end end) end";
const ENDLESS_WITHOUT_KEYS: &str = "while true do end";
const LONG: &str = "for i = 1, 1e6 do end return redis.call('TYPE', KEYS[1])";
const STRAYING: &str = "redis.call('TYPE', KEYS[1]) for i = 1, 3e5 do end return redis.call('TYPE', ARGV[1])";

/// Whoever can be answered is, whatever others do.
fn probe(link: &mut Link) {
    let request = link.pick(&["PING", "PING", "GET other", "SET other 1", "CLIENT LIST", "INFO", "MGET a b c d"]);
    link.call(request);
    link.nap(30_000);
}

fn ids(list: &Value) -> Vec<(String, bool)> {
    let text = list.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default();
    let id = |line: &str| {
        let field = |name: &str| line.split(' ').find_map(|word| word.strip_prefix(name)).map(str::to_owned);
        Some((field("id=")?, field("flags=")?.contains('b')))
    };
    text.lines().filter_map(id).collect()
}

fn kill(link: &mut Link) {
    link.nap(60_000);
    if !link.round.has_kills {
        return;
    }
    let Some(list) = link.call("CLIENT LIST") else { return };
    let all = ids(&list);
    if all.is_empty() {
        return;
    }
    let (id, _) = link.pick(&all.iter().map(|(id, waits)| (id.as_str(), *waits)).collect::<Vec<_>>());
    match link.rng.u32(..8) {
        0 => drop(link.call("CLIENT KILL TYPE normal")),
        1 => drop(link.call("CLIENT KILL TYPE pubsub")),
        2 => drop(link.call(&format!("CLIENT UNBLOCK {id} ERROR"))),
        3 => drop(link.call(&format!("CLIENT UNBLOCK {id}"))),
        4 => {
            let requests = [words("MULTI"), words(&format!("CLIENT KILL ID {id}")), words("EXEC")];
            link.ask_all(&requests, Duration::ZERO);
        }
        _ => drop(link.call(&format!("CLIENT KILL ID {id}"))),
    }
}

fn pause(link: &mut Link) {
    link.nap(200_000);
    let (millis, kind) = (link.rng.u32(..30), link.pick(&["ALL", "WRITE"]));
    link.call(&format!("CLIENT PAUSE {millis} {kind}"));
    if link.one_in(3) {
        link.call("CLIENT UNPAUSE");
    }
}

fn hold(link: &mut Link) {
    link.nap(50_000);
    if !link.round.has_holding {
        return;
    }
    let (one, other) = (link.rng.u32(..COUNTED_DATABASES), link.rng.u32(..COUNTED_DATABASES));
    let lines: Vec<String> = match link.rng.u32(..16) {
        0..3 => vec![format!("SWAPDB {one} {other}")],
        3 => vec!["MULTI".into(), format!("SWAPDB {one} {other}"), "DBSIZE".into(), "EXEC".into()],
        4 => vec![format!("SELECT {EMPTIED_DATABASE}"), "FLUSHDB".into()],
        5 => vec![format!("SELECT {EMPTIED_DATABASE}"), "MULTI".into(), "FLUSHDB".into(), "EXEC".into()],
        6 => vec!["BGSAVE".into()],
        7 => vec!["BGREWRITEAOF".into()],
        8 => vec!["SAVE".into()],
        9 => vec!["DBSIZE".into(), "KEYS *".into()],
        10 => vec!["EXPIRY PURGE".into()],
        11 if is_done(Odd::PurgeInExec) => {
            vec!["MULTI".into(), "XLEN ended".into(), "EXPIRY PURGE".into(), "EXEC".into()]
        }
        12 if is_done(Odd::LogSwitched) => vec!["CONFIG SET appendonly no".into(), "CONFIG SET appendonly yes".into()],
        13 if is_done(Odd::SyncAlways) => vec!["CONFIG SET appendfsync always".into()],
        14 if is_done(Odd::LogSwitched) && is_done(Odd::ConfigSetInExec) => {
            let switch = ["no", "yes"].map(|word| format!("CONFIG SET appendonly {word}"));
            [&["MULTI".into(), "SET other 1".into()], &switch[..], &["DBSIZE".into(), "EXEC".into()]].concat()
        }
        _ => vec!["RANDOMKEY".into(), "SCAN 0".into()],
    };
    let requests: Vec<_> = lines.iter().map(|line| words(line)).collect();
    // SAVE answers when the disk has it.
    link.ask_all(&requests, Duration::from_secs(10));
}

fn set(link: &mut Link) {
    link.nap(50_000);
    let setting = link.pick(SETTINGS);
    link.call(&format!("CONFIG SET {setting}"));
}

fn load(link: &mut Link) {
    link.nap(100_000);
    match link.rng.u32(..6) {
        0 => drop(link.ask(vec!["SCRIPT", "LOAD", ENDLESS])),
        1 => drop(link.call("SCRIPT FLUSH")),
        2 => drop(link.call("FUNCTION DELETE together")),
        3 => drop(link.call("FUNCTION LIST")),
        _ => drop(link.ask(vec!["FUNCTION", "LOAD", "REPLACE", LIBRARY])),
    }
}

fn spin(link: &mut Link) {
    link.nap(100_000);
    let key = if link.rng.bool() { link.pick(LISTS) } else { link.pick(SORTED_SETS) };
    let other = link.pick(LISTS);
    let is_endless = link.round.has_endless;
    let request = match link.rng.u32(..8) {
        0 | 1 if is_endless => vec!["EVAL", ENDLESS, "1", key],
        2 if is_endless => vec!["EVAL", ENDLESS_IN_PCALL, "1", key],
        3 if is_endless => vec!["FCALL", "endless", "1", key],
        4 if is_endless && is_done(Odd::EndlessWithoutKeys) => vec!["EVAL", ENDLESS_WITHOUT_KEYS, "0"],
        5 if !is_endless => vec!["EVAL", STRAYING, "1", key, other],
        _ => vec!["EVAL", LONG, "1", key],
    };
    if link.one_in(10) {
        link.send_all(&[request]);
        return link.hang_up();
    }
    // Somebody ends it, at the end of the round at the latest.
    link.ask_all(&[request], Duration::from_secs(10));
}

fn kill_scripts(link: &mut Link) {
    link.nap(200_000);
    let request = link.pick(&["SCRIPT KILL", "FUNCTION KILL"]);
    link.call(request);
}

/// Who is told of things, and reads that or does not.
fn listen(link: &mut Link) {
    let requests: Vec<Vec<Vec<u8>>> = match link.rng.u32(..6) {
        0 => vec![words("HELLO 3"), words("CLIENT TRACKING ON"), words("LRANGE list:0 0 5"), words("ZCARD zset:0")],
        1 => vec![words("HELLO 3"), words("CLIENT TRACKING ON BCAST PREFIX list: PREFIX junk:")],
        2 => vec![words("HELLO 3"), words("PSUBSCRIBE __key*__:*")],
        3 => vec![words("SUBSCRIBE news")],
        4 => vec![words("MONITOR")],
        _ => vec![words("HELLO 3"), words("CLIENT TRACKING ON NOLOOP"), words("XLEN stream:0"), words("XLEN ended")],
    };
    link.send_all(&requests);
    if link.rng.bool() {
        link.nap(50_000);
        link.read_what_came();
    }
    link.nap(200_000);
    link.hang_up();
}

/// Who holds much memory for a while.
fn hog(link: &mut Link) {
    match link.rng.u32(..4) {
        // A request whose end does not come.
        0 => drop(link.send(&[b"*2\r\n$4\r\nECHO\r\n$9000000\r\n".to_vec(), vec![b'x'; 3_000_000]].concat())),
        1 => {
            let mut bytes = encode(&["MULTI"]);
            (0..500).for_each(|_| bytes.extend(encode(&["SETEX", "junk:queued", "1", &"x".repeat(2_000)])));
            link.send(&bytes);
        }
        2 => {
            let large = "x".repeat(500_000);
            link.ask(vec!["SET", "junk:large", &large, "PX", "100"]);
            let mut bytes = Vec::new();
            (0..20).for_each(|_| bytes.extend(encode(&["GET", "junk:large"])));
            link.send(&bytes);
        }
        _ => {
            let names: Vec<_> = (0..2_000).map(|nth| format!("watched:{nth}")).collect();
            link.ask([vec!["WATCH".to_owned()], names].concat());
        }
    }
    link.nap(100_000);
    link.hang_up();
}

/// Keys that die, some into the streams of policies, some before a ceiling.
fn die(link: &mut Link) {
    let nth = link.rng.u32(..500);
    let millis = link.rng.u32(1..100);
    let large = "x".repeat(link.rng.usize(1..20_000));
    let request = match link.rng.u32(..7) {
        0 => vec!["SET".to_owned(), format!("junk:{nth}"), large, "PX".to_owned(), millis.to_string()],
        1 => vec!["SETEX".to_owned(), format!("volatile:{nth}"), "100".to_owned(), large],
        2 => vec!["SET".to_owned(), format!("junk:{nth}"), "x".to_owned()],
        3 => vec!["GET".to_owned(), format!("junk:{nth}")],
        4 => vec!["PEXPIRE".to_owned(), format!("volatile:{nth}"), millis.to_string()],
        5 => vec!["HSETEX", &format!("junk:hash:{nth}"), "PX", "20", "FIELDS", "1", "a", "b"]
            .into_iter()
            .map(str::to_owned)
            .collect(),
        _ => vec!["DEL".to_owned(), format!("volatile:{nth}")],
    };
    let database = link.rng.u32(..=EMPTIED_DATABASE).to_string();
    link.ask_all(&[vec!["SELECT".to_owned(), database], request], Duration::ZERO);
    link.nap(2_000);
}

/// Ends a script, until there is none.
pub fn end_scripts(client: &mut Client) -> std::result::Result<(), String> {
    for line in ["SCRIPT KILL", "FUNCTION KILL"] {
        client.try_send_raw(&encode(&words(line))).map_err(|error| error.to_string())?;
        match client.try_read().map_err(|error| error.to_string())? {
            Value::Error(text) if text.starts_with("NOTBUSY") => {}
            other => return Err(format!("{other:?}")),
        }
    }
    Ok(())
}

/// Ends every script, every pause and every wait there is.
pub fn let_go(client: &mut Client, round: &Round) -> Result<()> {
    let mut ask = |line: &str| -> Result<Value> {
        client.try_send_raw(&encode(&words(line)))?;
        let reply = client.try_read();
        round.tell(format!("at the end {line}: {reply:?}"));
        reply
    };
    for line in ["CLIENT UNPAUSE", "SCRIPT KILL", "FUNCTION KILL"] {
        ask(line)?;
    }
    let list = ask("CLIENT LIST")?;
    for (id, _) in ids(&list).into_iter().filter(|(_, waits)| *waits) {
        ask(&format!("CLIENT UNBLOCK {id}"))?;
    }
    Ok(())
}
