//! The tokens of leases: given, and allowed by their file in the working folder, which a thread writes.

use crate::clock::realtime_us;
use crate::executor;
use crate::net::{on_thread, sleep};
use crate::observe::log;
use crate::persist::tokens::{FILE, Reserving};
use crate::resp::{Error, Result};
use crate::server::state::Server;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// How often those look who wait until more tokens may be given.
const LOOK_EVERY: Duration = Duration::from_millis(1);

fn path(server: &Server) -> PathBuf {
    Path::new(&server.shard.config().dir).join(FILE)
}

/// A run begins, of the process or as a primary: it gives greater tokens than any before. Where the file cannot be read none
/// are given, which TAKE answers.
pub async fn begin(server: &Rc<Server>) {
    let (global, path) = (server.global.clone(), path(server));
    let began = on_thread("lease-tokens", move || global.tokens.begin(&path, realtime_us() / 1_000)).await.flatten();
    if let Err(error) = began {
        log::warning(format_args!("The tokens of leases cannot be read ({FILE}): {error}"));
    }
}

/// The next token, as soon as it is certain that no server gives it again.
pub async fn next(server: &Rc<Server>) -> Result<u64> {
    let tokens = &server.global.tokens;
    loop {
        if let Some(token) = tokens.take() {
            if tokens.are_few() {
                reserve_ahead(server);
            }
            return Ok(token);
        }
        match tokens.start_reserving() {
            Some(reserving) => reserve(server, reserving).await?,
            None => sleep(LOOK_EVERY).await,
        }
    }
}

/// Nobody waits for it.
fn reserve_ahead(server: &Rc<Server>) {
    let server = server.clone();
    executor::spawn(async move {
        if let Some(reserving) = server.global.tokens.start_reserving()
            && let Err(error) = reserve(&server, reserving).await
        {
            log::warning(format_args!("{error}"));
        }
    });
}

async fn reserve(server: &Rc<Server>, _reserving: Reserving<'_>) -> Result {
    let (global, path) = (server.global.clone(), path(server));
    let reserved =
        on_thread("lease-tokens", move || global.tokens.reserve(&path, realtime_us() / 1_000)).await.flatten();
    reserved.map_err(|error| Error::err(format_args!("Tokens of leases cannot be saved ({FILE}): {error}")))
}
