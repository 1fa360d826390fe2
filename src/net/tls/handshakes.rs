//! Handshakes, on threads beside the shards: one costs a signature, and a storm of them must hold up nobody who is
//! connected. How many are under way and how long each may take is bounded: where there are more than may be, the oldest
//! goes, so that those who never finish keep nobody out who does.

use super::context::Tls;
use super::layer::{Failure, Layer};
use crate::observe::log;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token, Waker};
use slab::Slab;
use std::io::{self, ErrorKind, Read, Write};
use std::num::NonZero;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SendError, SyncSender, TryRecvError};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// Handshakes under way at the same time, on all threads.
pub const HANDSHAKES: usize = 512;
/// From the connection to the end of its handshake.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often those are looked for that have taken too long.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Connections that wait for a thread to take them; others wait in the backlog.
const ARRIVALS: usize = 64;
/// So many of those who have come begin in one turn: each costs a signature, for which others would have to wait who are in the
/// middle of theirs.
const WELCOMED: usize = 4;
/// For so long nobody goes for those who have come later, and these wait.
const SPARED: Duration = Duration::from_secs(1);
/// More threads than these would be in the way of the shards.
const THREADS_MAX: usize = 4;
/// What the system is asked for: where the cores are busy a shard has about three times as much of one as a thread here.
const NICENESS: i32 = 5;
const READ_BYTES: usize = 16 * 1024;
/// A line of the log about those that failed, at most so often for each thread.
const COMPLAIN_EVERY: Duration = Duration::from_secs(1);

const WAKE: Token = Token(usize::MAX);

/// A connection whose handshake is over.
pub struct Shaken {
    pub stream: std::net::TcpStream,
    pub layer: Layer,
    /// What it has said already.
    pub plain: Vec<u8>,
}

/// Gives connections to the threads.
pub struct Handshakes {
    threads: Vec<(SyncSender<std::net::TcpStream>, Arc<Waker>)>,
    next: usize,
}

impl Handshakes {
    /// Starts the threads. They give what they have done to `done`, which says whether anybody wants more.
    ///
    /// # Errors
    /// There is no thread, or nothing to wait with.
    pub fn start(tls: &Arc<Tls>, done: impl Fn(Shaken) -> bool + Clone + Send + 'static) -> io::Result<Handshakes> {
        let threads = (available_parallelism().map_or(1, NonZero::get) / 2).clamp(1, THREADS_MAX);
        let start = |_| {
            let poll = Poll::new()?;
            let waker = Arc::new(Waker::new(poll.registry(), WAKE)?);
            let (sender, arrivals) = mpsc::sync_channel(ARRIVALS);
            let complaints = Complaints { next: Instant::now(), silent: 0 };
            let thread = Thread {
                tls: tls.clone(),
                poll,
                arrivals,
                pending: Slab::new(),
                pending_max: HANDSHAKES / threads,
                done: done.clone(),
                complaints,
            };
            std::thread::Builder::new().name("tls".to_owned()).spawn(move || thread.run())?;
            Ok((sender, waker))
        };
        Ok(Handshakes { threads: (0..threads).map(start).collect::<io::Result<_>>()?, next: 0 })
    }

    /// Whether a thread has taken the connection; it waits for one that has time.
    pub fn take(&mut self, mut stream: std::net::TcpStream) -> bool {
        for _ in 0..self.threads.len() {
            self.next = (self.next + 1) % self.threads.len();
            let (sender, waker) = &self.threads[self.next];
            match sender.send(stream) {
                // A thread that cannot be woken looks by itself while it has something to do.
                Ok(()) => return waker.wake().is_ok(),
                // It has ended, and says why in the log: the others go on.
                Err(SendError(back)) => stream = back,
            }
        }
        false
    }
}

struct Thread<F> {
    tls: Arc<Tls>,
    poll: Poll,
    arrivals: Receiver<std::net::TcpStream>,
    pending: Slab<Pending>,
    pending_max: usize,
    done: F,
    complaints: Complaints,
}

struct Pending {
    stream: TcpStream,
    until: Instant,
    layer: Layer,
    plain: Vec<u8>,
    /// What is to be sent, and how much of it is.
    out: Vec<u8>,
    sent: usize,
}

enum Step {
    Waits,
    Done,
    /// The other side has gone without a word.
    Gone,
    Failed(Failure),
}

/// What is logged of handshakes that fail; whoever makes them fail must not fill the log.
struct Complaints {
    next: Instant,
    /// How many have failed since a line told of one.
    silent: usize,
}

impl<F: Fn(Shaken) -> bool> Thread<F> {
    fn run(mut self) {
        // Of this thread alone, on Linux. Where it is refused they have as much as everybody.
        let _ = rustix::process::nice(NICENESS);
        let mut events = Events::with_capacity(ARRIVALS);
        let mut look_at = Instant::now();
        // Somebody who has come may wait.
        let mut are_waiting = false;
        loop {
            let wait = match (are_waiting && self.pending.len() < self.pending_max, self.pending.is_empty()) {
                (true, _) => Some(Duration::ZERO),
                (false, false) => Some(LOOK_EVERY),
                (false, true) => None,
            };
            match self.poll.poll(&mut events, wait) {
                Err(error) if error.kind() != ErrorKind::Interrupted => {
                    log::warning(format_args!("No more handshakes of TLS are done: {error}"));
                    return;
                }
                _ => {}
            }
            for event in &events {
                let Token(key) = event.token();
                are_waiting |= event.token() == WAKE;
                if event.token() != WAKE && !self.go_on(key) {
                    return;
                }
            }
            if are_waiting {
                match self.welcome() {
                    Some(more) => are_waiting = more,
                    None => return,
                }
            }
            let now = Instant::now();
            if now >= look_at {
                look_at = now + LOOK_EVERY;
                self.pending.retain(|_, pending| pending.until > now);
            }
        }
    }

    /// Takes some of those who have come; whether there may be more, or none where nobody comes any more.
    fn welcome(&mut self) -> Option<bool> {
        for _ in 0..WELCOMED {
            if !self.make_room()? {
                return Some(true);
            }
            match self.arrivals.try_recv() {
                Ok(stream) => self.begin(stream).then_some(())?,
                Err(TryRecvError::Empty) => return Some(false),
                Err(TryRecvError::Disconnected) => return None,
            }
        }
        Some(true)
    }

    /// Whether another one can begin; none where nobody wants those that are over.
    fn make_room(&mut self) -> Option<bool> {
        if self.pending.len() < self.pending_max {
            return Some(true);
        }
        let oldest = self.pending.iter().min_by_key(|(_, pending)| pending.until).map(|(key, _)| key)?;
        // (It may lack no more than a look.)
        self.go_on(oldest).then_some(())?;
        if let Some(pending) = self.pending.get(oldest) {
            if pending.until > Instant::now() + PATIENCE - SPARED {
                return Some(false);
            }
            self.pending.remove(oldest);
        }
        Some(true)
    }

    fn begin(&mut self, stream: std::net::TcpStream) -> bool {
        let layer = match Layer::new(self.tls.server_config()) {
            Ok(layer) => layer,
            Err(error) => {
                log::warning(format_args!("A connection could not be begun: TLS: {error}"));
                return true;
            }
        };
        let _ = stream.set_nodelay(true);
        if stream.set_nonblocking(true).is_err() {
            return true;
        }
        let until = Instant::now() + PATIENCE;
        let stream = TcpStream::from_std(stream);
        let key = self.pending.insert(Pending { stream, until, layer, plain: Vec::new(), out: Vec::new(), sent: 0 });
        let interest = Interest::READABLE | Interest::WRITABLE;
        if self.poll.registry().register(&mut self.pending[key].stream, Token(key), interest).is_err() {
            self.pending.remove(key);
            return true;
        }
        self.go_on(key)
    }

    /// Takes a handshake as far as it goes now; whether anybody wants those that are over.
    fn go_on(&mut self, key: usize) -> bool {
        let Some(pending) = self.pending.get_mut(key) else { return true };
        let step = pending.step();
        if matches!(step, Step::Waits) {
            return true;
        }
        let mut pending = self.pending.remove(key);
        let _ = self.poll.registry().deregister(&mut pending.stream);
        match step {
            Step::Done => {
                let Pending { stream, layer, plain, .. } = pending;
                return (self.done)(Shaken { stream: stream.into(), layer, plain });
            }
            Step::Failed(failure) => self.complaints.note(&pending.stream, &failure),
            Step::Gone | Step::Waits => {}
        }
        true
    }
}

impl Pending {
    fn step(&mut self) -> Step {
        let mut chunk = [0; READ_BYTES];
        loop {
            if let Some(step) = self.flush() {
                return step;
            }
            if self.layer.is_established() {
                return Step::Done;
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return Step::Gone,
                Ok(bytes) => {
                    let received = self.layer.receive(&chunk[..bytes], &mut self.plain);
                    self.out.append(&mut self.layer.take_outgoing());
                    if let Err(failure) = received {
                        // It says why, if the other side listens.
                        let _ = self.flush();
                        return Step::Failed(failure);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Step::Waits,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Step::Gone,
            }
        }
    }

    /// Sends what there is; none where all of it was taken.
    fn flush(&mut self) -> Option<Step> {
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Some(Step::Waits),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Some(Step::Gone),
            }
        }
        self.out.clear();
        self.sent = 0;
        None
    }
}

impl Complaints {
    fn note(&mut self, stream: &TcpStream, failure: &Failure) {
        let now = Instant::now();
        if now < self.next {
            self.silent += 1;
            return;
        }
        self.next = now + COMPLAIN_EVERY;
        let silent = std::mem::take(&mut self.silent);
        let more = if silent > 0 { format!(", and {silent} more before it") } else { String::new() };
        let addr = stream.peer_addr().map_or_else(|_| "?".to_owned(), |addr| addr.to_string());
        log::warning(format_args!("Error accepting a client connection: {} (addr={addr}){more}", failure.reason()));
    }
}
