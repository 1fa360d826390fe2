//! What COMMAND and the HELP subcommands say of a row, in the shapes of Redis 7.0.15.
//!
//! ```text
//! row ──> info   COMMAND, COMMAND INFO            what it does, where its keys are
//!     ──> docs   COMMAND DOCS                     what it takes, for people
//!     ──> help   OBJECT HELP, CLIENT HELP, ...    its subcommands
//!     ──> keys   COMMAND GETKEYS[ANDFLAGS]        the keys of one request
//!     ──> list   COMMAND LIST                     names, by module, category or pattern
//! ```
//!
//! Almost all of it follows from a row's flags, group and syntax. Where Redis says something that does not follow, a
//! line in `GROUP_CATEGORIES`, or of `KEY_USES` in `describe/uses.rs`, says it. Of what Redis says, the history of commands
//! and arguments is left out.

mod uses;

use super::spec::{Apart, Keys, Row, Spec, flag};
use super::syntax::{self, Argument, Kind};
use crate::resp::{Error, Reply, Request, Result};
use crate::value::glob::glob_match;
use std::borrow::Cow;
pub use uses::{Access, KeyAccess};
use uses::{KeyUse, OVERWRITE, VARIABLE, found, key_uses, use_in};

/// The errors of COMMAND GETKEYS.
pub const NO_SUCH_COMMAND: Error = Error::text("ERR Invalid command specified");
pub const NO_KEYS: Error = Error::text("ERR The command has no key arguments");
pub const WRONG_NUMBER_OF_ARGUMENTS: Error = Error::text("ERR Invalid number of arguments specified for command");

/// `get`, or `object|encoding` for a subcommand.
pub fn full_name(spec: &Spec, container: Option<&str>) -> Cow<'static, str> {
    match container {
        Some(container) => format!("{container}|{}", spec.name).into(),
        None => spec.name.into(),
    }
}

/// One item of COMMAND or COMMAND INFO.
pub fn info<R: Copy>(reply: &mut Reply, row: &Row<R>, container: Option<&str>) {
    let spec = &row.spec;
    reply.array(10);
    reply.bulk(full_name(spec, container).as_bytes());
    reply.int(i64::from(spec.arity));
    let flags: Vec<&str> = flag::NAMES.iter().filter(|(bit, _)| spec.has(*bit)).map(|(_, name)| *name).collect();
    write_set(reply, &flags);
    // Redis says nothing of keys whose number is an argument, or that have to be looked for.
    let keys = match spec.keys {
        Keys { apart: Apart::First, .. } => Keys::ONE,
        Keys { apart: Apart::Streams, .. } => Keys::NONE,
        Keys { count: 0, .. } => spec.keys,
        _ => Keys::NONE,
    };
    [i64::from(keys.first), i64::from(keys.last), i64::from(keys.step)].into_iter().for_each(|n| reply.int(n));
    write_set(reply, &acl_categories(spec, container));
    reply.set(row.tips.len());
    row.tips.iter().for_each(|tip| reply.bulk(tip.as_bytes()));
    write_key_specs(reply, spec, container);
    if row.subcommands.is_empty() {
        reply.set(0);
    } else {
        reply.array(row.subcommands.len() + 1);
        with_help(row).for_each(|subcommand| info(reply, &subcommand, Some(spec.name)));
    }
}

/// The subcommands of a container, HELP included.
fn with_help<R: Copy>(container: &Row<R>) -> impl Iterator<Item = Row<R>> {
    container.subcommands.iter().copied().chain(help_row(container))
}

/// HELP of a container, which needs no row of its own: what it tells are the others.
pub fn help_row<R: Copy>(container: &Row<R>) -> Option<Row<R>> {
    let of = &container.spec;
    let spec = Spec {
        name: "help",
        arity: 2,
        flags: flag::LOADING | flag::STALE,
        keys: Keys::NONE,
        since: found(HELP_SINCE, of.name).unwrap_or(of.since),
        complexity: "O(1)",
        summary: "Prints this help.",
        syntax: "",
        ..*of
    };
    (!container.subcommands.is_empty()).then(|| Row::new(spec, container.run))
}

/// The Redis version that brought HELP, where that is not the one that brought the container.
const HELP_SINCE: &[(&str, &str)] = &[
    ("client", "5.0.0"),
    ("cluster", "5.0.0"),
    ("command", "5.0.0"),
    ("config", "5.0.0"),
    ("module", "5.0.0"),
    ("object", "6.2.0"),
    ("pubsub", "6.2.0"),
    ("script", "5.0.0"),
    ("slowlog", "6.2.0"),
];

/// One pair of COMMAND DOCS: the name and what is to be known.
pub fn docs<R: Copy>(reply: &mut Reply, row: &Row<R>, container: Option<&str>) {
    let spec = &row.spec;
    let mut arguments = syntax::parse(spec.syntax).unwrap_or_default();
    if spec.keys.apart == Apart::BehindSortStore {
        // Patterns name keys, too, and have a specification before that of the destination.
        for argument in &mut arguments {
            argument.key_spec_index = match argument.kind {
                Kind::Pattern => Some(1),
                _ => argument.key_spec_index.map(|index| index * 2),
            };
        }
    }
    reply.bulk(full_name(spec, container).as_bytes());
    let doc_flag = match row.deprecated {
        Some(_) => Some("deprecated"),
        None => row.is_for_the_system.then_some("syscmd"),
    };
    let optional = [
        doc_flag.is_some(),
        row.deprecated.is_some(),
        row.deprecated.is_some(),
        !arguments.is_empty(),
        !row.subcommands.is_empty(),
    ];
    reply.map(4 + optional.into_iter().filter(|said| *said).count());
    write_pair(reply, "summary", spec.summary);
    write_pair(reply, "since", spec.since);
    write_pair(reply, "group", spec.group.name());
    write_pair(reply, "complexity", spec.complexity);
    if let Some(flag) = doc_flag {
        reply.bulk(b"doc_flags");
        write_set(reply, &[flag]);
    }
    if let Some(deprecated) = row.deprecated {
        write_pair(reply, "deprecated_since", deprecated.since);
        write_pair(reply, "replaced_by", deprecated.replaced_by);
    }
    if !arguments.is_empty() {
        let key_specs = key_places(spec, container).count();
        reply.bulk(b"arguments");
        write_arguments(reply, &arguments, key_specs);
    }
    if !row.subcommands.is_empty() {
        reply.bulk(b"subcommands");
        reply.map(row.subcommands.len() + 1);
        with_help(row).for_each(|subcommand| docs(reply, &subcommand, Some(spec.name)));
    }
}

/// What HELP says of a container: its subcommands, each with its arguments, and what they do.
pub fn help<R: Copy>(reply: &mut Reply, container: &Row<R>) {
    let name = container.spec.name.to_ascii_uppercase();
    let mut lines = vec![format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")];
    if container.spec.arity == -1 {
        lines.push("(no subcommand)".to_owned());
        push_indented(&mut lines, container.spec.summary);
    }
    for Row { spec, is_two_words, .. } in with_help(container) {
        let words = if is_two_words { spec.name.replacen('-', " ", 1) } else { spec.name.to_owned() };
        let usage = format!("{} {}", words.to_ascii_uppercase(), syntax::usage(spec.syntax));
        lines.push(usage.trim_end().to_owned());
        push_indented(&mut lines, spec.summary);
    }
    reply.array(lines.len());
    lines.iter().for_each(|line| reply.simple(line));
}

/// A command that is asked about, with its arguments.
pub struct AskedAbout<'a, R: 'static> {
    pub row: &'a Row<R>,
    pub container: Option<&'a str>,
    pub request: Request<'a>,
}

/// The reply of COMMAND GETKEYS; what a command is around comes behind it.
pub fn keys<R>(reply: &mut Reply, first: &AskedAbout<R>, guarded: Option<&AskedAbout<R>>) -> Result {
    let (own, more) = all_key_indexes(first, guarded)?;
    reply.array(own.len() + more.len());
    own.into_iter().for_each(|index| reply.bulk(first.request.arg(index)));
    let of_guarded = guarded.into_iter().flat_map(|of| more.iter().map(|index| of.request.arg(*index)));
    of_guarded.for_each(|key| reply.bulk(key));
    Ok(())
}

/// The keys of both. (What is guarded need not have any.)
fn all_key_indexes<R>(first: &AskedAbout<R>, guarded: Option<&AskedAbout<R>>) -> Result<(Vec<usize>, Vec<usize>)> {
    let own = key_indexes(&first.row.spec, first.request)?;
    let more = guarded.and_then(|of| key_indexes(&of.row.spec, of.request).ok()).unwrap_or_default();
    Ok((own, more))
}

/// The reply of COMMAND GETKEYSANDFLAGS: each key with what is done to it.
pub fn keys_and_flags<R>(reply: &mut Reply, first: &AskedAbout<R>, guarded: Option<&AskedAbout<R>>) -> Result {
    let (own, more) = all_key_indexes(first, guarded)?;
    reply.array(own.len() + more.len());
    write_uses(reply, first, own);
    guarded.into_iter().for_each(|of| write_uses(reply, of, more.clone()));
    Ok(())
}

fn write_uses<R>(reply: &mut Reply, asked: &AskedAbout<R>, indexes: Vec<usize>) {
    let AskedAbout { row, container, request } = *asked;
    let uses = key_uses(&row.spec, &full_name(&row.spec, container), container);
    for (nth, index) in indexes.into_iter().enumerate() {
        reply.array(2);
        reply.bulk(request.arg(index));
        // MIGRATE does the same with all of its keys: its second specification is another place for them.
        let nth = if row.spec.keys.apart == Apart::Migrate { 0 } else { nth };
        let of_key = uses[nth.min(uses.len() - 1)];
        // What is told besides the first is the destination: keys behind patterns are not known.
        let of_key = if nth > 0 && row.spec.keys.apart == Apart::BehindSortStore { OVERWRITE } else { of_key };
        let of_key = if of_key == VARIABLE { use_in(&row.spec, request) } else { of_key };
        write_set(reply, of_key);
    }
}

/// Where the keys of a request are; the checks are made in the order of Redis.
fn key_indexes(spec: &Spec, request: Request) -> Result<Vec<usize>> {
    if spec.keys.first == 0 {
        return Err(NO_KEYS);
    }
    if !spec.accepts(request.len()) {
        return Err(WRONG_NUMBER_OF_ARGUMENTS);
    }
    let told = spec.keys.told(request);
    let are_sought = matches!(spec.keys.apart, Apart::Streams | Apart::Migrate);
    let is_wrong = !spec.keys.are_counted_right(request) || are_sought && told.is_empty();
    match is_wrong {
        false => Ok(told),
        true if spec.has(flag::NO_MANDATORY_KEYS) => Ok(Vec::new()),
        true => Err(Error::text("ERR Invalid arguments specified for command")),
    }
}

/// What COMMAND LIST is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter<'r> {
    All,
    /// There are no modules: nothing.
    Module,
    /// Without its `@`.
    Category(&'r [u8]),
    Pattern(&'r [u8]),
}

impl<'r> Filter<'r> {
    /// Of `COMMAND LIST [FILTERBY MODULE module | ACLCAT category | PATTERN pattern]`.
    pub fn parse(request: Request<'r>) -> Result<Filter<'r>> {
        match request.len() {
            2 => Ok(Filter::All),
            5 if !request.is(2, "filterby") => Err(Error::Syntax),
            5 if request.is(3, "module") => Ok(Filter::Module),
            5 if request.is(3, "aclcat") => Ok(Filter::Category(request.arg(4))),
            5 if request.is(3, "pattern") => Ok(Filter::Pattern(request.arg(4))),
            _ => Err(Error::Syntax),
        }
    }

    pub fn takes(self, spec: &Spec, container: Option<&str>) -> bool {
        match self {
            Filter::All => true,
            Filter::Module => false,
            Filter::Category(wanted) => acl_categories(spec, container)
                .iter()
                .any(|category| category.as_bytes()[1..].eq_ignore_ascii_case(wanted)),
            Filter::Pattern(pattern) => glob_match(pattern, full_name(spec, container).as_bytes(), true),
        }
    }
}

/// The reply of COMMAND LIST: the names of commands and subcommands.
pub fn list<'t, R: Copy + 'static>(reply: &mut Reply, rows: impl Iterator<Item = &'t Row<R>>, filter: Filter) {
    let mut names = Vec::new();
    for row in rows {
        let subcommands = with_help(row).map(|subcommand| (subcommand.spec, Some(row.spec.name)));
        let specs = std::iter::once((row.spec, None)).chain(subcommands);
        names.extend(
            specs
                .filter(|(spec, container)| filter.takes(spec, *container))
                .map(|(spec, container)| full_name(&spec, container)),
        );
    }
    reply.array(names.len());
    names.iter().for_each(|name| reply.bulk(name.as_bytes()));
}

/// All categories, in the order in which Redis names them.
pub const CATEGORIES: &[&str] = &[
    "@keyspace",
    "@read",
    "@write",
    "@set",
    "@sortedset",
    "@list",
    "@hash",
    "@string",
    "@bitmap",
    "@hyperloglog",
    "@geo",
    "@stream",
    "@pubsub",
    "@admin",
    "@fast",
    "@slow",
    "@blocking",
    "@dangerous",
    "@connection",
    "@transaction",
    "@scripting",
];

/// Categories for which the group does not stand, by the name of the command or of its container.
const GROUP_CATEGORIES: &[(&str, &[&str])] = &[
    ("asking", &["@connection"]),
    ("bless|clear", &["@dangerous"]),
    ("bless|set", &["@dangerous"]),
    ("command", &["@connection"]),
    ("dbsize", &["@keyspace"]),
    ("expiry", &["@keyspace", "@dangerous"]),
    ("flushall", &["@keyspace", "@dangerous"]),
    ("flushdb", &["@keyspace", "@dangerous"]),
    ("info", &["@dangerous"]),
    ("keys", &["@keyspace", "@dangerous"]),
    ("lastsave", &["@admin", "@dangerous"]),
    ("migrate", &["@keyspace", "@dangerous"]),
    ("readonly", &["@connection"]),
    ("readwrite", &["@connection"]),
    ("restore", &["@keyspace", "@dangerous"]),
    ("restore-asking", &["@keyspace", "@dangerous"]),
    ("role", &["@admin", "@dangerous"]),
    ("sort", &["@set", "@sortedset", "@list", "@dangerous"]),
    ("sort_ro", &["@set", "@sortedset", "@list", "@dangerous"]),
    ("swapdb", &["@keyspace", "@dangerous"]),
    ("wait", &["@connection"]),
];

/// The categories by which access lists know a command. They follow from what it does, how fast, and its group; what
/// has no flags at all only groups others and is but slow.
pub fn acl_categories(spec: &Spec, container: Option<&str>) -> Vec<&'static str> {
    let group = spec.group.name();
    // (Groups of keys are for applications, as keys are.)
    let of_container = container.filter(|_| spec.keys.apart != Apart::GroupName && spec.keys != Keys::THIRD);
    let full_name = container.map(|container| format!("{container}|{}", spec.name));
    let of_itself = full_name.and_then(|name| found(GROUP_CATEGORIES, &name));
    let of_group: &[&str] = match of_itself.or_else(|| found(GROUP_CATEGORIES, of_container.unwrap_or(spec.name))) {
        _ if spec.flags == 0 => &[],
        Some(categories) => categories,
        None => match group {
            "generic" => &["@keyspace"],
            "sorted-set" => &["@sortedset"],
            "transactions" => &["@transaction"],
            // PUBSUB HELP is not in its group's category: the flag decides.
            "pubsub" => &[],
            _ => CATEGORIES.iter().position(|category| category[1..] == *group).map_or(&[], |at| &CATEGORIES[at..=at]),
        },
    };
    let follows = |category: &str| match category {
        // What a script does is not known, though it promises to read only.
        "@read" => spec.has(flag::READ) && group != "scripting",
        "@write" => spec.has(flag::WRITE),
        "@pubsub" => spec.has(flag::PUBSUB),
        "@admin" | "@dangerous" => spec.has(flag::ADMIN),
        "@fast" => spec.has(flag::FAST),
        "@slow" => !spec.has(flag::FAST),
        "@blocking" => spec.has(flag::BLOCKING),
        _ => false,
    };
    CATEGORIES.iter().copied().filter(|category| follows(category) || of_group.contains(category)).collect()
}

/// Remarks on how keys are used, for people, by the name of the command.
const KEY_NOTES: &[(&str, &str)] = &[
    ("bitfield", "This command allows both access and modification of the key"),
    ("eval", WORST_OF_CHANGES),
    ("eval_ro", WORST_OF_READS),
    ("fcall", WORST_OF_CHANGES),
    ("fcall_ro", WORST_OF_READS),
    ("getex", "RW and UPDATE because it changes the TTL"),
    ("pfcount", "RW because it may change the internal representation of the key, and propagate to replicas"),
    ("set", "RW and ACCESS due to the optional `GET` argument"),
    ("xadd", "UPDATE instead of INSERT because of the optional trimming feature"),
];
const WORST_OF_CHANGES: &str = "We cannot tell how the keys will be used so we assume the worst, RW and UPDATE";
const WORST_OF_READS: &str = "We cannot tell how the keys will be used so we assume the worst, RO and ACCESS";

/// Where a key specification says that keys are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Run(Keys),
    /// Behind a word, from an index on.
    Behind(&'static str, i64),
    /// The first half of what is behind the word STREAMS, from an index on.
    Streams(i64),
    /// All that is behind a word, from an index on.
    AllBehind(&'static str, i64),
    /// Somewhere: why that is all that can be said.
    Unknown(&'static str),
}

/// The key specifications: runs of keys that are used in the same way.
fn key_places(spec: &Spec, container: Option<&str>) -> impl Iterator<Item = (KeyUse, Place)> + use<> {
    let keys = spec.keys;
    // The first option.
    let options = -i64::from(spec.arity);
    let uses = if keys.first == 0 { &[] } else { key_uses(spec, &full_name(spec, container), container) };
    uses.iter().enumerate().map(move |(nth, of_keys)| {
        let first = keys.first + nth as u8 * keys.step;
        let place = match (keys.apart, nth) {
            (Apart::First | Apart::BehindStore | Apart::BehindSortStore, 0) => Place::Run(Keys::ONE),
            (Apart::BehindSortStore, 1) => Place::Unknown(
                "For the optional BY/GET keyword. It is marked 'unknown' because the key names derive from the content \
                 of the key we sort",
            ),
            (Apart::BehindSortStore, _) => Place::Unknown(
                "For the optional STORE keyword. It is marked 'unknown' because the keyword can appear anywhere in the \
                 argument array",
            ),
            (Apart::First, _) | (Apart::Migrate, 0) => Place::Run(keys),
            (Apart::Migrate, _) => Place::AllBehind("KEYS", -2),
            (Apart::Streams, _) => Place::Streams(keys.first.into()),
            (Apart::BehindStore, 1) => Place::Behind("STORE", options),
            (Apart::BehindStore, _) => Place::Behind("STOREDIST", options),
            (Apart::GroupName, _) => Place::Run(Keys { apart: Apart::None, ..keys }),
            (Apart::None, _) if uses.len() == 1 => Place::Run(keys),
            (Apart::None, _) => {
                let last = if nth + 1 == uses.len() { keys.last } else { first as i8 };
                Place::Run(Keys { first, last, step: 1, ..Keys::NONE })
            }
        };
        (*of_keys, place)
    })
}

fn write_key_specs(reply: &mut Reply, spec: &Spec, container: Option<&str>) {
    reply.set(key_places(spec, container).count());
    for (of_keys, place) in key_places(spec, container) {
        let notes = match place {
            Place::Unknown(notes) => Some(notes),
            // (No subcommand has any.)
            _ => found(KEY_NOTES, spec.name).filter(|_| container.is_none()),
        };
        reply.map(3 + usize::from(notes.is_some()));
        if let Some(notes) = notes {
            write_pair(reply, "notes", notes);
        }
        reply.bulk(b"flags");
        write_set(reply, of_keys);
        reply.bulk(b"begin_search");
        reply.map(2);
        match place {
            Place::Run(keys) => {
                write_pair(reply, "type", "index");
                let index = i64::from(if keys.count == 0 { keys.first } else { keys.count });
                write_numbers(reply, &[("index", index)]);
            }
            Place::Behind(word, start) | Place::AllBehind(word, start) => write_keyword(reply, word, start),
            Place::Streams(start) => write_keyword(reply, "STREAMS", start),
            Place::Unknown(_) => write_unknown(reply),
        }
        reply.bulk(b"find_keys");
        reply.map(2);
        match place {
            Place::Run(keys) if keys.count > 0 => {
                write_pair(reply, "type", "keynum");
                // Counted from the argument that says how many.
                let first = i64::from(keys.first) - i64::from(keys.count);
                write_numbers(reply, &[("keynumidx", 0), ("firstkey", first), ("keystep", i64::from(keys.step))]);
            }
            Place::Run(keys) => {
                // Counted from the first key, or from the end.
                let last = if keys.last < 0 { i64::from(keys.last) } else { i64::from(keys.last - keys.first as i8) };
                write_range(reply, last, keys.step.into(), 0);
            }
            Place::Behind(..) => write_range(reply, 0, 1, 0),
            Place::Streams(_) => write_range(reply, -1, 1, 2),
            Place::AllBehind(..) => write_range(reply, -1, 1, 0),
            Place::Unknown(_) => write_unknown(reply),
        }
    }
}

fn write_unknown(reply: &mut Reply) {
    write_pair(reply, "type", "unknown");
    write_numbers(reply, &[]);
}

fn write_keyword(reply: &mut Reply, word: &str, start: i64) {
    write_pair(reply, "type", "keyword");
    reply.bulk(b"spec");
    reply.map(2);
    write_pair(reply, "keyword", word);
    reply.bulk(b"startfrom");
    reply.int(start);
}

/// `limit` says which part of what is there are keys: 2 the first half.
fn write_range(reply: &mut Reply, last: i64, step: i64, limit: i64) {
    write_pair(reply, "type", "range");
    write_numbers(reply, &[("lastkey", last), ("keystep", step), ("limit", limit)]);
}

/// The part of a key specification that is called its spec.
fn write_numbers(reply: &mut Reply, numbers: &[(&str, i64)]) {
    reply.bulk(b"spec");
    reply.map(numbers.len());
    for (name, n) in numbers {
        reply.bulk(name.as_bytes());
        reply.int(*n);
    }
}

fn write_arguments(reply: &mut Reply, arguments: &[Argument], key_specs: usize) {
    reply.array(arguments.len());
    for argument in arguments {
        let key_spec = argument.key_spec_index.filter(|_| key_specs > 0).map(|index| index.min(key_specs - 1));
        let flags = [
            (argument.optional, "optional"),
            (argument.multiple, "multiple"),
            (argument.multiple_token, "multiple_token"),
        ];
        let flags: Vec<&str> = flags.into_iter().filter(|(holds, _)| *holds).map(|(_, name)| name).collect();
        let is_group = matches!(argument.kind, Kind::OneOf | Kind::Block);
        let more = [key_spec.is_some(), argument.token.is_some(), !flags.is_empty(), is_group];
        reply.map(2 + more.into_iter().filter(|said| *said).count());
        write_pair(reply, "name", &argument.name);
        write_pair(reply, "type", argument.kind.name());
        if let Some(index) = key_spec {
            reply.bulk(b"key_spec_index");
            reply.int(index as i64);
        }
        if let Some(token) = &argument.token {
            write_pair(reply, "token", token);
        }
        if !flags.is_empty() {
            reply.bulk(b"flags");
            write_set(reply, &flags);
        }
        if is_group {
            reply.bulk(b"arguments");
            write_arguments(reply, &argument.children, key_specs);
        }
    }
}

fn write_pair(reply: &mut Reply, name: &str, text: &str) {
    reply.bulk(name.as_bytes());
    reply.bulk(text.as_bytes());
}

fn write_set(reply: &mut Reply, names: &[&str]) {
    reply.set(names.len());
    names.iter().for_each(|name| reply.simple(name));
}

/// Width of a terminal, to which help is broken.
const COLUMNS: usize = 80;

fn push_indented(lines: &mut Vec<String>, text: &str) {
    let mut line = "   ".to_owned();
    for word in text.split_whitespace() {
        if line.len() + 1 + word.len() > COLUMNS && !line.trim_start().is_empty() {
            lines.push(std::mem::replace(&mut line, "   ".to_owned()));
        }
        line.push(' ');
        line.push_str(word);
    }
    lines.push(line);
}

#[cfg(test)]
mod tests {
    use super::uses::*;
    use super::*;
    use crate::command::{OwnedRequest, Run, rows};
    use crate::resp::Proto;

    fn row(name: &str) -> &'static Row<Run> {
        rows().find(|row| row.spec.name == name).unwrap()
    }

    fn sub(container: &str, name: &str) -> &'static Row<Run> {
        row(container).subcommands.iter().find(|row| row.spec.name == name).unwrap()
    }

    /// A reply with its line ends as spaces, lengths of bulk strings left out.
    fn written(proto: Proto, write: impl FnOnce(&mut Reply)) -> String {
        let mut out = Vec::new();
        write(&mut Reply::new(&mut out, proto));
        let text = String::from_utf8(out).unwrap();
        text.split_terminator("\r\n").filter(|line| !line.starts_with('$')).collect::<Vec<_>>().join(" ")
    }

    fn every_spec() -> impl Iterator<Item = (&'static Spec, Option<&'static str>)> {
        rows().flat_map(|row| {
            let subcommands = row.subcommands.iter().map(|subcommand| (&subcommand.spec, Some(row.spec.name)));
            std::iter::once((&row.spec, None)).chain(subcommands)
        })
    }

    #[test]
    fn info_in_both_protocols() {
        let get = |proto| written(proto, |reply| info(reply, row("get"), None));
        assert_eq!(
            get(Proto::Resp2),
            "*10 get :2 *2 +readonly +fast :1 :1 :1 *3 +@read +@string +@fast *0 *1 *6 flags *2 +RO +access \
             begin_search *4 type index spec *2 index :1 \
             find_keys *4 type range spec *6 lastkey :0 keystep :1 limit :0 *0"
        );
        assert_eq!(
            get(Proto::Resp3),
            "*10 get :2 ~2 +readonly +fast :1 :1 :1 ~3 +@read +@string +@fast ~0 ~1 %3 flags ~2 +RO +access \
             begin_search %2 type index spec %1 index :1 \
             find_keys %2 type range spec %3 lastkey :0 keystep :1 limit :0 ~0"
        );
    }

    #[test]
    fn info_of_a_container_holds_its_subcommands() {
        let text = written(Proto::Resp3, |reply| info(reply, row("object"), None));
        let count = row("object").subcommands.len() + 1;
        assert!(
            text.starts_with(&format!("*10 object :-2 ~0 :0 :0 :0 ~1 +@slow ~0 ~0 *{count} *10 object|")),
            "{text}"
        );
        let encoding = written(Proto::Resp3, |reply| info(reply, sub("object", "encoding"), Some("object")));
        assert!(text.contains(&encoding));
        assert_eq!(
            encoding,
            "*10 object|encoding :3 ~1 +readonly :2 :2 :1 ~3 +@keyspace +@read +@slow ~1 nondeterministic_output ~1 %3 flags ~1 +RO \
             begin_search %2 type index spec %1 index :2 \
             find_keys %2 type range spec %3 lastkey :0 keystep :1 limit :0 ~0"
        );
    }

    #[test]
    fn keys_that_are_used_alike_share_a_specification() {
        let places = |name: &str| key_places(&row(name).spec, None).collect::<Vec<_>>();
        assert_eq!(places("lcs"), [(READ, Place::Run(Keys::TWO))]);
        assert_eq!(places("mset"), [(OVERWRITE, Place::Run(Keys::PAIRS))]);
        assert_eq!(places("rename"), [(TAKE, Place::Run(Keys::ONE)), (OVERWRITE, Place::Run(Keys::SECOND))]);
        let sources = Place::Run(Keys { first: 3, ..Keys::ALL });
        assert_eq!(places("bitop"), [(OVERWRITE, Place::Run(Keys::SECOND)), (READ, sources)]);
        assert_eq!(places("scan"), []);
        let counted = Place::Run(Keys::DESTINATION_AND_COUNTED);
        assert_eq!(places("zunionstore"), [(OVERWRITE, Place::Run(Keys::ONE)), (READ, counted)]);
        let behind = |word| (OVERWRITE, Place::Behind(word, 6));
        assert_eq!(places("georadius"), [(READ, Place::Run(Keys::ONE)), behind("STORE"), behind("STOREDIST")]);
    }

    #[test]
    fn docs_in_both_protocols() {
        let docs = |name: &str, proto| {
            let text = written(proto, |reply| docs(reply, row(name), None));
            let spec = &row(name).spec;
            text.replace(spec.summary, "S").replace(spec.complexity, "C")
        };
        assert_eq!(docs("dbsize", Proto::Resp2), "dbsize *8 summary S since 1.0.0 group server complexity C");
        assert_eq!(
            docs("copy", Proto::Resp3),
            "copy %5 summary S since 6.2.0 group generic complexity C arguments *4 \
             %3 name source type key key_spec_index :0 %3 name destination type key key_spec_index :1 \
             %4 name destination-db type integer token DB flags ~1 +optional \
             %4 name replace type pure-token token REPLACE flags ~1 +optional"
        );
        assert_eq!(
            docs("expire", Proto::Resp2),
            "expire *10 summary S since 1.0.0 group generic complexity C arguments *3 \
             *6 name key type key key_spec_index :0 *4 name seconds type integer \
             *8 name condition type oneof flags *1 +optional arguments *4 \
             *6 name nx type pure-token token NX *6 name xx type pure-token token XX \
             *6 name gt type pure-token token GT *6 name lt type pure-token token LT"
        );
        let lcs = docs("lcs", Proto::Resp3);
        assert!(lcs.contains("name key2 type key key_spec_index :0"), "both keys are in one specification: {lcs}");
        let object = docs("object", Proto::Resp3);
        let count = row("object").subcommands.len() + 1;
        assert!(object.contains(&format!("complexity C subcommands %{count} object|")), "{object}");
    }

    #[test]
    fn help_names_every_subcommand() {
        let mut out = Vec::new();
        help(&mut Reply::new(&mut out, Proto::Resp2), row("object"));
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.split_terminator("\r\n").collect();
        assert_eq!(lines[0], format!("*{}", lines.len() - 1));
        assert_eq!(lines[1], "+OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
        assert_eq!(lines[2], "+ENCODING key");
        assert_eq!(lines[3], "+    Returns how the value under a key is kept.");
        assert_eq!(lines[lines.len() - 2..], ["+HELP", "+    Prints this help."]);
        assert_eq!(lines.iter().filter(|line| **line == "+HELP").count(), 1);
        assert!(lines.iter().all(|line| line.len() <= COLUMNS + 1));
    }

    #[test]
    fn long_help_is_broken_between_words() {
        let mut lines = Vec::new();
        push_indented(&mut lines, &"word ".repeat(20));
        assert_eq!(lines, [format!("   {}", " word".repeat(15)), format!("   {}", " word".repeat(5))]);
        lines.clear();
        push_indented(&mut lines, &"x".repeat(100));
        assert_eq!(lines, [format!("    {}", "x".repeat(100))]);
    }

    #[test]
    fn keys_of_requests() {
        let ask = |row: &Row<Run>, line: &str, flags: Option<Option<&str>>| {
            let request = OwnedRequest::from_args(line.split(' ').map(str::as_bytes));
            let mut result = Ok(());
            let text = written(Proto::Resp3, |reply| {
                result = match flags {
                    None => keys(reply, &AskedAbout { row, container: None, request: request.as_request() }, None),
                    Some(container) => {
                        keys_and_flags(reply, &AskedAbout { row, container, request: request.as_request() }, None)
                    }
                };
            });
            result.map(|()| text)
        };
        let names = |row, line| ask(row, line, None);
        assert_eq!(names(row("get"), "get a"), Ok("*1 a".into()));
        assert_eq!(names(row("mset"), "mset a 1 b 2"), Ok("*2 a b".into()));
        assert_eq!(names(row("mset"), "mset a 1 b"), Ok("*2 a b".into()), "as Redis, which does not look at pairs");
        assert_eq!(names(row("bitop"), "bitop and a b c"), Ok("*3 a b c".into()));
        assert_eq!(names(row("sort"), "sort a"), Ok("*1 a".into()));
        assert_eq!(names(row("sort"), "sort a get store by store limit store 1 store b store c"), Ok("*2 a c".into()));
        assert_eq!(names(row("sort"), "sort a desc store"), Ok("*1 a".into()));
        assert_eq!(names(sub("object", "freq"), "object freq a"), Ok("*1 a".into()));
        assert_eq!(names(row("zunionstore"), "zunionstore d 2 a b weights 1 2"), Ok("*3 d a b".into()));
        assert!(names(row("zunionstore"), "zunionstore d 3 a b").is_err(), "there are too few");
        let radius = "georadius a 1 2 3 km store b count 1 StoreDist c asc";
        assert_eq!(names(row("georadius"), radius), Ok("*3 a b c".into()), "whichever counts");
        assert_eq!(names(row("sort_ro"), "sort_ro a store b"), Ok("*1 a".into()));
        assert_eq!(names(row("xread"), "xread count streams a 0"), Ok("*1 a".into()), "as Redis, which knows no COUNT");
        assert_eq!(names(row("xread"), "xread streams a b 0"), Ok("*1 a".into()));
        assert!(names(row("xread"), "xread count 1 2").is_err());
        assert_eq!(names(row("georadius"), "georadius a 1 2 3 km store"), Ok("*1 a".into()));
        assert_eq!(names(row("get"), "get a b"), Err(WRONG_NUMBER_OF_ARGUMENTS));
        assert_eq!(names(row("dbsize"), "dbsize a"), Err(NO_KEYS));

        let used = |name: &str, line| ask(row(name), line, Some(None));
        assert_eq!(used("rename", "rename a b"), Ok("*2 *2 a ~3 +RW +access +delete *2 b ~2 +OW +update".into()));
        assert_eq!(used("del", "del a b"), Ok("*2 *2 a ~2 +RM +delete *2 b ~2 +RM +delete".into()));
        assert_eq!(used("set", "set a b ex 10"), Ok("*1 *2 a ~2 +OW +update".into()));
        assert_eq!(used("set", "set a b Get"), Ok("*1 *2 a ~3 +RW +access +update".into()));
        assert_eq!(used("bitfield", "bitfield a overflow sat get u8 0"), Ok("*1 *2 a ~2 +RO +access".into()));
        assert_eq!(used("bitfield", "bitfield a set u8 0 1"), Ok("*1 *2 a ~3 +RW +access +update".into()));
        assert_eq!(used("sort", "sort a store b"), Ok("*2 *2 a ~2 +RO +access *2 b ~2 +OW +update".into()));
        assert_eq!(used("scan", "scan 0"), Err(NO_KEYS));
        assert!(names(row("zunion"), "zunion 0 a").is_err(), "it has to name one");
        let encoding = ask(sub("object", "encoding"), "object encoding a", Some(Some("object")));
        assert_eq!(encoding, Ok("*1 *2 a ~1 +RO".into()));
    }

    #[test]
    fn categories_follow_from_what_a_command_does() {
        let of = |name: &str| acl_categories(&row(name).spec, None).join(" ");
        assert_eq!(of("set"), "@write @string @slow");
        assert_eq!(of("del"), "@keyspace @write @slow");
        assert_eq!(of("ttl"), "@keyspace @read @fast");
        assert_eq!(of("dbsize"), "@keyspace @read @fast");
        assert_eq!(of("keys"), "@keyspace @read @slow @dangerous");
        assert_eq!(of("flushall"), "@keyspace @write @slow @dangerous");
        assert_eq!(of("object"), "@slow");

        use crate::command::spec::Group;
        let spec = |name, flags, group| Spec { name, flags, group, keys: Keys::NONE, ..row("get").spec };
        let of = |spec: Spec, container| acl_categories(&spec, container).join(" ");
        use flag::{ADMIN, FAST, LOADING, PUBSUB};
        assert_eq!(of(spec("ping", FAST, Group::Connection), None), "@fast @connection");
        assert_eq!(of(spec("publish", PUBSUB | FAST, Group::PubSub), None), "@pubsub @fast");
        assert_eq!(of(spec("help", LOADING, Group::PubSub), Some("pubsub")), "@slow");
        assert_eq!(of(spec("get", ADMIN, Group::Server), Some("config")), "@admin @slow @dangerous");
        assert_eq!(of(spec("list", ADMIN, Group::Connection), Some("client")), "@admin @slow @dangerous @connection");
        assert_eq!(of(spec("info", LOADING, Group::Server), None), "@slow @dangerous");
        assert_eq!(of(spec("info", LOADING, Group::Connection), Some("client")), "@slow @connection");
        assert_eq!(of(spec("docs", LOADING, Group::Server), Some("command")), "@slow @connection");
        assert_eq!(of(spec("wait", LOADING, Group::Generic), None), "@slow @connection");
        assert_eq!(of(spec("asking", FAST, Group::Cluster), None), "@fast @connection");
        assert_eq!(of(spec("nodes", LOADING, Group::Cluster), Some("cluster")), "@slow");
        assert_eq!(of(spec("lolwut", flag::READ | FAST, Group::Server), None), "@read @fast");
        assert_eq!(of(spec("time", FAST | LOADING, Group::Server), None), "@fast");
    }

    #[test]
    fn lists() {
        let listed = |line: &str| {
            let request = OwnedRequest::from_args(line.split(' ').map(str::as_bytes));
            let filter = Filter::parse(request.as_request())?;
            Ok(written(Proto::Resp3, |reply| list(reply, rows(), filter)))
        };
        let all = every_spec().count() + rows().filter(|row| !row.subcommands.is_empty()).count();
        assert!(listed("command list").unwrap().starts_with(&format!("*{all} ")));
        assert_eq!(listed("command list filterby module json"), Ok("*0".into()));
        assert_eq!(listed("command list FILTERBY pattern GETD*"), Ok("*1 getdel".into()));
        assert_eq!(listed("command list filterby pattern object|e*"), Ok("*1 object|encoding".into()));
        assert_eq!(listed("command list filterby aclcat nosuch"), Ok("*0".into()));
        assert_eq!(listed("command list filterby aclcat @string"), Ok("*0".into()));
        let dangerous = listed("command list filterby AclCat Dangerous").unwrap();
        assert!(dangerous.contains(" flushall") && !dangerous.contains(" get"), "{dangerous}");
        for wrong in
            ["command list filterby", "command list filterby aclcat", "command list x y z", "command list filterby x y"]
        {
            assert_eq!(listed(wrong), Err(Error::Syntax), "{wrong}");
        }
    }

    #[test]
    fn every_row_keeps_the_notation() {
        for (spec, container) in every_spec() {
            let name = full_name(spec, container);
            if let Err(error) = syntax::parse(spec.syntax) {
                panic!("{name}: {error}");
            }
        }
    }

    /// A row's arity and its syntax say the same twice.
    #[test]
    fn arity_follows_from_syntax() {
        /// How many words it takes at least, and whether it can take more.
        fn words(argument: &Argument) -> (i32, bool) {
            let token = i32::from(argument.token.is_some());
            let parts: Vec<(i32, bool)> = argument.children.iter().map(words).collect();
            let (least, open) = match argument.kind {
                Kind::PureToken => (0, false),
                Kind::Block => (parts.iter().map(|part| part.0).sum(), parts.iter().any(|part| part.1)),
                Kind::OneOf => {
                    let least = parts.iter().map(|part| part.0).min().unwrap_or(0);
                    (least, parts.iter().any(|part| *part != (least, false)))
                }
                _ => (1, false),
            };
            if argument.optional { (0, true) } else { (token + least, open || argument.multiple) }
        }
        for (spec, container) in every_spec() {
            // What has no flags only groups others. No notation says that a polygon has three vertices.
            if spec.flags == 0 || spec.name.starts_with("geosearch") {
                continue;
            }
            let parts: Vec<(i32, bool)> = syntax::parse(spec.syntax).unwrap().iter().map(words).collect();
            let least = 1 + i32::from(container.is_some()) + parts.iter().map(|part| part.0).sum::<i32>();
            let arity = if parts.iter().any(|part| part.1) { -least } else { least };
            assert_eq!(spec.arity, arity, "{}", full_name(spec, container));
        }
    }

    #[test]
    fn tables_name_each_command_once_in_order() {
        assert!(GROUP_CATEGORIES.is_sorted_by(|a, b| a.0 < b.0));
        assert!(KEY_USES.is_sorted_by(|a, b| a.0 < b.0));
        assert!(GROUP_CATEGORIES.iter().all(|(_, all)| all.iter().all(|category| CATEGORIES.contains(category))));
        assert!(KEY_USES.iter().all(|(_, uses)| !uses.is_empty()));
    }
}
