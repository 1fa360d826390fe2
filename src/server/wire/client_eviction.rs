//! Where connections hold more than `maxmemory-clients` in all, those that hold most are ended, on whichever shard, but
//! for those under CLIENT NO-EVICT. Until they are, others wait that have sent much or are owed something: what they would
//! be answered would be held, too. Nor is anybody served meanwhile who waits for a key: whoever is ended would take along
//! what was pushed.

use crate::net::step_back;
use crate::observe::log;
use crate::server::client::ClientRef;
use crate::server::state::Server;
use crate::server::told::output::close_now;
use std::cmp::Reverse;
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// So many of each shard are compared at a time: each time looks at all connections, of which there may be ten thousand.
const COMPARED: usize = 1024;

/// A connection by what it holds; the last field is its shard.
type Holder = (usize, u64, usize);

/// What a shard says of its connections.
struct Held {
    /// Those that hold most, of those that may go.
    holders: Vec<Holder>,
    /// There are others that hold as much as this, or less.
    others_bytes: usize,
    /// What all of its connections hold.
    bytes: u64,
}

/// The limit may have changed.
pub fn configure(server: &Server) {
    let config = server.shard.config();
    server.client_memory.set_limit(config.maxmemory_clients.of(server.shard.max_bytes()));
    if server.client_memory.is_bounded() {
        for client in server.clients() {
            if let Ok(mut state) = client.state.try_borrow_mut() {
                server.client_memory.count(&mut state);
            }
        }
    }
}

/// The task that ends connections. That of one shard is at it at a time.
pub async fn keep_below(server: Rc<Server>) {
    loop {
        server.client_memory.alarm.wait().await;
        while server.client_memory.excess_bytes() > 0 {
            if server.global.evicts_clients.swap(true, Ordering::SeqCst) {
                // Who is at it looks again before it stops.
                break;
            }
            let ended = end_some(&server).await;
            server.global.evicts_clients.swap(false, Ordering::SeqCst);
            if ended == 0 {
                if !server.client_memory.is_full() {
                    break;
                }
                // Somebody has come meanwhile who may go.
                step_back().await;
            }
        }
    }
}

async fn end_some(server: &Rc<Server>) -> usize {
    let of_all = server.shard.call_all(|shard| largest(&Server::of(shard))).await;
    // As of when they were looked at: they may hold more by now.
    let mut excess = server.client_memory.excess_of(of_all.iter().map(|held| held.bytes).sum());
    // Those that hold less have to wait until the others of their shards were looked at.
    let least = of_all.iter().map(|held| held.others_bytes).max().unwrap_or(0);
    let mut holders: Vec<Holder> = of_all.into_iter().flat_map(|held| held.holders).collect();
    holders.sort_unstable_by_key(|holder| Reverse(*holder));
    let count = holders.iter().take_while(|(bytes, ..)| {
        let goes = excess > 0 && *bytes >= least;
        excess = excess.saturating_sub(*bytes as u64);
        goes
    });
    let count = count.count();
    holders.truncate(count);
    for shard in 0..server.shard.count {
        let ids: Vec<u64> = holders.iter().filter(|(.., of)| *of == shard).map(|(_, id, _)| *id).collect();
        if !ids.is_empty() {
            // A shard that is gone ends all of its connections itself.
            let _ = server.shard.call(shard, move |shard| end(&Server::of(shard), &ids)).await;
        }
    }
    count
}

fn largest(server: &Server) -> Held {
    let may_go = |client: &ClientRef| {
        let state = client.state.try_borrow().ok()?;
        state.may_be_evicted().then_some((state.counted_bytes, client.id, server.shard.id))
    };
    let mut holders: Vec<Holder> = server.clients().iter().filter_map(may_go).collect();
    let mut others_bytes = 0;
    if holders.len() > COMPARED {
        let (_, least, _) = holders.select_nth_unstable_by_key(COMPARED - 1, |holder| Reverse(*holder));
        others_bytes = least.0;
        holders.truncate(COMPARED);
    }
    Held { holders, others_bytes, bytes: server.client_memory.held_here() }
}

fn end(server: &Server, ids: &[u64]) {
    for client in ids.iter().filter_map(|id| server.client(*id)) {
        {
            let state = client.state.borrow();
            log::notice(format_args!(
                "Evicting client: id={} addr={} tot-mem={}",
                client.id, state.session.peer.addr, state.counted_bytes
            ));
        }
        close_now(server, &client);
        server.global.evicted_clients.fetch_add(1, Ordering::Relaxed);
    }
}
