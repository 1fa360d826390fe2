//! Strings: one under a key, several at once, and LCS.

use super::super::{Args, Generator, args};

pub const NAMES: &[&str] = &[
    "APPEND",
    "DECR",
    "DECRBY",
    "GET",
    "GETDEL",
    "GETEX",
    "GETRANGE",
    "GETSET",
    "INCR",
    "INCRBY",
    "INCRBYFLOAT",
    "LCS",
    "MGET",
    "MSET",
    "MSETNX",
    "PSETEX",
    "SET",
    "SETEX",
    "SETNX",
    "SETRANGE",
    "STRLEN",
    "SUBSTR",
];

impl Generator {
    pub fn string(&mut self) -> Args {
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
    pub fn set(&mut self) -> Args {
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

    pub fn getex(&mut self) -> Args {
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

    pub fn mset(&mut self) -> Args {
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

    pub fn lcs(&mut self) -> Args {
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
}
