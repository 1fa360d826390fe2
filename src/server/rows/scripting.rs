//! EVAL, EVALSHA, SCRIPT: Lua scripts.

use super::{container_spec, server_spec};
use crate::command::spec::flag::{
    ALLOW_BUSY, BY_CALLEE, MAY_REPLICATE, MOVABLE_KEYS, NO_MANDATORY_KEYS, NO_SCRIPT, READ, SKIP_MONITOR, STALE,
};
use crate::command::spec::{Group, Keys, Row, Spec, tip};
use crate::resp::{Error, Request, Result};
use crate::script::named;
use crate::server::state::busy::busy_text;
use crate::server::state::scripting::Running;
use crate::server::state::{By, Calls, Run, Server, SessionCtx, TaskCtx};
use crate::shard::Shard;
use std::rc::Rc;

pub(super) const fn call_spec(name: &'static str, flags: u32, since: &'static str, syntax: &'static str) -> Spec {
    Spec {
        name,
        arity: -3,
        flags: flags | NO_SCRIPT | SKIP_MONITOR | STALE | MOVABLE_KEYS | NO_MANDATORY_KEYS | BY_CALLEE,
        keys: Keys::COUNTED_LATER,
        group: Group::Scripting,
        since,
        complexity: "Depends on the script",
        summary: "",
        syntax,
    }
}

const fn spec(name: &'static str, arity: i32, flags: u32, complexity: &'static str) -> Spec {
    Spec { group: Group::Scripting, ..server_spec(name, arity, NO_SCRIPT | flags, "2.6.0", complexity) }
}

pub const ROWS: &[Row<Run>] = &[
    Row::new(
        Spec {
            summary: "Runs a Lua script as one moment.",
            ..call_spec("eval", MAY_REPLICATE, "2.6.0", "script:string numkeys:integer [key]... [arg:string]...")
        },
        Run::Script(Calls { by: By::Source, read_only: false }),
    ),
    Row::new(
        Spec {
            summary: "Runs a Lua script that was loaded before, named by its SHA1 digest.",
            ..call_spec("evalsha", MAY_REPLICATE, "2.6.0", "sha1:string numkeys:integer [key]... [arg:string]...")
        },
        Run::Script(Calls { by: By::Digest, read_only: false }),
    ),
    Row::new(
        Spec {
            summary: "Runs a Lua script that does not write.",
            ..call_spec("eval_ro", READ, "7.0.0", "script:string numkeys:integer [key]... [arg:string]...")
        },
        Run::Script(Calls { by: By::Source, read_only: true }),
    ),
    Row::new(
        Spec {
            summary: "Runs a Lua script that was loaded before and does not write, named by its SHA1 digest.",
            ..call_spec("evalsha_ro", READ, "7.0.0", "sha1:string numkeys:integer [key]... [arg:string]...")
        },
        Run::Script(Calls { by: By::Digest, read_only: true }),
    ),
    Row::container(
        Spec {
            group: Group::Scripting,
            summary: "Loads Lua scripts and looks after them.",
            ..container_spec("script", "2.6.0")
        },
        Run::Container,
        &[
            Row::new(
                Spec {
                    summary: "Compiles and keeps a script; returns its SHA1 digest.",
                    syntax: "script:string",
                    ..spec("load", 3, STALE, "O(n) in the length of the script")
                },
                Run::Session(load),
            )
            .tips(&[tip::ASK_ALL_NODES, tip::ALL_SUCCEEDED]),
            Row::new(
                Spec {
                    summary: "Says of each digest whether there is such a script.",
                    syntax: "sha1:string...",
                    ..spec("exists", -3, 0, "O(n) in the number of digests")
                },
                Run::Session(exists),
            )
            .tips(&[tip::ASK_ALL_SHARDS, tip::AGG_LOGICAL_AND]),
            Row::new(
                Spec {
                    summary: "Forgets all scripts.",
                    syntax: "[flush-type:(ASYNC|SYNC)]",
                    ..spec("flush", -2, 0, "O(n) in the number of scripts")
                },
                Run::Session(flush),
            )
            .tips(&[tip::ASK_ALL_NODES, tip::ALL_SUCCEEDED]),
            Row::new(
                Spec { summary: "Ends the script that runs.", ..spec("kill", 2, ALLOW_BUSY, "O(1)") },
                Run::Task(|ctx| Box::pin(kill(ctx, false))),
            )
            .tips(&[tip::ASK_ALL_SHARDS, tip::ONE_SUCCEEDED]),
            Row::new(
                Spec {
                    since: "3.2.0",
                    summary: "Is refused: there is no debugger for scripts.",
                    syntax: "mode:(YES|SYNC|NO)",
                    ..spec("debug", 3, 0, "O(1)")
                },
                Run::Session(debug),
            ),
        ],
    ),
];

fn load(ctx: &mut SessionCtx, request: Request) -> Result {
    let script = ctx.server.scripting.scripts.load(request.arg(2), false)?;
    ctx.reply.bulk(&script.source.digest);
    Ok(())
}

fn exists(ctx: &mut SessionCtx, request: Request) -> Result {
    ctx.reply.array(request.len() - 2);
    for name in request.from(2) {
        let is_there = named(name).is_some_and(|digest| ctx.server.global.scripts.find(&digest).is_some());
        ctx.reply.int(i64::from(is_there));
    }
    Ok(())
}

fn flush(ctx: &mut SessionCtx, request: Request) -> Result {
    let is_valid = request.len() == 2 || request.len() == 3 && (request.is(2, "sync") || request.is(2, "async"));
    if !is_valid {
        return Err(Error::text("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
    }
    ctx.server.global.scripts.flush();
    ctx.reply.ok();
    Ok(())
}

/// Ends the script, or the function, that runs for the longest time, of those that have not written and that nobody has
/// ended yet.
pub(super) async fn kill(ctx: TaskCtx, functions: bool) -> Result<Vec<u8>> {
    let found = ctx.server.shard.call_all(|shard| {
        let of = |running: &Rc<Running>| {
            let rank = (running.has_written.get(), running.is_killed.get(), running.began_us);
            (running.function.is_some(), rank)
        };
        Server::of(shard).scripting.running().iter().map(of).collect::<Vec<_>>()
    });
    let found = found.await.into_iter().enumerate().flat_map(|(shard, all)| all.into_iter().map(move |of| (shard, of)));
    let (wanted, others): (Vec<_>, Vec<_>) = found.partition(|(_, (is_function, _))| *is_function == functions);
    let oldest = wanted.into_iter().min_by_key(|(_, (_, rank))| *rank);
    let Some((shard, (_, (has_written, _, began_us)))) = oldest else {
        return Err(Error::text(match others.is_empty() {
            true => "NOTBUSY No scripts in execution right now.",
            false => busy_text(!functions),
        }));
    };
    // It may have written since it was looked at.
    let kill = move |shard: &Rc<Shard>| {
        let running = Server::of(shard).scripting.running();
        let is_it = |of: &&Rc<Running>| of.began_us == began_us && of.function.is_some() == functions;
        running.iter().filter(is_it).all(|of| {
            let may_end = !of.has_written.get();
            of.is_killed.set(may_end);
            may_end
        })
    };
    if has_written || !ctx.server.shard.call(shard, kill).await {
        return Err(Error::text(
            "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait the \
             script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.",
        ));
    }
    Ok(ctx.reply(|reply| reply.ok()))
}

fn debug(ctx: &mut SessionCtx, request: Request) -> Result {
    if !request.is(2, "no") {
        return Err(Error::text("ERR SCRIPT DEBUG is not supported"));
    }
    ctx.reply.ok();
    Ok(())
}
