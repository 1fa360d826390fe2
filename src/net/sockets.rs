//! Connections through glommio's sockets: a task for each reads; what is to be sent leaves at once, and only where the
//! socket takes no more does a task wait for room.

use super::bell::{Bell, Event, ring_event};
use super::notify::Pulse;
use super::{Host, Line, LineId, Notify};
use futures_lite::future::{or, poll_fn, yield_now};
use futures_lite::{AsyncRead, AsyncWrite};
use glommio::net::TcpStream;
use glommio::timer::Timer;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::os::fd::{FromRawFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

const SCRATCH_BYTES: usize = 64 * 1024;
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
    event: Rc<Event>,
    sockets: RefCell<HashMap<u32, Rc<Socket>, ahash::RandomState>>,
    next: Cell<u32>,
    /// What sockets are read into: one buffer for all, since nothing is awaited while it is in use.
    scratch: RefCell<Vec<u8>>,
    dirty: RefCell<Vec<Rc<Socket>>>,
    flush: Notify,
}

impl Sockets {
    /// # Errors
    /// Too many open files.
    pub fn new(me: usize, bells: Arc<[Bell]>) -> io::Result<Rc<Sockets>> {
        let event = Event::new()?;
        bells[me].hang_up(event.fd());
        Ok(Rc::new(Sockets {
            me,
            bells,
            event,
            sockets: RefCell::default(),
            next: Cell::new(0),
            scratch: RefCell::new(vec![0; SCRATCH_BYTES]),
            dirty: RefCell::default(),
            flush: Notify::default(),
        }))
    }

    /// Mail waits to be sent.
    pub fn kick(&self) {
        self.event.kick.notify();
    }

    /// Carries mail and sends what connections have to say, for as long as the executor runs.
    pub async fn drive(self: Rc<Sockets>, host: Rc<dyn Host>) {
        glommio::spawn_local(self.event.clone().forward()).detach();
        let pulse = Rc::new(Pulse::default());
        glommio::spawn_local(pulse.clone().beat(self.bells.clone(), self.me)).detach();
        glommio::spawn_local(self.clone().send_all()).detach();
        let bell = &self.bells[self.me];
        loop {
            host.send_mail(&mut |target| {
                if let Some(event) = self.bells[target].to_ring() {
                    ring_event(event);
                }
            });
            if host.receive_mail() {
                glommio::executor().yield_task_queue_now().await;
                continue;
            }
            if host.has_outgoing() {
                // The link is full: whoever empties it does not ring.
                or(self.event.kick.wait(), async {
                    Timer::new(FULL_LINK).await;
                })
                .await;
                continue;
            }
            pulse.rest();
            bell.wait();
            if !host.has_mail() {
                self.event.kick.wait().await;
            }
            bell.work();
            pulse.quicken();
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
            end(&socket);
        }
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
    match send_now(socket.fd, &buffer) {
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

fn send_now(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the slice is valid for reading; a descriptor that is closed already is an error, not a fault.
    let sent = unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}
