//! FCALL, FUNCTION: libraries of Lua functions.

use super::scripting::{call_spec, kill};
use super::{container_spec, server_spec};
use crate::clock::store_us;
use crate::command::spec::flag::{ALLOW_BUSY, DENY_OOM, MAY_REPLICATE, NO_SCRIPT, READ, WRITE};
use crate::command::spec::{Group, Row, Spec, tip};
use crate::journal::Command;
use crate::rdb::{self, payload};
use crate::resp::{Error, Reply, Result, printable};
use crate::script::{Catalog, Heading, Library};
use crate::server::state::tidying::tidy;
use crate::server::state::{By, Calls, Run, Server, TaskCtx};
use crate::shard::Shard;
use crate::value::glob::glob_match;
use std::rc::Rc;
use std::sync::Arc;

const fn spec(name: &'static str, arity: i32, flags: u32, complexity: &'static str) -> Spec {
    Spec { group: Group::Scripting, ..server_spec(name, arity, NO_SCRIPT | flags, "7.0.0", complexity) }
}

pub const ROWS: &[Row<Run>] = &[
    Row::new(
        Spec {
            summary: "Calls a function as one moment.",
            ..call_spec("fcall", MAY_REPLICATE, "7.0.0", "function:string numkeys:integer [key]... [arg:string]...")
        },
        Run::Script(Calls { by: By::Function, read_only: false }),
    ),
    Row::new(
        Spec {
            summary: "Calls a function that does not write.",
            ..call_spec("fcall_ro", READ, "7.0.0", "function:string numkeys:integer [key]... [arg:string]...")
        },
        Run::Script(Calls { by: By::Function, read_only: true }),
    ),
    Row::container(
        Spec {
            group: Group::Scripting,
            summary: "Loads libraries of Lua functions and looks after them.",
            ..container_spec("function", "7.0.0")
        },
        Run::Container,
        FUNCTION_ROWS,
    ),
];

const FUNCTION_ROWS: &[Row<Run>] = &[
    Row::new(
        Spec {
            summary: "Loads a library and keeps it; returns its name.",
            syntax: "[REPLACE] function-code:string",
            ..spec("load", -3, WRITE | DENY_OOM, "O(n) in the length of the code, and what it does")
        },
        Run::Task(|ctx| Box::pin(load(ctx))),
    )
    .tips(&[tip::ASK_ALL_SHARDS, tip::ALL_SUCCEEDED]),
    Row::new(
        Spec {
            summary: "Deletes a library and its functions.",
            syntax: "library-name:string",
            ..spec("delete", 3, WRITE, "O(n) in the number of functions")
        },
        Run::Task(|ctx| Box::pin(delete(ctx))),
    )
    .tips(&[tip::ASK_ALL_SHARDS, tip::ALL_SUCCEEDED]),
    Row::new(
        Spec {
            summary: "Deletes all libraries.",
            syntax: "[flush-type:(ASYNC|SYNC)]",
            ..spec("flush", -2, WRITE, "O(n) in the number of functions")
        },
        Run::Task(|ctx| Box::pin(flush(ctx))),
    )
    .tips(&[tip::ASK_ALL_SHARDS, tip::ALL_SUCCEEDED]),
    Row::new(
        Spec {
            summary: "Tells about libraries and their functions.",
            syntax: "[LIBRARYNAME library-name-pattern:string] [WITHCODE]",
            ..spec("list", -2, 0, "O(n) in the number of functions")
        },
        Run::Task(|ctx| Box::pin(list(ctx))),
    )
    .tips(&[tip::NONDETERMINISTIC_OUTPUT_ORDER]),
    Row::new(
        Spec { summary: "Tells what function runs, and how many there are.", ..spec("stats", 2, ALLOW_BUSY, "O(1)") },
        Run::Task(|ctx| Box::pin(stats(ctx))),
    )
    .tips(&[tip::NONDETERMINISTIC_OUTPUT, tip::ASK_ALL_SHARDS, tip::REPLY_SPECIAL]),
    Row::new(
        Spec { summary: "Ends the function that runs.", ..spec("kill", 2, ALLOW_BUSY, "O(1)") },
        Run::Task(|ctx| Box::pin(kill(ctx, true))),
    )
    .tips(&[tip::ASK_ALL_SHARDS, tip::ONE_SUCCEEDED]),
    Row::new(
        Spec {
            summary: "Returns all libraries as one payload.",
            ..spec("dump", 2, 0, "O(n) in the bytes of the code")
        },
        Run::Task(|ctx| Box::pin(dump(ctx))),
    ),
    Row::new(
        Spec {
            summary: "Loads the libraries of a payload, all or none.",
            syntax: "serialized-value:string [policy:(FLUSH|APPEND|REPLACE)]",
            ..spec("restore", -3, WRITE | DENY_OOM, "O(n) in the bytes of the code, and what it does")
        },
        Run::Task(|ctx| Box::pin(restore(ctx))),
    )
    .tips(&[tip::ASK_ALL_SHARDS, tip::ALL_SUCCEEDED]),
];

async fn load(ctx: TaskCtx) -> Result<Vec<u8>> {
    let request = ctx.request.as_request();
    let mut replace = false;
    for index in 2..request.len() - 1 {
        if !request.is(index, "replace") {
            return Err(Error::quoting(&[b"ERR Unknown option given: ", printable(request.arg(index), 128)]));
        }
        replace = true;
    }
    let code = request.arg(request.len() - 1);
    let heading = Heading::parse(code)?;
    let (scripting, memory_bytes) = (&ctx.server.scripting, ctx.server.shard.config().script_memory_bytes);
    let refuse_second = move |catalog: &Catalog, name: &[u8]| match catalog.library(name) {
        Some(_) if !replace => Err(Error::quoting(&[b"ERR Library '", name, b"' already exists"])),
        _ => Ok(()),
    };
    refuse_second(&scripting.functions.catalog(), &heading.name)?;
    let loaded = scripting.load_new(code, heading, memory_bytes).await;
    tidy(&ctx.server);
    let loaded = loaded?;
    let library = loaded.library.clone();
    let with = move |catalog: &Catalog| {
        // Others may have been loaded meanwhile.
        refuse_second(catalog, &library.name)?;
        catalog.with(std::slice::from_ref(&library), replace)
    };
    change(&ctx.server, &[b"FUNCTION", b"LOAD", b"REPLACE", code], with).await?;
    let loaded = scripting.functions.keep(loaded);
    give_up_old(&ctx.server).await;
    Ok(ctx.reply(|reply| reply.bulk(&loaded.library.name)))
}

/// Changes the catalog, and tells the journal of that. One shard does both for all of them: so changes stand there in the
/// order in which they took effect.
async fn change(
    server: &Server,
    said: &[&[u8]],
    change: impl FnOnce(&Catalog) -> Result<Catalog> + Send + 'static,
) -> Result {
    let command = Command::new(0, said.iter().copied());
    let work = move |shard: &Rc<Shard>| {
        Server::of(shard).global.libraries.change(change)?;
        shard.record_command(command);
        Ok(())
    };
    server.shard.call(0, work).await
}

/// Every shard gives up what it has loaded of libraries that are no more.
async fn give_up_old(server: &Server) {
    let refresh = |shard: &Rc<Shard>| {
        let server = Server::of(shard);
        server.scripting.functions.refresh();
        tidy(&server);
    };
    server.shard.call_all(refresh).await;
}

async fn delete(ctx: TaskCtx) -> Result<Vec<u8>> {
    let name = ctx.request.as_request().arg(2).to_vec();
    let said: [&[u8]; 3] = [b"FUNCTION", b"DELETE", &name.clone()];
    let without = move |catalog: &Catalog| catalog.without(&name).ok_or(Error::text("ERR Library not found"));
    change(&ctx.server, &said, without).await?;
    give_up_old(&ctx.server).await;
    Ok(ctx.reply(|reply| reply.ok()))
}

async fn flush(ctx: TaskCtx) -> Result<Vec<u8>> {
    let request = ctx.request.as_request();
    if request.len() > 3 {
        return Err(Error::bad_subcommand("FUNCTION", request.arg(1)));
    }
    if request.len() == 3 && !request.is(2, "sync") && !request.is(2, "async") {
        return Err(Error::text("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"));
    }
    change(&ctx.server, &[b"FUNCTION", b"FLUSH"], |_| Ok(Catalog::default())).await?;
    give_up_old(&ctx.server).await;
    Ok(ctx.reply(|reply| reply.ok()))
}

/// The libraries that there are, as the shard sees them that tells the journal of their changes: what shows them waits for
/// the disk like that (`appendfsync always`).
async fn catalog(ctx: &TaskCtx) -> Arc<Catalog> {
    ctx.server.shard.call(0, |shard| Server::of(shard).scripting.functions.catalog()).await
}

async fn list(ctx: TaskCtx) -> Result<Vec<u8>> {
    let request = ctx.request.as_request();
    let (mut pattern, mut with_code) = (None, false);
    let mut index = 2;
    while index < request.len() {
        if !with_code && request.is(index, "withcode") {
            with_code = true;
        } else if pattern.is_none() && request.is(index, "libraryname") {
            index += 1;
            pattern = Some(request.get(index).ok_or(Error::text("ERR library name argument was not given"))?);
        } else {
            return Err(Error::quoting(&[b"ERR Unknown argument ", printable(request.arg(index), 128)]));
        }
        index += 1;
    }
    let catalog = catalog(&ctx).await;
    let is_wanted = |library: &&Arc<Library>| pattern.is_none_or(|pattern| glob_match(pattern, &library.name, true));
    let libraries: Vec<_> = catalog.libraries().filter(is_wanted).collect();
    Ok(ctx.reply(|reply| {
        reply.array(libraries.len());
        libraries.into_iter().for_each(|library| write_library(reply, library, with_code));
    }))
}

fn write_library(reply: &mut Reply, library: &Library, with_code: bool) {
    reply.map(if with_code { 4 } else { 3 });
    reply.bulk(b"library_name");
    reply.bulk(&library.name);
    reply.bulk(b"engine");
    reply.bulk(b"LUA");
    reply.bulk(b"functions");
    reply.array(library.functions.len());
    for function in &library.functions {
        reply.map(3);
        reply.bulk(b"name");
        reply.bulk(&function.name);
        reply.bulk(b"description");
        match &function.description {
            Some(description) => reply.bulk(description),
            None => reply.nil(),
        }
        reply.bulk(b"flags");
        reply.set(function.flags.names().count());
        function.flags.names().for_each(|name| reply.simple(name));
    }
    if with_code {
        reply.bulk(b"library_code");
        reply.bulk(&library.code);
    }
}

/// The function that runs for the longest time, and how many there are.
async fn stats(ctx: TaskCtx) -> Result<Vec<u8>> {
    let oldest = |shard: &Rc<Shard>| {
        let running = Server::of(shard).scripting.running();
        let function = running.iter().find_map(|of| of.function.clone().map(|name| (of, name)));
        function.map(|(of, name)| (of.began_us, name, of.request.as_ref().clone()))
    };
    let found = ctx.server.shard.call_all(oldest).await;
    let oldest = found.into_iter().flatten().min_by_key(|(began_us, ..)| *began_us);
    let catalog = ctx.server.scripting.functions.catalog();
    Ok(ctx.reply(|reply| {
        reply.map(2);
        reply.bulk(b"running_script");
        match oldest {
            None => reply.nil(),
            Some((began_us, name, request)) => {
                reply.map(3);
                reply.bulk(b"name");
                reply.bulk(&name);
                reply.bulk(b"command");
                reply.array(request.as_request().len());
                request.as_request().from(0).for_each(|arg| reply.bulk(arg));
                reply.bulk(b"duration_ms");
                reply.int((store_us().saturating_sub(began_us) / 1_000) as i64);
            }
        }
        reply.bulk(b"engines");
        reply.map(1);
        reply.bulk(b"LUA");
        reply.map(2);
        reply.bulk(b"libraries_count");
        reply.int(catalog.libraries().len() as i64);
        reply.bulk(b"functions_count");
        reply.int(catalog.functions() as i64);
    }))
}

async fn dump(ctx: TaskCtx) -> Result<Vec<u8>> {
    let catalog = catalog(&ctx).await;
    let payload = rdb::functions::encode(catalog.libraries().map(|library| &*library.code));
    Ok(ctx.reply(|reply| reply.bulk(&payload)))
}

/// What becomes of the libraries that are there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Policy {
    Flush,
    Append,
    Replace,
}

async fn restore(ctx: TaskCtx) -> Result<Vec<u8>> {
    const NO_POLICY: Error =
        Error::text("ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.");
    let request = ctx.request.as_request();
    let policies = [("flush", Policy::Flush), ("append", Policy::Append), ("replace", Policy::Replace)];
    let policy = match request.len() {
        3 => Policy::Append,
        4 => policies.iter().find(|(word, _)| request.is(3, word)).map(|(_, policy)| *policy).ok_or(NO_POLICY)?,
        _ => return Err(Error::bad_subcommand("FUNCTION", request.arg(1))),
    };
    let codes = rdb::functions::decode(request.arg(2)).map_err(Error::err)?;
    let (scripting, memory_bytes) = (&ctx.server.scripting, ctx.server.shard.config().script_memory_bytes);
    let (mut restored, mut all) = (Catalog::default(), Vec::new());
    for code in codes {
        let heading = Heading::parse(&code)?;
        if restored.library(&heading.name).is_some() {
            return Err(Error::quoting(&[b"ERR Library '", &heading.name, b"' already exists"]));
        }
        let loaded = scripting.load_new(&code, heading, memory_bytes).await;
        tidy(&ctx.server);
        let loaded = loaded?;
        restored = restored.with(std::slice::from_ref(&loaded.library), false)?;
        all.push(loaded);
    }
    let libraries: Vec<Arc<Library>> = restored.libraries().cloned().collect();
    let payload = payload::for_redis_7(request.arg(2));
    let said: Vec<&[u8]> = request.from(0).take(2).chain([&*payload]).chain(request.from(3)).collect();
    let with = move |catalog: &Catalog| match policy {
        Policy::Flush => Ok(restored),
        _ => catalog.with(&libraries, policy == Policy::Replace),
    };
    change(&ctx.server, &said, with).await?;
    all.into_iter().for_each(|loaded| drop(scripting.functions.keep(loaded)));
    give_up_old(&ctx.server).await;
    Ok(ctx.reply(|reply| reply.ok()))
}
