//! What clients did and saw, as data and as text, so that a history can be checked again without a server.
//!
//! ```text
//!  slack_us 100000
//!  keys 0a 0b 1a
//!  # client, pipeline, sent and answered in microseconds, what was done
//!  0 0 100 180 mset 0a 5 1a 6 -> OK
//!  1 0 110 190 get 1a -> 6
//!  1 1 200 260 watch 0a
//!  1 2 270 300 exec incr 0a -> 6 ; mget 0a 0b -> 6 nil
//!  0 1 290 310 abort
//! ```
//!
//! Keys carry the number of their shard and a letter. All values are integers, which INCR can take; those that are
//! written differ, so that a value that is read names its write.

use std::fmt::{self, Display};
use std::str::{FromStr, SplitWhitespace};

use crate::common::Value;

/// Index in [`History::keys`].
pub type Key = u8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Get(Key),
    Mget(Vec<Key>),
    Set(Key, i64),
    Mset(Vec<(Key, i64)>),
    Incr(Key),
    Del(Vec<Key>),
    /// In milliseconds; not above zero is a deadline in the past, which deletes.
    Pexpire(Key, i64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Ok,
    Int(i64),
    Values(Vec<Option<i64>>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    One(Command, Reply),
    Watch(Vec<Key>),
    /// UNWATCH, or DISCARD with whatever was queued: nothing but the end of watching.
    Unwatch,
    /// A transaction that went through.
    Exec(Vec<(Command, Reply)>),
    /// EXEC answered nil.
    Abort,
}

/// One thing that takes effect at one moment between `sent_us` and `answered_us`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    pub client: u8,
    /// Of one connection, what has the same number was sent in one write.
    pub pipeline: u32,
    pub sent_us: i64,
    pub answered_us: i64,
    pub action: Action,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// How far the moment by which a server judges deadlines may be from the moment at which a command takes effect:
    /// a server reads its clock once for a batch of commands, and may not be scheduled in between.
    pub slack_us: i64,
    pub keys: Vec<String>,
    /// Of one pipeline in the order in which they were sent; otherwise in any order.
    pub operations: Vec<Operation>,
}

impl Command {
    pub fn keys(&self) -> Vec<Key> {
        match self {
            Command::Get(key) | Command::Set(key, _) | Command::Incr(key) | Command::Pexpire(key, _) => vec![*key],
            Command::Mget(keys) | Command::Del(keys) => keys.clone(),
            Command::Mset(pairs) => pairs.iter().map(|(key, _)| *key).collect(),
        }
    }

    /// The words of the command; `name` says what a key is called.
    pub fn words(&self, name: impl Fn(Key) -> String) -> Vec<String> {
        let of = |command: &str, rest: Vec<String>| [vec![command.to_string()], rest].concat();
        match self {
            Command::Get(key) => of("get", vec![name(*key)]),
            Command::Mget(keys) => of("mget", keys.iter().map(|key| name(*key)).collect()),
            Command::Set(key, value) => of("set", vec![name(*key), value.to_string()]),
            Command::Mset(pairs) => {
                of("mset", pairs.iter().flat_map(|(key, value)| [name(*key), value.to_string()]).collect())
            }
            Command::Incr(key) => of("incr", vec![name(*key)]),
            Command::Del(keys) => of("del", keys.iter().map(|key| name(*key)).collect()),
            Command::Pexpire(key, ttl_ms) => of("pexpire", vec![name(*key), ttl_ms.to_string()]),
        }
    }

    /// The server's reply, if it is of a kind that this command has.
    pub fn reply(&self, value: &Value) -> Option<Reply> {
        let held = |value: &Value| match value {
            Value::NullBulk => Some(None),
            Value::Bulk(bytes) => Some(Some(std::str::from_utf8(bytes).ok()?.parse().ok()?)),
            _ => None,
        };
        match (self, value) {
            (Command::Get(_), value) => Some(Reply::Values(vec![held(value)?])),
            (Command::Mget(keys), Value::Array(items)) if items.len() == keys.len() => {
                Some(Reply::Values(items.iter().map(held).collect::<Option<_>>()?))
            }
            (Command::Set(..) | Command::Mset(_), value) => (*value == Value::ok()).then_some(Reply::Ok),
            (Command::Incr(_) | Command::Del(_) | Command::Pexpire(..), Value::Int(number)) => {
                Some(Reply::Int(*number))
            }
            _ => None,
        }
    }
}

impl Operation {
    pub fn keys(&self) -> Vec<Key> {
        match &self.action {
            Action::One(command, _) => command.keys(),
            Action::Watch(keys) => keys.clone(),
            Action::Exec(commands) => commands.iter().flat_map(|(command, _)| command.keys()).collect(),
            Action::Unwatch | Action::Abort => Vec::new(),
        }
    }

    /// Whether it concerns what the connection watches.
    pub fn is_of_session(&self) -> bool {
        !matches!(self.action, Action::One(..))
    }

    /// Whether this one takes effect before `later`, which was sent after it in the same pipeline: the server promises
    /// order for each key, and what a connection watches is like a key.
    pub fn precedes_in_pipeline(&self, later: &Operation) -> bool {
        let keys = later.keys();
        self.is_of_session() && later.is_of_session() || self.keys().iter().any(|key| keys.contains(key))
    }
}

impl History {
    pub fn clients(&self) -> usize {
        self.operations.iter().map(|operation| usize::from(operation.client) + 1).max().unwrap_or(0)
    }

    /// One operation as a line of the format.
    pub fn line(&self, operation: &Operation) -> String {
        let Operation { client, pipeline, sent_us, answered_us, action } = operation;
        let names = |keys: &[Key]| keys.iter().map(|key| self.name(*key)).collect::<Vec<_>>().join(" ");
        let action = match action {
            Action::One(command, reply) => self.command(command, reply),
            Action::Watch(keys) => format!("watch {}", names(keys)),
            Action::Unwatch => "unwatch".to_string(),
            Action::Exec(commands) => {
                let commands: Vec<_> = commands.iter().map(|(command, reply)| self.command(command, reply)).collect();
                format!("exec {}", commands.join(" ; "))
            }
            Action::Abort => "abort".to_string(),
        };
        format!("{client} {pipeline} {sent_us} {answered_us} {action}")
    }

    pub fn name(&self, key: Key) -> String {
        self.keys[usize::from(key)].clone()
    }

    fn command(&self, command: &Command, reply: &Reply) -> String {
        format!("{} -> {reply}", command.words(|key| self.name(key)).join(" "))
    }
}

impl Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Ok => f.write_str("OK"),
            Reply::Int(number) => write!(f, "{number}"),
            Reply::Values(values) => {
                let shown = |value: &Option<i64>| value.map_or("nil".to_string(), |number| number.to_string());
                f.write_str(&values.iter().map(shown).collect::<Vec<_>>().join(" "))
            }
        }
    }
}

impl Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "slack_us {}\nkeys {}", self.slack_us, self.keys.join(" "))?;
        self.operations.iter().try_for_each(|operation| writeln!(f, "{}", self.line(operation)))
    }
}

impl FromStr for History {
    type Err = String;

    fn from_str(text: &str) -> Result<History, String> {
        let mut history = History::default();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let read = history.add_line(line);
            read.ok_or_else(|| format!("line {} is not of a history: {line}", number + 1))?;
        }
        Ok(history)
    }
}

/// Reading: `None` is a line that does not follow the format.
impl History {
    fn add_line(&mut self, line: &str) -> Option<()> {
        let mut words = line.split_whitespace();
        match words.next()? {
            "slack_us" => self.slack_us = words.next()?.parse().ok()?,
            "keys" => self.keys = words.map(str::to_string).collect(),
            client => {
                let operation = Operation {
                    client: client.parse().ok()?,
                    pipeline: words.next()?.parse().ok()?,
                    sent_us: words.next()?.parse().ok()?,
                    answered_us: words.next()?.parse().ok()?,
                    action: self.parse_action(words)?,
                };
                (operation.sent_us <= operation.answered_us).then(|| self.operations.push(operation))?;
            }
        }
        Some(())
    }

    fn parse_action(&self, mut words: SplitWhitespace) -> Option<Action> {
        let rest: Vec<&str> = words.clone().skip(1).collect();
        Some(match words.next()? {
            "watch" => Action::Watch(self.parse_keys(&rest)?),
            "unwatch" => Action::Unwatch,
            "abort" => Action::Abort,
            "exec" => Action::Exec(
                rest.split(|word| *word == ";").map(|part| self.parse_command(part)).collect::<Option<_>>()?,
            ),
            name => {
                let (command, reply) = self.parse_command(&[&[name], rest.as_slice()].concat())?;
                Action::One(command, reply)
            }
        })
    }

    fn parse_command(&self, words: &[&str]) -> Option<(Command, Reply)> {
        let arrow = words.iter().position(|word| *word == "->")?;
        let ((name, arguments), answer) = (words[..arrow].split_first()?, &words[arrow + 1..]);
        let key = || self.parse_key(arguments.first()?);
        let number = || arguments.get(1)?.parse().ok();
        let command = match *name {
            "get" => Command::Get(key()?),
            "mget" => Command::Mget(self.parse_keys(arguments)?),
            "set" => Command::Set(key()?, number()?),
            "mset" => {
                let pair = |pair: &[&str]| Some((self.parse_key(pair[0])?, pair.get(1)?.parse().ok()?));
                Command::Mset(arguments.chunks(2).map(pair).collect::<Option<_>>()?)
            }
            "incr" => Command::Incr(key()?),
            "del" => Command::Del(self.parse_keys(arguments)?),
            "pexpire" => Command::Pexpire(key()?, number()?),
            _ => return None,
        };
        let value = |word: &&str| match *word {
            "nil" => Some(None),
            number => Some(Some(number.parse().ok()?)),
        };
        let reply = match &command {
            Command::Set(..) | Command::Mset(_) => (answer == ["OK"]).then_some(Reply::Ok)?,
            Command::Get(_) | Command::Mget(_) => Reply::Values(answer.iter().map(value).collect::<Option<_>>()?),
            Command::Incr(_) | Command::Del(_) | Command::Pexpire(..) => Reply::Int(answer.first()?.parse().ok()?),
        };
        Some((command, reply))
    }

    fn parse_keys(&self, words: &[&str]) -> Option<Vec<Key>> {
        words.iter().map(|word| self.parse_key(word)).collect()
    }

    fn parse_key(&self, word: &str) -> Option<Key> {
        Some(self.keys.iter().position(|key| key == word)? as Key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
slack_us 5000
keys 0a 0b 1a
0 0 100 180 mset 0a 5 1a -6 -> OK
1 0 110 190 get 1a -> nil
1 0 110 195 mget 1a 0b -> nil 7
2 0 111 120 set 0b 7 -> OK
2 1 121 130 del 0a 1a -> 2
2 2 131 139 pexpire 0b -1 -> 1
1 1 200 260 watch 0a 0b
1 2 270 300 exec incr 0a -> 6 ; mget 0a 0b -> 6 nil
0 1 290 310 abort
0 2 311 312 unwatch
";

    #[test]
    fn a_history_survives_being_written_and_read() {
        let history: History = TEXT.parse().expect("a history");
        assert_eq!(history.operations.len(), 10);
        assert_eq!(history.to_string(), TEXT);
        assert_eq!(format!("# a comment\n\n{history}").parse(), Ok(history));
    }

    #[test]
    fn what_is_no_history_is_refused() {
        for line in ["0 0 5 4 abort", "0 0 1 2 get 9z -> nil", "0 0 1 2 get 0a", "0 0 1 2 lpush 0a 1 -> 1", "x"] {
            let error = format!("keys 0a\n{line}").parse::<History>().expect_err(line);
            assert_eq!(error, format!("line 2 is not of a history: {line}"));
        }
    }
}
