//! The families of commands that a run can be about.

mod bits;
mod dump;
mod foreign;
mod geo;
mod hashes;
mod hyperloglogs;
mod keys;
mod lists;
mod scripts;
mod session;
mod sets;
mod sort;
mod sorted_sets;
mod streams;
mod strings;

use super::{Args, Generator, Step};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Strings,
    Lists,
    Sets,
    Hashes,
    SortedSets,
    Streams,
    Bits,
    HyperLogLogs,
    Geo,
    Sort,
    Dump,
    /// Lua scripts that run commands of all of them.
    Scripts,
    /// All of them on the same keys.
    Everything,
}

/// All but [`Family::Strings`], whose mix is its own, and [`Family::Everything`].
const TYPES: [Family; 10] = [
    Family::Lists,
    Family::Sets,
    Family::Hashes,
    Family::SortedSets,
    Family::Streams,
    Family::Bits,
    Family::HyperLogLogs,
    Family::Geo,
    Family::Sort,
    Family::Dump,
];

/// Commands that wait for others, unless between MULTI and EXEC.
const BLOCKING: [&str; 8] = ["BLPOP", "BRPOP", "BLMOVE", "BRPOPLPUSH", "BLMPOP", "BZPOPMIN", "BZPOPMAX", "BZMPOP"];
/// Commands whose reply is up to chance, or to the form in which a server keeps a value.
const CHANCE: [&str; 8] = ["DUMP", "HRANDFIELD", "HSCAN", "SPOP", "SRANDMEMBER", "SSCAN", "ZRANDMEMBER", "ZSCAN"];

/// True for a command that waits until there is something, or might.
pub fn may_block(args: &Args) -> bool {
    let is = |name: &str, arg: &Vec<u8>| arg.eq_ignore_ascii_case(name.as_bytes());
    BLOCKING.iter().any(|name| is(name, &args[0])) || args.iter().any(|arg| is("BLOCK", arg))
}

pub fn is_sort(args: &Args) -> bool {
    args[0].eq_ignore_ascii_case(b"SORT") || args[0].eq_ignore_ascii_case(b"SORT_RO")
}

/// False where another argument could make a command wait, a key die during the run, the members of the sorted set
/// under one score have several, what is sorted lose its order, a stream never take an entry again, a HyperLogLog be
/// broken where the two look at different moments, two members stand at one place, or the reply show the form in which
/// a server keeps a value.
fn may_be_spoilt(args: &Args) -> bool {
    let is = |name: &[u8]| args[0].eq_ignore_ascii_case(name);
    let is_sorted_by = args.iter().any(|arg| arg.eq_ignore_ascii_case(b"BY"));
    let never = [b"APPEND".as_slice(), b"DUMP", b"GEOADD", b"RESTORE", b"SETRANGE", b"XADD", b"XSETID"];
    let never = never.into_iter().any(is);
    !(never || may_block(args) || is(b"ZADD") && args[1] == sorted_sets::LEX || is_sorted_by)
}

/// Leaves out what later versions than Redis 7.0 know: ZRANK's WITHSCORE, the `+` of XREAD.
fn without_newer(mut args: Args) -> Args {
    let name = args[0].to_ascii_uppercase();
    if name == b"ZRANK" || name == b"ZREVRANK" {
        args.truncate(3);
    }
    if name == b"XREAD" {
        args.iter_mut().filter(|arg| *arg == b"+").for_each(|arg| *arg = b"$".to_vec());
    }
    args
}

/// Asks for ranges by member only where the members have one score: of others nothing is promised.
fn of_one_score(mut args: Args) -> Args {
    let name = args[0].to_ascii_uppercase();
    let takes_ranges = name.starts_with(b"ZR") || name == b"ZLEXCOUNT";
    let by_member = name.ends_with(b"LEX") || args.iter().any(|arg| arg.eq_ignore_ascii_case(b"BYLEX"));
    let source = if name == b"ZRANGESTORE" { 2 } else { 1 };
    if takes_ranges && (by_member || name == b"ZLEXCOUNT") && args.len() > source {
        args[source] = sorted_sets::LEX.to_vec();
    }
    args
}

/// Stores distances where nobody looks for places: several would be at one place, and their order is up to chance.
fn with_distances_apart(mut args: Args) -> Args {
    let Some(at) = args.iter().position(|arg| arg.eq_ignore_ascii_case(b"STOREDIST")) else { return args };
    let target = if args[0].eq_ignore_ascii_case(b"GEOSEARCHSTORE") { 1 } else { at + 1 };
    if args[0].to_ascii_uppercase().starts_with(b"GEO") && target < args.len() && target != at {
        args[target] = geo::DISTANCES.to_vec();
    }
    args
}

/// Redis 7.0 takes the smallest integer, which cannot be negated, for a count of LREM.
fn with_negatable_count(mut args: Args) -> Args {
    if args.len() > 2 && args[0].eq_ignore_ascii_case(b"LREM") && args[2] == i64::MIN.to_string().as_bytes() {
        args[2] = b"-1".to_vec();
    }
    args
}

/// What a command becomes that could show differences which nobody calls one.
fn settled(args: Args) -> Args {
    with_negatable_count(with_distances_apart(of_one_score(without_newer(args))))
}

impl Family {
    /// The names of the commands that it is about.
    pub fn names(self) -> Vec<&'static str> {
        let names = match self {
            Family::Strings => strings::NAMES,
            Family::Lists => lists::NAMES,
            Family::Sets => sets::NAMES,
            Family::Hashes => hashes::NAMES,
            Family::SortedSets => sorted_sets::NAMES,
            Family::Streams => streams::NAMES,
            Family::Bits => bits::NAMES,
            Family::HyperLogLogs => hyperloglogs::NAMES,
            Family::Geo => geo::NAMES,
            Family::Sort => sort::NAMES,
            Family::Dump => dump::NAMES,
            Family::Scripts => scripts::NAMES,
            Family::Everything => {
                return [strings::NAMES.to_vec(), TYPES.iter().flat_map(|f| f.names()).collect()].concat();
            }
        };
        names.to_vec()
    }

    /// The next step of a run about this family.
    pub fn step(self, generator: &mut Generator) -> Step {
        if self == Family::Strings {
            return generator.strings_and_session();
        }
        match generator.rng.u32(..1000) {
            0..820 => self.own_step(generator),
            820..890 => Step::of(generator.generic()),
            890..905 => Step::of(generator.foreign()),
            905..930 => Step::of(generator.expiry()),
            930..950 => generator.scan(),
            950 => Step::RandomKey,
            951..965 => generator.exchange(),
            _ => Step::of(self.wrong(generator)),
        }
    }

    /// A step of the family itself; one in twenty is spoilt.
    pub fn own_step(self, generator: &mut Generator) -> Step {
        let step = match self {
            Family::Strings => Step::of(generator.string()),
            Family::Lists => generator.list(),
            Family::Sets => generator.set_family(),
            Family::Hashes => generator.hash(),
            Family::SortedSets => generator.sorted_set(),
            Family::Streams => generator.stream(),
            Family::Bits => Step::of(generator.bits()),
            Family::HyperLogLogs => Step::of(generator.hyperloglog()),
            Family::Geo => generator.geo(),
            Family::Sort => generator.sort(),
            Family::Dump => generator.dump(),
            Family::Scripts => return generator.script(),
            Family::Everything => return generator.pick(&TYPES).own_step(generator),
        };
        match step {
            Step::Command(mut args, rule) => {
                if self != Family::Strings && may_be_spoilt(&args) && generator.one_in(30) {
                    generator.spoil(&mut args);
                }
                Step::Command(settled(args), rule)
            }
            step => step,
        }
    }

    /// A command of the family with arguments that fit nothing.
    fn wrong(self, generator: &mut Generator) -> Args {
        let mut names = self.names();
        names.retain(|name| !BLOCKING.contains(name) && !CHANCE.contains(name));
        let name = *generator.pick(&names);
        let count = generator.rng.usize(..7);
        let rest = generator.times(count, Generator::misfit);
        settled([vec![generator.word(name)], rest].concat())
    }
}

impl Generator {
    /// The mix of a run about strings: sessions, deadlines and databases are in it.
    fn strings_and_session(&mut self) -> Step {
        Step::of(match self.rng.u32(..100) {
            0..38 => self.string(),
            38..66 => self.expiry(),
            66..82 => self.keys(),
            82..84 => return Step::Scan(vec![b"SCAN".to_vec()], self.scan_options()),
            84 => return Step::RandomKey,
            85..92 => self.session(),
            _ => self.wrong(),
        })
    }

    /// Takes an argument away, adds one, doubles one or puts another in its place.
    fn spoil(&mut self, args: &mut Args) {
        let at = self.rng.usize(1..=args.len());
        match self.rng.u32(..4) {
            0 if args.len() > 1 => {
                args.remove(at.min(args.len() - 1));
            }
            1 => args.insert(at, self.misfit()),
            2 if at < args.len() => args.insert(at, args[at].clone()),
            _ if at < args.len() => args[at] = self.misfit(),
            _ => args.push(self.misfit()),
        }
    }

    /// An argument that fits somewhere, but hardly where it stands. None makes a command wait, or takes more memory or
    /// time than a test has.
    fn misfit(&mut self) -> Vec<u8> {
        match self.rng.u32(..5) {
            0 | 1 => self.key(),
            2 => self.any_of(&[
                "NX",
                "XX",
                "GT",
                "CH",
                "COUNT",
                "LIMIT",
                "WITHSCORES",
                "BYSCORE",
                "BYLEX",
                "REV",
                "STORE",
                "ASC",
                "GET",
                "LEFT",
                "RIGHT",
                "MAXLEN",
                "MINID",
                "STREAMS",
                "GROUP",
                "WEIGHTS",
                "AGGREGATE",
                "REPLACE",
                "MATCH",
            ]),
            3 => self.any_of(&[
                "9223372036854775807",
                "-9223372036854775808",
                "9223372036854775808",
                "18446744073709551616",
            ]),
            _ => self.any_of(&[
                "0",
                "1",
                "2",
                "-1",
                "1.5",
                "",
                "abc",
                "\u{e9}\r\n",
                "nan",
                "inf",
                "(",
                "[a",
                "(1",
                "-",
                "+",
                "~",
                "=",
            ]),
        }
    }
}
