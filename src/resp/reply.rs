//! Writing replies, in the protocol version the connection speaks.

use super::Error;
use crate::value::number::{I64_TEXT_BYTES_MAX, format_i64, write_f64};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Proto {
    #[default]
    Resp2,
    Resp3,
}

/// Appends one reply to a send buffer. Aggregates are announced with their length and followed by their items.
pub struct Reply<'a> {
    out: &'a mut Vec<u8>,
    pub proto: Proto,
    /// Past this length of the buffer no more strings are written: whoever runs the command puts an error in its place.
    end: usize,
}

impl<'a> Reply<'a> {
    #[inline]
    pub fn new(out: &'a mut Vec<u8>, proto: Proto) -> Reply<'a> {
        Reply { out, proto, end: usize::MAX }
    }

    /// A reply that may be so long.
    #[inline]
    pub fn within(out: &'a mut Vec<u8>, proto: Proto, bytes: usize) -> Reply<'a> {
        let end = out.len().saturating_add(bytes);
        Reply { out, proto, end }
    }

    #[inline]
    pub fn ok(&mut self) {
        self.raw(b"+OK\r\n");
    }

    /// Bytes that are a reply already.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// How many bytes the buffer holds.
    pub fn len(&self) -> usize {
        self.out.len()
    }

    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// Takes out what was written after the buffer had this length.
    pub fn take_from(&mut self, len: usize) -> Vec<u8> {
        self.out.split_off(len)
    }

    /// Takes back what was written after the buffer had this length.
    pub fn truncate(&mut self, len: usize) {
        self.out.truncate(len);
    }

    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// An error with its code in front. Line ends inside would break the protocol: they become spaces.
    pub fn error(&mut self, error: Error) {
        let is_line_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        let mut line = error.to_bytes().into_owned();
        line.truncate(line.iter().rposition(|byte| !is_line_end(byte)).map_or(0, |last| last + 1));
        line.iter_mut().filter(|byte| is_line_end(byte)).for_each(|byte| *byte = b' ');
        self.line(b'-', &line);
    }

    #[inline]
    pub fn int(&mut self, n: i64) {
        self.number(b':', n);
    }

    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        if self.out.len() > self.end {
            return;
        }
        self.out.reserve(bytes.len() + 24);
        match bytes.len() {
            len @ 0..10 => self.raw(&[b'$', b'0' + len as u8, b'\r', b'\n']),
            len @ 10..100 => self.raw(&[b'$', b'0' + (len / 10) as u8, b'0' + (len % 10) as u8, b'\r', b'\n']),
            len => self.number(b'$', len as i64),
        }
        self.raw(bytes);
        self.raw(b"\r\n");
    }

    /// An integer as a bulk string.
    pub fn bulk_int(&mut self, n: i64) {
        let mut buffer = [0; 20];
        self.bulk(format_i64(n, &mut buffer));
    }

    #[inline]
    pub fn nil(&mut self) {
        match self.proto {
            Proto::Resp2 => self.raw(b"$-1\r\n"),
            Proto::Resp3 => self.raw(b"_\r\n"),
        }
    }

    /// The nil that stands for a missing array.
    pub fn nil_array(&mut self) {
        match self.proto {
            Proto::Resp2 => self.raw(b"*-1\r\n"),
            Proto::Resp3 => self.raw(b"_\r\n"),
        }
    }

    pub fn array(&mut self, len: usize) {
        self.number(b'*', len as i64);
    }

    /// `pairs` keys, each followed by its value.
    pub fn map(&mut self, pairs: usize) {
        match self.proto {
            Proto::Resp2 => self.number(b'*', pairs as i64 * 2),
            Proto::Resp3 => self.number(b'%', pairs as i64),
        }
    }

    pub fn set(&mut self, len: usize) {
        match self.proto {
            Proto::Resp2 => self.number(b'*', len as i64),
            Proto::Resp3 => self.number(b'~', len as i64),
        }
    }

    /// A message that is not the answer to a request.
    pub fn push(&mut self, len: usize) {
        match self.proto {
            Proto::Resp2 => self.number(b'*', len as i64),
            Proto::Resp3 => self.number(b'>', len as i64),
        }
    }

    pub fn bool(&mut self, yes: bool) {
        match self.proto {
            Proto::Resp2 => self.int(i64::from(yes)),
            Proto::Resp3 => self.raw(if yes { b"#t\r\n" } else { b"#f\r\n" }),
        }
    }

    pub fn double(&mut self, x: f64) {
        /// A whole number is written as one below this.
        const WHOLE_END: u64 = 100_000_000_000_000_000;
        let whole = x as i64;
        if whole as f64 == x && whole.unsigned_abs() < WHOLE_END && (whole != 0 || x.is_sign_positive()) {
            self.number_text(format_i64(whole, &mut [0; I64_TEXT_BYTES_MAX]));
            return;
        }
        let mut text = Vec::new();
        write_f64(&mut text, x);
        self.number_text(&text);
    }

    /// A number that is written already.
    pub fn number_text(&mut self, text: &[u8]) {
        match self.proto {
            Proto::Resp2 => self.bulk(text),
            Proto::Resp3 => self.line(b',', text),
        }
    }

    /// Text for people, with a three-letter format in RESP3 (`txt`, `mkd`).
    pub fn verbatim(&mut self, format: &str, text: &str) {
        match self.proto {
            Proto::Resp2 => self.bulk(text.as_bytes()),
            Proto::Resp3 => {
                self.number(b'=', text.len() as i64 + 4);
                self.raw(format.as_bytes());
                self.raw(b":");
                self.raw(text.as_bytes());
                self.raw(b"\r\n");
            }
        }
    }

    #[inline]
    fn number(&mut self, kind: u8, n: i64) {
        let mut buffer = [0; 20];
        let digits = format_i64(n, &mut buffer);
        self.out.reserve(digits.len() + 3);
        self.out.push(kind);
        self.out.extend_from_slice(digits);
        self.out.extend_from_slice(b"\r\n");
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.reserve(text.len() + 3);
        self.out.push(kind);
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(proto: Proto, write: impl FnOnce(&mut Reply)) -> String {
        let mut out = Vec::new();
        write(&mut Reply::new(&mut out, proto));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn types_differ_by_protocol() {
        let all = |reply: &mut Reply| {
            reply.nil();
            reply.nil_array();
            reply.map(1);
            reply.set(2);
            reply.push(3);
            reply.bool(true);
            reply.double(1.5);
            reply.verbatim("txt", "hi");
        };
        assert_eq!(written(Proto::Resp2, all), "$-1\r\n*-1\r\n*2\r\n*2\r\n*3\r\n:1\r\n$3\r\n1.5\r\n$2\r\nhi\r\n");
        assert_eq!(written(Proto::Resp3, all), "_\r\n_\r\n%1\r\n~2\r\n>3\r\n#t\r\n,1.5\r\n=6\r\ntxt:hi\r\n");
    }

    #[test]
    fn whole_doubles_are_written_as_others() {
        for x in [0.0, -0.0, 1.0, -7.0, 1e16, -99999999999999984.0, 1e17, -1e17, 1e300, 0.5, f64::INFINITY] {
            let mut text = Vec::new();
            write_f64(&mut text, x);
            let expected = format!(",{}\r\n", String::from_utf8(text).unwrap());
            assert_eq!(written(Proto::Resp3, |reply| reply.double(x)), expected);
        }
    }

    #[test]
    fn an_error_stays_on_its_line() {
        assert_eq!(written(Proto::Resp2, |reply| reply.error(Error::text("ERR a\r\nb"))), "-ERR a  b\r\n");
        let quoting = Error::quoting(&[b"ERR '", b"\xff\xc3\n\x80", b"'\r\n"]);
        let mut out = Vec::new();
        Reply::new(&mut out, Proto::Resp3).error(quoting);
        assert_eq!(out, b"-ERR '\xff\xc3 \x80'\r\n");
    }

    #[test]
    fn bulks_of_all_lengths() {
        for len in [0, 1, 9, 10, 99, 100, 1000] {
            let text = "x".repeat(len);
            assert_eq!(written(Proto::Resp2, |reply| reply.bulk(text.as_bytes())), format!("${len}\r\n{text}\r\n"));
        }
    }
}
