//! What the texts of both kinds of floats have in common.

use rustc_apfloat::{Float, Round};

pub fn split_sign(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', unsigned @ ..] => (true, unsigned),
        [b'+', unsigned @ ..] => (false, unsigned),
        _ => (false, text),
    }
}

pub fn is_infinity(unsigned: &[u8]) -> bool {
    unsigned.eq_ignore_ascii_case(b"inf") || unsigned.eq_ignore_ascii_case(b"infinity")
}

/// Whether `unsigned` is a decimal of C: digits with at most one point, at least one digit, and
/// perhaps an exponent.
pub fn is_decimal(unsigned: &[u8]) -> bool {
    let (whole, rest) = split_digits(unsigned);
    let (fraction, rest) = match rest {
        [b'.', rest @ ..] => split_digits(rest),
        _ => (&rest[..0], rest),
    };
    let has_digits = !whole.is_empty() || !fraction.is_empty();
    let exponent = match rest {
        [b'e' | b'E', exponent @ ..] => split_sign(exponent).1,
        [] => return has_digits,
        _ => return false,
    };
    has_digits && !exponent.is_empty() && exponent.iter().all(u8::is_ascii_digit)
}

pub fn split_digits(text: &[u8]) -> (&[u8], &[u8]) {
    let len = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    text.split_at(len)
}

/// Whether a decimal has no digit but zeros before its exponent.
pub fn is_decimal_zero(decimal: &[u8]) -> bool {
    decimal.iter().take_while(|byte| !matches!(byte, b'e' | b'E')).all(|byte| matches!(byte, b'0' | b'.'))
}

/// Reads what follows the `0x` of a hexadecimal float, rounded once, and says whether it is zero as
/// a text.
pub fn parse_hex<F: Float>(hex: &[u8]) -> Option<(F, bool)> {
    /// No text of digits bridges the gap from here to the range of a long double.
    const EXPONENT_MAX: i64 = 1 << 40;
    /// Digits kept as they are, 100 bits; of the rest only counts whether it is zero.
    const DIGITS_KEPT_BITS: u32 = 100;
    let mut mantissa: u128 = 0;
    let mut any_digit = false;
    let mut point_seen = false;
    let mut exponent: i64 = 0;
    let mut bytes = hex.iter();
    let mut exponent_text = None;
    for &byte in bytes.by_ref() {
        match byte {
            b'.' if !point_seen => point_seen = true,
            b'p' | b'P' => {
                exponent_text = Some(bytes.as_slice());
                break;
            }
            _ => {
                let digit = u128::from(char::from(byte).to_digit(16)?);
                any_digit = true;
                if mantissa >> DIGITS_KEPT_BITS == 0 {
                    mantissa = mantissa << 4 | digit;
                } else {
                    mantissa |= u128::from(digit != 0);
                    exponent += 4;
                }
                if point_seen {
                    exponent -= 4;
                }
            }
        }
    }
    if !any_digit {
        return None;
    }
    if let Some(text) = exponent_text {
        let (negative, digits) = split_sign(text);
        if digits.is_empty() {
            return None;
        }
        let mut magnitude: i64 = 0;
        for byte in digits {
            if !byte.is_ascii_digit() {
                return None;
            }
            magnitude = (magnitude * 10 + i64::from(byte - b'0')).min(EXPONENT_MAX);
        }
        exponent += if negative { -magnitude } else { magnitude };
    }
    if mantissa == 0 {
        return Some((F::ZERO, true));
    }
    // Far outside of every format, and well inside what the parser below counts with.
    let exponent = exponent.clamp(-100_000, 100_000);
    let canonical = format!("0x{mantissa:x}p{exponent}");
    let rounded = F::from_str_r(&canonical, Round::NearestTiesToEven).ok()?;
    Some((rounded.value, false))
}

/// How many digits are left without the trailing zeros; at least 1 when there are any.
pub fn significant_len(digits: &[u8]) -> usize {
    digits.iter().rposition(|&digit| digit != b'0').unwrap_or(0) + 1
}
