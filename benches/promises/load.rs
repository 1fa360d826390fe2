//! Filling a server: keys of 16 bytes, values of 32, written in one long pipeline.

use crate::Result;
use crate::options::Options;
use crate::server::Server;
use emberdb::measure::resp::push_command;
use emberdb::measure::wall;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

pub const VALUE: &[u8; 32] = b"0123456789abcdef0123456789abcdef";

const HOUR_MS: i64 = 3_600_000;
const LONGEST_ALLOWANCE: Duration = Duration::from_secs(100);

/// The 16-byte key `<prefix>:<12 digits>`.
pub fn key(prefix: &[u8; 3], number: u64) -> [u8; 16] {
    let mut key = [b'0'; 16];
    key[..3].copy_from_slice(prefix);
    key[3] = b':';
    let mut rest = number;
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// Writes `keys` numbered keys whose deadlines lie 2 to 24 hours ahead: live for as long as any experiment takes.
pub fn far_deadlines(server: &Server, keys: Range<u64>) -> Result<()> {
    let mut rng = fastrand::Rng::with_seed(keys.start);
    pipeline(server, keys, |number, out| {
        let ttl_ms = rng.i64(2 * HOUR_MS..24 * HOUR_MS);
        push_set(out, &key(b"far", number), VALUE, Deadline::AfterMs(ttl_ms));
    })
}

/// When a key written by [`push_set`] dies.
#[derive(Clone, Copy)]
pub enum Deadline {
    Never,
    AfterMs(i64),
    AtUnixMs(i64),
}

pub fn push_set(out: &mut Vec<u8>, key: &[u8], value: &[u8], deadline: Deadline) {
    match deadline {
        Deadline::Never => push_command(out, &[b"SET", key, value]),
        Deadline::AfterMs(ttl_ms) => push_command(out, &[b"SET", key, value, b"PX", ttl_ms.to_string().as_bytes()]),
        Deadline::AtUnixMs(at_ms) => push_command(out, &[b"SET", key, value, b"PXAT", at_ms.to_string().as_bytes()]),
    }
}

/// Sends one command for each number, `push` writing it. Fails on the first error reply.
pub fn pipeline(server: &Server, numbers: Range<u64>, push: impl FnMut(u64, &mut Vec<u8>)) -> Result<()> {
    Ok(server.client()?.load(numbers, push, |_| ())?)
}

/// Loading took so long that the moment the keys were to die at had passed.
#[derive(Debug)]
struct LoadedTooLate {
    late_ms: i64,
}

impl std::error::Error for LoadedTooLate {}

impl fmt::Display for LoadedTooLate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "loading ended {} ms after the planned moment", self.late_ms)
    }
}

/// A common moment far enough ahead that `keys` keys can be written before it: `allowance` for each million,
/// and 2 s more.
pub fn moment_after_loading(keys: u64, allowance: Duration) -> i64 {
    wall::unix_ms() + 2_000 + (allowance.as_millis() as u64 * keys / 1_000_000) as i64
}

/// An error where the moment planned by [`moment_after_loading`] has passed.
pub fn check_in_time(planned_ms: i64) -> Result<()> {
    let late_ms = wall::unix_ms() - planned_ms;
    if late_ms > 0 { Err(Box::new(LoadedTooLate { late_ms })) } else { Ok(()) }
}

/// Makes an attempt that loads keys, given the time allowed for a million; where that is not enough on this machine,
/// makes further ones with twice the time.
pub fn allowing_time<T>(options: &Options, mut attempt: impl FnMut(Duration) -> Result<T>) -> Result<T> {
    let mut allowance = options.load_allowance_per_million;
    loop {
        match attempt(allowance) {
            Err(error) if error.is::<LoadedTooLate>() && allowance < LONGEST_ALLOWANCE => {
                eprintln!("note: {error}; once more with more time");
                allowance *= 2;
            }
            outcome => return outcome,
        }
    }
}

/// Keys the server counts, over one connection of its own.
pub fn dbsize(server: &Server) -> Result<u64> {
    let reply = server.client()?.call(&[b"DBSIZE"])?;
    Ok(reply.number().ok_or_else(|| format!("DBSIZE answered {reply:?}"))? as u64)
}
