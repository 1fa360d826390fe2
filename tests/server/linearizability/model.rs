//! What one operation does to all keys at one moment: the sequential server that a history must look like.
//!
//! A deadline is known only as an interval, since nobody outside sees when the server took PEXPIRE's moment. So a key
//! dies in a step of its own, which no client asked for: it may happen once the earliest possible deadline has come,
//! and has happened for everything sent after the latest. What died stays dead until it is written again.

use super::history::{Action, Command, History, Key, Operation, Reply};

/// Everything that a reply can depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    keys: Vec<Slot>,
    /// By client.
    watches: Vec<Watch>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Slot {
    value: Option<i64>,
    deadline: Option<Deadline>,
}

/// No deadline is before `earliest_us` or after `latest_us`, the slack of the server's clock included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Deadline {
    earliest_us: i64,
    latest_us: i64,
}

/// `keys` has a bit for each; it is empty once one of them has changed, so that equal futures are equal states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Watch {
    keys: u32,
    changed: bool,
}

impl State {
    pub fn empty(history: &History) -> State {
        State { keys: vec![Slot::default(); history.keys.len()], watches: vec![Watch::default(); history.clients()] }
    }

    /// The states in which `operation` may leave this one, none if its replies cannot be. It takes effect no later than
    /// `until_us`.
    pub fn after(&self, operation: &Operation, until_us: i64, slack_us: i64) -> Vec<State> {
        let mut start = self.clone();
        let overdue = |slot: &Slot| slot.deadline.is_some_and(|deadline| deadline.latest_us < operation.sent_us);
        let overdue = (0..self.keys.len()).filter(|key| overdue(&self.keys[*key]));
        overdue.for_each(|key| start.write(key as Key, None, None));

        let due = |slot: Slot| slot.deadline.is_some_and(|deadline| deadline.earliest_us <= until_us);
        let seen = start.seen_by(operation);
        let due: Vec<Key> = (0..start.keys.len() as Key)
            .filter(|key| seen & 1 << key != 0 && due(start.keys[usize::from(*key)]))
            .collect();

        // Each set of keys that may have died just before; first that none has.
        (0..1u32 << due.len())
            .filter_map(|dead| {
                let mut state = start.clone();
                let died = due.iter().enumerate().filter(|(bit, _)| dead & 1 << bit != 0);
                died.for_each(|(_, key)| state.write(*key, None, None));
                state.apply(operation, slack_us).then_some(state)
            })
            .collect()
    }

    /// Whether `operation` fits as things are and leaves them so; no death is needed for it, and none is overdue.
    pub fn stays_as_it_is_after(&self, operation: &Operation) -> bool {
        let overdue = |slot: &Slot| slot.deadline.is_some_and(|deadline| deadline.latest_us < operation.sent_us);
        let fits = match &operation.action {
            Action::One(command, reply) => self.stays_after(command, reply),
            Action::Exec(commands) => {
                self.watches[usize::from(operation.client)] == Watch::default()
                    && commands.iter().all(|(command, reply)| self.stays_after(command, reply))
            }
            Action::Watch(_) | Action::Unwatch | Action::Abort => false,
        };
        fits && !self.keys.iter().any(overdue)
    }

    fn stays_after(&self, command: &Command, reply: &Reply) -> bool {
        match (command, reply) {
            (Command::Get(key), Reply::Values(values)) => values[..] == [self.value(*key)],
            (Command::Mget(keys), Reply::Values(values)) => {
                keys.iter().map(|key| self.value(*key)).eq(values.iter().copied())
            }
            (Command::Del(_) | Command::Pexpire(..), Reply::Int(0)) => {
                command.keys().iter().all(|key| self.value(*key).is_none())
            }
            _ => false,
        }
    }

    /// The keys whose death would make a difference to `operation`, as bits.
    fn seen_by(&self, operation: &Operation) -> u32 {
        let own = operation.keys().iter().fold(0, |keys, key| keys | 1 << key);
        match operation.action {
            Action::Exec(_) | Action::Abort => own | self.watches[usize::from(operation.client)].keys,
            _ => own,
        }
    }

    /// False if the replies are not those that this state gives.
    fn apply(&mut self, operation: &Operation, slack_us: i64) -> bool {
        let client = usize::from(operation.client);
        match &operation.action {
            Action::One(command, reply) => self.run(command, operation, slack_us) == *reply,
            Action::Watch(keys) => {
                let watch = &mut self.watches[client];
                if !watch.changed {
                    keys.iter().for_each(|key| watch.keys |= 1 << key);
                }
                true
            }
            Action::Unwatch => {
                self.watches[client] = Watch::default();
                true
            }
            Action::Exec(commands) => {
                let watch = std::mem::take(&mut self.watches[client]);
                !watch.changed
                    && commands.iter().all(|(command, reply)| self.run(command, operation, slack_us) == *reply)
            }
            // A transaction fails for a reason.
            Action::Abort => std::mem::take(&mut self.watches[client]).changed,
        }
    }

    fn run(&mut self, command: &Command, operation: &Operation, slack_us: i64) -> Reply {
        match command {
            Command::Get(key) => Reply::Values(vec![self.value(*key)]),
            Command::Mget(keys) => Reply::Values(keys.iter().map(|key| self.value(*key)).collect()),
            Command::Set(key, value) => {
                self.write(*key, Some(*value), None);
                Reply::Ok
            }
            Command::Mset(pairs) => {
                pairs.iter().for_each(|(key, value)| self.write(*key, Some(*value), None));
                Reply::Ok
            }
            Command::Incr(key) => {
                let Slot { value, deadline } = self.keys[usize::from(*key)];
                let value = value.unwrap_or(0) + 1;
                self.write(*key, Some(value), deadline);
                Reply::Int(value)
            }
            Command::Del(keys) => Reply::Int(keys.iter().filter(|key| self.delete(**key)).count() as i64),
            Command::Pexpire(key, ttl_ms) if *ttl_ms <= 0 => Reply::Int(i64::from(self.delete(*key))),
            Command::Pexpire(key, ttl_ms) => {
                let Some(value) = self.value(*key) else {
                    return Reply::Int(0);
                };
                let deadline = Deadline {
                    earliest_us: operation.sent_us + ttl_ms * 1000 - slack_us,
                    latest_us: operation.answered_us + ttl_ms * 1000 + slack_us,
                };
                self.write(*key, Some(value), Some(deadline));
                Reply::Int(1)
            }
        }
    }

    fn value(&self, key: Key) -> Option<i64> {
        self.keys[usize::from(key)].value
    }

    fn delete(&mut self, key: Key) -> bool {
        let found = self.value(key).is_some();
        if found {
            self.write(key, None, None);
        }
        found
    }

    /// Every change of a key goes through here; whoever watches it learns of it.
    fn write(&mut self, key: Key, value: Option<i64>, deadline: Option<Deadline>) {
        self.keys[usize::from(key)] = Slot { value, deadline };
        let watching = |watch: &&mut Watch| watch.keys & 1 << key != 0;
        self.watches.iter_mut().filter(watching).for_each(|watch| *watch = Watch { keys: 0, changed: true });
    }

    /// The keys that hold something, a star behind those with a deadline.
    pub fn shown(&self, history: &History) -> String {
        let shown = |(key, slot): (usize, &Slot)| {
            let star = if slot.deadline.is_some() { "*" } else { "" };
            Some(format!("{}={}{star}", history.keys[key], slot.value?))
        };
        self.keys.iter().enumerate().filter_map(shown).collect::<Vec<_>>().join(" ")
    }
}
