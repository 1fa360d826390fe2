//! Clients that record what they did. What each of them sends follows from the seed alone, not from replies; only how
//! the clients interleave differs from run to run.

use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::history::{Action, Command, History, Key, Operation};
use super::keys::Keys;
use crate::common::{Client, Server, Value, encode};

/// Clients at a time. More are in flight together than there are shards, and few enough for the search.
pub const CLIENTS: u8 = 6;
/// The clients meet after each round.
const ROUNDS: usize = 32;
/// So many scripts does each client play in a round; an average one has about two operations.
const SCRIPTS_PER_ROUND: usize = 8;
/// Every so many rounds all keys are written at once by a client that is alone: the search starts anew.
const ROUNDS_PER_RESET: usize = 8;
/// In the middle between two such rounds the clients wait until everything with a short deadline must be dead.
const PAUSE: Duration = Duration::from_millis(SLACK_MS as u64 + SHORT_TTL_MS as u64 + 10);

/// Far above what a server takes between reading its clock and running a command, since a machine on which tests run
/// side by side may not schedule it for tens of milliseconds.
const SLACK_MS: i64 = 100;
/// Short: dead in any case at the end of a pause. Middle: alive for sure at first, then maybe, then dead for sure.
const SHORT_TTL_MS: i64 = 30;
const MIDDLE_TTL_MS: (i64, i64) = (120, 300);
const LONG_TTL_MS: i64 = 100_000;

/// Values that are written lie so far apart that INCR does not lead from one to the next.
const VALUE_DISTANCE: i64 = 1_000;

/// What the clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// A bit of everything.
    All,
    /// Single commands, of one key and of several, alone and in pipelines.
    WithoutTransactions,
    /// The same, and scripts that run several commands as one.
    Scripts,
}

/// What a client does in one go.
enum Script {
    /// One write, then all replies. Each item is a command, or a transaction as a whole.
    Pipeline(Vec<Item>),
    /// Step by step: WATCH, reads, MULTI, commands, then the end.
    Watched { keys: Vec<Key>, reads: Vec<Key>, commands: Vec<Command>, end: End },
}

enum Item {
    Command(Command),
    Transaction(Vec<Command>),
    /// A Lua script that runs all of them.
    Script(Vec<Command>, Called),
}

/// How a script is called.
#[derive(Clone, Copy)]
struct Called {
    /// Its keys are declared.
    declares: bool,
    /// It computes so much between its commands that it is suspended.
    lasts: bool,
}

/// Runs the commands in its arguments: how many words each has, and these.
const RUN_ALL: &str = "\
local replies, at = {}, 2
while at <= #ARGV do
  local count = tonumber(ARGV[at])
  replies[#replies + 1] = redis.call(unpack(ARGV, at + 1, at + count))
  at = at + count + 1
  for i = 1, tonumber(ARGV[1]) do end
end
return replies";
/// Some milliseconds of computing, which others must not see anything of.
const LASTING_STEPS: &str = "100000";

#[derive(Clone, Copy)]
enum End {
    Exec,
    Discard,
    Unwatch,
}

/// Runs one history against a server that is empty, and leaves it so.
pub fn record(server: &Server, keys: &Keys, seed: u64, mix: Mix) -> History {
    let start = Instant::now();
    let mut rng = Rng::with_seed(seed);
    let mut recorders: Vec<Recorder> = (0..CLIENTS)
        .map(|number| Recorder {
            client: server.client(),
            number,
            keys,
            mix,
            rng: rng.fork(),
            start,
            written: 0,
            pipeline: 0,
            operations: Vec::new(),
        })
        .collect();
    for round in 0..ROUNDS {
        match round % ROUNDS_PER_RESET {
            0 => recorders[0].write_all(),
            middle if middle == ROUNDS_PER_RESET / 2 => thread::sleep(PAUSE),
            _ => {}
        }
        let reader = usize::from(rng.u8(..CLIENTS));
        recorders[reader].read_all();
        // The end of the scope is where the clients meet; one that fails takes the test with it.
        thread::scope(|scope| {
            recorders.iter_mut().for_each(|recorder| {
                scope.spawn(|| recorder.play_round());
            });
        });
    }
    recorders[0].read_all();
    let everything = (0..keys.len()).map(|key| keys.on_the_wire(key).to_string());
    recorders[0].client.command(&["del".to_string()].into_iter().chain(everything).collect::<Vec<_>>());
    History {
        slack_us: SLACK_MS * 1000,
        keys: keys.names(),
        operations: recorders.into_iter().flat_map(|recorder| recorder.operations).collect(),
    }
}

struct Recorder<'a> {
    client: Client,
    number: u8,
    keys: &'a Keys,
    mix: Mix,
    rng: Rng,
    start: Instant,
    /// Values written so far.
    written: i64,
    pipeline: u32,
    operations: Vec<Operation>,
}

/// Talking to the server, and taking down what was said.
impl Recorder<'_> {
    fn play_round(&mut self) {
        for _ in 0..SCRIPTS_PER_ROUND {
            match self.script() {
                Script::Pipeline(items) => self.play_pipeline(&items),
                Script::Watched { keys, reads, commands, end } => self.play_watched(keys, reads, commands, end),
            }
        }
    }

    fn write_all(&mut self) {
        let pairs = (0..self.keys.len()).map(|key| (key, self.value())).collect();
        self.play_pipeline(&[Item::Command(Command::Mset(pairs))]);
    }

    fn read_all(&mut self) {
        self.play_pipeline(&[Item::Command(Command::Mget((0..self.keys.len()).collect()))]);
    }

    fn play_pipeline(&mut self, items: &[Item]) {
        let mut bytes = Vec::new();
        for item in items {
            match item {
                Item::Command(command) => bytes.extend(self.encoded(command)),
                Item::Transaction(commands) => {
                    bytes.extend(encode(&["multi"]));
                    commands.iter().for_each(|command| bytes.extend(self.encoded(command)));
                    bytes.extend(encode(&["exec"]));
                }
                Item::Script(commands, called) => bytes.extend(self.encoded_script(commands, *called)),
            }
        }
        let sent_us = self.now_us();
        self.client.send_raw(&bytes);
        for item in items {
            let action = match item {
                Item::Command(command) => {
                    let value = self.client.read();
                    self.one(command, &value)
                }
                Item::Transaction(commands) => {
                    self.expect("OK");
                    commands.iter().for_each(|_| self.expect("QUEUED"));
                    self.executed(commands)
                }
                Item::Script(commands, _) => self.executed(commands),
            };
            self.note(sent_us, action);
        }
        self.pipeline += 1;
    }

    fn play_watched(&mut self, keys: Vec<Key>, reads: Vec<Key>, commands: Vec<Command>, end: End) {
        let names = keys.iter().map(|key| self.keys.on_the_wire(*key));
        let watch: Vec<&str> = ["watch"].into_iter().chain(names).collect();
        let sent_us = self.now_us();
        self.client.send_raw(&encode(&watch));
        self.expect("OK");
        self.note(sent_us, Action::Watch(keys));
        self.pipeline += 1;

        let reads: Vec<Item> = reads.into_iter().map(|key| Item::Command(Command::Get(key))).collect();
        self.play_pipeline(&reads);

        if !matches!(end, End::Unwatch) {
            self.client.send_raw(&encode(&["multi"]));
            self.expect("OK");
            for command in &commands {
                self.client.send_raw(&self.encoded(command));
                self.expect("QUEUED");
            }
        }
        let sent_us = self.now_us();
        let (word, done) = match end {
            End::Exec => ("exec", None),
            End::Discard => ("discard", Some(Action::Unwatch)),
            End::Unwatch => ("unwatch", Some(Action::Unwatch)),
        };
        self.client.send_raw(&encode(&[word]));
        let action = match done {
            None => self.executed(&commands),
            Some(action) => {
                self.expect("OK");
                action
            }
        };
        self.note(sent_us, action);
        self.pipeline += 1;
    }

    fn executed(&mut self, commands: &[Command]) -> Action {
        match self.client.read() {
            Value::NullArray => Action::Abort,
            Value::Array(replies) if replies.len() == commands.len() => {
                let pair = |(command, value): (&Command, &Value)| (command.clone(), reply(command, value));
                Action::Exec(commands.iter().zip(&replies).map(pair).collect())
            }
            other => panic!("EXEC of {commands:?} answers {other:?}"),
        }
    }

    fn one(&self, command: &Command, value: &Value) -> Action {
        Action::One(command.clone(), reply(command, value))
    }

    fn expect(&mut self, text: &str) {
        assert_eq!(self.client.read(), crate::common::simple(text));
    }

    fn encoded(&self, command: &Command) -> Vec<u8> {
        encode(&command.words(|key| self.keys.on_the_wire(key).to_string()))
    }

    fn encoded_script(&self, commands: &[Command], called: Called) -> Vec<u8> {
        let name = |key: Key| self.keys.on_the_wire(key).to_string();
        let mut keys: Vec<String> = commands.iter().flat_map(Command::keys).map(name).collect();
        keys.sort();
        keys.dedup();
        if !called.declares {
            keys.clear();
        }
        let steps = if called.lasts { LASTING_STEPS } else { "0" };
        let mut words = vec!["eval".to_owned(), RUN_ALL.to_owned(), keys.len().to_string()];
        words.extend(keys);
        words.push(steps.to_owned());
        for command in commands {
            let of_command = command.words(name);
            words.push(of_command.len().to_string());
            words.extend(of_command);
        }
        encode(&words)
    }

    fn note(&mut self, sent_us: i64, action: Action) {
        let (client, pipeline, answered_us) = (self.number, self.pipeline, self.now_us());
        self.operations.push(Operation { client, pipeline, sent_us, answered_us, action });
    }

    fn now_us(&self) -> i64 {
        self.start.elapsed().as_micros() as i64
    }
}

fn reply(command: &Command, value: &Value) -> super::history::Reply {
    command.reply(value).unwrap_or_else(|| panic!("{command:?} answers {value:?}"))
}

/// What to do next.
impl Recorder<'_> {
    fn script(&mut self) -> Script {
        let transactions = self.mix == Mix::All;
        match self.rng.u8(..16) {
            0..3 if transactions => self.watched(),
            3..6 if transactions => {
                let commands = self.commands(4);
                Script::Pipeline(vec![Item::Transaction(commands)])
            }
            0..7 if self.mix == Mix::Scripts => Script::Pipeline(vec![self.scripted(4)]),
            0..10 => {
                let command = self.command();
                Script::Pipeline(vec![Item::Command(command)])
            }
            // The same key again and again: its order is what is asked about.
            10 => {
                let key = self.key();
                let commands = [Command::Set(key, self.value()), Command::Incr(key), Command::Get(key)];
                Script::Pipeline(commands.map(Item::Command).into())
            }
            _ => {
                let items = (0..self.rng.usize(2..=4)).map(|_| match self.rng.u8(..6) {
                    0 if transactions => Item::Transaction(self.commands(3)),
                    _ => Item::Command(self.command()),
                });
                let mut items: Vec<Item> = items.collect();
                if self.mix == Mix::Scripts && self.rng.bool() {
                    // One at most: two that share no key have no order within a pipeline, unlike transactions.
                    items[0] = self.scripted(3);
                }
                Script::Pipeline(items)
            }
        }
    }

    /// Reads what it watches and writes part of it, as clients do who want to change what they have seen.
    fn watched(&mut self) -> Script {
        let keys = self.distinct(1, 3);
        let reads = if self.rng.bool() { keys.clone() } else { self.distinct(1, 2) };
        let commands = self.commands(3);
        let end = match self.rng.u8(..8) {
            0 => End::Discard,
            1 => End::Unwatch,
            _ => End::Exec,
        };
        Script::Watched { keys, reads, commands, end }
    }

    fn scripted(&mut self, max: usize) -> Item {
        let called = Called { declares: self.rng.u8(..4) != 0, lasts: self.rng.u8(..8) == 0 };
        Item::Script(self.commands(max), called)
    }

    fn commands(&mut self, max: usize) -> Vec<Command> {
        (0..self.rng.usize(1..=max)).map(|_| self.command()).collect()
    }

    fn command(&mut self) -> Command {
        match self.rng.u8(..32) {
            0..5 => Command::Get(self.key()),
            5..9 => Command::Set(self.key(), self.value()),
            9..16 => Command::Mget(self.distinct(2, 4)),
            16..21 => {
                let keys = self.distinct(2, 4);
                Command::Mset(keys.into_iter().map(|key| (key, self.value())).collect())
            }
            21..26 => Command::Incr(self.key()),
            26..29 => Command::Del(self.distinct(1, 2)),
            _ => Command::Pexpire(self.key(), self.ttl_ms()),
        }
    }

    fn ttl_ms(&mut self) -> i64 {
        match self.rng.u8(..8) {
            0 => -1_000,
            1 => 0,
            2..5 => self.rng.i64(1..=SHORT_TTL_MS),
            5..7 => self.rng.i64(MIDDLE_TTL_MS.0..MIDDLE_TTL_MS.1),
            _ => LONG_TTL_MS,
        }
    }

    fn key(&mut self) -> Key {
        self.rng.u8(..self.keys.len())
    }

    /// So many different keys, in any order.
    fn distinct(&mut self, min: usize, max: usize) -> Vec<Key> {
        let mut keys: Vec<Key> = (0..self.keys.len()).collect();
        self.rng.shuffle(&mut keys);
        keys.truncate(self.rng.usize(min..=max));
        keys
    }

    fn value(&mut self) -> i64 {
        self.written += 1;
        (self.written * i64::from(CLIENTS) + i64::from(self.number)) * VALUE_DISTANCE
    }
}
