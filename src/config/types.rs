//! Values with a shape of their own: choices, keyspace event flags, output buffer limits.

use std::fmt;
use std::ops::BitOr;
use std::str::FromStr;

use super::values::{Kind, Setting, ValueError, bounded, format_memory, one, parse_memory, quote};

/// A value that is one word of a fixed list.
pub(super) trait Choice: Sized + Copy + PartialEq + 'static {
    const NAMES: &'static [&'static str];
    const ALL: &'static [Self];

    fn from_name(name: &str) -> Option<Self> {
        let index = Self::NAMES.iter().position(|known| known.eq_ignore_ascii_case(name))?;
        Self::ALL.get(index).copied()
    }

    fn name(self) -> &'static str {
        let index = Self::ALL.iter().position(|known| *known == self);
        index.map_or("", |index| Self::NAMES[index])
    }
}

impl<T: Choice> Setting for T {
    fn read(&mut self, _kind: &Kind, args: &[&str]) -> Result<(), ValueError> {
        *self = T::from_name(one(args)?).ok_or(ValueError::NotAChoice(T::NAMES))?;
        Ok(())
    }

    fn show(&self) -> String {
        self.name().to_string()
    }
}

/// How much is logged, from all to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    Debug,
    Verbose,
    Notice,
    Warning,
    Nothing,
}

impl Choice for LogLevel {
    const NAMES: &'static [&'static str] = &["debug", "verbose", "notice", "warning", "nothing"];
    const ALL: &'static [LogLevel] =
        &[LogLevel::Debug, LogLevel::Verbose, LogLevel::Notice, LogLevel::Warning, LogLevel::Nothing];
}

/// Whether commands of one pipeline on different shards may take effect in either order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipelineOrder {
    Relaxed,
    Strict,
}

impl Choice for PipelineOrder {
    const NAMES: &'static [&'static str] = &["relaxed", "strict"];
    const ALL: &'static [PipelineOrder] = &[PipelineOrder::Relaxed, PipelineOrder::Strict];
}

/// What replicas are taken to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CompatVersion {
    /// What they say, and else what Redis 7.0 knows.
    #[default]
    Auto,
    V7_0,
    /// Deadlines of fields, too.
    V7_4,
}

impl Choice for CompatVersion {
    const NAMES: &'static [&'static str] = &["auto", "7.0", "7.4"];
    const ALL: &'static [CompatVersion] = &[CompatVersion::Auto, CompatVersion::V7_0, CompatVersion::V7_4];
}

/// When the log is brought to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fsync {
    /// Before a change is acknowledged.
    Always,
    EverySecond,
    /// When the system does.
    No,
}

impl Choice for Fsync {
    const NAMES: &'static [&'static str] = &["always", "everysec", "no"];
    const ALL: &'static [Fsync] = &[Fsync::Always, Fsync::EverySecond, Fsync::No];
}

/// Whom a script keeps waiting that runs for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptScope {
    /// Those who need what it holds.
    Keys,
    /// Everybody, as in Redis.
    Server,
}

impl Choice for ScriptScope {
    const NAMES: &'static [&'static str] = &["keys", "server"];
    const ALL: &'static [ScriptScope] = &[ScriptScope::Keys, ScriptScope::Server];
}

/// What becomes of a script that touches keys which it has not declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UndeclaredKeys {
    /// With several shards it holds everything.
    Allow,
    /// The command that does it is refused.
    Deny,
}

impl Choice for UndeclaredKeys {
    const NAMES: &'static [&'static str] = &["allow", "deny"];
    const ALL: &'static [UndeclaredKeys] = &[UndeclaredKeys::Allow, UndeclaredKeys::Deny];
}

/// Which channels a new user may use (`acl-pubsub-default`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelsOfUsers {
    All,
    None,
}

impl Choice for ChannelsOfUsers {
    const NAMES: &'static [&'static str] = &["allchannels", "resetchannels"];
    const ALL: &'static [ChannelsOfUsers] = &[ChannelsOfUsers::All, ChannelsOfUsers::None];
}

/// Permissions of a file, as chmod(2) takes them; zero leaves them to the umask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FileMode(pub u32);

impl Setting for FileMode {
    fn read(&mut self, _kind: &Kind, args: &[&str]) -> Result<(), ValueError> {
        let digits = one(args)?;
        let octal = !digits.is_empty() && digits.bytes().all(|digit| matches!(digit, b'0'..=b'7'));
        let mode = octal.then(|| u32::from_str_radix(digits, 8).unwrap_or(u32::MAX)).ok_or(ValueError::NotOctal)?;
        self.0 = bounded(u64::from(mode), 0, 0o777)? as u32;
        Ok(())
    }

    fn show(&self) -> String {
        format!("{:o}", self.0)
    }
}

/// How connections and shards are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// The ring, where the kernel has what it takes; glommio, where it has less; epoll, where there is no io_uring.
    Auto,
    Ring,
    Glommio,
    Epoll,
}

impl Choice for Network {
    const NAMES: &'static [&'static str] = &["auto", "ring", "glommio", "epoll"];
    const ALL: &'static [Network] = &[Network::Auto, Network::Ring, Network::Glommio, Network::Epoll];
}

/// Whom the process tells that it is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supervised {
    Upstart,
    Systemd,
    /// Whoever the environment says has started it.
    Auto,
    No,
}

impl Choice for Supervised {
    const NAMES: &'static [&'static str] = &["upstart", "systemd", "auto", "no"];
    const ALL: &'static [Supervised] = &[Supervised::Upstart, Supervised::Systemd, Supervised::Auto, Supervised::No];
}

/// Who has to wait who keeps sending wrong passwords.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthSlowdown {
    No,
    /// Those who are not on this machine.
    Remote,
    Yes,
}

impl AuthSlowdown {
    /// Whether wrong passwords count that come from this machine, or from another one.
    pub fn concerns(self, is_local: bool) -> bool {
        match self {
            AuthSlowdown::No => false,
            AuthSlowdown::Remote => !is_local,
            AuthSlowdown::Yes => true,
        }
    }
}

impl Choice for AuthSlowdown {
    const NAMES: &'static [&'static str] = &["no", "remote", "yes"];
    const ALL: &'static [AuthSlowdown] = &[AuthSlowdown::No, AuthSlowdown::Remote, AuthSlowdown::Yes];
}

/// Whether each shard's thread stays on one core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinShards {
    /// Where there is a core for each of several shards.
    Auto,
    Yes,
    No,
}

impl Choice for PinShards {
    const NAMES: &'static [&'static str] = &["auto", "yes", "no"];
    const ALL: &'static [PinShards] = &[PinShards::Auto, PinShards::Yes, PinShards::No];
}

/// Who may use `DEBUG`, or change protected directives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DebugCommand {
    #[default]
    No,
    /// Connections from this machine.
    Local,
    Yes,
}

impl DebugCommand {
    /// Whether a connection, from this machine or not, may.
    pub fn allows(self, local: bool) -> bool {
        self == DebugCommand::Yes || (self == DebugCommand::Local && local)
    }
}

impl Choice for DebugCommand {
    const NAMES: &'static [&'static str] = &["no", "local", "yes"];
    const ALL: &'static [DebugCommand] = &[DebugCommand::No, DebugCommand::Local, DebugCommand::Yes];
}

/// Where a replica loads a snapshot that its primary sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DisklessLoad {
    /// It is written to the disk first.
    #[default]
    Disabled,
    /// As it comes, where there are no keys.
    OnEmptyDb,
    /// As it comes, beside the data that are there.
    SwapDb,
}

impl Choice for DisklessLoad {
    const NAMES: &'static [&'static str] = &["disabled", "on-empty-db", "swapdb"];
    const ALL: &'static [DisklessLoad] = &[DisklessLoad::Disabled, DisklessLoad::OnEmptyDb, DisklessLoad::SwapDb];
}

/// Which keyspace events are published; bits as in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub struct NotifyFlags(u32);

impl NotifyFlags {
    pub const NONE: NotifyFlags = NotifyFlags(0);
    /// `K`: events on `__keyspace@db__:key`.
    pub const KEYSPACE: NotifyFlags = NotifyFlags(1 << 0);
    /// `E`: events on `__keyevent@db__:event`.
    pub const KEYEVENT: NotifyFlags = NotifyFlags(1 << 1);
    /// `g`: DEL, EXPIRE, RENAME and whatever else concerns no type.
    pub const GENERIC: NotifyFlags = NotifyFlags(1 << 2);
    /// `$`
    pub const STRING: NotifyFlags = NotifyFlags(1 << 3);
    /// `l`
    pub const LIST: NotifyFlags = NotifyFlags(1 << 4);
    /// `s`
    pub const SET: NotifyFlags = NotifyFlags(1 << 5);
    /// `h`
    pub const HASH: NotifyFlags = NotifyFlags(1 << 6);
    /// `z`
    pub const ZSET: NotifyFlags = NotifyFlags(1 << 7);
    /// `x`
    pub const EXPIRED: NotifyFlags = NotifyFlags(1 << 8);
    /// `e`
    pub const EVICTED: NotifyFlags = NotifyFlags(1 << 9);
    /// `t`
    pub const STREAM: NotifyFlags = NotifyFlags(1 << 10);
    /// `m`: a read of a key that is not there. Not part of `A`.
    pub const KEY_MISS: NotifyFlags = NotifyFlags(1 << 11);
    /// `d`: events of modules.
    pub const MODULE: NotifyFlags = NotifyFlags(1 << 13);
    /// `n`: a key that was not there before. Not part of `A`.
    pub const NEW: NotifyFlags = NotifyFlags(1 << 14);
    /// `o`: a value was put in the place of another. Not part of `A`.
    pub const OVERWRITTEN: NotifyFlags = NotifyFlags(1 << 15);
    /// `c`: and the other was of another type. Not part of `A`.
    pub const TYPE_CHANGED: NotifyFlags = NotifyFlags(1 << 16);
    /// `S`: the elements that events are about, on `__subkeyspace@db__:key`.
    pub const SUBKEYSPACE: NotifyFlags = NotifyFlags(1 << 19);
    /// `T`: on `__subkeyevent@db__:event`.
    pub const SUBKEYEVENT: NotifyFlags = NotifyFlags(1 << 20);
    /// `I`: on `__subkeyspaceitem@db__:key`, a line break and the element.
    pub const SUBKEYSPACEITEM: NotifyFlags = NotifyFlags(1 << 21);
    /// `V`: on `__subkeyspaceevent@db__:event|key`.
    pub const SUBKEYSPACEEVENT: NotifyFlags = NotifyFlags(1 << 22);
    /// `S`, `T`, `I`, `V`: whoever has any of these is told of elements.
    pub const SUBKEYS: NotifyFlags = NotifyFlags(0b1111 << 19);
    /// `A`: `g$lshzxetd`.
    pub const ALL: NotifyFlags = NotifyFlags(0b0010_0111_1111_1100);

    /// The letters of `A`, in the order in which Redis prints them, and then `n`.
    const CLASSES: [(char, NotifyFlags); 11] = [
        ('g', NotifyFlags::GENERIC),
        ('$', NotifyFlags::STRING),
        ('l', NotifyFlags::LIST),
        ('s', NotifyFlags::SET),
        ('h', NotifyFlags::HASH),
        ('z', NotifyFlags::ZSET),
        ('x', NotifyFlags::EXPIRED),
        ('e', NotifyFlags::EVICTED),
        ('t', NotifyFlags::STREAM),
        ('d', NotifyFlags::MODULE),
        ('n', NotifyFlags::NEW),
    ];
    /// What stands behind them, `A` or not.
    const OTHERS: [(char, NotifyFlags); 9] = [
        ('K', NotifyFlags::KEYSPACE),
        ('E', NotifyFlags::KEYEVENT),
        ('m', NotifyFlags::KEY_MISS),
        ('o', NotifyFlags::OVERWRITTEN),
        ('c', NotifyFlags::TYPE_CHANGED),
        ('S', NotifyFlags::SUBKEYSPACE),
        ('T', NotifyFlags::SUBKEYEVENT),
        ('I', NotifyFlags::SUBKEYSPACEITEM),
        ('V', NotifyFlags::SUBKEYSPACEEVENT),
    ];

    /// Whether all of `flags` are set.
    pub const fn contains(self, flags: NotifyFlags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Whether any of `flags` is set.
    #[inline]
    pub const fn has_any_of(self, flags: NotifyFlags) -> bool {
        self.0 & flags.0 != 0
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub const fn bits(self) -> u32 {
        self.0
    }

    /// All flags, also those that `Display` keeps to itself; for the configuration file.
    fn to_letters(self) -> String {
        let hidden = self.contains(NotifyFlags::ALL) && self.contains(NotifyFlags::NEW);
        format!("{self}{}", if hidden { "n" } else { "" })
    }
}

impl BitOr for NotifyFlags {
    type Output = NotifyFlags;

    fn bitor(self, other: NotifyFlags) -> NotifyFlags {
        NotifyFlags(self.0 | other.0)
    }
}

impl FromStr for NotifyFlags {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<NotifyFlags, ValueError> {
        let known = NotifyFlags::CLASSES.iter().chain(&NotifyFlags::OTHERS);
        text.chars().try_fold(NotifyFlags::NONE, |flags, letter| {
            if letter == 'A' {
                return Ok(flags | NotifyFlags::ALL);
            }
            match known.clone().find(|(name, _)| *name == letter) {
                Some((_, flag)) => Ok(flags | *flag),
                None => Err(ValueError::NotifyLetter),
            }
        })
    }
}

/// Prints what Redis 7 prints, which after `A` says nothing of `n`.
impl fmt::Display for NotifyFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        let classes: &[(char, NotifyFlags)] =
            if self.contains(NotifyFlags::ALL) { &[('A', NotifyFlags::ALL)] } else { &NotifyFlags::CLASSES };
        for (letter, flag) in classes.iter().chain(&NotifyFlags::OTHERS) {
            if self.contains(*flag) {
                f.write_char(*letter)?;
            }
        }
        Ok(())
    }
}

impl Setting for NotifyFlags {
    fn read(&mut self, _kind: &Kind, args: &[&str]) -> Result<(), ValueError> {
        *self = one(args)?.parse()?;
        Ok(())
    }

    fn show(&self) -> String {
        self.to_string()
    }

    fn line(&self, _kind: &Kind) -> String {
        quote(&self.to_letters())
    }
}

/// When a client that does not read its replies is disconnected: at once above `hard_bytes`, or after it stood
/// above `soft_bytes` for `soft_s`. 0: no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct OutputLimit {
    pub hard_bytes: u64,
    pub soft_bytes: u64,
    pub soft_s: u64,
}

/// One limit for each class of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct OutputLimits {
    pub normal: OutputLimit,
    pub replica: OutputLimit,
    pub pubsub: OutputLimit,
}

impl OutputLimits {
    /// Reads groups of class, hard, soft, seconds. A class that is not named keeps what it has.
    fn read(&mut self, args: &[&str]) -> Result<(), ValueError> {
        let (groups, []) = args.as_chunks::<4>() else {
            return Err(ValueError::LimitCount);
        };
        for [class, hard, soft, seconds] in groups {
            let limit = match class.to_ascii_lowercase().as_str() {
                "normal" => &mut self.normal,
                "slave" | "replica" => &mut self.replica,
                "pubsub" => &mut self.pubsub,
                _ => return Err(ValueError::LimitClass),
            };
            let seconds: u32 = seconds.parse().map_err(|_| ValueError::LimitNumber)?;
            *limit = OutputLimit {
                hard_bytes: parse_memory(hard).ok_or(ValueError::LimitNumber)?,
                soft_bytes: parse_memory(soft).ok_or(ValueError::LimitNumber)?,
                soft_s: u64::from(seconds),
            };
        }
        Ok(())
    }

    /// As [`OutputLimits`]'s `Display`, with sizes in the largest unit that divides them.
    fn to_words(self) -> String {
        self.print(format_memory)
    }

    fn print(self, size: impl Fn(u64) -> String) -> String {
        // Redis 7 still prints the old name of replicas.
        [("normal", self.normal), ("slave", self.replica), ("pubsub", self.pubsub)]
            .map(|(class, limit)| {
                format!("{class} {} {} {}", size(limit.hard_bytes), size(limit.soft_bytes), limit.soft_s)
            })
            .join(" ")
    }
}

impl fmt::Display for OutputLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.print(|bytes| bytes.to_string()))
    }
}

impl Setting for OutputLimits {
    fn read(&mut self, _kind: &Kind, args: &[&str]) -> Result<(), ValueError> {
        let mut changed = *self;
        changed.read(args)?;
        *self = changed;
        Ok(())
    }

    fn show(&self) -> String {
        self.to_string()
    }

    fn line(&self, _kind: &Kind) -> String {
        self.to_words()
    }
}

/// Percentiles of a distribution, 0 to 100 each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Percentiles(pub Vec<f64>);

impl Setting for Percentiles {
    fn read(&mut self, _kind: &Kind, args: &[&str]) -> Result<(), ValueError> {
        let mut percentiles = Vec::new();
        for arg in args.iter().filter(|arg| !arg.is_empty()) {
            let percentile: f64 = arg.parse().map_err(|_| ValueError::Percentiles)?;
            if !(0.0..=100.0).contains(&percentile) {
                return Err(ValueError::PercentileBounds);
            }
            percentiles.push(percentile);
        }
        *self = Percentiles(percentiles);
        Ok(())
    }

    fn show(&self) -> String {
        let shown: Vec<String> = self.0.iter().map(f64::to_string).collect();
        shown.join(" ")
    }

    fn line(&self, _kind: &Kind) -> String {
        if self.0.is_empty() { "\"\"".to_owned() } else { self.show() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_have_one_name_a_value() {
        fn check<T: Choice + std::fmt::Debug>() {
            assert_eq!(T::NAMES.len(), T::ALL.len());
            for (value, name) in T::ALL.iter().zip(T::NAMES) {
                assert_eq!(value.name(), *name);
                assert_eq!(T::from_name(&name.to_uppercase()), Some(*value));
            }
            assert_eq!(T::from_name(""), None);
        }
        check::<LogLevel>();
        check::<PipelineOrder>();
        check::<CompatVersion>();
        check::<ScriptScope>();
        check::<UndeclaredKeys>();
        check::<ChannelsOfUsers>();
        check::<Network>();
        check::<PinShards>();
        check::<Supervised>();
        check::<AuthSlowdown>();
        check::<DebugCommand>();
        check::<DisklessLoad>();
    }

    /// What redis-server 7.0.15 answers to CONFIG GET after CONFIG SET.
    #[test]
    fn notify_flags_print_as_in_redis() {
        for (set, get) in [
            ("KEA", "AKE"),
            ("KEg", "gKE"),
            ("K", "K"),
            ("$lg", "g$l"),
            ("KEAmn", "AKEm"),
            ("KEg$lshzxetdmn", "AKEm"),
            ("VITShKE", "hKESTIV"),
            ("xE", "xE"),
            ("EK", "KE"),
            ("", ""),
            ("KEg$lshzxet", "g$lshzxetKE"),
            ("mA", "Am"),
            ("K$", "$K"),
            ("dm", "dm"),
            ("gnKEm", "gnKEm"),
            // Not in 7.0.
            ("AcoKE", "AKEoc"),
            ("oE", "Eo"),
        ] {
            let flags: NotifyFlags = set.parse().unwrap();
            assert_eq!(flags.to_string(), get, "{set}");
            assert_eq!(flags.to_letters().parse(), Ok(flags), "{set}");
        }
        assert_eq!("KEZ".parse::<NotifyFlags>(), Err(ValueError::NotifyLetter));
        assert_eq!("g n".parse::<NotifyFlags>(), Err(ValueError::NotifyLetter));
    }

    #[test]
    fn all_is_every_class_but_new() {
        let all = NotifyFlags::CLASSES
            .iter()
            .filter(|(letter, _)| *letter != 'n')
            .fold(NotifyFlags::NONE, |flags, (_, flag)| flags | *flag);
        assert_eq!(all, NotifyFlags::ALL);
        assert!(!all.has_any_of(NotifyFlags::KEY_MISS | NotifyFlags::OVERWRITTEN | NotifyFlags::TYPE_CHANGED));
        assert!(all.contains(NotifyFlags::EXPIRED | NotifyFlags::STREAM));
    }

    #[test]
    fn bad_output_limits_change_the_error_not_the_value() {
        let bad = |args: &[&str]| OutputLimits::default().read(args).unwrap_err();
        assert_eq!(bad(&["foo", "1", "2", "3"]), ValueError::LimitClass);
        assert_eq!(bad(&["master", "1", "2", "3"]), ValueError::LimitClass);
        assert_eq!(bad(&["normal", "1", "2"]), ValueError::LimitCount);
        assert_eq!(bad(&["normal", "1zz", "0", "0"]), ValueError::LimitNumber);
        assert_eq!(bad(&["normal", "1", "-2", "0"]), ValueError::LimitNumber);
        assert_eq!(bad(&["normal", "1", "2", "-3"]), ValueError::LimitNumber);
        assert_eq!(bad(&["normal", "1", "2", "3mb"]), ValueError::LimitNumber);
    }

    #[test]
    fn output_limits_keep_their_value_in_words() {
        let mut limits = OutputLimits::default();
        limits.read(&["slave", "256mb", "1000", "60", "normal", "3k", "1gb", "0"]).unwrap();
        let words = limits.to_words();
        assert_eq!(words, "normal 3000 1gb 0 slave 256mb 1000 60 pubsub 0 0 0");
        let mut again = OutputLimits::default();
        again.read(&words.split(' ').collect::<Vec<_>>()).unwrap();
        assert_eq!(again, limits);
    }
}
