//! Messages over glommio's shared channels: a task a target sends, a task a source receives.

use super::Message;
use crate::shard::Shard;
use glommio::GlommioError;
use glommio::channels::shared_channel::{self, ConnectedReceiver, ConnectedSender, SharedReceiver, SharedSender};
use glommio::timer::Timer;
use std::rc::Rc;
use std::time::Duration;

/// A shard's ends of the channels to and from each other shard, before its executor runs.
pub struct Endpoints {
    senders: Vec<Option<SharedSender<Message>>>,
    receivers: Vec<Option<SharedReceiver<Message>>>,
}

/// A shard's ends of the channels, by the other shard; none to itself.
pub struct Mail {
    senders: Vec<Option<ConnectedSender<Message>>>,
    receivers: Vec<Option<ConnectedReceiver<Message>>>,
}

/// Messages a channel between two shards holds.
const CHANNEL_MESSAGES: usize = 256;
/// How often a shard looks whether the others have connected their ends.
const CONNECT_TICK: Duration = Duration::from_millis(1);

/// A channel from every shard to every other.
pub fn mesh(shards: usize) -> Vec<Endpoints> {
    let none =
        || Endpoints { senders: (0..shards).map(|_| None).collect(), receivers: (0..shards).map(|_| None).collect() };
    let mut ends: Vec<Endpoints> = (0..shards).map(|_| none()).collect();
    for from in 0..shards {
        for to in (0..shards).filter(|to| *to != from) {
            let (sender, receiver) = shared_channel::new_bounded(CHANNEL_MESSAGES);
            ends[from].senders[to] = Some(sender);
            ends[to].receivers[from] = Some(receiver);
        }
    }
    ends
}

impl Mail {
    /// Connects a shard's ends; returns when all others have connected theirs.
    pub async fn connect(ends: Endpoints) -> Mail {
        // All begin at once: each waits for its peer. glommio does not wake an executor when a peer connects (nor does
        // its mesh builder), so this one keeps itself awake meanwhile.
        let senders: Vec<_> =
            ends.senders.into_iter().map(|end| end.map(|end| glommio::spawn_local(end.connect()))).collect();
        let receivers: Vec<_> =
            ends.receivers.into_iter().map(|end| end.map(|end| glommio::spawn_local(end.connect()))).collect();
        let connect = async {
            let mut mail = Mail { senders: Vec::new(), receivers: Vec::new() };
            for task in senders {
                mail.senders.push(match task {
                    Some(task) => Some(task.await),
                    None => None,
                });
            }
            for task in receivers {
                mail.receivers.push(match task {
                    Some(task) => Some(task.await),
                    None => None,
                });
            }
            mail
        };
        let awake = async {
            loop {
                Timer::new(CONNECT_TICK).await;
            }
        };
        futures_lite::future::or(connect, awake).await
    }
}

/// The tasks behind a shard's mailbox: one that sends the turn's batches, one a target that sends, one a source that
/// receives.
pub fn start(shard: &Rc<Shard>, mail: Mail) {
    let flusher = shard.clone();
    glommio::spawn_local(async move {
        loop {
            flusher.outbox.flush.wait().await;
            flusher.outbox.send_batches();
        }
    })
    .detach();
    for (target, sender) in mail.senders.into_iter().enumerate() {
        let Some(sender) = sender else { continue };
        let shard = shard.clone();
        glommio::spawn_local(async move {
            let queue = &shard.outbox.queues[target];
            loop {
                queue.ready.wait().await;
                loop {
                    let Some(message) = queue.messages.borrow_mut().pop_front() else { break };
                    if !send(&sender, message).await {
                        return;
                    }
                    shard.outbox.sent();
                }
            }
        })
        .detach();
    }
    for receiver in mail.receivers.into_iter().flatten() {
        let shard = shard.clone();
        glommio::spawn_local(async move {
            while let Some(message) = receiver.recv().await {
                shard.receive(message);
                glommio::executor().yield_if_needed().await;
            }
        })
        .detach();
    }
}

/// False where the other side is gone, which happens when the process ends.
async fn send(sender: &ConnectedSender<Message>, message: Message) -> bool {
    match sender.try_send(message) {
        Ok(()) => true,
        Err(GlommioError::WouldBlock(glommio::ResourceType::Channel(message))) => sender.send(message).await.is_ok(),
        Err(_) => false,
    }
}
