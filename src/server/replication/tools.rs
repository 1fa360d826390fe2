//! SYNC and PSYNC for tools that want a snapshot and nothing after it (`redis-cli --rdb`): it is made as BGSAVE makes one,
//! into a file that has no name any more when it is sent, a piece at a time, as fast as the other side reads.
//!
//! ```text
//! \n \n ...            while it is made
//! $<length>\r\n        then its bytes, and the end of the connection
//! ```

use super::sending::{LOOK_EVERY, check, is_gone, keep_alive, send_all, tell};
use crate::clock::realtime_us;
use crate::net::{Nameless, sleep};
use crate::observe::log;
use crate::persist::writing::How;
use crate::resp::{Error, Result};
use crate::server::client::Client;
use crate::server::client::session::{Close, Contents};
use crate::server::kept::saving;
use crate::server::state::syncs::Source;
use crate::server::state::{Server, TaskCtx};
use crate::server::told::output::close_now;
use futures_lite::future::or;
use std::fs::File;
use std::rc::Rc;
use std::sync::atomic::Ordering;

const STOPPING: Error = Error::text("ERR the server ends");

/// A snapshot that was made for a connection.
enum Made {
    Bytes(Vec<u8>),
    File(Nameless, u64),
}

/// Sends a snapshot behind `first`, then ends the connection.
pub async fn send(ctx: &TaskCtx, first: &[u8]) -> Result<Vec<u8>> {
    let (server, client) = (&ctx.server, &*ctx.client);
    check(client)?;
    let contents = client.state.borrow().session.asked.contents;
    client.state.borrow_mut().session.is_sent_snapshot = true;
    tell(ctx, first);
    log::notice(format_args!("Client id={} asks for a snapshot", client.id));
    let made = or(make(server, client, contents), keep_alive(ctx)).await;
    let sent = match made {
        Ok(Some(Made::Bytes(bytes))) => {
            tell(ctx, format!("${}\r\n", bytes.len()).as_bytes());
            tell(ctx, &bytes);
            Ok(())
        }
        Ok(Some(Made::File(file, len))) => {
            tell(ctx, format!("${len}\r\n").as_bytes());
            send_all(ctx, Source::file(file.into(), len)).await
        }
        Ok(None) => Ok(()),
        Err(error) => {
            client.state.borrow_mut().session.is_sent_snapshot = false;
            return Err(error);
        }
    };
    match sent {
        Ok(()) => client.state.borrow_mut().session.close = Close::AfterReplies,
        Err(reason) => {
            log::warning(format_args!("Client id={} closed: its snapshot was not sent: {reason}", client.id));
            close_now(server, client);
        }
    }
    Ok(Vec::new())
}

/// None where nobody wants it any more.
async fn make(server: &Rc<Server>, client: &Client, contents: Contents) -> Result<Option<Made>> {
    if contents != Contents::Everything {
        return Ok(Some(Made::Bytes(saving::without_keys(server, contents))));
    }
    while saving::begin(server).is_err() {
        if is_gone(client) {
            return Ok(None);
        }
        if server.global.snapshots.gives_up.load(Ordering::Relaxed) {
            return Err(STOPPING);
        }
        sleep(LOOK_EVERY).await;
    }
    server.global.snapshots.began_s.store(realtime_us() / 1_000_000, Ordering::Relaxed);
    let made = make_file(server, client).await;
    server.global.snapshots.began_s.store(0, Ordering::Relaxed);
    server.global.snapshots.is_saving.store(false, Ordering::Relaxed);
    if let Err(error) = &made {
        log::warning(format_args!("No snapshot for client id={}: {error}", client.id));
    }
    made
}

async fn make_file(server: &Rc<Server>, client: &Client) -> Result<Option<Made>> {
    let config = server.shard.config();
    // The disk need not have it: it is read at once, and nobody wants it later.
    let how = How { compresses: config.rdbcompression, checksum: config.rdbchecksum, ..How::default() };
    let path = saving::for_tools(&config.dir);
    let name = path.to_string_lossy().into_owned();
    let failed = |reason: &dyn std::fmt::Display| Error::err(format_args!("Error making a snapshot: {reason}"));
    let mut is_whole = false;
    for _ in 0..saving::ATTEMPTS {
        if is_gone(client) {
            return Ok(None);
        }
        if server.global.snapshots.gives_up.load(Ordering::Relaxed) {
            return Err(STOPPING);
        }
        let begun = saving::begin_beside(server).await;
        let written = saving::write_file(server, begun, name.clone(), how.clone()).await;
        is_whole = written.map_err(|reason| failed(&reason))?.is_some();
        if is_whole {
            break;
        }
    }
    if !is_whole {
        return Err(failed(&"databases were emptied all the time"));
    }
    let opened = server.transport.beside(move || {
        let file = File::open(&path).and_then(|file| Ok((file.metadata()?.len(), file)));
        std::fs::remove_file(&path).and(file)
    });
    let (len, file) = opened.await.and_then(|opened| opened).map_err(|error| failed(&error))?;
    Ok(Some(Made::File(Nameless::new(file), len)))
}
