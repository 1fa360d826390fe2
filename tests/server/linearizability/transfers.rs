//! Money moves between accounts on different shards, and none is made or lost: not by who reads meanwhile, not by who
//! leaves in the middle of a transaction.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use socket2::SockRef;

use super::keys::Keys;
use super::{seeds, setting, start};
use crate::common::{Client, Kind, Server, Value, encode, have_tool, int, words};

/// How many transfers a test makes; the long form is a million.
pub const TRANSFERS: i64 = 20_000;
const CLIENTS: usize = 16;
const ACCOUNTS: usize = 16;
const BALANCE: i64 = 1_000;
const AMOUNT_MAX: i64 = 100;
/// After everybody has left, a key that takes longer is locked.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
const DELAY_US: u64 = 100;
/// Between two connections that end early: without it a long run has all ports waiting for their last packets.
const LEAVER_PAUSE: Duration = Duration::from_millis(5);

#[test]
fn the_sum_stays_on_two_shards() {
    transfer(&start(Kind::Ember { shards: 2 }), transfers());
}

#[test]
fn the_sum_stays_on_four_shards() {
    transfer(&start(Kind::Ember { shards: 4 }), transfers());
}

#[test]
fn the_sum_stays_while_shards_are_delayed() {
    let server = start(Kind::Ember { shards: 4 });
    server.delay_shards(DELAY_US);
    transfer(&server, transfers() / 10);
}

/// The test's own test.
#[test]
fn the_sum_stays_in_redis() {
    if have_tool("redis-server") {
        transfer(&start(Kind::Redis), transfers() / 10);
    }
}

fn transfers() -> i64 {
    setting("EMBERDB_TEST_TRANSFERS").map_or(TRANSFERS, |count| count as i64)
}

struct Bank<'a> {
    server: &'a Server,
    accounts: Vec<String>,
    /// Transfers that nobody has begun yet.
    left: AtomicI64,
    is_over: AtomicBool,
    retries: AtomicU64,
    sums: AtomicU64,
    leavers: AtomicU64,
}

fn transfer(server: &Server, transfers: i64) {
    // A key for each account, the same number on every shard.
    let keys = Keys::on_every_shard(server, ACCOUNTS);
    let bank = Bank {
        server,
        accounts: (0..keys.len()).map(|key| keys.on_the_wire(key).to_string()).collect(),
        left: AtomicI64::new(transfers),
        is_over: AtomicBool::new(false),
        retries: AtomicU64::new(0),
        sums: AtomicU64::new(0),
        leavers: AtomicU64::new(0),
    };
    let mut client = server.client();
    for account in &bank.accounts {
        assert_eq!(client.call(&format!("SET {account} {BALANCE}")), Value::ok());
    }
    let seed = seeds(1).next().expect("one seed");
    eprintln!("EMBERDB_TEST_SEED={seed}");
    let mut rng = Rng::with_seed(seed);
    let begin = Instant::now();
    thread::scope(|scope| {
        let bank = &bank;
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| (server.client(), rng.fork()))
            .map(|(client, rng)| scope.spawn(move || bank.transfer_until_none_is_left(client, rng)))
            .collect();
        scope.spawn(|| bank.audit_until_it_is_over(bank.sum_by_mget()));
        scope.spawn(|| bank.audit_until_it_is_over(bank.sum_by_transaction()));
        for rng in [rng.fork(), rng.fork()] {
            scope.spawn(|| bank.leave_until_it_is_over(rng));
        }
        // A client that fails must not leave the others running for ever.
        let ended: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        bank.is_over.store(true, Relaxed);
        ended.into_iter().for_each(|ended| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
    });
    eprintln!(
        "{:?}: {transfers} transfers in {:.1?}, {} retries, {} sums, {} left in the middle",
        server.kind(),
        begin.elapsed(),
        bank.retries.load(Relaxed),
        bank.sums.load(Relaxed),
        bank.leavers.load(Relaxed)
    );
    bank.assert_nothing_is_locked();
}

impl Bank<'_> {
    fn total(&self) -> i64 {
        self.accounts.len() as i64 * BALANCE
    }

    fn transfer_until_none_is_left(&self, mut client: Client, mut rng: Rng) {
        while self.left.fetch_sub(1, Relaxed) > 0 {
            let (from, to, amount) = self.choose(&mut rng);
            if rng.bool() {
                let reply = client.pipeline(&blind(from, to, amount)).pop().expect("a reply to EXEC");
                assert_eq!(reply.items().len(), 2, "{reply:?}");
            } else {
                while !self.transfer_under_watch(&mut client, from, to, amount) {
                    self.retries.fetch_add(1, Relaxed);
                }
            }
        }
    }

    /// Writes what it has computed from what it has read, so an update in between that goes unnoticed changes the sum.
    /// False if there was one.
    fn transfer_under_watch(&self, client: &mut Client, from: &str, to: &str, amount: i64) -> bool {
        let replies =
            client.pipeline(&[format!("WATCH {from} {to}"), format!("GET {from}"), format!("GET {to}")].map(line));
        let balance = |reply: &Value| reply.text().parse::<i64>().expect("a balance");
        let (paid, received) = (balance(&replies[1]) - amount, balance(&replies[2]) + amount);
        let replies = client.pipeline(&watched(from, paid, to, received));
        match replies.last().expect("a reply to EXEC") {
            Value::NullArray => false,
            reply => {
                assert_eq!(*reply, Value::Array(vec![Value::ok(), Value::ok()]));
                true
            }
        }
    }

    fn audit_until_it_is_over(&self, mut sum: impl FnMut() -> i64) {
        while !self.is_over.load(Relaxed) {
            assert_eq!(sum(), self.total(), "the sum of all accounts");
            self.sums.fetch_add(1, Relaxed);
        }
    }

    fn sum_by_mget(&self) -> impl FnMut() -> i64 {
        let mut client = self.server.client();
        let mget = words(&format!("MGET {}", self.accounts.join(" ")));
        move || sum(&client.command(&mget))
    }

    fn sum_by_transaction(&self) -> impl FnMut() -> i64 {
        let mut client = self.server.client();
        let gets = self.accounts.iter().map(|account| words(&format!("GET {account}")));
        let commands: Vec<_> = [words("MULTI")].into_iter().chain(gets).chain([words("EXEC")]).collect();
        move || sum(client.pipeline(&commands).last().expect("a reply to EXEC"))
    }

    /// Connections that end in the middle of what they send, or before the reply comes; some with a reset.
    fn leave_until_it_is_over(&self, mut rng: Rng) {
        while !self.is_over.load(Relaxed) {
            let mut client = self.server.client();
            let (from, to, amount) = self.choose(&mut rng);
            let mut commands = blind(from, to, amount);
            if rng.bool() {
                commands.insert(0, line(format!("WATCH {from} {to}")));
            }
            let mut bytes: Vec<u8> = commands.iter().flat_map(|args| encode(args)).collect();
            bytes.truncate(rng.usize(..=bytes.len()));
            client.send_raw(&bytes);
            if rng.bool() {
                // What was sent is read and answered before the connection ends.
                let _ = client.read_within(Duration::from_millis(rng.u64(..3)));
            }
            if rng.bool() {
                SockRef::from(client.stream()).set_linger(Some(Duration::ZERO)).expect("a reset at the end");
            }
            drop(client);
            self.leavers.fetch_add(1, Relaxed);
            thread::sleep(rng.u32(..2) * LEAVER_PAUSE);
        }
    }

    fn choose(&self, rng: &mut Rng) -> (&str, &str, i64) {
        let from = rng.usize(..self.accounts.len());
        let to = (from + rng.usize(1..self.accounts.len())) % self.accounts.len();
        (&self.accounts[from], &self.accounts[to], rng.i64(1..=AMOUNT_MAX))
    }

    fn assert_nothing_is_locked(&self) {
        let mut client = self.server.client();
        for account in &self.accounts {
            for command in [format!("GET {account}"), format!("INCRBY {account} 0")] {
                client.send(&command);
                let reply = client.read_within(ANSWER_LIMIT).unwrap_or_else(|| panic!("{command} is not answered"));
                assert!(!reply.is_error(), "{command}: {reply:?}");
            }
        }
        let (mget, exec) = (self.sum_by_mget()(), self.sum_by_transaction()());
        assert_eq!((mget, exec), (self.total(), self.total()), "the sum at the end");
        assert_eq!(client.call(&format!("DEL {}", self.accounts.join(" "))), int(self.accounts.len() as i64));
    }
}

fn blind(from: &str, to: &str, amount: i64) -> Vec<Vec<Vec<u8>>> {
    let decrby = format!("DECRBY {from} {amount}");
    ["MULTI".into(), decrby, format!("INCRBY {to} {amount}"), "EXEC".into()].map(line).into()
}

fn watched(from: &str, paid: i64, to: &str, received: i64) -> Vec<Vec<Vec<u8>>> {
    let pay = format!("SET {from} {paid}");
    ["MULTI".into(), pay, format!("SET {to} {received}"), "EXEC".into()].map(line).into()
}

fn line(text: String) -> Vec<Vec<u8>> {
    words(&text)
}

#[track_caller]
fn sum(balances: &Value) -> i64 {
    balances.items().iter().map(|balance| balance.text().parse::<i64>().expect("a balance")).sum()
}
