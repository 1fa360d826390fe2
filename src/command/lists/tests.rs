//! Lists of all forms against deques.

use crate::command::trial::{Trial, array};
use crate::config::Limits;
use std::collections::{BTreeMap, VecDeque};

type Model = BTreeMap<Vec<u8>, VecDeque<Vec<u8>>>;

const KEYS: [&[u8]; 3] = [b"a", b"b", b"c"];

fn random_text(rng: &mut fastrand::Rng) -> Vec<u8> {
    match rng.u8(..10) {
        0..7 => rng.u8(..4).to_string().into_bytes(),
        7..9 => vec![b'x'; rng.usize(..100)],
        _ => vec![b'y'; rng.usize(..5000)],
    }
}

fn int(n: usize) -> Vec<u8> {
    format!(":{n}\r\n").into_bytes()
}

fn push(list: &mut VecDeque<Vec<u8>>, front: bool, text: Vec<u8>) {
    if front { list.push_front(text) } else { list.push_back(text) }
}

fn pop(list: &mut VecDeque<Vec<u8>>, front: bool) -> Option<Vec<u8>> {
    if front { list.pop_front() } else { list.pop_back() }
}

/// Runs a random command on both; its name.
fn step(trial: &mut Trial, model: &mut Model, rng: &mut fastrand::Rng) -> &'static str {
    let (key, other) = (KEYS[rng.usize(..3)], KEYS[rng.usize(..3)]);
    let (text, front) = (random_text(rng), rng.bool());
    let mut list = model.remove(key).unwrap_or_default();
    let len = list.len();
    let index = rng.usize(..len + 2);
    let index_text = if rng.bool() { index.to_string() } else { (index as i64 - len as i64).to_string() };
    // Counted from the end it may be past it.
    let at = if index_text.starts_with('-') || index_text == index.to_string() { index } else { index - len };
    let (reply, expected, name) = match rng.u8(..12) {
        0..4 => {
            let texts: Vec<Vec<u8>> = (0..rng.usize(..4)).map(|_| random_text(rng)).chain([text]).collect();
            texts.iter().for_each(|text| push(&mut list, front, text.clone()));
            let name: &[u8] = if front { b"lpush" } else { b"rpush" };
            let args: Vec<&[u8]> = [name, key].into_iter().chain(texts.iter().map(Vec::as_slice)).collect();
            (trial.run(&args), int(list.len()), "push")
        }
        4 | 5 => {
            let popped: Vec<Vec<u8>> = (0..rng.usize(1..5)).map_while(|_| pop(&mut list, front)).collect();
            let (name, count): (&[u8], _) = (if front { b"lpop" } else { b"rpop" }, popped.len().max(1).to_string());
            let expected = if len == 0 { b"*-1\r\n".to_vec() } else { array(popped.iter()) };
            (trial.run(&[name, key, count.as_bytes()]), expected, "pop")
        }
        6 => {
            let there = (at < len).then(|| list[at] = text.clone()).is_some();
            let error = if len == 0 { "ERR no such key" } else { "ERR index out of range" };
            let expected = if there { b"+OK\r\n".to_vec() } else { error.as_bytes().to_vec() };
            (trial.run(&[b"lset", key, index_text.as_bytes(), &text]), expected, "lset")
        }
        7 => {
            let pivot = random_text(rng);
            let place = list.iter().position(|found| *found == pivot);
            if let Some(place) = place {
                list.insert(place + usize::from(!front), text.clone());
            }
            let expected =
                place.map_or(if len == 0 { b":0\r\n".to_vec() } else { b":-1\r\n".to_vec() }, |_| int(len + 1));
            let side: &[u8] = if front { b"before" } else { b"after" };
            (trial.run(&[b"linsert", key, side, &pivot, &text]), expected, "linsert")
        }
        8 => {
            let max = rng.usize(..4);
            let mut found: Vec<usize> = (0..len).filter(|index| list[*index] == text).collect();
            if !front && max > 0 {
                found.reverse();
            }
            found.truncate(if max == 0 { usize::MAX } else { max });
            found.sort_unstable();
            found.iter().rev().for_each(|index| drop(list.remove(*index)));
            let count = if front { max.to_string() } else { format!("-{max}") };
            let count = if max == 0 { "0".to_string() } else { count };
            (trial.run(&[b"lrem", key, count.as_bytes(), &text]), int(found.len()), "lrem")
        }
        9 => {
            let (start, back) = (rng.usize(..4), rng.usize(1..4));
            list.truncate(len.saturating_sub(back - 1));
            drop(list.drain(..start.min(list.len())));
            let stop = format!("-{back}");
            (trial.run(&[b"ltrim", key, start.to_string().as_bytes(), stop.as_bytes()]), b"+OK\r\n".to_vec(), "ltrim")
        }
        10 => {
            let to_front = rng.bool();
            let moved = pop(&mut list, front);
            if let Some(text) = moved.clone() {
                let target = if key == other { &mut list } else { model.entry(other.to_vec()).or_default() };
                push(target, to_front, text);
            }
            let word = |front: bool| if front { &b"left"[..] } else { b"right" };
            let expected = moved.map_or(b"$-1\r\n".to_vec(), |text| array([text].iter())[4..].to_vec());
            (trial.run(&[b"lmove", key, other, word(front), word(to_front)]), expected, "lmove")
        }
        _ => {
            let expected = list.get(at).map_or(b"$-1\r\n".to_vec(), |text| array([text].iter())[4..].to_vec());
            (trial.run(&[b"lindex", key, index_text.as_bytes()]), expected, "lindex")
        }
    };
    assert!(reply == expected, "{name}: {:?}", String::from_utf8_lossy(&reply[..reply.len().min(200)]));
    if !list.is_empty() {
        model.insert(key.to_vec(), list);
    }
    name
}

#[test]
fn commands_do_what_they_do_to_deques() {
    for seed in 0..60 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let list_size = [-1, -2, 1, 4, 20][seed as usize % 5];
        let list_compress_depth = seed as u32 % 4;
        let limits = Limits { list_size, list_compress_depth, string_bytes: 1 << 20, ..Limits::default() };
        let mut trial = Trial::new(seed, limits);
        let mut model = Model::new();
        for _ in 0..600 {
            let name = step(&mut trial, &mut model, &mut rng);
            for key in KEYS {
                let list = model.get(key).cloned().unwrap_or_default();
                assert!(trial.run(&[b"lrange", key, b"0", b"-1"]) == array(list.iter()), "{name}, seed {seed}");
                assert_eq!(trial.run(&[b"exists", key]), int(usize::from(!list.is_empty())), "{name}");
            }
            trial.keyspace.check();
        }
        KEYS.into_iter().for_each(|key| drop(trial.run(&[b"del", key])));
        while trial.keyspace.collect_garbage(3) {}
        trial.keyspace.check();
    }
}

fn encoding(trial: &mut Trial) -> String {
    let live = trial.keyspace.peek(0, trial.keyspace.hasher().key(b"k"), crate::clock::Now::from_ms(1_000_000));
    match live {
        Some(crate::keyspace::Stored::Packed(..)) => "listpack".into(),
        Some(_) => "quicklist".into(),
        None => "none".into(),
    }
}

/// The limits of Redis 7.2: a list is packed again when it is half as large as it may be.
#[test]
fn a_list_changes_its_form_where_redis_does() {
    let mut trial = Trial::new(1, Limits { list_size: 8, string_bytes: 1 << 20, ..Limits::default() });
    trial.say("rpush k 1 2 3 4 5 6 7 8");
    assert_eq!(encoding(&mut trial), "listpack");
    trial.say("rpush k 9");
    assert_eq!(encoding(&mut trial), "quicklist");
    trial.say("lpop k 4");
    assert_eq!(encoding(&mut trial), "quicklist", "5 of 8 elements are more than half");
    trial.say("ltrim k 0 -2");
    assert_eq!(encoding(&mut trial), "listpack");
    trial.say("del k");
    trial.limits.list_size = -1;
    // 4096 bytes with the 7 of an empty listpack.
    let text = vec![b'x'; 4096 - 7];
    trial.run(&[b"lpush", b"k", &text]);
    assert_eq!(encoding(&mut trial), "listpack");
    trial.say("lpop k");
    trial.run(&[b"lpush", b"k", &[&text[..], b"x"].concat()]);
    assert_eq!(encoding(&mut trial), "quicklist");
    trial.say("lset k 0 small");
    assert_eq!(encoding(&mut trial), "listpack");
}

#[test]
fn a_search_passes_over_matches() {
    let mut trial = Trial::new(1, Limits { list_size: -2, string_bytes: 1 << 20, ..Limits::default() });
    trial.say("rpush k a b c 1 2 3 c c");
    assert_eq!(trial.say("lpos k c"), ":2\r\n");
    assert_eq!(trial.say("lpos k c rank 2"), ":6\r\n");
    assert_eq!(trial.say("lpos k c rank -1"), ":7\r\n");
    assert_eq!(trial.say("lpos k c count 2"), "*2\r\n:2\r\n:6\r\n");
    assert_eq!(trial.say("lpos k c rank -1 count 0"), "*3\r\n:7\r\n:6\r\n:2\r\n");
    assert_eq!(trial.say("lpos k c count 0 maxlen 7"), "*2\r\n:2\r\n:6\r\n");
    assert_eq!(trial.say("lpos k c rank -1 maxlen 1"), ":7\r\n");
    assert_eq!(trial.say("lpos k d count 0"), "*0\r\n");
    assert_eq!(trial.say("lpos k d"), "$-1\r\n");
}

#[test]
fn the_first_list_with_elements_is_popped() {
    let mut trial = Trial::new(1, Limits { list_size: -2, string_bytes: 1 << 20, ..Limits::default() });
    trial.say("rpush b 1 2 3");
    assert_eq!(trial.say("lmpop 2 a b right count 2"), "*2\r\n$1\r\nb\r\n*2\r\n$1\r\n3\r\n$1\r\n2\r\n");
    assert_eq!(trial.say("blmpop 0 2 a b left"), "*2\r\n$1\r\nb\r\n*1\r\n$1\r\n1\r\n");
    assert_eq!(trial.say("lmpop 2 a b left"), "*-1\r\n");
    assert_eq!(trial.say("blpop a b 0"), "*-1\r\n");
    assert_eq!(trial.say("blmove a b left right 0"), "$-1\r\n");
    assert_eq!(trial.say("lmpop 1 a left count 0"), "ERR count should be greater than 0");
    assert_eq!(trial.say("lmpop 1 a left count 1 count 1"), "ERR syntax error");
    assert_eq!(trial.say("lmpop 9223372036854775807 a left"), "ERR syntax error");
}
