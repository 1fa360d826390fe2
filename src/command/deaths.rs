//! Deaths as entries of streams, which policies with EVENTS want.

use super::dump;
use super::streams::xadd;
use super::{Handler, OwnedRequest};
use crate::clock::{Clock, Now};
use crate::keyspace::{Death, LastValue};

/// What runs on the shard of the stream.
pub const APPEND: Handler = xadd;

/// The request that writes a death to its stream: the key, its deadline in Unix milliseconds, how many milliseconds later
/// it was deleted, and, where that is wanted, what it was: the string, or of another type what DUMP gives.
pub fn entry_of(death: &Death, clock: &Clock) -> OwnedRequest {
    let mut request = OwnedRequest::default();
    let mut push = |args: &[&[u8]]| args.iter().for_each(|arg| request.push(arg));
    push(&[b"XADD", death.to.key.as_bytes()]);
    if let Some(max_len) = death.to.max_len {
        push(&[b"MAXLEN", b"~", max_len.to_string().as_bytes()]);
    }
    let deadline_ms = clock.to_wall_ms(death.deadline_ms).to_string();
    let lag_ms = format!("{}.{:03}", death.lag_us / 1000, death.lag_us % 1000);
    push(&[b"*", b"key", &death.key, b"deadline", deadline_ms.as_bytes(), b"lag", lag_ms.as_bytes()]);
    match &death.value {
        LastValue::Unwanted => {}
        LastValue::TooLong(bytes) => push(&[b"value_too_long", bytes.to_string().as_bytes()]),
        LastValue::Kept(value) => {
            let bytes = value.show(|stored| dump::plain_or_payload(stored, Now::from_ms(death.deadline_ms), clock));
            push(&[b"type", value.kind().name().as_bytes(), b"value", &bytes]);
        }
    }
    request
}
