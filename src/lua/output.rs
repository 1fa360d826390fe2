//! Long strings: what functions write piece by piece, with a bound.

use super::memory::MAX_BYTES;
use super::state::{Lua, Raise, Returned};

/// What is worked on at once.
pub const PIECE: usize = 1 << 16;
/// Bytes that are copied in the time that a step takes.
pub const BYTES_A_STEP: usize = 8;

/// Bytes that a function of ours holds, counted with those of its machine until it is over.
pub struct Held {
    lua: Lua,
    bytes: usize,
}

impl Held {
    pub fn new(lua: Lua) -> Held {
        Held { lua, bytes: 0 }
    }

    /// So many from now on.
    pub fn set(&mut self, bytes: usize) -> Result<(), Raise> {
        if bytes != self.bytes {
            if !self.lua.memory().hold(self.bytes, bytes) {
                return Err(self.lua.out_of_memory());
            }
            self.bytes = bytes;
        }
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.lua.memory().hold(self.bytes, 0);
    }
}

/// A string that is being made.
pub struct Output {
    lua: Lua,
    pub bytes: Vec<u8>,
    held: Held,
}

impl Output {
    pub fn new(lua: Lua) -> Output {
        Output { lua, bytes: Vec::new(), held: Held::new(lua) }
    }

    /// Makes room, so that as much is added without growing.
    pub fn reserve(&mut self, more: usize) -> Result<(), Raise> {
        let (len, capacity) = (self.bytes.len(), self.bytes.capacity());
        if more > capacity - len {
            // As it grows by itself, and no longer than it may become.
            let wanted = len.saturating_add(more).max(capacity.saturating_mul(2).min(MAX_BYTES));
            self.held.set(wanted)?;
            if self.bytes.try_reserve_exact(wanted - len).is_err() {
                return Err(self.lua.out_of_memory());
            }
        }
        Ok(())
    }

    /// To be called where `bytes` was written to.
    pub fn count(&mut self) -> Result<(), Raise> {
        self.held.set(self.bytes.capacity())
    }

    /// Adds bytes, of a string that is on the stack if there are many.
    pub fn add(&mut self, more: &[u8]) -> Result<(), Raise> {
        self.reserve(more.len())?;
        if more.len() <= PIECE {
            self.bytes.extend_from_slice(more);
            return Ok(());
        }
        for piece in more.chunks(PIECE) {
            self.bytes.extend_from_slice(piece);
            self.lua.checkpoint(piece.len() / BYTES_A_STEP)?;
        }
        Ok(())
    }

    /// Pushes the string, as a function's only result.
    pub fn push(self) -> Returned {
        let Output { lua, bytes, held } = self;
        // Nothing else runs until there is one of them again.
        drop(held);
        lua.push_bytes(bytes);
        Ok(1)
    }
}

/// Where a byte is first. Long strings are looked through in pieces.
pub fn find_byte(lua: Lua, byte: u8, bytes: &[u8]) -> Result<Option<usize>, Raise> {
    for (index, piece) in bytes.chunks(PIECE).enumerate() {
        if let Some(place) = memchr::memchr(byte, piece) {
            return Ok(Some(index * PIECE + place));
        }
        lua.checkpoint(piece.len() / BYTES_A_STEP)?;
    }
    Ok(None)
}
