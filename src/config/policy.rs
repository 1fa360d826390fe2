//! Expiry policies: what the operator says of the deadlines of keys with one prefix.

use super::duration::{DurationError, format_duration, parse_duration};
use std::sync::Arc;
use thiserror::Error;

/// No prefix is longer.
pub const PREFIX_BYTES_MAX: usize = 1024;
/// The whole, in hundredths of a percent.
const WHOLE: u32 = 10_000;

/// What holds for the keys with one prefix, unless a longer prefix has a policy of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Policy {
    /// How long a key lives that nobody gave a deadline; none: for ever.
    pub default_ms: Option<u64>,
    /// No deadline is further away.
    pub max_ms: Option<u64>,
    /// By how much the default may be shorter, in hundredths of a percent.
    pub jitter: u32,
    /// Use renews a key's life, in so much of it at its end, in hundredths of a percent.
    pub sliding: Option<u32>,
    /// What would leave a key without a deadline is refused.
    pub requires: bool,
    /// Its keys are never evicted.
    pub no_evict: bool,
    /// For how long GETFRESH shows what a string was that has died.
    pub stale_ms: Option<u64>,
    /// Where deaths are written.
    pub events: Option<Arc<DeathStream>>,
}

/// The stream to which deaths are written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DeathStream {
    pub key: Box<str>,
    pub with_value: bool,
    /// How many entries it keeps, about.
    pub max_len: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PolicyError {
    #[error("syntax error: {SYNTAX}")]
    Syntax,
    #[error("invalid duration '{text}': {error}")]
    Duration { text: String, error: DurationError },
    #[error("the default is longer than MAX")]
    LongerThanMax,
    #[error("invalid JITTER '{0}': it is a percentage from 0 to 100")]
    Jitter(String),
    #[error("invalid LAST '{0}': it is a percentage above 0, up to 100")]
    Last(String),
    #[error("{0} needs a duration, not NONE")]
    NeedsDuration(&'static str),
    #[error("MAXLEN must be greater than zero")]
    MaxLen,
    #[error("APPLY is for EXPIRY POLICY SET: while the file is read there are no keys")]
    Apply,
    #[error("a prefix must be text in UTF-8, of no more than {PREFIX_BYTES_MAX} bytes")]
    Prefix,
}

const SYNTAX: &str = "<prefix> <duration>|NONE [MAX <duration>] [JITTER <percent>] [SLIDING [LAST <percent>]] [REQUIRE] \
                      [NOEVICT] [STALE <duration>] [EVENTS <stream> [WITHVALUE] [MAXLEN <n>]] [APPLY]";

/// Words that are read from the first to the last.
struct Words<'a, W>(W, Option<&'a str>);

impl<'a, W: Iterator<Item = &'a str>> Words<'a, W> {
    fn next(&mut self) -> Option<&'a str> {
        self.1.take().or_else(|| self.0.next())
    }

    fn argument(&mut self) -> Result<&'a str, PolicyError> {
        self.next().ok_or(PolicyError::Syntax)
    }

    fn duration(&mut self) -> Result<u64, PolicyError> {
        duration(self.argument()?)
    }

    /// Whether the next word is this one, which is taken then.
    fn take(&mut self, name: &str) -> bool {
        let word = self.next();
        let is_it = word.is_some_and(|word| word.eq_ignore_ascii_case(name));
        if !is_it {
            self.1 = word;
        }
        is_it
    }
}

fn duration(text: &str) -> Result<u64, PolicyError> {
    parse_duration(text.as_bytes()).map_err(|error| PolicyError::Duration { text: shown(text), error })
}

/// The beginning of what a client sent, for an error.
fn shown(text: &str) -> String {
    text.chars().take(128).collect()
}

/// Hundredths of a percent.
fn parse_percent(text: &str) -> Option<u32> {
    let number = text.strip_suffix('%').unwrap_or(text);
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let percent = number.parse::<f64>().ok().filter(|percent| is_number && (0.0..=100.0).contains(percent));
    percent.map(|percent| (percent * 100.0).round() as u32)
}

/// The part of a life in which use renews it.
fn parse_last(text: &str) -> Result<u32, PolicyError> {
    parse_percent(text).filter(|last| *last > 0).ok_or_else(|| PolicyError::Last(shown(text)))
}

fn format_percent(hundredths: u32) -> String {
    (f64::from(hundredths) / 100.0).to_string()
}

impl Policy {
    /// Reads what stands behind the prefix, and whether the policy is to be applied to keys that are there already.
    pub fn parse<'a>(words: impl Iterator<Item = &'a str>) -> Result<(Policy, bool), PolicyError> {
        let mut words = Words(words, None);
        let life = words.argument()?;
        let is_none = life.eq_ignore_ascii_case("none");
        let mut policy = Policy { default_ms: if is_none { None } else { Some(duration(life)?) }, ..Policy::default() };
        let (mut has_jitter, mut applies) = (false, false);
        let again = |is_set: bool| if is_set { Err(PolicyError::Syntax) } else { Ok(()) };
        while let Some(word) = words.next() {
            match word.to_ascii_lowercase().as_str() {
                "max" => {
                    again(policy.max_ms.is_some())?;
                    policy.max_ms = Some(words.duration()?);
                }
                "jitter" => {
                    again(std::mem::replace(&mut has_jitter, true))?;
                    let text = words.argument()?;
                    policy.jitter = parse_percent(text).ok_or_else(|| PolicyError::Jitter(shown(text)))?;
                }
                "sliding" => {
                    again(policy.sliding.is_some())?;
                    policy.sliding = Some(if words.take("last") { parse_last(words.argument()?)? } else { WHOLE });
                }
                "require" => again(std::mem::replace(&mut policy.requires, true))?,
                "stale" => {
                    again(policy.stale_ms.is_some())?;
                    policy.stale_ms = Some(words.duration()?);
                }
                "noevict" => again(std::mem::replace(&mut policy.no_evict, true))?,
                "apply" => again(std::mem::replace(&mut applies, true))?,
                "events" => {
                    again(policy.events.is_some())?;
                    policy.events = Some(DeathStream::parse(&mut words)?.into());
                }
                _ => return Err(PolicyError::Syntax),
            }
        }
        policy.check(has_jitter)?;
        Ok((policy, applies))
    }

    fn check(&self, has_jitter: bool) -> Result<(), PolicyError> {
        match (self.default_ms, self.max_ms) {
            (Some(default_ms), Some(max_ms)) if default_ms > max_ms => Err(PolicyError::LongerThanMax),
            (None, _) if has_jitter => Err(PolicyError::NeedsDuration("JITTER")),
            (None, _) if self.is_sliding() => Err(PolicyError::NeedsDuration("SLIDING")),
            _ => Ok(()),
        }
    }

    /// The words from which it is read.
    pub fn words(&self) -> Vec<String> {
        let mut words = vec![self.default_ms.map_or("NONE".to_owned(), format_duration)];
        if let Some(max_ms) = self.max_ms {
            words.extend(["MAX".to_owned(), format_duration(max_ms)]);
        }
        if self.jitter > 0 {
            words.extend(["JITTER".to_owned(), format_percent(self.jitter)]);
        }
        words.extend(self.sliding.map(|_| "SLIDING".to_owned()));
        let last = self.sliding.filter(|last| *last < WHOLE);
        words.extend(last.into_iter().flat_map(|last| ["LAST".to_owned(), format_percent(last)]));
        words.extend(self.requires.then(|| "REQUIRE".to_owned()));
        words.extend(self.no_evict.then(|| "NOEVICT".to_owned()));
        if let Some(stale_ms) = self.stale_ms {
            words.extend(["STALE".to_owned(), format_duration(stale_ms)]);
        }
        if let Some(events) = &self.events {
            words.extend(["EVENTS".to_owned(), events.key.clone().into()]);
            words.extend(events.with_value.then(|| "WITHVALUE".to_owned()));
            words.extend(events.max_len.into_iter().flat_map(|max_len| ["MAXLEN".to_owned(), max_len.to_string()]));
        }
        words
    }

    /// Whether use renews lives.
    #[inline]
    pub fn is_sliding(&self) -> bool {
        self.sliding.is_some()
    }

    /// Whether use renews a key that should have lived for `life_ms` from its last renewal on, and has `left_ms` still.
    #[inline]
    pub fn renews(&self, life_ms: u64, left_ms: u64) -> bool {
        match self.sliding {
            None => false,
            Some(WHOLE) => true,
            Some(last) => u128::from(left_ms) * u128::from(WHOLE) <= u128::from(life_ms) * u128::from(last),
        }
    }

    /// How long a key lives that nobody gave a deadline. A key's share of the jitter follows from its hash: keys that are
    /// stored together do not die together, and the life of one key is always the same, so that renewing it is no gamble.
    #[inline]
    pub fn life_ms(&self, hash: u64) -> Option<u64> {
        let default_ms = self.default_ms?;
        Some(if self.jitter == 0 { default_ms } else { self.spread(default_ms, hash) })
    }

    fn spread(&self, default_ms: u64, hash: u64) -> u64 {
        // The hash decides on the key's shard and block, too: its bits are mixed before they are used again.
        let share = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32;
        let spread_ms = u128::from(default_ms) * u128::from(self.jitter) / u128::from(WHOLE);
        let less_ms = ((spread_ms + 1) * u128::from(share)) >> 32;
        default_ms.saturating_sub(less_ms as u64).max(1)
    }
}

impl DeathStream {
    fn parse<'a, W: Iterator<Item = &'a str>>(words: &mut Words<'a, W>) -> Result<DeathStream, PolicyError> {
        let mut stream = DeathStream { key: words.argument()?.into(), with_value: false, max_len: None };
        loop {
            if !stream.with_value && words.take("withvalue") {
                stream.with_value = true;
            } else if stream.max_len.is_none() && words.take("maxlen") {
                let max_len = words.argument()?.parse().map_err(|_| PolicyError::Syntax)?;
                stream.max_len = Some(max_len).filter(|max_len| *max_len > 0);
                stream.max_len.ok_or(PolicyError::MaxLen)?;
            } else {
                return Ok(stream);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Policy, PolicyError> {
        Policy::parse(text.split(' ')).map(|(policy, _)| policy)
    }

    #[test]
    fn policies_read_as_they_are_written() {
        for text in [
            "NONE",
            "30m",
            "NONE MAX 1d",
            "1h MAX 1d JITTER 12.5 SLIDING REQUIRE",
            "1h SLIDING LAST 12.5 REQUIRE",
            "NONE NOEVICT",
            "1h MAX 2h REQUIRE NOEVICT STALE 5m",
            "NONE STALE 500ms EVENTS deaths",
            "1h REQUIRE NOEVICT EVENTS deaths",
            "500ms EVENTS deaths",
            "1h REQUIRE EVENTS deaths WITHVALUE MAXLEN 1000",
        ] {
            assert_eq!(parse(text).unwrap().words().join(" "), text);
            assert_eq!(parse(&text.to_lowercase()).unwrap(), parse(text).unwrap());
        }
        assert_eq!(parse("60s jitter 10%").unwrap(), parse("1m JITTER 10").unwrap());
        assert_eq!(parse("1h sliding last 100%").unwrap(), parse("1h SLIDING").unwrap());
        assert_eq!(parse("1h events maxlen maxlen 5").unwrap().events.unwrap().max_len, Some(5));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in [
            "1h LAST 5",
            "1h SLIDING LAST",
            "1h SLIDING LAST 5 LAST 5",
            "1h SLIDING LAST 5 SLIDING",
            "1h NOEVICT NOEVICT",
            "1h STALE",
            "1h STALE 5m STALE 5m",
        ] {
            assert_eq!(parse(text), Err(PolicyError::Syntax), "{text}");
        }
        for text in ["1h SLIDING LAST 0", "1h SLIDING LAST 0.001", "1h SLIDING LAST 101", "1h SLIDING LAST REQUIRE"] {
            assert!(matches!(parse(text), Err(PolicyError::Last(_))), "{text}");
        }
        for text in ["", "1h MAX", "1h SLIDING SLIDING", "1h JITTER", "1h foo", "1h EVENTS", "1h EVENTS s MAXLEN x"] {
            assert!(parse(text).is_err(), "{text}");
        }
        for text in ["0", "-1s", "1w", "inf", "nan", "99999999999999999999d"] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains("use a number with one of the units ms, s, m, h, d"), "{error}");
        }
        for text in ["1h JITTER -1", "1h JITTER 101", "1h JITTER nan", "1h JITTER 1e1", "1h JITTER %"] {
            assert!(matches!(parse(text), Err(PolicyError::Jitter(_))), "{text}");
        }
        assert_eq!(parse("2h MAX 1h"), Err(PolicyError::LongerThanMax));
        assert_eq!(parse("NONE SLIDING"), Err(PolicyError::NeedsDuration("SLIDING")));
        assert_eq!(parse("NONE JITTER 5"), Err(PolicyError::NeedsDuration("JITTER")));
        assert_eq!(parse("1h EVENTS s MAXLEN 0"), Err(PolicyError::MaxLen));
    }

    #[test]
    fn use_renews_in_the_last_part_of_a_life() {
        let last = parse("1h SLIDING LAST 25").unwrap();
        assert_eq!(
            [0, 250, 251, 1000, 2000].map(|left_ms| last.renews(1000, left_ms)),
            [true, true, false, false, false]
        );
        assert!(last.renews(u64::MAX, u64::MAX / 4) && !last.renews(u64::MAX, u64::MAX));
        assert!(parse("1h SLIDING").unwrap().renews(1000, u64::MAX) && !parse("1h").unwrap().renews(1000, 0));
    }

    #[test]
    fn jitter_shortens_lives_evenly() {
        let policy = parse("1000s JITTER 20").unwrap();
        let mut tenths = [0; 10];
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..10_000 {
            let life_ms = policy.life_ms(rng.u64(..)).unwrap();
            assert!((800_000..=1_000_000).contains(&life_ms));
            tenths[((life_ms - 800_000) / 20_001) as usize] += 1;
        }
        assert!(tenths.iter().all(|count| (850..1150).contains(count)), "{tenths:?}");
        assert!((0..1000).all(|hash| parse("1ms JITTER 100").unwrap().life_ms(hash) == Some(1)));
        assert_eq!(parse("7d").unwrap().life_ms(5), Some(7 * 24 * 3600 * 1000));
    }
}
