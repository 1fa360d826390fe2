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

/// What stands before the bytes of a string of this length, which are written as they are.
pub fn string_head(out: &mut Vec<u8>, bytes: usize) {
    out.push(kind::STRING);
    write::len(out, bytes as u64);
}

/// Elements from the left, one at least, as `elements` passes them on.
pub fn list(out: &mut Vec<u8>, elements: impl FnOnce(&mut dyn FnMut(Element))) {
    out.push(kind::LIST_QUICKLIST_2);
    let nodes_at = out.len();
    let mut nodes = 0;
    let mut node = Listpack::new();
    elements(&mut |element| {
        if node.count() > 0 && node.len() + element.text_len() + ELEMENT_BYTES > NODE_BYTES_MAX {
            list_node(out, std::mem::replace(&mut node, Listpack::new()));
            nodes += 1;
        }
        node.push(element);
    });
    list_node(out, node);
    write::len_at(out, nodes_at, nodes + 1);
}

/// What stands before so many times [`list_part`].
pub fn list_head(out: &mut Vec<u8>, parts: usize) {
    out.push(kind::LIST_QUICKLIST_2);
    write::len(out, parts as u64);
}

/// Elements of a list, one at least, as `elements` passes them on.
pub fn list_part(out: &mut Vec<u8>, elements: impl FnOnce(&mut dyn FnMut(Element))) {
    let mut node = Listpack::new();
    elements(&mut |element| node.push(element));
    list_node(out, node);
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
    set_head(out, len, None);
    members.for_each(|member| set_part(out, None, member, None));
}

/// So many members and deadlines in milliseconds since 1970, none of which is before `earliest_ms`; one at least has one.
pub fn set_with_deadlines<'a>(
    out: &mut Vec<u8>,
    len: usize,
    earliest_ms: u64,
    members: impl Iterator<Item = (Element<'a>, Option<u64>)>,
) {
    set_head(out, len, Some(earliest_ms));
    members.for_each(|(member, deadline_ms)| set_part(out, Some(earliest_ms), member, deadline_ms));
}

/// What stands before so many times [`set_part`], of which none has a deadline where there is no earliest one.
pub fn set_head(out: &mut Vec<u8>, len: usize, earliest_ms: Option<u64>) {
    head(out, [kind::SET, kind::SET_METADATA], len, earliest_ms);
}

/// A member and its deadline.
pub fn set_part(out: &mut Vec<u8>, earliest_ms: Option<u64>, member: Element, deadline_ms: Option<u64>) {
    deadline(out, earliest_ms, deadline_ms);
    write::element(out, member);
}

/// The type of a collection, without deadlines and with them, and what stands before its elements.
fn head(out: &mut Vec<u8>, [plain, with_deadlines]: [u8; 2], len: usize, earliest_ms: Option<u64>) {
    out.push(if earliest_ms.is_some() { with_deadlines } else { plain });
    if let Some(earliest_ms) = earliest_ms {
        out.extend_from_slice(&earliest_ms.to_le_bytes());
    }
    write::len(out, len as u64);
}

/// What stands before an element: its deadline, counted from the earliest, where any element has one.
fn deadline(out: &mut Vec<u8>, earliest_ms: Option<u64>, deadline_ms: Option<u64>) {
    if let Some(earliest_ms) = earliest_ms {
        write::len(out, deadline_ms.map_or(0, |deadline_ms| deadline_ms.saturating_sub(earliest_ms) + 1));
    }
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
    zset_head(out, len, None);
    members(&mut |member, score| zset_part(out, None, (member, score), None));
}

/// The same with deadlines in milliseconds since 1970, none of which is before `earliest_ms`; one at least has one.
pub fn zset_with_deadlines(
    out: &mut Vec<u8>,
    len: usize,
    earliest_ms: u64,
    members: impl FnOnce(&mut dyn FnMut(Element, f64, Option<u64>)),
) {
    zset_head(out, len, Some(earliest_ms));
    members(&mut |member, score, deadline_ms| zset_part(out, Some(earliest_ms), (member, score), deadline_ms));
}

/// What stands before so many times [`zset_part`], of which none has a deadline where there is no earliest one.
pub fn zset_head(out: &mut Vec<u8>, len: usize, earliest_ms: Option<u64>) {
    head(out, [kind::ZSET_2, kind::ZSET_METADATA], len, earliest_ms);
}

/// A member with its score, and its deadline.
pub fn zset_part(
    out: &mut Vec<u8>,
    earliest_ms: Option<u64>,
    (member, score): (Element, f64),
    deadline_ms: Option<u64>,
) {
    deadline(out, earliest_ms, deadline_ms);
    write::element(out, member);
    out.extend_from_slice(&score.to_le_bytes());
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
    hash_head(out, len, None);
    fields.for_each(|(field, value)| hash_part(out, None, field, value, None));
}

/// So many fields, values and deadlines in milliseconds since 1970, none of which is before `earliest_ms`; one at least
/// has one.
pub fn hash_with_deadlines<'a>(
    out: &mut Vec<u8>,
    len: usize,
    earliest_ms: u64,
    fields: impl Iterator<Item = (Element<'a>, Element<'a>, Option<u64>)>,
) {
    hash_head(out, len, Some(earliest_ms));
    fields.for_each(|(field, value, deadline_ms)| hash_part(out, Some(earliest_ms), field, value, deadline_ms));
}

/// What stands before so many times [`hash_part`], of which none has a deadline where there is no earliest one.
pub fn hash_head(out: &mut Vec<u8>, len: usize, earliest_ms: Option<u64>) {
    head(out, [kind::HASH, kind::HASH_METADATA], len, earliest_ms);
}

/// A field, its value and its deadline.
pub fn hash_part(
    out: &mut Vec<u8>,
    earliest_ms: Option<u64>,
    field: Element,
    value: Element,
    deadline_ms: Option<u64>,
) {
    deadline(out, earliest_ms, deadline_ms);
    write::element(out, field);
    write::element(out, value);
}
