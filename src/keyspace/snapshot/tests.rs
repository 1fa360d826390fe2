use super::*;
use crate::config::{Config, MaxmemoryPolicy};
use crate::keyspace::{Clocking, Eviction, Hasher, Kind, NEVER_MS, Owned, Touch, Value};
use crate::value::hash::Hash;
use crate::value::list::{self, End, Limit, List};
use crate::value::pack::Element;
use crate::value::set::Set;
use crate::value::stream::{ChunkLimits, Id, Stream, Trim, TrimTo};
use crate::value::zset::{self, Edit, Zset};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

type Contents = BTreeMap<(usize, Vec<u8>), (Vec<u8>, Option<u64>)>;

const NOW_MS: u64 = 1_000_000;

/// What a collection holds: in order where it has one.
fn lines(kind: Kind, mut lines: Vec<Vec<u8>>) -> Vec<u8> {
    if !matches!(kind, Kind::List | Kind::Stream) {
        lines.sort();
    }
    lines.insert(0, kind.name().into());
    lines.join(&b'\n')
}

fn value_of(content: Stored) -> Vec<u8> {
    let mut all = Vec::new();
    match content {
        Stored::String(value) => return hash::element(value).to_vec(),
        _ if content.kind() == Kind::List => {
            list::View::of(content).for_each(|element| all.push(element.to_vec()));
        }
        _ if content.kind() == Kind::Set => {
            crate::value::set::View::of(content, 0).iter().for_each(|member| all.push(member.to_vec()));
        }
        _ if content.kind() == Kind::Zset => {
            let view = zset::View::of(content, 0);
            view.for_each_back(|member, score, at_ms| all.push(line(&member.to_vec(), (score, at_ms))));
        }
        _ if content.kind() == Kind::Hash => hash::View::of(content).iter().for_each(|field| {
            let deadline_ms = Some(field.deadline_ms).filter(|deadline_ms| *deadline_ms < NEVER_MS);
            all.push(line(&field.name.to_vec(), (field.value.to_vec(), deadline_ms)));
        }),
        _ => Stream::of(content).log.chunks().flat_map(|chunk| chunk.entries()).for_each(|entry| {
            all.push(format!("{:?}", entry.id).into());
        }),
    }
    lines(content.kind(), all)
}

fn line(name: &[u8], value: impl std::fmt::Debug) -> Vec<u8> {
    format!("{} {value:?}", name.escape_ascii()).into()
}

/// Remembers what it is given. Each part of a value is a line of text.
struct Recorder {
    written: Rc<RefCell<Contents>>,
    part: Vec<u8>,
}

impl Recorder {
    fn keep(&self, db: usize, key: &[u8], value: Vec<u8>, deadline_ms: Option<u64>) {
        let twice = self.written.borrow_mut().insert((db, key.to_vec()), (value, deadline_ms));
        assert!(twice.is_none(), "{} is there twice", key.escape_ascii());
    }
}

impl Keeper for Recorder {
    fn group(&mut self, _: usize, _: &[u8], _: &Span) {}

    fn key(&mut self, db: usize, kept: Kept) {
        self.keep(db, kept.key, value_of(kept.content), kept.deadline_ms);
    }

    fn parts_strings(&self) -> bool {
        true
    }

    fn frame(&self, _: usize, kept: &Kept) -> Frame {
        let deadline_ms = kept.deadline_ms.unwrap_or(NEVER_MS).to_string();
        let kind = match kept.content.kind() {
            Kind::String => "",
            kind => kind.name(),
        };
        let head = [kept.key, deadline_ms.as_bytes(), kind.as_bytes(), b""].join(&b'\0');
        Frame { head, ..Frame::default() }
    }

    fn encode(&self, _: &Frame, portion: Portion, out: &mut Vec<u8>) {
        let mut put = |bytes: &[u8]| {
            out.extend_from_slice(bytes);
            out.push(b'\n');
        };
        match portion {
            Portion::Member(member, _) => put(member),
            Portion::Scored(member, score, deadline_ms) => put(&line(member, (score, deadline_ms))),
            Portion::Field(name, value, deadline_ms) => put(&line(name, (hash::element(value).to_vec(), deadline_ms))),
            Portion::Elements(elements) => elements.for_each(|element| put(&element.to_vec())),
            Portion::Entries(chunk) => chunk.entries().for_each(|entry| put(format!("{:?}", entry.id).as_bytes())),
        }
    }

    fn part(&mut self, db: usize, frame: &Frame, fill: &mut Fill) -> bool {
        let mut bytes = std::mem::take(&mut self.part);
        let has_more = fill(&mut |part| match part {
            Part::Bytes(some) => bytes.extend_from_slice(some),
            Part::Portion(portion) => self.encode(frame, portion, &mut bytes),
        });
        self.part = bytes;
        if !has_more {
            let part = std::mem::take(&mut self.part);
            let mut fields = part.splitn(4, |byte| *byte == 0);
            let [key, deadline_ms, kind, text] = std::array::from_fn(|_| fields.next().expect("a field"));
            let deadline_ms: u64 = std::str::from_utf8(deadline_ms).expect("a text").parse().expect("a number");
            let kinds = [Kind::List, Kind::Set, Kind::Zset, Kind::Hash, Kind::Stream];
            let value = match kinds.into_iter().find(|of| of.name().as_bytes() == kind) {
                None => text.to_vec(),
                Some(kind) => {
                    let text = text.strip_suffix(b"\n").unwrap_or(text);
                    lines(kind, text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect())
                }
            };
            self.keep(db, key, value, Some(deadline_ms).filter(|deadline_ms| *deadline_ms < NEVER_MS));
        }
        has_more
    }
}

fn recorder(written: &Rc<RefCell<Contents>>) -> Box<Recorder> {
    Box::new(Recorder { written: written.clone(), part: Vec::new() })
}

fn contents(keyspace: &Keyspace, now: Now) -> Contents {
    let mut all = Contents::new();
    for db in 0..3 {
        keyspace.for_each(db, now, |key, entry, deadline_ms| {
            all.insert((db, key.to_vec()), (value_of(entry.content()), deadline_ms));
        });
    }
    all
}

fn change(keyspace: &mut Keyspace, rng: &mut fastrand::Rng, now: Now, keys: u32) {
    let hasher = keyspace.hasher().clone();
    let (db, name) = (rng.usize(..3), format!("key{}", rng.u32(..keys)));
    let key = hasher.key(name.as_bytes());
    let text = vec![b'x'; rng.usize(..200)];
    let touch = Touch::NOTHING;
    match rng.u32(..10) {
        0..=2 => {
            let deadline_ms = rng.bool().then(|| NOW_MS + rng.u64(1_000..9_000_000));
            keyspace.insert(db, key, Value::Bytes(&text), deadline_ms, now);
        }
        3 => drop(keyspace.remove(db, key, now)),
        4 => {
            if let Some(mut edit) = keyspace.edit(db, key, now, touch)
                && edit.kind() == Kind::String
            {
                edit.resize(text.len() + 1).fill(b'y');
            }
        }
        5 => {
            if let Some(mut edit) = keyspace.edit(db, key, now, touch) {
                edit.set_deadline(Some(NOW_MS + rng.u64(1_000..9_000_000)));
            }
        }
        6 => {
            if let Some(edit) = keyspace.edit(db, key, now, touch) {
                edit.remove();
            }
        }
        7 => {
            let mut zset = Zset::default();
            zset.insert(&text, 1.0);
            keyspace.remove(db, key, now);
            keyspace.insert_owned(db, key, Owned::node(zset), None, now);
        }
        8 => {
            // As RENAME does.
            if let Some(edit) = keyspace.edit(db, key, now, touch) {
                let value = edit.take();
                let other = format!("key{}", rng.u32(..keys));
                let other = hasher.key(other.as_bytes());
                keyspace.remove(db, other, now);
                keyspace.insert_owned(db, other, value, None, now);
            }
        }
        _ => {
            let how = Eviction { policy: MaxmemoryPolicy::AllkeysRandom, samples: 1, limit: u64::MAX };
            keyspace.evict(how, 1, now, &|_| false);
        }
    }
    keyspace.effects.close_all();
}

/// Blocks split and merge, keys come, change, go and are evicted, between all steps of the walk.
#[test]
fn what_was_there_at_the_moment_is_written_once() {
    for seed in 0..if cfg!(miri) { 1 } else { 20 } {
        let (mut rng, now) = (fastrand::Rng::with_seed(seed), Now::from_ms(NOW_MS));
        let mut keyspace = Keyspace::new(3, Hasher::new(seed, 1));
        keyspace.set_clocking(Clocking::of(&Config::default()));
        let keys = [100, 5_000, 20_000][seed as usize % 3];
        let rounds = if cfg!(miri) { 300 } else { 30_000 };
        (0..rounds).for_each(|_| change(&mut keyspace, &mut rng, now, keys));
        let expected = contents(&keyspace, now);
        let written: Rc<RefCell<Contents>> = Rc::default();
        keyspace.begin_saving(now, now, recorder(&written));
        let each = rng.usize(1..300);
        while keyspace.save_some(|| false) == Saved::Some {
            (0..each).for_each(|_| change(&mut keyspace, &mut rng, now, keys));
        }
        assert!(*written.borrow() == expected, "seed {seed}");
        keyspace.check();
    }
}

#[test]
fn what_is_emptied_is_no_moment_any_more() {
    let now = Now::from_ms(NOW_MS);
    let mut keyspace = Keyspace::new(2, Hasher::new(1, 1));
    let key = keyspace.hasher().key(b"key");
    keyspace.insert(0, key, Value::Int(1), None, now);
    let written = Rc::default();
    keyspace.begin_saving(now, now, recorder(&written));
    keyspace.flush(0, now);
    assert_eq!(keyspace.save_some(|| true), Saved::Void);
    assert!(written.borrow().is_empty(), "it was emptied");
    assert_eq!(keyspace.save_some(|| true), Saved::All, "nothing is asked for");
    keyspace.insert(0, key, Value::Int(1), None, now);
    keyspace.effects.close_all();
}

const LIMIT: Limit = Limit { bytes: 256, count: 1_000, compress_depth: 1 };
const CHUNKS: ChunkLimits = ChunkLimits { bytes: 256, entries: 10 };
const TYPES: [&[u8]; 5] = [b"list", b"set", b"zset", b"hash", b"stream"];

fn large_value(kind: &[u8], rng: &mut fastrand::Rng) -> Owned {
    let members = || (0..3_000).map(|n| format!("member{n}").into_bytes());
    match kind {
        b"list" => {
            let mut list = List::new(LIMIT);
            members().for_each(|member| list.push(End::Back, Element::Bytes(&member), LIMIT));
            Owned::node(list)
        }
        b"set" => {
            let mut set = Set::default();
            members().for_each(|member| assert!(set.insert(&member)));
            Owned::node(set)
        }
        b"zset" => {
            let mut zset = Zset::default();
            members().for_each(|member| assert!(zset.insert(&member, f64::from(rng.u32(..500)))));
            Owned::node(zset)
        }
        b"hash" => {
            let mut hash = Hash::default();
            members().for_each(|member| assert!(hash.fields.set(&member, Value::Int(rng.i64(..)))));
            Owned::node(hash)
        }
        _ => {
            let mut stream = Stream::default();
            (1..3_000).for_each(|n| append(&mut stream, n));
            Owned::node(stream)
        }
    }
}

fn append(stream: &mut Stream, n: u64) {
    let pair: [&[u8]; 2] = [b"field", b"value"];
    stream.log.append(Id::new(n, 0), pair.into_iter(), 10, CHUNKS);
}

/// Changes a large collection in one of the ways that commands do.
fn change_large(keyspace: &mut Keyspace, rng: &mut fastrand::Rng, now: Now) {
    let kind = TYPES[rng.usize(..TYPES.len())];
    let hasher = keyspace.hasher().clone();
    let key = hasher.key(kind);
    let member = format!("member{}", rng.u32(..4_000)).into_bytes();
    let Some(mut edit) = keyspace.edit(0, key, now, Touch::NOTHING) else {
        let value = large_value(kind, rng);
        keyspace.insert_owned(0, key, value, None, now);
        return;
    };
    match rng.u32(..1_500) {
        0 => return edit.remove(),
        1 => return edit.replace(Value::Int(1), None),
        2 => {
            // As RENAME does, to where it was.
            let value = edit.take();
            keyspace.insert_owned(0, key, value, None, now);
            return;
        }
        3 => {
            // It dies.
            edit.set_deadline(Some(NOW_MS - 1));
            keyspace.effects.close_all();
            assert!(keyspace.edit(0, key, now, Touch::NOTHING).is_none());
            return;
        }
        _ => {}
    }
    edit.change_node(|list: &mut List| {
        let len = list.len().max(1);
        match rng.u32(..100) {
            0..30 => list.push(if rng.bool() { End::Front } else { End::Back }, Element::Bytes(&member), LIMIT),
            30..60 => list.drop_from(if rng.bool() { End::Front } else { End::Back }, rng.usize(1..8)),
            60..75 => drop(list.set(rng.usize(..len), Element::Bytes(&member), LIMIT)),
            75..88 => list.insert(rng.usize(..len), Element::Bytes(&member), LIMIT),
            88..98 => list.remove(rng.usize(..len), LIMIT),
            98 => drop(list.remove_equal(Element::Bytes(&member), 10, End::Back, LIMIT)),
            _ => list.drop_from(End::Front, rng.usize(1..1_000)),
        }
    });
    edit.change_node(|set: &mut Set| if rng.bool() { set.insert(&member) } else { set.members.remove(&member) });
    edit.change_node(|zset: &mut Zset| match (rng.u32(..200), zset.find(&member)) {
        (0, _) => zset.remove_range(rng.usize(..100)..rng.usize(100..500), |_, _| ()),
        (1..60, Some((place, _))) => zset.remove(place, &member),
        (60..100, Some(_)) => {
            // Some are out of a column's reach.
            let shift = rng.u32(8..40);
            zset.set_deadline(&member, Some(NOW_MS + rng.u64(..1 << shift)), NOW_MS);
        }
        (100..110, Some(_)) => zset.set_deadline(&member, None, NOW_MS),
        (_, Some((place, _))) => zset.change(place, &member, f64::from(rng.u32(..500))),
        (_, None) => drop(zset.insert(&member, f64::from(rng.u32(..500)))),
    });
    edit.change_node(|hash: &mut Hash| match rng.u32(..4) {
        0 => drop(hash.fields.remove(&member)),
        1 => hash.fields.set_deadline(&member, Some(NOW_MS + rng.u64(..100_000)), NOW_MS),
        _ => drop(hash.fields.set(&member, Value::Bytes(&member))),
    });
    edit.change_node(|stream: &mut Stream| match rng.u32(..10) {
        0..5 => append(stream, stream.log.last_id().ms + 1),
        5 if rng.u32(..50) == 0 => {
            let to = TrimTo::Len(stream.log.len().saturating_sub(rng.u64(..400)));
            assert!(stream.log.trim(Trim { to, approximate: rng.bool(), limit: 0 }) <= 400);
        }
        _ => drop(stream.log.delete(Id::new(rng.u64(1..stream.log.last_id().ms + 2), 0))),
    });
}

/// Large collections are written in parts, whatever is done to them meanwhile.
#[test]
fn large_collections_are_written_as_they_were() {
    for seed in 0..if cfg!(miri) { 1 } else { 40 } {
        let (mut rng, now) = (fastrand::Rng::with_seed(seed), Now::from_ms(NOW_MS));
        let mut keyspace = Keyspace::new(3, Hasher::new(seed, 1));
        let hasher = keyspace.hasher().clone();
        for kind in TYPES {
            let value = large_value(kind, &mut rng);
            keyspace.insert_owned(0, hasher.key(kind), value, None, now);
        }
        let text = vec![b'a'; 3 << 20];
        keyspace.insert(1, hasher.key(b"long"), Value::Bytes(&text), None, now);
        let rounds = if cfg!(miri) { 50 } else { 3_000 };
        (0..rounds).for_each(|_| change_large(&mut keyspace, &mut rng, now));
        keyspace.effects.close_all();
        let expected = contents(&keyspace, now);
        let written: Rc<RefCell<Contents>> = Rc::default();
        keyspace.begin_saving(now, now, recorder(&written));
        let each = rng.usize(1..60);
        let changes_text = rng.usize(..12);
        let (mut steps, mut gives_up) = (0, seed % 8 == 7);
        loop {
            match keyspace.save_some(|| false) {
                Saved::Some => {}
                Saved::All => break,
                Saved::Void => {
                    // Nothing of the first attempt is left in the collections.
                    written.borrow_mut().clear();
                    let expected = contents(&keyspace, now);
                    keyspace.begin_saving(now, now, recorder(&written));
                    while keyspace.save_some(|| true) == Saved::Some {}
                    assert!(*written.borrow() == expected, "seed {seed}");
                    break;
                }
            }
            (0..each).for_each(|_| change_large(&mut keyspace, &mut rng, now));
            steps += 1;
            if steps == changes_text {
                keyspace.insert(1, hasher.key(b"long"), Value::Bytes(b"short"), None, now);
            }
            if steps == 20 && std::mem::take(&mut gives_up) {
                keyspace.give_up_saving();
            }
            keyspace.collect_garbage(1_000);
            keyspace.effects.close_all();
        }
        if seed % 8 != 7 {
            let written = written.borrow();
            for (name, value) in &expected {
                let found = written.get(name);
                assert!(found == Some(value), "seed {seed}: {}", name.1.escape_ascii());
            }
            assert_eq!(written.len(), expected.len(), "seed {seed}");
        }
        while keyspace.collect_garbage(1_000) {}
        keyspace.check();
    }
}
