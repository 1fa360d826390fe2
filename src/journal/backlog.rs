//! What is kept of the stream.

use std::collections::VecDeque;
use std::sync::Arc;

/// The last of the stream, for who was away for a while.
pub struct Backlog {
    pieces: VecDeque<Arc<[u8]>>,
    pub bytes: usize,
    /// At least so many are kept, once there were as many.
    pub limit: usize,
    /// Where the last piece ends.
    end: u64,
}

impl Backlog {
    pub fn new(limit: usize, position: u64) -> Backlog {
        Backlog { pieces: VecDeque::new(), bytes: 0, limit, end: position }
    }

    pub fn push(&mut self, piece: Arc<[u8]>) {
        self.bytes += piece.len();
        self.end += piece.len() as u64;
        self.pieces.push_back(piece);
        self.trim();
    }

    fn trim(&mut self) {
        while let Some(first) = self.pieces.front().filter(|first| self.bytes - first.len() >= self.limit) {
            self.bytes -= first.len();
            self.pieces.pop_front();
        }
    }

    pub fn resize(&mut self, limit: usize) {
        self.limit = limit;
        self.trim();
    }

    /// What stands behind a position; none where that is not all there.
    pub fn behind(&self, position: u64) -> Option<Vec<Arc<[u8]>>> {
        let mut left = usize::try_from(self.end.checked_sub(position)?).ok().filter(|left| *left <= self.bytes)?;
        let mut pieces = Vec::new();
        for piece in self.pieces.iter().rev() {
            if left == 0 {
                break;
            }
            let taken = piece.len().min(left);
            left -= taken;
            // (Only the first of them is cut.)
            let whole = taken == piece.len();
            pieces.push(if whole { piece.clone() } else { piece[piece.len() - taken..].into() });
        }
        pieces.reverse();
        Some(pieces)
    }
}
