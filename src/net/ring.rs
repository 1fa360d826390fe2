//! An io_uring of our own inside the executor: one system call a turn sends what is ready, and waits for what comes.
//!
//! ```text
//!  turn:  mail out, sends queued ─ enter (submit all, wait for one) ─ completions, mail in ─ yield to the executor
//!                                     ^ a timeout of 1 ms bounds the wait
//!  three timeouts without work:  no timeout; an eventfd wakes the executor when something completes
//! ```
//!
//! Where it waits matters more than any flag: waiting in the ring itself costs a fraction of waking up through the
//! executor, which is left for the idle. The kernel chooses receive buffers (`buffers.rs`); a connection has one
//! receive that repeats (multishot) and at most one send in flight. Other shards wake this one by a message straight
//! into its ring.

use super::bell::{Bell, Event};
use super::buffers::{BUFFER_BYTES, Buffers, GROUP};
use super::notify::Pulse;
use super::{Host, Line, LineId};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SUBMISSIONS: u32 = 1024;
const COMPLETIONS: u32 = 4096;
/// The longest wait inside the ring while there is work, since the executor's own tasks wait as long.
const TICK_NS: u32 = 1_000_000;
/// Ticks without work after which it waits outside.
const QUIET_TICKS: u32 = 3;
/// Turns between two looks at the executor's other tasks, where none is known to be ready.
const TURNS_A_YIELD: u32 = 16;

/// Ticks between two looks at whether somebody has hung up whose receive did not say so.
const TICKS_A_LOOK: u64 = 1_000;

/// A send completes when all of it is taken: pieces of this size show how far a slow reader has come.
const SEND_BYTES: usize = 256 * 1024;

/// What a completion is about, in the highest byte of its user data.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Op {
    Ignored,
    Receive,
    Send,
    Tick,
    /// Another shard rang.
    Bell,
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
    /// Something was received since the last look for those who have hung up.
    heard: bool,
    /// What the kernel sends from, and how much of it is sent.
    in_flight: Option<Vec<u8>>,
    sent: usize,
    dirty: bool,
    shut: bool,
}

type Completion = (u64, i32, u32);

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
    /// Connections from which something was received since the last look for those who have hung up.
    heard: RefCell<Vec<u32>>,
    /// `ticks` at that look.
    looked_at: Cell<u64>,
    /// Shards that were to be woken, and may not have heard it.
    unheard: RefCell<Vec<usize>>,
    completions: RefCell<Vec<Completion>>,
    /// How long it looks for something to come before it waits.
    spin: Cell<Duration>,
    ticking: Cell<bool>,
    ticks: Cell<u64>,
    /// Ticks since there was work.
    quiet_ticks: Cell<u32>,
    /// It waits outside of the ring; `kick` ends that.
    parked: Cell<bool>,
    event: Rc<Event>,
    pulse: Rc<Pulse>,
    tick: Box<types::Timespec>,
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
        let event = Event::new()?;
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
            looked_at: Cell::new(0),
            unheard: RefCell::default(),
            completions: RefCell::default(),
            spin: Cell::new(Duration::ZERO),
            ticking: Cell::new(false),
            ticks: Cell::new(0),
            quiet_ticks: Cell::new(0),
            parked: Cell::new(false),
            event,
            pulse: Rc::default(),
            tick: Box::new(types::Timespec::new().nsec(TICK_NS)),
            uring: RefCell::new(uring),
            buffers: RefCell::new(buffers),
        }))
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
        self.kick();
    }

    pub(super) fn set_reading(&self, id: LineId, reading: bool) {
        self.with(id, |slot| {
            if slot.reading == reading {
                return;
            }
            slot.reading = reading;
            if reading {
                self.receive(id.index, slot);
                self.kick();
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
                super::shut(slot.fd);
                self.shut.borrow_mut().push(id.index);
            }
        });
        self.kick();
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

    /// Something is to be done by the next turn.
    #[inline]
    pub fn kick(&self) {
        if self.parked.get() {
            self.event.kick.notify();
        }
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

    /// Runs the ring for as long as the executor does.
    pub async fn drive(self: Rc<Ring>, host: Rc<dyn Host>) {
        glommio::spawn_local(self.event.clone().forward()).detach();
        glommio::spawn_local(self.pulse.clone().beat(self.bells.clone(), self.me)).detach();
        let mut turns = 0;
        loop {
            if !self.ticking.replace(true) {
                let entry = opcode::Timeout::new(&*self.tick).build();
                self.submit(entry, Op::Tick, NOBODY);
            }
            let ticks = self.ticks.get();
            // Tasks that are ready, the cycle between two slices for one, must not wait while the ring waits.
            let others_ready = super::notify::take_woken();
            self.turn(&*host, !others_ready);
            turns += 1;
            let ticked = self.ticks.get() != ticks;
            if super::notify::take_woken() || others_ready || ticked || turns >= TURNS_A_YIELD {
                turns = 0;
                glommio::executor().yield_task_queue_now().await;
            }
            if self.ticks.get() - self.looked_at.get() >= TICKS_A_LOOK {
                self.look_for_hang_ups();
            }
            if self.quiet_ticks.get() >= QUIET_TICKS {
                self.look_for_hang_ups();
                self.submit(opcode::TimeoutRemove::new(user_data(Op::Tick, NOBODY)).build(), Op::Ignored, NOBODY);
                self.turn(&*host, false);
                // What the removal completes comes with the next look only, and would end the waiting at once.
                if self.has_work(&*host) {
                    self.turn(&*host, false);
                }
                if self.quiet_ticks.get() >= QUIET_TICKS {
                    self.park(&*host).await;
                }
                self.quiet_ticks.set(0);
            }
        }
    }

    /// Waits through the executor until something completes, somebody rings, or a task of this shard kicks.
    async fn park(&self, host: &dyn Host) {
        self.parked.set(true);
        self.pulse.rest();
        let registered = self.uring.borrow().submitter().register_eventfd(self.event.fd());
        if registered.is_ok() {
            self.bells[self.me].wait();
            // Whatever came before the eventfd was there did not wake it.
            if !self.has_work(host) {
                self.event.kick.wait().await;
            }
            self.pulse.quicken();
            self.bells[self.me].work();
            // An eventfd that stays registered would be written to at every completion.
            let _ = self.uring.borrow().submitter().unregister_eventfd();
        }
        self.parked.set(false);
    }

    fn has_work(&self, host: &dyn Host) -> bool {
        let mut uring = self.uring.borrow_mut();
        host.has_mail()
            || host.has_outgoing()
            || !self.queue.borrow().is_empty()
            || !self.dirty.borrow().is_empty()
            || !self.shut.borrow().is_empty()
            || !self.unheard.borrow().is_empty()
            || !uring.completion().is_empty()
            || uring.submission().taskrun()
    }

    /// One turn; `wait` says whether to wait for something to complete.
    fn turn(&self, host: &dyn Host, wait: bool) {
        host.send_mail(&mut |target| self.ring_bell(target));
        self.flush();
        self.close_shut();
        self.buffers.borrow_mut().publish();
        self.restart_starved();
        if !self.unheard.borrow().is_empty() {
            self.unheard.take().into_iter().for_each(|target| self.ring_again(target));
        }
        self.enter(host, wait);
        let worked = self.complete(host);
        if host.receive_mail() || worked {
            self.quiet_ticks.set(0);
        }
    }

    /// In the middle of a long turn: what it has to say to others and to connections leaves, and others' mail has its
    /// turn as well as this shard's own connections.
    fn let_out(&self, host: &dyn Host) {
        host.send_mail(&mut |target| self.ring_bell(target));
        self.flush();
        self.enter(host, false);
        host.receive_mail();
    }

    /// Wakes another shard, if it waits.
    fn ring_bell(&self, target: usize) {
        if self.bells[target].to_ring().is_some() {
            self.ring_again(target);
        }
    }

    /// Rings. Where that fails, its completion says so.
    fn ring_again(&self, target: usize) {
        let ring = types::Fd(self.bells[target].fd());
        let entry = opcode::MsgRingData::new(ring, 0, user_data(Op::Bell, NOBODY), None).build();
        let target = LineId { index: target as u32, generation: 0 };
        self.submit(entry.flags(squeue::Flags::SKIP_SUCCESS), Op::Ring, target);
    }

    /// A message to another shard's ring has failed: while that has no room, or the system no memory, it is sent again.
    /// (Whoever has a full ring of completions is awake, but does not know of this mail.)
    fn not_heard(&self, target: u32, result: i32) {
        if matches!(-result, libc::ENOMEM | libc::EOVERFLOW | libc::EAGAIN | libc::EINTR | libc::EBUSY) {
            self.unheard.borrow_mut().push(target as usize);
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

    /// Begins to receive anew from those who have hung up.
    ///
    /// A receive that repeats may miss it: where data and the end (a reset, above all) come before the kernel has looked
    /// at either, it gives out the data and waits for an event that has been. (Mended in Linux in 2026: "io_uring/poll:
    /// fix multishot recv missing EOF on wakeup race".) The end is there by the time that data is, so one look after it
    /// is enough.
    fn look_for_hang_ups(&self) {
        self.looked_at.set(self.ticks.get());
        let mut heard = self.heard.take();
        let mut slots = self.slots.borrow_mut();
        let asked = heard.iter().map(|index| {
            let slot = &mut slots[*index as usize];
            slot.heard = false;
            libc::pollfd { fd: slot.fd, events: libc::POLLRDHUP, revents: 0 }
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
    fn enter(&self, host: &dyn Host, wait: bool) {
        let mut uring = self.uring.borrow_mut();
        let mut queue = self.queue.borrow_mut();
        let mut pushed = 0;
        while pushed < queue.len() {
            {
                let mut submission = uring.submission();
                while pushed < queue.len() {
                    // SAFETY: what an entry refers to (a buffer in flight, the tick) stays in place until it completes.
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
        if !wait || self.spin(&mut uring, host) {
            tolerate(uring.submit_and_wait(0));
            return;
        }
        self.bells[self.me].wait();
        let want = usize::from(!host.has_mail());
        tolerate(uring.submit_and_wait(want));
        self.bells[self.me].work();
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
                    self.not_heard(id.index, result);
                    false
                }
                op if op == Op::Tick as u8 => {
                    if !cqueue::more(flags) {
                        self.ticking.set(false);
                    }
                    self.ticks.set(self.ticks.get() + 1);
                    self.quiet_ticks.set(self.quiet_ticks.get() + 1);
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
