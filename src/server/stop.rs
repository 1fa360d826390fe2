//! The end: SIGTERM, SIGINT and SHUTDOWN stop accepting, let replies leave, and end the process within a second.

use super::client::session::Close;
use super::kept::rewriting;
use super::kept::saving;
use super::replication::waiting::{go_on, let_catch_up};
use super::state::Server;
use super::told::output::settle;
use crate::config::ShutdownFlags;
use crate::executor;
use crate::net::{next_from_outside, sleep};
use crate::observe::{log, supervisor};
use crate::resp::Result;
use futures_lite::future::or;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// How long replies may take to leave.
const DRAIN: Duration = Duration::from_millis(500);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Waits on the first shard for what the signal thread sends.
pub fn watch_signals(server: &Rc<Server>, signals: Receiver<i32>) {
    let server = server.clone();
    executor::spawn(async move {
        while let Some(signal) = next_from_outside(&signals).await {
            log::warning(format_args!("Received {}, scheduling shutdown...", name(signal)));
            let config = server.shard.config();
            let flags = if signal == libc::SIGINT { config.shutdown_on_sigint } else { config.shutdown_on_sigterm };
            // (A second signal is read when this one is done with: it does not make the first wait any less.)
            if !flags.now && let_catch_up(&server).await.is_err() {
                continue;
            }
            if save_before(&server, flags).await.is_ok() {
                shutdown(&server).await;
            }
            go_on(&server).await;
        }
    });
}

fn name(signal: i32) -> &'static str {
    match signal {
        libc::SIGTERM => "SIGTERM",
        libc::SIGINT => "SIGINT",
        _ => "a signal",
    }
}

/// The snapshot that is asked for; where it fails, the server stays unless it is forced to end. While data is loaded there
/// is none: a part of the data would take the place of all of it.
pub async fn save_before(server: &Rc<Server>, flags: ShutdownFlags) -> Result {
    let has_save_points = !server.shard.config().save.is_empty();
    if server.global.snapshots.is_taking_in() || !flags.saves(has_save_points) {
        return Ok(());
    }
    let saved = saving::save_last(server).await;
    if saved.is_err() && flags.force {
        log::warning(format_args!("Error trying to save the DB. Exit anyway."));
        return Ok(());
    }
    saved.inspect_err(|_| log::warning(format_args!("Error trying to save the DB, can't exit.")))
}

/// Stops the server; the process ends before this returns.
pub async fn shutdown(server: &Rc<Server>) {
    server.global.stopping.store(true, Ordering::Relaxed);
    supervisor::stopping();
    // No snapshot is begun any more.
    server.global.snapshots.gives_up.store(true, Ordering::Relaxed);
    super::wire::listen::stop(&server.global.listeners);
    log::notice(format_args!("User requested shutdown..."));
    let deadline = Instant::now() + DRAIN;
    let close = |shard: &Rc<crate::shard::Shard>| {
        for client in Server::of(shard).clients().into_iter().filter(|client| !client.replays()) {
            // The process ends before anybody can tell whether what it took for them has arrived.
            Server::of(shard).waits.withdraw(client.id);
            let mut state = client.state.borrow_mut();
            if state.flow.close == Close::No {
                state.flow.close = Close::AfterReplies;
            }
            drop(state);
            settle(&Server::of(shard), &client);
        }
    };
    let closed = server.shard.call_all(close);
    or(async { drop(closed.await) }, sleep(DRAIN)).await;
    // The connection that asked for this waits for its reply for ever: it does not count.
    let unsent = |shard: &Rc<crate::shard::Shard>| {
        Server::of(shard).clients().iter().any(|client| client.state.borrow().unsent() > 0)
    };
    while Instant::now() < deadline {
        let waiting = or(server.shard.call_all(unsent), async {
            sleep(DRAIN).await;
            Vec::new()
        });
        if !waiting.await.contains(&true) {
            break;
        }
        sleep(LOOK_EVERY).await;
    }
    if let Err(error) = rewriting::end_log(server).await {
        log::warning(format_args!("The append only file is not on the disk: {error}"));
    }
    log::warning(format_args!("EmberDB is now ready to exit, bye bye..."));
    let config = server.shard.config();
    for file in [&config.pidfile, &config.unixsocket] {
        if !file.is_empty() {
            let _ = std::fs::remove_file(file);
        }
    }
    saving::leave_nothing(server);
    log::flush();
    std::process::exit(0);
}
