//! Memory: an allocator that counts, so that `used_memory` is everything the process asked for.
//!
//! Each thread counts in a place of its own, written with plain loads and stores; whoever asks adds the places up.
//! What one thread allocates another may free, so a single place may be negative.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use tikv_jemalloc_sys as jemalloc;

/// Memory that is aligned to this lasts: see [`Jemalloc`].
pub const LASTING_ALIGN: usize = 64;

/// What is not told, nor bounded: see [`aside`].
static ASIDE: AtomicI64 = AtomicI64::new(0);

/// Threads that count in a place of their own; those beyond share the last one.
const PLACES: usize = 128;

#[repr(align(64))]
struct Place(AtomicI64);

static COUNTED: [Place; PLACES] = [const { Place(AtomicI64::new(0)) }; PLACES];
static NEXT_PLACE: AtomicUsize = AtomicUsize::new(0);
static STARTUP: AtomicU64 = AtomicU64::new(0);
static PEAK: AtomicI64 = AtomicI64::new(0);

thread_local! {
    static PLACE: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Wraps an allocator and counts the bytes of what is allocated.
pub struct Counting<A>(pub A);

// SAFETY: every call is passed on to the wrapped allocator unchanged; counting touches atomics and a thread-local
// without a destructor only, neither of which allocates.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's contract.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller's contract.
        unsafe { self.0.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's contract.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size as i64 - layout.size() as i64);
        // SAFETY: the caller's contract.
        unsafe { self.0.realloc(pointer, layout, new_size) }
    }
}

#[inline]
fn count(bytes: i64) {
    let mut place = PLACE.get();
    if place == usize::MAX {
        place = NEXT_PLACE.fetch_add(1, Ordering::Relaxed).min(PLACES - 1);
        PLACE.set(place);
    }
    let counted = &COUNTED[place].0;
    if place == PLACES - 1 {
        counted.fetch_add(bytes, Ordering::Relaxed);
    } else {
        counted.store(counted.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
    }
}

/// Bytes that this thread has allocated, less those that it has given back, whoever had allocated them.
#[inline]
pub fn counted_here() -> i64 {
    match PLACE.get() {
        usize::MAX => 0,
        place => COUNTED[place].0.load(Ordering::Relaxed),
    }
}

/// Bytes that are counted out as long as this lives.
#[derive(Default)]
pub struct Aside(i64);

/// What work allocates and leaves behind, which is on its way to be told and then gone, is counted out: nobody who asks
/// how much memory there is should have keys evicted by that.
pub fn aside<R>(work: impl FnOnce() -> R) -> (R, Aside) {
    let before = counted_here();
    let result = work();
    let bytes = counted_here() - before;
    ASIDE.fetch_add(bytes, Ordering::Relaxed);
    (result, Aside(bytes))
}

impl Drop for Aside {
    fn drop(&mut self) {
        ASIDE.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// Memory that is there only to tell somebody of something: it is gone when that is said. It counts as used, but nothing
/// has to make room for it.
#[derive(Debug, Default)]
pub struct Transient(usize);

static TRANSIENT: AtomicI64 = AtomicI64::new(0);

impl Transient {
    pub fn new(bytes: usize) -> Transient {
        let mut transient = Transient::default();
        transient.set(bytes);
        transient
    }

    pub fn bytes(&self) -> usize {
        self.0
    }

    pub fn set(&mut self, bytes: usize) {
        if bytes != self.0 {
            TRANSIENT.fetch_add(bytes as i64 - self.0 as i64, Ordering::Relaxed);
            self.0 = bytes;
        }
    }
}

impl Drop for Transient {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// What all [`Transient`]s stand for.
pub fn transient_bytes() -> u64 {
    TRANSIENT.load(Ordering::Relaxed).max(0) as u64
}

static FOR_DISK: AtomicUsize = AtomicUsize::new(0);

/// So many bytes wait for the disk now, which is bounded elsewhere.
pub fn note_for_disk(bytes: usize) {
    FOR_DISK.store(bytes, Ordering::Relaxed);
}

static HANDED_OVER: AtomicUsize = AtomicUsize::new(0);

/// So many bytes of changes were handed over by a shard.
pub fn hand_over(bytes: usize) {
    HANDED_OVER.fetch_add(bytes, Ordering::Relaxed);
}

/// So many of those were taken, by who notes what waits for the disk.
pub fn take_over(bytes: usize) {
    HANDED_OVER.fetch_sub(bytes, Ordering::Relaxed);
}

/// What waits for the disk.
pub fn bytes_for_disk() -> u64 {
    (FOR_DISK.load(Ordering::Relaxed) + HANDED_OVER.load(Ordering::Relaxed)) as u64
}

static FOR_READERS: AtomicUsize = AtomicUsize::new(0);

/// So many bytes wait for replicas now that do not read, each of which is ended where that is too much for it.
pub fn note_for_readers(bytes: usize) {
    FOR_READERS.store(bytes, Ordering::Relaxed);
}

/// What counts as used, but is bounded by other limits than the ceiling: nothing has to make room for it.
pub fn bounded_elsewhere() -> u64 {
    bytes_for_disk() + FOR_READERS.load(Ordering::Relaxed) as u64
}

/// As [`used_bytes`], without a thought of the peak: for those who ask often.
pub fn used_now() -> u64 {
    let places = NEXT_PLACE.load(Ordering::Relaxed).min(PLACES);
    let counted = COUNTED[..places].iter().map(|place| place.0.load(Ordering::Relaxed)).sum::<i64>();
    (counted - ASIDE.load(Ordering::Relaxed)).max(0) as u64
}

/// Bytes allocated now, as asked for; what the allocator adds is in the resident set.
pub fn used_bytes() -> u64 {
    let used = used_now();
    PEAK.fetch_max(used as i64, Ordering::Relaxed);
    used
}

/// What is used now is what the server needs before anybody has stored anything.
pub fn note_startup() {
    STARTUP.store(used_now(), Ordering::Relaxed);
}

pub fn startup_bytes() -> u64 {
    STARTUP.load(Ordering::Relaxed)
}

/// Gives pages that nobody uses back to the system, whichever thread had used them.
pub fn purge() {
    // SAFETY: a command of all arenas, which takes and returns nothing.
    unsafe { jemalloc::mallctl(PURGE_ALL.as_ptr(), null_mut(), null_mut(), null_mut(), 0) };
}

/// `MALLCTL_ARENAS_ALL` is 4096.
const PURGE_ALL: &CStr = c"arena.4096.purge";

/// From so many bytes on jemalloc takes memory from an arena of its own, whose pages are given back to the system as soon as
/// they are free.
const LARGE_BYTES: usize = 8 << 20;
/// For so long pages of that arena are kept from now on.
const LARGE_KEPT_MS: usize = 250;

/// Large memory that is free stays for a moment, for what is large next: to have pages anew takes three times as long as to write
/// a reply of 100 MB into them. To be called while nobody else allocates so much. (Where that cannot be, the server is slower.)
pub fn keep_large_pages() {
    let (mut arena, mut arena_bytes) = (0_u32, size_of::<u32>());
    // SAFETY: the pointer is used while its memory is there, and what is asked for is an `unsigned`, for which there is room.
    let found = unsafe {
        let mut pointer = jemalloc::mallocx(LARGE_BYTES, 0);
        let room = (&raw mut arena).cast();
        let asked = (&raw mut pointer).cast();
        let found = jemalloc::mallctl(LOOKUP.as_ptr(), room, &raw mut arena_bytes, asked, size_of::<*mut c_void>());
        if !pointer.is_null() {
            jemalloc::dallocx(pointer, 0);
        }
        found
    };
    if found == 0 {
        // (Pages that lie together and are so many would still be given back at once.)
        set_of_arena(arena, "oversize_threshold", usize::MAX);
        set_of_arena(arena, "dirty_decay_ms", LARGE_KEPT_MS);
    }
}

const LOOKUP: &CStr = c"arenas.lookup";

/// Sets one of an arena's numbers.
fn set_of_arena(arena: u32, name: &str, mut number: usize) {
    let name = format!("arena.{arena}.{name}\0");
    // SAFETY: the name ends in zero, and these numbers are a `size_t` and an `ssize_t`, whose size jemalloc checks.
    unsafe {
        let number = (&raw mut number).cast();
        jemalloc::mallctl(name.as_ptr().cast(), null_mut(), null_mut(), number, size_of::<usize>());
    }
}

/// What jemalloc tells of itself.
pub fn allocator_report() -> String {
    unsafe extern "C" fn add(text: *mut c_void, part: *const c_char) {
        // SAFETY: it is the vector below, which nobody else uses meanwhile, and a text that ends in zero.
        unsafe { (*text.cast::<Vec<u8>>()).extend_from_slice(CStr::from_ptr(part).to_bytes()) };
    }
    let mut text: Vec<u8> = Vec::new();
    // SAFETY: `add` is called with this vector before the call returns, and never again.
    unsafe { jemalloc::malloc_stats_print(Some(add), (&raw mut text).cast(), std::ptr::null()) };
    String::from_utf8_lossy(&text).into_owned()
}

/// The most that [`used_bytes`] has seen; the shards look every second.
pub fn peak_bytes() -> u64 {
    used_bytes().max(PEAK.load(Ordering::Relaxed) as u64)
}

/// jemalloc, but what is aligned to cache lines, as the blocks of tables and their chunks are, does not go through the
/// threads' caches.
///
/// Such a cache hands out what was given back last, wherever that is. Past it jemalloc takes the oldest slab that has
/// room: so blocks that are built anew while most keys die fill up a few slabs, and the pages of the others go back to the
/// system. 17 % of the memory of a million keys stay after 90 % of them have died; with the caches 60 % did.
pub struct Jemalloc;

const LASTING: i32 = jemalloc::MALLOCX_ALIGN(LASTING_ALIGN) | jemalloc::MALLOCX_TCACHE_NONE;

// SAFETY: memory comes from jemalloc and goes back to it with the flags it was taken with, which follow from the layout.
unsafe impl GlobalAlloc for Jemalloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() != LASTING_ALIGN {
            // SAFETY: the caller's contract.
            return unsafe { tikv_jemallocator::Jemalloc.alloc(layout) };
        }
        // SAFETY: no layout is empty here.
        unsafe { jemalloc::mallocx(layout.size(), LASTING).cast() }
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if layout.align() != LASTING_ALIGN {
            // SAFETY: the caller's contract.
            return unsafe { tikv_jemallocator::Jemalloc.dealloc(pointer, layout) };
        }
        // SAFETY: it comes from `mallocx` with the same size and flags.
        unsafe { jemalloc::sdallocx(pointer.cast(), layout.size(), LASTING) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() != LASTING_ALIGN {
            // SAFETY: the caller's contract.
            return unsafe { tikv_jemallocator::Jemalloc.alloc_zeroed(layout) };
        }
        // SAFETY: no layout is empty here.
        unsafe { jemalloc::mallocx(layout.size(), LASTING | jemalloc::MALLOCX_ZERO).cast() }
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if layout.align() != LASTING_ALIGN {
            // SAFETY: the caller's contract.
            return unsafe { tikv_jemallocator::Jemalloc.realloc(pointer, layout, new_size) };
        }
        // SAFETY: it comes from `mallocx` with the same flags; the new size is not zero.
        unsafe { jemalloc::rallocx(pointer.cast(), new_size, LASTING).cast() }
    }
}
