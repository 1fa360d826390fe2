//! `string.format`.
//!
//! Lua's own puts its result together in buffers of some kilobytes on the stack.

use super::output::{Output, PIECE, find_byte};
use super::state::{Lua, Raise, Returned, to_integer};
use std::ffi::{c_char, c_int, c_long, c_ulong};

unsafe extern "C" {
    fn snprintf(buffer: *mut c_char, bytes: usize, format: *const c_char, ...) -> c_int;
}

const FLAGS: &[u8] = b"-+ #0";
/// A specification as C reads it: `%`, flags, a width and a precision of two digits each, the mark of a long integer, a
/// letter, a zero.
const SPEC_BYTES: usize = 16;
/// The longest item has 309 digits before the point and 99 after it.
const ITEM_BYTES: usize = 512;
/// A string that is as long as this is not padded, and keeps its zeros.
const LONG: usize = 100;

pub fn format(lua: Lua) -> Returned {
    let mut rest = lua.check_bytes(1)?;
    let mut output = Output::new(lua);
    let mut arg = 1;
    while let Some(percent) = find_byte(lua, b'%', rest)? {
        output.add(&rest[..percent])?;
        lua.checkpoint(100)?;
        rest = &rest[percent + 1..];
        if let Some(after) = rest.strip_prefix(b"%") {
            output.add(b"%")?;
            rest = after;
            continue;
        }
        arg += 1;
        if arg > lua.top() {
            return Err(lua.arg_error(arg, "no value"));
        }
        let spec = spec_len(lua, rest)?;
        let letter = rest.get(spec).copied().unwrap_or(0);
        add_item(lua, &mut output, &rest[..spec], letter, arg)?;
        rest = &rest[spec + 1..];
    }
    output.add(rest)?;
    output.push()
}

/// Where the letter is.
fn spec_len(lua: Lua, format: &[u8]) -> Result<usize, Raise> {
    let is_digit = |place: usize| format.get(place).is_some_and(u8::is_ascii_digit);
    let mut len = format.iter().take(FLAGS.len() + 1).take_while(|byte| FLAGS.contains(byte)).count();
    if len > FLAGS.len() {
        return Err(lua.error("invalid format (repeated flags)"));
    }
    let skip_two_digits =
        |len: usize| len + usize::from(is_digit(len)) + usize::from(is_digit(len) && is_digit(len + 1));
    len = skip_two_digits(len);
    if format.get(len) == Some(&b'.') {
        len = skip_two_digits(len + 1);
    }
    if is_digit(len) {
        return Err(lua.error("invalid format (width or precision too long)"));
    }
    Ok(len)
}

fn add_item(lua: Lua, output: &mut Output, spec: &[u8], letter: u8, arg: c_int) -> Result<(), Raise> {
    match letter {
        b'c' => {
            // C's conversion, of which the lowest byte is printed.
            let number = lua.check_number(arg)?;
            let code = if number.abs() < 2_147_483_648.0 { number as c_int } else { c_int::MIN };
            print(output, spec, b"c", |buffer, format| {
                // SAFETY: see `print`; an int is what the specification asks for.
                unsafe { snprintf(buffer, ITEM_BYTES, format, code) }
            })
        }
        b'd' | b'i' => {
            let number: c_long = lua.check_integer(arg)?;
            print(output, spec, &[b'l', letter], |buffer, format| {
                // SAFETY: see `print`; a long is what the specification asks for.
                unsafe { snprintf(buffer, ITEM_BYTES, format, number) }
            })
        }
        b'o' | b'u' | b'x' | b'X' => {
            let number = to_unsigned(lua.check_number(arg)?);
            print(output, spec, &[b'l', letter], |buffer, format| {
                // SAFETY: see `print`; an unsigned long is what the specification asks for.
                unsafe { snprintf(buffer, ITEM_BYTES, format, number) }
            })
        }
        b'e' | b'E' | b'f' | b'g' | b'G' => {
            let number = lua.check_number(arg)?;
            print(output, spec, &[letter], |buffer, format| {
                // SAFETY: see `print`; a double is what the specification asks for.
                unsafe { snprintf(buffer, ITEM_BYTES, format, number) }
            })
        }
        b'q' => add_quoted(lua, output, lua.check_bytes(arg)?),
        b's' => {
            let text = lua.check_bytes(arg)?;
            if text.len() >= LONG && !spec.contains(&b'.') {
                return output.add(text);
            }
            // A precision is less than this.
            let mut ended = [0; LONG + 1];
            let len = text.len().min(LONG);
            ended[..len].copy_from_slice(&text[..len]);
            print(output, spec, b"s", |buffer, format| {
                // SAFETY: see `print`; a string that ends with a zero is what the specification asks for.
                unsafe { snprintf(buffer, ITEM_BYTES, format, ended.as_ptr()) }
            })
        }
        other => {
            let mut text = b"invalid option '%".to_vec();
            text.extend((other != 0).then_some(other));
            text.extend_from_slice(b"' to 'format'");
            Err(lua.error(text))
        }
    }
}

/// Prints with C's own function: into a buffer of [`ITEM_BYTES`], with a format that ends with a zero.
fn print(
    output: &mut Output,
    spec: &[u8],
    letters: &[u8],
    snprintf: impl FnOnce(*mut c_char, *const c_char) -> c_int,
) -> Result<(), Raise> {
    let mut format = [0; SPEC_BYTES];
    format[0] = b'%';
    format[1..=spec.len()].copy_from_slice(spec);
    format[1 + spec.len()..][..letters.len()].copy_from_slice(letters);
    let mut buffer = [0_u8; ITEM_BYTES];
    snprintf(buffer.as_mut_ptr().cast(), format.as_ptr().cast());
    // As C's strings do, an item ends with its first zero, also where that is what `%c` has printed.
    output.add(&buffer[..memchr::memchr(0, &buffer).unwrap_or(0)])
}

/// A number as an unsigned integer, as a C cast on x86-64 has it.
fn to_unsigned(number: f64) -> c_ulong {
    const HALF: f64 = 9_223_372_036_854_775_808.0;
    if number >= HALF { to_integer(number - HALF) as c_ulong ^ 1 << 63 } else { to_integer(number) as c_ulong }
}

/// Adds a string as Lua code would have it.
fn add_quoted(lua: Lua, output: &mut Output, text: &[u8]) -> Result<(), Raise> {
    output.add(b"\"")?;
    for piece in text.chunks(PIECE) {
        for run in piece.chunk_by(|one, _| !is_special(*one)) {
            // What is special is the last byte of its run.
            let (last, before) = match run.split_last() {
                Some((last, before)) if is_special(*last) => (Some(*last), before),
                _ => (None, run),
            };
            output.add(before)?;
            match last {
                Some(b'\r') => output.add(b"\\r")?,
                Some(0) => output.add(b"\\000")?,
                Some(other) => output.add(&[b'\\', other])?,
                None => (),
            }
            lua.checkpoint(10 + run.len())?;
        }
    }
    output.add(b"\"")
}

fn is_special(byte: u8) -> bool {
    matches!(byte, b'"' | b'\\' | b'\n' | b'\r' | 0)
}

#[cfg(test)]
mod tests {
    use super::super::trial::eval;

    #[test]
    fn formats_are_those_of_c() {
        for (args, result) in [
            ("'%5.1f|%-5d|%+d|%05d', 2.25, 3.9, 4, 5", "  2.2|3    |+4|00005"),
            ("'%x %X %o %u', 255, 255, 8, -1", "ff FF 10 18446744073709551615"),
            ("'%g %e %G', 1e20, 1, 1e-10", "1e+20 1.000000e+00 1E-10"),
            ("'%c%c%%', 65, 256 + 66", "AB%"),
            ("'%5s|%-5s|%.2s', 'a', 'b', 'cde'", "    a|b    |cd"),
            ("'%s', 'a\\0b'", "a"),
            ("'%q', 'a\"\\n\\r\\0'", "\"a\\\"\\\n\\r\\000\""),
            ("'%d', 0/0", "-9223372036854775808"),
        ] {
            assert_eq!(eval(&format!("return string.format({args})")), result, "{args}");
        }
        assert_eq!(eval("return #string.format('%s', ('a\\0'):rep(50))"), "100");
    }

    #[test]
    fn formats_that_are_none_fail() {
        for (args, error) in [
            ("'%y', 1", "invalid option '%y' to 'format'"),
            ("'%', 1", "invalid option '%' to 'format'"),
            ("'%123d', 1", "invalid format (width or precision too long)"),
            ("'%------d', 1", "invalid format (repeated flags)"),
            ("'%d'", "bad argument #2 to 'format' (no value)"),
            ("'%d', 'x'", "bad argument #2 to 'format' (number expected, got string)"),
        ] {
            assert_eq!(eval(&format!("return string.format({args})")), format!("error: user_script:1: {error}"));
        }
    }
}
