//! How a value is parsed, bounded and printed. Error texts are those of Redis 7, because clients and tests know
//! them; what they leave out (the unit, the nearest valid word) is in [`Kind::hint`], which a start-up error adds.

use super::nearest::nearest;

pub(super) const MIB: u64 = 1 << 20;
/// Upper bounds: arguments are found by 32-bit positions in a request.
pub(super) const GIB: u64 = 1 << 30;
/// Redis keeps what has one of these bounds in a signed integer of that size.
pub(super) const I32_MAX: u64 = i32::MAX as u64;
pub(super) const I64_MAX: u64 = i64::MAX as u64;

/// What a directive takes.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A whole number, both bounds included.
    Integer {
        min: u64,
        max: u64,
        unit: &'static str,
    },
    /// A whole number that may be negative, both bounds included.
    Signed {
        min: i64,
        max: i64,
    },
    /// A size in bytes with an optional unit (`512mb`), both bounds included.
    Memory {
        min: u64,
        max: u64,
    },
    /// Such a size, or a part (`75%`).
    Amount,
    /// Permissions of a file.
    Octal,
    YesNo,
    Choice(&'static [&'static str]),
    Text,
    /// A text that nobody is shown who has not asked for it.
    Secret,
    /// One without a folder.
    FileName,
    /// Pairs of seconds and changes; each line adds some.
    SavePoints,
    /// A list of addresses to listen on.
    Addresses,
    OutputLimits,
    NotifyFlags,
    /// A prefix and its expiry policy; each line adds one.
    ExpiryPolicy,
    /// A server and its port.
    Primary,
    /// A list of OpenSSL's names of ciphers, of which there are these.
    Ciphers(&'static [&'static str]),
    /// One or more of these words.
    Words(&'static [&'static str]),
    /// So many numbers, or any number of them where it is 0; both bounds included.
    Numbers {
        count: usize,
        min: i32,
        max: i32,
    },
    /// Something that is not there: `value` says so and is the only one accepted, `why` answers others that Redis would
    /// take, which are `like` this.
    Only {
        value: &'static str,
        like: &'static Kind,
        why: &'static str,
    },
}

/// Why a value is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    #[error("argument couldn't be parsed into an integer")]
    NotAnInteger,
    #[error("argument couldn't be parsed as an octal number")]
    NotOctal,
    #[error("argument must be a memory value")]
    NotAMemorySize,
    #[error("argument must be a memory or percent value")]
    NotAnAmount,
    #[error("percentage argument must be less or equal to 100")]
    MoreThanAll,
    #[error("argument must be between {min} and {max} inclusive")]
    OutOfBounds { min: i128, max: i128 },
    #[error("argument must be 'yes' or 'no'")]
    NotYesNo,
    #[error("argument(s) must be one of the following: {}", .0.join(", "))]
    NotAChoice(&'static [&'static str]),
    #[error("Invalid save parameters")]
    SavePoint,
    #[error("shutdown options SAVE and NOSAVE can't be used simultaneously")]
    SaveAndNoSave,
    #[error("dbfilename can't be a path, just a filename")]
    NotAFileName,
    #[error("wrong number of arguments")]
    WrongCount,
    #[error("Too many bind addresses specified.")]
    TooManyAddresses,
    #[error("an address to bind to must not be empty")]
    EmptyAddress,
    #[error("Wrong number of arguments in buffer limit configuration.")]
    LimitCount,
    #[error("Invalid client class specified in buffer limit configuration.")]
    LimitClass,
    #[error("Error in hard, soft or soft_seconds setting in buffer limit configuration.")]
    LimitNumber,
    #[error("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")]
    NotifyLetter,
    #[error("argument must be three numbers of at most 255 with dots between them")]
    NotAVersion,
    #[error("argument couldn't be parsed into a number")]
    NotANumber,
    #[error("Invalid latency-tracking-info-percentiles parameters")]
    Percentiles,
    #[error("latency-tracking-info-percentiles parameters should sit between [0.0,100.0]")]
    PercentileBounds,
    #[error("versions before TLSv1.2 are not available: use TLSv1.2, TLSv1.3 or both")]
    OldProtocol,
    #[error("'{name}' is no cipher that there is here: use {}, with : between them", .known.join(", "))]
    NotACipher { name: String, known: &'static [&'static str] },
    #[error("that leaves no cipher: use {}, with : between them", .known.join(", "))]
    NoCipher { known: &'static [&'static str] },
    #[error("Invalid master port")]
    PrimaryPort,
    #[error("{0}")]
    Policy(super::policy::PolicyError),
    #[error("{0}")]
    Unavailable(&'static str),
}

impl Kind {
    /// Whether the value is a list of words rather than one word.
    pub(super) fn is_list(&self) -> bool {
        matches!(
            self,
            Kind::Addresses
                | Kind::OutputLimits
                | Kind::ExpiryPolicy
                | Kind::Primary
                | Kind::SavePoints
                | Kind::Words(_)
                | Kind::Numbers { .. }
        )
    }

    /// Whether its values are passwords, or the like.
    pub(super) fn is_secret(&self) -> bool {
        match self {
            Kind::Secret => true,
            Kind::Only { like, .. } => like.is_secret(),
            _ => false,
        }
    }

    /// What is valid, in a few words for a table; empty where everything is.
    pub fn describe(&self) -> String {
        match self {
            Kind::Signed { min, max } => format!("{min} to {max}"),
            Kind::Integer { min, max, unit: "" } => format!("{min} to {max}"),
            Kind::Integer { min, max, unit } => format!("{min} to {max} {unit}"),
            Kind::Memory { min, max } => format!("{} to {}", format_memory(*min), format_memory(*max)),
            Kind::Amount => "bytes, or 1% to 100%".into(),
            Kind::Octal => "0 to 777, octal".into(),
            Kind::YesNo => "yes, no".into(),
            Kind::Choice(names) => names.join(", "),
            Kind::Text
            | Kind::Secret
            | Kind::FileName
            | Kind::SavePoints
            | Kind::Addresses
            | Kind::OutputLimits
            | Kind::NotifyFlags
            | Kind::Primary
            | Kind::ExpiryPolicy => String::new(),
            Kind::Words(names) | Kind::Ciphers(names) => format!("of {}", names.join(", ")),
            Kind::Numbers { min, max, .. } => format!("each {min} to {max}"),
            Kind::Only { value: "", .. } => "only \"\"".into(),
            Kind::Only { value, .. } => format!("only {value}"),
        }
    }

    /// What to say to somebody whose value was refused, beyond the reason itself.
    pub(super) fn hint(&self, args: &[String]) -> Option<String> {
        if args.iter().any(|arg| arg.starts_with('#')) {
            return Some("A comment needs a line of its own.".into());
        }
        if args.len() != 1 && !self.is_list() && !matches!(self, Kind::Only { .. }) {
            return Some("It takes exactly one value; quote a value that contains spaces.".into());
        }
        let meant = |names: &[&'static str]| {
            let near = nearest(args.first()?, names.iter().copied())?;
            Some(format!("Did you mean '{near}'?"))
        };
        match self {
            Kind::Integer { .. } | Kind::Signed { .. } | Kind::Octal | Kind::Numbers { .. } => {
                Some(format!("Valid: {}.", self.describe()))
            }
            Kind::Memory { .. } => {
                Some(format!("Valid: {}; units are b, k, kb, m, mb, g, gb (1k = 1000, 1kb = 1024).", self.describe()))
            }
            Kind::Amount => {
                Some("Valid: bytes with units b, k, kb, m, mb, g, gb (1k = 1000, 1kb = 1024), or 1% to 100%.".into())
            }
            Kind::YesNo => meant(&["yes", "no"]),
            Kind::Choice(names) | Kind::Words(names) => meant(names),
            Kind::Primary => Some("Valid: <host> <port>, or no one.".into()),
            Kind::OutputLimits => Some(
                "Valid: <class> <hard limit> <soft limit> <soft seconds>, once for each class; classes are normal, \
                 replica, pubsub."
                    .into(),
            ),
            Kind::Text
            | Kind::Secret
            | Kind::FileName
            | Kind::SavePoints
            | Kind::Addresses
            | Kind::NotifyFlags
            | Kind::ExpiryPolicy
            | Kind::Ciphers(_)
            | Kind::Only { .. } => None,
        }
    }

    fn number(&self, args: &[&str]) -> Result<u64, ValueError> {
        let text = one(args)?;
        match *self {
            Kind::Memory { min, max } => {
                let bytes = parse_memory(text).ok_or(ValueError::NotAMemorySize)?;
                bounded(bytes, min, max)
            }
            Kind::Integer { min, max, .. } => match parse_integer(text) {
                Some(number) => u64::try_from(number)
                    .map_err(|_| ValueError::OutOfBounds { min: min.into(), max: max.into() })
                    .and_then(|number| bounded(number, min, max)),
                None => Err(ValueError::NotAnInteger),
            },
            _ => Err(ValueError::NotAnInteger),
        }
    }

    fn choice(names: &[&'static str], word: &str) -> Option<&'static str> {
        names.iter().find(|name| name.eq_ignore_ascii_case(word)).copied()
    }

    /// A value that is kept as it is shown.
    pub(super) fn keep(&self, args: &[&str]) -> Result<String, ValueError> {
        match *self {
            Kind::Integer { .. } | Kind::Memory { .. } => self.number(args).map(|number| number.to_string()),
            Kind::Signed { .. } => self.signed(args).map(|number| number.to_string()),
            Kind::YesNo => yes_no(one(args)?).map(|yes| yes.show()),
            Kind::Choice(names) => {
                Kind::choice(names, one(args)?).map(str::to_string).ok_or(ValueError::NotAChoice(names))
            }
            Kind::Words(names) => {
                let words: Option<Vec<_>> = args.iter().map(|word| Kind::choice(names, word)).collect();
                words
                    .filter(|words| !words.is_empty())
                    .map(|words| words.join(" "))
                    .ok_or(ValueError::NotAChoice(names))
            }
            Kind::Numbers { count, min, max } => {
                if count > 0 && args.len() != count {
                    return Err(ValueError::WrongCount);
                }
                for arg in args {
                    let number: f64 = arg.parse().map_err(|_| ValueError::NotANumber)?;
                    if !(f64::from(min)..=f64::from(max)).contains(&number) {
                        return Err(ValueError::OutOfBounds { min: min.into(), max: max.into() });
                    }
                }
                Ok(args.join(" "))
            }
            Kind::Only { value, like, why } => {
                // All words of `save 3600 1`, so that it hears what is missing rather than how to count.
                let asked = args.join(" ");
                let kept = like.keep(&[asked.trim()])?;
                if kept.eq_ignore_ascii_case(value) { Ok(kept) } else { Err(ValueError::Unavailable(why)) }
            }
            Kind::Text
            | Kind::Secret
            | Kind::FileName
            | Kind::SavePoints
            | Kind::Amount
            | Kind::Octal
            | Kind::Addresses
            | Kind::OutputLimits
            | Kind::NotifyFlags
            | Kind::Ciphers(_)
            | Kind::Primary
            | Kind::ExpiryPolicy => one(args).map(str::to_string),
        }
    }

    /// How that stands behind the name in a configuration file.
    pub(super) fn kept_line(&self, kept: &str) -> String {
        match self {
            Kind::Memory { .. } => parse_memory(kept).map_or_else(|| kept.to_string(), format_memory),
            Kind::Text | Kind::Secret => quote(kept),
            _ if kept.is_empty() => quote(kept),
            _ => kept.to_string(),
        }
    }

    fn signed(&self, args: &[&str]) -> Result<i64, ValueError> {
        let Kind::Signed { min, max } = *self else { return Err(ValueError::NotAnInteger) };
        let number: i64 = one(args)?.parse().map_err(|_| ValueError::NotAnInteger)?;
        let bounds = ValueError::OutOfBounds { min: min.into(), max: max.into() };
        Some(number).filter(|number| (min..=max).contains(number)).ok_or(bounds)
    }
}

/// A type of value a field of `Config` can have.
pub(super) trait Setting {
    /// Replaces the value, unless it is refused.
    fn read(&mut self, kind: &Kind, args: &[&str]) -> Result<(), ValueError>;
    /// As `CONFIG GET` prints it.
    fn show(&self) -> String;
    /// As it stands behind the name in a configuration file.
    fn line(&self, _kind: &Kind) -> String {
        self.show()
    }
}

macro_rules! number_settings {
    ($($number:ty),*) => {$(
        impl Setting for $number {
            fn read(&mut self, kind: &Kind, args: &[&str]) -> Result<(), ValueError> {
                let number = kind.number(args)?;
                *self = <$number>::try_from(number).map_err(|_| ValueError::OutOfBounds {
                    min: 0,
                    max: <$number>::MAX as i128,
                })?;
                Ok(())
            }

            fn show(&self) -> String {
                self.to_string()
            }

            fn line(&self, kind: &Kind) -> String {
                match kind {
                    Kind::Memory { .. } => format_memory(*self as u64),
                    _ => self.show(),
                }
            }
        }
    )*};
}
number_settings!(u16, u32, u64, usize);

macro_rules! signed_settings {
    ($($number:ty),*) => {$(
        impl Setting for $number {
            fn read(&mut self, kind: &Kind, args: &[&str]) -> Result<(), ValueError> {
                *self = <$number>::try_from(kind.signed(args)?).map_err(|_| ValueError::OutOfBounds {
                    min: <$number>::MIN.into(),
                    max: <$number>::MAX.into(),
                })?;
                Ok(())
            }

            fn show(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
signed_settings!(i32, i64);

impl Setting for bool {
    fn read(&mut self, _kind: &Kind, args: &[&str]) -> Result<(), ValueError> {
        *self = yes_no(one(args)?)?;
        Ok(())
    }

    fn show(&self) -> String {
        if *self { "yes" } else { "no" }.to_string()
    }
}

impl Setting for String {
    fn read(&mut self, kind: &Kind, args: &[&str]) -> Result<(), ValueError> {
        let text = one(args)?;
        if matches!(kind, Kind::FileName) && (text.is_empty() || text.contains('/')) {
            return Err(ValueError::NotAFileName);
        }
        *self = text.to_string();
        Ok(())
    }

    fn show(&self) -> String {
        self.clone()
    }

    fn line(&self, _kind: &Kind) -> String {
        quote(self)
    }
}

impl Setting for Vec<String> {
    fn read(&mut self, _kind: &Kind, args: &[&str]) -> Result<(), ValueError> {
        // The bound of Redis.
        const ADDRESSES_MAX: usize = 16;
        if args.len() > ADDRESSES_MAX {
            return Err(ValueError::TooManyAddresses);
        }
        if args.iter().any(|address| address.is_empty()) {
            return Err(ValueError::EmptyAddress);
        }
        *self = args.iter().map(|address| address.to_string()).collect();
        Ok(())
    }

    fn show(&self) -> String {
        self.join(" ")
    }

    fn line(&self, _kind: &Kind) -> String {
        if self.is_empty() {
            return quote("");
        }
        self.join(" ")
    }
}

/// Digits and an optional unit. A number beyond 64 bits saturates: it is a size all the same, and out of bounds.
pub fn parse_memory(text: &str) -> Option<u64> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    if digits.is_empty() {
        return None;
    }
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    let number: u64 = digits.parse().unwrap_or(u64::MAX);
    Some(number.saturating_mul(factor))
}

/// A size in the largest binary unit that divides it.
pub(super) fn format_memory(bytes: u64) -> String {
    [("gb", 30), ("mb", 20), ("kb", 10)]
        .into_iter()
        .find(|(_, shift)| bytes != 0 && bytes.trailing_zeros() >= *shift)
        .map_or_else(|| bytes.to_string(), |(unit, shift)| format!("{}{unit}", bytes >> shift))
}

/// A value in the quotes of redis.conf.
pub fn quote(text: &str) -> String {
    let mut quoted = Vec::with_capacity(text.len() + 2);
    quoted.push(b'"');
    for byte in text.bytes() {
        if byte.is_ascii() {
            escape(byte, &mut quoted);
        } else {
            quoted.push(byte);
        }
    }
    quoted.push(b'"');
    String::from_utf8(quoted).expect("what is not ASCII is as it was")
}

/// Appends a byte as it stands between double quotes, in redis.conf and in what redis-cli shows.
pub fn escape(byte: u8, out: &mut Vec<u8>) {
    match byte {
        b'\\' | b'"' => out.extend([b'\\', byte]),
        b'\n' => out.extend(b"\\n"),
        b'\r' => out.extend(b"\\r"),
        b'\t' => out.extend(b"\\t"),
        0x07 => out.extend(b"\\a"),
        0x08 => out.extend(b"\\b"),
        b' '..=b'~' => out.push(byte),
        _ => {
            const DIGITS: &[u8] = b"0123456789abcdef";
            let (high, low) = (DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]);
            out.extend([b'\\', b'x', high, low]);
        }
    }
}

/// As strict as Redis: no plus sign, no leading zero, no blank.
fn parse_integer(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let canonical = text == "0" || digits.starts_with(|first: char| matches!(first, '1'..='9'));
    canonical.then(|| text.parse().ok()).flatten()
}

pub(super) fn bounded(number: u64, min: u64, max: u64) -> Result<u64, ValueError> {
    if (min..=max).contains(&number) {
        Ok(number)
    } else {
        Err(ValueError::OutOfBounds { min: min.into(), max: max.into() })
    }
}

fn yes_no(word: &str) -> Result<bool, ValueError> {
    match word.to_ascii_lowercase().as_str() {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(ValueError::NotYesNo),
    }
}

pub(super) fn one<'a>(args: &[&'a str]) -> Result<&'a str, ValueError> {
    match args {
        [only] => Ok(only),
        _ => Err(ValueError::WrongCount),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("12", 12),
            ("12b", 12),
            ("1k", 1000),
            ("1kb", 1024),
            ("1M", 1_000_000),
            ("1Mb", 1 << 20),
            ("2g", 2_000_000_000),
            ("2GB", 2 << 30),
            ("99999999999999999999", u64::MAX),
            ("99999999999gb", u64::MAX),
        ] {
            assert_eq!(parse_memory(text), Some(bytes), "{text}");
        }
        for text in ["", "kb", "-1", "1.5mb", "1 mb", "2zb", "1mbb", "+1", "1é"] {
            assert_eq!(parse_memory(text), None, "{text}");
        }
    }

    #[test]
    fn memory_sizes_print_back_to_themselves() {
        for bytes in [0, 1, 1000, 1024, 1536, 1 << 20, 3 << 30, (1 << 30) + 1, u64::MAX] {
            assert_eq!(parse_memory(&format_memory(bytes)), Some(bytes), "{bytes}");
        }
        assert_eq!(format_memory(512 << 20), "512mb");
    }

    #[test]
    fn integers_are_as_strict_as_in_redis() {
        assert_eq!(parse_integer("0"), Some(0));
        assert_eq!(parse_integer("-5"), Some(-5));
        assert_eq!(parse_integer("10"), Some(10));
        for text in ["", "-", "-0", "+1", "01", " 1", "1 ", "1x", "99999999999999999999", "١"] {
            assert_eq!(parse_integer(text), None, "{text}");
        }
    }

    #[test]
    fn bounds_hold_at_both_ends() {
        let kind = Kind::Integer { min: 1, max: 500, unit: "" };
        let mut hz = 10u32;
        assert!(hz.read(&kind, &["1"]).is_ok());
        assert!(hz.read(&kind, &["500"]).is_ok());
        for bad in ["0", "501", "-1"] {
            assert_eq!(hz.read(&kind, &[bad]), Err(ValueError::OutOfBounds { min: 1, max: 500 }));
        }
        assert_eq!(hz.read(&kind, &[]), Err(ValueError::WrongCount));
        assert_eq!(hz, 500);
    }

    #[test]
    fn a_number_too_big_for_its_field_is_an_error() {
        let kind = Kind::Integer { min: 0, max: u64::MAX, unit: "" };
        let mut port = 1u16;
        assert_eq!(port.read(&kind, &["65536"]), Err(ValueError::OutOfBounds { min: 0, max: 65535 }));
    }

    #[test]
    fn only_what_is_there_is_accepted() {
        let kind = Kind::Only { value: "no", like: &Kind::YesNo, why: "not yet" };
        assert_eq!(kind.keep(&["NO"]), Ok("no".to_string()));
        assert_eq!(kind.keep(&["yes"]), Err(ValueError::Unavailable("not yet")));
        assert_eq!(kind.keep(&["maybe"]), Err(ValueError::NotYesNo));
        let kind = Kind::Only { value: "0", like: &Kind::Memory { min: 0, max: 1 << 40 }, why: "not yet" };
        assert_eq!(kind.keep(&["0mb"]), Ok("0".to_string()));
        assert_eq!(kind.keep(&["1mb"]), Err(ValueError::Unavailable("not yet")));
        let kind = Kind::Only { value: "", like: &Kind::Text, why: "not yet" };
        assert_eq!((kind.keep(&[]), kind.keep(&[""])), (Ok(String::new()), Ok(String::new())));
        assert_eq!(kind.keep(&["3600", "1"]), Err(ValueError::Unavailable("not yet")));
    }

    #[test]
    fn words_and_numbers_are_kept_as_they_are_shown() {
        let words = Kind::Words(&["default", "now"]);
        assert_eq!(words.keep(&["NOW", "default"]), Ok("now default".to_string()));
        assert!(words.keep(&[]).is_err() && words.keep(&["now", "save"]).is_err());
        let numbers = Kind::Numbers { count: 2, min: 0, max: 100 };
        assert_eq!(numbers.keep(&["0", "99.9"]), Ok("0 99.9".to_string()));
        assert_eq!(numbers.keep(&["0"]), Err(ValueError::WrongCount));
        assert_eq!(numbers.keep(&["0", "x"]), Err(ValueError::NotANumber));
        for outside in ["-1", "100.5", "nan", "inf"] {
            assert_eq!(numbers.keep(&["0", outside]), Err(ValueError::OutOfBounds { min: 0, max: 100 }));
        }
        let memory = Kind::Memory { min: 0, max: 1 << 40 };
        assert_eq!(memory.keep(&["64mb"]), Ok("67108864".to_string()));
        assert_eq!(memory.kept_line("67108864"), "64mb");
    }

    #[test]
    fn quotes() {
        assert_eq!(quote("plain"), "\"plain\"");
        assert_eq!(quote("a \"b\" \\ \n\x01é"), "\"a \\\"b\\\" \\\\ \\n\\x01é\"");
    }
}
