//! Lua's string library, where its own could take for ever, or differs from Redis's.

use super::memory::MAX_BYTES;
use super::output::{BYTES_A_STEP, Output, PIECE};
use super::state::{Lua, Returned};
use super::{formats, search};

/// Replaces functions of the library, which is on top of the stack.
pub fn open(lua: Lua) {
    lua.set_function(-1, "rep", rep);
    lua.set_function(-1, "reverse", reverse);
    lua.set_function(-1, "lower", lower);
    lua.set_function(-1, "upper", upper);
    lua.set_function(-1, "format", formats::format);
    search::open(lua);
}

fn rep(lua: Lua) -> Returned {
    let unit = lua.check_bytes(1)?;
    // Lua counts in C's integers.
    let count = usize::try_from(lua.check_integer(2)? as i32).unwrap_or(0);
    let Some(total) = unit.len().checked_mul(count).filter(|total| *total <= MAX_BYTES) else {
        return Err(lua.out_of_memory());
    };
    let mut output = Output::new(lua);
    output.reserve(total)?;
    if total == 0 {
        return output.push();
    }
    output.add(unit)?;
    // What is there already is repeated, from where the unit goes on.
    while output.bytes.len() < total {
        let made = output.bytes.len();
        let from = made % unit.len();
        let more = (total - made).min(made - from).min(PIECE);
        output.bytes.extend_from_within(from..from + more);
        lua.checkpoint(more / BYTES_A_STEP)?;
    }
    output.push()
}

fn reverse(lua: Lua) -> Returned {
    let bytes = lua.check_bytes(1)?;
    changed(lua, bytes.rchunks(PIECE), bytes.len(), |piece| piece.reverse())
}

fn lower(lua: Lua) -> Returned {
    let bytes = lua.check_bytes(1)?;
    changed(lua, bytes.chunks(PIECE), bytes.len(), <[u8]>::make_ascii_lowercase)
}

fn upper(lua: Lua) -> Returned {
    let bytes = lua.check_bytes(1)?;
    changed(lua, bytes.chunks(PIECE), bytes.len(), <[u8]>::make_ascii_uppercase)
}

fn changed<'s>(lua: Lua, pieces: impl Iterator<Item = &'s [u8]>, len: usize, change: fn(&mut [u8])) -> Returned {
    let mut output = Output::new(lua);
    output.reserve(len)?;
    for piece in pieces {
        let from = output.bytes.len();
        output.add(piece)?;
        change(&mut output.bytes[from..]);
        lua.checkpoint(piece.len() / BYTES_A_STEP)?;
    }
    output.push()
}

#[cfg(test)]
mod tests {
    use super::super::trial::eval;

    #[test]
    fn strings_are_repeated_and_changed_byte_by_byte() {
        assert_eq!(eval("return string.rep('abc', 3)"), "abcabcabc");
        assert_eq!(eval("return string.rep('abc', 1e5) == ('abcabc'):rep(5e4)"), "true");
        assert_eq!(eval("return string.rep('x', 2^32 + 2) .. string.rep('x', -1) .. string.rep('', 2^31 - 1)"), "xx");
        assert_eq!(eval("return string.reverse(('ab'):rep(1e5)) == ('ba'):rep(1e5)"), "true");
        assert_eq!(eval("return string.upper('az\\0') .. string.lower('AZ')"), "AZ\0az");
    }

    #[test]
    fn nothing_becomes_longer_than_it_may() {
        assert_eq!(eval("return string.rep('x', 1e10)"), "error: not enough memory");
        assert_eq!(
            eval("local s = ('%0'):rep(1e4) return string.gsub(('x'):rep(6e4), 'x+', s)"),
            "error: not enough memory"
        );
        assert_eq!(
            eval("local t, s = {}, ('x'):rep(1e6) for i = 1, 1e4 do t[i] = s end return table.concat(t)"),
            "error: not enough memory"
        );
    }
}
