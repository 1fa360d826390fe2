//! What was refused, and to whom (ACL LOG).

use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Command,
    Key,
    Channel,
    /// A wrong name or password.
    Login,
}

impl Reason {
    pub fn name(self) -> &'static str {
        match self {
            Reason::Command => "command",
            Reason::Key => "key",
            Reason::Channel => "channel",
            Reason::Login => "auth",
        }
    }
}

/// All of them.
pub const REASONS: [Reason; 4] = [Reason::Login, Reason::Command, Reason::Key, Reason::Channel];

/// Where it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    TopLevel,
    Multi,
    Script,
}

impl Context {
    pub fn name(self) -> &'static str {
        match self {
            Context::TopLevel => "toplevel",
            Context::Multi => "multi",
            Context::Script => "lua",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub reason: Reason,
    pub context: Context,
    /// The command, key or channel.
    pub object: Box<[u8]>,
    pub user: Box<[u8]>,
    /// When it was asked for last, milliseconds.
    pub time_ms: u64,
    /// The connection's number; and the connection as CLIENT LIST shows it, when its turn is over.
    pub client_id: u64,
    pub client: String,
    /// How often.
    pub count: u64,
}

/// Longer names of keys and users are cut: who is refused must not fill memory with what was refused.
const NAME_BYTES_MAX: usize = 1024;
/// Alike entries within this time are one.
const MERGED_MS: u64 = 60_000;
/// Among so many of the newest an entry like a new one is looked for.
const LOOKED_AT: usize = 10;

/// The newest entry first.
#[derive(Debug, Default)]
pub struct Log(VecDeque<Entry>);

impl Log {
    /// Takes an entry in; of all entries so many are kept.
    pub fn add(&mut self, mut entry: Entry, keep: usize) {
        if let Some(at) = self.0.iter().take(LOOKED_AT).position(|known| known.is_like(&entry)) {
            entry.count += self.0.remove(at).map_or(0, |known| known.count);
        }
        self.0.push_front(entry);
        self.0.truncate(keep);
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// All entries, the oldest first; none is left.
    pub fn take(&mut self) -> impl Iterator<Item = Entry> + use<> {
        std::mem::take(&mut self.0).into_iter().rev()
    }

    /// The newest first.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter()
    }
}

impl Entry {
    /// Something that was refused once, to a user on a connection.
    pub fn new(
        (client_id, user): (u64, &[u8]),
        context: Context,
        (reason, object): (Reason, &[u8]),
        time_ms: u64,
    ) -> Entry {
        let cut = |name: &[u8]| name[..name.len().min(NAME_BYTES_MAX)].into();
        Entry {
            reason,
            context,
            object: cut(object),
            user: cut(user),
            time_ms,
            client_id,
            client: String::new(),
            count: 1,
        }
    }

    fn is_like(&self, other: &Entry) -> bool {
        self.reason == other.reason
            && self.context == other.context
            && self.time_ms.abs_diff(other.time_ms) <= MERGED_MS
            && self.object == other.object
            && self.user == other.user
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(object: &[u8], time_ms: u64) -> Entry {
        Entry::new((1, b"anna"), Context::TopLevel, (Reason::Key, object), time_ms)
    }

    /// What one log has taken in is taken over by another, which then says the same.
    #[test]
    fn entries_move_from_log_to_log() {
        let names = |log: &Log| log.iter().map(|entry| (entry.object.to_vec(), entry.count)).collect::<Vec<_>>();
        let (mut direct, mut first, mut second) = (Log::default(), Log::default(), Log::default());
        for object in [b"a", b"b", b"a", b"c", b"b"] {
            direct.add(entry(object, 0), 2);
            first.add(entry(object, 0), 2);
        }
        first.take().for_each(|entry| second.add(entry, 2));
        assert_eq!((names(&second), first.iter().count()), (names(&direct), 0));
    }

    fn counts(log: &Log) -> Vec<u64> {
        log.iter().map(|entry| entry.count).collect()
    }

    #[test]
    fn alike_entries_are_one() {
        let mut log = Log::default();
        log.add(entry(b"a", 0), 128);
        log.add(entry(b"b", 1), 128);
        log.add(entry(b"a", 60_000), 128);
        assert_eq!(counts(&log), [2, 1]);
        log.add(entry(b"b", 60_002), 128);
        assert_eq!(counts(&log), [1, 2, 1], "too late");
        log.add(Entry { context: Context::Multi, ..entry(b"b", 60_003) }, 128);
        log.add(Entry { user: Box::default(), ..entry(b"b", 60_003) }, 128);
        assert_eq!(counts(&log), [1, 1, 1, 2, 1]);
    }

    #[test]
    fn entries_that_are_far_down_are_not_found() {
        let mut log = Log::default();
        (0..11).for_each(|n: u8| log.add(entry(&[n], 0), 128));
        log.add(entry(&[1], 1), 128);
        assert_eq!(log.iter().next().map(|entry| entry.count), Some(2));
        log.add(entry(&[0], 1), 128);
        assert_eq!(log.iter().next().map(|entry| entry.count), Some(1));
    }

    #[test]
    fn no_more_is_kept_than_is_to_be() {
        let mut log = Log::default();
        (0..20).for_each(|n: u8| log.add(entry(&[n], 0), 5));
        assert_eq!(log.iter().count(), 5);
        log.add(entry(&[b'x'; 5000], 0), 5);
        assert_eq!(log.iter().next().map(|entry| entry.object.len()), Some(NAME_BYTES_MAX));
        log.add(entry(b"y", 0), 0);
        assert_eq!(log.iter().count(), 0);
    }
}
