//! A RESP2 or RESP3 value as it came over the wire, and its parser.
//!
//! Nothing is unified: the three kinds of null, simple and bulk strings, arrays, sets and pushes stay apart, because
//! the tests are about the difference.

use std::fmt;

/// One reply or push. Doubles and big numbers keep their text, so that comparing is exact.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// `+`
    Simple(Vec<u8>),
    /// `-`, with the code, without the line's end
    Error(String),
    /// `:`
    Int(i64),
    /// `$`
    Bulk(Vec<u8>),
    /// `$-1`
    NullBulk,
    /// `*`
    Array(Vec<Value>),
    /// `*-1`
    NullArray,
    /// `_`
    Null,
    /// `,`
    Double(String),
    /// `#`
    Bool(bool),
    /// `(`
    BigNumber(String),
    /// `!`
    BlobError(Vec<u8>),
    /// `=`: the three letters of the format, then the text
    Verbatim(Vec<u8>, Vec<u8>),
    /// `%`
    Map(Vec<(Value, Value)>),
    /// `~`
    Set(Vec<Value>),
    /// `|`: attributes, and the value they stand before
    Attribute(Vec<(Value, Value)>, Box<Value>),
    /// `>`
    Push(Vec<Value>),
}

pub fn bulk(text: impl AsRef<[u8]>) -> Value {
    Value::Bulk(text.as_ref().to_vec())
}

pub fn simple(text: &str) -> Value {
    Value::Simple(text.as_bytes().to_vec())
}

pub fn error(text: &str) -> Value {
    Value::Error(text.to_string())
}

pub fn int(number: i64) -> Value {
    Value::Int(number)
}

impl Value {
    pub fn ok() -> Value {
        simple("OK")
    }

    /// An array of bulk strings.
    pub fn bulks<T: AsRef<[u8]>>(items: &[T]) -> Value {
        Value::Array(items.iter().map(bulk).collect())
    }

    pub fn is_error(&self) -> bool {
        matches!(self, Value::Error(_) | Value::BlobError(_))
    }

    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null | Value::NullBulk | Value::NullArray)
    }

    /// The bytes of any kind of string or error.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Simple(b) | Value::Bulk(b) | Value::BlobError(b) | Value::Verbatim(_, b) => Some(b),
            Value::Error(t) | Value::Double(t) | Value::BigNumber(t) => Some(t.as_bytes()),
            _ => None,
        }
    }

    /// The text of any kind of string or error; fails the test on anything else.
    #[track_caller]
    pub fn text(&self) -> String {
        let bytes = self.bytes().unwrap_or_else(|| panic!("expected a string, got {self:?}"));
        String::from_utf8_lossy(bytes).into_owned()
    }

    #[track_caller]
    pub fn number(&self) -> i64 {
        match self {
            Value::Int(n) => *n,
            other => panic!("expected an integer, got {other:?}"),
        }
    }

    /// The elements of an array, a set or a push.
    #[track_caller]
    pub fn items(&self) -> &[Value] {
        match self {
            Value::Array(items) | Value::Set(items) | Value::Push(items) => items,
            other => panic!("expected an array, got {other:?}"),
        }
    }

    /// The value under `name` of a map, or of the flat array that RESP2 sends in its place.
    pub fn field(&self, name: &str) -> Option<Value> {
        let named = |key: &Value| key.bytes() == Some(name.as_bytes());
        match self {
            Value::Map(pairs) => pairs.iter().find(|(k, _)| named(k)).map(|(_, v)| v.clone()),
            Value::Array(items) => items.chunks_exact(2).find(|pair| named(&pair[0])).map(|pair| pair[1].clone()),
            _ => None,
        }
    }
}

impl fmt::Debug for Value {
    /// redis-cli's spelling on one line, with the kinds told apart; long strings are cut.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = |f: &mut fmt::Formatter<'_>, pairs: &[(Value, Value)]| {
            f.debug_map().entries(pairs.iter().map(|(k, v)| (k, v))).finish()
        };
        match self {
            Value::Simple(b) => write!(f, "+{}", b.escape_ascii()),
            Value::Error(t) => write!(f, "-{}", t.escape_debug()),
            Value::Int(n) => write!(f, ":{n}"),
            Value::Bulk(b) => quoted(f, b),
            Value::NullBulk => f.write_str("$-1"),
            Value::Array(items) => f.debug_list().entries(items).finish(),
            Value::NullArray => f.write_str("*-1"),
            Value::Null => f.write_str("_"),
            Value::Double(t) => write!(f, ",{t}"),
            Value::Bool(b) => write!(f, "#{b}"),
            Value::BigNumber(t) => write!(f, "({t}"),
            Value::BlobError(b) => write!(f, "!{}", b.escape_ascii()),
            Value::Verbatim(kind, b) => {
                write!(f, "={}:", kind.escape_ascii())?;
                quoted(f, b)
            }
            Value::Map(entries) => {
                f.write_str("%")?;
                pairs(f, entries)
            }
            Value::Set(items) => {
                f.write_str("~")?;
                f.debug_list().entries(items).finish()
            }
            Value::Attribute(entries, value) => {
                f.write_str("|")?;
                pairs(f, entries)?;
                write!(f, "{value:?}")
            }
            Value::Push(items) => {
                f.write_str(">")?;
                f.debug_list().entries(items).finish()
            }
        }
    }
}

fn quoted(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    const SHOWN_BYTES: usize = 400;
    if bytes.len() <= SHOWN_BYTES {
        write!(f, "\"{}\"", bytes.escape_ascii())
    } else {
        let shown = bytes[..SHOWN_BYTES].escape_ascii();
        write!(f, "\"{shown}\"... ({} bytes)", bytes.len())
    }
}

/// Parses one value from the start of `input`: the value and the number of bytes it took, `None` if it is not complete.
/// Bytes that are no RESP fail the test that received them.
pub fn parse(input: &[u8]) -> Option<(Value, usize)> {
    let mut parser = Parser { input, at: 0 };
    let value = parser.value()?;
    Some((value, parser.at))
}

struct Parser<'a> {
    input: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    fn value(&mut self) -> Option<Value> {
        let kind = *self.input.get(self.at)?;
        self.at += 1;
        let line = self.line()?;
        let text = || String::from_utf8_lossy(&line).into_owned();
        Some(match kind {
            b'+' => Value::Simple(line),
            b'-' => Value::Error(text()),
            b':' => Value::Int(number(&line)),
            b'_' => Value::Null,
            b',' => Value::Double(text()),
            b'(' => Value::BigNumber(text()),
            b'#' => Value::Bool(line == b"t"),
            b'$' => match number(&line) {
                -1 => Value::NullBulk,
                len => Value::Bulk(self.blob(len)?),
            },
            b'!' => Value::BlobError(self.blob(number(&line))?),
            b'=' => {
                let mut format = self.blob(number(&line))?;
                let text = format.split_off(4);
                format.pop();
                Value::Verbatim(format, text)
            }
            b'*' => match number(&line) {
                -1 => Value::NullArray,
                count => Value::Array(self.values(count)?),
            },
            b'~' => Value::Set(self.values(number(&line))?),
            b'>' => Value::Push(self.values(number(&line))?),
            b'%' => Value::Map(self.pairs(number(&line))?),
            b'|' => {
                let attributes = self.pairs(number(&line))?;
                Value::Attribute(attributes, Box::new(self.value()?))
            }
            other => panic!("not RESP: a reply starts with {:?}, then {:?}", char::from(other), text()),
        })
    }

    fn line(&mut self) -> Option<Vec<u8>> {
        let rest = &self.input[self.at..];
        let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
        self.at += end + 2;
        Some(rest[..end].to_vec())
    }

    fn blob(&mut self, len: i64) -> Option<Vec<u8>> {
        let len = usize::try_from(len).expect("a blob's length is not negative");
        let bytes = self.input.get(self.at..self.at + len)?.to_vec();
        let end = self.input.get(self.at + len..self.at + len + 2)?;
        assert_eq!(end, b"\r\n", "a blob of {len} bytes does not end there");
        self.at += len + 2;
        Some(bytes)
    }

    fn values(&mut self, count: i64) -> Option<Vec<Value>> {
        (0..count).map(|_| self.value()).collect()
    }

    fn pairs(&mut self, count: i64) -> Option<Vec<(Value, Value)>> {
        (0..count).map(|_| Some((self.value()?, self.value()?))).collect()
    }
}

fn number(line: &[u8]) -> i64 {
    std::str::from_utf8(line)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| panic!("not RESP: {} is no integer", line.escape_ascii()))
}
