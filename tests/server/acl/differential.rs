//! Random users with random rules and random commands, on EmberDB and on redis-server: who may do what, in which words it is
//! refused, within EXEC and scripts too, what DRYRUN says, what stands in ACL LOG, and how users are written.
//!
//! Redis 7.0 writes the rules about commands in an order of its own, which differs from run to run; so that part is compared
//! by what it means: redis-server is given the rules as EmberDB writes them, and must allow the same.
//!
//! `EMBERDB_DIFF_STEPS` and `EMBERDB_DIFF_SEED` are as in `differential.rs`.

use crate::common::{Client, Kind, Server, Value, bulk, have_tool, words};
use std::env;

const STEPS: usize = 3_000;
const USERS: &[&str] = &["anna", "berta", "carl"];
const KEYS: &[&str] = &["a1", "a2", "b1", "b2", "c"];
const CHANNELS: &[&str] = &["x1", "x2", "y", "z*"];

/// `K` is some key, `C` some channel.
const COMMANDS: &[&str] = &[
    "get K",
    "set K v",
    "set K v get",
    "set K 5",
    "mget K K",
    "mset K v K v",
    "msetnx K v K v",
    "del K K",
    "copy K K",
    "copy K K replace",
    "rename K K",
    "renamenx K K",
    "strlen K",
    "exists K K",
    "type K",
    "ttl K",
    "append K x",
    "getdel K",
    "getset K v",
    "incr K",
    "lpush K x y",
    "lpop K",
    "lmove K K left right",
    "lrange K 0 -1",
    "llen K",
    "lmpop 2 K K left",
    "sort K alpha store K",
    "sort K by w_* alpha limit 0 0",
    "sort K get # alpha",
    "sort_ro K by nosort get w_*",
    "sort K limit 0 1 get # store K",
    "zadd K 1 m 2 n",
    "zunionstore K 2 K K",
    "zinterstore K 1 K",
    "zrange K 0 -1",
    "zrangestore K K 0 -1",
    "zdiff 2 K K",
    "geoadd K 1 1 m",
    "georadius K 1 1 5 km store K",
    "georadius K 1 1 5 km",
    "georadiusbymember K m 5 km storedist K",
    "geosearchstore K K frommember m byradius 1 km",
    "xadd K 5-1 f v",
    "xread count 1 streams K K 0 0",
    "xgroup create K g 0 mkstream",
    "xgroup destroy K g",
    "xreadgroup group g c count 1 streams K >",
    "xlen K",
    "sadd K x y",
    "smove K K x",
    "sinterstore K K K",
    "scard K",
    "hset K f v",
    "hget K f",
    "object freq K",
    "pfadd K a",
    "pfmerge K K",
    "pfcount K K",
    "bitop and K K K",
    "bitfield K get u8 0",
    "bitfield K set u8 0 1",
    "bitfield_ro K get u8 0",
    "setbit K 0 1",
    "publish C x",
    "spublish C x",
    "ping",
    "echo x",
    "select 0",
    "select 1",
    "keys nosuch",
    "dbsize",
    "flushdb",
    "config get maxmemory",
    "config get a b",
    "client getname",
    "client setname x",
    "acl whoami",
    "acl users",
    "acl cat nosuch",
    "script exists x",
    "eval s 1 K",
    "eval_ro s 1 K",
    "evalsha nosuch 1 K",
    "evalsha nosuch 0",
    "fcall nosuch 1 K",
    "unwatch",
    "expire K 1000",
    "persist K",
    "move K 1",
    "restore K 0 x",
    "dump nosuch",
    "touch K",
    "unlink K",
    "nosuch K",
    "get",
    "object nosuch K",
    "config",
    "swapdb 0 1",
    "lastsave x",
    "time x",
    "wait x 0",
    "pubsub numpat",
    "pubsub numsub",
    "cluster x",
    "hello 9",
    "readonly",
    "asking",
    "slowlog len x",
    "latency reset x",
    "memory doctor x",
];
/// Those that are only asked about.
const ASKED: &[&str] = &[
    "subscribe C",
    "object encoding K",
    "object refcount K",
    "subscribe C C",
    "psubscribe C C",
    "ssubscribe C",
    "unsubscribe C",
    "blpop K K 0",
    "brpoplpush K K 0",
    "blmove K K left left 0",
    "bzpopmin K 0",
    "watch K K",
    "multi",
    "exec",
    "monitor",
    "shutdown",
    "acl setuser x",
    "auth x y",
    "reset",
    "quit",
    "lcs K K",
    "fcall_ro f 2 K K",
    "eval s 2 K K x",
    "eval s 9 K",
    "save",
    "info",
    "command",
    "client kill x",
    "client no-evict on",
    "sync",
    "replicaof no one",
    "xautoclaim K g c 0 0",
    "xinfo stream K",
    "memory usage K",
    "hscan K 0",
    "scan 0",
    "randomkey",
];

const RULES: &[&str] = &[
    "~a*",
    "~b*",
    "%R~a*",
    "%W~b*",
    "%RW~c",
    "%r~*",
    "~a1",
    "allkeys",
    "~*",
    "resetkeys",
    "%W~*",
    "&x*",
    "&y",
    "&z*",
    "allchannels",
    "resetchannels",
    "&*",
    "+get",
    "-get",
    "+GET",
    "+@read",
    "-@read",
    "+@write",
    "-@write",
    "+@string",
    "-@dangerous",
    "+@all",
    "+@all",
    "-@all",
    "+@keyspace",
    "+config|get",
    "-config|get",
    "-config",
    "+config",
    "+select|0",
    "+select|1",
    "-select",
    "+select",
    "+object|encoding",
    "+object",
    "-object|encoding",
    "+acl|whoami",
    "-acl|whoami",
    "+client|getname",
    "+multi",
    "+exec",
    "-exec",
    "+eval",
    "+@scripting",
    "+@pubsub",
    "-publish",
    "+sort",
    "-sort",
    "+@fast",
    "+@slow",
    "-@slow",
    "+@connection",
    "+@transaction",
    "+@SET",
    "+echo|x",
    "+publish|x1",
    "nocommands",
    "allcommands",
    "on",
    "on",
    "off",
    "nopass",
    "nopass",
    ">pw1",
    ">pw2",
    "<pw1",
    "resetpass",
    "#4d967a30111bf29f0eba01c448b375c1629b2fed01cdfcc3aed91f1b57d5dd5e",
    "reset",
    "clearselectors",
    "sanitize-payload",
    "skip-sanitize-payload",
    "(+get ~a*)",
    "(%R~b* +@read)",
    "(+@all ~c allchannels)",
    "(+set %W~a*)",
    "(+@all %R~* -set)",
    "(+publish &x*)",
    "(+sort ~* -@all)",
    "()",
    "+nosuch",
    "-nosuch",
    "%~z",
    "%x~z",
    "(on)",
    "+config|get|x",
    "+@nosuch",
    "foo",
    "<nopw",
    "#12",
    "+config|nosuch",
    "(+get",
    "+get)",
    "-select|0",
    "~",
    "&",
    "+",
    "",
];

#[derive(PartialEq, Eq, Clone, Copy)]
enum Protocol {
    Resp2,
    Resp3,
}

/// A bracket that is not closed.
const OPEN: &str = "(+get";

struct Side {
    server: Server,
    admin: Client,
    clients: Vec<Client>,
}

impl Side {
    fn new(kind: Kind, protocol: Protocol) -> Side {
        let server = Server::start(kind, &["--acllog-max-len", "1000"]);
        let connect = |_| Side::connect(&server, protocol);
        let clients = USERS.iter().map(connect).collect();
        let admin = connect(&"admin");
        Side { server, admin, clients }
    }

    fn connect(server: &Server, protocol: Protocol) -> Client {
        if protocol == Protocol::Resp3 { server.client3() } else { server.client() }
    }
}

struct Run {
    ember: Side,
    redis: Side,
    rng: fastrand::Rng,
    seed: u64,
    protocol: Protocol,
    /// Redis is compared with itself.
    is_redis: bool,
    told: Vec<String>,
}

fn compare(kind: Kind, protocol: Protocol) {
    if !have_tool("redis-server") {
        return;
    }
    let setting = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let seed = setting("EMBERDB_DIFF_SEED").unwrap_or_else(|| fastrand::u64(..));
    let steps = setting("EMBERDB_DIFF_STEPS").map_or(STEPS, |steps| steps as usize);
    let mut run = Run {
        ember: Side::new(kind, protocol),
        redis: Side::new(Kind::Redis, protocol),
        rng: fastrand::Rng::with_seed(seed),
        seed,
        protocol,
        is_redis: kind == Kind::Redis,
        told: Vec::new(),
    };
    for (user, name) in USERS.iter().enumerate() {
        run.admin(&format!("ACL SETUSER {name} on nopass +@all ~* &*"));
        run.as_user(user, &format!("AUTH {name} x"));
    }
    for step in 0..steps {
        run.step();
        if step % 100 == 99 {
            run.compare_log();
        }
    }
}

impl Run {
    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.rng.usize(..of.len())]
    }

    fn command(&mut self, of: &[&str]) -> String {
        let template = self.pick(of);
        let fill = |word: &str, run: &mut Run| match word {
            "K" => run.pick(KEYS).to_owned(),
            "C" => run.pick(CHANNELS).to_owned(),
            word => word.to_owned(),
        };
        template.split(' ').map(|word| fill(word, self)).collect::<Vec<_>>().join(" ")
    }

    fn fail(&self, what: &str, ember: &Value, redis: &Value) -> ! {
        let from = self.told.len().saturating_sub(40);
        panic!(
            "EMBERDB_DIFF_SEED={}\n{}\n{what}\nEmberDB: {ember:?}\nRedis:   {redis:?}",
            self.seed,
            self.told[from..].join("\n")
        );
    }

    /// Says the same to both.
    fn both<A: AsRef<[u8]>>(&mut self, who: Option<usize>, args: &[A]) -> Value {
        let shown: Vec<_> = args.iter().map(|arg| String::from_utf8_lossy(arg.as_ref()).into_owned()).collect();
        let line = format!("{:>6} {shown:?}", who.map_or("admin", |user| USERS[user]));
        self.told.push(line.clone());
        let say = |side: &mut Side| match who {
            None => side.admin.command(args),
            Some(user) => side.clients[user].command(args),
        };
        let (ember, redis) = (say(&mut self.ember), say(&mut self.redis));
        if ember != redis {
            self.fail(&line, &ember, &redis);
        }
        ember
    }

    fn admin(&mut self, line: &str) -> Value {
        self.both(None, &words(line))
    }

    fn as_user(&mut self, user: usize, line: &str) -> Value {
        self.both(Some(user), &words(line))
    }

    fn step(&mut self) {
        let user = self.rng.usize(..USERS.len());
        match self.rng.u32(..100) {
            0..20 => self.set_user(),
            20..45 => {
                let command = self.command(COMMANDS);
                self.as_user(user, &command);
            }
            45..65 => {
                let command = if self.rng.bool() { self.command(COMMANDS) } else { self.command(ASKED) };
                self.admin(&format!("ACL DRYRUN {} {command}", USERS[user]));
            }
            65..75 => self.transaction(user),
            75..85 => self.script(user),
            85..90 => {
                let password = self.pick(&["pw1", "pw2", "nonsense", ""]);
                let name = self.pick(&["anna", "berta", "carl", "nobody", "default"]);
                let reply = self.both(Some(user), &["AUTH", name, password]);
                if !reply.is_error() {
                    self.become_again(user);
                }
            }
            90..93 => {
                self.admin("ACL USERS");
            }
            93..98 => self.compare_users(),
            98 => self.delete(user),
            _ => {
                self.as_user(user, "RESET");
                if self.protocol == Protocol::Resp3 {
                    // (Their versions differ.)
                    for side in [&mut self.ember, &mut self.redis] {
                        side.clients[user].call("HELLO 3");
                    }
                }
                self.become_again(user);
            }
        }
    }

    /// Whoever the connection is: it is its user again, where that one lets it in.
    fn become_again(&mut self, user: usize) {
        for password in ["pw1", "pw2", "x"] {
            if !self.both(Some(user), &["AUTH", USERS[user], password]).is_error() {
                return;
            }
        }
        self.admin(&format!("ACL SETUSER {} on nopass", USERS[user]));
        self.both(Some(user), &["AUTH", USERS[user], "x"]);
    }

    fn rules(&mut self) -> Vec<&'static str> {
        let mut rules: Vec<&str> = (0..self.rng.usize(1..7)).map(|_| RULES[self.rng.usize(..RULES.len())]).collect();
        // Where a bracket is opened within another Redis forgets the first, which is an error here.
        if let Some(first) = rules.iter().position(|rule| *rule == OPEN) {
            let mut index = 0;
            rules.retain(|rule| {
                index += 1;
                *rule != OPEN || index == first + 1
            });
        }
        rules
    }

    fn set_user(&mut self) {
        let user = self.rng.usize(..USERS.len());
        let mut args = vec!["ACL", "SETUSER", USERS[user]];
        match self.rng.u32(..8) {
            0 => args.extend(["reset", "on", "nopass", "+@all", "~a*", "&x*"]),
            1 => args.extend(["on", "nopass", "+@all", "-@dangerous", "%R~*", "%W~a*"]),
            // Without mistakes most of all.
            2..7 => {
                let rules = self.rules();
                let is_right =
                    |rule: &&str| RULES.iter().position(|of| of == rule) < RULES.iter().position(|of| *of == "+nosuch");
                args.extend(rules.into_iter().filter(is_right));
            }
            _ => args.extend(self.rules()),
        }
        self.both(None, &args);
    }

    fn transaction(&mut self, user: usize) {
        self.as_user(user, "MULTI");
        for _ in 0..self.rng.usize(0..4) {
            let command = if self.rng.u8(..8) == 0 { self.script_command() } else { words(&self.command(COMMANDS)) };
            self.both(Some(user), &command);
        }
        if self.rng.u8(..3) > 0 {
            let rules = self.rules();
            let mut args = vec!["ACL", "SETUSER", USERS[user]];
            args.extend(rules);
            self.both(None, &args);
        }
        if self.as_user(user, "EXEC").is_error() {
            // EXEC itself may not have been allowed.
            self.admin(&format!("ACL SETUSER {} +discard", USERS[user]));
            self.as_user(user, "DISCARD");
        }
    }

    fn script_command(&mut self) -> Vec<Vec<u8>> {
        let scripts = [
            "return redis.call(unpack(ARGV))",
            "return redis.pcall(unpack(ARGV))",
            "return redis.acl_check_cmd(unpack(ARGV))",
        ];
        let script = self.pick(&scripts);
        let command = self.command(COMMANDS);
        // (Of commands that are not there and of those without enough arguments the texts differ elsewhere.)
        let command = if command.starts_with("nosuch") || command == "get" { "get a1".to_owned() } else { command };
        let mut args: Vec<Vec<u8>> = ["EVAL", script].iter().map(|arg| arg.as_bytes().to_vec()).collect();
        if self.rng.bool() {
            args.extend([b"1".to_vec(), self.pick(KEYS).as_bytes().to_vec()]);
        } else {
            args.push(b"0".to_vec());
        }
        args.extend(words(&command));
        args
    }

    fn script(&mut self, user: usize) {
        let args = self.script_command();
        self.both(Some(user), &args);
    }

    fn delete(&mut self, user: usize) {
        self.admin(&format!("ACL DELUSER {} nobody", USERS[user]));
        for side in [&mut self.ember, &mut self.redis] {
            side.clients[user] = Side::connect(&side.server, self.protocol);
        }
        self.admin(&format!("ACL SETUSER {} on nopass +@all ~a* &*", USERS[user]));
        self.as_user(user, &format!("AUTH {} x", USERS[user]));
    }

    /// Users without their rules about commands, and these by what they mean.
    fn compare_users(&mut self) {
        let line = |value: &Value| {
            let text = value.text();
            // (Both letters of all keys: `~*` with other patterns would not be taken again.)
            let text = text.replace("%RW~* ", "~* ");
            let kept = text.split(' ').filter(|word| !word.starts_with(['+', '-']));
            // The last rule of a selector closes its bracket.
            kept.collect::<Vec<_>>().join(" ")
        };
        let lists = [&mut self.ember, &mut self.redis].map(|side| side.admin.call("ACL LIST"));
        let [ember, redis] = &lists;
        if !ember.items().iter().map(line).eq(redis.items().iter().map(line)) {
            self.fail("ACL LIST", ember, redis);
        }
        let user = USERS[self.rng.usize(..USERS.len())];
        let users = [&mut self.ember, &mut self.redis].map(|side| side.admin.call(&format!("ACL GETUSER {user}")));
        for field in ["flags", "passwords", "keys", "channels"] {
            let [mut ember, redis] = users.each_ref().map(|of| of.field(field).expect("a field"));
            if field == "keys" {
                ember = bulk(ember.text().replace("%RW~*", "~*"));
            }
            if ember != redis {
                self.fail(&format!("{field} of {user}"), &ember, &redis);
            }
        }
        // As EmberDB writes him he is the same user to Redis.
        let text =
            ember.items().iter().map(Value::text).find(|text| text.split(' ').nth(1) == Some(user)).expect("a line");
        // (Redis does not take what it writes itself, see above.)
        let text = if self.is_redis { text.replace(" ~* ", " %RW~* ") } else { text };
        let mut args = vec!["ACL", "SETUSER", "probe", "reset"];
        args.extend(text.split(' ').skip(2));
        let made = self.redis.admin.command(&args);
        assert_eq!(made, Value::ok(), "{text}");
        for _ in 0..20 {
            let command = if self.rng.bool() { self.command(COMMANDS) } else { self.command(ASKED) };
            let [of_user, of_probe] =
                [user, "probe"].map(|name| self.redis.admin.call(&format!("ACL DRYRUN {name} {command}")));
            if of_user != of_probe {
                self.fail(&format!("{command} by {text}"), &of_probe, &of_user);
            }
        }
        self.redis.admin.call("ACL DELUSER probe");
    }

    fn compare_log(&mut self) {
        let logs = [&mut self.ember, &mut self.redis].map(|side| side.admin.call("ACL LOG 1000"));
        let of_entry = |entry: &Value| {
            ["count", "reason", "context", "object", "username"]
                .map(|name| entry.field(name).map(|value| format!("{value:?}")))
        };
        let [ember, redis] = logs.each_ref().map(|log| log.items().iter().map(of_entry).collect::<Vec<_>>());
        if let Some(at) = (0..ember.len().max(redis.len())).find(|at| ember.get(*at) != redis.get(*at)) {
            let [ember, redis] = [&ember, &redis].map(|log| log.get(at).map(|entry| format!("{entry:?}")));
            panic!(
                "EMBERDB_DIFF_SEED={}\nentry {at}\nEmberDB: {ember:?}\nRedis:   {redis:?}\n{}",
                self.seed,
                self.told[self.told.len().saturating_sub(150)..].join("\n")
            );
        }
        let info = logs[0].items().first().and_then(|entry| entry.field("client-info")).map(|info| info.text());
        assert!(info.is_none_or(|info| info.starts_with("id=") && info.contains(" user=") || info.is_empty()));
        self.admin("ACL LOG RESET");
    }
}

#[test]
fn one_shard_allows_what_redis_allows() {
    compare(Kind::Ember { shards: 1 }, Protocol::Resp2);
}

#[test]
fn three_shards_allow_what_redis_allows() {
    compare(Kind::Ember { shards: 3 }, Protocol::Resp3);
}

#[test]
fn redis_allows_what_redis_allows() {
    compare(Kind::Redis, Protocol::Resp2);
}
