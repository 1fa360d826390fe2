//! DUMP and RESTORE: payloads of every type and of either server ([`Step::Exchange`]); others are made here, of plain
//! encodings and damaged ones.

use super::super::{Args, Generator, Step, args};
use super::TYPES;

pub const NAMES: &[&str] = &["DUMP", "RESTORE"];

/// The version of the format that Redis 7.0 writes.
const VERSION: u16 = 10;

impl Generator {
    pub fn dump(&mut self) -> Step {
        match self.rng.u32(..10) {
            0..5 => {
                // Without the last, which is this one.
                let family = *self.pick(&TYPES[..TYPES.len() - 1]);
                family.own_step(self)
            }
            5..9 => self.exchange(),
            _ => Step::of(self.restore()),
        }
    }

    pub fn exchange(&mut self) -> Step {
        Step::Exchange { ours: self.one_in(2), from: self.key(), to: self.key(), options: self.restore_options() }
    }

    fn restore(&mut self) -> Args {
        let key = self.key();
        if self.one_in(30) {
            let count = self.rng.usize(..3);
            return [vec![self.word("DUMP")], vec![b"nothing".to_vec(); count]].concat();
        }
        let (ttl, payload) = (self.restore_ttl(), self.payload());
        let options = self.restore_options();
        [args("RESTORE", [key, ttl, payload]), options].concat()
    }

    fn restore_ttl(&mut self) -> Vec<u8> {
        match self.rng.u32(..10) {
            0..6 => b"0".to_vec(),
            6..8 => (self.fresh_s() * 1000).to_string().into(),
            // (What overflows when it is added to now is an error here, and makes a dead key in Redis.)
            _ => self.any_of(&["-1", "x", "", "1.5", "9223372036854775808"]),
        }
    }

    fn restore_options(&mut self) -> Args {
        let mut out = Args::new();
        if !self.one_in(4) {
            out.push(self.word("REPLACE"));
        }
        for _ in 0..*self.pick(&[0, 0, 0, 1, 2]) {
            match self.rng.u32(..6) {
                0 => out.extend([self.word("IDLETIME"), self.any_of(&["0", "1000", "-1", "x"])]),
                1 => out.extend([self.word("FREQ"), self.any_of(&["0", "255", "256", "-1", "x"])]),
                2 => out.push(self.word("ABSTTL")),
                3 => out.push(self.word("REPLACE")),
                4 => out.push(self.any_of(&["IDLETIME", "FREQ", "FOO", ""])),
                _ => out.extend([self.word("IDLETIME"), b"5".to_vec(), self.word("FREQ"), b"5".to_vec()]),
            }
        }
        out
    }

    /// A string, list, set, sorted set or hash in the encodings that every version of Redis can read.
    fn payload(&mut self) -> Vec<u8> {
        let kind = self.rng.u8(..6);
        let mut out = vec![kind];
        match kind {
            0 => self.put_string(&mut out),
            _ => {
                let count = self.rng.u8(..20);
                out.push(count);
                for nth in 0..count {
                    // Members and fields are not repeated, which would be an error.
                    let text = format!("{nth}:{}", self.rng.u8(..)).into_bytes();
                    put_text(&mut out, &text);
                    match kind {
                        3 => put_text(&mut out, format!("{}", self.rng.i32(-100..100)).as_bytes()),
                        4 => self.put_string(&mut out),
                        5 => out.extend(f64::from(self.rng.i16(..)).to_le_bytes()),
                        _ => {}
                    }
                }
            }
        }
        let version = *self.pick(&[VERSION, VERSION, VERSION, VERSION, 1, 9, 0xffff]);
        out.extend(version.to_le_bytes());
        let sum = crc64(&out);
        out.extend(sum.to_le_bytes());
        if self.one_in(8) {
            let at = self.rng.usize(..out.len());
            out[at] ^= 1 << self.rng.u32(..8);
        }
        if self.one_in(15) {
            out.truncate(self.rng.usize(..out.len()));
        }
        out
    }

    /// A string as text, or as one of the integers that have an encoding of their own.
    fn put_string(&mut self, out: &mut Vec<u8>) {
        match self.rng.u32(..5) {
            0 => out.extend([0xc0, self.rng.u8(..)]),
            1 => out.extend([&[0xc1][..], &self.rng.i16(..).to_le_bytes()].concat()),
            2 => out.extend([&[0xc2][..], &self.rng.i32(..).to_le_bytes()].concat()),
            _ => {
                let text = self.element();
                put_text(out, &text);
            }
        }
    }
}

/// A length of 6, 14 or 32 bits, and the text.
fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    match text.len() {
        len @ ..64 => out.push(len as u8),
        len @ ..16384 => out.extend([0x40 | (len >> 8) as u8, len as u8]),
        len => out.extend([&[0x80][..], &(len as u32).to_be_bytes()].concat()),
    }
    out.extend(text);
}

/// The checksum at a payload's end: CRC-64/Jones, reflected, from zero.
fn crc64(bytes: &[u8]) -> u64 {
    const POLYNOMIAL: u64 = 0xad93_d235_94c9_35a9;
    let step = |crc: u64| (crc >> 1) ^ if crc & 1 == 1 { POLYNOMIAL.reverse_bits() } else { 0 };
    bytes.iter().fold(0, |crc, byte| (0..8).fold(crc ^ u64::from(*byte), |crc, _| step(crc)))
}
