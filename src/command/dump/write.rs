//! Values in RDB form.

use super::{Wall, streams};
use crate::keyspace::{Kind, NEVER_MS, Stored};
use crate::rdb::encode;
use crate::value::hash::{self, Field};
use crate::value::list;
use crate::value::pack::Element;
use crate::value::stream::Stream;
use crate::value::{set, zset};

/// Appends type and value, without what is dead in it.
pub fn write(out: &mut Vec<u8>, content: Stored, wall: Wall) {
    match content.kind() {
        Kind::String => write_string(out, content),
        Kind::List => encode::list(out, |each| list::View::of(content).for_each(each)),
        Kind::Set => write_set(out, set::View::of(content, wall.now_ms()), wall),
        Kind::Zset => write_zset(out, zset::View::of(content, wall.now_ms()), wall),
        Kind::Hash => write_hash(out, hash::View::of(content), wall),
        Kind::Stream => streams::write(out, Stream::of(content), wall),
    }
}

fn write_string(out: &mut Vec<u8>, content: Stored) {
    if let Stored::String(value) = content {
        encode::string(out, hash::element(value));
    }
}

fn write_set(out: &mut Vec<u8>, view: set::View, wall: Wall) {
    let has_deadlines = view.earliest_ms() < NEVER_MS && !wall.leaves_fields();
    let earliest_ms = has_deadlines.then(|| view.iter_with_deadlines().filter_map(|(_, at_ms)| at_ms).min()).flatten();
    match (view, earliest_ms) {
        (set::View::Ints(_), _) => {
            let members: Vec<i64> = view.iter().filter_map(Element::to_integer).collect();
            encode::set_of_integers(out, &members);
        }
        (_, Some(earliest_ms)) => {
            let members = view.iter_with_deadlines();
            let members = members.map(|(member, deadline_ms)| (member, deadline_ms.map(|ms| wall.of_store_ms(ms))));
            encode::set_with_deadlines(out, view.len(), wall.of_store_ms(earliest_ms), members);
        }
        (_, None) => encode::set(out, view.len(), view.iter()),
    }
}

fn write_zset(out: &mut Vec<u8>, view: zset::View, wall: Wall) {
    if let zset::View::Packed(_) = view {
        return encode::zset_packed(out, |item| view.for_each(item));
    }
    let mut earliest_ms = NEVER_MS;
    if view.earliest_ms() < NEVER_MS && !wall.leaves_fields() {
        view.for_each_back(|_, _, at_ms| earliest_ms = earliest_ms.min(at_ms.unwrap_or(NEVER_MS)));
    }
    if earliest_ms < NEVER_MS {
        encode::zset_with_deadlines(out, view.len(), wall.of_store_ms(earliest_ms), |item| {
            view.for_each_back(|member, score, at_ms| item(member, score, at_ms.map(|ms| wall.of_store_ms(ms))));
        });
    } else {
        encode::zset(out, view.len(), |item| view.for_each_back(|member, score, _| item(member, score)));
    }
}

fn write_hash(out: &mut Vec<u8>, view: hash::View, wall: Wall) {
    let fields = || view.iter().filter(|field| !field.is_dead(wall.now_ms()));
    let earliest_ms = fields().map(|field| field.deadline_ms).min().unwrap_or(NEVER_MS);
    match view {
        _ if earliest_ms < NEVER_MS && !wall.leaves_fields() => {
            let deadline_ms =
                |field: Field| (field.deadline_ms < NEVER_MS).then(|| wall.of_store_ms(field.deadline_ms));
            let fields_and_deadlines = fields().map(|field| (field.name, field.value, deadline_ms(field)));
            let earliest_ms = wall.of_store_ms(earliest_ms);
            encode::hash_with_deadlines(out, fields().count(), earliest_ms, fields_and_deadlines);
        }
        hash::View::Dict(_) => encode::hash(out, fields().count(), pairs(fields())),
        _ => encode::hash_packed(out, pairs(fields())),
    }
}

fn pairs<'a>(fields: impl Iterator<Item = Field<'a>>) -> impl Iterator<Item = (Element<'a>, Element<'a>)> {
    fields.map(|field| (field.name, field.value))
}
