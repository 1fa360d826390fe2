//! The plain executor: tasks that are ready stand in one queue and run in the order in which they became so. It never
//! sleeps: a task that has to wait for the system, the transport's, does so within its turn, and comes back to the end of
//! the queue while others are ready.

use async_task::Runnable;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::thread::JoinHandle;

thread_local! {
    static IS_HERE: Cell<bool> = const { Cell::new(false) };
    static READY: RefCell<VecDeque<Runnable>> = const { RefCell::new(VecDeque::new()) };
}

/// Whether this thread's executor is a plain one.
#[inline]
pub(super) fn is_here() -> bool {
    IS_HERE.get()
}

/// Whether tasks other than the one that asks are ready, on a plain executor.
#[inline]
pub fn has_ready() -> bool {
    READY.with_borrow(|ready| !ready.is_empty())
}

fn schedule(runnable: Runnable) {
    READY.with_borrow_mut(|ready| ready.push_back(runnable));
}

/// (async-task makes sure of what its contract for tasks of one thread asks: one that is run elsewhere panics.)
fn task(future: impl Future<Output = ()> + 'static) -> Runnable {
    let (runnable, task) = async_task::spawn_local(future, schedule);
    task.detach();
    runnable
}

pub(super) fn spawn(future: impl Future<Output = ()> + 'static) {
    task(future).run();
}

pub(super) fn spawn_later(future: impl Future<Output = ()> + 'static) {
    task(future).schedule();
}

pub(super) fn start<F: Future<Output = ()> + 'static>(
    name: &str,
    core: Option<usize>,
    run: impl FnOnce() -> F + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let run = move || {
        if let Some(id) = core {
            core_affinity::set_for_current(core_affinity::CoreId { id });
        }
        self::run(run());
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(run)
}

/// Runs tasks until none is ready: nothing but a task could wake one.
fn run(first: impl Future<Output = ()> + 'static) {
    IS_HERE.set(true);
    spawn(first);
    while let Some(runnable) = READY.with_borrow_mut(VecDeque::pop_front) {
        runnable.run();
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Queue, Shares, spawn, spawn_into, yield_now};
    use super::*;
    use std::rc::Rc;

    /// Runs what is given with a place to note steps in, and returns them.
    fn noted<F: Future<Output = ()> + 'static>(
        test: impl FnOnce(Rc<RefCell<Vec<&'static str>>>) -> F + Send + 'static,
    ) -> Vec<&'static str> {
        let run = || {
            let notes = Rc::<RefCell<Vec<&'static str>>>::default();
            super::run(test(notes.clone()));
            assert!(!has_ready());
            notes.take()
        };
        std::thread::spawn(run).join().expect("the executor's thread")
    }

    #[test]
    fn a_task_runs_at_once_and_one_that_is_queued_in_its_turn() {
        let notes = noted(|notes| async move {
            let note = |step| {
                let notes = notes.clone();
                async move { notes.borrow_mut().push(step) }
            };
            spawn_into(Queue::current(), note("queued first"));
            spawn_into(Queue::new("another", Shares::Always(1), None), note("queued second"));
            spawn(note("at once"));
            notes.borrow_mut().push("the first task");
        });
        assert_eq!(notes, ["at once", "the first task", "queued first", "queued second"]);
    }

    #[test]
    fn who_yields_comes_after_all_that_were_ready() {
        let notes = noted(|notes| async move {
            for step in ["a", "b"] {
                let notes = notes.clone();
                spawn(async move {
                    for _ in 0..2 {
                        notes.borrow_mut().push(step);
                        assert!(step == "a" || has_ready());
                        yield_now().await;
                    }
                });
            }
            notes.borrow_mut().push("first");
            yield_now().await;
            notes.borrow_mut().push("again");
        });
        assert_eq!(notes, ["a", "b", "first", "a", "b", "again"]);
    }
}
