//! What is done for replicas from time to time.

use crate::executor;
use crate::net::sleep;
use crate::observe::log;
use crate::server::client::ClientRef;
use crate::server::client::replica::Replica;
use crate::server::state::Server;
use crate::server::state::replication::Ids;
use crate::server::told::output::{close_now, end_slow_replica, is_slow_replica};
use crate::shard::Shard;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// How often a replica is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

/// Looks after a replica until its connection ends.
pub fn watch(server: &Rc<Server>, client: &ClientRef, replica: &Arc<Replica>) {
    let (server, client, replica) = (server.clone(), client.clone(), replica.clone());
    executor::spawn(async move {
        loop {
            sleep(LOOK_EVERY).await;
            if client.closed.get() {
                return;
            }
            let timeout_s = server.shard.config().repl_timeout_s;
            if replica.silent_us() > timeout_s.saturating_mul(1_000_000) {
                log::warning(format_args!("Disconnecting timedout replica: {}:{}", replica.address, replica.port));
                close_now(&server, &client);
                return;
            }
            if is_slow_replica(&server, &client) {
                end_slow_replica(&server, &client);
                return;
            }
        }
    });
}

/// Replicas are to come again: they have other data, or call theirs otherwise than this server does by now.
pub async fn drop_replicas(server: &Rc<Server>) {
    let of_shard = |shard: &Rc<Shard>| {
        let server = Server::of(shard);
        let is_replica = |client: &ClientRef| client.state.borrow().session.replica.is_some();
        server.clients().iter().filter(|client| is_replica(client)).for_each(|client| close_now(&server, client));
    };
    server.shard.call_all(of_shard).await;
}

/// Once a second: replicas hear that this server is there, those that are near are counted, and what is kept of the stream is
/// let go when there has been no replica for long.
pub async fn look(server: &Rc<Server>) {
    let (global, config) = (&server.global, server.shard.config());
    if global.feed.kept().is_none() {
        return;
    }
    global.replication.count_near(&config);
    if global.log.is_on() {
        global.log.note_position();
    }
    if global.feed.is_relayed() {
        return;
    }
    look_at_old(server).await;
    let is_due = global.replication.silent_s() >= config.repl_ping_replica_period_s;
    // (While it hands over to a replica nothing is to come behind what that one is waited for to have.)
    if is_due && global.replication.has_replicas() && !global.replication.failover.is_under_way() {
        global.replication.end_silence();
        global.log.say(server.shard.id, PING.into());
    }
    let ttl_s = config.repl_backlog_ttl_s;
    if ttl_s > 0 && global.replication.without_s() > ttl_s {
        let_go(server).await;
    }
}

/// Deadlines of fields are said again where all replicas know of them. Those that were told less meanwhile begin anew.
async fn look_at_old(server: &Rc<Server>) {
    let (replication, feed) = (&server.global.replication, &server.global.feed);
    let is_over = replication.has_replicas() && !replication.has_old(&server.shard.config());
    if !is_over || feed.old_since().is_none() {
        return;
    }
    feed.set_old(false);
    if replication.has_old(&server.shard.config()) {
        // One has come just now.
        return feed.set_old(true);
    }
    if replication.take_degraded(feed.degraded()) {
        replication.set_ids(Ids::new());
        drop_replicas(server).await;
    }
}

/// What is said of replicas has changed.
pub fn take_over(server: &Server) {
    let (global, config) = (&server.global, server.shard.config());
    if global.feed.kept().is_some() {
        global.feed.keep(Some(config.repl_backlog()));
    }
    global.replication.count_near(&config);
    // (DEBUG REPLICA may say otherwise where nobody is followed.)
    if global.following.is_replica() {
        global.following.follow_config(&config);
    }
}

/// Nobody can go on in the stream any more.
async fn let_go(server: &Rc<Server>) {
    let replication = &server.global.replication;
    if replication.has_replicas() || !replication.queue().waiting.is_empty() {
        return;
    }
    log::notice(format_args!(
        "Replication backlog freed after {} seconds without connected replicas.",
        server.shard.config().repl_backlog_ttl_s
    ));
    // Whoever comes later has missed what is not kept.
    replication.set_ids(Ids::new());
    server.global.feed.keep(None);
    server.shard.call_all(Server::follow_log).await;
}
