//! What is done where memory is short.

use super::types::Choice;
use super::values::{Kind, Setting, ValueError, format_memory, one, parse_memory};

/// An amount of memory: so many bytes, or a part of what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    Bytes(u64),
    Percent(u64),
}

impl Amount {
    /// In bytes, where there are so many in all.
    pub fn of(self, all: u64) -> u64 {
        match self {
            Amount::Bytes(bytes) => bytes,
            Amount::Percent(percent) => (u128::from(all) * u128::from(percent) / 100).try_into().unwrap_or(u64::MAX),
        }
    }
}

impl Default for Amount {
    fn default() -> Amount {
        Amount::Bytes(0)
    }
}

impl Setting for Amount {
    fn read(&mut self, kind: &Kind, args: &[&str]) -> Result<(), ValueError> {
        let Kind::Amount = kind else { return Err(ValueError::NotAnAmount) };
        let text = one(args)?;
        *self = match text.strip_suffix('%') {
            Some(digits) if !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit()) => {
                match digits.parse().map_err(|_| ValueError::NotAnAmount)? {
                    0 => Amount::Bytes(0),
                    percent @ 1..=100 => Amount::Percent(percent),
                    _ => return Err(ValueError::MoreThanAll),
                }
            }
            Some(_) => return Err(ValueError::NotAnAmount),
            None => Amount::Bytes(parse_memory(text).ok_or(ValueError::NotAnAmount)?),
        };
        Ok(())
    }

    fn show(&self) -> String {
        match self {
            Amount::Bytes(bytes) => bytes.to_string(),
            Amount::Percent(percent) => format!("{percent}%"),
        }
    }

    fn line(&self, _kind: &Kind) -> String {
        match self {
            Amount::Bytes(bytes) => format_memory(*bytes),
            Amount::Percent(_) => self.show(),
        }
    }
}

/// Which keys go where memory is short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MaxmemoryPolicy {
    VolatileLru,
    VolatileLfu,
    VolatileLrm,
    VolatileRandom,
    VolatileTtl,
    AllkeysLru,
    AllkeysLfu,
    AllkeysLrm,
    AllkeysRandom,
    #[default]
    NoEviction,
}

/// Which of them go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionOrder {
    /// Whose last use was the longest ago.
    Recency,
    /// Whose last change was the longest ago.
    Modified,
    /// Those that are used the least often.
    Frequency,
    Random,
    /// Those that die first.
    Deadline,
}

impl MaxmemoryPolicy {
    /// None where none go.
    pub fn order(self) -> Option<EvictionOrder> {
        Some(match self {
            MaxmemoryPolicy::VolatileLru | MaxmemoryPolicy::AllkeysLru => EvictionOrder::Recency,
            MaxmemoryPolicy::VolatileLrm | MaxmemoryPolicy::AllkeysLrm => EvictionOrder::Modified,
            MaxmemoryPolicy::VolatileLfu | MaxmemoryPolicy::AllkeysLfu => EvictionOrder::Frequency,
            MaxmemoryPolicy::VolatileRandom | MaxmemoryPolicy::AllkeysRandom => EvictionOrder::Random,
            MaxmemoryPolicy::VolatileTtl => EvictionOrder::Deadline,
            MaxmemoryPolicy::NoEviction => return None,
        })
    }

    /// Whether only keys with deadlines go.
    pub fn spares_immortal(self) -> bool {
        use MaxmemoryPolicy::*;
        matches!(self, VolatileLru | VolatileLfu | VolatileLrm | VolatileRandom | VolatileTtl)
    }

    /// As the configuration calls it.
    pub fn as_str(self) -> &'static str {
        self.name()
    }
}

impl Choice for MaxmemoryPolicy {
    const NAMES: &'static [&'static str] = &[
        "volatile-lru",
        "volatile-lfu",
        "volatile-lrm",
        "volatile-random",
        "volatile-ttl",
        "allkeys-lru",
        "allkeys-lfu",
        "allkeys-lrm",
        "allkeys-random",
        "noeviction",
    ];
    const ALL: &'static [MaxmemoryPolicy] = &[
        MaxmemoryPolicy::VolatileLru,
        MaxmemoryPolicy::VolatileLfu,
        MaxmemoryPolicy::VolatileLrm,
        MaxmemoryPolicy::VolatileRandom,
        MaxmemoryPolicy::VolatileTtl,
        MaxmemoryPolicy::AllkeysLru,
        MaxmemoryPolicy::AllkeysLfu,
        MaxmemoryPolicy::AllkeysLrm,
        MaxmemoryPolicy::AllkeysRandom,
        MaxmemoryPolicy::NoEviction,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_bytes_or_a_part() {
        let read = |text: &str| {
            let mut amount = Amount::default();
            amount.read(&Kind::Amount, &[text]).map(|()| amount)
        };
        assert_eq!(read("100mb"), Ok(Amount::Bytes(100 << 20)));
        assert_eq!(read("0"), Ok(Amount::Bytes(0)));
        assert_eq!(read("75%"), Ok(Amount::Percent(75)));
        assert_eq!(read("18446744073709551615"), Ok(Amount::Bytes(u64::MAX)));
        for text in ["", "%", "lots", "-1", "-1%", "+5%", "1.5%", "50 %"] {
            assert_eq!(read(text), Err(ValueError::NotAnAmount), "{text}");
        }
        assert_eq!(read("0%"), Ok(Amount::Bytes(0)));
        for text in ["101%", "4294967296%"] {
            assert_eq!(read(text), Err(ValueError::MoreThanAll), "{text}");
        }
        assert_eq!(Amount::Percent(75).of(1000), 750);
        assert_eq!(Amount::Percent(100).of(u64::MAX), u64::MAX);
        assert_eq!(Amount::Bytes(5).of(1000), 5);
    }

    #[test]
    fn each_policy_is_called_what_it_does() {
        for (name, policy) in MaxmemoryPolicy::NAMES.iter().zip(MaxmemoryPolicy::ALL) {
            assert_eq!(policy.spares_immortal(), name.starts_with("volatile"), "{name}");
            let end = match policy.order() {
                Some(EvictionOrder::Recency) => "-lru",
                Some(EvictionOrder::Modified) => "-lrm",
                Some(EvictionOrder::Frequency) => "-lfu",
                Some(EvictionOrder::Random) => "-random",
                Some(EvictionOrder::Deadline) => "-ttl",
                None => "noeviction",
            };
            assert!(name.ends_with(end), "{name}");
        }
    }
}
