//! Numbers as C's `printf("%.14g")` writes and `strtod` reads them.

use std::io::Write;

/// Writes a number with so many significant digits at most.
pub fn write(out: &mut Vec<u8>, number: f64, precision: usize) {
    if number.is_nan() {
        return out.extend_from_slice(if number.is_sign_negative() { b"-nan" } else { b"nan" });
    }
    if number.is_infinite() {
        return out.extend_from_slice(if number > 0.0 { b"inf" } else { b"-inf" });
    }
    if number == 0.0 {
        return out.extend_from_slice(if number.is_sign_negative() { b"-0" } else { b"0" });
    }
    if number.abs() < 1e9 && precision > 8 && number.trunc() == number {
        // (Which cannot fail.)
        let _ = write!(out, "{}", number as i32);
        return;
    }
    // As `d.ddde-12`, rounded to the digits asked for: where the point goes is decided by that.
    let mut text = [0; 32];
    let mut rest = &mut text[..];
    // (Nor can this: there are 14 digits at most.)
    let _ = write!(rest, "{:.*e}", precision - 1, number.abs());
    let left = rest.len();
    let text = &text[..32 - left];
    let at = text.iter().position(|byte| *byte == b'e').unwrap_or(text.len());
    let exponent =
        text.get(at + 1..).and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<i32>().ok()).unwrap_or(0);
    let mut digits = [0; 32];
    let mut count = 0;
    for digit in text[..at].iter().filter(|byte| byte.is_ascii_digit()) {
        digits[count] = *digit;
        count += 1;
    }
    while count > 1 && digits[count - 1] == b'0' {
        count -= 1;
    }
    let digits = &digits[..count];
    if number < 0.0 {
        out.push(b'-');
    }
    if exponent < -4 || exponent >= precision as i32 {
        write_with_point(out, digits, 1);
        out.extend([b'e', if exponent < 0 { b'-' } else { b'+' }]);
        // (Nor can this.)
        let _ = write!(out, "{:02}", exponent.unsigned_abs());
    } else if exponent < 0 {
        out.extend_from_slice(b"0.");
        out.resize(out.len() + (-exponent - 1) as usize, b'0');
        out.extend_from_slice(digits);
    } else {
        write_with_point(out, digits, exponent as usize + 1);
    }
}

fn write_with_point(out: &mut Vec<u8>, digits: &[u8], whole: usize) {
    if digits.len() <= whole {
        out.extend_from_slice(digits);
        out.resize(out.len() + whole - digits.len(), b'0');
    } else {
        out.extend_from_slice(&digits[..whole]);
        out.push(b'.');
        out.extend_from_slice(&digits[whole..]);
    }
}

/// The number that the text begins with, and how long it is there.
pub fn read(text: &[u8]) -> Option<(f64, usize)> {
    let sign = usize::from(matches!(text.first(), Some(b'-' | b'+')));
    let (number, len) = read_unsigned(&text[sign..])?;
    Some((if text[0] == b'-' { -number } else { number }, sign + len))
}

fn read_unsigned(text: &[u8]) -> Option<(f64, usize)> {
    if has_prefix(text, b"inf") {
        return Some((f64::INFINITY, if has_prefix(text, b"infinity") { 8 } else { 3 }));
    }
    if has_prefix(text, b"nan") {
        return Some((f64::NAN, 3 + nan_payload(&text[3..])));
    }
    if has_prefix(text, b"0x")
        && let Some((number, len)) = read_hex(&text[2..])
    {
        return Some((number, 2 + len));
    }
    let whole = digits(text);
    let mut len = whole;
    if text.get(whole) == Some(&b'.') {
        let fraction = digits(&text[whole + 1..]);
        if whole + fraction > 0 {
            len += 1 + fraction;
        }
    }
    if len == 0 {
        return None;
    }
    if matches!(text.get(len), Some(b'e' | b'E')) {
        len += exponent_len(&text[len..]);
    }
    let number = std::str::from_utf8(&text[..len]).ok()?.parse().ok()?;
    Some((number, len))
}

fn has_prefix(text: &[u8], prefix: &[u8]) -> bool {
    text.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// What may stand in parentheses after `nan`.
fn nan_payload(text: &[u8]) -> usize {
    if text.first() != Some(&b'(') {
        return 0;
    }
    let len = text[1..].iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
    if text.get(1 + len) == Some(&b')') { len + 2 } else { 0 }
}

fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// The bytes of an exponent, from its letter on; none where no digit follows.
fn exponent_len(text: &[u8]) -> usize {
    let sign = usize::from(matches!(text.get(1), Some(b'-' | b'+')));
    match digits(&text[1 + sign..]) {
        0 => 0,
        digits => 1 + sign + digits,
    }
}

/// A number in hexadecimal, after its `0x`.
fn read_hex(text: &[u8]) -> Option<(f64, usize)> {
    let mut mantissa = 0_u64;
    let mut exponent = 0_i64;
    let mut has_digits = false;
    let mut has_point = false;
    let mut len = 0;
    for byte in text {
        match (*byte as char).to_digit(16) {
            Some(digit) => {
                has_digits = true;
                if mantissa < 1 << 59 {
                    mantissa = mantissa << 4 | u64::from(digit);
                    exponent -= if has_point { 4 } else { 0 };
                } else {
                    // It is far below the last bit that counts: whether there is anything is enough to round by.
                    mantissa |= u64::from(digit != 0);
                    exponent += if has_point { 0 } else { 4 };
                }
            }
            None if *byte == b'.' && !has_point => has_point = true,
            None => break,
        }
        len += 1;
    }
    if !has_digits {
        return None;
    }
    if matches!(text.get(len), Some(b'p' | b'P')) {
        let after = exponent_len(&text[len..]);
        if after > 0 {
            let is_negative = text[len + 1] == b'-';
            // More than this is as good as any more, whatever digits come before.
            let add = |sum: i64, digit: &u8| (sum * 10 + i64::from(digit - b'0')).min(1 << 40);
            let more = text[len + 1..len + after].iter().filter(|byte| byte.is_ascii_digit()).fold(0, add);
            exponent += if is_negative { -more } else { more };
            len += after;
        }
    }
    Some((scale(mantissa, exponent), len))
}

/// `mantissa * 2^exponent`, rounded to the nearest number there is, to the even one of two.
fn scale(mantissa: u64, exponent: i64) -> f64 {
    if mantissa == 0 {
        return 0.0;
    }
    let bits = i64::from(64 - mantissa.leading_zeros());
    let magnitude = exponent + bits - 1;
    if magnitude > 1023 {
        return f64::INFINITY;
    }
    // The exponent of the last bit that there is room for.
    let last = (magnitude - 52).max(-1074);
    let drop = last - exponent;
    if drop > bits {
        return 0.0;
    }
    let (kept, exponent) = if drop <= 0 {
        (mantissa, exponent)
    } else {
        let drop = drop as u32;
        let kept = mantissa.checked_shr(drop).unwrap_or(0);
        let rest = mantissa - kept.checked_shl(drop).unwrap_or(0);
        let half = 1 << (drop - 1);
        let up = rest > half || (rest == half && kept & 1 == 1);
        (kept + u64::from(up), last)
    };
    // The kept bits fit, and so does the product: both steps are exact.
    let step = exponent.clamp(-1000, 1000);
    kept as f64 * power_of_two(step) * power_of_two(exponent - step)
}

fn power_of_two(exponent: i64) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(number: f64, precision: usize) -> String {
        let mut out = Vec::new();
        write(&mut out, number, precision);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_are_written_as_c_does() {
        assert_eq!(written(0.1, 14), "0.1");
        assert_eq!(written(1e14, 14), "1e+14");
        assert_eq!(written(99_999_999_999_999.0, 14), "99999999999999");
        assert_eq!(written(99_999_999_999_999.9, 14), "1e+14");
        assert_eq!(written(-0.000_123_4, 14), "-0.0001234");
        assert_eq!(written(0.000_012_34, 14), "1.234e-05");
        assert_eq!(written(123_456.0, 3), "1.23e+05");
        assert_eq!(written(f64::MAX, 14), "1.7976931348623e+308");
        assert_eq!(written(2.5, 1), "2");
        assert_eq!(written(-0.0, 14), "-0");
    }

    #[test]
    fn numbers_are_read_as_c_does() {
        assert_eq!(read(b"1.5e3x"), Some((1500.0, 5)));
        assert_eq!(read(b"1e+"), Some((1.0, 1)));
        assert_eq!(read(b"-.5"), Some((-0.5, 3)));
        assert_eq!(read(b"-."), None);
        assert_eq!(read(b"1e400"), Some((f64::INFINITY, 5)));
        assert_eq!(read(b"0x"), Some((0.0, 1)));
        assert_eq!(read(b"0x1.8p1"), Some((3.0, 7)));
        assert_eq!(read(b"0x1p-1074"), Some((5e-324, 9)));
        assert_eq!(read(b"0x1p-1075"), Some((0.0, 9)));
        assert_eq!(read(b"0x1.8p-1075"), Some((5e-324, 11)));
        assert_eq!(read(b"0x20000000000001"), Some((9_007_199_254_740_992.0, 16)));
        assert_eq!(read(b"0x20000000000001.000000001"), Some((9_007_199_254_740_994.0, 26)));
        assert_eq!(read(b"-inFinity"), Some((f64::NEG_INFINITY, 9)));
        assert_eq!(read(b"nan(12)").map(|(_, len)| len), Some(7));
        assert_eq!(read(b"nan(12").map(|(_, len)| len), Some(3));
    }
}
