//! SYNC and PSYNC for tools that want a snapshot and nothing after it (`redis-cli --rdb`): it is made as BGSAVE makes one,
//! into a file that has no name any more when it is sent, a piece at a time, as fast as the other side reads.
//!
//! ```text
//! \n \n ...            while it is made
//! $<length>\r\n        then its bytes, and the end of the connection
//! ```

use super::saving;
use crate::clock::{realtime_us, store_us};
use crate::net::sleep;
use crate::observe::log;
use crate::persist::writing::How;
use crate::resp::{Error, Result};
use crate::server::client::Client;
use crate::server::client::session::{Close, Contents};
use crate::server::state::{Server, TaskCtx};
use crate::server::told::output::{close_now, push, send_pushed};
use futures_lite::future::or;
use std::fs::File;
use std::io::{self, Read};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What is read of the file at a time; the connection holds no more than twice as much.
const PIECE_BYTES: usize = 128 << 10;
/// How often the other side is told that it goes on.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// How long to wait until a snapshot of others is made.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long to wait for a reader, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(50);

const NO_REPLICAS: Error = Error::text(
    "ERR there is no replication: a snapshot is sent to who has said REPLCONF rdb-only 1 (redis-cli --rdb), and no changes \
     after it",
);
const IS_TOLD: Error =
    Error::text("ERR a snapshot would be mixed with what this connection is told: messages, or what others do");
const STOPPING: Error = Error::text("ERR the server ends");

/// A snapshot that was made for a connection.
enum Made {
    Bytes(Vec<u8>),
    File(File, u64),
}

/// Sends a snapshot behind `first`, then ends the connection.
pub async fn send(ctx: &TaskCtx, first: &[u8]) -> Result<Vec<u8>> {
    let (server, client) = (&ctx.server, &*ctx.client);
    let (asked, is_told) = {
        let session = &client.state.borrow().session;
        (session.asked, session.is_told() || session.tracks.is_some())
    };
    if !asked.rdb_only {
        return Err(NO_REPLICAS);
    }
    if is_told {
        return Err(IS_TOLD);
    }
    client.state.borrow_mut().session.is_sent_snapshot = true;
    tell(ctx, first);
    log::notice(format_args!("Client id={} asks for a snapshot", client.id));
    let made = or(make(server, client, asked.contents), keep_alive(ctx)).await;
    let sent = match made {
        Ok(Some(Made::Bytes(bytes))) => {
            tell(ctx, format!("${}\r\n", bytes.len()).as_bytes());
            tell(ctx, &bytes);
            Ok(())
        }
        Ok(Some(Made::File(file, len))) => {
            tell(ctx, format!("${len}\r\n").as_bytes());
            send_file(ctx, file, len).await
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

fn tell(ctx: &TaskCtx, bytes: &[u8]) {
    push(&ctx.server, &ctx.client, bytes);
    send_pushed(&ctx.server);
}

/// Whether nobody is there any more.
fn is_gone(client: &Client) -> bool {
    client.closed.get() || client.state.borrow().flow.close == Close::Now
}

async fn keep_alive<R>(ctx: &TaskCtx) -> R {
    loop {
        sleep(KEEP_ALIVE).await;
        tell(ctx, b"\n");
    }
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
    Ok(Some(Made::File(file, len)))
}

/// Sends what is in the file; who does not read for as long as `repl-timeout` says is given up.
async fn send_file(ctx: &TaskCtx, mut file: File, len: u64) -> std::result::Result<(), String> {
    let mut left = len;
    while left > 0 {
        let piece_len = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES);
        let read = ctx.server.transport.beside(move || read_piece(file, piece_len));
        let (again, piece) = read.await.and_then(|read| read).map_err(|error| error.to_string())?;
        file = again;
        left -= piece_len as u64;
        wait_for_room(ctx).await?;
        tell(ctx, &piece);
    }
    Ok(())
}

fn read_piece(mut file: File, len: usize) -> io::Result<(File, Vec<u8>)> {
    let mut piece = vec![0; len];
    file.read_exact(&mut piece)?;
    Ok((file, piece))
}

async fn wait_for_room(ctx: &TaskCtx) -> std::result::Result<(), String> {
    let client = &*ctx.client;
    let (mut pause, mut before, mut since_us) = (PAUSE_MIN, usize::MAX, store_us());
    loop {
        if is_gone(client) {
            return Err("nobody is there any more".to_owned());
        }
        let unsent = client.state.borrow().unsent();
        if unsent < PIECE_BYTES {
            return Ok(());
        }
        if unsent < before {
            (pause, before, since_us) = (PAUSE_MIN, unsent, store_us());
        }
        let timeout_s = ctx.server.shard.config().repl_timeout_s;
        if store_us().saturating_sub(since_us) > timeout_s.saturating_mul(1_000_000) {
            return Err(format!("nothing was read for {timeout_s} seconds"));
        }
        sleep(pause).await;
        pause = (2 * pause).min(PAUSE_MAX);
    }
}
