use super::*;
use crate::keyspace::{Hasher, Touch, Value};
use std::collections::BTreeMap;

const PREFIXES: &[&str] = &["", "a", "a1", "b", "a1:long:prefix"];
/// What a view is asked to show.
const FEW: usize = 5;

struct Fixture {
    keyspace: Keyspace,
    rng: fastrand::Rng,
    now_ms: u64,
    views: Vec<ViewOf>,
}

impl Fixture {
    fn new(seed: u64) -> Fixture {
        Fixture {
            keyspace: Keyspace::new(2, Hasher::new(seed, 1)),
            rng: fastrand::Rng::with_seed(seed),
            now_ms: 1_000_000,
            views: Vec::new(),
        }
    }

    fn now(&self) -> Now {
        Now::from_ms(self.now_ms)
    }

    fn keep(&mut self, db: usize, prefix: &str, aspect: Aspect) {
        let of = ViewOf { db, prefix: prefix.as_bytes().into(), aspect };
        self.keyspace.keep_view(self.views.len() as u64, of.clone());
        self.views.push(of);
    }

    fn keep_all(&mut self, aspects: &[Aspect]) {
        for db in 0..2 {
            for prefix in PREFIXES {
                aspects.iter().for_each(|aspect| self.keep(db, prefix, *aspect));
            }
        }
    }

    fn drop_last(&mut self) {
        self.views.pop();
        self.keyspace.drop_view(self.views.len() as u64);
    }

    fn change(&mut self) {
        let (now, rng, keyspace) = (Now::from_ms(self.now_ms), &mut self.rng, &mut self.keyspace);
        let name = format!("{}{}", PREFIXES[rng.usize(..PREFIXES.len())], rng.u32(..300));
        let (db, hasher) = (rng.usize(..2), keyspace.hasher().clone());
        let key = hasher.key(name.as_bytes());
        let deadline_ms = rng.bool().then(|| now.ms + 1 + rng.u64(..200));
        match rng.u32(..100) {
            0..45 => {
                let value = vec![b'x'; rng.usize(..400)];
                keyspace.insert(db, key, Value::Bytes(&value), deadline_ms, now);
            }
            45..60 => drop(keyspace.remove(db, key, now)),
            60..70 => {
                if let Some(mut edit) = keyspace.edit(db, key, now, Touch::NOTHING) {
                    edit.set_deadline(deadline_ms);
                    edit.set_value(Value::Int(7));
                }
            }
            70..80 => {
                let taken = keyspace.edit(db, key, now, Touch::NOTHING).map(|edit| edit.take());
                let other = hasher.key(b"a1moved");
                taken.into_iter().for_each(|owned| keyspace.insert_owned(1 - db, other, owned, deadline_ms, now));
            }
            80..90 => drop(keyspace.sweep_earliest(db, now.ms, now, 20)),
            90..98 => self.now_ms += self.rng.u64(..20),
            98 if self.rng.u32(..20) == 0 => self.keyspace.flush(db, now),
            99 if self.rng.u32(..10) == 0 => self.keyspace.swap(0, 1, now),
            _ => {}
        }
        self.keyspace.effects.close_all();
    }

    /// Makes all passes, with changes between the slices.
    fn make_passes(&mut self, changes: usize) {
        while self.keyspace.wanted_pass().is_some() {
            let Some(db) = self.keyspace.begin_pass() else { break };
            while self.keyspace.go_on_with_pass(db, || false) {
                (0..changes).for_each(|_| self.change());
            }
        }
    }

    fn check(&mut self, told: &mut BTreeMap<u64, Shown>) {
        let now = self.now();
        // What is dead goes: until then it counts.
        for db in 0..2 {
            while self.keyspace.sweep_earliest(db, now.ms, now, 100).deleted > 0 {}
        }
        self.make_passes(0);
        told.extend(self.keyspace.take_views(&[], now));
        self.make_passes(0);
        told.extend(self.keyspace.take_views(&[], now));
        for (id, of) in self.views.iter().enumerate() {
            let (mut keys, mut bytes, mut deadlines_ms) = (0, 0, Vec::new());
            let mut position = Some(0);
            while let Some(at) = position {
                position = self.keyspace.walk(of.db, at, NEVER_MS, now, |seen| {
                    if seen.key().starts_with(&of.prefix) {
                        keys += 1;
                        bytes += seen.bytes() as u64;
                        deadlines_ms.extend(seen.deadline_ms.map(|at_ms| (at_ms, Box::<[u8]>::from(seen.key()))));
                    }
                });
            }
            deadlines_ms.sort();
            let shown = &told[&(id as u64)];
            assert!(shown.is_ready);
            assert_eq!(shown.keys, keys, "{of:?}");
            assert_eq!(shown.bytes, if of.aspect == Aspect::Bytes { bytes } else { 0 }, "{of:?}");
            match of.aspect {
                Aspect::Names(_) => {
                    assert_eq!(shown.names.len(), FEW.min(keys as usize), "{of:?}");
                    let is_there = |name: &[u8]| self.keyspace.peek(of.db, self.keyspace.hasher().key(name), now);
                    assert!(shown.names.iter().all(|name| is_there(name).is_some() && name.starts_with(&of.prefix)));
                }
                Aspect::Next(_) => {
                    deadlines_ms.truncate(FEW);
                    assert_eq!(shown.next, deadlines_ms, "{of:?}");
                }
                Aspect::Count | Aspect::Bytes => {}
            }
        }
    }
}

#[test]
fn they_show_what_a_walk_finds() {
    for seed in 0..if cfg!(miri) { 1 } else { 20 } {
        let (mut fixture, mut told) = (Fixture::new(seed), BTreeMap::new());
        (0..[0, 500, 5_000][seed as usize % 3]).for_each(|_| fixture.change());
        fixture.keep_all(&[Aspect::Count, Aspect::Bytes, Aspect::Names(FEW), Aspect::Next(FEW)]);
        fixture.make_passes(30);
        for _ in 0..if cfg!(miri) { 2 } else { 10 } {
            fixture.check(&mut told);
            for _ in 0..fixture.rng.usize(..600) {
                fixture.change();
                if fixture.rng.u32(..50) == 0 {
                    told.extend(fixture.keyspace.take_views(&[], fixture.now()));
                }
            }
        }
        fixture.check(&mut told);
    }
}

/// Where nothing but counts and names are kept, changes of keys that stay are not noted. That may be different between two looks.
#[test]
fn counts_and_names_are_right_while_others_come_and_go() {
    for seed in 0..if cfg!(miri) { 1 } else { 20 } {
        let (mut fixture, mut told) = (Fixture::new(seed), BTreeMap::new());
        (0..[0, 500, 5_000][seed as usize % 3]).for_each(|_| fixture.change());
        fixture.keep_all(&[Aspect::Count, Aspect::Names(FEW)]);
        let views = fixture.views.len();
        fixture.make_passes(30);
        for _ in 0..if cfg!(miri) { 2 } else { 10 } {
            for _ in 0..fixture.rng.usize(..600) {
                fixture.change();
                match fixture.rng.u32(..100) {
                    0..2 => told.extend(fixture.keyspace.take_views(&[], fixture.now())),
                    2 if fixture.views.len() == views => {
                        fixture.keep(0, "a", Aspect::Bytes);
                        if fixture.rng.bool() {
                            fixture.make_passes(3);
                        }
                    }
                    3 if fixture.views.len() > views => fixture.drop_last(),
                    _ => {}
                }
            }
            fixture.check(&mut told);
        }
    }
}

#[test]
fn that_they_have_changed_is_said_once() {
    let mut fixture = Fixture::new(1);
    assert!(!fixture.keyspace.effects.has_views());
    assert_eq!(fixture.keyspace.take_view_news(), ViewNews::default());
    fixture.keep(0, "a", Aspect::Count);
    assert_eq!(fixture.keyspace.take_view_news(), ViewNews { have_changed: false, want_pass: true });
    fixture.make_passes(0);
    assert!(fixture.keyspace.take_view_news().have_changed, "it is ready");
    let (hasher, now) = (fixture.keyspace.hasher().clone(), fixture.now());
    let insert = |keyspace: &mut Keyspace, name: &[u8]| keyspace.insert(0, hasher.key(name), Value::Int(1), None, now);
    insert(&mut fixture.keyspace, b"a1");
    assert!(!fixture.keyspace.take_view_news().have_changed);
    assert_eq!(fixture.keyspace.take_views(&[], now)[0].1.keys, 1);
    insert(&mut fixture.keyspace, b"b");
    assert!(!fixture.keyspace.take_view_news().have_changed, "that is nothing to it");
    insert(&mut fixture.keyspace, b"a2");
    assert!(fixture.keyspace.take_view_news().have_changed);
    assert_eq!(fixture.keyspace.look_at_views(&[0, 9], now)[0].1.keys, 2);
    assert!(fixture.keyspace.take_views(&[9], now).len() == 1, "there is no other, and this was still to be asked");
    fixture.keyspace.drop_view(0);
    assert!(!fixture.keyspace.effects.has_views());
}

#[test]
fn where_too_much_is_changed_at_once_they_begin_anew() {
    let mut fixture = Fixture::new(2);
    fixture.keep(0, "", Aspect::Bytes);
    fixture.make_passes(0);
    let (hasher, now) = (fixture.keyspace.hasher().clone(), fixture.now());
    let count = TOUCHED_MAX as u64 + 10;
    for i in 0..count {
        fixture.keyspace.insert(0, hasher.key(&i.to_be_bytes()), Value::Int(1), None, now);
        fixture.keyspace.effects.close_all();
    }
    assert!(fixture.keyspace.take_view_news().want_pass);
    assert!(!fixture.keyspace.take_views(&[0], now)[0].1.is_ready);
    fixture.make_passes(0);
    assert_eq!(fixture.keyspace.take_views(&[], now)[0].1.keys, count);
}

#[test]
fn long_names_are_counted_and_not_shown() {
    let mut fixture = Fixture::new(4);
    fixture.keep(0, "", Aspect::Names(FEW));
    fixture.keep(0, "", Aspect::Next(FEW));
    let (hasher, now) = (fixture.keyspace.hasher().clone(), fixture.now());
    let long = vec![b'x'; 10_000];
    for name in [&long[..], b"short"] {
        fixture.keyspace.insert(0, hasher.key(name), Value::Int(1), Some(now.ms + 1_000), now);
        fixture.keyspace.effects.close_all();
    }
    fixture.make_passes(0);
    for (_, shown) in fixture.keyspace.take_views(&[], now) {
        assert_eq!((shown.keys, shown.names.len() + shown.next.len()), (2, 1));
    }
    assert_eq!(fixture.keyspace.wanted_pass(), None, "no pass would find more");
}

/// A replica hides what is dead by its clock, and hears perhaps that its primary had given the key more time.
#[test]
fn a_hidden_name_is_shown_again_where_its_key_is_given_more_time() {
    let mut fixture = Fixture::new(7);
    let (hasher, now) = (fixture.keyspace.hasher().clone(), fixture.now());
    for (name, deadline_ms) in [("a:lives", None), ("a:dies", Some(now.ms + 1))] {
        fixture.keyspace.insert(0, hasher.key(name.as_bytes()), Value::Int(1), deadline_ms, now);
    }
    fixture.keep(0, "a", Aspect::Names(FEW));
    fixture.make_passes(0);
    let later = Now::from_ms(now.ms + 10);
    let names = |shown: &[(u64, Shown)]| shown[0].1.names.iter().map(|name| name.to_vec()).collect::<Vec<_>>();
    assert_eq!(names(&fixture.keyspace.look_at_views(&[0], later)), [b"a:lives".to_vec()]);
    // The primary's commands see what is dead here.
    let key = hasher.key(b"a:dies");
    fixture.keyspace.edit(0, key, Now::from_ms(0), Touch::NOTHING).expect("not deleted").set_deadline(None);
    fixture.keyspace.effects.close_all();
    assert!(fixture.keyspace.take_view_news().have_changed);
    let shown = fixture.keyspace.take_views(&[], later);
    assert_eq!(names(&shown), [b"a:dies".to_vec(), b"a:lives".to_vec()]);
    // Nothing is hidden: it is all the same what becomes of keys that stay.
    fixture.keyspace.insert(0, key, Value::Int(2), None, later);
    fixture.keyspace.effects.close_all();
    assert!(!fixture.keyspace.take_view_news().have_changed);
}
