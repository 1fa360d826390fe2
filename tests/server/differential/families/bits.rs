//! Bits of strings. Offsets stay below what a test has memory for, or are refused.

use super::super::{Args, Generator, args};

pub const NAMES: &[&str] = &["BITCOUNT", "BITFIELD", "BITFIELD_RO", "BITOP", "BITPOS", "GETBIT", "SETBIT"];

impl Generator {
    pub fn bits(&mut self) -> Args {
        let key = self.key();
        match self.rng.u32(..100) {
            0..18 => args("SETBIT", [key, self.bit_offset(), self.bit()]),
            18..26 => args("GETBIT", [key, self.bit_offset()]),
            26..41 => {
                let mut out = args("BITCOUNT", [key]);
                self.bit_range(&mut out);
                out
            }
            41..58 => {
                let mut out = args("BITPOS", [key, self.bit()]);
                self.bit_range(&mut out);
                out
            }
            58..72 => {
                let operation = *self.pick(&["AND", "OR", "XOR", "NOT", "NOT", "FOO"]);
                let mut out = args("BITOP", [self.word(operation), self.key()]);
                let count = if operation == "NOT" { *self.pick(&[1, 1, 1, 2]) } else { self.rng.usize(1..5) };
                out.extend(self.times(count, Generator::key));
                out
            }
            72..88 => self.bitfield(key, "BITFIELD"),
            88..93 => self.bitfield(key, "BITFIELD_RO"),
            93..95 => args("SET", [key, self.value()]),
            _ => {
                let len = self.rng.usize(1..60);
                args("SET", [key, std::iter::repeat_with(|| self.rng.u8(..)).take(len).collect()])
            }
        }
    }

    fn bitfield(&mut self, key: Vec<u8>, name: &str) -> Args {
        let mut out = args(name, [key]);
        for _ in 0..self.rng.usize(..5) {
            let operation = match (name, self.rng.u32(..12)) {
                ("BITFIELD_RO", 1..) | (_, 0..3) => "GET",
                (_, 3..6) => "SET",
                (_, 6..9) => "INCRBY",
                (_, 9..11) => "OVERFLOW",
                _ => "FOO",
            };
            out.push(self.word(operation));
            if operation == "OVERFLOW" {
                let how = *self.pick(&["WRAP", "SAT", "FAIL", "WRAP", "SAT", "FAIL", "FOO"]);
                out.push(self.word(how));
                continue;
            }
            out.extend([self.bit_type(), self.field_offset()]);
            if operation != "GET" {
                out.push(self.integer());
            }
        }
        out
    }

    fn bit_type(&mut self) -> Vec<u8> {
        match self.rng.u32(..16) {
            0..7 => format!("u{}", self.rng.u32(1..64)).into(),
            7..14 => format!("i{}", self.rng.u32(1..=64)).into(),
            _ => self.any_of(&["u0", "u64", "i65", "i0", "x8", "8", "", "u", "U8", "i-1", "i08"]),
        }
    }

    fn field_offset(&mut self) -> Vec<u8> {
        match self.rng.u32(..12) {
            0..6 => self.rng.u32(..300).to_string().into(),
            6..10 => format!("#{}", self.rng.u32(..20)).into(),
            10 => self.any_of(&["-1", "#-1", "4294967296", "9223372036854775807", "#9223372036854775807"]),
            _ => self.any_of(&["", "#", "x", "1.5", "# 1", "+1"]),
        }
    }

    fn bit_offset(&mut self) -> Vec<u8> {
        match self.rng.u32(..12) {
            0..8 => self.rng.u32(..300).to_string().into(),
            8 | 9 => self.rng.u32(..20_000).to_string().into(),
            10 => self.any_of(&["-1", "4294967296", "9223372036854775807", "9223372036854775808"]),
            _ => self.any_of(&["", "x", "1.5", "+1", "#1"]),
        }
    }

    fn bit(&mut self) -> Vec<u8> {
        if self.one_in(20) { self.any_of(&["2", "-1", "x", "", "01"]) } else { self.any_of(&["0", "1"]) }
    }

    /// Start, end and unit, as far as it gets.
    fn bit_range(&mut self, out: &mut Args) {
        for _ in 0..*self.pick(&[0, 1, 2, 2, 2]) {
            out.push(self.index());
        }
        if self.one_in(2) {
            let unit = *self.pick(&["BIT", "BYTE", "BIT", "BYTE", "WORD"]);
            out.push(self.word(unit));
        }
    }
}
