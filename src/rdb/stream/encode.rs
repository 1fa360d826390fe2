//! Writing streams.

use super::super::listpack::{EMPTY_BYTES, Listpack};
use super::super::{EntryTexts, kind, write};
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
    /// Fields that the entries of the run may share, and the bytes of their texts.
    shared: Listpack,
    shared_bytes: usize,
    /// The node has the same.
    shares_with_node: bool,
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
        StreamWriter {
            out,
            nodes_at,
            nodes: 0,
            node: None,
            shared: Listpack::new(),
            shared_bytes: 0,
            shares_with_node: false,
            entries: 0,
            first_id: Id::default(),
        }
    }

    /// Entries come that may share these fields.
    pub fn run(&mut self, fields: &[Element]) {
        self.shared = listpack(fields.iter());
        self.shared_bytes = fields.iter().map(|element| element.text_len()).sum();
        self.shares_with_node = self.node.as_ref().is_some_and(|node| node.names == self.shared);
    }

    pub fn entry(&mut self, id: Id, texts: EntryTexts) {
        let text_bytes = |texts: &[Element]| texts.iter().map(|element| element.text_len()).sum::<usize>();
        let added_bytes = match texts {
            EntryTexts::Values(values) => self.shared_bytes + text_bytes(values),
            EntryTexts::Pairs(pairs) => text_bytes(pairs),
        };
        if self.node.as_ref().is_some_and(|node| node.is_full(added_bytes)) {
            self.end_node();
        }
        if self.entries == 0 {
            self.first_id = id;
        }
        self.entries += 1;
        let own_names = match texts {
            EntryTexts::Values(_) => None,
            EntryTexts::Pairs(pairs) => Some(listpack(pairs.iter().step_by(2))),
        };
        let node = match &mut self.node {
            Some(node) => node,
            none => {
                let names = own_names.clone().unwrap_or_else(|| self.shared.clone());
                let node = none.insert(Node::new(id, names));
                self.shares_with_node = node.names == self.shared;
                node
            }
        };
        match texts {
            EntryTexts::Values(values) if self.shares_with_node => node.values(id, values.iter().copied()),
            EntryTexts::Values(values) => {
                node.pairs(id, self.shared.iter().zip(values).flat_map(|(name, value)| [name, *value]))
            }
            EntryTexts::Pairs(pairs) if own_names.as_ref() == Some(&node.names) => {
                node.values(id, pairs.iter().skip(1).step_by(2).copied());
            }
            EntryTexts::Pairs(pairs) => node.pairs(id, pairs.iter().copied()),
        }
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

    /// Whether an entry of so many bytes is one too many. The next node may have the same fields again, of which there is
    /// not more than of entries.
    fn is_full(&self, added_bytes: usize) -> bool {
        let past_limits =
            self.entries >= NODE_ENTRIES_MAX || self.head_bytes + self.body.len() + added_bytes >= NODE_BYTES_MAX;
        past_limits && self.body.len() + NODE_BYTES_MAX >= self.names.len()
    }

    /// An entry with the fields of the node.
    fn values<'a>(&mut self, id: Id, values: impl Iterator<Item = Element<'a>>) {
        self.entry(id, SAME_FIELDS, None, values);
    }

    /// An entry with its own.
    fn pairs<'a>(&mut self, id: Id, pairs: impl Iterator<Item = Element<'a>> + Clone) {
        let fields = pairs.clone().count() / 2;
        self.entry(id, 0, Some(fields), pairs);
    }

    fn entry<'a>(&mut self, id: Id, flags: i64, own_fields: Option<usize>, texts: impl Iterator<Item = Element<'a>>) {
        let body = &mut self.body;
        let before = body.count();
        body.push(Element::Int(flags));
        body.push(Element::Int(id.ms.wrapping_sub(self.master.ms).cast_signed()));
        body.push(Element::Int(id.seq.wrapping_sub(self.master.seq).cast_signed()));
        if let Some(fields) = own_fields {
            body.push(Element::Int(fields as i64));
        }
        texts.for_each(|text| body.push(text));
        body.push(Element::Int((body.count() - before) as i64));
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

fn listpack<'e, 'a: 'e>(elements: impl Iterator<Item = &'e Element<'a>>) -> Listpack {
    let mut listpack = Listpack::new();
    elements.for_each(|element| listpack.push(*element));
    listpack
}

fn id_bytes(id: Id) -> [u8; 16] {
    (u128::from(id.ms) << 64 | u128::from(id.seq)).to_be_bytes()
}
