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
    let receivers = server.pubsub.borrow().receivers(world, channel);
    queue_for(server, receivers, world, channel, payload)
}

fn queue_for(server: &Server, receivers: Receivers, world: World, channel: &[u8], payload: &[u8]) -> usize {
    let Receivers { direct, by_pattern } = receivers;
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
        // The connection whose command caused the event may be in use: it gets the event when its turn is over. Whoever begins
        // to listen by then does not, nor does who has stopped.
        let mut addressed = Vec::new();
        for notice in notices.iter() {
            each_message(wanted, notice, &mut |channel, payload| {
                let receivers = server.pubsub.borrow().receivers(World::Plain, channel);
                if !receivers.is_empty() {
                    addressed.push((receivers, channel.to_vec(), payload.to_vec()));
                }
            });
        }
        if addressed.is_empty() {
            return;
        }
        let server = server.clone();
        server.shard.clone().defer(move || {
            for (mut receivers, channel, payload) in addressed {
                receivers.retain(|id, pattern| listens_still(&server, id, pattern, &channel));
                queue_for(&server, receivers, World::Plain, &channel, &payload);
            }
            output::send_pushed(&server);
        });
    }
}

fn listens_still(server: &Server, id: u64, pattern: Option<&[u8]>, channel: &[u8]) -> bool {
    server.client(id).is_some_and(|client| {
        let session = &client.state.borrow().session;
        pattern.map_or_else(|| session.channels.contains(channel), |pattern| session.patterns.contains(pattern))
    })
}

fn deliver_notices(server: &Rc<Server>, wanted: NotifyFlags, notices: &[Notice]) {
    for notice in notices {
        each_message(wanted, notice, &mut |channel, payload| {
            queue(server, World::Plain, channel, payload);
        });
    }
    output::send_pushed(server);
}

/// The messages that an event is told in, each with its channel.
fn each_message(wanted: NotifyFlags, notice: &Notice, tell: &mut impl FnMut(&[u8], &[u8])) {
    let db = notice.db;
    if wanted.contains(NotifyFlags::KEYSPACE) {
        let channel = [format!("__keyspace@{db}__:").as_bytes(), &notice.key].concat();
        tell(&channel, notice.event.name().as_bytes());
    }
    if wanted.contains(NotifyFlags::KEYEVENT) {
        tell(format!("__keyevent@{db}__:{}", notice.event.name()).as_bytes(), &notice.key);
    }
    if !notice.elements.is_empty() {
        each_message_of_elements(wanted, notice, tell);
    }
}

/// Those about its elements: four ways to subscribe to them, as in Redis 8.8.
fn each_message_of_elements(wanted: NotifyFlags, notice: &Notice, tell: &mut impl FnMut(&[u8], &[u8])) {
    let (db, key, event) = (notice.db, &notice.key[..], notice.event.name());
    let with_length = |text: &[u8]| [text.len().to_string().as_bytes(), b":", text].concat();
    let elements = notice.elements.iter().map(|element| with_length(element)).collect::<Vec<_>>().join(&b',');
    if wanted.contains(NotifyFlags::SUBKEYSPACE) {
        let channel = [format!("__subkeyspace@{db}__:").as_bytes(), key].concat();
        tell(&channel, &[event.as_bytes(), b"|", &elements].concat());
    }
    if wanted.contains(NotifyFlags::SUBKEYEVENT) {
        let channel = format!("__subkeyevent@{db}__:{event}").into_bytes();
        tell(&channel, &[&with_length(key)[..], b"|", &elements].concat());
    }
    // Where the key has a line break nobody could tell it from the element.
    if wanted.contains(NotifyFlags::SUBKEYSPACEITEM) && !key.contains(&b'\n') {
        for element in &notice.elements {
            tell(&[format!("__subkeyspaceitem@{db}__:").as_bytes(), key, b"\n", element].concat(), event.as_bytes());
        }
    }
    if wanted.contains(NotifyFlags::SUBKEYSPACEEVENT) {
        tell(&[format!("__subkeyspaceevent@{db}__:{event}|").as_bytes(), key].concat(), &elements);
    }
}
