//! Random changes to a stream and to plain vectors and maps, compared after each.

use super::*;
use crate::value::number::I64_TEXT_BYTES_MAX;
use crate::value::pack::Element;
use std::collections::BTreeMap;

type Pair = (Vec<u8>, Vec<u8>);

#[derive(Default)]
struct Model {
    entries: BTreeMap<Id, Vec<Pair>>,
    last: Id,
    max_deleted: Id,
    added: i64,
}

fn text(element: Element) -> Vec<u8> {
    element.text(&mut [0; I64_TEXT_BYTES_MAX]).to_vec()
}

fn read(entry: Entry) -> (Id, Vec<Pair>) {
    assert_eq!(entry.pairs().len(), entry.field_count());
    (entry.id, entry.pairs().map(|(field, value)| (text(field), text(value))).collect())
}

fn any_text(rng: &mut fastrand::Rng) -> Vec<u8> {
    match rng.u8(..10) {
        0 => Vec::new(),
        1..4 => rng.i64(-200..200).to_string().into_bytes(),
        4 => (rng.i64(..) >> rng.u32(..64)).to_string().into_bytes(),
        5 => vec![rng.u8(..); rng.usize(..6000)],
        _ => (0..rng.usize(..20)).map(|_| rng.u8(..)).collect(),
    }
}

fn any_pairs(rng: &mut fastrand::Rng, fields: &[Vec<u8>]) -> Vec<Pair> {
    if rng.u8(..4) > 0 {
        return fields.iter().map(|field| (field.clone(), any_text(rng))).collect();
    }
    (0..rng.usize(1..5)).map(|_| (any_text(rng), any_text(rng))).collect()
}

fn any_id(rng: &mut fastrand::Rng, model: &Model) -> Id {
    let near = |id: Id, rng: &mut fastrand::Rng| match rng.u8(..4) {
        0 => id.next().unwrap_or(id),
        1 => id.prev().unwrap_or(id),
        _ => id,
    };
    match rng.u8(..8) {
        0 => Id::MIN,
        1 => Id::MAX,
        2 => near(model.last, rng),
        3 => Id::new(rng.u64(..=model.last.ms), rng.u64(..3)),
        _ => {
            let nth = rng.usize(..model.entries.len().max(1));
            near(model.entries.keys().nth(nth).copied().unwrap_or_default(), rng)
        }
    }
}

impl Model {
    fn append(&mut self, log: &mut Log, rng: &mut fastrand::Rng, pairs: Vec<Pair>, limits: ChunkLimits) {
        let wanted = match rng.u8(..6) {
            0 => NewId::Auto,
            1 => NewId::AutoSeq(self.last.ms + rng.u64(..2)),
            2 => NewId::Exact(any_id(rng, self)),
            _ => NewId::Exact(Id::new(self.last.ms + rng.u64(..100), rng.u64(..2) * rng.u64(..1 << 40))),
        };
        // Now and then the wall clock stands still or goes back.
        let now_ms = (self.last.ms + 10).saturating_sub(rng.u64(..20));
        let Ok(id) = log.next_id(wanted, now_ms) else {
            if let NewId::Exact(id) = wanted {
                assert!(id <= self.last);
            }
            return;
        };
        assert!(id > self.last && (wanted == NewId::Exact(id) || !matches!(wanted, NewId::Exact(_))));
        if id.ms > 1 << 60 {
            // The end of all ids would end the test.
            return;
        }
        let args: Vec<&[u8]> = pairs.iter().flat_map(|(field, value)| [&field[..], value]).collect();
        let bytes = Log::check_size(args.iter().copied()).unwrap();
        log.append(id, args.iter().copied(), bytes, limits);
        self.entries.insert(id, pairs);
        self.last = id;
        self.added += 1;
    }

    fn delete(&mut self, log: &mut Log, id: Id) {
        let found = self.entries.remove(&id).is_some();
        if found {
            self.max_deleted = self.max_deleted.max(id);
        }
        assert_eq!(log.delete(id), found);
    }

    /// Goes back as far as the last entry that lives, or on.
    fn set_id(&mut self, log: &mut Log, rng: &mut fastrand::Rng) {
        let top = self.entries.keys().next_back().copied();
        let id = match rng.u8(..4) {
            0 => Id::new(self.last.ms + rng.u64(..10), rng.u64(..3)),
            1 => top.unwrap_or_default(),
            2 => Id::new(rng.u64(top.map_or(0, |top| top.ms)..=self.last.ms), rng.u64(..3)),
            _ => any_id(rng, self),
        };
        if id.ms > 1 << 60 {
            return;
        }
        let expected = match top {
            _ if id < log.max_deleted_id() => Err(SetIdError::BelowDeleted),
            Some(top) if id < top => Err(SetIdError::BelowTop),
            _ => Ok(()),
        };
        assert_eq!(log.set_id(id, None, Id::MIN), expected);
        if expected.is_ok() {
            self.last = id;
        }
    }

    fn trim(&mut self, log: &mut Log, trim: Trim) {
        let exact = match trim.to {
            TrimTo::Len(len) => (self.entries.len() as u64).saturating_sub(len),
            TrimTo::Id(id) => self.entries.range(..id).count() as u64,
        };
        let gone = log.trim(trim);
        let chunks = log.chunk_count();
        if trim.approximate {
            assert!(gone <= exact && (trim.limit == 0 || gone <= trim.limit));
            let again = log.trim(trim);
            assert!(trim.limit > 0 || again == 0, "what could go has gone");
            assert_eq!(chunks == log.chunk_count(), again == 0, "nothing but whole chunks goes");
            (0..again).for_each(|_| drop(self.entries.pop_first()));
        } else {
            assert_eq!(gone, exact);
        }
        (0..gone).for_each(|_| drop(self.entries.pop_first()));
    }

    fn compare(&self, log: &Log, rng: &mut fastrand::Rng) {
        assert_eq!(log.len(), self.entries.len() as u64);
        assert_eq!((log.last_id(), log.entries_added()), (self.last, self.added));
        assert_eq!(log.max_deleted_id(), self.max_deleted);
        assert_eq!(log.first_id(), self.entries.keys().next().copied().unwrap_or_default());
        assert_eq!(log.last_live_id(), self.entries.keys().next_back().copied());
        let (start, end) = (any_id(rng, self), any_id(rng, self));
        let expected = || self.entries.iter().filter(|(id, _)| (start..=end).contains(*id));
        assert_eq!(log.range(start, end).count(), expected().count(), "{start} {end}");
        let same = |(entry, (id, pairs)): (Entry, (&Id, &Vec<Pair>))| read(entry) == (*id, pairs.clone());
        assert!(log.range(start, end).zip(expected()).take(50).all(same), "{start} {end}");
        assert_eq!(log.range_back(start, end).count(), expected().count(), "{start} {end}");
        assert!(log.range_back(start, end).zip(expected().rev()).take(50).all(same), "{start} {end}");
        assert_eq!(log.get(start).map(read), self.entries.get(&start).map(|pairs| (start, pairs.clone())));
    }
}

#[test]
fn a_log_does_as_its_model() {
    for seed in 0..if cfg!(miri) { 2 } else { 40 } {
        let mut rng = fastrand::Rng::with_seed(seed);
        let limits = ChunkLimits { bytes: [0, 100, 4096][rng.usize(..3)], entries: [0, 1, 3, 100][rng.usize(..4)] };
        let fields = [b"name".to_vec(), b"7".to_vec(), Vec::new()];
        let (mut log, mut model) = (Log::default(), Model::default());
        for _ in 0..if cfg!(miri) { 100 } else { 1500 } {
            match rng.u8(..20) {
                0..12 => {
                    let pairs = any_pairs(&mut rng, &fields);
                    model.append(&mut log, &mut rng, pairs, limits);
                }
                12..17 => {
                    let id = any_id(&mut rng, &model);
                    model.delete(&mut log, id);
                }
                17 => {
                    for _ in 0..rng.u8(..4) {
                        let top = model.entries.keys().next_back().copied().unwrap_or_default();
                        model.delete(&mut log, top);
                    }
                }
                18 => model.set_id(&mut log, &mut rng),
                _ => {
                    let to = if rng.bool() {
                        TrimTo::Len((model.entries.len() as u64 + 3).saturating_sub(rng.u64(..10)))
                    } else {
                        TrimTo::Id(model.entries.keys().nth(rng.usize(..10)).copied().unwrap_or_default())
                    };
                    let approximate = rng.bool();
                    let limit = if approximate { rng.u64(..3) * 2 } else { 0 };
                    model.trim(&mut log, Trim { to, approximate, limit });
                }
            }
            model.compare(&log, &mut rng);
        }
        let mut copy = log.clone();
        model.compare(&copy, &mut rng);
        assert!(log.bytes() > 0);
        while !copy.free_some(&mut 10) {}
        assert_eq!((copy.bytes(), copy.len(), copy.chunk_count()), (0, 0, 0));
        model.trim(&mut log, Trim { to: TrimTo::Len(0), approximate: false, limit: 0 });
        model.compare(&log, &mut rng);
        assert_eq!((log.bytes(), log.chunk_count()), (0, 0));
    }
}

#[test]
fn trimming_to_a_length_or_an_id_counts_only_what_lives() {
    let mut log = Log::default();
    let limits = ChunkLimits { bytes: 0, entries: 10 };
    for ms in 1..=100 {
        log.append(Id::new(ms, 0), [&b"f"[..], b"v"].into_iter(), 2, limits);
    }
    assert_eq!(log.chunk_count(), 10);
    for ms in 1..=5 {
        assert!(log.delete(Id::new(ms, 0)));
    }
    let approximate = |to| Trim { to, approximate: true, limit: 0 };
    assert_eq!(log.trim(approximate(TrimTo::Len(91))), 0, "the first chunk has five more");
    assert_eq!(log.trim(approximate(TrimTo::Len(90))), 5);
    assert_eq!(log.trim(approximate(TrimTo::Id(Id::new(20, 0)))), 0);
    assert_eq!(log.trim(approximate(TrimTo::Id(Id::new(20, 1)))), 10);
    assert_eq!(log.trim(Trim { to: TrimTo::Len(0), approximate: true, limit: 25 }), 20);
    assert_eq!((log.len(), log.first_id()), (60, Id::new(41, 0)));
    assert_eq!(log.max_deleted_id(), Id::new(5, 0), "trimming deletes in another way");
}

#[test]
fn a_chunk_whose_entries_are_gone_leaves_the_one_before_to_be_filled() {
    let mut log = Log::default();
    let limits = ChunkLimits { bytes: 0, entries: 3 };
    let append = |log: &mut Log, ms| log.append(Id::new(ms, 0), [&b"f"[..], b"v"].into_iter(), 2, limits);
    (1..=4).for_each(|ms| append(&mut log, ms));
    assert_eq!(log.chunk_count(), 2);
    assert!(log.delete(Id::new(4, 0)) && log.delete(Id::new(3, 0)));
    assert_eq!(log.chunk_count(), 1);
    append(&mut log, 5);
    assert_eq!(log.chunk_count(), 2, "deleted entries count as long as their chunk is there");
    assert!(!log.delete(Id::new(3, 0)) && !log.delete(Id::new(4, 0)));
    assert_eq!(log.range(Id::MIN, Id::MAX).map(|entry| entry.id.ms).collect::<Vec<_>>(), [1, 2, 5]);
}

/// As XDEL and XSETID leave it: the id that comes next is not above all that are in the chunk.
#[test]
fn an_id_is_found_behind_a_larger_one_that_was_deleted() {
    for entries in [0, 2] {
        let mut log = Log::default();
        let limits = ChunkLimits { bytes: 0, entries };
        let append = |log: &mut Log, ms| log.append(Id::new(ms, 0), [&b"f"[..], b"v"].into_iter(), 2, limits);
        let ids = |log: &Log| log.range(Id::MIN, Id::MAX).map(|entry| entry.id.ms).collect::<Vec<_>>();
        let back = |log: &Log| log.range_back(Id::MIN, Id::MAX).map(|entry| entry.id.ms).collect::<Vec<_>>();
        append(&mut log, 5);
        append(&mut log, 10);
        assert!(log.delete(Id::new(10, 0)));
        // What was deleted is forgotten: only then may the id go back behind it.
        log.set_id(Id::new(10, 0), None, Id::new(1, 0)).unwrap();
        log.set_id(Id::new(6, 0), None, Id::MIN).unwrap();
        append(&mut log, 7);
        append(&mut log, 10);
        assert_eq!((ids(&log), back(&log)), (vec![5, 7, 10], vec![10, 7, 5]));
        for ms in [7, 10] {
            assert_eq!(log.get(Id::new(ms, 0)).map(|entry| entry.id.ms), Some(ms));
            assert!(log.delete(Id::new(ms, 0)), "{ms}");
        }
        assert_eq!(ids(&log), [5]);
    }
}

#[test]
#[cfg_attr(miri, ignore = "about bytes of a long stream")]
fn memory_of_deleted_entries_is_given_back() {
    let mut log = Log::default();
    let limits = ChunkLimits { bytes: 4096, entries: 100 };
    for ms in 1..=10_000 {
        log.append(Id::new(ms, 0), [&b"field"[..], &[b'v'; 30]].into_iter(), 35, limits);
    }
    let full = log.bytes();
    assert!(full < 10_000 * 45, "{full}");
    for ms in (1..=10_000).filter(|ms| ms % 20 > 0) {
        assert!(log.delete(Id::new(ms, 0)));
    }
    assert_eq!(log.len(), 500);
    assert!(log.bytes() * 3 < full, "{} of {full}", log.bytes());
}

/// Ids that are delivered and acknowledged, with a group and with a map.
#[test]
fn groups_do_as_their_model() {
    for seed in 0..if cfg!(miri) { 1 } else { 40 } {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut groups = Groups::default();
        assert!(groups.create(b"g", Id::MIN, None) && !groups.create(b"g", Id::MAX, None));
        let mut model: BTreeMap<Id, (Vec<u8>, i64, u64)> = BTreeMap::new();
        let mut names: std::collections::BTreeSet<Vec<u8>> = Default::default();
        for now_ms in 0..if cfg!(miri) { 150 } else { 1000 } {
            let name = format!("consumer {}", rng.u8(..8)).into_bytes();
            let id = Id::new(rng.u64(..50), rng.u64(..2));
            match rng.u8(..10) {
                0 => assert_eq!(
                    groups.change(b"g", |group| group.create_consumer(&name, now_ms).is_some()),
                    Some(names.insert(name))
                ),
                1 => {
                    let before = model.len();
                    model.retain(|_, (of, ..)| *of != name);
                    let expected = names.remove(&name).then_some(before - model.len());
                    assert_eq!(groups.change(b"g", |group| group.delete_consumer(&name)), Some(expected));
                }
                2..4 => {
                    let expected = model.remove(&id).is_some();
                    assert_eq!(groups.change(b"g", |group| group.acknowledge(id)), Some(expected));
                }
                _ => {
                    let assign = |group: &mut Group| {
                        let consumer = group.find_consumer(&name)?;
                        let deliveries = group.pending(id).map_or(1, |pending| pending.deliveries + 1);
                        group.assign(id, Pending { consumer, delivered_ms: now_ms, deliveries });
                        Some(deliveries)
                    };
                    if let Some(deliveries) = groups.change(b"g", assign).unwrap() {
                        model.insert(id, (name, now_ms, deliveries));
                    }
                }
            }
            let group = groups.get(b"g").unwrap();
            let shown = |(id, pending): (Id, Pending)| {
                (id, (group.consumer(pending.consumer).name().to_vec(), pending.delivered_ms, pending.deliveries))
            };
            assert!(group.pending_from(Id::MIN).map(shown).eq(model.clone()));
            assert!(group.pending_from(id).map(shown).eq(model.range(id..).map(|(id, what)| (*id, what.clone()))));
            assert_eq!(group.pending_ends().map(|(first, _)| first), model.keys().next().copied());
            assert_eq!(group.pending_ends().map(|(_, last)| last), model.keys().next_back().copied());
            assert!(group.consumers().map(|(_, consumer)| consumer.name()).eq(names.iter().map(|name| &name[..])));
            for (key, consumer) in group.consumers() {
                let mine = || model.iter().filter(|(_, (name, ..))| name == consumer.name());
                assert_eq!(consumer.pending_count(), mine().count());
                assert_eq!(group.find_consumer(consumer.name()), Some(key));
                assert!(group.pending_with(key, Id::MIN).map(|(id, _)| id).eq(mine().map(|(id, _)| *id)));
            }
        }
        assert!(groups.bytes() > model.len() * 56);
        let mut copy = groups.clone();
        while !copy.free_some(&mut 7) {}
        assert!(groups.destroy(b"g") && !groups.destroy(b"g"));
        assert_eq!(groups.bytes(), 0);
    }
}

#[test]
fn what_a_group_has_read_is_counted_while_nothing_is_missing_ahead() {
    let mut log = Log::default();
    let limits = ChunkLimits { bytes: 0, entries: 0 };
    let id = |ms| Id::new(ms, 1);
    (1..=5).for_each(|ms| log.append(id(ms), [&b"f"[..], b"v"].into_iter(), 2, limits));
    log.delete(id(1));
    let mut group = Groups::default();
    group.create(b"g", Id::MIN, None);
    let lag =
        |groups: &Groups, log: &Log| groups.get(b"g").map(|group| (group.entries_read(), group.lag(log))).unwrap();
    assert_eq!(lag(&group, &log), (None, Some(4)));
    group.change(b"g", |group| group.advance(&log, id(2)));
    assert_eq!(lag(&group, &log), (Some(2), Some(3)));
    log.delete(id(4));
    assert_eq!(lag(&group, &log), (Some(2), None));
    group.change(b"g", |group| group.advance(&log, id(3)));
    assert_eq!(lag(&group, &log), (None, None));
    group.change(b"g", |group| group.advance(&log, id(5)));
    assert_eq!(lag(&group, &log), (Some(5), Some(0)));
    group.change(b"g", |group| group.set_position(Id::new(9, 9), None));
    assert_eq!(lag(&group, &log), (None, None));
    group.change(b"g", |group| group.set_position(Id::new(2, 5), None));
    log.trim(Trim { to: TrimTo::Len(0), approximate: false, limit: 0 });
    assert_eq!(lag(&group, &log), (None, Some(0)));
}

/// The entries that may go, through chunks of any size, beside a list that is gone through from the front.
#[test]
fn a_trim_that_asks_takes_what_may_go_up_to_where_it_ends() {
    for seed in 0..200 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let limits = ChunkLimits { bytes: 0, entries: rng.usize(1..6) };
        let (mut log, mut model) = (Log::default(), Vec::new());
        for ms in 1..=rng.u64(1..40) {
            log.append(Id::new(ms, 0), [&b"f"[..], b"v"].into_iter(), 2, limits);
            model.push(ms);
        }
        for _ in 0..rng.usize(..5) {
            let ms = rng.u64(1..40);
            log.delete(Id::new(ms, 0));
            model.retain(|kept| *kept != ms);
        }
        let stays: Vec<u64> = (1..=40).filter(|_| rng.bool()).collect();
        let least = rng.u64(1..45);
        let max_deleted = log.max_deleted_id();
        let trim = Trim { to: TrimTo::Id(Id::new(least, 0)), approximate: false, limit: 0 };
        let mut asked = Vec::new();
        let (count, end) = log.trim_each(trim, |id| {
            asked.push(id.ms);
            !stays.contains(&id.ms)
        });
        assert!(asked.iter().copied().eq(model.iter().copied().filter(|ms| *ms < least)), "seed {seed}");
        let before = model.len();
        model.retain(|ms| *ms >= least || stays.contains(ms));
        assert_eq!(count as usize, before - model.len());
        assert_eq!((log.len() as usize, log.max_deleted_id()), (model.len(), max_deleted), "seed {seed}");
        assert!(log.range(Id::MIN, Id::MAX).map(|entry| entry.id.ms).eq(model.iter().copied()));
        assert_eq!(log.first_id().ms, model.first().copied().unwrap_or(0));
        // Again, up to the same end, whatever the chunks are: nothing more goes.
        if let Some(to) = end {
            let again = Trim { to: TrimTo::Id(to), approximate: false, limit: 0 };
            assert_eq!(log.trim_each(again, |id| !stays.contains(&id.ms)).0, 0);
        }
        let most = rng.u64(..45);
        let trim = Trim { to: TrimTo::Len(most), approximate: false, limit: 0 };
        let before = model.clone();
        let (count, end) = log.trim_each(trim, |id| !stays.contains(&id.ms));
        let left: Vec<u64> = log.range(Id::MIN, Id::MAX).map(|entry| entry.id.ms).collect();
        assert_eq!(count as usize, before.len() - left.len());
        assert!(left.len() as u64 >= most.min(before.len() as u64), "no more than it takes");
        let end = end.expect("no id is the last");
        let expected =
            before.iter().copied().filter(|ms| *ms >= end.ms && Id::new(*ms, 0) >= end || stays.contains(ms));
        assert!(left.iter().copied().eq(expected), "seed {seed}: all that may go ahead of the end are gone");
    }
}
