//! Commands to bytes, and bytes to values, of RESP2 and RESP3.

use std::collections::HashMap;

/// A reply or a push. Statuses, numbers and strings are all texts.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Text(Vec<u8>),
    Nil,
    Error(String),
    List(Vec<Value>),
}

impl Value {
    pub fn text(&self) -> Option<&[u8]> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn number(&self) -> Option<i64> {
        std::str::from_utf8(self.text()?).ok()?.parse().ok()
    }
}

/// The fields of an INFO reply.
pub fn info_fields(reply: &Value) -> HashMap<String, String> {
    let text = String::from_utf8_lossy(reply.text().unwrap_or_default());
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.map(|(name, value)| (name.to_owned(), value.trim_end().to_owned())).collect()
}

/// A whole command from its words.
pub fn push_command(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    words.iter().for_each(|word| push_bulk(out, word));
}

pub fn push_bulk(out: &mut Vec<u8>, word: &[u8]) {
    out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

/// Lists in lists, at most.
const DEPTH_MAX: usize = 32;

/// The value at `at`, which is moved behind it; `None` if it is not all here.
pub(super) fn parse(bytes: &[u8], at: &mut usize) -> Result<Option<Value>, &'static str> {
    parse_inside(bytes, at, 0)
}

fn parse_inside(bytes: &[u8], at: &mut usize, depth: usize) -> Result<Option<Value>, &'static str> {
    let Some(end) = memchr::memchr(b'\n', &bytes[*at..]).map(|end| *at + end) else {
        return Ok(None);
    };
    let line = bytes.get(*at + 1..end.saturating_sub(1)).ok_or("an empty line")?;
    let kind = bytes[*at];
    let text = String::from_utf8_lossy(line);
    *at = end + 1;
    let length = || text.parse::<i64>().map_err(|_| "a length that is no number");
    match kind {
        b'+' | b':' | b',' | b'#' | b'(' => Ok(Some(Value::Text(line.to_vec()))),
        b'-' => Ok(Some(Value::Error(text.into_owned()))),
        b'_' => Ok(Some(Value::Nil)),
        b'$' | b'=' | b'!' => {
            let length = length()?;
            if length < 0 {
                return Ok(Some(Value::Nil));
            }
            let length = length as usize;
            let Some(body) = bytes.get(*at..*at + length) else {
                return Ok(None);
            };
            if bytes.len() < *at + length + 2 {
                return Ok(None);
            }
            *at += length + 2;
            Ok(Some(match kind {
                b'$' => Value::Text(body.to_vec()),
                // The first four bytes say what text it is.
                b'=' => Value::Text(body.get(4..).unwrap_or_default().to_vec()),
                _ => Value::Error(String::from_utf8_lossy(body).into_owned()),
            }))
        }
        b'*' | b'~' | b'>' | b'%' => {
            let length = length()?;
            if length < 0 {
                return Ok(Some(Value::Nil));
            }
            if depth == DEPTH_MAX {
                return Err("lists in lists in lists");
            }
            let count = if kind == b'%' { length.saturating_mul(2) } else { length };
            let mut values = Vec::new();
            for _ in 0..count {
                match parse_inside(bytes, at, depth + 1)? {
                    Some(value) => values.push(value),
                    None => return Ok(None),
                }
            }
            Ok(Some(Value::List(values)))
        }
        _ => Err("a reply of no known type"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(bytes: &[u8]) -> Option<Value> {
        let mut at = 0;
        let value = parse(bytes, &mut at).unwrap();
        assert!(value.is_none() || at == bytes.len());
        value
    }

    #[test]
    fn values_of_both_protocols() {
        assert_eq!(whole(b"+OK\r\n"), Some(Value::Text(b"OK".to_vec())));
        assert_eq!(whole(b"$-1\r\n"), Some(Value::Nil));
        assert_eq!(whole(b"_\r\n"), Some(Value::Nil));
        assert_eq!(whole(b"=8\r\ntxt:some\r\n"), Some(Value::Text(b"some".to_vec())));
        let pair = Value::List(vec![Value::Text(b"a".to_vec()), Value::Text(b"1".to_vec())]);
        assert_eq!(whole(b"%1\r\n$1\r\na\r\n:1\r\n"), Some(pair.clone()));
        assert_eq!(whole(b">2\r\n$1\r\na\r\n:1\r\n"), Some(pair));
        assert_eq!(whole(b"-ERR x\r\n"), Some(Value::Error("ERR x".into())));
    }

    #[test]
    fn what_no_server_sends_is_no_panic() {
        assert!(parse("*1\r\n".repeat(100_000).as_bytes(), &mut 0).is_err());
        let depth = "*1\r\n".repeat(DEPTH_MAX);
        assert!(matches!(parse(format!("{depth}:1\r\n").as_bytes(), &mut 0), Ok(Some(_))));
        for awaited in ["%9223372036854775807\r\n", "*9223372036854775807\r\n:1\r\n", "$9223372036854775807\r\nx"] {
            assert_eq!(parse(awaited.as_bytes(), &mut 0), Ok(None), "{awaited}");
        }
        for wrong in ["\n", "$\r\n", "$x\r\n", "?\r\n", "*99999999999999999999\r\n"] {
            assert!(parse(wrong.as_bytes(), &mut 0).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_is_here_in_part_is_awaited() {
        let bytes = b"*2\r\n$3\r\nabc\r\n:12\r\n";
        (0..bytes.len()).for_each(|cut| assert_eq!(whole(&bytes[..cut]), None, "{cut}"));
        assert!(whole(bytes).is_some());
    }
}
