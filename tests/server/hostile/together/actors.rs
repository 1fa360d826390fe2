//! Who pushes, pops and moves elements.

use std::time::Duration;

use super::link::Link;
use super::{COUNTED_DATABASES, Odd, is_done};

pub type Act = fn(&mut Link);

pub const LISTS: &[&str] = &["list:0", "list:1", "list:2", "list:3", "{tag}list:0", "{tag}list:1"];
pub const SORTED_SETS: &[&str] = &["zset:0", "zset:1", "{tag}zset:0"];
pub const STREAMS: &[&str] = &["stream:0", "stream:1"];

pub const ALL: &[(&str, Act)] = &[
    ("pusher", push),
    ("pusher", push),
    ("pusher", push),
    ("popper", pop),
    ("popper", pop),
    ("popper", wait),
    ("popper", wait),
    ("popper", wait),
    ("popper", wait),
    ("mover", make_move),
    ("mover", make_move),
];

/// The functions of a round.
pub const LIBRARY: &str = "#!lua name=together
redis.register_function('put', function(keys, args) return redis.call('RPUSH', keys[1], args[1]) end)
redis.register_function('take', function(keys, args) return redis.call('LPOP', keys[1]) end)
redis.register_function('endless', function(keys, args) redis.call('TYPE', keys[1]) while true do end end)";

const PUT: &str = "return redis.call('RPUSH', KEYS[1], ARGV[1])";
const PUT_TWO: &str = "return {redis.call('RPUSH', KEYS[1], ARGV[1]), redis.call('ZADD', KEYS[2], 1, ARGV[2])}";
const PUT_LATE: &str = "for i = 1, 2e5 do end return redis.call('LPUSH', KEYS[1], ARGV[1])";
const PUT_AND_TELL: &str =
    "redis.pcall('GET', KEYS[1]) redis.call('PUBLISH', 'news', ARGV[1]) return redis.call('RPUSH', KEYS[1], ARGV[1])";
const PUT_UNDECLARED: &str = "return redis.call('RPUSH', ARGV[2], ARGV[1])";
const PUT_AND_STRAY: &str = "return {redis.call('RPUSH', KEYS[1], ARGV[1]), redis.call('ZADD', ARGV[3], 1, ARGV[2])}";
const TAKE: &str = "return redis.call('RPOP', KEYS[1])";
const TAKE_TWO: &str = "return {redis.call('LPOP', KEYS[1]), redis.call('ZPOPMIN', KEYS[2])}";
const TAKE_UNDECLARED: &str = "return redis.call('LPOP', ARGV[1])";
const MOVE: &str = "return redis.call('LMOVE', KEYS[1], KEYS[2], 'LEFT', 'RIGHT')";
const MOVE_UNDECLARED: &str = "return redis.call('RPOPLPUSH', ARGV[1], ARGV[2])";

fn line(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// A script with its keys and arguments, which have no blanks.
fn script(source: &str, rest: &str) -> Vec<String> {
    [line("EVAL"), vec![source.to_owned()], line(rest)].concat()
}

fn select(link: &mut Link) -> Vec<String> {
    line(&format!("SELECT {}", link.rng.u32(..COUNTED_DATABASES)))
}

fn push(link: &mut Link) {
    let first = select(link);
    let (list, other, set, stream) = (link.pick(LISTS), link.pick(LISTS), link.pick(SORTED_SETS), link.pick(STREAMS));
    let (a, b, c) = (link.element(), link.element(), link.element());
    let score = link.rng.i32(-3..3);
    // Scripts with undeclared keys, in transactions, or that publish hold everything where there are several shards.
    let holds = link.round.has_holding;
    let (requests, elements) = match link.rng.u32(..16) {
        0 => (vec![line(&format!("LPUSH {list} {a} {b} {c}"))], vec![a, b, c]),
        1 => (vec![line(&format!("RPUSHX {list} {a}"))], vec![a]),
        2 | 3 => (vec![line(&format!("ZADD {set} {score} {a}"))], vec![a]),
        4 | 5 => (vec![line(&format!("XADD {stream} * field {a}"))], vec![a]),
        6 => (
            vec![
                line("MULTI"),
                line(&format!("RPUSH {list} {a}")),
                line(&format!("ZADD {set} {score} {b}")),
                line(&format!("XADD {stream} * field {c}")),
                line("EXEC"),
            ],
            vec![a, b, c],
        ),
        7 if holds => (
            vec![
                line(&format!("WATCH {other} {list}")),
                line("MULTI"),
                line(&format!("LPUSH {list} {a}")),
                script(PUT, &format!("1 {other} {b}")),
                line("EXEC"),
            ],
            vec![a, b],
        ),
        8 => (vec![script(PUT_TWO, &format!("2 {list} {set} {a} {b}"))], vec![a, b]),
        9 if holds => (vec![script(PUT_UNDECLARED, &format!("0 {a} {list}"))], vec![a]),
        10 => (vec![line(&format!("FCALL put 1 {list} {a}"))], vec![a]),
        11 => (vec![script(PUT_LATE, &format!("1 {list} {a}"))], vec![a]),
        12 if holds => (vec![script(PUT_AND_TELL, &format!("1 {list} {a}"))], vec![a]),
        13 if is_done(Odd::StrayingLate) => {
            (vec![script(PUT_AND_STRAY, &format!("1 {list} {a} {b} {set}"))], vec![a, b])
        }
        14 if is_done(Odd::ConfigSetInExec) => {
            let set = line("CONFIG SET slowlog-max-len 100");
            (vec![line("MULTI"), line(&format!("RPUSH {list} {a}")), set, line("EXEC")], vec![a])
        }
        _ => (vec![line(&format!("RPUSH {list} {a}"))], vec![a]),
    };
    link.push(&[vec![first], requests].concat(), elements);
    link.nap(2_000);
}

/// What answers at once.
fn pop(link: &mut Link) {
    let (first, holds) = (select(link), link.round.has_holding);
    let (list, other, set) = (link.pick(LISTS), link.pick(LISTS), link.pick(SORTED_SETS));
    let count = link.rng.usize(1..4);
    let (requests, most) = match link.rng.u32(..10) {
        0 => (vec![line(&format!("LPOP {list} {count}"))], count),
        1 => (vec![line(&format!("LMPOP 2 {list} {other} RIGHT COUNT {count}"))], count),
        2 => (vec![line(&format!("ZPOPMIN {set} {count}"))], count),
        3 => (vec![line(&format!("ZMPOP 1 {set} MAX COUNT {count}"))], count),
        4 => (vec![script(TAKE, &format!("1 {list}"))], 1),
        5 => (vec![script(TAKE_TWO, &format!("2 {list} {set}"))], 2),
        6 if holds => (vec![script(TAKE_UNDECLARED, &format!("0 {list}"))], 1),
        7 => (vec![line(&format!("FCALL take 1 {list}"))], 1),
        8 => (
            vec![
                line("MULTI"),
                line(&format!("LPOP {list}")),
                line(&format!("BLPOP {other} 0")),
                line(&format!("ZPOPMAX {set}")),
                line("EXEC"),
            ],
            3,
        ),
        _ => (vec![line(&format!("RPOP {list}"))], 1),
    };
    link.pop(&[vec![first], requests].concat(), most, Duration::ZERO);
    link.nap(4_000);
}

/// What waits until something is there.
fn wait(link: &mut Link) {
    let first = select(link);
    let (list, other, set) = (link.pick(LISTS), link.pick(LISTS), link.pick(SORTED_SETS));
    let (stream, another) = (link.pick(STREAMS), link.pick(STREAMS));
    let count = link.rng.usize(1..4);
    // Nobody but those who end clients, or the end of the round, ends what waits without limit.
    let millis = if link.one_in(8) { 0 } else { link.rng.u32(1..300) };
    let patience = Duration::from_millis(if millis == 0 { 60_000 } else { millis.into() });
    let seconds = format!("{}.{:03}", millis / 1_000, millis % 1_000);
    let (request, most) = match link.rng.u32(..9) {
        0 | 1 => (line(&format!("BLPOP {list} {other} {seconds}")), 1),
        2 => (line(&format!("BRPOP {list} {seconds}")), 1),
        3 => (line(&format!("BLMPOP {seconds} 2 {list} {other} LEFT COUNT {count}")), count),
        4 => (line(&format!("BZPOPMIN {set} {seconds}")), 1),
        5 => (line(&format!("BZPOPMAX {set} {seconds}")), 1),
        6 => (line(&format!("BZMPOP {seconds} 1 {set} MIN COUNT {count}")), count),
        _ => {
            let (name, streams) = (link.name.clone(), if stream == another { 1 } else { 2 });
            let names = if streams == 1 { format!("{stream} >") } else { format!("{stream} {another} > >") };
            let text = format!("XREADGROUP GROUP readers {name} COUNT {count} BLOCK {millis} STREAMS {names}");
            (line(&text), count * streams)
        }
    };
    let mut requests = vec![first, request];
    if link.one_in(6) {
        // Input that nobody looks at meanwhile counts for those who end clients that hold much.
        requests.push(vec!["ECHO".to_owned(), "x".repeat(400_000)]);
    }
    if link.round.has_hang_ups && link.one_in(4) {
        link.send_all(&requests);
        link.nap(20_000);
        link.hang_up();
        return link.round.ledger.pop_unread(most);
    }
    link.pop(&requests, most, patience);
}

/// Elements go elsewhere, and are none the less.
fn make_move(link: &mut Link) {
    let (first, holds) = (select(link), link.round.has_holding);
    let (from, to) = (link.pick(LISTS), link.pick(LISTS));
    let seconds = format!("0.{:03}", link.rng.u32(1..200));
    let request = match link.rng.u32(..9) {
        0 => line(&format!("LMOVE {from} {to} LEFT LEFT")),
        1 => line(&format!("RPOPLPUSH {from} {to}")),
        2 | 3 => line(&format!("BLMOVE {from} {to} RIGHT LEFT {seconds}")),
        4 => line(&format!("BRPOPLPUSH {from} {to} {seconds}")),
        5 => line(&format!("RENAMENX {from} {to}")),
        6 => line(&format!("MOVE {from} {}", link.rng.u32(..COUNTED_DATABASES))),
        7 => script(MOVE, &format!("2 {from} {to}")),
        8 if holds => script(MOVE_UNDECLARED, &format!("0 {from} {to}")),
        _ => line(&format!("LMOVE {from} {to} RIGHT LEFT")),
    };
    if link.one_in(10) {
        link.send_all(&[first, request]);
        return link.hang_up();
    }
    link.ask_all(&[first, request], Duration::from_millis(200));
    link.nap(5_000);
}
