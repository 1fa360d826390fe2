//! Whose file, or DUMP, it is, as its version says.

use super::kind;
use std::ops::RangeInclusive;

/// A number of a type may mean one thing here and another there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Redis,
    /// Valkey 9 counts versions by itself.
    Valkey,
}

/// The newest version of Redis that is read: Redis 8's.
const OF_REDIS_MAX: u16 = 13;
const OF_VALKEY: RangeInclusive<u16> = 80..=81;

impl Dialect {
    /// None where the version is too new.
    pub fn of_version(version: u16) -> Option<Dialect> {
        match version {
            ..=OF_REDIS_MAX => Some(Dialect::Redis),
            _ if OF_VALKEY.contains(&version) => Some(Dialect::Valkey),
            _ => None,
        }
    }

    /// The type that has this number there, by its number here.
    pub fn kind(self, of: u8) -> u8 {
        match (self, of) {
            (Dialect::Valkey, kind::HASH_METADATA_PRE_GA) => kind::HASH_OF_VALKEY,
            _ => of,
        }
    }
}
