//! Writing streams.

use super::super::listpack::{EMPTY_BYTES, Listpack};
use super::super::{kind, write};
use super::{Group, SAME_FIELDS, Stream, UNKNOWN};
use crate::value::pack::Element;
use crate::value::stream::Id;

/// Redis' defaults of `stream-node-max-bytes` and `stream-node-max-entries`.
const NODE_BYTES_MAX: usize = 4096;
const NODE_ENTRIES_MAX: usize = 100;

/// Writes one stream, its type first: all entries, ascending, then the rest.
pub struct StreamWriter<'o> {
    out: &'o mut Vec<u8>,
    /// Where the number of nodes belongs.
    nodes_at: usize,
    nodes: u64,
    node: Option<Node>,
    entries: u64,
    first_id: Id,
}

/// The node that is being written.
struct Node {
    master: Id,
    /// Fields of its first entry.
    names: Listpack,
    /// Length of what stands in front of the entries.
    head_bytes: usize,
    entries: usize,
    body: Listpack,
}

impl<'o> StreamWriter<'o> {
    pub fn new(out: &'o mut Vec<u8>) -> StreamWriter<'o> {
        out.push(kind::STREAM_LISTPACKS_2);
        let nodes_at = out.len();
        StreamWriter { out, nodes_at, nodes: 0, node: None, entries: 0, first_id: Id::default() }
    }

    /// Fields and values alternate.
    pub fn entry(&mut self, id: Id, fields: &[Element]) {
        let mut names = Listpack::new();
        fields.iter().step_by(2).for_each(|name| names.push(*name));
        let added_bytes: usize = fields.iter().map(|element| element.text_len()).sum();
        if self.node.as_ref().is_some_and(|node| node.is_full(added_bytes)) {
            self.end_node();
        }
        if self.entries == 0 {
            self.first_id = id;
        }
        self.entries += 1;
        self.node.get_or_insert_with(|| Node::new(id, names.clone())).entry(id, &names, fields);
    }

    fn end_node(&mut self) {
        let Some(node) = self.node.take() else { return };
        write::blob(self.out, &id_bytes(node.master));
        write::blob(self.out, &node.finish());
        self.nodes += 1;
    }

    /// The last ID is none below the last entry's.
    pub fn finish(mut self, stream: &Stream) {
        self.end_node();
        write::len_at(self.out, self.nodes_at, self.nodes);
        write::len(self.out, self.entries);
        self.id(stream.last_id);
        self.id(self.first_id);
        self.id(stream.max_deleted_id);
        write::len(self.out, stream.entries_added);
        write::len(self.out, stream.groups.len() as u64);
        stream.groups.iter().for_each(|group| self.group(group));
    }

    fn id(&mut self, id: Id) {
        write::len(self.out, id.ms);
        write::len(self.out, id.seq);
    }

    fn group(&mut self, group: &Group) {
        write::element(self.out, Element::Bytes(&group.name));
        self.id(group.last_id);
        write::len(self.out, group.entries_read.unwrap_or(UNKNOWN));
        write::len(self.out, group.pending.len() as u64);
        for pending in &group.pending {
            self.out.extend_from_slice(&id_bytes(pending.id));
            self.out.extend_from_slice(&pending.delivered_ms.to_le_bytes());
            write::len(self.out, pending.deliveries);
        }
        let mut owned = vec![Vec::new(); group.consumers.len()];
        group.pending.iter().for_each(|pending| owned[pending.owner].push(pending.id));
        write::len(self.out, group.consumers.len() as u64);
        for (consumer, owned) in group.consumers.iter().zip(owned) {
            write::element(self.out, Element::Bytes(&consumer.name));
            self.out.extend_from_slice(&consumer.seen_ms.to_le_bytes());
            write::len(self.out, owned.len() as u64);
            owned.into_iter().for_each(|id| self.out.extend_from_slice(&id_bytes(id)));
        }
    }
}

impl Node {
    fn new(master: Id, names: Listpack) -> Node {
        let mut node = Node { master, names, head_bytes: 0, entries: 0, body: Listpack::new() };
        node.head_bytes = node.head().len() - EMPTY_BYTES;
        node
    }

    /// Whether an entry of so many bytes is one too many.
    fn is_full(&self, added_bytes: usize) -> bool {
        self.entries >= NODE_ENTRIES_MAX || self.head_bytes + self.body.len() + added_bytes >= NODE_BYTES_MAX
    }

    fn entry(&mut self, id: Id, names: &Listpack, fields: &[Element]) {
        let same = *names == self.names;
        let body = &mut self.body;
        body.push(Element::Int(if same { SAME_FIELDS } else { 0 }));
        body.push(Element::Int(id.ms.wrapping_sub(self.master.ms).cast_signed()));
        body.push(Element::Int(id.seq.wrapping_sub(self.master.seq).cast_signed()));
        if same {
            fields.iter().skip(1).step_by(2).for_each(|value| body.push(*value));
            body.push(Element::Int(fields.len() as i64 / 2 + 3));
        } else {
            body.push(Element::Int(fields.len() as i64 / 2));
            fields.iter().for_each(|element| body.push(*element));
            body.push(Element::Int(fields.len() as i64 + 4));
        }
        self.entries += 1;
    }

    fn head(&self) -> Listpack {
        let mut head = Listpack::new();
        head.push(Element::Int(self.entries as i64));
        // None is deleted.
        head.push(Element::Int(0));
        head.push(Element::Int(self.names.count() as i64));
        head.append(&self.names);
        head.push(Element::Int(0));
        head
    }

    fn finish(self) -> Vec<u8> {
        let mut listpack = self.head();
        listpack.append(&self.body);
        listpack.finish()
    }
}

fn id_bytes(id: Id) -> [u8; 16] {
    (u128::from(id.ms) << 64 | u128::from(id.seq)).to_be_bytes()
}
