//! Writing streams.

use super::super::listpack::{EMPTY_BYTES, Listpack};
use super::super::{EntryTexts, kind, write};
use super::{Group, SAME_FIELDS, Stream, UNKNOWN};
use crate::value::pack::Element;
use crate::value::stream::Id;
use smallvec::SmallVec;

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
        node.write(self.out);
        self.nodes += 1;
    }

    /// The last ID is none below the last entry's.
    pub fn finish(mut self, stream: &Stream) {
        self.end_node();
        write::len_at(self.out, self.nodes_at, self.nodes);
        foot(self.out, self.entries, self.first_id, stream);
    }
}

/// What stands before so many times [`node`].
pub fn head(out: &mut Vec<u8>, nodes: usize) {
    out.push(kind::STREAM_LISTPACKS_2);
    write::len(out, nodes as u64);
}

/// Entries that are kept together, one at least, all in one node, with the fields that some of them share: of each its
/// id, whether its texts are the values of those, and the texts.
pub fn node<'a>(
    out: &mut Vec<u8>,
    master: Id,
    fields: &[Element<'a>],
    entries: impl Iterator<Item = (Id, bool, SmallVec<[Element<'a>; 16]>)>,
) {
    let mut node = Node::new(master, listpack(fields.iter()));
    for (id, shares_fields, texts) in entries {
        if shares_fields {
            node.values(id, texts.into_iter());
        } else {
            node.pairs(id, texts.iter().copied());
        }
    }
    node.write(out);
}

/// What stands behind the nodes, which have so many entries; the first one has this id.
pub fn foot(out: &mut Vec<u8>, entries: u64, first_id: Id, stream: &Stream) {
    write::len(out, entries);
    id(out, stream.last_id);
    id(out, first_id);
    id(out, stream.max_deleted_id);
    write::len(out, stream.entries_added);
    write::len(out, stream.groups.len() as u64);
    stream.groups.iter().for_each(|of| group(out, of));
}

fn id(out: &mut Vec<u8>, id: Id) {
    write::len(out, id.ms);
    write::len(out, id.seq);
}

fn group(out: &mut Vec<u8>, group: &Group) {
    write::element(out, Element::Bytes(&group.name));
    id(out, group.last_id);
    write::len(out, group.entries_read.unwrap_or(UNKNOWN));
    write::len(out, group.pending.len() as u64);
    for pending in &group.pending {
        out.extend_from_slice(&id_bytes(pending.id));
        out.extend_from_slice(&pending.delivered_ms.to_le_bytes());
        write::len(out, pending.deliveries);
    }
    let mut owned = vec![Vec::new(); group.consumers.len()];
    group.pending.iter().for_each(|pending| owned[pending.owner].push(pending.id));
    write::len(out, group.consumers.len() as u64);
    for (consumer, owned) in group.consumers.iter().zip(owned) {
        write::element(out, Element::Bytes(&consumer.name));
        out.extend_from_slice(&consumer.seen_ms.to_le_bytes());
        write::len(out, owned.len() as u64);
        owned.into_iter().for_each(|id| out.extend_from_slice(&id_bytes(id)));
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

    fn write(self, out: &mut Vec<u8>) {
        let mut listpack = self.head();
        listpack.append(&self.body);
        write::blob(out, &id_bytes(self.master));
        write::blob(out, &listpack.finish());
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
