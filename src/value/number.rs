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

use std::io::Write;
use std::ops::Add;

use rustc_apfloat::ieee::{Double, X87DoubleExtended};
use rustc_apfloat::{Float, Round};

/// Bytes of the longest `i64` in decimal, its sign included.
pub const I64_TEXT_BYTES_MAX: usize = 20;

/// Bytes of the longest text read as a long double; Redis refuses what does not fit its buffer of 5
/// KiB with the final NUL.
pub const LONG_DOUBLE_TEXT_BYTES_MAX: usize = 5 * 1024 - 1;

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

/// An x87 long double that is not NaN, as INCRBYFLOAT and HINCRBYFLOAT compute with.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct LongDouble(X87DoubleExtended);

/// Why INCRBYFLOAT or HINCRBYFLOAT has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LongDoubleError {
    /// The stored text is not a long double.
    #[error("the stored value is not a valid float")]
    CurrentNotFloat,
    /// The increment's text is not a long double.
    #[error("the increment is not a valid float")]
    IncrementNotFloat,
    /// The sum is NaN or infinite.
    #[error("increment would produce NaN or Infinity")]
    Overflow,
}

/// Adds two decimal texts as INCRBYFLOAT does: both rounded to the nearest long double, the sum
/// rounded again. Returns the text that is stored and replied.
///
/// `current` is looked at first, as INCRBYFLOAT does; a command of another order uses
/// [`LongDouble`].
pub fn add_long_double(current: &[u8], increment: &[u8]) -> Result<Vec<u8>, LongDoubleError> {
    let current = LongDouble::parse(current).ok_or(LongDoubleError::CurrentNotFloat)?;
    let increment = LongDouble::parse(increment).ok_or(LongDoubleError::IncrementNotFloat)?;
    let sum = current.checked_add(increment).ok_or(LongDoubleError::Overflow)?;
    let mut text = Vec::new();
    sum.write(&mut text);
    Ok(text)
}

impl LongDouble {
    /// Reads a long double as Redis's `string2ld` does: the forms of [`parse_f64`], at most
    /// [`LONG_DOUBLE_TEXT_BYTES_MAX`] bytes. `None` for all else, NaN, a number too large, and one
    /// other than zero that is rounded to zero.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > LONG_DOUBLE_TEXT_BYTES_MAX {
            return None;
        }
        let (negative, unsigned) = split_sign(text);
        let magnitude = match unsigned {
            [b'i' | b'I', ..] => is_infinity(unsigned).then_some(X87DoubleExtended::INFINITY)?,
            [b'0', b'x' | b'X', hex @ ..] => {
                let (value, is_zero) = parse_hex::<X87DoubleExtended>(hex)?;
                finite_long_double(value, is_zero)?
            }
            _ if is_decimal(unsigned) => {
                let decimal = std::str::from_utf8(unsigned).ok()?;
                let rounded = X87DoubleExtended::from_str_r(decimal, Round::NearestTiesToEven);
                let value = rounded.ok()?.value;
                finite_long_double(value, value.is_zero() && is_decimal_zero(unsigned))?
            }
            _ => return None,
        };
        Some(LongDouble(if negative { -magnitude } else { magnitude }))
    }

    /// The sum rounded to the nearest long double, ties to even; `None` where it is NaN or
    /// infinite.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        let sum = self.0.add(other.0).value;
        sum.is_finite().then_some(LongDouble(sum))
    }

    /// The difference, as [`LongDouble::checked_add`].
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.checked_add(LongDouble(-other.0))
    }

    /// The largest finite number with this one's sign.
    pub fn largest(self) -> Self {
        LongDouble(X87DoubleExtended::largest().copy_sign(self.0))
    }

    /// Whether this is one of the infinities, which HINCRBYFLOAT refuses as an increment.
    pub fn is_infinite(self) -> bool {
        self.0.is_infinite()
    }

    /// Appends the number as Redis's `ld2string` does for humans: `%.17Lf` without trailing zeros,
    /// never with an exponent, and `0` for what is rounded to `-0`. At most 4933 digits.
    pub fn write(self, out: &mut Vec<u8>) {
        const FRACTION_DIGITS: usize = 17;
        const FRACTION_UNITS: u128 = 10u128.pow(FRACTION_DIGITS as u32);
        let negative = self.0.is_negative();
        if self.0.is_infinite() {
            out.extend_from_slice(if negative { b"-inf" } else { b"inf" });
            return;
        }
        let (mantissa, exponent) = self.magnitude();
        if exponent >= 0 {
            if negative && mantissa != 0 {
                out.push(b'-');
            }
            write_shifted(out, mantissa, exponent.unsigned_abs());
            return;
        }
        // The number in units of the last digit. The mantissa times 10^17 has at most 121 bits.
        let units = shift_right_to_even(u128::from(mantissa) * FRACTION_UNITS, exponent.unsigned_abs());
        if negative && units != 0 {
            out.push(b'-');
        }
        // Not more than the mantissa halved, and rounded up.
        let mut buffer = [0; I64_TEXT_BYTES_MAX];
        let begin = format_digits((units / FRACTION_UNITS) as u64, &mut buffer);
        out.extend_from_slice(&buffer[begin..]);
        let fraction = (units % FRACTION_UNITS) as u64;
        if fraction != 0 {
            let mut buffer = [b'0'; I64_TEXT_BYTES_MAX];
            format_digits(fraction, &mut buffer);
            let digits = &buffer[I64_TEXT_BYTES_MAX - FRACTION_DIGITS..];
            out.push(b'.');
            out.extend_from_slice(&digits[..significant_len(digits)]);
        }
    }

    /// The magnitude of a finite number as mantissa and exponent: `mantissa x 2^exponent`.
    fn magnitude(self) -> (u64, i32) {
        /// What the exponent field holds for `1 x 2^0` where the mantissa is an integer.
        const BIAS: i32 = 16383 + 63;
        // From the highest bit: sign, 15 bits of exponent, 64 of mantissa with its first bit
        // explicit.
        let bits = self.0.to_bits();
        let field = (bits >> 64) as i32 & 0x7fff;
        // A subnormal has the exponent of the smallest normal number.
        (bits as u64, field.max(1) - BIAS)
    }
}

/// `value / 2^shift`, rounded to the nearest, ties to even.
fn shift_right_to_even(value: u128, shift: u32) -> u128 {
    let Some(quotient) = value.checked_shr(shift) else {
        // The one caller has at most 121 bits, less than half of 2^128.
        return 0;
    };
    if shift == 0 {
        return quotient;
    }
    let remainder = value & ((1 << shift) - 1);
    let half = 1 << (shift - 1);
    let round_up = remainder > half || remainder == half && quotient % 2 == 1;
    quotient + u128::from(round_up)
}

/// Appends `mantissa x 2^shift` in decimal. Quadratic in `shift`, which is 16320 at the most.
fn write_shifted(out: &mut Vec<u8>, mantissa: u64, shift: u32) {
    /// A limb holds nine digits, and shifted by [`STEP_BITS`] it still fits a u64.
    const BASE: u64 = 1_000_000_000;
    const LIMB_DIGITS: usize = 9;
    const STEP_BITS: u32 = 32;
    // The lowest limb first.
    let mut limbs: Vec<u64> = Vec::new();
    push_limbs(&mut limbs, mantissa);
    let mut shift_left = shift;
    while shift_left > 0 {
        let step = shift_left.min(STEP_BITS);
        let mut carry = 0;
        for limb in &mut limbs {
            let shifted = (*limb << step) + carry;
            *limb = shifted % BASE;
            carry = shifted / BASE;
        }
        push_limbs(&mut limbs, carry);
        shift_left -= step;
    }
    let Some((highest, others)) = limbs.split_last() else {
        out.push(b'0');
        return;
    };
    let mut buffer = [0; I64_TEXT_BYTES_MAX];
    let begin = format_digits(*highest, &mut buffer);
    out.extend_from_slice(&buffer[begin..]);
    for limb in others.iter().rev() {
        let mut buffer = [b'0'; I64_TEXT_BYTES_MAX];
        format_digits(*limb, &mut buffer);
        out.extend_from_slice(&buffer[I64_TEXT_BYTES_MAX - LIMB_DIGITS..]);
    }

    fn push_limbs(limbs: &mut Vec<u64>, mut number: u64) {
        while number > 0 {
            limbs.push(number % BASE);
            number /= BASE;
        }
    }
}

/// A finite number; one that was not zero as a text must not be zero now (ERANGE of `strtold`).
fn finite_long_double(value: X87DoubleExtended, is_zero: bool) -> Option<X87DoubleExtended> {
    (value.is_finite() && (!value.is_zero() || is_zero)).then_some(value)
}

fn split_sign(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', unsigned @ ..] => (true, unsigned),
        [b'+', unsigned @ ..] => (false, unsigned),
        _ => (false, text),
    }
}

fn is_infinity(unsigned: &[u8]) -> bool {
    unsigned.eq_ignore_ascii_case(b"inf") || unsigned.eq_ignore_ascii_case(b"infinity")
}

/// Whether `unsigned` is a decimal of C: digits with at most one point, at least one digit, and
/// perhaps an exponent.
fn is_decimal(unsigned: &[u8]) -> bool {
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

fn split_digits(text: &[u8]) -> (&[u8], &[u8]) {
    let len = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    text.split_at(len)
}

/// Whether a decimal has no digit but zeros before its exponent.
fn is_decimal_zero(decimal: &[u8]) -> bool {
    decimal.iter().take_while(|byte| !matches!(byte, b'e' | b'E')).all(|byte| matches!(byte, b'0' | b'.'))
}

/// Reads what follows the `0x` of a hexadecimal float, rounded once, and says whether it is zero as
/// a text.
fn parse_hex<F: Float>(hex: &[u8]) -> Option<(F, bool)> {
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

/// How many digits are left without the trailing zeros; at least 1 when there are any.
fn significant_len(digits: &[u8]) -> usize {
    digits.iter().rposition(|&digit| digit != b'0').unwrap_or(0) + 1
}

/// A total order of all doubles in which the two zeros are equal, as `total_cmp` does not have it, and what is no number
/// comes last.
#[inline]
pub fn compare_f64(a: f64, b: f64) -> std::cmp::Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn i64_text(n: i64) -> String {
        let mut out = Vec::new();
        write_i64(&mut out, n);
        String::from_utf8(out).unwrap()
    }

    fn f64_text(value: f64) -> String {
        let mut out = Vec::new();
        write_f64(&mut out, value);
        String::from_utf8(out).unwrap()
    }

    /// A number of any length, short ones as often as long ones.
    fn any_length(rng: &mut fastrand::Rng) -> i64 {
        rng.i64(..) >> rng.u32(..64)
    }

    #[test]
    fn doubles_are_in_one_order() {
        let ascending = [f64::NEG_INFINITY, -1.5, -f64::MIN_POSITIVE, 0.0, 5e-324, 2.0, f64::INFINITY, f64::NAN];
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(compare_f64(*a, *b), i.cmp(&j), "{a} {b}");
            }
        }
        assert!(compare_f64(-0.0, 0.0).is_eq() && compare_f64(f64::NAN, -f64::NAN).is_eq());
    }

    #[test]
    fn integers_round_trip() {
        let mut rng = fastrand::Rng::with_seed(1);
        let edges = [0, 1, -1, 9, 10, 99, 100, -100, i64::MAX, i64::MIN, i64::MIN + 1];
        let random = std::iter::repeat_with(|| any_length(&mut rng)).take(100_000);
        for n in edges.into_iter().chain(random) {
            assert_eq!(i64_text(n), n.to_string());
            assert_eq!(parse_i64(n.to_string().as_bytes()), Some(n));
        }
    }

    #[test]
    fn integers_have_one_text_only() {
        for text in [
            "",
            "-",
            "+1",
            "01",
            "-0",
            "-01",
            "00",
            " 1",
            "1 ",
            "1a",
            "0x1",
            "1.0",
            "1e3",
            "1\0",
            "12345678:",
            "1234567/",
            "1234567:",
            "12345\u{ff}6",
            "9223372036854775808",
            "-9223372036854775809",
            "18446744073709551615",
            "18446744073709551617",
            "99999999999999999999",
            "--1",
            "1-",
            "1234-678",
        ] {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn integers_are_read_as_by_the_definition() {
        let mut rng = fastrand::Rng::with_seed(2);
        for _ in 0..200_000 {
            let mut text = any_length(&mut rng).to_string().into_bytes();
            if rng.bool() {
                let place = rng.usize(..text.len());
                text[place] = rng.u8(..);
            }
            let expected = std::str::from_utf8(&text)
                .ok()
                .and_then(|text| text.parse::<i64>().ok())
                .filter(|n| n.to_string().as_bytes() == text);
            assert_eq!(parse_i64(&text), expected, "{text:?}");
        }
    }

    // Each line asked of Redis 7.0.15 with SCAN.
    #[test]
    fn cursors_are_read_by_strtoul() {
        for (text, expected) in [
            ("0", Some(0)),
            ("", Some(0)),
            ("\0", Some(0)),
            ("-1", Some(u64::MAX)),
            ("+5", Some(5)),
            ("007", Some(7)),
            ("18446744073709551615", Some(u64::MAX)),
            ("-18446744073709551615", Some(1)),
            ("5\0abc", Some(5)),
            ("18446744073709551616", None),
            ("-18446744073709551616", None),
            ("-", None),
            ("+", None),
            ("-\0", None),
            (" 1", None),
            ("\t1", None),
            ("1 ", None),
            ("0x10", None),
            ("+-5", None),
            ("--1", None),
            ("1a", None),
        ] {
            assert_eq!(parse_u64(text.as_bytes()), expected, "{text:?}");
        }
    }

    // Each line is what Redis 7.0.15 replied to ZADD and ZSCORE, the sorted set being a skiplist.
    #[test]
    fn ends_of_ranges_are_read_as_strtod_does() {
        for (text, expected) in [
            ("", 0.0),
            ("3", 3.0),
            (" \t\n3", 3.0),
            ("3\0 is not looked at", 3.0),
            ("\0", 0.0),
            ("+1.5e3", 1500.0),
            ("1e400", f64::INFINITY),
            ("-1e400", f64::NEG_INFINITY),
            ("1e-400", 0.0),
            ("-INFinity", f64::NEG_INFINITY),
            ("0x10", 16.0),
            ("0x1p2000", f64::INFINITY),
        ] {
            assert_eq!(strtod(text.as_bytes()), Some(expected), "{text:?}");
        }
        for text in [" ", "\t", "3 ", "nan", "-nan", "(3", "- 3", "3x", "0x", "e5", "+"] {
            assert_eq!(strtod(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn doubles_are_read_and_written_as_scores() {
        for (text, expected) in [
            ("0", Some("0")),
            ("-0", Some("-0")),
            ("1", Some("1")),
            ("-1", Some("-1")),
            ("+1", Some("1")),
            ("007", Some("7")),
            ("1.", Some("1")),
            (".5", Some("0.5")),
            ("3.14", Some("3.1400000000000001")),
            ("0.1", Some("0.10000000000000001")),
            ("1e5", Some("100000")),
            ("1E+5", Some("100000")),
            ("100000000000000000", Some("1e+17")),
            ("99999999999999999", Some("1e+17")),
            ("9007199254740993", Some("9007199254740992")),
            ("123456789012345678", Some("1.2345678901234568e+17")),
            ("1e17", Some("1e+17")),
            ("1e16", Some("10000000000000000")),
            ("12345.678", Some("12345.678")),
            ("0.0001", Some("0.0001")),
            ("0.00001", Some("1.0000000000000001e-05")),
            ("-0.00012345", Some("-0.00012344999999999999")),
            ("1e100", Some("1e+100")),
            ("1e-100", Some("1e-100")),
            ("1.7976931348623157e308", Some("1.7976931348623157e+308")),
            ("1.7976931348623159e308", None),
            ("1e309", None),
            ("-1e309", None),
            ("1e99999999999999999999", None),
            ("4.9e-324", Some("4.9406564584124654e-324")),
            ("3e-324", Some("4.9406564584124654e-324")),
            ("2e-324", None),
            ("1e-400", None),
            ("0e99999", Some("0")),
            ("0.0e-99999", Some("0")),
            ("2.2250738585072014e-308", Some("2.2250738585072014e-308")),
            ("1.00000762939453125", Some("1.0000076293945312")),
            ("1.00002288818359375", Some("1.0000228881835938")),
            ("0x10", Some("16")),
            ("0X1P+3", Some("8")),
            ("0x.8", Some("0.5")),
            ("0x1.8p-1", Some("0.75")),
            ("0x1.fffffffffffff8p0", Some("2")),
            ("0x1.fffffffffffff7p1023", Some("1.7976931348623157e+308")),
            ("0x1.fffffffffffff8p1023", None),
            ("0x1p-1074", Some("4.9406564584124654e-324")),
            ("0x1p-1075", None),
            ("0x1.8p-1075", Some("4.9406564584124654e-324")),
            ("0x0p99999999999999999999", Some("0")),
            ("0x", None),
            ("0x.", None),
            ("0x1p", None),
            ("0x1p+", None),
            ("0xg", None),
            ("0x1.2.3", None),
            ("inf", Some("inf")),
            ("+inf", Some("inf")),
            ("-inf", Some("-inf")),
            ("INF", Some("inf")),
            ("Infinity", Some("inf")),
            ("-INFINITY", Some("-inf")),
            ("infinit", None),
            ("infinityx", None),
            ("nan", None),
            ("-nan", None),
            ("NAN", None),
            ("nan(1)", None),
            ("", None),
            (".", None),
            ("+", None),
            ("-", None),
            ("e5", None),
            ("1e", None),
            ("1e+", None),
            ("1e5.", None),
            ("1.2.3", None),
            ("1_0", None),
            ("1f", None),
            (" 1", None),
            ("1 ", None),
            ("+-1", None),
            ("--1", None),
            ("1,5", None),
        ] {
            let written = parse_f64(text.as_bytes()).map(f64_text);
            assert_eq!(written.as_deref(), expected, "{text:?}");
        }
        assert_eq!(parse_f64(b"1\0"), None);
    }

    #[test]
    fn seventeen_digits_bring_every_double_back() {
        let mut rng = fastrand::Rng::with_seed(4);
        for _ in 0..100_000 {
            let value = f64::from_bits(rng.u64(..));
            if !value.is_nan() {
                let text = f64_text(value);
                assert_eq!(parse_f64(text.as_bytes()).map(f64::to_bits), Some(value.to_bits()), "{text}");
            }
        }
    }

    #[test]
    fn hexadecimal_doubles_are_exact() {
        let mut rng = fastrand::Rng::with_seed(5);
        for _ in 0..50_000 {
            let value = f64::from_bits(rng.u64(..) >> 1);
            if value.is_finite() {
                let field = (value.to_bits() >> 52) as i64;
                let fraction = value.to_bits() & ((1 << 52) - 1);
                let text = format!("0x{}.{fraction:013x}p{}", field.min(1), field.max(1) - 1023);
                assert_eq!(parse_f64(text.as_bytes()), Some(value), "{text}");
            }
        }
    }

    // Each line is what Redis 7.0.15 replied to SET and INCRBYFLOAT.
    #[test]
    fn long_doubles_add_as_incrbyfloat() {
        use LongDoubleError::{CurrentNotFloat, IncrementNotFloat, Overflow};
        for (current, increment, expected) in [
            ("0", "0", Ok("0")),
            ("10.50", "0.1", Ok("10.6")),
            ("5.0e3", "2.0e2", Ok("5200")),
            ("3.0", "1", Ok("4")),
            ("3", "1.1", Ok("4.1")),
            ("0.1", "0.2", Ok("0.3")),
            ("1.1", "2.2", Ok("3.3")),
            ("-1", "1", Ok("0")),
            ("1", "-1.1", Ok("-0.1")),
            ("0", "-0", Ok("0")),
            ("-0", "-0", Ok("0")),
            ("-0.0", "0", Ok("0")),
            ("0", "-0.000000000000000001", Ok("0")),
            ("0", "-0.000000000000000006", Ok("-0.00000000000000001")),
            ("0", "0.000000000000000005", Ok("0")),
            ("0", "0.000000000000000015", Ok("0.00000000000000002")),
            ("0", "1e-17", Ok("0.00000000000000001")),
            ("1", "1e-18", Ok("1")),
            ("1", "1e-19", Ok("1")),
            ("1", "1e-20", Ok("1")),
            ("0.123456789012345678", "0", Ok("0.12345678901234568")),
            ("999999999999999999", "0.5", Ok("999999999999999999.5")),
            ("9223372036854775807", "1", Ok("9223372036854775808")),
            ("9223372036854775807", "0.5", Ok("9223372036854775807.5")),
            ("9223372036854775808", "0.5", Ok("9223372036854775808")),
            ("9223372036854775808", "1.5", Ok("9223372036854775810")),
            ("18446744073709551615", "1", Ok("18446744073709551616")),
            ("18446744073709551616", "1", Ok("18446744073709551616")),
            ("18446744073709551617", "0", Ok("18446744073709551616")),
            ("18446744073709551619", "0", Ok("18446744073709551620")),
            ("36893488147419103234", "0", Ok("36893488147419103232")),
            ("1e20", "1", Ok("100000000000000000000")),
            ("1e27", "1", Ok("1000000000000000000000000000")),
            ("1e28", "1", Ok("9999999999999999999731564544")),
            ("123456789.123456789", "-123456789", Ok("0.12345678899873747")),
            ("1e60", "0", Ok("999999999999999999999373423426722168652130621984886772203520")),
            ("-1e30", "1e10", Ok("-1000000000000000000024696061952")),
            ("3.14159265358979323846", "2.71828182845904523536", Ok("5.85987448204883847")),
            ("0x10", "0x.8", Ok("16.5")),
            ("0x1.8p3", "0", Ok("12")),
            ("0x1.00000000000000018p0", "0", Ok("1")),
            ("0x1.0000000000000001p0", "0", Ok("1")),
            ("0x1.0000000000000003p0", "0", Ok("1")),
            ("0x1p-16445", "0", Ok("0")),
            ("0x1p-16446", "0", Err(CurrentNotFloat)),
            ("0x1.8p-16446", "0", Ok("0")),
            ("0x1p16384", "0", Err(CurrentNotFloat)),
            ("3e-4951", "0", Ok("0")),
            ("1e-4951", "0", Err(CurrentNotFloat)),
            ("1e-99999999999999999999", "0", Err(CurrentNotFloat)),
            ("1e4933", "0", Err(CurrentNotFloat)),
            ("1.2e4932", "0", Err(CurrentNotFloat)),
            ("1.1e4932", "1.1e4932", Err(Overflow)),
            ("1e4932", "-1e4932", Ok("0")),
            ("0e99999", "1", Ok("1")),
            ("inf", "1", Err(Overflow)),
            ("1", "-inf", Err(Overflow)),
            ("inf", "-inf", Err(Overflow)),
            ("nan", "1", Err(CurrentNotFloat)),
            ("1", "nan", Err(IncrementNotFloat)),
            ("1", " 1", Err(IncrementNotFloat)),
            ("1 ", "1", Err(CurrentNotFloat)),
            ("", "1", Err(CurrentNotFloat)),
            ("1", "", Err(IncrementNotFloat)),
            ("1.", "1", Ok("2")),
            (".5", "1", Ok("1.5")),
            (".", "1", Err(CurrentNotFloat)),
            ("1e", "1", Err(CurrentNotFloat)),
            ("1e+", "1", Err(CurrentNotFloat)),
            ("0x", "1", Err(CurrentNotFloat)),
            ("0x1p", "1", Err(CurrentNotFloat)),
            ("+1", "1", Ok("2")),
            ("+-1", "1", Err(CurrentNotFloat)),
            ("1_0", "1", Err(CurrentNotFloat)),
            ("abc", "1", Err(CurrentNotFloat)),
        ] {
            let sum = add_long_double(current.as_bytes(), increment.as_bytes());
            let sum = sum.map(|text| String::from_utf8(text).unwrap());
            assert_eq!(sum, expected.map(str::to_owned), "{current:?} + {increment:?}");
        }
    }

    #[test]
    fn the_largest_long_double_is_written_whole() {
        let text = add_long_double(b"0x1.fffffffffffffffep16383", b"0").unwrap();
        assert_eq!(text.len(), 4933);
        assert!(text.starts_with(b"11897314953572317650212638530309"));
        assert!(text.ends_with(b"62444156604419552086811989770240"));
    }

    #[test]
    fn long_doubles_have_a_longest_text() {
        let zeros = b"0".repeat(LONG_DOUBLE_TEXT_BYTES_MAX);
        assert_eq!(add_long_double(&zeros, b"1"), Ok(b"1".to_vec()));
        assert!(LongDouble::parse(&[&zeros[..], b"0"].concat()).is_none());
        assert!(LongDouble::parse(&b"1".repeat(LONG_DOUBLE_TEXT_BYTES_MAX)).is_none());
        let exact = [b"0.", &b"0".repeat(4_000)[..], b"1e+4001"].concat();
        assert_eq!(add_long_double(&exact, b"0"), Ok(b"1".to_vec()));
    }

    #[test]
    fn exponents_beyond_every_integer_do_not_wrap() {
        for digits in ["1", "100000000000000000000", "0.0000000000000000000001", "1.5", "0x1", "0x.0001"] {
            for exponent in ["2147483647", "2147483648", "9223372036854775807", "99999999999999999999"] {
                for sign in ["", "+", "-"] {
                    let letter = if digits.starts_with("0x") { 'p' } else { 'e' };
                    let text = format!("{digits}{letter}{sign}{exponent}");
                    assert_eq!(parse_f64(text.as_bytes()), None, "{text}");
                    assert_eq!(LongDouble::parse(text.as_bytes()), None, "{text}");
                }
            }
        }
    }

    #[test]
    fn the_error_names_the_side() {
        assert_eq!(add_long_double(b"x", b"y"), Err(LongDoubleError::CurrentNotFloat));
        assert_eq!(add_long_double(b"1", b"y"), Err(LongDoubleError::IncrementNotFloat));
        assert_eq!(add_long_double(b"inf", b"-inf"), Err(LongDoubleError::Overflow));
        assert!(LongDouble::parse(b"-inf").is_some_and(LongDouble::is_infinite));
    }

    #[test]
    fn any_bytes_are_taken_without_a_panic() {
        let mut rng = fastrand::Rng::with_seed(6);
        for _ in 0..200_000 {
            let text: Vec<u8> = (0..rng.usize(..14)).map(|_| b"0019.eExXpPaf+- inNf\0\xff"[rng.usize(..22)]).collect();
            parse_i64(&text);
            parse_u64(&text);
            if let Some(value) = parse_f64(&text) {
                f64_text(value);
            }
            if let Some(value) = LongDouble::parse(&text) {
                value.write(&mut Vec::new());
            }
        }
    }
}
