//! Open files: how many clients they are enough for.

use crate::config::Config;
use crate::net::{http, tls};

/// Open files beside the clients': for the process, and for each shard's rings and event.
const FILES: u64 = 32;
const FILES_A_SHARD: u64 = 16;
/// What waits for the metrics' connections, and its listeners.
const FILES_OF_PAGES: u64 = http::CONNECTIONS as u64 + 8;

/// Raises the limit of open files to what so many clients need, as far as the hard limit allows.
///
/// # Errors
/// Where that is not far enough: how many clients there can be. Others would rest unanswered in the backlog.
pub fn make_room_for(maxclients: u32, shards: usize, config: &Config) -> Result<(), u32> {
    let of_pages = if config.metrics_port > 0 { FILES_OF_PAGES } else { 0 };
    let of_tls = if config.tls.port > 0 { tls::HANDSHAKES as u64 } else { 0 };
    let ours = FILES + of_pages + of_tls + FILES_A_SHARD * shards as u64;
    let needed = u64::from(maxclients) + ours;
    // Over glommio's sockets, who sends to a slow reader has a second descriptor.
    let wanted = needed + u64::from(maxclients);
    let mut files = limit();
    if files.rlim_cur < wanted {
        files.rlim_cur = wanted.min(files.rlim_max);
        // SAFETY: a valid limit; what cannot be raised stays as it is.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &files) };
        files = limit();
    }
    if files.rlim_cur >= needed {
        return Ok(());
    }
    Err(u32::try_from(files.rlim_cur.saturating_sub(ours)).unwrap_or(u32::MAX))
}

fn limit() -> libc::rlimit {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a valid place to write to.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    limit
}
