//! From bytes to requests, and from a request to whoever runs it.

use super::batch::{Batch, End, RoutedKey};
use super::client::{Client, ClientRef, Close, Flow, ReplyMode, Session, State};
use super::connection::settle;
use super::replies::{Answer, Replies};
use super::slowlog::SlowLog;
use super::{Command, Found, Run, Server, SessionCtx, TaskCtx, TaskFuture};
use crate::clock::store_us;
use crate::command::spec::flag::{NO_AUTH, NO_MULTI, PUBSUB, WRITE};
use crate::command::{self, CommandId, Handler, OwnedRequest};
use crate::config::PipelineOrder;
use crate::net::note_woken;
use crate::resp::{Error, Limits, Proto, Reply, Request, Result, printable};
use crate::shard::{At, LONG_REPLY_BYTES, Pace, Part, Ticket};
use futures_lite::future::{or, yield_now};
use glommio::timer::Timer;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Runs what a connection has sent, `fresh` included, as far as it can run now, and sends the replies.
pub fn advance(server: &Rc<Server>, client: &ClientRef, fresh: &[u8]) {
    if client.closed.get() {
        return;
    }
    // What comes in then may answer this connection, too.
    server.shard.begin_turn();
    {
        let mut state = client.state.borrow_mut();
        let state = &mut *state;
        if state.replies.is_idle() {
            state.flow.barrier = false;
        }
        if state.replies.out.capacity() == 0 {
            state.replies.out = server.spare_buffer();
        }
        if state.input.is_empty() {
            let used = run(server, client, state, fresh);
            state.input.extend_from_slice(&fresh[used..]);
        } else {
            state.input.extend_from_slice(fresh);
            let input = std::mem::take(&mut state.input);
            state.at += run(server, client, state, &input[state.at..]);
            state.input = input;
            tidy_input(state);
        }
        state.parser.trim();
        check_input(server, state);
        if state.replies.out.is_empty() {
            server.keep_buffer(std::mem::take(&mut state.replies.out));
        }
    }
    server.shard.after_commands();
    settle(server, client);
}

/// Input that a connection may keep allocated while it has nothing to say.
const KEPT_INPUT_BYTES: usize = 4 * 1024;

/// Drops what was used of the input, without moving the rest each time.
fn tidy_input(state: &mut State) {
    if state.at == state.input.len() {
        state.input.clear();
        state.input.shrink_to(KEPT_INPUT_BYTES);
        state.at = 0;
    } else if state.at > state.input.len() / 2 {
        state.input.drain(..state.at);
        state.at = 0;
    }
}

fn check_input(server: &Server, state: &mut State) {
    let queued_bytes = state.session.multi.as_ref().map_or(0, |multi| multi.bytes());
    if state.input.len() - state.at + queued_bytes > server.shard.config().client_query_buffer_limit_bytes {
        crate::observe::log::warning(format_args!(
            "Closing client that reached max query buffer length: id={} addr={}",
            state.session.id, state.session.addr
        ));
        state.flow.close = Close::Now;
    }
}

/// Runs requests from `bytes` until one must wait; returns how many bytes are done with.
fn run(server: &Rc<Server>, client: &ClientRef, state: &mut State, bytes: &[u8]) -> usize {
    let config = server.shard.config();
    let dispatch = Dispatch {
        server,
        client,
        strict: config.pipeline_order == PipelineOrder::Strict,
        locked: !config.requirepass.is_empty(),
        paused: paused(server),
    };
    state.session.used_us = server.shard.clock.now().us;
    state.flow.waiting = false;
    let mut used = 0;
    let mut pace = Pace::new(server.shard.clock.now().us);
    while state.may_run() {
        let State { session, replies, parser, flow, .. } = &mut *state;
        let authenticated = session.authenticated || !dispatch.locked;
        let limits = Limits { bulk_bytes: config.limits.string_bytes, authenticated };
        let batch = Batch::read(server, session.db, parser, &bytes[used..], limits);
        for (index, item) in batch.items.iter().enumerate() {
            if !flow.may_run(replies.bytes()) {
                parser.start_anew();
                return used;
            }
            let rest = &bytes[used..];
            let request = if item.inline { parser.request(rest) } else { parser.request_at(item.spans, rest) };
            if let Some(found) = &item.found
                && let mut turn = (Turn { session, replies, flow })
                && matches!(dispatch.request(&mut turn, request, found, item.key), Step::NotYet)
            {
                flow.waiting = true;
                parser.start_anew();
                return used;
            }
            used += item.len;
            let more = index + 1 < batch.items.len() || matches!(batch.end, End::Full);
            if more && pace.is_long() {
                flow.waiting = true;
                parser.start_anew();
                server.postpone(client);
                return used;
            }
        }
        match batch.end {
            End::Full => {}
            End::Incomplete => break,
            // What came before it decides: it may be read again under other limits, or never.
            End::Error(_) if !flow.may_run(replies.bytes()) => {
                parser.start_anew();
                break;
            }
            End::Error(error) => {
                let proto = session.proto;
                replies.write(|out| Reply::new(out, proto).error(Error::err(error)));
                flow.close = Close::AfterReplies;
                break;
            }
        }
    }
    used
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Paused {
    No,
    Writes,
    All,
}

fn paused(server: &Server) -> Paused {
    let global = &server.global;
    if global.pause_until_us.load(Ordering::Relaxed) <= server.shard.clock.now().us {
        Paused::No
    } else if global.pause_all.load(Ordering::Relaxed) {
        Paused::All
    } else {
        Paused::Writes
    }
}

pub(super) enum Step {
    Taken,
    /// The request stays in the input: something before it, or a pause, is in its way.
    NotYet,
}

/// What is the same for all requests of a turn.
pub(super) struct Dispatch<'a> {
    pub server: &'a Rc<Server>,
    pub client: &'a ClientRef,
    strict: bool,
    locked: bool,
    pub paused: Paused,
}

/// What a request may change of its connection.
pub(super) struct Turn<'a> {
    pub session: &'a mut Session,
    pub replies: &'a mut Replies,
    pub flow: &'a mut Flow,
}

impl Turn<'_> {
    /// Writes a reply that is there at once, unless it is muted.
    pub fn reply(&mut self, muted: bool, write: impl FnOnce(&mut Reply)) {
        let proto = self.session.proto;
        self.replies.write(|out| {
            if !muted {
                write(&mut Reply::new(out, proto));
            }
        });
    }

    /// Whether the command that runs now is not to be answered.
    pub fn take_muted(&mut self) -> bool {
        match self.session.reply_mode {
            ReplyMode::On => false,
            ReplyMode::Off => true,
            ReplyMode::SkipNext => {
                self.session.reply_mode = ReplyMode::On;
                true
            }
        }
    }

    /// Whether a transaction may start, or (with `false`) a command on one shard: those of the same kind keep their
    /// order among themselves, others wait until everything before them is answered.
    #[inline]
    pub fn may_start(&mut self, transaction: bool) -> bool {
        if self.replies.is_idle() {
            self.flow.transactions = transaction;
        }
        self.flow.transactions == transaction
    }
}

impl Dispatch<'_> {
    fn request(&self, turn: &mut Turn, request: Request, found: &Found, key: Option<RoutedKey>) -> Step {
        let command = match self.admit(turn.session, request, found) {
            Ok(command) => command,
            Err(error) => return self.refuse(turn, found, error),
        };
        if self.paused != Paused::No
            && (self.paused == Paused::All || command.spec.has(WRITE) || command.spec.name == "publish")
        {
            turn.session.last_command = command.full_name;
            return self.pause(turn);
        }
        match self.queue(turn, command, request) {
            Ok(false) => {}
            Ok(true) => {
                let muted = turn.take_muted();
                turn.reply(muted, |reply| reply.simple("QUEUED"));
                self.count(turn);
                return Step::Taken;
            }
            Err(error) => return self.refuse(turn, found, error),
        }
        let before = std::mem::replace(&mut turn.session.last_command, command.full_name);
        let step = self.start(command, turn, request, key);
        if matches!(step, Step::Taken) {
            self.count(turn);
        } else {
            turn.session.last_command = before;
        }
        step
    }

    /// Answers a request that cannot run. In a transaction, none of it will.
    #[cold]
    fn refuse(&self, turn: &mut Turn, found: &Found, mut error: Error) -> Step {
        let command = match found {
            Found::Command(command) => Some(command.id),
            Found::Unknown | Found::UnknownSubcommand(_) => None,
        };
        self.server.shard.meter.rejected(command, &error.to_bytes());
        if let Some(multi) = &mut turn.session.multi {
            multi.broken = true;
        }
        if matches!(found, Found::Command(command) if command.full_name == "exec") {
            error = self.abort(turn.session, &error);
        }
        let muted = turn.take_muted();
        turn.reply(muted, |reply| reply.error(error));
        Step::Taken
    }

    /// A command that was measured alone has run here.
    #[inline(never)]
    pub(super) fn ran(&self, session: &Session, command: CommandId, request: Request, ns: u64) {
        self.server.shard.meter.ran(command, ns);
        if self.server.shard.meter.is_slow(ns) {
            self.server.log_slow(session, command, ns, SlowLog::args(request));
        }
    }

    fn count(&self, turn: &mut Turn) {
        turn.session.commands += 1;
        self.server.stats.commands.set(self.server.stats.commands.get() + 1);
    }

    /// The request waits until CLIENT PAUSE is over.
    pub fn pause(&self, turn: &mut Turn) -> Step {
        turn.flow.paused = true;
        if turn.flow.finished {
            turn.flow.close = Close::AfterReplies;
        }
        self.server.wait_for_unpause(self.client);
        Step::NotYet
    }

    /// Checks what can be checked before a command runs.
    fn admit<'t>(&self, session: &Session, request: Request, found: &Found<'t>) -> Result<&'t Command> {
        let command = match *found {
            Found::Command(command) => command,
            Found::Unknown => return Err(unknown_command(request)),
            Found::UnknownSubcommand(container) => {
                return Err(Error::quoting(&[
                    b"ERR unknown subcommand '",
                    printable(request.arg(1), 128),
                    b"'. Try ",
                    container.spec.name.to_uppercase().as_bytes(),
                    b" HELP.",
                ]));
            }
        };
        if !command.spec.accepts(request.len()) {
            return Err(Error::WrongArity(command.full_name.to_owned()));
        }
        if self.locked && !session.authenticated && !command.spec.has(NO_AUTH) {
            return Err(Error::NoAuth);
        }
        if !command.row.subcommands.is_empty() && request.len() > 2 {
            // No subcommand was found: it is HELP, which takes no arguments.
            return Err(Error::WrongArity(format!("{}|help", command.full_name)));
        }
        // Between MULTI and EXEC it is queued all the same.
        if session.multi.is_none() && !command.spec.keys.are_complete(request) {
            return Err(Error::WrongArity(command.full_name.to_owned()));
        }
        let allowed = ["ping", "quit", "reset", "subscribe", "unsubscribe", "psubscribe", "punsubscribe"];
        if session.subscriptions() > 0 && session.proto == Proto::Resp2 && !allowed.contains(&command.spec.name) {
            return Err(Error::err(format_args!(
                "Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this \
                 context",
                command.full_name
            )));
        }
        if session.multi.is_some() && command.spec.has(NO_MULTI) {
            return Err(Error::text("ERR Command not allowed inside a transaction"));
        }
        Ok(command)
    }

    #[inline]
    fn start(&self, command: &Command, turn: &mut Turn, request: Request, key: Option<RoutedKey>) -> Step {
        let at = at(command, turn.session);
        match command.run {
            Run::Data(command::Run::Key(handler)) => {
                let RoutedKey { hash, target } =
                    key.unwrap_or_else(|| RoutedKey::of(&self.server.shard.hasher, command, request));
                self.one(handler, target, At { hash, ..at }, turn, request)
            }
            Run::Data(command::Run::Cursor(handler, _)) if self.server.shard.count == 1 => {
                self.one(handler, self.server.shard.id, at, turn, request)
            }
            Run::Data(command::Run::Blocking(blocking)) => self.blocking(blocking, at, turn, request),
            Run::Data(command::Run::Container) | Run::Container => self.help(command, turn, request),
            Run::Data(run) => self.several(run, at, turn, request),
            Run::Multi(verb) => self.transaction(verb, command.id, turn),
            // All others are barriers: everything before them is answered first.
            _ if !turn.replies.is_idle() => Step::NotYet,
            Run::Session(handler) => {
                self.measured_in_session(handler, command, turn, request);
                Step::Taken
            }
            Run::Task(task) => {
                self.spawn_task(task, command, turn, request);
                Step::Taken
            }
        }
    }

    #[inline(never)]
    fn measured_in_session(
        &self,
        handler: fn(&mut SessionCtx, Request) -> Result,
        command: &Command,
        turn: &mut Turn,
        request: Request,
    ) {
        let ((), ns) = self.server.shard.measured(|| self.in_session(handler, command, turn, request));
        self.ran(turn.session, command.id, request, ns);
    }

    #[inline(never)]
    fn spawn_task(&self, task: fn(TaskCtx) -> TaskFuture, command: &Command, turn: &mut Turn, request: Request) {
        let muted = turn.take_muted();
        let call = Call::new(self.server, command.id, Some(request));
        self.spawn(task(self.task_ctx(turn.session, request)), call, turn, muted);
    }

    /// Whether strict order wants what is open to be answered first.
    pub fn strict_order_forbids(&self, turn: &Turn, target: usize) -> bool {
        self.strict && !turn.replies.is_idle() && turn.flow.last_target != target
    }

    /// The request waits until less is on its way to other shards.
    pub fn wait_for_room(&self) -> Step {
        self.server.go_on_later(self.client);
        Step::NotYet
    }

    fn task_ctx(&self, session: &Session, request: Request) -> TaskCtx {
        TaskCtx {
            server: self.server.clone(),
            client: self.client.clone(),
            request: OwnedRequest::of(request),
            db: session.db,
            proto: session.proto,
        }
    }

    /// A command that runs on one shard.
    #[inline]
    pub fn one(&self, handler: Handler, target: usize, at: At, turn: &mut Turn, request: Request) -> Step {
        let shard = &self.server.shard;
        if !turn.may_start(false) || self.strict_order_forbids(turn, target) {
            return Step::NotYet;
        }
        if target != shard.id {
            if shard.is_congested() {
                return self.wait_for_room();
            }
            let muted = turn.take_muted();
            turn.flow.last_target = target;
            let sequence = turn.replies.expect(muted, target, request.bytes());
            let ticket = Ticket { client: self.client.id, sequence, part: 0 };
            shard.send_part(target, request, Part::new(handler, at, ticket));
            return Step::Taken;
        }
        if shard.must_wait(&at, request, self.client.id) {
            // One at a time: all of them could run, and answer, in the moment in which a lock is let go.
            if !turn.replies.is_idle() {
                return Step::NotYet;
            }
            let muted = turn.take_muted();
            turn.flow.last_target = target;
            let sequence = turn.replies.expect(muted, target, request.bytes());
            let ticket = Ticket { client: self.client.id, sequence, part: 0 };
            shard.defer_own_command(handler, request, at, ticket);
        } else {
            let muted = turn.take_muted();
            let (meter, is_quick) = (&shard.meter, shard.is_quick(at));
            if !is_quick {
                meter.begin();
            }
            let out = turn.replies.begin();
            let start = out.len();
            shard.execute(handler, request, at, shard.clock.now(), out, &mut Vec::new());
            let is_long = out.len() - start >= LONG_REPLY_BYTES;
            meter.answered(at.command, &out[start..]);
            if muted {
                out.truncate(start);
            }
            turn.replies.end(start);
            if is_quick && !is_long {
                meter.note(at.command);
            } else {
                self.ran(turn.session, at.command, request, meter.end());
            }
            shard.serve_waiters();
        }
        Step::Taken
    }

    /// A command of the connection itself. Its replies are what pushes queue behind, so nothing may be open. Those of a
    /// command that listens are pushes, which CLIENT REPLY does not turn off.
    pub fn in_session(
        &self,
        handler: fn(&mut SessionCtx, Request) -> Result,
        command: &Command,
        turn: &mut Turn,
        request: Request,
    ) {
        debug_assert!(turn.replies.is_idle());
        let listens = command.spec.has(PUBSUB);
        let skipped = turn.session.reply_mode == ReplyMode::SkipNext;
        let start = turn.replies.out.len();
        run_in_session(self.server, handler, turn.session, request, &mut turn.replies.out);
        self.server.shard.meter.answered(command.id, &turn.replies.out[start..]);
        let session = &mut *turn.session;
        if skipped && session.reply_mode == ReplyMode::SkipNext && session.last_command != "client|reply" {
            session.reply_mode = ReplyMode::On;
            if !listens {
                turn.replies.out.truncate(start);
            }
        } else if session.reply_mode == ReplyMode::Off && !listens {
            turn.replies.out.truncate(start);
        }
        if session.close != Close::No {
            turn.flow.close = session.close;
        }
    }

    /// Runs a task; nothing of this connection overtakes it.
    pub(super) fn spawn(&self, future: TaskFuture, call: Call, turn: &mut Turn, muted: bool) {
        let sequence = turn.replies.expect(muted, self.server.shard.id, 0);
        turn.flow.barrier = true;
        let (server, client, proto) = (self.server.clone(), self.client.clone(), turn.session.proto);
        note_woken();
        glommio::spawn_local(async move {
            // glommio runs a new task at once; this one must not before the connection's turn is over.
            yield_now().await;
            let bytes = future.await.unwrap_or_else(|error| {
                let mut out = Vec::new();
                Reply::new(&mut out, proto).error(error);
                out
            });
            let (command, ns) = (call.command, call.ns());
            call.log(&server, &client, ns);
            let answer = Answer { sequence, part: 0, bytes: &bytes, command, ns };
            if client.closed.get() {
                return;
            }
            {
                let mut state = client.state.borrow_mut();
                state.replies.fill(&server.shard.meter, answer, std::iter::empty());
                if state.session.close != Close::No {
                    state.flow.close = state.session.close;
                }
            }
            advance(&server, &client, &[]);
        })
        .detach();
    }

    fn help(&self, command: &Command, turn: &mut Turn, request: Request) -> Step {
        let muted = turn.take_muted();
        turn.reply(muted, |reply| write_help(command, reply, request));
        Step::Taken
    }
}

/// A command that runs as a task.
pub(super) struct Call {
    command: CommandId,
    /// As the slow log would have it; empty where that is off.
    args: Vec<Vec<u8>>,
    began_us: u64,
    /// How long its steps took, where they are measured.
    ns: Option<Rc<Cell<u64>>>,
}

impl Call {
    /// The request is for the slow log.
    pub fn new(server: &Server, command: CommandId, request: Option<Request>) -> Call {
        let logged = request.filter(|_| server.shard.meter.is_slow(u64::MAX - 1));
        let args = logged.map(SlowLog::args).unwrap_or_default();
        Call { command, args, began_us: store_us(), ns: None }
    }

    /// The same for one whose steps are measured.
    pub fn in_steps(server: &Server, command: CommandId, request: Option<Request>) -> (Call, Rc<Cell<u64>>) {
        let ns = Rc::<Cell<u64>>::default();
        (Call { ns: Some(ns.clone()), ..Call::new(server, command, request) }, ns)
    }

    /// It is over: counted, and logged where it was slow.
    pub fn end(self, server: &Server, client: &Client, reply: &[u8]) {
        let ns = self.ns();
        server.shard.meter.ran(self.command, ns);
        server.shard.meter.answered(self.command, reply);
        self.log(server, client, ns);
    }

    fn log(self, server: &Server, client: &Client, ns: u64) {
        if server.shard.meter.is_slow(ns) {
            server.log_slow(&client.state.borrow().session, self.command, ns, self.args);
        }
    }

    fn ns(&self) -> u64 {
        match &self.ns {
            Some(ns) => ns.get(),
            None => store_us().saturating_sub(self.began_us) * 1_000,
        }
    }
}

/// In which place a command of this connection runs.
#[inline]
pub(super) fn at(command: &Command, session: &Session) -> At {
    At {
        db: session.db,
        proto: session.proto,
        touch: command.touch(session.no_touch),
        hash: 0,
        command: command.id,
        write: command.writes,
        is_quick: command.is_quick,
    }
}

/// Runs a session's command; an error takes the place of what was written.
pub(super) fn run_in_session(
    server: &Rc<Server>,
    handler: fn(&mut SessionCtx, Request) -> Result,
    session: &mut Session,
    request: Request,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    let proto = session.proto;
    let result = handler(&mut SessionCtx { server, session, reply: Reply::new(out, proto) }, request);
    if let Err(error) = result {
        out.truncate(start);
        Reply::new(out, session.proto).error(error);
    }
}

/// What a container answers to HELP, or where its subcommand is missing.
pub(super) fn write_help(command: &Command, reply: &mut Reply, request: Request) {
    if request.len() == 2 {
        command::describe::help(reply, &command.row);
    } else {
        reply.error(Error::WrongArity(format!("{}|help", command.full_name)));
    }
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

impl Server {
    /// The connection has more to do, and took long: the others have their turn first.
    fn postpone(&self, client: &ClientRef) {
        self.postponed.borrow_mut().push(client.clone());
        self.shard.postpone();
    }

    /// The connection's next request waits until CLIENT PAUSE is over.
    fn wait_for_unpause(&self, client: &ClientRef) {
        self.paused.borrow_mut().push(client.clone());
        self.pause_watch.notify();
    }

    /// CLIENT PAUSE is over, or has been changed.
    pub fn unpause(&self) {
        self.pause_watch.notify();
    }
}

/// Lets paused connections go on when the time has come.
pub async fn resume_paused(server: Rc<Server>) {
    loop {
        server.pause_watch.wait().await;
        loop {
            let until_us = server.global.pause_until_us.load(Ordering::Relaxed);
            let rest_us = until_us.saturating_sub(store_us());
            if rest_us == 0 || server.paused.borrow().is_empty() {
                break;
            }
            or(server.pause_watch.wait(), async {
                Timer::new(Duration::from_micros(rest_us + 100)).await;
            })
            .await;
        }
        let waiting = server.paused.take();
        for client in waiting {
            client.state.borrow_mut().flow.paused = false;
            advance(&server, &client, &[]);
        }
    }
}
