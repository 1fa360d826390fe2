//! Timers of one executor: ours, so that the transport that drives it knows for how long it may wait.

use super::notify::{Notify, note_woken};
use crate::clock::store_us;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

thread_local! {
    static TIMERS: Rc<Timers> = Rc::default();
}

#[derive(Default)]
pub(super) struct Timers {
    /// By the moment at which they ring, in store microseconds, and a number of their own.
    wakers: RefCell<BTreeMap<(u64, u64), Waker>>,
    next_id: Cell<u64>,
    /// The first moment has become earlier.
    pub earlier: Notify,
}

impl Timers {
    /// Those of this thread.
    pub fn here() -> Rc<Timers> {
        TIMERS.with(Rc::clone)
    }

    /// When the next rings, in store microseconds.
    pub fn next_us(&self) -> Option<u64> {
        self.wakers.borrow().first_key_value().map(|((us, _), _)| *us)
    }

    /// Rings those whose moment has come.
    #[inline]
    pub fn ring(&self, now_us: u64) {
        while self.next_us().is_some_and(|us| us <= now_us) {
            let first = self.wakers.borrow_mut().pop_first();
            if let Some((_, waker)) = first {
                note_woken();
                waker.wake();
            }
        }
    }

    fn set(&self, at: (u64, u64), waker: Waker) {
        if self.next_us().is_none_or(|us| at.0 < us) {
            self.earlier.notify();
        }
        self.wakers.borrow_mut().insert(at, waker);
    }

    fn take_back(&self, at: (u64, u64)) {
        self.wakers.borrow_mut().remove(&at);
    }
}

/// Ends when so much time has passed.
pub struct Sleep {
    timers: Rc<Timers>,
    at: (u64, u64),
}

/// Waits for so long.
pub fn sleep(duration: Duration) -> Sleep {
    let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    let timers = Timers::here();
    let id = timers.next_id.get();
    timers.next_id.set(id + 1);
    Sleep { timers, at: (store_us().saturating_add(us), id) }
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context) -> Poll<()> {
        if store_us() >= self.at.0 {
            return Poll::Ready(());
        }
        self.timers.set(self.at, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.timers.take_back(self.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn those_that_are_due_ring_once_and_those_that_were_dropped_never() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let mut cx = Context::from_waker(&waker);
        let hour = Duration::from_secs(3600);
        let mut sleeps: Vec<Sleep> = (1..=3).map(|hours| sleep(hour * hours)).collect();
        for sleep in &mut sleeps {
            assert!(Pin::new(&mut *sleep).poll(&mut cx).is_pending());
            // A second look sets no second timer.
            assert!(Pin::new(sleep).poll(&mut cx).is_pending());
        }
        let timers = Timers::here();
        let second_us = sleeps[1].at.0;
        sleeps.remove(0);
        assert_eq!(timers.next_us(), Some(second_us));
        timers.ring(second_us - 1);
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
        timers.ring(second_us);
        timers.ring(second_us);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        drop(sleeps);
        assert_eq!(timers.next_us(), None);
    }

    #[test]
    fn what_takes_no_time_is_over_at_once() {
        let mut cx = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut sleep(Duration::ZERO)).poll(&mut cx).is_ready());
        assert!(Pin::new(&mut sleep(Duration::MAX)).poll(&mut cx).is_pending());
    }
}
