//! The frame of a DUMP: behind the value, or the functions, its RDB version and a checksum of both.

use super::kind;
use crc::{CRC_64_REDIS, Crc, Table};
use thiserror::Error;

/// The newest version that is read: that of Redis 7.4.
const VERSION_MAX: u16 = 12;
/// What 7.0 writes.
const VERSION: u16 = 10;
/// The first with [`kind::HASH_METADATA`].
const VERSION_OF_FIELD_DEADLINES: u16 = 12;
const FOOTER_BYTES: usize = 2 + 8;

static CRC: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// The version is too new, the checksum is another's, or both are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("DUMP payload version or checksum are wrong")]
pub struct NotAPayload;

/// Type and value, without the footer.
pub fn open(payload: &[u8]) -> Result<&[u8], NotAPayload> {
    let (checked, crc) = payload.split_last_chunk().ok_or(NotAPayload)?;
    let (value, version) = checked.split_last_chunk().ok_or(NotAPayload)?;
    let intact = u16::from_le_bytes(*version) <= VERSION_MAX && u64::from_le_bytes(*crc) == CRC.checksum(checked);
    if intact { Ok(value) } else { Err(NotAPayload) }
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
        let mut again = open(HELLO).map(<[u8]>::to_vec).expect("a payload");
        assert_eq!(again, b"\x00\x05hello");
        seal(&mut again);
        assert_eq!(again, HELLO);
    }

    #[test]
    fn any_change_and_newer_versions_are_refused() {
        for at in 0..HELLO.len() {
            let mut changed = HELLO.to_vec();
            changed[at] ^= 1;
            assert_eq!(open(&changed), Err(NotAPayload));
            assert_eq!(open(&HELLO[..at]), Err(NotAPayload));
        }
        for (version, accepted) in [(0u16, true), (11, true), (12, true), (13, false), (256, false)] {
            let mut payload = b"\x00\x05hello".to_vec();
            payload.extend_from_slice(&version.to_le_bytes());
            payload.extend_from_slice(&CRC.checksum(&payload).to_le_bytes());
            assert_eq!(open(&payload).is_ok(), accepted, "{version}");
        }
    }
}
