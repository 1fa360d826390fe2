//! Connections that are shown every change of all shards, as commands in one order: replicas, and DEBUG JOURNAL.
//!
//! That begins in one moment on all shards, so that no transaction is seen in part.

use crate::observe::log;
use crate::resp::{Error, Result};
use crate::server::client::session::Session;
use crate::server::run::in_the_way::{self, let_pass};
use crate::server::state::Server;
use crate::server::state::follower::{MostBytes, Shown, Shows};
use crate::server::told::output::{self, close_now};
use std::rc::Rc;

/// From now on a connection is shown all changes.
pub async fn begin(server: &Rc<Server>, client: u64) -> Result {
    server.global.log.start().map_err(|error| Error::err(format_args!("Can't read the journal: {error}")))?;
    let_pass(server).await?;
    let here = server.client(client).ok_or(Error::text("ERR the connection is gone"))?;
    {
        let mut state = here.state.borrow_mut();
        if std::mem::replace(&mut state.session.follows, true) {
            return Err(Error::text("ERR this connection is shown the journal already"));
        }
        // What is shown comes behind this command's reply.
        state.replies.hold_pushes();
    }
    let shard = &server.shard;
    let transaction = in_the_way::hold_everything_at_last(server).await;
    shard.call_all(|shard| shard.hand_over_records()).await;
    let reader = server.global.feed.read(shard.id, output::most_pushed_bytes(server));
    shard.call_all(Server::follow_log).await;
    server.following.add(here, reader, Shows::Journal);
    drop(transaction);
    if server.client(client).is_none() {
        // The connection has ended meanwhile.
        stop(server, client);
    }
    show(server);
    Ok(())
}

/// A connection is shown changes no more, if it was.
pub fn end(server: &Server, session: &mut Session) {
    let was_replica = session.replica.take().is_some();
    if was_replica {
        server.global.replication.remove(session.peer.id);
        server.global.replication.count_near(&server.shard.config());
    }
    if std::mem::take(&mut session.follows) || was_replica {
        stop(server, session.peer.id);
    }
}

fn stop(server: &Server, client: u64) {
    let Some(reader) = server.following.remove(client) else { return };
    server.global.feed.end(&reader);
    if !server.global.feed.is_streamed() {
        let others = (0..server.shard.count).filter(|target| *target != server.shard.id);
        others.for_each(|target| server.shard.tell(target, Server::follow_log));
        Server::follow_log(&server.shard);
    }
}

/// Sends what has come to whoever follows here.
pub fn show(server: &Rc<Server>) {
    if server.following.is_empty() {
        return;
    }
    let most = MostBytes {
        of_journal: output::most_pushed_bytes(server),
        of_replica: output::most_bytes_of_replica(&server.shard.config()),
    };
    for Shown { client, is_replica, bytes, has_missed } in server.following.take(most) {
        if is_replica {
            output::push_unheld(server, &client, &bytes);
        } else {
            output::push(server, &client, &bytes);
        }
        if has_missed && is_replica {
            output::end_slow_replica(server, &client);
        } else if has_missed {
            log::warning(format_args!("Client id={} closed: it could not be shown all changes.", client.id));
            close_now(server, &client);
        }
    }
    output::send_pushed(server);
}
