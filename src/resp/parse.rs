//! Incremental parsing of requests, in place: a request is a list of spans of the receive buffer.
//!
//! The parser remembers how far it came in an unfinished request, so that a request of a million arguments that
//! arrives in a thousand pieces is read once. Nothing is allocated from a number that a client sent: the list of
//! spans grows with the arguments that are really there.

use crate::config::parse_duration;
use crate::value::number::parse_i64;
use thiserror::Error;

/// Where an argument lies: start and end, counted from the start of the request.
pub type Span = (u32, u32);

/// A complete request: its arguments, the name first.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    buffer: &'a [u8],
    spans: &'a [Span],
}

/// What stands in a receive buffer, from a given start.
pub enum Parsed {
    /// A request of this many bytes; its arguments are in the parser (none: an empty request, to be skipped).
    Request(usize),
    /// More bytes are needed.
    Incomplete,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProtocolError {
    #[error("Protocol error: invalid multibulk length")]
    MultibulkLength,
    #[error("Protocol error: unauthenticated multibulk length")]
    UnauthenticatedMultibulk,
    #[error("Protocol error: invalid bulk length")]
    BulkLength,
    #[error("Protocol error: unauthenticated bulk length")]
    UnauthenticatedBulk,
    #[error("Protocol error: expected '$', got '{0}'")]
    ExpectedBulk(char),
    #[error("Protocol error: too big mbulk count string")]
    MultibulkHeader,
    #[error("Protocol error: too big bulk count string")]
    BulkHeader,
    #[error("Protocol error: too big inline request")]
    InlineTooBig,
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
}

/// What a request may claim.
#[derive(Clone, Copy)]
pub struct Limits {
    pub bulk_bytes: usize,
    pub authenticated: bool,
}

/// Room for arguments that a parser keeps.
const KEPT_SPANS: usize = 256;
const INLINE_BYTES: usize = 64 * 1024;
const UNAUTHENTICATED_ARGS: i64 = 10;
const UNAUTHENTICATED_BULK_BYTES: usize = 16 * 1024;

#[derive(Default)]
pub struct Parser {
    spans: Vec<Span>,
    /// The first span of the request found last, or of the one that is being read.
    first: usize,
    /// Arguments still to come of a request that has begun.
    missing: u32,
    /// Where to go on, from the start of the request.
    at: usize,
    /// The arguments of an inline request, unquoted, one behind the other.
    inline: Option<Vec<u8>>,
}

impl Parser {
    /// Looks for a request at the start of `bytes`. After `Incomplete` it must be called with the same bytes and
    /// more; after `Request(n)` with what follows those n bytes.
    #[inline]
    pub fn parse(&mut self, bytes: &[u8], limits: Limits) -> Result<Parsed, ProtocolError> {
        self.begin_batch();
        self.parse_next(bytes, limits)
    }

    /// The spans of requests found from now on are kept, until the next batch begins.
    #[inline]
    pub fn begin_batch(&mut self) {
        if self.missing > 0 {
            self.spans.drain(..self.first);
        } else {
            self.spans.clear();
        }
        self.first = 0;
    }

    /// As [`Parser::parse`], within a batch. One that was written inline has to be the last of its batch.
    #[inline]
    pub fn parse_next(&mut self, bytes: &[u8], limits: Limits) -> Result<Parsed, ProtocolError> {
        if self.missing == 0 {
            self.first = self.spans.len();
            self.inline = None;
            self.at = 0;
            match bytes.first() {
                None => return Ok(Parsed::Incomplete),
                Some(b'*') => {}
                Some(_) => return self.parse_inline(bytes),
            }
            let Some((count, at)) = header(bytes, 0).map_err(|TooLong| ProtocolError::MultibulkHeader)? else {
                return Ok(Parsed::Incomplete);
            };
            let count = count.filter(|&count| count <= i64::from(i32::MAX)).ok_or(ProtocolError::MultibulkLength)?;
            if count > UNAUTHENTICATED_ARGS && !limits.authenticated {
                return Err(ProtocolError::UnauthenticatedMultibulk);
            }
            if count <= 0 {
                return Ok(Parsed::Request(at));
            }
            self.missing = count as u32;
            self.at = at;
        }
        while self.missing > 0 {
            let Some(&first) = bytes.get(self.at) else { return Ok(Parsed::Incomplete) };
            if first != b'$' {
                return Err(ProtocolError::ExpectedBulk(first as char));
            }
            let Some((len, start)) = header(bytes, self.at).map_err(|TooLong| ProtocolError::BulkHeader)? else {
                return Ok(Parsed::Incomplete);
            };
            let len = len.and_then(|len| usize::try_from(len).ok()).filter(|&len| len <= limits.bulk_bytes);
            let len = len.ok_or(ProtocolError::BulkLength)?;
            if len > UNAUTHENTICATED_BULK_BYTES && !limits.authenticated {
                return Err(ProtocolError::UnauthenticatedBulk);
            }
            let end = start + len;
            if bytes.len() < end + 2 {
                return Ok(Parsed::Incomplete);
            }
            self.spans.push((start as u32, end as u32));
            self.at = end + 2;
            self.missing -= 1;
        }
        Ok(Parsed::Request(self.at))
    }

    /// Where the argument ends that is being read, from the start of its request, these bytes; as far as that is known.
    #[cold]
    pub fn end_of_argument(&self, bytes: &[u8]) -> Option<usize> {
        // (The function `header` finds the same, and is faster where nobody else calls it.)
        let rest = bytes.get(self.at + 1..).filter(|_| self.missing > 0)?;
        let len = memchr::memchr(b'\r', rest).filter(|len| len + 1 < rest.len())?;
        let bulk = usize::try_from(parse_i64(&rest[..len])?).ok()?;
        Some(self.at + 1 + len + 2 + bulk + 2)
    }

    /// Forgets what was found, and what is known of a request that is not complete: it will be read from its start.
    pub fn start_anew(&mut self) {
        self.missing = 0;
        self.begin_batch();
    }

    /// Gives back the room that a request with very many arguments needed.
    #[inline]
    pub fn trim(&mut self) {
        if self.spans.capacity() > KEPT_SPANS && self.missing == 0 {
            self.start_anew();
            self.spans.shrink_to(KEPT_SPANS);
            self.inline = None;
        }
    }

    /// Whether the request found last was written inline.
    #[inline]
    pub fn is_inline(&self) -> bool {
        self.inline.is_some()
    }

    /// Where the spans of the request found last are kept.
    #[inline]
    pub fn found(&self) -> (usize, usize) {
        (self.first, self.spans.len())
    }

    /// The request found last, in the bytes it was found in.
    #[inline]
    pub fn request<'a>(&'a self, bytes: &'a [u8]) -> Request<'a> {
        Request { buffer: self.inline.as_deref().unwrap_or(bytes), spans: &self.spans[self.first..] }
    }

    /// A request of this batch, by what [`Parser::found`] said, in the bytes it was found in.
    #[inline]
    pub fn request_at<'a>(&'a self, found: (usize, usize), bytes: &'a [u8]) -> Request<'a> {
        Request { buffer: bytes, spans: &self.spans[found.0..found.1] }
    }

    fn parse_inline(&mut self, bytes: &[u8]) -> Result<Parsed, ProtocolError> {
        let Some(newline) = memchr::memchr(b'\n', bytes) else {
            return if bytes.len() > INLINE_BYTES { Err(ProtocolError::InlineTooBig) } else { Ok(Parsed::Incomplete) };
        };
        if newline > INLINE_BYTES {
            return Err(ProtocolError::InlineTooBig);
        }
        let line = &bytes[..newline];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let mut text = Vec::new();
        split_quoted(line, &mut text, &mut self.spans).ok_or(ProtocolError::UnbalancedQuotes)?;
        self.inline = Some(text);
        Ok(Parsed::Request(newline + 1))
    }
}

/// A header line has gone on for too long.
struct TooLong;

/// The number behind the type byte at `at` and where the next line starts; the number is `None` where it is not one.
/// `Ok(None)` while the line is incomplete.
#[inline(always)]
fn header(bytes: &[u8], at: usize) -> Result<Option<(Option<i64>, usize)>, TooLong> {
    let digits = at + 1;
    // Lengths of one or two digits are nearly all there are. (In each place where it is called: a call takes longer.)
    if let Some(&[first, second, third, _]) = bytes.get(digits..digits + 4) {
        let number = |byte: u8| byte.wrapping_sub(b'0');
        if number(first) < 10 && second == b'\r' {
            return Ok(Some((Some(i64::from(number(first))), digits + 3)));
        }
        if matches!(number(first), 1..10) && number(second) < 10 && third == b'\r' {
            let value = i64::from(number(first)) * 10 + i64::from(number(second));
            return Ok(Some((Some(value), digits + 4)));
        }
    }
    long_header(bytes, at)
}

/// As [`header`], of any line.
#[inline(never)]
fn long_header(bytes: &[u8], at: usize) -> Result<Option<(Option<i64>, usize)>, TooLong> {
    let digits = at + 1;
    let Some(len) = memchr::memchr(b'\r', &bytes[digits.min(bytes.len())..]) else {
        return if bytes.len() - at > INLINE_BYTES { Err(TooLong) } else { Ok(None) };
    };
    let end = digits + len;
    // As if it had come in pieces, so that the end does not excuse the length.
    if end - at > INLINE_BYTES {
        return Err(TooLong);
    }
    if bytes.len() < end + 2 {
        return Ok(None);
    }
    Ok(Some((parse_i64(&bytes[digits..end]), end + 2)))
}

/// Splits a line into arguments at white space, with "..." (escapes \n \r \t \a \b \xHH) and '...' (escape \').
/// `None` where a quote is not closed or is followed by something other than white space.
fn split_quoted(line: &[u8], text: &mut Vec<u8>, spans: &mut Vec<Span>) -> Option<()> {
    let mut rest = line.iter().copied().peekable();
    loop {
        while rest.next_if(|byte| is_space(*byte)).is_some() {}
        if rest.peek().is_none() {
            return Some(());
        }
        let start = text.len() as u32;
        loop {
            match rest.next() {
                None => break,
                Some(byte) if is_space(byte) => break,
                Some(b'"') => {
                    loop {
                        match rest.next()? {
                            b'"' => break,
                            b'\\' => text.push(unescape(&mut rest)?),
                            byte => text.push(byte),
                        }
                    }
                    if rest.peek().is_some_and(|byte| !is_space(*byte)) {
                        return None;
                    }
                }
                Some(b'\'') => {
                    loop {
                        match rest.next()? {
                            b'\'' => break,
                            b'\\' if rest.peek() == Some(&b'\'') => text.push(rest.next()?),
                            byte => text.push(byte),
                        }
                    }
                    if rest.peek().is_some_and(|byte| !is_space(*byte)) {
                        return None;
                    }
                }
                Some(byte) => text.push(byte),
            }
        }
        spans.push((start, text.len() as u32));
    }
}

fn unescape(rest: &mut std::iter::Peekable<impl Iterator<Item = u8> + Clone>) -> Option<u8> {
    let byte = rest.next()?;
    Some(match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        b'x' => {
            let mut ahead = rest.clone();
            let digit = |byte: Option<u8>| byte.and_then(|byte| (byte as char).to_digit(16));
            match (digit(ahead.next()), digit(ahead.next())) {
                (Some(high), Some(low)) => {
                    rest.next();
                    rest.next();
                    (high * 16 + low) as u8
                }
                _ => b'x',
            }
        }
        byte => byte,
    })
}

/// Of a length.
#[inline]
fn digits(len: u32) -> usize {
    match len {
        0..10 => 1,
        10..100 => 2,
        _ => len.ilog10() as usize + 1,
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

impl<'a> Request<'a> {
    pub fn new(buffer: &'a [u8], spans: &'a [Span]) -> Request<'a> {
        Request { buffer, spans }
    }

    #[inline]
    pub fn len(self) -> usize {
        self.spans.len()
    }

    pub fn is_empty(self) -> bool {
        self.spans.is_empty()
    }

    /// Argument `index`; the name is argument 0. The arity check of the table makes sure that it is there.
    #[inline]
    pub fn arg(self, index: usize) -> &'a [u8] {
        let (start, end) = self.spans[index];
        &self.buffer[start as usize..end as usize]
    }

    #[inline]
    pub fn get(self, index: usize) -> Option<&'a [u8]> {
        (index < self.spans.len()).then(|| self.arg(index))
    }

    /// The arguments from `start` on.
    pub fn from(self, start: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone {
        self.spans[start.min(self.spans.len())..]
            .iter()
            .map(move |&(start, end)| &self.buffer[start as usize..end as usize])
    }

    /// What stands from an argument on, as a request of its own.
    pub fn rest(self, start: usize) -> Request<'a> {
        Request { spans: &self.spans[start.min(self.spans.len())..], ..self }
    }

    /// Bytes of all arguments.
    #[inline]
    pub fn bytes(self) -> usize {
        self.spans.iter().map(|&(start, end)| (end - start) as usize).sum()
    }

    /// Bytes from the first argument to the end of the last, with what stands between them.
    #[inline]
    pub fn extent(self) -> usize {
        let ends = self.spans.first().zip(self.spans.last());
        ends.map_or(0, |(first, last)| last.1.saturating_sub(first.0) as usize)
    }

    /// The whole request as it was received, where that is the one way in which it is written without anything needless: copied
    /// at once, since to write it anew takes three times as long.
    pub fn as_sent(self) -> Option<&'a [u8]> {
        const END: &[u8] = b"\r\n";
        let has = |at: usize, text: &[u8]| self.buffer.get(at..at + text.len()) == Some(text);
        let mut end = 1 + digits(self.spans.len() as u32);
        if self.is_empty() || !has(0, b"*") || !has(end, END) {
            return None;
        }
        for &(from, to) in self.spans {
            let begin = end + END.len();
            let head = begin + 1 + digits(to - from);
            if !has(begin, b"$") || !has(head, END) || from as usize != head + END.len() || !has(to as usize, END) {
                return None;
            }
            end = to as usize;
        }
        self.buffer.get(..end + END.len())
    }

    /// Whether argument `index` is this word, in any case.
    pub fn is(self, index: usize, word: &str) -> bool {
        self.get(index).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
    }

    pub fn int(self, index: usize) -> super::Result<i64> {
        parse_i64(self.arg(index)).ok_or(super::Error::NotAnInteger)
    }

    /// An integer that can be negated: a count or a rank whose sign says from which end.
    pub fn negatable(self, index: usize) -> super::Result<i64> {
        let out_of_range = || {
            super::Error::err(format_args!("value is out of range, value must between {} and {}", -i64::MAX, i64::MAX))
        };
        Some(self.int(index)?).filter(|n| *n > i64::MIN).ok_or_else(out_of_range)
    }

    /// A duration such as `1.5h`, in milliseconds.
    pub fn duration(self, index: usize) -> super::Result<u64> {
        let text = self.arg(index);
        parse_duration(text).map_err(|error| {
            let quoted = super::printable(text, 128);
            super::Error::quoting(&[b"ERR invalid duration '", quoted, b"': ", error.to_string().as_bytes()])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { bulk_bytes: 1 << 20, authenticated: true };

    /// Arguments and length of a request.
    type Args = (Vec<Vec<u8>>, usize);

    fn args(bytes: &[u8]) -> Result<Option<Args>, ProtocolError> {
        let mut parser = Parser::default();
        Ok(match parser.parse(bytes, LIMITS)? {
            Parsed::Incomplete => None,
            Parsed::Request(used) => Some((parser.request(bytes).from(0).map(<[u8]>::to_vec).collect(), used)),
        })
    }

    fn words(line: &str) -> Vec<Vec<u8>> {
        args(line.as_bytes()).unwrap().unwrap().0
    }

    #[test]
    fn what_is_written_in_another_way_is_not_as_sent() {
        let as_sent = |bytes: &[u8]| {
            let mut parser = Parser::default();
            assert!(matches!(parser.parse(bytes, LIMITS), Ok(Parsed::Request(_))), "{}", bytes.escape_ascii());
            let request = parser.request(bytes);
            // (As messages between shards have it.)
            let joined: Vec<u8> = request.from(0).flatten().copied().collect();
            let mut at = 0;
            let spans = request.from(0).map(|arg| {
                at += arg.len() as u32;
                (at - arg.len() as u32, at)
            });
            assert_eq!(Request::new(&joined, &spans.collect::<Vec<_>>()).as_sent(), None);
            assert_eq!(request.rest(1).as_sent(), None);
            request.as_sent().map(<[u8]>::to_vec)
        };
        let long = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1234\r\n{}\r\n", "v".repeat(1234));
        for bytes in [&b"*2\r\n$3\r\nGET\r\n$12\r\nabcdefghijkl\r\n"[..], b"*1\r\n$0\r\n\r\n", long.as_bytes()] {
            assert_eq!(as_sent(&[bytes, b"rest"].concat()).as_deref(), Some(bytes));
        }
        assert_eq!(as_sent(b"GET k\r\n"), None);
    }

    #[test]
    fn requests_are_found_and_measured() {
        let (found, used) = args(b"*2\r\n$3\r\nGET\r\n$12\r\nabcdefghijkl\r\nrest").unwrap().unwrap();
        assert_eq!(found, [&b"GET"[..], b"abcdefghijkl"]);
        assert_eq!(used, 32);
        assert_eq!(args(b"*0\r\n").unwrap().unwrap(), (vec![], 4));
        assert_eq!(args(b"*-1\r\n").unwrap().unwrap(), (vec![], 5));
        assert_eq!(args(b"*1\r\n$0\r\n\r\n").unwrap().unwrap().0, [b""]);
        assert_eq!(args(b"*1\r\n$03\r\nabc\r\n"), Err(ProtocolError::BulkLength));
    }

    #[test]
    fn the_end_of_an_argument_is_known_once_its_length_is() {
        let whole = b"*2\r\n$3\r\nGET\r\n$100\r\nabc";
        for cut in 0..=whole.len() {
            let mut parser = Parser::default();
            assert!(matches!(parser.parse(&whole[..cut], LIMITS), Ok(Parsed::Incomplete)));
            let end = match cut {
                ..8 => None,
                8..19 => Some(13),
                _ => Some(121),
            };
            assert_eq!(parser.end_of_argument(&whole[..cut]), end.filter(|_| !(13..19).contains(&cut)), "{cut}");
        }
    }

    #[test]
    fn every_prefix_is_incomplete_and_every_split_gives_the_same() {
        let whole = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100\r\n".iter().copied().chain([b'v'; 100]).chain(*b"\r\n");
        let whole: Vec<u8> = whole.collect();
        for cut in 0..whole.len() {
            let mut parser = Parser::default();
            assert!(matches!(parser.parse(&whole[..cut], LIMITS), Ok(Parsed::Incomplete)), "{cut}");
            assert!(matches!(parser.parse(&whole, LIMITS), Ok(Parsed::Request(used)) if used == whole.len()));
            assert_eq!(parser.request(&whole).arg(2), [b'v'; 100]);
        }
    }

    #[test]
    fn bad_requests_have_their_errors() {
        use ProtocolError::*;
        assert_eq!(args(b"*abc\r\n"), Err(MultibulkLength));
        assert_eq!(args(b"*2147483648\r\n"), Err(MultibulkLength));
        assert_eq!(args(b"*2147483647\r\n"), Ok(None));
        assert_eq!(args(b"*1\r\n:1\r\n"), Err(ExpectedBulk(':')));
        assert_eq!(args(b"*1\r\n$-5\r\n"), Err(BulkLength));
        assert_eq!(args(b"*1\r\n$1048577\r\n"), Err(BulkLength));
        assert_eq!(args(b"get \"a"), Ok(None));
        assert_eq!(args(b"get \"a\n"), Err(UnbalancedQuotes));
        assert_eq!(args(&[b'a'; 70_000]), Err(InlineTooBig));
        assert_eq!(args(&[&b"*"[..], &[b'1'; 70_000]].concat()), Err(MultibulkHeader));
        assert_eq!(args(&[&b"*1\r\n$"[..], &[b'1'; 70_000]].concat()), Err(BulkHeader));
        let strangers = Limits { authenticated: false, ..LIMITS };
        let mut parser = Parser::default();
        assert_eq!(parser.parse(b"*11\r\n", strangers).err(), Some(UnauthenticatedMultibulk));
        let mut parser = Parser::default();
        assert_eq!(parser.parse(b"*1\r\n$16385\r\n", strangers).err(), Some(UnauthenticatedBulk));
    }

    /// A header that had become too long was another error once its end was there, and none before the line feed.
    #[test]
    fn a_header_is_too_long_whether_or_not_its_end_is_there() {
        for (start, error) in [
            ("*", ProtocolError::MultibulkHeader),
            ("*1\r\n$", ProtocolError::BulkHeader),
            ("x", ProtocolError::InlineTooBig),
        ] {
            for end in ["", "\r", "\r\n"] {
                let header = format!("{start}{}{end}", "1".repeat(INLINE_BYTES));
                assert_eq!(args(header.as_bytes()), Err(error.clone()), "{start:?} ... {end:?}");
            }
        }
    }

    #[test]
    fn inline_requests_are_split_and_unquoted() {
        assert_eq!(words("  set  a\tb \r\n"), [&b"set"[..], b"a", b"b"]);
        assert_eq!(words("set k \"a b\\x41\\n\\q\"\n"), [&b"set"[..], b"k", b"a bA\nq"]);
        assert_eq!(words("set k 'a\\'b\\n'\n"), [&b"set"[..], b"k", b"a'b\\n"]);
        assert_eq!(words("\"\"\n"), [b""]);
        assert!(words("\r\n").is_empty());
    }

    #[test]
    fn nothing_a_stranger_sends_breaks_the_parser() {
        let mut rng = fastrand::Rng::with_seed(11);
        let alphabet = b"*$:123450\r\n-\"'\\x ab\0\xff";
        for _ in 0..200_000 {
            let len = rng.usize(0..60);
            let bytes: Vec<u8> = (0..len).map(|_| alphabet[rng.usize(..alphabet.len())]).collect();
            let mut parser = Parser::default();
            let mut rest = &bytes[..];
            while let Ok(Parsed::Request(used)) = parser.parse(rest, LIMITS) {
                assert!(used > 0 && used <= rest.len());
                parser.request(rest).from(0).for_each(|arg| assert!(arg.len() <= bytes.len()));
                rest = &rest[used..];
            }
        }
    }
}
