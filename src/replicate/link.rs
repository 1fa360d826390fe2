//! One connection to a primary, from the first word to its end. A thread reads what the primary sends, another one says how far
//! this server is. Whoever follows the primary is told by events, and makes another link when this one has ended.

use super::batches::{Batch, Batches};
use super::payload;
use crate::clock::store_us;
use crate::config;
use crate::net::tls::Outgoing;
use crate::net::{Bell, Nameless};
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, PipeReader, Read, Seek, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Parts of the stream that wait; who reads the link waits then.
const PARTS: usize = 4;
const READ_BYTES: usize = 64 << 10;
/// And of the stream, so much of which can be done at a time.
const STREAM_BYTES: usize = 256 << 10;
/// No stream is longer.
const POSITION_MAX: u64 = i64::MAX as u64 / 2;
const NOTHING_SYNCED: u64 = u64::MAX;
/// How often a primary hears how far this server is, or that it is still loading.
const SAY_EVERY: Duration = Duration::from_secs(1);

/// What a link is for.
#[derive(Clone, Debug)]
pub struct Goal {
    pub host: String,
    pub port: u16,
    pub user: String,
    pub password: String,
    /// What the primary is told of where this server listens.
    pub own_port: u16,
    pub own_address: String,
    /// Where connections come from; any address where that is empty.
    pub source: String,
    pub timeout: Duration,
    /// The link is under TLS, with these files.
    pub tls: Option<config::Tls>,
    /// Small packets are collected.
    pub delays: bool,
    /// Where a snapshot is put; none where it is loaded as it comes.
    pub path: Option<PathBuf>,
    /// What this server has: under which name, and up to which position.
    pub has: Option<(String, u64)>,
    /// So many bytes of a transaction that has not ended are kept.
    pub kept_bytes: usize,
    /// The primary is to become this server's replica at once.
    pub takes_over: bool,
}

/// How far a link is, as INFO and ROLE say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    Connect,
    Connecting,
    Handshake,
    Sync,
    Connected,
}

impl Stage {
    pub fn word(self) -> &'static str {
        match self {
            Stage::Connect => "connect",
            Stage::Connecting => "connecting",
            Stage::Handshake => "handshake",
            Stage::Sync => "sync",
            Stage::Connected => "connected",
        }
    }
}

/// What others may know of a link, and do with it.
pub struct Shared {
    stage: AtomicU8,
    /// When something came last, store microseconds; 0: nothing has.
    heard_us: AtomicU64,
    /// Of a snapshot: how long it is, where that is known, and what has come of it.
    pub snapshot_bytes: AtomicU64,
    pub snapshot_read: AtomicU64,
    /// How far this server has come, and how far what has come to it goes that is about to be done.
    position: AtomicU64,
    read: AtomicU64,
    /// That is told, and not only that this server is there.
    says_position: AtomicBool,
    /// How much of that is on this server's disk; `NOTHING_SYNCED` where nothing is.
    synced: AtomicU64,
    /// Bytes that have come.
    pub input_bytes: AtomicU64,
    is_ended: AtomicBool,
    /// Nothing comes any more.
    is_lost: AtomicBool,
    /// The primary has answered PSYNC with an error.
    was_refused: AtomicBool,
    /// What it sends is no stream that can be followed.
    is_unfit: AtomicBool,
    socket: Mutex<Option<Arc<Outgoing>>>,
    say: Mutex<Option<mpsc::Sender<()>>>,
}

impl Shared {
    fn new() -> Shared {
        Shared {
            stage: AtomicU8::new(Stage::Connect as u8),
            heard_us: AtomicU64::new(0),
            snapshot_bytes: AtomicU64::new(0),
            snapshot_read: AtomicU64::new(0),
            position: AtomicU64::new(0),
            read: AtomicU64::new(0),
            says_position: AtomicBool::new(false),
            synced: AtomicU64::new(NOTHING_SYNCED),
            input_bytes: AtomicU64::new(0),
            is_ended: AtomicBool::new(false),
            is_lost: AtomicBool::new(false),
            was_refused: AtomicBool::new(false),
            is_unfit: AtomicBool::new(false),
            socket: Mutex::default(),
            say: Mutex::default(),
        }
    }

    pub fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Relaxed) {
            of if of == Stage::Connecting as u8 => Stage::Connecting,
            of if of == Stage::Handshake as u8 => Stage::Handshake,
            of if of == Stage::Sync as u8 => Stage::Sync,
            of if of == Stage::Connected as u8 => Stage::Connected,
            _ => Stage::Connect,
        }
    }

    pub fn set_stage(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
    }

    /// For how many seconds nothing has come.
    pub fn silent_s(&self) -> Option<u64> {
        let heard_us = self.heard_us.load(Ordering::Relaxed);
        (heard_us > 0).then(|| store_us().saturating_sub(heard_us) / 1_000_000)
    }

    /// This server has come so far.
    pub fn set_position(&self, position: u64) {
        self.position.store(position, Ordering::Release);
        self.says_position.store(true, Ordering::Release);
    }

    pub fn position(&self) -> u64 {
        self.position.load(Ordering::Acquire)
    }

    /// What is about to be done goes so far.
    pub fn set_read(&self, position: u64) {
        self.read.store(position, Ordering::Relaxed);
    }

    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// So much of that is on this server's disk; none where it keeps no log.
    pub fn set_synced(&self, position: Option<u64>) {
        self.synced.store(position.unwrap_or(NOTHING_SYNCED), Ordering::Release);
    }

    pub fn synced(&self) -> Option<u64> {
        Some(self.synced.load(Ordering::Acquire)).filter(|synced| *synced != NOTHING_SYNCED)
    }

    /// Says now how far this server is.
    pub fn acknowledge(&self) {
        if let Some(say) = &*self.say.lock().unwrap_or_else(PoisonError::into_inner) {
            // (Where nobody says anything any more the link has ended.)
            let _ = say.send(());
        }
    }

    /// Ends the link: its threads end, and tell nothing more.
    pub fn end(&self) {
        self.is_ended.store(true, Ordering::Release);
        self.break_off();
        self.say.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Breaks it off: what comes of that is told as of any other end.
    pub fn break_off(&self) {
        if let Some(socket) = &*self.socket.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = socket.socket().shutdown(Shutdown::Both);
        }
    }

    /// Whether nothing comes any more, although that may not have been told yet.
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    /// The primary has answered PSYNC with an error, and is not followed this time.
    pub fn was_refused(&self) -> bool {
        self.was_refused.load(Ordering::Acquire)
    }

    /// What the primary sends behind its snapshot cannot be followed: to go on in it would be to meet the same again.
    pub fn is_unfit(&self) -> bool {
        self.is_unfit.load(Ordering::Acquire)
    }

    /// The addresses of the two ends, the primary's first.
    pub fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let socket = socket.as_ref()?.socket();
        Some((socket.peer_addr().ok()?, socket.local_addr().ok()?))
    }

    fn heard(&self, bytes: usize) {
        self.heard_us.store(store_us(), Ordering::Relaxed);
        self.input_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// What happens on a link.
#[derive(Debug)]
pub enum Event {
    /// The primary's tokens of leases lie below, those included that it gives later.
    Tokens(u64),
    /// The primary takes this server for a replica, and sends a snapshot.
    Accepted,
    /// There is a snapshot of all data, under this name and up to this position.
    Snapshot {
        id: String,
        position: u64,
        comes: Comes,
    },
    /// The primary goes on where this server is; it may call the data otherwise.
    GoesOn {
        id: Option<String>,
    },
    Part(Batch),
    /// The link has ended, for this reason.
    Ended(String),
}

/// Begins a link. A shard is rung for with each event; where the link was ended from here the events end.
pub fn begin(goal: Goal, bells: Arc<[Bell]>, shard: usize) -> io::Result<(Arc<Shared>, Receiver<Event>)> {
    let shared = Arc::new(Shared::new());
    let (sender, events) = mpsc::sync_channel(PARTS);
    let of_thread = shared.clone();
    std::thread::Builder::new().name("replica-link".to_owned()).spawn(move || {
        let teller = Teller { sender, ring: Box::new(move || bells[shard].ring_from_outside()) };
        let reason = match run(&goal, &of_thread, &teller) {
            Ok(()) => return,
            Err(error) => error,
        };
        of_thread.is_lost.store(true, Ordering::Release);
        if !of_thread.is_ended.load(Ordering::Acquire) {
            teller.tell(Event::Ended(reason.to_string()));
        }
        of_thread.end();
        drop(teller.sender);
        (teller.ring)();
    })?;
    Ok((shared, events))
}

struct Teller {
    sender: SyncSender<Event>,
    ring: Box<dyn Fn() + Send>,
}

impl Teller {
    /// Whether somebody takes it.
    fn tell(&self, event: Event) -> bool {
        // (It may wait for room: whoever makes room need not be rung for that.)
        let is_taken = self.sender.send(event).is_ok();
        (self.ring)();
        is_taken
    }
}

fn run(goal: &Goal, shared: &Arc<Shared>, teller: &Teller) -> io::Result<()> {
    shared.set_stage(Stage::Connecting);
    let stream = connect(goal).map_err(|error| told_if_late(error, "Timeout connecting to the MASTER..."))?;
    stream.set_nodelay(!goal.delays)?;
    stream.set_read_timeout(Some(goal.timeout))?;
    stream.set_write_timeout(Some(goal.timeout))?;
    let stream = Arc::new(match &goal.tls {
        Some(settings) => Outgoing::secure(stream, settings)?,
        None => Outgoing::plain(stream),
    });
    *shared.socket.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream.clone());
    if shared.is_ended.load(Ordering::Acquire) {
        return Ok(());
    }
    let mut reader = BufReader::with_capacity(READ_BYTES, Counted { stream: stream.clone(), shared: shared.clone() });
    let mut talk = Talk { reader: &mut reader, stream: &stream };
    shared.set_stage(Stage::Handshake);
    let heard = handshake(goal, &mut talk);
    let (tokens, answer) = heard.map_err(|error| told_if_late(error, "Timeout connecting to the MASTER..."))?;
    if let Some(horizon) = tokens
        && !teller.tell(Event::Tokens(horizon))
    {
        return Ok(());
    }
    shared.set_stage(Stage::Sync);
    let words: Vec<&str> = answer.split(' ').collect();
    match words[..] {
        ["+FULLRESYNC", id, position] if id.len() == 40 => {
            let position = position.parse().ok().filter(|position| *position <= POSITION_MAX);
            let position = position.ok_or_else(|| refused("PSYNC", &answer))?;
            begin_to_say(shared, &stream)?;
            if !teller.tell(Event::Accepted) {
                return Ok(());
            }
            let late = "Timeout receiving bulk data from MASTER... If the problem persists try to set the 'repl-timeout' \
                        parameter to a larger value.";
            let is_taken = fetch(goal, shared, &mut reader, |comes| {
                teller.tell(Event::Snapshot { id: id.to_owned(), position, comes })
            });
            if !is_taken.map_err(|error| told_if_late(error, late))? {
                return Ok(());
            }
        }
        // (Where this server has nothing of the primary's there is nothing to go on with.)
        ["+CONTINUE", ref rest @ ..] if goal.has.is_some() => {
            let id = rest.first().filter(|id| id.len() == 40).map(|id| (*id).to_owned());
            begin_to_say(shared, &stream)?;
            if !teller.tell(Event::GoesOn { id }) {
                return Ok(());
            }
        }
        _ => {
            shared.was_refused.store(true, Ordering::Release);
            return Err(refused("PSYNC", &answer));
        }
    }
    follow(shared, &mut reader, Batches::new(goal.kept_bytes), teller)
}

/// The stream, until it ends.
fn follow(shared: &Shared, reader: &mut impl Read, mut batches: Batches, teller: &Teller) -> io::Result<()> {
    let mut bytes = vec![0; STREAM_BYTES];
    loop {
        let count = match reader.read(&mut bytes) {
            Ok(0) => return Err(io::Error::other("Connection with primary lost: it has closed the connection")),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if is_late(&error) => {
                return Err(io::Error::other("MASTER timeout: no data nor PING received..."));
            }
            Err(error) => return Err(error),
        };
        batches.push(&bytes[..count]);
        let next = |batches: &mut Batches| {
            batches.next().inspect_err(|_| shared.is_unfit.store(true, Ordering::Release)).map_err(io::Error::other)
        };
        while let Some(batch) = next(&mut batches)? {
            if shared.is_ended.load(Ordering::Acquire) || !teller.tell(Event::Part(batch)) {
                return Ok(());
            }
        }
    }
}

/// Where nothing came for too long the link ends for that reason.
fn told_if_late(error: io::Error, reason: &str) -> io::Error {
    if is_late(&error) { io::Error::other(reason) } else { error }
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// What comes is counted.
struct Counted {
    stream: Arc<Outgoing>,
    shared: Arc<Shared>,
}

impl Read for Counted {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = (&*self.stream).read(bytes)?;
        self.shared.heard(count);
        Ok(count)
    }
}

fn connect(goal: &Goal) -> io::Result<TcpStream> {
    let mut last = io::Error::other(format!("'{}' has no address", goal.host));
    for address in (goal.host.as_str(), goal.port).to_socket_addrs()? {
        match connect_to(address, goal) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn connect_to(address: SocketAddr, goal: &Goal) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    let source = goal.source.parse::<IpAddr>().ok().filter(|source| source.is_ipv4() == address.is_ipv4());
    if let Some(source) = source {
        socket.bind(&SockAddr::from(SocketAddr::new(source, 0)))?;
    }
    socket.connect_timeout(&SockAddr::from(address), goal.timeout)?;
    Ok(socket.into())
}

/// Questions and answers, before the stream.
struct Talk<'t, R> {
    reader: &'t mut BufReader<R>,
    stream: &'t Outgoing,
}

impl<R: Read> Talk<'_, R> {
    fn say(&mut self, args: &[&str]) -> io::Result<()> {
        let mut stream = self.stream;
        stream.write_all(command(args).as_bytes())
    }

    /// The next line that says something. (A primary that makes a snapshot sends empty ones.)
    fn hear(&mut self) -> io::Result<String> {
        loop {
            let line = payload::line(self.reader)?;
            if !line.is_empty() {
                return Ok(line);
            }
        }
    }

    fn ask(&mut self, args: &[&str]) -> io::Result<String> {
        self.say(args)?;
        self.hear()
    }
}

fn command(args: &[&str]) -> String {
    let mut out = format!("*{}\r\n", args.len());
    args.iter().for_each(|arg| out += &format!("${}\r\n{arg}\r\n", arg.len()));
    out
}

fn refused(what: &str, answer: &str) -> io::Error {
    io::Error::other(format!("the primary answers {what} with '{}'", answer.escape_debug()))
}

/// Up to the answer to PSYNC; and what the primary says of its tokens, if it gives any.
fn handshake<R: Read>(goal: &Goal, talk: &mut Talk<R>) -> io::Result<(Option<u64>, String)> {
    let pong = talk.ask(&["PING"])?;
    // Who has to say a password first says so here, and is as good. So is who takes no writes since the disk does not.
    if !(pong.starts_with('+') || ["-NOAUTH", "-NOPERM", "-MISCONF"].iter().any(|error| pong.starts_with(error))) {
        return Err(refused("PING", &pong));
    }
    if !goal.password.is_empty() {
        let answer = match goal.user.is_empty() {
            true => talk.ask(&["AUTH", &goal.password])?,
            false => talk.ask(&["AUTH", &goal.user, &goal.password])?,
        };
        if answer.starts_with('-') {
            return Err(io::Error::other(format!("Unable to AUTH to MASTER: {}", answer.escape_debug())));
        }
    }
    // (What a primary does not know of these it says, and goes on, as in Redis.)
    talk.ask(&["REPLCONF", "listening-port", &goal.own_port.to_string()])?;
    if !goal.own_address.is_empty() {
        talk.ask(&["REPLCONF", "ip-address", &goal.own_address])?;
    }
    talk.ask(&["REPLCONF", "capa", "eof", "capa", "psync2"])?;
    talk.ask(&[
        "REPLCONF",
        "capa",
        "field-deadlines",
        "capa",
        "member-deadlines",
        "capa",
        "key-groups",
        "capa",
        "key-pins",
    ])?;
    let tokens = talk.ask(&["REPLCONF", "capa", "lease-tokens"])?;
    let tokens = tokens.strip_prefix("+OK ").and_then(|horizon| horizon.parse().ok());
    let (id, offset) = match &goal.has {
        Some((id, position)) => (id.as_str(), (position + 1).to_string()),
        None => ("?", "-1".to_owned()),
    };
    let answer = match goal.takes_over {
        true => talk.ask(&["PSYNC", id, &offset, "FAILOVER"])?,
        false => talk.ask(&["PSYNC", id, &offset])?,
    };
    Ok((tokens, answer))
}

/// Where a snapshot is read.
#[derive(Debug)]
pub enum Comes {
    /// All of it is there.
    InFile(Nameless),
    Now(PipeReader),
}

/// Reads the snapshot into its file, or hands it on as it comes; `tell` says so: at the end of the one, at the begin of the
/// other. Whether somebody takes it.
fn fetch(
    goal: &Goal,
    shared: &Shared,
    reader: &mut impl io::BufRead,
    tell: impl FnOnce(Comes) -> bool,
) -> io::Result<bool> {
    let mut line = payload::line(reader)?;
    while line.is_empty() {
        line = payload::line(reader)?;
    }
    if line.starts_with('-') {
        return Err(refused("PSYNC", &line));
    }
    let extent = payload::extent(&line)?;
    if let payload::Extent::Bytes(bytes) = extent {
        shared.snapshot_bytes.store(bytes, Ordering::Relaxed);
    }
    let note = |read| shared.snapshot_read.store(read, Ordering::Relaxed);
    if let Some(path) = &goal.path {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
        // Nobody else needs its name, and whatever ends this server leaves nothing behind.
        std::fs::remove_file(path)?;
        let mut file = BufWriter::with_capacity(1 << 20, file);
        payload::copy(reader, &extent, &mut file, note)?;
        let mut file = file.into_inner()?;
        file.rewind()?;
        return Ok(tell(Comes::InFile(Nameless::new(file))));
    }
    let (comes, mut goes) = io::pipe()?;
    // Whoever loads sees the end where this one ends, for whatever reason.
    let is_taken = tell(Comes::Now(comes));
    payload::copy(reader, &extent, &mut goes, note)?;
    Ok(is_taken)
}

fn acknowledgement(position: u64, synced: Option<u64>) -> String {
    let (position, synced) = (position.to_string(), synced.map(|synced| synced.to_string()));
    let words = ["REPLCONF", "ACK", &position].into_iter().chain(synced.iter().flat_map(|synced| ["FACK", synced]));
    command(&words.collect::<Vec<_>>())
}

/// Says from time to time that this server is there, and how far it is.
fn begin_to_say(shared: &Arc<Shared>, stream: &Arc<Outgoing>) -> io::Result<()> {
    let (say, said) = mpsc::channel();
    *shared.say.lock().unwrap_or_else(PoisonError::into_inner) = Some(say);
    let (stream, shared) = (stream.clone(), shared.clone());
    let work = move || {
        loop {
            match said.recv_timeout(SAY_EVERY) {
                Err(RecvTimeoutError::Disconnected) => return,
                // Those that have come meanwhile are answered at once.
                Ok(()) => said.try_iter().for_each(drop),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let text = match shared.says_position.load(Ordering::Acquire) {
                true => acknowledgement(shared.position(), shared.synced()),
                false => "\n".to_owned(),
            };
            if (&*stream).write_all(text.as_bytes()).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("replica-acks".to_owned()).spawn(work).map(drop)
}
