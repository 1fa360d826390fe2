//! A small RESP2 client: commands out, replies in, and nothing hidden between them that could blur a measurement.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const READ_BYTES: usize = 64 << 10;

#[derive(Debug, PartialEq)]
pub enum Reply {
    Line(Vec<u8>),
    Error(String),
    Integer(i64),
    /// A bulk string; the null bulk is `None`.
    Bulk(Option<Vec<u8>>),
    Array(Vec<Reply>),
}

/// When a key written by [`push_set`] dies.
#[derive(Clone, Copy)]
pub enum Deadline {
    Never,
    AfterMs(i64),
    AtUnixMs(i64),
}

pub struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
    parsed: usize,
}

impl Connection {
    pub fn open(port: u16) -> io::Result<Connection> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, received: Vec::new(), parsed: 0 })
    }

    /// From now on [`Connection::poll_reply`] returns at once; the blocking calls may not be used any more.
    pub fn set_nonblocking(&self) -> io::Result<()> {
        self.stream.set_nonblocking(true)
    }

    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends one command and waits for its reply; an error reply is an `Err`.
    pub fn command(&mut self, arguments: &[&[u8]]) -> io::Result<Reply> {
        let mut bytes = Vec::new();
        push_command(&mut bytes, arguments);
        self.send(&bytes)?;
        self.reply()
    }

    /// Waits for the next reply; an error reply is an `Err`.
    pub fn reply(&mut self) -> io::Result<Reply> {
        loop {
            if let Some(reply) = self.parse_next()? {
                return Ok(reply);
            }
            self.fill()?;
        }
    }

    /// The next reply if it comes before `limit`; `None` afterwards. What came of it until then is kept.
    pub fn reply_before(&mut self, limit: Instant) -> io::Result<Option<Reply>> {
        loop {
            if let Some(reply) = self.parse_next()? {
                return Ok(Some(reply));
            }
            let left = limit.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.stream.set_read_timeout(Some(left.max(Duration::from_micros(100))))?;
            match self.fill() {
                Err(error) if is_nothing_yet(&error) => {}
                other => other?,
            }
        }
    }

    /// The next reply if all of it is here; for a connection made nonblocking.
    pub fn poll_reply(&mut self) -> io::Result<Option<Reply>> {
        match self.fill() {
            Err(error) if !is_nothing_yet(&error) => Err(error),
            _ => self.parse_next(),
        }
    }

    fn parse_next(&mut self) -> io::Result<Option<Reply>> {
        let Some((reply, used)) = parse(&self.received[self.parsed..])? else {
            return Ok(None);
        };
        self.parsed += used;
        match reply {
            Reply::Error(message) => Err(io::Error::other(format!("the server answered: {message}"))),
            reply => Ok(Some(reply)),
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        self.received.drain(..self.parsed);
        self.parsed = 0;
        let filled = self.received.len();
        self.received.resize(filled + READ_BYTES, 0);
        let outcome = self.stream.read(&mut self.received[filled..]);
        self.received.truncate(filled + *outcome.as_ref().unwrap_or(&0));
        match outcome {
            Ok(0) => Err(io::Error::new(ErrorKind::UnexpectedEof, "the server closed the connection")),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn is_nothing_yet(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

pub fn push_command(out: &mut Vec<u8>, arguments: &[&[u8]]) {
    push_header(out, b'*', arguments.len());
    for argument in arguments {
        push_header(out, b'$', argument.len());
        out.extend_from_slice(argument);
        out.extend_from_slice(b"\r\n");
    }
}

pub fn push_set(out: &mut Vec<u8>, key: &[u8], value: &[u8], deadline: Deadline) {
    match deadline {
        Deadline::Never => push_command(out, &[b"SET", key, value]),
        Deadline::AfterMs(ttl_ms) => push_command(out, &[b"SET", key, value, b"PX", ttl_ms.to_string().as_bytes()]),
        Deadline::AtUnixMs(at_ms) => push_command(out, &[b"SET", key, value, b"PXAT", at_ms.to_string().as_bytes()]),
    }
}

fn push_header(out: &mut Vec<u8>, kind: u8, length: usize) {
    out.push(kind);
    write!(out, "{length}\r\n").expect("a Vec takes every byte");
}

/// One reply from the front of `bytes` and how many bytes it took; `None` while it is incomplete.
fn parse(bytes: &[u8]) -> io::Result<Option<(Reply, usize)>> {
    let Some(line_end) = bytes.windows(2).position(|pair| pair == b"\r\n") else {
        return Ok(None);
    };
    let (kind, line, mut used) = (bytes[0], &bytes[1..line_end], line_end + 2);
    let reply = match kind {
        b'+' => Reply::Line(line.to_vec()),
        b'-' => Reply::Error(String::from_utf8_lossy(line).into_owned()),
        b':' => Reply::Integer(number(line)?),
        b'$' => match usize::try_from(number(line)?) {
            Err(_) => Reply::Bulk(None),
            Ok(length) if bytes.len() < used + length + 2 => return Ok(None),
            Ok(length) => {
                let content = bytes[used..used + length].to_vec();
                used += length + 2;
                Reply::Bulk(Some(content))
            }
        },
        b'*' => {
            let mut items = Vec::new();
            for _ in 0..number(line)? {
                let Some((item, item_bytes)) = parse(&bytes[used..])? else {
                    return Ok(None);
                };
                items.push(item);
                used += item_bytes;
            }
            Reply::Array(items)
        }
        other => return Err(invalid(format!("no RESP2 reply begins with byte {other:#04x}"))),
    };
    Ok(Some((reply, used)))
}

fn number(digits: &[u8]) -> io::Result<i64> {
    std::str::from_utf8(digits)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| invalid(format!("not a number: {}", String::from_utf8_lossy(digits))))
}

fn invalid(message: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, message)
}
