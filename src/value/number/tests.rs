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
