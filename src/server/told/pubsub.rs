//! Publish and subscribe. Each shard knows what its own connections listen to; a message goes to every shard that has
//! subscriptions, and each delivers it to its own. Who hears in RESP3 what a command of its own has caused hears it behind
//! the reply of that command, as in Redis 7.2.

use super::output;
use crate::config::NotifyFlags;
use crate::keyspace::Notice;
use crate::resp::{Proto, Reply};
use crate::server::client::ClientRef;
use crate::server::state::Server;
use crate::server::state::subscriptions::{Receivers, World};
use crate::shard::Shard;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Tells other shards how many subscriptions there are here.
pub fn publish_counts(server: &Server) {
    server.global.subscriptions[server.shard.id].store(server.pubsub.borrow().len(), Ordering::Release);
}

/// Delivers a message to the listeners of this shard; returns how many there were.
pub fn deliver(server: &Rc<Server>, world: World, channel: &[u8], payload: &[u8]) -> usize {
    let delivered = queue(server, world, channel, payload);
    output::send_pushed(server);
    delivered
}

fn queue(server: &Server, world: World, channel: &[u8], payload: &[u8]) -> usize {
    let Receivers { direct, by_pattern } = server.pubsub.borrow().receivers(world, channel);
    let word: &[u8] = if world == World::Plain { b"message" } else { b"smessage" };
    let mut delivered = 0;
    for id in direct {
        let Some(client) = server.client(id) else { continue };
        send(server, &client, &[word, channel, payload]);
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
    output::push_behind(server, client, &encode(proto, message));
}

fn encode(proto: Proto, message: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    let mut reply = Reply::new(&mut out, proto);
    reply.push(message.len());
    message.iter().for_each(|part| reply.bulk(part));
    out
}

/// Publishes to all shards; returns how many connections got the message.
pub async fn publish(server: &Rc<Server>, world: World, channel: &[u8], payload: &[u8]) -> usize {
    let mut calls = Vec::new();
    for target in others_that_listen(&server.shard, &server.global.subscriptions) {
        let (channel, payload): (Box<[u8]>, Box<[u8]>) = (channel.into(), payload.into());
        calls.push(server.shard.call(target, move |shard| deliver(&Server::of(shard), world, &channel, &payload)));
    }
    let mut delivered = deliver(server, world, channel, payload);
    for call in calls {
        delivered += call.await;
    }
    delivered
}

/// How many connections would get a message.
pub async fn count_listeners(server: &Rc<Server>, world: World, channel: Vec<u8>) -> usize {
    let of_shard = move |shard: &Rc<Shard>| {
        let Receivers { direct, by_pattern } = Server::of(shard).pubsub.borrow().receivers(world, &channel);
        direct.len() + by_pattern.iter().map(|(_, listeners)| listeners.len()).sum::<usize>()
    };
    server.shard.call_all(of_shard).await.into_iter().sum()
}

/// The other shards on which somebody listens to something.
fn others_that_listen(shard: &Shard, counts: &[AtomicUsize]) -> Vec<usize> {
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
            queue(server, World::Plain, &channel, notice.event.name().as_bytes());
        }
        if wanted.contains(NotifyFlags::KEYEVENT) {
            let channel = format!("__keyevent@{db}__:{}", notice.event.name());
            queue(server, World::Plain, channel.as_bytes(), &notice.key);
        }
        if !notice.elements.is_empty() {
            deliver_elements(server, wanted, notice);
        }
    }
    output::send_pushed(server);
}

/// Tells of the elements that an event is about: four ways to subscribe to them, as in Redis 8.8.
fn deliver_elements(server: &Server, wanted: NotifyFlags, notice: &Notice) {
    let (db, key, event) = (notice.db, &notice.key[..], notice.event.name());
    let with_length = |text: &[u8]| [text.len().to_string().as_bytes(), b":", text].concat();
    let elements = notice.elements.iter().map(|element| with_length(element)).collect::<Vec<_>>().join(&b',');
    let tell = |channel: Vec<u8>, payload: &[u8]| {
        queue(server, World::Plain, &channel, payload);
    };
    if wanted.contains(NotifyFlags::SUBKEYSPACE) {
        let channel = [format!("__subkeyspace@{db}__:").as_bytes(), key].concat();
        tell(channel, &[event.as_bytes(), b"|", &elements].concat());
    }
    if wanted.contains(NotifyFlags::SUBKEYEVENT) {
        let channel = format!("__subkeyevent@{db}__:{event}").into_bytes();
        tell(channel, &[&with_length(key)[..], b"|", &elements].concat());
    }
    // Where the key has a line break nobody could tell it from the element.
    if wanted.contains(NotifyFlags::SUBKEYSPACEITEM) && !key.contains(&b'\n') {
        for element in &notice.elements {
            tell([format!("__subkeyspaceitem@{db}__:").as_bytes(), key, b"\n", element].concat(), event.as_bytes());
        }
    }
    if wanted.contains(NotifyFlags::SUBKEYSPACEEVENT) {
        tell([format!("__subkeyspaceevent@{db}__:{event}|").as_bytes(), key].concat(), &elements);
    }
}
