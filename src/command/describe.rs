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

#[cfg(test)]
mod tests;
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
    let of_container = container
        .filter(|_| !matches!(spec.keys.apart, Apart::GroupName | Apart::GroupAndStream) && spec.keys != Keys::THIRD);
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
            (Apart::GroupName | Apart::GroupAndStream, _) => Place::Run(Keys { apart: Apart::None, ..keys }),
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
