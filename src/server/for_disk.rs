//! Output that may not leave yet: it shows changes that are not on the disk for certain.

use std::collections::VecDeque;

/// A shard, and how many of its pushes to the log a reply waits for.
pub type Push = (u16, u64);

/// Output that shows changes which are not on the disk for certain, oldest first.
#[derive(Default)]
pub struct ForDisk {
    chunks: VecDeque<(Vec<u8>, Vec<Push>)>,
    bytes: usize,
    /// What the output shows that comes next.
    pub shows: Vec<Push>,
}

impl ForDisk {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The next output shows this.
    pub fn show(&mut self, (shard, push): Push) {
        if push == 0 {
            return;
        }
        match self.shows.iter_mut().find(|(of, _)| *of == shard) {
            Some((_, shown)) => *shown = push.max(*shown),
            None => self.shows.push((shard, push)),
        }
    }

    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes all of `out`, which waits until the disk has what it shows, and for what waits before it.
    pub fn hold(&mut self, out: &mut Vec<u8>) {
        self.bytes += out.len();
        self.chunks.push_back((std::mem::take(out), std::mem::take(&mut self.shows)));
    }

    /// Lets out what the disk has; `keep_missing` leaves what it has not. Whether anything is ready by that.
    pub fn let_out(&mut self, out: &mut Vec<u8>, keep_missing: impl Fn(&mut Vec<Push>)) -> bool {
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
        self.chunks.len() < before
    }
}
