//! Streams to RDB form and back. Times there are those of the wall clock.

use super::Wall;
use crate::keyspace::Owned;
use crate::rdb::stream::{self, StreamWriter};
use crate::rdb::{Error, Result};
use crate::value::pack::Element;
use crate::value::stream::{ChunkLimits, Consumer, ConsumerKey, Group, Id, Log, Pending, Stream};

/// Appends type and value.
pub fn write(out: &mut Vec<u8>, Stream { log, groups }: &Stream, wall: Wall) {
    let mut writer = StreamWriter::new(out);
    let mut fields: Vec<Element> = Vec::new();
    for entry in log.range(Id::MIN, Id::MAX) {
        fields.clear();
        fields.extend(entry.pairs().flat_map(|(field, value)| [field, value]));
        writer.entry(entry.id, &fields);
    }
    writer.finish(&stream::Stream {
        last_id: log.last_id(),
        max_deleted_id: log.max_deleted_id(),
        entries_added: log.entries_added() as u64,
        groups: groups.iter().map(|(name, group)| group_to_rdb(name, group, wall)).collect(),
    });
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
    /// Something in it can be in no stream.
    corrupt: bool,
}

impl Gathered {
    /// The next entry; `pairs` are fields, each followed by its value.
    pub fn entry<'p>(&mut self, id: Id, pairs: impl ExactSizeIterator<Item = &'p [u8]> + Clone, limits: ChunkLimits) {
        let log = &mut self.stream.log;
        match Log::check_size(pairs.clone()) {
            Ok(text_bytes) if id > log.last_id() => log.append(id, pairs, text_bytes, limits),
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
