//! The requests of one receive, looked up together before the first of them runs, so that the cache is asked for all
//! their keys while it is still free.

use crate::command;
use crate::command::spec::flag;
use crate::keyspace::{Hasher, Lookup, PREFETCHED};
use crate::resp::{Limits, Parsed, Parser, ProtocolError, Request};
use crate::server::state::{Command, Found, Run, Server};
use smallvec::SmallVec;

pub struct Received<'t> {
    pub items: SmallVec<[Item<'t>; PREFETCHED]>,
    pub end: End,
}

pub struct Item<'t> {
    pub len: usize,
    /// Where the parser keeps its arguments.
    pub spans: (usize, usize),
    pub inline: bool,
    /// None for an empty request.
    pub found: Option<Found<'t>>,
    pub key: Option<RoutedKey>,
    /// The element of the key's collection that it looks for, as [`Lookup`] has it.
    element: Option<u64>,
    writes: bool,
}

/// What follows them.
pub enum End {
    /// Perhaps more requests.
    Full,
    Incomplete,
    Error(ProtocolError),
}

/// The hash of a command's key, and the shard that owns it.
#[derive(Clone, Copy)]
pub struct RoutedKey {
    pub hash: u64,
    pub target: usize,
}

impl RoutedKey {
    #[inline]
    pub fn of(hasher: &Hasher, command: &Command, request: Request) -> RoutedKey {
        let key = hasher.key(request.arg(command.spec.keys.first()));
        RoutedKey { hash: key.hash, target: hasher.shard_of(key) }
    }
}

impl<'t> Received<'t> {
    pub fn none() -> Received<'t> {
        Received { items: SmallVec::new(), end: End::Full }
    }

    /// Reads requests from `bytes`, in the place of those read before. What a request may claim depends on what the connection
    /// may do, which a request changes: strangers have theirs read one by one.
    #[inline]
    pub fn read(&mut self, server: &'t Server, db: usize, parser: &mut Parser, bytes: &[u8], limits: Limits) {
        self.items.clear();
        self.end = End::Full;
        let most = if limits.authenticated { PREFETCHED } else { 1 };
        let mut used = 0;
        parser.begin_batch();
        while self.items.len() < most {
            let rest = &bytes[used..];
            match parser.parse_next(rest, limits) {
                Ok(Parsed::Request(len)) => {
                    let request = parser.request(rest);
                    let (inline, spans) = (parser.is_inline(), parser.found());
                    let mut item = Item { len, spans, inline, found: None, key: None, element: None, writes: false };
                    if !request.is_empty() {
                        item.look_up(server, request);
                    }
                    self.items.push(item);
                    used += len;
                    if inline {
                        break;
                    }
                }
                Ok(Parsed::Incomplete) => {
                    self.end = End::Incomplete;
                    break;
                }
                Err(error) => {
                    self.end = End::Error(error);
                    break;
                }
            }
        }
        let lookups = self.items.iter().filter_map(|item| {
            let key = item.key.filter(|key| key.target == server.shard.id)?;
            Some(Lookup { db, hash: key.hash, element: item.element, writes: item.writes })
        });
        let keyspace = server.shard.keyspace.borrow();
        keyspace.prefetch(lookups);
        if keyspace.has_many_policies() {
            let mut at = 0;
            let keys = self.items.iter().filter_map(|item| {
                let rest = &bytes[at..];
                at += item.len;
                let is_here = item.key.is_some_and(|key| key.target == server.shard.id);
                let wants_policy = is_here && !item.inline && (item.writes || keyspace.has_sliding_lives());
                let Some(Found::Command(command)) = item.found.filter(|_| wants_policy) else { return None };
                Some(parser.request_at(item.spans, rest).arg(command.spec.keys.first()))
            });
            keyspace.prefetch_policies(keys);
        }
    }
}

impl<'t> Item<'t> {
    #[inline]
    fn look_up(&mut self, server: &'t Server, request: Request) {
        let found = server.table.find(request);
        if let Found::Command(command) = found
            && let Run::Data(command::Run::Key(_)) = command.run
            && command.spec.accepts(request.len())
        {
            self.key = Some(RoutedKey::of(&server.shard.hasher, command, request));
            self.element = command.spec.group.sought().element(request);
            self.writes = command.spec.has(flag::WRITE);
        } else if let Found::Command(command) = found
            && let Run::Script(_) = command.run
            && request.len() > command.spec.keys.first()
        {
            // Its first key, if it has one, to be asked for ahead.
            self.key = Some(RoutedKey::of(&server.shard.hasher, command, request));
        }
        self.found = Some(found);
    }
}
