//! A connection's replies, put back in the order of its requests while parts of them come from other shards.
//!
//! ```text
//!  requests   GET a (here)   GET b (shard 1)   GET c (here)   MGET d e (shards 0, 1)
//!  slots      written        Waiting           Ready          Gather
//!             to `out`                         in `held`      partial replies
//! ```
//!
//! While no slot is open, replies go straight into `out`.

use crate::command::Merge;
use crate::resp::{Proto, Reply};
use std::collections::VecDeque;

#[derive(Default)]
pub struct Replies {
    /// What is ready to be sent.
    pub out: Vec<u8>,
    slots: VecDeque<Slot>,
    held: Vec<u8>,
    /// What was pushed while nothing may come between the parts of a reply.
    pushes: Option<Vec<u8>>,
    /// Sequence number of the next slot.
    next: u64,
}

enum Slot {
    Ready { start: usize, end: usize },
    Waiting { muted: bool },
    Gather(Box<Gather>),
    Exec(Box<ExecGather>),
}

/// Partial replies on their way to become one.
pub struct Gather {
    /// None for the only part.
    merge: Option<Merge>,
    proto: Proto,
    muted: bool,
    missing: usize,
    sum: i64,
    bytes: Vec<u8>,
    /// Where each item lies in `bytes`; by key for [`Merge::Items`].
    items: Vec<(usize, usize)>,
    /// For each part the keys it answers, as positions in `items`.
    positions: Vec<Vec<u32>>,
    error: Option<Vec<u8>>,
}

impl Gather {
    /// `positions` says for each part which of the `keys` keys it answers (empty where that does not matter).
    pub fn new(merge: Option<Merge>, proto: Proto, muted: bool, keys: usize, positions: Vec<Vec<u32>>) -> Gather {
        let items = if merge == Some(Merge::Items) { vec![(0, 0); keys] } else { Vec::new() };
        Gather {
            merge,
            proto,
            muted,
            missing: positions.len(),
            sum: 0,
            bytes: Vec::new(),
            items,
            positions,
            error: None,
        }
    }

    /// `ends` are positions in `bytes` where items end.
    pub fn add(&mut self, part: usize, bytes: &[u8], ends: impl Iterator<Item = usize>) {
        self.missing -= 1;
        let Some(merge) = self.merge else {
            self.bytes.extend_from_slice(bytes);
            return;
        };
        if bytes.first() == Some(&b'-') {
            self.error.get_or_insert_with(|| bytes.to_vec());
            return;
        }
        match merge {
            Merge::Ok => {}
            Merge::Sum => self.sum += integer(bytes),
            Merge::Items | Merge::Concat => {
                let base = self.bytes.len();
                self.bytes.extend_from_slice(bytes);
                let mut start = 0;
                for (index, end) in ends.enumerate() {
                    let item = (base + start, base + end);
                    start = end;
                    match merge {
                        Merge::Items => self.items[self.positions[part][index] as usize] = item,
                        _ => self.items.push(item),
                    }
                }
            }
        }
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        if self.muted {
            return;
        }
        let mut reply = Reply::new(out, self.proto);
        match (&self.error, self.merge) {
            (Some(error), _) => reply.raw(error),
            (None, None) => reply.raw(&self.bytes),
            (None, Some(Merge::Ok)) => reply.ok(),
            (None, Some(Merge::Sum)) => reply.int(self.sum),
            (None, Some(Merge::Items | Merge::Concat)) => {
                reply.array(self.items.len());
                for &(start, end) in &self.items {
                    reply.raw(&self.bytes[start..end]);
                }
            }
        }
    }
}

/// The replies of a transaction's commands on their way to become one array.
pub struct ExecGather {
    pub proto: Proto,
    pub muted: bool,
    pub commands: Vec<Gather>,
    /// For each part which command it belongs to, and which part of it it is; a guard belongs to none.
    pub parts: Vec<Option<(u32, u32)>>,
    pub missing: usize,
    /// A watched key has changed.
    pub aborted: bool,
}

impl ExecGather {
    fn add(&mut self, part: usize, bytes: &[u8], ends: impl Iterator<Item = usize>) {
        self.missing -= 1;
        match self.parts[part] {
            None => self.aborted |= bytes.first() == Some(&b'-'),
            // It did not run, or what it answered is not wanted.
            Some(_) if self.aborted => {}
            Some((command, part)) => self.commands[command as usize].add(part as usize, bytes, ends),
        }
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        if self.muted {
            return;
        }
        if self.aborted {
            Reply::new(out, self.proto).nil_array();
            return;
        }
        Reply::new(out, self.proto).array(self.commands.len());
        self.commands.iter().for_each(|command| command.write(out));
    }
}

/// The number in `:n\r\n`, as written by our own handlers.
fn integer(bytes: &[u8]) -> i64 {
    let digits = bytes.strip_prefix(b":").and_then(|rest| rest.strip_suffix(b"\r\n"));
    digits.and_then(crate::value::number::parse_i64).expect("a part that is summed answers an integer")
}

impl Replies {
    /// Whether every reply so far is in `out`.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.slots.is_empty()
    }

    /// Something that answers no request.
    pub fn push(&mut self, bytes: &[u8]) {
        self.pushes.as_mut().unwrap_or(&mut self.out).extend_from_slice(bytes);
    }

    /// The reply that comes next contains confirmations: pushes wait until it is there.
    pub fn hold_pushes(&mut self) {
        self.pushes = Some(Vec::new());
    }

    /// A reply that is written at once.
    #[inline]
    pub fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.slots.is_empty() {
            write(&mut self.out);
            return;
        }
        let start = self.held.len();
        write(&mut self.held);
        self.slots.push_back(Slot::Ready { start, end: self.held.len() });
        self.next += 1;
    }

    /// A reply that comes later; what is returned names it in [`Replies::fill`].
    pub fn expect(&mut self, muted: bool) -> u64 {
        self.open(Slot::Waiting { muted })
    }

    /// A reply made of parts that come later.
    pub fn expect_parts(&mut self, gather: Gather) -> u64 {
        self.open(Slot::Gather(Box::new(gather)))
    }

    /// A reply made of those of several commands.
    pub fn expect_exec(&mut self, gather: ExecGather) -> u64 {
        self.open(Slot::Exec(Box::new(gather)))
    }

    /// The name that the next reply gets.
    pub fn next_sequence(&self) -> u64 {
        self.next
    }

    fn open(&mut self, slot: Slot) -> u64 {
        self.slots.push_back(slot);
        self.next += 1;
        self.next - 1
    }

    /// A reply, or a part of one, has come. Whatever is complete now moves to `out`.
    pub fn fill(&mut self, sequence: u64, part: u32, bytes: &[u8], ends: impl Iterator<Item = usize>) {
        let first = self.next - self.slots.len() as u64;
        let index = (sequence - first) as usize;
        match &mut self.slots[index] {
            Slot::Ready { .. } => unreachable!("a reply comes once"),
            Slot::Waiting { muted } => {
                let bytes = if *muted { &[] } else { bytes };
                if index == 0 {
                    self.out.extend_from_slice(bytes);
                    self.slots.pop_front();
                } else {
                    let start = self.held.len();
                    self.held.extend_from_slice(bytes);
                    self.slots[index] = Slot::Ready { start, end: self.held.len() };
                }
            }
            Slot::Gather(gather) => {
                gather.add(part as usize, bytes, ends);
                if gather.missing > 0 {
                    return;
                }
                if index == 0 {
                    gather.write(&mut self.out);
                    self.slots.pop_front();
                } else {
                    let start = self.held.len();
                    gather.write(&mut self.held);
                    self.slots[index] = Slot::Ready { start, end: self.held.len() };
                }
            }
            Slot::Exec(gather) => {
                gather.add(part as usize, bytes, ends);
                if gather.missing > 0 {
                    return;
                }
                let start = self.held.len();
                gather.write(&mut self.held);
                self.slots[index] = Slot::Ready { start, end: self.held.len() };
            }
        }
        while let Some(Slot::Ready { start, end }) = self.slots.front() {
            self.out.extend_from_slice(&self.held[*start..*end]);
            self.slots.pop_front();
        }
        if self.slots.is_empty() {
            self.out.extend(self.pushes.take().unwrap_or_default());
            self.held.clear();
            self.held.shrink_to(HELD_BYTES);
            self.slots.shrink_to(SLOTS);
        }
    }
}

/// Room for held replies, and for replies that are expected, that a connection keeps.
const HELD_BYTES: usize = 4 * 1024;
const SLOTS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_leave_in_the_order_of_the_requests() {
        let none = || std::iter::empty();
        let mut replies = Replies::default();
        replies.write(|out| out.extend(b"a"));
        let b = replies.expect(false);
        replies.write(|out| out.extend(b"c"));
        let d = replies.expect(false);
        let e = replies.expect(true);
        replies.write(|out| out.extend(b"f"));
        assert_eq!(replies.out, b"a");
        replies.fill(d, 0, b"d", none());
        replies.fill(e, 0, b"muted", none());
        assert_eq!(replies.out, b"a");
        replies.fill(b, 0, b"b", none());
        assert_eq!(replies.out, b"abcdf");
        assert!(replies.is_idle());
        replies.write(|out| out.extend(b"g"));
        assert_eq!(replies.out, b"abcdfg");
    }

    #[test]
    fn parts_become_one_reply() {
        let mut replies = Replies::default();
        let items = Gather::new(Some(Merge::Items), Proto::Resp2, false, 3, vec![vec![0, 2], vec![1]]);
        let items = replies.expect_parts(items);
        let sum = replies.expect_parts(Gather::new(Some(Merge::Sum), Proto::Resp2, false, 0, vec![vec![], vec![]]));
        replies.fill(sum, 1, b":4\r\n", std::iter::empty());
        replies.fill(items, 1, b"$1\r\nb\r\n", [7].into_iter());
        replies.fill(sum, 0, b":-1\r\n", std::iter::empty());
        assert!(replies.out.is_empty());
        replies.fill(items, 0, b"$1\r\na\r\n$-1\r\n", [7, 12].into_iter());
        assert_eq!(replies.out, b"*3\r\n$1\r\na\r\n$1\r\nb\r\n$-1\r\n:3\r\n");
    }
}
