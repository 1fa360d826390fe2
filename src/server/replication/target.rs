//! Connections to servers to which keys move. They are used on threads that may wait, and kept for a while for the next
//! key.

use crate::config;
use crate::net::tls::Outgoing;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How many are kept at most, as in Redis.
const KEPT_MAX: usize = 64;
/// How long one is kept that nobody uses, as in Redis.
const IDLE: Duration = Duration::from_secs(10);
/// So much is written at once, within the time that one step may take.
const CHUNK_BYTES: usize = 64 << 10;
/// A line that is longer than this is none of a server's that speaks the protocol.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Where it leads, and as whom: nobody uses a connection that another one's password has opened.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    pub host: String,
    pub port: u16,
    /// A password, or a name and a password; empty where the target asks for none.
    pub credentials: Vec<Vec<u8>>,
    /// The connection is under TLS, with these files.
    pub tls: Option<config::Tls>,
}

pub struct Link {
    address: Address,
    stream: Outgoing,
    timeout: Duration,
    unsent: Vec<u8>,
    unread: Vec<u8>,
    /// The database that it has chosen, if that is known.
    pub db: Option<i64>,
}

/// What was being done when a connection broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Connect,
    Write,
    Read,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken {
    pub way: Way,
    pub timed_out: bool,
}

impl Broken {
    fn of(way: Way, error: &io::Error) -> Broken {
        Broken { way, timed_out: matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) }
    }
}

struct Kept {
    link: Link,
    since: Instant,
}

/// The longest unused first.
static KEPT: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

fn kept() -> MutexGuard<'static, Vec<Kept>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection that is kept, or a new one.
///
/// # Errors
/// Where the target cannot be reached in time.
pub fn connect(address: &Address, timeout: Duration) -> io::Result<Link> {
    let of_address = {
        let mut kept = kept();
        let at = kept.iter().rposition(|kept| kept.link.address == *address);
        at.map(|at| kept.remove(at).link)
    };
    if let Some(link) = of_address {
        return Ok(Link { timeout, ..link });
    }
    let end = Instant::now() + timeout;
    let mut failure = io::Error::from(ErrorKind::NotFound);
    for socket_address in (address.host.as_str(), address.port).to_socket_addrs()? {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        match TcpStream::connect_timeout(&socket_address, left) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                let stream = match &address.tls {
                    Some(settings) => {
                        stream.set_read_timeout(Some(left))?;
                        stream.set_write_timeout(Some(left))?;
                        Outgoing::secure(stream, settings)?
                    }
                    None => Outgoing::plain(stream),
                };
                let (unsent, unread) = (Vec::new(), Vec::new());
                return Ok(Link { address: address.clone(), stream, timeout, unsent, unread, db: None });
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// The connection is there for the next one.
pub fn keep(link: Link) {
    // What nobody has asked for would be taken for the next reply.
    if link.unread.is_empty() {
        let mut kept = kept();
        if kept.len() == KEPT_MAX {
            kept.remove(0);
        }
        kept.push(Kept { link, since: Instant::now() });
    }
}

/// How many are kept.
pub fn cached() -> usize {
    kept().len()
}

/// Once a second: those that nobody uses are closed.
pub fn let_go_of_idle() {
    kept().retain(|kept| kept.since.elapsed() < IDLE);
}

impl Link {
    /// Writes it, perhaps with what comes behind it.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), Broken> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(CHUNK_BYTES - self.unsent.len()));
            self.unsent.extend_from_slice(now);
            bytes = later;
            if self.unsent.len() == CHUNK_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    pub fn flush(&mut self) -> Result<(), Broken> {
        let end = Instant::now() + self.timeout;
        let mut unsent = &self.unsent[..];
        while !unsent.is_empty() {
            let wrote = left(end)
                .and_then(|left| self.stream.socket().set_write_timeout(Some(left)))
                .and_then(|()| (&self.stream).write(unsent));
            match wrote {
                Ok(0) => return Err(Broken { way: Way::Write, timed_out: false }),
                Ok(count) => unsent = &unsent[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Broken::of(Way::Write, &error)),
            }
        }
        self.unsent.clear();
        Ok(())
    }

    /// The next line of the target. It has so long for all of it: one that comes byte by byte takes no longer.
    pub fn line(&mut self) -> Result<Vec<u8>, Broken> {
        let end = Instant::now() + self.timeout;
        let mut looked = 0;
        loop {
            if let Some(at) = self.unread[looked..].iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.unread.drain(..=looked + at).collect();
                line.truncate(line.trim_ascii_end().len());
                return Ok(line);
            }
            looked = self.unread.len();
            if looked > LINE_BYTES_MAX {
                return Err(Broken { way: Way::Read, timed_out: false });
            }
            let mut buffer = [0; 4096];
            let read = left(end)
                .and_then(|left| self.stream.socket().set_read_timeout(Some(left)))
                .and_then(|()| (&self.stream).read(&mut buffer));
            match read {
                Ok(0) => return Err(Broken { way: Way::Read, timed_out: false }),
                Ok(count) => self.unread.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Broken::of(Way::Read, &error)),
            }
        }
    }
}

/// How long until then.
fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}
