//! Durations as people write them: `500ms`, `30s`, `5m`, `1h`, `7d`, decimals such as `1.5h`. A plain number is
//! milliseconds.
//!
//! The arithmetic is exact: a part of a millisecond that is left over is dropped. What comes to nothing, is negative or
//! longer than [`LONGEST_MS`] is refused, so that a duration can be added to any date.

use thiserror::Error;

const DAY_MS: u64 = 24 * 3600 * 1000;

/// The units and their milliseconds, shortest first.
const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1000), ("m", 60 * 1000), ("h", 3600 * 1000), ("d", DAY_MS)];

/// Ten thousand years.
pub const LONGEST_MS: u64 = 10_000 * 365 * DAY_MS;

/// More digits behind the point than this change no millisecond.
const FRACTION_DIGITS: usize = 18;

/// What every error ends with.
const HINT: &str = "use a number with one of the units ms, s, m, h, d, such as 500ms, 30s, 1.5h or 7d";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DurationError {
    #[error("it is not a number: {}", HINT)]
    NotANumber,
    #[error("the unit is unknown: {}", HINT)]
    UnknownUnit,
    #[error("it is not greater than zero: {}", HINT)]
    NotPositive,
    #[error("it is longer than 3650000d: {}", HINT)]
    TooLong,
}

/// Reads a duration; milliseconds, at least one.
pub fn parse_duration(text: &[u8]) -> Result<u64, DurationError> {
    let (is_negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        text => (false, text),
    };
    let end = text.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b'.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let mut parts = number.split(|byte| *byte == b'.');
    let (integer, fraction) = (parts.next().unwrap_or_default(), parts.next());
    if integer.is_empty() || fraction.is_some_and(<[u8]>::is_empty) || parts.next().is_some() {
        return Err(DurationError::NotANumber);
    }
    let unit_ms = match unit {
        b"" => 1,
        unit => {
            let named = UNITS.iter().find(|(name, _)| name.as_bytes() == unit);
            named.map(|(_, unit_ms)| *unit_ms).ok_or(DurationError::UnknownUnit)?
        }
    };
    if is_negative {
        return Err(DurationError::NotPositive);
    }
    let whole =
        integer.iter().try_fold(0u64, |whole, digit| whole.checked_mul(10)?.checked_add(u64::from(digit - b'0')));
    let whole_ms = whole.and_then(|whole| whole.checked_mul(unit_ms)).ok_or(DurationError::TooLong)?;
    let digits = fraction.unwrap_or_default().iter().take(FRACTION_DIGITS);
    let (part, of) = digits.fold((0u128, 1u128), |(part, of), digit| (part * 10 + u128::from(digit - b'0'), of * 10));
    // Less than one unit.
    let part_ms = (part * u128::from(unit_ms) / of) as u64;
    match whole_ms.checked_add(part_ms) {
        Some(0) => Err(DurationError::NotPositive),
        Some(ms) if ms <= LONGEST_MS => Ok(ms),
        _ => Err(DurationError::TooLong),
    }
}

/// A duration in the largest unit of which it is a multiple.
pub fn format_duration(ms: u64) -> String {
    let unit = UNITS.iter().rev().find(|(_, unit_ms)| ms.is_multiple_of(*unit_ms) && ms > 0);
    let (name, unit_ms) = unit.unwrap_or(&UNITS[0]);
    format!("{}{name}", ms / unit_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_read_as_they_are_written() {
        for (text, ms) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("7d", 7 * DAY_MS),
            ("1.5h", 5_400_000),
            ("0.25s", 250),
            ("00010", 10),
            ("1", 1),
            ("1.0005s", 1000),
            ("0.0000000115740741d", 1),
            ("1.9", 1),
            ("3650000d", LONGEST_MS),
        ] {
            assert_eq!(parse_duration(text.as_bytes()), Ok(ms), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_the_units() {
        use DurationError::*;
        for (text, error) in [
            ("", NotANumber),
            ("s", NotANumber),
            ("inf", NotANumber),
            ("infinity", NotANumber),
            ("nan", NotANumber),
            ("+5s", NotANumber),
            (".5s", NotANumber),
            ("5.s", NotANumber),
            ("1.2.3s", NotANumber),
            (" 5s", NotANumber),
            ("5 s", UnknownUnit),
            ("5S", UnknownUnit),
            ("5w", UnknownUnit),
            ("5us", UnknownUnit),
            ("1h30m", UnknownUnit),
            ("1e3s", UnknownUnit),
            ("5s\0", UnknownUnit),
            ("0", NotPositive),
            ("0.0h", NotPositive),
            ("0.9ms", NotPositive),
            ("-5s", NotPositive),
            ("-0", NotPositive),
            ("3650000.1d", TooLong),
            ("18446744073709551616ms", TooLong),
            ("18446744073709551615d", TooLong),
        ] {
            assert_eq!(parse_duration(text.as_bytes()), Err(error), "{text}");
            assert!(error.to_string().contains("ms, s, m, h, d"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(ms in 1..=LONGEST_MS) {
            prop_assert_eq!(parse_duration(format_duration(ms).as_bytes()), Ok(ms));
            prop_assert_eq!(parse_duration(ms.to_string().as_bytes()), Ok(ms));
        }

        /// A decimal is the fraction of its unit, rounded down.
        #[test]
        fn decimals_are_exact(whole in 0..5_000u64, part in 0..1_000_000u64, unit in 0..UNITS.len()) {
            let (name, unit_ms) = UNITS[unit];
            let expected = (whole * 1_000_000 + part) * unit_ms / 1_000_000;
            let read = parse_duration(format!("{whole}.{part:06}{name}").as_bytes());
            prop_assert_eq!(read, if expected == 0 { Err(DurationError::NotPositive) } else { Ok(expected) });
        }

        #[test]
        fn anything_else_is_refused_or_within_bounds(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(ms) = parse_duration(&text) {
                prop_assert!((1..=LONGEST_MS).contains(&ms));
            }
        }

        #[test]
        fn whatever_looks_like_one_is_refused_or_within_bounds(text in "[-+]?[0-9]{0,30}[.]?[0-9]{0,30}(ms|[smhdwx])?") {
            if let Ok(ms) = parse_duration(text.as_bytes()) {
                prop_assert!((1..=LONGEST_MS).contains(&ms));
            }
        }
    }
}
