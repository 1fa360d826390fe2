//! SUBSCRIBE and its kin, PUBLISH, PUBSUB.

use crate::command::spec::flag::{FAST, LOADING, MAY_REPLICATE, NO_SCRIPT, PUBSUB, STALE, SUBSCRIBED};
use crate::command::spec::{Channels, Group, Keys, Row, Spec};
use crate::resp::{Error, Request, Result};
use crate::server::client::name_bytes;
use crate::server::state::subscriptions::{To, World};
use crate::server::state::{Run, Server, SessionCtx, TaskCtx};
use crate::server::told::pubsub::{count_listeners, publish, publish_counts};
use crate::value::glob::glob_match;
use std::collections::BTreeSet;

const LISTEN: u32 = PUBSUB | NO_SCRIPT | LOADING | STALE | SUBSCRIBED;

pub const ROWS: &[Row<Run>] = &[
    Row::new(
        Spec {
            summary: "Listens to channels.",
            ..listen_spec("subscribe", -2, "O(n) in the number of channels", "channel...")
        },
        Run::Session(|ctx, request| subscribe(ctx, request, To::Channel)),
    )
    .on_channels(Channels::All),
    Row::new(
        Spec {
            summary: "Listens to all channels that match patterns.",
            ..listen_spec("psubscribe", -2, "O(n) in the number of patterns", "pattern:pattern...")
        },
        Run::Session(|ctx, request| subscribe(ctx, request, To::Pattern)),
    )
    .on_channels(Channels::Patterns),
    Row::new(
        Spec {
            summary: "Stops listening to channels, or to all of them.",
            ..listen_spec("unsubscribe", -1, "O(n) in the number of channels", "[channel]...")
        },
        Run::Session(|ctx, request| unsubscribe(ctx, request, To::Channel)),
    ),
    Row::new(
        Spec {
            summary: "Stops listening to patterns, or to all of them.",
            ..listen_spec("punsubscribe", -1, "O(n) in the number of patterns", "[pattern:pattern]...")
        },
        Run::Session(|ctx, request| unsubscribe(ctx, request, To::Pattern)),
    ),
    Row::new(
        Spec {
            since: "7.0.0",
            summary: "Listens to sharded channels.",
            ..listen_spec("ssubscribe", -2, "O(n) in the number of channels", "shardchannel...")
        },
        Run::Session(|ctx, request| subscribe(ctx, request, To::ShardChannel)),
    )
    .on_channels(Channels::All),
    Row::new(
        Spec {
            since: "7.0.0",
            summary: "Stops listening to sharded channels, or to all of them.",
            ..listen_spec("sunsubscribe", -1, "O(n) in the number of channels", "[shardchannel]...")
        },
        Run::Session(|ctx, request| unsubscribe(ctx, request, To::ShardChannel)),
    ),
    Row::new(
        Spec {
            summary: "Sends a message to all who listen to a channel.",
            ..publish_spec("publish", "2.0.0", "O(n + m): n listeners of the channel, m patterns", "channel message")
        },
        Run::Task(|ctx| Box::pin(publish_message(ctx, World::Plain))),
    )
    .on_channels(Channels::First),
    Row::new(
        Spec {
            summary: "Sends a message to all who listen to a sharded channel.",
            ..publish_spec("spublish", "7.0.0", "O(n) in the number of listeners", "shardchannel message")
        },
        Run::Task(|ctx| Box::pin(publish_message(ctx, World::Sharded))),
    )
    .on_channels(Channels::First),
    Row::container(
        Spec {
            name: "pubsub",
            arity: -2,
            flags: 0,
            keys: Keys::NONE,
            group: Group::PubSub,
            since: "2.8.0",
            complexity: "Depends on the subcommand",
            summary: "Groups questions about who listens.",
            syntax: "",
        },
        Run::Container,
        &[
            Row::new(
                Spec {
                    summary: "Lists the channels that somebody listens to.",
                    ..ask_spec("channels", -2, "[pattern:pattern]")
                },
                Run::Task(|ctx| Box::pin(channels(ctx, World::Plain))),
            ),
            Row::new(
                Spec {
                    summary: "Counts the listeners of channels, patterns not included.",
                    ..ask_spec("numsub", -2, "[channel]...")
                },
                Run::Task(|ctx| Box::pin(numsub(ctx, World::Plain))),
            ),
            Row::new(
                Spec {
                    since: "7.0.0",
                    summary: "Lists the sharded channels that somebody listens to.",
                    ..ask_spec("shardchannels", -2, "[pattern:pattern]")
                },
                Run::Task(|ctx| Box::pin(channels(ctx, World::Sharded))),
            ),
            Row::new(
                Spec {
                    since: "7.0.0",
                    summary: "Counts the listeners of sharded channels.",
                    ..ask_spec("shardnumsub", -2, "[shardchannel]...")
                },
                Run::Task(|ctx| Box::pin(numsub(ctx, World::Sharded))),
            ),
            Row::new(
                Spec { summary: "Counts the patterns that somebody listens to.", ..ask_spec("numpat", 2, "") },
                Run::Task(|ctx| Box::pin(numpat(ctx))),
            ),
        ],
    ),
];

const fn listen_spec(name: &'static str, arity: i32, complexity: &'static str, syntax: &'static str) -> Spec {
    Spec {
        name,
        arity,
        flags: LISTEN,
        keys: Keys::NONE,
        group: Group::PubSub,
        since: "2.0.0",
        complexity,
        summary: "",
        syntax,
    }
}

const fn publish_spec(name: &'static str, since: &'static str, complexity: &'static str, syntax: &'static str) -> Spec {
    Spec {
        name,
        arity: 3,
        flags: PUBSUB | LOADING | STALE | FAST | MAY_REPLICATE,
        keys: Keys::NONE,
        group: Group::PubSub,
        since,
        complexity,
        summary: "",
        syntax,
    }
}

const fn ask_spec(name: &'static str, arity: i32, syntax: &'static str) -> Spec {
    Spec {
        name,
        arity,
        flags: PUBSUB | LOADING | STALE,
        keys: Keys::NONE,
        group: Group::PubSub,
        since: "2.8.0",
        complexity: "O(n) in the number of channels",
        summary: "",
        syntax,
    }
}

fn names<'s>(ctx: &'s mut SessionCtx, to: To) -> &'s mut BTreeSet<Box<[u8]>> {
    match to {
        To::Channel => &mut ctx.session.channels,
        To::Pattern => &mut ctx.session.patterns,
        To::ShardChannel => &mut ctx.session.shard_channels,
    }
}

fn subscribe(ctx: &mut SessionCtx, request: Request, to: To) -> Result {
    if to == To::ShardChannel && ctx.in_exec {
        return Err(Error::text("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"));
    }
    let word: &[u8] = match to {
        To::Channel => b"subscribe",
        To::Pattern => b"psubscribe",
        To::ShardChannel => b"ssubscribe",
    };
    if !ctx.in_exec {
        // What commands before this one have caused is told to those who listened then.
        ctx.server.shard.tell_events();
    }
    for name in request.from(1) {
        if names(ctx, to).insert(name.into()) {
            let id = ctx.session.peer.id;
            ctx.session.heard_bytes += name_bytes(name);
            ctx.server.pubsub.borrow_mut().add(to, name, id);
        }
        confirm(ctx, to, word, Some(name));
    }
    // Publishers on other shards look at the count: it is right before the confirmation leaves.
    publish_counts(ctx.server);
    Ok(())
}

fn unsubscribe(ctx: &mut SessionCtx, request: Request, to: To) -> Result {
    let word: &[u8] = match to {
        To::Channel => b"unsubscribe",
        To::Pattern => b"punsubscribe",
        To::ShardChannel => b"sunsubscribe",
    };
    let named: Vec<Box<[u8]>> = if request.len() > 1 {
        request.from(1).map(Into::into).collect()
    } else {
        names(ctx, to).iter().cloned().collect()
    };
    for name in &named {
        if names(ctx, to).remove(name) {
            let id = ctx.session.peer.id;
            ctx.session.heard_bytes -= name_bytes(name);
            ctx.server.pubsub.borrow_mut().remove(to, name, id);
        }
        confirm(ctx, to, word, Some(name));
    }
    if named.is_empty() {
        confirm(ctx, to, word, None);
    }
    publish_counts(ctx.server);
    Ok(())
}

/// Sharded channels are counted for themselves.
fn confirm(ctx: &mut SessionCtx, to: To, word: &[u8], name: Option<&[u8]>) {
    let sharded = ctx.session.shard_channels.len();
    let count = if to == To::ShardChannel { sharded } else { ctx.session.subscriptions() - sharded } as i64;
    ctx.reply.push(3);
    ctx.reply.bulk(word);
    match name {
        Some(name) => ctx.reply.bulk(name),
        None => ctx.reply.nil(),
    }
    ctx.reply.int(count);
}

async fn publish_message(ctx: TaskCtx, world: World) -> Result<Vec<u8>> {
    let request = ctx.request.as_request();
    tell_replicas(&ctx.server, world, request);
    let (channel, payload) = (request.arg(1), request.arg(2));
    let delivered = match &ctx.transaction {
        // Who hears of it must not learn what the disk does not have yet.
        Some(transaction) if ctx.server.shard.durable.is_kept() => {
            let (server, channel, payload) = (ctx.server.clone(), channel.to_vec(), payload.to_vec());
            let listeners = count_listeners(&server, world, channel.clone()).await;
            transaction.afterwards(async move {
                publish(&server, world, &channel, &payload).await;
            });
            listeners
        }
        _ => publish(&ctx.server, world, channel, payload).await,
    };
    Ok(ctx.reply(|reply| reply.int(delivered as i64)))
}

/// Who listens on a replica hears it, too. (A replica that is published to tells its own nothing, as in Redis.)
fn tell_replicas(server: &Server, world: World, request: Request) {
    let word: &[u8] = if world == World::Plain { b"PUBLISH" } else { b"SPUBLISH" };
    server.tell_replicas([word, request.arg(1), request.arg(2)].into_iter());
}

async fn channels(ctx: TaskCtx, world: World) -> Result<Vec<u8>> {
    let request = ctx.request.as_request();
    if request.len() > 3 {
        return Err(Error::bad_subcommand("PUBSUB", request.arg(1)));
    }
    let pattern = request.get(2).map(<[u8]>::to_vec);
    let of_shard = move |shard: &std::rc::Rc<crate::shard::Shard>| {
        let server = Server::of(shard);
        let subscriptions = server.pubsub.borrow();
        let wanted = |name: &&[u8]| pattern.as_ref().is_none_or(|pattern| glob_match(pattern, name, false));
        subscriptions.channels(world).filter(wanted).map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    let found: BTreeSet<Vec<u8>> = ctx.server.shard.call_all(of_shard).await.into_iter().flatten().collect();
    Ok(ctx.reply(|reply| {
        reply.array(found.len());
        found.iter().for_each(|name| reply.bulk(name));
    }))
}

async fn numsub(ctx: TaskCtx, world: World) -> Result<Vec<u8>> {
    let names: Vec<Vec<u8>> = ctx.request.as_request().from(2).map(<[u8]>::to_vec).collect();
    let asked = names.clone();
    let of_shard = move |shard: &std::rc::Rc<crate::shard::Shard>| {
        let server = Server::of(shard);
        let subscriptions = server.pubsub.borrow();
        asked.iter().map(|name| subscriptions.listeners(world, name)).collect::<Vec<_>>()
    };
    let counts = ctx.server.shard.call_all(of_shard).await;
    Ok(ctx.reply(|reply| {
        reply.array(names.len() * 2);
        for (index, name) in names.iter().enumerate() {
            reply.bulk(name);
            reply.int(counts.iter().map(|counts| counts[index] as i64).sum());
        }
    }))
}

async fn numpat(ctx: TaskCtx) -> Result<Vec<u8>> {
    let of_shard = |shard: &std::rc::Rc<crate::shard::Shard>| {
        let server = Server::of(shard);
        let subscriptions = server.pubsub.borrow();
        subscriptions.patterns().map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    let found: BTreeSet<Vec<u8>> = ctx.server.shard.call_all(of_shard).await.into_iter().flatten().collect();
    Ok(ctx.reply(|reply| reply.int(found.len() as i64)))
}
