//! Money moves between accounts by scripts and functions, which say beforehand what they touch, or do not, or leave their
//! keys late, beside EXEC and WATCH. However it is read, none is made or lost.
//!
//! There are three currencies, since values of different types are put back in different ways where a script has to begin
//! again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::keys::Keys;
use super::{seeds, setting};
use crate::common::{Client, Kind, Server, Value, encode, words};

/// How many sums a test reads; the long form is a million.
pub const READS: u64 = 2_000;
const PAYERS: usize = 10;
const READERS: usize = 3;
const ACCOUNTS: usize = 8;
const BALANCE: i64 = 1_000;
const AMOUNT_MAX: i64 = 100;
/// The longest that a request may take on a busy machine.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
const DELAY_US: u64 = 100;

/// Of a test whose log says afterwards what there was.
const FLAGS: &[&str] = &["--appendonly", "yes", "--busy-reply-threshold", "60000", "--enable-debug-command", "yes"];

#[test]
fn sums_stay_on_one_shard() {
    sums_stay(1, 0);
}

#[test]
fn sums_stay_on_two_shards() {
    sums_stay(2, 0);
}

#[test]
fn sums_stay_on_three_shards_that_are_delayed() {
    sums_stay(3, DELAY_US);
}

#[test]
fn sums_stay_on_four_shards() {
    sums_stay(4, 0);
}

/// The type of a currency's balances, in the names of their keys.
const CURRENCIES: &[&str] = &["string", "hash", "zset"];

/// Changes of a balance, in Lua: `add` and `get` know the currency by the names of keys.
const ACCOUNTING: &str = "
local function add(key, amount)
  if key:find('string', 1, true) then return redis.call('INCRBY', key, amount) end
  if key:find('hash', 1, true) then return redis.call('HINCRBY', key, 'balance', amount) end
  return redis.call('ZINCRBY', key, amount, 'balance')
end
local function get(key)
  if key:find('string', 1, true) then return redis.call('GET', key) end
  if key:find('hash', 1, true) then return redis.call('HGET', key, 'balance') end
  return redis.call('ZSCORE', key, 'balance')
end
local function spin(n) for i = 1, n do end end
";

/// Ways to pay ARGV[1] from ARGV[2] to ARGV[3], with what is declared: nothing, who pays, or both.
const PAYMENTS: &[(usize, &str)] = &[
    (2, "add(ARGV[2], -ARGV[1]) add(ARGV[3], ARGV[1])"),
    (2, "add(ARGV[2], -ARGV[1]) spin(2e4) add(ARGV[3], ARGV[1])"),
    (0, "add(ARGV[2], -ARGV[1]) add(ARGV[3], ARGV[1])"),
    (0, "spin(2e4) add(ARGV[2], -ARGV[1]) spin(2e4) add(ARGV[3], ARGV[1])"),
    (1, "add(ARGV[2], -ARGV[1]) add(ARGV[3], ARGV[1])"),
    // Long behind what it has written.
    (1, "add(ARGV[2], -ARGV[1]) spin(1e5) add(ARGV[3], ARGV[1])"),
    (1, "add(ARGV[2], -ARGV[1]) spin(1e5) redis.call('DBSIZE') add(ARGV[3], ARGV[1])"),
    (2, "add(ARGV[2], -ARGV[1]) redis.call('RANDOMKEY') add(ARGV[3], ARGV[1])"),
    (2, "add(ARGV[2], -ARGV[1]) spin(1e5) redis.call('SCAN', 0) add(ARGV[3], ARGV[1])"),
    (2, "add(ARGV[2], -ARGV[1]) redis.call('PUBLISH', 'news', 'paid') add(ARGV[3], ARGV[1])"),
    // What it has made on the way is there and gone.
    (
        1,
        "add(ARGV[2], -ARGV[1]) redis.call('RENAME', ARGV[2], '{aside}' .. ARGV[2]) add(ARGV[3], ARGV[1])
         redis.call('RENAME', '{aside}' .. ARGV[2], ARGV[2])",
    ),
    (
        2,
        "redis.call('COPY', ARGV[2], ARGV[2], 'DB', 3, 'REPLACE') add(ARGV[2], -ARGV[1]) spin(1e5)
         redis.call('EXISTS', 'undeclared') add(ARGV[3], ARGV[1])",
    ),
    (
        1,
        "redis.call('MOVE', ARGV[2], 2) spin(1e5) redis.call('SELECT', 2) redis.call('MOVE', ARGV[2], 0)
         redis.call('SELECT', 0) add(ARGV[2], -ARGV[1]) add(ARGV[3], ARGV[1])",
    ),
    // What fails in the middle is paid another way.
    (
        1,
        "add(ARGV[2], -ARGV[1]) redis.pcall('LPUSH', ARGV[3], 1) pcall(function() error('no') end)
         add(ARGV[3], ARGV[1])",
    ),
];

/// Ways to read all of KEYS or ARGV, which are the same.
const READINGS: &[(bool, &str)] = &[
    (true, "local all = {} for i, key in ipairs(ARGV) do all[i] = get(key) end return all"),
    (false, "local all = {} for i, key in ipairs(ARGV) do all[i] = get(key) end return all"),
    (false, "local all = {} for i, key in ipairs(ARGV) do all[i] = get(key) spin(5e3) end return all"),
    (true, "local all = {} for i, key in ipairs(ARGV) do all[i] = get(key) spin(2e4) end return all"),
    (true, "local all = {} for i, key in ipairs(ARGV) do all[i] = get(key) end redis.call('DBSIZE') return all"),
];

struct Bank {
    accounts: Vec<String>,
    library: String,
    left: AtomicU64,
    is_over: AtomicBool,
    paid: AtomicU64,
    retries: AtomicU64,
}

fn sums_stay(shards: usize, delay_us: u64) {
    let server = Server::start(Kind::Ember { shards }, FLAGS);
    let keys = Keys::on_every_shard(&server, ACCOUNTS);
    let bank = Bank {
        accounts: (0..keys.len()).map(|key| keys.on_the_wire(key).to_string()).collect(),
        library: library(),
        left: AtomicU64::new(setting("EMBERDB_TEST_SUMS").unwrap_or(READS)),
        is_over: AtomicBool::new(false),
        paid: AtomicU64::new(0),
        retries: AtomicU64::new(0),
    };
    bank.open(&mut server.client());
    server.delay_shards(delay_us);
    let mut rng = Rng::with_seed(seeds(1).next().expect("one seed"));
    let begin = Instant::now();
    let reads = bank.left.load(Relaxed);
    thread::scope(|scope| {
        let bank = &bank;
        let mut others: Vec<_> = (0..PAYERS)
            .map(|_| (server.client(), rng.fork()))
            .map(|(client, rng)| scope.spawn(move || bank.pay_until_it_is_over(client, rng)))
            .collect();
        let (client, rng_of_other) = (server.client(), rng.fork());
        others.push(scope.spawn(move || bank.disturb(client, rng_of_other)));
        let readers: Vec<_> = (0..READERS)
            .map(|_| (server.client(), rng.fork()))
            .map(|(client, rng)| scope.spawn(move || bank.read_until_none_is_left(client, rng)))
            .collect();
        let read: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        bank.is_over.store(true, Relaxed);
        let ended: Vec<_> = others.into_iter().map(|other| other.join()).collect();
        read.into_iter().chain(ended).for_each(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
    });
    eprintln!(
        "{shards} shards: {reads} sums and {} payments in {:.1?}, {} under WATCH again",
        bank.paid.load(Relaxed),
        begin.elapsed(),
        bank.retries.load(Relaxed)
    );
    bank.count(&mut server.client());
    server.signal("KILL");
    let server = server.restart(&[FLAGS, &["--shards", &shards.to_string()]].concat());
    bank.count(&mut server.client());
}

fn library() -> String {
    let mut code = format!("#!lua name=bank\n{ACCOUNTING}");
    for (nth, (_, body)) in PAYMENTS.iter().enumerate() {
        code += &format!("redis.register_function('pay_{nth}', function(KEYS, ARGV) {body} return 'paid' end)\n");
    }
    for (nth, (_, body)) in READINGS.iter().enumerate() {
        code += &format!(
            "redis.register_function{{function_name = 'read_{nth}', callback = function(KEYS, ARGV) {body} end, \
             flags = {{'no-writes'}}}}\n"
        );
    }
    code
}

impl Bank {
    fn open(&self, client: &mut Client) {
        assert!(!client.command(&["FUNCTION", "LOAD", &self.library]).is_error());
        for currency in CURRENCIES {
            for account in &self.accounts {
                assert!(!client.command(&add(currency, &name(currency, account), BALANCE)).is_error());
            }
        }
    }

    fn total(&self) -> i64 {
        self.accounts.len() as i64 * BALANCE
    }

    fn pay_until_it_is_over(&self, mut client: Client, mut rng: Rng) {
        while !self.is_over.load(Relaxed) {
            let currency = CURRENCIES[rng.usize(..CURRENCIES.len())];
            let from = rng.usize(..self.accounts.len());
            let to = (from + rng.usize(1..self.accounts.len())) % self.accounts.len();
            let (from, to) = (name(currency, &self.accounts[from]), name(currency, &self.accounts[to]));
            let amount = rng.i64(1..=AMOUNT_MAX);
            match rng.u32(..8) {
                0 => {
                    let (pay, receive) = (add(currency, &from, -amount), add(currency, &to, amount));
                    transact(&mut client, &[pay, receive]);
                }
                1 => while !self.pay_under_watch(&mut client, currency, (&from, &to, amount)) {},
                // A script within a transaction, beside a command.
                2 => {
                    let script = script(&mut rng, &from, &to, amount);
                    let (pay, receive) = (add(currency, &from, -amount), add(currency, &to, amount));
                    transact(&mut client, &[pay, script, receive]);
                }
                3 | 4 => {
                    let nth = rng.usize(..PAYMENTS.len());
                    let function = format!("pay_{nth}");
                    let request = call("FCALL", &function, PAYMENTS[nth].0, &from, &to, amount);
                    assert_paid(&ask(&mut client, &request), &request);
                }
                _ => {
                    let request = script(&mut rng, &from, &to, amount);
                    assert_paid(&ask(&mut client, &request), &request);
                }
            }
            self.paid.fetch_add(1, Relaxed);
        }
    }

    /// False where somebody was quicker.
    fn pay_under_watch(&self, client: &mut Client, currency: &str, (from, to, amount): (&str, &str, i64)) -> bool {
        assert_eq!(ask(client, &[words("WATCH"), words(from), words(to)].concat()), Value::ok());
        let mut balance = |key: &str| balance(&ask(client, &get(currency, key)));
        let (paid, received) = (balance(from) - amount, balance(to) + amount);
        let replies =
            pipeline(client, &[words("MULTI"), set(currency, from, paid), set(currency, to, received), words("EXEC")]);
        let is_done = *replies.last().expect("a reply to EXEC") != Value::NullArray;
        self.retries.fetch_add(u64::from(!is_done), Relaxed);
        is_done
    }

    fn read_until_none_is_left(&self, mut client: Client, mut rng: Rng) {
        let one_less = |left: u64| left.checked_sub(1);
        while self.left.fetch_update(Relaxed, Relaxed, one_less).is_ok() {
            let currency = CURRENCIES[rng.usize(..CURRENCIES.len())];
            let way = rng.usize(..3 + 2 * READINGS.len());
            let sum = self.sum(&mut client, currency, way);
            assert_eq!(sum, self.total(), "{currency} by way {way}");
        }
    }

    /// The sum of all accounts, read in one of several ways.
    fn sum(&self, client: &mut Client, currency: &str, way: usize) -> i64 {
        let keys: Vec<String> = self.accounts.iter().map(|account| name(currency, account)).collect();
        let gets: Vec<_> = keys.iter().map(|key| get(currency, key)).collect();
        let reply = match way {
            0 | 1 if currency == "string" => {
                let mget = words(&format!("MGET {}", keys.join(" ")));
                match way {
                    0 => ask(client, &mget),
                    _ => transact(client, &[mget]).items()[0].clone(),
                }
            }
            0..3 => transact(client, &gets),
            _ => {
                let nth = (way - 3) % READINGS.len();
                let (declares, body) = READINGS[nth];
                let is_function = way - 3 >= READINGS.len();
                let (command, what) = match is_function {
                    true => ("FCALL_RO", format!("read_{nth}")),
                    false => (["EVAL", "EVAL_RO"][nth % 2], format!("{ACCOUNTING} {body}")),
                };
                let declared = if declares { &keys[..] } else { &[] };
                let head = [command.to_owned(), what, declared.len().to_string()];
                let request: Vec<Vec<u8>> =
                    head.iter().chain(declared).chain(&keys).map(|word| word.clone().into_bytes()).collect();
                ask(client, &request)
            }
        };
        assert_eq!(reply.items().len(), keys.len(), "way {way}: {reply:?}");
        reply.items().iter().map(balance).sum()
    }

    /// Those who hold everything, make a snapshot, or hang up with a payment on its way.
    fn disturb(&self, mut client: Client, mut rng: Rng) {
        while !self.is_over.load(Relaxed) {
            let line = match rng.u32(..6) {
                0 => "DBSIZE",
                1 => "KEYS nothing*",
                2 => "SWAPDB 5 6",
                3 => "BGSAVE",
                4 => "BGREWRITEAOF",
                _ => "EVAL return(redis.call('RANDOMKEY')) 0",
            };
            // (A snapshot may be under way.)
            ask(&mut client, &words(line));
            thread::sleep(Duration::from_micros(rng.u64(..20_000)));
        }
    }

    #[track_caller]
    fn count(&self, client: &mut Client) {
        for currency in CURRENCIES {
            for way in 0..3 + READINGS.len() {
                assert_eq!(self.sum(client, currency, way), self.total(), "{currency} at the end");
            }
        }
    }
}

fn name(currency: &str, account: &str) -> String {
    format!("{account}:{currency}")
}

fn add(currency: &str, key: &str, amount: i64) -> Vec<Vec<u8>> {
    words(&match currency {
        "string" => format!("INCRBY {key} {amount}"),
        "hash" => format!("HINCRBY {key} balance {amount}"),
        _ => format!("ZINCRBY {key} {amount} balance"),
    })
}

fn get(currency: &str, key: &str) -> Vec<Vec<u8>> {
    words(&match currency {
        "string" => format!("GET {key}"),
        "hash" => format!("HGET {key} balance"),
        _ => format!("ZSCORE {key} balance"),
    })
}

fn set(currency: &str, key: &str, balance: i64) -> Vec<Vec<u8>> {
    words(&match currency {
        "string" => format!("SET {key} {balance}"),
        "hash" => format!("HSET {key} balance {balance}"),
        _ => format!("ZADD {key} {balance} balance"),
    })
}

/// A call of a script or a function that pays.
fn call(command: &str, what: &str, declared: usize, from: &str, to: &str, amount: i64) -> Vec<Vec<u8>> {
    let (count, amount) = (declared.to_string(), amount.to_string());
    let mut request = vec![command, what, &count];
    request.extend_from_slice(&[from, to][..declared]);
    request.extend_from_slice(&[&amount, from, to]);
    request.iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn script(rng: &mut Rng, from: &str, to: &str, amount: i64) -> Vec<Vec<u8>> {
    let (declared, body) = PAYMENTS[rng.usize(..PAYMENTS.len())];
    call("EVAL", &format!("{ACCOUNTING} {body} return 'paid'"), declared, from, to, amount)
}

#[track_caller]
fn assert_paid(reply: &Value, request: &[Vec<u8>]) {
    let is_paid = reply.bytes() == Some(b"paid");
    assert!(
        is_paid,
        "{reply:?} to {:?}",
        request.iter().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>()
    );
}

/// The replies of a transaction, none of them an error.
#[track_caller]
fn transact(client: &mut Client, commands: &[Vec<Vec<u8>>]) -> Value {
    let requests = [&[words("MULTI")], commands, &[words("EXEC")]].concat();
    let reply = pipeline(client, &requests).pop().expect("a reply to EXEC");
    let is_whole = reply.items().len() == commands.len() && !reply.items().iter().any(Value::is_error);
    assert!(is_whole, "{reply:?}");
    reply
}

#[track_caller]
fn pipeline(client: &mut Client, requests: &[Vec<Vec<u8>>]) -> Vec<Value> {
    let bytes: Vec<u8> = requests.iter().flat_map(|args| encode(args)).collect();
    client.send_raw(&bytes);
    requests.iter().map(|_| read(client)).collect()
}

#[track_caller]
fn ask(client: &mut Client, request: &[Vec<u8>]) -> Value {
    client.send_raw(&encode(request));
    read(client)
}

#[track_caller]
fn read(client: &mut Client) -> Value {
    client.read_within(ANSWER_LIMIT).expect("a reply in time")
}

fn balance(value: &Value) -> i64 {
    value.text().parse().unwrap_or_else(|_| panic!("{value:?} is no balance"))
}
