//! Who reads the stream, and where the pieces of it lie until then.

use crossbeam_queue::SegQueue;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Where pieces of the stream lie until their reader takes them.
pub(super) struct Post {
    pieces: SegQueue<Arc<[u8]>>,
    bytes: AtomicUsize,
    limit: AtomicUsize,
    shard: usize,
    /// The reader wants to be rung for.
    awaits: AtomicBool,
    /// So much lies there that the reader is given no more.
    has_missed: AtomicBool,
}

impl Post {
    pub(super) fn new(shard: usize, limit: usize) -> Post {
        Post {
            pieces: SegQueue::new(),
            bytes: AtomicUsize::new(0),
            limit: AtomicUsize::new(limit),
            shard,
            awaits: AtomicBool::new(false),
            has_missed: AtomicBool::new(false),
        }
    }

    pub(super) fn put(&self, piece: Arc<[u8]>) {
        self.bytes.fetch_add(piece.len(), Ordering::AcqRel);
        self.pieces.push(piece);
    }

    /// A new piece, unless the reader has left too much lying; the shard that is to be rung for.
    pub(super) fn give(&self, piece: &Arc<[u8]>) -> Option<usize> {
        // (One transaction that is larger than that is no reason.)
        if self.waiting() > self.limit.load(Ordering::Relaxed) {
            self.has_missed.store(true, Ordering::Release);
        }
        if !self.has_missed.load(Ordering::Relaxed) {
            self.put(piece.clone());
        }
        self.awaits.swap(false, Ordering::SeqCst).then_some(self.shard)
    }

    /// How many bytes lie there.
    pub(super) fn waiting(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }
}

/// Who reads the stream, on a shard.
pub struct Reader {
    post: Arc<Post>,
    position: u64,
}

impl Reader {
    pub(super) fn new(post: Arc<Post>, position: u64) -> Reader {
        Reader { post, position }
    }

    pub(super) fn is_of(&self, post: &Arc<Post>) -> bool {
        Arc::ptr_eq(post, &self.post)
    }

    /// What has come, without a wait; none where that is all, for which the shard is rung later.
    pub fn take(&mut self) -> Option<Arc<[u8]>> {
        let piece = self.post.pieces.pop().or_else(|| {
            self.post.awaits.store(true, Ordering::SeqCst);
            // (It may have come before that was said.)
            self.post.pieces.pop()
        })?;
        self.post.bytes.fetch_sub(piece.len(), Ordering::AcqRel);
        self.position += piece.len() as u64;
        Some(piece)
    }

    /// How much of the stream stands before what is taken next, in bytes.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// How many bytes lie there.
    pub fn waiting(&self) -> usize {
        self.post.waiting()
    }

    /// So many bytes may lie there.
    pub fn set_limit(&self, limit: usize) {
        self.post.limit.store(limit, Ordering::Relaxed);
    }

    /// Whether the reader has left so much lying that there is no more for it: what was taken is not all.
    pub fn has_missed(&self) -> bool {
        self.post.has_missed.load(Ordering::Acquire)
    }
}
