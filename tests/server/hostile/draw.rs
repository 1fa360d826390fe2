//! What arguments are drawn from: usually what makes the command do something, often an edge, sometimes nonsense.

/// Names of keys say what is usually in them. Those with a tag are on one shard.
const FAMILIES: &[&str] = &["string", "list", "set", "hash", "zset", "stream", "hll"];

const INTEGERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2147483647",
    "2147483648",
    "-2147483649",
    "4294967295",
    "4294967296",
    "4611686018427387904",
    "9223372036854775806",
    "9223372036854775807",
    "-9223372036854775807",
    "-9223372036854775808",
];

const NO_INTEGERS: &[&str] = &[
    "",
    "9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "18446744073709551616",
    "1e400",
    "1.5",
    " 1",
    "1 ",
    "+1",
    "01",
    "-0",
    "nan",
    "inf",
    "0x10",
    "99999999999999999999999999999999999999999999",
];

const FLOATS: &[&str] = &[
    "0", "-0", "0.1", "1", "-1", "3.0", "1e17", "1e308", "-1e308", "5e-324", "inf", "-inf", "nan", "1e400", "-1e400",
    "1e-400", "", "1e", "0x1p3", "1 ", "infinity", "-nan",
];

const IDS: &[&str] = &[
    "*",
    "$",
    ">",
    "-",
    "+",
    "0",
    "0-0",
    "0-1",
    "5-*",
    "(5",
    "(0-0",
    "18446744073709551615",
    "18446744073709551615-18446744073709551615",
    "(18446744073709551615-18446744073709551615",
    "18446744073709551616",
    "5-",
    "-5",
    "",
];

const ENDS: &[&str] =
    &["-inf", "+inf", "inf", "(1", "(-inf", "-", "+", "[a", "(a", "[", "(", "[m1", "(m2", "nan", "(nan", "1e400"];

const TYPES: &[&str] = &["string", "list", "set", "hash", "zset", "stream", "none", ""];

const ENCODINGS: &[&str] = &["u1", "i1", "u8", "i5", "u63", "i64", "u64", "i65", "u0", "i0", "u", "", "u-1", "x8"];

const WORDS: &[&str] =
    &["OK", "yes", "no", "on", "off", "normal", "pubsub", "everything", "*->a", "#", "\\", "[", "*", "**", "?"];

/// Values of this size are few, since commands multiply them.
const LARGE_BYTES: &[usize] = &[5_000, 70_000, 70_000, 1_000_000, 4_000_000];
const LARGE_BYTES_A_ROUND: usize = 16_000_000;
/// So many members has a collection at most that has no member twice: what is quadratic in Redis, too, ends in time.
const MEMBERS: u16 = 8_000;
/// Lifetimes of keys and waits that are over within a batch.
const SHORT_MS: u32 = 40;

pub struct Draw {
    pub rng: fastrand::Rng,
    large_left: usize,
    /// What DUMP says of values of all types.
    payloads: Vec<Vec<u8>>,
}

impl Draw {
    pub fn new(seed: u64, payloads: Vec<Vec<u8>>) -> Draw {
        Draw { rng: fastrand::Rng::with_seed(seed), large_left: LARGE_BYTES_A_ROUND, payloads }
    }

    pub fn one_in(&mut self, n: u32) -> bool {
        self.rng.u32(..n) == 0
    }

    pub fn word(&mut self, of: &[&str]) -> Vec<u8> {
        self.pick(of).as_bytes().to_vec()
    }

    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.rng.usize(..of.len())]
    }

    /// Mostly 1 to 3, seldom thousands.
    pub fn count(&mut self) -> usize {
        match self.rng.u32(..2_000) {
            0 => self.rng.usize(2_000..20_000),
            1..20 => self.rng.usize(200..1_500),
            20..100 => self.rng.usize(10..100),
            _ => self.rng.usize(1..4),
        }
    }

    /// A key that is likely to hold what a command of this group works on.
    pub fn key(&mut self, group: &str) -> Vec<u8> {
        let family = match group {
            "string" | "list" | "set" | "hash" | "stream" if !self.one_in(12) => group,
            "bitmap" if !self.one_in(12) => "string",
            "hyperloglog" if !self.one_in(12) => "hll",
            "sorted-set" | "geo" if !self.one_in(12) => "zset",
            _ => self.pick(FAMILIES),
        };
        match self.rng.u32(..60) {
            0 => self.any_bytes(),
            1..4 => format!("none:{}", self.rng.u8(..)).into_bytes(),
            4..20 => format!("{{tag}}{family}:{}", self.rng.u8(..3)).into_bytes(),
            _ => format!("{family}:{}", self.rng.u8(..3)).into_bytes(),
        }
    }

    pub fn integer(&mut self, name: &str) -> Vec<u8> {
        // Cursors from nowhere, and pages of any size.
        let edges = if matches!(name, "cursor" | "count") { 10 } else { 20 };
        match self.rng.u32(..edges) {
            0 | 1 => self.word(INTEGERS),
            2 => self.word(NO_INTEGERS),
            3 => self.rng.i64(..).to_string().into_bytes(),
            4 => (1_i64 << self.rng.u32(..63)).wrapping_sub(self.rng.i64(..3)).to_string().into_bytes(),
            5..7 => self.rng.i32(-2_000..2_000).to_string().into_bytes(),
            _ if name.contains("second") || name == "ttl" => self.rng.u32(..SHORT_MS).to_string().into_bytes(),
            7 if name == "offset" => format!("#{}", self.rng.i32(-2..200)).into_bytes(),
            8 if name == "offset" => self.rng.u32(..5_000_000).to_string().into_bytes(),
            _ => self.rng.i32(-3..12).to_string().into_bytes(),
        }
    }

    pub fn double(&mut self) -> Vec<u8> {
        match self.rng.u32(..10) {
            0..3 => self.word(FLOATS),
            3 => self.word(INTEGERS),
            4 => format!("{}", self.rng.f64() * 180.0 - 90.0).into_bytes(),
            _ => self.rng.i32(-80..80).to_string().into_bytes(),
        }
    }

    /// How long a command waits: seldom beyond the batch, since nothing behind it runs meanwhile.
    pub fn timeout(&mut self, in_seconds: bool) -> Vec<u8> {
        match self.rng.u32(..10) {
            0 => b"0".to_vec(),
            1 => self.word(FLOATS),
            2 => self.word(INTEGERS),
            _ if in_seconds => format!("0.{:03}", self.rng.u32(1..SHORT_MS)).into_bytes(),
            _ => self.rng.u32(1..SHORT_MS).to_string().into_bytes(),
        }
    }

    pub fn unix_time(&mut self, name: &str) -> Vec<u8> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        match self.rng.u32(..6) {
            0 => self.integer(name),
            1 => b"1".to_vec(),
            _ if name.contains("milli") => (now.as_millis() as i64 + self.rng.i64(-5..100)).to_string().into_bytes(),
            _ => (now.as_secs() as i64 + self.rng.i64(-1..100)).to_string().into_bytes(),
        }
    }

    pub fn string(&mut self, group: &str, name: &str) -> Vec<u8> {
        if self.one_in(30) {
            return self.any_bytes();
        }
        match (group, name) {
            (_, "serialized-value") => self.payload(),
            (_, "encoding") => self.word(ENCODINGS),
            (_, "type") => self.word(TYPES),
            (_, "channel" | "message") => format!("channel:{}", self.rng.u8(..4)).into_bytes(),
            ("stream", "group") => format!("group:{}", self.rng.u8(..3)).into_bytes(),
            ("stream", "consumer") => format!("consumer:{}", self.rng.u8(..3)).into_bytes(),
            ("stream", "field" | "value") => self.element(),
            ("stream", "min-idle-time") => self.integer(name),
            ("stream", _) => self.id(),
            ("sorted-set", "start" | "stop" | "min" | "max") => match self.rng.u32(..3) {
                0 => self.word(ENDS),
                1 => self.integer(name),
                _ => self.double(),
            },
            ("string", _) if self.one_in(3) => self.integer(name),
            ("connection" | "server" | "transactions" | "pubsub" | "scripting", _) if self.rng.bool() => {
                self.word(WORDS)
            }
            _ => self.element(),
        }
    }

    pub fn pattern(&mut self) -> Vec<u8> {
        if self.one_in(8) {
            self.any_bytes()
        } else {
            self.word(&["*", "*:1", "m?", "[", "channel:[0-2]", "*a*a*a*a*a*b", "*->m1", "#", ""])
        }
    }

    /// A request that makes a collection large.
    pub fn filling(&mut self) -> Vec<Vec<u8>> {
        let (name, group) = *self.pick(&[
            ("RPUSH", "list"),
            ("SADD", "set"),
            ("HSET", "hash"),
            ("ZADD", "sorted-set"),
            ("XADD", "stream"),
            ("PFADD", "hyperloglog"),
        ]);
        let mut args = vec![name.as_bytes().to_vec(), self.key(group)];
        if name == "XADD" {
            args.push(b"*".to_vec());
        }
        for _ in 0..self.rng.usize(200..3_000) {
            match name {
                "ZADD" => args.push(self.rng.i32(-100..100).to_string().into_bytes()),
                "HSET" | "XADD" => args.push(self.element()),
                _ => {}
            }
            args.push(self.element());
        }
        args
    }

    /// A member, field or value: usually one of few, so that commands meet.
    fn element(&mut self) -> Vec<u8> {
        match self.rng.u32(..40) {
            0 => self.any_bytes(),
            1 => self.double(),
            2..8 => self.rng.i32(-20..20).to_string().into_bytes(),
            8..20 => format!("n{}", self.rng.u16(..MEMBERS)).into_bytes(),
            20 => vec![b'e'; self.rng.usize(30..100)],
            _ => format!("m{}", self.rng.u8(..10)).into_bytes(),
        }
    }

    fn id(&mut self) -> Vec<u8> {
        match self.rng.u32(..4) {
            0 => self.word(IDS),
            _ => format!("{}-{}", self.rng.u8(..30), self.rng.u8(..3)).into_bytes(),
        }
    }

    /// Empty, not UTF-8, or large.
    pub fn any_bytes(&mut self) -> Vec<u8> {
        match self.rng.u32(..20) {
            0..4 => Vec::new(),
            4 => {
                let len = *self.pick(LARGE_BYTES);
                let len = if len > self.large_left { 100 } else { len };
                self.large_left -= len.min(self.large_left);
                vec![self.rng.u8(..); len]
            }
            5 => b"\xff\xfe\0\r\n\"'".to_vec(),
            _ => (0..self.rng.usize(..40)).map(|_| self.rng.u8(..)).collect(),
        }
    }

    /// Anything that some argument may be.
    pub fn anything(&mut self) -> Vec<u8> {
        match self.rng.u32(..8) {
            0 => self.word(INTEGERS),
            1 => self.word(NO_INTEGERS),
            2 => self.word(FLOATS),
            3 => self.id(),
            4 => self.word(ENDS),
            5 => self.key("any"),
            6 => self.word(WORDS),
            _ => self.any_bytes(),
        }
    }

    /// A value in DUMP's form: as it was, or mutated and with the checksum put right.
    fn payload(&mut self) -> Vec<u8> {
        let nth = self.rng.usize(..self.payloads.len());
        let mut bytes = self.payloads[nth].clone();
        if self.rng.bool() {
            return bytes;
        }
        // The version and the checksum.
        bytes.truncate(bytes.len() - 8);
        for _ in 0..self.rng.usize(1..4) {
            let at = self.rng.usize(..bytes.len());
            match self.rng.u32(..4) {
                0 => bytes[at] = self.rng.u8(..),
                1 => bytes[at] ^= 1 << self.rng.u32(..8),
                2 => bytes[at] = *self.pick(&[0, 1, 0x7f, 0x80, 0xc3, 0xff]),
                _ => drop(bytes.splice(at..at, (0..self.rng.usize(1..9)).map(|_| 0xff).collect::<Vec<u8>>())),
            }
        }
        let checksum = crc::Crc::<u64>::new(&crc::CRC_64_REDIS).checksum(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }
}
