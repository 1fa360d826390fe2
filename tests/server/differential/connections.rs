//! Several connections at once: transactions that others' changes spoil, messages, invalidations, who waits and who wakes
//! them, protocols that change in the middle of a pipeline. After each step every connection has received the same from both
//! servers, and as many clients wait.
//!
//! A step is a pipeline of one connection, or one of each with keys of its own, which all are under way at the same time. It
//! ends with a PING whose text tells that everything before it was answered.
//!
//! `EMBERDB_DIFF_STEPS` and `EMBERDB_DIFF_SEED` hold for it, too.

#[path = "connections/draw.rs"]
mod draw;

use std::collections::{BTreeSet, VecDeque};
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::common::{Client, Kind, Server, Value, bulk, encode, have_tool, simple, wait_until};
use crate::differential::generate::Args;
use crate::differential::setting;
use draw::{Draw, ID, RAW};

/// So many steps of other runs take as long as one of these.
const STEPS_PER_STEP: u64 = 20;
const DEFAULT_STEPS: u64 = 300;
const CONNECTIONS: usize = 5;
/// How long one look at a connection takes.
const QUIET: Duration = Duration::from_micros(40);
const LIMIT: Duration = Duration::from_secs(20);
const SHOWN: usize = 60;

#[test]
fn one_shard_tells_several_what_redis_tells_them() {
    compare(Kind::Ember { shards: 1 });
}

#[test]
fn three_shards_tell_several_what_redis_tells_them() {
    compare(Kind::Ember { shards: 3 });
}

#[test]
fn redis_tells_several_what_redis_tells_them() {
    compare(Kind::Redis);
}

fn compare(kind: Kind) {
    if !have_tool("redis-server") {
        return;
    }
    let seed = setting("EMBERDB_DIFF_SEED").unwrap_or_else(|| fastrand::u64(..));
    let steps = setting("EMBERDB_DIFF_STEPS").map_or(DEFAULT_STEPS, |steps| steps.div_ceil(STEPS_PER_STEP));
    let mut draw = Draw { rng: Rng::with_seed(seed) };
    let mut run = Run {
        sides: [Side::new(Kind::Redis), Side::new(kind)],
        swaps: draw.rng.bool(),
        draw,
        seed,
        steps: 0,
        invalid: vec![BTreeSet::new(); CONNECTIONS],
        log: Vec::new(),
    };
    for step in 1..=steps {
        run.steps = step;
        run.step();
    }
}

struct Side {
    server: Server,
    control: Client,
    connections: Vec<Connection>,
}

struct Connection {
    client: Client,
    id: String,
    /// What it has received in this step.
    received: Vec<Value>,
    closed: bool,
}

/// A request, or bytes that are none.
enum Said {
    Request(Args),
    Raw(&'static [u8]),
}

impl Side {
    fn new(kind: Kind) -> Side {
        let server = Server::start(kind, &[]);
        let control = server.client();
        let connections = (0..CONNECTIONS).map(|_| Connection::new(&server)).collect();
        Side { server, control, connections }
    }

    fn send(&mut self, from: usize, about: usize, said: &[Said], mark: &str) {
        let about = self.connections[about].id.clone();
        let mut bytes = Vec::new();
        for said in said {
            match said {
                Said::Raw(raw) => bytes.extend_from_slice(raw),
                Said::Request(args) => {
                    let with_id = |arg: &Vec<u8>| if arg == ID { about.clone().into_bytes() } else { arg.clone() };
                    bytes.extend(encode(&args.iter().map(with_id).collect::<Args>()));
                }
            }
        }
        bytes.extend(encode(&["PING", mark]));
        let connection = &mut self.connections[from];
        // A connection that the server has ended is seen when its end is read.
        let _ = connection.client.try_send_raw(&bytes);
    }

    fn receive(&mut self) {
        self.connections.iter_mut().for_each(Connection::receive);
    }

    /// Whether a connection has nothing before it any more: it was told so, is at an end, queues, or waits.
    fn is_through(&mut self, which: usize, requests: usize, mark: &str) -> bool {
        let connection = &self.connections[which];
        let is_mark = |value: &Value| *value == bulk(mark) || *value == Value::bulks(&["pong", mark]);
        let told = |value: &Value| match value {
            Value::Array(items) => is_mark(value) || items.iter().any(is_mark),
            _ => is_mark(value),
        };
        if connection.closed || connection.received.iter().any(told) {
            return true;
        }
        // (RESP3 answers SUBSCRIBE with pushes.)
        let is_reply = |value: &&Value| match value {
            Value::Push(items) => items[0].bytes().is_some_and(|kind| kind.ends_with(b"subscribe")),
            _ => true,
        };
        let replies: Vec<&Value> = connection.received.iter().filter(is_reply).collect();
        if replies.last() == Some(&&simple("QUEUED")) && replies.len() > requests {
            return true;
        }
        self.waits(which)
    }

    fn waits(&mut self, which: usize) -> bool {
        let id = &self.connections[which].id;
        let line = self.control.call(&format!("CLIENT LIST ID {id}")).text();
        let flags = line.split_whitespace().find_map(|field| field.strip_prefix("flags="));
        flags.is_none_or(|flags| flags.contains('b'))
    }

    /// How many clients wait.
    fn blocked(&mut self) -> String {
        let text = self.control.call("INFO clients").text();
        let line = text.lines().find(|line| line.starts_with("blocked_clients:"));
        line.expect("blocked_clients").trim().to_string()
    }

    fn told(&self) -> Vec<Told> {
        self.connections.iter().map(|connection| Told::of(&connection.received, connection.closed)).collect()
    }
}

impl Connection {
    fn new(server: &Server) -> Connection {
        let mut client = server.client();
        let id = client.call("CLIENT ID").number().to_string();
        // (Times of a few microseconds are long ones to a socket that blocks.)
        client.stream().set_nonblocking(true).expect("a socket");
        Connection { client, id, received: Vec::new(), closed: false }
    }

    fn receive(&mut self) {
        while !self.closed {
            match self.client.try_read_within(QUIET) {
                Ok(value) => self.received.push(value),
                Err(error) if error.kind() == ErrorKind::TimedOut => return,
                Err(_) => self.closed = true,
            }
        }
    }
}

/// What a connection has received, in an order of which something can be said.
#[derive(Clone, Debug, Default, PartialEq)]
struct Told {
    replies: Vec<Value>,
    /// Messages of RESP2: where they stand between the replies is open.
    messages: Vec<Value>,
    /// Pushes of RESP3 and events of keys, which may come in any order, and what one UNSUBSCRIBE without names says.
    aside: Vec<Value>,
    /// Keys that it must not remember; how often it is told, and how many at once, is open. (Who is closed remembers nothing.)
    invalid: BTreeSet<Vec<u8>>,
    closed: bool,
}

impl Told {
    fn of(received: &[Value], closed: bool) -> Told {
        let mut told = Told { closed, ..Told::default() };
        let mut left: VecDeque<Value> = received.iter().cloned().collect();
        while let Some(value) = left.pop_front() {
            match &value {
                Value::Array(items) if !is_message(items) && items.iter().any(is_between) => {
                    unmix(items, &mut left);
                }
                Value::Push(items) | Value::Array(items) if is_invalidation(items) => {
                    if let Some(Value::Array(keys)) = items.last() {
                        told.invalid.extend(keys.iter().filter_map(Value::bytes).map(<[u8]>::to_vec));
                    }
                }
                Value::Push(items) | Value::Array(items) if is_farewell(items) => {
                    // How many are left depends on which went before.
                    told.aside.push(Value::Array(items[..2].to_vec()));
                }
                // (Patterns that match one message have no order.)
                Value::Array(items) if is_event(items) || items.first() == Some(&bulk("pmessage")) => {
                    told.aside.push(value.clone())
                }
                Value::Array(items) if is_message(items) => told.messages.push(value.clone()),
                Value::Push(items) if items[0] == bulk("tracking-redir-broken") => told.aside.push(items[0].clone()),
                Value::Push(_) => told.aside.push(value.clone()),
                _ => told.replies.push(without_own(&value)),
            }
        }
        told.aside.sort();
        if closed {
            told.invalid.clear();
        }
        told
    }
}

impl Told {
    /// What is said whatever is tracked.
    fn without_tracking(&self) -> Told {
        let is_other = |value: &&Value| **value != bulk("tracking-redir-broken");
        let aside = self.aside.iter().filter(is_other).cloned().collect();
        Told { invalid: BTreeSet::new(), aside, ..self.clone() }
    }

    /// Whether both were told the same. One key may have been named a second time since `before`.
    fn says(&self, other: &Told, before: &BTreeSet<Vec<u8>>) -> bool {
        let (ours, theirs) = (self.invalid.difference(before), other.invalid.difference(before));
        let is_named_again = self.invalid != other.invalid && ours.eq(theirs);
        *self == *other || is_named_again && Told { invalid: other.invalid.clone(), ..self.clone() } == *other
    }
}

/// What Redis 7.0 sends in the middle of the reply to EXEC, where it counts as an element.
fn is_between(value: &Value) -> bool {
    match value {
        Value::Push(_) => true,
        Value::Array(items) => is_message(items),
        _ => false,
    }
}

/// Puts a reply back without what came in the middle of it, and that behind it.
fn unmix(items: &[Value], left: &mut VecDeque<Value>) {
    let (mut between, mut reply): (Vec<Value>, Vec<Value>) = items.iter().cloned().partition(is_between);
    while reply.len() < items.len() {
        match left.pop_front() {
            Some(value) if is_between(&value) => between.push(value),
            Some(value) => reply.push(value),
            None => break,
        }
    }
    between.into_iter().rev().for_each(|value| left.push_front(value));
    left.push_front(Value::Array(reply));
}

fn is_invalidation(items: &[Value]) -> bool {
    let texts: Vec<&[u8]> = items.iter().filter_map(Value::bytes).collect();
    matches!(texts.as_slice(), [b"invalidate", ..] | [b"message", b"__redis__:invalidate", ..])
}

fn is_farewell(items: &[Value]) -> bool {
    items.len() == 3 && items[0].bytes().is_some_and(|kind| kind.ends_with(b"unsubscribe"))
}

fn is_message(items: &[Value]) -> bool {
    matches!(items.first().and_then(Value::bytes), Some(b"message" | b"pmessage" | b"smessage"))
}

/// Events of different keys have no order between shards.
fn is_event(items: &[Value]) -> bool {
    is_message(items) && items.iter().any(|item| item.bytes().is_some_and(|text| text.starts_with(b"__key")))
}

/// A reply without what is a server's own: numbers and addresses of clients, versions.
fn without_own(value: &Value) -> Value {
    let masked = |pairs: &[(Value, Value)]| {
        let own = |key: &Value| key.bytes().is_some_and(|key| key == b"version" || key == b"id");
        pairs
            .iter()
            .map(|(key, value)| if own(key) { (key.clone(), Value::Null) } else { (key.clone(), value.clone()) })
            .collect::<Vec<_>>()
    };
    match value {
        Value::Map(pairs) => Value::Map(masked(pairs)),
        Value::Array(items) if items.first().and_then(Value::bytes) == Some(b"server") => {
            let pairs: Vec<(Value, Value)> =
                items.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
            Value::Map(masked(&pairs))
        }
        Value::Array(items) => Value::Array(items.iter().map(without_own).collect()),
        Value::Bulk(text) | Value::Verbatim(_, text) if text.starts_with(b"id=") => simple("<clients>"),
        other => other.clone(),
    }
}

struct Run {
    /// Redis, and what is compared with it.
    sides: [Side; 2],
    draw: Draw,
    /// Whether databases change places, which whoever tracks is told of, and of which Redis says nothing: what is told of changes is
    /// not compared then.
    swaps: bool,
    seed: u64,
    steps: u64,
    /// The keys that each connection was told not to remember in the step before.
    invalid: Vec<BTreeSet<Vec<u8>>>,
    log: Vec<String>,
}

impl Run {
    fn step(&mut self) {
        self.replace_closed();
        let waits = self.sides[0].blocked() != "blocked_clients:0";
        let speakers: Vec<usize> = match self.draw.rng.u32(..6) {
            0 if !waits => (0..CONNECTIONS).collect(),
            _ => vec![self.speaker()],
        };
        let apart = speakers.len() > 1;
        let mut sent = Vec::new();
        for &speaker in &speakers {
            let count = self.draw.one(&[1, 1, 1, 2, 3, 5]);
            // Which of several changes on different shards serves a client that waits is open.
            let count = if waits { 1 } else { count };
            let mut said = Vec::new();
            while said.len() < count {
                let next = self.say(apart, waits, speaker);
                // Nobody has more before him that may serve others when he is served.
                let is_last = matches!(&next, Said::Request(args) if Draw::may_wait(args));
                said.push(next);
                if is_last {
                    break;
                }
            }
            let about = self.draw.rng.usize(..CONNECTIONS);
            let mark = format!("mark-{}-{speaker}", self.steps);
            self.note(speaker, about, &said);
            self.sides.iter_mut().for_each(|side| side.send(speaker, about, &said, &mark));
            sent.push((speaker, said.len(), mark));
        }
        self.settle(&sent);
    }

    fn say(&mut self, apart: bool, waits: bool, speaker: usize) -> Said {
        if apart {
            return Said::Request(self.draw.apart(&format!(":{speaker}")));
        }
        if self.draw.rng.u32(..50) == 0 {
            return Said::Raw(self.draw.one(&RAW));
        }
        loop {
            let args = self.draw.request();
            let is = |name: &[u8]| args[0].eq_ignore_ascii_case(name);
            // From which of the keys that EXEC has changed on several shards a client is served is open.
            if !(waits && is(b"EXEC") || !self.swaps && is(b"SWAPDB")) {
                return Said::Request(args);
            }
        }
    }

    fn note(&mut self, speaker: usize, about: usize, said: &[Said]) {
        let shown = |said: &Said| match said {
            Said::Raw(raw) => format!("(raw) {}", raw.escape_ascii()),
            Said::Request(args) => {
                let args: Vec<String> = args.iter().map(|arg| format!("\"{}\"", arg.escape_ascii())).collect();
                args.join(" ")
            }
        };
        let said: Vec<String> = said.iter().map(shown).collect();
        self.log.push(format!("{} connection {speaker} (about {about}): {}", self.steps, said.join("; ")));
    }

    /// Waits until Redis has nothing to do any more, and then for the same from the other.
    fn settle(&mut self, sent: &[(usize, usize, String)]) {
        let [oracle, subject] = &mut self.sides;
        let end = Instant::now() + LIMIT;
        let mut through = false;
        while !through && Instant::now() < end {
            oracle.receive();
            through = sent.iter().all(|(which, requests, mark)| oracle.is_through(*which, *requests, mark));
        }
        // Before it answers this, Redis has sent everybody everything.
        oracle.control.call("PING");
        oracle.receive();
        let (wanted, blocked) = (oracle.told(), oracle.blocked());
        let end = Instant::now() + LIMIT;
        let mut same = false;
        while through && !same && Instant::now() < end {
            subject.receive();
            let told = subject.told();
            let pairs = told.iter().zip(&wanted).zip(&self.invalid);
            same = pairs.into_iter().all(|((ours, theirs), before)| match self.swaps {
                true => ours.without_tracking() == theirs.without_tracking(),
                false => ours.says(theirs, before),
            });
            same = same && subject.blocked() == blocked;
        }
        if !same {
            self.fail(through, &wanted);
        }
        self.invalid = wanted.into_iter().map(|told| told.invalid).collect();
        for side in &mut self.sides {
            side.connections.iter_mut().for_each(|connection| connection.received.clear());
        }
    }

    /// Somebody who does not wait; now and then one who waits hangs up for it.
    fn speaker(&mut self) -> usize {
        loop {
            let which = self.draw.rng.usize(..CONNECTIONS);
            if !self.sides[0].waits(which) {
                return which;
            }
            if self.draw.rng.u32(..20) == 0 {
                self.come_anew(which);
            }
        }
    }

    /// Who was disconnected comes again, and now and then somebody hangs up.
    fn replace_closed(&mut self) {
        let hangs_up = (self.draw.rng.u32(..100) == 0).then(|| self.draw.rng.usize(..CONNECTIONS));
        for which in 0..CONNECTIONS {
            if self.sides[0].connections[which].closed || hangs_up == Some(which) {
                self.come_anew(which);
            }
        }
    }

    fn come_anew(&mut self, which: usize) {
        self.log.push(format!("{} connection {which} comes anew", self.steps));
        for side in &mut self.sides {
            let before = side.connections[which].id.clone();
            side.connections[which] = Connection::new(&side.server);
            let gone = |side: &mut Side| side.control.call(&format!("CLIENT LIST ID {before}")).text().is_empty();
            assert!(wait_until(LIMIT, || gone(side)), "who has hung up is listed");
        }
    }

    fn fail(&self, through: bool, wanted: &[Told]) -> ! {
        let mut text = format!("step {}, EMBERDB_DIFF_SEED={}\n", self.steps, self.seed);
        if !through {
            text += "Redis itself has not come to an end\n";
        }
        let kind = self.sides[1].server.kind();
        for (which, (ours, theirs)) in self.sides[1].told().iter().zip(wanted).enumerate() {
            if ours != theirs {
                text += &format!("connection {which}\n  {kind:?}: {ours:?}\n  Redis: {theirs:?}\n");
            }
        }
        let from = self.log.len().saturating_sub(SHOWN);
        panic!("{text}{}", self.log[from..].join("\n"));
    }
}
