//! A wake-up between tasks of one executor. One that comes while nobody waits is kept for the next who does.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::task::{Poll, Waker};

#[derive(Default)]
pub struct Notify {
    set: Cell<bool>,
    waiters: RefCell<Vec<Waker>>,
}

impl Notify {
    #[inline]
    pub fn notify(&self) {
        self.set.set(true);
        if !self.waiters.borrow().is_empty() {
            self.waiters.take().into_iter().for_each(Waker::wake);
        }
    }

    /// Waits for a notification. Of several who wait one takes it, the others wait on; where all should go on, each
    /// looks at a condition of its own around this.
    pub fn wait(&self) -> impl Future<Output = ()> + '_ {
        poll_fn(move |cx| {
            if self.set.take() {
                return Poll::Ready(());
            }
            let mut waiters = self.waiters.borrow_mut();
            // A task that gave up waiting and waits again is in the list already.
            if !waiters.iter().any(|waker| waker.will_wake(cx.waker())) {
                waiters.push(cx.waker().clone());
            }
            Poll::Pending
        })
    }
}
