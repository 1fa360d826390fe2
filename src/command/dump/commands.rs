//! Values as commands that make them again, as a log has them that does not begin with a snapshot.

use super::{Wall, streams};
use crate::keyspace::snapshot::Frame;
use crate::keyspace::{Kind, NEVER_MS, Stored};
use crate::rdb::stream;
use crate::resp::{Proto, Reply};
use crate::value::number::write_f64;
use crate::value::stream::{Chunk, Id, Stream};
use crate::value::{Portion, hash, list, set, zset};

/// So many elements go into one command, as in Redis.
const ITEMS: usize = 64;

/// Commands for the portions of one key's value, several of which go into one where that is possible.
pub struct Commands<'o, 'k> {
    out: &'o mut Vec<u8>,
    key: &'k [u8],
    wall: Wall,
    verb: &'static str,
    args: Vec<Vec<u8>>,
    items: usize,
    /// Fields or members among them that have deadlines, since 1970.
    deadlines: Vec<(Vec<u8>, u64)>,
}

impl<'o, 'k> Commands<'o, 'k> {
    pub fn new(out: &'o mut Vec<u8>, key: &'k [u8], wall: Wall) -> Commands<'o, 'k> {
        Commands { out, key, wall, verb: "", args: Vec::new(), items: 0, deadlines: Vec::new() }
    }

    pub fn add(&mut self, portion: Portion) {
        match portion {
            Portion::Member(member, deadline_ms) => {
                self.dated(member, deadline_ms);
                self.put("SADD", [member.to_vec()]);
            }
            Portion::Scored(member, score, deadline_ms) => {
                self.dated(member, deadline_ms);
                let mut text = Vec::new();
                write_f64(&mut text, score);
                self.put("ZADD", [text, member.to_vec()]);
            }
            Portion::Field(name, value, deadline_ms) => {
                self.dated(name, deadline_ms);
                self.put("HSET", [name.to_vec(), hash::element(value).to_vec()]);
            }
            Portion::Elements(elements) => elements.for_each(|element| self.put("RPUSH", [element.to_vec()])),
            Portion::Entries(chunk) => self.entries(chunk),
        }
    }

    /// An element that is about to be put has this deadline, if it has one.
    fn dated(&mut self, name: &[u8], deadline_ms: Option<u64>) {
        let deadline_ms = deadline_ms.map(|deadline_ms| self.wall.of_store_ms(deadline_ms));
        self.deadlines.extend(deadline_ms.map(|deadline_ms| (name.to_vec(), deadline_ms)));
    }

    fn put<const N: usize>(&mut self, verb: &'static str, args: [Vec<u8>; N]) {
        self.verb = verb;
        self.args.extend(args);
        self.items += 1;
        if self.items == ITEMS {
            self.end();
        }
    }

    /// Nothing more goes into the last command.
    pub fn end(&mut self) {
        if self.items > 0 {
            let args = std::mem::take(&mut self.args);
            self.command(&[self.verb.as_bytes(), self.key], args.iter().map(Vec::as_slice));
            self.items = 0;
        }
        for (name, deadline_ms) in std::mem::take(&mut self.deadlines) {
            let deadline_ms = deadline_ms.to_string();
            let [verb, word]: [&[u8]; 2] = match self.verb {
                "SADD" => [b"SPEXPIREAT", b"MEMBERS"],
                "ZADD" => [b"ZPEXPIREAT", b"MEMBERS"],
                _ => [b"HPEXPIREAT", b"FIELDS"],
            };
            self.one(&[verb, self.key, deadline_ms.as_bytes(), word, b"1", &name]);
        }
    }

    /// Appends commands that are there already.
    pub fn as_they_are(&mut self, bytes: &[u8]) {
        self.end();
        self.out.extend_from_slice(bytes);
    }

    fn entries(&mut self, chunk: &Chunk) {
        for entry in chunk.entries() {
            let texts: Vec<Vec<u8>> =
                entry.pairs().flat_map(|(field, value)| [field.to_vec(), value.to_vec()]).collect();
            let id = text(entry.id);
            self.command(&[b"XADD", self.key, id.as_bytes()], texts.iter().map(Vec::as_slice));
        }
    }

    fn one(&mut self, args: &[&[u8]]) {
        self.command(args, [].into_iter());
    }

    fn command<'a>(&mut self, head: &[&[u8]], rest: impl ExactSizeIterator<Item = &'a [u8]>) {
        command(self.out, head, rest);
    }

    /// What of a stream is not in its entries.
    fn beside_entries(&mut self, stream: &Stream) {
        let (is_empty, stream) = (stream.log.is_empty(), streams::beside_entries(stream, self.wall));
        let last = text(stream.last_id);
        if is_empty {
            // It is there, and empty.
            let id = if stream.last_id == Id::MIN { "0-1" } else { &last };
            self.one(&[b"XADD", self.key, b"MAXLEN", b"0", id.as_bytes(), b"x", b"y"]);
        }
        let (added, deleted) = (stream.entries_added.to_string(), text(stream.max_deleted_id));
        let key = self.key;
        self.one(&[
            b"XSETID",
            key,
            last.as_bytes(),
            b"ENTRIESADDED",
            added.as_bytes(),
            b"MAXDELETEDID",
            deleted.as_bytes(),
        ]);
        stream.groups.iter().for_each(|group| self.group(group));
    }

    fn group(&mut self, group: &stream::Group) {
        let (key, last) = (self.key, text(group.last_id));
        let read = group.entries_read.map_or_else(|| "-1".to_owned(), |read| read.to_string());
        self.one(&[b"XGROUP", b"CREATE", key, &group.name, last.as_bytes(), b"ENTRIESREAD", read.as_bytes()]);
        for consumer in &group.consumers {
            self.one(&[b"XGROUP", b"CREATECONSUMER", key, &group.name, &consumer.name]);
        }
        for pending in &group.pending {
            let owner = group.consumers.get(pending.owner).map_or(&b""[..], |consumer| &consumer.name);
            let (id, time) = (text(pending.id), pending.delivered_ms.to_string());
            let deliveries = pending.deliveries.to_string();
            self.one(&[
                b"XCLAIM",
                key,
                &group.name,
                owner,
                b"0",
                id.as_bytes(),
                b"TIME",
                time.as_bytes(),
                b"RETRYCOUNT",
                deliveries.as_bytes(),
                b"JUSTID",
                b"FORCE",
            ]);
        }
    }

    fn expire(&mut self, deadline_ms: Option<u64>) {
        if let Some(deadline_ms) = deadline_ms {
            let deadline_ms = self.wall.of_store_ms(deadline_ms).to_string();
            self.one(&[b"PEXPIREAT", self.key, deadline_ms.as_bytes()]);
        }
    }
}

fn text(id: Id) -> String {
    format!("{}-{}", id.ms, id.seq)
}

fn command<'a>(out: &mut Vec<u8>, head: &[&[u8]], rest: impl ExactSizeIterator<Item = &'a [u8]>) {
    let mut reply = Reply::new(out, Proto::Resp2);
    reply.array(head.len() + rest.len());
    head.iter().for_each(|arg| reply.bulk(arg));
    rest.for_each(|arg| reply.bulk(arg));
}

/// Appends the command after which others are about this database.
pub fn select(out: &mut Vec<u8>, db: usize) {
    command(out, &[b"SELECT", db.to_string().as_bytes()], [].into_iter());
}

/// Appends the command that loads a library of functions.
pub fn load_library(out: &mut Vec<u8>, code: &[u8]) {
    command(out, &[b"FUNCTION", b"LOAD", code], [].into_iter());
}

/// Appends the commands that make a key, without what is dead in it. The deadline is in store milliseconds.
pub fn write_commands(out: &mut Vec<u8>, key: &[u8], content: Stored, deadline_ms: Option<u64>, wall: Wall) {
    let mut commands = Commands::new(out, key, wall);
    match content.kind() {
        Kind::String => {
            if let Stored::String(value) = content {
                commands.one(&[b"SET", key, &hash::element(value).to_vec()]);
            }
        }
        Kind::List => {
            list::View::of(content).for_each(|element| commands.put("RPUSH", [element.to_vec()]));
        }
        Kind::Set => {
            let members = set::View::of(content, wall.now_ms()).iter_with_deadlines();
            members.for_each(|(member, deadline_ms)| commands.add(Portion::Member(&member.to_vec(), deadline_ms)));
        }
        Kind::Zset => {
            zset::View::of(content, wall.now_ms()).for_each_back(|member, score, deadline_ms| {
                commands.add(Portion::Scored(&member.to_vec(), score, deadline_ms));
            });
        }
        Kind::Hash => {
            let fields = hash::View::of(content).iter().filter(|field| !field.is_dead(wall.now_ms()));
            for field in fields {
                let deadline_ms = Some(field.deadline_ms).filter(|deadline_ms| *deadline_ms < NEVER_MS);
                commands.add(Portion::Field(&field.name.to_vec(), hash::value_of(field.value), deadline_ms));
            }
        }
        Kind::Stream => {
            Stream::of(content).log.chunks().for_each(|chunk| commands.entries(chunk));
            commands.beside_entries(Stream::of(content));
        }
    }
    commands.end();
    commands.expire(deadline_ms);
}

/// What stands behind the commands for the portions of a value.
pub fn frame_of_commands(key: &[u8], content: Stored, deadline_ms: Option<u64>, wall: Wall) -> Frame {
    let mut frame = Frame { key: key.to_vec(), ..Frame::default() };
    let mut commands = Commands::new(&mut frame.foot, key, wall);
    if content.kind() == Kind::Stream {
        commands.beside_entries(Stream::of(content));
    }
    commands.expire(deadline_ms);
    frame
}
