//! Hashes. The deadlines of fields are newer than the oracle.

use super::super::{Args, Generator, Step, args};

pub const NAMES: &[&str] = &[
    "HDEL",
    "HEXISTS",
    "HGET",
    "HGETALL",
    "HINCRBY",
    "HINCRBYFLOAT",
    "HKEYS",
    "HLEN",
    "HMGET",
    "HMSET",
    "HRANDFIELD",
    "HSCAN",
    "HSET",
    "HSETNX",
    "HSTRLEN",
    "HVALS",
];

impl Generator {
    pub fn hash(&mut self) -> Step {
        let key = self.key();
        Step::of(match self.rng.u32(..100) {
            0..20 => {
                let name = *self.pick(&["HSET", "HSET", "HMSET"]);
                let count = self.rng.usize(1..7) * 2;
                [args(name, [key]), self.times(count, Generator::element)].concat()
            }
            20 => {
                let pairs = self.crowd().into_iter().flat_map(|field| [field.clone(), field]);
                args("HSET", [key]).into_iter().chain(pairs).collect()
            }
            21..26 => args("HSETNX", [key, self.element(), self.element()]),
            26..33 => args("HGET", [key, self.element()]),
            33..40 => self.fields("HMGET", key),
            40..47 => {
                let name = *self.pick(&["HGETALL", "HGETALL", "HKEYS", "HVALS"]);
                args(name, [key])
            }
            47..51 => args("HLEN", [key]),
            51..56 => args("HSTRLEN", [key, self.element()]),
            56..61 => args("HEXISTS", [key, self.element()]),
            61..70 => self.fields("HDEL", key),
            70..80 => args("HINCRBY", [key, self.counter(), self.integer()]),
            80..88 => args("HINCRBYFLOAT", [key, self.counter(), self.float()]),
            88..92 => args("HSET", [key, self.counter(), self.value()]),
            _ => {
                let mut out = args("HRANDFIELD", [key.clone()]);
                out.extend(self.sample());
                if self.one_in(2) {
                    out.push(self.word("WITHVALUES"));
                }
                if self.one_in(20) {
                    out.push(self.misfit());
                }
                return Step::Random(out, args("HGETALL", [key]));
            }
        })
    }

    fn fields(&mut self, name: &str, key: Vec<u8>) -> Args {
        let count = self.rng.usize(1..6);
        [args(name, [key]), self.times(count, Generator::element)].concat()
    }

    /// One of few fields that are counted in, so that most of them hold a number.
    fn counter(&mut self) -> Vec<u8> {
        self.any_of(&["n", "n", "m", "float", "a", "1"])
    }
}
