//! Numbers and names as people read them.

/// What a server sent, as a terminal may show it: whatever is no text, or would control the terminal or turn around the
/// text beside it, is escaped.
pub fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\'' | '"' => text.push(character),
                // What Rust shows as it is when it shows texts can be shown.
                _ => text.extend(character.escape_debug()),
            }
        }
        chunk.invalid().iter().for_each(|byte| text += &format!("\\x{byte:02x}"));
    }
    text
}

/// The beginning, if all of it is longer than so many characters.
pub fn clipped(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
        None => text.to_owned(),
    }
}

/// `12,345`
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1.5 MiB`
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut number, mut unit) = (bytes as f64, 0);
    // What would be shown as 1024.0 of a unit is 1.0 of the next.
    while number >= 1023.95 && unit + 1 < UNITS.len() {
        number /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{number:.1} {}", UNITS[unit]) }
}

/// `1.5 ms`, of microseconds.
pub fn micros(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => span((us / 1_000).try_into().unwrap_or(i64::MAX)),
    }
}

/// `1m 05s`, of milliseconds; what is over is no time.
pub fn span(ms: i64) -> String {
    let ms = ms.max(0);
    let (seconds, minutes, hours, days) = (ms / 1_000, ms / 60_000, ms / 3_600_000, ms / 86_400_000);
    if minutes == 0 {
        format!("{seconds}.{}s", ms % 1_000 / 100)
    } else if hours == 0 {
        format!("{minutes}m {:02}s", seconds % 60)
    } else if days == 0 {
        format!("{hours}h {:02}m", minutes % 60)
    } else {
        format!("{days}d {:02}h", hours % 24)
    }
}

/// A number a second: `3.2` or `12,345`.
pub fn rate(number: f64) -> String {
    match number {
        0.0..0.05 => "0".to_owned(),
        _ if number < 9.95 => format!("{number:.1}"),
        // (What does not fit is the greatest that does.)
        _ => count(number.round() as u64),
    }
}

/// The newest of these numbers as columns; `full` fills one.
pub fn columns(numbers: &[f64], full: f64, width: usize) -> String {
    const PARTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let newest = &numbers[numbers.len().saturating_sub(width)..];
    let part = |number: &f64| {
        let share = if full > 0.0 { (number / full).clamp(0.0, 1.0) } else { 0.0 };
        PARTS[((share * 8.0).ceil() as usize).clamp(1, 8) - 1]
    };
    newest.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_control_a_terminal_is_escaped() {
        assert_eq!(escaped(b"user:42 'a' \"b\""), "user:42 'a' \"b\"");
        assert_eq!(escaped("käse:日本".as_bytes()), "käse:日本");
        assert_eq!(escaped(b"a\x1b[2Jb\r\n\0"), "a\\u{1b}[2Jb\\r\\n\\0");
        assert_eq!(escaped(b"\xff\xc3"), "\\xff\\xc3");
        // C1 controls, and what turns around the text behind it.
        assert_eq!(escaped("\u{9b}31m\u{202e}\u{200b}".as_bytes()), "\\u{9b}31m\\u{202e}\\u{200b}");
        assert_eq!(escaped(b"back\\slash"), "back\\\\slash");
    }

    #[test]
    fn numbers_as_people_read_them() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!([0, 1_023, 1_024, 1_048_575].map(bytes), ["0 B", "1023 B", "1.0 KiB", "1.0 MiB"]);
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!([7, 1_500, 2_000_000].map(micros), ["7 µs", "1.5 ms", "2.0s"]);
        assert_eq!(micros(u64::MAX), "213503982d 08h");
        assert_eq!([-5, 950, 65_000, 3_660_000, 90_000_000].map(span), ["0.0s", "0.9s", "1m 05s", "1h 01m", "1d 01h"]);
        assert_eq!([0.0, 0.3, 1234.4, f64::INFINITY].map(rate)[..3], ["0", "0.3", "1,234"]);
        assert_eq!(span(i64::MAX), "106751991167d 07h");
    }

    #[test]
    fn columns_show_the_newest() {
        assert_eq!(columns(&[0.0, 4.0, 8.0, 99.0], 8.0, 3), "▄██");
        assert_eq!(columns(&[0.0, f64::NAN], 0.0, 9), "▁▁");
        assert_eq!(columns(&[1.0], 8.0, 0), "");
    }

    #[test]
    fn long_texts_are_clipped() {
        assert_eq!(clipped("käse", 4), "käse");
        assert_eq!(clipped("käsebrot", 4), "käs…");
        assert_eq!(clipped("a", 0), "…");
    }
}
