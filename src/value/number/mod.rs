//! Numbers as Redis 7.0.15 reads and writes them, on x86-64 with glibc.
//!
//! Four kinds, each with its own idea of what is a number:
//!
//! | kind        | read by                | written by        | here                         |
//! |-------------|------------------------|-------------------|------------------------------|
//! | integer     | `string2ll`, strict    | `ll2string`       | [`parse_i64`], [`write_i64`] |
//! | cursor      | `strtoul`              |                   | [`parse_u64`]                |
//! | double      | `string2d`, `strtod`   | `%.17g`           | [`parse_f64`], [`write_f64`] |
//! | long double | `string2ld`, `strtold` | `%.17Lf`, trimmed | [`LongDouble`]               |
//!
//! A long double is x87's extended format: 64 bits of mantissa, 15 of exponent. INCRBYFLOAT and
//! HINCRBYFLOAT compute in it, and its extra bits show in the replies, so it is computed here in
//! software.
//!
//! | file | what |
//! |---|---|
//! | `double.rs` | doubles |
//! | `long_double.rs` | long doubles |
//! | `text.rs` | what the texts of both kinds of floats have in common |

mod double;
mod long_double;
#[cfg(test)]
mod tests;
mod text;

pub use double::{compare_f64, parse_f64, strtod, write_f64};
pub use long_double::{LONG_DOUBLE_TEXT_BYTES_MAX, LongDouble, LongDoubleError, add_long_double};

use text::split_sign;

/// Bytes of the longest `i64` in decimal, its sign included.
pub const I64_TEXT_BYTES_MAX: usize = 20;

/// Reads an integer as Redis's `string2ll` does: the one text [`write_i64`] would write for it, and
/// nothing else. No plus, no leading zero, no space, no `-0`; `None` for these and for anything out
/// of range.
#[inline]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        _ => (false, text),
    };
    match digits {
        [b'1'..=b'9', ..] => {}
        [b'0'] if !negative => return Some(0),
        _ => return None,
    }
    // Any 19 digits fit a u64, so nothing below can wrap.
    if digits.len() > 19 {
        return None;
    }
    let mut magnitude: u64 = 0;
    let (eights, rest) = digits.as_chunks::<8>();
    for eight in eights {
        magnitude = magnitude * 100_000_000 + parse_eight_digits(*eight)?;
    }
    for &byte in rest {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        magnitude = magnitude * 10 + u64::from(digit);
    }
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// Eight digits in three multiplications: neighbours are joined to pairs, pairs to fours, fours to
/// the whole (D. Lemire, "Quickly parsing eight digits", 2018).
#[inline]
fn parse_eight_digits(digits: [u8; 8]) -> Option<u64> {
    const ZEROS: u64 = 0x3030_3030_3030_3030;
    const HIGH_NIBBLES: u64 = 0xf0f0_f0f0_f0f0_f0f0;
    const SIXES: u64 = 0x0606_0606_0606_0606;
    let text = u64::from_le_bytes(digits);
    // A digit has the high nibble 3, and has it still when 6 is added, which ':' to '?' have not.
    if (text & HIGH_NIBBLES) | ((text.wrapping_add(SIXES) & HIGH_NIBBLES) >> 4) != 0x3333_3333_3333_3333 {
        return None;
    }
    let ones = text - ZEROS;
    let pairs = (ones * 10) + (ones >> 8);
    let low = (pairs & 0x0000_00ff_0000_00ff).wrapping_mul(0x000f_4240_0000_0064);
    let high = ((pairs >> 16) & 0x0000_00ff_0000_00ff).wrapping_mul(0x0000_2710_0000_0001);
    Some(low.wrapping_add(high) >> 32)
}

/// Appends `n` in decimal.
#[inline]
pub fn write_i64(out: &mut Vec<u8>, n: i64) {
    let mut buffer = [0; I64_TEXT_BYTES_MAX];
    out.extend_from_slice(format_i64(n, &mut buffer));
}

/// Writes `n` in decimal at the end of `buffer`, two digits a step, and returns the part that was
/// written.
#[inline]
pub fn format_i64(n: i64, buffer: &mut [u8; I64_TEXT_BYTES_MAX]) -> &[u8] {
    let mut begin = format_digits(n.unsigned_abs(), buffer);
    if n < 0 {
        begin -= 1;
        buffer[begin] = b'-';
    }
    &buffer[begin..]
}

/// [`format_i64`] for what has no sign.
#[inline]
pub fn format_u64(n: u64, buffer: &mut [u8; I64_TEXT_BYTES_MAX]) -> &[u8] {
    let begin = format_digits(n, buffer);
    &buffer[begin..]
}

/// `00` to `99`.
const DIGIT_PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut n = 0;
    while n < pairs.len() {
        pairs[n] = [b'0' + (n / 10) as u8, b'0' + (n % 10) as u8];
        n += 1;
    }
    pairs
};

/// Writes `n` at the end of `buffer`, which holds any u64, and returns where it begins.
#[inline]
fn format_digits(mut n: u64, buffer: &mut [u8; I64_TEXT_BYTES_MAX]) -> usize {
    let mut begin = buffer.len();
    while n >= 100 {
        begin -= 2;
        buffer[begin..begin + 2].copy_from_slice(&DIGIT_PAIRS[(n % 100) as usize]);
        n /= 100;
    }
    if n >= 10 {
        begin -= 2;
        buffer[begin..begin + 2].copy_from_slice(&DIGIT_PAIRS[n as usize]);
    } else {
        begin -= 1;
        buffer[begin] = b'0' + n as u8;
    }
    begin
}

/// Reads the cursor of SCAN and its kin as Redis's `parseScanCursorOrReply` does, on `strtoul`.
///
/// So a sign and leading zeros are taken, a negative number wraps around (`-1` is the largest
/// cursor), the empty text is 0, and the text ends at its first NUL. `None` for a leading space,
/// anything behind the digits, and a magnitude out of range.
pub fn parse_u64(text: &[u8]) -> Option<u64> {
    let text = match memchr::memchr(0, text) {
        Some(end) => &text[..end],
        None => text,
    };
    if text.is_empty() {
        return Some(0);
    }
    let (negative, digits) = split_sign(text);
    if digits.is_empty() {
        return None;
    }
    let mut magnitude: u64 = 0;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        magnitude = magnitude.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(if negative { magnitude.wrapping_neg() } else { magnitude })
}
