//! Entries with an allocation of their own: those too large for a block's heap, those whose addresses others keep
//! (members of sorted sets), and the elements of small collections.

use super::entry::{Entry, Plan, Stored, write_value};
use smallvec::SmallVec;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};
use std::ops::Range;
use std::ptr::{NonNull, copy, copy_nonoverlapping, write_bytes};

/// An owning thin pointer; freed by [`Whole::free`], not by drop, since blocks keep it inside stubs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Whole(NonNull<u8>);

impl Whole {
    pub fn new(key: &[u8], value: Stored, clock: u32) -> Whole {
        let plan = Plan::new(key.len(), &value, clock).filled();
        let at = allocate(&plan);
        // SAFETY: freshly allocated as planned.
        unsafe { write_value(&value, plan.write_key(at, key)) };
        Whole(at)
    }

    /// Lays out what was elsewhere: `fill` writes the value, as long as planned, with the old entry before it.
    pub(super) fn planned(plan: Plan, old: Entry, fill: impl FnOnce(Entry, *mut u8)) -> Whole {
        let plan = plan.filled();
        let at = allocate(&plan);
        // SAFETY: freshly allocated as planned.
        fill(old, unsafe { plan.write_key(at, old.key()) });
        Whole(at)
    }

    /// # Safety
    /// The address is that of a whole entry.
    #[inline]
    pub(super) unsafe fn from_address(at: NonNull<u8>) -> Whole {
        Whole(at)
    }

    #[inline]
    pub(super) fn address(self) -> NonNull<u8> {
        self.0
    }

    /// The entry, for as long as nobody writes or frees it: that is the caller's to see to.
    #[inline]
    pub fn entry<'a>(self) -> Entry<'a> {
        // SAFETY: an entry is there, and no stub.
        unsafe { Entry::at(self.0) }
    }

    /// # Safety
    /// The entry must not be used afterwards, and nothing else may own it.
    pub unsafe fn free(self) {
        let layout = layout(self.entry().bytes());
        // SAFETY: allocated with this layout (its size is a function of the header).
        unsafe { dealloc(self.0.as_ptr(), layout) }
    }

    /// Lays the entry out anew elsewhere: `fill` writes the value there, with the old entry before it.
    ///
    /// # Safety
    /// The old pointer must not be used afterwards. `fill` writes as much as planned.
    unsafe fn rewrite(self, plan: Plan, fill: impl FnOnce(Entry, *mut u8)) -> Whole {
        let new = Whole::planned(plan, self.entry(), fill);
        // SAFETY: ours to free, and not used again.
        unsafe { self.free() };
        new
    }

    /// Puts another value into the entry, which keeps its clock and far deadline; the pointer may change.
    ///
    /// # Safety
    /// The old pointer must not be used afterwards. `value` must not point into the entry.
    #[must_use]
    pub unsafe fn replace_value(self, value: Stored) -> Whole {
        // SAFETY: as our own contract.
        unsafe { self.put(self.entry().plan().with_value(&value), value) }
    }

    /// As [`Whole::replace_value`], laid out as planned.
    ///
    /// # Safety
    /// As [`Whole::replace_value`].
    pub(super) unsafe fn put(self, plan: Plan, value: Stored) -> Whole {
        let (old, plan) = (self.entry().plan(), plan.filled());
        // SAFETY: where it is laid out the same, key and value stand where they stood; else as our own contract.
        unsafe {
            if (old.value_len + old.spare, old.far) == (plan.value_len + plan.spare, plan.far) {
                plan.write(self.0);
                write_value(&value, self.entry().value_at());
                return self;
            }
            self.rewrite(plan, |_, at| write_value(&value, at))
        }
    }

    /// Changes the length of a string that is kept as bytes; new bytes are zero, the value counts as raw from now on.
    ///
    /// # Safety
    /// The old pointer must not be used afterwards.
    #[must_use]
    pub unsafe fn resize_value(self, new_len: usize) -> Whole {
        let len = self.entry().stored().len();
        // SAFETY: as our own contract; what is written is inside the value.
        unsafe {
            let whole = self.resize(new_len);
            whole.entry().plan().raw().write(whole.0);
            if new_len > len {
                write_bytes(whole.entry().value_at().add(len), 0, new_len - len);
            }
            whole
        }
    }

    /// Replaces a part of a packed collection.
    ///
    /// # Safety
    /// The old pointer must not be used afterwards. `with` must not point into the entry.
    #[must_use]
    pub unsafe fn splice(self, at: Range<usize>, with: &[u8]) -> Whole {
        let len = self.entry().stored().len();
        assert!(at.start <= at.end && at.end <= len, "a part of the value");
        let (new_len, behind) = (len - at.len() + with.len(), at.start + with.len());
        let move_tail = |whole: Whole| {
            let value = whole.entry().value_at();
            // SAFETY: both are inside the value, before it shrinks or after it has grown.
            unsafe { copy(value.add(at.end), value.add(behind), len - at.end) };
        };
        // SAFETY: as our own contract; what is moved and written is inside the value.
        unsafe {
            if new_len < len {
                move_tail(self);
            }
            let whole = if new_len == len { self } else { self.resize(new_len) };
            if new_len > len {
                move_tail(whole);
            }
            copy_nonoverlapping(with.as_ptr(), whole.entry().value_at().add(at.start), with.len());
            whole
        }
    }

    /// Changes the length of a value that is kept as bytes; new bytes are not written.
    ///
    /// # Safety
    /// The old pointer must not be used afterwards.
    unsafe fn resize(self, new_len: usize) -> Whole {
        let old = self.entry().plan();
        let capacity = old.value_len + old.spare;
        let (same, len) = (Plan { value_len: new_len, spare: 0, ..old }, old.value_len);
        // SAFETY: the header is written where it was, of the same length; what is copied is inside both values.
        unsafe {
            if old.is_wide() && new_len <= capacity {
                Plan { spare: capacity - new_len, ..same }.write(self.0);
                return self;
            }
            if !old.is_wide() && !same.is_wide() && same.bytes() - new_len == old.bytes() - len {
                let pointer = realloc(self.0.as_ptr(), layout(old.bytes()), same.bytes());
                let Some(pointer) = NonNull::new(pointer) else { handle_alloc_error(layout(same.bytes())) };
                same.write(pointer);
                return Whole(pointer);
            }
            self.rewrite(same.grown(), |old, to| {
                copy_nonoverlapping(old.value_at(), to, len.min(new_len));
            })
        }
    }

    /// Puts the value behind another key, laid out as planned but for what is spare; where there is room a large one is moved
    /// and not copied.
    ///
    /// # Safety
    /// The old pointer must not be used afterwards. The key must not point into the entry.
    pub(super) unsafe fn relaid(self, key: &[u8], plan: Plan) -> Whole {
        let (old, len) = (self.entry(), plan.value_len);
        let room = old.bytes();
        let plan = Plan { spare: 0, ..plan };
        // SAFETY: the value is inside of the room before and behind the move, and in front of it there is room for the rest.
        unsafe {
            if plan.is_large_string() && plan.bytes() <= room {
                copy(old.value_at(), self.0.as_ptr().add(plan.value_offset()), len);
                Plan { spare: room - plan.bytes(), ..plan }.write_key(self.0, key);
                return self;
            }
            let plan = plan.filled();
            let at = allocate(&plan);
            copy_nonoverlapping(old.value_at(), plan.write_key(at, key), len);
            self.free();
            Whole(at)
        }
    }

    /// Gives the entry room for an exact deadline, or takes it away; the pointer may change.
    ///
    /// # Safety
    /// The old pointer must not be used afterwards.
    #[must_use]
    pub unsafe fn with_far_deadline(self, deadline_ms: Option<u64>) -> Whole {
        let old = self.entry().plan();
        let plan = Plan { far: deadline_ms, ..old };
        // SAFETY: the header is written where it was, of the same length; else as our own contract.
        unsafe {
            if old.far.is_some() == deadline_ms.is_some() {
                plan.write(self.0);
                return self;
            }
            let key: SmallVec<[u8; 256]> = self.entry().key().into();
            self.relaid(&key, plan)
        }
    }
}

/// Room for an entry.
fn allocate(plan: &Plan) -> NonNull<u8> {
    let layout = layout(plan.bytes());
    // SAFETY: an entry has a header, so that the layout is not empty.
    let pointer = unsafe { alloc(layout) };
    NonNull::new(pointer).unwrap_or_else(|| handle_alloc_error(layout))
}

fn layout(bytes: usize) -> Layout {
    // Lengths are bounded by the protocol's limits (far below isize::MAX).
    Layout::from_size_align(bytes, 8).expect("an entry's size fits the address space")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::entry::Value;

    fn round_trip(key: &[u8], value: &[u8], far: Option<u64>) {
        let whole = Whole::new(key, Value::of(value).into(), 77);
        // SAFETY: each pointer is given up as it is replaced.
        unsafe {
            let whole = whole.with_far_deadline(far);
            let entry = whole.entry();
            assert_eq!((entry.key(), entry.value(), entry.clock()), (key, Value::of(value), 77));
            assert_eq!(entry.far_deadline_ms(), far);
            let whole = whole.with_far_deadline(Some(9));
            let entry = whole.entry();
            assert_eq!((entry.key(), entry.value()), (key, Value::of(value)));
            assert_eq!(entry.far_deadline_ms(), Some(9));
            let whole = whole.with_far_deadline(None);
            let entry = whole.entry();
            assert_eq!((entry.key(), entry.value(), entry.clock()), (key, Value::of(value), 77));
            let whole = whole.replace_value(Value::Bytes(b"other").into());
            assert_eq!((whole.entry().key(), whole.entry().value()), (key, Value::Bytes(b"other")));
            whole.free();
        }
    }

    #[test]
    fn entries_of_all_shapes_keep_what_they_are_given() {
        let long_key = vec![b'k'; 5000];
        let long_value = vec![b'v'; (1 << 20) + 3];
        for key in [&b""[..], b"k", b"0123456789abcdef", &long_key[..255], &long_key[..256], &long_key] {
            for value in [&b""[..], b"12", b"-9223372036854775808", b"text", &long_value[..256], &long_value] {
                for far in [None, Some(u64::MAX / 2)] {
                    round_trip(key, value, far);
                }
            }
        }
    }

    #[test]
    fn a_value_grows_across_the_limits_of_the_forms_and_shrinks() {
        // SAFETY: the pointer is replaced each time, and freed last.
        unsafe {
            let mut whole = Whole::new(b"key", Value::Bytes(b"ab").into(), 1).with_far_deadline(Some(5));
            let mut expected = b"ab".to_vec();
            let far_beyond = if cfg!(miri) { (1 << 20) + 9 } else { (3 << 20) + 1 };
            let around = [(1usize << 20) - 1, 1 << 20, (1 << 20) + 5, far_beyond, 10];
            for len in [2usize, 3, 100, 255, 256, 300, 200].into_iter().chain(around) {
                whole = whole.resize_value(len);
                expected.resize(len, 0);
                let entry = whole.entry();
                assert_eq!(entry.value(), Value::Bytes(&expected));
                assert_eq!((entry.key(), entry.far_deadline_ms(), entry.clock()), (&b"key"[..], Some(5), 1));
                assert!(entry.is_raw());
            }
            whole.free();
        }
    }
}
