//! A connection's replies, put back in the order of its requests while parts of them come from other shards.
//!
//! ```text
//!  requests   GET a (here)   GET b (shard 1)   GET c (here)   MGET d e (shards 0, 1)
//!  slots      written        Waiting           Ready          Gather
//!             to `out`                         in `held`      partial replies
//! ```
//!
//! While no slot is open, replies go straight into `out`. Everything a connection has here counts, what its open slots
//! are going to bring included (see [`Replies::bytes`]): past a limit its next request waits.

use super::for_disk::{ForDisk, Push};
use super::long::{LONG_BYTES, Long, ReplyBytes};
use crate::command::{CommandId, Merge};
use crate::observe::memory::Transient;
use crate::resp::{Proto, Reply};
use crate::shard::{At, Meter};
use std::collections::VecDeque;

pub struct Replies {
    /// What is ready to be sent.
    pub out: Vec<u8>,
    /// What is ready but for the disk, see [`Replies::hold_for_disk`].
    pub for_disk: ForDisk,
    slots: VecDeque<Slot>,
    /// Replies that wait for earlier ones, and how many of these bytes still do.
    held: Vec<u8>,
    held_bytes: usize,
    /// Parts of replies that are not complete.
    gathered_bytes: usize,
    /// What the open slots stand for: see [`Slot::weight`].
    open_weight: usize,
    /// What a reply made of parts is expected to bring, from those that came.
    expected_bytes: usize,
    /// What was pushed while nothing may come between the parts of a reply.
    pushes: Option<Vec<u8>>,
    /// Bytes that were pushed since the other side had taken everything.
    pub pushed_bytes: usize,
    /// What names of changed keys have allocated that wait here to be sent, see [`Replies::note_transient`].
    pub transient: Transient,
    /// Sequence number of the next slot.
    next: u64,
}

enum Slot {
    Ready {
        start: usize,
        end: usize,
    },
    Waiting {
        muted: bool,
        /// The shard whose reply this is.
        target: u16,
        weight: u32,
    },
    Gather(Box<Gather>),
    Exec(Box<ExecGather>),
}

/// What a reply that comes from elsewhere counts for until it is there: bookkeeping here and on the other shard. Where
/// it turns out to be large the other shard goes no further (see [`crate::shard::Part::stalls`]).
const OPEN_BYTES: usize = 256;
/// What a transaction's reply counts for at first, and at least when small ones have come. Its parts run wherever it is
/// their turn, so how many of them are open is what bounds the bytes that come back.
const FIRST_GATHERED_BYTES: usize = 128 * 1024;
const GATHERED_BYTES: usize = 16 * 1024;

impl Default for Replies {
    fn default() -> Replies {
        Replies {
            out: Vec::new(),
            for_disk: ForDisk::default(),
            slots: VecDeque::new(),
            held: Vec::new(),
            held_bytes: 0,
            gathered_bytes: 0,
            open_weight: 0,
            expected_bytes: FIRST_GATHERED_BYTES,
            pushes: None,
            pushed_bytes: 0,
            transient: Transient::default(),
            next: 0,
        }
    }
}

impl Slot {
    /// Bytes that the slot counts for while it is open.
    fn weight(&self) -> usize {
        match self {
            Slot::Ready { .. } => 0,
            Slot::Waiting { weight, .. } => *weight as usize,
            Slot::Gather(gather) => gather.weight,
            Slot::Exec(exec) => exec.weight,
        }
    }

    /// Bytes of its parts that have come, where it has any.
    fn gathered_bytes(&self) -> Option<usize> {
        match self {
            Slot::Ready { .. } | Slot::Waiting { .. } => None,
            Slot::Gather(gather) => Some(gather.gathered_bytes),
            Slot::Exec(exec) => Some(exec.gathered_bytes()),
        }
    }
}

/// Partial replies on their way to become one.
pub struct Gather {
    /// None for the only part.
    merge: Option<Merge>,
    proto: Proto,
    muted: bool,
    weight: usize,
    /// The shard that has all of it.
    target: Option<u16>,
    missing: usize,
    sum: i64,
    bytes: Vec<u8>,
    /// The only part, in place of `bytes`, where it is long.
    long: Option<Long>,
    /// Where each item lies in `bytes`; by key for [`Merge::Items`].
    items: Vec<(usize, usize)>,
    /// For each part the keys it answers, as positions in `items`.
    positions: Vec<Vec<u32>>,
    error: Option<Vec<u8>>,
    /// Bytes of the parts that have come.
    gathered_bytes: usize,
    command: CommandId,
    /// How long its parts took.
    ns: u64,
}

impl Gather {
    /// `positions` says for each part which of the `keys` keys it answers (empty where that does not matter).
    pub fn new(merge: Option<Merge>, at: At, muted: bool, keys: usize, positions: Vec<Vec<u32>>) -> Gather {
        let items = if merge == Some(Merge::Items) { vec![(0, 0); keys] } else { Vec::new() };
        Gather {
            merge,
            proto: at.proto,
            muted,
            weight: 0,
            target: None,
            missing: positions.len(),
            sum: 0,
            bytes: Vec::new(),
            long: None,
            items,
            positions,
            error: None,
            gathered_bytes: 0,
            command: at.command,
            ns: 0,
        }
    }

    /// It is complete: counted.
    fn count(&self, meter: &Meter) {
        meter.ran(self.command, self.ns);
        meter.answered(self.command, self.error.as_deref().unwrap_or_else(|| self.only()));
    }

    /// Whether its reply grows with what the keys hold.
    fn brings_data(&self) -> bool {
        matches!(self.merge, None | Some(Merge::Items | Merge::Concat))
    }

    /// What came, but for errors.
    fn only(&self) -> &[u8] {
        self.long.as_deref().unwrap_or(&self.bytes)
    }

    /// `ends` are positions in `bytes` where items end. Returns how many bytes that adds.
    pub fn add<B: ReplyBytes>(
        &mut self,
        part: usize,
        (bytes, ns): (&B, u64),
        ends: impl Iterator<Item = usize>,
    ) -> usize {
        let added = bytes.len();
        self.missing -= 1;
        self.gathered_bytes += added;
        self.ns += ns;
        let Some(merge) = self.merge else {
            self.long = bytes.keep();
            if self.long.is_none() {
                self.bytes.extend_from_slice(bytes);
            }
            return added;
        };
        if bytes.first() == Some(&b'-') {
            self.error.get_or_insert_with(|| bytes.to_vec());
            return added;
        }
        match merge {
            Merge::Ok => {}
            Merge::Sum => self.sum += integer(bytes),
            Merge::Most => self.sum = self.sum.max(integer(bytes)),
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
        added
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        if self.muted {
            return;
        }
        let mut reply = Reply::new(out, self.proto);
        match (&self.error, self.merge) {
            (Some(error), _) => reply.raw(error),
            (None, None) => reply.raw(self.only()),
            (None, Some(Merge::Ok)) => reply.ok(),
            (None, Some(Merge::Sum | Merge::Most)) => reply.int(self.sum),
            (None, Some(Merge::Items | Merge::Concat)) => {
                reply.array(self.items.len());
                for &(start, end) in &self.items {
                    reply.raw(&self.bytes[start..end]);
                }
            }
        }
    }
}

/// How the guard of watched keys answers that one has changed; of which EXEC answers nil.
const CHANGED: &[u8] = b"-ABORT ";

/// The replies of a transaction's commands on their way to become one array.
pub struct ExecGather {
    pub proto: Proto,
    pub muted: bool,
    pub weight: usize,
    pub commands: Vec<Gather>,
    /// For each part which command it belongs to, and which part of it it is; a guard belongs to none.
    pub parts: Vec<Option<(u32, u32)>>,
    pub missing: usize,
    /// A watched key has changed, or a lease is not held.
    pub aborted: bool,
    /// The error that is answered then, if any.
    pub refusal: Vec<u8>,
    /// It is a transaction of one command, whose reply is that command's.
    pub is_one: bool,
    /// EXEC itself.
    pub command: CommandId,
    /// How long all parts took.
    pub ns: u64,
}

impl ExecGather {
    /// Bytes of the parts that have come.
    fn gathered_bytes(&self) -> usize {
        self.commands.iter().map(|command| command.gathered_bytes).sum()
    }

    /// It is complete: EXEC and its commands are counted.
    fn count(&self, meter: &Meter) {
        if !self.aborted {
            self.commands.iter().for_each(|command| command.count(meter));
        }
        meter.ran(self.command, self.ns);
        meter.answered(self.command, &self.refusal);
    }

    /// Returns how many bytes that adds.
    fn add<B: ReplyBytes>(&mut self, part: usize, (bytes, ns): (&B, u64), ends: impl Iterator<Item = usize>) -> usize {
        self.missing -= 1;
        self.ns += ns;
        match self.parts[part] {
            None if bytes.first() == Some(&b'-') => {
                self.aborted = true;
                if !bytes.starts_with(CHANGED) {
                    self.refusal = bytes.to_vec();
                }
            }
            None => {}
            // It did not run, or what it answered is not wanted.
            Some(_) if self.aborted => {}
            Some((command, part)) => return self.commands[command as usize].add(part as usize, (bytes, ns), ends),
        }
        0
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        if self.muted {
            return;
        }
        if self.aborted {
            match self.refusal.is_empty() {
                true => Reply::new(out, self.proto).nil_array(),
                false => out.extend_from_slice(&self.refusal),
            }
            return;
        }
        let bytes = self.gathered_bytes();
        if bytes >= LONG_BYTES {
            // (With room for what stands around them.)
            out.reserve(bytes + LONG_BYTES);
        }
        if !self.is_one {
            Reply::new(out, self.proto).array(self.commands.len());
        }
        self.commands.iter().for_each(|command| command.write(out));
    }
}

/// What a shard has answered.
pub struct Answer<B> {
    /// The reply's name, and which of its parts this is.
    pub reply: u64,
    pub part: u32,
    pub bytes: B,
    pub command: CommandId,
    /// How long it took.
    pub ns: u64,
}

/// The number in `:n\r\n`, as written by our own handlers.
fn integer(bytes: &[u8]) -> i64 {
    let digits = bytes.strip_prefix(b":").and_then(|rest| rest.strip_suffix(b"\r\n"));
    digits.and_then(crate::value::number::parse_i64).expect("a part that is summed answers an integer")
}

impl Replies {
    /// What is ready waits until the disk has what it shows, and for what waits before it.
    pub fn hold_for_disk(&mut self) {
        self.for_disk.hold(&mut self.out);
    }

    /// Whether there is output that has not waited for anything so far.
    pub fn has_fresh(&self) -> bool {
        !self.out.is_empty() && !self.for_disk.has_all(&self.out)
    }

    /// Lets out what the disk has, see [`ForDisk::let_out`].
    pub fn let_out(&mut self, keep_missing: impl Fn(&mut Vec<Push>)) -> bool {
        self.for_disk.let_out(&mut self.out, keep_missing)
    }

    /// Whether something stays until the disk has what it shows.
    pub fn waits_for_disk(&self) -> bool {
        self.for_disk.bytes() > 0
    }

    /// Takes what may leave now.
    pub fn take_out(&mut self) -> Vec<u8> {
        self.for_disk.left();
        std::mem::take(&mut self.out)
    }

    /// Whether every reply so far is in `out`.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.slots.is_empty()
    }

    /// Bytes of replies and pushes that are here, in whatever order they came.
    #[inline]
    pub fn bytes_here(&self) -> usize {
        let pushes_bytes = self.pushes.as_ref().map_or(0, Vec::len);
        self.out.len() + self.for_disk.bytes() + self.held_bytes + self.gathered_bytes + pushes_bytes
    }

    /// What counts against the connection: what is here, and what its open requests stand for.
    #[inline]
    pub fn bytes(&self) -> usize {
        // Nearly always, and asked before each request: nothing is open, so nothing else is here.
        if self.slots.is_empty() {
            return self.out.len() + self.for_disk.bytes();
        }
        self.bytes_here() + self.open_weight + self.slots.len() * size_of::<Slot>()
    }

    /// Replies that are not on their way to the other side yet, for themselves or for earlier ones.
    pub fn open_slots(&self) -> usize {
        self.slots.len()
    }

    /// Memory that is allocated for all of this.
    pub fn memory_bytes(&self) -> usize {
        self.out.capacity()
            + self.for_disk.bytes()
            + self.held.capacity()
            + self.gathered_bytes
            + self.pushes.as_ref().map_or(0, Vec::capacity)
            + self.slots.capacity() * size_of::<Slot>()
    }

    /// The shard whose reply everything behind it waits for, if it is one shard's.
    pub fn awaited_shard(&self) -> Option<u16> {
        match self.slots.front()? {
            Slot::Waiting { target, .. } => Some(*target),
            Slot::Gather(gather) => gather.target,
            Slot::Ready { .. } | Slot::Exec(_) => None,
        }
    }

    /// Something that answers no request.
    pub fn push(&mut self, bytes: &[u8]) {
        self.pushed_bytes += bytes.len();
        self.pushes.as_mut().unwrap_or(&mut self.out).extend_from_slice(bytes);
    }

    /// The same behind all replies that are open.
    pub fn push_behind(&mut self, bytes: &[u8]) {
        self.pushed_bytes += bytes.len();
        match &mut self.pushes {
            Some(pushes) => pushes.extend_from_slice(bytes),
            None => self.write(|out| out.extend_from_slice(bytes)),
        }
    }

    /// What a push has allocated, where there was so much before, is on its way out: as far as it is not so much that
    /// nobody can be reading it.
    pub fn note_transient(&mut self, before_bytes: usize) {
        let bytes = self.transient.bytes() + self.memory_bytes().saturating_sub(before_bytes);
        self.transient.set(bytes.min(TRANSIENT_BYTES));
    }

    /// The reply that is open may be long in coming: what was pushed behind it does not wait for it.
    pub fn let_pushes_pass(&mut self) {
        let is_push = |slot: &Slot| matches!(slot, Slot::Ready { .. });
        if self.slots.len() > 1 && self.slots.iter().skip(1).all(is_push) {
            for slot in self.slots.drain(1..) {
                let Slot::Ready { start, end } = slot else { continue };
                self.out.extend_from_slice(&self.held[start..end]);
                self.held_bytes -= end - start;
                self.next -= 1;
            }
            self.held.clear();
        }
    }

    /// The reply that comes next contains confirmations: pushes wait until it is there.
    pub fn hold_pushes(&mut self) {
        self.pushes = Some(Vec::new());
    }

    /// A reply that is written at once.
    #[inline]
    pub fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let out = self.begin();
        let start = out.len();
        write(out);
        self.end(start);
    }

    /// Where a reply is to be written now; [`Replies::end`] follows, with the length before.
    #[inline]
    pub fn begin(&mut self) -> &mut Vec<u8> {
        if self.slots.is_empty() { &mut self.out } else { &mut self.held }
    }

    #[inline]
    pub fn end(&mut self, start: usize) {
        if !self.slots.is_empty() {
            let ready = self.ready(start);
            self.slots.push_back(ready);
            self.next += 1;
        }
    }

    /// A reply that comes later from a shard, to a request of so many bytes; what is returned names it in
    /// [`Replies::fill`].
    pub fn expect(&mut self, muted: bool, target: usize, request_bytes: usize) -> u64 {
        let weight = u32::try_from(OPEN_BYTES + request_bytes).unwrap_or(u32::MAX);
        self.open(Slot::Waiting { muted, target: target as u16, weight })
    }

    /// A reply made of parts that come later.
    pub fn expect_parts(&mut self, mut gather: Gather, request_bytes: usize) -> u64 {
        gather.weight = request_bytes + self.weight_of_parts(gather.brings_data());
        self.open(Slot::Gather(Box::new(gather)))
    }

    /// The same for a command that one shard runs as a whole.
    pub fn expect_whole(&mut self, mut gather: Gather, target: usize, request_bytes: usize) -> u64 {
        gather.target = Some(target as u16);
        gather.weight = OPEN_BYTES + request_bytes;
        self.open(Slot::Gather(Box::new(gather)))
    }

    /// A reply made of those of several commands.
    pub fn expect_exec(&mut self, mut gather: ExecGather, request_bytes: usize) -> u64 {
        gather.weight = request_bytes + self.weight_of_parts(gather.commands.iter().any(Gather::brings_data));
        self.open(Slot::Exec(Box::new(gather)))
    }

    fn weight_of_parts(&self, bring_data: bool) -> usize {
        if bring_data { self.expected_bytes.max(GATHERED_BYTES) } else { OPEN_BYTES }
    }

    /// The name that the next reply gets.
    pub fn next_reply(&self) -> u64 {
        self.next
    }

    fn open(&mut self, slot: Slot) -> u64 {
        self.open_weight += slot.weight();
        self.slots.push_back(slot);
        self.next += 1;
        self.next - 1
    }

    /// Writes a reply that waits for earlier ones.
    fn hold(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Slot {
        let start = self.held.len();
        write(&mut self.held);
        self.ready(start)
    }

    /// What was written to `held` from there on is a reply.
    fn ready(&mut self, start: usize) -> Slot {
        let end = self.held.len();
        self.held_bytes += end - start;
        Slot::Ready { start, end }
    }

    /// A reply, or a part of one, has come. Whatever is complete now moves to `out`, and its commands are counted.
    pub fn fill<B: ReplyBytes>(&mut self, meter: &Meter, answer: Answer<B>, ends: impl Iterator<Item = usize>) {
        let Answer { reply, part, bytes, command, ns } = answer;
        let first = self.next - self.slots.len() as u64;
        let index = (reply - first) as usize;
        let missing = match &mut self.slots[index] {
            Slot::Ready { .. } => unreachable!("a reply comes once"),
            Slot::Waiting { .. } => 0,
            Slot::Gather(gather) => {
                self.gathered_bytes += gather.add(part as usize, (&bytes, ns), ends);
                gather.missing
            }
            Slot::Exec(gather) => {
                self.gathered_bytes += gather.add(part as usize, (&bytes, ns), ends);
                gather.missing
            }
        };
        if missing > 0 {
            return;
        }
        let slot = std::mem::replace(&mut self.slots[index], Slot::Ready { start: 0, end: 0 });
        match &slot {
            Slot::Ready { .. } => {}
            Slot::Waiting { .. } => {
                meter.ran(command, ns);
                meter.answered(command, &bytes);
            }
            Slot::Gather(gather) => gather.count(meter),
            Slot::Exec(gather) => gather.count(meter),
        }
        self.open_weight -= slot.weight();
        if let Some(gathered_bytes) = slot.gathered_bytes() {
            self.gathered_bytes -= gathered_bytes;
            // Falls slowly, so that a small reply in between does not let many large ones be asked for at once.
            self.expected_bytes = gathered_bytes.max(self.expected_bytes - self.expected_bytes / 8);
        }
        let write = |out: &mut Vec<u8>| match &slot {
            Slot::Waiting { muted: true, .. } | Slot::Ready { .. } => {}
            Slot::Waiting { .. } => bytes.write(out),
            Slot::Gather(gather) => gather.write(out),
            Slot::Exec(gather) => gather.write(out),
        };
        if index == 0 {
            write(&mut self.out);
            self.slots.pop_front();
        } else {
            self.slots[index] = self.hold(write);
        }
        self.release();
    }

    /// Moves what nothing is in front of any more, and gives back the room it took.
    fn release(&mut self) {
        while let Some(Slot::Ready { start, end }) = self.slots.front() {
            self.out.extend_from_slice(&self.held[*start..*end]);
            self.held_bytes -= end - start;
            self.slots.pop_front();
        }
        if self.slots.is_empty() {
            self.out.extend(self.pushes.take().unwrap_or_default());
            self.held.clear();
            self.held.shrink_to(HELD_BYTES);
            self.slots.shrink_to(SLOTS);
        } else if self.held.len() > 2 * self.held_bytes + COMPACTED_BYTES {
            let mut held = Vec::with_capacity(self.held_bytes);
            for slot in &mut self.slots {
                if let Slot::Ready { start, end } = slot {
                    let moved = held.len();
                    held.extend_from_slice(&self.held[*start..*end]);
                    (*start, *end) = (moved, held.len());
                }
            }
            self.held = held;
        }
    }
}

/// So much that is pushed to a connection has no need of room.
const TRANSIENT_BYTES: usize = 64 * 1024;
/// Room for held replies, and for replies that are expected, that a connection keeps.
const HELD_BYTES: usize = 4 * 1024;
const SLOTS: usize = 64;
/// Bytes of replies that have left, beside as many as still wait, before their room is given back.
const COMPACTED_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Table, rows};
    use crate::keyspace::Touch;

    fn at() -> At {
        let table = Table::new(rows().copied());
        let (command, _) = table.by_full_name(b"get").expect("declared");
        At {
            db: 0,
            proto: Proto::Resp2,
            touch: Touch::NOTHING,
            hash: 0,
            command: command.id,
            write: false,
            is_quick: true,
            is_told: false,
            is_script: false,
            in_script: false,
            tracker: None,
        }
    }

    fn fill(replies: &mut Replies, (reply, part): (u64, u32), bytes: &[u8], ends: &[usize]) {
        let answer = Answer { reply, part, bytes, command: at().command, ns: 1_000 };
        replies.fill(&Meter::default(), answer, ends.iter().copied());
    }

    #[test]
    fn replies_leave_in_the_order_of_the_requests() {
        let mut replies = Replies::default();
        replies.write(|out| out.extend(b"a"));
        let b = replies.expect(false, 1, 0);
        replies.write(|out| out.extend(b"c"));
        let d = replies.expect(false, 1, 0);
        let e = replies.expect(true, 1, 0);
        replies.write(|out| out.extend(b"f"));
        assert_eq!(replies.out, b"a");
        fill(&mut replies, (d, 0), b"d", &[]);
        fill(&mut replies, (e, 0), b"muted", &[]);
        assert_eq!(replies.out, b"a");
        fill(&mut replies, (b, 0), b"b", &[]);
        assert_eq!(replies.out, b"abcdf");
        assert!(replies.is_idle());
        replies.write(|out| out.extend(b"g"));
        assert_eq!(replies.out, b"abcdfg");
    }

    #[test]
    fn parts_become_one_reply() {
        let mut replies = Replies::default();
        let items = Gather::new(Some(Merge::Items), at(), false, 3, vec![vec![0, 2], vec![1]]);
        let items = replies.expect_parts(items, 0);
        let sum = replies.expect_parts(Gather::new(Some(Merge::Sum), at(), false, 0, vec![vec![], vec![]]), 0);
        fill(&mut replies, (sum, 1), b":4\r\n", &[]);
        fill(&mut replies, (items, 1), b"$1\r\nb\r\n", &[7]);
        fill(&mut replies, (sum, 0), b":-1\r\n", &[]);
        assert!(replies.out.is_empty());
        fill(&mut replies, (items, 0), b"$1\r\na\r\n$-1\r\n", &[7, 12]);
        assert_eq!(replies.out, b"*3\r\n$1\r\na\r\n$1\r\nb\r\n$-1\r\n:3\r\n");
    }

    #[test]
    fn everything_counts_and_what_has_left_gives_its_room_back() {
        let mut replies = Replies::default();
        let first = replies.expect(false, 1, 100);
        assert_eq!((replies.bytes_here(), replies.awaited_shard()), (0, Some(1)));
        assert!(replies.bytes() >= OPEN_BYTES + 100, "an open slot counts, its request too");
        let large = vec![b'x'; 1 << 20];
        replies.write(|out| out.extend_from_slice(&large));
        let second = replies.expect(false, 2, 0);
        assert!(replies.bytes() > 1 << 20, "what waits for an earlier reply counts");
        fill(&mut replies, (first, 0), b"+OK\r\n", &[]);
        assert_eq!(replies.out.len(), 5 + (1 << 20));
        assert!(replies.held.capacity() <= COMPACTED_BYTES, "although a slot is open");
        replies.write(|out| out.extend_from_slice(b"last"));
        fill(&mut replies, (second, 0), b"second", &[]);
        assert!(replies.out.ends_with(b"secondlast"));
        assert_eq!(replies.bytes(), replies.out.len());
        let items = Gather::new(Some(Merge::Items), at(), false, 2, vec![vec![0], vec![1]]);
        let items = replies.expect_parts(items, 0);
        assert!(replies.bytes() >= replies.out.len() + GATHERED_BYTES);
        fill(&mut replies, (items, 0), b"$1\r\na\r\n", &[7]);
        assert_eq!(replies.bytes_here(), replies.out.len() + 7);
        fill(&mut replies, (items, 1), b"$1\r\nb\r\n", &[7]);
        assert_eq!(replies.bytes(), replies.out.len());
    }

    /// They were copied once for the reply of EXEC, and once more to what is sent.
    #[test]
    fn long_replies_of_others_are_kept_as_they_came() {
        let mut come = Long::all(vec![b'x'; LONG_BYTES]);
        let at_first = come.as_ptr();
        let mut replies = Replies::default();
        let reply = replies.expect(false, 1, 0);
        let answer = Answer { reply, part: 0, bytes: come.take(0..LONG_BYTES), command: at().command, ns: 1_000 };
        replies.fill(&Meter::default(), answer, std::iter::empty());
        assert_eq!((replies.out.as_ptr(), replies.out.len()), (at_first, LONG_BYTES));
        assert!(come.take(LONG_BYTES..LONG_BYTES).is_empty(), "who had a muted reply beside it has nothing");

        let mut come = Long::all([vec![b'a'; LONG_BYTES], vec![b'b'; 9 * LONG_BYTES]].concat());
        let ranges = [0..LONG_BYTES, LONG_BYTES..10 * LONG_BYTES];
        let is_kept = ranges.clone().map(|range| come.take(range).keep().is_some());
        assert_eq!(is_kept, [false, true], "a small share of it would keep all of it");
        for (range, letter) in ranges.into_iter().zip([b'a', b'b']) {
            let mut replies = Replies::default();
            let reply = replies.expect_parts(Gather::new(None, at(), false, 1, vec![vec![0]]), 0);
            let bytes = come.take(range.clone());
            let answer = Answer { reply, part: 0, bytes, command: at().command, ns: 1_000 };
            replies.fill(&Meter::default(), answer, std::iter::empty());
            assert!(replies.out == vec![letter; range.len()]);
        }
    }
}
