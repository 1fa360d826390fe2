//! Looking for what is whole behind a place at which a log is broken: whether a crash has torn it there is told from that.
//!
//! Bytes may be missing there, or be too many, so that what stands behind it stands elsewhere than it says. What looks like
//! a batch may be a part of somebody's value, too, and claim to be long: so no more than a few times the bytes that are
//! looked through are summed up for batches that turn out to be none.

use super::batch::{self, NoHead};
use super::pieces::{next_batch, pass_times};
use crate::persist::window::Window;
use std::io;
use std::path::Path;

/// For each byte that is looked through, so many may be summed up in vain, and some more where they are few.
const VAIN_PER_BYTE: u64 = 4;
const VAIN_BYTES: u64 = 1 << 20;
/// A block of a disk is at least as long, and begins at a multiple of it. What was not written there reads as zeros.
const BLOCK_BYTES: u64 = 512;

/// Where in a file to begin.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// The log is whole up to this byte, and broken behind it.
    Broken(u64),
    /// What the first batch says is where the file begins.
    File,
}

/// What stands behind a place of a file.
pub struct Behind {
    /// How much of the log was on the disk, as the whole batches say.
    pub synced: u64,
    pub has_batches: bool,
    pub is_zero: bool,
    /// Before the first batch, or the end where there is none, there is a block of zeros, or what is left of one at the place
    /// where the log is broken, or at the end.
    pub has_hole: bool,
}

pub struct Search {
    /// Where in the log it is whole up to.
    position: u64,
    /// What may still be summed up in vain.
    vain_bytes: u64,
}

impl Search {
    /// The log is whole up to this position; so much is to be looked through.
    pub fn behind(position: u64, bytes: u64) -> Search {
        Search { position, vain_bytes: bytes.saturating_mul(VAIN_PER_BYTE).saturating_add(VAIN_BYTES) }
    }

    pub fn look(&mut self, path: &Path, start: Start) -> io::Result<Behind> {
        let mut window = Window::open(path)?;
        let of_bytes = std::fs::metadata(path)?.len();
        let mut behind = Behind { synced: 0, has_batches: false, is_zero: true, has_hole: false };
        let mut zeros = Zeros::default();
        // Where in the log a byte of the file is; where the batch ends that is broken, in the file and in the log.
        let (mut place, mut broken) = (None, None);
        match start {
            Start::Broken(at) => {
                window.pass_to(at)?;
                place = Some((at, self.position));
                broken = self.claim(&mut window)?;
            }
            Start::File => behind.is_zero &= pass_times(&mut window)? == 0,
        }
        let from = window.passed();
        while window.has(batch::MARK.len())? {
            let found = memchr::memmem::find(window.rest(), batch::MARK);
            let passed = found.unwrap_or(window.rest().len() - (batch::MARK.len() - 1));
            zeros.pass(window.passed(), &window.rest()[..passed]);
            window.pass(passed);
            if found.is_none() {
                continue;
            }
            let at = window.passed();
            let is_expected = |position: u64| {
                let is_in_place = place.is_some_and(|(of, is)| Some(position) == at.checked_sub(of).map(|by| is + by));
                let is_behind = broken.is_none_or(|(end, next)| at >= end || position == next);
                is_in_place || start == Start::File && at == from || position > self.position && is_behind
            };
            let head = match batch::read(window.rest()) {
                Err(NoHead::Incomplete) if window.read_more()? => continue,
                Ok(head) if is_expected(head.position) && head.bytes <= self.vain_bytes.min(of_bytes - at) => head,
                _ => {
                    zeros.pass(at, b"#");
                    window.pass(1);
                    continue;
                }
            };
            match next_batch(&mut window, of_bytes, None)? {
                Ok(head) => {
                    if !behind.has_batches {
                        behind.has_batches = true;
                        behind.has_hole = zeros.has_block;
                    }
                    behind.synced = behind.synced.max(head.synced);
                    place = Some((at, head.position));
                    self.position = self.position.max(head.position);
                    broken = None;
                    window.pass(head.head_bytes + head.bytes as usize);
                }
                Err(_) => {
                    self.vain_bytes -= head.bytes;
                    zeros.pass(at, b"#");
                    window.pass(1);
                }
            }
        }
        zeros.pass(window.passed(), window.rest());
        behind.is_zero &= !behind.has_batches && zeros.is_all;
        if !behind.has_batches {
            behind.has_hole = zeros.has_block || zeros.are_at_end(window.passed() + window.rest().len() as u64);
        }
        Ok(behind)
    }

    /// Where the batch would end that should stand here, as its head says: what stands before that may be a part of it.
    fn claim(&self, window: &mut Window) -> io::Result<Option<(u64, u64)>> {
        while let Err(NoHead::Incomplete) = batch::read(window.rest()) {
            if !window.read_more()? {
                break;
            }
        }
        let head = batch::read(window.rest()).ok().filter(|head| head.position == self.position);
        Ok(head.map(|head| (window.passed() + head.head_bytes as u64 + head.bytes, head.end())))
    }
}

/// Zeros in what is passed.
struct Zeros {
    /// How many stand last.
    run: u64,
    is_all: bool,
    has_block: bool,
}

impl Default for Zeros {
    fn default() -> Zeros {
        Zeros { run: 0, is_all: true, has_block: false }
    }
}

impl Zeros {
    /// Whether the last block of a file that ends there, which may be short, has nothing else.
    fn are_at_end(&self, end: u64) -> bool {
        self.run > 0 && (self.is_all || self.run >= end % BLOCK_BYTES)
    }

    /// These bytes stand at this place of the file.
    fn pass(&mut self, mut at: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let left = usize::try_from(BLOCK_BYTES - at % BLOCK_BYTES).unwrap_or(usize::MAX);
            let (block, rest) = bytes.split_at(left.min(bytes.len()));
            match block.iter().rposition(|byte| *byte != 0) {
                None => self.run += block.len() as u64,
                Some(last) => {
                    self.run = (block.len() - last - 1) as u64;
                    self.is_all = false;
                }
            }
            at += block.len() as u64;
            // (What stands before the broken place in the first block may have been written there before.)
            self.has_block |= at.is_multiple_of(BLOCK_BYTES) && (self.is_all || self.run >= BLOCK_BYTES);
            bytes = rest;
        }
    }
}
