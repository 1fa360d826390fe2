//! Scripts (`src/lua`, `src/script`): whatever the source, the machine stays whole, a script ends, and what it answers is
//! a reply. Whether the machine stays whole is what an address sanitiser sees (`scripts/fuzz script SECONDS`).
//!
//! Input that begins with `--` is source as it stands. Any other input is a row of choices, of which a program is made
//! that calls the libraries with values at the ends of their ranges ([`super::program`]). Several programs run at a time,
//! in turns, on one machine that many programs have used.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use emberdb::config::RedisVersion;
use emberdb::resp::{Error, Proto, Reply, Request};
use emberdb::script::{Answer, Bounds, Call, Called, Host, Outcome, Scripts, Shelf, Visible};

use super::program;

/// What scripts may use. Little, so that many programs fill it.
const BOUNDS: Bounds = Bounds { reply_bytes: 1 << 20, memory_bytes: 24 << 20, instructions: 300_000 };
/// What sources and functions of ours may have beyond.
const MEMORY_MAX: usize = 1 << 30;
/// Programs that a machine runs before another takes its place.
const PROGRAMS: usize = 300;
/// Programs that run at a time.
const CALLS: usize = 3;
/// A program that has not come to its end by then never does.
const TURNS_MAX: usize = 200_000;

struct Bench {
    scripts: Rc<Scripts>,
    calls: Vec<Call>,
    programs: usize,
}

thread_local! {
    static BENCH: RefCell<Option<Bench>> = const { RefCell::new(None) };
}

pub fn check(bytes: &[u8]) {
    let source = match bytes {
        [b'-', b'-', ..] => bytes.to_vec(),
        choices => program::make(choices).into_bytes(),
    };
    BENCH.with_borrow_mut(|bench| {
        let bench = bench.get_or_insert_with(|| Bench::new(bytes.first().is_some_and(|byte| byte % 2 == 1)));
        bench.begin(&source, if bytes.len().is_multiple_of(2) { Proto::Resp2 } else { Proto::Resp3 });
        // All but the last programs go on a little; the last one has to end sometime.
        for _ in 0..4 {
            bench.calls.retain_mut(|call| !go_on(call));
        }
        if bench.calls.len() == CALLS {
            let mut call = bench.calls.remove(usize::from(bytes.last().is_some_and(|byte| byte % 2 == 0)));
            match bytes.last() {
                // It is given up where it stands.
                Some(7) => drop(call),
                _ => assert!((0..TURNS_MAX).any(|_| go_on(&mut call)), "a program does not end"),
            }
        }
        let used = bench.scripts.machine.memory().used();
        assert!(used < MEMORY_MAX, "{used} bytes");
        if bench.scripts.machine.is_tight() || bench.scripts.machine.wants_collection() {
            while !bench.scripts.machine.collect_some() {}
        }
    });
    BENCH.with_borrow_mut(|bench| bench.take_if(|bench| bench.programs >= PROGRAMS));
}

impl Bench {
    fn new(deprecated: bool) -> Bench {
        let visible = Visible { version: RedisVersion::DEFAULT, deprecated };
        let scripts = Rc::new(Scripts::new(Arc::<Shelf>::default(), BOUNDS.memory_bytes, visible));
        Bench { scripts, calls: Vec::new(), programs: 0 }
    }

    fn begin(&mut self, source: &[u8], proto: Proto) {
        self.programs += 1;
        let Ok(script) = self.scripts.load(source, true) else { return };
        let called = Called::Script(self.scripts.clone(), script);
        let (keys, args) = ([&b"k1"[..], b"k\r\n2"], [&b"0"[..], b"-1e308", b"x\0y"]);
        // Now and then they count as much, which is not left behind.
        let bytes = if self.programs.is_multiple_of(2) { 1 << 10 } else { 1 << 20 };
        if let Ok(call) = Call::new(called, keys.into_iter(), args.into_iter(), bytes, proto, BOUNDS) {
            self.calls.push(call);
        }
    }
}

/// One turn of a call; whether it is over.
fn go_on(call: &mut Call) -> bool {
    match call.go_on(&Echo, Duration::ZERO) {
        Outcome::Done(reply) => {
            let rest = skip_reply(&reply, 0);
            assert_eq!(rest, Some(&b""[..]), "no reply: {}", reply[..reply.len().min(1000)].escape_ascii());
            return true;
        }
        Outcome::Unfinished => {}
        Outcome::Asks(asked) => {
            let mut out = Vec::new();
            answer(asked.request(), asked.proto, &mut out);
            call.answer(out);
        }
    }
    false
}

/// Answers commands with what they ask for.
struct Echo;

impl Host for Echo {
    fn run(&self, request: Request, proto: Proto, out: &mut Vec<u8>) -> Answer {
        match request.get(0) {
            Some(b"later") => return Answer::Later,
            Some(b"refuse") => return Answer::Refused(Error::text("ERR refused")),
            _ => answer(request, proto, out),
        }
        Answer::Written
    }

    fn allows(&self, request: Request) -> Option<bool> {
        (request.get(0) != Some(b"refuse")).then_some(true)
    }
}

fn answer(request: Request, proto: Proto, out: &mut Vec<u8>) {
    out.clear();
    let mut reply = Reply::new(out, proto);
    let text = request.get(1).unwrap_or_default();
    match request.get(0).and_then(|name| name.first()).map_or(0, |byte| byte % 12) {
        0 => reply.bulk(text),
        1 => reply.int(text.len() as i64),
        2 => reply.nil(),
        3 => reply.double(text.len() as f64 / 3.0),
        4 => reply.error(Error::Bytes(text.into())),
        5 => reply.bool(text.is_empty()),
        6 => reply.verbatim("txt", "text"),
        7 => {
            reply.map(2);
            (0..4).for_each(|_| reply.bulk(text));
        }
        8 => {
            reply.set(2);
            reply.bulk(text);
            reply.nil();
        }
        9 => {
            reply.array(300);
            (0..300).for_each(|index| reply.int(index));
        }
        10 => {
            (0..200).for_each(|_| reply.array(1));
            reply.nil_array();
        }
        _ => reply.ok(),
    }
}

/// What is behind the reply that these bytes begin with, if they do.
fn skip_reply(bytes: &[u8], depth: usize) -> Option<&[u8]> {
    if depth > 2_000 {
        return None;
    }
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let (line, rest) = (&bytes[..end], &bytes[end + 2..]);
    let (kind, text) = line.split_first()?;
    if text.contains(&b'\r') || text.contains(&b'\n') {
        return None;
    }
    let count = || std::str::from_utf8(text).ok()?.parse::<i64>().ok();
    let items = |count: i64| (0..count).try_fold(rest, |rest, _| skip_reply(rest, depth + 1));
    match kind {
        b'+' | b'-' | b'_' | b'#' | b',' | b'(' => Some(rest),
        b':' => count().map(|_| rest),
        b'$' | b'=' if count()? == -1 => Some(rest),
        b'$' | b'=' => {
            let len = usize::try_from(count()?).ok()?;
            rest.get(len..)?.strip_prefix(b"\r\n")
        }
        b'*' | b'~' => items(count()?),
        b'%' => items(count()?.checked_mul(2)?),
        _ => None,
    }
}
