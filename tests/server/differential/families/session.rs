//! The connection and the server, and what no server knows.

use super::super::{Args, Generator};

/// Commands for arguments at random; many get too few or too many. Those are missing whose replies could depend on
/// chance (RANDOMKEY) or list what a server has of its own (COMMAND, CONFIG GET *).
const ANY_ARGUMENTS: &[&str] = &[
    "APPEND",
    "AUTH",
    "CLIENT",
    "COPY",
    "DECR",
    "DECRBY",
    "DEL",
    "DISCARD",
    "ECHO",
    "EXISTS",
    "EXPIRE",
    "EXPIREAT",
    "EXPIRETIME",
    "FLUSHALL",
    "FLUSHDB",
    "GET",
    "GETDEL",
    "GETEX",
    "GETRANGE",
    "GETSET",
    "INCR",
    "INCRBY",
    "INCRBYFLOAT",
    "KEYS",
    "LCS",
    "MGET",
    "MOVE",
    "MSET",
    "MSETNX",
    "MULTI",
    "OBJECT",
    "PERSIST",
    "PEXPIRE",
    "PEXPIREAT",
    "PEXPIRETIME",
    "PING",
    "PSETEX",
    "PTTL",
    "PUBLISH",
    "PUBSUB",
    "RENAME",
    "RENAMENX",
    "SELECT",
    "SET",
    "SETEX",
    "SETNX",
    "SETRANGE",
    "STRLEN",
    "SUBSTR",
    "SWAPDB",
    "TOUCH",
    "TTL",
    "TYPE",
    "UNLINK",
    "UNWATCH",
    "WATCH",
];

impl Generator {
    /// What the connection itself answers, and subcommands.
    pub fn session(&mut self) -> Args {
        let line: &[&[u8]] = self.pick::<&[&[u8]]>(&[
            &[b"PING"],
            &[b"PING", b"hello \r\n"],
            &[b"PING", b""],
            &[b"ECHO", b"\x00\xff"],
            &[b"CLIENT", b"SETNAME", b"worker-1"],
            &[b"CLIENT", b"SETNAME", b""],
            &[b"CLIENT", b"SETNAME", b"two words"],
            &[b"CLIENT", b"SETNAME", b"line\n"],
            &[b"client", b"getname"],
            &[b"CLIENT", b"ID"],
            &[b"CLIENT", b"NO-EVICT", b"on"],
            &[b"CLIENT", b"NO-EVICT", b"maybe"],
            &[b"CLIENT", b"REPLY", b"maybe"],
            &[b"CLIENT", b"KILL", b"ID", b"x"],
            &[b"CLIENT", b"KILL", b"ID", b"0"],
            &[b"CLIENT", b"KILL", b"ID", b"999999999"],
            &[b"CLIENT", b"KILL", b"TYPE", b"foo"],
            &[b"CLIENT", b"KILL", b"127.0.0.1:1"],
            &[b"CLIENT", b"LIST", b"TYPE", b"foo"],
            &[b"CLIENT", b"PAUSE", b"x"],
            &[b"CLIENT", b"PAUSE", b"-1"],
            &[b"CLIENT", b"PAUSE", b"1", b"foo"],
            &[b"CLIENT", b"UNPAUSE"],
            &[b"CLIENT", b"HELP"],
            &[b"AUTH", b"secret"],
            &[b"AUTH", b"default", b"anything"],
            &[b"AUTH", b"nobody", b"anything"],
            &[b"HELLO", b"4"],
            &[b"HELLO", b"x"],
            &[b"HELLO", b"1", b"AUTH"],
            &[b"CONFIG", b"GET", b"nothing-is-called-so*"],
            &[b"CONFIG", b"SET", b"nothing-is-called-so", b"1"],
            &[b"CONFIG", b"SET", b"hz"],
            &[b"CONFIG", b"SET", b"hz", b"10", b"hz", b"10"],
            &[b"CONFIG", b"HELP"],
            &[b"COMMAND", b"GETKEYS", b"GET", b"k0"],
            &[b"COMMAND", b"GETKEYS", b"MSET", b"a", b"1", b"b", b"2"],
            &[b"COMMAND", b"GETKEYS", b"COPY", b"a", b"b", b"REPLACE"],
            &[b"COMMAND", b"GETKEYS", b"GET"],
            &[b"COMMAND", b"GETKEYS", b"PING"],
            &[b"COMMAND", b"GETKEYS", b"EVAL", b"return 1", b"0", b"a"],
            &[b"COMMAND", b"GETKEYS", b"EVAL", b"return 1", b"3", b"a"],
            &[b"COMMAND", b"GETKEYS", b"FCALL", b"f", b"1", b"a", b"b"],
            &[b"COMMAND", b"GETKEYS", b"ZUNION", b"0", b"a"],
            &[b"COMMAND", b"GETKEYS", b"FOO"],
            &[b"COMMAND", b"INFO", b"nothing-is-called-so"],
            &[b"COMMAND", b"HELP"],
            &[b"INFO", b"nothing-is-called-so"],
            &[b"PUBLISH", b"nobody-listens", b"x"],
            &[b"PUBSUB", b"CHANNELS"],
            &[b"PUBSUB", b"CHANNELS", b"a*"],
            &[b"PUBSUB", b"NUMSUB"],
            &[b"PUBSUB", b"NUMSUB", b"a", b"b"],
            &[b"PUBSUB", b"NUMPAT"],
            &[b"PUBSUB", b"HELP"],
            &[b"UNSUBSCRIBE", b"a"],
            &[b"UNSUBSCRIBE"],
            &[b"PUNSUBSCRIBE", b"a*"],
        ]);
        line.iter().map(|arg| arg.to_vec()).collect()
    }

    /// Unknown names, unknown subcommands, and arguments that fit nothing.
    pub fn wrong(&mut self) -> Args {
        let name = match self.rng.u32(..10) {
            0 => self.any_of(&["", "FOO", "get\r\nset", "SET ", "'quoted'", "CONFIG|GET", "nul\0"]),
            1 => vec![b'x'; self.rng.usize(1..300)],
            2 => {
                let container = *self.pick(&["OBJECT", "CLIENT", "CONFIG", "COMMAND", "PUBSUB"]);
                let subcommand = self.any_of(&["FOO", "", "foo\r\nbar", "SET|GET"]);
                return [vec![self.word(container), subcommand], self.junk(4)].concat();
            }
            _ => {
                let name = *self.pick(ANY_ARGUMENTS);
                self.word(name)
            }
        };
        let mut out = [vec![name], self.junk(7)].concat();
        if self.in_multi && out[0].to_ascii_uppercase().starts_with(b"MSET") && out.len() > 3 && out.len() % 2 == 0 {
            out.pop();
        }
        out
    }

    /// Fewer than `limit` arguments that are keys, options or numbers. No number among them is a time in which a key
    /// would die during the run.
    pub fn junk(&mut self, limit: usize) -> Args {
        (0..self.rng.usize(..limit))
            .map(|_| match self.rng.u32(..4) {
                0 | 1 => self.key(),
                2 => self.any_of(&["NX", "XX", "EX", "GET", "LEN", "KEEPTTL", "REPLACE", "ASYNC"]),
                _ => self.any_of(&["0", "-1", "1.5", "", "abc", "\u{e9}\r\n", "*"]),
            })
            .collect()
    }
}
