//! An io_uring of our own inside the executor: one system call a turn sends what is ready, and waits for what comes.
//!
//! ```text
//!  turn:  mail out, sends queued ─ enter (submit all, wait for one) ─ completions, mail in, timers
//!         then, where a task was woken and before each long wait: yield to the executor
//! ```
//!
//! It is the only place where the shard sleeps: the wait ends with a completion, or with the next of the executor's
//! timers (`timers.rs`). glommio is executor and queue of tasks; its reactor sees nothing, so nothing may wait there.
//! The kernel chooses receive buffers (`buffers.rs`); a connection has one receive that repeats (multishot) and at most
//! one send in flight. Other shards wake this one by a message straight into its ring; any thread can through an eventfd
//! that the ring always reads.

use super::buffers::{BUFFER_BYTES, Buffers, GROUP};
use super::notify::{is_woken, take_woken};
use super::timers::Timers;
use super::{Bell, Host, Line, LineId, outside};
use crate::clock::store_us;
use crate::executor::yield_now;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SUBMISSIONS: u32 = 1024;
const COMPLETIONS: u32 = 4096;
/// How long it waits before it has let the executor's tasks run: one may have been woken without saying so.
const SHORT_WAIT: Duration = Duration::from_millis(1);
/// Turns between two looks at the executor's other tasks, where none is known to be ready.
const TURNS_A_YIELD: u32 = 16;
/// The longest wait: timers further away are looked at again then.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// Between two looks for what a receive has missed, while there is work.
const LOOK_US: u64 = 1_000_000;

/// A send completes when all of it is taken: pieces of this size show how far a slow reader has come.
const SEND_BYTES: usize = 256 * 1024;

/// What a completion is about, in the highest byte of its user data.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Op {
    Ignored,
    Receive,
    Send,
    /// Another shard rang.
    Bell,
    /// Some thread rang.
    Outside,
    /// This shard rang another.
    Ring,
}

const GENERATIONS: u32 = (1 << 24) - 1;

fn user_data(op: Op, id: LineId) -> u64 {
    (op as u64) << 56 | u64::from(id.generation) << 32 | u64::from(id.index)
}

const NOBODY: LineId = LineId { index: 0, generation: 0 };

struct Slot {
    fd: RawFd,
    generation: u32,
    line: Option<Rc<dyn Line>>,
    /// Whether it is to be read, whether a receive is under way, and whether that is being cancelled.
    reading: bool,
    receiving: bool,
    cancelling: bool,
    /// Something was received since the last look for what a receive has missed.
    heard: bool,
    /// What the kernel sends from, and how much of it is sent.
    in_flight: Option<Vec<u8>>,
    sent: usize,
    dirty: bool,
    shut: bool,
    /// Something came behind that, and was thrown away.
    tossed: bool,
}

type Completion = (u64, i32, u32);

/// For how long a turn waits for something to complete.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// Tasks are ready.
    Not,
    /// Tasks may be ready, though nobody said so.
    Short,
    /// Until the next timer.
    Long,
}

pub struct Ring {
    me: usize,
    bells: Arc<[Bell]>,
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<u32>>,
    /// What is submitted with the next turn.
    queue: RefCell<Vec<squeue::Entry>>,
    dirty: RefCell<Vec<u32>>,
    /// Connections that were shut, to be closed when the kernel is done with them.
    shut: RefCell<Vec<u32>>,
    /// Receives that ended because no buffer was free.
    starved: RefCell<Vec<u32>>,
    /// Connections from which something was received since the last look for what a receive has missed.
    heard: RefCell<Vec<u32>>,
    /// When that was, store microseconds.
    looked_at_us: Cell<u64>,
    completions: RefCell<Vec<Completion>>,
    /// How long it looks for something to come before it waits.
    spin: Cell<Duration>,
    timers: Rc<Timers>,
    /// Where the kernel writes what it reads from the eventfd, which nobody looks at.
    rings: Box<Cell<u64>>,
    // The ring goes before the memory that the kernel writes to.
    uring: RefCell<IoUring>,
    buffers: RefCell<Buffers>,
}

fn build() -> io::Result<IoUring> {
    IoUring::builder()
        .setup_cqsize(COMPLETIONS)
        .setup_clamp()
        .setup_single_issuer()
        .setup_coop_taskrun()
        .setup_taskrun_flag()
        .setup_defer_taskrun()
        .build(SUBMISSIONS)
}

/// Whether this kernel has what a ring needs (Linux 6.1), and allows it.
///
/// # Errors
/// What was refused.
pub fn available() -> io::Result<()> {
    let ring = build()?;
    let buffers = Buffers::register(&ring.submitter());
    drop(ring);
    buffers.map(drop)
}

impl Ring {
    /// # Errors
    /// As [`available`], or too many open files.
    pub fn new(me: usize, bells: Arc<[Bell]>) -> io::Result<Rc<Ring>> {
        let uring = build()?;
        let buffers = Buffers::register(&uring.submitter())?;
        bells[me].hang_up(uring.as_raw_fd());
        Ok(Rc::new(Ring {
            me,
            bells,
            slots: RefCell::default(),
            free: RefCell::default(),
            queue: RefCell::default(),
            dirty: RefCell::default(),
            shut: RefCell::default(),
            starved: RefCell::default(),
            heard: RefCell::default(),
            looked_at_us: Cell::new(0),
            completions: RefCell::default(),
            spin: Cell::new(Duration::ZERO),
            timers: Timers::here(),
            rings: Box::default(),
            uring: RefCell::new(uring),
            buffers: RefCell::new(buffers),
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
        self.with(id, |slot| slot.line = Some(line));
        self.set_reading(id, true);
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
            if slot.reading == reading {
                return;
            }
            slot.reading = reading;
            if reading {
                self.receive(id.index, slot);
            } else {
                self.cancel_receive(id, slot);
            }
        });
    }

    fn cancel_receive(&self, id: LineId, slot: &mut Slot) {
        if slot.receiving && !slot.cancelling {
            slot.cancelling = true;
            self.submit(opcode::AsyncCancel::new(user_data(Op::Receive, id)).build(), Op::Ignored, NOBODY);
        }
    }

    pub(super) fn shut(&self, id: LineId) {
        self.with(id, |slot| {
            if !std::mem::replace(&mut slot.shut, true) {
                if slot.in_flight.is_none()
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

    fn submit(&self, entry: squeue::Entry, op: Op, id: LineId) {
        self.queue.borrow_mut().push(entry.user_data(user_data(op, id)));
    }

    /// Starts to receive, unless that is under way.
    fn receive(&self, index: u32, slot: &mut Slot) {
        if slot.reading && !slot.receiving && !slot.shut {
            slot.receiving = true;
            let entry = opcode::RecvMulti::new(types::Fd(slot.fd), GROUP).build();
            self.submit(entry, Op::Receive, LineId { index, generation: slot.generation });
        }
    }

    /// Sends what is left of the buffer in flight.
    fn send(&self, index: u32, slot: &Slot) {
        let Some(buffer) = &slot.in_flight else { return };
        let rest = &buffer[slot.sent..];
        let len = rest.len().min(SEND_BYTES) as u32;
        let entry = opcode::Send::new(types::Fd(slot.fd), rest.as_ptr(), len)
            .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL)
            .build();
        self.submit(entry, Op::Send, LineId { index, generation: slot.generation });
    }

    /// Reads the eventfd; each completion begins that anew.
    fn listen_outside(&self) {
        let fd = types::Fd(self.bells[self.me].event());
        let entry = opcode::Read::new(fd, self.rings.as_ptr().cast(), size_of::<u64>() as u32).build();
        self.submit(entry, Op::Outside, NOBODY);
    }

    /// Runs the ring for as long as the executor does.
    pub async fn drive(self: Rc<Ring>, host: Rc<dyn Host>) {
        self.listen_outside();
        let (mut turns, mut rested, mut woken) = (0, true, true);
        loop {
            if woken || rested || turns >= TURNS_A_YIELD {
                turns = 0;
                yield_now().await;
            }
            if rested || host.now_us().saturating_sub(self.looked_at_us.get()) >= LOOK_US {
                self.looked_at_us.set(host.now_us());
                self.look_for_the_missed();
            }
            // Tasks that are ready, the cycle between two slices for one, must not wait while the ring waits.
            woken = take_woken();
            let wait = match (woken, turns) {
                (true, _) => Wait::Not,
                (false, 0) => Wait::Long,
                (false, _) => Wait::Short,
            };
            rested = !self.turn(&*host, wait);
            woken |= take_woken();
            turns += 1;
        }
    }

    /// One turn; whether there was anything to work on.
    fn turn(&self, host: &dyn Host, wait: Wait) -> bool {
        host.send_mail(&mut |target| self.ring_bell(target));
        self.flush();
        self.close_shut();
        self.buffers.borrow_mut().publish();
        self.restart_starved();
        let wait = match wait {
            // What was sent just now may have woken tasks: a transaction that has its number, for one. And a connection
            // that was closed may have left something to say.
            _ if is_woken() || !self.dirty.borrow().is_empty() => Wait::Not,
            // Whoever empties a link that is full does not ring.
            Wait::Long if host.has_outgoing() => Wait::Short,
            wait => wait,
        };
        self.enter(host, wait);
        let completed = self.complete(host);
        let worked = host.receive_mail() || completed;
        // The shard's clock may stand still for another shard's sake: who rests goes by the system's.
        self.timers.ring(if worked { host.now_us() } else { store_us() });
        worked
    }

    /// In the middle of a long turn: what it has to say to others and to connections leaves, and others' mail has its
    /// turn as well as this shard's own connections.
    fn let_out(&self, host: &dyn Host) {
        host.send_mail(&mut |target| self.ring_bell(target));
        self.flush();
        self.enter(host, Wait::Not);
        host.receive_mail();
    }

    /// Wakes another shard, if it waits.
    fn ring_bell(&self, target: usize) {
        if self.bells[target].is_to_be_rung() {
            let ring = types::Fd(self.bells[target].ring());
            let entry = opcode::MsgRingData::new(ring, 0, user_data(Op::Bell, NOBODY), None).build();
            let target = LineId { index: target as u32, generation: 0 };
            self.submit(entry.flags(squeue::Flags::SKIP_SUCCESS), Op::Ring, target);
        }
    }

    /// Queues a send for each connection that has something to say and nothing in flight.
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
            let slot = &mut self.slots.borrow_mut()[index as usize];
            slot.in_flight = Some(buffer);
            slot.sent = 0;
            self.send(index, slot);
        }
        let mut place = self.dirty.borrow_mut();
        // What was marked meanwhile waits for the next turn.
        dirty.append(&mut place);
        *place = dirty;
    }

    /// Closes the connections that were shut, where nothing is under way any more.
    fn close_shut(&self) {
        if self.shut.borrow().is_empty() {
            return;
        }
        let mut waiting = Vec::new();
        let shut = self.shut.take();
        for index in shut {
            let line = {
                let slot = &mut self.slots.borrow_mut()[index as usize];
                if slot.receiving || slot.in_flight.is_some() {
                    waiting.push(index);
                    continue;
                }
                if std::mem::take(&mut slot.tossed) {
                    super::reset_at_close(slot.fd);
                }
                // SAFETY: ours, and nothing of the kernel's refers to it.
                unsafe { libc::close(slot.fd) };
                slot.fd = -1;
                slot.generation = (slot.generation + 1) & GENERATIONS;
                self.free.borrow_mut().push(index);
                slot.line.take()
            };
            if let Some(line) = line {
                line.ended();
            }
        }
        self.shut.borrow_mut().append(&mut waiting);
    }

    /// Begins to receive anew where a receive that repeats has missed what came behind the data it gave out.
    ///
    /// The end of a connection: where data and the end (a reset, above all) come before the kernel has looked at either,
    /// the receive gives out the data and waits for an event that has been. (Mended in Linux in 2026: "io_uring/poll:
    /// fix multishot recv missing EOF on wakeup race".) Bytes behind urgent data: a receive stops at the urgent byte, the
    /// kernel counts nothing as left there (`tcp_inq`), and the receive waits for more although more is there.
    /// Both are there by the time that the data is, so one look after the data is enough. A connection whose next
    /// bytes happen to come just before the look loses nothing: these bytes wait in the socket for the next receive.
    fn look_for_the_missed(&self) {
        let mut heard = self.heard.take();
        if heard.is_empty() {
            return;
        }
        let mut slots = self.slots.borrow_mut();
        let asked = heard.iter().map(|index| {
            let slot = &mut slots[*index as usize];
            slot.heard = false;
            libc::pollfd { fd: slot.fd, events: libc::POLLRDHUP | libc::POLLIN, revents: 0 }
        });
        let mut asked: Vec<libc::pollfd> = asked.collect();
        // SAFETY: the kernel writes to these entries during the call; it skips those of closed connections (-1).
        let ask =
            |asked: &mut [libc::pollfd]| unsafe { libc::poll(asked.as_mut_ptr(), asked.len() as libc::nfds_t, 0) };
        while ask(&mut asked) < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {}
        for (index, answer) in heard.drain(..).zip(asked) {
            if answer.revents != 0 {
                let slot = &mut slots[index as usize];
                self.cancel_receive(LineId { index, generation: slot.generation }, slot);
            }
        }
        self.heard.replace(heard);
    }

    fn restart_starved(&self) {
        if self.starved.borrow().is_empty() {
            return;
        }
        for index in self.starved.take() {
            let slot = &mut self.slots.borrow_mut()[index as usize];
            if slot.fd >= 0 {
                self.receive(index, slot);
            }
        }
    }

    /// Submits the queue; waits for a completion, but not where mail has come.
    fn enter(&self, host: &dyn Host, wait: Wait) {
        let mut uring = self.uring.borrow_mut();
        let mut queue = self.queue.borrow_mut();
        let mut pushed = 0;
        while pushed < queue.len() {
            {
                let mut submission = uring.submission();
                while pushed < queue.len() {
                    // SAFETY: what an entry refers to (a buffer in flight, `rings`) stays in place until it completes.
                    if unsafe { submission.push(&queue[pushed]) }.is_err() {
                        break;
                    }
                    pushed += 1;
                }
            }
            if pushed < queue.len() {
                tolerate(uring.submit());
            }
        }
        queue.clear();
        drop(queue);
        if wait == Wait::Not || self.spin(&mut uring, host) {
            tolerate(uring.submit_and_wait(0));
            return;
        }
        self.bells[self.me].wait();
        if host.has_mail() {
            tolerate(uring.submit_and_wait(0));
        } else {
            let limit = types::Timespec::from(self.may_wait(host, wait));
            let args = types::SubmitArgs::new().timespec(&limit);
            tolerate(uring.submitter().submit_with_args(1, &args));
        }
        self.bells[self.me].work();
    }

    /// For how long it may wait.
    fn may_wait(&self, host: &dyn Host, wait: Wait) -> Duration {
        // A short wait needs no better clock than that of the turn.
        let (longest, now_us) = match wait {
            Wait::Long => (LONGEST_WAIT, store_us()),
            _ => (SHORT_WAIT, host.now_us()),
        };
        let next_us = self.timers.next_us().unwrap_or(u64::MAX);
        Duration::from_micros(next_us.saturating_sub(now_us)).min(longest)
    }

    /// Submits, and looks for a while whether something comes.
    fn spin(&self, uring: &mut IoUring, host: &dyn Host) -> bool {
        if self.spin.get().is_zero() {
            return false;
        }
        tolerate(uring.submit_and_wait(0));
        let end = Instant::now() + self.spin.get();
        loop {
            if host.has_mail() || !uring.completion().is_empty() || uring.submission().taskrun() {
                return true;
            }
            if Instant::now() >= end {
                return false;
            }
            std::hint::spin_loop();
        }
    }

    /// Works on what has completed; whether it was about a connection or a neighbour.
    fn complete(&self, host: &dyn Host) -> bool {
        let mut completions = self.completions.take();
        completions.extend(
            self.uring.borrow_mut().completion().map(|entry| (entry.user_data(), entry.result(), entry.flags())),
        );
        let mut worked = false;
        for &(data, result, flags) in &completions {
            let id = LineId { index: data as u32, generation: (data >> 32) as u32 & GENERATIONS };
            worked |= match (data >> 56) as u8 {
                op if op == Op::Receive as u8 => {
                    if host.is_overdue() {
                        self.let_out(host);
                    }
                    self.received(id, result, flags);
                    true
                }
                op if op == Op::Send as u8 => {
                    self.sent(id, result);
                    true
                }
                op if op == Op::Ring as u8 => {
                    // Its ring has no room, or the system no memory: the eventfd needs neither.
                    self.bells[id.index as usize].ring_from_outside();
                    false
                }
                op if op == Op::Outside as u8 => {
                    let passes = [libc::EINTR, libc::EAGAIN, libc::ENOMEM, libc::ECANCELED];
                    assert!(
                        result > 0 || passes.contains(&-result),
                        "eventfd: {}",
                        io::Error::from_raw_os_error(-result)
                    );
                    self.listen_outside();
                    outside::rung();
                    false
                }
                op => op == Op::Bell as u8,
            };
        }
        completions.clear();
        self.completions.replace(completions);
        worked
    }

    fn received(&self, id: LineId, result: i32, flags: u32) {
        let line = {
            let slot = &mut self.slots.borrow_mut()[id.index as usize];
            debug_assert_eq!(slot.generation, id.generation, "a connection outlives its receive");
            if !cqueue::more(flags) {
                slot.receiving = false;
                slot.cancelling = false;
            }
            if result > 0 && !std::mem::replace(&mut slot.heard, true) {
                self.heard.borrow_mut().push(id.index);
            }
            slot.tossed |= result > 0 && slot.shut;
            slot.line.clone().filter(|_| !slot.shut)
        };
        if let Some(buffer) = cqueue::buffer_select(flags) {
            if result > 0
                && let Some(line) = &line
            {
                let bytes = self.buffers.borrow().bytes(buffer, (result as usize).min(BUFFER_BYTES));
                // SAFETY: the kernel has written these bytes and leaves the buffer alone until it is given back.
                line.received(unsafe { &*bytes });
            }
            self.buffers.borrow_mut().give_back(buffer);
        }
        match -result {
            libc::ENOBUFS => self.starved.borrow_mut().push(id.index),
            ..0 | libc::ECANCELED | libc::EINTR | libc::EAGAIN => {
                self.with(id, |slot| self.receive(id.index, slot));
            }
            0 => {
                // The other side says no more; what it asked for is still answered.
                self.with(id, |slot| slot.reading = false);
                match line {
                    Some(line) => line.finished(),
                    None => self.shut(id),
                }
            }
            _ => self.shut(id),
        }
    }

    fn sent(&self, id: LineId, result: i32) {
        let (line, bytes, buffer) = {
            let slot = &mut self.slots.borrow_mut()[id.index as usize];
            debug_assert_eq!(slot.generation, id.generation, "a connection outlives its send");
            if result < 0 && !matches!(-result, libc::EINTR | libc::EAGAIN) || slot.shut {
                slot.in_flight = None;
                (None, 0, None)
            } else {
                let bytes = result.max(0) as usize;
                slot.sent += bytes;
                let whole = slot.in_flight.as_ref().is_some_and(|buffer| slot.sent == buffer.len());
                let buffer = slot.in_flight.take_if(|_| whole);
                self.send(id.index, slot);
                (slot.line.clone(), bytes, buffer)
            }
        };
        match line {
            Some(line) => line.sent(bytes, buffer),
            None => self.shut(id),
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
            receiving: false,
            cancelling: false,
            heard: false,
            in_flight: None,
            sent: 0,
            dirty: false,
            shut: false,
            tossed: false,
        }
    }
}

/// A turn goes on after errors that pass; others mean that the ring is broken, and a shard without it is deaf.
fn tolerate(result: io::Result<usize>) {
    if let Err(error) = result
        && !matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY | libc::EAGAIN | libc::ETIME))
    {
        panic!("io_uring_enter: {error}");
    }
}
