//! Wrong passwords by the address that they come from. Who has sent too many waits before the next is looked at, right or
//! wrong: a guess costs a second, and of one address only so many wait at a time. Who is authenticated waits for nothing,
//! and where no password was wrong nothing is looked up.
//!
//! What an address has on its account is forgiven by and by. A network of IPv6 counts as an address, since one machine may
//! have all of its addresses.

use crate::observe::log;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Wrong passwords before an address is slowed down: somebody's old configuration, tried again and again by a pool.
const FREE: u64 = 20;
/// One is forgiven each time so much has passed.
const FORGIVEN_US: u64 = 1_000_000;
/// No more are remembered of an address.
const REMEMBERED: u64 = FREE + 60;
/// What a guess has to wait at least.
const WAIT_US: u64 = 1_000_000;
/// Between two guesses of one address.
const APART_US: u64 = 100_000;
/// Who would have to wait for longer is sent away: others of that address wait already.
const LONGEST_US: u64 = 5_000_000;
/// Whoever makes passwords fail must not fill the log with it.
const TOLD_EVERY_US: u64 = 60_000_000;
/// Addresses that are remembered.
const SOURCES: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    No,
    ForUs(u64),
    /// Too many others wait.
    SentAway,
}

#[derive(Clone, Copy, Default)]
struct Account {
    wrong: u64,
    /// When it was counted last.
    counted_us: u64,
    /// When its next guess may be looked at.
    next_us: u64,
    /// When somebody was told last that it is slowed down.
    told_us: Option<u64>,
}

impl Account {
    /// Counts what is forgiven.
    fn count(&mut self, now_us: u64) {
        let passed = now_us.saturating_sub(self.counted_us) / FORGIVEN_US;
        self.wrong = self.wrong.saturating_sub(passed);
        self.counted_us += passed * FORGIVEN_US;
    }
}

#[derive(Default)]
pub struct Guesses {
    /// There are some.
    are_known: AtomicBool,
    accounts: Mutex<HashMap<IpAddr, Account>>,
}

impl Guesses {
    fn accounts(&self) -> MutexGuard<'_, HashMap<IpAddr, Account>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A password was wrong; whether somebody should be told that its address is slowed down.
    fn note(&self, source: IpAddr, now_us: u64) -> bool {
        self.are_known.store(true, Ordering::Relaxed);
        let mut accounts = self.accounts();
        let source = network(source);
        if !accounts.contains_key(&source) && accounts.len() >= SOURCES {
            forget_one(&mut accounts, now_us);
        }
        let account = accounts.entry(source).or_insert(Account { counted_us: now_us, ..Account::default() });
        account.count(now_us);
        account.wrong = (account.wrong + 1).min(REMEMBERED);
        let is_told = account.told_us.is_some_and(|told_us| now_us.saturating_sub(told_us) < TOLD_EVERY_US);
        let tells = account.wrong >= FREE && !is_told;
        if tells {
            account.told_us = Some(now_us);
        }
        tells
    }

    /// A password was wrong, see [`Guesses::note`].
    pub fn note_and_tell(&self, source: IpAddr, now_us: u64) {
        if self.note(source, now_us) {
            log::warning(format_args!(
                "Too many wrong passwords from {source}: those who come from there have to wait"
            ));
        }
    }

    /// Whether the next password of an address has to wait. It takes no turn of those who do.
    pub fn has_to_wait(&self, source: IpAddr, now_us: u64) -> bool {
        self.are_known.load(Ordering::Relaxed)
            && self.accounts().get_mut(&network(source)).is_some_and(|account| {
                account.count(now_us);
                account.wrong >= FREE
            })
    }

    /// For how long the next password of an address has to wait. Who is told so is expected to come then.
    pub fn wait(&self, source: IpAddr, now_us: u64) -> Wait {
        if !self.are_known.load(Ordering::Relaxed) {
            return Wait::No;
        }
        let mut accounts = self.accounts();
        let source = network(source);
        let Some(account) = accounts.get_mut(&source) else { return Wait::No };
        account.count(now_us);
        if account.wrong == 0 {
            accounts.remove(&source);
            self.are_known.store(!accounts.is_empty(), Ordering::Relaxed);
            return Wait::No;
        }
        if account.wrong < FREE {
            return Wait::No;
        }
        let at_us = account.next_us.max(now_us + WAIT_US);
        if at_us > now_us + LONGEST_US {
            return Wait::SentAway;
        }
        account.next_us = at_us + APART_US;
        Wait::ForUs(at_us - now_us)
    }
}

/// Makes room for another: those go first who are forgiven, or nearly so.
fn forget_one(accounts: &mut HashMap<IpAddr, Account>, now_us: u64) {
    accounts.values_mut().for_each(|account| account.count(now_us));
    accounts.retain(|_, account| account.wrong > 0);
    if accounts.len() >= SOURCES {
        let least = accounts.iter().min_by_key(|(_, account)| account.wrong).map(|(source, _)| *source);
        least.and_then(|source| accounts.remove(&source));
    }
}

fn network(source: IpAddr) -> IpAddr {
    const NETWORK: u128 = !(u64::MAX as u128);
    match source.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & NETWORK)),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    fn guilty() -> Guesses {
        let guesses = Guesses::default();
        for wrong in 1..=FREE {
            assert_eq!(guesses.wait(SOURCE, 0), Wait::No, "{wrong}");
            assert_eq!(guesses.note(SOURCE, 0), wrong == FREE, "told once");
        }
        guesses
    }

    #[test]
    fn an_address_is_slowed_down_and_others_are_not() {
        let guesses = guilty();
        assert_eq!(guesses.wait(SOURCE, 0), Wait::ForUs(WAIT_US));
        assert_eq!(guesses.wait(SOURCE, 0), Wait::ForUs(WAIT_US + APART_US), "behind the other");
        assert_eq!(guesses.wait(Ipv4Addr::new(192, 0, 2, 2).into(), 0), Wait::No);
    }

    #[test]
    fn only_so_many_wait() {
        let guesses = guilty();
        let waiting = (0..1000).filter(|_| guesses.wait(SOURCE, 0) != Wait::SentAway).count() as u64;
        assert_eq!(waiting, (LONGEST_US - WAIT_US) / APART_US + 1);
        assert_eq!(guesses.wait(SOURCE, LONGEST_US), Wait::No, "some are forgiven");
        (0..FREE).for_each(|_| assert!(!guesses.note(SOURCE, LONGEST_US), "that was told a moment ago"));
        assert_eq!(guesses.wait(SOURCE, LONGEST_US), Wait::ForUs(WAIT_US), "the others have had their turn");
        let told = (0..FREE).filter(|_| guesses.note(SOURCE, 2 * TOLD_EVERY_US)).count();
        assert_eq!(told, 1, "again after a while");
    }

    #[test]
    fn what_was_wrong_is_forgiven() {
        let guesses = guilty();
        assert_eq!(guesses.wait(SOURCE, FORGIVEN_US - 1), Wait::ForUs(WAIT_US));
        assert_eq!(guesses.wait(SOURCE, FORGIVEN_US), Wait::No);
        guesses.note(SOURCE, FORGIVEN_US);
        assert_ne!(guesses.wait(SOURCE, FORGIVEN_US), Wait::No, "and not forgotten");
        for _ in 0..10 * REMEMBERED {
            guesses.note(SOURCE, FORGIVEN_US);
        }
        let after_us = FORGIVEN_US * (REMEMBERED + 1);
        assert_eq!(guesses.wait(SOURCE, after_us), Wait::No, "there is an end of it");
        assert!(guesses.accounts().is_empty() && !guesses.are_known.load(Ordering::Relaxed));
    }

    #[test]
    fn a_network_is_one_address() {
        let guesses = Guesses::default();
        for host in 0..FREE as u16 {
            guesses.note(Ipv6Addr::new(0x2001, 0xdb8, 0, 1, host, 0, 0, host).into(), 0);
        }
        let of = |network| Ipv6Addr::new(0x2001, 0xdb8, 0, network, 9, 9, 9, 9).into();
        assert_eq!((guesses.wait(of(1), 0), guesses.wait(of(2), 0)), (Wait::ForUs(WAIT_US), Wait::No));
        // An IPv4 address by its other name is the same.
        let guesses = guilty();
        let mapped = Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped().into();
        assert_eq!(guesses.wait(mapped, 0), Wait::ForUs(WAIT_US));
    }

    #[test]
    fn no_more_addresses_are_remembered_than_there_is_room_for() {
        let guesses = guilty();
        for host in 0..4 * SOURCES as u32 {
            guesses.note(Ipv4Addr::from_bits(0x0a00_0000 + host).into(), 0);
        }
        assert_eq!(guesses.accounts().len(), SOURCES);
        assert_eq!(guesses.wait(SOURCE, 0), Wait::ForUs(WAIT_US), "who has most stays");
    }
}
