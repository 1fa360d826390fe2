//! Sets.

use super::super::{Args, Generator, Step, args};

pub const NAMES: &[&str] = &[
    "SADD",
    "SCARD",
    "SDIFF",
    "SDIFFSTORE",
    "SINTER",
    "SINTERCARD",
    "SINTERSTORE",
    "SISMEMBER",
    "SMEMBERS",
    "SMISMEMBER",
    "SMOVE",
    "SPOP",
    "SRANDMEMBER",
    "SREM",
    "SSCAN",
    "SUNION",
    "SUNIONSTORE",
];

impl Generator {
    pub fn set_family(&mut self) -> Step {
        let key = self.key();
        Step::of(match self.rng.u32(..100) {
            0..18 => {
                let count = self.rng.usize(1..10);
                let draw = if self.one_in(2) { Generator::element } else { Generator::integer };
                [args("SADD", [key]), self.times(count, draw)].concat()
            }
            18 | 19 => [args("SADD", [key]), self.crowd()].concat(),
            20..30 => {
                let count = self.rng.usize(1..6);
                [args("SREM", [key]), self.times(count, Generator::element)].concat()
            }
            30..36 => args("SISMEMBER", [key, self.element()]),
            36..42 => {
                let count = self.rng.usize(1..6);
                [args("SMISMEMBER", [key]), self.times(count, Generator::element)].concat()
            }
            42..46 => args("SCARD", [key]),
            46..52 => args("SMEMBERS", [key]),
            52..59 => args("SMOVE", [key, self.key(), self.element()]),
            59..74 => {
                let name = *self.pick(&["SINTER", "SUNION", "SDIFF"]);
                self.many_keys(name)
            }
            74..82 => {
                let name = *self.pick(&["SINTERSTORE", "SUNIONSTORE", "SDIFFSTORE"]);
                let keys = self.many_keys(name);
                [keys, vec![key]].concat()
            }
            82..90 => {
                let mut out = [vec![self.word("SINTERCARD")], self.counted_keys(Generator::key)].concat();
                for _ in 0..*self.pick(&[0, 1, 1, 2]) {
                    out.extend([self.word("LIMIT"), self.count()]);
                }
                out
            }
            90..95 => {
                let (name, members) = (b"SRANDMEMBER".to_vec(), args("SMEMBERS", [key.clone()]));
                return Step::Random([vec![name, key], self.sample()].concat(), members);
            }
            _ => {
                let mut out = args("SPOP", [key]);
                if self.one_in(2) {
                    out.push(self.count());
                }
                return Step::Pop(out);
            }
        })
    }

    /// How many members to choose at random, if it is said: negative for as many that may repeat. The amount is one that
    /// a reply has room for.
    pub fn sample(&mut self) -> Args {
        match self.rng.u32(..6) {
            0 | 1 => Args::new(),
            2 => vec![self.rng.i32(-20..0).to_string().into()],
            3 => vec![self.any_of(&[
                "0",
                "1",
                "-1",
                "1000",
                "-1000",
                "9223372036854775807",
                "-9223372036854775808",
                "x",
                "",
            ])],
            _ => vec![self.rng.i32(1..20).to_string().into()],
        }
    }
}
