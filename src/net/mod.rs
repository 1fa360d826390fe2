//! Bytes to and from connections: the boundary between sockets and what the server makes of them, with three
//! implementations.
//!
//! ```text
//!  Line (a connection, as the server sees it)
//!    ^ received, sent, ended          | open, mark, set_reading, shut
//!    |                                v
//!  Transport ── Ring     an io_uring of our own inside the executor; the default (Linux 6.1 or newer)
//!            ├─ Sockets  glommio's sockets; any kernel that glommio runs on
//!            └─ Epoll    where there is no io_uring; Linux 3.15 or newer (timers on CLOCK_BOOTTIME)
//! ```
//!
//! `choice.rs` says which it is.
//!
//! A transport calls a line from its own turn, one line at a time, and never while it is being called by one: a line
//! may call back. What lines want to send is collected, and leaves at the end of the turn.
//!
//! `tls/` stands between the two where a connection is encrypted.
//!
//! `http.rs` is apart: pages for those who watch over the server, on a thread of their own.

mod alarm;
mod bell;
mod buffers;
mod choice;
mod epoll;
pub mod http;
mod listener;
mod notify;
mod outside;
mod rest;
mod ring;
mod sockets;
mod timers;
pub mod tls;
mod turns;
mod watchdog;

pub use bell::Bell;
pub use choice::{Chosen, choose};
pub use epoll::Epoll;
pub use listener::{Listener, ListenerKind};
pub use notify::{Notify, note_woken};
pub use outside::{Nameless, next_from_outside, on_thread, rung_outside};
pub use rest::{step_back, step_back_in_turn};
pub use ring::Ring;
pub use sockets::Sockets;
pub use timers::{Sleep, sleep};
pub use watchdog::watch_over;

use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// A connection, as the server sees it.
pub trait Line {
    /// Bytes have come; they are gone when the call returns.
    fn received(&self, bytes: &[u8]);
    /// What is to be sent now, if anything. Not called again before [`Line::sent`].
    fn take_output(&self) -> Option<Vec<u8>>;
    /// `bytes` more of the output were sent; with the last of them the buffer comes back.
    fn sent(&self, bytes: usize, buffer: Option<Vec<u8>>);
    /// The other side says no more. The connection stays open, unread, until it is shut.
    fn finished(&self);
    /// The connection is closed, by whomever. Nothing is called any more.
    fn ended(&self);
    /// What is still to be said where the connection is about to be shut and nothing is being sent. No transport may be
    /// called from here.
    fn farewell(&self) -> Vec<u8> {
        Vec::new()
    }
}

/// What a transport carries beside the connections' bytes: mail between shards.
pub trait Host {
    /// Works on what has come; whether there was anything.
    fn receive_mail(&self) -> bool;
    fn has_mail(&self) -> bool;
    /// Whether mail waits to be sent.
    fn has_outgoing(&self) -> bool;
    /// The moment, store microseconds, as it was last looked at.
    fn now_us(&self) -> u64;
    /// Whether this turn has lasted so long that what it has written should leave before it goes on.
    fn is_overdue(&self) -> bool;
    /// Sends what was written to others in this turn. Returns whom to wake.
    fn send_mail(&self, wake: &mut dyn FnMut(usize));
}

/// A connection's name in its transport. Names of closed connections are not used again soon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineId {
    index: u32,
    generation: u32,
}

#[derive(Clone)]
pub enum Transport {
    Ring(Rc<Ring>),
    Sockets(Rc<Sockets>),
    Epoll(Rc<Epoll>),
}

impl Transport {
    /// Takes over a socket, which is closed with the connection. Nothing is read before [`Transport::start`].
    pub fn open(&self, fd: RawFd) -> LineId {
        match self {
            Transport::Ring(ring) => ring.open(fd),
            Transport::Sockets(sockets) => sockets.open(fd),
            Transport::Epoll(epoll) => epoll.open(fd),
        }
    }

    /// Starts to read.
    pub fn start(&self, id: LineId, line: Rc<dyn Line>) {
        match self {
            Transport::Ring(ring) => ring.start(id, line),
            Transport::Sockets(sockets) => sockets.start(id, line),
            Transport::Epoll(epoll) => epoll.start(id, line),
        }
    }

    /// The connection has something to send.
    #[inline]
    pub fn mark(&self, id: LineId) {
        match self {
            Transport::Ring(ring) => ring.mark(id),
            Transport::Sockets(sockets) => sockets.mark(id),
            Transport::Epoll(epoll) => epoll.mark(id),
        }
    }

    /// Whether the connection is to be read; what comes meanwhile stays in the kernel, but for what has been read
    /// already.
    #[inline]
    pub fn set_reading(&self, id: LineId, reading: bool) {
        match self {
            Transport::Ring(ring) => ring.set_reading(id, reading),
            Transport::Sockets(sockets) => sockets.set_reading(id, reading),
            Transport::Epoll(epoll) => epoll.set_reading(id, reading),
        }
    }

    /// Ends the connection in both directions; [`Line::ended`] follows.
    pub fn shut(&self, id: LineId) {
        match self {
            Transport::Ring(ring) => ring.shut(id),
            Transport::Sockets(sockets) => sockets.shut(id),
            Transport::Epoll(epoll) => epoll.shut(id),
        }
    }

    /// Mail waits to be sent.
    #[inline]
    pub fn kick(&self) {
        match self {
            // Each of its turns sends what there is, and looks for what has come, before it waits.
            Transport::Ring(_) | Transport::Epoll(_) => {}
            Transport::Sockets(sockets) => sockets.kick(),
        }
    }

    /// How long it looks for something to come before it waits. (glommio's sockets wait at once.)
    pub fn set_spin(&self, spin: Duration) {
        match self {
            Transport::Ring(ring) => ring.set_spin(spin),
            Transport::Sockets(_) => {}
            Transport::Epoll(epoll) => epoll.set_spin(spin),
        }
    }

    /// Runs the transport for as long as the executor does.
    pub async fn drive(self, host: Rc<dyn Host>) {
        let (bells, me) = self.bell();
        outside::here_is(bells, me);
        match self {
            Transport::Ring(ring) => ring.drive(host).await,
            Transport::Sockets(sockets) => sockets.drive(host).await,
            Transport::Epoll(epoll) => epoll.drive(host).await,
        }
    }

    /// Runs something that may block on a thread beside the shards, after what others have asked it for.
    ///
    /// # Errors
    /// Where no thread can be had.
    pub async fn beside<R: Send + 'static>(&self, work: impl FnOnce() -> R + Send + 'static) -> io::Result<R> {
        let (bells, me) = self.bell();
        let (sender, receiver) = mpsc::channel();
        outside::beside(Box::new(move || {
            // Where nobody waits any more the process ends.
            let _ = sender.send(work());
            bells[me].ring_from_outside();
        }))?;
        next_from_outside(&receiver).await.ok_or_else(|| io::Error::other("the thread has ended"))
    }

    fn bell(&self) -> (Arc<[Bell]>, usize) {
        match self {
            Transport::Ring(ring) => ring.bell(),
            Transport::Sockets(sockets) => sockets.bell(),
            Transport::Epoll(epoll) => epoll.bell(),
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Transport::Ring(_) => "ring",
            Transport::Sockets(_) => "glommio",
            Transport::Epoll(_) => "epoll",
        }
    }
}

/// Sends as much as the socket takes at once.
fn send_now(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the slice is valid for reading; a descriptor that is closed already is an error, not a fault.
    let sent = unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}

/// Reads what the socket has at once; nothing where the other side says no more.
fn receive_now(fd: RawFd, into: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the slice is valid for writing; a descriptor that is closed already is an error, not a fault.
    let received = unsafe { libc::recv(fd, into.as_mut_ptr().cast(), into.len(), libc::MSG_DONTWAIT) };
    if received < 0 { Err(io::Error::last_os_error()) } else { Ok(received as usize) }
}

/// Says a line's last words, if it has any and the socket takes them.
fn say_farewell(fd: RawFd, line: &dyn Line) {
    let words = line.farewell();
    if !words.is_empty() {
        let _ = send_now(fd, &words);
    }
}

/// Ends a socket in both directions.
pub fn shut(fd: RawFd) {
    // SAFETY: a system call on a number that the caller keeps open.
    unsafe { libc::shutdown(fd, libc::SHUT_RDWR) };
}

/// Lets the end of a socket reach the other side as a reset, as the kernel itself does where a socket is closed with bytes
/// in it that nobody has read. Where such bytes were read and thrown away instead, the other side would find its window
/// shut, and would wait a minute with what it is writing until the kernel has forgotten the socket.
pub fn reset_at_close(fd: RawFd) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the value is of the type that the option takes, and its length goes with it.
    unsafe {
        let value = std::ptr::from_ref(&linger).cast();
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, value, size_of::<libc::linger>() as libc::socklen_t)
    };
}
