//! The library `struct`, which packs values as C structs have them: Roberto Ierusalimschy's, version 0.2, with the checks
//! that Redis added (<http://www.inf.puc-rio.br/~roberto/struct/>).
//!
//! A format is a C string, so that it ends at a zero byte. Integers have at most 32 bytes, of which 8 carry a value; sizes
//! are below 2^31; results are as many as a function's stack has places (8000).

use super::output::Output;
use super::state::{Lua, Raise, Returned, to_integer};

/// The most bytes of an integer.
const MAX_INTEGER: usize = 32;
/// What `!` alone means: the most that any of C's types asks for.
const MAX_ALIGN: usize = 8;

/// Pushes the library.
pub fn open(lua: Lua) {
    lua.new_table(0, 4);
    lua.set_function(-1, "pack", pack);
    lua.set_function(-1, "unpack", unpack);
    lua.set_function(-1, "size", size);
}

/// A format, option by option.
struct Format<'f> {
    lua: Lua,
    rest: &'f [u8],
    is_big: bool,
    align: usize,
}

impl<'f> Format<'f> {
    fn new(lua: Lua) -> Result<Format<'f>, Raise> {
        let text = lua.check_bytes(1)?;
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        Ok(Format { lua, rest: &text[..end], is_big: false, align: 1 })
    }

    /// The next option and its size; options that only control the others have none.
    fn next(&mut self) -> Result<Option<(u8, usize)>, Raise> {
        let Some((option, rest)) = self.rest.split_first() else { return Ok(None) };
        self.rest = rest;
        let size = match option {
            b'B' | b'b' | b'x' => 1,
            b'H' | b'h' => 2,
            b'f' => 4,
            b'L' | b'l' | b'T' | b'd' => 8,
            b'c' => self.number(1)?,
            b'i' | b'I' => {
                let size = self.number(4)?;
                if size > MAX_INTEGER {
                    let text = format!("integral size {size} is larger than limit of {MAX_INTEGER}");
                    return Err(self.lua.error(text));
                }
                size
            }
            _ => 0,
        };
        Ok(Some((*option, size)))
    }

    /// The number that stands next, or else this one.
    fn number(&mut self, default: usize) -> Result<usize, Raise> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return Ok(default);
        }
        let (digits, rest) = self.rest.split_at(digits);
        self.rest = rest;
        let mut number = 0;
        for digit in digits {
            number = number * 10 + usize::from(digit - b'0');
            if number > i32::MAX as usize {
                return Err(self.lua.error("integral size overflow"));
            }
        }
        Ok(number)
    }

    /// The bytes to be skipped before a value of this size.
    fn padding(&self, position: usize, option: u8, size: usize) -> usize {
        if size == 0 || option == b'c' {
            return 0;
        }
        let mask = size.min(self.align) - 1;
        (mask + 1).wrapping_sub(position & mask) & mask
    }

    /// An option that is not about a value.
    fn control(&mut self, option: u8) -> Result<(), Raise> {
        match option {
            b' ' => (),
            b'>' => self.is_big = true,
            b'<' => self.is_big = false,
            b'!' => {
                let align = self.number(MAX_ALIGN)?;
                if !align.is_power_of_two() {
                    return Err(self.lua.error(format!("alignment {align} is not a power of 2")));
                }
                self.align = align;
            }
            _ => {
                let option = [option];
                let text = format!("invalid format option '{}'", String::from_utf8_lossy(&option));
                return Err(self.lua.arg_error(1, &text));
            }
        }
        Ok(())
    }
}

fn is_integer(option: u8) -> bool {
    matches!(option, b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I')
}

/// A number as C on x86-64 makes it an unsigned integer of 64 bits.
fn to_unsigned(number: f64) -> u64 {
    const HALF: f64 = 9_223_372_036_854_775_808.0;
    if number >= HALF { (to_integer(number - HALF) as u64) ^ (1 << 63) } else { to_integer(number) as u64 }
}

fn pack(lua: Lua) -> Returned {
    let mut format = Format::new(lua)?;
    let mut output = Output::new(lua);
    // Arguments that are missing are nil, as errors say.
    lua.push_nil();
    let mut arg = 2;
    while let Some((option, size)) = format.next()? {
        let out = &mut output.bytes;
        let before = out.len();
        out.resize(before + format.padding(before, option, size), 0);
        match option {
            b'x' => out.push(0),
            b'f' => {
                let bytes = (lua.check_number(arg)? as f32).to_bits();
                out.extend(if format.is_big { bytes.to_be_bytes() } else { bytes.to_le_bytes() });
                arg += 1;
            }
            b'd' => {
                let bytes = lua.check_number(arg)?.to_bits();
                out.extend(if format.is_big { bytes.to_be_bytes() } else { bytes.to_le_bytes() });
                arg += 1;
            }
            b'c' | b's' => {
                let text = lua.check_bytes(arg)?;
                arg += 1;
                let size = if size == 0 { text.len() } else { size };
                let Some(text) = text.get(..size) else { return Err(lua.arg_error(arg, "string too short")) };
                output.reserve(size + 1)?;
                let out = &mut output.bytes;
                out.extend_from_slice(text);
                if option == b's' {
                    out.push(0);
                }
            }
            _ if is_integer(option) => {
                put_integer(out, to_unsigned(lua.check_number(arg)?), size, format.is_big);
                arg += 1;
            }
            _ => format.control(option)?,
        }
        output.count()?;
        lua.checkpoint(20 + (output.bytes.len() - before) / 8)?;
    }
    output.push()
}

fn put_integer(out: &mut Vec<u8>, value: u64, size: usize, is_big: bool) {
    let mut bytes = [0; MAX_INTEGER];
    bytes[..8].copy_from_slice(&value.to_le_bytes());
    if is_big {
        out.extend(bytes[..size].iter().rev());
    } else {
        out.extend(&bytes[..size]);
    }
}

fn get_integer(bytes: &[u8], is_big: bool, is_signed: bool) -> f64 {
    let add = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    let value = if is_big { bytes.iter().fold(0, add) } else { bytes.iter().rev().fold(0, add) };
    if !is_signed {
        return value as f64;
    }
    // The shift is taken modulo 64, as the processor does it, for sizes of no C type.
    let sign = u64::MAX.wrapping_shl((bytes.len() as u32 * 8).wrapping_sub(1));
    let value = if value & sign != 0 { value | sign } else { value };
    value.cast_signed() as f64
}

fn unpack(lua: Lua) -> Returned {
    const TOO_SHORT: &str = "data string too short";
    let mut format = Format::new(lua)?;
    let data = lua.check_bytes(2)?;
    let from = lua.check_integer_or(3, 1)?;
    if from == 0 {
        return Err(lua.arg_error(3, "offset must be 1 or greater"));
    }
    // A negative one is taken for a very large one, which matters where the format is empty.
    let mut at = (from as usize).wrapping_sub(1);
    let mut results = 0;
    while let Some((option, mut size)) = format.next()? {
        at = at.wrapping_add(format.padding(at, option, size));
        let Some(mut bytes) = data.get(at..at.saturating_add(size)) else { return Err(lua.arg_error(2, TOO_SHORT)) };
        if !lua.has_room(2) {
            return Err(lua.fail("stack overflow (too many results)"));
        }
        results += 1;
        match option {
            b'f' => {
                let value: [u8; 4] = bytes.try_into().unwrap_or_default();
                let value = if format.is_big { f32::from_be_bytes(value) } else { f32::from_le_bytes(value) };
                lua.push_number(f64::from(value));
            }
            b'd' => {
                let value: [u8; 8] = bytes.try_into().unwrap_or_default();
                lua.push_number(if format.is_big { f64::from_be_bytes(value) } else { f64::from_le_bytes(value) });
            }
            b'c' => {
                if size == 0 {
                    let Some(number) = lua.to_number(-1).filter(|_| results > 1) else {
                        return Err(lua.error("format 'c0' needs a previous size"));
                    };
                    lua.pop(1);
                    results -= 1;
                    size = to_unsigned(number) as usize;
                    bytes = match data.get(at..at.saturating_add(size)) {
                        Some(bytes) => bytes,
                        None => return Err(lua.arg_error(2, TOO_SHORT)),
                    };
                }
                lua.check_memory(size)?;
                lua.push_bytes(bytes);
            }
            b's' => {
                let rest = &data[at..];
                let Some(end) = rest.iter().position(|byte| *byte == 0) else {
                    return Err(lua.error("unfinished string in data"));
                };
                size = end + 1;
                lua.check_memory(size)?;
                lua.push_bytes(&rest[..end]);
            }
            _ if is_integer(option) => {
                lua.push_number(get_integer(bytes, format.is_big, option.is_ascii_lowercase()));
            }
            _ => {
                results -= 1;
                if option != b'x' {
                    format.control(option)?;
                }
            }
        }
        at += size;
        lua.checkpoint(20 + size / 8)?;
    }
    lua.push_number((at as i64).wrapping_add(1) as f64);
    Ok(results + 1)
}

fn size(lua: Lua) -> Returned {
    let mut format = Format::new(lua)?;
    let mut total = 0_usize;
    while let Some((option, size)) = format.next()? {
        total = total.wrapping_add(format.padding(total, option, size));
        if option == b's' {
            return Err(lua.arg_error(1, "option 's' has no fixed size"));
        }
        if option == b'c' && size == 0 {
            return Err(lua.arg_error(1, "option 'c0' has no fixed size"));
        }
        // Letters and digits that mean nothing are let pass.
        if !option.is_ascii_alphanumeric() {
            format.control(option)?;
        }
        total = total.wrapping_add(size);
        lua.checkpoint(5)?;
    }
    lua.push_number(total as i64 as f64);
    Ok(1)
}

#[cfg(test)]
mod tests {
    use super::super::trial::eval;

    #[test]
    fn what_is_packed_is_unpacked() {
        let script = "local s = struct.pack('>!4bi<hdsc0c2', -3, 70000, -2, 0.1, 'ab', 'xyz', 'pqr') \
                      local t = {struct.unpack('>!4bi<hdsc3c2', s)} return #s .. ':' .. table.concat(t, ' ')";
        assert_eq!(eval(script), "28:-3 70000 -2 0.1 ab xyz pq 29");
    }

    #[test]
    fn sizes_are_aligned() {
        assert_eq!(
            eval("return struct.size('!bi8') .. ' ' .. struct.size('bi8') .. ' ' .. struct.size('!4bi8')"),
            "16 9 12"
        );
    }

    #[test]
    fn bounds_are_checked() {
        let short = "error: user_script:1: bad argument #2 to 'unpack' (data string too short)";
        assert_eq!(eval("return struct.unpack('dc0', struct.pack('d', 1e10) .. 'abc')"), short);
        assert_eq!(eval("return struct.unpack('i', 'abcd', 2^62)"), short);
        assert_eq!(eval("return struct.pack('c9999999999', 'a')"), "error: user_script:1: integral size overflow");
        let over = "error: user_script:1: stack overflow (too many results)";
        assert_eq!(eval("return struct.unpack(('b'):rep(9000), ('b'):rep(9000))"), over);
    }
}
