//! What the families of the differential tests leave out: deaths within a run, what is newer than redis-server 7.0, what
//! waits, what moves whole databases.

use crate::differential::generate::{Args, KEYS};
use fastrand::Rng;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extras {
    Keys,
    Strings,
    Lists,
    Fields,
    Members,
    ScoredMembers,
    SortedSets,
    Streams,
    Everything,
    /// The same, while all keys are governed by an expiry policy.
    Policies,
}

/// Deadlines of keys that die during the run.
const SOON_MS: std::ops::Range<u64> = 1..40;
const LATER_MS: u64 = 100_000_000;

fn line(words: &[&str]) -> Args {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn key(rng: &mut Rng) -> Vec<u8> {
    KEYS[rng.usize(..KEYS.len())].to_vec()
}

/// A command whose words `K` are keys, `S` a time of some milliseconds, `L` a long one, `N` a small number, `F` a field or
/// a member, `P` a moment that has passed.
fn filled(rng: &mut Rng, pattern: &str) -> Args {
    let fill = |word| match word {
        "K" => key(rng),
        "S" => rng.u64(SOON_MS).to_string().into(),
        "L" => (LATER_MS + rng.u64(..LATER_MS)).to_string().into(),
        "N" => rng.u32(1..4).to_string().into(),
        "F" => ["0", "1", "2", "a", "b", "n", "foo", "member:1"][rng.usize(..8)].into(),
        "P" => b"1000".to_vec(),
        word => word.into(),
    };
    pattern.split(' ').map(fill).collect()
}

const OF_KEYS: &[&str] = &[
    "PEXPIRE K S",
    "PEXPIRE K S",
    "PEXPIRE K L",
    "PEXPIREAT K P",
    "EXPIRE K -1",
    "PERSIST K",
    "MOVE K N",
    "COPY K K DB N REPLACE",
    "COPY K K REPLACE",
    "RENAME K K",
    "RENAMENX K K",
    "SELECT N",
    "SELECT 0",
    "SELECT 0",
    "SELECT 0",
    "DEL K K",
    "UNLINK K K K",
];
const RARE: &[&str] = &["SWAPDB 0 1", "SWAPDB 1 2", "FLUSHDB", "FLUSHALL", "FLUSHALL ASYNC", "DEBUG POPULATE 20 p 5"];
const STRINGS: &[&str] = &[
    "SET K N PX S",
    "SET K N PX S GET",
    "SET K N EX 100 NX",
    "SET K N PXAT P",
    "SET K N KEEPTTL",
    "SET K 5 IFEQ 1",
    "SETEX K 100 N",
    "PSETEX K S N",
    "GETEX K PX S",
    "GETEX K PX L",
    "GETEX K PERSIST",
    "GETEX K PXAT P",
    "GETDEL K",
    "GETSET K N",
    "DELEX K",
    "DELEX K IFEQ 1",
    "DELEX K IFDNE 404a763b3f4c8c9a",
    "DELIFEQ K 1",
    "SET K 5 IFDNE 404a763b3f4c8c9a PX S",
    "INCREX K",
    "INCREX K BYINT N UBOUND 5 SATURATE",
    "INCREX K BYINT -1 LBOUND 0 PX S ENX",
    "INCREX K BYFLOAT 0.5 UBOUND 5 PX L",
    "INCREX K PERSIST",
    "INCREX K PXAT P",
    "INCRBYFLOAT K 0.1",
    "MSETEX 2 K N K N PX S",
    "MSETEX 2 K N K N KEEPTTL",
    "MSETEX 2 K N K N NX EX 100",
    "MSETNX K N K N",
    "CL.THROTTLE K 3 10 1",
    "CL.THROTTLE K 3 10 60 2",
];
/// Scripts that need no blank: what one has done before an error stands, keys that were not declared may be elsewhere.
const SCRIPTS: &[&str] = &[
    "EVAL redis.call('SET',KEYS[1],ARGV[1]);redis.call('RPUSH',KEYS[2],ARGV[1]);redis.call('INCR',KEYS[1]) 2 K K N",
    "EVAL redis.call('INCRBYFLOAT',KEYS[1],'0.1');redis.call('PEXPIRE',KEYS[1],ARGV[1]) 1 K S",
    "EVAL redis.pcall('SPOP',KEYS[1]);redis.call('DEL',ARGV[1]);redis.call('SADD',ARGV[1],'x') 1 K K",
    "EVAL redis.call('SELECT','1');redis.pcall('HSET',KEYS[1],'f',ARGV[1]);redis.pcall('COPY',KEYS[1],KEYS[2]) 2 K K N",
    "EVAL redis.pcall('MSET',KEYS[1],1,KEYS[2],2);redis.pcall('RENAME',KEYS[1],KEYS[3]) 3 K K K",
    "EVAL redis.call('SET',KEYS[1],'x');redis.call('EXPIREAT',KEYS[1],1);return(redis.call('KEYS','*')) 1 K",
];
const LISTS: &[&str] = &[
    "RPUSH K a b c d",
    "LMPOP 2 K K LEFT COUNT N",
    "LMPOP 2 K K RIGHT",
    "LMOVE K K LEFT RIGHT",
    "LMOVEM K K LEFT LEFT COUNT N OBO",
    "LMOVEM K K RIGHT RIGHT EXACTLY N BULK",
    "LMOVEM K K RIGHT LEFT COUNT 9 OBO",
    "RPOPLPUSH K K",
    "LPOP K N",
    "BLPOP K K 0.001",
    "BLMPOP 0.001 2 K K LEFT COUNT N",
    "BRPOPLPUSH K K 0.001",
];
const BLOCKING_LISTS: &[&str] = &[
    "BLPOP K K K 0.01",
    "BRPOP K K 0.01",
    "BLMOVE K K LEFT RIGHT 0.01",
    "BLMOVEM K K LEFT RIGHT 0.01 EXACTLY N OBO",
    "BLMOVEM K K RIGHT RIGHT 0.01 COUNT N BULK",
    "BRPOPLPUSH K K 0.01",
    "BLMPOP 0.01 3 K K K RIGHT COUNT N",
];
const FIELDS: &[&str] = &[
    "HSET K F 1 F 2 F 3",
    "HSET K F 1",
    "HPEXPIRE K S FIELDS 1 F",
    "HPEXPIRE K S FIELDS 2 F F",
    "HPEXPIRE K L NX FIELDS 2 F F",
    "HPEXPIRE K L GT FIELDS 2 F F",
    "HPEXPIREAT K P FIELDS 2 F F",
    "HEXPIRE K 100 FIELDS 3 F F F",
    "HPERSIST K FIELDS 2 F F",
    "HSETEX K PX S FIELDS 2 F 5 F 6",
    "HSETEX K FNX KEEPTTL FIELDS 1 F 7",
    "HSETEX K KEEPTTL FIELDS 2 F 7 F 8",
    "HSETEX K FXX PX L FIELDS 1 F 7",
    "HSETEX K NX PX S FIELDS 2 F 3 F 4",
    "HSETEX K XX FNX KEEPTTL FIELDS 1 F 7",
    "HSETEX K PXAT P FIELDS 1 F 7",
    "HSETEX K FIELDS 1 F 9",
    "HGETEX K PX S FIELDS 2 F F",
    "HGETEX K PERSIST FIELDS 2 F F",
    "HGETEX K PXAT P FIELDS 1 F",
    "HGETDEL K FIELDS 2 F F",
    "HSETNX K F 4",
    "HINCRBY K F N",
    "HINCRBYFLOAT K F 0.5",
    "HDEL K F F",
    "DUMPRESTORE K K",
];
const MEMBERS: &[&str] = &[
    "SADD K F F F",
    "SADD K F",
    "SPEXPIRE K S MEMBERS 1 F",
    "SPEXPIRE K S MEMBERS 2 F F",
    "SPEXPIRE K L NX MEMBERS 2 F F",
    "SPEXPIRE K L MEMBERS 2 F F GT",
    "SPEXPIREAT K P MEMBERS 2 F F",
    "SEXPIRE K 100 MEMBERS 3 F F F",
    "SPERSIST K MEMBERS 2 F F",
    "SADDEX K PX S MEMBERS 2 F F",
    "SADDEX K MNX KEEPTTL MEMBERS 1 F",
    "SADDEX K KEEPTTL MEMBERS 2 F F",
    "SADDEX K MXX PX L MEMBERS 1 F",
    "SADDEX K MEMBERS 2 F F",
    "SADDEX K PXAT P MEMBERS 1 F",
    "SREM K F F",
    "SPOP K N",
    "SMOVE K K F",
    "SMOVE K K F",
    "SUNIONSTORE K K K",
    "SDIFFSTORE K K K",
    "SINTERSTORE K K",
    "ZUNIONSTORE K 2 K K",
    "SORT K ALPHA STORE K",
    "DUMPRESTORE K K",
];
const SCORED_MEMBERS: &[&str] = &[
    "ZADD K 1 F 2 F 3 F",
    "ZADD K 4 F",
    "ZADD K XX 5 F 2.5 F",
    "ZADD K NX 6 F",
    "ZADD K GT CH 3 F",
    "ZINCRBY K 1.5 F",
    "ZPEXPIRE K S MEMBERS 1 F",
    "ZPEXPIRE K S MEMBERS 2 F F",
    "ZPEXPIRE K L NX MEMBERS 2 F F",
    "ZPEXPIRE K L MEMBERS 2 F F GT",
    "ZPEXPIREAT K P MEMBERS 2 F F",
    "ZEXPIRE K 100 MEMBERS 3 F F F",
    "ZPERSIST K MEMBERS 2 F F",
    "ZREM K F F",
    "ZPOPMIN K",
    "ZPOPMAX K N",
    "ZMPOP 2 K K MIN COUNT N",
    "ZREMRANGEBYRANK K 0 1",
    "ZREMRANGEBYSCORE K 1 2",
    "ZRANGESTORE K K 0 3",
    "ZUNIONSTORE K 2 K K",
    "ZINTERSTORE K 2 K K",
    "ZDIFFSTORE K 2 K K",
    "GEOSEARCHSTORE K K FROMLONLAT 0 0 BYRADIUS 30000 km",
    "SORT K ALPHA STORE K",
    "DUMPRESTORE K K",
];
const SORTED_SETS: &[&str] = &[
    "ZADD K 1 a 2 b 3 c 4 d",
    "ZMPOP 2 K K MIN COUNT N",
    "ZMPOP 2 K K MAX",
    "ZPOPMIN K N",
    "BZPOPMAX K K 0.001",
    "BZMPOP 0.001 2 K K MIN COUNT N",
];
const BLOCKING_SORTED_SETS: &[&str] = &["BZPOPMIN K K K 0.01", "BZPOPMAX K K 0.01", "BZMPOP 0.01 3 K K K MAX COUNT N"];
const STREAMS: &[&str] = &[
    "XADD K * F N",
    "XADD K MAXLEN ~ 5 LIMIT 10 * F N F N",
    "XGROUP CREATE K g $ MKSTREAM",
    "XGROUP CREATE K g 0 MKSTREAM",
    "XREADGROUP GROUP g alice COUNT N STREAMS K K > >",
    "XREADGROUP GROUP g bob NOACK COUNT N STREAMS K >",
    "XREADGROUP GROUP g alice STREAMS K 0",
    "XAUTOCLAIM K g bob 0 0 COUNT 5",
    "XAUTOCLAIM K g alice 0 0 JUSTID",
    "XTRIM K MAXLEN ~ 3",
];
const BLOCKING_STREAMS: &[&str] =
    &["XREADGROUP GROUP g alice COUNT N BLOCK 10 STREAMS K >", "XREADGROUP GROUP g bob BLOCK 10 STREAMS K K > >"];

impl Extras {
    fn own(self) -> &'static [&'static [&'static str]] {
        match self {
            Extras::Keys => &[OF_KEYS],
            Extras::Strings => &[OF_KEYS, STRINGS, STRINGS],
            Extras::Lists => &[OF_KEYS, LISTS],
            Extras::Fields => &[OF_KEYS, FIELDS, FIELDS, FIELDS],
            Extras::Members => &[OF_KEYS, MEMBERS, MEMBERS, MEMBERS],
            Extras::ScoredMembers => &[OF_KEYS, SCORED_MEMBERS, SCORED_MEMBERS, SCORED_MEMBERS],
            Extras::SortedSets => &[OF_KEYS, SORTED_SETS],
            Extras::Streams => &[OF_KEYS, STREAMS],
            Extras::Everything | Extras::Policies => &[OF_KEYS, STRINGS, LISTS, SORTED_SETS, STREAMS, SCRIPTS],
        }
    }

    pub fn draw(self, rng: &mut Rng) -> Args {
        let of = if rng.u32(..60) == 0 { RARE } else { self.own()[rng.usize(..self.own().len())] };
        let pattern = of[rng.usize(..of.len())];
        filled(rng, pattern)
    }

    /// A command that waits for a moment.
    pub fn draw_blocking(self, rng: &mut Rng) -> Option<Args> {
        let of = match (self, rng.u32(..3)) {
            (Extras::Lists, _) | (Extras::Everything | Extras::Policies, 0) => BLOCKING_LISTS,
            (Extras::SortedSets, _) | (Extras::Everything | Extras::Policies, 1) => BLOCKING_SORTED_SETS,
            (Extras::Streams, _) | (Extras::Everything | Extras::Policies, _) => BLOCKING_STREAMS,
            _ => return None,
        };
        if rng.u32(..50) == 0 {
            return Some(line(&["SELECT", ["0", "0", "1"][rng.usize(..3)]]));
        }
        let pattern = of[rng.usize(..of.len())];
        Some(filled(rng, pattern))
    }
}
