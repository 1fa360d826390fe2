//! A connection for one thing after the other: handshake, INFO, loading keys, subscribing.

use super::failure::{Failure, Result};
use super::resp::{Value, info_fields, parse, push_command};
use super::skim::{Reply, Skim};
use super::socket::Socket;
use super::target::Target;
use rustls::ClientConfig;
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;
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
    /// Under TLS, where there is some.
    pub tls: Option<Arc<ClientConfig>>,
}

pub struct Client {
    socket: Socket,
    target: Target,
    /// Received and not yet parsed: `received[parsed..]`.
    received: Vec<u8>,
    parsed: usize,
    /// Of what is received and not yet parsed, at most.
    bytes_max: usize,
}

impl Client {
    pub fn open(target: &Target, login: &Login) -> Result<Client> {
        let failed = |error| Failure::Connect { target: target.to_string(), error };
        let socket = Socket::connect(&target.address, login.tls.as_ref()).map_err(failed)?;
        socket.set_read_timeout(Some(SILENCE)).map_err(failed)?;
        let mut client =
            Client { socket, target: target.clone(), received: Vec::new(), parsed: 0, bytes_max: usize::MAX };
        let user = login.user.as_deref().unwrap_or("default").as_bytes();
        match (&login.password, login.resp3) {
            (Some(password), true) => client.call(&[b"HELLO", b"3", b"AUTH", user, password.as_bytes()])?,
            (None, true) => client.call(&[b"HELLO", b"3"])?,
            (Some(password), false) if login.user.is_some() => client.call(&[b"AUTH", user, password.as_bytes()])?,
            (Some(password), false) => client.call(&[b"AUTH", password.as_bytes()])?,
            (None, false) => Value::Nil,
        };
        Ok(client)
    }

    /// A reply longer than that is a failure: for whoever does not trust the server.
    pub fn bound_replies(&mut self, bytes: usize) {
        self.bytes_max = bytes;
    }

    pub fn open_all(count: usize, target: &Target, login: &Login) -> Result<Vec<Client>> {
        (0..count).map(|_| Client::open(target, login)).collect()
    }

    /// The socket, for a [`Link`](super::link::Link).
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
        let value = self.next()?;
        // Never the arguments: one may be a password.
        self.accepted(value, || String::from_utf8_lossy(words[0]).into_owned())
    }

    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.socket.write_all(bytes).map_err(|error| self.lost(error))
    }

    fn next(&mut self) -> Result<Value> {
        match self.next_before(Instant::now() + SILENCE)? {
            Some(value) => Ok(value),
            None => Err(self.lost(io::Error::other("no reply for a minute"))),
        }
    }

    /// The next reply to what was sent; an error reply is a failure.
    pub fn reply(&mut self) -> Result<Value> {
        let value = self.next()?;
        self.accepted(value, || "a command".to_owned())
    }

    /// The next reply or push, `None` if none comes before `limit`.
    pub fn next_before(&mut self, limit: Instant) -> Result<Option<Value>> {
        loop {
            if let Some(value) = self.parse_next()? {
                return Ok(Some(value));
            }
            let left = limit.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.socket.set_read_timeout(Some(left)).map_err(|error| self.lost(error))?;
            self.receive()?;
        }
    }

    /// From now on only [`Client::send`] and [`Client::poll`] may be used.
    pub fn set_nonblocking(&self) -> Result<()> {
        self.socket.set_nonblocking().map_err(|error| self.lost(error))
    }

    /// The next reply or push, if all of it is here.
    pub fn poll(&mut self) -> Result<Option<Value>> {
        self.receive()?;
        self.parse_next()
    }

    fn parse_next(&mut self) -> Result<Option<Value>> {
        let mut at = self.parsed;
        if at == self.received.len() {
            return Ok(None);
        }
        let value = parse(&self.received, &mut at).map_err(|reason| self.malformed(reason))?;
        if value.is_some() {
            self.parsed = at;
        }
        Ok(value)
    }

    /// Reads once, if there is anything.
    fn receive(&mut self) -> Result<()> {
        // Once a read and not once a value: a subscriber has millions of them.
        self.received.drain(..self.parsed);
        self.parsed = 0;
        let mut chunk = [0; 64 << 10];
        match self.socket.read(&mut chunk) {
            Ok(0) => Err(self.lost(io::Error::other("closed by the server"))),
            Ok(bytes) => {
                self.received.extend_from_slice(&chunk[..bytes]);
                if self.received.len() > self.bytes_max { Err(self.malformed("too long")) } else { Ok(()) }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(()),
            Err(error) => Err(self.lost(error)),
        }
    }

    /// A section of INFO as fields.
    pub fn info(&mut self, section: &str) -> Result<HashMap<String, String>> {
        Ok(info_fields(&self.call(&[b"INFO", section.as_bytes()])?))
    }

    /// Sends a command for each number, which `push` writes, many at a time. `progress` is told which numbers up to
    /// where are done.
    ///
    /// # Errors
    /// The first error reply is one.
    pub fn load(
        &mut self,
        numbers: Range<u64>,
        mut push: impl FnMut(u64, &mut Vec<u8>),
        mut progress: impl FnMut(u64),
    ) -> Result<()> {
        let mut out = Vec::new();
        let mut skim = Skim::new(1);
        let mut chunk = vec![0; 64 << 10];
        let mut sent = numbers.start;
        self.socket.set_read_timeout(Some(SILENCE)).map_err(|error| self.lost(error))?;
        while sent < numbers.end {
            let batch = LOAD_BATCH.min(numbers.end - sent);
            out.clear();
            (sent..sent + batch).for_each(|number| push(number, &mut out));
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
                    if let Reply::Error(text) = reply {
                        refused = Some(Value::Error(String::from_utf8_lossy(text).into_owned()));
                    }
                });
                let used = used.map_err(|error| self.malformed(error.0))?;
                chunk.copy_within(used..kept + read, 0);
                kept = kept + read - used;
            }
            if let Some(reply) = refused {
                self.accepted(reply, || "the keys to begin with".to_owned())?;
            }
            progress(sent);
        }
        Ok(())
    }

    /// An error reply is a failure.
    fn accepted(&self, value: Value, command: impl FnOnce() -> String) -> Result<Value> {
        match value {
            Value::Error(reply) => Err(Failure::Refused { target: self.target.to_string(), command: command(), reply }),
            value => Ok(value),
        }
    }

    fn lost(&self, error: io::Error) -> Failure {
        Failure::Lost { target: self.target.to_string(), error }
    }

    fn malformed(&self, reason: &'static str) -> Failure {
        Failure::Malformed { target: self.target.to_string(), reason }
    }
}
