//! The stream for servers that know of no deadlines of fields and members (Redis 7.0): what sets a deadline is left out,
//! what sets fields or adds members under one does that alone. A death is said as a deletion, which they know. What is said
//! of groups of keys is left out: beside it stand the deadlines that their members have. So are pins: who knows of none evicts by
//! a ceiling of its own, if any. So are policies, whose effects stand in the stream.

use super::Command;
use memchr::memmem::Finder;
use std::sync::LazyLock;

/// What only newer servers know: nothing else of the stream is.
const UNKNOWN: [&[u8]; 10] = [
    b"\r\nHPEXPIREAT\r\n",
    b"\r\nHPERSIST\r\n",
    b"\r\nHSETEX\r\n",
    b"\r\nSPEXPIREAT\r\n",
    b"\r\nSPERSIST\r\n",
    b"\r\nSADDEX\r\n",
    b"\r\nZPEXPIREAT\r\n",
    b"\r\nZPERSIST\r\n",
    b"\r\nEXPIRY\r\n",
    b"\r\nBLESS\r\n",
];

static FINDERS: LazyLock<[Finder; UNKNOWN.len()]> = LazyLock::new(|| UNKNOWN.map(Finder::new));

/// Whether some command may have to be said otherwise.
pub fn concerns(bytes: &[u8]) -> bool {
    FINDERS.iter().any(|name| name.find(bytes).is_some())
}

/// Appends commands as older servers know them; how many were said with less, or not at all.
pub fn degrade(bytes: &[u8], out: &mut Vec<u8>) -> u64 {
    let mut degraded = 0;
    for (args, command) in commands(bytes) {
        match args[..] {
            // (What members of groups have of them is said as their deadlines.)
            [b"EXPIRY", b"GROUP" | b"POLICY", ..] | [b"BLESS", ..] => degraded += 1,
            [b"HPEXPIREAT" | b"HPERSIST" | b"SPEXPIREAT" | b"SPERSIST" | b"ZPEXPIREAT" | b"ZPERSIST", ..] => {
                degraded += 1
            }
            [verb @ (b"HSETEX" | b"SADDEX"), key, ref options @ ..] => {
                degraded += 1;
                let [alone, word]: [&[u8]; 2] =
                    if verb == b"HSETEX" { [b"HSET", b"FIELDS"] } else { [b"SADD", b"MEMBERS"] };
                let elements = options.iter().position(|option| *option == word).map_or(0, |at| at + 2);
                let elements = options.get(elements..).unwrap_or_default();
                let args = [&[alone, key], elements].concat();
                out.extend_from_slice(&Command::new(0, args.into_iter()).bytes);
            }
            _ => out.extend_from_slice(command),
        }
    }
    degraded
}

/// The arguments of each command, and its bytes.
pub fn commands(mut bytes: &[u8]) -> impl Iterator<Item = (Vec<&[u8]>, &[u8])> {
    std::iter::from_fn(move || {
        let Some((args, len)) = read(bytes) else {
            debug_assert!(bytes.is_empty(), "the stream is made of whole commands");
            return None;
        };
        let (command, rest) = bytes.split_at(len);
        bytes = rest;
        Some((args, command))
    })
}

/// The arguments of the first command, and how many bytes it has.
fn read(bytes: &[u8]) -> Option<(Vec<&[u8]>, usize)> {
    let (count, mut at) = number(bytes, b'*')?;
    let mut args = Vec::with_capacity(count.min(1024));
    for _ in 0..count {
        let (len, begin) = number(bytes.get(at..)?, b'$')?;
        at += begin;
        args.push(bytes.get(at..at + len)?);
        at += len + 2;
    }
    Some((args, at))
}

fn number(bytes: &[u8], mark: u8) -> Option<(usize, usize)> {
    let end = memchr::memchr(b'\r', bytes)?;
    let digits = std::str::from_utf8(bytes.get(..end)?.strip_prefix(&[mark])?).ok()?;
    Some((digits.parse().ok()?, end + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(lines: &[&str]) -> Vec<u8> {
        lines
            .iter()
            .flat_map(|line| Command::new(0, line.split(' ').map(str::as_bytes).collect::<Vec<_>>().into_iter()).bytes)
            .collect()
    }

    #[test]
    fn deadlines_of_fields_are_left_out_and_their_values_stay() {
        let all = stream(&[
            "SELECT 0",
            "HSET h a 1",
            "HPEXPIREAT h 123 FIELDS 1 a",
            "MULTI",
            "HSETEX h PXAT 5 FIELDS 2 FIELDS 1 b 2",
            "HSETEX h KEEPTTL FIELDS 1 c 3",
            "HPERSIST h FIELDS 1 a",
            "EXEC",
            "HDEL h a",
            "SPEXPIREAT s 123 MEMBERS 1 a",
            "SADDEX s PXAT 5 MEMBERS 2 MEMBERS a",
            "SPERSIST s MEMBERS 1 a",
            "SREM s a",
            "ZADD z 1 a",
            "ZPEXPIREAT z 123 MEMBERS 1 a",
            "ZPERSIST z MEMBERS 1 a",
            "ZREM z a",
            "EXPIRY GROUP OWN k -1 g 5",
            "EXPIRY GROUP TOLD g 5",
            "BLESS SET k NO-EVICT",
            "EXPIRY POLICY SET p: 5m",
        ]);
        let mut out = Vec::new();
        assert!(concerns(&all));
        assert_eq!(degrade(&all, &mut out), 13);
        let hashes = ["SELECT 0", "HSET h a 1", "MULTI", "HSET h FIELDS 1 b 2", "HSET h c 3", "EXEC", "HDEL h a"];
        assert_eq!(out, stream(&[&hashes[..], &["SADD s MEMBERS a", "SREM s a", "ZADD z 1 a", "ZREM z a"]].concat()));
        assert!(!concerns(&out));
        // A value may look like one.
        let value = Command::new(0, [&b"SET"[..], b"k", b"\r\nHSETEX\r\n"].into_iter()).bytes;
        let mut same = Vec::new();
        assert!(concerns(&value));
        assert_eq!((degrade(&value, &mut same), same), (0, value.to_vec()));
    }
}
