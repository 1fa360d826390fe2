//! CLIENT: looking at connections, naming them, ending them, holding them up. A list of connections is put together
//! from all shards.

use crate::acl::Users;
use crate::clock::store_us;
use crate::command::spec::flag::{ADMIN, LOADING, NO_SCRIPT, STALE};
use crate::command::spec::{Group, Keys, Row, Spec, tip};
use crate::resp::{Error, Request, Result, printable};
use crate::server::client::ClientRef;
use crate::server::client::line::line;
use crate::server::client::session::{Close, ReplyMode, Session};
use crate::server::run::wait;
use crate::server::state::pauses;
use crate::server::state::waits::End;
use crate::server::state::{Run, Server, SessionCtx, TaskCtx};
use crate::server::told::output::close_now;
use crate::shard::Shard;
use crate::value::number::parse_i64;
use filter::Filter;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

mod filter;
mod tracking;

const OWN: u32 = NO_SCRIPT | LOADING | STALE;
const OTHERS: u32 = ADMIN | OWN;

pub const ROWS: &[Row<Run>] = &[Row::container(
    Spec {
        complexity: "Depends on the subcommand",
        summary: "Groups what is about connections.",
        ..client_spec("client", -2, 0, "2.4.0", "")
    },
    Run::Container,
    SUBCOMMANDS,
)];

const SUBCOMMANDS: &[Row<Run>] = &[
    Row::new(
        Spec { summary: "Returns the id of this connection.", ..client_spec("id", 2, OWN, "5.0.0", "") },
        Run::Session(id),
    ),
    Row::new(
        Spec { summary: "Returns the name of this connection.", ..client_spec("getname", 2, OWN, "2.6.9", "") },
        Run::Session(getname),
    ),
    Row::new(
        Spec { summary: "Names this connection.", ..client_spec("setname", 3, OWN, "2.6.9", "connection-name") },
        Run::Session(setname),
    ),
    Row::new(
        Spec {
            summary: "Notes which library this connection uses.",
            ..client_spec("setinfo", 4, OWN, "7.2.0", "attr:(LIB-NAME libname|LIB-VER libver)")
        },
        Run::Session(setinfo),
    )
    .tips(&[tip::ASK_ALL_NODES, tip::ALL_SUCCEEDED]),
    Row::new(
        Spec {
            complexity: EVERY_CONNECTION,
            summary: "Lists the connections, a line each.",
            ..client_spec(
                "list",
                -2,
                OTHERS,
                "2.4.0",
                "[TYPE client-type:(NORMAL|MASTER|REPLICA|PUBSUB)] [ID client-id:integer...]",
            )
        },
        Run::Task(|ctx| Box::pin(list(ctx))),
    )
    .tips(&[tip::NONDETERMINISTIC_OUTPUT]),
    Row::new(
        Spec { summary: "Returns the line of this connection.", ..client_spec("info", 2, OWN, "6.2.0", "") },
        Run::Task(|ctx| Box::pin(info(ctx))),
    )
    .tips(&[tip::NONDETERMINISTIC_OUTPUT]),
    Row::new(
        Spec {
            complexity: EVERY_CONNECTION,
            summary: "Ends the connections for which all conditions hold.",
            ..client_spec(
                "kill",
                -3,
                OTHERS,
                "2.4.0",
                "filter:(ip-port|new-format:([ID client-id:integer] [TYPE \
                 client-type:(NORMAL|MASTER|SLAVE|REPLICA|PUBSUB)] [USER username] [ADDR addr] [LADDR laddr] \
                 [SKIPME skipme:(YES|NO)]))",
            )
        },
        Run::Task(|ctx| Box::pin(kill(ctx))),
    ),
    Row::new(
        Spec {
            summary: "Spares this connection when memory for connections runs out.",
            ..client_spec("no-evict", 3, OTHERS, "7.0.0", "enabled:(ON|OFF)")
        },
        Run::Session(|ctx, request| switch(ctx, request, |session| &mut session.no_evict)),
    ),
    Row::new(
        Spec {
            summary: "Lets this connection read keys without marking them as used.",
            ..client_spec("no-touch", 3, OWN, "7.2.0", "enabled:(ON|OFF)")
        },
        Run::Session(|ctx, request| switch(ctx, request, |session| &mut session.no_touch)),
    ),
    Row::new(
        Spec {
            summary: "Says whether commands of this connection are answered.",
            ..client_spec("reply", 3, OWN, "3.2.0", "on-off-skip:(ON|OFF|SKIP)")
        },
        Run::Session(reply),
    ),
    Row::new(
        Spec {
            summary: "Holds up all commands, or those that write, for some time; nothing expires meanwhile.",
            ..client_spec("pause", -3, OTHERS, "2.9.50", "timeout:integer [mode:(WRITE|ALL)]")
        },
        Run::Task(|ctx| Box::pin(pause(ctx))),
    ),
    Row::new(
        Spec {
            complexity: "O(1) on the connection's shard",
            summary: "Ends the wait of a connection whose command waits for a key.",
            ..client_spec("unblock", -3, OTHERS, "5.0.0", "client-id:integer [unblock-type:(TIMEOUT|ERROR)]")
        },
        Run::Task(|ctx| Box::pin(unblock(ctx))),
    ),
    Row::new(
        Spec {
            summary: "Says whether this connection is told when what it has read changes, and how.",
            complexity: "O(1), and O(n log n) in the number of prefixes",
            ..client_spec(
                "tracking",
                -3,
                OWN,
                "6.0.0",
                "status:(ON|OFF) [REDIRECT client-id:integer] [PREFIX prefix]... [BCAST] [OPTIN] [OPTOUT] [NOLOOP]",
            )
        },
        Run::Task(|ctx| Box::pin(tracking::tracking(ctx))),
    ),
    Row::new(
        Spec {
            summary: "Says whether what the next command reads is tracked.",
            ..client_spec("caching", 3, OWN, "6.0.0", "mode:(YES|NO)")
        },
        Run::Session(tracking::caching),
    ),
    Row::new(
        Spec {
            summary: "Returns which connection is told in place of this one.",
            ..client_spec("getredir", 2, OWN, "6.0.0", "")
        },
        Run::Session(tracking::getredir),
    ),
    Row::new(
        Spec {
            summary: "Returns how this connection tracks what it reads.",
            ..client_spec("trackinginfo", 2, OWN, "6.2.0", "")
        },
        Run::Session(tracking::trackinginfo),
    ),
    Row::new(
        Spec {
            complexity: "O(n) in the number of connections held up",
            summary: "Lets commands go on that are held up.",
            ..client_spec("unpause", 2, OTHERS, "6.2.0", "")
        },
        Run::Task(|ctx| Box::pin(unpause(ctx))),
    ),
];

const EVERY_CONNECTION: &str = "O(n) in the number of connections";

const fn client_spec(name: &'static str, arity: i32, flags: u32, since: &'static str, syntax: &'static str) -> Spec {
    Spec {
        name,
        arity,
        flags,
        keys: Keys::NONE,
        group: Group::Connection,
        since,
        complexity: "O(1)",
        summary: "",
        syntax,
    }
}

fn id(ctx: &mut SessionCtx, _: Request) -> Result {
    ctx.reply.int(ctx.session.peer.id as i64);
    Ok(())
}

fn getname(ctx: &mut SessionCtx, _: Request) -> Result {
    match &ctx.session.name[..] {
        [] => ctx.reply.nil(),
        name => ctx.reply.bulk(name),
    }
    Ok(())
}

fn setname(ctx: &mut SessionCtx, request: Request) -> Result {
    set_name(ctx.session, request.arg(2))?;
    ctx.reply.ok();
    Ok(())
}

/// Names a connection; an empty name takes the old one away.
pub fn set_name(session: &mut Session, name: &[u8]) -> Result {
    session.name = attribute(name, "Client names")?;
    Ok(())
}

/// The longest name of a connection, and of its library. (Redis keeps any; every CLIENT LIST repeats them.)
const ATTRIBUTE_BYTES_MAX: usize = 16 << 10;

/// What may stand in a line of CLIENT LIST, whose fields are separated by spaces.
fn attribute(value: &[u8], what: &str) -> Result<Vec<u8>> {
    if value.len() > ATTRIBUTE_BYTES_MAX {
        Err(Error::err(format_args!("{what} cannot be longer than {ATTRIBUTE_BYTES_MAX} bytes.")))
    } else if value.iter().all(u8::is_ascii_graphic) {
        Ok(value.to_vec())
    } else {
        Err(Error::err(format_args!("{what} cannot contain spaces, newlines or special characters.")))
    }
}

fn setinfo(ctx: &mut SessionCtx, request: Request) -> Result {
    let value = request.arg(3);
    if request.is(2, "lib-name") {
        ctx.session.lib_name = attribute(value, "lib-name")?;
    } else if request.is(2, "lib-ver") {
        ctx.session.lib_ver = attribute(value, "lib-ver")?;
    } else {
        return Err(Error::quoting(&[b"ERR Unrecognized option '", printable(request.arg(2), usize::MAX), b"'"]));
    }
    ctx.reply.ok();
    Ok(())
}

fn switch(ctx: &mut SessionCtx, request: Request, field: fn(&mut Session) -> &mut bool) -> Result {
    *field(ctx.session) = if request.is(2, "on") {
        true
    } else if request.is(2, "off") {
        false
    } else {
        return Err(Error::Syntax);
    };
    ctx.reply.ok();
    Ok(())
}

fn reply(ctx: &mut SessionCtx, request: Request) -> Result {
    let mode = &mut ctx.session.reply_mode;
    if request.is(2, "on") {
        *mode = ReplyMode::On;
        ctx.reply.ok();
    } else if request.is(2, "off") {
        *mode = ReplyMode::Off;
    } else if request.is(2, "skip") {
        if *mode != ReplyMode::Off {
            *mode = ReplyMode::SkipNext;
        }
    } else {
        return Err(Error::Syntax);
    }
    Ok(())
}

/// The connections that CLIENT LIST shows.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Listed {
    Those(Filter),
    /// In this order, and as often as they are named: Redis's own form.
    Ids(Vec<i64>),
}

impl Listed {
    fn parse(request: Request, databases: usize, users: &Users) -> Result<Listed> {
        if request.len() == 3 {
            return Err(Error::Syntax);
        }
        if request.len() > 3 && request.is(2, "id") {
            let ids: Option<Vec<i64>> = (3..request.len()).map(|index| request.int(index).ok()).collect();
            match ids {
                Some(ids) => return Ok(Listed::Ids(ids)),
                None if !(3..request.len()).any(|index| filter::is_named(request, index)) => {
                    return Err(Error::text("ERR Invalid client ID"));
                }
                None => {}
            }
        }
        Filter::parse(request, false, databases, users).map(Listed::Those)
    }

    /// Those of one shard.
    fn of_shard(&self, server: &Server, caller: u64) -> Vec<ClientRef> {
        match self {
            Listed::Those(filter) => {
                let mut clients = open_clients(server);
                clients.retain(|client| filter.takes(client, caller));
                clients
            }
            Listed::Ids(ids) => {
                let ids: BTreeSet<i64> = ids.iter().copied().collect();
                ids.into_iter().filter_map(|id| server.client(id as u64)).filter(is_open).collect()
            }
        }
    }
}

async fn list(ctx: TaskCtx) -> Result<Vec<u8>> {
    let listed = Listed::parse(ctx.request.as_request(), ctx.server.shard.config().databases, &ctx.server.users.get())?;
    let (asked, caller, version) = (listed.clone(), ctx.client.id, ctx.server.shard.config().redis_version);
    let of_shard = move |shard: &Rc<Shard>| {
        let clients = asked.of_shard(&Server::of(shard), caller);
        clients.iter().map(|client| (client.id as i64, line(client, version))).collect::<Vec<_>>()
    };
    let lines: BTreeMap<i64, String> = ctx.server.shard.call_all(of_shard).await.into_iter().flatten().collect();
    let text: String = match listed {
        Listed::Ids(ids) => ids.iter().filter_map(|id| lines.get(id)).map(String::as_str).collect(),
        Listed::Those(_) => lines.into_values().collect(),
    };
    Ok(ctx.reply(|reply| reply.verbatim("txt", &text)))
}

/// Without those that are ended already and whose reading task does not know yet, and without who replays a log. The link to
/// a primary is among them while it is up.
fn open_clients(server: &Server) -> Vec<ClientRef> {
    let mut clients = server.clients();
    clients.extend(server.link());
    clients.retain(is_open);
    clients
}

fn is_open(client: &ClientRef) -> bool {
    client.state.borrow().flow.close != Close::Now
}

async fn info(ctx: TaskCtx) -> Result<Vec<u8>> {
    let line = line(&ctx.client, ctx.server.shard.config().redis_version);
    Ok(ctx.reply(|reply| reply.verbatim("txt", &line)))
}

/// `CLIENT KILL address`.
fn is_old_form(request: Request) -> bool {
    request.len() == 3
}

/// The connections that CLIENT KILL ends.
fn killed(request: Request, databases: usize, users: &Users) -> Result<Filter> {
    match is_old_form(request) {
        true => Ok(Filter::of_address(request.arg(2))),
        false => Filter::parse(request, true, databases, users),
    }
}

/// Ends the connections of one shard that are meant, and counts them. The caller's still gets its reply.
fn kill_on(server: &Server, filter: &Filter, caller: u64) -> i64 {
    let mut killed = 0;
    for client in open_clients(server) {
        if !filter.takes(&client, caller) {
            continue;
        }
        if client.state.borrow().session.is_primary {
            if !server.global.following.break_link() {
                continue;
            }
        } else if client.id == caller {
            client.state.borrow_mut().session.close = Close::AfterReplies;
        } else {
            close_now(server, &client);
        }
        killed += 1;
    }
    killed
}

async fn kill(ctx: TaskCtx) -> Result<Vec<u8>> {
    let request = ctx.request.as_request();
    let filter = killed(request, ctx.server.shard.config().databases, &ctx.server.users.get())?;
    let caller = ctx.client.id;
    let of_shard = move |shard: &Rc<Shard>| kill_on(&Server::of(shard), &filter, caller);
    let killed = ctx.server.shard.call_all(of_shard).await.iter().sum::<i64>();
    if is_old_form(request) && killed == 0 {
        return Err(Error::text("ERR No such client"));
    }
    Ok(ctx.reply(|reply| if is_old_form(request) { reply.ok() } else { reply.int(killed) }))
}

async fn unblock(ctx: TaskCtx) -> Result<Vec<u8>> {
    let request = ctx.request.as_request();
    let end = match request.len() {
        3 => End::Timeout,
        4 if request.is(3, "timeout") => End::Timeout,
        4 if request.is(3, "error") => End::Error,
        4 => return Err(Error::text("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
        _ => return Err(Error::bad_subcommand("CLIENT", request.arg(1))),
    };
    let id = parse_i64(request.arg(2)).ok_or(Error::NotAnInteger)?;
    let id = u64::try_from(id).unwrap_or(0);
    let mut unblocked = false;
    for target in 0..ctx.server.shard.count {
        let of_shard = move |shard: Rc<Shard>| async move { wait::unblock(&Server::of(&shard), id, end).await };
        unblocked |= ctx.server.shard.call_later(target, of_shard).await;
    }
    Ok(ctx.reply(|reply| reply.int(unblocked.into())))
}

async fn pause(ctx: TaskCtx) -> Result<Vec<u8>> {
    let (timeout_ms, all) = parse_pause(ctx.request.as_request())?;
    let global = &ctx.server.global;
    let now_us = store_us();
    let until_us = match timeout_ms {
        0 => 0,
        ms => pause_end_us(now_us, ms).ok_or(Error::text("ERR timeout is out of range"))?,
    };
    global.pauses.by_client(until_us, all, now_us);
    ctx.server.shard.call_all(pauses::follow).await;
    Ok(ctx.reply(|reply| reply.ok()))
}

/// For how long, and whether commands that read wait, too.
fn parse_pause(request: Request) -> Result<(u64, bool)> {
    if request.len() > 4 {
        return Err(Error::bad_subcommand("CLIENT", request.arg(1)));
    }
    let all = request.len() == 3 || request.is(3, "all");
    if !all && !request.is(3, "write") {
        return Err(Error::text("ERR CLIENT PAUSE mode must be WRITE or ALL"));
    }
    let timeout_ms = request.int(2).map_err(|_| Error::text("ERR timeout is not an integer or out of range"))?;
    let timeout_ms = u64::try_from(timeout_ms).map_err(|_| Error::text("ERR timeout is negative"))?;
    Ok((timeout_ms, all))
}

/// None where there is no such time. (Redis 7.0 accepts that and does not pause; later ones refuse it.)
fn pause_end_us(now_us: u64, timeout_ms: u64) -> Option<u64> {
    let end_us = now_us.checked_add(timeout_ms.checked_mul(1000)?)?;
    i64::try_from(end_us).is_ok().then_some(end_us)
}

async fn unpause(ctx: TaskCtx) -> Result<Vec<u8>> {
    ctx.server.global.pauses.end_by_client();
    ctx.server.shard.call_all(pauses::follow).await;
    Ok(ctx.reply(|reply| reply.ok()))
}

#[cfg(test)]
mod tests {
    use super::filter::one_user;
    use super::*;
    use crate::command::OwnedRequest;

    fn with<R>(request: &str, work: impl FnOnce(Request) -> R) -> R {
        work(OwnedRequest::from_args(request.split(' ').map(str::as_bytes)).as_request())
    }

    #[test]
    fn the_selection_of_list() {
        let parse = |line: &str| with(line, |request| Listed::parse(request, 16, &one_user()));
        let filter =
            |line: &str| with(line, |request| Filter::parse(request, false, 16, &one_user())).map(Listed::Those);
        assert_eq!(parse("CLIENT LIST"), Ok(Listed::Those(Filter::default())));
        assert_eq!(parse("CLIENT LIST ID 3 1 3"), Ok(Listed::Ids(vec![3, 1, 3])));
        for line in ["CLIENT LIST TYPE PubSub", "CLIENT LIST TYPE normal ID 1", "CLIENT LIST ID 1 2 NOT-DB 3"] {
            assert!(filter(line).is_ok(), "{line}");
            assert_eq!(parse(line), filter(line), "{line}");
        }
        for line in ["CLIENT LIST TYPE", "CLIENT LIST ID", "CLIENT LIST SKIPME", "CLIENT LIST a b"] {
            assert_eq!(parse(line), Err(Error::Syntax), "{line}");
        }
        assert_eq!(parse("CLIENT LIST ID 1 x"), Err(Error::text("ERR Invalid client ID")));
    }

    #[test]
    fn the_arguments_of_pause() {
        assert_eq!(with("CLIENT PAUSE 10", parse_pause), Ok((10, true)));
        assert_eq!(with("CLIENT PAUSE 0 ALL", parse_pause), Ok((0, true)));
        assert_eq!(with("CLIENT PAUSE 10 write", parse_pause), Ok((10, false)));
        assert!(with("CLIENT PAUSE 10 WRITE x", parse_pause).is_err());
        assert_eq!(pause_end_us(5, 10), Some(10_005));
        assert_eq!(pause_end_us(5, i64::MAX as u64), None);
    }
}
