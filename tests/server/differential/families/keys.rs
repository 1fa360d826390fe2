//! Keys of any type: their deadlines, names, copies and encodings, and whole databases.

use super::super::draw::PATTERNS;
use super::super::{Args, Generator, Step, args, touch_every_key};

impl Generator {
    pub fn expiry(&mut self) -> Args {
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

    pub fn keys(&mut self) -> Args {
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
                self.queued.push_back(Step::of(vec![b"DBSIZE".to_vec()]));
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

    pub fn copy(&mut self) -> Args {
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

    pub fn object(&mut self) -> Args {
        let subcommand =
            *self.pick(&["ENCODING", "ENCODING", "ENCODING", "REFCOUNT", "IDLETIME", "FREQ", "HELP", "FOO"]);
        let mut out = vec![self.word("OBJECT"), self.word(subcommand)];
        // Between MULTI and EXEC, HELP with arguments is for `wire/transactions.rs`.
        if subcommand != "HELP" || self.one_in(4) && !self.in_multi {
            out.push(self.key());
        }
        out
    }

    /// Keys of any type, as their own family has made them: names, copies, encodings. Whole databases go rarely.
    pub fn generic(&mut self) -> Args {
        match self.rng.u32(..200) {
            0..50 => {
                let name = *self.pick(&["DEL", "DEL", "UNLINK"]);
                args(name, [self.key()])
            }
            50..80 => self.copy(),
            80..88 => args("RENAME", [self.key(), self.key()]),
            88..105 => args("RENAMENX", [self.key(), self.key()]),
            105..150 => args("OBJECT", [self.word("ENCODING"), self.key()]),
            150..165 => args("TYPE", [self.key()]),
            165..175 => self.many_keys("EXISTS"),
            175..178 => args("MOVE", [self.key(), self.database()]),
            185 if self.one_in(3) => vec![self.any_of(&["FLUSHDB", "FLUSHALL"])],
            186 => args("SWAPDB", [self.database(), self.database()]),
            187 => self.many_keys("DEL"),
            188 => args("KEYS", [self.pick(PATTERNS).to_vec()]),
            // Back to the first one mostly: there is more to meet where the commands stay together.
            189..192 => vec![b"SELECT".to_vec(), self.any_of(&["0", "0", "0", "0", "1", "16"])],
            _ => args("PERSIST", [self.key()]),
        }
    }

    /// SCAN, SSCAN, HSCAN or ZSCAN.
    pub fn scan(&mut self) -> Step {
        let mut options = self.scan_options();
        let begin = match self.rng.u32(..7) {
            0 => return Step::Scan(vec![b"SCAN".to_vec()], options),
            1 | 2 => args("SSCAN", [self.key()]),
            3 | 4 => args("HSCAN", [self.key()]),
            _ => args("ZSCAN", [self.key()]),
        };
        // TYPE is for SCAN alone; once in a while it stays.
        if let Some(at) = options.iter().position(|option| option.eq_ignore_ascii_case(b"TYPE"))
            && !self.one_in(10)
        {
            options.drain(at..at + 2);
        }
        Step::Scan(begin, options)
    }

    pub fn scan_options(&mut self) -> Args {
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
}
