//! The version of Redis that clients are told.

use super::values::{Kind, Setting, ValueError, one};
use std::fmt;

/// Three numbers of a byte each, as `REDIS_VERSION_NUM` packs them for scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RedisVersion([u8; 3]);

impl RedisVersion {
    /// The highest version of which everything is here that clients switch on by its number: CLIENT SETINFO (7.2), client-side
    /// caching and deadlines of fields (7.4). Of 8.0 there are no vector sets and none of the modules that come with it.
    pub const DEFAULT: RedisVersion = RedisVersion([7, 4, 0]);
    /// [`Self::DEFAULT`], as the table of directives has it.
    pub(super) const DEFAULT_TEXT: &'static str = "7.4.0";

    pub const fn new(major: u8, minor: u8, patch: u8) -> RedisVersion {
        RedisVersion([major, minor, patch])
    }

    /// A byte for each part.
    pub fn number(self) -> i32 {
        self.0.into_iter().fold(0, |number, part| number << 8 | i32::from(part))
    }

    fn parse(text: &str) -> Option<RedisVersion> {
        let mut parts = text.split('.').map(|part| match part.as_bytes() {
            // One way to write a version, so that all places that tell it agree: no sign, no zeros in front.
            [b'0'] => Some(0),
            [b'1'..=b'9', ..] => part.parse().ok(),
            _ => None,
        });
        let version = RedisVersion([parts.next()??, parts.next()??, parts.next()??]);
        parts.next().is_none().then_some(version)
    }
}

impl fmt::Display for RedisVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

impl Setting for RedisVersion {
    fn read(&mut self, _kind: &Kind, args: &[&str]) -> Result<(), ValueError> {
        *self = RedisVersion::parse(one(args)?).ok_or(ValueError::NotAVersion)?;
        Ok(())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_three_numbers_of_a_byte() {
        for text in ["7.4.0", "0.0.0", "7.0.15", "255.255.255"] {
            assert_eq!(RedisVersion::parse(text).map(|version| version.to_string()).as_deref(), Some(text));
        }
        for text in
            ["", "7", "7.4", "7.4.0.1", "7.4.", "7.4.256", "7.4.-1", "7.4.+1", "07.4.0", "7.4.00", "v7.4.0", "7.4.0 "]
        {
            assert_eq!(RedisVersion::parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_told_where_nobody_says() {
        assert_eq!(RedisVersion::parse(RedisVersion::DEFAULT_TEXT), Some(RedisVersion::DEFAULT));
        assert_eq!(RedisVersion::DEFAULT.number(), 0x0007_0400);
    }
}
