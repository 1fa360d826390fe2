//! One client: its connection, which others may end, and how long it waits for a reply.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Result};
use std::time::{Duration, Instant};

use super::{BUSY_AFTER, Round, cpu_by_thread};
use crate::common::{Client, Value, encode};

/// The longest that a thread of the server may work while somebody waits who could be answered. It is CPU time, so that
/// a busy machine fails nothing.
const ANSWER_CPU: Duration = Duration::from_secs(2);
/// The longest that an idle server may say nothing.
const ANSWER: Duration = Duration::from_secs(45);
/// Bytes of a request or a reply that are told.
const TOLD_BYTES: usize = 300;

/// The replies to requests that were sent together.
pub struct Heard {
    pub replies: Vec<Value>,
    /// Whether these are all; else the server has hung up.
    pub is_whole: bool,
}

pub struct Link<'r, 's> {
    pub round: &'r Round<'s>,
    pub name: String,
    pub rng: fastrand::Rng,
    pub asked: usize,
    client: Option<Client>,
    pushed: usize,
}

impl<'r, 's> Link<'r, 's> {
    pub fn new(round: &'r Round<'s>, name: String, rng: fastrand::Rng) -> Link<'r, 's> {
        Link { round, name, rng, asked: 0, client: None, pushed: 0 }
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.rng.usize(..of.len())]
    }

    pub fn one_in(&mut self, n: u32) -> bool {
        self.rng.u32(..n) == 0
    }

    /// A name that nobody has pushed.
    pub fn element(&mut self) -> String {
        self.pushed += 1;
        format!("element:{}:{}", self.name, self.pushed)
    }

    pub fn nap(&mut self, micros_max: u64) {
        std::thread::sleep(Duration::from_micros(self.rng.u64(..micros_max)));
    }

    pub fn hang_up(&mut self) {
        self.client = None;
    }

    fn connected(&mut self) -> Result<&mut Client> {
        if self.client.is_none() {
            let client = Client::connect(self.round.server.port());
            self.client = Some(client.inspect_err(|error| self.round.fail(format!("nobody can connect: {error}")))?);
        }
        Ok(self.client.as_mut().expect("connected"))
    }

    pub fn send(&mut self, bytes: &[u8]) -> bool {
        let is_sent = self.connected().and_then(|client| client.try_send_raw(bytes)).is_ok();
        if !is_sent {
            self.client = None;
        }
        is_sent
    }

    pub fn send_all<A: AsRef<[u8]>>(&mut self, requests: &[Vec<A>]) {
        let bytes: Vec<u8> = requests.iter().flat_map(|args| encode(args)).collect();
        let shown = bytes[..bytes.len().min(TOLD_BYTES)].escape_ascii();
        self.round.tell(format!("{} says without waiting {shown}", self.name));
        self.send(&bytes);
    }

    /// Whatever has come so far.
    pub fn read_what_came(&mut self) {
        while let Some(client) = &mut self.client
            && !self.round.is_over()
        {
            if client.try_read_within(Duration::from_millis(1)).is_err() {
                return;
            }
        }
    }

    /// Sends requests together, and waits for their replies. Patience is how long they may rightly take.
    pub fn ask_all<A: AsRef<[u8]>>(&mut self, requests: &[Vec<A>], patience: Duration) -> Heard {
        let bytes: Vec<u8> = requests.iter().flat_map(|args| encode(args)).collect();
        let shown = bytes[..bytes.len().min(TOLD_BYTES)].escape_ascii().to_string();
        self.round.tell(format!("{} asks {shown}", self.name));
        self.asked += requests.len();
        let cpu = cpu_by_thread(self.round.server);
        let mut heard = Heard { replies: Vec::new(), is_whole: false };
        if !self.send(&bytes) {
            return heard;
        }
        for _ in requests {
            match self.reply(&shown, patience, &cpu) {
                Some(reply) => heard.replies.push(reply),
                None => return heard,
            }
        }
        heard.is_whole = true;
        heard
    }

    pub fn ask<A: AsRef<[u8]>>(&mut self, args: Vec<A>) -> Option<Value> {
        self.ask_all(&[args], Duration::ZERO).replies.pop()
    }

    /// A request written as a line that answers at once.
    pub fn call(&mut self, line: &str) -> Option<Value> {
        self.ask(line.split(' ').collect())
    }

    /// The next reply that is no push.
    fn reply(&mut self, shown: &str, patience: Duration, cpu: &BTreeMap<u64, Duration>) -> Option<Value> {
        let begin = Instant::now();
        let limit = ANSWER_CPU + BUSY_AFTER + patience;
        loop {
            let client = self.client.as_mut()?;
            match client.try_read_within(Duration::from_millis(200)) {
                Ok(Value::Push(_)) => continue,
                Ok(reply) => {
                    let text = format!("{reply:?}");
                    let end = text.char_indices().nth(TOLD_BYTES).map_or(text.len(), |(at, _)| at);
                    self.round.tell(format!("{} hears {}", self.name, &text[..end]));
                    return Some(reply);
                }
                Err(error) if error.kind() == ErrorKind::TimedOut => {}
                Err(error) => {
                    self.round.tell(format!("{} is ended: {error}", self.name));
                    self.client = None;
                    return None;
                }
            }
            if begin.elapsed() < limit {
                continue;
            }
            let now = cpu_by_thread(self.round.server);
            let used =
                |(thread, now): (u64, Duration)| now.saturating_sub(cpu.get(&thread).copied().unwrap_or_default());
            let longest = now.into_iter().map(used).max().unwrap_or_default();
            if longest > limit || begin.elapsed() > ANSWER + patience {
                let since = begin.elapsed();
                self.round.fail(format!(
                    "{} has no reply after {since:?}, in which a thread worked {longest:?}: {shown}",
                    self.name
                ));
                self.client = None;
                return None;
            }
        }
    }

    /// Requests that push these elements, the last of which says whether.
    pub fn push<A: AsRef<[u8]>>(&mut self, requests: &[Vec<A>], elements: Vec<String>) {
        let heard = self.ask_all(requests, Duration::ZERO);
        match heard.replies.last().map(pushed) {
            Some(Pushed::All) if heard.is_whole => self.round.ledger.push(elements),
            Some(Pushed::Nothing) if heard.is_whole => {}
            _ => self.round.ledger.push_perhaps(elements),
        }
    }

    /// Requests that pop so many elements at most.
    pub fn pop<A: AsRef<[u8]>>(&mut self, requests: &[Vec<A>], elements_max: usize, patience: Duration) {
        let heard = self.ask_all(requests, patience);
        let popped: usize = heard.replies.iter().map(|reply| self.round.ledger.pop(reply)).sum();
        if !heard.is_whole && popped == 0 {
            self.round.ledger.pop_unread(elements_max);
        }
    }
}

enum Pushed {
    All,
    Nothing,
    Perhaps,
}

/// Whether pushes were executed: a list that is not there takes none, a transaction is given up for a watched key, and an
/// error in a script says nothing of what stands before it.
fn pushed(reply: &Value) -> Pushed {
    match reply {
        Value::Array(items) => {
            let all = items.iter().filter(|item| matches!(pushed(item), Pushed::All)).count();
            if all == items.len() { Pushed::All } else { Pushed::Perhaps }
        }
        Value::Int(1..) | Value::Bulk(_) | Value::Simple(_) => Pushed::All,
        Value::Error(text) if text.contains("script:") => Pushed::Perhaps,
        _ => Pushed::Nothing,
    }
}
