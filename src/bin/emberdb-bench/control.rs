//! A blocking connection for everything but the load: handshake, INFO, loading keys, subscribing.

use crate::encode::{Command, push_command};
use crate::failure::{Failure, Result};
use crate::socket::Socket;
use crate::target::Target;
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

/// Longer silence is taken for a dead server.
const SILENCE: Duration = Duration::from_secs(60);
/// Keys loaded before their replies are read.
const LOAD_BATCH: u64 = 512;

/// How every connection introduces itself.
#[derive(Clone, Debug, Default)]
pub struct Login {
    pub resp3: bool,
    pub user: Option<String>,
    pub password: Option<String>,
}

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
}

pub struct Control {
    socket: Socket,
    target: Target,
    /// Received and not yet parsed: `received[parsed..]`.
    received: Vec<u8>,
    parsed: usize,
}

impl Control {
    pub fn open(target: &Target, login: &Login) -> Result<Control> {
        let failed = |error| Failure::Connect { target: target.to_string(), error };
        let socket = Socket::connect(&target.address).map_err(failed)?;
        socket.set_read_timeout(Some(SILENCE)).map_err(failed)?;
        let mut control = Control { socket, target: target.clone(), received: Vec::new(), parsed: 0 };
        let user = login.user.as_deref().unwrap_or("default").as_bytes();
        match (&login.password, login.resp3) {
            (Some(password), true) => control.call(&[b"HELLO", b"3", b"AUTH", user, password.as_bytes()])?,
            (None, true) => control.call(&[b"HELLO", b"3"])?,
            (Some(password), false) if login.user.is_some() => control.call(&[b"AUTH", user, password.as_bytes()])?,
            (Some(password), false) => control.call(&[b"AUTH", password.as_bytes()])?,
            (None, false) => Value::Nil,
        };
        Ok(control)
    }

    /// The socket, for the load.
    pub fn into_socket(self) -> Result<Socket> {
        assert!(self.parsed == self.received.len(), "every reply has been read");
        let failed = |error| Failure::Connect { target: self.target.to_string(), error };
        self.socket.set_nonblocking().map_err(failed)?;
        Ok(self.socket)
    }

    /// Sends one command and returns its reply; an error reply is a failure.
    pub fn call(&mut self, words: &[&[u8]]) -> Result<Value> {
        let mut out = Vec::new();
        push_command(&mut out, words);
        self.send(&out)?;
        match self.next()? {
            Value::Error(reply) => {
                // Never the arguments: one may be a password.
                let command = String::from_utf8_lossy(words[0]).into_owned();
                Err(Failure::Refused { target: self.target.to_string(), command, reply })
            }
            value => Ok(value),
        }
    }

    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.socket.write_all(bytes).map_err(|error| self.lost(error))
    }

    pub fn next(&mut self) -> Result<Value> {
        match self.next_before(Instant::now() + SILENCE)? {
            Some(value) => Ok(value),
            None => Err(self.lost(io::Error::other("no reply for a minute"))),
        }
    }

    /// The next reply or push, `None` if none comes before `limit`.
    pub fn next_before(&mut self, limit: Instant) -> Result<Option<Value>> {
        loop {
            let mut at = self.parsed;
            if at < self.received.len()
                && let Some(value) = parse(&self.received, &mut at).map_err(|reason| self.malformed(reason))?
            {
                self.parsed = at;
                return Ok(Some(value));
            }
            // Once a read and not once a value: a subscriber has millions of them.
            self.received.drain(..self.parsed);
            self.parsed = 0;
            let left = limit.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.socket.set_read_timeout(Some(left)).map_err(|error| self.lost(error))?;
            let mut chunk = [0; 64 << 10];
            match self.socket.read(&mut chunk) {
                Ok(0) => return Err(self.lost(io::Error::other("closed by the server"))),
                Ok(bytes) => self.received.extend_from_slice(&chunk[..bytes]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(self.lost(error)),
            }
        }
    }

    /// A section of INFO as fields.
    pub fn info(&mut self, section: &str) -> Result<HashMap<String, String>> {
        let reply = self.call(&[b"INFO", section.as_bytes()])?;
        let text = String::from_utf8_lossy(reply.text().unwrap_or_default()).into_owned();
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Ok(fields.map(|(name, value)| (name.to_owned(), value.trim_end().to_owned())).collect())
    }

    /// Sends a command for each key from 0 to `keys` - 1, many at a time. `progress` is told how many are done.
    pub fn load(&mut self, command: &Command, keys: u64, mut progress: impl FnMut(u64)) -> Result<()> {
        let mut rng = fastrand::Rng::with_seed(keys);
        let mut out = Vec::new();
        let mut skim = crate::skim::Skim::new(1);
        let mut chunk = vec![0; 64 << 10];
        let mut sent = 0;
        self.socket.set_read_timeout(Some(SILENCE)).map_err(|error| self.lost(error))?;
        while sent < keys {
            let batch = LOAD_BATCH.min(keys - sent);
            out.clear();
            (sent..sent + batch).for_each(|key| command.push(key, &mut rng, &mut out));
            self.send(&out)?;
            sent += batch;
            let (mut open, mut refused, mut kept) = (batch, None, 0);
            while open > 0 {
                let read = match self.socket.read(&mut chunk[kept..]) {
                    Ok(0) => return Err(self.lost(io::Error::other("closed by the server"))),
                    Ok(bytes) => bytes,
                    Err(error) => return Err(self.lost(error)),
                };
                let used = skim.feed(&chunk[..kept + read], |reply| {
                    open -= 1;
                    if let crate::skim::Reply::Error(text) = reply {
                        refused = Some(String::from_utf8_lossy(text).into_owned());
                    }
                });
                let used = used.map_err(|error| self.malformed(error.0))?;
                chunk.copy_within(used..kept + read, 0);
                kept = kept + read - used;
            }
            if let Some(reply) = refused {
                return Err(Failure::Refused {
                    target: self.target.to_string(),
                    command: "the keys to begin with".to_owned(),
                    reply,
                });
            }
            progress(sent);
        }
        Ok(())
    }

    fn lost(&self, error: io::Error) -> Failure {
        Failure::Lost { target: self.target.to_string(), error }
    }

    fn malformed(&self, reason: &'static str) -> Failure {
        Failure::Malformed { target: self.target.to_string(), reason }
    }
}

/// The value at `at`, which is moved behind it; `None` if it is not all here.
fn parse(bytes: &[u8], at: &mut usize) -> std::result::Result<Option<Value>, &'static str> {
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
            let Some(body) = bytes.get(*at..*at + length as usize) else {
                return Ok(None);
            };
            if bytes.len() < *at + length as usize + 2 {
                return Ok(None);
            }
            *at += length as usize + 2;
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
            let count = if kind == b'%' { length * 2 } else { length };
            let mut values = Vec::new();
            for _ in 0..count {
                match parse(bytes, at)? {
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
    fn what_is_here_in_part_is_awaited() {
        let bytes = b"*2\r\n$3\r\nabc\r\n:12\r\n";
        (0..bytes.len()).for_each(|cut| assert_eq!(whole(&bytes[..cut]), None, "{cut}"));
        assert!(whole(bytes).is_some());
    }
}
