//! A snapshot on its way to one connection, a piece at a time, as fast as the other side reads.

use crate::clock::store_us;
use crate::net::sleep;
use crate::persist::handout::Next;
use crate::resp::{Error, Result};
use crate::server::client::Client;
use crate::server::client::session::Close;
use crate::server::state::TaskCtx;
use crate::server::state::syncs::Source;
use crate::server::told::output::{push_unheld, send_pushed};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

/// What is sent at a time; the connection holds no more than twice as much.
const PIECE_BYTES: usize = 128 << 10;
/// How often the other side is told that it goes on.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// How long to wait until a snapshot of others is made.
pub const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long to wait for a reader, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(50);

const IS_TOLD: Error =
    Error::text("ERR a snapshot would be mixed with what this connection is told: messages, or what others do");

/// A connection that is told other things is sent no snapshot.
pub fn check(client: &Client) -> Result {
    let session = &client.state.borrow().session;
    if session.is_told() || session.tracks.is_some() { Err(IS_TOLD) } else { Ok(()) }
}

pub fn tell(ctx: &TaskCtx, bytes: &[u8]) {
    push_unheld(&ctx.server, &ctx.client, bytes);
    send_pushed(&ctx.server);
}

/// Whether nobody is there any more.
pub fn is_gone(client: &Client) -> bool {
    client.closed.get() || client.state.borrow().flow.close == Close::Now
}

/// Tells the other side that there is something to wait for.
pub async fn keep_alive<R>(ctx: &TaskCtx) -> R {
    loop {
        sleep(KEEP_ALIVE).await;
        tell(ctx, b"\n");
    }
}

/// Sends all of it; who does not read for as long as `repl-timeout` says is given up.
pub async fn send_all(ctx: &TaskCtx, mut source: Source) -> std::result::Result<(), String> {
    while let Some(piece) = next(ctx, &mut source).await? {
        wait_for_room(ctx).await?;
        tell(ctx, &piece);
    }
    Ok(())
}

async fn next(ctx: &TaskCtx, source: &mut Source) -> std::result::Result<Option<Arc<[u8]>>, String> {
    match source {
        Source::File { at, len, .. } if at == len => Ok(None),
        Source::File { file, at, len } => {
            let piece_len = usize::try_from(*len - *at).unwrap_or(usize::MAX).min(PIECE_BYTES);
            let (of, from) = (file.clone(), *at);
            let read = ctx.server.transport.beside(move || read_piece(&of, from, piece_len));
            *at += piece_len as u64;
            Ok(Some(read.await.and_then(|read| read).map_err(|error| error.to_string())?))
        }
        Source::Handout(handout) => loop {
            match handout.next() {
                Next::Piece(piece) => return Ok(Some(piece)),
                Next::End => return Ok(None),
                Next::Broken => return Err("it could not be made".to_owned()),
                Next::Later if is_gone(&ctx.client) => return Err(GONE.to_owned()),
                Next::Later => sleep(PAUSE_MIN).await,
            }
        },
    }
}

const GONE: &str = "nobody is there any more";

fn read_piece(file: &File, at: u64, len: usize) -> io::Result<Arc<[u8]>> {
    let mut piece = vec![0; len];
    file.read_exact_at(&mut piece, at)?;
    Ok(piece.into())
}

async fn wait_for_room(ctx: &TaskCtx) -> std::result::Result<(), String> {
    let client = &*ctx.client;
    let (mut pause, mut before, mut since_us) = (PAUSE_MIN, usize::MAX, store_us());
    loop {
        if is_gone(client) {
            return Err(GONE.to_owned());
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
