//! Long strings: what functions write piece by piece, with a bound.

use super::memory::MAX_BYTES;
use super::state::{Lua, Raise, Returned};

/// What is worked on at once.
pub const PIECE: usize = 1 << 16;
/// Bytes that are copied in the time that a step takes.
pub const BYTES_A_STEP: usize = 8;

/// A string that is being made.
pub struct Output {
    lua: Lua,
    pub bytes: Vec<u8>,
}

impl Output {
    pub fn new(lua: Lua) -> Output {
        Output { lua, bytes: Vec::new() }
    }

    /// Makes room, so that as much is added without growing.
    pub fn reserve(&mut self, more: usize) -> Result<(), Raise> {
        if more > MAX_BYTES - self.bytes.len() || self.bytes.try_reserve(more).is_err() {
            return Err(self.lua.out_of_memory());
        }
        Ok(())
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
        self.lua.push_bytes(&self.bytes);
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
