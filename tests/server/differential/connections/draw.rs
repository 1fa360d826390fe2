//! What several connections say: patterns of commands, of which chance makes requests.
//!
//! A pattern is a line: `a|b|` is one of these words or none, `a+b` two words that come together, `{name}` something that
//! [`Draw::word`] makes. Nothing in it depends on when it runs: no time-outs, and no replies whose order is open.

use fastrand::Rng;

use crate::differential::generate::Args;

const KEYS: [&str; 14] = ["a", "b", "c", "d", "{t}e", "{t}f", "l", "l2", "s", "h", "z", "z2", "x", "x2"];
const VALUES: [&str; 7] = ["1", "2", "abc", "", "3.5", "-7", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"];
const CHANNELS: [&str; 6] = ["ch1", "ch2", "ch3", "__keyspace@0__:a", "__keyevent@0__:set", ""];
const PATTERNS: [&str; 5] = ["ch*", "*", "c[h]1", "__key*", "x?"];
const SCRIPTS: [&str; 24] = [
    "return redis.call('GET',KEYS[1])",
    "return redis.call('SET',KEYS[1],ARGV[1])",
    "return redis.call('INCR',KEYS[1])",
    "return redis.pcall('INCR',KEYS[1])",
    "redis.setresp(3); return redis.call('HGETALL',KEYS[1])",
    "redis.setresp(3); return {double=3.5}",
    "redis.setresp(3); return {map={a=1}}",
    "return {1,2,{3,'x'},false,true}",
    "return redis.error_reply('x y')",
    "error({err='E1 boom'})",
    "return redis.status_reply('S')",
    "syntax err(",
    "return redis.call('BLPOP',KEYS[1],0)",
    "return redis.call('SUBSCRIBE','x')",
    "return redis.call('MULTI')",
    "return redis.call('FOO')",
    "return redis.call('PUBLISH','ch1','fromlua')",
    "return redis.call('EXPIRE',KEYS[1],ARGV[1])",
    "return redis.call('XREAD','BLOCK','0','STREAMS',KEYS[1],'$')",
    "return redis.call('LPUSH',KEYS[1],ARGV[1])",
    "return redis.call('WATCH','a')",
    "return redis.call('HELLO','3')",
    "return redis.call('RESET')",
    "#!lua flags=no-writes\nreturn redis.call('SET',KEYS[1],1)",
];

/// About the session: protocol, name, database, user.
const SESSION: &[&str] = &[
    "PING |hi|a+b",
    "ECHO x|",
    "SELECT 0|1|2|15|16|-1|abc|9999999999999",
    "HELLO |2|3|3|1|4|x|-1",
    "HELLO 3 SETNAME {name}",
    "HELLO 2|3 AUTH+default+x|AUTH+default|FOO|SETNAME",
    "RESET",
    "RESET x|",
    "CLIENT SETNAME {name}",
    "CLIENT GETNAME|FOO|",
    "CLIENT REPLY ON|foo|",
    "CLIENT NO-EVICT on|off|x",
    "CLIENT UNBLOCK {id} |TIMEOUT|ERROR|x",
    "CLIENT UNBLOCK 99999|x|-1",
    "CLIENT|client UNBLOCK|Unblock 1 TIMEOUT x",
    "SLOWLOG get|GET 1 2",
    "CLIENT KILL ID x|-1|99999|0",
    "CLIENT KILL 1.2.3.4:5|TYPE+foo|USER+nobody",
    "CLIENT LIST TYPE+foo|ID+x|ID+99999|FOO",
    "CLIENT INFO|ID x",
    "AUTH |x|default+x|nobody+x|a+b+c",
    "WAIT 0 0|x|-1",
    "WAIT x 0",
    "SWAPDB 0|1|x|16 0|1|2|y|-1",
];
const PUBSUB: &[&str] = &[
    "SUBSCRIBE {channel} |{channel}",
    "SUBSCRIBE {channel} |{channel}",
    "PSUBSCRIBE {pattern} |{pattern}",
    "SSUBSCRIBE {channel}",
    "UNSUBSCRIBE |{channel}",
    "PUNSUBSCRIBE |{pattern}",
    "SUNSUBSCRIBE |{channel}",
    "PUBLISH {channel} {value}|{value}|",
    "PUBLISH {channel} {value}",
    "SPUBLISH {channel} {value}",
    "PUBSUB NUMPAT|NUMSUB|SHARDNUMSUB|FOO|CHANNELS+nope",
    "PUBSUB NUMSUB|SHARDNUMSUB {channel}",
];
const TRANSACTIONS: &[&str] =
    &["MULTI", "MULTI |x", "EXEC", "EXEC", "EXEC |x", "DISCARD |y", "WATCH {key}", "WATCH {key} |{key}", "UNWATCH |x"];
/// About data alone: each connection may do so with keys of its own while all others do.
const DATA: &[&str] = &[
    "SET {key} {value}",
    "SET {key} {value} |NX|XX|GET|KEEPTTL|FOO",
    "SET {key} {value} EX|PX 1000000|0|-1|x|9223372036854775807",
    "GET {key}",
    "GETSET {key} {value}",
    "GETDEL {key}",
    "GETEX {key} |PERSIST|EX+1000|EX+0|EXAT+1|PX+x",
    "INCR {key}",
    "INCRBYFLOAT|APPEND {key} {value}",
    "SETRANGE {key} 0|5|-1 {value}",
    "MSET|MSETNX {key} {value} {key} {value}",
    "MGET {key} {key} {key}",
    "DEL|UNLINK|EXISTS|TOUCH {key} |{key}",
    "TYPE|PERSIST|STRLEN|BITCOUNT|PFCOUNT|XLEN {key}",
    "EXPIRE {key} 1000|0|-1|x|9223372036854775807 |NX|XX|GT|LT|NX+XX|FOO",
    "RENAME|RENAMENX {key} {key}",
    "COPY {key} {key} |REPLACE|DB+1|DB+x|DB+99",
    "MOVE {key} 1|0|99|x",
    "LPUSH {list} {value} |{value}",
    "RPUSH {list} {value}",
    "LPOP {list} |2|0|-1",
    "RPOPLPUSH {list} {list}",
    "LMOVE {list} {list} LEFT|RIGHT|x LEFT|RIGHT",
    "LRANGE {list} 0 -1",
    "LMPOP 2|1|0|x {list} {list} LEFT|RIGHT |COUNT+2|COUNT+0",
    "LINSERT {list} BEFORE|AFTER|x {value} {value}",
    "LSET {list} 0|99|x {value}",
    "SADD|SISMEMBER {key} {value}",
    "SCARD s",
    "SMOVE s {key} {value}",
    "HSET|HINCRBY {key} f {value}",
    "HGET {key} f",
    "ZADD {zset} |NX|XX+GT|GT+LT|INCR|CH 1|2|inf|nan|x {value}",
    "ZRANGE {zset} 0 -1 |WITHSCORES|REV|BYSCORE",
    "ZPOPMIN {zset} |2|-1",
    "ZMPOP 2 {zset} {zset} MIN|MAX|x |COUNT+3",
    "ZRANGESTORE {key} {zset} 0 -1",
    "SETBIT {key} 7|-1|x 1|0|2",
    "BITFIELD {key} INCRBY u8 0 300 |OVERFLOW+FAIL|GET+u64+0",
    "SORT {list} |ALPHA|DESC",
    "LCS {key} {key} |LEN|IDX",
    "RESTORE {key} 0|-1|x junk",
    "XADD {stream} {entry} f v",
    "XADD {stream} |NOMKSTREAM|MAXLEN+2 {entry} f v|",
    "XRANGE {stream} - (9|9|5-1",
    "XDEL {stream} {entry}",
    "XGROUP CREATE {stream} g 0|$|3-1 |MKSTREAM",
    "XGROUP DELCONSUMER {stream} g c1|c2",
    "XREADGROUP GROUP g c1|c2 |COUNT+2|NOACK STREAMS {stream} >|>|0|5-1|$",
    "XACK {stream} g {entry} {entry}",
    "XCLAIM {stream} g c2 0 {entry} |JUSTID|FORCE+JUSTID|FOO",
    "EVAL|EVAL_RO {script} 1 {key} 5|v",
    "FOO |{value}",
    "GET|SET a b|",
];
const BLOCKING: &[&str] = &[
    "BLPOP|BRPOP {list} {key} 0",
    "BLMOVE {list} {list} LEFT|RIGHT LEFT|RIGHT 0",
    "BLMPOP 0 1|2 {list} {list}|LEFT LEFT|RIGHT |COUNT+2",
    "BZPOPMIN|BZPOPMAX {zset} {key} 0",
    "BZMPOP 0 2 {zset} {zset} MIN|MAX |COUNT+10",
    "XREAD BLOCK 0 STREAMS {stream} $|0|5-1",
    "XREADGROUP GROUP g c1|c2 BLOCK 0 |NOACK STREAMS {stream} >",
    "BLPOP|BRPOP {list} -1|x|1e300|nan|9223372036854775808",
    "LPUSH|RPUSH {list} {value} |{value}",
    "ZADD {zset} 1|2 {value}",
    "XADD {stream} {entry} f v",
    "DEL {list}|{zset}|{stream}",
];
const TRACKING: &[&str] = &[
    "CLIENT TRACKING ON|OFF|x|",
    "CLIENT TRACKING ON |BCAST|NOLOOP|OPTIN|OPTOUT|OPTIN+OPTOUT|PREFIX+a|BCAST+OPTIN",
    "CLIENT TRACKING ON BCAST PREFIX a|ab|l| |PREFIX+b|PREFIX+ab",
    "CLIENT TRACKING ON REDIRECT {id}",
    "CLIENT TRACKING ON REDIRECT 99999|x|-1",
    "CLIENT CACHING YES|NO|x",
    "SUBSCRIBE __redis__:invalidate",
    "GET {key}",
    "MGET {key} {key}",
    "SET {key} t",
    "DEL {key} {key}",
];
const SERVER: &[&str] = &[
    // (Not streams: Redis 7.0 makes a consumer that finds nothing later.)
    "CONFIG SET notify-keyspace-events KEg$lshzxed||Kx|q",
    "CONFIG GET notify-keyspace-events",
    "CONFIG SET nosuch 1|",
    "CONFIG GET |nosuch*",
    "DBSIZE",
    "COMMAND GETKEYS GET+a|PING|FOO|GET|ZUNION+2+a+b|SORT+a+STORE+b",
    "OBJECT FREQ|IDLETIME|REFCOUNT|FOO nokey",
    "SCRIPT KILL|FOO|EXISTS",
    "SCRIPT LOAD {script}",
    "FUNCTION DELETE lib1|lib2",
    "FUNCTION LOAD |REPLACE {library}",
    "FCALL f1|f2 1 {key} z",
    "ACL WHOAMI|CAT+nosuch|GETUSER+nosuch|DELUSER+default",
    "ACL DRYRUN default GET|FOO a",
    "ROLE |x",
    "CLUSTER INFO|KEYSLOT",
    "READONLY|ASKING|PSYNC",
    "SLOWLOG FOO|GET+x|GET+-2",
];
const FAMILIES: [&[&str]; 10] =
    [SESSION, PUBSUB, PUBSUB, TRANSACTIONS, TRANSACTIONS, DATA, DATA, BLOCKING, TRACKING, SERVER];

/// What is no array of bulk strings, or a bad one; who sends the latter is disconnected by both servers. Each is answered once.
pub const RAW: [&[u8]; 12] = [
    b"PING\r\n",
    b"  ping   \r\n",
    b"\r\nPING\r\n",
    b"SET a \"b c\"\r\n",
    b"GET a\n",
    b"ECHO \"\\x41\\n\"\r\n",
    b"*0\r\nPING\r\n",
    b"*-5\r\nPING\r\n",
    b"PING \"unbalanced\r\n",
    b"*1\r\n+PING\r\n",
    b"*1048577\r\n",
    b"*2\r\n$3\r\nGET\r\n$999999999999\r\n",
];

/// A word that stands for the number of the connection that a request is about; it is another on each server.
pub const ID: &[u8] = b"{id}";

pub struct Draw {
    pub rng: Rng,
}

impl Draw {
    /// A request about anything.
    pub fn request(&mut self) -> Args {
        let family = self.one(&FAMILIES);
        self.of(family, "")
    }

    /// A request about data, whose keys end as nobody else's.
    pub fn apart(&mut self, end: &str) -> Args {
        loop {
            let args = self.of(DATA, end);
            // A script may name other keys, or publish.
            if !args[0].starts_with(b"EVAL") {
                return args;
            }
        }
    }

    pub fn one<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.rng.usize(..from.len())]
    }

    /// Whether who says this may wait.
    pub fn may_wait(args: &Args) -> bool {
        let is = |arg: &Vec<u8>, word: &str| arg.eq_ignore_ascii_case(word.as_bytes());
        let name = args[0].to_ascii_uppercase();
        [&b"BL"[..], b"BR", b"BZ"].iter().any(|begin| name.starts_with(begin))
            || name.starts_with(b"XREAD") && args.iter().any(|arg| is(arg, "BLOCK"))
    }

    fn of(&mut self, family: &[&str], end: &str) -> Args {
        let pattern = self.one(family);
        let mut args = Args::new();
        for word in pattern.split(' ') {
            let words: Vec<&str> = word.split('|').collect();
            let chosen = self.one(&words);
            let parts = chosen.split('+').filter(|part| !part.is_empty());
            args.extend(parts.map(|part| self.word(part, end)).collect::<Vec<_>>());
        }
        if self.rng.u32(..8) == 0 {
            args[0].make_ascii_lowercase();
        }
        args
    }

    fn word(&mut self, part: &str, end: &str) -> Vec<u8> {
        let text = match part {
            "{key}" => self.one(&KEYS).to_string() + end,
            "{list}" => self.near(&["l", "l2"]) + end,
            "{zset}" => self.near(&["z", "z2"]) + end,
            "{stream}" => self.near(&["x", "x2"]) + end,
            "{value}" => self.one(&VALUES).to_string(),
            "{channel}" => self.one(&CHANNELS).to_string(),
            "{pattern}" => self.one(&PATTERNS).to_string(),
            "{name}" => self.one(&["n1", "bad name", "", "you\n"]).to_string(),
            "{script}" => self.one(&SCRIPTS).to_string(),
            "{entry}" if self.rng.u32(..10) == 0 => {
                self.one(&["3-*", "0-0", "bad", "18446744073709551615-18446744073709551615"]).to_string()
            }
            "{entry}" => format!("{}-{}", self.rng.u32(1..30), self.rng.u32(..4)),
            "{library}" => {
                let number = self.rng.u32(1..3);
                format!(
                    "#!lua name=lib{number}\nredis.register_function('f{number}', function(k, a) return {{k[1], a[1]}} end)"
                )
            }
            "s" | "a" | "b" => part.to_string() + end,
            other => other.to_string(),
        };
        text.into_bytes()
    }

    /// One of these, or any key.
    fn near(&mut self, keys: &[&'static str]) -> String {
        let from = if self.rng.u32(..4) == 0 { KEYS.as_slice() } else { keys };
        self.one(from).to_string()
    }
}
