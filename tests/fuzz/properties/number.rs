//! Numbers (`src/value/number.rs`): what is read agrees with the standard library where that reads the same; what is
//! written is read as the same number.

use emberdb::value::number::{LongDouble, add_long_double, parse_f64, parse_i64, parse_u64, write_f64, write_i64};

use super::meter::measured;

/// Enough for the digits of the longest number and for computing with its mantissa.
const MEMORY_BYTES: usize = 256 * 1024;

/// Bytes with a zero byte in them are also two numbers that are added.
pub fn check(text: &[u8]) {
    let ((), bytes) = measured(|| {
        check_i64(text);
        check_u64(text);
        check_f64(text);
        check_long_double(text);
        if let Some(at) = memchr(text) {
            check_sum(&text[..at], &text[at + 1..]);
        }
    });
    assert!(bytes <= MEMORY_BYTES + 16 * text.len(), "{bytes} bytes");
}

fn memchr(text: &[u8]) -> Option<usize> {
    text.iter().position(|byte| *byte == 0)
}

fn check_i64(text: &[u8]) {
    let standard: Option<i64> = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    // Only the one text that a number is written as.
    let canonical = standard.filter(|n| n.to_string().as_bytes() == text);
    assert_eq!(parse_i64(text), canonical);
    if let Some(n) = canonical {
        let mut written = Vec::new();
        write_i64(&mut written, n);
        assert_eq!(written, text);
    }
}

fn check_u64(text: &[u8]) {
    let number = &text[..memchr(text).unwrap_or(text.len())];
    let (negative, digits) = match number {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let standard: Option<u64> = match digits {
        [b'+' | b'-', ..] => None,
        digits => std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()),
    };
    let expected = if number.is_empty() { Some(0) } else { standard };
    assert_eq!(parse_u64(text), expected.map(|n: u64| if negative { n.wrapping_neg() } else { n }));
}

fn check_f64(text: &[u8]) {
    let Some(value) = parse_f64(text) else { return };
    assert!(!value.is_nan());
    let decimal = text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    if decimal {
        let standard: f64 = std::str::from_utf8(text).expect("ASCII").parse().expect("a number for both");
        assert_eq!(value.to_bits(), standard.to_bits());
    }
    let mut written = Vec::new();
    write_f64(&mut written, value);
    assert!(written.len() <= 24, "{}", written.escape_ascii());
    assert_eq!(parse_f64(&written).map(f64::to_bits), Some(value.to_bits()), "{}", written.escape_ascii());
}

fn check_long_double(text: &[u8]) {
    let Some(value) = LongDouble::parse(text) else { return };
    let mut written = Vec::new();
    value.write(&mut written);
    let again = LongDouble::parse(&written).unwrap_or_else(|| panic!("{} is not read", written.escape_ascii()));
    let mut twice = Vec::new();
    again.write(&mut twice);
    assert_eq!(written, twice);
}

fn check_sum(a: &[u8], b: &[u8]) {
    let sum = add_long_double(a, b);
    assert_eq!(sum.is_ok(), add_long_double(b, a).is_ok());
    if let Ok(sum) = sum {
        assert_eq!(Some(sum), add_long_double(b, a).ok());
        assert!(LongDouble::parse(a).is_some() && LongDouble::parse(b).is_some());
    }
}
