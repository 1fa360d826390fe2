//! Sorted sets. Ranges by member (BYLEX) are about a key of their own, [`LEX`], whose members have one score: of others
//! such a range is undefined.

use super::super::{Args, Generator, Step, args};

pub const NAMES: &[&str] = &[
    "BZMPOP",
    "BZPOPMAX",
    "BZPOPMIN",
    "ZADD",
    "ZCARD",
    "ZCOUNT",
    "ZDIFF",
    "ZDIFFSTORE",
    "ZINCRBY",
    "ZINTER",
    "ZINTERCARD",
    "ZINTERSTORE",
    "ZLEXCOUNT",
    "ZMPOP",
    "ZMSCORE",
    "ZPOPMAX",
    "ZPOPMIN",
    "ZRANDMEMBER",
    "ZRANGE",
    "ZRANGEBYLEX",
    "ZRANGEBYSCORE",
    "ZRANGESTORE",
    "ZRANK",
    "ZREM",
    "ZREMRANGEBYLEX",
    "ZREMRANGEBYRANK",
    "ZREMRANGEBYSCORE",
    "ZREVRANGE",
    "ZREVRANGEBYLEX",
    "ZREVRANGEBYSCORE",
    "ZREVRANK",
    "ZSCAN",
    "ZSCORE",
    "ZUNION",
    "ZUNIONSTORE",
];

pub const LEX: &[u8] = b"lex";

const SCORES: &[&str] = &[
    "0",
    "-0",
    "1",
    "1.5",
    "-2.25",
    "0.1",
    "0.2",
    "0.3",
    "3.0",
    "1e3",
    "1e20",
    "1e21",
    "-1e-7",
    "123456789.123456",
    "17976931348623157e292",
    "4.9e-324",
    "9007199254740992",
    "9007199254740993",
    "9223372036854775807",
    "-9223372036854775808",
    "inf",
    "+inf",
    "-inf",
    "Infinity",
    "-infinity",
    "3.141592653589793238",
    "0x10",
];

impl Generator {
    pub fn sorted_set(&mut self) -> Step {
        let key = self.key();
        Step::of(match self.rng.u32(..100) {
            0..18 => self.zadd(key),
            18 => {
                let crowd = self.crowd();
                let pairs = crowd.into_iter().flat_map(|member| [self.rng.i32(-100..100).to_string().into(), member]);
                args("ZADD", [key]).into_iter().chain(pairs).collect()
            }
            19..24 => args("ZINCRBY", [key, self.score(), self.element()]),
            24..28 => {
                let count = self.rng.usize(1..6);
                [args("ZREM", [key]), self.times(count, Generator::element)].concat()
            }
            28..35 => self.read_member(key),
            35..47 => self.zrange(key),
            47..51 => self.zrangestore(key),
            51..56 => {
                let name = *self.pick(&["ZRANGEBYSCORE", "ZREVRANGEBYSCORE"]);
                let mut out = args(name, [key, self.score_bound(), self.score_bound()]);
                self.range_options(&mut out, &["WITHSCORES", "LIMIT"]);
                out
            }
            56 | 57 => {
                let mut out = args("ZREVRANGE", [key, self.rank(), self.rank()]);
                self.range_options(&mut out, &["WITHSCORES"]);
                out
            }
            58..60 => args("ZCOUNT", [key, self.score_bound(), self.score_bound()]),
            60 => args("ZREMRANGEBYRANK", [key, self.rank(), self.rank()]),
            61 => args("ZREMRANGEBYSCORE", [key, self.score_bound(), self.score_bound()]),
            62..72 => self.by_member(),
            72..76 => self.pop_ends(key),
            76..86 => self.combine(),
            86..90 => self.combine_into(key),
            90..92 => {
                let mut out = [vec![self.word("ZINTERCARD")], self.counted_keys(Generator::key)].concat();
                for _ in 0..*self.pick(&[0, 1, 1, 2]) {
                    out.extend([self.word("LIMIT"), self.count()]);
                }
                out
            }
            92..94 => self.waiting_for_scores(),
            _ => {
                let mut out = args("ZRANDMEMBER", [key.clone()]);
                out.extend(self.sample());
                if self.one_in(2) {
                    out.push(self.word("WITHSCORES"));
                }
                let all = args("ZRANGE", [key, b"0".to_vec(), b"-1".to_vec(), b"WITHSCORES".to_vec()]);
                return Step::Random(out, all);
            }
        })
    }

    /// ZADD with options in any order, legal together or not.
    fn zadd(&mut self, key: Vec<u8>) -> Args {
        let mut out = args("ZADD", [key]);
        let options = *self.pick(&[0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 3]);
        for _ in 0..options {
            let option = *self.pick(&["NX", "XX", "GT", "LT", "CH", "CH", "INCR"]);
            out.push(self.word(option));
        }
        for _ in 0..*self.pick(&[1, 1, 1, 3, 5, 8]) {
            out.extend([self.score(), self.element()]);
        }
        out
    }

    fn read_member(&mut self, key: Vec<u8>) -> Args {
        match self.rng.u32(..5) {
            0 => args("ZSCORE", [key, self.element()]),
            1 => {
                let count = self.rng.usize(1..6);
                [args("ZMSCORE", [key]), self.times(count, Generator::element)].concat()
            }
            2 => args("ZRANK", [key, self.element()]),
            3 => args("ZREVRANK", [key, self.element()]),
            _ => args("ZCARD", [key]),
        }
    }

    fn zrange(&mut self, key: Vec<u8>) -> Args {
        let by_score = self.one_in(2);
        let mut out = args("ZRANGE", [key]);
        self.bounds(&mut out, by_score);
        self.range_options(&mut out, &["WITHSCORES", "REV", "LIMIT"]);
        out
    }

    fn zrangestore(&mut self, key: Vec<u8>) -> Args {
        let by_score = self.one_in(2);
        let mut out = args("ZRANGESTORE", [self.key(), key]);
        self.bounds(&mut out, by_score);
        self.range_options(&mut out, &["REV", "LIMIT"]);
        if self.one_in(20) {
            out.push(self.word("WITHSCORES"));
        }
        out
    }

    fn bounds(&mut self, out: &mut Args, by_score: bool) {
        if by_score {
            out.extend([self.score_bound(), self.score_bound(), self.word("BYSCORE")]);
        } else {
            out.extend([self.rank(), self.rank()]);
        }
    }

    fn range_options(&mut self, out: &mut Args, options: &[&str]) {
        for _ in 0..*self.pick(&[0, 0, 1, 1, 2]) {
            let option = *self.pick(options);
            out.push(self.word(option));
            if option == "LIMIT" {
                let from = self.any_of(&["0", "0", "1", "2", "1000", "-1", "x"]);
                let count = self.any_of(&["0", "1", "2", "3", "10", "-1", "-1", "9223372036854775807", ""]);
                out.extend([from, count]);
            }
        }
    }

    fn by_member(&mut self) -> Args {
        // Keys of other types, and none, answer as well.
        let key = if self.one_in(10) { b"nothing".to_vec() } else { LEX.to_vec() };
        match self.rng.u32(..20) {
            0..6 => {
                let mut out = args("ZADD", [LEX.to_vec()]);
                for _ in 0..self.rng.usize(1..5) {
                    out.extend([b"0".to_vec(), self.element()]);
                }
                out
            }
            6 | 7 => {
                let count = self.rng.usize(1..4);
                [args("ZREM", [LEX.to_vec()]), self.times(count, Generator::element)].concat()
            }
            8..10 => args("ZLEXCOUNT", [key, self.member_bound(), self.member_bound()]),
            10 => args("ZREMRANGEBYLEX", [key, self.member_bound(), self.member_bound()]),
            11..15 => {
                let name = *self.pick(&["ZRANGEBYLEX", "ZREVRANGEBYLEX"]);
                let mut out = args(name, [key, self.member_bound(), self.member_bound()]);
                self.range_options(&mut out, &["LIMIT"]);
                out
            }
            15 => {
                let mut out = args("ZRANGESTORE", [self.key(), key, self.member_bound(), self.member_bound()]);
                out.push(self.word("BYLEX"));
                self.range_options(&mut out, &["REV", "LIMIT"]);
                out
            }
            _ => {
                let mut out = args("ZRANGE", [key, self.member_bound(), self.member_bound(), self.word("BYLEX")]);
                self.range_options(&mut out, &["REV", "LIMIT", "LIMIT", "REV", "WITHSCORES"]);
                out
            }
        }
    }

    fn pop_ends(&mut self, key: Vec<u8>) -> Args {
        match self.rng.u32(..3) {
            0 => self.zmpop(Vec::new(), "ZMPOP"),
            _ => {
                let mut out = vec![self.any_of(&["ZPOPMIN", "ZPOPMAX"]), key];
                if self.one_in(2) {
                    out.push(self.count());
                }
                out
            }
        }
    }

    fn zmpop(&mut self, before: Args, name: &str) -> Args {
        let end = if self.one_in(25) { "LEFT" } else { *self.pick(&["MIN", "MAX"]) };
        let mut out = [vec![self.word(name)], before, self.counted_keys(Generator::key), vec![self.word(end)]].concat();
        for _ in 0..*self.pick(&[0, 0, 1, 1, 1, 2]) {
            out.extend([self.word("COUNT"), self.count()]);
        }
        out
    }

    fn waiting_for_scores(&mut self) -> Args {
        let timeout = self.timeout();
        if self.one_in(3) {
            return self.zmpop(vec![timeout], "BZMPOP");
        }
        let name = *self.pick(&["BZPOPMIN", "BZPOPMAX"]);
        [self.many_keys(name), vec![timeout]].concat()
    }

    fn combine(&mut self) -> Args {
        let name = *self.pick(&["ZUNION", "ZINTER", "ZDIFF"]);
        let mut out = [vec![self.word(name)], self.counted_keys(Generator::key)].concat();
        if name != "ZDIFF" {
            self.combine_options(&mut out);
        }
        if self.one_in(2) {
            out.push(self.word("WITHSCORES"));
        }
        out
    }

    fn combine_into(&mut self, key: Vec<u8>) -> Args {
        let name = *self.pick(&["ZUNIONSTORE", "ZINTERSTORE", "ZDIFFSTORE"]);
        let mut out = [args(name, [key]), self.counted_keys(Generator::key)].concat();
        if name != "ZDIFFSTORE" {
            self.combine_options(&mut out);
        }
        out
    }

    fn combine_options(&mut self, out: &mut Args) {
        let keys = out.len();
        for _ in 0..*self.pick(&[0, 0, 1, 1, 2]) {
            if self.one_in(2) {
                out.push(self.word("WEIGHTS"));
                let named = keys - if out[0].len() > 7 { 3 } else { 2 };
                let count = if self.one_in(12) { 2 } else { named };
                for _ in 0..count {
                    out.push(self.any_of(&["1", "2", "0.5", "-1", "0", "inf", "-inf", "nan", "x", "3", "1", "2"]));
                }
            } else {
                let how = *self.pick(&["SUM", "MIN", "MAX", "SUM", "MIN", "MAX", "AVG"]);
                out.extend([self.word("AGGREGATE"), self.word(how)]);
            }
        }
    }

    fn score(&mut self) -> Vec<u8> {
        match self.rng.u32(..20) {
            0..11 => self.rng.i32(-20..20).to_string().into(),
            11..13 => format!("{}.{}", self.rng.i32(-20..20), self.pick(&[5, 25, 75])).into(),
            13..19 => self.any_of(SCORES),
            _ => self.any_of(&["", "abc", "nan", "1,5", " 1", "1 ", "1e400", "--1", "(1"]),
        }
    }

    /// A bound of a range of scores, mostly sound, with or without the score itself.
    fn score_bound(&mut self) -> Vec<u8> {
        let score = match self.rng.u32(..8) {
            0 => return self.any_of(&["-inf", "+inf", "inf", "(inf", "(-inf"]),
            1 => self.score(),
            _ => self.rng.i32(-20..20).to_string().into(),
        };
        if self.one_in(4) { [b"(".as_slice(), &score].concat() } else { score }
    }

    fn member_bound(&mut self) -> Vec<u8> {
        match self.rng.u32(..12) {
            0 | 1 => b"-".to_vec(),
            2 | 3 => b"+".to_vec(),
            4 => self.any_of(&["a", "", "(", "[", "--", "+a", "-a"]),
            _ => {
                let open = *self.pick(b"([");
                [vec![open], self.element()].concat()
            }
        }
    }
}
