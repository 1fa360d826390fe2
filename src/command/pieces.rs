//! A large value as commands that make it again, piece by piece: as one argument of RESTORE it could be longer than an
//! argument may be.

use crate::journal::Command;
use crate::keyspace::{Kind, NEVER_MS, Stored};
use crate::value::hash::View as Hash;
use crate::value::list;
use crate::value::number::write_f64;
use crate::value::set::View as Set;
use crate::value::zset::View as Zset;

/// A piece has no more elements than this, and no more bytes before its last one.
const ELEMENTS: usize = 1_000;
const BYTES: usize = 256 * 1024;

/// Whether values of a type can be taken to pieces.
pub fn has_pieces(kind: Kind) -> bool {
    matches!(kind, Kind::List | Kind::Set | Kind::Zset | Kind::Hash)
}

/// The commands; `to_wall_ms` makes moments of deadlines. What is dead in it is left out.
pub fn pieces(db: usize, key: &[u8], content: Stored, now_ms: u64, to_wall_ms: impl Fn(u64) -> i64) -> Vec<Command> {
    let name = match content.kind() {
        Kind::List => "RPUSH",
        Kind::Set => "SADD",
        Kind::Zset => "ZADD",
        Kind::Hash | Kind::String | Kind::Stream => "HSET",
    };
    let mut pieces =
        Pieces { db, head: [name.as_bytes().to_vec(), key.to_vec()], args: Vec::new(), bytes: 0, all: vec![] };
    match content.kind() {
        Kind::List => {
            list::View::of(content).for_each(|element| pieces.add(&[element.to_vec()]));
        }
        Kind::Set => {
            let view = Set::of(content, now_ms);
            view.iter().for_each(|member| pieces.add(&[member.to_vec()]));
            pieces.end();
            for (member, at_ms) in view.iter_with_deadlines().filter_map(|(member, at_ms)| Some((member, at_ms?))) {
                let (at_ms, name) = (to_wall_ms(at_ms).to_string(), member.to_vec());
                let args: [&[u8]; 6] = [b"SPEXPIREAT", key, at_ms.as_bytes(), b"MEMBERS", b"1", &name];
                pieces.all.push(Command::new(db, args.into_iter()));
            }
        }
        Kind::Zset => {
            let (view, mut deadlines) = (Zset::of(content, now_ms), Vec::new());
            view.for_each_back(|member, score, at_ms| {
                let mut text = Vec::new();
                write_f64(&mut text, score);
                pieces.add(&[text, member.to_vec()]);
                deadlines.extend(at_ms.map(|at_ms| (member.to_vec(), to_wall_ms(at_ms).to_string())));
            });
            pieces.end();
            for (name, at_ms) in deadlines {
                let args: [&[u8]; 6] = [b"ZPEXPIREAT", key, at_ms.as_bytes(), b"MEMBERS", b"1", &name];
                pieces.all.push(Command::new(db, args.into_iter()));
            }
        }
        Kind::Hash => {
            let alive = || Hash::of(content).iter().filter(|field| !field.is_dead(now_ms));
            alive().for_each(|field| pieces.add(&[field.name.to_vec(), field.value.to_vec()]));
            pieces.end();
            for field in alive().filter(|field| field.deadline_ms < NEVER_MS) {
                let (at_ms, name) = (to_wall_ms(field.deadline_ms).to_string(), field.name.to_vec());
                let args: [&[u8]; 6] = [b"HPEXPIREAT", key, at_ms.as_bytes(), b"FIELDS", b"1", &name];
                pieces.all.push(Command::new(db, args.into_iter()));
            }
        }
        Kind::String | Kind::Stream => {}
    }
    pieces.end();
    pieces.all
}

struct Pieces {
    db: usize,
    head: [Vec<u8>; 2],
    args: Vec<Vec<u8>>,
    bytes: usize,
    all: Vec<Command>,
}

impl Pieces {
    fn add(&mut self, args: &[Vec<u8>]) {
        self.bytes += args.iter().map(Vec::len).sum::<usize>();
        self.args.extend_from_slice(args);
        if self.args.len() >= ELEMENTS || self.bytes >= BYTES {
            self.end();
        }
    }

    fn end(&mut self) {
        self.bytes = 0;
        let args = std::mem::take(&mut self.args);
        if !args.is_empty() {
            let args: Vec<&[u8]> = self.head.iter().chain(&args).map(Vec::as_slice).collect();
            self.all.push(Command::new(self.db, args.into_iter()));
        }
    }
}
