//! SORT of lists, sets and sorted sets, by themselves or by keys and fields of others.

use super::super::{Args, Generator, Step, args};
use crate::differential::compare::Rule;

pub const NAMES: &[&str] = &["SORT", "SORT_RO"];

impl Generator {
    pub fn sort(&mut self) -> Step {
        let key = self.key();
        Step::of(match self.rng.u32(..100) {
            0..12 => {
                let count = self.rng.usize(1..8);
                [args("RPUSH", [key]), self.times(count, Generator::sortable)].concat()
            }
            12..20 => {
                let count = self.rng.usize(1..8);
                [args("SADD", [key]), self.times(count, Generator::sortable)].concat()
            }
            20..26 => {
                let mut out = args("ZADD", [key]);
                for _ in 0..self.rng.usize(1..6) {
                    out.extend([self.rng.i32(-50..50).to_string().into(), self.sortable()]);
                }
                out
            }
            26..36 => {
                let weight = if self.one_in(10) { self.value() } else { self.unlike_others() };
                args("SET", [self.weight_of(), weight])
            }
            36..42 => args("HSET", [self.hash_of(), b"f".to_vec(), self.unlike_others()]),
            42 => args("DEL", [self.weight_of(), self.hash_of()]),
            _ => return self.sort_command(key),
        })
    }

    fn sort_command(&mut self, key: Vec<u8>) -> Step {
        let name = *self.pick(&["SORT", "SORT", "SORT_RO"]);
        let mut out = args(name, [key]);
        for _ in 0..*self.pick(&[0, 1, 2, 2, 3, 4]) {
            match self.rng.u32(..20) {
                0..3 => {
                    let direction = *self.pick(&["ASC", "DESC"]);
                    out.push(self.word(direction));
                }
                3..8 => out.push(self.word("ALPHA")),
                8..11 => {
                    out.extend([self.word("LIMIT"), self.any_of(&["0", "1", "2", "-1", "x"])]);
                    out.push(self.any_of(&["0", "1", "3", "10", "-1", "9223372036854775807"]));
                }
                11..14 => {
                    let patterns = &["w_*", "w_*", "h_*->f", "nosort", "constant->f", "w_*->", "*", "h_*->*"];
                    out.extend([self.word("BY"), self.any_of(patterns)]);
                }
                14..18 => {
                    let patterns = &["#", "w_*", "h_*->f", "h_*->none", "nothing", "*", "w_*->f", ""];
                    out.extend([self.word("GET"), self.any_of(patterns)]);
                }
                18 => out.extend([self.word("STORE"), self.key()]),
                _ => out.push(self.any_of(&["LIMIT", "BY", "FOO", "STORE", ""])),
            }
        }
        if !has_no_order(&out) {
            return Step::of(out);
        }
        if has(&out, b"LIMIT") || has(&out, b"STORE") {
            // What is cut off or kept would be up to the server.
            while let Some(at) = out.iter().position(|arg| arg.eq_ignore_ascii_case(b"BY")) {
                out.drain(at..out.len().min(at + 2));
            }
        }
        Step::Command(out, Rule::Unordered)
    }

    fn sortable(&mut self) -> Vec<u8> {
        match self.rng.u32(..12) {
            0..10 => self.rng.i32(-5..30).to_string().into(),
            10 => self.any_of(&["1.5", "-0.5", "1e2", "3", "inf"]),
            _ => self.any_of(&["a", "b", "foo", "", "1x", "nan"]),
        }
    }

    /// A number that no other weight is equal to.
    fn unlike_others(&mut self) -> Vec<u8> {
        self.fresh_s().to_string().into()
    }

    fn weight_of(&mut self) -> Vec<u8> {
        [b"w_".to_vec(), self.sortable()].concat()
    }

    fn hash_of(&mut self) -> Vec<u8> {
        [b"h_".to_vec(), self.sortable()].concat()
    }
}

fn has(args: &Args, option: &[u8]) -> bool {
    args.iter().any(|arg| arg.eq_ignore_ascii_case(option))
}

/// True if elements may come in any order: those of a set that is not sorted, and those with equal texts to sort by.
fn has_no_order(args: &Args) -> bool {
    let is_constant = |pair: &[Vec<u8>]| pair[0].eq_ignore_ascii_case(b"BY") && !pair[1].contains(&b'*');
    has(args, b"BY") && has(args, b"ALPHA") || args.windows(2).any(is_constant)
}
