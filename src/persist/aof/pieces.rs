//! What may come next in a file of the log: a batch, a line that says what time it was, another comment.

use super::batch::{self, Head, NoHead};
use crate::persist::window::Window;
use std::io;

/// What is whole was written as it stands there: no crash has put it in a wrong place.
pub const ELSEWHERE: &str = "a batch that belongs somewhere else";
pub const SHORT_BATCH: &str = "a batch that is cut short";
pub const SHORT_HEAD: &str = "a head that is cut short";

/// The batch that comes next, all of which is in memory then; what is wrong with it.
pub fn next_batch(window: &mut Window, of_bytes: u64, expected: Option<u64>) -> io::Result<Result<Head, &'static str>> {
    let head = loop {
        match batch::read(window.rest()) {
            Ok(head) => break head,
            Err(NoHead::Malformed) => return Ok(Err("a head that is none")),
            Err(NoHead::Incomplete) if !window.read_more()? => return Ok(Err(SHORT_HEAD)),
            Err(NoHead::Incomplete) => {}
        }
    };
    let left = of_bytes.saturating_sub(window.passed());
    if (head.head_bytes as u64).saturating_add(head.bytes) > left
        || !window.has(head.head_bytes + head.bytes as usize)?
    {
        return Ok(Err(SHORT_BATCH));
    }
    if !head.vouches_for(&window.rest()[head.head_bytes..][..head.bytes as usize]) {
        return Ok(Err("a batch whose checksum does not match"));
    }
    Ok(match expected {
        Some(position) if position != head.position => Err(ELSEWHERE),
        _ => Ok(head),
    })
}

/// Whether a line says what time it was.
pub fn is_time(window: &mut Window) -> io::Result<bool> {
    const TIME: &[u8] = b"#TS:";
    Ok(window.has(TIME.len())? && window.rest().starts_with(TIME))
}

/// Passes the lines that say what time it was; how long they are.
pub fn pass_times(window: &mut Window) -> io::Result<u64> {
    let before = window.passed();
    while is_time(window)? {
        match comment(window)? {
            Ok(len) => window.pass(len),
            Err(_) => break,
        }
    }
    Ok(window.passed() - before)
}

/// The length of a line that says nothing.
pub fn comment(window: &mut Window) -> io::Result<Result<usize, &'static str>> {
    /// Redis reads lines up to this length.
    const LINE_BYTES_MAX: usize = 1_024;
    loop {
        let rest = &window.rest()[..window.rest().len().min(LINE_BYTES_MAX)];
        if let Some(end) = memchr::memchr(b'\n', rest) {
            return Ok(Ok(end + 1));
        }
        if rest.len() == LINE_BYTES_MAX {
            return Ok(Err("a comment without an end"));
        }
        if !window.read_more()? {
            return Ok(Err("short"));
        }
    }
}
