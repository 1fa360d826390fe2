//! The type of a command table's rows: what a command is called, what it takes and how it runs. Everything said of
//! a command (dispatch, arity, routing by key, gating, COMMAND, COMMAND DOCS, COMMAND GETKEYS) comes from its row.

use crate::keyspace::{Touch, element_hash};
use crate::resp::Request;
use crate::value::number::parse_i64;
use std::ops::Range;

/// One row: what is said of a command, and how it runs. `R` is the kind of handler; the rooms above have their own.
#[derive(Clone, Copy)]
pub struct Row<R: 'static> {
    pub spec: Spec,
    pub run: R,
    /// For a command such as OBJECT, which only groups others.
    pub subcommands: &'static [Row<R>],
    /// Which of its arguments nobody is shown.
    pub secrets: Secrets,
    /// Words of [`tip`], in the order of Redis.
    pub tips: &'static [&'static str],
    pub deprecated: Option<Deprecated>,
    /// It is not for applications.
    pub is_for_the_system: bool,
    pub channels: Channels,
    /// A subcommand whose name is two words of a request, with a hyphen between them: `EXPIRY GROUP ADD` is `group-add`.
    pub is_two_words: bool,
}

/// Which arguments are channels, as rules of users look at them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Channels {
    #[default]
    None,
    First,
    All,
    /// All are patterns, which must be allowed as such.
    Patterns,
}

/// Which arguments of a command are secret. Whoever shows requests to others than those who have sent them asks for this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secrets {
    None,
    /// All from this index on.
    From(usize),
    /// The two behind each option AUTH of HELLO.
    Hello,
    /// Of the pairs from this index on, the values of directives that are secret.
    Directives(usize),
    /// What stands behind MIGRATE's options AUTH and AUTH2.
    Migrate,
    /// The arguments of the command that stands at this index, where it is one that names passwords.
    Inner(usize),
}

/// That a command is there only for those who know nothing newer.
#[derive(Clone, Copy, Debug)]
pub struct Deprecated {
    /// The Redis version that had something better.
    pub since: &'static str,
    /// What to use instead.
    pub replaced_by: &'static str,
}

impl<R: Copy> Row<R> {
    pub const fn new(spec: Spec, run: R) -> Row<R> {
        let (tips, deprecated, is_for_the_system) = (&[], None, false);
        let (secrets, channels, is_two_words) = (Secrets::None, Channels::None, false);
        Row { spec, run, subcommands: &[], secrets, tips, deprecated, is_for_the_system, channels, is_two_words }
    }

    /// A container; `run` answers where no subcommand is named right.
    pub const fn container(spec: Spec, run: R, subcommands: &'static [Row<R>]) -> Row<R> {
        Row { subcommands, ..Row::new(spec, run) }
    }

    /// The same with arguments that are secret.
    pub const fn hiding(mut self, secrets: Secrets) -> Row<R> {
        self.secrets = secrets;
        self
    }

    pub const fn tips(mut self, tips: &'static [&'static str]) -> Row<R> {
        self.tips = tips;
        self
    }

    pub const fn deprecated(mut self, since: &'static str, replaced_by: &'static str) -> Row<R> {
        self.deprecated = Some(Deprecated { since, replaced_by });
        self
    }

    /// The same with arguments that are channels.
    pub const fn on_channels(mut self, channels: Channels) -> Row<R> {
        self.channels = channels;
        self
    }

    /// The same row, without its subcommands, run in another way.
    pub const fn run_by<S>(&self, run: S) -> Row<S> {
        Row {
            spec: self.spec,
            run,
            subcommands: &[],
            secrets: self.secrets,
            tips: self.tips,
            deprecated: self.deprecated,
            is_for_the_system: self.is_for_the_system,
            channels: self.channels,
            is_two_words: self.is_two_words,
        }
    }

    pub const fn of_two_words(mut self) -> Row<R> {
        self.is_two_words = true;
        self
    }

    pub const fn for_the_system(mut self) -> Row<R> {
        self.is_for_the_system = true;
        self
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Lower case; a subcommand's own name only.
    pub name: &'static str,
    /// Number of arguments, the name included (and the container's); at least so many where negative.
    pub arity: i32,
    /// Bits of [`flag`].
    pub flags: u32,
    pub keys: Keys,
    pub group: Group,
    /// The Redis version that brought it, or EmberDB's own.
    pub since: &'static str,
    pub complexity: &'static str,
    pub summary: &'static str,
    /// The arguments in the notation of [`super::syntax`].
    pub syntax: &'static str,
}

/// What a command does, as `COMMAND INFO` names it.
pub mod flag {
    pub const WRITE: u32 = 1 << 0;
    pub const READ: u32 = 1 << 1;
    /// May need memory: refused when there is none.
    pub const DENY_OOM: u32 = 1 << 2;
    pub const ADMIN: u32 = 1 << 3;
    pub const PUBSUB: u32 = 1 << 4;
    pub const NO_SCRIPT: u32 = 1 << 5;
    pub const LOADING: u32 = 1 << 6;
    pub const STALE: u32 = 1 << 7;
    /// O(1) or O(log n).
    pub const FAST: u32 = 1 << 8;
    /// Allowed before AUTH.
    pub const NO_AUTH: u32 = 1 << 9;
    /// Keys cannot be told from positions alone.
    pub const MOVABLE_KEYS: u32 = 1 << 10;
    pub const NO_MULTI: u32 = 1 << 11;
    /// Does not use its keys: TTL, EXISTS, OBJECT.
    pub const NO_TOUCH: u32 = 1 << 12;
    /// Asks about its keys, or for how long they live: no use that renews a life under a sliding policy, though one to eviction.
    pub const NO_RENEWAL: u32 = 1 << 30;
    pub const SKIP_MONITOR: u32 = 1 << 13;
    pub const ALLOW_BUSY: u32 = 1 << 14;
    /// May wait for a key.
    pub const BLOCKING: u32 = 1 << 15;
    /// A write that reads keys, too: hits and misses are counted, as where Redis says `lookupKeyRead`.
    pub const COUNTED: u32 = 1 << 16;
    /// That a key is missing is no event: OBJECT.
    pub const NO_MISS_EVENT: u32 = 1 << 17;
    /// Uses its keys whatever the client says: TOUCH.
    pub const ALWAYS_TOUCH: u32 = 1 << 18;
    pub const SKIP_SLOWLOG: u32 = 1 << 19;
    /// No write, but others see what it does: PUBLISH.
    pub const MAY_REPLICATE: u32 = 1 << 20;
    /// Allowed while messages of a subscription may come (RESP2).
    pub const SUBSCRIBED: u32 = 1 << 21;
    /// Only for those whom `enable-debug-command` allows it.
    pub const PROTECTED: u32 = 1 << 22;

    /// Says itself what deadline its key has, and asks whether that may be none.
    pub const OWN_DEADLINE: u32 = 1 << 23;

    /// Runs between MULTI and EXEC although memory is short, when nothing may be queued.
    pub const ENDS_MULTI: u32 = 1 << 24;
    /// Tells whoever asks whether the server is well that it cannot write to disk.
    pub const TELLS_HEALTH: u32 = 1 << 25;
    /// May name no keys at all, which is no mistake.
    pub const NO_MANDATORY_KEYS: u32 = 1 << 26;

    /// Not while a replica loads beside its old data, which is never so here: only told.
    pub const NO_ASYNC_LOADING: u32 = 1 << 27;

    /// Takes a key that moves between nodes of a cluster: only told.
    pub const ASKING: u32 = 1 << 29;

    /// What it needs the script or function says that it calls.
    pub const BY_CALLEE: u32 = 1 << 28;

    /// No command has it: who is asked about every command requires it.
    pub const NOTHING: u32 = 1 << 31;

    /// The names in `COMMAND INFO`, in the order of Redis.
    pub const NAMES: &[(u32, &str)] = &[
        (WRITE, "write"),
        (READ, "readonly"),
        (DENY_OOM, "denyoom"),
        (ADMIN, "admin"),
        (PUBSUB, "pubsub"),
        (NO_SCRIPT, "noscript"),
        (BLOCKING, "blocking"),
        (LOADING, "loading"),
        (STALE, "stale"),
        (SKIP_MONITOR, "skip_monitor"),
        (SKIP_SLOWLOG, "skip_slowlog"),
        (ASKING, "asking"),
        (FAST, "fast"),
        (NO_AUTH, "no_auth"),
        (NO_MANDATORY_KEYS, "no_mandatory_keys"),
        (NO_ASYNC_LOADING, "no_async_loading"),
        (NO_MULTI, "no_multi"),
        (MOVABLE_KEYS, "movablekeys"),
        (ALLOW_BUSY, "allow_busy"),
    ];
}

/// What clients and proxies are told for their own use: how far a reply can be relied on; where a command goes to in a
/// cluster (`request_policy`), and what the replies of several nodes come to (`response_policy`).
pub mod tip {
    pub const NONDETERMINISTIC_OUTPUT: &str = "nondeterministic_output";
    pub const NONDETERMINISTIC_OUTPUT_ORDER: &str = "nondeterministic_output_order";
    pub const ASK_ALL_NODES: &str = "request_policy:all_nodes";
    pub const ASK_ALL_SHARDS: &str = "request_policy:all_shards";
    pub const ASK_MULTI_SHARD: &str = "request_policy:multi_shard";
    pub const ASK_SPECIAL: &str = "request_policy:special";
    pub const ONE_SUCCEEDED: &str = "response_policy:one_succeeded";
    pub const ALL_SUCCEEDED: &str = "response_policy:all_succeeded";
    pub const AGG_LOGICAL_AND: &str = "response_policy:agg_logical_and";
    pub const AGG_MIN: &str = "response_policy:agg_min";
    pub const AGG_SUM: &str = "response_policy:agg_sum";
    pub const REPLY_SPECIAL: &str = "response_policy:special";
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    String,
    Generic,
    Connection,
    Server,
    PubSub,
    Scripting,
    Transactions,
    List,
    Set,
    Hash,
    SortedSet,
    Stream,
    Bitmap,
    HyperLogLog,
    Geo,
    Cluster,
    Module,
}

/// Which argument of a command with one key names the element that it looks for. A wrong guess costs a little time:
/// the element is only asked for ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sought {
    Nothing,
    Second,
    Last,
}

impl Sought {
    /// For [`crate::keyspace::Lookup`].
    #[inline]
    pub fn element(self, request: Request) -> Option<u64> {
        match self {
            Sought::Nothing => None,
            _ if request.len() < 3 => None,
            Sought::Second => Some(element_hash(request.arg(2))),
            Sought::Last => Some(element_hash(request.arg(request.len() - 1))),
        }
    }
}

impl Group {
    #[inline]
    pub fn sought(self) -> Sought {
        match self {
            Group::Set | Group::Hash => Sought::Second,
            // `ZADD key score member`, `ZRANK key member`.
            Group::SortedSet => Sought::Last,
            _ => Sought::Nothing,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Group::String => "string",
            Group::Generic => "generic",
            Group::Connection => "connection",
            Group::Server => "server",
            Group::PubSub => "pubsub",
            Group::Scripting => "scripting",
            Group::Transactions => "transactions",
            Group::List => "list",
            Group::Set => "set",
            Group::Hash => "hash",
            Group::SortedSet => "sorted-set",
            Group::Stream => "stream",
            Group::Bitmap => "bitmap",
            Group::HyperLogLog => "hyperloglog",
            Group::Geo => "geo",
            Group::Cluster => "cluster",
            Group::Module => "module",
        }
    }
}

/// Where a command's keys stand among its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// Index of the first key; 0 where there is none.
    pub first: u8,
    /// Index of the last key, or counted from the end where negative.
    pub last: i8,
    pub step: u8,
    /// Index of the argument that says how many keys there are; 0 where none does.
    pub count: u8,
    pub apart: Apart,
}

/// Keys that are none of the run, or that have to be looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apart {
    None,
    /// It is the first argument, before the keys' number.
    First,
    /// It stands behind STORE or STOREDIST, the last of them, if one is there.
    BehindStore,
    /// All of them stand behind the word STREAMS, and as many ids behind them; the word may stand from `first` on.
    Streams,
    /// It stands behind SORT's option STORE, the last of them, if one is there.
    BehindSortStore,
    /// MIGRATE's: all behind the word KEYS, in whose place stands an empty one otherwise.
    Migrate,
    /// The third argument is the name of a group of keys, for which rules of users hold as for a key. It is no key, and on no
    /// shard more than on others.
    GroupName,
    /// The same, and the name of a stream behind it, unless that is NONE.
    GroupAndStream,
}

/// Where the name of a group of keys stands.
const GROUP_NAME: usize = 3;

/// No key is behind these words before this index.
const STORE_START: usize = 5;

impl Apart {
    fn index(self, request: Request) -> Option<usize> {
        match self {
            Apart::None | Apart::Streams | Apart::Migrate | Apart::GroupName => None,
            Apart::GroupAndStream => Some(GROUP_NAME + 1).filter(|at| request.len() > *at && !request.is(*at, "none")),
            Apart::First => Some(1),
            Apart::BehindStore => {
                let (mut found, mut index) = (None, STORE_START);
                while index + 1 < request.len() {
                    if request.is(index, "store") || request.is(index, "storedist") {
                        index += 1;
                        found = Some(index);
                    }
                    index += 1;
                }
                found
            }
            Apart::BehindSortStore => SortOptions::of(request).store,
        }
    }
}

/// What SORT's options say of keys.
#[derive(Default)]
struct SortOptions {
    /// Index of the key to store in.
    store: Option<usize>,
    /// BY or GET has the elements in the names of keys.
    has_patterns: bool,
    /// The first of BY with such a name and of GET, if nothing before it is wrong.
    pattern: Option<SortPattern>,
}

/// The options of SORT that name keys which nobody knows beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortPattern {
    By,
    Get,
}

impl SortOptions {
    fn of(request: Request) -> SortOptions {
        let (mut options, mut index, mut is_wrong) = (SortOptions::default(), 2, false);
        while let Some(argument) = request.get(index + 1) {
            if request.is(index, "store") {
                options.store = Some(index + 1);
                index += 1;
            } else if request.is(index, "by") || request.is(index, "get") {
                options.has_patterns |= argument.contains(&b'*');
                let pattern = match request.is(index, "get") {
                    true => Some(SortPattern::Get),
                    false => argument.contains(&b'*').then_some(SortPattern::By),
                };
                options.pattern = options.pattern.or(pattern.filter(|_| !is_wrong));
                index += 1;
            } else if request.is(index, "limit") {
                is_wrong |= (1..=2).any(|more| request.get(index + more).is_none_or(|n| parse_i64(n).is_none()));
                index += 2;
            }
            index += 1;
        }
        options
    }
}

impl Keys {
    pub const NONE: Keys = Keys { first: 0, last: 0, step: 0, count: 0, apart: Apart::None };
    pub const ONE: Keys = Keys { first: 1, last: 1, step: 1, count: 0, apart: Apart::None };
    pub const TWO: Keys = Keys { first: 1, last: 2, step: 1, count: 0, apart: Apart::None };
    pub const ALL: Keys = Keys { first: 1, last: -1, step: 1, count: 0, apart: Apart::None };
    /// key value key value ...; whether each key has its value is checked before a handler runs.
    pub const PAIRS: Keys = Keys { first: 1, last: -1, step: 2, count: 0, apart: Apart::None };
    /// numkeys key value key value ... and more; whether the number fits is left to the handler.
    pub const COUNTED_PAIRS: Keys = Keys { first: 2, last: -1, step: 2, count: 1, apart: Apart::None };
    /// numkeys key ... and more.
    pub const COUNTED: Keys = Keys { first: 2, last: -1, step: 1, count: 1, apart: Apart::None };
    /// destination numkeys key ... and more.
    pub const DESTINATION_AND_COUNTED: Keys = Keys { first: 3, last: -1, step: 1, count: 2, apart: Apart::First };
    /// key ... and more, among it perhaps STORE with another key.
    pub const ONE_AND_STORE: Keys = Keys { first: 1, last: 1, step: 1, count: 0, apart: Apart::BehindStore };
    /// The same for SORT.
    pub const SORT: Keys = Keys { first: 1, last: 1, step: 1, count: 0, apart: Apart::BehindSortStore };
    /// The same behind one argument.
    pub const COUNTED_LATER: Keys = Keys { first: 3, last: -1, step: 1, count: 2, apart: Apart::None };
    /// key ... and one argument.
    pub const ALL_BUT_LAST: Keys = Keys { first: 1, last: -2, step: 1, count: 0, apart: Apart::None };
    /// ... STREAMS key ... id ...
    pub const STREAMS: Keys = Keys { first: 1, last: -1, step: 1, count: 0, apart: Apart::Streams };
    /// GROUP group consumer ... STREAMS key ... id ...
    pub const GROUP_STREAMS: Keys = Keys { first: 4, ..Keys::STREAMS };
    /// All arguments behind the first.
    pub const FROM_SECOND: Keys = Keys { first: 2, last: -1, step: 1, count: 0, apart: Apart::None };
    /// One key, or KEYS key ...
    pub const MIGRATE: Keys = Keys { first: 3, last: 3, step: 1, count: 0, apart: Apart::Migrate };
    /// The name of a group of keys.
    pub const GROUP: Keys = Keys { apart: Apart::GroupName, ..Keys::NONE };
    /// The same, and a stream.
    pub const GROUP_AND_STREAM: Keys = Keys { apart: Apart::GroupAndStream, ..Keys::NONE };
    /// The same, and keys.
    pub const GROUP_AND_ALL: Keys = Keys { first: 4, last: -1, step: 1, count: 0, apart: Apart::GroupName };
    /// The one key behind two words.
    pub const THIRD: Keys = Keys { first: 3, last: 3, step: 1, count: 0, apart: Apart::None };
    /// The one key of a subcommand.
    pub const SECOND: Keys = Keys { first: 2, last: 2, step: 1, count: 0, apart: Apart::None };

    /// Whether each key has what belongs to it.
    pub fn are_complete(self, request: Request) -> bool {
        self.step < 2 || self.count > 0 || (request.len() - self.first()).is_multiple_of(self.step())
    }

    /// What is no key, and rules of users look at as if it were one.
    pub fn ruled_beside(self, request: Request) -> Option<usize> {
        let has_group = matches!(self.apart, Apart::GroupName | Apart::GroupAndStream);
        (has_group && request.len() > GROUP_NAME).then_some(GROUP_NAME)
    }

    /// Whether options name further keys, which nobody knows before the command runs.
    pub fn name_others(self, request: Request) -> bool {
        self.apart == Apart::BehindSortStore && SortOptions::of(request).has_patterns
    }

    /// Which option names keys that only somebody may use who may read all of them.
    pub fn sort_pattern(self, request: Request) -> Option<SortPattern> {
        match self.apart {
            Apart::BehindSortStore => SortOptions::of(request).pattern,
            _ => None,
        }
    }

    pub fn first(self) -> usize {
        self.first.into()
    }

    pub fn step(self) -> usize {
        self.step.max(1).into()
    }

    /// The number that an argument gives.
    fn counted(self, request: Request) -> Option<usize> {
        request.get(self.count.into()).and_then(parse_i64).and_then(|count| count.try_into().ok())
    }

    /// Whether there are as many keys as an argument says, at least one.
    pub fn are_counted_right(self, request: Request) -> bool {
        let places = request.len().saturating_sub(self.first()) / self.step();
        self.count == 0 || self.counted(request).is_some_and(|count| (1..=places).contains(&count))
    }

    /// Whether an argument says that there are more keys than there can be: no command does anything then.
    pub fn are_too_few(self, request: Request) -> bool {
        let places = request.len().saturating_sub(self.first()) / self.step();
        self.count > 0 && self.counted(request).is_some_and(|count| count > places)
    }

    /// The indexes that COMMAND GETKEYS tells: what looks like a key by Redis's key specifications, which do not know the
    /// options before and behind it.
    pub fn told(self, request: Request) -> Vec<usize> {
        let behind = |word: &str, from: usize| {
            let at = (from..request.len()).find(|index| request.is(*index, word));
            at.map(|at| at + 1).filter(|index| *index < request.len())
        };
        match self.apart {
            Apart::Streams => {
                let first = behind("streams", self.first()).unwrap_or(request.len());
                (first..first + (request.len() - first) / 2).collect()
            }
            Apart::BehindStore => {
                let stores = ["store", "storedist"].into_iter().filter_map(|word| behind(word, STORE_START));
                std::iter::once(self.first()).chain(stores).collect()
            }
            // SORT_RO has the option STORE not.
            Apart::BehindSortStore if request.is(0, "sort_ro") => vec![self.first()],
            _ => self.indexes(request).collect(),
        }
    }

    /// The indexes of the keys in a request.
    pub fn indexes(self, request: Request) -> impl Iterator<Item = usize> + Clone + use<> {
        let end = if self.first == 0 {
            0
        } else if self.last < 0 {
            (request.len() as i64 + i64::from(self.last) + 1).max(0) as usize
        } else {
            (self.last as usize + 1).min(request.len())
        };
        let count = if self.count == 0 { usize::MAX } else { self.counted(request).unwrap_or(0) };
        let places = match self.apart {
            Apart::Streams => stream_keys(request),
            Apart::Migrate => migrated_keys(request),
            _ => self.first()..end,
        };
        let run = places.step_by(self.step()).take(count);
        let apart = self.apart.index(request);
        let (before, behind) = if self.apart == Apart::First { (apart, None) } else { (None, apart) };
        before.into_iter().chain(run).chain(behind)
    }
}

/// The keys of MIGRATE; none where one is named in both places, which it refuses. A password may be the word KEYS.
fn migrated_keys(request: Request) -> Range<usize> {
    let mut at = 6;
    while at < request.len() {
        if request.is(at, "keys") {
            let is_right = request.arg(3).is_empty();
            return if is_right { at + 1..request.len() } else { 0..0 };
        }
        at += match () {
            () if request.is(at, "auth") => 2,
            () if request.is(at, "auth2") => 3,
            () => 1,
        };
    }
    3..request.len().min(4)
}

/// The keys of XREAD and XREADGROUP; none where the options in front of them or their number are wrong. A group or a
/// consumer may be called STREAMS, too.
fn stream_keys(request: Request) -> Range<usize> {
    let mut at = 1;
    while at < request.len() {
        at += match () {
            () if request.is(at, "noack") => 1,
            () if request.is(at, "block") || request.is(at, "count") => 2,
            () if request.is(at, "group") => 3,
            () if request.is(at, "streams") => {
                let behind = request.len() - at - 1;
                return if behind.is_multiple_of(2) { at + 1..at + 1 + behind / 2 } else { 0..0 };
            }
            () => break,
        };
    }
    0..0
}

impl Spec {
    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// What looking up its keys leaves behind, for a client with NO-TOUCH or without. This decides it, wherever the command
    /// runs: here, on another shard, in a coordinator's jobs or while it waits. A handler says at most that it looks at
    /// some key for another purpose than its row has ([`super::Ctx::reading`], [`super::Ctx::writing`]), or once more.
    pub fn touch(&self, no_touch: bool) -> Touch {
        let touch = Touch::new(
            !(self.has(flag::NO_TOUCH) || no_touch && !self.has(flag::ALWAYS_TOUCH)),
            !self.has(flag::WRITE) || self.has(flag::COUNTED),
            !self.has(flag::NO_MISS_EVENT),
        );
        if self.has(flag::NO_RENEWAL) { touch.without_renewal() } else { touch }
    }

    /// Whether a request of this many arguments is complete.
    #[inline]
    pub fn accepts(&self, args: usize) -> bool {
        let least = self.arity.unsigned_abs() as usize;
        args == least || self.arity < 0 && args > least
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::OwnedRequest;

    #[test]
    fn patterns_of_sort_name_other_keys() {
        let names_others = |line: &str| {
            let request = OwnedRequest::from_args(line.split(' ').map(str::as_bytes));
            Keys::SORT.name_others(request.as_request())
        };
        assert!(names_others("sort a by w_*"));
        assert!(names_others("sort a desc limit 1 2 get # Get *->f"));
        assert!(!names_others("sort a by nosort get # store *"));
        assert!(!names_others("sort a limit by w_* get"));
        assert!(!names_others("sort *"));
    }
}
