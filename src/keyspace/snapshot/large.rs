//! A value that a snapshot writes in parts.

use super::{Frame, Keeper, PART_BYTES, Part, Stored};
use crate::table::Value;
use crate::value::Node;
use std::ptr::NonNull;

/// Where the rest of it is.
pub enum Source {
    /// A collection that shows what it was. It is there until it is detached: see `Nodes::collect`, and
    /// [`Large::copy_node`].
    Node(NonNull<dyn Node>),
    /// The string under this key.
    Text(Box<[u8]>),
    /// Here: the pieces as they are written.
    Bytes(Vec<u8>),
}

pub struct Large {
    db: usize,
    frame: Frame,
    source: Source,
    is_begun: bool,
    /// Bytes of a string, or of what is here, that were written.
    written: usize,
}

impl Large {
    pub fn new(db: usize, frame: Frame, source: Source) -> Large {
        Large { db, frame, source, is_begun: false, written: 0 }
    }

    pub fn db(&self) -> usize {
        self.db
    }

    pub fn source(&self) -> &Source {
        &self.source
    }

    pub fn is_text(&self, db: usize, key: &[u8]) -> bool {
        self.db == db && matches!(&self.source, Source::Text(of) if **of == *key)
    }

    /// Where it is the string under this key, the rest of that is copied; whether it was.
    pub fn copy_text(&mut self, db: usize, key: &[u8], content: Stored) -> bool {
        let is_it = self.is_text(db, key);
        if is_it && let Stored::String(Value::Bytes(bytes)) = content {
            let rest = bytes.get(self.written..).unwrap_or_default().to_vec();
            (self.source, self.written) = (Source::Bytes(rest), 0);
        }
        is_it
    }

    /// Where it is this collection, the rest of it is written down here at once.
    pub fn copy_node(&mut self, of: NonNull<u8>, keeper: &dyn Keeper) {
        if let Source::Node(mut node) = self.source
            && node.cast() == of
        {
            let mut bytes = Vec::new();
            // SAFETY: it is there, as above, and nobody else uses it at this moment.
            let node = unsafe { node.as_mut() };
            while node.save_some(&mut |portion| keeper.encode(&self.frame, portion, &mut bytes)) {}
            node.stop_saving();
            self.source = Source::Bytes(bytes);
        }
    }

    /// Writes the next part; whether it was the last one, or none where there is no such string.
    pub fn write<'t>(
        &mut self,
        keeper: &mut dyn Keeper,
        text: impl FnOnce(usize, &[u8]) -> Option<Stored<'t>>,
    ) -> Option<bool> {
        let Large { frame, source, written, .. } = self;
        let text = match source {
            Source::Text(key) => match text(self.db, key) {
                Some(Stored::String(Value::Bytes(bytes))) => bytes,
                // That would be a defect: whoever changes it has it copied first.
                _ => return None,
            },
            Source::Node(_) | Source::Bytes(_) => &[],
        };
        let is_first = !std::mem::replace(&mut self.is_begun, true);
        let has_more = keeper.part(self.db, frame, &mut |to| {
            if is_first {
                to(Part::Bytes(&frame.head));
            }
            let has_more = match source {
                // SAFETY: it is there, as above, and nobody else uses it at this moment.
                Source::Node(node) => unsafe { node.as_mut() }.save_some(&mut |portion| to(Part::Portion(portion))),
                Source::Text(_) => show_part(text, written, to),
                Source::Bytes(bytes) => show_part(bytes, written, to),
            };
            if !has_more {
                to(Part::Bytes(&frame.foot));
            }
            has_more
        });
        Some(!has_more)
    }

    /// The collection shows nothing any more.
    pub fn detach(self) {
        if let Source::Node(mut node) = self.source {
            // SAFETY: it is there, as above, and nobody else uses it at this moment.
            unsafe { node.as_mut() }.stop_saving();
        }
    }
}

/// Whether there is more.
fn show_part(bytes: &[u8], written: &mut usize, to: &mut dyn FnMut(Part)) -> bool {
    let rest = bytes.get(*written..).unwrap_or_default();
    let part = &rest[..rest.len().min(PART_BYTES)];
    to(Part::Bytes(part));
    *written += part.len();
    part.len() < rest.len()
}
