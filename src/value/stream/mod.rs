//! A stream: entries that are only appended, under ids that only grow, and the groups that read them.
//!
//! ```text
//!  Stream --- Log ---- chunks by first id --- Chunk: entries in one buffer
//!         \-- Groups - by name --- Group: last delivered; pending by id; consumers by name, each with its pending ids
//! ```
//!
//! | file | what |
//! |---|---|
//! | `group.rs` | groups, consumers, what is pending |
//! | `log.rs` | the entries in order: append, range, delete, trim; the counters behind a group's lag |
//! | `saving.rs` | the entries as of one moment, shown in slices while they change |
//! | `chunk.rs` | entries in bytes |
//! | `id.rs` | ids, and their texts |
//!
//! Appending is O(1), finding an id O(log n) in the number of chunks and O(n) in the entries of one. Times are store
//! time, whoever shows them converts them; ids hold what the wall clock said.

mod chunk;
mod group;
mod id;
mod log;
mod saving;

#[cfg(test)]
mod model_test;

use super::{Node, NodeType, Portion};
use crate::table::{Kind, Stored};
pub use chunk::{CHUNK_BYTES_MAX, Chunk, ChunkLimits, Entry, Pairs};
pub use group::{Consumer, ConsumerKey, Group, Groups, Pending, Released};
pub use id::{ID_TEXT_BYTES_MAX, Id, IdError, NewId};

pub use log::{AppendError, Entries, EntriesBack, Log, Run, RunTexts, SetIdError, Trim, TrimTo};

#[derive(Clone, Debug, Default)]
pub struct Stream {
    pub log: Log,
    pub groups: Groups,
}

/// What the groups of a stream have to say where entries are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum References {
    /// Nothing: entries go, and stay pending.
    Keep,
    /// Entries go, and are pending no more.
    Delete,
    /// An entry goes when every group was delivered it and has acknowledged it.
    Acknowledged,
}

/// What a trim has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trimmed {
    pub count: u64,
    /// What went, where not all of it stood in front of all that stays: then each entry counts as deleted.
    pub apart: Vec<Id>,
    pub released: Released,
}

impl Stream {
    /// Deletes entries from the front.
    pub fn trim(&mut self, trim: Trim, references: References) -> Trimmed {
        let Stream { log, groups } = self;
        let mut trimmed = Trimmed::default();
        match references {
            References::Keep => trimmed.count = log.trim(trim),
            References::Delete => {
                let may_go = |id| {
                    groups.forget(id, &mut trimmed.released);
                    true
                };
                trimmed.count = log.trim_each(trim, may_go).0;
            }
            References::Acknowledged => {
                let (mut gone, mut has_passed, mut is_apart) = (Vec::new(), false, false);
                let may_go = |id| {
                    let stays = groups.refer_to(id);
                    has_passed |= stays;
                    if !stays {
                        is_apart |= has_passed;
                        gone.push(id);
                    }
                    !stays
                };
                trimmed.count = log.trim_each(trim, may_go).0;
                if let Some(last) = gone.last().filter(|_| is_apart) {
                    log.note_deleted(*last);
                    trimmed.apart = gone;
                }
            }
        }
        trimmed
    }

    /// The stream that is kept like this.
    pub fn of(content: Stored<'_>) -> &Stream {
        match content {
            // SAFETY: the node of a stream is a `Stream`, and lives as long as its entry, from which the content is
            // borrowed.
            Stored::Node(Kind::Stream, node) => unsafe { node.cast::<Stream>().as_ref() },
            _ => unreachable!("it is a stream"),
        }
    }
}

impl Node for Stream {
    fn kind(&self) -> Kind {
        Stream::KIND
    }

    fn bytes(&self) -> usize {
        size_of::<Stream>() + self.log.bytes() + self.groups.bytes()
    }

    fn free_some(&mut self, mut budget: usize) -> bool {
        self.log.free_some(&mut budget) && self.groups.free_some(&mut budget)
    }

    fn boxed_clone(&self) -> Box<dyn Node> {
        Box::new(self.clone())
    }

    fn begin_saving(&mut self) -> bool {
        self.log.begin_saving()
    }

    fn save_some(&mut self, to: &mut dyn FnMut(Portion)) -> bool {
        self.log.save_some(&mut |chunk| to(Portion::Entries(chunk)))
    }

    fn stop_saving(&mut self) {
        self.log.stop_saving();
    }

    fn is_saved(&self) -> bool {
        self.log.is_saved()
    }
}

impl NodeType for Stream {
    const KIND: Kind = Kind::Stream;
}

/// What a B-tree of the standard library holds for so many pairs that came in order, near enough: a node has room for
/// 11 pairs and is split into 6 and 4 with one between them.
const fn map_bytes<K, V>(pairs: usize) -> usize {
    pairs * (size_of::<K>() + size_of::<V>() + 2) * 11 / 7
}
