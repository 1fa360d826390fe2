//! What is said of groups of keys to the log, to replicas and in snapshots: commands of a member and of a group.

use crate::journal::Command;
use crate::keyspace::{Membership, Span};

/// Behind what GROUP DATE says of a group that was killed, and whose death is to be written.
pub const KILLED: &str = "KILLED";
/// No deadline, where one is said.
pub const NEVER: i64 = -1;

/// What GROUP OWN says of a key, times by `wall_ms`.
pub fn own_command(db: usize, key: &[u8], said: &Membership, wall_ms: impl Fn(u64) -> i64) -> Command {
    let own_ms = said.own_ms.map_or(NEVER, wall_ms).to_string();
    let epochs: Vec<String> = said.groups.iter().map(|(_, epoch)| epoch.to_string()).collect();
    let mut args: Vec<&[u8]> = vec![b"EXPIRY", b"GROUP", b"OWN", key, own_ms.as_bytes()];
    said.groups.iter().zip(&epochs).for_each(|((name, _), epoch)| args.extend([&**name, epoch.as_bytes()]));
    Command::new(db, args.into_iter())
}

/// What GROUP DATE says of a group, likewise.
pub fn date_command(db: usize, name: &[u8], span: &Span, wall_ms: impl Fn(u64) -> i64) -> Command {
    let numbers =
        [span.epoch as i64, span.deadline_ms.map_or(NEVER, wall_ms), span.life_ms as i64, span.is_sliding.into()];
    let numbers = numbers.map(|number| number.to_string());
    let head: [&[u8]; 4] = [b"EXPIRY", b"GROUP", b"DATE", name];
    let mut args: Vec<&[u8]> = head.into_iter().chain(numbers.iter().map(|number| number.as_bytes())).collect();
    let max_len = span.to.as_ref().and_then(|to| to.max_len).unwrap_or(0).to_string();
    if let Some(to) = &span.to {
        args.extend([to.key.as_bytes(), max_len.as_bytes()]);
    }
    if span.is_killed {
        args.push(KILLED.as_bytes());
    }
    Command::new(db, args.into_iter())
}

/// What GROUP TOLD says of a group.
pub fn told_command(db: usize, name: &[u8], epoch: u64) -> Command {
    let epoch = epoch.to_string();
    let args: [&[u8]; 5] = [b"EXPIRY", b"GROUP", b"TOLD", name, epoch.as_bytes()];
    Command::new(db, args.into_iter())
}
