//! Streams and their groups, with identifiers that the client gives: those that a server makes are up to its clock.
//! Idle times are either none or longer than any run.

use super::super::{Args, Generator, Step, args};

pub const NAMES: &[&str] = &[
    "XACK",
    "XADD",
    "XAUTOCLAIM",
    "XCLAIM",
    "XDEL",
    "XGROUP",
    "XINFO",
    "XLEN",
    "XPENDING",
    "XRANGE",
    "XREAD",
    "XREADGROUP",
    "XREVRANGE",
    "XSETID",
    "XTRIM",
];

const IDS_PER_MS: u64 = 3;
/// Idle times that nothing reaches during a run, except what was set to the greater one.
const IDLE_MS: &[&str] = &["0", "0", "0", "100000000"];

impl Generator {
    pub fn stream(&mut self) -> Step {
        let key = self.key();
        Step::of(match self.rng.u32(..100) {
            0..21 => return self.xadd(key),
            21..28 => {
                let name = *self.pick(&["XRANGE", "XREVRANGE"]);
                let mut out = args(name, [key, self.id_bound(), self.id_bound()]);
                if self.one_in(3) {
                    out.extend([self.word("COUNT"), self.count()]);
                }
                out
            }
            28..31 => args("XLEN", [key]),
            31..35 if self.ids_go_back && self.one_in(3) => return self.go_back(key),
            31..35 => {
                let count = self.rng.usize(1..5);
                [args("XDEL", [key]), self.times(count, Generator::old_id)].concat()
            }
            35..38 => return self.xtrim(key),
            38..40 if self.in_multi => self.xread(),
            38..40 => return Step::SetId(self.xsetid(key)),
            40..45 => self.xread(),
            45..60 => self.xgroup(key),
            60..72 => {
                let out = self.xreadgroup();
                return if self.in_multi { Step::of(out) } else { Step::ReadGroup(out) };
            }
            72..76 => {
                let ids = self.old_ids();
                [args("XACK", [key, self.group()]), ids].concat()
            }
            76..82 => self.xpending(key),
            82..87 => self.xclaim(key),
            87..91 => self.xautoclaim(key),
            _ => self.xinfo(key),
        })
    }

    /// An identifier for a new entry: the last one, under which another key may have an entry, or one that is new.
    pub fn next_id(&mut self) -> Vec<u8> {
        self.ids += u64::from(self.one_in(3));
        id(self.ids)
    }

    fn xadd(&mut self, key: Vec<u8>) -> Step {
        let mut out = args("XADD", [key.clone()]);
        let mut about = false;
        if self.one_in(8) {
            out.push(self.word("NOMKSTREAM"));
        }
        for _ in 0..*self.pick(&[0, 0, 0, 0, 0, 0, 1, 1, 2]) {
            about |= self.trimming(&mut out);
        }
        out.push(match self.rng.u32(..30) {
            0..20 => self.next_id(),
            20..24 => {
                let id = self.next_id();
                let ms = id.split(|byte| *byte == b'-').next().unwrap_or_default();
                let wild: &[u8] = if self.one_in(2) { b"-*" } else { b"" };
                [ms, wild].concat()
            }
            24 => self.old_id(),
            25 => self.any_of(&[
                "0-0",
                "0",
                "0-1",
                "0-*",
                "-",
                "+",
                "abc",
                "1-2-3",
                "-1-1",
                "1-",
                "",
                "18446744073709551616-0",
            ]),
            // Nothing can follow it: rare enough that the key is deleted before long.
            26 if self.one_in(40) => {
                self.any_of(&["18446744073709551615-18446744073709551615", "18446744073709551615-*"])
            }
            _ => self.next_id(),
        });
        let count = self.rng.usize(1..3) * 2;
        out.extend(self.times(count, Generator::element));
        if self.one_in(20) {
            out.pop();
        }
        if about { Step::Trim(out, key) } else { Step::of(out) }
    }

    fn xtrim(&mut self, key: Vec<u8>) -> Step {
        let mut out = args("XTRIM", [key.clone()]);
        let mut about = false;
        for _ in 0..*self.pick(&[1, 1, 1, 1, 2]) {
            about |= self.trimming(&mut out);
        }
        if about { Step::Trim(out, key) } else { Step::of(out) }
    }

    /// MAXLEN or MINID; true if it leaves the server a choice.
    fn trimming(&mut self, out: &mut Args) -> bool {
        let strategies: &[&str] = if self.ids_go_back { &["MAXLEN"] } else { &["MAXLEN", "MAXLEN", "MINID"] };
        let strategy = *self.pick(strategies);
        out.push(self.word(strategy));
        let how = self.any_of(&["", "", "=", "=", "~", "~"]);
        let about = how == b"~";
        if !how.is_empty() {
            out.push(how);
        }
        out.push(match (strategy, self.rng.u32(..10)) {
            (_, 0) => self.any_of(&["-1", "x", "", "9223372036854775807", "18446744073709551615"]),
            ("MAXLEN", _) => self.rng.u32(..60).to_string().into(),
            _ => self.old_id(),
        });
        if self.one_in(if about { 3 } else { 30 }) {
            out.extend([self.word("LIMIT"), self.count()]);
        }
        about
    }

    fn xsetid(&mut self, key: Vec<u8>) -> Args {
        let mut out = args("XSETID", [key, self.next_id()]);
        for _ in 0..*self.pick(&[0, 0, 1, 2]) {
            if self.one_in(2) {
                out.extend([self.word("ENTRIESADDED"), self.any_of(&["100000", "5", "0", "-1", "x"])]);
            } else {
                out.extend([self.word("MAXDELETEDID"), self.old_id()]);
            }
        }
        out
    }

    /// Deletes the last entries, and lets their identifiers be given out again.
    fn go_back(&mut self, key: Vec<u8>) -> Step {
        let last = self.ids;
        self.ids = last.saturating_sub(self.rng.u64(1..15)).max(1);
        if !self.in_multi {
            self.queued.push_back(Step::SetId(args("XSETID", [key.clone(), id(self.ids)])));
        }
        Step::of([args("XDEL", [key]), (self.ids + 1..=last).map(id).collect()].concat())
    }

    fn xread(&mut self) -> Args {
        let mut out = vec![self.word("XREAD")];
        self.read_options(&mut out);
        self.streams(&mut out, Generator::read_from);
        out
    }

    fn xreadgroup(&mut self) -> Args {
        let mut out = vec![self.word("XREADGROUP"), self.word("GROUP"), self.group(), self.consumer()];
        if self.one_in(12) {
            out.remove(1);
        }
        self.read_options(&mut out);
        if self.one_in(6) {
            out.push(self.word("NOACK"));
        }
        self.streams(&mut out, |generator| match generator.rng.u32(..8) {
            // What is pending makes the consumer in every version of Redis.
            0..6 if generator.in_multi => b"0".to_vec(),
            0..6 => b">".to_vec(),
            6 => b"0".to_vec(),
            _ => generator.read_from(),
        });
        out
    }

    fn read_options(&mut self, out: &mut Args) {
        if self.one_in(2) {
            out.extend([self.word("COUNT"), self.count()]);
        }
        if self.one_in(12) {
            out.push(self.word("BLOCK"));
            let block = if self.in_multi { &["0", "1000", "-1", "x"] } else { &["1", "2", "-1", "x"] };
            out.push(self.any_of(block));
        }
    }

    fn streams(&mut self, out: &mut Args, id: fn(&mut Generator) -> Vec<u8>) {
        out.push(self.word("STREAMS"));
        let count = *self.pick(&[1, 1, 1, 1, 2, 3]);
        out.extend(self.times(count, Generator::key));
        let ids = if self.one_in(20) { count + 1 } else { count };
        out.extend(self.times(ids, id));
    }

    fn read_from(&mut self) -> Vec<u8> {
        match self.rng.u32(..10) {
            0..3 => b"0".to_vec(),
            3 => self.any_of(&["$", ">", "abc", "0-0", "1-1-1", ""]),
            _ => self.old_id(),
        }
    }

    fn xgroup(&mut self, key: Vec<u8>) -> Args {
        let container = self.word("XGROUP");
        let mut out = match self.rng.u32(..18) {
            0..6 | 12.. => {
                let mut out = vec![self.word("CREATE"), key, self.group(), self.group_start()];
                if self.one_in(2) {
                    out.push(self.word("MKSTREAM"));
                }
                if self.one_in(4) {
                    out.extend([self.word("ENTRIESREAD"), self.any_of(&["0", "3", "-1", "100", "-2", "x"])]);
                }
                out
            }
            6 => {
                let mut out = vec![self.word("SETID"), key, self.group(), self.group_start()];
                if self.one_in(3) {
                    out.extend([self.word("ENTRIESREAD"), self.any_of(&["0", "3", "-1", "100", "-2", "x"])]);
                }
                out
            }
            7 if self.one_in(2) => vec![self.word("DESTROY"), key, self.group()],
            7..10 => vec![self.word("CREATECONSUMER"), key, self.group(), self.consumer()],
            10 => vec![self.word("DELCONSUMER"), key, self.group(), self.consumer()],
            _ => vec![self.any_of(&["HELP", "FOO", "CREATE", ""])],
        };
        out.insert(0, container);
        out
    }

    fn group_start(&mut self) -> Vec<u8> {
        match self.rng.u32(..6) {
            0 | 1 => b"0".to_vec(),
            2 | 3 => b"$".to_vec(),
            4 => self.any_of(&["abc", "-", "0-0"]),
            _ => self.old_id(),
        }
    }

    fn xpending(&mut self, key: Vec<u8>) -> Args {
        let mut out = args("XPENDING", [key, self.group()]);
        if self.one_in(3) {
            return out;
        }
        if self.one_in(4) {
            out.extend([self.word("IDLE"), self.any_of(IDLE_MS)]);
        }
        out.extend([self.id_bound(), self.id_bound(), self.count()]);
        if self.one_in(2) {
            out.push(self.consumer());
        }
        out
    }

    fn xclaim(&mut self, key: Vec<u8>) -> Args {
        let mut out = args("XCLAIM", [key, self.group(), self.consumer(), self.any_of(IDLE_MS)]);
        out.extend(self.old_ids());
        for _ in 0..*self.pick(&[0, 0, 1, 1, 2, 3]) {
            match self.rng.u32(..7) {
                0 => out.extend([self.word("IDLE"), self.any_of(&["0", "500000000", "500000000", "x", "-1"])]),
                1 => out.extend([self.word("TIME"), self.any_of(&["0", "1000000000000", "1000000000000", "x"])]),
                2 => out.extend([self.word("RETRYCOUNT"), self.any_of(&["0", "5", "7", "x", "-1"])]),
                3 => out.push(self.word("FORCE")),
                4 => out.push(self.word("JUSTID")),
                5 => out.extend([self.word("LASTID"), self.old_id()]),
                _ if self.one_in(4) => out.push(self.any_of(&["IDLE", "FOO", ""])),
                _ => {}
            }
        }
        out
    }

    fn xautoclaim(&mut self, key: Vec<u8>) -> Args {
        let mut out = args("XAUTOCLAIM", [key, self.group(), self.consumer(), self.any_of(IDLE_MS), self.id_bound()]);
        for _ in 0..*self.pick(&[0, 1, 1, 2]) {
            match self.rng.u32(..5) {
                0 | 1 => out.push(self.word("JUSTID")),
                2 | 3 => out.extend([self.word("COUNT"), self.any_of(&["1", "2", "3", "100", "0", "-1", "x"])]),
                _ => out.push(self.any_of(&["COUNT", "FOO"])),
            }
        }
        out
    }

    fn xinfo(&mut self, key: Vec<u8>) -> Args {
        match self.rng.u32(..10) {
            0..2 => args("XINFO", [self.word("STREAM"), key]),
            2..4 => {
                let mut out = args("XINFO", [self.word("STREAM"), key, self.word("FULL")]);
                if self.one_in(2) {
                    out.extend([self.word("COUNT"), self.any_of(&["0", "1", "2", "100", "-1", "x"])]);
                }
                out
            }
            4..6 => args("XINFO", [self.word("GROUPS"), key]),
            6..9 => args("XINFO", [self.word("CONSUMERS"), key, self.group()]),
            _ => args("XINFO", [self.any_of(&["HELP", "FOO", "STREAM", "GROUPS"])]),
        }
    }

    /// The identifier of an entry that may be there.
    pub fn old_id(&mut self) -> Vec<u8> {
        let back = if self.one_in(5) { 1000 } else { 12 };
        let nth = self.ids.saturating_sub(self.rng.u64(..back)).max(1);
        match self.rng.u32(..40) {
            0..34 => id(nth),
            34..36 => (nth / IDS_PER_MS).to_string().into(),
            36 | 37 => self.any_of(&["0", "0-1", "5-5"]),
            _ => self.any_of(&["", "abc", "1-1-1", "-1", "1--1", "18446744073709551616"]),
        }
    }

    /// Identifiers of entries that follow each other; now and then one that is no identifier among them.
    fn old_ids(&mut self) -> Args {
        let first = self.ids.saturating_sub(self.rng.u64(..40)).max(1);
        let count = self.rng.u64(1..15);
        let mut out: Args = (first..first + count).map(id).collect();
        if self.one_in(6) {
            out.push(self.old_id());
        }
        out
    }

    fn id_bound(&mut self) -> Vec<u8> {
        match self.rng.u32(..10) {
            0..3 => b"-".to_vec(),
            3..6 => b"+".to_vec(),
            6 => [b"(".to_vec(), self.old_id()].concat(),
            7 => self.any_of(&[
                "18446744073709551615-18446744073709551615",
                "(-",
                "(+",
                "(18446744073709551615-18446744073709551615",
                "(0-0",
                "(0",
                "",
            ]),
            _ => self.old_id(),
        }
    }

    fn group(&mut self) -> Vec<u8> {
        if self.one_in(20) { self.any_of(&["nobody", ""]) } else { self.any_of(&["g", "g", "g", "h"]) }
    }

    fn consumer(&mut self) -> Vec<u8> {
        if self.one_in(20) { self.any_of(&["carol", ""]) } else { self.any_of(&["alice", "bob"]) }
    }
}

/// The `nth` identifier.
fn id(nth: u64) -> Vec<u8> {
    format!("{}-{}", nth / IDS_PER_MS, nth % IDS_PER_MS).into()
}
