//! Browsers that were made to speak to this port: a web page can have its reader's browser send HTTP to whatever that
//! browser reaches, this server included, and the lines of its body would be commands. A connection that says `POST`, or
//! names its `Host:` as every request of a browser does before its body, is ended, and nothing behind that is read; so
//! Redis does. It is asked before everything else: passwords, transactions, pauses.

use super::turn::{Progress, Turn};
use crate::clock::store_us;
use crate::observe::log;
use crate::resp::Request;
use crate::server::client::session::Close;
use std::sync::atomic::Ordering;

/// Between two lines of the log about it.
const LOGGED_EVERY_US: u64 = 60_000_000;

/// Whether a request that is no command is a line of HTTP.
pub fn is_spoken(request: Request) -> bool {
    request.is(0, "post") || request.is(0, "host:")
}

/// Ends the connection.
#[cold]
pub fn refuse(turn: &mut Turn) -> Progress {
    turn.flow.close = Close::Now;
    let (last_us, now_us) = (&turn.server.global.http_logged_us, store_us());
    let is_due = |last_us| (last_us == 0 || now_us.saturating_sub(last_us) > LOGGED_EVERY_US).then_some(now_us.max(1));
    if last_us.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_due).is_ok() {
        log::warning(format_args!(
            "Possible SECURITY ATTACK detected. It looks like somebody is sending POST or Host: commands to Redis. This \
             is likely due to an attacker attempting to use Cross Protocol Scripting to compromise your Redis instance. \
             Connection from {} aborted.",
            turn.session.peer.addr
        ));
    }
    Progress::Taken
}
