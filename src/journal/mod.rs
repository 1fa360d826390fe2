//! The journal: what every shard has changed, as commands that make the same changes again, in one order.
//!
//! ```text
//!  shard 0:  record  record  part of 7  record ...  ─┐
//!  shard 1:  record  part of 7  part of 9 ...       ─┼─ merge ──> unit  unit  unit ...
//!  shard 2:  part of 9  record ...                  ─┘
//! ```
//!
//! A [`Record`] is what one command, or one shard's part of a transaction, has changed. What one shard records is in the
//! order in which it happened there. Records of different shards have no order, as they touch different keys, but for the
//! parts of a transaction over several shards: the merger brings those together, so that whoever follows sees all of them
//! or none.
//!
//! | file | what |
//! |---|---|
//! | `feed.rs` | the queue that the shards hand over by; what has its place, for the log and for readers |
//! | `reader.rs` | who reads the stream, and what lies ready for that |
//! | `backlog.rs` | the last of the stream, for who comes back |
//! | `encoder.rs` | units as a stream of commands |
//! | `compat.rs` | the stream for servers that know of no deadlines of fields |
//! | `merge.rs` | one order out of those of the shards |
//! | `aside.rs` | lines that only this server's log has |

pub mod aside;
mod backlog;
mod compat;
mod encoder;
mod feed;
mod merge;
mod reader;

pub use encoder::{Encoder, Run};
pub use feed::{AwaitsServer, Feed, Merging, Ready};
use merge::{Merger, Unit};
pub use reader::Reader;

use crate::config::SHARDS_MAX;
use crate::resp::{Proto, Reply, Request};
use std::cell::RefCell;

/// A command of more bytes is not copied out of the place in which it was made.
const SCRATCH_BYTES: usize = 4096;

thread_local! {
    /// Where commands are made: how long they become is not known before.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// What one command, or one part of a transaction, has changed on one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What it is a part of, where that is more than one shard's.
    pub part_of: Option<Transaction>,
    pub commands: Vec<Command>,
}

impl Record {
    pub fn bytes(&self) -> usize {
        self.commands.iter().map(|command| command.bytes.len()).sum()
    }
}

/// What a note is in memory and in the file: it stands in a batch of its own.
fn note_bytes(words: &[String]) -> usize {
    const HEAD_BYTES: usize = 256;
    HEAD_BYTES + words.iter().map(|word| size_of::<String>() + word.len()).sum::<usize>()
}

/// A transaction over several shards, each of which records a part of it, even where nothing has changed there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transaction {
    pub number: u64,
    /// Those that may write.
    pub shards: Shards,
}

/// A command that makes the same change again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    pub db: usize,
    /// It is about the data of all shards (FLUSHALL): each of them says it, in the same place of the same transaction,
    /// and one of them is enough.
    pub is_whole: bool,
    /// Nobody has done it: time has. So it holds although what found the dead is undone.
    pub is_death: bool,
    /// It is several of one shard, already in the form of [`Encoder`]: the first is about `db`, the last about this one.
    pub run_ends_in: Option<usize>,
    pub stands_in: StandsIn,
    /// As a client sends it.
    pub bytes: Box<[u8]>,
}

impl Command {
    pub fn new<'a>(db: usize, args: impl ExactSizeIterator<Item = &'a [u8]>) -> Command {
        let bytes = SCRATCH.with_borrow_mut(|bytes| {
            Command::write(args, bytes);
            if bytes.len() > SCRATCH_BYTES {
                return std::mem::take(bytes).into();
            }
            let exact = bytes.as_slice().into();
            bytes.clear();
            exact
        });
        Command::of_bytes(db, bytes)
    }

    /// One that is as a client sends it already.
    pub fn of_bytes(db: usize, bytes: Box<[u8]>) -> Command {
        Command { db, is_whole: false, is_death: false, run_ends_in: None, stands_in: StandsIn::Both, bytes }
    }

    /// Writes a command as a client sends it.
    #[inline]
    pub fn write<'a>(args: impl ExactSizeIterator<Item = &'a [u8]>, out: &mut Vec<u8>) {
        let mut reply = Reply::new(out, Proto::Resp2);
        reply.array(args.len());
        args.for_each(|arg| reply.bulk(arg));
    }

    /// Writes a request as a client sends it.
    #[inline]
    pub fn write_request(request: Request, out: &mut Vec<u8>) {
        match request.as_sent() {
            Some(bytes) => out.extend_from_slice(bytes),
            None => Command::write(request.from(0), out),
        }
    }

    /// What is said to whoever reads the stream, and is no change.
    pub fn said(bytes: Box<[u8]>) -> Command {
        Command::relayed(0, bytes)
    }

    /// What another server has said in its stream, behind which this database is chosen there.
    pub fn relayed(db: usize, bytes: Box<[u8]>) -> Command {
        // (It has been said, whatever becomes of what runs beside it.)
        Command { db, is_whole: false, is_death: true, run_ends_in: None, stands_in: StandsIn::Stream, bytes }
    }
}

/// Under which name others know data, where in the stream they are what they are, and which database was chosen there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownAs {
    pub id: String,
    pub position: u64,
    pub db: usize,
    /// The stream was for servers, too, that know of no deadlines of fields.
    pub is_old: bool,
}

/// Who is told of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandsIn {
    Both,
    /// It is no command, but a line beside them that only this server's log has (see [`aside`]).
    Log,
    /// It changes nothing, so that no log has it: a message, what a primary says to its replicas.
    Stream,
}

/// A set of shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shards([u64; SHARDS_MAX.div_ceil(64)]);

impl Shards {
    pub fn insert(&mut self, shard: usize) {
        self.0[shard / 64] |= 1 << (shard % 64);
    }

    pub fn contains(&self, shard: usize) -> bool {
        self.0[shard / 64] & 1 << (shard % 64) != 0
    }

    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub fn is_empty(&self) -> bool {
        *self == Shards::default()
    }

    pub fn iter(&self) -> impl Iterator<Item = usize> + use<> {
        let words = self.0;
        (0..words.len()).flat_map(move |word| {
            let mut rest = words[word];
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
                rest &= rest - 1;
                Some(word * 64 + bit)
            })
        })
    }
}

impl FromIterator<usize> for Shards {
    fn from_iter<I: IntoIterator<Item = usize>>(shards: I) -> Shards {
        let mut set = Shards::default();
        shards.into_iter().for_each(|shard| set.insert(shard));
        set
    }
}
