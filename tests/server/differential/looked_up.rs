//! What looking a key up leaves behind: idle times, hits and misses, and `keymiss`. Every command that looks at keys
//! runs on both servers, on keys that are there and on keys that are not, alone and in a transaction, and both must
//! have counted, renewed and told the same.
//!
//! NO-TOUCH came with Redis 7.2, whose documentation is followed: the idle time of no key is renewed by looking at it,
//! but by TOUCH, and all else is as without.

use std::collections::BTreeMap;

use crate::common::{Client, Kind, Server, Value, encode, have_tool, words};

/// `@` stands before each key, and is replaced by what makes it another key, on another shard perhaps. Where a key is to
/// be missing, `@no` is its name.
const READS: &[&str] = &[
    "GET @str",
    "GET @no",
    "GET @list",
    "MGET @str @no @num @list",
    "STRLEN @str",
    "STRLEN @no",
    "GETRANGE @str 0 1",
    "GETRANGE @no 0 1",
    "SUBSTR @str 0 1",
    "LCS @str @num",
    "LCS @str @no",
    "LCS @no @no2",
    "GETBIT @str 1",
    "GETBIT @no 1",
    "BITCOUNT @str",
    "BITCOUNT @no",
    "BITPOS @str 1",
    "BITPOS @no 1",
    "BITFIELD_RO @str GET u8 0",
    "BITFIELD_RO @no GET u8 0",
    "PFCOUNT @hll",
    "PFCOUNT @no",
    "PFCOUNT @hll @no @hll2",
    "EXISTS @str",
    "EXISTS @str @no @list @no",
    "TYPE @str",
    "TYPE @no",
    "TTL @str",
    "TTL @no",
    "PTTL @str",
    "PTTL @no",
    "EXPIRETIME @str",
    "EXPIRETIME @no",
    "PEXPIRETIME @str",
    "PEXPIRETIME @no",
    "OBJECT ENCODING @str",
    "OBJECT ENCODING @no",
    "OBJECT REFCOUNT @str",
    "OBJECT REFCOUNT @no",
    "OBJECT IDLETIME @str",
    "OBJECT IDLETIME @no",
    "OBJECT FREQ @str",
    "OBJECT FREQ @no",
    "MEMORY USAGE @list",
    "MEMORY USAGE @no",
    "DUMP @str",
    "DUMP @no",
    "LLEN @list",
    "LLEN @no",
    "LLEN @str",
    "LINDEX @list 0",
    "LINDEX @no 0",
    "LRANGE @list 0 -1",
    "LRANGE @no 0 -1",
    "LPOS @list a",
    "LPOS @no a",
    "SCARD @set",
    "SCARD @no",
    "SISMEMBER @set 1",
    "SISMEMBER @no 1",
    "SMISMEMBER @set 1 2",
    "SMISMEMBER @no 1 2",
    "SMEMBERS @set",
    "SMEMBERS @no",
    "SRANDMEMBER @set",
    "SRANDMEMBER @no",
    "SRANDMEMBER @set 2",
    "SRANDMEMBER @no 2",
    "SSCAN @set 0",
    "SSCAN @no 0",
    "SINTER @set @set2",
    "SINTER @set @no",
    "SINTER @no @set",
    "SUNION @set @set2 @no",
    "SDIFF @set @set2 @no",
    "SDIFF @no @set",
    "SINTERCARD 2 @set @set2",
    "SINTERCARD 2 @no @set2",
    "HGET @hash f",
    "HGET @no f",
    "HMGET @hash f g",
    "HMGET @no f g",
    "HGETALL @hash",
    "HGETALL @no",
    "HKEYS @hash",
    "HVALS @no",
    "HLEN @hash",
    "HLEN @no",
    "HEXISTS @hash f",
    "HEXISTS @no f",
    "HSTRLEN @hash f",
    "HSTRLEN @no f",
    "HSCAN @hash 0",
    "HSCAN @no 0",
    "HRANDFIELD @hash",
    "HRANDFIELD @no",
    "HRANDFIELD @hash 2",
    "HRANDFIELD @no 2",
    "ZCARD @zset",
    "ZCARD @no",
    "ZSCORE @zset a",
    "ZSCORE @no a",
    "ZMSCORE @zset a b",
    "ZMSCORE @no a b",
    "ZRANK @zset a",
    "ZRANK @no a",
    "ZREVRANK @zset a",
    "ZCOUNT @zset 0 9",
    "ZCOUNT @no 0 9",
    "ZLEXCOUNT @zset - +",
    "ZLEXCOUNT @no - +",
    "ZRANGE @zset 0 -1",
    "ZRANGE @no 0 -1",
    "ZREVRANGE @zset 0 -1",
    "ZRANGEBYSCORE @zset 0 9",
    "ZRANGEBYSCORE @no 0 9",
    "ZREVRANGEBYLEX @zset + -",
    "ZRANDMEMBER @zset",
    "ZRANDMEMBER @no",
    "ZSCAN @zset 0",
    "ZSCAN @no 0",
    "ZUNION 3 @zset @set @no",
    "ZINTER 2 @zset @zset2",
    "ZINTER 2 @zset @no",
    "ZDIFF 2 @zset @zset2",
    "ZINTERCARD 2 @zset @zset2",
    "ZINTERCARD 2 @no @zset2",
    "GEOPOS @geo Palermo",
    "GEOPOS @no Palermo",
    "GEOHASH @geo Palermo",
    "GEOHASH @no Palermo",
    "GEODIST @geo Palermo Catania",
    "GEODIST @no Palermo Catania",
    "GEOSEARCH @geo FROMLONLAT 15 37 BYRADIUS 200 km",
    "GEOSEARCH @no FROMLONLAT 15 37 BYRADIUS 200 km",
    "GEORADIUS_RO @geo 15 37 200 km",
    "GEORADIUSBYMEMBER_RO @geo Palermo 200 km",
    "GEORADIUSBYMEMBER_RO @no Palermo 200 km",
    "XLEN @stream",
    "XLEN @no",
    "XRANGE @stream - +",
    "XRANGE @no - +",
    "XREVRANGE @stream + -",
    "XREAD STREAMS @stream 0",
    "XREAD STREAMS @stream @stream2 @no 0 0 0",
    "XREAD STREAMS @stream $",
    "XREAD STREAMS @no 0",
    "XREAD BLOCK 1 STREAMS @stream $",
    "XREAD BLOCK 1 STREAMS @stream @stream2 @no $ $ 0",
    "XREAD BLOCK 1 STREAMS @stream 0",
    "XPENDING @stream group",
    "XPENDING @no group",
    "XINFO STREAM @stream",
    "XINFO STREAM @no",
    "XINFO GROUPS @stream",
    "XINFO GROUPS @no",
    "XINFO CONSUMERS @stream group",
    "XINFO CONSUMERS @no group",
    "SORT_RO @nums",
    "SORT_RO @no",
    "SORT_RO @list ALPHA",
    "RANDOMKEY",
    "DBSIZE",
    "KEYS *",
    "SCAN 0 COUNT 1000",
    "WATCH @str @no",
];

const TOUCHES: &[&str] = &["TOUCH @str", "TOUCH @no", "TOUCH @str @no @list @no"];

const WRITES: &[&str] = &[
    "SET @str x",
    "SET @no x",
    "SET @str x GET",
    "SET @no x GET",
    "SET @str x NX",
    "SET @no x XX",
    "SET @str x XX KEEPTTL",
    "SET @str x EXAT 1",
    "SET @no x EXAT 1",
    "SET @str x GET PXAT 1",
    "SET @str x EX 100",
    "SETNX @str x",
    "SETNX @no x",
    "SETEX @str 100 x",
    "GETSET @str x",
    "GETSET @no x",
    "GETDEL @str",
    "GETDEL @no",
    "GETEX @str",
    "GETEX @str EX 100",
    "GETEX @str EXAT 1",
    "GETEX @no EX 100",
    "APPEND @str x",
    "APPEND @no x",
    "SETRANGE @str 1 x",
    "SETRANGE @no 1 x",
    "SETRANGE @no 1 ",
    "INCR @num",
    "INCR @no",
    "INCR @list",
    "INCRBYFLOAT @num 1",
    "INCRBYFLOAT @no 1",
    "MSET @str x @no y",
    "MSETNX @str x @no y",
    "MSETNX @no2 x @no y",
    "SETBIT @str 1 1",
    "SETBIT @no 1 1",
    "BITOP AND @no3 @str @num @no",
    "BITOP OR @str @str @num",
    "BITOP NOT @str @no",
    "BITFIELD @str GET u8 0",
    "BITFIELD @no GET u8 0",
    "BITFIELD @str SET u8 0 1",
    "BITFIELD @no SET u8 0 1",
    "PFADD @hll x",
    "PFADD @no x",
    "PFMERGE @hll @hll2 @no",
    "PFMERGE @no3 @hll @hll2",
    "PFDEBUG ENCODING @hll",
    "PFDEBUG ENCODING @no",
    "DEL @str @no",
    "UNLINK @str @no",
    "RENAME @str @no",
    "RENAME @str @list",
    "RENAME @no @str",
    "RENAME @str @str",
    "RENAMENX @str @no",
    "RENAMENX @str @list",
    "RENAMENX @no @list",
    "COPY @str @no",
    "COPY @str @list",
    "COPY @str @list REPLACE",
    "COPY @no @list",
    "COPY @no @list REPLACE",
    "COPY @str @str DB 1",
    "MOVE @str 1",
    "MOVE @no 1",
    "EXPIRE @str 100",
    "EXPIRE @no 100",
    "EXPIRE @str 100 XX",
    "EXPIRE @str -1",
    "EXPIREAT @str 1",
    "PERSIST @str",
    "PERSIST @no",
    "LPUSH @list x",
    "LPUSH @no x",
    "LPUSHX @no x",
    "RPUSHX @list x",
    "LPOP @list",
    "LPOP @no",
    "LPOP @list 2",
    "LPOP @no 2",
    "LPOP @list 0",
    "RPOP @str",
    "LINSERT @list BEFORE a x",
    "LINSERT @no BEFORE a x",
    "LSET @list 0 x",
    "LSET @no 0 x",
    "LREM @list 0 a",
    "LREM @no 0 a",
    "LTRIM @list 0 0",
    "LTRIM @no 0 0",
    "LMOVE @list @list2 LEFT RIGHT",
    "LMOVE @list @no LEFT RIGHT",
    "LMOVE @no @list LEFT RIGHT",
    "LMOVE @no @no2 LEFT RIGHT",
    "LMOVE @list @str LEFT RIGHT",
    "RPOPLPUSH @list @list2",
    "RPOPLPUSH @no @list2",
    "LMPOP 2 @no @list LEFT",
    "LMPOP 2 @no @no2 LEFT",
    "BLPOP @list 1",
    "BLPOP @no @list 1",
    "BLPOP @no @no2 0.01",
    "BRPOP @no @list2 1",
    "BLMOVE @list @list2 LEFT RIGHT 1",
    "BLMOVE @list @no LEFT RIGHT 1",
    "BLMOVE @no @list LEFT RIGHT 0.01",
    "BRPOPLPUSH @list @no 1",
    "BLMPOP 1 2 @no @list LEFT",
    "BLMPOP 0.01 2 @no @no2 LEFT",
    "SADD @set x",
    "SADD @set 1",
    "SADD @no x",
    "SREM @set 1",
    "SREM @no 1",
    "SPOP @set",
    "SPOP @no",
    "SPOP @set 2",
    "SPOP @no 2",
    "SMOVE @set @set2 1",
    "SMOVE @set @no 1",
    "SMOVE @set @no nothing",
    "SMOVE @no @set2 1",
    "SMOVE @no @no2 1",
    "SINTERSTORE @no3 @set @set2",
    "SINTERSTORE @no3 @set @no",
    "SINTERSTORE @str @set @no",
    "SUNIONSTORE @no3 @set @set2 @no",
    "SUNIONSTORE @str @set @set2",
    "SDIFFSTORE @no3 @set @set2 @no",
    "HSET @hash f x",
    "HSET @no f x",
    "HSETNX @hash f x",
    "HSETNX @no f x",
    "HMSET @hash f x",
    "HDEL @hash f",
    "HDEL @no f",
    "HINCRBY @hash n 1",
    "HINCRBY @no n 1",
    "HINCRBYFLOAT @hash n 1",
    "HINCRBYFLOAT @no n 1",
    "ZADD @zset 1 x",
    "ZADD @zset XX 1 x",
    "ZADD @no 1 x",
    "ZADD @no XX 1 x",
    "ZINCRBY @zset 1 a",
    "ZINCRBY @no 1 a",
    "ZREM @zset a",
    "ZREM @no a",
    "ZPOPMIN @zset",
    "ZPOPMIN @no",
    "ZPOPMAX @zset 2",
    "ZMPOP 2 @no @zset MIN",
    "ZMPOP 2 @no @no2 MIN",
    "BZPOPMIN @zset 1",
    "BZPOPMIN @no @zset 1",
    "BZPOPMAX @no @no2 0.01",
    "BZMPOP 1 2 @no @zset MIN",
    "ZREMRANGEBYRANK @zset 0 0",
    "ZREMRANGEBYRANK @no 0 0",
    "ZREMRANGEBYSCORE @zset 0 1",
    "ZREMRANGEBYLEX @no - +",
    "ZRANGESTORE @no3 @zset 0 -1",
    "ZRANGESTORE @no3 @no 0 -1",
    "ZRANGESTORE @str @zset 0 -1",
    "ZUNIONSTORE @no3 3 @zset @set @no",
    "ZUNIONSTORE @str 2 @zset @set",
    "ZINTERSTORE @no3 2 @zset @zset2",
    "ZINTERSTORE @str 2 @zset @no",
    "ZDIFFSTORE @no3 2 @zset @zset2",
    "GEOADD @geo 13 38 x",
    "GEOADD @no 13 38 x",
    "GEORADIUS @geo 15 37 200 km",
    "GEORADIUS @no 15 37 200 km",
    "GEORADIUS @geo 15 37 200 km STORE @no",
    "GEORADIUSBYMEMBER @geo Palermo 200 km STORE @str",
    "GEORADIUSBYMEMBER @no Palermo 200 km STORE @str",
    "GEOSEARCHSTORE @no3 @geo FROMLONLAT 15 37 BYRADIUS 200 km",
    "GEOSEARCHSTORE @str @geo FROMLONLAT 15 37 BYRADIUS 200 km",
    "GEOSEARCHSTORE @str @no FROMLONLAT 15 37 BYRADIUS 200 km",
    "XADD @stream * f v",
    "XADD @no * f v",
    "XADD @no NOMKSTREAM * f v",
    "XDEL @stream 1-1",
    "XDEL @no 1-1",
    "XTRIM @stream MAXLEN 1",
    "XTRIM @no MAXLEN 1",
    "XSETID @stream 9-9",
    "XSETID @no 9-9",
    "XREADGROUP GROUP group me STREAMS @stream >",
    "XREADGROUP GROUP group me STREAMS @stream 0",
    "XREADGROUP GROUP group me STREAMS @no >",
    "XREADGROUP GROUP group me STREAMS @stream @stream2 > >",
    "XREADGROUP GROUP group me BLOCK 1 STREAMS @stream2 >",
    "XACK @stream group 1-1",
    "XACK @no group 1-1",
    "XCLAIM @stream group you 0 1-1",
    "XCLAIM @no group you 0 1-1",
    "XAUTOCLAIM @stream group you 0 0",
    "XAUTOCLAIM @no group you 0 0",
    "XGROUP CREATE @stream other 0",
    "XGROUP CREATE @no other 0",
    "XGROUP CREATE @no other 0 MKSTREAM",
    "XGROUP SETID @stream group 0",
    "XGROUP SETID @no group 0",
    "XGROUP DESTROY @stream group",
    "XGROUP DESTROY @no group",
    "XGROUP CREATECONSUMER @stream group new",
    "XGROUP CREATECONSUMER @no group new",
    "XGROUP DELCONSUMER @stream group me",
    "SORT @nums",
    "SORT @no",
    "SORT @nums STORE @no",
    "SORT @nums STORE @str",
    "SORT @no STORE @str",
    "RESTORE @str 0 nothing",
    "RESTORE @no 0 nothing",
];

/// Commands that Redis 7.0 has not, and how many hits and misses they count, and whether they use the key `hash`.
const NEWER: &[(&str, u64, u64, bool)] = &[
    ("HTTL @hash FIELDS 1 f", 1, 0, true),
    ("HPTTL @no FIELDS 1 f", 0, 1, false),
    ("HEXPIRETIME @hash FIELDS 1 f", 1, 0, true),
    ("HPEXPIRETIME @no FIELDS 1 f", 0, 1, false),
    ("HEXPIRE @hash 100 FIELDS 1 f", 0, 0, true),
    ("HEXPIRE @no 100 FIELDS 1 f", 0, 0, false),
    ("HPERSIST @hash FIELDS 1 f", 0, 0, true),
    ("HPERSIST @no FIELDS 1 f", 0, 0, false),
    ("HGETDEL @hash FIELDS 1 f", 0, 0, true),
    ("HGETDEL @no FIELDS 1 f", 0, 0, false),
    ("HGETEX @hash PERSIST FIELDS 1 f", 0, 0, true),
    ("HGETEX @no FIELDS 1 f", 0, 0, false),
];

const FIXTURE: &[&str] = &[
    "SET @str hello",
    "SET @num 10",
    "RPUSH @list a b c",
    "RPUSH @list2 a b c",
    "RPUSH @nums 3 1 2",
    "SADD @set 1 2 3",
    "SADD @set2 2 3 4",
    "HSET @hash f v g w n 1",
    "ZADD @zset 1 a 2 b",
    "ZADD @zset2 2 b 3 c",
    "GEOADD @geo 13.361389 38.115556 Palermo 15.087269 37.502669 Catania",
    "PFADD @hll a b",
    "PFADD @hll2 b c",
    "XADD @stream 1-1 f v",
    "XGROUP CREATE @stream group 0",
    "XREADGROUP GROUP group me STREAMS @stream >",
    "XADD @stream 2-2 f v",
    "XADD @stream2 1-1 f v",
    "XGROUP CREATE @stream2 group $",
];

const IDLE_S: i64 = 5_000;
/// As many keys have one on each of a few shards.
const MARKS: usize = 48;

/// What was seen after a command.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    hits: u64,
    misses: u64,
    /// Each with its key, in order, but for what several shards tell.
    events: Vec<String>,
    /// Of every key that is there: whether it is as idle as before.
    idle: BTreeMap<String, bool>,
}

struct Side {
    server: Server,
    client: Client,
    control: Client,
    events: Client,
    /// Every key of the fixture, dumped.
    payloads: Vec<(String, Vec<u8>)>,
}

impl Side {
    fn new(kind: Kind, prefix: &str) -> Side {
        let server = Server::start(kind, &["--notify-keyspace-events", "EAm", "--enable-debug-command", "yes"]);
        let (client, mut control, mut events) = (server.client(), server.client(), server.client());
        for line in FIXTURE {
            let reply = control.call(&line.replace('@', prefix));
            assert!(!reply.is_error(), "{line}: {reply:?}");
        }
        let names = control.call("KEYS *");
        let mut payloads = Vec::new();
        for name in names.items() {
            let dump = control.command(&[b"DUMP", name.bytes().expect("a key")]);
            payloads.push((name.text(), dump.bytes().expect("a payload").to_vec()));
        }
        events.call("PSUBSCRIBE __keyevent@*__:*");
        Side { server, client, control, events, payloads }
    }

    fn counted(&self) -> (u64, u64) {
        let count = |name| self.server.info(name).and_then(|n| n.parse().ok()).expect("a number");
        (count("keyspace_hits"), count("keyspace_misses"))
    }

    /// The events until now, but for those of the marks.
    fn events(&mut self) -> Vec<String> {
        for mark in 0..MARKS {
            self.control.call(&format!("SET mark:{mark} 1"));
        }
        let (mut events, mut marks) = (Vec::new(), 0);
        while marks < MARKS {
            let message = self.events.read();
            let [_, _, event, key] = message.items() else { panic!("{message:?}") };
            if key.text().starts_with("mark:") {
                marks += 1;
            } else {
                events.push(format!("{} {}", event.text(), key.text()));
            }
        }
        self.control.call("FLUSHALL");
        events
    }

    /// Everything is there, and idle for long.
    fn reset(&mut self) {
        self.control.call("FLUSHALL");
        for (name, payload) in &self.payloads {
            let idle_s = IDLE_S.to_string();
            let args: [&[u8]; 6] = [b"RESTORE", name.as_bytes(), b"0", payload, b"IDLETIME", idle_s.as_bytes()];
            assert_eq!(self.control.command(&args), Value::ok(), "{name}");
        }
    }

    fn idle(&mut self) -> BTreeMap<String, bool> {
        let names: Vec<String> = self.control.call("KEYS *").items().iter().map(Value::text).collect();
        let is_idle = |name: &String| self.control.call(&format!("OBJECT IDLETIME {name}")).number() >= IDLE_S;
        let idle: Vec<bool> = names.iter().map(is_idle).collect();
        names.into_iter().zip(idle).collect()
    }

    fn left_by(&mut self, line: &str, in_transaction: bool) -> (Value, Left) {
        self.reset();
        self.events();
        self.reset();
        let (hits, misses) = self.counted();
        let reply = if in_transaction {
            let commands = [words("MULTI"), args(line), words("EXEC")];
            self.client.send_raw(&commands.iter().flat_map(|args| encode(args)).collect::<Vec<u8>>());
            (0..3).map(|_| self.client.read()).last().expect("three replies")
        } else {
            self.client.command(&args(line))
        };
        self.client.call("UNWATCH");
        let (hits_after, misses_after) = self.counted();
        let idle = self.idle();
        let mut events = self.events();
        // When Redis tells that a key has died that was dead when it came is up to its cycle.
        // From Redis 7.2 on a consumer is made also where there is nothing for it, which is told.
        let apart = ["__:restore ", "__:expired ", "__:xgroup-createconsumer "];
        events.retain(|event| !apart.iter().any(|of| event.contains(of)));
        events.sort_unstable();
        (reply, Left { hits: hits_after - hits, misses: misses_after - misses, events, idle })
    }
}

/// An empty last argument is one.
fn args(line: &str) -> Vec<Vec<u8>> {
    let mut args = words(line);
    if line.ends_with(' ') {
        args.push(Vec::new());
    }
    args
}

fn compare(shards: usize, prefix: &str) {
    if !have_tool("redis-server") {
        return;
    }
    let mut subject = Side::new(Kind::Ember { shards }, prefix);
    let mut oracle = Side::new(Kind::Redis, prefix);
    let mut wrong = Vec::new();
    for line in READS.iter().chain(TOUCHES).chain(WRITES) {
        let line = line.replace('@', prefix);
        for in_transaction in [false, true] {
            if in_transaction && line.starts_with("WATCH") {
                continue;
            }
            let (our_reply, ours) = subject.left_by(&line, in_transaction);
            let (their_reply, theirs) = oracle.left_by(&line, in_transaction);
            if ours != theirs {
                wrong.push(format!(
                    "{line} (transaction: {in_transaction})\n  {our_reply:?} {ours:?}\n  {their_reply:?} {theirs:?}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "EmberDB, then Redis:\n{}", wrong.join("\n"));
}

#[test]
fn one_shard_leaves_what_redis_leaves() {
    compare(1, "k:");
}

#[test]
fn three_shards_leave_what_redis_leaves() {
    compare(3, "k:");
}

/// The same keys elsewhere.
#[test]
fn three_shards_leave_what_redis_leaves_of_other_keys() {
    compare(3, "other:");
}

#[test]
fn no_touch_renews_no_idle_time_and_changes_nothing_else() {
    for shards in [1, 3] {
        let mut side = Side::new(Kind::Ember { shards }, "k:");
        for line in READS.iter().chain(NEWER.iter().map(|(line, ..)| line)) {
            let line = line.replace('@', "k:");
            for in_transaction in [false, true] {
                if in_transaction && line.starts_with("WATCH") {
                    continue;
                }
                assert_eq!(side.client.call("CLIENT NO-TOUCH OFF"), Value::ok());
                let (_, with) = side.left_by(&line, in_transaction);
                assert_eq!(side.client.call("CLIENT NO-TOUCH ON"), Value::ok());
                let (_, without) = side.left_by(&line, in_transaction);
                let expected = Left { idle: without.idle.keys().map(|key| (key.clone(), true)).collect(), ..with };
                assert_eq!(without, expected, "{line} (transaction: {in_transaction})");
            }
        }
        // What a write looks at and leaves as it was, and what it moves, is as idle as before.
        for line in
            ["RENAME @str @no", "COPY @str @no", "EXPIRE @str 100 XX", "SETNX @str x", "LMOVE @no @list LEFT LEFT"]
        {
            let (_, left) = side.left_by(&line.replace('@', "k:"), false);
            let renewed: Vec<&String> =
                left.idle.iter().filter(|(_, is_idle)| !**is_idle).map(|(key, _)| key).collect();
            assert_eq!(renewed.len(), usize::from(line.starts_with("COPY")), "{line}: {renewed:?}");
        }
        let (_, left) = side.left_by("TOUCH k:str k:no k:list", false);
        assert_eq!((left.hits, left.misses), (2, 1));
        let renewed: Vec<&String> = left.idle.iter().filter(|(_, is_idle)| !**is_idle).map(|(key, _)| key).collect();
        assert_eq!(renewed, ["k:list", "k:str"]);
    }
}

#[test]
fn newer_commands_leave_what_their_documentation_says() {
    for shards in [1, 3] {
        let mut side = Side::new(Kind::Ember { shards }, "k:");
        for (line, hits, misses, uses) in NEWER {
            let (reply, left) = side.left_by(&line.replace('@', "k:"), false);
            assert!(!reply.is_error(), "{line}: {reply:?}");
            assert_eq!((left.hits, left.misses), (*hits, *misses), "{line}");
            assert_eq!(left.idle["k:hash"], !uses, "{line}");
            let misses_told = left.events.iter().filter(|event| event.contains("keymiss")).count();
            assert_eq!(misses_told as u64, *misses, "{line}");
        }
    }
}

/// Who is served after a wait has been counted when it came.
#[test]
fn a_wait_is_counted_once() {
    for shards in [1, 3] {
        for line in ["XREAD BLOCK 0 STREAMS k:a k:b $ $", "BLMOVE k:a k:b LEFT LEFT 0"] {
            let counts = [Kind::Ember { shards }, Kind::Redis].map(|kind| {
                if kind == Kind::Redis && !have_tool("redis-server") {
                    return None;
                }
                let side = Side::new(kind, "k:");
                let (mut waiting, mut other) = (side.server.client(), side.server.client());
                let before = side.counted();
                waiting.send(line);
                let blocked = || side.server.info("blocked_clients").expect("a number") == "1";
                assert!(crate::common::wait_until(std::time::Duration::from_secs(10), blocked));
                other.call(if line.starts_with('X') { "XADD k:a * f v" } else { "RPUSH k:a v" });
                assert!(!waiting.read().is_error());
                let after = side.counted();
                Some((after.0 - before.0, after.1 - before.1))
            });
            let [ours, theirs] = counts;
            assert!(theirs.is_none() || ours == theirs, "{shards}, {line}: {ours:?}, Redis {theirs:?}");
        }
    }
}
