//! What a connection has sent beyond the request that waits: kept as it came until the other side has read its replies.
//!
//! Many clients write a whole pipeline before they read any reply. A server that stopped reading them while their replies
//! wait would wait for ever, and so would the client. The requests do not run meanwhile: a short request may have a long reply,
//! and what is kept here is no more than the client has sent. All connections share one room, a part of the machine's memory;
//! each may have as much as it leaves free, so that a few that never read do not take all of it.

use crate::observe::machine;
use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Room is made, and given back, by so much at a time: what is here may be long, and is never moved as a whole.
const PIECE_BYTES: usize = 64 * 1024;
/// The room is this part of the memory.
const ROOM_PART: u64 = 32;

/// What all connections of the process keep.
static KEPT: AtomicUsize = AtomicUsize::new(0);
static ROOM: OnceLock<usize> = OnceLock::new();

#[derive(Default)]
pub struct Ahead {
    pieces: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Ahead {
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Memory that is allocated for it. (Asked for in each turn where `maxmemory-clients` is set, and there may be many pieces.)
    pub fn memory_bytes(&self) -> usize {
        self.pieces.len() * PIECE_BYTES + self.pieces.capacity() * size_of::<Vec<u8>>()
    }

    /// Whether there is room for more, where the connection may keep so many bytes at most.
    pub fn may_grow(&self, bytes_max: usize) -> bool {
        let room = ROOM.get_or_init(|| usize::try_from(machine::memory_bytes() / ROOM_PART).unwrap_or(usize::MAX));
        self.bytes < bytes_max && is_share(self.bytes, KEPT.load(Ordering::Relaxed), *room)
    }

    pub fn push(&mut self, mut fresh: &[u8]) {
        self.bytes += fresh.len();
        while !fresh.is_empty() {
            let room = self.pieces.back().map_or(0, |last| PIECE_BYTES - last.len());
            if room == 0 {
                self.pieces.push_back(Vec::with_capacity(PIECE_BYTES));
                KEPT.fetch_add(PIECE_BYTES, Ordering::Relaxed);
                continue;
            }
            let (now, later) = fresh.split_at(room.min(fresh.len()));
            self.pieces.back_mut().expect("there is room in it").extend_from_slice(now);
            fresh = later;
        }
    }

    /// What came first.
    pub fn pop(&mut self) -> Option<Vec<u8>> {
        let piece = self.pieces.pop_front()?;
        self.bytes -= piece.len();
        KEPT.fetch_sub(PIECE_BYTES, Ordering::Relaxed);
        if self.pieces.is_empty() {
            self.pieces = VecDeque::new();
        }
        Some(piece)
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        KEPT.fetch_sub(self.pieces.len() * PIECE_BYTES, Ordering::Relaxed);
    }
}

/// Whether who keeps so many bytes, of `kept` in all, has no more than is free.
fn is_share(bytes: usize, kept: usize, room: usize) -> bool {
    bytes < room.saturating_sub(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_first_goes_first_and_takes_its_room_along() {
        let (mut ahead, mut rng) = (Ahead::default(), fastrand::Rng::with_seed(1));
        let (mut sent, mut taken) = (Vec::new(), Vec::new());
        for _ in 0..1_000 {
            let fresh: Vec<u8> = (0..rng.usize(..3 * PIECE_BYTES / 2)).map(|_| rng.u8(..)).collect();
            ahead.push(&fresh);
            sent.extend(fresh);
            for _ in 0..rng.usize(..4) {
                taken.extend(ahead.pop().unwrap_or_default());
            }
            assert_eq!(ahead.bytes(), sent.len() - taken.len());
            assert!(ahead.memory_bytes() <= 2 * ahead.bytes() + 4 * PIECE_BYTES);
        }
        while let Some(piece) = ahead.pop() {
            taken.extend(piece);
        }
        assert!(sent == taken);
        assert_eq!((ahead.bytes(), ahead.memory_bytes(), ahead.is_empty()), (0, 0, true));
    }

    #[test]
    fn a_few_that_never_read_leave_room_for_others() {
        const ROOM: usize = 1_000;
        for greedy in 0..20 {
            let mut bytes = vec![0; greedy + 1];
            for _ in 0..ROOM {
                for at in 0..greedy {
                    if is_share(bytes[at], bytes.iter().sum(), ROOM) {
                        bytes[at] += 1;
                    }
                }
            }
            while is_share(bytes[greedy], bytes.iter().sum(), ROOM) {
                bytes[greedy] += 1;
            }
            assert!(bytes.iter().sum::<usize>() <= ROOM);
            assert!(bytes[greedy] >= ROOM / (2 * (greedy + 1)) - 1, "{bytes:?}");
        }
    }
}
