//! One request: whether it may run, whether it is queued, and which way it runs.

use super::http;
use super::in_the_way::{self, Way};
use super::received::RoutedKey;
use super::replayed;
use super::rights;
use super::split;
use super::turn::{Progress, Turn};
use super::{atomic, callee, coordinate, exec, guard, guess, here, scatter, script, single, stepping, task, wait};
use crate::command;
use crate::command::governed::{self, refuses_pairs};
use crate::command::spec::flag::NO_AUTH;
use crate::resp::{Error, Request, Result, printable};
use crate::server::admit::{Admission, Flags};
use crate::server::client::Source;
use crate::server::client::multi::Verb;
use crate::server::state::{Command, Found, Run};
use crate::server::told::monitor;
use crate::shard::At;

/// Takes a request, if nothing is in its way.
#[inline]
pub fn request(turn: &mut Turn, request: Request, found: &Found, key: Option<RoutedKey>) -> Progress {
    let command = match known(request, found) {
        Ok(command) => command,
        Err(_) if matches!(found, Found::Unknown) && http::is_spoken(request) && !turn.client.replays() => {
            return http::refuse(turn);
        }
        Err(error) => return refuse(turn, request, found, error),
    };
    if !turn.session.gate.admits(command.spec.flags)
        && !turn.is_allowed(command, request)
        && let Some(progress) = do_not_admit(turn, command, request, found)
    {
        return progress;
    }
    if turn.session.multi.is_some() && !exec::is_done_at_once(command) {
        return queue(turn, command, request);
    }
    // (One that is queued answers this when it runs.)
    if !command.spec.keys.are_complete(request) {
        return refuse(turn, request, found, Error::WrongArity(command.full_name.to_owned()));
    }
    let before = std::mem::replace(&mut turn.session.last_command, command.full_name);
    let progress = start(turn, command, request, key);
    if progress == Progress::Taken {
        count(turn);
        if turn.session.has_caching {
            end_caching(turn, command.full_name);
        }
        if turn.session.gate.shows {
            monitor::show(turn.server, turn.session, turn.session.db, command, request);
        }
    } else {
        turn.session.last_command = before;
    }
    progress
}

#[inline]
fn start(turn: &mut Turn, command: &Command, request: Request, key: Option<RoutedKey>) -> Progress {
    let at = turn.at(command, request);
    match command.run {
        Run::Data(command::Run::Key(handler)) => {
            let RoutedKey { hash, target } =
                key.unwrap_or_else(|| RoutedKey::of(&turn.server.shard.hasher, command, request));
            single::run(turn, handler, target, At { hash, ..at }, request)
        }
        Run::Data(command::Run::Cursor(handler, _)) if turn.server.shard.count == 1 => {
            single::run(turn, handler, turn.server.shard.id, at, request)
        }
        Run::Data(command::Run::Container) | Run::Container => here::help(turn, command),
        Run::Data(run) => start_several(turn, run, at, request),
        Run::Multi(Verb::Guard) => guard::run(turn, command.id, request),
        Run::Multi(verb) => exec::run(turn, verb, command.id),
        Run::Script(calls) => script::run(turn, calls, command, request, None),
        Run::Session(_) if turn.client.replays() && command.full_name == "select" => {
            replayed::select(turn, command, request)
        }
        // All others are barriers: everything before them is answered first.
        _ if !turn.replies.is_idle() => Progress::NotYet,
        Run::Session(_)
            if command.spec.has(NO_AUTH)
                && let Some(progress) = guess::hold(turn, command, request) =>
        {
            progress
        }
        Run::Session(handler) => here::run(turn, handler, command, request),
        Run::Task(task) => task::run(turn, task, command.id, request),
    }
}

/// A command with several keys, or for every shard.
#[inline(never)]
fn start_several(turn: &mut Turn, run: command::Run, at: At, request: Request) -> Progress {
    let shard = &turn.server.shard;
    let routes = || split::routes(&shard.hasher, shard.spec(at.command).keys, request);
    match run {
        command::Run::Spread(..) if refuses_pairs(&shard.keyspace.borrow(), shard.spec(at.command), request) => {
            single::run(turn, governed::refuse, shard.id, at, request)
        }
        command::Run::Spread(handler, merge) => {
            let routes = routes();
            let at = At { hash: split::first_hash(&routes), ..at };
            scatter::spread(turn, (handler, merge), at, request, &routes)
        }
        command::Run::Everywhere(handler, merge) => {
            let routes = routes();
            scatter::everywhere(turn, (handler, merge), at, request, &routes)
        }
        command::Run::Atomic(handler, across) => atomic::run(turn, (handler, across), at, request),
        command::Run::Coordinated(across) | command::Run::Cursor(_, across) => {
            let routes = routes();
            let at = At { hash: split::first_hash(&routes), ..at };
            coordinate::run(turn, across, at, request, routes)
        }
        command::Run::Blocking(blocking) => wait::run(turn, blocking, at, request),
        command::Run::Key(_) | command::Run::Container => unreachable!("taken care of by `start`"),
    }
}

/// Puts a request behind MULTI.
#[inline(never)]
fn queue(turn: &mut Turn, command: &Command, request: Request) -> Progress {
    exec::queue(turn, command, request);
    let muted = turn.take_muted();
    turn.reply(muted, |reply| reply.simple("QUEUED"));
    count(turn);
    Progress::Taken
}

/// CLIENT CACHING was about this command, unless it is one more CLIENT, or a transaction goes on.
#[cold]
fn end_caching(turn: &mut Turn, name: &str) {
    if turn.session.multi.is_none() && !name.starts_with("client") {
        turn.session.set_caching(false, turn.server.shard.id);
    }
}

fn count(turn: &mut Turn) {
    turn.session.commands += 1;
    let commands = &turn.server.stats.commands;
    commands.set(commands.get() + 1);
}

/// Nothing where it may run all the same.
#[cold]
fn do_not_admit(turn: &mut Turn, command: &Command, request: Request, found: &Found) -> Option<Progress> {
    if stepping::must_wait(turn, command, request) {
        return Some(Progress::NotYet);
    }
    let flags = Flags::of(callee::flags_of(turn.server, command, request));
    let mut conditions = turn.conditions;
    loop {
        match turn.admit(command, Some(request), flags, conditions) {
            Admission::Runs => return refuse_patterns(turn, command, request),
            Admission::Refused(error) => {
                // (The log of what users were refused shows the connection with it.)
                turn.session.last_command = command.full_name;
                return Some(refuse(turn, request, found, error));
            }
            Admission::WithRoom => return Some(turn.wait_for_room()),
            Admission::Crowded => return Some(turn.wait_for_log()),
            Admission::UnlessBusy => match in_the_way::of(turn, command, request) {
                Some(Way::Refused(text)) => return Some(refuse(turn, request, found, Error::text(text))),
                Some(Way::Held) => return Some(Progress::NotYet),
                None => conditions.busy = false,
            },
            Admission::Paused => {
                turn.session.last_command = command.full_name;
                return Some(turn.pause());
            }
        }
    }
}

/// A command that may run names keys that its user may not read.
fn refuse_patterns(turn: &mut Turn, command: &Command, request: Request) -> Option<Progress> {
    let user = rights::restricted(turn.session).filter(|_| turn.session.multi.is_none())?;
    let error = rights::check_patterns(turn.server, user, command, request).err()?;
    turn.session.last_command = command.full_name;
    count(turn);
    Some(turn.fail(command.id, error))
}

/// Answers a request that cannot run. In a transaction, none of it will.
#[cold]
fn refuse(turn: &mut Turn, request: Request, found: &Found, mut error: Error) -> Progress {
    if turn.client.source == Source::Primary {
        replayed::note_refused(turn, request, &error);
        return Progress::Taken;
    }
    if turn.client.replays() {
        replayed::refuse_command(turn, request, found, &error);
        return Progress::Taken;
    }
    let command = match found {
        Found::Command(command) => Some(command.id),
        Found::Unknown | Found::UnknownSubcommand(_) => None,
    };
    turn.server.shard.meter.rejected(command, &error.to_bytes());
    if let Some(multi) = &mut turn.session.multi {
        multi.broken = true;
    }
    if matches!(found, Found::Command(command) if callee::is_exec(turn.server, command, request)) {
        error = exec::abort(turn, &error);
    }
    // (A script that was shown, was undone, and is refused now: the next one is shown.)
    turn.session.shown = None;
    let muted = turn.take_muted();
    turn.reply(muted, |reply| reply.error(error));
    end_caching(
        turn,
        match found {
            Found::Command(command) | Found::UnknownSubcommand(command) => command.full_name,
            Found::Unknown => "",
        },
    );
    Progress::Taken
}

/// What a request asks for, if there is such a thing and it has as many arguments as it needs.
fn known<'t>(request: Request, found: &Found<'t>) -> Result<&'t Command> {
    let command = match *found {
        Found::Command(command) => command,
        Found::Unknown => return Err(unknown_command(request)),
        Found::UnknownSubcommand(container) => {
            let word = if request.len() > 2 && container.has_second_words(request.arg(1)) { 2 } else { 1 };
            return Err(Error::quoting(&[
                b"ERR unknown subcommand '",
                printable(request.arg(word), 128),
                b"'. Try ",
                container.spec.name.to_uppercase().as_bytes(),
                b" HELP.",
            ]));
        }
    };
    if !command.spec.accepts(request.len()) {
        return Err(Error::WrongArity(command.full_name.to_owned()));
    }
    Ok(command)
}

fn unknown_command(request: Request) -> Error {
    let mut args = Vec::new();
    for arg in request.from(1) {
        if args.len() >= 128 {
            break;
        }
        let shown = printable(arg, 128 - args.len());
        args.extend([b"'", shown, b"' "].into_iter().flatten());
    }
    let name = printable(request.arg(0), 128);
    Error::quoting(&[b"ERR unknown command '", name, b"', with args beginning with: ", &args])
}
