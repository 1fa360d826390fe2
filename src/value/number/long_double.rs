//! Long doubles, which INCRBYFLOAT and HINCRBYFLOAT compute in.

use super::text::{is_decimal, is_decimal_zero, is_infinity, parse_hex, significant_len, split_sign};
use super::{I64_TEXT_BYTES_MAX, format_digits};
use rustc_apfloat::ieee::X87DoubleExtended;
use rustc_apfloat::{Float, Round};
use std::ops::Add;

/// Bytes of the longest text read as a long double; Redis refuses what does not fit its buffer of 5
/// KiB with the final NUL.
pub const LONG_DOUBLE_TEXT_BYTES_MAX: usize = 5 * 1024 - 1;

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
