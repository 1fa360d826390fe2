//! Output that may not leave yet: it shows changes that are not on the disk for certain.
//!
//! ```text
//!  out                                chunks
//!  [ free           | fresh ]         [ oldest ][ ... ][ newest ]
//!    let out before   made since        each waits for its own pushes, and for the chunks before it
//! ```
//!
//! Fresh output stands behind the chunks, though it is in `out`: it becomes the newest chunk before any chunk is let out
//! into `out`, and it never leaves while there are chunks. So output leaves in the order in which it was made.

use std::collections::VecDeque;

/// A shard, and how many of its pushes to the log a reply waits for.
pub type Push = (u16, u64);

/// Output that shows changes which are not on the disk for certain, oldest first.
#[derive(Default)]
pub struct ForDisk {
    chunks: VecDeque<(Vec<u8>, Vec<Push>)>,
    bytes: usize,
    /// So many bytes at the beginning of `out` were let out. (Only of meaning while there are chunks.)
    free_bytes: usize,
    /// What the output shows that comes next.
    pub shows: Vec<Push>,
}

impl ForDisk {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Whether output waits for the disk, or shows what may have to.
    #[inline]
    pub fn concerns_output(&self) -> bool {
        !self.shows.is_empty() || !self.is_empty()
    }

    /// The next output shows this.
    #[inline]
    pub fn show(&mut self, push: Push) {
        if push.1 != 0 {
            self.show_push(push);
        }
    }

    #[cold]
    fn show_push(&mut self, (shard, push): Push) {
        match self.shows.iter_mut().find(|(of, _)| *of == shard) {
            Some((_, shown)) => *shown = push.max(*shown),
            None => self.shows.push((shard, push)),
        }
    }

    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there is nothing fresh in `out` that has to stand behind chunks.
    pub fn has_all(&self, out: &[u8]) -> bool {
        !self.chunks.is_empty() && out.len() == self.free_bytes
    }

    /// Takes what is fresh in `out`, which waits until the disk has what it shows, and for what waits before it.
    pub fn hold(&mut self, out: &mut Vec<u8>) {
        let free_bytes = if self.chunks.is_empty() { 0 } else { self.free_bytes };
        let fresh = if free_bytes == 0 { std::mem::take(out) } else { out.split_off(free_bytes) };
        self.free_bytes = free_bytes;
        if !fresh.is_empty() {
            self.bytes += fresh.len();
            self.chunks.push_back((fresh, std::mem::take(&mut self.shows)));
        }
    }

    /// Lets out what the disk has; `keep_missing` leaves what it has not. Whether anything is ready by that.
    pub fn let_out(&mut self, out: &mut Vec<u8>, keep_missing: impl Fn(&mut Vec<Push>)) -> bool {
        if self.chunks.is_empty() {
            return false;
        }
        self.hold(out);
        let before = self.chunks.len();
        while let Some((_, shows)) = self.chunks.front_mut() {
            keep_missing(shows);
            if !shows.is_empty() {
                break;
            }
            let Some((bytes, _)) = self.chunks.pop_front() else { break };
            self.bytes -= bytes.len();
            match out.is_empty() {
                true => *out = bytes,
                false => out.extend_from_slice(&bytes),
            }
        }
        self.free_bytes = out.len();
        self.chunks.len() < before
    }

    /// All of `out` has left.
    pub fn left(&mut self) {
        self.free_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the disk has of one shard's pushes.
    fn missing(synced: u64) -> impl Fn(&mut Vec<Push>) {
        move |shows| shows.retain(|(_, push)| *push > synced)
    }

    /// A first chunk was let out, the next turn came before it had left, and what it made was held with what had been let
    /// out in front of it: all of that then stood behind the second chunk.
    #[test]
    fn output_leaves_in_the_order_in_which_it_was_made() {
        for seed in 0..500 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (mut held, mut out, mut left) = (ForDisk::default(), Vec::new(), Vec::new());
            let (mut made, mut pushed, mut synced) = (0_u8, 0, 0);
            for _ in 0..60 {
                match rng.u8(..4) {
                    0 => {
                        // A turn, which makes output that shows a change, or none.
                        if rng.bool() {
                            pushed += 1;
                            held.show((0, pushed));
                        }
                        made += 1;
                        out.push(made);
                    }
                    1 => held.hold(&mut out),
                    2 => {
                        synced = rng.u64(synced..=pushed);
                        held.let_out(&mut out, missing(synced));
                    }
                    _ => {
                        if !held.shows.is_empty() || !held.is_empty() {
                            held.hold(&mut out);
                        }
                        left.append(&mut out);
                        held.left();
                    }
                }
            }
            held.hold(&mut out);
            held.let_out(&mut out, missing(u64::MAX));
            left.append(&mut out);
            assert_eq!(left, (1..=made).collect::<Vec<u8>>(), "seed {seed}");
            assert_eq!(held.bytes(), 0);
        }
    }
}
