//! What is said of groups of keys to the log, to replicas and in snapshots: commands of a member, of a group, and of one that has
//! died and whose death is to be written.

use crate::journal::Command;
use crate::keyspace::{Counted, EventStream, Membership, Span};

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

/// What GROUP DATE says of a group, likewise. (Of one that has no deadline and never had one, or is no more, the epoch is zero: where
/// nothing is said of a stream it is no more.)
pub fn date_command(
    db: usize,
    name: &[u8],
    span: Span,
    to: Option<Option<&EventStream>>,
    wall_ms: impl Fn(u64) -> i64,
) -> Command {
    let numbers =
        [span.epoch as i64, span.deadline_ms.map_or(NEVER, wall_ms), span.life_ms as i64, span.is_sliding.into()];
    let numbers = numbers.map(|number| number.to_string());
    let head: [&[u8]; 4] = [b"EXPIRY", b"GROUP", b"DATE", name];
    let mut args: Vec<&[u8]> = head.into_iter().chain(numbers.iter().map(|number| number.as_bytes())).collect();
    let max_len = max_len_of(to.flatten());
    if let Some(to) = to {
        args.extend([to.map_or(&b""[..], |to| &to.key), max_len.as_bytes()]);
    }
    Command::new(db, args.into_iter())
}

fn max_len_of(to: Option<&EventStream>) -> String {
    to.and_then(|to| to.max_len).map_or(NEVER, |most| most as i64).to_string()
}

/// What GROUP LEFT says of a group that has died, and of its members.
pub fn dead_command(db: usize, name: &[u8], epoch: u64, counted: &Counted, wall_ms: impl Fn(u64) -> i64) -> Command {
    let numbers = [epoch as i64, counted.members as i64, wall_ms(counted.deadline_ms)].map(|number| number.to_string());
    let max_len = max_len_of(Some(&counted.to));
    let head: [&[u8]; 5] = [b"EXPIRY", b"GROUP", b"LEFT", name, name];
    let numbers = numbers.iter().map(|number| number.as_bytes());
    let args: Vec<&[u8]> = head.into_iter().chain(numbers).chain([&*counted.to.key, max_len.as_bytes()]).collect();
    Command::new(db, args.into_iter())
}

/// What GROUP TOLD says: the death of a group is written.
pub fn told_command(db: usize, name: &[u8], epoch: u64) -> Command {
    let epoch = epoch.to_string();
    let args: [&[u8]; 5] = [b"EXPIRY", b"GROUP", b"TOLD", name, epoch.as_bytes()];
    Command { is_whole: true, ..Command::new(db, args.into_iter()) }
}
