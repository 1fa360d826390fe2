//! Sessions that clients take up again, so that the costly part of the handshake is done once: as tickets, which clients keep,
//! and in a store for clients without. Both go by the server's own limit of time. Each context has its own, so that no
//! session outlives the certificates and authorities it began under.

use crate::clock::store_us;
use rustls::server::{ProducesTickets, StoresServerSessions};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Tickets that say when they were made.
pub(super) struct Tickets {
    /// Encrypts them, under keys that change.
    sealed: Arc<dyn ProducesTickets>,
    timeout_s: u32,
}

impl Tickets {
    pub fn new(timeout_s: u32) -> Result<Arc<Tickets>, rustls::Error> {
        Ok(Arc::new(Tickets { sealed: rustls::crypto::ring::Ticketer::new()?, timeout_s }))
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tickets").field("timeout_s", &self.timeout_s).finish_non_exhaustive()
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        self.timeout_s.min(self.sealed.lifetime())
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.sealed.encrypt(&[&now_s().to_le_bytes(), plain].concat())
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        let mut plain = self.sealed.decrypt(cipher)?;
        let made_s = u64::from_le_bytes(*plain.first_chunk()?);
        let is_fresh = now_s().saturating_sub(made_s) < u64::from(self.timeout_s);
        plain.drain(..size_of::<u64>());
        is_fresh.then_some(plain)
    }
}

fn now_s() -> u64 {
    store_us() / 1_000_000
}

/// What all sessions in the store may take.
const STORE_BYTES: usize = 64 << 20;
/// What one takes beside its own bytes.
const ENTRY_BYTES: usize = 128;

/// The store: the oldest go first.
#[derive(Debug)]
pub(super) struct Store {
    kept: Mutex<Kept>,
    /// 0: as many as there is memory for.
    sessions_max: usize,
    timeout_s: u32,
}

#[derive(Debug, Default)]
struct Kept {
    by_key: HashMap<Vec<u8>, Session>,
    /// Keys in the order in which they came, and the number of the session that each was for.
    order: VecDeque<(u64, Vec<u8>)>,
    next: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Session {
    number: u64,
    kept_s: u64,
    value: Vec<u8>,
}

impl Store {
    pub fn new(sessions_max: u32, timeout_s: u32) -> Arc<Store> {
        Arc::new(Store { kept: Mutex::default(), sessions_max: sessions_max as usize, timeout_s })
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_fresh(&self, session: &Session) -> bool {
        now_s().saturating_sub(session.kept_s) < u64::from(self.timeout_s)
    }
}

impl Kept {
    fn remove(&mut self, key: &[u8]) -> Option<Session> {
        let session = self.by_key.remove(key)?;
        self.bytes -= bytes(key, &session.value);
        Some(session)
    }

    /// Lets the oldest go.
    fn drop_oldest(&mut self) {
        if let Some((number, key)) = self.order.pop_front()
            && self.by_key.get(&key).is_some_and(|session| session.number == number)
        {
            self.remove(&key);
        }
    }
}

fn bytes(key: &[u8], value: &[u8]) -> usize {
    2 * key.len() + value.len() + ENTRY_BYTES
}

impl StoresServerSessions for Store {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        let mut kept = self.kept();
        kept.remove(&key);
        let number = kept.next;
        kept.next += 1;
        kept.bytes += bytes(&key, &value);
        kept.order.push_back((number, key.clone()));
        kept.by_key.insert(key, Session { number, kept_s: now_s(), value });
        // (Keys of sessions that were taken stand in the order until their turn comes.)
        let too_many = |kept: &Kept| self.sessions_max > 0 && kept.order.len() > self.sessions_max;
        while too_many(&kept) || kept.bytes > STORE_BYTES || kept.order.len() > STORE_BYTES / ENTRY_BYTES {
            kept.drop_oldest();
        }
        true
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let kept = self.kept();
        kept.by_key.get(key).filter(|session| self.is_fresh(session)).map(|session| session.value.clone())
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        let session = self.kept().remove(key)?;
        self.is_fresh(&session).then_some(session.value)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_keeps_as_many_as_it_may() {
        let store = Store::new(3, 300);
        for number in 0..10u8 {
            assert!(store.put(vec![number], vec![number; 10]));
            assert!(store.put(vec![number], vec![number; 20]), "once more");
        }
        let found: Vec<u8> = (0..10).filter(|number| store.get(&[*number]).is_some()).collect();
        assert!(found.len() <= 3 && found.contains(&9), "{found:?}");
        assert_eq!(store.take(&[9]), Some(vec![9; 20]));
        assert_eq!(store.take(&[9]), None);
        let kept = store.kept();
        assert_eq!(kept.bytes, kept.by_key.iter().map(|(key, session)| bytes(key, &session.value)).sum::<usize>());
    }

    #[test]
    fn the_store_has_a_bound_without_a_number() {
        let store = Store::new(0, 300);
        for number in 0..100u32 {
            store.put(number.to_le_bytes().to_vec(), vec![0; 1 << 20]);
        }
        let kept = store.kept();
        assert!(kept.bytes <= STORE_BYTES && kept.by_key.len() > 50, "{}", kept.bytes);
    }

    #[test]
    fn what_is_too_old_is_not_there() {
        let store = Store::new(0, 0);
        store.put(vec![1], vec![2]);
        assert_eq!((store.get(&[1]), store.take(&[1])), (None, None));
        let tickets = Tickets::new(0).expect("keys");
        assert_eq!(tickets.decrypt(&tickets.encrypt(b"session").expect("a ticket")), None);
        let tickets = Tickets::new(300).expect("keys");
        let ticket = tickets.encrypt(b"session").expect("a ticket");
        assert_eq!(tickets.decrypt(&ticket).as_deref(), Some(&b"session"[..]));
        for at in 0..ticket.len() {
            let mut forged = ticket.clone();
            forged[at] ^= 1;
            assert_eq!(tickets.decrypt(&forged), None, "{at}");
            assert_eq!(tickets.decrypt(&ticket[..at]), None, "{at}");
        }
    }
}
