//! CONFIG: reading and changing directives while the server runs. Changes are made to the master copy first; then
//! each shard takes it over.

use super::server_spec;
use crate::acl::log::REASONS;
use crate::acl::{User, Users};
use crate::command::spec::flag::{ADMIN, LOADING, NO_SCRIPT, STALE};
use crate::command::spec::{Row, Secrets, Spec, tip};
use crate::config::{self, Config, Directive};
use crate::keyspace::Counters;
use crate::net::tls::{self, Tls};
use crate::observe::{log, machine, memory};
use crate::resp::{Error, Request, Result};
use crate::server::admit::IS_LOADING;
use crate::server::kept::rewriting;
use crate::server::replication::minding;
use crate::server::state::files::make_room_for;
use crate::server::state::global::Global;
use crate::server::state::{Run, Server, SessionCtx, TaskCtx};
use crate::server::told::users;
use crate::server::wire::client_eviction;
use crate::shard::Shard;
use crate::value::glob::glob_match;
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

pub const ROWS: &[Row<Run>] = &[Row::container(
    Spec {
        flags: 0,
        complexity: "Depends on the subcommand",
        summary: "Groups what is about the configuration.",
        ..config_spec("config", -2, "")
    },
    Run::Container,
    &[
        Row::new(
            Spec {
                complexity: "O(n) in the number of directives",
                summary: "Returns the values of the directives that are named or match a pattern.",
                ..config_spec("get", -3, "parameter...")
            },
            Run::Session(get),
        ),
        Row::new(
            Spec {
                complexity: "O(n) in the number of directives that are set",
                summary: "Changes directives, all or none of them.",
                ..config_spec("set", -4, "data:(parameter value)...")
            },
            Run::Task(|ctx| Box::pin(set(ctx))),
        )
        .hiding(Secrets::Directives(2))
        .tips(&[tip::ASK_ALL_NODES, tip::ALL_SUCCEEDED]),
        Row::new(
            Spec { summary: "Sets the counters that INFO shows to zero.", ..config_spec("resetstat", 2, "") },
            Run::Task(|ctx| Box::pin(resetstat(ctx))),
        ),
        Row::new(
            Spec {
                complexity: "O(n) in the length of the file",
                summary: "Brings the configuration file up to date.",
                since: "2.8.0",
                ..config_spec("rewrite", 2, "")
            },
            Run::Task(|ctx| Box::pin(rewrite(ctx))),
        ),
    ],
)];

const fn config_spec(name: &'static str, arity: i32, syntax: &'static str) -> Spec {
    let flags = ADMIN | NO_SCRIPT | LOADING | STALE;
    Spec { syntax, ..server_spec(name, arity, flags, "2.0.0", "O(1)") }
}

fn get(ctx: &mut SessionCtx, request: Request) -> Result {
    let config = ctx.server.shard.config();
    let is_asked = |name: &str, directive: &Directive| {
        asked_as(request, name)
            .is_some_and(|asked| !directive.is_hidden() || asked.eq_ignore_ascii_case(name.as_bytes()))
    };
    let found = config.get_those(is_asked);
    ctx.reply.map(found.len());
    for (name, value) in found {
        ctx.reply.bulk(asked_as(request, name).unwrap_or(name.as_bytes()));
        ctx.reply.bulk(value.as_bytes());
    }
    Ok(())
}

/// How a directive is called in the answer, if it was asked for: a name comes back in the case it was asked in.
fn asked_as<'a>(request: Request<'a>, name: &'a str) -> Option<&'a [u8]> {
    let first = request.from(2).find(|pattern| glob_match(pattern, name.as_bytes(), true))?;
    let is_pattern = first.iter().any(|byte| matches!(byte, b'[' | b'*' | b'?'));
    Some(if is_pattern { name.as_bytes() } else { first })
}

async fn set(ctx: TaskCtx) -> Result<Vec<u8>> {
    let (global, pairs) = (&ctx.server.global, parse_pairs(ctx.request.as_request())?);
    let sets_log = pairs.iter().any(|(name, _)| is_about_log(name));
    // What is loaded beside the data is about to take their place, and the log begins with that.
    if sets_log && global.snapshots.is_taking_in() && !global.snapshots.is_loading() {
        return Err(Error::text("LOADING Failed to set appendonly while the dataset is being loaded"));
    }
    let before = global.config().get(|name| sets_log && pairs.iter().any(|(of, _)| name.eq_ignore_ascii_case(of)));
    let default_user = global.users.newest().default_user().clone();
    apply(&ctx, &pairs, None).await?;
    // What else is set must not wait for a log that is about to begin or to end.
    if sets_log
        && !global.snapshots.is_loading()
        && let Err(error) = rewriting::take_over(&ctx.server, ctx.in_exec).await
    {
        // The log cannot begin: what else was set is set back, the log is off, and who asks is told so.
        let before: Vec<(&str, &str)> = before.iter().map(|(name, value)| (*name, value.as_str())).collect();
        if let Err(error) = apply(&ctx, &before, Some(default_user)).await {
            let reason = error.to_bytes();
            log::warning(format_args!("Failed restoring the configuration: {}", reason.escape_ascii()));
        }
        global.config().appendonly = false;
        ctx.server.shard.call_all(take_over).await;
        return Err(error);
    }
    Ok(ctx.reply(|reply| reply.ok()))
}

/// Changes the master copy, and makes all shards take it over. Where `requirepass` changes, and a default user is given, he is put
/// back: he may have had other passwords, and must not be anybody's in between.
async fn apply(ctx: &TaskCtx, pairs: &[(&str, &str)], default_user: Option<Arc<User>>) -> Result {
    let (global, local) = (&ctx.server.global, ctx.client.state.borrow().session.peer.local);
    // Files are read beside the shard. Where somebody else has changed what they are read for, they are read again.
    let mut loaded = None;
    while let Some(needed) = change(global, pairs, (local, default_user.as_ref()), loaded.take())? {
        loaded = Some(load_tls(ctx, pairs, needed).await?);
    }
    ctx.server.shard.call_all(take_over).await;
    minding::take_over(&ctx.server);
    global.snapshots.follow_config(&ctx.server.shard.config());
    if pairs.iter().any(|(name, _)| name.eq_ignore_ascii_case("requirepass")) {
        users::tell_all(&ctx.server, ctx.client.id).await;
    }
    Ok(())
}

/// Whether the log takes a directive over when it is set.
fn is_about_log(name: &str) -> bool {
    ["appendonly", "appendfsync", "aof-timestamp-enabled", "aof-buffer-limit"]
        .iter()
        .any(|of| name.eq_ignore_ascii_case(of))
}

/// What TLS is served with once its directives are these.
type LoadedTls = (config::Tls, Option<tls::Loaded>);

/// Reads the files that directives of TLS name.
async fn load_tls(ctx: &TaskCtx, pairs: &[(&str, &str)], settings: config::Tls) -> Result<LoadedTls> {
    let name = pairs.iter().map(|(name, _)| *name).find(|name| is_about_tls(name)).unwrap_or_default();
    let serves = ctx.server.global.tls.is_some();
    let read = ctx.server.transport.beside(move || {
        let is_well = if settings.replication { tls::client_config(&settings).map(drop) } else { Ok(()) };
        let loaded = is_well.and_then(|()| serves.then(|| Tls::load(&settings)).transpose());
        (settings, loaded.map_err(|error| error.to_string()))
    });
    let (settings, loaded) = read.await.map_err(|error| refused(name, &error.to_string()))?;
    match loaded {
        Ok(loaded) => Ok((settings, loaded)),
        Err(reason) => {
            log::warning(format_args!("{reason}"));
            Err(refused(name, "Unable to update TLS configuration. Check server logs."))
        }
    }
}

fn is_about_tls(name: &str) -> bool {
    name.get(..4).is_some_and(|head| head.eq_ignore_ascii_case("tls-"))
}

/// Changes the master copy, and what belongs to the process rather than to the shards. Where that takes files of TLS which
/// were not read yet nothing changes, and the directives that name them come back.
fn change(
    global: &Global,
    pairs: &[(&str, &str)],
    (local, default_user): (bool, Option<&Arc<User>>),
    loaded: Option<LoadedTls>,
) -> Result<Option<config::Tls>> {
    let mut master = global.config();
    let mut changed = master.clone();
    changed.set(pairs, local).map_err(Error::err)?;
    // What is loaded may be in files that are named from here.
    let concerns_loading = |name: &str| ["dir", "repl-diskless-load"].iter().any(|of| name.eq_ignore_ascii_case(of));
    if global.snapshots.is_loading() && pairs.iter().any(|(name, _)| concerns_loading(name)) {
        return Err(IS_LOADING);
    }
    let uses_tls = global.tls.is_some() || changed.tls.replication;
    let loads = uses_tls && pairs.iter().any(|(name, _)| is_about_tls(name));
    if loads && loaded.as_ref().is_none_or(|(settings, _)| *settings != changed.tls) {
        return Ok(Some(changed.tls));
    }
    if changed.maxclients > master.maxclients {
        make_room_for(changed.maxclients, global.connections.len(), &changed).map_err(|possible| {
            let reason = "The operating system is not able to handle the specified number of clients, try with";
            refused("maxclients", &format!("{reason} {possible}"))
        })?;
    }
    if pairs.iter().any(|(name, _)| name.eq_ignore_ascii_case("dir")) {
        change_directory(&mut changed)?;
    }
    // (The default user may have got other passwords since, which setting what is set already does not take.)
    if changed.requirepass != master.requirepass {
        let require = |users: &mut Users| {
            match default_user {
                Some(user) => users.put_default_back(user.clone()),
                None => users.require(changed.requirepass.as_bytes()),
            }
            Ok(())
        };
        global.users.change(require).unwrap_or_else(|never: Infallible| match never {});
    }
    log::configure(&changed);
    let max_bytes = changed.maxmemory.of(machine::memory_bytes());
    if changed.maxmemory != master.maxmemory && (1..memory::used_bytes()).contains(&max_bytes) {
        log::warning(format_args!(
            "WARNING: the new maxmemory value set via CONFIG SET ({max_bytes}) is smaller than the current memory usage \
             ({}). This will result in key eviction and/or the inability to accept new write commands depending on the \
             maxmemory-policy.",
            memory::used_bytes()
        ));
    }
    if let (Some(tls), Some((settings, Some(loaded)))) = (&global.tls, loaded) {
        tls.replace(&settings, loaded);
    }
    *master = changed;
    Ok(None)
}

fn parse_pairs(request: Request<'_>) -> Result<Vec<(&str, &str)>> {
    if !request.len().is_multiple_of(2) {
        return Err(Error::Syntax);
    }
    (2..request.len())
        .step_by(2)
        .map(|at| {
            let name = request.arg(at);
            let Ok(name) = std::str::from_utf8(name) else {
                let head = b"ERR Unknown option or number of arguments for CONFIG SET - '";
                return Err(Error::quoting(&[head, name, b"'"]));
            };
            match std::str::from_utf8(request.arg(at + 1)) {
                Ok(value) => Ok((name, value)),
                Err(_) => Err(refused(name, "argument must be text in UTF-8")),
            }
        })
        .collect()
}

fn refused(name: &str, reason: &str) -> Error {
    Error::err(format_args!("CONFIG SET failed (possibly related to argument '{name}') - {reason}"))
}

fn change_directory(config: &mut Config) -> Result {
    let changed = std::env::set_current_dir(&config.dir).and_then(|()| std::env::current_dir());
    let dir = changed.map_err(|error| refused("dir", &log::reason(&error)))?;
    config.dir = dir.display().to_string();
    Ok(())
}

/// Makes one shard take over the master copy. It is read there rather than sent: where several connections change it
/// at the same time, all shards end up with the last change.
fn take_over(shard: &Rc<Shard>) {
    let server = Server::of(shard);
    let config = server.global.config().clone();
    shard.configure(Arc::new(config));
    client_eviction::configure(&server);
}

async fn resetstat(ctx: TaskCtx) -> Result<Vec<u8>> {
    ctx.server.shard.call_all(reset_counters).await;
    let global = &ctx.server.global;
    let counters = [&global.accepted, &global.rejected, &global.evicted_clients];
    let of_limits = [&global.past_input_limit, &global.past_output_limit];
    let of_users = REASONS.map(|reason| global.users.refusals(reason));
    counters.into_iter().chain(of_limits).chain(of_users).for_each(|counter| counter.store(0, Ordering::Relaxed));
    ctx.server.shard.ceiling().reset();
    ctx.server.global.replication.reset_counters();
    Ok(ctx.reply(|reply| reply.ok()))
}

fn reset_counters(shard: &Rc<Shard>) {
    let mut keyspace = shard.keyspace.borrow_mut();
    keyspace.count_upkeep();
    keyspace.counters = Counters::default();
    keyspace.effects.fields_expired = 0;
    keyspace.lag.reset();
    keyspace.reset_tallies();
    keyspace.reset_advice(shard.clock.refresh());
    let mut cycle = shard.cycle.borrow_mut();
    cycle.cpu_ns = 0;
    cycle.time_cap_reached = 0;
    cycle.cycles = 0;
    shard.meter.statistics().reset();
    Server::of(shard).stats.reset();
}

/// Held while the file is rewritten, so that of two the later one wins.
static REWRITING: Mutex<()> = Mutex::new(());

async fn rewrite(ctx: TaskCtx) -> Result<Vec<u8>> {
    let global = ctx.server.global.clone();
    // On a thread beside the shard: nobody waits for the disk, not even for the lock of the configuration.
    let written = ctx.server.transport.beside(move || {
        let _alone = REWRITING.lock().unwrap_or_else(PoisonError::into_inner);
        let (config, users) = {
            let config = global.config();
            (config.clone(), global.users.newest())
        };
        global.users.declare(&config, &users);
        config.rewrite().map_err(|error| error.to_string())
    });
    match written.await.unwrap_or_else(|error| Err(error.to_string())) {
        Ok(()) => {
            log::notice(format_args!("CONFIG REWRITE executed with success."));
            Ok(ctx.reply(|reply| reply.ok()))
        }
        Err(reason) => {
            log::warning(format_args!("CONFIG REWRITE failed: {reason}"));
            Err(Error::err(reason))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::OwnedRequest;

    fn owned(args: &[&[u8]]) -> OwnedRequest {
        OwnedRequest::from_args(args.iter().copied())
    }

    #[test]
    fn names_come_back_as_they_were_asked() {
        let request = owned(&[b"CONFIG", b"GET", b"HZ", b"h[Z]", b"time*"]);
        let asked = |name| asked_as(request.as_request(), name);
        assert_eq!(asked("hz"), Some(&b"HZ"[..]));
        assert_eq!(asked("timeout"), Some(&b"timeout"[..]));
        assert_eq!(asked("port"), None);
    }

    #[test]
    fn pairs_are_complete_and_text() {
        let request = owned(&[b"CONFIG", b"SET", b"hz", b"20", b"DIR", b"/"]);
        let pairs = parse_pairs(request.as_request());
        assert_eq!(pairs, Ok(vec![("hz", "20"), ("DIR", "/")]));
        let odd = owned(&[b"CONFIG", b"SET", b"hz", b"20", b"timeout"]);
        assert_eq!(parse_pairs(odd.as_request()), Err(Error::Syntax));
        assert!(parse_pairs(owned(&[b"CONFIG", b"SET", b"dir", b"\xff"]).as_request()).is_err());
    }

    #[test]
    fn a_directory_that_is_not_there_is_refused_in_the_words_of_redis() {
        let mut config = Config::default();
        config.dir = "/no/such/place".into();
        let error = change_directory(&mut config).unwrap_err();
        assert_eq!(
            error.to_string(),
            "ERR CONFIG SET failed (possibly related to argument 'dir') - No such file or directory"
        );
    }
}
