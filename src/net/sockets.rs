//! Connections through glommio's sockets: a task for each reads; what is to be sent leaves at once, and only where the
//! socket takes no more does a task wait for room.

use super::rest::rest_now_and_then;
use super::timers::Timers;
use super::{Bell, Host, Line, LineId, Notify, outside};
use crate::clock::store_us;
use futures_lite::future::{or, poll_fn, yield_now};
use futures_lite::{AsyncRead, AsyncWrite};
use glommio::io::BufferedFile;
use glommio::net::TcpStream;
use glommio::timer::Timer;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

const SCRATCH_BYTES: usize = 64 * 1024;
/// Between two looks at the bell after an error that passes.
const RETRY: Duration = Duration::from_millis(1);
/// Timers further away than this are set anew when they ring.
const FARTHEST: Duration = Duration::from_secs(3600);
/// Between two tries to put mail into a full link.
const FULL_LINK: Duration = Duration::from_millis(1);

struct Socket {
    fd: RawFd,
    line: RefCell<Option<Rc<dyn Line>>>,
    reading: Cell<bool>,
    shut: Cell<bool>,
    /// `reading` or `shut` has changed.
    changed: Notify,
    /// Something is being sent.
    sending: Cell<bool>,
    dirty: Cell<bool>,
}

pub struct Sockets {
    me: usize,
    bells: Arc<[Bell]>,
    /// Mail may have come, or waits to be sent.
    kick: Notify,
    sockets: RefCell<HashMap<u32, Rc<Socket>, ahash::RandomState>>,
    next: Cell<u32>,
    /// What sockets are read into: one buffer for all, since nothing is awaited while it is in use.
    scratch: RefCell<Vec<u8>>,
    dirty: RefCell<Vec<Rc<Socket>>>,
    flush: Notify,
}

impl Sockets {
    pub fn new(me: usize, bells: Arc<[Bell]>) -> Rc<Sockets> {
        Rc::new(Sockets {
            me,
            bells,
            kick: Notify::default(),
            sockets: RefCell::default(),
            next: Cell::new(0),
            scratch: RefCell::new(vec![0; SCRATCH_BYTES]),
            dirty: RefCell::default(),
            flush: Notify::default(),
        })
    }

    pub(super) fn bell(&self) -> (Arc<[Bell]>, usize) {
        (self.bells.clone(), self.me)
    }

    /// Mail waits to be sent.
    pub fn kick(&self) {
        self.kick.notify();
    }

    /// Carries mail and sends what connections have to say, for as long as the executor runs.
    pub async fn drive(self: Rc<Sockets>, host: Rc<dyn Host>) {
        rest_now_and_then();
        glommio::spawn_local(self.clone().hear()).detach();
        glommio::spawn_local(ring_timers()).detach();
        let pulse = Rc::new(Pulse::default());
        glommio::spawn_local(pulse.clone().beat(self.bells.clone(), self.me)).detach();
        glommio::spawn_local(self.clone().send_all()).detach();
        let bell = &self.bells[self.me];
        loop {
            host.send_mail(&mut |target| {
                if self.bells[target].is_to_be_rung() {
                    self.bells[target].ring_from_outside();
                }
            });
            if host.receive_mail() {
                glommio::executor().yield_task_queue_now().await;
                continue;
            }
            if host.has_outgoing() {
                // The link is full: whoever empties it does not ring.
                or(self.kick.wait(), async {
                    Timer::new(FULL_LINK).await;
                })
                .await;
                continue;
            }
            pulse.rest();
            bell.wait();
            if !host.has_mail() {
                self.kick.wait().await;
            }
            bell.work();
            pulse.quicken();
        }
    }

    /// Goes on whenever the bell has rung.
    async fn hear(self: Rc<Sockets>) {
        // SAFETY: the descriptor is open as long as the bell; the file must not close it.
        let file = ManuallyDrop::new(unsafe { BufferedFile::from_raw_fd(self.bells[self.me].event()) });
        loop {
            if let Err(error) = file.read_at(0, size_of::<u64>()).await {
                // A shard that cannot be woken is deaf: what does not pass ends the process.
                let error = io::Error::from(error);
                let passes = [libc::EINTR, libc::EAGAIN, libc::ENOMEM];
                assert!(error.raw_os_error().is_some_and(|code| passes.contains(&code)), "eventfd: {error}");
                Timer::new(RETRY).await;
            }
            self.kick.notify();
            outside::rung();
        }
    }

    async fn send_all(self: Rc<Sockets>) {
        loop {
            self.flush.wait().await;
            for socket in self.dirty.take() {
                socket.dirty.set(false);
                send(&socket);
            }
        }
    }

    fn get(&self, id: LineId) -> Option<Rc<Socket>> {
        self.sockets.borrow().get(&id.index).cloned()
    }

    pub(super) fn open(&self, fd: RawFd) -> LineId {
        let index = self.next.replace(self.next.get().wrapping_add(1));
        let socket = Rc::new(Socket {
            fd,
            line: RefCell::default(),
            reading: Cell::new(true),
            shut: Cell::new(false),
            changed: Notify::default(),
            sending: Cell::new(false),
            dirty: Cell::new(false),
        });
        self.sockets.borrow_mut().insert(index, socket);
        LineId { index, generation: 0 }
    }

    pub(super) fn start(self: &Rc<Sockets>, id: LineId, line: Rc<dyn Line>) {
        if let Some(socket) = self.get(id) {
            socket.line.replace(Some(line.clone()));
            glommio::spawn_local(read(self.clone(), id, socket, line)).detach();
        }
    }

    pub(super) fn mark(&self, id: LineId) {
        if let Some(socket) = self.get(id)
            && !socket.dirty.replace(true)
        {
            self.dirty.borrow_mut().push(socket);
            self.flush.notify();
        }
    }

    pub(super) fn set_reading(&self, id: LineId, reading: bool) {
        if let Some(socket) = self.get(id)
            && socket.reading.replace(reading) != reading
        {
            socket.changed.notify();
        }
    }

    pub(super) fn shut(&self, id: LineId) {
        if let Some(socket) = self.get(id) {
            if !socket.shut.get()
                && !socket.sending.get()
                && let Some(line) = &*socket.line.borrow()
            {
                super::say_farewell(socket.fd, &**line);
            }
            end(&socket);
        }
    }
}

/// Rings the timers of this executor.
async fn ring_timers() {
    let timers = Timers::here();
    loop {
        match timers.next_us() {
            None => timers.earlier.wait().await,
            Some(next_us) => {
                let rest = Duration::from_micros(next_us.saturating_sub(store_us())).min(FARTHEST);
                or(timers.earlier.wait(), async {
                    Timer::new(rest).await;
                })
                .await;
            }
        }
        timers.ring(store_us());
    }
}

fn end(socket: &Socket) {
    if !socket.shut.replace(true) {
        super::shut(socket.fd);
        socket.changed.notify();
    }
}

async fn read(sockets: Rc<Sockets>, id: LineId, socket: Rc<Socket>, line: Rc<dyn Line>) {
    // glommio runs a new task at once; this one must not within a turn of somebody else.
    yield_now().await;
    // SAFETY: the descriptor is open and ours; the stream closes it.
    let mut stream = unsafe { TcpStream::from_raw_fd(socket.fd) };
    while !socket.shut.get() {
        if !socket.reading.get() {
            socket.changed.wait().await;
            continue;
        }
        let got = poll_fn(|cx| {
            let mut scratch = sockets.scratch.borrow_mut();
            match Pin::new(&mut stream).poll_read(cx, &mut scratch[..]) {
                Poll::Ready(Ok(len)) if len > 0 => {
                    line.received(&scratch[..len]);
                    Poll::Ready(Ok(true))
                }
                Poll::Ready(Ok(_)) => Poll::Ready(Ok(false)),
                Poll::Ready(Err(_)) => Poll::Ready(Err(())),
                Poll::Pending => Poll::Pending,
            }
        });
        match got.await {
            // A connection that always has more to say must not keep the others waiting.
            Ok(true) => glommio::executor().yield_if_needed().await,
            Ok(false) => {
                socket.reading.set(false);
                line.finished();
            }
            Err(()) => end(&socket),
        }
    }
    sockets.sockets.borrow_mut().remove(&id.index);
    socket.line.take();
    line.ended();
}

/// Sends what is ready, as far as the socket takes it; the rest is left to a task.
fn send(socket: &Rc<Socket>) {
    if socket.sending.get() || socket.shut.get() {
        return;
    }
    let Some(line) = socket.line.borrow().clone() else { return };
    let Some(buffer) = line.take_output() else { return };
    match super::send_now(socket.fd, &buffer) {
        Ok(sent) if sent == buffer.len() => line.sent(sent, Some(buffer)),
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => end(socket),
        result => {
            let sent = result.unwrap_or(0);
            line.sent(sent, None);
            socket.sending.set(true);
            glommio::spawn_local(send_rest(socket.clone(), line, buffer, sent)).detach();
        }
    }
}

/// Waits until the socket takes more, and goes on until everything is sent.
async fn send_rest(socket: Rc<Socket>, line: Rc<dyn Line>, buffer: Vec<u8>, mut sent: usize) {
    yield_now().await;
    // The reading task owns the socket; waiting for room needs a descriptor of its own.
    // SAFETY: `dup` has no preconditions; the result is checked.
    let copy = if socket.shut.get() { -1 } else { unsafe { libc::dup(socket.fd) } };
    if copy < 0 {
        end(&socket);
        return;
    }
    // SAFETY: open and ours; the stream closes it.
    let mut stream = unsafe { TcpStream::from_raw_fd(copy) };
    while sent < buffer.len() {
        let more = poll_fn(|cx| {
            if socket.shut.get() {
                return Poll::Ready(None);
            }
            Pin::new(&mut stream).poll_write(cx, &buffer[sent..]).map(Result::ok)
        });
        let Some(more) = more.await else {
            end(&socket);
            return;
        };
        sent += more;
        if sent < buffer.len() {
            line.sent(more, None);
        } else {
            socket.sending.set(false);
            line.sent(more, Some(buffer));
            return;
        }
    }
}

/// Makes sure that the executor wakes up. glommio 0.9 sleeps although tasks are ready where its thread was held up by
/// the system for longer than its preemption timer right before it would have run them (`run_task_queues` then says that
/// there were none); it would sleep until something else happens. The pulse itself is such a task, so a beat that is
/// lost has others behind it, and some of them so far behind that they are still to come after the thread was held up
/// for long: one that lost all its timers in such a pause would sleep for ever.
#[derive(Default)]
pub(super) struct Pulse {
    rests: Cell<bool>,
    quickened: Notify,
}

/// How long it may sleep then: while there is work, and while there is none (when its first piece comes).
const PULSE: Duration = Duration::from_millis(2);
const RESTING_PULSE: Duration = Duration::from_millis(100);
/// Timers that are set for each beat, each so many times further away than the one before, so that the last is minutes
/// away: the first that is heard takes the others back.
const TIMERS_A_BEAT: usize = 8;
const FURTHER: u32 = 4;

impl Pulse {
    /// There is work.
    pub fn quicken(&self) {
        if self.rests.replace(false) {
            self.quickened.notify();
        }
    }

    /// Nothing is ready, and what comes wakes the executor.
    pub fn rest(&self) {
        self.rests.set(true);
    }

    /// Beats for as long as the executor runs, and counts that on the shard's bell.
    pub async fn beat(self: Rc<Pulse>, bells: Arc<[Bell]>, me: usize) {
        loop {
            bells[me].beat();
            if self.rests.get() {
                or(self.quickened.wait(), next_beat(RESTING_PULSE)).await;
            } else {
                next_beat(PULSE).await;
            }
        }
    }
}

async fn next_beat(pulse: Duration) {
    let mut timers: [Timer; TIMERS_A_BEAT] = std::array::from_fn(|n| Timer::new(pulse * FURTHER.pow(n as u32)));
    poll_fn(|cx| {
        let ready = timers.iter_mut().fold(false, |ready, timer| ready | Pin::new(timer).poll(cx).is_ready());
        if ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
