//! Turns that tasks of one executor take: one task at a time, in the order in which they asked.

use super::note_woken;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

#[derive(Default)]
pub struct Turns {
    is_taken: Cell<bool>,
    queue: RefCell<VecDeque<Rc<Waiting>>>,
}

#[derive(Default)]
struct Waiting {
    has_turn: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// A turn, until this is dropped.
pub struct Turn<'t>(&'t Turns);

/// A place in the queue, which a task that gives up leaves.
struct Queued<'t> {
    turns: &'t Turns,
    place: Rc<Waiting>,
}

impl Turns {
    pub async fn take(&self) -> Turn<'_> {
        if self.is_taken.replace(true) {
            let place = Rc::<Waiting>::default();
            self.queue.borrow_mut().push_back(place.clone());
            let queued = Queued { turns: self, place };
            poll_fn(|cx| {
                if queued.place.has_turn.get() {
                    return Poll::Ready(());
                }
                queued.place.waker.replace(Some(cx.waker().clone()));
                Poll::Pending
            })
            .await;
            queued.place.has_turn.set(false);
        }
        Turn(self)
    }

    fn pass_on(&self) {
        let Some(next) = self.queue.borrow_mut().pop_front() else {
            self.is_taken.set(false);
            return;
        };
        next.has_turn.set(true);
        note_woken();
        if let Some(waker) = next.waker.take() {
            waker.wake();
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.pass_on();
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.turns.queue.borrow_mut().retain(|place| !Rc::ptr_eq(place, &self.place));
        if self.place.has_turn.get() {
            // A turn was given to a task that does not want it any more.
            self.turns.pass_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::{block_on, poll_once};

    #[test]
    fn turns_are_taken_in_order_and_none_is_lost() {
        block_on(async {
            let turns = Turns::default();
            let first = turns.take().await;
            let mut second = Box::pin(turns.take());
            let mut third = Box::pin(turns.take());
            let mut fourth = Box::pin(turns.take());
            assert!(poll_once(&mut second).await.is_none());
            assert!(poll_once(&mut third).await.is_none());
            assert!(poll_once(&mut fourth).await.is_none());
            drop(first);
            assert!(poll_once(&mut third).await.is_none());
            let turn = poll_once(&mut second).await.expect("its turn");
            // One that gives up before its turn, and one that gives up when the turn was given to it.
            drop(third);
            drop(turn);
            drop(fourth);
            assert!(!turns.is_taken.get());
            drop(poll_once(turns.take()).await.expect("nobody is before it"));
        });
    }
}
