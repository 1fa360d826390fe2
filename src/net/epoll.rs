//! Connections over epoll, which is refused nowhere: one wait a turn tells which have something to say; each is read once,
//! and what is to be sent is sent at once, all of it in most cases.
//!
//! ```text
//!  turn:  mail out, sends ─ epoll_wait ─ sends that waited for room, reads, mail in, timers
//!         then, where tasks are ready: yield to the executor
//! ```
//!
//! It is the only place where the shard sleeps. The wait ends with a connection, with the shard's bell, which other shards
//! and threads ring, or with the alarm, which is set for the next of the executor's timers.
//!
//! epoll tells what changes (edge-triggered): a connection that is not read costs nothing, and one that has more to say
//! than was read is remembered here. Bell and alarm are never read: each ring is a change.

use super::alarm::Alarm;
use super::timers::Timers;
use super::{Bell, Host, Line, LineId, outside};
use crate::clock::store_us;
use crate::executor::{has_ready, yield_now};
use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connections that one wait tells of.
const EVENTS: usize = 1024;
/// What is read of one connection before the others have their turn.
const READ_BYTES: usize = 64 * 1024;
/// Between two tries to put mail into a full link, which does not ring when it is emptied.
const FULL_LINK: Duration = Duration::from_millis(1);

const BELL: Token = Token(usize::MAX - 1);
const ALARM: Token = Token(usize::MAX - 2);

/// What epoll tells of each connection; urgent data, too, since a read stops at them.
const READ: Interest = Interest::READABLE.add(Interest::PRIORITY);
const GENERATIONS: u32 = (1 << 24) - 1;

fn token(id: LineId) -> Token {
    Token((id.generation as usize) << 32 | id.index as usize)
}

fn id_of(token: Token) -> LineId {
    LineId { index: token.0 as u32, generation: (token.0 >> 32) as u32 }
}

struct Slot {
    fd: RawFd,
    generation: u32,
    line: Option<Rc<dyn Line>>,
    /// Whether it is to be read, whether there may be something to read, and whether its turn to be read comes.
    reading: bool,
    readable: bool,
    queued: bool,
    /// A read that comes short is not the last: the other side has hung up, or something urgent is in the way.
    reads_on: bool,
    /// What could not be sent at once, and how much of it is sent.
    in_flight: Option<Vec<u8>>,
    sent: usize,
    /// epoll is to tell when there is room for more.
    waits_for_room: bool,
    dirty: bool,
    shut: bool,
}

pub struct Epoll {
    me: usize,
    bells: Arc<[Bell]>,
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<u32>>,
    dirty: RefCell<Vec<u32>>,
    /// What was sent, and not told to its line yet.
    sent: RefCell<Vec<(LineId, usize)>>,
    /// Connections that are read in the next turn.
    unread: RefCell<Vec<u32>>,
    /// Connections that were shut, to be closed when the turn is over.
    shut: RefCell<Vec<u32>>,
    /// How long it looks for something to come before it waits.
    spin: Cell<Duration>,
    timers: Rc<Timers>,
    alarm: Alarm,
    poll: RefCell<Poll>,
    events: RefCell<Events>,
    /// What connections are read into, one at a time.
    scratch: RefCell<Vec<u8>>,
}

impl Epoll {
    /// # Errors
    /// Too many open files.
    pub fn new(me: usize, bells: Arc<[Bell]>) -> io::Result<Rc<Epoll>> {
        let (poll, alarm) = (Poll::new()?, Alarm::new()?);
        poll.registry().register(&mut SourceFd(&bells[me].event()), BELL, Interest::READABLE)?;
        poll.registry().register(&mut SourceFd(&alarm.fd()), ALARM, Interest::READABLE)?;
        Ok(Rc::new(Epoll {
            me,
            bells,
            slots: RefCell::default(),
            free: RefCell::default(),
            dirty: RefCell::default(),
            sent: RefCell::default(),
            unread: RefCell::default(),
            shut: RefCell::default(),
            spin: Cell::new(Duration::ZERO),
            timers: Timers::here(),
            alarm,
            poll: RefCell::new(poll),
            events: RefCell::new(Events::with_capacity(EVENTS)),
            scratch: RefCell::new(vec![0; READ_BYTES]),
        }))
    }

    pub(super) fn bell(&self) -> (Arc<[Bell]>, usize) {
        (self.bells.clone(), self.me)
    }

    pub(super) fn open(&self, fd: RawFd) -> LineId {
        let mut slots = self.slots.borrow_mut();
        let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
            slots.push(Slot::closed());
            (slots.len() - 1) as u32
        });
        let slot = &mut slots[index as usize];
        *slot = Slot { fd, generation: slot.generation, ..Slot::closed() };
        LineId { index, generation: slot.generation }
    }

    pub(super) fn start(&self, id: LineId, line: Rc<dyn Line>) {
        let mut told = Ok(());
        self.with(id, |slot| {
            slot.line = Some(line);
            slot.reading = true;
            let poll = self.poll.borrow();
            told = poll.registry().register(&mut SourceFd(&slot.fd), token(id), READ);
        });
        if told.is_err() {
            self.shut(id);
        }
    }

    pub(super) fn mark(&self, id: LineId) {
        self.with(id, |slot| {
            if !std::mem::replace(&mut slot.dirty, true) {
                self.dirty.borrow_mut().push(id.index);
            }
        });
    }

    pub(super) fn set_reading(&self, id: LineId, reading: bool) {
        self.with(id, |slot| {
            slot.reading = reading;
            self.queue(id.index, slot);
        });
    }

    /// A connection is read in its turn, if it is to be read and there may be something.
    fn queue(&self, index: u32, slot: &mut Slot) {
        if slot.reading && slot.readable && !slot.shut && !std::mem::replace(&mut slot.queued, true) {
            self.unread.borrow_mut().push(index);
        }
    }

    pub(super) fn shut(&self, id: LineId) {
        self.with(id, |slot| {
            if !std::mem::replace(&mut slot.shut, true) {
                if slot.in_flight.as_ref().is_none_or(|buffer| slot.sent == buffer.len())
                    && let Some(line) = &slot.line
                {
                    super::say_farewell(slot.fd, &**line);
                }
                super::shut(slot.fd);
                self.shut.borrow_mut().push(id.index);
            }
        });
    }

    /// Works on a slot, if it still is this connection's.
    #[inline]
    fn with(&self, id: LineId, work: impl FnOnce(&mut Slot)) {
        if let Some(slot) = self.slots.borrow_mut().get_mut(id.index as usize)
            && slot.generation == id.generation
            && slot.fd >= 0
        {
            work(slot);
        }
    }

    pub(super) fn set_spin(&self, spin: Duration) {
        self.spin.set(spin);
    }

    /// Carries mail and connections for as long as the executor runs.
    pub async fn drive(self: Rc<Epoll>, host: Rc<dyn Host>) {
        // A new task runs at once: whoever has started this one is to go on before the thread sleeps.
        yield_now().await;
        loop {
            self.turn(&*host);
            if has_ready() {
                yield_now().await;
            }
        }
    }

    fn turn(&self, host: &dyn Host) {
        host.send_mail(&mut |target| self.ring_bell(target));
        self.flush();
        let goes_on = !self.sent.borrow().is_empty() || !self.shut.borrow().is_empty();
        self.tell_sent();
        self.close_shut();
        if goes_on {
            // Connections go on when what they had to say is sent: what they ask of other shards then, and what is to be
            // written to the log, must leave before this shard sleeps.
            host.send_mail(&mut |target| self.ring_bell(target));
        }
        // Sending and closing may have woken tasks, and they may have given lines more to say. Tasks that are ready, the
        // cycle between two slices for one, must not wait while the shard waits.
        let has_work = has_ready()
            || !self.dirty.borrow().is_empty()
            || !self.unread.borrow().is_empty()
            || !self.shut.borrow().is_empty();
        let limit = match has_work {
            true => Some(Duration::ZERO),
            false => host.has_outgoing().then_some(FULL_LINK),
        };
        self.wait(host, limit);
        let worked = self.work(host);
        let worked = host.receive_mail() || worked;
        // The shard's clock may stand still for another shard's sake: who rests goes by the system's.
        self.timers.ring(if worked { host.now_us() } else { store_us() });
    }

    /// In the middle of a long turn: what it has to say to others and to connections leaves, and others' mail has its
    /// turn as well as this shard's own connections.
    fn let_out(&self, host: &dyn Host) {
        host.send_mail(&mut |target| self.ring_bell(target));
        self.flush();
        host.receive_mail();
    }

    /// Wakes another shard, if it waits.
    fn ring_bell(&self, target: usize) {
        if self.bells[target].is_to_be_rung() {
            self.bells[target].ring_for_mail();
        }
    }

    /// Waits until something comes, at most for as long as the limit says, but not where mail has come.
    fn wait(&self, host: &dyn Host, limit: Option<Duration>) {
        if limit == Some(Duration::ZERO) {
            self.look(limit);
            return;
        }
        if self.spins(host) {
            return;
        }
        self.bells[self.me].wait();
        if host.has_mail() {
            self.look(Some(Duration::ZERO));
        } else {
            self.alarm.ring_by(self.timers.next_us());
            self.look(limit);
        }
        self.bells[self.me].work();
    }

    /// Asks the kernel what has happened.
    fn look(&self, limit: Option<Duration>) {
        if let Err(error) = self.poll.borrow_mut().poll(&mut self.events.borrow_mut(), limit) {
            self.events.borrow_mut().clear();
            // A signal. Anything else means that the shard is deaf.
            assert!(error.kind() == io::ErrorKind::Interrupted, "epoll_wait: {error}");
        }
    }

    /// Looks for a while whether something comes; whether it has. (What the last look has shown is worked on then.)
    fn spins(&self, host: &dyn Host) -> bool {
        if self.spin.get().is_zero() {
            return false;
        }
        let end = Instant::now() + self.spin.get();
        loop {
            self.look(Some(Duration::ZERO));
            let is_due = self.timers.next_us().is_some_and(|us| us <= store_us());
            if is_due || host.has_mail() || !self.events.borrow().is_empty() {
                return true;
            }
            if Instant::now() >= end {
                return false;
            }
            std::hint::spin_loop();
        }
    }

    /// Works on what has happened; whether it was about a connection or a neighbour.
    fn work(&self, host: &dyn Host) -> bool {
        let mut worked = false;
        for event in &*self.events.borrow() {
            worked |= event.token() != ALARM;
            match event.token() {
                BELL => {
                    if self.bells[self.me].was_rung_from_outside() {
                        outside::rung();
                    }
                }
                ALARM => {}
                token => self.note(id_of(token), event),
            }
        }
        let mut unread = self.unread.take();
        worked |= !unread.is_empty();
        for index in unread.drain(..) {
            if host.is_overdue() {
                self.let_out(host);
            }
            self.read(index);
        }
        let mut place = self.unread.borrow_mut();
        // Those that have more to say than was read have their turn in the next.
        unread.append(&mut place);
        *place = unread;
        worked
    }

    fn note(&self, id: LineId, event: &Event) {
        let has_failed = event.is_error() || event.is_write_closed();
        let mut may_send = event.is_writable() || has_failed;
        self.with(id, |slot| {
            slot.readable |= event.is_readable() || event.is_read_closed() || has_failed;
            slot.reads_on |= event.is_priority() || event.is_read_closed() || has_failed;
            may_send &= slot.waits_for_room;
            self.queue(id.index, slot);
        });
        if may_send {
            self.send(id.index);
        }
    }

    fn read(&self, index: u32) {
        let (fd, generation, line) = {
            let slot = &mut self.slots.borrow_mut()[index as usize];
            slot.queued = false;
            if !slot.reading || !slot.readable || slot.shut || slot.fd < 0 {
                return;
            }
            (slot.fd, slot.generation, slot.line.clone())
        };
        let id = LineId { index, generation };
        let mut scratch = self.scratch.borrow_mut();
        match super::receive_now(fd, &mut scratch) {
            Ok(0) => {
                // The other side says no more; what it asked for is still answered.
                self.with(id, |slot| (slot.reading, slot.readable) = (false, false));
                match line {
                    Some(line) => line.finished(),
                    None => self.shut(id),
                }
            }
            Ok(bytes) => {
                let is_full = bytes == scratch.len();
                self.with(id, |slot| slot.readable = is_full || slot.reads_on);
                if let Some(line) = line {
                    line.received(&scratch[..bytes]);
                }
                self.with(id, |slot| self.queue(index, slot));
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => {
                    self.with(id, |slot| (slot.readable, slot.reads_on) = (false, false));
                }
                io::ErrorKind::Interrupted => self.with(id, |slot| self.queue(index, slot)),
                _ => self.shut(id),
            },
        }
    }

    /// Sends what connections have to say that have nothing in flight.
    fn flush(&self) {
        let mut dirty = self.dirty.take();
        for index in dirty.drain(..) {
            let line = {
                let slot = &mut self.slots.borrow_mut()[index as usize];
                slot.dirty = false;
                let ready = slot.in_flight.is_none() && !slot.shut;
                slot.line.clone().filter(|_| ready)
            };
            let Some(buffer) = line.and_then(|line| line.take_output()) else { continue };
            {
                let slot = &mut self.slots.borrow_mut()[index as usize];
                (slot.in_flight, slot.sent) = (Some(buffer), 0);
            }
            self.send(index);
        }
        let mut place = self.dirty.borrow_mut();
        // What was marked meanwhile waits for the next turn.
        dirty.append(&mut place);
        *place = dirty;
    }

    /// Sends what is left of the buffer in flight, as far as the socket takes it; the rest waits for room. The line is told
    /// later: it goes on then, and nothing that comes of that may leave with what was said before.
    fn send(&self, index: u32) {
        let (id, sent) = {
            let slot = &mut self.slots.borrow_mut()[index as usize];
            let id = LineId { index, generation: slot.generation };
            (id, self.send_more(id, slot))
        };
        match sent {
            Ok(0) => {}
            Ok(bytes) => self.sent.borrow_mut().push((id, bytes)),
            Err(_) => self.shut(id),
        }
    }

    fn send_more(&self, id: LineId, slot: &mut Slot) -> io::Result<usize> {
        let Some(buffer) = slot.in_flight.as_ref().filter(|_| !slot.shut) else { return Ok(0) };
        let bytes = match super::send_now(slot.fd, &buffer[slot.sent..]) {
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => 0,
            result => result?,
        };
        slot.sent += bytes;
        let is_whole = slot.sent == buffer.len();
        if slot.waits_for_room == is_whole {
            slot.waits_for_room = !is_whole;
            let interest = if is_whole { READ } else { READ.add(Interest::WRITABLE) };
            let poll = self.poll.borrow();
            poll.registry().reregister(&mut SourceFd(&slot.fd), token(id), interest)?;
        }
        Ok(bytes)
    }

    /// Tells lines what was sent; with the last of it the buffer goes back.
    fn tell_sent(&self) {
        for (id, bytes) in self.sent.take() {
            let mut told = None;
            self.with(id, |slot| {
                let sent = slot.sent;
                let buffer = slot.in_flight.take_if(|buffer| sent == buffer.len());
                told = slot.line.clone().filter(|_| !slot.shut).map(|line| (line, buffer));
            });
            if let Some((line, buffer)) = told {
                line.sent(bytes, buffer);
            }
        }
    }

    /// Closes the connections that were shut.
    fn close_shut(&self) {
        for index in self.shut.take() {
            let line = {
                let slot = &mut self.slots.borrow_mut()[index as usize];
                // SAFETY: ours; epoll forgets it with that.
                unsafe { libc::close(slot.fd) };
                let generation = (slot.generation + 1) & GENERATIONS;
                let line = slot.line.take();
                *slot = Slot { generation, ..Slot::closed() };
                self.free.borrow_mut().push(index);
                line
            };
            if let Some(line) = line {
                line.ended();
            }
        }
    }
}

impl Slot {
    fn closed() -> Slot {
        Slot {
            fd: -1,
            generation: 0,
            line: None,
            reading: false,
            readable: false,
            queued: false,
            reads_on: false,
            in_flight: None,
            sent: 0,
            waits_for_room: false,
            dirty: false,
            shut: false,
        }
    }
}
