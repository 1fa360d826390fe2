//! Random commands from a seed: few keys, so that they meet often; values at the edges; one command in ten or so wrong.
//!
//! No reply may depend on the millisecond in which a server executed the command. Hence no key dies during a run except
//! by a deadline that is past when it is set, and no two deadlines are so close that GT or LT could go either way:
//! every relative time is used once and is a multiple of 1,000 s away from every other, while absolute times come from
//! a small pool, where equality is certain.
//!
//! Commands of a second connection, which Redis executes between two of the first, come mostly while the first watches
//! keys or is between MULTI and EXEC. Both choose databases of their own.
//!
//! Left out on purpose: numbers that only an 80-bit float can hold or hexadecimal ones (INCRBYFLOAT), and times within
//! a second of the largest `i64`, which Redis rounds past its end.

use fastrand::Rng;

use crate::compare::Rule;

pub type Args = Vec<Vec<u8>>;

pub const KEYS: [&[u8]; 12] = [
    b"k0",
    b"k1",
    b"k2",
    b"k3",
    b"session:1",
    b"session:2",
    b"{tag}a",
    b"{tag}b",
    b"x{tag}",
    b"{}",
    b"",
    b"bin\0\r\n\xff \"'",
];

pub enum Step {
    Command(Args, Rule),
    /// A command of the second connection, when everything before it is answered.
    Elsewhere(Args, Rule),
    /// SCAN with these options after the cursor, until the cursor is 0 again.
    Scan(Args),
    RandomKey,
}

/// 2100-01-01, in seconds: later than any relative deadline that `Generator::fresh_s` makes.
const POOL_BASE_S: i64 = 4_102_444_800;
const POOL_STEP_S: i64 = 365 * 86_400;
const POOL_SIZE: i64 = 6;
/// Milliseconds past the pool's seconds: both sides of the rounding that EXPIRETIME does.
const POOL_MS: [i64; 6] = [0, 1, 499, 500, 501, 999];

/// True for a moment that the generator gave as such, so that it must be reported as given.
pub fn is_absolute_ms(moment_ms: i64) -> bool {
    let past_base_ms = moment_ms - POOL_BASE_S * 1000;
    (0..POOL_SIZE * POOL_STEP_S * 1000).contains(&past_base_ms)
        && POOL_MS.contains(&(past_base_ms % (POOL_STEP_S * 1000)))
}

/// The same for a moment that EXPIRETIME has rounded to seconds.
pub fn is_absolute_s(moment_s: i64) -> bool {
    is_absolute_ms(moment_s * 1000) || is_absolute_ms((moment_s - 1) * 1000)
}

/// A command that finds every dead key, so that Redis no longer counts it.
pub fn touch_every_key() -> Args {
    let keys = KEYS.iter().map(|key| key.to_vec());
    std::iter::once(b"EXISTS".to_vec()).chain(keys).collect()
}

const NOT_INTEGERS: &[&str] = &[
    "",
    "abc",
    "1.5",
    " 100",
    "100 ",
    "+100",
    "1e3",
    "00100",
    "-0",
    "-",
    "0x10",
    "9223372036854775808",
    "-9223372036854775809",
    "123456789012345678901234567890",
];

const INTEGERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "7",
    "42",
    "9999",
    "10000",
    "-32768",
    "2147483648",
    "1000000000000",
    "9223372036854775806",
    "9223372036854775807",
    "-9223372036854775807",
    "-9223372036854775808",
];

const FLOATS: &[&str] = &[
    "0",
    "0.1",
    "0.2",
    "-0.3",
    "1.5",
    "3.0",
    "-2.25",
    ".5",
    "5.",
    "1e3",
    "-1e-5",
    "2.5e10",
    "3.14159265358979",
    "123456789.123456",
    "1e17",
];

const NOT_FLOATS: &[&str] = &["", "abc", " 1", "1 ", "1,5", "1.5x", "nan", "--1", "1e"];

const PATTERNS: &[&[u8]] = &[
    b"*",
    b"**",
    b"k?",
    b"k[0-2]",
    b"k[2-0]",
    b"k[^0]",
    b"[^k]*",
    b"session:*",
    b"*{tag}*",
    b"\\{tag}*",
    b"k\\0",
    b"",
    b"[",
    b"[]",
    b"k[",
    b"\\",
    b"*\xff*",
    b"nothing*",
];

/// Commands for arguments at random; many get too few or too many. Those are missing whose replies could depend on
/// chance (RANDOMKEY) or list what a server has of its own (COMMAND, CONFIG GET *).
const ANY_ARGUMENTS: &[&str] = &[
    "APPEND",
    "AUTH",
    "CLIENT",
    "COPY",
    "DECR",
    "DECRBY",
    "DEL",
    "DISCARD",
    "ECHO",
    "EXISTS",
    "EXPIRE",
    "EXPIREAT",
    "EXPIRETIME",
    "FLUSHALL",
    "FLUSHDB",
    "GET",
    "GETDEL",
    "GETEX",
    "GETRANGE",
    "GETSET",
    "INCR",
    "INCRBY",
    "INCRBYFLOAT",
    "KEYS",
    "LCS",
    "MGET",
    "MOVE",
    "MSET",
    "MSETNX",
    "MULTI",
    "OBJECT",
    "PERSIST",
    "PEXPIRE",
    "PEXPIREAT",
    "PEXPIRETIME",
    "PING",
    "PSETEX",
    "PTTL",
    "PUBLISH",
    "PUBSUB",
    "RENAME",
    "RENAMENX",
    "SELECT",
    "SET",
    "SETEX",
    "SETNX",
    "SETRANGE",
    "STRLEN",
    "SUBSTR",
    "SWAPDB",
    "TOUCH",
    "TTL",
    "TYPE",
    "UNLINK",
    "UNWATCH",
    "WATCH",
];

pub struct Generator {
    rng: Rng,
    relative_times: u64,
    /// A command that must follow the one before it.
    queued: Option<Args>,
    /// The first connection is between MULTI and EXEC.
    in_multi: bool,
    /// It has watched keys since its last EXEC, DISCARD or UNWATCH.
    watches: bool,
}

impl Generator {
    pub fn new(seed: u64) -> Generator {
        Generator { rng: Rng::with_seed(seed), relative_times: 0, queued: None, in_multi: false, watches: false }
    }

    /// How many commands to pipeline next.
    pub fn chunk_size(&mut self) -> usize {
        self.rng.usize(1..=50)
    }

    pub fn next_step(&mut self) -> Step {
        if let Some(args) = self.queued.take() {
            return command(args);
        }
        if self.one_in(if self.watches { 5 } else { 100 }) {
            let args = self.elsewhere();
            let rule = Rule::of(&args);
            return Step::Elsewhere(args, rule);
        }
        if let Some(args) = self.transaction() {
            self.note(&args);
            return command(args);
        }
        let args = match self.rng.u32(..100) {
            0..38 => self.string(),
            38..66 => self.expiry(),
            66..82 => self.keys(),
            // What they answer between MULTI and EXEC is no cursor and no key.
            82..85 if self.in_multi => self.many_keys("EXISTS"),
            82..84 => return Step::Scan(self.scan_options()),
            84 => return Step::RandomKey,
            85..92 => self.session(),
            _ => self.wrong(),
        };
        self.note(&args);
        command(args)
    }

    /// A command that begins, ends or guards a transaction, if it is time for one.
    fn transaction(&mut self) -> Option<Args> {
        let chance = match (self.in_multi, self.watches) {
            (true, _) => 7,
            (false, true) => 4,
            (false, false) => 25,
        };
        if !self.one_in(chance) {
            return None;
        }
        Some(match (self.in_multi, self.rng.u32(..20)) {
            (true, 0..14) | (false, 0) => vec![self.word("EXEC")],
            (true, 14..16) | (false, 1) => vec![self.word("DISCARD")],
            (true, 16) | (false, 2..10) => vec![self.word("MULTI")],
            (_, 19) => vec![self.word("UNWATCH")],
            _ => self.many_keys("WATCH"),
        })
    }

    /// Keeps account of the state in which a command that was made leaves the first connection.
    fn note(&mut self, args: &Args) {
        let name = args[0].to_ascii_uppercase();
        match (name.as_slice(), args.len()) {
            (b"MULTI", 1) => self.in_multi = true,
            (b"EXEC" | b"DISCARD", 1) if self.in_multi => (self.in_multi, self.watches) = (false, false),
            (b"UNWATCH", 1) if !self.in_multi => self.watches = false,
            (b"WATCH", 2..) if !self.in_multi => self.watches = true,
            _ => {}
        }
    }

    /// Whatever may change a key that the first connection watches, and what may not.
    fn elsewhere(&mut self) -> Args {
        match self.rng.u32(..20) {
            0..4 => self.string(),
            4..7 => self.expiry(),
            7..9 => self.copy(),
            9 => args("RENAME", [self.key(), self.key()]),
            10 | 11 => args("MOVE", [self.key(), self.database()]),
            12 | 13 => args("SWAPDB", [self.database(), self.database()]),
            14 => vec![self.any_of(&["FLUSHDB", "FLUSHDB", "FLUSHALL"])],
            15 => self.many_keys("DEL"),
            16 | 17 => args("SELECT", [self.database()]),
            _ => {
                let args = self.keys();
                // It asks for another command behind it; that is the first connection's.
                self.queued = None;
                args
            }
        }
    }

    fn database(&mut self) -> Vec<u8> {
        self.any_of(&["0", "0", "0", "0", "0", "1", "1", "1", "15", "16", "-1", "x"])
    }

    fn string(&mut self) -> Args {
        match self.rng.u32(..28) {
            0..6 => self.set(),
            6 => args("SETEX", [self.key(), self.relative_s(), self.value()]),
            7 => args("PSETEX", [self.key(), self.relative_ms(), self.value()]),
            8 => args("SETNX", [self.key(), self.value()]),
            9 => self.getex(),
            10 => args("GETDEL", [self.key()]),
            11 => args("GETSET", [self.key(), self.value()]),
            12 | 13 => self.mset(),
            14 => self.many_keys("MGET"),
            15 | 16 => args("APPEND", [self.key(), self.value()]),
            17 => args("STRLEN", [self.key()]),
            18 => args("SETRANGE", [self.key(), self.offset(), self.value()]),
            19 => {
                let name = *self.pick(&["GETRANGE", "SUBSTR"]);
                args(name, [self.key(), self.index(), self.index()])
            }
            20 | 21 => {
                let name = *self.pick(&["INCR", "DECR"]);
                args(name, [self.key()])
            }
            22 | 23 => {
                let name = *self.pick(&["INCRBY", "DECRBY"]);
                args(name, [self.key(), self.integer()])
            }
            24 => args("INCRBYFLOAT", [self.key(), self.float()]),
            25 => self.lcs(),
            _ => args("GET", [self.key()]),
        }
    }

    /// SET with up to four options in any order, legal together or not.
    fn set(&mut self) -> Args {
        let mut out = args("SET", [self.key(), self.value()]);
        for _ in 0..*self.pick(&[0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 4]) {
            match self.rng.u32(..14) {
                0 | 1 => out.push(self.word("NX")),
                2 | 3 => out.push(self.word("XX")),
                4 | 5 => out.push(self.word("GET")),
                6 | 7 => out.push(self.word("KEEPTTL")),
                8 => out.extend([self.word("EX"), self.relative_s()]),
                9 => out.extend([self.word("PX"), self.relative_ms()]),
                10 => out.extend([self.word("EXAT"), self.absolute_s()]),
                11 => out.extend([self.word("PXAT"), self.absolute_ms()]),
                12 => out.extend([self.word("EX"), self.relative_s()]),
                _ => out.push(self.any_of(&["EX", "PX", "PXAT", "PERSIST", "FOO", "", "100000"])),
            }
        }
        if self.watches {
            // Redis stores a value whose time is over and EmberDB does not: where there was none before, Redis alone
            // has changed the key.
            let is_past = |arg: &&mut Vec<u8>| [b"1".as_slice(), b"1000000000", b"1000000000000"].contains(&&***arg);
            out[3..].iter_mut().filter(is_past).for_each(|arg| *arg = b"0".to_vec());
        }
        out
    }

    fn getex(&mut self) -> Args {
        let mut out = args("GETEX", [self.key()]);
        for _ in 0..*self.pick(&[0, 1, 1, 1, 1, 2]) {
            match self.rng.u32(..7) {
                0 => out.extend([self.word("EX"), self.relative_s()]),
                1 => out.extend([self.word("PX"), self.relative_ms()]),
                2 => out.extend([self.word("EXAT"), self.absolute_s()]),
                3 => out.extend([self.word("PXAT"), self.absolute_ms()]),
                4 | 5 => out.push(self.word("PERSIST")),
                _ => out.push(self.any_of(&["NX", "KEEPTTL", "EX", "GET", ""])),
            }
        }
        out
    }

    fn mset(&mut self) -> Args {
        let mut out = vec![self.any_of(&["MSET", "MSET", "MSETNX"])];
        for _ in 0..self.rng.usize(1..4) {
            out.extend([self.key(), self.value()]);
        }
        // Between MULTI and EXEC it is for `wire/transactions.rs`.
        if self.one_in(15) && !self.in_multi {
            out.pop();
        }
        out
    }

    fn lcs(&mut self) -> Args {
        let mut out = args("LCS", [self.key(), self.key()]);
        for _ in 0..self.rng.usize(..4) {
            match self.rng.u32(..6) {
                0 => out.push(self.word("LEN")),
                1 | 2 => out.push(self.word("IDX")),
                3 => out.push(self.word("WITHMATCHLEN")),
                4 => out.extend([self.word("MINMATCHLEN"), self.any_of(&["0", "1", "3", "-1", "x"])]),
                _ => out.push(self.any_of(&["MINMATCHLEN", "FOO"])),
            }
        }
        out
    }

    fn expiry(&mut self) -> Args {
        let (name, moment) = match self.rng.u32(..12) {
            0 | 1 => ("EXPIRE", self.relative_s()),
            2 | 3 => ("PEXPIRE", self.relative_ms()),
            4 => ("EXPIREAT", self.absolute_s()),
            5 => ("PEXPIREAT", self.absolute_ms()),
            6 => return args("PERSIST", [self.key()]),
            _ => {
                let name = *self.pick(&["TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME"]);
                return args(name, [self.key()]);
            }
        };
        let mut out = args(name, [self.key(), moment]);
        for _ in 0..*self.pick(&[0, 0, 1, 1, 1, 2, 3]) {
            let option = *self.pick(&["NX", "XX", "GT", "LT", "NX", "XX", "GT", "LT", "FOO", ""]);
            out.push(self.word(option));
        }
        out
    }

    fn keys(&mut self) -> Args {
        match self.rng.u32(..200) {
            0..24 => self.many_keys("DEL"),
            24..34 => self.many_keys("UNLINK"),
            34..50 => self.many_keys("EXISTS"),
            50..60 => self.many_keys("TOUCH"),
            60..70 => args("TYPE", [self.key()]),
            70..85 => vec![b"KEYS".to_vec(), self.pick(PATTERNS).to_vec()],
            85..100 => args("RENAME", [self.key(), self.key()]),
            100..112 => args("RENAMENX", [self.key(), self.key()]),
            112..134 => self.copy(),
            134..170 => self.object(),
            170..184 => {
                self.queued = Some(vec![b"DBSIZE".to_vec()]);
                touch_every_key()
            }
            184..186 => vec![self.any_of(&["FLUSHDB", "FLUSHDB", "FLUSHALL"]), self.any_of(&["ASYNC", "SYNC", "FOO"])],
            186 => vec![self.any_of(&["FLUSHDB", "FLUSHALL"])],
            187..190 => args("MOVE", [self.key(), self.database()]),
            190 => args("SWAPDB", [self.database(), self.database()]),
            _ => {
                vec![b"SELECT".to_vec(), self.any_of(&["0", "0", "0", "0", "1", "15", "16", "-1", "", "a", "99999999"])]
            }
        }
    }

    fn copy(&mut self) -> Args {
        let mut out = args("COPY", [self.key(), self.key()]);
        for _ in 0..*self.pick(&[0, 1, 1, 1, 2]) {
            match self.rng.u32(..8) {
                0..4 => out.push(self.word("REPLACE")),
                4..7 => out.extend([self.word("DB"), self.any_of(&["0", "1", "1", "15", "16", "-1", "x"])]),
                _ => out.push(self.any_of(&["DB", "FOO", ""])),
            }
        }
        out
    }

    fn object(&mut self) -> Args {
        let subcommand =
            *self.pick(&["ENCODING", "ENCODING", "ENCODING", "REFCOUNT", "IDLETIME", "FREQ", "HELP", "FOO"]);
        let mut out = vec![self.word("OBJECT"), self.word(subcommand)];
        // Between MULTI and EXEC, HELP with arguments is for `wire/transactions.rs`.
        if subcommand != "HELP" || self.one_in(4) && !self.in_multi {
            out.push(self.key());
        }
        out
    }

    fn scan_options(&mut self) -> Args {
        let mut out = Args::new();
        if self.one_in(2) {
            let count = self.any_of(&["1", "3", "10", "1000", "1000000", "0", "-1", "x", ""]);
            out.extend([self.word("COUNT"), count]);
        }
        if self.one_in(2) {
            out.extend([self.word("MATCH"), self.pick(PATTERNS).to_vec()]);
        }
        if self.one_in(3) {
            let name = self.any_of(&["string", "String", "list", "zset", "nonsense"]);
            out.extend([self.word("TYPE"), name]);
        }
        if self.one_in(12) {
            out.push(self.any_of(&["COUNT", "MATCH", "FOO"]));
        }
        out
    }

    /// What the connection itself answers, and subcommands.
    fn session(&mut self) -> Args {
        let line: &[&[u8]] = self.pick::<&[&[u8]]>(&[
            &[b"PING"],
            &[b"PING", b"hello \r\n"],
            &[b"PING", b""],
            &[b"ECHO", b"\x00\xff"],
            &[b"CLIENT", b"SETNAME", b"worker-1"],
            &[b"CLIENT", b"SETNAME", b""],
            &[b"CLIENT", b"SETNAME", b"two words"],
            &[b"CLIENT", b"SETNAME", b"line\n"],
            &[b"client", b"getname"],
            &[b"CLIENT", b"ID"],
            &[b"CLIENT", b"NO-EVICT", b"on"],
            &[b"CLIENT", b"NO-EVICT", b"maybe"],
            &[b"CLIENT", b"REPLY", b"maybe"],
            &[b"CLIENT", b"KILL", b"ID", b"x"],
            &[b"CLIENT", b"KILL", b"ID", b"0"],
            &[b"CLIENT", b"KILL", b"ID", b"999999999"],
            &[b"CLIENT", b"KILL", b"TYPE", b"foo"],
            &[b"CLIENT", b"KILL", b"127.0.0.1:1"],
            &[b"CLIENT", b"LIST", b"TYPE", b"foo"],
            &[b"CLIENT", b"PAUSE", b"x"],
            &[b"CLIENT", b"PAUSE", b"-1"],
            &[b"CLIENT", b"PAUSE", b"1", b"foo"],
            &[b"CLIENT", b"UNPAUSE"],
            &[b"CLIENT", b"HELP"],
            &[b"AUTH", b"secret"],
            &[b"AUTH", b"default", b"anything"],
            &[b"AUTH", b"nobody", b"anything"],
            &[b"HELLO", b"4"],
            &[b"HELLO", b"x"],
            &[b"HELLO", b"1", b"AUTH"],
            &[b"CONFIG", b"GET", b"nothing-is-called-so*"],
            &[b"CONFIG", b"SET", b"nothing-is-called-so", b"1"],
            &[b"CONFIG", b"SET", b"hz"],
            &[b"CONFIG", b"SET", b"hz", b"10", b"hz", b"10"],
            &[b"CONFIG", b"HELP"],
            &[b"COMMAND", b"GETKEYS", b"GET", b"k0"],
            &[b"COMMAND", b"GETKEYS", b"MSET", b"a", b"1", b"b", b"2"],
            &[b"COMMAND", b"GETKEYS", b"COPY", b"a", b"b", b"REPLACE"],
            &[b"COMMAND", b"GETKEYS", b"GET"],
            &[b"COMMAND", b"GETKEYS", b"PING"],
            &[b"COMMAND", b"GETKEYS", b"FOO"],
            &[b"COMMAND", b"INFO", b"nothing-is-called-so"],
            &[b"COMMAND", b"HELP"],
            &[b"INFO", b"nothing-is-called-so"],
            &[b"PUBLISH", b"nobody-listens", b"x"],
            &[b"PUBSUB", b"CHANNELS"],
            &[b"PUBSUB", b"CHANNELS", b"a*"],
            &[b"PUBSUB", b"NUMSUB"],
            &[b"PUBSUB", b"NUMSUB", b"a", b"b"],
            &[b"PUBSUB", b"NUMPAT"],
            &[b"PUBSUB", b"HELP"],
            &[b"UNSUBSCRIBE", b"a"],
            &[b"UNSUBSCRIBE"],
            &[b"PUNSUBSCRIBE", b"a*"],
        ]);
        line.iter().map(|arg| arg.to_vec()).collect()
    }

    /// Unknown names, unknown subcommands, and arguments that fit nothing.
    fn wrong(&mut self) -> Args {
        let name = match self.rng.u32(..10) {
            0 => self.any_of(&["", "FOO", "get\r\nset", "SET ", "'quoted'", "CONFIG|GET", "nul\0"]),
            1 => vec![b'x'; self.rng.usize(1..300)],
            2 => {
                let container = *self.pick(&["OBJECT", "CLIENT", "CONFIG", "COMMAND", "PUBSUB"]);
                let subcommand = self.any_of(&["FOO", "", "foo\r\nbar", "SET|GET"]);
                return [vec![self.word(container), subcommand], self.junk(4)].concat();
            }
            _ => {
                let name = *self.pick(ANY_ARGUMENTS);
                self.word(name)
            }
        };
        let mut out = [vec![name], self.junk(7)].concat();
        if self.in_multi && out[0].to_ascii_uppercase().starts_with(b"MSET") && out.len() > 3 && out.len() % 2 == 0 {
            out.pop();
        }
        out
    }

    /// Fewer than `limit` arguments that are keys, options or numbers. No number among them is a time in which a key
    /// would die during the run.
    fn junk(&mut self, limit: usize) -> Args {
        (0..self.rng.usize(..limit))
            .map(|_| match self.rng.u32(..4) {
                0 | 1 => self.key(),
                2 => self.any_of(&["NX", "XX", "EX", "GET", "LEN", "KEEPTTL", "REPLACE", "ASYNC"]),
                _ => self.any_of(&["0", "-1", "1.5", "", "abc", "\u{e9}\r\n", "*"]),
            })
            .collect()
    }

    fn many_keys(&mut self, name: &str) -> Args {
        let mut out = vec![self.word(name)];
        for _ in 0..self.rng.usize(1..5) {
            out.push(self.key());
        }
        out
    }

    fn key(&mut self) -> Vec<u8> {
        self.pick(&KEYS).to_vec()
    }

    fn value(&mut self) -> Vec<u8> {
        match self.rng.u32(..20) {
            0..6 => self.integer(),
            6..9 => self.float(),
            9 => Vec::new(),
            10 => {
                let len = self.rng.usize(1..40);
                std::iter::repeat_with(|| self.rng.u8(..)).take(len).collect()
            }
            // Both sides of what Redis keeps in one allocation with its header (44 bytes).
            11 | 12 => vec![b'e'; self.rng.usize(42..48)],
            13 => {
                let len = self.rng.usize(100..4000);
                std::iter::repeat_with(|| self.rng.alphanumeric() as u8).take(len).collect()
            }
            _ => self.any_of(&["hello", "world", "ohmytext", "mynewtext", "a", "value \"quoted\""]),
        }
    }

    fn integer(&mut self) -> Vec<u8> {
        match self.rng.u32(..10) {
            0..5 => self.any_of(INTEGERS),
            5..8 => self.rng.i32(-1000..1000).to_string().into(),
            8 => self.rng.i64(..).to_string().into(),
            _ => self.any_of(NOT_INTEGERS),
        }
    }

    fn float(&mut self) -> Vec<u8> {
        if self.one_in(8) { self.any_of(NOT_FLOATS) } else { self.any_of(FLOATS) }
    }

    fn offset(&mut self) -> Vec<u8> {
        match self.rng.u32(..10) {
            0..6 => self.rng.u32(..60).to_string().into(),
            6 => self.rng.u32(..3000).to_string().into(),
            7 => self.any_of(&["-1", "-9223372036854775808"]),
            8 => self.any_of(&["536870912", "4294967296", "9223372036854775807"]),
            _ => self.any_of(NOT_INTEGERS),
        }
    }

    fn index(&mut self) -> Vec<u8> {
        match self.rng.u32(..10) {
            0..8 => self.rng.i32(-60..60).to_string().into(),
            8 => self.any_of(INTEGERS),
            _ => self.any_of(NOT_INTEGERS),
        }
    }

    /// A time from now that no other has been or will be within 1,000 s of: multiples of 1,000 s in shuffled order,
    /// every other one a hundred times as far.
    fn fresh_s(&mut self) -> u64 {
        const PRIME: u64 = 99_991;
        self.relative_times += 1;
        let nth = self.relative_times * 48_271 % PRIME;
        if nth.is_multiple_of(2) {
            // No even multiple of 1,000 is one of the odd multiples below.
            (nth + 2) * 100_000
        } else {
            nth * 1_000
        }
    }

    fn relative_s(&mut self) -> Vec<u8> {
        match self.rng.u32(..100) {
            0..70 => self.fresh_s().to_string().into(),
            70..78 => self.any_of(&["0", "-1", "-100", "-1700000000", "-9223372036854775"]),
            78..81 => (9_000_000_000_000_000 + self.fresh_s()).to_string().into(),
            81..90 => self.any_of(&[
                "9223372036854775",
                "9223372036854776",
                "-9223372036854776",
                "9223372036854775807",
                "-9223372036854775808",
            ]),
            _ => self.any_of(NOT_INTEGERS),
        }
    }

    fn relative_ms(&mut self) -> Vec<u8> {
        let fresh_ms = self.fresh_s() * 1000 + self.rng.u64(..1000);
        match self.rng.u32(..100) {
            0..70 => fresh_ms.to_string().into(),
            70..78 => self.any_of(&["0", "-1", "-100", "-9223372036854775808"]),
            78..81 => (9_000_000_000_000_000_000 + fresh_ms).to_string().into(),
            81..90 => self.any_of(&["9223372036854775807", "9223372036854775000"]),
            _ => self.any_of(NOT_INTEGERS),
        }
    }

    fn absolute_s(&mut self) -> Vec<u8> {
        match self.rng.u32(..100) {
            0..70 => self.pool_s().to_string().into(),
            70..80 => self.any_of(&["0", "-1", "1", "1000000000", "-9223372036854775"]),
            80..90 => {
                self.any_of(&["9223372036854775", "9223372036854776", "9223372036854775807", "-9223372036854776"])
            }
            _ => self.any_of(NOT_INTEGERS),
        }
    }

    fn absolute_ms(&mut self) -> Vec<u8> {
        match self.rng.u32(..100) {
            0..70 => {
                let millis = *self.pick(&POOL_MS);
                (self.pool_s() * 1000 + millis).to_string().into()
            }
            70..80 => self.any_of(&["0", "-1", "1", "1000000000000", "-9223372036854775808"]),
            80..90 => self.any_of(&["9223372036854774000", "9223372036854775000"]),
            _ => self.any_of(NOT_INTEGERS),
        }
    }

    fn pool_s(&mut self) -> i64 {
        POOL_BASE_S + self.rng.i64(0..POOL_SIZE) * POOL_STEP_S
    }

    fn any_of(&mut self, choices: &[&str]) -> Vec<u8> {
        self.pick(choices).as_bytes().to_vec()
    }

    /// A command's name or an option, sometimes in lower or mixed case.
    fn word(&mut self, word: &str) -> Vec<u8> {
        let word = match self.rng.u32(..10) {
            0..7 => word.to_string(),
            7 | 8 => word.to_lowercase(),
            _ => {
                let change = |(i, c): (usize, char)| match i % 2 {
                    0 => c,
                    _ => c.to_ascii_lowercase(),
                };
                word.chars().enumerate().map(change).collect()
            }
        };
        word.into_bytes()
    }

    fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.rng.usize(..choices.len())]
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.rng.u32(..n) == 0
    }
}

fn command(args: Args) -> Step {
    let rule = Rule::of(&args);
    Step::Command(args, rule)
}

fn args<const N: usize>(name: &str, rest: [Vec<u8>; N]) -> Args {
    std::iter::once(name.as_bytes().to_vec()).chain(rest).collect()
}
