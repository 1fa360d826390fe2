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
use std::collections::{BTreeSet, HashMap};

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
            let request = multi.request(*queued);
            let planned = Planned::of(server, *queued, request, db);
            match planned.run {
                Run::Data(command::Run::Everywhere(..)) => {
                    (0..shard.count).for_each(|target| targets.add(target));
                }
                Run::Data(command::Run::Container) | Run::Session(_) | Run::Container => {
                    plan.has_session_commands = true;
                }
                Run::Data(_) if !planned.command.spec.keys.are_complete(request) => {}
                Run::Data(run) => {
                    needs_steps |= match run {
                        command::Run::Atomic(..) => are_apart(&planned.routes),
                        command::Run::Coordinated(_) => true,
                        _ => false,
                    };
                }
                Run::Task(_) | Run::Multi(_) | Run::Script(_) => needs_steps = true,
            }
            planned.routes.iter().for_each(|(_, target)| targets.add(*target));
            db = selects(planned.command, request, server).unwrap_or(db);
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
}

impl<'t> Planned<'t> {
    /// Where a queued command goes, with the database that SELECTs before it have chosen.
    pub fn of(server: &'t Server, queued: Queued, request: Request, db: usize) -> Planned<'t> {
        let (shard, command) = (&server.shard, server.table.get(queued.command));
        let run = run_of(server, command, request);
        let names_others =
            matches!(run, Run::Data(command::Run::Coordinated(_))) && command.spec.keys.name_others(request);
        let routes = match run {
            Run::Data(command::Run::Cursor(..)) => {
                [(0, walk::cursor_shard(request, shard.count))].into_iter().collect()
            }
            Run::Data(command::Run::Everywhere(..) | command::Run::Container) => FewRoutes::new(),
            Run::Data(_) if !names_others && command.spec.keys.are_complete(request) => {
                few_routes(&shard.hasher, command.spec.keys, request)
            }
            _ => FewRoutes::new(),
        };
        Planned { command, run, queued, db, routes }
    }
}

/// The locks that a coordinator needs for its commands, gathered from one command after the other.
#[derive(Default)]
pub struct Needed {
    /// By shard and hash, and whether it is written.
    locks: HashMap<(usize, u64), bool, ahash::RandomState>,
    /// There were too many: the shards that are locked as a whole.
    whole: Option<Vec<usize>>,
}

/// A transaction with more keys locks the shards of its keys as a whole, which takes no time and no memory for each key.
pub const KEYS_LOCKED_MAX: usize = 16_384;

impl Needed {
    pub fn add(&mut self, target: usize, lock: Lock) {
        match &mut self.whole {
            Some(whole) if whole.contains(&target) => {}
            Some(whole) => whole.push(target),
            None => {
                *self.locks.entry((target, lock.hash)).or_default() |= lock.write;
                if self.locks.len() > KEYS_LOCKED_MAX {
                    let targets: BTreeSet<usize> = self.locks.keys().map(|(target, _)| *target).collect();
                    self.whole = Some(targets.into_iter().collect());
                    self.locks = HashMap::default();
                }
            }
        }
    }

    pub fn add_those_of(&mut self, planned: &Planned, shards: usize) {
        let write = planned.command.spec.has(WRITE);
        let everything = match planned.run {
            Run::Data(command::Run::Everywhere(..)) => true,
            // What a script touches is not known before it has run.
            Run::Script(_) => true,
            Run::Data(command::Run::Coordinated(_)) => planned.routes.is_empty(),
            _ => false,
        };
        if everything {
            (0..shards).for_each(|target| self.add(target, Lock { hash: EVERYTHING, write: true }));
        } else if !matches!(planned.run, Run::Data(command::Run::Cursor(..))) {
            planned.routes.iter().for_each(|&(hash, target)| self.add(target, Lock { hash, write }));
        } else {
            // It has to take part; what it shows is not locked.
            let read = Lock { hash: EVERYTHING, write: false };
            planned.routes.iter().for_each(|&(_, target)| self.add(target, read));
        }
    }

    pub fn locks(self) -> Vec<(usize, Lock)> {
        match self.whole {
            Some(whole) => whole.into_iter().map(|target| (target, Lock { hash: EVERYTHING, write: true })).collect(),
            None => {
                let lock = |((target, hash), write)| (target, Lock { hash, write });
                self.locks.into_iter().map(lock).collect()
            }
        }
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
