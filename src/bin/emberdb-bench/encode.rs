//! Requests, encoded once: on the hot path only the digits of keys and other numbers are written.

use emberdb::measure::resp::push_bulk;
use smallvec::{SmallVec, smallvec};

/// Of the random numbers in what is loaded.
const SEED: u64 = 1;

/// What keys look like: a prefix and a number with leading zeros.
#[derive(Clone, Debug)]
pub struct KeyForm {
    pub prefix: String,
    pub digits: usize,
}

impl KeyForm {
    /// Keys of `size` bytes; longer ones if the prefix and the greatest of `keys` numbers do not fit.
    pub fn new(prefix: &str, size: usize, keys: u64) -> KeyForm {
        let needed = keys.saturating_sub(1).checked_ilog10().unwrap_or(0) as usize + 1;
        KeyForm { prefix: prefix.to_owned(), digits: needed.max(size.saturating_sub(prefix.len())) }
    }

    pub fn size(&self) -> usize {
        self.prefix.len() + self.digits
    }
}

/// Seconds, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ttl {
    pub from: u64,
    pub to: u64,
}

impl Ttl {
    #[inline]
    fn choose(&self, rng: &mut fastrand::Rng) -> u64 {
        if self.from == self.to { self.from } else { rng.u64(self.from..=self.to) }
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    Word(&'a [u8]),
    Key,
    /// The key as a hash tag, and this behind it: all of one key lie on one shard.
    Tagged(&'a str),
    /// The key's number, and so much more.
    Number(u64),
    /// A number below this, drawn for itself.
    Random(u64),
    Ttl(Ttl),
}

/// A request of one shape: a command, or several in a row.
#[derive(Clone, Debug)]
pub struct Command {
    /// One for each number whose length is not known beforehand, and what is behind the last of them.
    pieces: SmallVec<[Piece; 1]>,
    /// Of each key.
    digits: usize,
}

/// Bytes that are the same in every request but for the numbers of keys, and a number behind them.
#[derive(Clone, Debug, Default)]
struct Piece {
    /// Digits of keys are zeros.
    bytes: Vec<u8>,
    /// Where the numbers of keys stand.
    digits_at: SmallVec<[usize; 2]>,
    number: Option<Number>,
}

#[derive(Clone, Copy, Debug)]
enum Number {
    OfKey { plus: u64 },
    Below(u64),
    Ttl(Ttl),
}

impl Command {
    pub fn new(form: &KeyForm, parts: &[Part<'_>]) -> Command {
        let mut command = Command::empty(form);
        command.push_parts(form, parts);
        command
    }

    /// The commands between MULTI and EXEC.
    pub fn transaction(form: &KeyForm, commands: &[&[Part<'_>]]) -> Command {
        let mut command = Command::empty(form);
        command.push_parts(form, &[Part::Word(b"MULTI")]);
        commands.iter().for_each(|parts| command.push_parts(form, parts));
        command.push_parts(form, &[Part::Word(b"EXEC")]);
        command
    }

    fn empty(form: &KeyForm) -> Command {
        Command { pieces: smallvec![Piece::default()], digits: form.digits }
    }

    fn push_parts(&mut self, form: &KeyForm, parts: &[Part<'_>]) {
        self.last().bytes.extend_from_slice(format!("*{}\r\n", parts.len()).as_bytes());
        for part in parts {
            match part {
                Part::Word(word) => push_bulk(&mut self.last().bytes, word),
                Part::Key => self.push_key(&form.prefix, ""),
                Part::Tagged(name) => self.push_key(&format!("{{{}", form.prefix), &format!("}}{name}")),
                Part::Number(plus) => self.push_number(Number::OfKey { plus: *plus }),
                Part::Random(below) => self.push_number(Number::Below(*below)),
                Part::Ttl(ttl) => self.push_number(Number::Ttl(*ttl)),
            }
        }
    }

    fn last(&mut self) -> &mut Piece {
        self.pieces.last_mut().expect("there is one from the start")
    }

    fn push_key(&mut self, before: &str, after: &str) {
        let digits = self.digits;
        let piece = self.last();
        push_bulk(&mut piece.bytes, format!("{before}{:0digits$}{after}", 0).as_bytes());
        piece.digits_at.push(piece.bytes.len() - 2 - after.len() - digits);
    }

    fn push_number(&mut self, number: Number) {
        self.last().number = Some(number);
        self.pieces.push(Piece::default());
    }

    /// All keys have one number.
    #[inline]
    pub fn push(&self, key: u64, rng: &mut fastrand::Rng, out: &mut Vec<u8>) {
        self.push_each(|_| key, rng, out);
    }

    /// Pushes the command for one key after the other, with the same random numbers each time.
    pub fn writer(&self) -> impl FnMut(u64, &mut Vec<u8>) {
        let mut rng = fastrand::Rng::with_seed(SEED);
        move |key, out| self.push(key, &mut rng, out)
    }

    /// Each key has a number of its own.
    #[inline]
    pub fn push_each(
        &self,
        mut number: impl FnMut(&mut fastrand::Rng) -> u64,
        rng: &mut fastrand::Rng,
        out: &mut Vec<u8>,
    ) {
        for piece in &self.pieces {
            let start = out.len();
            out.extend_from_slice(&piece.bytes);
            for at in &piece.digits_at {
                write_digits(&mut out[start + at..start + at + self.digits], number(rng));
            }
            match piece.number {
                None => {}
                Some(Number::OfKey { plus }) => push_number(out, number(rng) + plus),
                Some(Number::Below(below)) => push_number(out, rng.u64(..below)),
                Some(Number::Ttl(ttl)) => push_number(out, ttl.choose(rng)),
            }
        }
    }
}

/// A number as a bulk string.
#[inline]
fn push_number(out: &mut Vec<u8>, number: u64) {
    let digits = number.checked_ilog10().unwrap_or(0) as usize + 1;
    out.push(b'$');
    if digits > 9 {
        out.push(b'0' + (digits / 10) as u8);
    }
    out.push(b'0' + (digits % 10) as u8);
    out.extend_from_slice(b"\r\n");
    let start = out.len();
    out.resize(start + digits, 0);
    write_digits(&mut out[start..], number);
    out.extend_from_slice(b"\r\n");
}

/// `number` with leading zeros; digits that do not fit are cut off at the front.
#[inline]
fn write_digits(place: &mut [u8], mut number: u64) {
    for digit in place.iter_mut().rev() {
        if number == 0 {
            *digit = b'0';
            continue;
        }
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(command: &Command, key: u64) -> String {
        let mut out = b"before".to_vec();
        command.push(key, &mut fastrand::Rng::with_seed(1), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn digits_of_the_key_are_written_into_the_template() {
        let form = KeyForm::new("key:", 8, 1000);
        let get = Command::new(&form, &[Part::Word(b"GET"), Part::Key]);
        assert_eq!(encoded(&get, 42), "before*2\r\n$3\r\nGET\r\n$8\r\nkey:0042\r\n");
        assert_eq!(encoded(&get, 0), "before*2\r\n$3\r\nGET\r\n$8\r\nkey:0000\r\n");
    }

    #[test]
    fn keys_with_one_tag_have_one_number() {
        let form = KeyForm::new("k:", 4, 100);
        let lcs = Command::new(&form, &[Part::Word(b"LCS"), Part::Tagged("a"), Part::Tagged("bc"), Part::Word(b"LEN")]);
        assert_eq!(encoded(&lcs, 42), "before*4\r\n$3\r\nLCS\r\n$7\r\n{k:42}a\r\n$8\r\n{k:42}bc\r\n$3\r\nLEN\r\n");
    }

    #[test]
    fn keys_may_have_numbers_of_their_own() {
        let form = KeyForm::new("k", 3, 100);
        let mget = Command::new(&form, &[Part::Word(b"MGET"), Part::Key, Part::Key, Part::Key]);
        let (mut numbers, mut out) = ([7, 42, 0].into_iter(), Vec::new());
        mget.push_each(|_| numbers.next().unwrap(), &mut fastrand::Rng::with_seed(1), &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "*4\r\n$4\r\nMGET\r\n$3\r\nk07\r\n$3\r\nk42\r\n$3\r\nk00\r\n");
    }

    #[test]
    fn a_transaction_is_one_request() {
        let form = KeyForm::new("k", 2, 10);
        let (incr, get) = ([Part::Word(b"INCR"), Part::Key], [Part::Word(b"GET"), Part::Key]);
        let command = Command::transaction(&form, &[&incr, &get]);
        let expected = "before*1\r\n$5\r\nMULTI\r\n*2\r\n$4\r\nINCR\r\n$2\r\nk7\r\n*2\r\n$3\r\nGET\r\n$2\r\nk7\r\n*1\r\n$4\r\nEXEC\r\n";
        assert_eq!(encoded(&command, 7), expected);
    }

    #[test]
    fn the_ttl_stands_where_it_belongs() {
        let form = KeyForm::new("k", 2, 10);
        let hour = Ttl { from: 3600, to: 3600 };
        let set = [Part::Word(b"SET"), Part::Key, Part::Word(b"v"), Part::Word(b"EX"), Part::Ttl(hour)];
        let set = Command::new(&form, &set);
        assert_eq!(encoded(&set, 7), "before*5\r\n$3\r\nSET\r\n$2\r\nk7\r\n$1\r\nv\r\n$2\r\nEX\r\n$4\r\n3600\r\n");
        let long = Ttl { from: 10_000_000_000, to: 10_000_000_000 };
        let expire = [Part::Word(b"EXPIRE"), Part::Key, Part::Ttl(long), Part::Word(b"NX")];
        let expire = Command::new(&form, &expire);
        assert_eq!(encoded(&expire, 7), "before*4\r\n$6\r\nEXPIRE\r\n$2\r\nk7\r\n$11\r\n10000000000\r\n$2\r\nNX\r\n");
    }

    #[test]
    fn numbers_are_as_long_as_they_are() {
        let form = KeyForm::new("k", 4, 1000);
        let range = [Part::Word(b"ZRANGE"), Part::Word(b"z"), Part::Number(0), Part::Number(9), Part::Key];
        let range = Command::new(&form, &range);
        let expected = "before*5\r\n$6\r\nZRANGE\r\n$1\r\nz\r\n$1\r\n7\r\n$2\r\n16\r\n$4\r\nk007\r\n";
        assert_eq!(encoded(&range, 7), expected);
        let set = Command::new(&form, &[Part::Word(b"SET"), Part::Key, Part::Random(3)]);
        let (mut rng, mut seen) = (fastrand::Rng::with_seed(1), std::collections::BTreeSet::new());
        for _ in 0..100 {
            let mut out = Vec::new();
            set.push(7, &mut rng, &mut out);
            seen.insert(String::from_utf8(out).unwrap());
        }
        let expected = [0, 1, 2].map(|number| format!("*3\r\n$3\r\nSET\r\n$4\r\nk007\r\n$1\r\n{number}\r\n"));
        assert!(seen.iter().eq(&expected), "{seen:?}");
    }

    #[test]
    fn keys_grow_where_their_numbers_do_not_fit() {
        assert_eq!(KeyForm::new("key:", 16, 100_000).size(), 16);
        assert_eq!(KeyForm::new("key:", 5, 100_000).size(), 9);
        assert_eq!(KeyForm::new("key:", 5, 100_001).size(), 10);
        assert_eq!(KeyForm::new("", 1, 1).size(), 1);
    }
}
