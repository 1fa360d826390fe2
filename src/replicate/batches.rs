//! The stream of a primary, cut into parts that a replica does at once: so whoever reads there sees what the primary had at
//! some moment. No transaction of the primary's is cut.

use crate::resp::{Proto, Reply};

/// A part ends behind so many bytes, or so many commands, where no transaction goes on. The number is half of what an EXEC may have
/// that its shards do side by side (`server/run/exec.rs`): most transactions that stand at the end of a part have room in that.
const BATCH_BYTES: usize = 256 << 10;
const BATCH_COMMANDS: usize = 1_000;
/// No argument of a command is longer, and no command has more of them.
const ARGUMENT_BYTES: usize = u32::MAX as usize >> 1;
const ARGUMENTS: usize = i32::MAX as usize;
/// No line that says how many there are, or how long one is, is longer.
const LINE_BYTES: usize = 64;
/// No line that is no command is longer.
const INLINE_BYTES: usize = 64 << 10;
/// Room that is kept for what comes next.
const KEPT_BYTES: usize = 1 << 20;

/// A part of the stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// As the primary has sent it.
    pub raw: Vec<u8>,
    /// What is to be done, as one transaction, in the database that was chosen last before it; empty where there is nothing.
    pub commands: Vec<u8>,
    /// The primary asks how far this server is.
    pub wants_ack: bool,
    /// The database that it chooses last, if it chooses one.
    pub db: Option<usize>,
    /// The greatest of those that it chooses or names; the greatest of all numbers where one that it chooses is none.
    pub most_db: usize,
    /// Something of it is done in the database that was chosen last before it.
    pub goes_on: bool,
}

/// Takes bytes as they come, and gives parts.
#[derive(Debug)]
pub struct Batches {
    /// So many bytes of what is not complete are kept, and no more.
    limit: usize,
    /// What has come and is in no part.
    input: Vec<u8>,
    /// Up to here it has been read; `scan` begins where the command begins that is not complete.
    scan: usize,
    command: Partial,
    /// Where the part begins that is made.
    begin: usize,
    made: Batch,
    count: usize,
    /// Within a transaction of the primary's.
    in_multi: bool,
    has_begun: bool,
}

/// A command as far as it has come.
#[derive(Debug, Default)]
struct Partial {
    /// Its arguments, as places in the input.
    args: Vec<(usize, usize)>,
    left: Option<usize>,
    at: usize,
}

impl Batches {
    /// A primary that never ends a command, or a transaction, is not followed once that takes more bytes than this.
    pub fn new(limit: usize) -> Batches {
        Batches {
            limit,
            input: Vec::new(),
            scan: 0,
            command: Partial::default(),
            begin: 0,
            made: Batch::default(),
            count: 0,
            in_multi: false,
            has_begun: false,
        }
    }

    /// Takes what has come.
    pub fn push(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// The next part, as far as it has come; none where nothing more is complete.
    ///
    /// # Errors
    /// It is no stream of commands, or one of which this server would have to keep too much.
    pub fn next(&mut self) -> Result<Option<Batch>, String> {
        while self.read_command()? {
            self.take_command();
            let is_long = self.scan - self.begin >= BATCH_BYTES || self.count >= BATCH_COMMANDS;
            if is_long && !self.in_multi {
                break;
            }
        }
        // (Within a transaction it waits for the rest.)
        if self.scan == self.begin || self.in_multi {
            let what = if self.in_multi { "a transaction" } else { "a command" };
            return match self.input.len() > self.limit {
                true => Err(format!("{what} of its takes more than the {} bytes that are kept of one", self.limit)),
                false => Ok(None),
            };
        }
        Ok(Some(self.end_batch()))
    }

    fn end_batch(&mut self) -> Batch {
        let mut batch = std::mem::take(&mut self.made);
        batch.raw = self.input[self.begin..self.scan].to_vec();
        if self.has_begun {
            say(&mut batch.commands, &[b"EXEC"]);
        }
        (self.count, self.has_begun) = (0, false);
        self.input.drain(..self.scan);
        // (What one long value has needed is given back.)
        self.input.shrink_to(self.input.len().max(KEPT_BYTES));
        // (A command that has come in part is read anew from where it begins.)
        (self.scan, self.begin, self.command) = (0, 0, Partial::default());
        batch
    }

    /// Reads on in a command; whether it is complete.
    fn read_command(&mut self) -> Result<bool, String> {
        let Batches { input, scan, command, .. } = self;
        if command.left.is_none() {
            command.at = *scan;
            match input.get(*scan) {
                None => return Ok(false),
                Some(b'*') => {}
                // A line: that the primary is there.
                Some(_) => {
                    let Some(end) = memchr::memchr(b'\n', &input[*scan..]) else {
                        return match input.len() - *scan > INLINE_BYTES {
                            true => Err("it has a line without an end".to_owned()),
                            false => Ok(false),
                        };
                    };
                    command.args.clear();
                    *scan += end + 1;
                    return Ok(true);
                }
            }
            let Some((count, next)) = number(input, *scan, b'*', ARGUMENTS)? else { return Ok(false) };
            command.args.clear();
            (command.left, command.at) = (Some(count), next);
        }
        while let Some(left) = command.left.filter(|left| *left > 0) {
            let Some((len, begin)) = number(input, command.at, b'$', ARGUMENT_BYTES)? else { return Ok(false) };
            if input.len() < begin + len + 2 {
                return Ok(false);
            }
            command.args.push((begin, begin + len));
            (command.left, command.at) = (Some(left - 1), begin + len + 2);
        }
        (command.left, *scan) = (None, command.at);
        Ok(true)
    }

    /// A command is complete: it goes into the part, unless it is about the link or about what belongs together.
    fn take_command(&mut self) {
        let args: Vec<&[u8]> = self.command.args.iter().map(|(begin, end)| &self.input[*begin..*end]).collect();
        let Some(name) = args.first() else { return };
        let is = |text: &str| name.eq_ignore_ascii_case(text.as_bytes());
        match () {
            () if is("PING") => {}
            () if is("REPLCONF") => {
                self.made.wants_ack |= args.get(1).is_some_and(|of| of.eq_ignore_ascii_case(b"getack"))
            }
            () if is("MULTI") => self.in_multi = true,
            () if is("EXEC") => self.in_multi = false,
            () => {
                let number = |index: usize| std::str::from_utf8(args.get(index)?).ok()?.parse().ok();
                let db = is("SELECT").then(|| number(1).unwrap_or(usize::MAX));
                let named = match () {
                    () if is("MOVE") => number(2),
                    () if is("SWAPDB") => number(1).max(number(2)),
                    () if is("COPY") => {
                        let option = args.iter().skip(3).position(|arg| arg.eq_ignore_ascii_case(b"db"));
                        option.and_then(|option| number(3 + option + 1))
                    }
                    () => None,
                };
                if !self.has_begun {
                    self.has_begun = true;
                    say(&mut self.made.commands, &[b"MULTI"]);
                }
                say(&mut self.made.commands, &args);
                self.count += 1;
                self.made.goes_on |= db.is_none() && self.made.db.is_none();
                self.made.db = db.or(self.made.db);
                self.made.most_db = [db, named].into_iter().flatten().fold(self.made.most_db, usize::max);
            }
        }
    }
}

fn say(out: &mut Vec<u8>, args: &[&[u8]]) {
    let mut reply = Reply::new(out, Proto::Resp2);
    reply.array(args.len());
    args.iter().for_each(|arg| reply.bulk(arg));
}

/// A line that says a number behind a mark; where the next begins. None where it has not come.
fn number(input: &[u8], at: usize, mark: u8, most: usize) -> Result<Option<(usize, usize)>, String> {
    let Some(rest) = input.get(at..).filter(|rest| !rest.is_empty()) else { return Ok(None) };
    let Some(end) = memchr::memchr(b'\n', &rest[..rest.len().min(LINE_BYTES)]) else {
        return if rest.len() < LINE_BYTES { Ok(None) } else { Err("it has a number without an end".to_owned()) };
    };
    let digits = rest[..end].strip_suffix(b"\r").and_then(|line| line.strip_prefix(&[mark]));
    let number = digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    match number.filter(|number| *number <= most) {
        Some(number) => Ok(Some((number, at + end + 1))),
        None => Err(format!("'{}' stands where a number should", rest[..end].escape_ascii())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stream(lines: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        lines.iter().for_each(|line| say(&mut out, &line.split(' ').map(str::as_bytes).collect::<Vec<_>>()));
        out
    }

    fn all(batches: &mut Batches) -> Vec<Batch> {
        std::iter::from_fn(|| batches.next().expect("a stream")).collect()
    }

    #[test]
    fn what_is_about_the_link_is_left_out_and_the_rest_is_one_transaction() {
        let mut batches = Batches::new(1 << 20);
        let raw = stream(&["SET a 1", "PING", "MULTI", "SELECT 5", "SET b 2", "EXEC", "REPLCONF GETACK *", "DEL a"]);
        batches.push(&raw);
        let [batch] = &all(&mut batches)[..] else { panic!("one part") };
        assert_eq!(batch.raw, raw);
        let done = ["MULTI", "SET a 1", "SELECT 5", "SET b 2", "DEL a", "EXEC"];
        assert_eq!((&batch.commands, batch.wants_ack, batch.db), (&stream(&done), true, Some(5)));
        assert_eq!((batch.most_db, batch.goes_on), (5, true));
        batches.push(b"\n");
        batches.push(&stream(&["PING"]));
        let [batch] = &all(&mut batches)[..] else { panic!("one part") };
        assert_eq!((batch.raw.len(), batch.commands.len(), batch.wants_ack, batch.db), (15, 0, false, None));
        batches.push(&stream(&["DEL b"]));
        assert_eq!(all(&mut batches)[0].commands, stream(&["MULTI", "DEL b", "EXEC"]));
        for (line, db, goes_on) in [
            ("SELECT 7", 7, false),
            ("MOVE a 8", 8, true),
            ("SWAPDB 3 9", 9, true),
            ("swapdb 9 3", 9, true),
            ("COPY db b DB 11 REPLACE", 11, true),
            ("COPY a db REPLACE db 12", 12, true),
            ("COPY db db", 0, true),
            ("MOVE a", 0, true),
        ] {
            batches.push(&stream(&["PING", line, "SET a 1"]));
            let batch = &all(&mut batches)[0];
            assert_eq!((batch.most_db, batch.goes_on), (db, goes_on), "{line}");
        }
        for no_number in ["SELECT -1", "SELECT 99999999999999999999", "SELECT"] {
            batches.push(&stream(&[no_number, "SELECT 3"]));
            assert_eq!(all(&mut batches)[0].most_db, usize::MAX, "{no_number}");
        }
    }

    #[test]
    fn parts_are_bounded_and_transactions_whole() {
        let mut batches = Batches::new(1 << 20);
        let sets = vec!["SET a 1"; BATCH_COMMANDS + 10];
        batches.push(&stream(&sets));
        assert_eq!(all(&mut batches).len(), 2);
        batches.push(&stream(&["MULTI"]));
        batches.push(&stream(&sets));
        assert_eq!(all(&mut batches), []);
        batches.push(&stream(&["EXEC", "DEL a"]));
        let parts = all(&mut batches);
        assert_eq!(parts.len(), 2, "the transaction, then what stands behind it");
    }

    /// What has come of a command when the part before it ends is neither lost nor taken for something else.
    #[test]
    fn it_may_be_cut_anywhere() {
        let raw = stream(&["INCR a", "SET b 22", "MULTI", "SET c 333", "DEL b", "EXEC", "PING", "INCR a"]);
        for first in 0..=raw.len() {
            for second in first..=raw.len() {
                let mut batches = Batches::new(1 << 20);
                let (mut seen, mut done) = (Vec::new(), Vec::new());
                for piece in [&raw[..first], &raw[first..second], &raw[second..]] {
                    batches.push(piece);
                    for batch in all(&mut batches) {
                        seen.extend_from_slice(&batch.raw);
                        done.extend_from_slice(&batch.commands);
                    }
                }
                assert_eq!(seen, raw, "{first} {second}");
                let text = String::from_utf8(done).expect("text");
                for (line, times) in [("INCR a", 2), ("SET b 22", 1), ("SET c 333", 1), ("DEL b", 1)] {
                    let said = String::from_utf8(stream(&[line])).expect("text");
                    assert_eq!(text.matches(&said).count(), times, "{line} {first} {second}");
                }
            }
        }
    }

    /// It was kept without a bound until EXEC came.
    #[test]
    fn what_has_no_end_is_refused() {
        let refused = |head: &[u8], piece: &[u8]| {
            let mut batches = Batches::new(100_000);
            batches.push(head);
            (0..100_000).find_map(|count| {
                batches.push(piece);
                batches.next().err().map(|reason| (reason, count * piece.len()))
            })
        };
        let (sets, part) = (stream(&["SET a 1"; 10]), stream(&["MULTI"]));
        for (head, piece, what) in [
            (&part[..], &sets[..], "a transaction"),
            (b"*1000000\r\n", b"$1\r\na\r\n", "a command"),
            (b"*2\r\n$3\r\nGET\r\n$100000000\r\n", &[b'x'; 1000], "a command"),
        ] {
            let (reason, bytes) = refused(head, piece).expect("it is refused");
            assert!(reason.starts_with(what) && (95_000..110_000).contains(&bytes), "{reason} {bytes}");
        }
        assert_eq!(refused(b"", &sets), None, "what has ends is taken for ever");
    }

    #[test]
    fn what_is_no_stream_is_refused() {
        for bad in ["*x\r\n", "*1\r\n+\r\n", "*1\r\n$-1\r\n", "*99999999999\r\n", "*1\r\n$9999999999\r\n", "*1\n"] {
            let mut batches = Batches::new(1 << 20);
            batches.push(bad.as_bytes());
            assert!(batches.next().is_err(), "{bad}");
        }
        let mut batches = Batches::new(1 << 20);
        batches.push(&[b'*'; 100]);
        assert!(batches.next().is_err());
        let mut batches = Batches::new(1 << 20);
        batches.push(&vec![b'x'; INLINE_BYTES + 2]);
        assert!(batches.next().is_err());
    }

    proptest! {
        /// However the stream is cut on its way, what is done is the same.
        #[test]
        fn it_may_come_in_any_pieces(cuts in prop::collection::vec(1..20_usize, 1..60)) {
            let lines = ["SELECT 2", "SET a 1", "PING", "MULTI", "DEL a", "SET b 22", "EXEC", "REPLCONF GETACK *", "INCR c"];
            let raw = stream(&lines);
            let (mut batches, mut at) = (Batches::new(1 << 20), 0);
            let (mut seen, mut done, mut db) = (Vec::new(), Vec::new(), None);
            for cut in cuts.iter().cycle() {
                let end = (at + cut).min(raw.len());
                batches.push(&raw[at..end]);
                at = end;
                for batch in all(&mut batches) {
                    seen.extend_from_slice(&batch.raw);
                    done.extend_from_slice(&batch.commands);
                    db = batch.db.or(db);
                }
                if at == raw.len() {
                    break;
                }
            }
            prop_assert_eq!(seen, raw);
            prop_assert_eq!(db, Some(2));
            let text = String::from_utf8(done).expect("text");
            let both = text.find("DEL").zip(text.find("22")).expect("both are there");
            prop_assert!(!text[both.0..both.1].contains("EXEC"), "{}", text);
        }

        #[test]
        fn anything_is_taken_or_refused_without_a_panic(bytes: Vec<u8>) {
            let mut batches = Batches::new(1 << 20);
            for piece in bytes.chunks(7) {
                batches.push(piece);
                while let Ok(Some(_)) = batches.next() {}
            }
        }
    }
}
