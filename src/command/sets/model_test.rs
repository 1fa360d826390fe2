//! Sets whose members and keys die, against a map of maps.

use crate::command::elements_test::{self, Collection, Family, Step, World};
use crate::command::trial::{self, int};
use crate::config::{Limits, NotifyFlags, PackLimits};
use std::collections::BTreeSet;

struct Sets;

/// The bulk strings of a reply, each of which has to come once.
fn texts(reply: &str) -> BTreeSet<String> {
    let all = trial::texts(reply);
    let different = BTreeSet::from_iter(all.iter().cloned());
    assert_eq!(different.len(), all.len(), "{reply}");
    different
}

impl Family for Sets {
    type Value = ();
    const LETTER: &'static str = "s";
    const WORD: &'static str = "members";
    const ANY_ORDER: bool = true;
    const COUNT: &'static str = "scard";
    const DELETE: &'static str = "srem";
    const ADDED: &'static str = "sadd";
    const CLASS: NotifyFlags = NotifyFlags::SET;

    fn limits(seed: u64) -> Limits {
        let [ints, entries] = [[512, 128], [5, 8], [30, 4], [0, 0]][seed as usize % 4];
        Limits { intset_entries: ints, set: PackLimits { entries, value_bytes: 10 }, ..Limits::default() }
    }

    fn plain() {}

    fn adding(key: &str, names: &[String]) -> String {
        format!("sadd {key} {}", names.join(" "))
    }

    fn step(world: &mut World<Sets>, step: &Step) {
        let (key, mut set, line) = (step.key, world.of(step.key), step.line());
        match world.rng.u8(..13) {
            0..6 => {
                let new = step.names.len() - set.known(&step.names);
                world.expect(&format!("sadd {key} {line}"), &int(new as i64));
                for name in &step.names {
                    set.elements.entry(name.clone()).or_default();
                }
            }
            6 => {
                world.expect(&format!("srem {key} {line}"), &int(set.known(&step.names) as i64));
                set.remove(&step.names);
            }
            7..10 => add_and_expire(world, step, &mut set),
            10 => return move_one(world, step),
            11 => {
                let count = world.rng.usize(..4);
                let popped = texts(&world.say(&format!("spop {key} {count}")));
                assert_eq!(popped.len(), count.min(set.elements.len()));
                assert!(popped.iter().all(|name| set.elements.remove(name).is_some()));
            }
            _ => {
                let [left, right] = [step.other, step.third].map(|key| world.of(key).names());
                let (name, result) = match world.rng.u8(..3) {
                    0 => ("sinterstore", &left & &right),
                    1 => ("sunionstore", &left | &right),
                    _ => ("sdiffstore", &left - &right),
                };
                let line = format!("{name} {key} {} {}", step.other, step.third);
                world.expect(&line, &int(result.len() as i64));
                set = Collection::of(result.into_iter().map(|name| (name, ())));
            }
        }
        world.put(key, set);
    }

    fn compare(world: &mut World<Sets>, key: &str, expected: &Collection<()>) {
        assert_eq!(texts(&world.say(&format!("smembers {key}"))), expected.names());
    }

    fn compare_closely(world: &mut World<Sets>, key: &str, expected: &Collection<()>) {
        let names = expected.names();
        let drawn = texts(&world.say(&format!("srandmember {key} 5")));
        assert!(drawn.len() == names.len().min(5) && drawn.is_subset(&names));
        assert_eq!(texts(&world.say(&format!("sort {key} alpha"))), names);
        let a = world.of("a").names();
        for (command, count) in [
            ("sintercard", (&a & &names).len()),
            ("sunioncard", (&a | &names).len()),
            ("sdiffcard", (&a - &names).len()),
        ] {
            world.expect(&format!("{command} 2 a {key}"), &int(count as i64));
        }
        assert_eq!(texts(&world.say(&format!("zunion 1 {key}"))), names);
        let pages = world.trial.pages("sscan", key, "count 50");
        assert_eq!(BTreeSet::from_iter(pages.iter().flat_map(|page| texts(page))), names);
        let Some(name) = names.iter().nth(world.rng.usize(..names.len().max(1))) else { return };
        world.expect(&format!("sismember {key} {name}"), &int(1));
        world.expect(&format!("smismember {key} none {name}"), "*2\r\n:0\r\n:1\r\n");
    }
}

fn add_and_expire(world: &mut World<Sets>, step: &Step, set: &mut Collection<()>) {
    let ttl_ms = world.draw_ttl_ms();
    let (options, deadline_ms) = match world.rng.u8(..4) {
        0 => (String::new(), None),
        1 => ("keepttl ".to_owned(), None),
        _ => (format!("px {ttl_ms} "), Some(world.now_ms() + ttl_ms)),
    };
    let (known, count) = (set.known(&step.names), step.names.len());
    let (condition, holds) = [("", true), ("mnx ", known == 0), ("mxx ", known == count)][world.rng.usize(..3)];
    let line = format!("saddex {} {condition}{options}members {count} {}", step.key, step.line());
    world.expect(&line, &int(holds.into()));
    for name in step.names.iter().filter(|_| holds) {
        let (_, deadline) = set.elements.entry(name.clone()).or_default();
        if !options.starts_with("keepttl") {
            *deadline = deadline_ms;
        }
    }
}

/// A member takes its deadline along, unless it is there already.
fn move_one(world: &mut World<Sets>, step: &Step) {
    let (name, mut set) = (&step.names[0], world.of(step.key));
    let moves = set.elements.get(name).copied();
    let line = format!("smove {} {} {name}", step.key, step.other);
    world.expect(&line, &int(moves.is_some().into()));
    if let Some(member) = moves.filter(|_| step.key != step.other) {
        set.elements.remove(name);
        world.put(step.key, set);
        let mut other = world.of(step.other);
        other.elements.entry(name.clone()).or_insert(member);
        world.put(step.other, other);
    }
}

#[test]
fn members_and_keys_die_when_they_should() {
    elements_test::elements_and_keys_die_when_they_should::<Sets>();
}

#[test]
fn a_set_without_deadlines_is_not_looked_at() {
    elements_test::what_has_no_deadlines_is_not_looked_at::<Sets>();
    let mut world = World::<Sets>::new(0);
    world.say("sadd packed a b");
    world.say("sadd ints 1 2");
    // What gives no deadline changes no form.
    world.say("saddex packed keepttl members 1 c");
    world.say("saddex ints members 1 3");
    world.say("sexpire ints 10 xx members 1 1");
    assert_eq!(["packed", "ints"].map(|key| world.is_packed(key)), [true, true]);
    world.say("sexpire packed 10 members 1 a");
    world.say("sexpire ints 10 members 1 1");
    assert_eq!(["packed", "ints"].map(|key| world.is_packed(key)), [false, false]);
}

#[test]
fn the_events_of_members() {
    elements_test::deaths_are_told::<Sets>();
    let mut world = World::<Sets>::new(0);
    world.say("saddex s ex 100 members 2 a b");
    assert_eq!(world.events(), ["sadd", "sexpire"]);
    world.say("saddex s members 2 a b");
    assert_eq!(world.events(), ["sadd"]);
    world.expect("saddex t exat 1 members 1 b", ":1\r\n");
    world.expect("exists t", ":0\r\n");
    assert!(world.events().is_empty(), "what is dead already is never stored");
}

#[test]
fn many_members_of_one_deadline_go_in_slices() {
    elements_test::those_of_one_deadline_go_in_slices::<Sets>(
        1_000_000,
        &[
            ("smembers k", "*1\r\n$5\r\nlives\r\n"),
            ("srandmember k", "$5\r\nlives\r\n"),
            ("srandmember k -2", "*2\r\n$5\r\nlives\r\n$5\r\nlives\r\n"),
            ("sismember k 999999", ":0\r\n"),
        ],
    );
}

#[test]
fn wrong_arguments_are_told_as_redis_tells_them() {
    elements_test::members_are_asked_for_alike::<Sets>();
    let mut world = World::<Sets>::new(0);
    world.say("set string 1");
    world.say("sadd s a");
    for (line, expected) in [
        ("saddex string ex x members 1 a", "ERR value is not an integer or out of range"),
        ("saddex string ex 1 members 1 a", "WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("saddex s mnx mxx members 1 a", "ERR Only one of MXX or MNX arguments can be specified"),
        (
            "saddex s ex 1 keepttl members 1 a",
            "ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
        ),
        ("saddex s ex 1 members", "ERR wrong number of arguments for 'saddex' command"),
        ("saddex s members 1 a ex", "ERR missing expire time"),
        ("saddex s members 0 a", "ERR invalid number of members"),
        ("saddex s members 3 a b", "ERR wrong number of arguments"),
        ("saddex s 10 a b", "ERR unknown argument: 10"),
        ("saddex s ex 1 keepttl", "ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified"),
        ("smembers s", "*1\r\n$1\r\na\r\n"),
        // Options behind the members.
        ("saddex s members 3 b b a px 100000 mnx", ":0\r\n"),
        ("saddex s members 2 b b px 100000 mnx", ":1\r\n"),
        ("sttl s members 3 a b c", "*3\r\n:-1\r\n:100\r\n:-2\r\n"),
    ] {
        world.expect(line, expected);
    }
}
