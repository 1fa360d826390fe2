//! What the live page shows, as one document: the facts of INFO, what has died lately and what is to die, and what only some
//! may see. The first shard gathers it; the thread of the pages writes it down.

use crate::clock::{realtime_us, store_us};
use crate::expiry::foresight::{OUTLOOK_STEP_MS, Outlook};
use crate::net::step_back;
use crate::observe::Lag;
use crate::server::client::ClientRef;
use crate::server::client::line::flags;
use crate::server::client::session::Close;
use crate::server::facts::foresight::Foresight;
use crate::server::facts::{self, Facts, Gathered};
use crate::server::state::Server;
use crate::server::state::slowlog::{self, Entry};
use crate::shard::Shard;
use serde::Serialize;
use serde_json::json;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::rc::Rc;

/// As many as SLOWLOG GET shows.
const SLOW_COMMANDS: usize = 10;
/// Connections, those that hold the most memory.
const CLIENTS: usize = 20;
const CLIENTS_A_SLICE: usize = 256;
const POLICIES: usize = 100;

/// What it takes to gather one document after the other.
#[derive(Default)]
pub struct Gatherer {
    /// The lags of all that had died at the last document, and when that was.
    seen: RefCell<Option<(Lag, u64)>>,
    pub foresight: Rc<Foresight>,
}

pub struct Status {
    at_ms: u64,
    facts: Facts,
    lag: LagLately,
    forecast: Option<Forecast>,
    policies: Listed<PolicyRow>,
    slow: Listed<Entry>,
    clients: Listed<ClientRow>,
}

/// The first of so many.
#[derive(Serialize)]
struct Listed<T> {
    all: usize,
    first: Vec<T>,
}

/// What died since the last document.
#[derive(Serialize)]
struct LagLately {
    over_ms: u64,
    deaths: u64,
    p50_us: u64,
    p99_us: u64,
    /// Keys that are due and wait included.
    max_us: u64,
    promised_us: u64,
}

/// What was to die, seen from a moment on.
#[derive(Serialize)]
struct Forecast {
    from_ms: u64,
    step_ms: u64,
    /// In each step.
    keys: Vec<u64>,
    /// Keys and bytes within a minute, ten, and an hour.
    within: Vec<(u64, u64)>,
}

#[derive(Serialize)]
struct PolicyRow {
    prefix: Box<str>,
    policy: String,
}

#[derive(Serialize)]
struct ClientRow {
    id: u64,
    addr: String,
    name: String,
    user: String,
    age_s: u64,
    idle_s: u64,
    db: usize,
    flags: String,
    cmd: String,
    bytes: usize,
    commands: u64,
}

/// What somebody may see beside the facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    pub policies: bool,
    pub slow: bool,
    pub clients: bool,
}

/// A status written down, in the parts that not everybody may see.
pub struct Document {
    status: String,
    policies: String,
    slow: String,
    clients: String,
}

impl Gatherer {
    pub async fn gather(&self, server: &Rc<Server>) -> Status {
        let gathered = facts::gather(server, false).await;
        let slow = slowlog::newest(server, SLOW_COMMANDS).await;
        let clients = server.shard.call_all_later(heaviest_clients).await;
        let mut clients: Vec<ClientRow> = clients.into_iter().flatten().collect();
        clients.sort_unstable_by_key(|client| (Reverse(client.bytes), client.id));
        clients.truncate(CLIENTS);
        Status {
            at_ms: realtime_us() / 1000,
            lag: self.lag_lately(&gathered),
            forecast: self.foresight.latest(server).map(|(from_ms, outlook)| Forecast::of(from_ms, &outlook)),
            policies: policies(server),
            slow: Listed { all: gathered.total.slowlog_entries, first: slow },
            clients: Listed { all: gathered.total.connections, first: clients },
            facts: gathered.facts(),
        }
    }

    fn lag_lately(&self, gathered: &Gathered) -> LagLately {
        let (now_us, lag) = (store_us(), &gathered.total.expiry.lag);
        let before = self.seen.replace(Some((lag.clone(), now_us)));
        let (lately, over_us) = match before {
            Some((before, at_us)) => (lag.since(&before), now_us.saturating_sub(at_us)),
            // Of what was before somebody looked it tells nothing.
            None => (Lag::new(), 0),
        };
        LagLately {
            over_ms: over_us / 1000,
            deaths: lately.count(),
            p50_us: lately.quantile_us(0.5),
            p99_us: lately.quantile_us(0.99),
            max_us: lately.max_us().max(gathered.total.expiry.oldest_due_us),
            promised_us: gathered.promised_lag_us(),
        }
    }
}

impl Forecast {
    fn of(from_ms: u64, outlook: &Outlook) -> Forecast {
        let within = outlook.within.iter().map(|forecast| (forecast.keys, forecast.bytes)).collect();
        Forecast { from_ms, step_ms: OUTLOOK_STEP_MS, keys: outlook.keys.to_vec(), within }
    }
}

fn policies(server: &Server) -> Listed<PolicyRow> {
    let config = server.shard.config();
    let policies = config.expiry_policies.lock();
    let mut first = Vec::new();
    for (prefix, policy) in policies.iter().take(POLICIES) {
        first.push(PolicyRow { prefix: prefix.clone(), policy: policy.words().join(" ") });
    }
    Listed { all: policies.len(), first }
}

/// In slices: there may be many connections.
async fn heaviest_clients(shard: Rc<Shard>) -> Vec<ClientRow> {
    let server = Server::of(&shard);
    let mut heaviest: Vec<(usize, ClientRef)> = Vec::new();
    for some in server.clients().chunks(CLIENTS_A_SLICE) {
        for client in some {
            let state = client.state.borrow();
            if state.flow.close != Close::Now {
                heaviest.push((state.memory_bytes(), client.clone()));
            }
        }
        heaviest.sort_unstable_by_key(|(bytes, client)| (Reverse(*bytes), client.id));
        heaviest.truncate(CLIENTS);
        step_back().await;
    }
    let now_us = store_us();
    let seconds_since = |us: u64| now_us.saturating_sub(us) / 1_000_000;
    let row = |(bytes, client): (usize, ClientRef)| {
        let state = client.state.borrow();
        let session = &state.session;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        ClientRow {
            id: client.id,
            addr: session.peer.addr.clone(),
            name: text(&session.name),
            user: text(session.user_name()),
            age_s: seconds_since(session.created_us),
            idle_s: seconds_since(session.used_us),
            db: session.db,
            flags: flags(&state),
            cmd: session.last_command.to_string(),
            bytes,
            commands: session.commands,
        }
    };
    heaviest.into_iter().map(row).collect()
}

impl Status {
    pub fn write(&self) -> Document {
        let slow = |entry: &Entry| {
            let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
            json!({
                "id": entry.id,
                "time_s": entry.time_s,
                "took_us": entry.took_us,
                "args": entry.args.iter().map(text).collect::<Vec<_>>(),
                "addr": entry.addr,
                "name": text(&entry.name),
            })
        };
        let slow = Listed { all: self.slow.all, first: self.slow.first.iter().map(slow).collect() };
        let Status { at_ms, facts, lag, forecast, policies, clients, .. } = self;
        Document {
            status: json!({ "at_ms": at_ms, "facts": facts, "lag": lag, "forecast": forecast }).to_string(),
            policies: json!(policies).to_string(),
            slow: json!(slow).to_string(),
            clients: json!(clients).to_string(),
        }
    }
}

impl Document {
    /// What somebody may see of it, as JSON; null is what he may not.
    pub fn of(&self, rights: Rights) -> Vec<u8> {
        let part = |may_see: bool, part: &str| if may_see { part.to_owned() } else { "null".to_owned() };
        let (policies, slow) = (part(rights.policies, &self.policies), part(rights.slow, &self.slow));
        let clients = part(rights.clients, &self.clients);
        let status = &self.status;
        format!(r#"{{"status":{status},"policies":{policies},"slow":{slow},"clients":{clients}}}"#).into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_may_not_see_is_left_out() {
        let [status, policies, slow, clients] = [r#"{"at_ms":1}"#, "2", "3", "4"].map(str::to_owned);
        let document = Document { status, policies, slow, clients };
        let seen = |policies, slow, clients| document.of(Rights { policies, slow, clients });
        assert_eq!(seen(true, true, true), br#"{"status":{"at_ms":1},"policies":2,"slow":3,"clients":4}"#);
        assert_eq!(seen(false, true, false), br#"{"status":{"at_ms":1},"policies":null,"slow":3,"clients":null}"#);
    }
}
