//! MIGRATE: keys move to another server, one by one.
//!
//! ```text
//!  held here ── parcels ──> a thread of its own: AUTH, SELECT, RESTORE key ttl payload ... ──> the target
//!      │                                                                                         │
//!      └── DEL of each key that the target has said it has  <── how many replies were good ──────┘
//! ```
//!
//! The keys are held from the first look at them until the last is deleted, so that nobody here sees one change that is
//! on its way. Whoever wants one of them waits; no shard does.

use super::target::{self, Address, Broken, Link, Way};
use crate::command::dump::{Parcel, hand_over, parcel};
use crate::command::{Across, OwnedRequest};
use crate::journal::AwaitsServer;
use crate::net::on_thread;
use crate::resp::{Error, Proto, Reply, Request, Result, printable};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

/// How long to wait for the target where the client names no time, as in Redis.
const TIMEOUT_MS: u64 = 1_000;
/// Nobody waits for longer, whatever the client names.
const TIMEOUT_MS_MAX: u64 = 365 * 86_400 * 1_000;
/// So much of an error is told on.
const ERROR_BYTES_MAX: usize = 1_024;

struct Order {
    address: Address,
    db: i64,
    timeout: Duration,
    copy: bool,
    replace: bool,
    /// Their indexes in the request.
    keys: Vec<usize>,
}

fn parse(across: &Across) -> Result<Order> {
    let request = across.request.as_request();
    let (mut copy, mut replace, mut credentials) = (false, false, Vec::new());
    let mut at = 6;
    while at < request.len() {
        let more = request.len() - at - 1;
        if request.is(at, "copy") {
            copy = true;
        } else if request.is(at, "replace") {
            replace = true;
        } else if request.is(at, "auth") && more >= 1 {
            credentials = vec![request.arg(at + 1).to_vec()];
            at += 1;
        } else if request.is(at, "auth2") && more >= 2 {
            credentials = vec![request.arg(at + 1).to_vec(), request.arg(at + 2).to_vec()];
            at += 2;
        } else if request.is(at, "keys") {
            if !request.arg(3).is_empty() {
                return Err(Error::text(
                    "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string",
                ));
            }
            break;
        } else {
            return Err(Error::Syntax);
        }
        at += 1;
    }
    let timeout_ms = request.int(5)?;
    let db = request.int(4)?;
    let timeout_ms = u64::try_from(timeout_ms).ok().filter(|ms| *ms > 0).unwrap_or(TIMEOUT_MS);
    Ok(Order {
        address: Address {
            host: String::from_utf8_lossy(request.arg(1)).into_owned(),
            // (A word that is no number is a port on which nobody listens, as in Redis.)
            port: request.int(2).ok().and_then(|port| u16::try_from(port).ok()).unwrap_or(0),
            credentials,
            tls: across.hop.tls_to_others(),
        },
        db,
        timeout: Duration::from_millis(timeout_ms.min(TIMEOUT_MS_MAX)),
        copy,
        replace,
        keys: across.keys.indexes(request).collect(),
    })
}

pub async fn run(across: Across) -> Result<Vec<u8>> {
    let order = parse(&across)?;
    let found = pack(&across, &order.keys).await;
    if found.is_empty() {
        return Ok(across.reply(|reply| reply.simple("NOKEY")));
    }
    let copy = order.copy;
    let keys: Vec<Vec<u8>> = found.iter().map(|(key, _)| key.clone()).collect();
    let awaits = AwaitsServer::new();
    let sent = on_thread("migrate", move || send(&order, &found)).await;
    drop(awaits);
    let Sent { arrived, outcome } = sent.unwrap_or_else(|_| Sent::nothing(Outcome::Broken(Way::Connect)));
    if !copy {
        delete(&across, keys.into_iter().zip(arrived).filter(|(_, has)| *has).map(|(key, _)| key)).await;
    }
    match outcome {
        Outcome::Done => Ok(across.reply(|reply| reply.ok())),
        Outcome::Refused(line) => {
            let line = printable(&line, ERROR_BYTES_MAX);
            Err(Error::quoting(&[b"ERR Target instance replied with error: ", line]))
        }
        Outcome::Broken(Way::Connect) => Err(Error::text("IOERR error or timeout connecting to the client")),
        Outcome::Broken(Way::Write) => Err(Error::text("IOERR error or timeout writing to target instance")),
        Outcome::Broken(Way::Read) => Err(Error::text("IOERR error or timeout reading to target instance")),
    }
}

type Packed = (Vec<u8>, Arc<Parcel>);

/// The keys that are there, in the order in which they were named; one that was named twice is there twice.
async fn pack(across: &Across, keys: &[usize]) -> Vec<Packed> {
    let request = across.request.as_request();
    let mut parcels: HashMap<&[u8], Option<Arc<Parcel>>> = HashMap::with_capacity(keys.len());
    let mut found = Vec::new();
    for key in keys.iter().map(|index| request.arg(*index)) {
        if !parcels.contains_key(key) {
            // A key at a time: others have their turn between them.
            let name = key.to_vec();
            let packed = across.on(across.shard_of(key), move |ctx| parcel(ctx, &name)).await;
            parcels.insert(key, packed.map(Arc::new));
        }
        if let Some(Some(parcel)) = parcels.get(key) {
            found.push((key.to_vec(), parcel.clone()));
        }
    }
    found
}

async fn delete(across: &Across, keys: impl Iterator<Item = Vec<u8>>) {
    let mut by_shard: Vec<(usize, Vec<Vec<u8>>)> = Vec::new();
    for key in keys {
        let shard = across.shard_of(&key);
        match by_shard.iter_mut().find(|(of, _)| *of == shard) {
            Some((_, keys)) => keys.push(key),
            None => by_shard.push((shard, vec![key])),
        }
    }
    for (shard, keys) in by_shard {
        across.on(shard, move |ctx| keys.iter().for_each(|key| hand_over(ctx, key))).await;
    }
}

enum Outcome {
    Done,
    /// What the target has said.
    Refused(Vec<u8>),
    Broken(Way),
}

struct Sent {
    /// Of each key, whether the target has said that it has it.
    arrived: Vec<bool>,
    outcome: Outcome,
}

impl Sent {
    fn nothing(outcome: Outcome) -> Sent {
        Sent { arrived: Vec::new(), outcome }
    }
}

/// Sends all of it, on a thread that may wait. A connection that was kept may have been closed by the target meanwhile:
/// where nothing was answered it is tried once more, as in Redis.
fn send(order: &Order, found: &[Packed]) -> Sent {
    let mut may_retry = true;
    loop {
        let mut link = match target::connect(&order.address, order.timeout) {
            Ok(link) => link,
            // (Redis takes a connection that is refused for one that is made, and finds out when it writes.)
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                return Sent::nothing(Outcome::Broken(Way::Write));
            }
            Err(_) => return Sent::nothing(Outcome::Broken(Way::Connect)),
        };
        match exchange(&mut link, order, found) {
            Err(Broken { timed_out: false, .. }) if may_retry => may_retry = false,
            Err(broken) => return Sent::nothing(Outcome::Broken(broken.way)),
            Ok(sent) => {
                // (After an error it is not known which database it is in.)
                link.db = Some(order.db).filter(|_| matches!(sent.outcome, Outcome::Done));
                if sent.arrived.len() == found.len() {
                    target::keep(link);
                }
                return sent;
            }
        }
    }
}

/// An error before the first reply to a RESTORE; what comes behind that is an outcome.
fn exchange(link: &mut Link, order: &Order, found: &[Packed]) -> std::result::Result<Sent, Broken> {
    let credentials = &order.address.credentials;
    // Also on a connection that was kept: whoever asks now has to have the right password.
    let asks_auth = !credentials.is_empty();
    let asks_select = link.db != Some(order.db);
    if asks_auth {
        let words = [&b"AUTH"[..]].into_iter().chain(credentials.iter().map(Vec::as_slice));
        link.write(&command(OwnedRequest::from_args(words).as_request()))?;
    }
    if asks_select {
        let db = order.db.to_string();
        link.write(&command(OwnedRequest::from_args([&b"SELECT"[..], db.as_bytes()].into_iter()).as_request()))?;
    }
    for (key, parcel) in found {
        let ttl_ms = parcel.ttl_ms.to_string();
        let mut head = Vec::with_capacity(key.len() + 64);
        let mut reply = Reply::new(&mut head, Proto::Resp2);
        reply.array(if order.replace { 5 } else { 4 });
        [b"RESTORE", &key[..], ttl_ms.as_bytes()].into_iter().for_each(|arg| reply.bulk(arg));
        head.extend_from_slice(format!("${}\r\n", parcel.payload.len()).as_bytes());
        link.write(&head)?;
        link.write(&parcel.payload)?;
        link.write(if order.replace { b"\r\n$7\r\nREPLACE\r\n" } else { b"\r\n" })?;
    }
    link.flush()?;

    let mut refusal = None;
    if asks_auth {
        refusal = refused(link.line()?);
    }
    if asks_select {
        refusal = refusal.or(refused(link.line()?));
    }
    // After that nothing that the target has answers the question.
    let was_refused = refusal.is_some();
    let mut arrived = Vec::with_capacity(found.len());
    for _ in found {
        let refused = match link.line() {
            Ok(line) => refused(line),
            Err(broken) if arrived.is_empty() => return Err(broken),
            Err(broken) => {
                let outcome = refusal.map_or(Outcome::Broken(broken.way), Outcome::Refused);
                return Ok(Sent { arrived, outcome });
            }
        };
        arrived.push(!was_refused && refused.is_none());
        refusal = refusal.or(refused);
    }
    Ok(Sent { arrived, outcome: refusal.map_or(Outcome::Done, Outcome::Refused) })
}

/// What an error says, without its first byte.
fn refused(line: Vec<u8>) -> Option<Vec<u8>> {
    line.strip_prefix(b"-").map(<[u8]>::to_vec)
}

fn command(request: Request) -> Vec<u8> {
    let mut out = Vec::new();
    let mut reply = Reply::new(&mut out, Proto::Resp2);
    reply.array(request.len());
    request.from(0).for_each(|arg| reply.bulk(arg));
    out
}
