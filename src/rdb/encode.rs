//! Writing values, their type first.

use super::listpack::Listpack;
use super::{container, intset, kind, write};
use crate::value::number::write_f64;
use crate::value::pack::Element;

/// Up to this a node of a list grows: Redis' default, `list-max-listpack-size -2`.
const NODE_BYTES_MAX: usize = 8192;
/// What Redis reckons for an element beside its text.
const ELEMENT_BYTES: usize = 8;
/// Up to this a score without a fraction is written as an integer.
const INTEGER_SCORE_MAX: f64 = (1u64 << 62) as f64;

pub fn string(out: &mut Vec<u8>, value: Element) {
    out.push(kind::STRING);
    write::element(out, value);
}

/// Elements from the left, one at least.
pub fn list<'a>(out: &mut Vec<u8>, elements: impl Iterator<Item = Element<'a>>) {
    out.push(kind::LIST_QUICKLIST_2);
    let nodes_at = out.len();
    let mut nodes = 0;
    let mut node = Listpack::new();
    for element in elements {
        if node.count() > 0 && node.len() + element.text_len() + ELEMENT_BYTES > NODE_BYTES_MAX {
            list_node(out, std::mem::replace(&mut node, Listpack::new()));
            nodes += 1;
        }
        node.push(element);
    }
    list_node(out, node);
    write::len_at(out, nodes_at, nodes + 1);
}

fn list_node(out: &mut Vec<u8>, node: Listpack) {
    write::len(out, container::PACKED);
    write::blob(out, &node.finish());
}

/// Integers in ascending order, one at least.
pub fn set_of_integers(out: &mut Vec<u8>, members: &[i64]) {
    out.push(kind::SET_INTSET);
    write::blob(out, &intset::of(members));
}

/// So many members, one at least.
pub fn set<'a>(out: &mut Vec<u8>, len: usize, members: impl Iterator<Item = Element<'a>>) {
    out.push(kind::SET);
    write::len(out, len as u64);
    members.for_each(|member| write::element(out, member));
}

/// Members by score, one at least, as `members` passes them on: for few, and for short ones.
pub fn zset_packed(out: &mut Vec<u8>, members: impl FnOnce(&mut dyn FnMut(Element, f64))) {
    out.push(kind::ZSET_LISTPACK);
    let mut listpack = Listpack::new();
    let mut text = Vec::new();
    members(&mut |member, score| {
        listpack.push(member);
        if score == score.trunc() && score.abs() <= INTEGER_SCORE_MAX {
            listpack.push(Element::Int(score as i64));
        } else {
            text.clear();
            write_f64(&mut text, score);
            listpack.push(Element::Bytes(&text));
        }
    });
    write::blob(out, &listpack.finish());
}

/// So many members, one at least; Redis begins with the greatest score.
pub fn zset(out: &mut Vec<u8>, len: usize, members: impl FnOnce(&mut dyn FnMut(Element, f64))) {
    out.push(kind::ZSET_2);
    write::len(out, len as u64);
    members(&mut |member, score| {
        write::element(out, member);
        out.extend_from_slice(&score.to_le_bytes());
    });
}

/// Fields and values, one pair at least: for few, and for short ones.
pub fn hash_packed<'a>(out: &mut Vec<u8>, fields: impl Iterator<Item = (Element<'a>, Element<'a>)>) {
    out.push(kind::HASH_LISTPACK);
    let mut listpack = Listpack::new();
    for (field, value) in fields {
        listpack.push(field);
        listpack.push(value);
    }
    write::blob(out, &listpack.finish());
}

/// So many fields and values, one pair at least.
pub fn hash<'a>(out: &mut Vec<u8>, len: usize, fields: impl Iterator<Item = (Element<'a>, Element<'a>)>) {
    out.push(kind::HASH);
    write::len(out, len as u64);
    for (field, value) in fields {
        write::element(out, field);
        write::element(out, value);
    }
}

/// So many fields, values and deadlines in milliseconds since 1970, none of which is before `earliest_ms`; one at least
/// has one.
pub fn hash_with_deadlines<'a>(
    out: &mut Vec<u8>,
    len: usize,
    earliest_ms: u64,
    fields: impl Iterator<Item = (Element<'a>, Element<'a>, Option<u64>)>,
) {
    out.push(kind::HASH_METADATA);
    out.extend_from_slice(&earliest_ms.to_le_bytes());
    write::len(out, len as u64);
    for (field, value, deadline_ms) in fields {
        write::len(out, deadline_ms.map_or(0, |deadline| deadline - earliest_ms + 1));
        write::element(out, field);
        write::element(out, value);
    }
}
