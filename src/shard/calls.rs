//! Calls: work that one shard does for a task of another, which waits for the result.

use super::Shard;
use super::message::{AnyResult, CallFuture, Message, Work};
use crate::executor;
use crate::net::{Notify, step_back};
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

/// A call that has not been answered yet.
#[derive(Default)]
pub(super) struct Unanswered {
    result: RefCell<Option<AnyResult>>,
    answered: Notify,
}

/// A task's first turn ends before it has asked for anything, since it begins within that of a connection.
const FIRST_TURNS: usize = 3;

/// The result of a call, when it comes.
pub type CallResult<R> = Pin<Box<dyn Future<Output = R>>>;

impl Shard {
    /// Runs `work` on a shard (this one too) and returns what it returns. Calls to one shard run in the order in
    /// which they are made.
    pub fn call<R: Send + 'static>(
        self: &Rc<Shard>,
        target: usize,
        work: impl FnOnce(&Rc<Shard>) -> R + Send + 'static,
    ) -> CallResult<R> {
        self.send_call(target, Work::Now(Box::new(move |shard| Box::new(work(shard)))))
    }

    /// The same for work that takes several turns of its shard.
    pub fn call_later<R: Send + 'static, F: Future<Output = R> + 'static>(
        self: &Rc<Shard>,
        target: usize,
        work: impl FnOnce(Rc<Shard>) -> F + Send + 'static,
    ) -> CallResult<R> {
        let start = move |shard| {
            let future = work(shard);
            Box::pin(async move { Box::new(future.await) as AnyResult }) as CallFuture
        };
        self.send_call(target, Work::Later(Box::new(start)))
    }

    /// The same on every shard at the same time; the results in the order of the shards.
    pub async fn call_all_later<R: Send + 'static, F: Future<Output = R> + 'static>(
        self: &Rc<Shard>,
        work: impl FnOnce(Rc<Shard>) -> F + Send + Clone + 'static,
    ) -> Vec<R> {
        let calls: Vec<CallResult<R>> = (0..self.count).map(|target| self.call_later(target, work.clone())).collect();
        let mut results = Vec::with_capacity(calls.len());
        for call in calls {
            results.push(call.await);
        }
        results
    }

    /// Runs `work` on every shard at the same time; the results in the order of the shards.
    pub async fn call_all<R: Send + 'static>(
        self: &Rc<Shard>,
        work: impl FnOnce(&Rc<Shard>) -> R + Send + Clone + 'static,
    ) -> Vec<R> {
        let calls: Vec<_> = (0..self.count).map(|target| self.call(target, work.clone())).collect();
        let mut results = Vec::with_capacity(calls.len());
        for call in calls {
            results.push(call.await);
        }
        results
    }

    /// Waits until all that was admitted before is where its keys are: tasks have asked for their keys when they have had
    /// their first turns, or say that they are about to, everything has been sent to its shard after one more round of calls, and is there after the next.
    pub async fn let_admitted_arrive(self: &Rc<Shard>) {
        let let_tasks_begin = |shard: Rc<Shard>| async move {
            for _ in 0..FIRST_TURNS {
                step_back().await;
            }
            shard.let_ask().await;
        };
        self.call_all_later(let_tasks_begin).await;
        for _ in 0..2 {
            self.call_all(|_| ()).await;
        }
    }

    /// Runs `work` on another shard without waiting for it.
    pub fn tell(&self, target: usize, work: impl FnOnce(&Rc<Shard>) + Send + 'static) {
        self.post(target, Message::Tell(Box::new(work)));
    }

    fn send_call<R: 'static>(self: &Rc<Shard>, target: usize, work: Work) -> CallResult<R> {
        let (call, result) = self.expect_result();
        if target == self.id {
            answer(self, call, self.id, work);
        } else {
            self.post(target, Message::Call { call, origin: self.id, work });
        }
        result
    }

    /// A name for a call, and its result when it comes.
    pub(super) fn expect_result<R: 'static>(&self) -> (u64, CallResult<R>) {
        let call = self.next_call.get();
        self.next_call.set(call + 1);
        let waiting = Rc::new(Unanswered::default());
        self.unanswered_calls.borrow_mut().insert(call, waiting.clone());
        let result = async move {
            waiting.answered.wait().await;
            let result = waiting.result.take().expect("answered with a result");
            *result.downcast().expect("a call returns what it was made to return")
        };
        (call, Box::pin(result))
    }

    pub(super) fn answered(&self, call: u64, result: AnyResult) {
        // None where it was given up.
        if let Some(waiting) = self.unanswered_calls.borrow_mut().remove(&call) {
            waiting.result.replace(Some(result));
            waiting.answered.notify();
        }
    }

    /// Nobody waits for the answer of a call any more.
    pub(super) fn give_up_call(&self, call: u64) {
        self.unanswered_calls.borrow_mut().remove(&call);
    }
}

/// Does a call's work and sends the result to where it came from.
pub(super) fn answer(shard: &Rc<Shard>, call: u64, origin: usize, work: Work) {
    let deliver = move |shard: &Rc<Shard>, result: AnyResult| {
        if origin == shard.id {
            shard.answered(call, result);
        } else {
            shard.post(origin, Message::Answer { call, result });
        }
    };
    match work {
        Work::Now(work) => {
            let result = work(shard);
            deliver(shard, result);
        }
        Work::Later(work) => {
            let shard = shard.clone();
            executor::spawn(async move {
                let result = work(shard.clone()).await;
                deliver(&shard, result);
            });
        }
    }
}
