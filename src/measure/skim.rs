//! The reply parser of the hot path. It finds where replies end and which are nil or errors, and looks at nothing
//! else: bodies are skipped by their length, nested values are counted.
//!
//! A request may have several replies (MULTI, QUEUED, EXEC's array): the parser tells of them as one. It is an error
//! where one of them is, or holds one; otherwise it is what the last of them is.
//!
//! What it keeps between calls is a few counters, so a reply may come in any number of pieces; only a header line cut
//! in two must be shown to it again, together with its rest.

/// The complete reply to a request; pushes and attributes (RESP3) are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    Value,
    Nil,
    Error(&'a [u8]),
}

#[derive(Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

/// Nothing longer is a header line; an error's text is one.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Above it a reply is not a reply but a sign that we are out of step.
const LENGTH_MAX: i64 = 1 << 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frame {
    /// Value, or what an aggregate is as a whole.
    Value,
    Nil,
    /// A push or an attribute: comes beside the replies.
    Aside,
}

#[derive(Debug)]
pub struct Skim {
    /// Bytes of a body, its line end included, still to come.
    skip: u64,
    /// Values of the current frame still to come; 0 between frames.
    pending: u64,
    frame: Frame,
    /// Replies to each request.
    replies: u32,
    /// Replies to the current request still to come, the current frame's included.
    left: u32,
    /// The first error among the replies to the current request.
    error: Option<Vec<u8>>,
}

impl Skim {
    /// For requests that have so many replies each.
    pub fn new(replies: u32) -> Skim {
        assert!(replies > 0, "every request has a reply");
        Skim { skip: 0, pending: 0, frame: Frame::Value, replies, left: replies, error: None }
    }

    /// Tells `reply` each request's reply that ends in `bytes` and returns how many bytes are done with. The rest is a header
    /// line in part: show it again, in front of what comes next.
    #[inline]
    pub fn feed(&mut self, bytes: &[u8], mut reply: impl FnMut(Reply<'_>)) -> Result<usize, Malformed> {
        let mut at = 0;
        loop {
            if self.skip > 0 {
                let here = self.skip.min((bytes.len() - at) as u64);
                at += here as usize;
                self.skip -= here;
                if self.skip > 0 {
                    return Ok(at);
                }
                self.ended(&mut reply);
            }
            if at == bytes.len() {
                return Ok(at);
            }
            if bytes[at] == b'$' {
                // The reply to a GET: nearly all there is.
                let Some((length, line)) = number(&bytes[at + 1..])? else {
                    return Ok(at);
                };
                let whole = self.begin(Frame::Value);
                at += 1 + line;
                if length < 0 {
                    self.nil(whole, &mut reply);
                } else {
                    self.skip = length as u64 + 2;
                }
                continue;
            }
            match self.other(&bytes[at..], &mut reply)? {
                Some(used) => at += used,
                None => return Ok(at),
            }
        }
    }

    fn other(&mut self, bytes: &[u8], reply: &mut impl FnMut(Reply<'_>)) -> Result<Option<usize>, Malformed> {
        let Some(end) = memchr::memchr(b'\n', &bytes[..bytes.len().min(LINE_BYTES_MAX)]) else {
            return if bytes.len() < LINE_BYTES_MAX { Ok(None) } else { Err(Malformed("a line without an end")) };
        };
        if end == 0 || bytes[end - 1] != b'\r' {
            return Err(Malformed("a line that does not end in CR LF"));
        }
        let line = end + 1;
        let length = || match number(&bytes[1..line])? {
            Some((length, _)) => Ok(length),
            None => Err(Malformed("a length that is no number")),
        };
        match bytes[0] {
            b'+' | b':' | b',' | b'#' | b'(' => {
                self.begin(Frame::Value);
                self.ended(reply);
            }
            b'-' => {
                self.begin(Frame::Value);
                self.failed(&bytes[1..end - 1]);
                self.ended(reply);
            }
            b'_' => {
                let whole = self.begin(Frame::Value);
                self.nil(whole, reply);
            }
            b'=' => {
                self.begin(Frame::Value);
                self.skip = non_negative(length()?)? + 2;
            }
            b'!' => {
                let body = non_negative(length()?)?;
                if body >= LINE_BYTES_MAX as u64 {
                    return Err(Malformed("an error longer than any"));
                }
                let text_end = line + body as usize;
                if bytes.len() < text_end + 2 {
                    return Ok(None);
                }
                self.begin(Frame::Value);
                self.failed(&bytes[line..text_end]);
                self.ended(reply);
                return Ok(Some(text_end + 2));
            }
            b'*' | b'~' => {
                let length = length()?;
                let whole = self.begin(Frame::Value);
                match length {
                    ..0 => self.nil(whole, reply),
                    length => self.aggregate(length as u64, reply),
                }
            }
            b'%' => {
                let pairs = non_negative(length()?)?;
                self.begin(Frame::Value);
                self.aggregate(pairs * 2, reply);
            }
            b'>' => {
                let length = non_negative(length()?)?;
                self.begin(Frame::Aside);
                self.aggregate(length, reply);
            }
            b'|' => {
                let pairs = non_negative(length()?)?;
                if self.pending == 0 {
                    self.begin(Frame::Aside);
                    self.aggregate(pairs * 2, reply);
                } else {
                    // Beside the value that follows, which is still to come.
                    self.pending += pairs * 2;
                }
            }
            _ => return Err(Malformed("a reply of no known type")),
        }
        Ok(Some(line))
    }

    /// A value begins; the first one of a frame says what the frame is. True for that one.
    #[inline]
    fn begin(&mut self, frame: Frame) -> bool {
        let first = self.pending == 0;
        if first {
            self.pending = 1;
            self.frame = frame;
        }
        first
    }

    fn nil(&mut self, whole: bool, reply: &mut impl FnMut(Reply<'_>)) {
        if whole {
            self.frame = Frame::Nil;
        }
        self.ended(reply);
    }

    #[cold]
    fn failed(&mut self, text: &[u8]) {
        if self.frame != Frame::Aside && self.error.is_none() {
            self.error = Some(text.to_vec());
        }
    }

    fn aggregate(&mut self, values: u64, reply: &mut impl FnMut(Reply<'_>)) {
        self.pending += values;
        self.ended(reply);
    }

    #[inline]
    fn ended(&mut self, reply: &mut impl FnMut(Reply<'_>)) {
        self.pending -= 1;
        if self.pending > 0 || self.frame == Frame::Aside {
            return;
        }
        self.left -= 1;
        if self.left > 0 {
            return;
        }
        self.left = self.replies;
        if let Some(error) = self.error.take() {
            reply(Reply::Error(&error));
        } else if self.frame == Frame::Nil {
            reply(Reply::Nil);
        } else {
            reply(Reply::Value);
        }
    }
}

/// The number at the start of `bytes`, ended by CR LF, and the length of that line; `None` if it is not all here.
#[inline]
fn number(bytes: &[u8]) -> Result<Option<(i64, usize)>, Malformed> {
    let mut at = 0;
    let negative = bytes.first() == Some(&b'-');
    at += usize::from(negative);
    let mut value = 0i64;
    loop {
        match bytes.get(at) {
            Some(digit @ b'0'..=b'9') => value = value * 10 + i64::from(digit - b'0'),
            Some(b'\r') if at > usize::from(negative) => break,
            Some(_) => return Err(Malformed("a length that is no number")),
            None => return Ok(None),
        }
        if value > LENGTH_MAX {
            return Err(Malformed("a length beyond any"));
        }
        at += 1;
    }
    match bytes.get(at + 1) {
        Some(b'\n') => Ok(Some((if negative { -value } else { value }, at + 2))),
        Some(_) => Err(Malformed("a line that does not end in CR LF")),
        None => Ok(None),
    }
}

fn non_negative(length: i64) -> Result<u64, Malformed> {
    u64::try_from(length).map_err(|_| Malformed("a negative length"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replies(stream: &[u8], cuts: &[usize]) -> Result<Vec<String>, Malformed> {
        replies_of(1, stream, cuts)
    }

    /// Shows the parser `stream` cut into pieces at `cuts`, as a connection would.
    fn replies_of(replies: u32, stream: &[u8], cuts: &[usize]) -> Result<Vec<String>, Malformed> {
        let mut skim = Skim::new(replies);
        let mut found = Vec::new();
        let mut waiting = Vec::new();
        let mut from = 0;
        for &cut in cuts.iter().chain([&stream.len()]) {
            waiting.extend_from_slice(&stream[from..cut]);
            from = cut;
            let used = skim.feed(&waiting, |reply| {
                found.push(match reply {
                    Reply::Value => "value".to_owned(),
                    Reply::Nil => "nil".to_owned(),
                    Reply::Error(text) => String::from_utf8_lossy(text).into_owned(),
                });
            })?;
            waiting.drain(..used);
        }
        assert!(waiting.is_empty(), "left over: {}", waiting.escape_ascii());
        Ok(found)
    }

    /// Every type of RESP2 and RESP3, alone and nested, with what is seen of it.
    const CASES: &[(&[u8], &[&str])] = &[
        (b"+OK\r\n", &["value"]),
        (b"-ERR no\r\n", &["ERR no"]),
        (b":-12\r\n", &["value"]),
        (b"$3\r\nabc\r\n", &["value"]),
        (b"$4\r\n\r\n+x\r\n", &["value"]),
        (b"$0\r\n\r\n", &["value"]),
        (b"$-1\r\n", &["nil"]),
        (b"*-1\r\n", &["nil"]),
        (b"*0\r\n", &["value"]),
        (b"*1\r\n$-1\r\n", &["value"]),
        (b"*3\r\n:1\r\n*2\r\n$1\r\na\r\n-ERR inside\r\n-ERR more\r\n", &["ERR inside"]),
        (b"_\r\n", &["nil"]),
        (b",1.5\r\n", &["value"]),
        (b"#t\r\n", &["value"]),
        (b"(3492890328409238509324850943850943825024385\r\n", &["value"]),
        (b"=8\r\ntxt:some\r\n", &["value"]),
        (b"!5\r\nERR x\r\n", &["ERR x"]),
        (b"*2\r\n!5\r\nERR x\r\n_\r\n", &["ERR x"]),
        (b"%1\r\n+key\r\n~2\r\n:1\r\n#f\r\n", &["value"]),
        (b"%0\r\n", &["value"]),
        (b">2\r\n+message\r\n$-1\r\n", &[]),
        (b">2\r\n+message\r\n-ERR x\r\n+OK\r\n", &["value"]),
        (b">2\r\n+message\r\n$1\r\nx\r\n$2\r\nab\r\n", &["value"]),
        (b"|1\r\n+ttl\r\n:3\r\n$-1\r\n", &["nil"]),
        (b"*2\r\n:1\r\n|1\r\n+ttl\r\n:3\r\n:2\r\n", &["value"]),
    ];

    #[test]
    fn every_type_split_at_every_byte() {
        for (stream, expected) in CASES {
            for cut in 0..=stream.len() {
                assert_eq!(replies(stream, &[cut]).unwrap(), *expected, "{} at {cut}", stream.escape_ascii());
            }
            let every: Vec<usize> = (0..stream.len()).collect();
            assert_eq!(replies(stream, &every).unwrap(), *expected, "{} in bytes", stream.escape_ascii());
        }
    }

    #[test]
    fn all_in_one_stream_split_at_every_byte() {
        let stream: Vec<u8> = CASES.iter().flat_map(|(bytes, _)| bytes.iter().copied()).collect();
        let expected: Vec<&str> = CASES.iter().flat_map(|(_, expected)| expected.iter().copied()).collect();
        for cut in 0..=stream.len() {
            assert_eq!(replies(&stream, &[cut]).unwrap(), expected);
        }
    }

    /// Transactions of one command: three replies each.
    #[test]
    fn several_replies_are_one() {
        let cases: &[(&[u8], &[&str])] = &[
            (b"+OK\r\n+QUEUED\r\n*1\r\n:1\r\n+OK\r\n+QUEUED\r\n*1\r\n$-1\r\n", &["value", "value"]),
            (b"+OK\r\n+QUEUED\r\n*-1\r\n+OK\r\n+QUEUED\r\n_\r\n", &["nil", "nil"]),
            (b"$-1\r\n+QUEUED\r\n*1\r\n+OK\r\n", &["value"]),
            (b"+OK\r\n-ERR first\r\n-EXECABORT second\r\n+OK\r\n+QUEUED\r\n*0\r\n", &["ERR first", "value"]),
            (b"+OK\r\n+QUEUED\r\n*1\r\n-WRONGTYPE x\r\n", &["WRONGTYPE x"]),
            (b"+OK\r\n>2\r\n+message\r\n-x\r\n+QUEUED\r\n|1\r\n+ttl\r\n:3\r\n*1\r\n:1\r\n+OK\r\n", &["value"]),
            (b"+OK\r\n+QUEUED\r\n", &[]),
        ];
        for (stream, expected) in cases {
            for cut in 0..=stream.len() {
                assert_eq!(replies_of(3, stream, &[cut]).unwrap(), *expected, "{} at {cut}", stream.escape_ascii());
            }
        }
    }

    #[test]
    fn what_is_no_resp() {
        let streams: [&[u8]; 7] =
            [b"hello\r\n", b"$x\r\n", b"$3\n", b"*\r\n", b"%-1\r\n", b"+OK\n", b"$99999999999999999999\r\n"];
        for stream in streams {
            assert!(replies(stream, &[]).is_err(), "{}", stream.escape_ascii());
        }
        assert!(replies(&[b'+'; LINE_BYTES_MAX + 1], &[]).is_err());
    }
}
