//! A request that names a password: where too many wrong ones have come from its address it waits in its connection's
//! input, and holds up nobody else.

use super::turn::{Progress, Turn};
use crate::clock::store_us;
use crate::resp::{Error, Request};
use crate::server::client::session::{Close, Session};
use crate::server::state::guesses::Wait;
use crate::server::state::{Command, Server};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The address whose wrong passwords count for a connection, unless it is spared.
pub fn source(server: &Server, session: &Session) -> Option<IpAddr> {
    let is_watched = server.shard.config().auth_slowdown.concerns(session.peer.local);
    // All who come through the Unix socket are one.
    let ip = || session.peer.addr.parse::<SocketAddr>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |addr| addr.ip());
    is_watched.then(ip)
}

/// What becomes of a request that has to wait; none where it may run now.
#[inline(never)]
pub fn hold(turn: &mut Turn, command: &Command, request: Request) -> Option<Progress> {
    let names_password = command.full_name == "auth" || command.full_name == "hello" && request.len() > 2;
    if !names_password {
        return None;
    }
    let now_us = store_us();
    if let Some(until_us) = turn.flow.slowed_until_us {
        if now_us < until_us {
            return Some(Progress::NotYet);
        }
        turn.flow.slowed_until_us = None;
        return None;
    }
    let source = source(turn.server, turn.session)?;
    match turn.server.global.guesses.wait(source, now_us) {
        Wait::No => None,
        Wait::ForUs(us) => {
            let until_us = now_us + us;
            turn.flow.slowed_until_us = Some(until_us);
            turn.server.slowed.add(turn.client, until_us);
            Some(Progress::NotYet)
        }
        Wait::SentAway => {
            let error = Error::text("ERR too many wrong passwords from this address, try again in a few seconds");
            turn.flow.close = Close::AfterReplies;
            Some(turn.fail(command.id, error))
        }
    }
}
