//! Lists, the commands that wait for elements among them; `blocking.rs` is about the waiting itself.

use super::super::{Args, Generator, Step, args};

pub const NAMES: &[&str] = &[
    "BLMOVE",
    "BLMPOP",
    "BLPOP",
    "BRPOP",
    "BRPOPLPUSH",
    "LINDEX",
    "LINSERT",
    "LLEN",
    "LMOVE",
    "LMPOP",
    "LPOP",
    "LPOS",
    "LPUSH",
    "LPUSHX",
    "LRANGE",
    "LREM",
    "LSET",
    "LTRIM",
    "RPOP",
    "RPOPLPUSH",
    "RPUSH",
    "RPUSHX",
];

impl Generator {
    pub fn list(&mut self) -> Step {
        let key = self.key();
        Step::of(match self.rng.u32(..100) {
            0..20 => {
                let name = *self.pick(&["LPUSH", "RPUSH", "RPUSH", "LPUSHX", "RPUSHX"]);
                let count = self.rng.usize(1..10);
                [args(name, [key]), self.times(count, Generator::element)].concat()
            }
            20 => {
                let name = *self.pick(&["LPUSH", "RPUSH"]);
                [args(name, [key]), self.crowd()].concat()
            }
            21..27 => {
                let mut out = vec![self.any_of(&["LPOP", "RPOP"]), key];
                if self.one_in(2) {
                    out.push(self.count());
                }
                out
            }
            27..34 => args("LRANGE", [key, self.rank(), self.rank()]),
            34..36 => args("LTRIM", [key, self.rank(), self.rank()]),
            36..42 => args("LINDEX", [key, self.rank()]),
            42..49 => args("LSET", [key, self.rank(), self.element()]),
            49..55 => args("LREM", [key, self.rank(), self.element()]),
            55..62 => {
                let place = *self.pick(&["BEFORE", "AFTER", "AFTER", "BEHIND"]);
                args("LINSERT", [key, self.word(place), self.element(), self.element()])
            }
            62..71 => self.lpos(),
            71..78 => args("LMOVE", [key, self.key(), self.side(), self.side()]),
            78..81 => args("RPOPLPUSH", [key, self.key()]),
            81..87 => self.lmpop(Vec::new(), "LMPOP"),
            87..90 => self.waiting(),
            _ => args("LLEN", [key]),
        })
    }

    /// LPOS with any of its options, in any order, also twice.
    fn lpos(&mut self) -> Args {
        let mut out = args("LPOS", [self.key(), self.element()]);
        for _ in 0..*self.pick(&[0, 1, 1, 2, 3]) {
            let option = *self.pick(&["RANK", "COUNT", "MAXLEN"]);
            out.push(self.word(option));
            let value = match option {
                "RANK" => self.any_of(&["1", "2", "3", "-1", "-2", "-100", "0", "x"]),
                _ => self.any_of(&["0", "0", "1", "2", "5", "1000", "-1", "9223372036854775807", "x"]),
            };
            out.push(value);
        }
        out
    }

    fn lmpop(&mut self, before: Args, name: &str) -> Args {
        let mut out = [vec![self.word(name)], before, self.counted_keys(Generator::key), vec![self.side()]].concat();
        for _ in 0..*self.pick(&[0, 0, 1, 1, 1, 2]) {
            out.extend([self.word("COUNT"), self.count()]);
        }
        out
    }

    fn waiting(&mut self) -> Args {
        let (key, timeout) = (self.key(), self.timeout());
        match self.rng.u32(..5) {
            0 | 1 => {
                let name = *self.pick(&["BLPOP", "BRPOP"]);
                [self.many_keys(name), vec![timeout]].concat()
            }
            2 => args("BLMOVE", [key, self.key(), self.side(), self.side(), timeout]),
            3 => args("BRPOPLPUSH", [key, self.key(), timeout]),
            _ => self.lmpop(vec![timeout], "BLMPOP"),
        }
    }

    fn side(&mut self) -> Vec<u8> {
        let side = if self.one_in(25) { "UP" } else { *self.pick(&["LEFT", "RIGHT"]) };
        self.word(side)
    }
}
