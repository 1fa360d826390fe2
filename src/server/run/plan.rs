//! Where the commands of a transaction go, before any of them has run.

use super::lease::Lease;
use super::split::{self, FewRoutes, Parts, Route, common_target, few_routes};
use crate::command::governed::{self, refuses_pairs};
use crate::command::spec::Keys;
use crate::command::spec::flag::WRITE;
use crate::command::{self, Ctx, walk};
use crate::resp::{Error, Request, Result};
use crate::server::client::multi::{Multi, Queued};
use crate::server::client::replies::Gather;
use crate::server::client::session::Session;
use crate::server::state::{Command, Run, Server};
use crate::shard::{At, EVERYTHING, Lock};
use crate::value::number::parse_i64;

/// How a queued command runs: one that waits does not; one whose last key lacks its value answers an error then.
pub fn run_of(server: &Server, command: &Command, request: Request) -> Run {
    let is_complete = command.spec.keys.are_complete(request);
    match command.run {
        _ if !is_complete => Run::Data(command::Run::Key(wrong_arity)),
        Run::Data(command::Run::Spread(..))
            if refuses_pairs(&server.shard.keyspace.borrow(), &command.spec, request) =>
        {
            Run::Data(command::Run::Key(governed::refuse))
        }
        // Nobody waits within a transaction.
        Run::Data(command::Run::Blocking(blocking)) => {
            Run::Data(command::Run::Atomic(blocking.once.0, blocking.once.1))
        }
        // A coordinator without keys of its own locks everything.
        Run::Data(command::Run::Atomic(_, across)) if command.spec.keys.name_others(request) => {
            Run::Data(command::Run::Coordinated(across))
        }
        run => run,
    }
}

fn wrong_arity(_: &mut Ctx, request: Request) -> Result {
    // It is a command of the table.
    Err(Error::WrongArity(String::from_utf8_lossy(request.arg(0)).to_lowercase()))
}

/// How the commands of a transaction are brought together.
pub enum Way {
    OneShard(usize),
    Parts,
    Steps,
}

pub struct Plan<'t> {
    pub way: Way,
    pub commands: Vec<Planned<'t>>,
    pub has_session_commands: bool,
}

pub struct Planned<'t> {
    pub command: &'t Command,
    pub run: Run,
    pub queued: Queued,
    /// SELECT may stand before it.
    pub db: usize,
    pub routes: FewRoutes,
}

impl<'t> Plan<'t> {
    pub fn of(server: &'t Server, multi: &Multi, session: &Session, lease: Option<&Lease>) -> Plan<'t> {
        let shard = &server.shard;
        let commands = Vec::with_capacity(multi.commands().len());
        let mut plan = Plan { way: Way::Parts, commands, has_session_commands: false };
        let mut db = session.db;
        let mut needs_steps = false;
        // The shards of all keys; where there are none anything can run here.
        let mut targets = Targets::default();
        session.watched.iter().for_each(|watched| targets.add(watched.shard));
        lease.iter().for_each(|lease| targets.add(lease.shard));
        for queued in multi.commands() {
            let command = server.table.get(queued.command);
            let request = multi.request(*queued);
            let run = run_of(server, command, request);
            let mut planned = Planned { command, run, queued: *queued, db, routes: FewRoutes::new() };
            match run {
                Run::Data(command::Run::Cursor(..)) => {
                    planned.routes = [(0, walk::cursor_shard(request, shard.count))].into_iter().collect();
                }
                Run::Data(command::Run::Everywhere(..)) => {
                    (0..shard.count).for_each(|target| targets.add(target));
                }
                Run::Data(command::Run::Container) => plan.has_session_commands = true,
                Run::Data(command::Run::Coordinated(_)) if command.spec.keys.name_others(request) => needs_steps = true,
                Run::Data(_) if !command.spec.keys.are_complete(request) => {}
                Run::Data(run) => {
                    planned.routes = few_routes(&shard.hasher, command.spec.keys, request);
                    needs_steps |= match run {
                        command::Run::Atomic(..) => are_apart(&planned.routes),
                        command::Run::Coordinated(_) => true,
                        _ => false,
                    };
                }
                Run::Task(_) | Run::Multi(_) | Run::Script(_) => needs_steps = true,
                Run::Session(_) | Run::Container => plan.has_session_commands = true,
            }
            planned.routes.iter().for_each(|(_, target)| targets.add(*target));
            db = selects(command, request, server).unwrap_or(db);
            plan.commands.push(planned);
        }
        plan.way = match (needs_steps, targets) {
            (true, _) => Way::Steps,
            (false, Targets::None) => Way::OneShard(shard.id),
            (false, Targets::One(target)) => Way::OneShard(target),
            (false, Targets::Several) if session.watched.is_empty() && lease.is_none() => Way::Parts,
            (false, Targets::Several) => Way::Steps,
        };
        plan
    }

    /// The locks that a coordinator needs for its commands.
    pub fn locks(&self, shards: usize) -> Vec<(usize, Lock)> {
        let mut locks: Vec<(usize, Lock)> = Vec::new();
        for planned in &self.commands {
            let write = planned.command.spec.has(WRITE);
            let everything = match planned.run {
                Run::Data(command::Run::Everywhere(..)) => true,
                // What a script touches is not known before it has run.
                Run::Script(_) => true,
                Run::Data(command::Run::Coordinated(_)) => planned.routes.is_empty(),
                _ => false,
            };
            if everything {
                locks.extend((0..shards).map(|target| (target, Lock { hash: EVERYTHING, write: true })));
            } else if !matches!(planned.run, Run::Data(command::Run::Cursor(..))) {
                locks.extend(planned.routes.iter().map(|&(hash, target)| (target, Lock { hash, write })));
            } else {
                // It has to take part; what it shows is not locked.
                locks.extend(
                    planned.routes.iter().map(|&(_, target)| (target, Lock { hash: EVERYTHING, write: false })),
                );
            }
        }
        locks
    }
}

/// The database that a command chooses, if it is SELECT and does.
pub fn selects(command: &Command, request: Request, server: &Server) -> Option<usize> {
    if command.full_name != "select" {
        return None;
    }
    let index = parse_i64(request.arg(1))?;
    usize::try_from(index).ok().filter(|db| *db < server.shard.config().databases)
}

/// Whether keys live on several shards.
pub fn are_apart(routes: &[Route]) -> bool {
    !routes.is_empty() && common_target(routes).is_none()
}

/// Which shards something needs.
#[derive(Default)]
enum Targets {
    #[default]
    None,
    One(usize),
    Several,
}

impl Targets {
    fn add(&mut self, target: usize) {
        *self = match *self {
            Targets::None => Targets::One(target),
            Targets::One(one) if one == target => Targets::One(one),
            _ => Targets::Several,
        }
    }
}

/// Writes a command's parts; what gathers their replies comes back.
pub fn split_command(
    run: Run,
    routes: &[Route],
    parts: &mut impl Parts,
    at: At,
    (request, keys): (Request, Keys),
    shards: usize,
) -> Gather {
    let at = At { hash: split::first_hash(routes), ..at };
    // A command that is refused may have keys on several shards, or none: any that takes part answers the error.
    let target = routes.first().map_or(0, |(_, target)| *target);
    match run {
        Run::Data(command::Run::Key(handler) | command::Run::Atomic(handler, _)) => {
            split::together(parts, (handler, None), at, false, request, target, routes)
        }
        Run::Data(command::Run::Cursor(handler, _)) => {
            let everything: FewRoutes = routes.iter().map(|&(_, target)| (EVERYTHING, target)).collect();
            split::together(parts, (handler, None), at, false, request, target, &everything)
        }
        Run::Data(command::Run::Spread(handler, merge)) => {
            split::spread(parts, (handler, merge), at, false, (request, keys), routes)
        }
        Run::Data(command::Run::Everywhere(handler, merge)) => {
            split::everywhere(parts, (handler, merge), at, false, request, shards)
        }
        _ => unreachable!("such commands need a coordinator"),
    }
}
