//! Publish and subscribe. Each shard knows what its own connections listen to; a message goes to every shard that has
//! subscriptions, and each delivers it to its own.

use super::Server;
use super::client::{ClientRef, Session};
use crate::config::NotifyFlags;
use crate::keyspace::Notice;
use crate::resp::{Proto, Reply};
use crate::shard::Shard;
use crate::value::glob::glob_match;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Who listens to what on one shard; connections by id, in the order in which they subscribed.
#[derive(Default)]
pub struct Subscriptions {
    channels: HashMap<Box<[u8]>, Vec<u64>, ahash::RandomState>,
    patterns: BTreeMap<Box<[u8]>, Vec<u64>>,
    count: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    Channel,
    Pattern,
}

impl Subscriptions {
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn add(&mut self, to: To, name: &[u8], client: u64) {
        match to {
            To::Channel => self.channels.entry(name.into()).or_default().push(client),
            To::Pattern => self.patterns.entry(name.into()).or_default().push(client),
        }
        self.count += 1;
    }

    pub fn remove(&mut self, to: To, name: &[u8], client: u64) {
        let listeners = match to {
            To::Channel => self.channels.get_mut(name),
            To::Pattern => self.patterns.get_mut(name),
        };
        let Some(listeners) = listeners else { return };
        let before = listeners.len();
        listeners.retain(|listener| *listener != client);
        self.count -= before - listeners.len();
        if listeners.is_empty() {
            match to {
                To::Channel => drop(self.channels.remove(name)),
                To::Pattern => drop(self.patterns.remove(name)),
            }
        }
    }

    /// A connection listens to nothing any more.
    pub fn remove_all(&mut self, session: &mut Session) {
        for (to, names) in [(To::Channel, &mut session.channels), (To::Pattern, &mut session.patterns)] {
            std::mem::take(names).iter().for_each(|name| self.remove(to, name, session.id));
        }
    }

    /// Channels with listeners.
    pub fn channels(&self) -> impl Iterator<Item = &[u8]> {
        self.channels.keys().map(|name| &name[..])
    }

    pub fn listeners(&self, channel: &[u8]) -> usize {
        self.channels.get(channel).map_or(0, Vec::len)
    }

    pub fn patterns(&self) -> impl Iterator<Item = &[u8]> {
        self.patterns.keys().map(|name| &name[..])
    }
}

/// Delivers a message to the listeners of this shard; returns how many there were.
pub fn deliver(server: &Rc<Server>, channel: &[u8], payload: &[u8]) -> usize {
    let delivered = queue(server, channel, payload);
    server.send_pushed();
    delivered
}

fn queue(server: &Server, channel: &[u8], payload: &[u8]) -> usize {
    let (direct, by_pattern) = {
        let subscriptions = server.pubsub.borrow();
        let direct = subscriptions.channels.get(channel).cloned().unwrap_or_default();
        let by_pattern: Vec<(Box<[u8]>, Vec<u64>)> = subscriptions
            .patterns
            .iter()
            .filter(|(pattern, _)| glob_match(pattern, channel, false))
            .map(|(pattern, listeners)| (pattern.clone(), listeners.clone()))
            .collect();
        (direct, by_pattern)
    };
    let mut delivered = 0;
    for id in direct {
        let Some(client) = server.client(id) else { continue };
        send(server, &client, &[b"message", channel, payload]);
        delivered += 1;
    }
    for (pattern, listeners) in by_pattern {
        for id in listeners {
            let Some(client) = server.client(id) else { continue };
            send(server, &client, &[b"pmessage", &pattern, channel, payload]);
            delivered += 1;
        }
    }
    delivered
}

fn send(server: &Server, client: &ClientRef, message: &[&[u8]]) {
    let proto = client.state.borrow().session.proto;
    server.push(client, &encode(proto, message));
}

fn encode(proto: Proto, message: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    let mut reply = Reply::new(&mut out, proto);
    reply.push(message.len());
    message.iter().for_each(|part| reply.bulk(part));
    out
}

/// Publishes to all shards; returns how many connections got the message.
pub async fn publish(server: &Rc<Server>, channel: &[u8], payload: &[u8]) -> usize {
    let mut calls = Vec::new();
    for target in others_that_listen(&server.shard, &server.global.subscriptions) {
        let (channel, payload): (Box<[u8]>, Box<[u8]>) = (channel.into(), payload.into());
        calls.push(server.shard.call(target, move |shard| deliver(&Server::of(shard), &channel, &payload)));
    }
    let mut delivered = deliver(server, channel, payload);
    for call in calls {
        delivered += call.await;
    }
    delivered
}

/// The other shards on which somebody listens to something.
fn others_that_listen(shard: &Shard, counts: &[std::sync::atomic::AtomicUsize]) -> Vec<usize> {
    (0..shard.count).filter(|target| *target != shard.id && counts[*target].load(Ordering::Acquire) > 0).collect()
}

/// Tells the subscribers of all shards of keyspace events.
pub fn announce(server: &Rc<Server>, notices: Vec<Notice>) {
    let wanted = server.shard.config().notify_keyspace_events;
    let others = others_that_listen(&server.shard, &server.global.subscriptions);
    let here = server.pubsub.borrow().len() > 0;
    let notices = Arc::new(notices);
    for target in others {
        let notices = notices.clone();
        server.shard.tell(target, move |shard| deliver_notices(&Server::of(shard), wanted, &notices));
    }
    if here {
        // The connection whose command caused the event may be in use: it gets the event when its turn is over.
        let server = server.clone();
        server.shard.clone().defer(move || deliver_notices(&server, wanted, &notices));
    }
}

fn deliver_notices(server: &Rc<Server>, wanted: NotifyFlags, notices: &[Notice]) {
    for notice in notices {
        let db = notice.db;
        if wanted.contains(NotifyFlags::KEYSPACE) {
            let channel = [format!("__keyspace@{db}__:").as_bytes(), &notice.key].concat();
            queue(server, &channel, notice.event.as_bytes());
        }
        if wanted.contains(NotifyFlags::KEYEVENT) {
            let channel = format!("__keyevent@{db}__:{}", notice.event);
            queue(server, channel.as_bytes(), &notice.key);
        }
    }
    server.send_pushed();
}
