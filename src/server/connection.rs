//! One connection's bytes through glommio's sockets.
//!
//! Reading is a task for each connection; all of them read into the shard's one buffer, and requests are parsed where
//! they lie there. Writing happens at once, at the end of the turn that made the replies; only where the socket takes
//! no more does a task wait for it.

use super::client::{Client, ClientRef, Close, OUT_BYTES, Session};
use super::{Server, new_state};
use crate::clock::boottime_us;
use crate::resp::Proto;
use futures_lite::AsyncRead;
use futures_lite::AsyncWrite;
use futures_lite::future::poll_fn;
use glommio::net::TcpStream;
use glommio::timer::Timer;
use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{FromRawFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

/// A connection as it comes from the listener: an open socket that belongs to whoever holds this.
pub struct Accepted {
    /// Ids grow in the order in which connections are accepted.
    pub id: u64,
    pub fd: RawFd,
    pub addr: Option<SocketAddr>,
    pub laddr: Option<SocketAddr>,
}

/// Serves a connection until it ends.
pub fn serve(server: &Rc<Server>, accepted: Accepted) {
    let id = accepted.id;
    let now_us = boottime_us();
    let text = |addr: Option<SocketAddr>| addr.map_or_else(String::new, |addr| addr.to_string());
    let session = Session {
        id,
        fd: accepted.fd,
        addr: text(accepted.addr),
        laddr: text(accepted.laddr),
        local: accepted.addr.is_none_or(|addr| addr.ip().is_loopback()),
        name: Vec::new(),
        lib_name: Vec::new(),
        lib_ver: Vec::new(),
        db: 0,
        proto: Proto::default(),
        authenticated: server.shard.config().requirepass.is_empty(),
        reply_mode: Default::default(),
        no_evict: false,
        no_touch: false,
        created_us: now_us,
        used_us: now_us,
        last_command: "NULL",
        commands: 0,
        channels: Default::default(),
        patterns: Default::default(),
        close: Close::No,
    };
    let client = Rc::new(Client {
        id,
        fd: accepted.fd,
        state: new_state(session),
        resumed: Default::default(),
        closed: Cell::new(false),
    });
    server.register(client.clone());
    // SAFETY: the descriptor is open and ours; the stream closes it.
    let stream = unsafe { TcpStream::from_raw_fd(accepted.fd) };
    glommio::spawn_local(read(server.clone(), client, stream)).detach();
}

async fn read(server: Rc<Server>, client: ClientRef, mut stream: TcpStream) {
    loop {
        if server.shard.is_congested() {
            server.shard.decongested().await;
        }
        if !client.state.borrow().may_read() {
            if client.state.borrow().flow.close != Close::No {
                // Nothing more is read; what was asked for is still answered.
                let state = client.state.borrow();
                if state.flow.close == Close::Now || state.unsent() == 0 && state.replies.is_idle() {
                    break;
                }
            }
            client.resumed.wait().await;
            continue;
        }
        let got = poll_fn(|cx| {
            let mut scratch = server.scratch.borrow_mut();
            match Pin::new(&mut stream).poll_read(cx, &mut scratch[..]) {
                Poll::Ready(Ok(len)) if len > 0 => {
                    server.stats.input_bytes.set(server.stats.input_bytes.get() + len as u64);
                    super::dispatch::advance(&server, &client, &scratch[..len]);
                    Poll::Ready(true)
                }
                Poll::Ready(_) => Poll::Ready(false),
                Poll::Pending => Poll::Pending,
            }
        });
        if !got.await {
            break;
        }
        // A connection that always has more to say must not keep the others waiting.
        glommio::executor().yield_if_needed().await;
    }
    // A task that waits for room on a copy of the descriptor sees the end, too.
    shut(client.fd);
    server.unregister(&client);
}

/// Sends what is ready, as far as the socket takes it.
pub fn flush(server: &Rc<Server>, client: &ClientRef) {
    let mut state = client.state.borrow_mut();
    if state.flow.writing || client.closed.get() {
        return;
    }
    if state.unsent() > 0 && state.flow.close != Close::Now {
        let start = state.flow.sent;
        match send(client.fd, &state.replies.out[start..]) {
            Ok(sent) => {
                server.stats.output_bytes.set(server.stats.output_bytes.get() + sent as u64);
                state.flow.sent += sent;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => state.flow.close = Close::Now,
        }
    }
    if state.unsent() == 0 {
        state.sent_all();
    }
    let close = state.flow.close;
    if close == Close::Now || close == Close::AfterReplies && state.unsent() == 0 && state.replies.is_idle() {
        drop(state);
        shut(client.fd);
        client.resumed.notify();
    } else if state.unsent() > 0 {
        state.flow.writing = true;
        drop(state);
        glommio::spawn_local(write(server.clone(), client.clone())).detach();
        server.check_output(client);
    }
}

/// Waits until the socket takes more, and goes on until everything is sent.
async fn write(server: Rc<Server>, client: ClientRef) {
    // The reading task owns the socket; waiting for room needs a descriptor of its own.
    // SAFETY: `dup` has no preconditions; the result is checked.
    let copy = unsafe { libc::dup(client.fd) };
    if copy < 0 || client.closed.get() {
        server.close_now(&client);
        return;
    }
    // SAFETY: open and ours; the stream closes it.
    let mut stream = unsafe { TcpStream::from_raw_fd(copy) };
    loop {
        let sent = poll_fn(|cx| {
            let state = client.state.borrow();
            if client.closed.get() || state.flow.close == Close::Now {
                return Poll::Ready(None);
            }
            Pin::new(&mut stream).poll_write(cx, &state.replies.out[state.flow.sent..]).map(Result::ok)
        })
        .await;
        let mut state = client.state.borrow_mut();
        let Some(sent) = sent else {
            state.flow.writing = false;
            state.flow.close = Close::Now;
            drop(state);
            if !client.closed.get() {
                shut(client.fd);
                client.resumed.notify();
            }
            return;
        };
        server.stats.output_bytes.set(server.stats.output_bytes.get() + sent as u64);
        state.flow.sent += sent;
        if state.unsent() == 0 {
            state.sent_all();
            state.flow.writing = false;
            break;
        }
        if state.flow.sent > OUT_BYTES {
            // What was sent is given back while the rest waits.
            let sent = std::mem::take(&mut state.flow.sent);
            state.replies.out.drain(..sent);
        }
    }
    super::dispatch::advance(&server, &client, &[]);
}

fn send(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the slice is valid for reading; a descriptor that is closed already is an error, not a fault.
    let sent = unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}

/// Ends a socket in both directions: its reading task sees the end and closes it.
pub fn shut(fd: RawFd) {
    // SAFETY: a system call on a number; the socket is open until its reading task ends.
    unsafe { libc::shutdown(fd, libc::SHUT_RDWR) };
}

/// Once a second: connections that are idle for longer than `timeout`, output limits that go by time, the peak of
/// memory.
pub async fn look_after(server: Rc<Server>) {
    loop {
        Timer::new(Duration::from_secs(1)).await;
        crate::observe::memory::used_bytes();
        let config = server.shard.config();
        let timed = config.timeout_s > 0;
        let limits = config.client_output_buffer_limit;
        if !timed && limits.pubsub.soft_bytes == 0 && limits.normal.soft_bytes == 0 {
            continue;
        }
        let now_us = boottime_us();
        for client in server.clients() {
            let (idle_us, listens, unsent) = {
                let state = client.state.borrow();
                let idle_us = now_us.saturating_sub(state.session.used_us);
                (idle_us, state.session.subscriptions() > 0, state.unsent())
            };
            if timed && !listens && idle_us > config.timeout_s * 1_000_000 {
                crate::observe::log::verbose(format_args!("Closing idle client id={}", client.id));
                server.close_now(&client);
            } else if unsent > 0 {
                server.check_output(&client);
            }
        }
    }
}
