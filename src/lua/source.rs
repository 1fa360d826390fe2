//! Source becomes a function: the parser reads it in pieces, between which others have their turns.

use super::ffi;
use super::memory;
use super::run::check_killed;
use super::state::{Lua, Raise};
use std::ffi::{CStr, c_char, c_void};

/// Bytes of source that the parser is given at once: a word may refer to any of some 10,000 names around it, all of which are
/// looked at.
const SOURCE_PIECE: usize = 256;
/// Steps that the parser takes for a byte.
const PARSE_STEPS: usize = 20;

impl Lua {
    /// Compiles source and pushes the function, or else an error. The parser gets a piece after the other, so that a run is
    /// suspended in between, or ended.
    pub fn load(self, source: &[u8], name: &CStr) -> Result<(), Raise> {
        let mut reader = Reader { pieces: source.chunks(SOURCE_PIECE), is_first: true, is_ended: false };
        let data = std::ptr::from_mut(&mut reader).cast();
        // The parser asks for memory in Lua's own way and raises where there is none: under its own protected call.
        memory::leave_native();
        // SAFETY: source and reader live as long as the call.
        let status = unsafe { ffi::lua_load(self.0, next_piece, data, name.as_ptr()) };
        memory::enter_native();
        if reader.is_ended {
            // What it makes of the pieces until then is nothing.
            self.pop(1);
            check_killed(self)?;
        }
        if status == 0 { Ok(()) } else { Err(Raise) }
    }
}

/// Source that is being read.
struct Reader<'s> {
    pieces: std::slice::Chunks<'s, u8>,
    is_first: bool,
    /// The run is to end: there is no more.
    is_ended: bool,
}

/// Lua calls this for more source.
unsafe extern "C-unwind" fn next_piece(
    state: *mut ffi::lua_State,
    reader: *mut c_void,
    bytes: *mut usize,
) -> *const c_char {
    // SAFETY: `load` has made it, and nobody else has it meanwhile.
    let reader = unsafe { &mut *reader.cast::<Reader>() };
    if !std::mem::take(&mut reader.is_first) {
        memory::enter_native();
        if Lua(state).checkpoint(PARSE_STEPS * SOURCE_PIECE).is_err() {
            Lua(state).pop(1);
            reader.is_ended = true;
        }
        memory::leave_native();
    }
    let piece = reader.pieces.next().filter(|_| !reader.is_ended).unwrap_or_default();
    // SAFETY: Lua wants the number there.
    unsafe { *bytes = piece.len() };
    piece.as_ptr().cast()
}
