//! Hashes whose fields and keys die, against a map of maps.

use crate::command::elements_test::{self, Collection, Family, Step, World};
use crate::command::trial::{int, texts};
use crate::config::{Limits, NotifyFlags, PackLimits};
use std::collections::{BTreeMap, BTreeSet};

struct Hashes;

type Hash = Collection<String>;

fn text(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// Values, those of fields that are not there being nothing.
fn values(values: &[Option<String>]) -> String {
    let all: String = values.iter().map(|value| value.as_ref().map_or("$-1\r\n".into(), |value| text(value))).collect();
    format!("*{}\r\n{all}", values.len())
}

/// The pairs of a reply.
fn pairs(texts: &[String]) -> BTreeMap<String, String> {
    let all = texts.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect::<BTreeMap<_, _>>();
    assert_eq!(all.len() * 2, texts.len(), "a field comes twice: {texts:?}");
    all
}

impl Family for Hashes {
    type Value = String;
    const LETTER: &'static str = "h";
    const WORD: &'static str = "fields";
    const ANY_ORDER: bool = false;
    const COUNT: &'static str = "hlen";
    const DELETE: &'static str = "hdel";
    const ADDED: &'static str = "hset";
    const CLASS: NotifyFlags = NotifyFlags::HASH;

    fn limits(seed: u64) -> Limits {
        let entries = [128, 8, 4, 0][seed as usize % 4];
        Limits { hash: PackLimits { entries, value_bytes: 12 }, ..Limits::default() }
    }

    fn plain() -> String {
        "7".to_owned()
    }

    fn adding(key: &str, names: &[String]) -> String {
        let pairs: Vec<String> = names.iter().map(|name| format!("{name} 7")).collect();
        format!("hset {key} {}", pairs.join(" "))
    }

    fn step(world: &mut World<Hashes>, step: &Step) {
        let (key, mut hash, line) = (step.key, world.of(step.key), step.line());
        let (known, count) = (hash.known(&step.names), step.names.len());
        match world.rng.u8(..13) {
            0..4 => {
                let value = draw_value(world);
                let pairs: Vec<String> = step.names.iter().map(|name| format!("{name} {value}")).collect();
                world.expect(&format!("hset {key} {}", pairs.join(" ")), &int((count - known) as i64));
                hash.elements.extend(step.names.iter().map(|name| (name.clone(), (value.clone(), None))));
            }
            4 => {
                world.expect(&format!("hdel {key} {line}"), &int(known as i64));
                hash.remove(&step.names);
            }
            5 => {
                let (name, value) = (&step.names[0], draw_value(world));
                world.expect(&format!("hsetnx {key} {name} {value}"), &int((!hash.has(name)).into()));
                hash.elements.entry(name.clone()).or_insert((value, None));
            }
            6 | 7 => increment(world, step, &mut hash),
            8 | 9 => set_and_expire(world, step, &mut hash),
            10 | 11 => get_and_expire(world, step, &mut hash),
            _ => {
                let there = of_each(&hash, step);
                world.expect(&format!("hgetdel {key} fields {count} {line}"), &values(&there));
                hash.remove(&step.names);
            }
        }
        world.put(key, hash);
    }

    fn compare(world: &mut World<Hashes>, key: &str, expected: &Hash) {
        let expected =
            BTreeMap::from_iter(expected.elements.iter().map(|(name, (value, _))| (name.clone(), value.clone())));
        assert_eq!(pairs(&texts(&world.say(&format!("hgetall {key}")))), expected);
    }

    fn compare_closely(world: &mut World<Hashes>, key: &str, expected: &Hash) {
        let names = expected.names();
        assert_eq!(BTreeSet::from_iter(texts(&world.say(&format!("hkeys {key}")))), names);
        assert_eq!(texts(&world.say(&format!("hvals {key}"))).len(), names.len());
        let drawn = BTreeSet::from_iter(texts(&world.say(&format!("hrandfield {key} 5"))));
        assert!(drawn.len() == names.len().min(5) && drawn.is_subset(&names));
        let drawn = BTreeSet::from_iter(texts(&world.say(&format!("hrandfield {key} -5"))));
        assert!(drawn.is_empty() == names.is_empty() && drawn.is_subset(&names));
        let pages = world.trial.pages("hscan", key, "count 50 novalues");
        assert_eq!(BTreeSet::from_iter(pages.iter().flat_map(|page| texts(page))), names);
        let nth = world.rng.usize(..names.len().max(1));
        let Some((name, (value, _))) = expected.elements.iter().nth(nth) else { return };
        world.expect(&format!("hget {key} {name}"), &text(value));
        world.expect(&format!("hmget {key} none {name}"), &values(&[None, Some(value.clone())]));
        world.expect(&format!("hstrlen {key} {name}"), &int(value.len() as i64));
        world.expect(&format!("hexists {key} {name}"), &int(1));
    }
}

/// A number or not, short or too long to be packed.
fn draw_value(world: &mut World<Hashes>) -> String {
    ["7", "short", "a-value-that-is-not-packed"][world.rng.usize(..3)].to_owned()
}

/// What each field of a step has.
fn of_each(hash: &Hash, step: &Step) -> Vec<Option<String>> {
    step.names.iter().map(|name| hash.elements.get(name).map(|(value, _)| value.clone())).collect()
}

/// A field that is there keeps its deadline.
fn increment(world: &mut World<Hashes>, step: &Step, hash: &mut Hash) {
    let (key, name, by) = (step.key, &step.names[0], world.rng.i64(-3..4));
    match hash.elements.get(name).map_or(Ok(0), |(value, _)| value.parse::<i64>()) {
        Ok(old) => {
            world.expect(&format!("hincrby {key} {name} {by}"), &int(old + by));
            hash.elements.entry(name.clone()).or_default().0 = (old + by).to_string();
        }
        Err(_) => world.expect(&format!("hincrby {key} {name} {by}"), "ERR hash value is not an integer"),
    }
}

fn set_and_expire(world: &mut World<Hashes>, step: &Step, hash: &mut Hash) {
    let (key, count, known) = (step.key, step.names.len(), hash.known(&step.names));
    let (ttl_ms, value) = (world.draw_ttl_ms(), draw_value(world));
    let (expiry, deadline_ms) = match world.rng.u8(..4) {
        0 => (String::new(), None),
        1 => ("keepttl ".to_owned(), None),
        _ => (format!("px {ttl_ms} "), Some(world.now_ms() + ttl_ms)),
    };
    let (condition, holds) = [
        ("", true),
        ("", true),
        ("fnx ", known == 0),
        ("fxx ", known == count),
        ("nx ", hash.elements.is_empty()),
        ("xx ", !hash.elements.is_empty()),
    ][world.rng.usize(..6)];
    let pairs: Vec<String> = step.names.iter().map(|name| format!("{name} {value}")).collect();
    let line = format!("hsetex {key} {condition}{expiry}fields {count} {}", pairs.join(" "));
    world.expect(&line, &int(holds.into()));
    for name in step.names.iter().filter(|_| holds) {
        let field = hash.elements.entry(name.clone()).or_default();
        field.0 = value.clone();
        if !expiry.starts_with("keepttl") {
            field.1 = deadline_ms;
        }
    }
}

fn get_and_expire(world: &mut World<Hashes>, step: &Step, hash: &mut Hash) {
    let (ttl_ms, there) = (world.draw_ttl_ms(), of_each(hash, step));
    let (expiry, deadline_ms) = match world.rng.u8(..4) {
        0 => (String::new(), None),
        1 => ("persist ".to_owned(), Some(None)),
        _ => (format!("px {ttl_ms} "), Some(Some(world.now_ms() + ttl_ms))),
    };
    let line = format!("hgetex {} {expiry}fields {} {}", step.key, step.names.len(), step.line());
    world.expect(&line, &values(&there));
    for name in &step.names {
        if let (Some(field), Some(deadline_ms)) = (hash.elements.get_mut(name), deadline_ms) {
            field.1 = deadline_ms;
        }
    }
}

#[test]
fn fields_and_keys_die_when_they_should() {
    elements_test::elements_and_keys_die_when_they_should::<Hashes>();
}

#[test]
fn a_hash_without_deadlines_is_not_looked_at() {
    elements_test::what_has_no_deadlines_is_not_looked_at::<Hashes>();
    let mut world = World::<Hashes>::new(0);
    world.say("hset packed a 1 b 2");
    world.say("hexpire packed 10 fields 1 a");
    assert!(world.is_packed("packed"), "its fields have their deadlines there");
}

#[test]
fn the_events_of_fields() {
    elements_test::deaths_are_told::<Hashes>();
}

/// Where nearly all fields are dead, and not taken out yet, those that live are found all the same, and soon.
#[test]
fn many_fields_of_one_deadline_go_in_slices() {
    elements_test::those_of_one_deadline_go_in_slices::<Hashes>(
        300_000,
        &[
            ("hgetall k", "*2\r\n$5\r\nlives\r\n$1\r\n7\r\n"),
            ("hrandfield k", "$5\r\nlives\r\n"),
            ("hrandfield k 500", "*1\r\n$5\r\nlives\r\n"),
            ("hrandfield k -2", "*2\r\n$5\r\nlives\r\n$5\r\nlives\r\n"),
            ("hget k 299999", "$-1\r\n"),
        ],
    );
}

/// The lag of a hash that is found dead is that of its fields, however far its own deadline is.
#[test]
fn a_dead_hash_is_as_late_as_its_fields() {
    let mut world = World::<Hashes>::new(4);
    world.say("hset key field 1");
    world.say("pexpire key 20000000000000000");
    world.say("hpexpire key 1 fields 1 field");
    world.trial.pass_ms(101);
    world.expect("exists key", ":0\r\n");
    let lag_us = world.trial.keyspace.lag.max_us();
    assert!((99_000..102_000).contains(&lag_us), "{lag_us}");
}

/// Fields may die later than a column can say. Their hashes are looked at when it ends, and each of them goes on to the next
/// end although others are still to be looked at, however few a sweep takes out.
#[test]
fn hashes_whose_fields_are_far_off_do_not_keep_a_sweep_busy() {
    const DAY_MS: u64 = 86_400_000;
    let mut world = World::<Hashes>::new(0);
    for key in ["first", "second", "third", "fourth"] {
        world.add(key, &["a"]);
        world.give(key, 300 * DAY_MS, &["a"]);
    }
    world.add("near", &["a", "b"]);
    world.give("near", 40 * DAY_MS, &["a"]);
    world.give("near", 300 * DAY_MS, &["b"]);
    for _ in 0..3 {
        world.trial.pass_ms(100 * DAY_MS - 1);
        world.trial.sweep(1);
    }
    world.expect("hget first a", "$1\r\n7\r\n");
    world.trial.pass_ms(4);
    world.trial.sweep(1);
    assert_eq!(world.trial.keyspace.len(0), 0);
}
