//! The loop of one generator thread: all its connections over one epoll, closed loop or open.
//!
//! Closed loop: each connection sends a batch of as many requests as the pipeline is deep, and the next one when all
//! replies are here. Open loop: requests are sent when [`Schedule`] says so, each on the connection that has waited
//! longest among those with room; where none has room, requests wait in the schedule, and their latency counts on.

use crate::failure::{Failure, Result};
use crate::recorder::{Outcome, Recorder};
use crate::schedule::Schedule;
use crate::timer::Timer;
use crate::workload::Workload;
use emberdb::measure::link::{InFlight, Link};
use emberdb::measure::skim::Reply;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const READ_BYTES: usize = 128 << 10;
/// Waiting for less than this is done awake.
const SPIN_NS: u64 = 50_000;
/// How often the loop looks whether it should stop, at least.
const LOOK_NS: u64 = 100_000_000;
/// How long replies are awaited after the end.
const DRAIN_NS: u64 = 2_000_000_000;
/// Requests sent in a row before replies are looked at.
const BURST: usize = 256;
const TIMER: Token = Token(usize::MAX);

pub enum Pace {
    Closed,
    Open(Schedule),
}

/// What a thread has to do.
pub struct Orders {
    pub target: String,
    pub pace: Pace,
    pub pipeline: usize,
    /// Moments count from here.
    pub start: Instant,
    /// After it no request is made.
    pub end_ns: u64,
    /// No more requests than these are made from `counted_from_ns` on.
    pub requests: u64,
    pub counted_from_ns: u64,
    /// Set when another thread failed, or by whoever wants the run to end.
    pub stop: Arc<AtomicBool>,
}

pub struct Engine<W> {
    orders: Orders,
    workload: W,
    links: Vec<Link>,
    recorder: Recorder,
    poll: Poll,
    timer: Timer,
    buffer: Vec<u8>,
    /// Open loop: connections with room, the one that has waited longest first.
    room: VecDeque<usize>,
    /// Since when there is room again, for telling our own lateness from the server's.
    room_since_ns: u64,
    /// Connections with something to send.
    dirty: Vec<usize>,
    in_flight: u64,
}

impl<W: Workload> Engine<W> {
    pub fn new(orders: Orders, workload: W, links: Vec<Link>, recorder: Recorder) -> Result<Engine<W>> {
        let poll = Poll::new().map_err(Failure::Events)?;
        let timer = Timer::new().map_err(Failure::Events)?;
        let registry = poll.registry();
        registry.register(&mut SourceFd(&timer.as_raw_fd()), TIMER, Interest::READABLE).map_err(Failure::Events)?;
        for (at, link) in links.iter().enumerate() {
            let fd = link.socket.as_raw_fd();
            registry.register(&mut SourceFd(&fd), Token(at), Interest::READABLE).map_err(Failure::Events)?;
        }
        Ok(Engine {
            room: (0..links.len()).collect(),
            room_since_ns: 0,
            dirty: Vec::with_capacity(links.len()),
            buffer: vec![0; READ_BYTES],
            in_flight: 0,
            orders,
            workload,
            links,
            recorder,
            poll,
            timer,
        })
    }

    pub fn run(mut self) -> Result<Outcome> {
        while self.orders.start > Instant::now() {
            std::thread::sleep(self.orders.start.saturating_duration_since(Instant::now()));
        }
        let mut events = Events::with_capacity(1024);
        if matches!(self.orders.pace, Pace::Closed) {
            for at in 0..self.links.len() {
                self.refill(at, 0);
            }
        }
        loop {
            self.dispatch();
            self.flush()?;
            let now_ns = now_ns(self.orders.start);
            self.recorder.tick(now_ns);
            if self.is_over(now_ns) {
                return Ok(self.give_up(now_ns));
            }
            self.wait(&mut events, now_ns)?;
            for event in &events {
                if event.token() == TIMER {
                    continue;
                }
                let at = event.token().0;
                if event.is_writable() && self.links[at].blocked {
                    self.unblock(at)?;
                }
                if event.is_readable() || event.is_read_closed() {
                    self.receive(at, event.is_read_closed())?;
                }
            }
        }
    }

    fn is_over(&self, now_ns: u64) -> bool {
        if self.orders.stop.load(Ordering::Relaxed) || now_ns > self.orders.end_ns.saturating_add(DRAIN_NS) {
            return true;
        }
        let unplanned = match &self.orders.pace {
            Pace::Closed => now_ns >= self.orders.end_ns || self.orders.requests == 0,
            Pace::Open(schedule) => schedule.next_ns().is_none() || self.orders.requests == 0,
        };
        unplanned && self.in_flight == 0
    }

    /// Counts what has no reply with the time it has waited.
    fn give_up(mut self, now_ns: u64) -> Outcome {
        for link in &self.links {
            link.in_flight.iter().for_each(|request| self.recorder.unanswered(request.planned_ns, now_ns));
        }
        if let Pace::Open(schedule) = &mut self.orders.pace {
            while let Some(planned_ns) = schedule.take(now_ns).filter(|_| self.orders.requests > 0) {
                self.recorder.unanswered(planned_ns, now_ns);
            }
        }
        self.recorder.finish(now_ns)
    }

    /// Open loop: sends what is due and has room.
    fn dispatch(&mut self) {
        let Pace::Open(schedule) = &mut self.orders.pace else {
            return;
        };
        let now_ns = now_ns(self.orders.start);
        for _ in 0..BURST {
            if self.orders.requests == 0 || self.room.is_empty() {
                return;
            }
            let Some(planned_ns) = schedule.take(now_ns) else {
                return;
            };
            let at = self.room.pop_front().expect("not empty");
            self.recorder.late(planned_ns, now_ns - planned_ns.max(self.room_since_ns).min(now_ns));
            let link = &mut self.links[at];
            if link.out.is_empty() {
                self.dirty.push(at);
            }
            let tag = self.workload.request(at, &mut link.out);
            link.in_flight.push_back(InFlight { planned_ns, tag });
            self.in_flight += 1;
            if planned_ns >= self.orders.counted_from_ns {
                self.orders.requests -= 1;
            }
            if link.in_flight.len() < self.orders.pipeline {
                self.room.push_back(at);
            }
        }
    }

    /// Closed loop: the next batch of a connection whose replies are all here.
    #[inline]
    fn refill(&mut self, at: usize, now_ns: u64) {
        let link = &mut self.links[at];
        let counted = now_ns >= self.orders.counted_from_ns;
        let batch = self.orders.requests.min(self.orders.pipeline as u64);
        for _ in 0..batch {
            let tag = self.workload.request(at, &mut link.out);
            link.in_flight.push_back(InFlight { planned_ns: now_ns, tag });
        }
        self.in_flight += batch;
        if counted {
            self.orders.requests -= batch;
        }
        if batch > 0 {
            self.dirty.push(at);
        }
    }

    fn receive(&mut self, at: usize, to_the_end: bool) -> Result<()> {
        let start = self.orders.start;
        loop {
            let link = &mut self.links[at];
            let before = link.in_flight.len();
            let (recorder, workload) = (&mut self.recorder, &mut self.workload);
            let mut moment_ns = 0;
            let more = link.receive(
                &mut self.buffer,
                &self.orders.target,
                || now_ns(start),
                |now_ns, request, reply| {
                    moment_ns = now_ns;
                    recorder.reply(request.planned_ns, now_ns, reply);
                    workload.reply(at, request.tag, reply == Reply::Nil);
                },
            )?;
            let left = link.in_flight.len();
            self.in_flight -= (before - left) as u64;
            match self.orders.pace {
                Pace::Closed => {
                    if left == 0 && before > 0 && moment_ns < self.orders.end_ns {
                        self.refill(at, moment_ns);
                    }
                }
                Pace::Open(_) => {
                    if before == self.orders.pipeline && left < before {
                        if self.room.is_empty() {
                            self.room_since_ns = moment_ns;
                        }
                        self.room.push_back(at);
                    }
                }
            }
            if !more && !to_the_end {
                return Ok(());
            }
            // Half closed: what is left is read, and then the end, which is an error.
            if !more && !self.is_readable(at) {
                return Ok(());
            }
        }
    }

    /// True if a read would not block; an end counts as readable.
    fn is_readable(&self, at: usize) -> bool {
        let mut poll = libc::pollfd { fd: self.links[at].socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry.
        unsafe { libc::poll(&mut poll, 1, 0) > 0 }
    }

    #[inline]
    fn flush(&mut self) -> Result<()> {
        for slot in 0..self.dirty.len() {
            let at = self.dirty[slot];
            let link = &mut self.links[at];
            if !link.blocked && link.flush(&self.orders.target)? {
                link.blocked = true;
                self.watch(at, Interest::READABLE | Interest::WRITABLE)?;
            }
        }
        self.dirty.clear();
        Ok(())
    }

    fn unblock(&mut self, at: usize) -> Result<()> {
        if !self.links[at].flush(&self.orders.target)? {
            self.links[at].blocked = false;
            self.watch(at, Interest::READABLE)?;
        }
        Ok(())
    }

    fn watch(&self, at: usize, interest: Interest) -> Result<()> {
        let fd = self.links[at].socket.as_raw_fd();
        self.poll.registry().reregister(&mut SourceFd(&fd), Token(at), interest).map_err(Failure::Events)
    }

    /// Waits for replies, but not beyond the next planned request.
    fn wait(&mut self, events: &mut Events, now_ns: u64) -> Result<()> {
        let next_ns = match &self.orders.pace {
            Pace::Open(schedule) if !self.room.is_empty() && self.orders.requests > 0 => schedule.next_ns(),
            _ => None,
        };
        let wait_ns = next_ns.map_or(LOOK_NS, |next_ns| next_ns.saturating_sub(now_ns));
        let limit = if wait_ns < SPIN_NS {
            Duration::ZERO
        } else {
            if wait_ns < LOOK_NS {
                self.timer.set(wait_ns - SPIN_NS);
            }
            Duration::from_nanos(LOOK_NS)
        };
        match self.poll.poll(events, Some(limit)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => Err(Failure::Events(error)),
            _ => Ok(()),
        }
    }
}

#[inline]
fn now_ns(start: Instant) -> u64 {
    start.elapsed().as_nanos() as u64
}
