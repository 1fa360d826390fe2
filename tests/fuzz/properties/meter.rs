//! How much memory a piece of work takes: an allocator that counts for each thread what is allocated and the most
//! that was at one time.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static IN_USE_BYTES: Cell<isize> = const { Cell::new(0) };
    static PEAK_BYTES: Cell<isize> = const { Cell::new(0) };
}

/// Runs `work`; also returns the most bytes it held at one time beyond those held before.
pub fn measured<R>(work: impl FnOnce() -> R) -> (R, usize) {
    let before = IN_USE_BYTES.get();
    PEAK_BYTES.set(before);
    let result = work();
    (result, (PEAK_BYTES.get() - before) as usize)
}

struct Meter;

#[global_allocator]
static METER: Meter = Meter;

// SAFETY: every call is passed on to the system's allocator unchanged; counting touches thread-locals without a
// destructor only, which allocate nothing.
unsafe impl GlobalAlloc for Meter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size as isize - layout.size() as isize);
        // SAFETY: the caller's contract.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

fn count(bytes: isize) {
    let in_use = IN_USE_BYTES.get() + bytes;
    IN_USE_BYTES.set(in_use);
    PEAK_BYTES.set(PEAK_BYTES.get().max(in_use));
}
