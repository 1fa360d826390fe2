//! EmberDB answers what redis-server answers: the same random commands, bad ones included, go to both, and every reply
//! is compared, errors by their full text. What may differ is listed in one place, `differential/compare.rs`.
//!
//! `differential/generate.rs` and `differential/families/` make the commands, `differential/special.rs` runs what takes
//! several. Both servers get the same bytes, pipelined in chunks of random size. EmberDB promises order for each key and
//! treats commands of several keys and of the session as barriers, so the replies of a pipeline are determined.
//!
//! A run is about one family of commands: `cargo test --test differential lists`. `differential/blocking.rs` compares who
//! waits and who is served, `differential/looked_up.rs` what looking a key up leaves behind, `differential/connections.rs` what
//! several connections hear of each other.
//!
//! - `EMBERDB_DIFF_STEPS`: how many commands each test sends (default [`DEFAULT_STEPS`], [`FAMILY_STEPS`])
//! - `EMBERDB_DIFF_SEED`: the seed; a failure prints the one that it used. The same seed makes the same commands.
//! - `EMBERDB_DIFF_AUDIT`: after how many steps everything in both servers is compared; 1 finds the cause of what was found
//!   late
//! - `EMBERDB_DIFF_TALLY`: a folder; the runs of redis-server against itself write there what share of the replies to each
//!   command says something

#[path = "differential/blocking.rs"]
mod blocking;
#[path = "differential/compare.rs"]
pub mod compare;
#[path = "differential/connections.rs"]
mod connections;
#[path = "differential/generate.rs"]
pub mod generate;
#[path = "differential/looked_up.rs"]
mod looked_up;
#[path = "differential/special.rs"]
mod special;
#[path = "differential/tally.rs"]
mod tally;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{env, fs};

use crate::common::{Client, Kind, Server, Value, bulk, encode, have_tool, setting, simple, words};
use compare::Rule;
use generate::families::Family;
use generate::{Args, Generator, KEYS, Step};
use special::content_command;
use tally::Tally;

const DEFAULT_STEPS: usize = 20_000;
/// Of each of the families but strings and scripts.
const FAMILY_STEPS: usize = 3_000;
/// After so many steps the two keyspaces are compared as a whole; in a long run after more.
const STEPS_PER_AUDIT: usize = 500;
const STEPS_PER_AUDIT_MAX: usize = 5_000;
/// So many earlier commands on the same keys are shown at a failure.
const SHOWN_PREDECESSORS: usize = 25;
const DATABASES: usize = 16;
/// In a run of this length every command of the family says something often enough. redis-server against itself takes no
/// longer ones.
const LONG_RUN: usize = 200_000;
/// The share of replies that say something, of every command of a family.
const LEAST_SHARE: f64 = 0.04;

/// Two comparisons a family, one for each protocol, and the test's own test: where that one fails, a command or a rule is
/// at fault, not EmberDB.
macro_rules! families {
    ($($module:ident: $family:ident,)*) => {$(
        mod $module {
            use super::*;

            #[test]
            fn one_shard_answers_what_redis_answers() {
                compare_with_redis(Kind::Ember { shards: 1 }, "HELLO 2", Family::$family);
            }

            #[test]
            fn three_shards_answer_what_redis_answers() {
                compare_with_redis(Kind::Ember { shards: 3 }, "HELLO 3", Family::$family);
            }

            #[test]
            fn redis_answers_what_redis_answers() {
                let hello = if fastrand::bool() { "HELLO 2" } else { "HELLO 3" };
                compare_with_redis(Kind::Redis, hello, Family::$family);
            }
        }
    )*};
}

families! {
    strings: Strings,
    lists: Lists,
    sets: Sets,
    hashes: Hashes,
    sorted_sets: SortedSets,
    streams: Streams,
    bits: Bits,
    hyperloglogs: HyperLogLogs,
    geo: Geo,
    sort: Sort,
    dump: Dump,
    scripts: Scripts,
    everything: Everything,
}

#[test]
fn three_shards_answer_what_redis_answers_about_strings_in_resp2() {
    compare_with_redis(Kind::Ember { shards: 3 }, "HELLO 2", Family::Strings);
}

#[test]
fn every_command_is_there() {
    let server = Server::start(Kind::Ember { shards: 1 }, &[]);
    assert_eq!(unknown_commands(&mut server.client()), BTreeSet::new());
}

/// The commands of all families that a server does not know. They are not sent, so that what is there can be compared
/// before everything is.
fn unknown_commands(client: &mut Client) -> BTreeSet<Vec<u8>> {
    let names = Family::Everything.names();
    let is_unknown = |name: &&str| client.call(&format!("COMMAND INFO {name}")).items()[0].is_null();
    names.into_iter().filter(is_unknown).map(|name| name.as_bytes().to_vec()).collect()
}

fn compare_with_redis(kind: Kind, hello: &str, family: Family) {
    if !have_tool("redis-server") {
        return;
    }
    let seed = setting("EMBERDB_DIFF_SEED").unwrap_or_else(|| fastrand::u64(..));
    let usual = if matches!(family, Family::Strings | Family::Scripts) { DEFAULT_STEPS } else { FAMILY_STEPS };
    let wanted = setting("EMBERDB_DIFF_STEPS").map_or(usual, |n| n as usize);
    let steps = if kind == Kind::Redis { wanted.min(LONG_RUN) } else { wanted };
    let mut run = Run::new(kind, seed, hello, family);
    run.compare(steps);
    if kind == Kind::Redis {
        run.judge(steps);
    }
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
    family: Family,
    subject: Side,
    oracle: Side,
    generator: Generator,
    history: Vec<Said>,
    /// What EmberDB does not know.
    unknown: BTreeSet<Vec<u8>>,
    tally: Tally,
    /// The names of and the rules for the replies to the commands that wait for EXEC.
    queued: Vec<(Vec<u8>, Rule)>,
    /// The longest that a chunk took from its first byte to its last reply. Each server may execute a command at any
    /// moment of that time, so two remaining times may differ by as much through no fault of theirs.
    slowest_chunk: Duration,
}

impl Run {
    fn new(kind: Kind, seed: u64, hello: &str, family: Family) -> Run {
        let mut subject = Side::new(kind, hello);
        Run {
            seed,
            family,
            unknown: unknown_commands(&mut subject.audit),
            subject,
            oracle: Side::new(Kind::Redis, hello),
            generator: Generator::new(seed, family),
            history: Vec::new(),
            tally: Tally::default(),
            queued: Vec::new(),
            slowest_chunk: Duration::ZERO,
        }
    }

    fn compare(&mut self, steps: usize) {
        let mut chunk: Vec<(Args, Rule)> = Vec::new();
        let mut chunk_limit = self.generator.chunk_size();
        let usual = (steps / 40).clamp(STEPS_PER_AUDIT, STEPS_PER_AUDIT_MAX);
        let steps_per_audit = setting("EMBERDB_DIFF_AUDIT").map_or(usual, |n| n.max(1) as usize);
        for step in 1..=steps {
            match self.next_step() {
                Step::Command(args, rule) => chunk.push((args, rule)),
                special => {
                    self.send_chunk(std::mem::take(&mut chunk));
                    self.special(special);
                }
            }
            let audit_is_due = step.is_multiple_of(steps_per_audit) || step == steps;
            if chunk.len() >= chunk_limit || audit_is_due {
                self.send_chunk(std::mem::take(&mut chunk));
                chunk_limit = self.generator.chunk_size();
            }
            if audit_is_due {
                self.audit();
            }
        }
    }

    /// The next step whose command EmberDB knows.
    fn next_step(&mut self) -> Step {
        loop {
            let step = self.generator.next_step();
            let name = match &step {
                Step::Command(args, _) | Step::Elsewhere(args, _) | Step::Scan(args, _) => args[0].as_slice(),
                Step::Random(args, _) | Step::Pop(args) | Step::Trim(args, _) => args[0].as_slice(),
                Step::ReadGroup(args) | Step::SetId(args) => args[0].as_slice(),
                Step::RandomKey => b"RANDOMKEY",
                Step::Exchange { .. } => b"DUMP",
            };
            if !self.unknown.contains(&name.to_ascii_uppercase()) {
                return step;
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
        let name = self.history[past - 1].args[0].to_ascii_uppercase();
        if *oracle == simple("QUEUED") {
            self.queued.push((name, rule));
            return subject == oracle;
        }
        self.tally.count(&name, oracle);
        let skew = self.slowest_chunk;
        match name.as_slice() {
            b"EXEC" | b"DISCARD" if !is_refused(oracle) => {
                let queued = std::mem::take(&mut self.queued);
                let (Value::Array(subjects), Value::Array(oracles)) = (subject, oracle) else {
                    return subject == oracle;
                };
                queued.iter().zip(oracles).for_each(|((name, _), reply)| self.tally.count(name, reply));
                let mut pairs = subjects.iter().zip(oracles).zip(&queued);
                subjects.len() == queued.len()
                    && oracles.len() == queued.len()
                    && pairs.all(|((subject, oracle), (_, rule))| rule.same(subject, oracle, skew))
            }
            _ => rule.same(subject, oracle, skew),
        }
    }

    fn special(&mut self, step: Step) {
        let (subject, oracle) = (&mut self.subject.commands, &mut self.oracle.commands);
        let mut follow_up = None;
        let (args, (ours, theirs)) = match step {
            Step::Elsewhere(args, rule) => {
                let subject = self.subject.elsewhere.command(&args);
                let oracle = self.oracle.elsewhere.command(&args);
                self.tally.count(&args[0], &oracle);
                self.history.push(Said { elsewhere: true, args });
                if !rule.same(&subject, &oracle, self.slowest_chunk) {
                    self.fail(&self.history, &subject, &oracle);
                }
                return;
            }
            Step::Scan(begin, options) => {
                let outcome = (special::scan(subject, &begin, &options), special::scan(oracle, &begin, &options));
                ([begin, words("0"), options].concat(), outcome)
            }
            Step::RandomKey => {
                (words("RANDOMKEY"), (special::random_key_exists(subject), special::random_key_exists(oracle)))
            }
            Step::Random(args, all) => {
                let outcome = (special::sample(subject, &args, &all), special::sample(oracle, &args, &all));
                (args, outcome)
            }
            Step::Pop(args) => {
                let outcome = special::pop(subject, oracle, &args);
                (args, outcome)
            }
            Step::ReadGroup(args) => {
                let outcome = special::read_group(subject, oracle, &args);
                (args, outcome)
            }
            Step::SetId(args) => {
                let outcome = special::set_id(subject, oracle, &args);
                (args, outcome)
            }
            Step::Trim(args, key) => {
                let outcome = special::trim(subject, oracle, &args, &key);
                (args, outcome)
            }
            Step::Exchange { ours, from, to, options } => {
                let restore = |payload: &[u8]| {
                    let head = [b"RESTORE", to.as_slice(), b"0", payload].map(<[u8]>::to_vec);
                    [head.as_slice(), &options].concat()
                };
                let outcome;
                (outcome, follow_up) = special::exchange(subject, oracle, ours, &from, restore);
                self.tally.count(b"DUMP", &outcome.1);
                let whose: &[u8] = if ours { b"EmberDB's DUMP of " } else { b"Redis' DUMP of " };
                (restore(&[whose, &from].concat()), outcome)
            }
            Step::Command(..) => unreachable!("commands are sent in chunks"),
        };
        self.tally.count(&args[0], &theirs);
        let is_same = Rule::of(&args).same(&ours, &theirs, self.slowest_chunk);
        self.history.push(Said { elsewhere: false, args });
        if !is_same {
            self.fail(&self.history, &ours, &theirs);
        }
        if let Some(args) = follow_up {
            self.send_chunk(vec![(args.clone(), Rule::of(&args))]);
        }
    }

    /// Compares everything there is in both servers: keys, types, encodings, values, deadlines.
    fn audit(&mut self) {
        for database in 0..DATABASES {
            self.audit_command(words(&format!("SELECT {database}")), Rule::Exact);
            // Redis counts a dead key until it has been touched.
            self.audit_command(generate::touch_every_key(), Rule::Exact);
            self.audit_command(words("KEYS *"), Rule::Unordered);
            if self.audit_command(words("DBSIZE"), Rule::Exact) == Value::Int(0) {
                continue;
            }
            for key in self.oracle.audit.call("KEYS *").items() {
                self.audit_key(key.bytes().expect("a key"));
            }
        }
        if self.family == Family::Strings {
            // A deadline enters the digest as a flag only, so that servers agree whose clocks differ by a millisecond.
            self.audit_command(words("DEBUG DIGEST"), Rule::Exact);
        }
    }

    fn audit_key(&mut self, key: &[u8]) {
        let with = |command: &str| [words(command), vec![key.to_vec()]].concat();
        let kind = self.audit_command(with("TYPE"), Rule::Exact).text();
        self.audit_command(with("PEXPIRETIME"), Rule::WallMilliseconds);
        let encoding = self.audit_command(with("OBJECT ENCODING"), Rule::Encoding);
        if let Some(content) = content_command(&kind, key) {
            let rule = match Rule::of(&content) {
                // What is packed has an order.
                Rule::Unordered | Rule::Pairs if encoding != bulk("hashtable") => Rule::Exact,
                rule => rule,
            };
            self.audit_command(content, rule);
        }
        if kind == "stream" {
            let full = [with("XINFO STREAM"), words("FULL COUNT 0")].concat();
            self.audit_command(full, Rule::StreamInfo);
        }
        // The sign of a score of zero is in the digest, see [`Rule::Scores`].
        if matches!(self.family, Family::Strings | Family::Everything) && kind != "zset" {
            self.audit_command(with("DEBUG DIGEST-VALUE"), Rule::Exact);
        }
    }

    /// The oracle's reply, if EmberDB's is the same.
    fn audit_command(&mut self, args: Args, rule: Rule) -> Value {
        let subject = self.subject.audit.command(&args);
        let oracle = self.oracle.audit.command(&args);
        if !rule.same(&subject, &oracle, self.slowest_chunk) {
            self.fail_audit(args, &subject, &oracle);
        }
        oracle
    }

    fn fail_audit(&mut self, args: Args, subject: &Value, oracle: &Value) -> ! {
        eprintln!("the keyspaces differ; the command below asked for it, any before it may be the cause");
        self.history.push(Said { elsewhere: true, args });
        self.fail(&self.history, subject, oracle);
    }

    /// Fails the test if a run of this length has left a command of the family without much to say.
    fn judge(&self, steps: usize) {
        if let Some(folder) = env::var_os("EMBERDB_DIFF_TALLY") {
            fs::create_dir_all(&folder).expect("a folder");
            let path = Path::new(&folder).join(format!("{:?}", self.family));
            fs::write(path, format!("{:?}, {steps} steps\n{}\n", self.family, self.tally)).expect("a file");
        }
        if steps >= LONG_RUN && self.family != Family::Everything {
            let mut names = self.family.names();
            names.retain(|name| self.tally.share(name) < LEAST_SHARE);
            assert!(names.is_empty(), "hardly a reply says something: {names:?}\n{}", self.tally);
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
         again: EMBERDB_DIFF_SEED={seed} EMBERDB_DIFF_STEPS={} cargo test --test differential NAME",
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
