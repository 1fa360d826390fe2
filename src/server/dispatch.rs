//! From bytes to requests, and from a request to whoever runs it.

use super::batch::{Batch, End, RoutedKey};
use super::client::{ClientRef, Close, Flow, ReplyMode, Session, State};
use super::connection::settle;
use super::replies::{Gather, Replies};
use super::table::{Command, Found};
use super::{Run, Server, SessionCtx, TaskCtx, TaskFuture};
use crate::clock::boottime_us;
use crate::command::spec::flag::{NO_AUTH, NO_TOUCH, WRITE};
use crate::command::{self, Across, AcrossFn, Handler, Merge, OwnedRequest, walk};
use crate::config::PipelineOrder;
use crate::keyspace::Touch;
use crate::net::note_woken;
use crate::resp::{Error, Limits, Proto, Reply, Request, Result, printable};
use crate::shard::{At, Part, ShardHop, Ticket};
use futures_lite::future::{or, yield_now};
use glommio::timer::Timer;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Runs what a connection has sent, `fresh` included, as far as it can run now, and sends the replies.
pub fn advance(server: &Rc<Server>, client: &ClientRef, fresh: &[u8]) {
    if client.closed.get() {
        return;
    }
    {
        let mut state = client.state.borrow_mut();
        let state = &mut *state;
        if state.replies.is_idle() {
            state.flow.barrier = false;
        }
        server.shard.begin_turn();
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
    if state.input.len() - state.at > server.shard.config().client_query_buffer_limit_bytes {
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
    while state.may_run() {
        let State { session, replies, parser, flow, .. } = &mut *state;
        let authenticated = session.authenticated || !dispatch.locked;
        let limits = Limits { bulk_bytes: config.proto_max_bulk_len_bytes, authenticated };
        let batch = Batch::read(server, session.db, parser, &bytes[used..], limits);
        for item in &batch.items {
            if !flow.may_run(replies.out.len()) {
                parser.start_anew();
                return used;
            }
            let rest = &bytes[used..];
            let request = if item.inline { parser.request(rest) } else { parser.request_at(item.spans, rest) };
            if let Some(found) = &item.found
                && matches!(dispatch.request(session, replies, flow, request, found, item.key), Step::NotYet)
            {
                flow.waiting = true;
                parser.start_anew();
                return used;
            }
            used += item.len;
        }
        match batch.end {
            End::Full => {}
            End::Incomplete => break,
            // What came before it decides: it may be read again under other limits, or never.
            End::Error(_) if !flow.may_run(replies.out.len()) => {
                parser.start_anew();
                break;
            }
            End::Error(error) => {
                let proto = session.proto;
                replies.write(|out| Reply::new(out, proto).error(format_args!("ERR {error}")));
                flow.close = Close::AfterReplies;
                break;
            }
        }
    }
    used
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Paused {
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

enum Step {
    Taken,
    /// The request stays in the input: something before it, or a pause, is in its way.
    NotYet,
}

/// What is the same for all requests of a turn.
struct Dispatch<'a> {
    server: &'a Rc<Server>,
    client: &'a ClientRef,
    strict: bool,
    locked: bool,
    paused: Paused,
}

impl Dispatch<'_> {
    fn request(
        &self,
        session: &mut Session,
        replies: &mut Replies,
        flow: &mut Flow,
        request: Request,
        found: &Found,
        key: Option<RoutedKey>,
    ) -> Step {
        let command = match self.admit(session, request, found) {
            Ok(command) => command,
            Err(error) => {
                self.server.stats.errors.set(self.server.stats.errors.get() + 1);
                let (proto, muted) = (session.proto, self.take_muted(session));
                replies.write(|out| {
                    if !muted {
                        Reply::new(out, proto).error(error);
                    }
                });
                return Step::Taken;
            }
        };
        if self.paused != Paused::No
            && (self.paused == Paused::All || command.spec.has(WRITE) || command.spec.name == "publish")
        {
            flow.paused = true;
            self.server.wait_for_unpause(self.client);
            return Step::NotYet;
        }
        let before = std::mem::replace(&mut session.last_command, command.full_name);
        let step = self.start(command, session, replies, flow, request, key);
        if matches!(step, Step::Taken) {
            session.commands += 1;
            self.server.stats.commands.set(self.server.stats.commands.get() + 1);
        } else {
            session.last_command = before;
        }
        step
    }

    /// Checks what can be checked before a command runs.
    fn admit<'t>(&self, session: &Session, request: Request, found: &Found<'t>) -> Result<&'t Command> {
        let command = match *found {
            Found::Command(command) => command,
            Found::Unknown => return Err(unknown_command(request)),
            Found::UnknownSubcommand(container) => {
                return Err(Error::err(format_args!(
                    "unknown subcommand '{}'. Try {} HELP.",
                    printable(request.arg(1), 128),
                    container.spec.name.to_uppercase()
                )));
            }
        };
        if !command.spec.accepts(request.len()) {
            return Err(Error::WrongArity(command.full_name.to_owned()));
        }
        if self.locked && !session.authenticated && !command.spec.has(NO_AUTH) {
            return Err(Error::NoAuth);
        }
        if !command.spec.keys.are_complete(request) {
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
        Ok(command)
    }

    /// Whether the command that runs now is not to be answered.
    fn take_muted(&self, session: &mut Session) -> bool {
        match session.reply_mode {
            ReplyMode::On => false,
            ReplyMode::Off => true,
            ReplyMode::SkipNext => {
                session.reply_mode = ReplyMode::On;
                true
            }
        }
    }

    #[allow(clippy::too_many_arguments)]
    #[inline]
    fn start(
        &self,
        command: &Command,
        session: &mut Session,
        replies: &mut Replies,
        flow: &mut Flow,
        request: Request,
        key: Option<RoutedKey>,
    ) -> Step {
        let at = At {
            db: session.db,
            proto: session.proto,
            touch: match () {
                () if session.no_touch || command.spec.has(NO_TOUCH) => Touch::No,
                () if command.spec.has(WRITE) => Touch::Write,
                () => Touch::Read,
            },
            hash: 0,
        };
        let run = match command.run {
            Run::Data(command::Run::Key(handler)) => {
                let RoutedKey { hash, target } =
                    key.unwrap_or_else(|| RoutedKey::of(&self.server.shard.hasher, command, request));
                return self.one(handler, target, At { hash, ..at }, session, replies, flow, request);
            }
            Run::Data(command::Run::Cursor(handler)) => {
                let target = walk::cursor_shard(request, self.server.shard.count);
                return self.one(handler, target, at, session, replies, flow, request);
            }
            run => run,
        };
        // All others are barriers: everything before them is answered first.
        if !replies.is_idle() {
            return Step::NotYet;
        }
        match run {
            Run::Data(run) => self.start_data(run, command, at, session, replies, flow, request),
            Run::Session(handler) => self.in_session(handler, session, replies, flow, request),
            Run::Task(task) => {
                let muted = self.take_muted(session);
                let context = TaskCtx {
                    server: self.server.clone(),
                    client: self.client.clone(),
                    request: OwnedRequest::of(request),
                    db: session.db,
                    proto: session.proto,
                };
                self.spawn(task(context), session, replies, flow, muted);
                Step::Taken
            }
            Run::Container => self.help(command, session, replies, request),
        }
    }

    /// A command that runs on one shard.
    #[allow(clippy::too_many_arguments)]
    #[inline]
    fn one(
        &self,
        handler: Handler,
        target: usize,
        at: At,
        session: &mut Session,
        replies: &mut Replies,
        flow: &mut Flow,
        request: Request,
    ) -> Step {
        let shard = &self.server.shard;
        let waits = self.strict && !replies.is_idle() && flow.last_target != target;
        if waits {
            return Step::NotYet;
        }
        let muted = self.take_muted(session);
        if target == shard.id {
            replies.write(|out| {
                let start = out.len();
                shard.run_handler(handler, request, at, out, &mut Vec::new());
                if out.get(start) == Some(&b'-') {
                    self.server.stats.errors.set(self.server.stats.errors.get() + 1);
                }
                if muted {
                    out.truncate(start);
                }
            });
        } else {
            flow.last_target = target;
            let ticket = Ticket { client: self.client.id, sequence: replies.expect(muted), part: 0 };
            shard.send_part(target, request, Part::new(handler, at, ticket));
        }
        Step::Taken
    }

    #[allow(clippy::too_many_arguments)]
    fn start_data(
        &self,
        run: command::Run,
        command: &Command,
        at: At,
        session: &mut Session,
        replies: &mut Replies,
        flow: &mut Flow,
        request: Request,
    ) -> Step {
        let shard = &self.server.shard;
        match run {
            command::Run::Key(_) | command::Run::Cursor(_) => unreachable!("taken care of by `start`"),
            command::Run::Spread(handler, merge) => {
                let muted = self.take_muted(session);
                self.spread(handler, merge, command, at, muted, replies, flow, request);
            }
            command::Run::Everywhere(handler, merge) => {
                let muted = self.take_muted(session);
                if shard.count == 1 {
                    self.whole(handler, merge, at, 0, muted, replies, request);
                    return Step::Taken;
                }
                let gather = Gather::new(merge, at.proto, muted, 0, vec![Vec::new(); shard.count]);
                let sequence = replies.expect_parts(gather);
                flow.barrier = true;
                for target in 0..shard.count {
                    self.part(handler, at, target, target as u32, sequence, replies, request);
                }
            }
            command::Run::Atomic(handler, across) => {
                let key = shard.hasher.key(request.arg(command.spec.keys.first));
                let target = shard.hasher.shard_of(key);
                let together = command
                    .spec
                    .keys
                    .indexes(request)
                    .all(|index| shard.hasher.shard_of(shard.hasher.key(request.arg(index))) == target);
                if together {
                    return self.one(handler, target, At { hash: key.hash, ..at }, session, replies, flow, request);
                }
                self.coordinate(across, session, replies, flow, request);
            }
            command::Run::Coordinated(across) => self.coordinate(across, session, replies, flow, request),
            command::Run::Container => return self.help(command, session, replies, request),
        }
        Step::Taken
    }

    /// Splits a request by the shards of its keys.
    #[allow(clippy::too_many_arguments)]
    fn spread(
        &self,
        handler: Handler,
        merge: Merge,
        command: &Command,
        at: At,
        muted: bool,
        replies: &mut Replies,
        flow: &mut Flow,
        request: Request,
    ) {
        let shard = &self.server.shard;
        let keys = command.spec.keys;
        let targets: Vec<usize> =
            keys.indexes(request).map(|index| shard.hasher.shard_of(shard.hasher.key(request.arg(index)))).collect();
        if targets.iter().all(|target| *target == shard.id) {
            self.whole(handler, merge, at, targets.len(), muted, replies, request);
            return;
        }
        let mut parts: Vec<(usize, OwnedRequest, Vec<u32>)> = Vec::new();
        for (position, (index, target)) in keys.indexes(request).zip(&targets).enumerate() {
            let found = parts.iter().position(|(of, ..)| of == target);
            let part = found.unwrap_or_else(|| {
                parts.push((*target, OwnedRequest::from_args([request.arg(0)].into_iter()), Vec::new()));
                parts.len() - 1
            });
            let (_, part_request, positions) = &mut parts[part];
            positions.push(position as u32);
            for offset in 0..keys.step {
                part_request.push(request.arg(index + offset));
            }
        }
        let positions = parts.iter_mut().map(|(.., positions)| std::mem::take(positions)).collect();
        let gather = Gather::new(merge, at.proto, muted, targets.len(), positions);
        let sequence = replies.expect_parts(gather);
        flow.barrier = true;
        for (part, (target, part_request, _)) in parts.iter().enumerate() {
            self.part(handler, at, *target, part as u32, sequence, replies, part_request.as_request());
        }
        if replies.is_idle() {
            flow.barrier = false;
        }
    }

    /// One part of a reply that is gathered.
    #[allow(clippy::too_many_arguments)]
    fn part(
        &self,
        handler: Handler,
        at: At,
        target: usize,
        part: u32,
        sequence: u64,
        replies: &mut Replies,
        request: Request,
    ) {
        let shard = &self.server.shard;
        if target == shard.id {
            let (mut out, mut ends) = (Vec::new(), Vec::new());
            shard.run_handler(handler, request, at, &mut out, &mut ends);
            replies.fill(sequence, part, &out, ends.into_iter());
        } else {
            let ticket = Ticket { client: self.client.id, sequence, part };
            shard.send_part(target, request, Part::new(handler, at, ticket));
        }
    }

    /// A command in parts whose only part is here.
    #[allow(clippy::too_many_arguments)]
    fn whole(
        &self,
        handler: Handler,
        merge: Merge,
        at: At,
        keys: usize,
        muted: bool,
        replies: &mut Replies,
        request: Request,
    ) {
        let shard = &self.server.shard;
        let mut ends = Vec::new();
        replies.write(|out| {
            let start = out.len();
            match merge {
                Merge::Sum | Merge::Ok => shard.run_handler(handler, request, at, out, &mut ends),
                Merge::Items => {
                    Reply::new(out, at.proto).array(keys);
                    shard.run_handler(handler, request, at, out, &mut ends);
                }
                Merge::Concat => {
                    let mut items = Vec::new();
                    shard.run_handler(handler, request, at, &mut items, &mut ends);
                    Reply::new(out, at.proto).array(ends.len());
                    out.extend_from_slice(&items);
                }
            }
            if muted {
                out.truncate(start);
            }
        });
    }

    fn in_session(
        &self,
        handler: fn(&mut SessionCtx, Request) -> Result,
        session: &mut Session,
        replies: &mut Replies,
        flow: &mut Flow,
        request: Request,
    ) -> Step {
        let skipped = session.reply_mode == ReplyMode::SkipNext;
        let proto = session.proto;
        let out = &mut replies.out;
        let start = out.len();
        let mut context = SessionCtx { server: self.server, session, reply: Reply::new(out, proto) };
        let result = handler(&mut context, request);
        if let Err(error) = result {
            out.truncate(start);
            Reply::new(out, session.proto).error(error);
        }
        if skipped && session.reply_mode == ReplyMode::SkipNext && session.last_command != "client|reply" {
            session.reply_mode = ReplyMode::On;
            out.truncate(start);
        } else if session.reply_mode == ReplyMode::Off {
            out.truncate(start);
        }
        if session.close != Close::No {
            flow.close = session.close;
        }
        Step::Taken
    }

    fn coordinate(
        &self,
        across: AcrossFn,
        session: &mut Session,
        replies: &mut Replies,
        flow: &mut Flow,
        request: Request,
    ) {
        let muted = self.take_muted(session);
        let shard = &self.server.shard;
        let config = shard.config();
        let future = across(Across {
            hop: Rc::new(ShardHop::new(shard.clone())),
            request: OwnedRequest::of(request),
            db: session.db,
            databases: config.databases,
            proto: session.proto,
            rng: fastrand::Rng::with_seed(shard.rng.borrow_mut().u64(..)),
            max_string_bytes: config.proto_max_bulk_len_bytes,
        });
        self.spawn(future, session, replies, flow, muted);
    }

    /// Runs a task; nothing of this connection overtakes it.
    fn spawn(&self, future: TaskFuture, session: &Session, replies: &mut Replies, flow: &mut Flow, muted: bool) {
        let sequence = replies.expect(muted);
        flow.barrier = true;
        let (server, client, proto) = (self.server.clone(), self.client.clone(), session.proto);
        note_woken();
        glommio::spawn_local(async move {
            // glommio runs a new task at once; this one must not before the connection's turn is over.
            yield_now().await;
            let bytes = future.await.unwrap_or_else(|error| {
                let mut out = Vec::new();
                Reply::new(&mut out, proto).error(error);
                out
            });
            {
                let mut state = client.state.borrow_mut();
                state.replies.fill(sequence, 0, &bytes, std::iter::empty());
                if state.session.close != Close::No {
                    state.flow.close = state.session.close;
                }
            }
            advance(&server, &client, &[]);
        })
        .detach();
    }

    fn help(&self, command: &Command, session: &mut Session, replies: &mut Replies, request: Request) -> Step {
        let (proto, muted) = (session.proto, self.take_muted(session));
        replies.write(|out| {
            let start = out.len();
            let mut reply = Reply::new(out, proto);
            if request.len() == 2 {
                command::describe::help(&mut reply, &command.row);
            } else {
                reply.error(Error::WrongArity(format!("{}|help", command.full_name)));
            }
            if muted {
                out.truncate(start);
            }
        });
        Step::Taken
    }
}

fn unknown_command(request: Request) -> Error {
    let mut args = String::new();
    for arg in request.from(1) {
        if args.len() >= 128 {
            break;
        }
        args.push_str(&format!("'{}' ", printable(arg, 128 - args.len())));
    }
    Error::err(format_args!("unknown command '{}', with args beginning with: {args}", printable(request.arg(0), 128)))
}

impl Server {
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
            let rest_us = until_us.saturating_sub(boottime_us());
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
