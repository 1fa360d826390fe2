//! The slow log: commands of this shard's connections that took long, wherever they ran.

use super::{Server, shown};
use crate::command::spec::Secrets;
use crate::resp::Request;
use crate::shard::Shard;
use std::collections::VecDeque;
use std::rc::Rc;

/// What is kept of a request, as in Redis: so many arguments, of which the last stands for those that are left out, and
/// so many bytes of each.
const ARGS: usize = 32;
const ARG_BYTES: usize = 128;
/// What the entries of a shard may take, however many `slowlog-max-len` allows.
const LOG_BYTES: usize = 64 << 20;

#[derive(Clone, Debug)]
pub struct Entry {
    /// Numbers grow over all shards.
    pub id: u64,
    /// When it ended, seconds of the wall clock.
    pub time_s: u64,
    pub took_us: u64,
    pub args: Vec<Vec<u8>>,
    pub addr: String,
    pub name: Vec<u8>,
}

impl Entry {
    fn bytes(&self) -> usize {
        let args: usize = self.args.iter().map(|arg| size_of::<Vec<u8>>() + arg.len()).sum();
        size_of::<Entry>() + args + self.addr.len() + self.name.len()
    }
}

#[derive(Default)]
pub struct SlowLog {
    /// Newest first.
    entries: VecDeque<Entry>,
    bytes: usize,
}

impl SlowLog {
    /// A request as the log shows it.
    pub fn args(secrets: Secrets, request: Request) -> Vec<Vec<u8>> {
        let whole = if request.len() > ARGS { ARGS - 1 } else { request.len() };
        let mut args: Vec<Vec<u8>> = shown::args(secrets, request).take(whole).map(shorten).collect();
        if whole < request.len() {
            args.push(format!("... ({} more arguments)", request.len() - whole).into_bytes());
        }
        args
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Without what the log has no room for: entries past so many, and bytes.
    pub fn push(&mut self, entry: Entry, most: u64) {
        self.bytes += entry.bytes();
        self.entries.push_front(entry);
        while self.entries.len() as u64 > most || self.bytes > LOG_BYTES {
            let Some(oldest) = self.entries.pop_back() else { break };
            self.bytes -= oldest.bytes();
        }
    }

    /// The newest of them, newest first.
    pub fn newest(&self, count: usize) -> Vec<Entry> {
        self.entries.iter().take(count).cloned().collect()
    }

    pub fn ids(&self) -> impl Iterator<Item = u64> {
        self.entries.iter().map(|entry| entry.id)
    }

    pub fn clear(&mut self) {
        *self = SlowLog::default();
    }
}

/// The newest entries of all shards, newest first.
pub async fn newest(server: &Server, count: usize) -> Vec<Entry> {
    let of_shard = move |shard: &Rc<Shard>| Server::of(shard).slowlog.borrow().newest(count);
    let mut entries: Vec<Entry> = server.shard.call_all(of_shard).await.into_iter().flatten().collect();
    entries.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.id));
    entries.truncate(count);
    entries
}

fn shorten(arg: &[u8]) -> Vec<u8> {
    if arg.len() <= ARG_BYTES {
        return arg.to_vec();
    }
    let mut short = arg[..ARG_BYTES].to_vec();
    short.extend_from_slice(format!("... ({} more bytes)", arg.len() - ARG_BYTES).as_bytes());
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::OwnedRequest;

    fn entry(id: u64, arg_bytes: usize) -> Entry {
        Entry { id, time_s: 0, took_us: 1, args: vec![vec![b'x'; arg_bytes]], addr: String::new(), name: Vec::new() }
    }

    #[test]
    fn long_requests_are_cut_short() {
        let args = |count: usize, bytes: usize| {
            let request = OwnedRequest::from_args((0..count).map(|_| &[b'x'; 1000][..bytes]));
            SlowLog::args(Secrets::None, request.as_request())
        };
        assert_eq!(args(32, 128), vec![vec![b'x'; 128]; 32]);
        let cut = args(100, 200);
        assert_eq!(cut.len(), 32);
        assert_eq!(cut[31], b"... (69 more arguments)");
        assert_eq!(cut[0][128..], b"... (72 more bytes)"[..]);
    }

    #[test]
    fn it_keeps_as_many_as_it_may_and_no_more_than_it_has_room_for() {
        let mut log = SlowLog::default();
        (0..10).for_each(|id| log.push(entry(id, 10), 3));
        assert_eq!(log.ids().collect::<Vec<_>>(), [9, 8, 7]);
        (10..200).for_each(|id| log.push(entry(id, 1 << 20), u64::MAX));
        assert!(log.bytes <= LOG_BYTES && log.entries.len() > 50);
        log.push(entry(200, 10), 0);
        assert_eq!(log.bytes, 0);
    }
}
