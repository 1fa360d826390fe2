//! Receive buffers that the kernel chooses from (a provided buffer ring): memory for those who have something to say
//! only, not for each connection.

use io_uring::Submitter;
use io_uring::types::BufRingEntry;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

pub const GROUP: u16 = 0;
const COUNT: u16 = 256;
pub const BUFFER_BYTES: usize = 4096;
const PAGE: usize = 4096;

pub struct Buffers {
    entries: NonNull<BufRingEntry>,
    memory: NonNull<u8>,
    /// Where the next buffer is given back. The kernel sees it when it is published.
    tail: u16,
    published: u16,
}

impl Buffers {
    /// Allocates the buffers and registers them with a ring, which must be gone before this is dropped.
    ///
    /// # Errors
    /// A kernel without provided buffer rings (before Linux 5.19).
    pub fn register(ring: &Submitter) -> io::Result<Buffers> {
        let mut buffers = Buffers {
            entries: allocate(Buffers::entries_layout()).cast(),
            memory: allocate(Buffers::memory_layout()),
            tail: 0,
            published: 0,
        };
        // SAFETY: the entries are page-aligned, zeroed, and stay until the ring is gone.
        unsafe { ring.register_buf_ring_with_flags(buffers.entries.as_ptr() as u64, COUNT, GROUP, 0)? };
        (0..COUNT).for_each(|id| buffers.give_back(id));
        buffers.publish();
        Ok(buffers)
    }

    fn entries_layout() -> Layout {
        let layout = Layout::array::<BufRingEntry>(COUNT as usize).and_then(|layout| layout.align_to(PAGE));
        layout.expect("a few pages")
    }

    fn memory_layout() -> Layout {
        Layout::from_size_align(COUNT as usize * BUFFER_BYTES, PAGE).expect("a megabyte")
    }

    /// What was received into a buffer. It is the caller's until it is given back.
    pub fn bytes(&self, id: u16, len: usize) -> *const [u8] {
        debug_assert!(id < COUNT && len <= BUFFER_BYTES);
        // SAFETY: within the allocation.
        let start = unsafe { self.memory.as_ptr().add(id as usize * BUFFER_BYTES) };
        std::ptr::slice_from_raw_parts(start, len)
    }

    pub fn give_back(&mut self, id: u16) {
        // SAFETY: within the allocations; the kernel does not look at entries from the published tail on.
        unsafe {
            let entry = &mut *self.entries.as_ptr().add((self.tail & (COUNT - 1)) as usize);
            entry.set_addr(self.memory.as_ptr().add(id as usize * BUFFER_BYTES) as u64);
            entry.set_len(BUFFER_BYTES as u32);
            entry.set_bid(id);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    /// Lets the kernel have what was given back.
    pub fn publish(&mut self) {
        if self.tail != self.published {
            self.published = self.tail;
            // SAFETY: the tail lies in the first entry, as the kernel has it; it is read by the kernel meanwhile, hence
            // atomic.
            let tail = unsafe { &*BufRingEntry::tail(self.entries.as_ptr()).cast::<AtomicU16>() };
            tail.store(self.tail, Ordering::Release);
        }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: allocated with these layouts.
        unsafe {
            dealloc(self.entries.as_ptr().cast(), Buffers::entries_layout());
            dealloc(self.memory.as_ptr(), Buffers::memory_layout());
        }
    }
}

fn allocate(layout: Layout) -> NonNull<u8> {
    // SAFETY: no layout here is empty.
    NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
}
