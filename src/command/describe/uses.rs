//! What commands do with their keys, as key specifications name it.

use crate::command::spec::{Apart, Spec, flag};
use crate::resp::Request;

/// What is done with a key, as a key specification names it: the value is only looked at (RO), changed (RW),
/// overwritten unseen (OW) or removed unseen (RM); its bytes are handed to the client (access), replaced (update),
/// added to (insert) or deleted.
pub(super) type KeyUse = &'static [&'static str];

pub(super) const LOOK: KeyUse = &["RO"];
pub(super) const READ: KeyUse = &["RO", "access"];
pub(super) const CHANGE: KeyUse = &["RW", "update"];
pub(super) const READ_AND_CHANGE: KeyUse = &["RW", "access", "update"];
pub(super) const ADD: KeyUse = &["RW", "insert"];
pub(super) const TAKE: KeyUse = &["RW", "access", "delete"];
/// The same, where the keys are not always found by their specification.
pub(super) const TAKE_INCOMPLETE: KeyUse = &["RW", "access", "delete", "incomplete"];
pub(super) const OVERWRITE: KeyUse = &["OW", "update"];
pub(super) const CREATE: KeyUse = &["OW", "insert"];
pub(super) const REMOVE: KeyUse = &["RM", "delete"];
pub(super) const ACCESS: KeyUse = &["RW", "access"];
pub(super) const READ_AND_ADD: KeyUse = &["RW", "access", "insert"];
pub(super) const DELETE_IN: KeyUse = &["RW", "delete"];
/// It depends on the arguments: see [`use_in`].
pub(super) const VARIABLE: KeyUse = &["RW", "access", "update", "variable_flags"];

/// The uses of keys that are neither [`READ`] by a command that reads nor [`CHANGE`] by one that writes, by the full
/// name of the command or the name of its container. Where keys are used in different ways, there is one use for each
/// key.
pub(super) const KEY_USES: &[(&str, &[KeyUse])] = &[
    ("append", &[ADD]),
    ("bitfield", &[VARIABLE]),
    ("bitop", &[OVERWRITE, READ]),
    ("bless|get", &[LOOK]),
    ("blmove", &[TAKE, ADD]),
    ("blmovem", &[TAKE, ADD]),
    ("blmpop", &[TAKE]),
    ("blpop", &[TAKE]),
    ("brpop", &[TAKE]),
    ("brpoplpush", &[TAKE, ADD]),
    ("bzmpop", &[TAKE]),
    ("bzpopmax", &[TAKE]),
    ("bzpopmin", &[TAKE]),
    ("cl.throttle", &[READ_AND_CHANGE]),
    ("copy", &[READ, OVERWRITE]),
    ("decr", &[READ_AND_CHANGE]),
    ("decrby", &[READ_AND_CHANGE]),
    ("del", &[REMOVE]),
    ("delex", &[DELETE_IN]),
    ("delifeq", &[REMOVE]),
    ("eval", &[READ_AND_CHANGE]),
    ("evalsha", &[READ_AND_CHANGE]),
    ("exists", &[LOOK]),
    ("fcall", &[READ_AND_CHANGE]),
    ("georadius", &[READ, OVERWRITE, OVERWRITE]),
    ("georadiusbymember", &[READ, OVERWRITE, OVERWRITE]),
    ("geosearchstore", &[OVERWRITE, READ]),
    ("getdel", &[TAKE]),
    ("getex", &[READ_AND_CHANGE]),
    ("getset", &[READ_AND_CHANGE]),
    ("guard", &[READ]),
    ("hdel", &[DELETE_IN]),
    ("hexists", &[LOOK]),
    ("hgetdel", &[TAKE]),
    ("hgetex", &[READ_AND_CHANGE]),
    ("hincrby", &[READ_AND_CHANGE]),
    ("hincrbyfloat", &[READ_AND_CHANGE]),
    ("hlen", &[LOOK]),
    ("hsetnx", &[ADD]),
    ("hstrlen", &[LOOK]),
    ("incr", &[READ_AND_CHANGE]),
    ("incrby", &[READ_AND_CHANGE]),
    ("incrbyfloat", &[READ_AND_CHANGE]),
    ("increx", &[READ_AND_CHANGE]),
    ("lease|release", &[DELETE_IN]),
    ("lease|renew", &[READ_AND_CHANGE]),
    ("lease|take", &[READ_AND_CHANGE]),
    ("linsert", &[ADD]),
    ("llen", &[LOOK]),
    ("lmove", &[TAKE, ADD]),
    ("lmovem", &[TAKE, ADD]),
    ("lmpop", &[TAKE]),
    ("lpop", &[TAKE]),
    ("lpush", &[ADD]),
    ("lpushx", &[ADD]),
    ("lrem", &[DELETE_IN]),
    ("ltrim", &[DELETE_IN]),
    ("memory", &[LOOK]),
    ("migrate", &[TAKE, TAKE_INCOMPLETE]),
    ("move", &[READ_AND_CHANGE]),
    ("mset", &[OVERWRITE]),
    ("msetnx", &[CREATE]),
    ("object", &[LOOK]),
    ("pfadd", &[ADD]),
    ("pfcount", &[ACCESS]),
    ("pfdebug", &[ACCESS]),
    ("pfmerge", &[READ_AND_ADD, READ]),
    ("psetex", &[OVERWRITE]),
    ("rename", &[TAKE, OVERWRITE]),
    ("renamenx", &[TAKE, CREATE]),
    ("restore", &[OVERWRITE]),
    ("restore-asking", &[OVERWRITE]),
    ("rpop", &[TAKE]),
    ("rpoplpush", &[TAKE, ADD]),
    ("rpush", &[ADD]),
    ("rpushx", &[ADD]),
    ("sadd", &[ADD]),
    ("scard", &[LOOK]),
    ("sdiffstore", &[OVERWRITE, READ]),
    ("set", &[VARIABLE]),
    ("setbit", &[READ_AND_CHANGE]),
    ("setex", &[OVERWRITE]),
    ("setnx", &[CREATE]),
    ("sinterstore", &[CHANGE, READ]),
    ("sismember", &[LOOK]),
    ("smove", &[TAKE, ADD]),
    ("sort", &[READ, READ, OVERWRITE]),
    ("sort_ro", &[READ, READ]),
    ("spop", &[TAKE]),
    ("srem", &[DELETE_IN]),
    ("strlen", &[LOOK]),
    ("sunionstore", &[OVERWRITE, READ]),
    ("touch", &[LOOK]),
    ("type", &[LOOK]),
    ("unlink", &[REMOVE]),
    ("xackdel", &[DELETE_IN]),
    ("xautoclaim", &[DELETE_IN]),
    ("xdel", &[DELETE_IN]),
    ("xdelex", &[DELETE_IN]),
    ("xgroup|create", &[ADD]),
    ("xgroup|createconsumer", &[ADD]),
    ("xgroup|delconsumer", &[DELETE_IN]),
    ("xgroup|destroy", &[DELETE_IN]),
    ("xlen", &[LOOK]),
    ("xreadgroup", &[READ]),
    ("xtrim", &[DELETE_IN]),
    ("zcard", &[LOOK]),
    ("zdiffstore", &[OVERWRITE, READ]),
    ("zincrby", &[READ_AND_CHANGE]),
    ("zinterstore", &[OVERWRITE, READ]),
    ("zmpop", &[TAKE]),
    ("zpopmax", &[TAKE]),
    ("zpopmin", &[TAKE]),
    ("zrangestore", &[OVERWRITE, READ]),
    ("zrem", &[DELETE_IN]),
    ("zremrangebylex", &[DELETE_IN]),
    ("zremrangebyrank", &[DELETE_IN]),
    ("zremrangebyscore", &[DELETE_IN]),
    ("zunionstore", &[OVERWRITE, READ]),
];

/// The uses of a command by its full name, at least one.
pub(super) fn key_uses(spec: &Spec, full_name: &str, container: Option<&str>) -> &'static [KeyUse] {
    let own = found(KEY_USES, full_name);
    own.or_else(|| found(KEY_USES, container?)).unwrap_or(match () {
        () if spec.has(flag::WRITE) => &[CHANGE],
        () if spec.has(flag::READ) => &[READ],
        () => &[LOOK],
    })
}

/// What SET, with or without GET, and BITFIELD do with their key.
pub(super) fn use_in(spec: &Spec, request: Request) -> KeyUse {
    let gets = |from| (from..request.len()).any(|index| request.is(index, "get"));
    match spec.name {
        "bitfield" if bitfield_only_reads(request) => READ,
        "set" if !gets(3) => OVERWRITE,
        _ => READ_AND_CHANGE,
    }
}

fn bitfield_only_reads(request: Request) -> bool {
    let mut index = 2;
    while index < request.len() {
        let more = request.len() - index - 1;
        index += if request.is(index, "get") && more >= 2 {
            3
        } else if request.is(index, "overflow") && more >= 1 {
            2
        } else {
            return false;
        };
    }
    true
}

/// What rules of users distinguish of a use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The value is handed out.
    pub read: bool,
    /// It is changed, added to or deleted.
    pub write: bool,
}

impl Access {
    fn of(of_key: KeyUse) -> Access {
        let does = |names: &[&str]| of_key.iter().any(|name| names.contains(name));
        Access { read: does(&["access"]), write: does(&["update", "insert", "delete"]) }
    }

    /// What either of two allows.
    pub fn and(self, other: Access) -> Access {
        Access { read: self.read || other.read, write: self.write || other.write }
    }

    /// Whether it allows what another needs.
    #[inline]
    pub fn covers(self, needed: Access) -> bool {
        (self.read || !needed.read) && (self.write || !needed.write)
    }
}

/// What a command does with each of its keys, in the order in which [`crate::command::spec::Keys::indexes`] names them.
#[derive(Clone, Copy, Debug)]
pub struct KeyAccess {
    first: Access,
    second: Access,
    /// All behind it.
    others: Access,
    /// It depends on the arguments.
    varies: bool,
}

impl KeyAccess {
    pub fn of(spec: &Spec, full_name: &str, container: Option<&str>) -> KeyAccess {
        let uses = key_uses(spec, full_name, container);
        let nth = |nth: usize| match spec.keys.apart {
            // Keys behind patterns are not known: what follows the first is where the result goes.
            Apart::BehindSortStore if nth > 0 => Access::of(OVERWRITE),
            _ => Access::of(uses[nth.min(uses.len() - 1)]),
        };
        KeyAccess { first: nth(0), second: nth(1), others: nth(2), varies: uses[0] == VARIABLE }
    }

    /// What a request does with its nth key.
    #[inline]
    pub fn of_nth(self, spec: &Spec, request: Request, nth: usize) -> Access {
        match nth {
            _ if self.varies => Access::of(use_in(spec, request)),
            0 => self.first,
            1 => self.second,
            _ => self.others,
        }
    }
}

pub(super) fn found<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|(of, _)| *of == name).map(|(_, what)| *what)
}
