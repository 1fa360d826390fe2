//! Values written and read again, and what is refused.

use super::stream::{Consumer, Group, Pending, Stream, StreamWriter};
use super::*;
use crate::value::number::parse_f64;
use crate::value::pack::Element;
use crate::value::stream::Id;
use std::collections::{BTreeMap, BTreeSet};

pub type Text = Vec<u8>;
type Entry = (Id, Vec<Text>);

/// A value in the plainest form.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    String(Text),
    List(Vec<Text>),
    Set(BTreeSet<Text>),
    Zset(BTreeMap<Text, f64>),
    Hash(BTreeMap<Text, (Text, Option<u64>)>),
    Stream(Vec<Entry>, Stream),
}

/// Collects what is read.
#[derive(Default)]
pub struct Collected {
    pub value: Option<Value>,
    /// Of members of a set or a sorted set.
    deadlines: BTreeMap<Text, u64>,
    /// Something was there twice.
    pub twice: bool,
    entries: Vec<Entry>,
    /// Of the stream's run.
    fields: Vec<Text>,
}

fn text(element: Element) -> Text {
    assert_eq!(Element::of(&element.to_vec()), element);
    element.to_vec()
}

/// The collection of this kind, a new one at first.
macro_rules! collection {
    ($self:ident, $kind:ident) => {
        match $self.value.get_or_insert_with(|| Value::$kind(Default::default())) {
            Value::$kind(collection) => collection,
            other => panic!("calls of two kinds: {other:?}"),
        }
    };
}

impl Sink for Collected {
    fn string(&mut self, value: Element) {
        assert_eq!(self.value.replace(Value::String(text(value))), None);
    }

    fn element(&mut self, element: Element) {
        collection!(self, List).push(text(element));
    }

    fn member(&mut self, member: Element, deadline_ms: Option<u64>) {
        self.twice |= !collection!(self, Set).insert(text(member));
        self.deadlines.extend(deadline_ms.map(|deadline_ms| (text(member), deadline_ms)));
    }

    fn scored(&mut self, member: Element, score: f64, deadline_ms: Option<u64>) {
        assert!(!score.is_nan());
        self.deadlines.extend(deadline_ms.map(|deadline_ms| (text(member), deadline_ms)));
        self.twice |= collection!(self, Zset).insert(text(member), score).is_some();
    }

    fn field(&mut self, field: Element, value: Element, deadline_ms: Option<u64>) {
        self.twice |= collection!(self, Hash).insert(text(field), (text(value), deadline_ms)).is_some();
    }

    fn run(&mut self, fields: &[Element]) {
        self.fields = fields.iter().map(|element| text(*element)).collect();
    }

    fn entry(&mut self, id: Id, texts: EntryTexts) {
        let pairs: Vec<Text> = match texts {
            EntryTexts::Values(values) => {
                assert_eq!(values.len(), self.fields.len());
                self.fields.iter().zip(values).flat_map(|(name, value)| [name.clone(), text(*value)]).collect()
            }
            EntryTexts::Pairs(pairs) => pairs.iter().map(|element| text(*element)).collect(),
        };
        assert!(!pairs.is_empty() && pairs.len().is_multiple_of(2));
        assert!(self.entries.last().is_none_or(|(last, _)| *last < id));
        self.entries.push((id, pairs));
    }

    fn stream(&mut self, stream: Stream) {
        assert!(self.entries.last().is_none_or(|(last, _)| *last <= stream.last_id));
        for group in &stream.groups {
            assert!(group.pending.is_sorted_by_key(|pending| pending.id));
            assert!(group.pending.iter().all(|pending| pending.owner < group.consumers.len()));
        }
        assert_eq!(self.value.replace(Value::Stream(std::mem::take(&mut self.entries), stream)), None);
    }
}

/// The value that bytes are, whole.
pub fn read(bytes: &[u8]) -> Result<Value> {
    let mut reader = Reader::new(bytes, usize::MAX);
    let mut collected = Collected::default();
    decode(&mut reader, &mut collected)?;
    assert!(reader.is_empty(), "bytes are left");
    assert!(!collected.twice, "something is there twice");
    Ok(collected.value.expect("a value was read"))
}

fn element(text: &Text) -> Element<'_> {
    Element::Bytes(text)
}

/// The ways of writing a value, those of Redis 7.0 first.
pub fn written(value: &Value) -> Vec<Vec<u8>> {
    let mut ways = Vec::new();
    for_each_way(value, &mut |write| {
        let mut out = Vec::new();
        write(&mut out);
        ways.push(out);
    });
    ways
}

/// Gets functions that append a value.
type TakeWay<'a> = dyn FnMut(&dyn Fn(&mut Vec<u8>)) + 'a;

/// The same, as functions that append it.
pub fn for_each_way(value: &Value, way: &mut TakeWay) {
    match value {
        Value::String(text) => way(&|out| encode::string(out, element(text))),
        Value::List(list) => way(&|out| encode::list(out, |each| list.iter().map(element).for_each(each))),
        Value::Set(set) => {
            way(&|out| encode::set(out, set.len(), set.iter().map(element)));
            let ints: Option<BTreeSet<i64>> = set.iter().map(|text| crate::value::number::parse_i64(text)).collect();
            if let Some(ints) = ints {
                let ints: Vec<i64> = ints.into_iter().collect();
                way(&|out| encode::set_of_integers(out, &ints));
            }
        }
        Value::Zset(zset) => {
            let mut members: Vec<_> = zset.iter().map(|(member, score)| (element(member), *score)).collect();
            members.sort_by(|a, b| a.1.total_cmp(&b.1));
            way(&|out| {
                encode::zset_packed(out, |item| members.iter().for_each(|(member, score)| item(*member, *score)));
            });
            way(&|out| {
                encode::zset(out, members.len(), |item| {
                    members.iter().rev().for_each(|(member, score)| item(*member, *score));
                });
            });
        }
        Value::Hash(hash) => {
            let earliest_ms = hash.values().filter_map(|(_, deadline)| *deadline).min();
            let pairs = || hash.iter().map(|(field, (value, _))| (element(field), element(value)));
            match earliest_ms {
                None => {
                    way(&|out| encode::hash_packed(out, pairs()));
                    way(&|out| encode::hash(out, hash.len(), pairs()));
                }
                Some(earliest_ms) => way(&|out| {
                    let fields =
                        hash.iter().map(|(field, (value, deadline))| (element(field), element(value), *deadline));
                    encode::hash_with_deadlines(out, hash.len(), earliest_ms, fields);
                }),
            }
        }
        Value::Stream(entries, stream) => way(&|out| {
            let mut writer = StreamWriter::new(out);
            for (id, fields) in entries {
                writer.entry(*id, EntryTexts::Pairs(&fields.iter().map(element).collect::<Vec<_>>()));
            }
            writer.finish(stream);
        }),
    }
}

/// Texts as clients have them: integers, words, long ones that compress and that do not.
pub fn any_text(rng: &mut fastrand::Rng) -> Text {
    match rng.u8(..16) {
        0..4 => {
            let bits = rng.u32(0..64);
            (rng.i64(..) >> bits).to_string().into_bytes()
        }
        4..10 => (0..rng.usize(1..8)).map(|_| rng.lowercase() as u8).collect(),
        10..14 => format!("member:{}", rng.u32(..1000)).into_bytes(),
        14 => vec![rng.u8(..); rng.usize(..200)],
        _ => (0..rng.usize(..5000) >> rng.u32(..12)).map(|_| rng.u8(..)).collect(),
    }
}

fn any_score(rng: &mut fastrand::Rng) -> f64 {
    match rng.u8(..8) {
        0 => f64::INFINITY,
        1 => f64::NEG_INFINITY,
        2 => (rng.i64(..) >> rng.u32(0..64)) as f64,
        3 => Some(f64::from_bits(rng.u64(..))).filter(|score| !score.is_nan()).unwrap_or(0.5),
        _ => f64::from(rng.i32(-1000..1000)) / 8.0,
    }
}

pub fn any_value(rng: &mut fastrand::Rng) -> Value {
    let len = 1 + (rng.usize(..300) >> rng.u32(..8));
    let mut texts = (0..len).map(|_| any_text(rng)).collect::<Vec<_>>();
    match rng.u8(..7) {
        0 => Value::String(texts.swap_remove(0)),
        1 => Value::List(texts),
        2 => Value::Set(texts.into_iter().collect()),
        3 => Value::Set((0..len).map(|_| (rng.i64(..) >> rng.u32(..64)).to_string().into_bytes()).collect()),
        4 => Value::Zset(texts.into_iter().map(|text| (text, any_score(rng))).collect()),
        5 => {
            let deadlines = rng.bool();
            let mut deadline = || (deadlines && rng.bool()).then(|| rng.u64(1..1 << 46));
            let fields: Vec<_> = texts.into_iter().map(|text| (text, deadline())).collect();
            Value::Hash(fields.into_iter().map(|(text, deadline)| (text, (any_text(rng), deadline))).collect())
        }
        _ => any_stream(rng, len),
    }
}

fn any_id(rng: &mut fastrand::Rng, after: Id) -> Id {
    match rng.u8(..4) {
        0 => Id { ms: after.ms + 1, seq: rng.u64(..) >> rng.u32(..64) },
        1 if after.seq < u64::MAX => Id { ms: after.ms, seq: after.seq + 1 },
        _ => Id { ms: after.ms + rng.u64(1..10_000), seq: 0 },
    }
}

fn any_stream(rng: &mut fastrand::Rng, len: usize) -> Value {
    let mut last_id = Id { ms: rng.u64(..1 << 42), seq: rng.u64(..3) };
    let names = [any_text(rng), any_text(rng), any_text(rng)];
    let mut entries = Vec::new();
    for _ in 0..len - 1 {
        last_id = any_id(rng, last_id);
        let pairs = if rng.u8(..8) == 0 { rng.usize(1..4) } else { 2 };
        let fields = (0..pairs).flat_map(|pair| [names[pair].clone(), any_text(rng)]).collect();
        entries.push((last_id, fields));
    }
    let groups = (0..rng.usize(..3)).map(|number| any_group(rng, number, &entries)).collect();
    let added = entries.len() as u64 + rng.u64(..3);
    let last_id = if rng.bool() { last_id } else { any_id(rng, last_id) };
    let stream = Stream { last_id, max_deleted_id: Id::default(), entries_added: added, groups };
    Value::Stream(entries, stream)
}

fn any_group(rng: &mut fastrand::Rng, number: usize, entries: &[Entry]) -> Group {
    let consumers: Vec<Consumer> = (0..rng.usize(..4))
        .map(|number| {
            let seen_ms = rng.u64(..1 << 42);
            Consumer { name: format!("consumer{number}").into_bytes(), seen_ms, active_ms: Some(seen_ms) }
        })
        .collect();
    let mut pending = Vec::new();
    if !consumers.is_empty() {
        for (id, _) in entries.iter().filter(|_| rng.u8(..4) == 0).collect::<Vec<_>>() {
            let owner = rng.usize(..consumers.len());
            pending.push(Pending { id: *id, delivered_ms: rng.u64(..1 << 42), deliveries: rng.u64(1..300), owner });
        }
    }
    let last_id = entries.last().map_or(Id::default(), |(id, _)| *id);
    let entries_read = rng.bool().then_some(entries.len() as u64);
    Group { name: format!("group{number}").into_bytes(), last_id, entries_read, consumers, pending }
}

#[test]
fn what_is_written_is_read_again() {
    let mut rng = fastrand::Rng::with_seed(5);
    for _ in 0..3000 {
        let value = any_value(&mut rng);
        for bytes in written(&value) {
            assert_eq!(read(&bytes), Ok(value.clone()));
        }
    }
}

/// What the files of the fuzzers' corpus hold, a value of each type that there ever was.
#[test]
fn every_type_is_read() {
    let mixed = [
        &b"one"[..],
        b"2",
        b"-77",
        b"300",
        b"-40000",
        b"9000000",
        b"123456789012",
        &[b'x'; 70],
        &[b'y'; 300],
        b"",
        b"12",
        b"13",
        b"last",
    ]
    .map(<[u8]>::to_vec);
    let mut with_plain = mixed.to_vec();
    with_plain.insert(4, b"plain element".to_vec());
    let set = |members: &[&str]| Value::Set(members.iter().map(|member| member.as_bytes().to_vec()).collect());
    let zset = |members: &[(&str, f64)]| {
        Value::Zset(members.iter().map(|(member, score)| (member.as_bytes().to_vec(), *score)).collect())
    };
    let hash = |fields: &[(&str, &str, Option<u64>)]| {
        let text = |text: &str| text.as_bytes().to_vec();
        Value::Hash(fields.iter().map(|(field, value, deadline)| (text(field), (text(value), *deadline))).collect())
    };
    let (x80, z260) = ("x".repeat(80), "z".repeat(260));
    let pairs = [("f1", "v1", None), ("field2", "22222", None), ("3", x80.as_str(), None), ("f4", "", None)];
    let scores = zset(&[("a", -1.0), ("b", 1.5), ("c", 3.0), ("d", f64::INFINITY)]);
    let deadlines = hash(&[("a", "1", None), ("b", "2", Some(1_700_000_000_000)), ("c", "3", Some(1_700_000_000_500))]);
    for (file, expected) in [
        ("string", Value::String(b"hello world".to_vec())),
        ("string-int", Value::String(b"-32768".to_vec())),
        ("string-compressed", Value::String([b"abc".repeat(30), b"xyz".repeat(20)].concat())),
        ("list", Value::List(["a", "7", ""].map(|text| text.as_bytes().to_vec()).to_vec())),
        ("list-ziplist", Value::List(mixed.to_vec())),
        ("list-quicklist", Value::List(mixed.to_vec())),
        ("list-quicklist-2", Value::List(with_plain)),
        ("set", set(&["a", "7", ""])),
        ("set-intset", set(&["-5", "0", "300"])),
        ("set-intset-64", set(&["-5", "1099511627776"])),
        ("set-listpack", Value::Set(mixed.into())),
        ("zset", zset(&[("a", -0.25), ("b", f64::INFINITY)])),
        ("zset-decimal", zset(&[("a", 1.5), ("b", f64::NEG_INFINITY), ("c", f64::INFINITY)])),
        ("zset-ziplist", scores.clone()),
        ("zset-listpack", scores),
        ("hash", hash(&[("a", "1", None), ("b", "67305985", None)])),
        ("hash-zipmap", hash(&[&pairs[..], &[("long", z260.as_str(), None)]].concat())),
        ("hash-ziplist", hash(&pairs)),
        ("hash-listpack", hash(&pairs)),
        ("hash-deadlines", deadlines.clone()),
        ("hash-deadlines-pre-ga", deadlines.clone()),
        ("hash-deadlines-listpack", deadlines.clone()),
        ("hash-deadlines-listpack-pre-ga", deadlines),
    ] {
        assert_eq!(read(&in_corpus(file)), Ok(expected), "{file}");
    }
}

fn in_corpus(file: &str) -> Vec<u8> {
    let path = format!("{}/tests/fuzz/corpus/rdb/{file}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The three types of streams say more and more.
#[test]
fn every_type_of_streams_is_read() {
    let id = |ms, seq| Id { ms, seq };
    let texts = |texts: &[&str]| texts.iter().map(|text| text.as_bytes().to_vec()).collect::<Vec<_>>();
    let entries = vec![(id(1000, 1), texts(&["name", "anna", "size", "3"])), (id(1009, 0), texts(&["other", "value"]))];
    let second = Group { name: b"second".to_vec(), ..Group::default() };
    let stream = |version| {
        let active = |ms| if version < 3 { Some(1_700_000_000_009) } else { ms };
        let consumer = |name: &str, active_ms| Consumer {
            name: name.as_bytes().to_vec(),
            seen_ms: 1_700_000_000_009,
            active_ms: active(active_ms),
        };
        let readers = Group {
            name: b"readers".to_vec(),
            last_id: id(1000, 1),
            entries_read: Some(1),
            consumers: vec![consumer("ann", Some(1_700_000_000_008)), consumer("bob", None)],
            pending: vec![
                Pending { id: id(1000, 1), delivered_ms: 1_700_000_000_000, deliveries: 1, owner: 1 },
                Pending { id: id(1009, 0), delivered_ms: 1_700_000_000_005, deliveries: 70, owner: 0 },
            ],
        };
        let second = Group { entries_read: (version < 2).then_some(0), ..second.clone() };
        Stream {
            last_id: id(1009, 0),
            max_deleted_id: if version < 2 { id(0, 0) } else { id(1005, 1) },
            entries_added: if version < 2 { 2 } else { 3 },
            groups: vec![readers, second],
        }
    };
    for version in 1..=3 {
        let expected = Value::Stream(entries.clone(), stream(version));
        assert_eq!(read(&in_corpus(&format!("stream-{version}"))), Ok(expected), "{version}");
    }
}

/// Redis keeps deleted entries for a while, and XSETID lets smaller ids follow theirs.
#[test]
fn ids_of_deleted_entries_may_be_anywhere() {
    let id = |ms| Id { ms, seq: 0 };
    let pair = |field: &str, value: &str| vec![field.as_bytes().to_vec(), value.as_bytes().to_vec()];
    let entries = vec![(id(5), pair("a", "1")), (id(7), pair("a", "1")), (id(10), pair("b", "2"))];
    let stream = Stream { last_id: id(10), max_deleted_id: id(10), entries_added: 4, groups: Vec::new() };
    assert_eq!(read(&in_corpus("stream-2-after-xsetid")), Ok(Value::Stream(entries, stream)));
}

#[test]
fn no_beginning_of_a_value_is_a_value() {
    let mut rng = fastrand::Rng::with_seed(6);
    for _ in 0..200 {
        for bytes in written(&any_value(&mut rng)) {
            for cut in [0, 1, 2, bytes.len() / 3, bytes.len() / 2, bytes.len() - 2, bytes.len() - 1] {
                assert!(read(&bytes[..cut.min(bytes.len() - 1)]).is_err());
            }
        }
    }
}

#[test]
fn collections_are_not_empty() {
    for kind in [
        kind::LIST,
        kind::SET,
        kind::ZSET,
        kind::ZSET_2,
        kind::HASH,
        kind::LIST_QUICKLIST,
        kind::LIST_QUICKLIST_2,
        kind::HASH_METADATA_PRE_GA,
    ] {
        assert_eq!(read(&[kind, 0]), Err(Error::Empty), "{kind}");
    }
    assert_eq!(read(b"\x18\x01\0\0\0\0\0\0\0\0"), Err(Error::Empty));
    let empty = b"\x07\x07\0\0\0\0\0\xff";
    for kind in [kind::HASH_LISTPACK, kind::ZSET_LISTPACK, kind::SET_LISTPACK, kind::HASH_LISTPACK_EX_PRE_GA] {
        assert_eq!(read(&[&[kind], &empty[..]].concat()), Err(Error::Empty), "{kind}");
    }
}

#[test]
fn scores_are_numbers() {
    let nan = f64::NAN.to_le_bytes();
    assert!(read(&[b"\x05\x01\x01a", &nan[..]].concat()).is_err());
    assert!(read(b"\x03\x01\x01a\xfd").is_err());
    assert_eq!(read(b"\x03\x01\x01a\xff"), Ok(Value::Zset([(b"a".to_vec(), f64::NEG_INFINITY)].into())));
    assert!(parse_f64(b"nan").is_none());
}

#[test]
fn deadlines_of_fields_are_relative_absolute_or_in_order() {
    let hash = |deadlines: [Option<u64>; 2]| {
        Value::Hash(
            [(b"a".to_vec(), (b"1".to_vec(), deadlines[0])), (b"b".to_vec(), (b"2".to_vec(), deadlines[1]))].into(),
        )
    };
    let relative = b"\x18\xe8\x03\0\0\0\0\0\0\x02\x01\x01a\xc0\x01\x0b\x01b\xc0\x02";
    assert_eq!(read(relative), Ok(hash([Some(1000), Some(1010)])));
    let absolute = b"\x16\x02\x43\xe8\x01a\xc0\x01\x00\x01b\xc0\x02";
    assert_eq!(read(absolute), Ok(hash([Some(1000), None])));
    let listpack = |first: &[u8], second: &[u8]| {
        let body = [b"\x81a\x02\x01\x01", first, b"\x81b\x02\x02\x01", second, b"\xff"].concat();
        let bytes = [&(body.len() as u32 + 6).to_le_bytes()[..], b"\x06\0", &body].concat();
        [&[kind::HASH_LISTPACK_EX_PRE_GA, bytes.len() as u8][..], &bytes].concat()
    };
    let (none, one, two) = (&b"\0\x01"[..], &b"\x01\x01"[..], &b"\x02\x01"[..]);
    assert_eq!(read(&listpack(one, two)), Ok(hash([Some(1), Some(2)])));
    assert_eq!(read(&listpack(one, none)), Ok(hash([Some(1), None])));
    assert!(read(&listpack(two, one)).is_err());
    assert!(read(&listpack(none, one)).is_err());
    assert!(read(&listpack(one, b"\xdf\xff\x02")).is_err(), "negative");
    assert!(read(b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\x01\x05\x01a\x01b").is_err());
}

#[test]
fn deadlines_of_members_are_relative() {
    let mut rng = fastrand::Rng::with_seed(9);
    for _ in 0..500 {
        let members: BTreeSet<Text> = (0..rng.usize(1..300)).map(|_| any_text(&mut rng)).collect();
        let some = |_: &Text| rng.bool().then(|| rng.u64(1..1 << 46));
        let deadlines: Vec<Option<u64>> = members.iter().map(some).collect();
        let Some(earliest_ms) = deadlines.iter().flatten().min() else { continue };
        let mut bytes = Vec::new();
        let all = members.iter().map(element).zip(deadlines.iter().copied());
        encode::set_with_deadlines(&mut bytes, members.len(), *earliest_ms, all.clone());
        let timed = members.iter().cloned().zip(&deadlines).filter_map(|(member, at_ms)| Some((member, (*at_ms)?)));
        let timed: Vec<(Text, u64)> = timed.collect();
        let mut scores = BTreeMap::new();
        let mut scored = Vec::new();
        encode::zset_with_deadlines(&mut scored, members.len(), *earliest_ms, |put| {
            all.for_each(|(member, deadline_ms)| {
                let score = f64::from(rng.i32(..)) / 8.0;
                scores.insert(member.to_vec(), score);
                put(member, score, deadline_ms);
            });
        });
        for (bytes, value) in [(bytes, Value::Set(members)), (scored, Value::Zset(scores))] {
            let (mut reader, mut collected) = (Reader::new(&bytes, usize::MAX), Collected::default());
            assert_eq!(decode(&mut reader, &mut collected), Ok(()));
            assert!(reader.is_empty() && !collected.twice);
            assert_eq!(collected.deadlines, timed.iter().cloned().collect());
            assert_eq!(collected.value, Some(value));
            let mut passed = Reader::new(&bytes[1..], usize::MAX);
            assert!(super::skip::value(&mut passed, bytes[0]).is_ok() && passed.is_empty());
            let cut = &bytes[..bytes.len() - 1];
            assert!(decode(&mut Reader::new(cut, usize::MAX), &mut Collected::default()).is_err());
        }
    }
    assert!(read(b"\xca\xff\xff\xff\xff\xff\xff\xff\x7f\x01\x05\x01a\0\0\0\0\0\0\0\0").is_err(), "too late");
    assert!(read(b"\xca\xe8\x03\0\0\0\0\0\0\0").is_err(), "empty");
    assert!(read(b"\xca\xe8\x03\0\0\0\0\0\0\x01\0\x01a\0\0\0\0\0\0\xf8\x7f").is_err(), "not a number");
    assert!(read(b"\xc9\xff\xff\xff\xff\xff\xff\xff\x7f\x01\x05\x01a").is_err(), "too late");
    assert!(read(b"\xc9\xe8\x03\0\0\0\0\0\0\0").is_err(), "empty");
}
