//! Which connections CLIENT LIST shows and CLIENT KILL ends. Redis 7.4 has `ID`, `TYPE`, `USER`, `ADDR`, `LADDR`, `SKIPME` and
//! `MAXAGE` (of them LIST only `ID` and `TYPE`); the others, and their opposites with `NOT-`, are those of Valkey 9.

use crate::acl::Users;
use crate::clock::store_us;
use crate::resp::{Error, Request, Result, printable};
use crate::server::client::line::flags;
use crate::server::client::session::Session;
use crate::server::client::{Client, State};
use crate::value::number::parse_i64;
use std::collections::BTreeSet;
use std::mem::discriminant;

/// The kinds of connections that Redis tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Normal,
    PubSub,
    Replica,
    Master,
}

impl Kind {
    fn of(session: &Session) -> Kind {
        match () {
            () if session.is_primary => Kind::Master,
            () if session.replica.is_some() => Kind::Replica,
            () if session.listens() => Kind::PubSub,
            () => Kind::Normal,
        }
    }

    fn named(request: Request, index: usize) -> Result<Kind> {
        let names = [
            ("normal", Kind::Normal),
            ("pubsub", Kind::PubSub),
            ("replica", Kind::Replica),
            ("slave", Kind::Replica),
            ("master", Kind::Master),
            ("primary", Kind::Master),
        ];
        let found = names.into_iter().find(|(name, _)| request.is(index, name));
        found.map(|(_, kind)| kind).ok_or_else(|| {
            Error::quoting(&[b"ERR Unknown client type '", printable(request.arg(index), usize::MAX), b"'"])
        })
    }
}

/// What may be asked of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    Ids(BTreeSet<i64>),
    Kind(Kind),
    User(Vec<u8>),
    Addr(Vec<u8>),
    Laddr(Vec<u8>),
    Ip(Vec<u8>),
    Name(Vec<u8>),
    LibName(Vec<u8>),
    LibVer(Vec<u8>),
    /// All of these letters stand in its line.
    Flags(Vec<u8>),
    /// It has said that it can do all of this, a letter each: nobody has anything to say here.
    Capa(Vec<u8>),
    Db(usize),
    /// It is so many seconds old.
    MaxAge(i64),
    /// It has said nothing for so many seconds.
    Idle(i64),
}

/// The letters of all flags that a connection can have in Redis and Valkey.
const FLAGS: &[u8] = b"OSMPxbtRBdcuAUreTIN";
/// What a connection can say that it can do: follow a redirection.
const CAPABILITIES: &[u8] = b"r";

/// The conditions, by name, and whether they have an opposite.
const NAMES: &[(&str, Read, bool)] = &[
    ("id", read_ids, true),
    ("type", |asked, at| Ok(Condition::Kind(Kind::named(asked.request, at)?)), true),
    ("user", read_user, true),
    ("addr", |asked, at| Ok(Condition::Addr(asked.value(at))), true),
    ("laddr", |asked, at| Ok(Condition::Laddr(asked.value(at))), true),
    ("ip", |asked, at| Ok(Condition::Ip(asked.value(at))), true),
    ("name", |asked, at| Ok(Condition::Name(asked.value(at))), true),
    ("lib-name", |asked, at| Ok(Condition::LibName(asked.value(at))), true),
    ("lib-ver", |asked, at| Ok(Condition::LibVer(asked.value(at))), true),
    ("flags", |asked, at| asked.letters(at, "flags", FLAGS).map(Condition::Flags), true),
    ("capa", |asked, at| asked.letters(at, "capa", CAPABILITIES).map(Condition::Capa), true),
    ("db", read_db, true),
    ("maxage", |asked, at| asked.seconds(at, "maxage").map(Condition::MaxAge), false),
    ("idle", |asked, at| asked.seconds(at, "idle").map(Condition::Idle), false),
];

type Read = fn(&Asked, usize) -> Result<Condition>;

/// What is read, by index.
struct Asked<'r> {
    request: Request<'r>,
    databases: usize,
    users: &'r Users,
    /// The name before it has `NOT-`.
    is_negated: bool,
}

impl Asked<'_> {
    fn value(&self, at: usize) -> Vec<u8> {
        self.request.arg(at).to_vec()
    }

    fn letters(&self, at: usize, what: &str, known: &[u8]) -> Result<Vec<u8>> {
        let letters = self.value(at);
        if letters.iter().all(|letter| known.contains(letter)) {
            return Ok(letters);
        }
        let name = if self.is_negated { format!("NOT-{}", what.to_uppercase()) } else { "provided".to_owned() };
        let head = format!("ERR Unknown {what} found in the {name} filter: ");
        Err(Error::quoting(&[head.as_bytes(), printable(&letters, usize::MAX)]))
    }

    fn seconds(&self, at: usize, what: &str) -> Result<i64> {
        let seconds = parse_i64(self.request.arg(at));
        let seconds = seconds.ok_or_else(|| Error::err(format_args!("{what} is not an integer or out of range")))?;
        if seconds > 0 { Ok(seconds) } else { Err(Error::err(format_args!("{what} should be greater than 0"))) }
    }
}

/// All numbers that stand there; what is none is the name of another condition.
fn read_ids(asked: &Asked, at: usize) -> Result<Condition> {
    const WRONG: Error = Error::text("ERR client-id should be greater than 0");
    let first = parse_i64(asked.request.arg(at)).ok_or(WRONG)?;
    let others = (at + 1..asked.request.len()).map_while(|index| parse_i64(asked.request.arg(index)));
    let ids: BTreeSet<i64> = std::iter::once(first).chain(others).collect();
    if ids.first().is_some_and(|id| *id > 0) { Ok(Condition::Ids(ids)) } else { Err(WRONG) }
}

fn read_user(asked: &Asked, at: usize) -> Result<Condition> {
    match asked.request.arg(at) {
        user if asked.users.get(user).is_some() => Ok(Condition::User(user.to_vec())),
        user => Err(Error::quoting(&[b"ERR No such user '", printable(user, usize::MAX), b"'"])),
    }
}

fn read_db(asked: &Asked, at: usize) -> Result<Condition> {
    let db = parse_i64(asked.request.arg(at)).filter(|db| i32::try_from(*db).is_ok());
    let db = db.ok_or(Error::text("ERR DB is not an integer or out of range"))?;
    let found = usize::try_from(db).ok().filter(|db| *db < asked.databases);
    let range = || Error::err(format_args!("DB number should be between 0 and {}", asked.databases - 1));
    found.map(Condition::Db).ok_or_else(range)
}

/// Conditions that all hold for a connection that is meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Filter {
    /// What is asked, and whether its opposite is meant.
    conditions: Vec<(Condition, bool)>,
    spares_caller: bool,
}

impl Filter {
    /// Those who come from an address: the caller, too.
    pub(super) fn of_address(address: &[u8]) -> Filter {
        Filter { conditions: vec![(Condition::Addr(address.to_vec()), false)], spares_caller: false }
    }

    /// Of the names and values behind the subcommand.
    pub(super) fn parse(request: Request, spares_caller: bool, databases: usize, users: &Users) -> Result<Filter> {
        let mut filter = Filter { conditions: Vec::new(), spares_caller };
        let mut at = 2;
        while at < request.len() {
            if request.get(at + 1).is_none() {
                return Err(Error::Syntax);
            }
            if request.is(at, "skipme") {
                filter.spares_caller = match (request.is(at + 1, "yes"), request.is(at + 1, "no")) {
                    (true, _) => true,
                    (_, true) => false,
                    _ => return Err(Error::Syntax),
                };
                at += 2;
                continue;
            }
            let (read, is_negated) = named(request, at).ok_or(Error::Syntax)?;
            let condition = read(&Asked { request, databases, users, is_negated }, at + 1)?;
            at += if let Condition::Ids(_) = condition { 1 + ids_behind(request, at) } else { 2 };
            // Who is named twice is what is said last.
            let same =
                |other: &(Condition, bool)| other.1 == is_negated && discriminant(&other.0) == discriminant(&condition);
            filter.conditions.retain(|other| !same(other));
            filter.conditions.push((condition, is_negated));
        }
        Ok(filter)
    }

    pub(super) fn takes(&self, client: &Client, caller: u64) -> bool {
        let state = &*client.state.borrow();
        !(self.spares_caller && client.id == caller)
            && self.conditions.iter().all(|(condition, is_negated)| condition.holds(state) != *is_negated)
    }
}

/// How many numbers stand behind an index.
fn ids_behind(request: Request, at: usize) -> usize {
    (at + 1..request.len()).take_while(|index| parse_i64(request.arg(*index)).is_some()).count()
}

/// Whether a condition, or `SKIPME`, is named there.
pub(super) fn is_named(request: Request, at: usize) -> bool {
    request.is(at, "skipme") || named(request, at).is_some()
}

/// How the value behind a name is read, and whether the name begins with `NOT-`.
fn named(request: Request, at: usize) -> Option<(Read, bool)> {
    NAMES.iter().find_map(|(name, read, has_opposite)| {
        let is_negated = *has_opposite && request.is(at, &format!("not-{name}"));
        (is_negated || request.is(at, name)).then_some((*read, is_negated))
    })
}

impl Condition {
    fn holds(&self, state: &State) -> bool {
        let session = &state.session;
        let seconds_since = |us: u64| (store_us().saturating_sub(us) / 1_000_000) as i64;
        // Who has no name is not the one whose name is empty.
        let is = |own: &[u8], asked: &[u8]| !own.is_empty() && own == asked;
        match self {
            Condition::Ids(ids) => ids.contains(&(session.peer.id as i64)),
            Condition::Kind(kind) => Kind::of(session) == *kind,
            Condition::User(name) => session.user_name() == name,
            Condition::Addr(addr) => session.peer.addr.as_bytes() == addr,
            Condition::Laddr(addr) => session.peer.laddr.as_bytes() == addr,
            Condition::Ip(ip) => ip_of(&session.peer.addr).is_some_and(|own| own.as_bytes() == ip),
            Condition::Name(name) => is(&session.name, name),
            Condition::LibName(name) => is(&session.lib_name, name),
            Condition::LibVer(version) => is(&session.lib_ver, version),
            Condition::Flags(letters) => {
                let own = flags(state);
                letters.iter().all(|letter| own.as_bytes().contains(letter))
            }
            Condition::Capa(letters) => letters.is_empty(),
            Condition::Db(db) => session.db == *db,
            Condition::MaxAge(seconds) => seconds_since(session.created_us) >= *seconds,
            Condition::Idle(seconds) => seconds_since(session.used_us) >= *seconds,
        }
    }
}

/// The address of `1.2.3.4:5` or `[::1]:5`; a Unix socket has none.
fn ip_of(addr: &str) -> Option<&str> {
    let (ip, port) = addr.rsplit_once(':')?;
    (port != "0").then(|| ip.trim_start_matches('[').trim_end_matches(']'))
}

#[cfg(test)]
pub(super) fn one_user() -> Users {
    let table = crate::command::Table::new(crate::command::rows().copied());
    Users::new(&crate::acl::Vocabulary::of(&table))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::OwnedRequest;

    fn parse(line: &str) -> Result<Filter> {
        let request = OwnedRequest::from_args(line.split(' ').map(str::as_bytes));
        Filter::parse(request.as_request(), true, 16, &one_user())
    }

    #[test]
    fn conditions_are_read_by_name() {
        let filter = parse("CLIENT KILL id 7 USER default NOT-laddr a SKIPME no Type slave").unwrap();
        let expected = [
            (Condition::Ids([7].into()), false),
            (Condition::User(b"default".to_vec()), false),
            (Condition::Laddr(b"a".to_vec()), true),
            (Condition::Kind(Kind::Replica), false),
        ];
        assert_eq!(filter, Filter { conditions: expected.into(), spares_caller: false });
        assert!(parse("CLIENT KILL ID 7").unwrap().spares_caller);
        let filter = parse("CLIENT KILL ID 3 1 3 IDLE 5").unwrap();
        assert_eq!(filter.conditions, [(Condition::Ids([1, 3].into()), false), (Condition::Idle(5), false)]);
        let filter = parse("CLIENT KILL DB 3 NOT-DB 4 DB 5").unwrap();
        assert_eq!(filter.conditions, [(Condition::Db(4), true), (Condition::Db(5), false)], "the last one counts");
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        let refused = |line: &str| parse(line).unwrap_err().to_string();
        for line in
            ["ID 1 TYPE", "SKIPME maybe", "NOT-SKIPME yes", "NOT-IDLE 1", "NOT-MAXAGE 1", "NAME", "x y", "ID 1 x y"]
        {
            assert_eq!(parse(&format!("CLIENT KILL {line}")), Err(Error::Syntax), "{line}");
        }
        for line in ["ID 0", "ID x", "ID -1 2", "NOT-ID TYPE normal"] {
            assert_eq!(refused(&format!("CLIENT KILL {line}")), "ERR client-id should be greater than 0", "{line}");
        }
        for (line, text) in [
            ("MAXAGE x", "maxage is not an integer or out of range"),
            ("MAXAGE 0", "maxage should be greater than 0"),
            ("IDLE -1", "idle should be greater than 0"),
            ("IDLE 9223372036854775808", "idle is not an integer or out of range"),
            ("TYPE some", "Unknown client type 'some'"),
            ("USER bob", "No such user 'bob'"),
            ("DB 16", "DB number should be between 0 and 15"),
            ("DB 4294967296", "DB is not an integer or out of range"),
            ("FLAGS xz", "Unknown flags found in the provided filter: xz"),
            ("NOT-CAPA q", "Unknown capa found in the NOT-CAPA filter: q"),
        ] {
            assert_eq!(refused(&format!("CLIENT KILL {line}")), format!("ERR {text}"));
        }
    }

    #[test]
    fn a_connection_is_asked() {
        let client = Client::nobody();
        {
            let session = &mut client.state.borrow_mut().session;
            session.peer.addr = "[::1]:5".to_owned();
            session.name = b"worker".to_vec();
            session.db = 3;
            session.no_touch = true;
        }
        let takes = |line: &str| parse(&format!("CLIENT KILL {line}")).unwrap().takes(&client, 1);
        for line in
            ["IP ::1", "ADDR [::1]:5", "NAME worker", "DB 3", "FLAGS T", "TYPE normal", "NOT-LIB-NAME x", "NOT-CAPA r"]
        {
            assert!(takes(line), "{line}");
        }
        for line in [
            "IP ::2",
            "IP [::1]",
            "NOT-IP ::1",
            "NAME x",
            "NOT-NAME worker",
            "DB 2",
            "FLAGS N",
            "FLAGS Tx",
            "LIB-VER 1",
        ] {
            assert!(!takes(line), "{line}");
        }
        assert!(!takes("DB 3 NAME other") && takes("DB 3 NOT-NAME other"), "all of them hold");
        assert!(!parse("CLIENT KILL DB 3").unwrap().takes(&client, client.id), "the caller is spared");
        assert_eq!(ip_of("/run/socket:0"), None);
    }
}
