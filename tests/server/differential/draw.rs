//! What arguments are drawn from: keys, values, numbers, moments; most at an edge of something.

use super::{Args, Generator, KEYS, POOL_BASE_S, POOL_MS, POOL_SIZE, POOL_STEP_S};

pub const NOT_INTEGERS: &[&str] = &[
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

pub const INTEGERS: &[&str] = &[
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

pub const FLOATS: &[&str] = &[
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

pub const NOT_FLOATS: &[&str] = &["", "abc", " 1", "1 ", "1,5", "1.5x", "nan", "--1", "1e"];

pub const PATTERNS: &[&[u8]] = &[
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

impl Generator {
    pub fn many_keys(&mut self, name: &str) -> Args {
        let mut out = vec![self.word(name)];
        for _ in 0..self.rng.usize(1..5) {
            out.push(self.key());
        }
        out
    }

    pub fn key(&mut self) -> Vec<u8> {
        self.pick(&KEYS).to_vec()
    }

    pub fn value(&mut self) -> Vec<u8> {
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

    pub fn integer(&mut self) -> Vec<u8> {
        match self.rng.u32(..10) {
            0..5 => self.any_of(INTEGERS),
            5..8 => self.rng.i32(-1000..1000).to_string().into(),
            8 => self.rng.i64(..).to_string().into(),
            _ => self.any_of(NOT_INTEGERS),
        }
    }

    pub fn float(&mut self) -> Vec<u8> {
        if self.one_in(8) { self.any_of(NOT_FLOATS) } else { self.any_of(FLOATS) }
    }

    pub fn offset(&mut self) -> Vec<u8> {
        match self.rng.u32(..10) {
            0..6 => self.rng.u32(..60).to_string().into(),
            6 => self.rng.u32(..3000).to_string().into(),
            7 => self.any_of(&["-1", "-9223372036854775808"]),
            8 => self.any_of(&["536870912", "4294967296", "9223372036854775807"]),
            _ => self.any_of(NOT_INTEGERS),
        }
    }

    pub fn index(&mut self) -> Vec<u8> {
        match self.rng.u32(..10) {
            0..8 => self.rng.i32(-60..60).to_string().into(),
            8 => self.any_of(INTEGERS),
            _ => self.any_of(NOT_INTEGERS),
        }
    }

    /// A time from now that no other has been or will be within 1,000 s of: multiples of 1,000 s in shuffled order,
    /// every other one a hundred times as far.
    pub fn fresh_s(&mut self) -> u64 {
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

    pub fn relative_s(&mut self) -> Vec<u8> {
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

    pub fn relative_ms(&mut self) -> Vec<u8> {
        let fresh_ms = self.fresh_s() * 1000 + self.rng.u64(..1000);
        match self.rng.u32(..100) {
            0..70 => fresh_ms.to_string().into(),
            70..78 => self.any_of(&["0", "-1", "-100", "-9223372036854775808"]),
            78..81 => (9_000_000_000_000_000_000 + fresh_ms).to_string().into(),
            81..90 => self.any_of(&["9223372036854775807", "9223372036854775000"]),
            _ => self.any_of(NOT_INTEGERS),
        }
    }

    pub fn absolute_s(&mut self) -> Vec<u8> {
        match self.rng.u32(..100) {
            0..70 => self.pool_s().to_string().into(),
            70..80 => self.any_of(&["0", "-1", "1", "1000000000", "-9223372036854775"]),
            80..90 => {
                self.any_of(&["9223372036854775", "9223372036854776", "9223372036854775807", "-9223372036854776"])
            }
            _ => self.any_of(NOT_INTEGERS),
        }
    }

    pub fn absolute_ms(&mut self) -> Vec<u8> {
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

    pub fn pool_s(&mut self) -> i64 {
        POOL_BASE_S + self.rng.i64(0..POOL_SIZE) * POOL_STEP_S
    }

    /// So many of what `draw` draws.
    pub fn times(&mut self, count: usize, draw: fn(&mut Generator) -> Vec<u8>) -> Args {
        (0..count).map(|_| draw(self)).collect()
    }

    /// A member, a field or an element: small ones of a small pool mostly, so that they are met again; on both sides of
    /// what is kept packed (64 bytes, 128, 8 KiB); integers of every width and what only looks like one.
    pub fn element(&mut self) -> Vec<u8> {
        match self.rng.u32(..100) {
            0..30 => self.rng.u32(..8).to_string().into(),
            30..60 => self.any_of(&["a", "b", "c", "d", "foo", "bar", "baz", "hello world"]),
            60..78 => format!("member:{}", self.rng.u32(..40)).into(),
            78..84 => self.any_of(INTEGERS),
            84..88 => self.any_of(NOT_INTEGERS),
            88..93 => {
                let len = self.rng.usize(1..30);
                std::iter::repeat_with(|| self.rng.u8(..)).take(len).collect()
            }
            93..98 => {
                let len = *self.pick(&[62, 63, 64, 65, 66, 127, 128, 129]);
                vec![*self.pick(b"pqr"); len]
            }
            98 => {
                let len = *self.pick(&[253, 254, 255, 256, 4095, 4096, 8180, 8192, 9000]);
                vec![*self.pick(b"uvw"); len]
            }
            _ => Vec::new(),
        }
    }

    /// Elements enough for the largest form of a collection, now and then: integers, or with text among them.
    pub fn crowd(&mut self) -> Args {
        let count = *self.pick(&[100, 126, 127, 128, 129, 130, 200, 510, 511, 512, 513, 514, 700]);
        let first = self.rng.i64(-1000..1000);
        let text = self.one_in(2);
        (0..count).map(|n| if text { format!("crowd:{n}") } else { (first + n * 3).to_string() }.into()).collect()
    }

    /// How many: mostly a few, sometimes none, less than none, or more than there can be.
    pub fn count(&mut self) -> Vec<u8> {
        match self.rng.u32(..20) {
            0..14 => self.rng.u32(1..8).to_string().into(),
            14 => self.any_of(&["100", "1000"]),
            15 => self.any_of(&["0", "0", "-1", "-5"]),
            16 => self.any_of(&["2147483648", "4294967296", "9223372036854775807", "-9223372036854775808"]),
            17 if self.one_in(2) => self.any_of(NOT_INTEGERS),
            _ => self.any_of(&["1", "2"]),
        }
    }

    /// A rank or an index: near either end, mostly.
    pub fn rank(&mut self) -> Vec<u8> {
        match self.rng.u32(..12) {
            0..5 => self.rng.i32(0..6).to_string().into(),
            5..9 => self.rng.i32(-6..0).to_string().into(),
            9 => self.rng.i32(-600..600).to_string().into(),
            10 => self.any_of(INTEGERS),
            _ if self.one_in(2) => self.any_of(NOT_INTEGERS),
            _ => self.any_of(&["0", "-1"]),
        }
    }

    /// How long a command waits, in seconds. Only between MULTI and EXEC is it allowed to be long.
    pub fn timeout(&mut self) -> Vec<u8> {
        if self.in_multi {
            return self.any_of(&["0", "1", "0.5", "10000", "-1", "abc"]);
        }
        match self.rng.u32(..3) {
            0 => self.any_of(&["-1", "-0.01", "abc", "", "inf", "nan", "1e400", " 1"]),
            _ => self.any_of(&["0.001", "0.001", "0.002", "0.01"]),
        }
    }

    /// How many keys there are, mostly, and the keys.
    pub fn counted_keys(&mut self, key: fn(&mut Generator) -> Vec<u8>) -> Args {
        let count = self.rng.usize(1..4);
        let said = match self.rng.u32(..25) {
            0 => self.any_of(&["0", "-1", "1", "2", "5", "2147483648", "9223372036854775807", "abc", ""]),
            _ => count.to_string().into(),
        };
        [vec![said], self.times(count, key)].concat()
    }

    pub fn any_of(&mut self, choices: &[&str]) -> Vec<u8> {
        self.pick(choices).as_bytes().to_vec()
    }

    /// A command's name or an option, sometimes in lower or mixed case.
    pub fn word(&mut self, word: &str) -> Vec<u8> {
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

    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.rng.usize(..choices.len())]
    }

    pub fn one_in(&mut self, n: u32) -> bool {
        self.rng.u32(..n) == 0
    }
}
