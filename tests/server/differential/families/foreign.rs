//! A little of every type, so that commands meet keys of types that are not theirs.

use super::super::{Args, Generator, KEYS, args};

impl Generator {
    /// A command that makes a small key of any type where there is none. It is one of few keys, or commands would meet
    /// little of their own.
    pub fn foreign(&mut self) -> Args {
        let key = self.pick(&KEYS[9..]).to_vec();
        match self.rng.u32(..10) {
            0 | 1 => args("SET", [key, self.value()]),
            2 => args("RPUSH", [key, self.element(), self.element()]),
            3 | 4 => args("SADD", [key, self.element(), self.element()]),
            5 => args("HSET", [key, self.element(), self.element()]),
            6 => args("ZADD", [key, self.rng.u32(..).to_string().into(), self.element()]),
            7 => args("XADD", [key, self.next_id(), self.element(), self.element()]),
            8 => args("PFADD", [key, self.element()]),
            _ => args("SETBIT", [key, b"100".to_vec(), b"1".to_vec()]),
        }
    }
}
