//! Calls, errors and latencies of commands, by their numbers in the table. Each shard counts what its own connections
//! have asked for, wherever it ran.

use hdrhistogram::Histogram;
use std::collections::BTreeMap;

/// Latencies are told from one nanosecond to one second, with two significant digits, as in Redis. (What took longer
/// counts as a second.)
const LATENCY_NS_MAX: u64 = 1_000_000_000;
const LATENCY_DIGITS: u8 = 2;
/// Different first words of errors that are counted, and the longest: nobody fills memory with words of their own.
const ERROR_WORDS: usize = 128;
const ERROR_WORD_BYTES: usize = 32;

/// What is known of one command.
#[derive(Clone, Default)]
pub struct Calls {
    /// How often it ran.
    pub calls: u64,
    /// For how long, all calls together.
    pub ns: u64,
    /// How often it was refused before it ran.
    pub rejected: u64,
    /// How often it ran and answered an error.
    pub failed: u64,
    /// Nanoseconds a call, where latency is tracked.
    pub latency: Option<Histogram<u64>>,
}

impl Calls {
    pub fn is_empty(&self) -> bool {
        self.calls + self.rejected + self.failed == 0
    }

    fn add(&mut self, other: &Calls) {
        self.calls += other.calls;
        self.ns += other.ns;
        self.rejected += other.rejected;
        self.failed += other.failed;
        if let Some(latency) = &other.latency {
            self.latency.get_or_insert_with(histogram).add(latency).expect("it grows");
        }
    }
}

/// It takes 2 KB, and one more each time that a latency twice as long as all before is seen: with the bound at once it
/// would take 24, a command and shard.
fn histogram() -> Histogram<u64> {
    Histogram::new(LATENCY_DIGITS).expect("two digits are few")
}

#[derive(Clone, Default)]
pub struct Statistics {
    /// By the commands' numbers.
    commands: Vec<Calls>,
    /// By the first word of the error.
    errors: BTreeMap<Box<[u8]>, u64>,
    /// Error replies.
    pub error_replies: u64,
    pub tracks_latency: bool,
}

impl Statistics {
    /// Commands that were called, with their numbers.
    pub fn commands(&self) -> impl Iterator<Item = (usize, &Calls)> {
        self.commands.iter().enumerate().filter(|(_, calls)| !calls.is_empty())
    }

    pub fn errors(&self) -> impl Iterator<Item = (&[u8], u64)> {
        self.errors.iter().map(|(word, count)| (&**word, *count))
    }

    fn command(&mut self, command: usize) -> &mut Calls {
        if command >= self.commands.len() {
            self.commands.resize_with(command + 1, Calls::default);
        }
        &mut self.commands[command]
    }

    /// So many calls took so long together; each counts as an equal part of it.
    pub fn ran(&mut self, command: usize, count: u64, ns: u64) {
        let tracks_latency = self.tracks_latency;
        let calls = self.command(command);
        calls.calls += count;
        calls.ns += ns;
        if tracks_latency {
            let each_ns = (ns / count.max(1)).clamp(1, LATENCY_NS_MAX);
            calls.latency.get_or_insert_with(histogram).record_n(each_ns, count).expect("it grows");
        }
    }

    /// A call that was counted has answered an error.
    pub fn failed(&mut self, command: usize, reply: &[u8]) {
        self.command(command).failed += 1;
        self.count_error(reply);
    }

    /// A command was refused with an error; None where there is no such command.
    pub fn rejected(&mut self, command: Option<usize>, reply: &[u8]) {
        if let Some(command) = command {
            self.command(command).rejected += 1;
        }
        self.count_error(reply);
    }

    fn count_error(&mut self, reply: &[u8]) {
        self.error_replies += 1;
        let text = reply.strip_prefix(b"-").unwrap_or(reply);
        let word = text.split(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default();
        let word = &word[..word.len().min(ERROR_WORD_BYTES)];
        if let Some(count) = self.errors.get_mut(word) {
            *count += 1;
        } else if self.errors.len() < ERROR_WORDS {
            self.errors.insert(word.into(), 1);
        }
    }

    /// A copy without the histograms, which are large.
    pub fn without_latency(&self) -> Statistics {
        let counts = |calls: &Calls| Calls { latency: None, ..*calls };
        Statistics {
            commands: self.commands.iter().map(counts).collect(),
            errors: self.errors.clone(),
            error_replies: self.error_replies,
            tracks_latency: self.tracks_latency,
        }
    }

    /// Takes another shard's in.
    pub fn add(&mut self, other: &Statistics) {
        other.commands().for_each(|(command, calls)| self.command(command).add(calls));
        other.errors().for_each(|(word, count)| *self.errors.entry(word.into()).or_default() += count);
        self.error_replies += other.error_replies;
    }

    pub fn reset(&mut self) {
        *self = Statistics { tracks_latency: self.tracks_latency, ..Statistics::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_add_up() {
        let mut all = Statistics::default();
        for shard in 0..3 {
            let mut of_shard = Statistics { tracks_latency: true, ..Statistics::default() };
            of_shard.ran(7, 4, 4_000);
            of_shard.ran(7, 0, 500);
            of_shard.ran(shard, 1, 2_000_000_000);
            of_shard.failed(7, b"-WRONGTYPE Operation against\r\n");
            of_shard.rejected(None, b"-ERR unknown command\r\n");
            of_shard.rejected(Some(9), b"-ERR wrong number\r\n");
            all.add(&of_shard);
        }
        let (_, seven) = all.commands().find(|(command, _)| *command == 7).expect("it was called");
        assert_eq!((seven.calls, seven.ns, seven.failed, seven.rejected), (12, 13_500, 3, 0));
        assert_eq!(seven.latency.as_ref().expect("tracked").len(), 12);
        assert_eq!(all.commands().map(|(command, _)| command).collect::<Vec<_>>(), [0, 1, 2, 7, 9]);
        let errors: Vec<_> = all.errors().collect();
        assert_eq!(errors, [(&b"ERR"[..], 6), (&b"WRONGTYPE"[..], 3)]);
        assert_eq!(all.error_replies, 9);
        all.reset();
        assert_eq!(all.commands().count(), 0);
    }

    #[test]
    fn words_of_errors_are_bounded() {
        let mut statistics = Statistics::default();
        for word in 0..10_000 {
            statistics.rejected(None, format!("-{word}{} text\r\n", "X".repeat(100)).as_bytes());
        }
        assert_eq!(statistics.errors().count(), ERROR_WORDS);
        assert!(statistics.errors().all(|(word, _)| word.len() == ERROR_WORD_BYTES));
        assert_eq!(statistics.error_replies, 10_000);
    }
}
