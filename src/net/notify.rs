//! A wake-up between tasks of one executor. One that comes while nobody waits is kept for the next who does.

use super::Bell;
use futures_lite::future::or;
use glommio::timer::Timer;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

thread_local! {
    static WOKEN: Cell<bool> = const { Cell::new(false) };
}

/// A task of this executor became ready: who drives the loop should let it run soon.
#[inline]
pub fn note_woken() {
    WOKEN.set(true);
}

/// Lets whatever else waits go first.
pub async fn step_back() {
    note_woken();
    glommio::executor().yield_task_queue_now().await;
}

pub(super) fn take_woken() -> bool {
    WOKEN.take()
}

/// Makes sure that the executor wakes up. glommio 0.9 sleeps although tasks are ready where its thread was held up by
/// the system for longer than its preemption timer right before it would have run them (`run_task_queues` then says that
/// there were none); it would sleep until something else happens. The pulse itself is such a task, so a beat that is
/// lost has others behind it, and some of them so far behind that they are still to come after the thread was held up
/// for long: one that lost all its timers in such a pause would sleep for ever.
#[derive(Default)]
pub(super) struct Pulse {
    rests: Cell<bool>,
    quickened: Notify,
}

/// How long it may sleep then: while there is work, and while there is none (when its first piece comes).
const PULSE: Duration = Duration::from_millis(2);
const RESTING_PULSE: Duration = Duration::from_millis(100);
/// Timers that are set for each beat, each so many times further away than the one before, so that the last is minutes
/// away: the first that is heard takes the others back.
const TIMERS_A_BEAT: usize = 8;
const FURTHER: u32 = 4;

impl Pulse {
    /// There is work.
    pub fn quicken(&self) {
        if self.rests.replace(false) {
            self.quickened.notify();
        }
    }

    /// Nothing is ready, and what comes wakes the executor.
    pub fn rest(&self) {
        self.rests.set(true);
    }

    /// Beats for as long as the executor runs, and counts that on the shard's bell.
    pub async fn beat(self: Rc<Pulse>, bells: Arc<[Bell]>, me: usize) {
        loop {
            bells[me].beat();
            if self.rests.get() {
                or(self.quickened.wait(), next_beat(RESTING_PULSE)).await;
            } else {
                next_beat(PULSE).await;
            }
        }
    }
}

async fn next_beat(pulse: Duration) {
    let mut timers: [Timer; TIMERS_A_BEAT] = std::array::from_fn(|n| Timer::new(pulse * FURTHER.pow(n as u32)));
    poll_fn(|cx| {
        let ready = timers.iter_mut().fold(false, |ready, timer| ready | Pin::new(timer).poll(cx).is_ready());
        if ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
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
