//! Who listens to what on one shard.

use crate::observe::GiveBack;
use crate::server::client::session::Session;
use crate::value::glob::glob_match;
use std::collections::{BTreeMap, HashMap};

/// Connections by id, in the order in which they subscribed.
#[derive(Default)]
pub struct Subscriptions {
    channels: Listeners,
    /// Channels of sharded publish/subscribe (SSUBSCRIBE), a world of their own.
    shard_channels: Listeners,
    patterns: BTreeMap<Box<[u8]>, Vec<u64>>,
    count: usize,
}

type Listeners = HashMap<Box<[u8]>, Vec<u64>, ahash::RandomState>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    Channel,
    Pattern,
    ShardChannel,
}

/// Where a message is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum World {
    /// PUBLISH
    Plain,
    /// SPUBLISH
    Sharded,
}

/// Nobody listens there any more.
fn forget(listeners: &mut Listeners, name: &[u8]) {
    listeners.remove(name);
    listeners.give_back();
}

impl Subscriptions {
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn add(&mut self, to: To, name: &[u8], client: u64) {
        match to {
            To::Channel => self.channels.entry(name.into()).or_default().push(client),
            To::Pattern => self.patterns.entry(name.into()).or_default().push(client),
            To::ShardChannel => self.shard_channels.entry(name.into()).or_default().push(client),
        }
        self.count += 1;
    }

    pub fn remove(&mut self, to: To, name: &[u8], client: u64) {
        let listeners = match to {
            To::Channel => self.channels.get_mut(name),
            To::Pattern => self.patterns.get_mut(name),
            To::ShardChannel => self.shard_channels.get_mut(name),
        };
        let Some(listeners) = listeners else { return };
        let before = listeners.len();
        listeners.retain(|listener| *listener != client);
        self.count -= before - listeners.len();
        if listeners.is_empty() {
            match to {
                To::Channel => forget(&mut self.channels, name),
                To::Pattern => drop(self.patterns.remove(name)),
                To::ShardChannel => forget(&mut self.shard_channels, name),
            }
        }
    }

    /// A connection listens to nothing any more.
    pub fn remove_all(&mut self, session: &mut Session) {
        let all = [
            (To::Channel, &mut session.channels),
            (To::Pattern, &mut session.patterns),
            (To::ShardChannel, &mut session.shard_channels),
        ];
        for (to, names) in all {
            std::mem::take(names).iter().for_each(|name| self.remove(to, name, session.peer.id));
        }
        session.heard_bytes = 0;
    }

    fn listened(&self, world: World) -> &Listeners {
        match world {
            World::Plain => &self.channels,
            World::Sharded => &self.shard_channels,
        }
    }

    /// Channels with listeners.
    pub fn channels(&self, world: World) -> impl Iterator<Item = &[u8]> {
        self.listened(world).keys().map(|name| &name[..])
    }

    pub fn listeners(&self, world: World, channel: &[u8]) -> usize {
        self.listened(world).get(channel).map_or(0, Vec::len)
    }

    pub fn patterns(&self) -> impl Iterator<Item = &[u8]> {
        self.patterns.keys().map(|name| &name[..])
    }

    /// Who gets a message: those that listen to the channel, and those of each pattern that it matches. (There are no
    /// patterns of sharded channels.)
    pub fn receivers(&self, world: World, channel: &[u8]) -> Receivers {
        let direct = self.listened(world).get(channel).cloned().unwrap_or_default();
        let matches = |pattern: &[u8]| world == World::Plain && glob_match(pattern, channel, false);
        let matching = self.patterns.iter().filter(|(pattern, _)| matches(pattern));
        let by_pattern = matching.map(|(pattern, listeners)| (pattern.clone(), listeners.clone())).collect();
        Receivers { direct, by_pattern }
    }
}

pub struct Receivers {
    pub direct: Vec<u64>,
    pub by_pattern: Vec<(Box<[u8]>, Vec<u64>)>,
}

impl Receivers {
    pub fn is_empty(&self) -> bool {
        self.direct.is_empty() && self.by_pattern.is_empty()
    }

    /// Keeps those of whom that is true; each is asked for with the pattern, where it is one's.
    pub fn retain(&mut self, mut keeps: impl FnMut(u64, Option<&[u8]>) -> bool) {
        self.direct.retain(|id| keeps(*id, None));
        for (pattern, ids) in &mut self.by_pattern {
            ids.retain(|id| keeps(*id, Some(pattern)));
        }
    }
}
