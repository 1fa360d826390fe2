//! Large values in RDB form, part by part: a snapshot writes them while they go on changing.

use super::{Wall, streams};
use crate::keyspace::snapshot::Frame;
use crate::keyspace::{Kind, NEVER_MS, Stored, Value};
use crate::rdb::encode;
use crate::value::pack::Element;
use crate::value::stream::Stream;
use crate::value::{Portion, hash, list, set, zset};

/// What stands before and behind the parts of a value: a string that comes as it is, or a collection that has begun to be
/// shown piece by piece. `head` already has what stands before the value.
pub fn frame(content: Stored, wall: Wall, head: &mut Vec<u8>) -> Frame {
    let mut frame = Frame::default();
    match content.kind() {
        Kind::String => {
            if let Stored::String(Value::Bytes(bytes)) = content {
                encode::string_head(head, bytes.len());
            }
        }
        Kind::List => encode::list_head(head, list::View::of(content).chunk_count()),
        Kind::Set => {
            // Dead members, too, as with fields.
            let view = set::View::of(content, 0);
            frame.earliest_ms = written_ms(view.earliest_ms(), wall);
            encode::set_head(head, view.len(), frame.earliest_ms);
        }
        Kind::Zset => {
            let view = zset::View::of(content, 0);
            frame.earliest_ms = written_ms(view.earliest_ms(), wall);
            encode::zset_head(head, view.len(), frame.earliest_ms);
        }
        Kind::Hash => {
            let view = hash::View::of(content);
            // Dead fields that are still there are written, too: whoever reads them sees that they have died.
            frame.earliest_ms = written_ms(view.earliest_ms(), wall);
            encode::hash_head(head, view.len(), frame.earliest_ms);
        }
        Kind::Stream => streams::frame(head, &mut frame.foot, Stream::of(content), wall),
    }
    frame
}

/// From which moment on deadlines of elements are written, if they are.
fn written_ms(earliest_ms: u64, wall: Wall) -> Option<u64> {
    (earliest_ms < NEVER_MS && !wall.leaves_fields()).then(|| wall.of_store_ms(earliest_ms))
}

/// Appends a part of a collection.
pub fn write_part(out: &mut Vec<u8>, frame: &Frame, portion: Portion, wall: Wall) {
    match portion {
        Portion::Member(member, deadline_ms) => {
            let deadline_ms = deadline_ms.map(|deadline_ms| wall.of_store_ms(deadline_ms));
            encode::set_part(out, frame.earliest_ms, Element::Bytes(member), deadline_ms);
        }
        Portion::Scored(member, score, deadline_ms) => {
            let deadline_ms = deadline_ms.map(|deadline_ms| wall.of_store_ms(deadline_ms));
            encode::zset_part(out, frame.earliest_ms, (Element::Bytes(member), score), deadline_ms);
        }
        Portion::Field(name, value, deadline_ms) => {
            let deadline_ms = deadline_ms.map(|deadline_ms| wall.of_store_ms(deadline_ms));
            encode::hash_part(out, frame.earliest_ms, Element::Bytes(name), hash::element(value), deadline_ms);
        }
        Portion::Elements(elements) => encode::list_part(out, |each| elements.for_each(each)),
        Portion::Entries(chunk) => streams::part(out, chunk),
    }
}
