//! Bytes of a reply on their way from the shard that has made the reply to the connection: long ones are not copied there.

use std::ops::{Deref, Range};
use std::rc::Rc;

/// Bytes of a reply that has come.
pub trait ReplyBytes: Deref<Target = [u8]> + Sized {
    /// They are kept as they came, rather than copied.
    fn keep(&self) -> Option<Long> {
        None
    }

    fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self);
    }
}

impl ReplyBytes for &[u8] {}

/// A range of replies that have come together and are long.
#[derive(Clone)]
pub struct Long {
    replies: Rc<Vec<u8>>,
    range: Range<usize>,
}

/// Replies of so many bytes are long.
pub const LONG_BYTES: usize = 256 * 1024;
/// A reply that has not this share of what it came with is not kept: all of that would be kept with it.
const LEAST_SHARE: usize = 8;

impl Long {
    pub fn all(replies: Vec<u8>) -> Long {
        let range = 0..replies.len();
        Long { replies: Rc::new(replies), range }
    }

    /// A range of these. Who has the last one may have the bytes themselves.
    pub fn take(&mut self, range: Range<usize>) -> Long {
        let is_all = range.len() == self.replies.len();
        let replies = if is_all { std::mem::take(&mut self.replies) } else { self.replies.clone() };
        Long { replies, range }
    }
}

impl Deref for Long {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // (Where somebody has taken all the others are empty.)
        self.replies.get(self.range.clone()).unwrap_or_default()
    }
}

impl ReplyBytes for Long {
    fn keep(&self) -> Option<Long> {
        (self.len() >= LONG_BYTES.max(self.replies.len() / LEAST_SHARE)).then(|| self.clone())
    }

    fn write(self, out: &mut Vec<u8>) {
        if self.len() == self.replies.len() && out.is_empty() && out.capacity() < self.len() {
            *out = Rc::unwrap_or_clone(self.replies);
            // (What is allocated counts for a client.)
            out.shrink_to_fit();
        } else {
            out.extend_from_slice(&self);
        }
    }
}
