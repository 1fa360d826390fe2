//! A wake-up between tasks of one executor. One that comes while nobody waits is kept for the next who does.

use super::timers::sleep;
use crate::clock::store_us;
use crate::executor::yield_now;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::task::{Poll, Waker};
use std::time::Duration;

thread_local! {
    static WOKEN: Cell<bool> = const { Cell::new(false) };
    /// When a task of this executor has rested last, store microseconds; none where tasks need no rests.
    static RESTED_US: Cell<Option<u64>> = const { Cell::new(None) };
}

/// A rest, and how long until the next.
const REST: Duration = Duration::from_micros(50);
const REST_EVERY_US: u64 = 1_000;

/// A task of this executor became ready: who drives the loop should let it run soon.
#[inline]
pub fn note_woken() {
    WOKEN.set(true);
}

/// Lets whatever else waits go first.
pub async fn step_back() {
    note_woken();
    match is_to_rest() {
        true => sleep(REST).await,
        false => yield_now().await,
    }
}

/// Tasks of this executor rest now and then in place of a step back. glommio looks for what comes from outside when its timer of
/// preemption rings, and sets no timer where it has slept and what woke it was another timer: a task that only ever steps back then
/// keeps everybody from the sockets.
pub(super) fn rest_now_and_then() {
    RESTED_US.set(Some(store_us()));
}

fn is_to_rest() -> bool {
    let Some(rested_us) = RESTED_US.get() else { return false };
    let now_us = store_us();
    let is_due = now_us.saturating_sub(rested_us) >= REST_EVERY_US;
    if is_due {
        RESTED_US.set(Some(now_us));
    }
    is_due
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
