//! COMMAND, TIME, SHUTDOWN.

use crate::command::OwnedRequest;
use crate::command::describe::{self, AskedAbout};
use crate::command::spec::flag::{ADMIN, ALLOW_BUSY, FAST, LOADING, NO_MULTI, NO_SCRIPT, STALE};
use crate::command::spec::{Group, Keys, Row, Spec, tip};
use crate::config::ShutdownFlags;
use crate::resp::{Error, Request, Result};
use crate::server::client::multi::Verb;
use crate::server::replication::waiting::{go_on, let_catch_up};
use crate::server::run::callee::guarded;
use crate::server::state::{Command, Found, Run, SessionCtx, TaskCtx};
use crate::server::stop;

const ANSWERS_ALWAYS: u32 = LOADING | STALE;

pub const ROWS: &[Row<Run>] = &[
    Row::container(
        Spec {
            summary: "Tells about all commands.",
            ..command_spec("command", -1, "O(n) in the number of commands", "2.8.13", "")
        },
        Run::Session(command),
        COMMAND_ROWS,
    )
    .tips(&[tip::NONDETERMINISTIC_OUTPUT_ORDER]),
    Row::new(
        Spec {
            name: "time",
            arity: 1,
            flags: LOADING | STALE | FAST,
            keys: Keys::NONE,
            group: Group::Server,
            since: "2.6.0",
            complexity: "O(1)",
            summary: "Returns the wall clock: seconds since 1970, and microseconds.",
            syntax: "",
        },
        Run::Session(time),
    )
    .tips(&[tip::NONDETERMINISTIC_OUTPUT]),
    Row::new(
        Spec {
            name: "shutdown",
            arity: -1,
            flags: ADMIN | NO_SCRIPT | LOADING | STALE | NO_MULTI | ALLOW_BUSY,
            keys: Keys::NONE,
            group: Group::Server,
            since: "1.0.0",
            complexity: "O(n) in the number of connections",
            summary: "Ends the server when replies on their way are delivered.",
            syntax: "[save:(NOSAVE|SAVE)] [NOW] [FORCE] [ABORT]",
        },
        Run::Task(|ctx| Box::pin(shutdown(ctx))),
    ),
];

const COMMAND_ROWS: &[Row<Run>] = &[
    Row::new(
        Spec { summary: "Counts the commands.", ..command_spec("count", 2, "O(1)", "2.8.13", "") },
        Run::Session(|ctx, _| {
            ctx.reply.int(ctx.server.table.commands().len() as i64);
            Ok(())
        }),
    ),
    Row::new(
        Spec {
            summary: "Lists the names of commands and subcommands.",
            ..command_spec(
                "list",
                -2,
                "O(n) in the number of commands",
                "7.0.0",
                "[FILTERBY filterby:(MODULE module-name:string|ACLCAT category:string|PATTERN pattern:pattern)]",
            )
        },
        Run::Session(list),
    )
    .tips(&[tip::NONDETERMINISTIC_OUTPUT_ORDER]),
    Row::new(
        Spec {
            summary: "Tells about commands, or about all: arity, flags, keys.",
            ..command_spec("info", -2, "O(n) in the number of names", "2.8.13", "[command-name]...")
        },
        Run::Session(info),
    )
    .tips(&[tip::NONDETERMINISTIC_OUTPUT_ORDER]),
    Row::new(
        Spec {
            summary: "Documents commands, or all.",
            ..command_spec("docs", -2, "O(n) in the number of names", "7.0.0", "[command-name]...")
        },
        Run::Session(docs),
    )
    .tips(&[tip::NONDETERMINISTIC_OUTPUT_ORDER]),
    Row::new(
        Spec {
            summary: "Returns the keys of a command.",
            ..command_spec("getkeys", -4, "O(n) in the number of arguments", "2.8.13", "command arg...")
        },
        Run::Session(get_keys),
    ),
    Row::new(
        Spec {
            summary: "Returns the keys of a command, and what it does with them.",
            ..command_spec("getkeysandflags", -4, "O(n) in the number of arguments", "7.0.0", "command arg...")
        },
        Run::Session(get_keys_and_flags),
    ),
];

const fn command_spec(
    name: &'static str,
    arity: i32,
    complexity: &'static str,
    since: &'static str,
    syntax: &'static str,
) -> Spec {
    Spec {
        name,
        arity,
        flags: ANSWERS_ALWAYS,
        keys: Keys::NONE,
        group: Group::Server,
        since,
        complexity,
        summary: "",
        syntax,
    }
}

/// COMMAND alone, and COMMAND HELP.
fn command(ctx: &mut SessionCtx, request: Request) -> Result {
    match request.len() {
        1 => write_all_info(ctx),
        _ => {
            if let Some((command, _)) = ctx.server.table.by_full_name(b"command") {
                describe::help(&mut ctx.reply, &command.row);
            }
        }
    }
    Ok(())
}

fn write_all_info(ctx: &mut SessionCtx) {
    let commands = ctx.server.table.commands();
    ctx.reply.array(commands.len());
    commands.for_each(|command| describe::info(&mut ctx.reply, &command.row, None));
}

fn list(ctx: &mut SessionCtx, request: Request) -> Result {
    let filter = describe::Filter::parse(request)?;
    let rows = ctx.server.table.commands().map(|command| &command.row);
    describe::list(&mut ctx.reply, rows, filter);
    Ok(())
}

fn info(ctx: &mut SessionCtx, request: Request) -> Result {
    if request.len() == 2 {
        write_all_info(ctx);
        return Ok(());
    }
    ctx.reply.array(request.len() - 2);
    for name in request.from(2) {
        match ctx.server.table.by_full_name(name) {
            Some((command, container)) => describe::info(&mut ctx.reply, &command.row, container),
            None => ctx.reply.nil(),
        }
    }
    Ok(())
}

/// Unknown names are left out.
fn docs(ctx: &mut SessionCtx, request: Request) -> Result {
    let table = &ctx.server.table;
    let named: Vec<(&Command, Option<&str>)> = if request.len() == 2 {
        table.commands().map(|command| (command, None)).collect()
    } else {
        request.from(2).filter_map(|name| table.by_full_name(name)).collect()
    };
    ctx.reply.map(named.len());
    named.iter().for_each(|(command, container)| describe::docs(&mut ctx.reply, &command.row, *container));
    Ok(())
}

fn get_keys(ctx: &mut SessionCtx, request: Request) -> Result {
    let asked = OwnedRequest::from_args(request.from(2));
    let (command, guarded) = asked_about(ctx, &asked)?;
    describe::keys(&mut ctx.reply, &command, guarded.as_ref())
}

fn get_keys_and_flags(ctx: &mut SessionCtx, request: Request) -> Result {
    let asked = OwnedRequest::from_args(request.from(2));
    let (command, guarded) = asked_about(ctx, &asked)?;
    describe::keys_and_flags(&mut ctx.reply, &command, guarded.as_ref())
}

/// The command that is asked about, and what it guards.
fn asked_about<'a>(ctx: &SessionCtx<'a>, asked: &'a OwnedRequest) -> Result<(About<'a>, Option<About<'a>>)> {
    let request = asked.as_request();
    let Found::Command(command) = ctx.server.table.find(request) else { return Err(describe::NO_SUCH_COMMAND) };
    let guarded = match command.run {
        Run::Multi(Verb::Guard) => guarded(ctx.server, request).ok(),
        _ => None,
    };
    Ok((about(command, request), guarded.map(|(command, request)| about(command, request))))
}

type About<'a> = AskedAbout<'a, Run>;

fn about<'a>(command: &'a Command, request: Request<'a>) -> About<'a> {
    let container = command.full_name.split_once('|').map(|(container, _)| container);
    AskedAbout { row: &command.row, container, request }
}

fn time(ctx: &mut SessionCtx, _: Request) -> Result {
    let now_us = ctx.server.shard.clock.to_wall_us(ctx.now.us);
    ctx.reply.array(2);
    ctx.reply.bulk_int(now_us.div_euclid(1_000_000));
    ctx.reply.bulk_int(now_us.rem_euclid(1_000_000));
    Ok(())
}

/// What SHUTDOWN is asked for; none where it is to give up one that has begun.
fn parse_shutdown(request: Request) -> Result<Option<ShutdownFlags>> {
    let (mut flags, mut aborts) = (ShutdownFlags::default(), false);
    for index in 1..request.len() {
        if request.is(index, "abort") {
            aborts = true;
            continue;
        }
        let word = std::str::from_utf8(request.arg(index)).map_err(|_| Error::Syntax)?;
        *flags.named(word).ok_or(Error::Syntax)? = true;
    }
    if aborts && flags != ShutdownFlags::default() || flags.save && flags.no_save {
        return Err(Error::Syntax);
    }
    Ok((!aborts).then_some(flags))
}

async fn shutdown(ctx: TaskCtx) -> Result<Vec<u8>> {
    let Some(flags) = parse_shutdown(ctx.request.as_request())? else {
        return match ctx.server.global.replication.ends.abort() {
            true => Ok(ctx.reply(|reply| reply.ok())),
            false => Err(Error::text("ERR No shutdown in progress.")),
        };
    };
    if !flags.now {
        let_catch_up(&ctx.server).await?;
    }
    let saved = stop::save_before(&ctx.server, flags).await;
    if saved.is_err() {
        go_on(&ctx.server).await;
        return Err(Error::text("ERR Errors trying to SHUTDOWN. Check logs."));
    }
    stop::shutdown(&ctx.server).await;
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shutdown_options() {
        let parsed = |line: &str| {
            let request = OwnedRequest::from_args(line.split(' ').map(str::as_bytes));
            parse_shutdown(request.as_request())
        };
        let none = ShutdownFlags::default;
        assert_eq!(parsed("shutdown"), Ok(Some(none())));
        assert_eq!(parsed("shutdown NOSAVE now"), Ok(Some(ShutdownFlags { no_save: true, now: true, ..none() })));
        assert_eq!(parsed("shutdown Force save"), Ok(Some(ShutdownFlags { force: true, save: true, ..none() })));
        assert_eq!(parsed("shutdown ABORT abort"), Ok(None));
        for wrong in
            ["shutdown foo", "shutdown default", "shutdown save nosave", "shutdown nosave abort", "shutdown now ABORT"]
        {
            assert_eq!(parsed(wrong), Err(Error::Syntax), "{wrong}");
        }
    }
}
