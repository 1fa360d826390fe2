//! Random commands from a seed: few keys, so that they meet often; values at the edges; one command in ten or so wrong.
//!
//! A run is about one [`Family`] of commands, or about all. `families/` has a file each; here is what goes around them:
//! transactions, a second connection, other types under the same keys, deadlines, names, copies.
//!
//! No reply may depend on the millisecond in which a server executed the command. Hence no key dies during a run except
//! by a deadline that is past when it is set, and no two deadlines are so close that GT or LT could go either way:
//! every relative time is used once and is a multiple of 1,000 s away from every other, while absolute times come from
//! a small pool, where equality is certain.
//!
//! Commands of a second connection, which Redis executes between two of the first, come mostly while the first watches
//! keys or is between MULTI and EXEC. Both choose databases of their own.
//!
//! Left out on purpose: numbers that only an 80-bit float can hold or hexadecimal ones (INCRBYFLOAT, HINCRBYFLOAT), and
//! times within a second of the largest `i64`, which Redis rounds past its end.

#[path = "draw.rs"]
mod draw;
#[path = "families/mod.rs"]
pub mod families;

use std::collections::VecDeque;

use fastrand::Rng;

use crate::differential::compare::Rule;
use families::Family;

pub type Args = Vec<Vec<u8>>;

pub const KEYS: [&[u8]; 12] = [
    b"k0",
    b"k1",
    b"k2",
    b"k3",
    b"session:1",
    b"session:2",
    b"{tag}a",
    b"{tag}b",
    b"x{tag}",
    b"{}",
    b"",
    b"bin\0\r\n\xff \"'",
];

pub enum Step {
    Command(Args, Rule),
    /// A command of the second connection, when everything before it is answered.
    Elsewhere(Args, Rule),
    /// SCAN, or SSCAN, HSCAN and ZSCAN with their key, with these options after the cursor, until the cursor is 0 again.
    Scan(Args, Args),
    RandomKey,
    /// A command that chooses members at random, and one that lists all there are to choose from.
    Random(Args, Args),
    /// SPOP.
    Pop(Args),
    /// XREADGROUP.
    ReadGroup(Args),
    /// XSETID.
    SetId(Args),
    /// A command that removes about as much from the stream under this key as it is told.
    Trim(Args, Vec<u8>),
    /// DUMP of the first key; EmberDB's payload or the oracle's is restored by both into the second key, with these
    /// options.
    Exchange {
        ours: bool,
        from: Vec<u8>,
        to: Vec<u8>,
        options: Args,
    },
}

impl Step {
    /// A command whose rule is that of its name.
    pub fn of(args: Args) -> Step {
        let rule = Rule::of(&args);
        Step::Command(args, rule)
    }
}

/// 2100-01-01, in seconds: later than any relative deadline that `Generator::fresh_s` makes.
const POOL_BASE_S: i64 = 4_102_444_800;
const POOL_STEP_S: i64 = 365 * 86_400;
const POOL_SIZE: i64 = 6;
/// Milliseconds past the pool's seconds: both sides of the rounding that EXPIRETIME does.
const POOL_MS: [i64; 6] = [0, 1, 499, 500, 501, 999];

/// True for a moment that the generator gave as such, so that it must be reported as given.
pub fn is_absolute_ms(moment_ms: i64) -> bool {
    let past_base_ms = moment_ms - POOL_BASE_S * 1000;
    (0..POOL_SIZE * POOL_STEP_S * 1000).contains(&past_base_ms)
        && POOL_MS.contains(&(past_base_ms % (POOL_STEP_S * 1000)))
}

/// The same for a moment that EXPIRETIME has rounded to seconds.
pub fn is_absolute_s(moment_s: i64) -> bool {
    is_absolute_ms(moment_s.saturating_mul(1000)) || is_absolute_ms((moment_s - 1).saturating_mul(1000))
}

/// A command that finds every dead key, so that Redis no longer counts it.
pub fn touch_every_key() -> Args {
    let keys = KEYS.iter().map(|key| key.to_vec());
    std::iter::once(b"EXISTS".to_vec()).chain(keys).collect()
}

pub struct Generator {
    rng: Rng,
    family: Family,
    relative_times: u64,
    /// How many identifiers of entries of streams there are so far.
    ids: u64,
    /// XSETID goes back now and then. XTRIM MINID then stays out: Redis takes a deleted entry with a larger identifier
    /// for the end.
    ids_go_back: bool,
    /// Commands that must follow the one before them.
    queued: VecDeque<Step>,
    /// The first connection is between MULTI and EXEC.
    in_multi: bool,
    /// It has watched keys since its last EXEC, DISCARD or UNWATCH.
    watches: bool,
}

impl Generator {
    pub fn new(seed: u64, family: Family) -> Generator {
        let mut rng = Rng::with_seed(seed);
        Generator {
            ids_go_back: rng.bool(),
            rng,
            family,
            relative_times: 0,
            ids: 1,
            queued: VecDeque::new(),
            in_multi: false,
            watches: false,
        }
    }

    /// Whether values of all types are under the same keys.
    pub fn is_mixed(&self) -> bool {
        matches!(self.family, Family::Dump | Family::Scripts | Family::Everything)
    }

    /// How many commands to pipeline next.
    pub fn chunk_size(&mut self) -> usize {
        self.rng.usize(1..=50)
    }

    pub fn next_step(&mut self) -> Step {
        if let Some(step) = self.queued.pop_front() {
            return step;
        }
        if self.one_in(if self.watches { 5 } else { 100 }) && !self.keeps_to_itself() {
            let (args, rule) = self.elsewhere();
            return Step::Elsewhere(args, rule);
        }
        let step = match self.transaction() {
            Some(args) => Step::of(args),
            None => self.family.step(self),
        };
        let step = match step {
            Step::Command(args, _) if args[0].eq_ignore_ascii_case(b"XSETID") => Step::SetId(args),
            // Redis 7.0 takes the smallest integer, which cannot be negated, for a rank; newer versions do not.
            Step::Command(args, _) if args[0].eq_ignore_ascii_case(b"LPOS") => {
                let smallest = i64::MIN.to_string().into_bytes();
                let is_other = |arg: Vec<u8>| if arg == smallest { b"-1".to_vec() } else { arg };
                Step::of(args.into_iter().map(is_other).collect())
            }
            step => step,
        };
        match &step {
            Step::Command(args, _) => self.note(args),
            // What they answer between MULTI and EXEC is no cursor, no member and no payload.
            _ if self.in_multi => return Step::of(self.many_keys("EXISTS")),
            _ => {}
        }
        match step {
            Step::Command(sort, rule) if families::is_sort(&sort) => {
                // Redis takes a number that did not fit, in whatever command before, for one of those that it sorts;
                // not where the last number did. Scores of the sorted set, which SORT unpacks before it sorts the
                // members, are such numbers, so that another SORT has unpacked them before.
                let key = sort.get(1).map_or(&b"nothing"[..], Vec::as_slice);
                let unpack = [key, b"BY", b"constant", b"LIMIT", b"0", b"0"].map(Vec::from);
                let number = [&b"nothing"[..], b"XX", b"1", b"member"].map(Vec::from);
                self.queued.push_back(Step::of(args("ZADD", number)));
                self.queued.push_back(Step::Command(sort, rule));
                Step::of(args("SORT_RO", unpack))
            }
            step => step,
        }
    }

    /// A command that begins, ends or guards a transaction, if it is time for one.
    fn transaction(&mut self) -> Option<Args> {
        let chance = match (self.in_multi, self.watches) {
            (true, _) => 7,
            (false, true) => 4,
            (false, false) => 25,
        };
        if !self.one_in(chance) || !self.in_multi && self.keeps_to_itself() {
            return None;
        }
        Some(match (self.in_multi, self.rng.u32(..20)) {
            (true, 0..14) | (false, 0) => vec![self.word("EXEC")],
            (true, 14..16) | (false, 1) => vec![self.word("DISCARD")],
            (true, 16) | (false, 2..10) => vec![self.word("MULTI")],
            (_, 19) => vec![self.word("UNWATCH")],
            _ => self.many_keys("WATCH"),
        })
    }

    /// Keeps account of the state in which a command that was made leaves the first connection.
    fn note(&mut self, args: &Args) {
        let name = args[0].to_ascii_uppercase();
        match (name.as_slice(), args.len()) {
            (b"MULTI", 1) => self.in_multi = true,
            (b"EXEC" | b"DISCARD", 1) if self.in_multi => (self.in_multi, self.watches) = (false, false),
            (b"UNWATCH", 1) if !self.in_multi => self.watches = false,
            (b"WATCH", 2..) if !self.in_multi => self.watches = true,
            _ => {}
        }
    }

    /// Transactions and the second connection are what a run about strings is about, too; runs about other types have
    /// less of them, and more of their own.
    fn keeps_to_itself(&mut self) -> bool {
        self.family != Family::Strings && !self.one_in(3)
    }

    /// Whatever may change a key that the first connection watches, and what may not.
    fn elsewhere(&mut self) -> (Args, Rule) {
        let args = match self.rng.u32(..20) {
            0..4 => match self.family.own_step(self) {
                // A second connection that waits would answer in the first one's turn.
                Step::Command(args, rule) if !families::may_block(&args) && !families::is_sort(&args) => {
                    return (args, rule);
                }
                _ => self.many_keys("DEL"),
            },
            4..7 => self.expiry(),
            7..9 => self.copy(),
            9 => args("RENAME", [self.key(), self.key()]),
            10 | 11 => args("MOVE", [self.key(), self.database()]),
            12 | 13 if self.family == Family::Strings => args("SWAPDB", [self.database(), self.database()]),
            14 if self.family == Family::Strings => vec![self.any_of(&["FLUSHDB", "FLUSHDB", "FLUSHALL"])],
            14 | 15 => self.many_keys("DEL"),
            16 | 17 => args("SELECT", [self.database()]),
            _ if self.family != Family::Strings => self.generic(),
            _ => {
                let args = self.keys();
                // It asks for another command behind it; that is the first connection's.
                self.queued.clear();
                args
            }
        };
        let rule = Rule::of(&args);
        (args, rule)
    }

    fn database(&mut self) -> Vec<u8> {
        self.any_of(&["0", "0", "0", "0", "0", "1", "1", "1", "15", "16", "-1", "x"])
    }
}

pub fn args<const N: usize>(name: &str, rest: [Vec<u8>; N]) -> Args {
    std::iter::once(name.as_bytes().to_vec()).chain(rest).collect()
}
