//! Who runs the commands of a script: at once where it is on this shard and may touch their keys, else it says that
//! somebody has to.

use super::callee::Callee;
use super::here;
use super::in_the_way;
use super::plan;
use super::rights;
use super::scatter::run_whole;
use super::split::{self, Route, Routes};
use crate::acl::User;
use crate::acl::log::Context;
use crate::clock::{Now, store_us};
use crate::command::spec::flag::{DENY_OOM, MAY_REPLICATE};
use crate::command::{self, Saved, gives_lease, other_database};
use crate::config::UndeclaredKeys;
use crate::keyspace::{Key, Kind, Tracker};
use crate::resp::{Error, Proto, Reply, Request, Result};
use crate::script::{Answer, Host};
use crate::server::admit::{Asked, Conditions, Flags, Gate, Standing, admit_in_script};
use crate::server::client::session::Session;
use crate::server::state::conditions::of_the_past;
use crate::server::state::{Command, Found, Run, Server};
use crate::server::told::monitor;
use crate::shard::{At, EVERYTHING, Lock, Shard, Space};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashSet};
use std::rc::Rc;
use std::sync::Arc;

/// Hashes of keys, sorted.
type Hashes = SmallVec<[u64; 8]>;

/// What a script may touch.
#[derive(Clone)]
pub enum Reach {
    /// Everything, on whichever shard.
    All,
    /// The keys it has declared, which are held for it, or which nobody has while it runs.
    Declared(Hashes),
}

pub struct Caller {
    pub server: Rc<Server>,
    gate: Gate,
    standing: Standing,
    conditions: Conditions,
    allows_oom: bool,
    /// It may not touch what it has not declared.
    is_strict: bool,
    no_touch: bool,
    tracker: Option<Tracker>,
    /// Who has called it, where that one may not do everything: the connection, and its user as that was then.
    asker: Option<(u64, Arc<User>)>,
    db: Cell<usize>,
    /// Time stands still for it.
    pub now: Now,
    reach: RefCell<Reach>,
    /// What it writes may have to be undone: keys are taken down before their first change.
    saves: Cell<bool>,
    /// None before there is anything: most scripts are never undone.
    before: RefCell<Option<Box<Before>>>,
    pub has_written: Cell<bool>,
    /// It has said something that others may have heard.
    has_told: Cell<bool>,
    /// It has touched keys that it has not declared.
    pub has_strayed: Cell<bool>,
    /// It has asked for what is out of its reach, and must begin again.
    pub has_left: Cell<bool>,
    /// Its keys, as it has declared them.
    declared: Hashes,
}

/// How things were before a script.
#[derive(Default)]
struct Before {
    saved: Vec<(usize, Saved)>,
    /// The databases and hashes of these keys.
    seen: HashSet<(usize, u64), ahash::RandomState>,
    /// The keys of which GETFRESH has given it the lease, before anything of them was taken down.
    leased: BTreeSet<Leased>,
}

/// A key whose lease a script was given, which others would wait for though nobody computes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Leased {
    pub shard: usize,
    db: usize,
    hash: u64,
}

impl Leased {
    pub fn end(self, shard: &Shard) {
        shard.keyspace.borrow_mut().leases.end(self.db, self.hash);
    }
}

/// Of how many keys it is noted that a script has their lease: no more than a shard has room for.
const LEASES_MAX: usize = 1 << 15;

/// A command that somebody else has to run.
pub struct Planned {
    pub command: command::CommandId,
    pub run: Run,
    pub at: At,
    pub routes: Routes,
}

impl Caller {
    /// For a script that is called at this place, with these keys, and which may say that it runs whatever memory there is.
    /// Before it begins room is made for it.
    pub fn new(
        server: &Rc<Server>,
        at: At,
        routes: &[Route],
        now: Now,
        allows_oom: bool,
        asker: Option<(u64, Arc<User>)>,
    ) -> Caller {
        let is_restricted = asker.is_some();
        let standing = Standing { in_script: true, reads_only: !at.write, is_restricted, ..Standing::default() };
        // (What a log or a primary says has been.)
        let is_past = at.is_told || server.shard.is_replaying();
        let allows_oom = allows_oom || is_past;
        // What it needs others need not give back first.
        let space = if server.shard.space() == Space::None && !allows_oom { Space::None } else { Space::Enough };
        let conditions = if is_past { of_the_past() } else { server.conditions(space) };
        Caller {
            server: server.clone(),
            gate: Gate::of_script(standing, &conditions),
            standing,
            conditions,
            allows_oom,
            is_strict: server.shard.config().script_undeclared_keys == UndeclaredKeys::Deny,
            no_touch: !at.touch.uses(),
            tracker: at.tracker,
            asker,
            db: Cell::new(at.db),
            now,
            reach: RefCell::new(Reach::All),
            saves: Cell::new(false),
            before: RefCell::default(),
            has_written: Cell::new(false),
            has_told: Cell::new(false),
            has_strayed: Cell::new(false),
            has_left: Cell::new(false),
            declared: sorted(routes.iter().map(|(hash, _)| *hash).collect()),
        }
    }

    /// What TIME tells: the script's moment, until the script has lasted for `busy-reply-threshold`. From then on time passes,
    /// as in Redis 8: some scripts wait for that. Deadlines are judged by the moment all the same.
    fn told_now(&self) -> Now {
        let threshold_us = in_the_way::threshold_us(&self.server);
        let present = Now::from_us(store_us());
        if present.us.saturating_sub(self.now.us) > threshold_us { present } else { self.now }
    }

    /// From now on it may touch only what it has declared, and what it writes can be undone, unless it has written already,
    /// or is refused all else.
    pub fn confine(&self) {
        self.reach.replace(Reach::Declared(self.declared.clone()));
        self.saves.set(!self.has_written.get() && !self.is_strict);
    }

    /// It holds everything now, and may touch it.
    pub fn unconfine(&self) {
        self.reach.replace(Reach::All);
    }

    /// Whether what it has written can be undone.
    pub fn can_undo(&self) -> bool {
        self.saves.get()
    }

    /// Whether nobody can tell when it begins again, having been undone. (What it writes under `script-undeclared-keys deny` is
    /// not kept for that.)
    pub fn can_begin_again(&self) -> bool {
        self.saves.get() || self.is_strict && !self.has_written.get() && !self.has_told.get()
    }

    /// What others cannot have while it runs.
    pub fn locks(&self) -> Vec<Lock> {
        match &*self.reach.borrow() {
            Reach::All => vec![Lock { hash: EVERYTHING, write: true }],
            Reach::Declared(hashes) => {
                hashes.iter().map(|&hash| Lock { hash, write: !self.standing.reads_only }).collect()
            }
        }
    }

    /// Lets it touch the keys of a command, too, if `lock` gets them for it.
    pub fn widen(&self, request: Request, lock: impl FnOnce(&[Lock]) -> bool) -> bool {
        let Ok(Planned { command, at, routes, run }) = self.plan(request, Proto::Resp2) else { return false };
        if needs_everything(self.server.table.get(command), run, request, &routes) {
            return false;
        }
        // What it reads now it may write later.
        let write = at.write || !self.standing.reads_only;
        let locks: Vec<Lock> = routes.iter().map(|&(hash, _)| Lock { hash, write }).collect();
        let has_them = lock(&locks);
        if let (true, Reach::Declared(hashes)) = (has_them, &mut *self.reach.borrow_mut()) {
            hashes.extend(routes.iter().map(|(hash, _)| *hash));
            hashes.sort_unstable();
        }
        has_them
    }

    /// What is asked for, if a script may ask for it.
    fn admit(&self, request: Request) -> Result<&Command> {
        let command = match self.server.table.find(request) {
            Found::Command(command) => command,
            _ => return Err(Error::text("ERR Unknown Redis command called from script")),
        };
        if !command.spec.accepts(request.len()) {
            return Err(Error::text("ERR Wrong number of args calling Redis command from script"));
        }
        if !self.gate.admits(command.spec.flags) {
            self.ask(Some((command, request)), command.spec.flags, self.standing)?;
        }
        if command.spec.has(DENY_OOM) && !self.allows_oom && self.server.shard.is_past_bound() {
            return Err(Error::OutOfMemory);
        }
        if let Run::Data(command::Run::Blocking(blocking)) = command.run
            && blocking.kind == Kind::Stream
            && names_block(request)
        {
            let name = String::from_utf8_lossy(request.arg(0));
            return Err(Error::err(format_args!("{name} command is not allowed with BLOCK option from scripts")));
        }
        Ok(command)
    }

    /// Whether the script may begin, by what it has promised.
    pub fn may_begin(&self, callee: &Callee) -> Result {
        let flags = callee.flags_asked();
        if self.gate.admits(flags) {
            return Ok(());
        }
        self.ask(None, flags, Standing { in_script: false, is_restricted: false, ..self.standing })
    }

    fn ask(&self, what: Option<(&Command, Request)>, flags: u32, standing: Standing) -> Result {
        admit_in_script(&Asked {
            full_name: what.map_or("", |(command, _)| command.full_name),
            flags: Flags::of(flags),
            standing,
            conditions: self.conditions(),
            log_trouble: &|| self.server.global.log.failure(),
            denied: &|| {
                let ((client, user), (command, request)) = (self.asker.as_ref()?, what?);
                rights::denied(&self.server, (*client, user), Context::Script, command, request)
            },
        })?;
        match (&self.asker, what) {
            (Some((_, user)), Some((command, request))) => rights::check_patterns(&self.server, user, command, request),
            _ => Ok(()),
        }
    }

    /// What has written already goes on to its end.
    fn conditions(&self) -> Conditions {
        if !self.has_written.get() {
            return self.conditions;
        }
        Conditions { full: false, unsaved: false, unlogged: false, read_only: false, ..self.conditions }
    }

    fn at(&self, command: &Command, request: Request, proto: Proto, routes: &[Route]) -> At {
        At {
            db: self.db.get(),
            proto,
            touch: command.touch(self.no_touch),
            hash: split::first_hash(routes),
            command: command.id,
            write: command.writes,
            is_quick: command.is_quick(request.len()),
            is_told: false,
            is_script: false,
            in_script: true,
            tracker: self.tracker,
        }
    }

    /// Whether a command stays within what the script may touch.
    fn reaches(&self, command: &Command, run: Run, request: Request, routes: &[Route]) -> bool {
        // What was published cannot be undone.
        let is_told = self.saves.get() && command.spec.has(MAY_REPLICATE);
        let within =
            |hashes: &Hashes| !is_told && !needs_everything(command, run, request, routes) && are_among(routes, hashes);
        match &*self.reach.borrow() {
            Reach::All => {
                // Who has published cannot begin again.
                let publishes = command.spec.has(MAY_REPLICATE) && matches!(run, Run::Task(_));
                if !self.has_strayed.get() && (publishes || !within(&self.declared)) {
                    self.has_strayed.set(true);
                }
                true
            }
            Reach::Declared(hashes) => within(hashes),
        }
    }

    /// Whether a command is about nothing but keys that the script has declared.
    fn has_declared(&self, command: &Command, run: Run, request: Request, routes: &[Route]) -> bool {
        !needs_everything(command, run, request, routes) && are_among(routes, &self.declared)
    }

    /// None for what answers only that its last key lacks a value: it goes to no shard.
    fn routes(&self, command: &Command, request: Request) -> Routes {
        match command.spec.keys.are_complete(request) {
            true => split::routes(&self.server.shard.hasher, command.spec.keys, request),
            false => Routes::new(),
        }
    }

    /// A command as it is going to run, elsewhere or later.
    pub fn plan(&self, request: Request, proto: Proto) -> Result<Planned> {
        let command = self.admit(request)?;
        let run = plan::run_of(&self.server, command, request);
        let mut routes = self.routes(command, request);
        if let Run::Data(command::Run::Cursor(..)) = run {
            routes = [(0, command::walk::cursor_shard(request, self.server.shard.count))].into_iter().collect();
        }
        self.has_written.set(self.has_written.get() || command.writes);
        Ok(Planned { command: command.id, run, at: self.at(command, request, proto, &routes), routes })
    }

    /// Whether it has run: see [`Caller::keep_saved`].
    fn run_here(
        &self,
        command: &Command,
        run: command::Run,
        at: At,
        request: Request,
        routes: &[Route],
        out: &mut Vec<u8>,
    ) -> bool {
        let shard = &self.server.shard;
        if command.writes {
            if self.saves.get() && !self.save(at, routes, request, command) {
                return false;
            }
            self.has_written.set(true);
        }
        let start = out.len();
        let began_us = if shard.is_quick(at) { None } else { Some(store_us()) };
        match run {
            command::Run::Key(handler) | command::Run::Cursor(handler, _) | command::Run::Atomic(handler, _) => {
                shard.execute(handler, request, at, self.now, out, &mut Vec::new());
            }
            command::Run::Spread(handler, merge) | command::Run::Everywhere(handler, merge) => {
                run_whole(shard, (handler, merge), at, request, routes, self.now, out);
            }
            command::Run::Coordinated(_) | command::Run::Blocking(_) | command::Run::Container => {
                unreachable!("planned otherwise")
            }
        }
        shard.meter.answered(at.command, out);
        self.note_lease(command, at.db, routes, &out[start..]);
        match began_us {
            None => shard.meter.note(at.command),
            Some(began_us) => shard.meter.ran(at.command, store_us().saturating_sub(began_us) * 1_000),
        }
        true
    }

    /// Takes down what a command is about to change, if that was not done before; whether that can be done.
    fn save(&self, at: At, routes: &[Route], request: Request, command: &Command) -> bool {
        let shard = &self.server.shard;
        self.databases(at, command, request).into_iter().flatten().all(|db| {
            command.spec.keys.indexes(request).zip(routes).all(|(index, &(hash, _))| {
                let at = At { db, ..at };
                !self.is_new(db, hash) || {
                    let key = Key { bytes: request.arg(index), hash };
                    let (saved, _) = shard.step_of(at, self.now, |ctx| ctx.save(key));
                    self.keep_saved(shard.id, saved)
                }
            })
        })
    }

    /// In which databases a command may change its keys.
    pub fn databases(&self, at: At, command: &Command, request: Request) -> [Option<usize>; 2] {
        let exists = |db: &usize| *db < self.server.shard.config().databases;
        [Some(at.db), other_database(command.full_name, request).filter(exists)]
    }

    /// Whether a key was not taken down before; it is going to be.
    pub fn is_new(&self, db: usize, hash: u64) -> bool {
        self.before.borrow_mut().get_or_insert_default().seen.insert((db, hash))
    }

    /// A command has replied, which may have given a lease.
    #[inline]
    pub fn note_lease(&self, command: &Command, db: usize, routes: &[Route], reply: &[u8]) {
        if gives_lease(command.full_name, reply)
            && let [(hash, shard)] = *routes
        {
            let mut before = self.before.borrow_mut();
            let Before { seen, leased, .. } = &mut **before.get_or_insert_default();
            if !seen.contains(&(db, hash)) && leased.len() < LEASES_MAX {
                leased.insert(Leased { shard, db, hash });
            }
        }
    }

    /// Keeps the copy of a key. Where it was too large to be copied the script has to begin again, with everything held.
    pub fn keep_saved(&self, target: usize, saved: Option<Saved>) -> bool {
        let is_saved = saved.is_some();
        self.has_left.set(self.has_left.get() || !is_saved);
        let saved = saved.map(|saved| (target, saved));
        self.before.borrow_mut().get_or_insert_default().saved.extend(saved);
        is_saved
    }

    /// What was taken down, by shard, and the leases that it was given. These end behind that, where one of them may stand.
    pub fn take_before(&self) -> (Vec<(usize, Saved)>, BTreeSet<Leased>) {
        self.before.take().map_or_else(Default::default, |before| (before.saved, before.leased))
    }

    /// Puts back what was taken down, all of it here.
    pub fn put_back(&self, at: At) {
        let (saved, leased) = self.take_before();
        for (_, saved) in saved {
            self.server.shard.step_of(at, self.now, |ctx| ctx.put_back(saved));
        }
        for leased in leased {
            leased.end(&self.server.shard);
        }
    }
}

fn sorted(mut hashes: Hashes) -> Hashes {
    hashes.sort_unstable();
    hashes
}

/// Whether XREAD or XREADGROUP has the option BLOCK.
fn names_block(request: Request) -> bool {
    let mut index = 1;
    while index + 1 < request.len() && !request.is(index, "streams") {
        match () {
            () if request.is(index, "block") => return true,
            () if request.is(index, "group") => index += 3,
            // A count that is none is an error of its own.
            () if request.is(index, "count") && request.int(index + 1).is_err() => return false,
            () if request.is(index, "count") => index += 2,
            () if request.is(index, "noack") => index += 1,
            () => return false,
        }
    }
    false
}

fn are_among(routes: &[Route], hashes: &Hashes) -> bool {
    routes.iter().all(|(hash, _)| hashes.binary_search(hash).is_ok())
}

/// Whether a command is about more than the keys that it names.
fn needs_everything(command: &Command, run: Run, request: Request, routes: &[Route]) -> bool {
    match run {
        Run::Data(command::Run::Everywhere(..) | command::Run::Cursor(..)) => true,
        Run::Data(command::Run::Coordinated(_)) => routes.is_empty() || command.spec.keys.name_others(request),
        _ => false,
    }
}

impl Host for Caller {
    fn run(&self, request: Request, proto: Proto, out: &mut Vec<u8>) -> Answer {
        let command = match self.admit(request) {
            Ok(command) => command,
            Err(error) => return Answer::Refused(error),
        };
        let shard = &self.server.shard;
        let routes = self.routes(command, request);
        let run = plan::run_of(&self.server, command, request);
        if self.is_strict && !self.has_declared(command, run, request, &routes) {
            return Answer::Refused(Error::text(
                "ERR Script attempted to access keys that it has not declared, which script-undeclared-keys denies",
            ));
        }
        if !self.reaches(command, run, request, &routes) {
            self.has_left.set(true);
            return Answer::Later;
        }
        self.has_told.set(self.has_told.get() || command.spec.has(MAY_REPLICATE));
        let at = self.at(command, request, proto, &routes);
        if self.gate.shows {
            // SELECT is shown with the database that it chooses.
            let db = plan::selects(command, request, &self.server).unwrap_or(at.db);
            monitor::show_script(&self.server, db, command, request);
        }
        match run {
            Run::Container | Run::Data(command::Run::Container) => {
                command::describe::help(&mut Reply::new(out, proto), &command.told);
            }
            Run::Session(handler) => {
                let mut session = Session { proto, db: self.db.get(), ..Session::of_nobody() };
                here::call(&self.server, handler, (&mut session, true, self.told_now()), request, out);
                self.db.set(session.db);
                shard.meter.note(command.id);
                shard.meter.answered(command.id, out);
            }
            Run::Data(command::Run::Coordinated(_)) | Run::Task(_) | Run::Multi(_) | Run::Script(_) => {
                return Answer::Later;
            }
            Run::Data(run) => {
                let is_for_all = matches!(run, command::Run::Everywhere(..) | command::Run::Cursor(..));
                let is_here = routes.iter().all(|(_, target)| *target == shard.id) && (shard.count == 1 || !is_for_all);
                if !is_here {
                    return Answer::Later;
                }
                if !self.run_here(command, run, at, request, &routes, out) {
                    return Answer::Later;
                }
            }
        }
        Answer::Written
    }

    fn allows(&self, request: Request) -> Option<bool> {
        let Found::Command(command) = self.server.table.find(request) else { return None };
        let vocabulary = &self.server.global.users.vocabulary;
        Some(self.asker.as_ref().is_none_or(|(_, user)| user.check(vocabulary, command.id, request).is_ok()))
    }
}
