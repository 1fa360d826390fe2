//! A load of GETs from one busy-polling thread over many connections, closed loop or open.
//!
//! The closed loop (next request when the reply is here) finds the greatest rate. The open loop sends at fixed
//! moments whether or not replies came, and latency counts from the moment planned, so a server that stands still
//! is charged for every request that should have been sent meanwhile (no coordinated omission; Tene, "How NOT to
//! Measure Latency"). How late the generator itself was is reported too.

use crate::load::{VALUE, key};
use crate::resp::push_command;
use crate::server::Server;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Length of the reply to a GET of a live key; every value has the same.
const REPLY_BYTES: usize = REPLY_HEADER.len() + VALUE.len() + 2;
const REPLY_HEADER: &[u8] = b"$32\r\n";
const READ_BYTES: usize = 16 << 10;
/// Requests that are due together are sent in bursts no longer than this, so that replies are read meanwhile.
const BURST: usize = 64;
/// How long replies are awaited after the last request.
const DRAIN: Duration = Duration::from_secs(5);

/// What the open loop tells while it runs.
pub trait Observer {
    fn sent(&mut self, planned: Instant, late: Duration);
    fn answered(&mut self, planned: Instant, latency: Duration);
    /// Called at every turn of the loop; `false` ends the sending.
    fn go_on(&mut self, now: Instant) -> crate::Result<bool>;
}

pub struct Generator {
    links: Vec<Link>,
    poll: Poll,
    buffer: Vec<u8>,
    prefix: &'static [u8; 3],
    keys: u64,
    rng: fastrand::Rng,
}

struct Link {
    stream: TcpStream,
    /// When each request without a reply was planned, oldest first.
    in_flight: VecDeque<Instant>,
    unsent: Vec<u8>,
    /// The reply that is here in part.
    received: Vec<u8>,
}

impl Generator {
    /// GETs will choose among the keys `<prefix>:0` to `<prefix>:<keys - 1>`, which must exist and live.
    pub fn connect(server: &Server, links: usize, prefix: &'static [u8; 3], keys: u64) -> io::Result<Generator> {
        let mut poll = Poll::new(links)?;
        let mut connected = Vec::with_capacity(links);
        for at in 0..links {
            let stream = TcpStream::connect(("127.0.0.1", server.port()))?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            poll.add(&stream, at)?;
            connected.push(Link { stream, in_flight: VecDeque::new(), unsent: Vec::new(), received: Vec::new() });
        }
        let buffer = vec![0; READ_BYTES];
        Ok(Generator { links: connected, poll, buffer, prefix, keys, rng: fastrand::Rng::with_seed(7) })
    }

    /// Replies a second with one request in flight on each connection.
    pub fn closed_loop(&mut self, length: Duration) -> io::Result<f64> {
        let start = Instant::now();
        for at in 0..self.links.len() {
            self.request(at, start)?;
        }
        let mut answered = 0;
        let mut in_flight = self.links.len();
        while in_flight > 0 {
            for at in self.poll.wait(-1)? {
                let running = start.elapsed() < length;
                let replies = self.links[at].receive(&mut self.buffer, |_, _| {})?;
                answered += if running { replies } else { 0 };
                in_flight -= replies;
                for _ in 0..if running { replies } else { 0 } {
                    self.request(at, start)?;
                    in_flight += 1;
                }
            }
        }
        Ok(answered as f64 / length.as_secs_f64())
    }

    /// Sends `rate` requests a second, spread evenly in time and over the connections, until the observer ends it.
    pub fn open_loop(&mut self, rate: f64, observer: &mut impl Observer) -> crate::Result<()> {
        let start = Instant::now();
        let mut sent = 0u64;
        let mut ended: Option<Instant> = None;
        loop {
            let now = Instant::now();
            if ended.is_none() {
                for _ in 0..BURST {
                    let planned = start + Duration::from_secs_f64(sent as f64 / rate);
                    let now = Instant::now();
                    if planned > now {
                        break;
                    }
                    self.request(sent as usize % self.links.len(), planned)?;
                    observer.sent(planned, now - planned);
                    sent += 1;
                }
                if !observer.go_on(now)? {
                    ended = Some(now);
                }
            }
            for at in self.poll.wait(0)? {
                self.links[at].receive(&mut self.buffer, |planned, now| observer.answered(planned, now - planned))?;
            }
            for link in self.links.iter_mut().filter(|link| !link.unsent.is_empty()) {
                link.flush()?;
            }
            let drained = self.links.iter().all(|link| link.in_flight.is_empty());
            match ended {
                Some(_) if drained => return Ok(()),
                Some(end) if now - end > DRAIN => return Err("the server left GETs without a reply".into()),
                _ => {}
            }
        }
    }

    fn request(&mut self, at: usize, planned: Instant) -> io::Result<()> {
        let link = &mut self.links[at];
        push_command(&mut link.unsent, &[b"GET", &key(self.prefix, self.rng.u64(0..self.keys))]);
        link.in_flight.push_back(planned);
        link.flush()
    }
}

impl Link {
    /// Sends what the socket takes now.
    fn flush(&mut self) -> io::Result<()> {
        match self.stream.write(&self.unsent) {
            Ok(taken) => {
                self.unsent.drain(..taken);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reads once; tells of each complete reply when it was planned and when it was read. Returns their number.
    fn receive(&mut self, buffer: &mut [u8], mut answered: impl FnMut(Instant, Instant)) -> io::Result<usize> {
        match self.stream.read(buffer) {
            Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "the server closed a connection under load")),
            Ok(filled) => self.received.extend_from_slice(&buffer[..filled]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
            Err(error) => return Err(error),
        }
        let now = Instant::now();
        let replies = self.received.chunks(REPLY_BYTES);
        let mut complete = 0;
        for reply in replies {
            let header = &reply[..reply.len().min(REPLY_HEADER.len())];
            if !REPLY_HEADER.starts_with(header) {
                return Err(io::Error::other(format!("a GET was answered {:?}", String::from_utf8_lossy(reply))));
            }
            if reply.len() == REPLY_BYTES {
                let planned = self.in_flight.pop_front().ok_or_else(|| io::Error::other("a reply to no request"))?;
                answered(planned, now);
                complete += 1;
            }
        }
        self.received.drain(..complete * REPLY_BYTES);
        Ok(complete)
    }
}

/// Level-triggered epoll over the connections, which it names by their position.
struct Poll {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
}

impl Poll {
    fn new(capacity: usize) -> io::Result<Poll> {
        // SAFETY: epoll_create1 takes an integer.
        let descriptor = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the descriptor is open and nobody else owns it.
        let epoll = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(Poll { epoll, events: vec![libc::epoll_event { events: 0, u64: 0 }; capacity] })
    }

    fn add(&mut self, stream: &TcpStream, position: usize) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: position as u64 };
        // SAFETY: both descriptors are open, and the kernel copies the event before the call returns.
        let outcome =
            unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, stream.as_raw_fd(), &raw mut event) };
        check(outcome).map(|_| ())
    }

    /// Positions of the connections that can be read; waits for as long as `timeout_ms` says, -1 being for ever.
    fn wait(&mut self, timeout_ms: i32) -> io::Result<Vec<usize>> {
        let capacity = self.events.len() as i32;
        // SAFETY: the pointer and the capacity are those of a live Vec, whose elements are all initialised.
        let outcome =
            unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), self.events.as_mut_ptr(), capacity, timeout_ms) };
        match check(outcome) {
            Ok(ready) => Ok(self.events[..ready as usize].iter().map(|event| event.u64 as usize).collect()),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

fn check(outcome: i32) -> io::Result<i32> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(outcome) }
}
