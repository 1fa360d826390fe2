//! The frame of a DUMP: behind the value, or the functions, its RDB version and a checksum of both.

use super::dialect::Dialect;
use super::file::{VERSION, VERSION_OF_FIELD_DEADLINES};
use super::kind;
use crc::{CRC_64_REDIS, Crc, Table};
use std::borrow::Cow;
use thiserror::Error;

const FOOTER_BYTES: usize = 2 + 8;

static CRC: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// The version is too new, the checksum is another's, or both are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("DUMP payload version or checksum are wrong")]
pub struct NotAPayload;

/// Type and value, without the footer. The type has the number that it has here.
pub fn open(payload: &[u8]) -> Result<Cow<'_, [u8]>, NotAPayload> {
    let (checked, crc) = payload.split_last_chunk().ok_or(NotAPayload)?;
    let (value, version) = checked.split_last_chunk().ok_or(NotAPayload)?;
    let dialect = Dialect::of_version(u16::from_le_bytes(*version)).ok_or(NotAPayload)?;
    if u64::from_le_bytes(*crc) != CRC.checksum(checked) {
        return Err(NotAPayload);
    }
    Ok(match value.first() {
        Some(of) if dialect.kind(*of) != *of => [&[dialect.kind(*of)], &value[1..]].concat().into(),
        _ => value.into(),
    })
}

/// A payload that was opened, in a version that Redis 7.0 reads, too, where its types have the same numbers everywhere.
pub fn for_redis_7(payload: &[u8]) -> Cow<'_, [u8]> {
    let (value, footer) = payload.split_at(payload.len().saturating_sub(FOOTER_BYTES));
    if footer.first_chunk().is_none_or(|version| u16::from_le_bytes(*version) <= VERSION) {
        return payload.into();
    }
    let mut again = value.to_vec();
    seal(&mut again);
    again.into()
}

/// Appends the footer to type and value.
pub fn seal(value: &mut Vec<u8>) {
    let version = match value.first() {
        Some(&(kind::HASH_METADATA | kind::HASH_LISTPACK_EX | kind::SET_METADATA | kind::ZSET_METADATA)) => {
            VERSION_OF_FIELD_DEADLINES
        }
        _ => VERSION,
    };
    value.reserve_exact(FOOTER_BYTES);
    value.extend_from_slice(&version.to_le_bytes());
    value.extend_from_slice(&CRC.checksum(value).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_redis() {
        assert_eq!(CRC.checksum(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    }

    /// DUMP of a string "hello" by redis-server 7.0.15.
    const HELLO: &[u8] = b"\x00\x05hello\n\x00cr\xdfve4 \n";

    #[test]
    fn what_redis_dumps_is_opened() {
        let mut again = open(HELLO).expect("a payload").into_owned();
        assert_eq!(again, b"\x00\x05hello");
        seal(&mut again);
        assert_eq!(again, HELLO);
    }

    /// Valkey's number of a type means another here.
    #[test]
    fn what_valkey_dumps_has_types_of_its_own() {
        for (version, expected) in [(10u16, kind::HASH_METADATA_PRE_GA), (80, kind::HASH_OF_VALKEY)] {
            let mut payload = vec![kind::HASH_METADATA_PRE_GA, 0];
            payload.extend_from_slice(&version.to_le_bytes());
            payload.extend_from_slice(&CRC.checksum(&payload).to_le_bytes());
            assert_eq!(open(&payload).as_deref(), Ok(&[expected, 0][..]));
        }
    }

    #[test]
    fn a_newer_version_is_written_as_an_older_one() {
        assert!(matches!(for_redis_7(HELLO), Cow::Borrowed(HELLO)));
        for version in [11u16, 13, 81] {
            let mut payload = b"\x00\x05hello".to_vec();
            payload.extend_from_slice(&version.to_le_bytes());
            payload.extend_from_slice(&CRC.checksum(&payload).to_le_bytes());
            assert_eq!(for_redis_7(&payload), HELLO);
        }
        assert_eq!(for_redis_7(b""), &b""[..]);
    }

    #[test]
    fn any_change_and_newer_versions_are_refused() {
        for at in 0..HELLO.len() {
            let mut changed = HELLO.to_vec();
            changed[at] ^= 1;
            assert_eq!(open(&changed), Err(NotAPayload));
            assert_eq!(open(&HELLO[..at]), Err(NotAPayload));
        }
        for (version, accepted) in [(0u16, true), (11, true), (13, true), (14, false), (80, true), (82, false)] {
            let mut payload = b"\x00\x05hello".to_vec();
            payload.extend_from_slice(&version.to_le_bytes());
            payload.extend_from_slice(&CRC.checksum(&payload).to_le_bytes());
            assert_eq!(open(&payload).is_ok(), accepted, "{version}");
        }
    }
}
