//! A wake-up between tasks of one executor. One that comes while nobody waits is kept for the next who does.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::task::{Poll, Waker};

thread_local! {
    static WOKEN: Cell<bool> = const { Cell::new(false) };
}

/// A task of this executor became ready: who drives the loop should let it run soon.
#[inline]
pub fn note_woken() {
    WOKEN.set(true);
}

pub(super) fn take_woken() -> bool {
    WOKEN.take()
}

pub(super) fn is_woken() -> bool {
    WOKEN.get()
}

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
            note_woken();
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
