//! A load of GETs from one busy-polling thread over many connections, closed loop or open.
//!
//! The closed loop (next request when the reply is here) finds the greatest rate. The open loop sends at fixed
//! moments whether or not replies came, and latency counts from the moment planned, so a server that stands still
//! is charged for every request that should have been sent meanwhile (no coordinated omission; Tene, "How NOT to
//! Measure Latency"). How late the generator itself was is reported too.

use crate::load::key;
use crate::server::Server;
use emberdb::measure::link::{InFlight, Link};
use emberdb::measure::resp::push_command;
use emberdb::measure::skim::Reply;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

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
    server: &'static str,
    /// Links count time from here.
    origin: Instant,
    prefix: &'static [u8; 3],
    keys: u64,
    rng: fastrand::Rng,
}

impl Generator {
    /// GETs will choose among the keys `<prefix>:0` to `<prefix>:<keys - 1>`, which must exist and live.
    pub fn connect(server: &Server, links: usize, prefix: &'static [u8; 3], keys: u64) -> crate::Result<Generator> {
        let mut poll = Poll::new(links)?;
        let mut connected = Vec::with_capacity(links);
        for at in 0..links {
            let link = Link::new(server.client()?.into_socket()?, 1, 1);
            poll.add(&link.socket, at)?;
            connected.push(link);
        }
        Ok(Generator {
            links: connected,
            poll,
            buffer: vec![0; READ_BYTES],
            server: server.kind().name(),
            origin: Instant::now(),
            prefix,
            keys,
            rng: fastrand::Rng::with_seed(7),
        })
    }

    /// Replies a second with one request in flight on each connection.
    pub fn closed_loop(&mut self, length: Duration) -> crate::Result<f64> {
        let start = Instant::now();
        for at in 0..self.links.len() {
            self.request(at, start)?;
        }
        let mut answered = 0;
        let mut in_flight = self.links.len();
        while in_flight > 0 {
            for at in self.poll.wait(-1)? {
                let running = start.elapsed() < length;
                let replies = self.receive(at, |_, _| {})?;
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
                self.receive(at, |planned, now| observer.answered(planned, now - planned))?;
            }
            for link in self.links.iter_mut().filter(|link| !link.out.is_empty()) {
                link.flush(self.server)?;
            }
            let drained = self.links.iter().all(|link| link.in_flight.is_empty());
            match ended {
                Some(_) if drained => return Ok(()),
                Some(end) if now - end > DRAIN => return Err("the server left GETs without a reply".into()),
                _ => {}
            }
        }
    }

    fn request(&mut self, at: usize, planned: Instant) -> crate::Result<()> {
        let link = &mut self.links[at];
        push_command(&mut link.out, &[b"GET", &key(self.prefix, self.rng.u64(0..self.keys))]);
        link.in_flight.push_back(InFlight { planned_ns: (planned - self.origin).as_nanos() as u64, tag: 0 });
        link.flush(self.server)?;
        Ok(())
    }

    /// Reads once; tells of each complete reply when it was planned and when it was read. Returns their number.
    fn receive(&mut self, at: usize, mut answered: impl FnMut(Instant, Instant)) -> crate::Result<usize> {
        let origin = self.origin;
        let (mut complete, mut refused) = (0, None);
        let clock = || origin.elapsed().as_nanos() as u64;
        self.links[at].receive(&mut self.buffer, self.server, clock, |now_ns, request, reply| {
            complete += 1;
            match reply {
                Reply::Value => {
                    let moment = |ns: u64| origin + Duration::from_nanos(ns);
                    answered(moment(request.planned_ns), moment(now_ns));
                }
                Reply::Nil => refused = Some("a key that is not there".to_owned()),
                Reply::Error(text) => refused = Some(String::from_utf8_lossy(text).into_owned()),
            }
        })?;
        refused.map_or(Ok(complete), |answer| Err(format!("a GET was answered: {answer}").into()))
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

    fn add(&mut self, socket: &impl AsRawFd, position: usize) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: position as u64 };
        // SAFETY: both descriptors are open, and the kernel copies the event before the call returns.
        let outcome =
            unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, socket.as_raw_fd(), &raw mut event) };
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
