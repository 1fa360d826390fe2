//! The end: SIGTERM, SIGINT and SHUTDOWN stop accepting, let replies leave, and end the process within a second.

use super::Server;
use super::client::Close;
use crate::observe::log;
use futures_lite::AsyncReadExt;
use glommio::net::UnixStream;
use glommio::timer::Timer;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long replies may take to leave.
const DRAIN: Duration = Duration::from_millis(500);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Waits on the first shard for the byte that the signal thread writes.
pub fn watch_signals(server: &Rc<Server>, signals: OwnedFd) {
    let server = server.clone();
    // SAFETY: open and ours; the stream closes it.
    let mut stream = unsafe { UnixStream::from_raw_fd(signals.into_raw_fd()) };
    glommio::spawn_local(async move {
        let mut byte = [0];
        if stream.read(&mut byte).await.is_ok() {
            log::warning(format_args!("Received {}, scheduling shutdown...", name(byte[0])));
            shutdown(&server).await;
        }
    })
    .detach();
}

fn name(signal: u8) -> &'static str {
    match i32::from(signal) {
        libc::SIGTERM => "SIGTERM",
        libc::SIGINT => "SIGINT",
        _ => "a signal",
    }
}

/// Stops the server; the process ends before this returns.
pub async fn shutdown(server: &Rc<Server>) {
    server.global.stopping.store(true, Ordering::Relaxed);
    super::listen::stop(&server.global.sockets);
    log::notice(format_args!("User requested shutdown..."));
    let deadline = Instant::now() + DRAIN;
    let close = |shard: &Rc<crate::shard::Shard>| {
        for client in Server::of(shard).clients() {
            let mut state = client.state.borrow_mut();
            if state.flow.close == Close::No {
                state.flow.close = Close::AfterReplies;
            }
            drop(state);
            super::connection::settle(&Server::of(shard), &client);
        }
    };
    let closed = server.shard.call_all(close);
    futures_lite::future::or(async { drop(closed.await) }, async {
        Timer::new(DRAIN).await;
    })
    .await;
    // The connection that asked for this waits for its reply for ever: it does not count.
    let unsent = |shard: &Rc<crate::shard::Shard>| {
        Server::of(shard).clients().iter().any(|client| client.state.borrow().unsent() > 0)
    };
    while Instant::now() < deadline {
        let waiting = futures_lite::future::or(server.shard.call_all(unsent), async {
            Timer::new(DRAIN).await;
            Vec::new()
        });
        if !waiting.await.contains(&true) {
            break;
        }
        Timer::new(LOOK_EVERY).await;
    }
    log::warning(format_args!("EmberDB is now ready to exit, bye bye..."));
    let config = server.shard.config();
    for file in [&config.pidfile, &config.unixsocket] {
        if !file.is_empty() {
            let _ = std::fs::remove_file(file);
        }
    }
    log::flush();
    std::process::exit(0);
}
