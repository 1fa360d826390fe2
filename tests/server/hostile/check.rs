//! What holds after every batch, looked at from a connection of its own.

use crate::common::{Client, Server, Value, encode, wait_until, words};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

/// The longest that one of the server's threads may work while a simple question waits. It is CPU time, so that a busy
/// machine fails nothing.
const ANSWER_CPU: Duration = Duration::from_secs(2);
/// The longest that an idle server may say nothing.
const ANSWER: Duration = Duration::from_secs(60);
/// The longest that it may take until something has come to rest.
const REST: Duration = Duration::from_secs(30);
const MEMORY_BYTES_MAX: u64 = 1 << 30;
/// Above what it was before the first batch, when everything has been deleted.
const KEPT_BYTES_MAX: u64 = 64 << 20;
pub const DATABASES: usize = 4;
const TICKS_A_SECOND: u64 = 100;

pub struct Checks {
    pub server: Server,
    /// `used_memory` of the empty server.
    empty_bytes: u64,
    /// The most that was seen, for whoever wants to know how far away the limits are.
    pub peak_bytes: u64,
    pub slowest: (Duration, String),
}

impl Checks {
    pub fn new(server: Server) -> Checks {
        let empty_bytes = used_memory(&server);
        Checks { server, empty_bytes, peak_bytes: 0, slowest: Default::default() }
    }

    pub fn after_batch(&mut self) {
        self.lives();
        let mut client = self.server.client();
        self.ask(&mut client, "CLIENT UNPAUSE");
        // Somebody may have made it a replica, of whomever.
        self.ask(&mut client, "REPLICAOF NO ONE");
        self.ask(&mut client, "PING");
        // All shards answer.
        self.ask(&mut client, "DBSIZE");
        self.nobody_is_left(&mut client);
        let peak = self.server.peak_bytes();
        self.peak_bytes = self.peak_bytes.max(peak);
        assert!(peak <= MEMORY_BYTES_MAX, "the process had {} MB", peak >> 20);
        for database in 0..DATABASES {
            self.ask(&mut client, &format!("SELECT {database}"));
            self.keys_are_those_of_scan(&mut client);
        }
        self.lives();
    }

    /// Everything is deleted: nothing of it stays.
    pub fn after_round(&mut self) {
        let mut client = self.server.client();
        self.ask(&mut client, "FLUSHALL");
        let limit = self.empty_bytes + KEPT_BYTES_MAX;
        let is_back = wait_until(REST, || used_memory(&self.server) <= limit);
        assert!(is_back, "{} MB are in use after FLUSHALL", used_memory(&self.server) >> 20);
        fs::write(format!("/proc/{}/clear_refs", self.server.pid()), "5").expect("the peak begins anew");
    }

    fn lives(&mut self) {
        assert!(!self.server.has_ended(), "the process has ended");
    }

    /// The reply, which must come before a thread has worked for too long.
    fn ask(&mut self, client: &mut Client, line: &str) -> Value {
        let (begin, cpu) = (Instant::now(), cpu_by_thread(&self.server));
        client.send_raw(&encode(&words(line)));
        loop {
            if let Some(reply) = client.read_within(Duration::from_millis(50)) {
                assert!(!reply.is_error(), "{line}: {reply:?}");
                if begin.elapsed() > self.slowest.0 {
                    self.slowest = (begin.elapsed(), line.to_owned());
                }
                return reply;
            }
            self.lives();
            let used =
                |(thread, now): (u64, Duration)| now.saturating_sub(cpu.get(&thread).copied().unwrap_or_default());
            let longest = cpu_by_thread(&self.server).into_iter().map(used).max().unwrap_or_default();
            assert!(longest <= ANSWER_CPU, "{line} is not answered, and a thread has worked for {longest:?}");
            assert!(begin.elapsed() <= ANSWER, "{line} is not answered, and no thread works");
        }
    }

    fn nobody_is_left(&mut self, client: &mut Client) {
        let begin = Instant::now();
        loop {
            let list = self.ask(client, "CLIENT LIST").text();
            let info = self.ask(client, "INFO").text();
            let is_zero = |name: &str| info.lines().any(|line| line == format!("{name}:0"));
            let counted = ["blocked_clients", "pubsub_clients", "pubsub_channels", "pubsub_patterns"];
            let wrong: Vec<_> = counted.into_iter().filter(|name| !is_zero(name)).collect();
            if list.lines().count() == 1 && wrong.is_empty() {
                return;
            }
            assert!(begin.elapsed() < REST, "all clients are gone, but not {wrong:?} and\n{list}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Keys die while they are counted, so a difference counts only where it stays.
    fn keys_are_those_of_scan(&mut self, client: &mut Client) {
        let begin = Instant::now();
        loop {
            let (mut scanned, mut returned, mut cursor) = (BTreeSet::new(), 0, "0".to_owned());
            loop {
                let page = self.ask(client, &format!("SCAN {cursor} COUNT 1000"));
                let keys = page.items()[1].items();
                returned += keys.len();
                scanned.extend(keys.iter().filter_map(|key| key.bytes().map(<[u8]>::to_vec)));
                cursor = page.items()[0].text();
                if cursor == "0" {
                    break;
                }
            }
            let keys = self.ask(client, "KEYS *").items().len();
            let size = self.ask(client, "DBSIZE").number() as usize;
            if scanned.len() == size && returned == size && keys == size {
                return;
            }
            assert!(
                begin.elapsed() < REST,
                "DBSIZE says {size}, KEYS {keys}, SCAN {}, with repetitions {returned}",
                scanned.len()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// CPU time of the server's threads so far, by their ids.
pub fn cpu_by_thread(server: &Server) -> BTreeMap<u64, Duration> {
    let mut threads = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{}/task", server.pid())).into_iter().flatten().flatten() {
        // A thread may end meanwhile.
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        // Behind the name, which may hold anything: state is the 3rd field, utime the 14th, stime the 15th.
        let fields: Vec<&str> = stat.rsplit(')').next().expect("a name").split_whitespace().collect();
        let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().expect("ticks")).sum();
        let id = entry.file_name().to_string_lossy().parse().expect("a number");
        threads.insert(id, Duration::from_millis(ticks * 1_000 / TICKS_A_SECOND));
    }
    threads
}

fn used_memory(server: &Server) -> u64 {
    server.info("used_memory").and_then(|bytes| bytes.parse().ok()).expect("used_memory")
}
