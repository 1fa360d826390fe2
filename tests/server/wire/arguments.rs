//! Arguments are judged whether or not there is a key: a client that makes a mistake hears of it the first time, not when the
//! key has come.

use std::collections::BTreeSet;

use emberdb::command;
use emberdb::command::spec::Group;
use emberdb::command::syntax::{self, Argument, Kind as Type};

use crate::common::server::have_redis;
use crate::common::{Client, Kind, Server, Value, error, on_embers};

/// No number, no id, no unit, no word that means something.
const BAD: &str = "\u{1}bad";

/// A request for a command, made from the notation of its row.
struct Filled<'s> {
    /// Which of the arguments that may be left out is there, by its place among all.
    optional: usize,
    /// Which alternative is taken of several.
    alternative: usize,
    /// Which argument is bad, by its place among all that are no keys.
    bad: usize,
    values: usize,
    keys: usize,
    out: Vec<&'s str>,
}

impl<'s> Filled<'s> {
    fn add(&mut self, arguments: &'s [Argument], top: bool) {
        for (place, argument) in arguments.iter().enumerate() {
            if argument.optional && top && place != self.optional {
                continue;
            }
            self.out.extend(argument.token.as_deref());
            match argument.kind {
                Type::PureToken => {}
                Type::OneOf => {
                    let at = self.alternative.min(argument.children.len() - 1);
                    self.add(&argument.children[at..=at], false);
                }
                Type::Block => self.add(&argument.children, false),
                Type::Key => {
                    self.out.push(["k", "other"][self.keys.min(1)]);
                    self.keys += 1;
                }
                _ => {
                    self.out.push(if self.values == self.bad { BAD } else { "1" });
                    self.values += 1;
                }
            }
        }
    }
}

/// Requests with one bad argument each.
fn requests(name: &str, syntax: &str) -> BTreeSet<Vec<String>> {
    let arguments = syntax::parse(syntax).expect("a row");
    let mut all = BTreeSet::new();
    for optional in 0..=arguments.len() {
        for alternative in 0..4 {
            let mut bad = 0;
            loop {
                let mut filled = Filled { optional, alternative, bad, values: 0, keys: 0, out: vec![name] };
                filled.add(&arguments, true);
                let values = filled.values;
                all.insert(filled.out.iter().map(|arg| (*arg).to_owned()).collect());
                let mut longer = filled.out;
                longer.push(BAD);
                all.insert(longer.iter().map(|arg| (*arg).to_owned()).collect());
                bad += 1;
                if bad >= values {
                    break;
                }
            }
        }
    }
    all
}

fn fill(client: &mut Client, group: Group) {
    client.call("DEL k other");
    let lines: &[&str] = match group {
        Group::List => &["RPUSH k 1 2"],
        Group::Set => &["SADD k 1 2"],
        Group::Hash => &["HSET k 1 1"],
        Group::SortedSet => &["ZADD k 1 1"],
        Group::Geo => &["GEOADD k 1 1 1"],
        Group::Stream => &["XADD k 1-1 f v", "XGROUP CREATE k 1 0"],
        Group::HyperLogLog => &["PFADD k 1"],
        _ => &["SET k 1"],
    };
    lines.iter().for_each(|line| assert!(!client.call(line).is_error()));
}

/// Redis judges these where the key is there, too, or its words depend on what is there.
fn depends_on_the_key(text: &str) -> bool {
    ["WRONGTYPE", "NOGROUP", "BUSYGROUP", "ERR no such key", "ERR The ID specified in XADD"]
        .iter()
        .any(|begin| text.starts_with(begin))
}

#[test]
fn whether_there_is_a_key_changes_no_error() {
    if !have_redis() {
        return;
    }
    let (ember, redis) = (Server::start(Kind::Ember { shards: 1 }, &[]), Server::start(Kind::Redis, &[]));
    let (mut ours, mut theirs) = (ember.client(), redis.client());
    let (mut asked, mut wrong) = (0, Vec::new());
    for row in command::rows() {
        let spec = row.spec;
        if !spec.syntax.contains("key") || spec.group == Group::Scripting {
            continue;
        }
        for request in requests(spec.name, spec.syntax) {
            fill(&mut ours, spec.group);
            let Value::Error(text) = ours.command(&request) else { continue };
            if depends_on_the_key(&text) {
                continue;
            }
            ours.call("DEL k other");
            let without = ours.command(&request);
            asked += 1;
            if without == Value::Error(text.clone()) {
                continue;
            }
            // What Redis 7.0 answers is right, where 7.4 has not changed it.
            theirs.call("DEL k other");
            let expected = theirs.command(&request);
            // Newer commands are unknown there.
            let is_known = !matches!(&expected, Value::Error(text) if text.starts_with("ERR unknown command"));
            if is_known && expected != without {
                wrong.push(format!("{request:?}: {text}, without a key {without:?}, Redis {expected:?}"));
            }
        }
    }
    assert!(asked > 1000, "{asked}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn bits_are_asked_for_with_sound_arguments_as_in_redis_7_4() {
    on_embers(&[], |server| {
        let mut client = server.client();
        let (syntax, no_integer) = (error("ERR syntax error"), error("ERR value is not an integer or out of range"));
        for key in ["none", "some"] {
            for (line, expected) in [
                ("BITCOUNT K 1", &syntax),
                ("BITCOUNT K x 1", &no_integer),
                ("BITCOUNT K 1 x", &no_integer),
                ("BITCOUNT K 0 1 BITS", &syntax),
                ("BITCOUNT K -1 -2 BITS", &syntax),
                ("BITCOUNT K 0 1 BIT BIT", &syntax),
                ("BITPOS K 1 x", &no_integer),
                ("BITPOS K 1 0 x", &no_integer),
                ("BITPOS K 1 0 x BITS", &syntax),
                ("BITPOS K 1 0 1 BIT BIT", &syntax),
            ] {
                let line = line.replace('K', key);
                assert_eq!(client.call(&line), *expected, "{line}");
            }
            client.call("SET some abc");
        }
        client.call("RPUSH list a");
        assert_eq!(client.call("BITCOUNT list x 1"), no_integer, "before its type");
        assert_eq!(client.call("BITPOS list 0 0 1 BITS"), syntax);
    });
}

#[test]
fn counts_and_ranks_can_be_negated() {
    on_embers(&[], |server| {
        let mut client = server.client();
        let refused =
            error("ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807");
        for _ in ["no list", "a list"] {
            assert_eq!(client.call("LREM list -9223372036854775808 a"), refused);
            assert_eq!(client.call("LPOS list a RANK -9223372036854775808"), refused);
            assert_eq!(client.call("LPOS list a RANK -9223372036854775808 COUNT 0"), refused);
            client.call("RPUSH list a b a");
        }
        assert_eq!(client.call("LPOS list a RANK -9223372036854775807"), Value::NullBulk);
        assert_eq!(client.call("LREM list -9223372036854775807 a"), Value::Int(4));
    });
}
