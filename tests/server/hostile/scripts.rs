//! What the connections of a batch do: drawn before anything is sent, so that a seed says all of it.

use super::requests::{Args, Requests};
use crate::common::encode;
use std::time::Duration;

/// One connection, from its begin to its end.
pub struct Script {
    pub acts: Vec<Act>,
    /// Whether what comes is read before the end.
    pub reads: bool,
    pub end: End,
}

pub enum Act {
    Send(Vec<u8>),
    Wait(Duration),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Everything that was sent is given time to be answered.
    Answered,
    /// Nothing more is said, and what comes is read until the server hangs up, for a while.
    HalfClosed,
    HungUp,
    /// Without a farewell: the server meets an error.
    Reset,
}

const CONNECTIONS_MAX: usize = 16;
const PIPELINE_MAX: usize = 500;
/// Of what one connection sends in a batch, so that many costly commands do not come together.
const BYTES_MAX: usize = 8 << 20;

const GARBAGE: &[&str] = &[
    "*-1\r\n",
    "*0\r\n",
    "*1000000\r\n",
    "*99999999999\r\n",
    "*1\r\n$-1\r\n",
    "*2\r\n$3\r\nGET\r\n$99999999999\r\n",
    "*2\r\n$3\r\nGET\r\n$1\r\nabc\r\n",
    "*1\r\n:1\r\n",
    "PING\n",
    "\r\n\r\n",
    "SET \"a\\x00 b\" 'c\r\n",
    "GET \"",
    "$4\r\nPING\r\n",
    "+OK\r\n",
    "\0\0\0\0",
    "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1048577\r\n",
];

impl Requests<'_> {
    pub fn batch(&mut self) -> Vec<Script> {
        (0..self.draw.rng.usize(1..=CONNECTIONS_MAX)).map(|_| self.script()).collect()
    }

    fn script(&mut self) -> Script {
        let mut acts = vec![Act::Send(self.greeting())];
        let mut left = BYTES_MAX;
        for _ in 0..self.draw.rng.usize(1..7) {
            let mut bytes = match self.draw.rng.u32(..16) {
                0 => self.garbage(),
                1 => self.inline(),
                2 => self.waiting_with_input_behind(),
                3 => encode(&self.draw.filling()),
                4..7 => self.transaction(),
                _ => self.pipeline(),
            };
            bytes.truncate(left);
            left -= bytes.len();
            acts.push(Act::Send(bytes));
            if self.draw.rng.bool() {
                acts.push(Act::Wait(Duration::from_micros(self.draw.rng.u64(..5_000))));
            }
        }
        if let Some(Act::Send(bytes)) = acts.last_mut()
            && self.draw.one_in(4)
        {
            let cut = self.draw.rng.usize(..=bytes.len());
            bytes.truncate(cut);
        }
        let reads = !self.draw.one_in(5);
        let end = match self.draw.rng.u32(..8) {
            0 => End::HalfClosed,
            1 => End::HungUp,
            2 => End::Reset,
            _ if reads => End::Answered,
            _ => End::HungUp,
        };
        Script { acts, reads, end }
    }

    fn greeting(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if self.draw.one_in(3) {
            bytes.extend(encode(&["HELLO", "3"]));
        }
        if self.draw.one_in(3) {
            bytes.extend(encode(&[b"SELECT".to_vec(), self.draw.word(&["1", "2", "3"])]));
        }
        if self.draw.one_in(30) {
            bytes.extend(encode(&[b"CLIENT".to_vec(), b"REPLY".to_vec(), self.draw.word(&["OFF", "SKIP"])]));
        }
        bytes
    }

    fn pipeline(&mut self) -> Vec<u8> {
        let len = match self.draw.rng.u32(..10) {
            0 => self.draw.rng.usize(1..=PIPELINE_MAX),
            1 | 2 => 1,
            _ => self.draw.rng.usize(2..40),
        };
        let mut bytes = Vec::new();
        for _ in 0..len {
            let request = self.any();
            bytes.extend(encode(&request));
            if self.draw.one_in(200) {
                (0..self.draw.rng.usize(2..50)).for_each(|_| bytes.extend(encode(&request)));
            }
            if bytes.len() > BYTES_MAX {
                break;
            }
        }
        bytes
    }

    fn transaction(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..self.draw.rng.usize(..3) {
            let watch: Args = [b"WATCH".to_vec(), self.draw.key("any")].into();
            bytes.extend(encode(&watch));
        }
        bytes.extend(encode(&["MULTI"]));
        for _ in 0..self.draw.rng.usize(..12) {
            let request = if self.draw.one_in(6) { self.waiting() } else { self.any() };
            bytes.extend(encode(&request));
        }
        match self.draw.rng.u32(..10) {
            0 => {}
            1 => bytes.extend(encode(&["DISCARD"])),
            _ => bytes.extend(encode(&["EXEC"])),
        }
        bytes
    }

    fn waiting_with_input_behind(&mut self) -> Vec<u8> {
        let mut bytes = encode(&self.waiting());
        match self.draw.rng.u32(..4) {
            0 => {}
            1 => (0..self.draw.rng.usize(1..20_000)).for_each(|_| bytes.extend_from_slice(b"PING\r\n")),
            _ => bytes.extend(self.pipeline()),
        }
        bytes
    }

    fn inline(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..self.draw.rng.usize(1..20) {
            for (nth, arg) in self.any().iter().enumerate() {
                match self.draw.rng.u32(..8) {
                    0 => bytes.extend(format!(" \"{}\"", arg.escape_ascii()).bytes()),
                    _ => {
                        bytes.extend_from_slice(if nth == 0 { b"" } else { b" " });
                        bytes.extend_from_slice(arg);
                    }
                }
            }
            bytes.extend_from_slice(b"\r\n");
        }
        bytes
    }

    /// No requests, or requests with a few wrong bytes.
    fn garbage(&mut self) -> Vec<u8> {
        if self.draw.rng.bool() {
            return self.draw.word(GARBAGE);
        }
        let mut bytes = self.pipeline();
        for _ in 0..self.draw.rng.usize(1..4) {
            let at = self.draw.rng.usize(..bytes.len());
            bytes[at] = *self.draw.pick(b"\0\r\n*$-0919:\xff\"'");
        }
        bytes
    }
}
