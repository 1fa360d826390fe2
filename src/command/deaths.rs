//! Deaths as entries of streams, which policies with EVENTS want.

use super::dump;
use super::streams::xadd;
use super::{Ctx, Handler, OwnedRequest};
use crate::clock::{Clock, Now};
use crate::config::DeathStream;
use crate::journal::{Command, aside};
use crate::keyspace::{Death, Hasher, LastValue, News, Span};
use crate::resp::{Limits, Parsed, Parser};
use std::borrow::Cow;
use std::sync::Arc;

/// What runs on the shard of the stream.
pub const APPEND: Handler = xadd;

/// The request that writes a death to its stream: the key, its deadline in Unix milliseconds, how many milliseconds later
/// it was deleted, and, where that is wanted, what it was: the string, or of another type what DUMP gives.
pub fn entry_of(death: &Death, clock: &Clock) -> OwnedRequest {
    let mut request = append_to(&death.to);
    let mut push = |args: &[&[u8]]| args.iter().for_each(|arg| request.push(arg));
    let deadline_ms = clock.to_wall_ms(death.deadline_ms).to_string();
    let lag_ms = format!("{}.{:03}", death.lag_us / 1000, death.lag_us % 1000);
    push(&[b"key", &death.key, b"deadline", deadline_ms.as_bytes(), b"lag", lag_ms.as_bytes()]);
    match shown(death, clock) {
        Shown::Nothing => {}
        Shown::TooLong(bytes) => push(&[b"value_too_long", bytes.to_string().as_bytes()]),
        Shown::Value(kind, bytes) => push(&[b"type", kind.as_bytes(), b"value", &bytes]),
    }
    request
}

/// The request that writes the death of a group to its stream: its name, whether it has expired or was killed, when in Unix
/// milliseconds, and how many members it had.
pub fn entry_of_group(to: &DeathStream, name: &[u8], span: &Span, members: u64, clock: &Clock) -> OwnedRequest {
    let mut request = append_to(to);
    let reason: &[u8] = if span.is_killed { b"killed" } else { b"expired" };
    let at_ms = span.deadline_ms.map_or(0, |at_ms| clock.to_wall_ms(at_ms)).to_string();
    let members = members.to_string();
    let fields = [b"group", name, b"reason", reason, b"at", at_ms.as_bytes(), b"members", members.as_bytes()];
    fields.iter().for_each(|field| request.push(field));
    request
}

/// The request without what the entry says.
fn append_to(stream: &DeathStream) -> OwnedRequest {
    let max_len = stream.max_len.map(|most| most.to_string());
    let bound = max_len.iter().flat_map(|most| [&b"MAXLEN"[..], b"~", most.as_bytes()]);
    let mut request = OwnedRequest::default();
    [&b"XADD"[..], stream.key.as_bytes()].into_iter().chain(bound).chain([&b"*"[..]]).for_each(|arg| request.push(arg));
    request
}

/// What an entry says of a value.
enum Shown<'a> {
    Nothing,
    TooLong(usize),
    /// Its type, and what it was.
    Value(&'a str, Cow<'a, [u8]>),
}

fn shown<'a>(death: &'a Death, clock: &Clock) -> Shown<'a> {
    match &death.value {
        LastValue::Unwanted => Shown::Nothing,
        LastValue::TooLong(bytes) => Shown::TooLong(*bytes),
        LastValue::Shown(kind, bytes) => Shown::Value(kind, bytes.into()),
        LastValue::Kept(value) => {
            let bytes = value.show(|stored| dump::plain_or_payload(stored, Now::from_ms(death.deadline_ms), clock));
            Shown::Value(value.kind().name(), bytes.into())
        }
    }
}

/// A death as a log or a snapshot has it while its entry is not written: an array of the protocol.
pub fn note_of(death: &Death, clock: &Clock) -> Vec<u8> {
    let numbers = [death.number, death.db as u64, death.lag_us].map(|number| number.to_string());
    let deadline_ms = clock.to_wall_ms(death.deadline_ms).to_string();
    let max_len = death.to.max_len.map_or(String::new(), |most| most.to_string());
    let head: [&[u8]; 7] = [
        numbers[0].as_bytes(),
        numbers[1].as_bytes(),
        numbers[2].as_bytes(),
        deadline_ms.as_bytes(),
        &death.key,
        death.to.key.as_bytes(),
        max_len.as_bytes(),
    ];
    let args = |value: &[&[u8]]| Command::new(0, head.iter().chain(value).copied().collect::<Vec<_>>().into_iter());
    let command = match shown(death, clock) {
        Shown::Nothing => args(&[]),
        Shown::TooLong(bytes) => args(&[bytes.to_string().as_bytes()]),
        Shown::Value(kind, bytes) => args(&[kind.as_bytes(), &bytes]),
    };
    command.bytes.into()
}

/// Reads that again; none where it is something else.
pub fn death_of(note: &[u8], databases: usize, hasher: &Hasher, clock: &Clock) -> Option<Death> {
    let mut parser = Parser::default();
    let limits = Limits { bulk_bytes: note.len(), authenticated: true };
    let Ok(Parsed::Request(_)) = parser.parse(note, limits) else { return None };
    let request = parser.request(note);
    let text = |index: usize| std::str::from_utf8(request.get(index)?).ok();
    let number = |index: usize| text(index)?.parse::<u64>().ok();
    let db = usize::try_from(number(1)?).ok().filter(|db| *db < databases)?;
    let deadline_ms = clock.to_store_ms(text(3)?.parse().ok()?);
    let (key, stream) = (request.get(4)?, text(5)?);
    let max_len = match text(6)? {
        "" => None,
        most => Some(most.parse().ok()?),
    };
    let value = match request.len() {
        7 => LastValue::Unwanted,
        8 => LastValue::TooLong(text(7)?.parse().ok()?),
        9 => LastValue::Shown(text(7)?.into(), request.get(8)?.into()),
        _ => return None,
    };
    Some(Death {
        number: number(0)?,
        is_noted: true,
        db,
        key: key.into(),
        hash: hasher.hash(key),
        deadline_ms,
        lag_us: number(2)?,
        to: Arc::new(DeathStream { key: stream.into(), with_value: request.len() > 7, max_len }),
        value,
    })
}

impl Ctx<'_> {
    /// Says what the journal has to know of deaths that wait to be written.
    #[cold]
    pub fn say_of_deaths(&mut self) {
        for news in self.keyspace.deaths.take_news() {
            let command = match news {
                News::Noted(number) => {
                    let Some(death) = self.keyspace.deaths.of_number(number) else { continue };
                    aside::death(&note_of(death, self.clock))
                }
                News::Dropped(number) => aside::told(number),
            };
            self.keyspace.effects.said.say_behind(command);
        }
    }

    /// Says that a death which the log may have is written.
    pub fn say_written(&mut self, number: u64) {
        if self.is_journaled() {
            self.keyspace.effects.said.say_behind(aside::told(number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_note_says_all_of_a_death(number: u64, db in 0_usize..16, key: Vec<u8>, max_len: Option<u64>, value: Option<Result<usize, Vec<u8>>>) {
            let value = match value {
                None => LastValue::Unwanted,
                Some(Ok(bytes)) => LastValue::TooLong(bytes),
                Some(Err(bytes)) => LastValue::Shown("hash".into(), bytes),
            };
            let (hasher, clock) = (Hasher::new(1, 3), Clock::manual(1_000));
            let to = Arc::new(DeathStream { key: "deaths".into(), with_value: true, max_len });
            let hash = hasher.hash(&key);
            let (key, deadline_ms, lag_us) = (key.into(), 900, 1_500);
            let death = Death { number, is_noted: false, db, key, hash, deadline_ms, lag_us, to, value };
            let read = death_of(&note_of(&death, &clock), 16, &hasher, &clock).expect("a death");
            prop_assert_eq!((read.number, read.db, &read.key, read.hash), (death.number, death.db, &death.key, death.hash));
            let args = |death: &Death| {
                entry_of(death, &clock).as_request().from(0).map(<[u8]>::to_vec).collect::<Vec<_>>()
            };
            prop_assert_eq!(args(&read), args(&death));
        }

        #[test]
        fn what_is_none_is_refused(note: Vec<u8>) {
            let clock = Clock::manual(1_000);
            prop_assert!(death_of(&note, 16, &Hasher::new(1, 1), &clock).is_none());
        }
    }
}
