//! Where Lua's memory comes from: counted, and bounded.
//!
//! Where there is no more, Lua code fails with `not enough memory`. Lua raises that where it asks: so while a function of
//! ours runs, over whose frame it must not jump, it gets what it asks for. What that is too much is missing later.

use super::ffi;
use std::alloc::{Layout, alloc, dealloc, realloc};
use std::cell::Cell;
use std::ffi::c_void;

/// No string becomes longer, as no value of Redis's does, and no buffer of a function of ours: since memory is not refused
/// them, they ask here before they ask for it.
pub const MAX_BYTES: usize = 512 << 20;
/// As malloc would align it.
const ALIGN: usize = 16;

thread_local! {
    /// Whether Lua's own code runs, rather than ours.
    static IN_LUA: Cell<bool> = const { Cell::new(false) };
    /// A function of ours was given more than there may be.
    static EXCEEDED: Cell<bool> = const { Cell::new(false) };
}

/// A function of ours begins to run, or goes on.
#[inline]
pub fn enter_native() {
    IN_LUA.set(false);
}

/// Lua's code begins to run, or goes on.
#[inline]
pub fn leave_native() {
    IN_LUA.set(true);
}

/// Whether more was given than there may be since this was asked.
#[inline]
pub fn was_exceeded() -> bool {
    EXCEEDED.take()
}

/// The memory of one machine.
pub struct Memory {
    used: Cell<usize>,
    /// What functions of ours hold besides, for as long as they run: see [`Memory::hold`].
    held: Cell<usize>,
    limit: Cell<usize>,
    /// Something was refused since all that nobody needs was collected.
    refused: Cell<bool>,
}

impl Memory {
    pub fn new(limit: usize) -> Memory {
        Memory { used: Cell::new(0), held: Cell::new(0), limit: Cell::new(limit), refused: Cell::new(false) }
    }

    pub fn used(&self) -> usize {
        self.used.get()
    }

    pub fn limit(&self) -> usize {
        self.limit.get()
    }

    pub fn set_limit(&self, bytes: usize) {
        self.limit.set(bytes);
    }

    /// Whether it is high time to collect what nobody needs, where so much was left the last time: Lua does not do that by
    /// itself before it fails.
    pub fn is_tight(&self, collected: usize) -> bool {
        let limit = self.limit.get();
        let is_much = self.used.get() > limit / 4 * 3 && self.used.get() > collected.saturating_add(limit / 8);
        self.refused.get() || is_much
    }

    /// All that nobody needs is collected.
    pub fn note_collected(&self) {
        self.refused.set(false);
    }

    /// Whether there may be so many bytes more.
    pub fn has_room(&self, more: usize) -> bool {
        self.used.get().saturating_add(self.held.get()).saturating_add(more) <= self.limit.get()
    }

    /// A function of ours that holds `before` bytes is going to hold `bytes`, if there may be as many. (The allocator's
    /// memory is not Lua's; but all scripts together may hold no more than they may have.)
    pub fn hold(&self, before: usize, bytes: usize) -> bool {
        let is_allowed = bytes <= before || bytes <= MAX_BYTES && self.has_room(bytes - before);
        if is_allowed {
            self.held.set(self.held.get() - before + bytes);
        }
        is_allowed
    }

    fn allows(&self, more: usize) -> bool {
        if self.has_room(more) {
            return true;
        }
        self.refused.set(true);
        if !IN_LUA.get() {
            EXCEEDED.set(true);
        }
        !IN_LUA.get()
    }

    /// The function that Lua calls; `memory` is a [`Memory`].
    pub unsafe extern "C" fn allocate(
        memory: *mut c_void,
        block: *mut c_void,
        old_bytes: usize,
        new_bytes: usize,
    ) -> *mut c_void {
        // SAFETY: the machine that was made with it keeps it; blocks come from here, with the size they were given.
        unsafe {
            let memory = &*memory.cast::<Memory>();
            let layout = |bytes: usize| Layout::from_size_align_unchecked(border::end(bytes), ALIGN);
            if !block.is_null() && old_bytes > 0 {
                border::check(block.cast(), old_bytes);
            }
            if new_bytes == 0 {
                if !block.is_null() && old_bytes > 0 {
                    memory.used.set(memory.used.get() - old_bytes);
                    dealloc(block.cast(), layout(old_bytes));
                }
                return std::ptr::null_mut();
            }
            let is_new = block.is_null() || old_bytes == 0;
            let held = if is_new { 0 } else { old_bytes };
            if new_bytes > held && (new_bytes > isize::MAX as usize - ALIGN || !memory.allows(new_bytes - held)) {
                return std::ptr::null_mut();
            }
            let given = if is_new {
                alloc(layout(new_bytes))
            } else {
                realloc(block.cast(), layout(old_bytes), border::end(new_bytes))
            };
            if !given.is_null() {
                border::draw(given, new_bytes);
                memory.used.set(memory.used.get() - held + new_bytes);
            }
            given.cast()
        }
    }
}

/// How Lua knows the function.
pub const ALLOCATE: ffi::lua_Alloc = Memory::allocate;

/// In tests a border lies behind each block: who writes beyond the end of a block is found out when the block is given back or
/// changes its size.
#[cfg(test)]
mod border {
    const BYTE: u8 = 0xb0;

    /// A stack is written to far behind its end, if at all.
    fn bytes(block_bytes: usize) -> usize {
        if block_bytes < 512 { 16 } else { 8 << 10 }
    }

    pub fn end(block_bytes: usize) -> usize {
        block_bytes + bytes(block_bytes)
    }

    /// # Safety
    /// The block has been given, with its border.
    pub unsafe fn draw(block: *mut u8, block_bytes: usize) {
        // SAFETY: as the caller says.
        unsafe { block.add(block_bytes).write_bytes(BYTE, bytes(block_bytes)) };
    }

    /// # Safety
    /// As above.
    pub unsafe fn check(block: *const u8, block_bytes: usize) {
        // SAFETY: as the caller says.
        let border = unsafe { std::slice::from_raw_parts(block.add(block_bytes), bytes(block_bytes)) };
        if let Some(at) = border.iter().position(|&byte| byte != BYTE) {
            eprintln!("a block of {block_bytes} bytes was written to {at} bytes behind its end");
            std::process::abort();
        }
    }
}

#[cfg(not(test))]
mod border {
    #[inline(always)]
    pub fn end(block_bytes: usize) -> usize {
        block_bytes
    }

    #[inline(always)]
    pub unsafe fn draw(_: *mut u8, _: usize) {}

    #[inline(always)]
    pub unsafe fn check(_: *const u8, _: usize) {}
}
