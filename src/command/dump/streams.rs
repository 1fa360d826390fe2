//! Streams to RDB form and back. Times there are those of the wall clock.

use super::Wall;
use crate::keyspace::Owned;
use crate::rdb::stream::{self, StreamWriter};
use crate::rdb::{EntryTexts, Error, Result};
use crate::value::pack::Element;
use crate::value::stream::{
    CHUNK_BYTES_MAX, Chunk, ChunkLimits, Consumer, ConsumerKey, Group, Id, Log, Pending, Run, RunTexts, Stream,
};

/// Appends type and value.
pub fn write(out: &mut Vec<u8>, stream: &Stream, wall: Wall) {
    let log = &stream.log;
    let mut writer = StreamWriter::new(out);
    let mut texts: Vec<Element> = Vec::new();
    for chunk in log.chunks() {
        texts.clear();
        texts.extend(chunk.fields());
        writer.run(&texts);
        for entry in chunk.entries() {
            texts.clear();
            if entry.shares_fields() {
                texts.extend(entry.pairs().map(|(_, value)| value));
                writer.entry(entry.id, EntryTexts::Values(&texts));
            } else {
                texts.extend(entry.pairs().flat_map(|(field, value)| [field, value]));
                writer.entry(entry.id, EntryTexts::Pairs(&texts));
            }
        }
    }
    writer.finish(&beside_entries(stream, wall));
}

/// All that is not in the entries.
pub fn beside_entries(Stream { log, groups }: &Stream, wall: Wall) -> stream::Stream {
    stream::Stream {
        last_id: log.last_id(),
        max_deleted_id: log.max_deleted_id(),
        entries_added: log.entries_added() as u64,
        groups: groups.iter().map(|(name, group)| group_to_rdb(name, group, wall)).collect(),
    }
}

/// What stands before and behind the chunks of a stream.
pub fn frame(head: &mut Vec<u8>, foot: &mut Vec<u8>, of: &Stream, wall: Wall) {
    stream::head(head, of.log.chunk_count());
    stream::foot(foot, of.log.len(), of.log.first_id(), &beside_entries(of, wall));
}

/// Appends a chunk.
pub fn part(out: &mut Vec<u8>, chunk: &Chunk) {
    let fields: Vec<Element> = chunk.fields().collect();
    let entries = chunk.entries().map(|entry| {
        let shares_fields = entry.shares_fields();
        let texts = if shares_fields {
            entry.pairs().map(|(_, value)| value).collect()
        } else {
            entry.pairs().flat_map(|(field, value)| [field, value]).collect()
        };
        (entry.id, shares_fields, texts)
    });
    stream::node(out, chunk.first(), &fields, entries);
}

fn group_to_rdb(name: &[u8], group: &Group, wall: Wall) -> stream::Group {
    // Their order is what the pending entries refer to.
    let keys: Vec<ConsumerKey> = group.consumers().map(|(key, _)| key).collect();
    let mut positions = vec![0; keys.iter().max().map_or(0, |max| max + 1)];
    keys.iter().enumerate().for_each(|(position, key)| positions[*key] = position);
    let consumer = |consumer: &Consumer| stream::Consumer {
        name: consumer.name().to_vec(),
        seen_ms: wall.of_signed_ms(consumer.seen_ms),
        active_ms: consumer.active_ms.map(|ms| wall.of_signed_ms(ms)),
    };
    let pending = |(id, pending): (Id, Pending)| stream::Pending {
        id,
        delivered_ms: wall.of_signed_ms(pending.delivered_ms),
        deliveries: pending.deliveries,
        owner: positions[pending.consumer],
    };
    stream::Group {
        name: name.to_vec(),
        last_id: group.last_delivered(),
        entries_read: group.entries_read().map(|read| read as u64),
        consumers: group.consumers().map(|(_, of)| consumer(of)).collect(),
        pending: group.pending_from(Id::MIN).map(pending).collect(),
    }
}

/// A stream that is being read.
#[derive(Default)]
pub struct Gathered {
    stream: Stream,
    /// What comes now belongs to.
    run: Option<Run>,
    /// Something in it can be in no stream.
    corrupt: bool,
}

impl Gathered {
    /// Entries come that were kept together, and may share these fields.
    pub fn run(&mut self, fields: &[Element]) {
        self.run = Some(Run::of(fields.iter().map(|field| field.to_vec()).collect()));
    }

    /// The next of them.
    pub fn entry<'p>(
        &mut self,
        id: Id,
        texts: RunTexts<impl ExactSizeIterator<Item = &'p [u8]> + Clone>,
        limits: ChunkLimits,
    ) {
        let log = &mut self.stream.log;
        let own = match &texts {
            RunTexts::Values(texts) | RunTexts::Pairs(texts) => Log::check_size(texts.clone()),
        };
        match (own, &mut self.run) {
            (Ok(own), Some(run)) if run.field_bytes() + own <= CHUNK_BYTES_MAX && id > log.last_id() => {
                log.append_to_run(id, run, texts, limits);
            }
            _ => self.corrupt = true,
        }
    }

    /// All that is not in the entries.
    pub fn finish(&mut self, read: stream::Stream, wall: Wall) {
        let Stream { log, groups } = &mut self.stream;
        let added = read.entries_added as i64;
        self.corrupt |= log.set_id(read.last_id, Some(added), read.max_deleted_id).is_err();
        for of in read.groups {
            groups.create(&of.name, of.last_id, of.entries_read.map(|read| read as i64));
            groups.change(&of.name, |group| fill(group, &of, wall));
        }
    }

    pub fn into_value(self) -> Result<Owned> {
        if self.corrupt { Err(Error::Corrupt("a stream")) } else { Ok(Owned::node(self.stream)) }
    }
}

fn fill(group: &mut Group, of: &stream::Group, wall: Wall) {
    let mut keys = Vec::with_capacity(of.consumers.len());
    for consumer in &of.consumers {
        let (key, _) = group.find_or_create_consumer(&consumer.name, wall.to_signed_ms(consumer.seen_ms));
        group.consumer_mut(key).active_ms = consumer.active_ms.map(|ms| wall.to_signed_ms(ms));
        keys.push(key);
    }
    for pending in &of.pending {
        let (delivered_ms, deliveries) = (wall.to_signed_ms(pending.delivered_ms), pending.deliveries);
        group.assign(pending.id, Pending { consumer: keys[pending.owner], delivered_ms, deliveries });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdb::{Reader, Sink, decode};

    const LIMITS: ChunkLimits = ChunkLimits { bytes: 4096, entries: 100 };

    /// What is read of a stream; nothing else comes.
    struct Read(Gathered);

    impl Sink for Read {
        fn run(&mut self, fields: &[Element]) {
            self.0.run(fields);
        }

        fn entry(&mut self, id: Id, texts: EntryTexts) {
            let own = |elements: &[Element]| elements.iter().map(|element| element.to_vec()).collect::<Vec<_>>();
            match texts {
                EntryTexts::Values(values) => {
                    self.0.entry(id, RunTexts::Values(own(values).iter().map(Vec::as_slice)), LIMITS);
                }
                EntryTexts::Pairs(pairs) => {
                    self.0.entry(id, RunTexts::Pairs(own(pairs).iter().map(Vec::as_slice)), LIMITS);
                }
            }
        }

        fn stream(&mut self, stream: stream::Stream) {
            assert!(stream.groups.is_empty());
            self.0.corrupt |= self.0.stream.log.set_id(stream.last_id, None, stream.max_deleted_id).is_err();
        }

        fn string(&mut self, _: Element) {}
        fn element(&mut self, _: Element) {}
        fn member(&mut self, _: Element, _: Option<u64>) {}
        fn scored(&mut self, _: Element, _: f64, _: Option<u64>) {}
        fn field(&mut self, _: Element, _: Element, _: Option<u64>) {}
    }

    fn read(payload: &[u8]) -> Log {
        let mut read = Read(Gathered::default());
        decode(&mut Reader::new(payload, usize::MAX), &mut read).expect("a stream");
        assert!(!read.0.corrupt);
        read.0.stream.log
    }

    type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

    fn entries(log: &Log) -> Vec<(Id, Pairs)> {
        let pairs = |entry: crate::value::stream::Entry| {
            entry.pairs().map(|(field, value)| (field.to_vec(), value.to_vec())).collect()
        };
        log.range(Id::MIN, Id::MAX).map(|entry| (entry.id, pairs(entry))).collect()
    }

    /// A field name of 1 MB that 80,000 entries shared was copied for each of them: 80 GB.
    #[test]
    fn fields_that_entries_share_are_kept_once() {
        let long = vec![b'f'; 10_000];
        for own_every in [usize::MAX, 2, 3, 50] {
            let mut payload = Vec::new();
            let mut writer = StreamWriter::new(&mut payload);
            writer.run(&[Element::Bytes(&long), Element::Bytes(b"g")]);
            let mut expected = Vec::new();
            for n in 1..=1000usize {
                let (id, value) = (Id::new(n as u64, 0), Element::Int(n as i64));
                if n.is_multiple_of(own_every) {
                    writer.entry(id, EntryTexts::Pairs(&[Element::Bytes(b"own"), value]));
                    expected.push((id, vec![(b"own".to_vec(), value.to_vec())]));
                } else {
                    writer.entry(id, EntryTexts::Values(&[value, value]));
                    expected.push((id, vec![(long.clone(), value.to_vec()), (b"g".to_vec(), value.to_vec())]));
                }
            }
            writer.finish(&stream::Stream { last_id: Id::new(1000, 0), entries_added: 1000, ..Default::default() });
            assert!(payload.len() < 100_000, "{} bytes", payload.len());
            let log = read(&payload);
            assert!(log.bytes() < 100_000, "{} bytes", log.bytes());
            assert!(entries(&log) == expected);
            assert_eq!(log.len(), 1000);
            let mut again = Vec::new();
            write(&mut again, &Stream { log, groups: Default::default() }, Wall::since_1970());
            assert!(again.len() < 100_000, "{} bytes", again.len());
            assert!(entries(&read(&again)) == expected);
        }
    }

    /// Short fields do not keep entries in one chunk, through which one would walk from its start.
    #[test]
    fn a_long_run_becomes_chunks() {
        let mut gathered = Gathered::default();
        gathered.run(&[Element::Bytes(b"field")]);
        for n in 1..=10_000 {
            gathered.entry(Id::new(n, 0), RunTexts::Values([&b"value"[..]].into_iter()), LIMITS);
        }
        assert!(gathered.stream.log.chunk_count() >= 100);
        assert_eq!(gathered.stream.log.len(), 10_000);
    }
}
