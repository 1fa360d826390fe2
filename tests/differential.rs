//! EmberDB answers what redis-server answers: the same random commands, bad ones included, go to both, and every reply
//! is compared, errors by their full text. What may differ is listed in one place, [`compare::Rule`].
//!
//! `differential/generate.rs` makes the commands, `differential/compare.rs` says when two replies are the same. Both
//! servers get the same bytes, pipelined in chunks of random size. EmberDB promises order for each key and treats
//! commands of several keys and of the session as barriers, so the replies of a pipeline are determined.
//!
//! - `EMBERDB_DIFF_STEPS`: how many commands each test sends (default [`DEFAULT_STEPS`])
//! - `EMBERDB_DIFF_SEED`: the seed; a failure prints the one that it used. The same seed makes the same commands.

mod common;
#[path = "differential/compare.rs"]
mod compare;
#[path = "differential/generate.rs"]
mod generate;

use std::collections::BTreeSet;
use std::env;
use std::time::{Duration, Instant};

use common::{Client, Kind, Server, Value, encode, have_tool, simple, words};
use compare::Rule;
use generate::{Args, Generator, KEYS, Step};

const DEFAULT_STEPS: usize = 20_000;
/// After so many steps the two keyspaces are compared as a whole.
const STEPS_PER_AUDIT: usize = 2_000;
/// So many earlier commands on the same keys are shown at a failure.
const SHOWN_PREDECESSORS: usize = 25;
const DATABASES: usize = 16;

#[test]
fn one_shard_answers_what_redis_answers() {
    compare_with_redis(Kind::Ember { shards: 1 }, "HELLO 2");
}

#[test]
fn three_shards_answer_what_redis_answers() {
    compare_with_redis(Kind::Ember { shards: 3 }, "HELLO 2");
}

#[test]
fn three_shards_answer_what_redis_answers_in_resp3() {
    compare_with_redis(Kind::Ember { shards: 3 }, "HELLO 3");
}

/// The test's own test: where this one fails, a command or a rule is at fault, not EmberDB.
#[test]
fn redis_answers_what_redis_answers() {
    compare_with_redis(Kind::Redis, "HELLO 3");
}

fn compare_with_redis(kind: Kind, hello: &str) {
    if !have_tool("redis-server") {
        return;
    }
    let seed = setting("EMBERDB_DIFF_SEED").unwrap_or_else(|| fastrand::u64(..));
    let steps = setting("EMBERDB_DIFF_STEPS").map_or(DEFAULT_STEPS, |n| n as usize);
    Run::new(kind, seed, hello).compare(steps);
}

fn setting(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

/// One server and what this test has to say to it.
struct Side {
    server: Server,
    commands: Client,
    /// The second connection, which changes keys that the first one watches.
    elsewhere: Client,
    audit: Client,
}

impl Side {
    fn new(kind: Kind, hello: &str) -> Side {
        let server = Server::start(kind, &["--enable-debug-command", "yes"]);
        let mut commands = server.client();
        assert!(!commands.call(hello).is_error(), "{hello}");
        let (elsewhere, audit) = (server.client(), server.client());
        Side { server, commands, elsewhere, audit }
    }

    /// The reply to the next command of this side's pipeline.
    fn read(&mut self, report: impl Fn() -> String) -> Value {
        self.commands.try_read().unwrap_or_else(|error| panic!("{:?}: {error}\n{}", self.server.kind(), report()))
    }
}

/// A command, and who sent it.
struct Said {
    elsewhere: bool,
    args: Args,
}

struct Run {
    seed: u64,
    subject: Side,
    oracle: Side,
    generator: Generator,
    history: Vec<Said>,
    /// The rules for the replies to the commands that wait for EXEC.
    queued: Vec<Rule>,
    /// The longest that a chunk took from its first byte to its last reply. Each server may execute a command at any
    /// moment of that time, so two remaining times may differ by as much through no fault of theirs.
    slowest_chunk: Duration,
}

impl Run {
    fn new(kind: Kind, seed: u64, hello: &str) -> Run {
        Run {
            seed,
            subject: Side::new(kind, hello),
            oracle: Side::new(Kind::Redis, hello),
            generator: Generator::new(seed),
            history: Vec::new(),
            queued: Vec::new(),
            slowest_chunk: Duration::ZERO,
        }
    }

    fn compare(&mut self, steps: usize) {
        let mut chunk: Vec<(Args, Rule)> = Vec::new();
        let mut chunk_limit = self.generator.chunk_size();
        for step in 1..=steps {
            match self.generator.next_step() {
                Step::Command(args, rule) => chunk.push((args, rule)),
                special => {
                    self.send_chunk(std::mem::take(&mut chunk));
                    self.special(special);
                }
            }
            let audit_is_due = step % STEPS_PER_AUDIT == 0 || step == steps;
            if chunk.len() >= chunk_limit || audit_is_due {
                self.send_chunk(std::mem::take(&mut chunk));
                chunk_limit = self.generator.chunk_size();
            }
            if audit_is_due {
                self.audit();
            }
        }
    }

    fn send_chunk(&mut self, chunk: Vec<(Args, Rule)>) {
        let bytes: Vec<u8> = chunk.iter().flat_map(|(args, _)| encode(args)).collect();
        let begin = Instant::now();
        self.subject.commands.send_raw(&bytes);
        self.oracle.commands.send_raw(&bytes);
        let mut replies = Vec::with_capacity(chunk.len());
        for (args, rule) in chunk {
            self.history.push(Said { elsewhere: false, args });
            let subject = self.subject.read(|| report(self.seed, &self.history));
            let oracle = self.oracle.read(|| report(self.seed, &self.history));
            replies.push((self.history.len(), rule, subject, oracle));
        }
        self.slowest_chunk = self.slowest_chunk.max(begin.elapsed());
        for (past, rule, subject, oracle) in replies {
            if !self.same(past, rule, &subject, &oracle) {
                self.fail(&self.history[..past], &subject, &oracle);
            }
        }
    }

    /// Whether two replies to the last of the first `past` commands are the same. Those in the reply to EXEC are so by
    /// the rules of their own commands.
    fn same(&mut self, past: usize, rule: Rule, subject: &Value, oracle: &Value) -> bool {
        if *oracle == simple("QUEUED") {
            self.queued.push(rule);
            return subject == oracle;
        }
        let skew = self.slowest_chunk;
        match self.history[past - 1].args[0].to_ascii_uppercase().as_slice() {
            b"EXEC" | b"DISCARD" if !is_refused(oracle) => {
                let queued = std::mem::take(&mut self.queued);
                let (Value::Array(subjects), Value::Array(oracles)) = (subject, oracle) else {
                    return subject == oracle;
                };
                let mut pairs = subjects.iter().zip(oracles).zip(&queued);
                subjects.len() == queued.len()
                    && oracles.len() == queued.len()
                    && pairs.all(|((subject, oracle), rule)| rule.same(subject, oracle, skew))
            }
            _ => rule.same(subject, oracle, skew),
        }
    }

    fn special(&mut self, step: Step) {
        let (args, subject, oracle) = match step {
            Step::Elsewhere(args, rule) => {
                let subject = self.subject.elsewhere.command(&args);
                let oracle = self.oracle.elsewhere.command(&args);
                self.history.push(Said { elsewhere: true, args });
                if !rule.same(&subject, &oracle, self.slowest_chunk) {
                    self.fail(&self.history, &subject, &oracle);
                }
                return;
            }
            Step::Scan(options) => {
                let subject = scan(&mut self.subject.commands, &options);
                let oracle = scan(&mut self.oracle.commands, &options);
                let args = [words("SCAN 0"), options].concat();
                (args, subject, oracle)
            }
            Step::RandomKey => {
                let subject = random_key_exists(&mut self.subject.commands);
                let oracle = random_key_exists(&mut self.oracle.commands);
                (words("RANDOMKEY"), subject, oracle)
            }
            Step::Command(..) => unreachable!("commands are sent in chunks"),
        };
        self.history.push(Said { elsewhere: false, args });
        if subject != oracle {
            self.fail(&self.history, &subject, &oracle);
        }
    }

    /// Compares everything there is in both servers: keys, types, encodings, values, deadlines, digests.
    fn audit(&mut self) {
        for database in 0..DATABASES {
            self.audit_command(words(&format!("SELECT {database}")), Rule::Exact);
            // Redis counts a dead key until it has been touched.
            self.audit_command(generate::touch_every_key(), Rule::Exact);
            self.audit_command(words("DBSIZE"), Rule::Exact);
            self.audit_command(words("KEYS *"), Rule::Unordered);
            for key in KEYS.map(<[u8]>::to_vec) {
                let with = |command: &[u8]| vec![command.to_vec(), key.clone()];
                self.audit_command(with(b"TYPE"), Rule::Exact);
                self.audit_command(with(b"GET"), Rule::Exact);
                self.audit_command(with(b"PEXPIRETIME"), Rule::WallMilliseconds);
                self.audit_command(vec![b"OBJECT".into(), b"ENCODING".into(), key.clone()], Rule::Exact);
                self.audit_command(vec![b"DEBUG".into(), b"DIGEST-VALUE".into(), key.clone()], Rule::Exact);
            }
        }
        // A deadline enters the digest as a flag only, so that servers agree whose clocks differ by a millisecond.
        self.audit_command(words("DEBUG DIGEST"), Rule::Exact);
    }

    fn audit_command(&mut self, args: Args, rule: Rule) {
        let subject = self.subject.audit.command(&args);
        let oracle = self.oracle.audit.command(&args);
        if !rule.same(&subject, &oracle, self.slowest_chunk) {
            eprintln!("the keyspaces differ; the command below asked for it, any before it may be the cause");
            self.history.push(Said { elsewhere: true, args });
            self.fail(&self.history, &subject, &oracle);
        }
    }

    /// Fails the test; `history` ends with the command whose replies differ.
    fn fail(&self, history: &[Said], subject: &Value, oracle: &Value) -> ! {
        panic!(
            "{:?} differs from redis-server\n  EmberDB: {subject:?}\n  Redis:   {oracle:?}\n{}",
            self.subject.server.kind(),
            report(self.seed, history)
        );
    }
}

/// The last command of `history`, what came before it on the same keys, and how to see it again.
fn report(seed: u64, history: &[Said]) -> String {
    let Some((last, before)) = history.split_last() else {
        return String::new();
    };
    let mut related: Vec<String> = before
        .iter()
        .rev()
        .filter(|said| may_matter(&said.args, &last.args))
        .take(SHOWN_PREDECESSORS)
        .map(shown)
        .collect();
    related.reverse();
    format!(
        "command {}:\n    {}\nbefore it, on the same keys (paste into redis-cli to replay):\n    {}\n\
         again: EMBERDB_DIFF_SEED={seed} EMBERDB_DIFF_STEPS={} cargo test --test differential",
        history.len(),
        shown(last),
        related.join("\n    "),
        history.len(),
    )
}

/// True if `earlier` shares a key with `later`, or concerns every key. Whatever it is may be what EXEC runs, or the
/// change that stops it.
fn may_matter(earlier: &Args, later: &Args) -> bool {
    if later[0].eq_ignore_ascii_case(b"EXEC") {
        return true;
    }
    let keys = |args: &Args| -> BTreeSet<Vec<u8>> {
        let mut keys: BTreeSet<Vec<u8>> = args.iter().skip(1).cloned().collect();
        keys.retain(|arg| KEYS.contains(&arg.as_slice()));
        keys
    };
    let everywhere = ["DISCARD", "EXEC", "FLUSHALL", "FLUSHDB", "MULTI", "SELECT", "SWAPDB", "UNWATCH", "WATCH"];
    let name = String::from_utf8_lossy(&earlier[0]).to_uppercase();
    everywhere.contains(&name.as_str()) || !keys(earlier).is_disjoint(&keys(later))
}

/// A command in the quoting that redis-cli reads.
fn shown(said: &Said) -> String {
    let quoted = |arg: &Vec<u8>| format!("\"{}\"", arg.escape_ascii());
    let line = said.args.iter().map(quoted).collect::<Vec<_>>().join(" ");
    if said.elsewhere { format!("{line}    <- on another connection") } else { line }
}

/// True for EXEC and DISCARD without MULTI, and with arguments: they end no transaction.
fn is_refused(reply: &Value) -> bool {
    reply.is_error() && !reply.text().starts_with("EXECABORT")
}

/// Runs a SCAN to its end. The keys come sorted, because servers walk in different orders; a key returned twice counts
/// once, because Redis may do so.
fn scan(client: &mut Client, options: &Args) -> Value {
    let mut found = BTreeSet::new();
    let mut cursor = b"0".to_vec();
    loop {
        let reply = client.command(&[&[b"SCAN".to_vec(), cursor], options.as_slice()].concat());
        if reply.is_error() {
            return reply;
        }
        let [next, keys] = reply.items() else {
            panic!("SCAN answers a cursor and keys, not {reply:?}");
        };
        found.extend(keys.items().iter().cloned());
        cursor = next.bytes().expect("a cursor").to_vec();
        if cursor == b"0" {
            return Value::Array(found.into_iter().collect());
        }
    }
}

/// RANDOMKEY's answer with the choice taken out of it: null, or whether the key it names is there.
fn random_key_exists(client: &mut Client) -> Value {
    let reply = client.call("RANDOMKEY");
    match reply.bytes() {
        Some(key) => client.command(&[b"EXISTS", key]),
        None => reply,
    }
}
