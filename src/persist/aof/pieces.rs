//! What may come next in a file of the log: a batch, a line that says what time it was, another comment.

use super::batch::{self, Head, NoHead};
use crate::persist::window::Window;
use std::io;
use thiserror::Error;

/// What is wrong with a place of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Wrong {
    /// The file ends in the middle of a batch.
    #[error("a batch that is cut short")]
    ShortBatch,
    #[error("a head that is cut short")]
    ShortHead,
    /// The file ends in the middle of a command, of a transaction or of a comment.
    #[error("a command that is cut short")]
    Short,
    /// The next file says that this one was longer. (A crash makes files shorter, too.)
    #[error("its end is missing, and there is more behind it")]
    NoEnd,
    #[error("a command is cut short, and more stands behind it")]
    ShortInMiddle,
    /// A batch that is whole was written as it stands there: no crash has put the batch in a wrong place.
    #[error("a batch that belongs somewhere else")]
    Elsewhere,
    #[error("a head that is none")]
    Head,
    #[error("a batch whose checksum does not match")]
    Checksum,
    #[error("a comment without an end")]
    Comment,
    #[error("a command without a name")]
    Nameless,
    #[error("a command that is malformed")]
    Malformed,
    #[error("neither a command nor a batch")]
    Unknown,
}

impl Wrong {
    /// Whether a file looks so that just ends too early.
    pub fn is_short(self) -> bool {
        matches!(self, Self::NoEnd | Self::ShortBatch | Self::ShortHead | Self::Short)
    }
}

/// The batch that comes next, all of which is in memory then; what is wrong with it.
pub fn next_batch(window: &mut Window, of_bytes: u64, expected: Option<u64>) -> io::Result<Result<Head, Wrong>> {
    let head = loop {
        match batch::read(window.rest()) {
            Ok(head) => break head,
            Err(NoHead::Malformed) => return Ok(Err(Wrong::Head)),
            Err(NoHead::Incomplete) if !window.read_more()? => return Ok(Err(Wrong::ShortHead)),
            Err(NoHead::Incomplete) => {}
        }
    };
    let left = of_bytes.saturating_sub(window.passed());
    if (head.head_bytes as u64).saturating_add(head.bytes) > left
        || !window.has(head.head_bytes + head.bytes as usize)?
    {
        return Ok(Err(Wrong::ShortBatch));
    }
    if !head.vouches_for(&window.rest()[head.head_bytes..][..head.bytes as usize]) {
        return Ok(Err(Wrong::Checksum));
    }
    Ok(match expected {
        Some(position) if position != head.position => Err(Wrong::Elsewhere),
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
pub fn comment(window: &mut Window) -> io::Result<Result<usize, Wrong>> {
    /// Redis reads lines up to this length.
    const LINE_BYTES_MAX: usize = 1_024;
    loop {
        let rest = &window.rest()[..window.rest().len().min(LINE_BYTES_MAX)];
        if let Some(end) = memchr::memchr(b'\n', rest) {
            return Ok(Ok(end + 1));
        }
        if rest.len() == LINE_BYTES_MAX {
            return Ok(Err(Wrong::Comment));
        }
        if !window.read_more()? {
            return Ok(Err(Wrong::Short));
        }
    }
}
