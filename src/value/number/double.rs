//! Doubles: scores, and ends of their ranges.

use super::text::{is_decimal_zero, is_infinity, parse_hex, significant_len, split_sign};
use super::{parse_i64, write_i64};
use rustc_apfloat::Float;
use rustc_apfloat::ieee::Double;
use std::io::Write;

/// Reads a double as Redis's `string2d` does: what `strtod` takes, whole.
///
/// Taken: a sign, `inf` and `infinity` in any case, `1.`, `.5`, an exponent, hexadecimal
/// (`0x1.8p3`). `None` for NaN, the empty text, spaces, a number too large for a double, and one
/// other than zero that is rounded to zero; a subnormal is fine.
pub fn parse_f64(text: &[u8]) -> Option<f64> {
    // Rounded to the nearest, as every number is.
    if let Some(n) = parse_i64(text) {
        return Some(n as f64);
    }
    let (negative, unsigned) = split_sign(text);
    let (magnitude, _) = read_f64(unsigned).filter(|(_, in_range)| *in_range)?;
    Some(if negative { -magnitude } else { magnitude })
}

/// Reads a double as `strtod` does where nothing may follow it, for the ends of ranges of scores:
/// the forms of [`parse_f64`], behind spaces, too; the empty text, which is 0; what is rounded to
/// infinity or to zero. The text ends at its first NUL.
pub fn strtod(text: &[u8]) -> Option<f64> {
    let text = &text[..memchr::memchr(0, text).unwrap_or(text.len())];
    if text.is_empty() {
        return Some(0.0);
    }
    let start = text.iter().position(|byte| !matches!(byte, b' ' | b'\t'..=b'\r'))?;
    let (negative, unsigned) = split_sign(&text[start..]);
    let (magnitude, _) = read_f64(unsigned)?;
    Some(if negative { -magnitude } else { magnitude })
}

/// Reads a double without its sign, and says whether it is in range: not a number that is rounded
/// to infinity, nor one other than zero that is rounded to zero (ERANGE of `strtod`).
fn read_f64(unsigned: &[u8]) -> Option<(f64, bool)> {
    let (value, is_zero) = match unsigned {
        [b'i' | b'I', ..] => return is_infinity(unsigned).then_some((f64::INFINITY, true)),
        [b'0', b'x' | b'X', hex @ ..] => {
            let (value, is_zero) = parse_hex::<Double>(hex)?;
            (f64::from_bits(value.to_bits() as u64), is_zero)
        }
        // The standard library takes the same decimals as strtod, but knows names for what is not a
        // number.
        [b'0'..=b'9' | b'.', ..] => {
            let value: f64 = std::str::from_utf8(unsigned).ok()?.parse().ok()?;
            (value, value == 0.0 && is_decimal_zero(unsigned))
        }
        _ => return None,
    };
    Some((value, value.is_finite() && (value != 0.0 || is_zero)))
}

/// Appends `value` as a RESP2 reply of Redis 7.0.15 holds a score, `%.17g`; also `inf`, `-inf` and
/// `-0`.
///
/// (Redis shows the score -0 as `0` while its sorted set is a listpack, which stores it as an
/// integer.)
pub fn write_f64(out: &mut Vec<u8>, value: f64) {
    /// Digits of `%.17g`; an exponent from here on is written out.
    const DIGITS: i32 = 17;
    const INTEGER_END: f64 = 1e17;
    if value.is_nan() {
        out.extend_from_slice(b"nan");
        return;
    }
    if value.is_sign_negative() {
        out.push(b'-');
    }
    let magnitude = value.abs();
    if magnitude.is_infinite() {
        out.extend_from_slice(b"inf");
        return;
    }
    if magnitude < INTEGER_END && magnitude.trunc() == magnitude {
        write_i64(out, magnitude as i64);
        return;
    }
    // One digit, the point, sixteen digits, `e` and the exponent: at most 23 bytes.
    let mut buffer = [0u8; 32];
    let mut unwritten = &mut buffer[..];
    write!(unwritten, "{magnitude:.16e}").expect("a double in scientific form fits the buffer");
    let unwritten_len = unwritten.len();
    let (digits, exponent) = split_scientific(&buffer[..buffer.len() - unwritten_len]);
    let significant = &digits[..significant_len(&digits)];
    if (-4..0).contains(&exponent) {
        out.extend_from_slice(b"0.");
        out.resize(out.len() + exponent.unsigned_abs() as usize - 1, b'0');
        out.extend_from_slice(significant);
    } else if (0..DIGITS).contains(&exponent) {
        // A whole number took the way of the integers above, so digits are left behind the point.
        let (whole, fraction) = significant.split_at(exponent as usize + 1);
        out.extend_from_slice(whole);
        out.push(b'.');
        out.extend_from_slice(fraction);
    } else {
        let (first, others) = significant.split_at(1);
        out.extend_from_slice(first);
        if !others.is_empty() {
            out.push(b'.');
            out.extend_from_slice(others);
        }
        out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
        if exponent.unsigned_abs() < 10 {
            out.push(b'0');
        }
        write_i64(out, i64::from(exponent.unsigned_abs()));
    }
}

/// Splits `d.dddddddddddddddde-x` into its 17 digits and its exponent.
fn split_scientific(text: &[u8]) -> ([u8; 17], i32) {
    let (mantissa, exponent) = match memchr::memchr(b'e', text) {
        Some(place) => (&text[..place], &text[place + 1..]),
        None => (text, &text[..0]),
    };
    let mut digits = [b'0'; 17];
    let written = mantissa.iter().filter(|&&byte| byte != b'.');
    for (digit, &byte) in digits.iter_mut().zip(written) {
        *digit = byte;
    }
    (digits, parse_i64(exponent).unwrap_or(0) as i32)
}

/// A total order of all doubles in which the two zeros are equal, as `total_cmp` does not have it, and what is no number
/// comes last.
#[inline]
pub fn compare_f64(a: f64, b: f64) -> std::cmp::Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}
