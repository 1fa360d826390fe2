//! What runs a shard's tasks: one executor a thread, of one of two kinds.
//!
//! ```text
//!  tasks of a shard ── spawn, spawn_into, yield_now
//!                          │
//!                ┌─────────┴──────────┐
//!             glommio               plain
//!    queues with shares,      one queue, first come
//!    rings of its own         first served; no system calls
//! ```
//!
//! glommio's executor cannot start where the kernel refuses io_uring, as it does in many containers; the plain one needs
//! nothing of the kernel. No task may wait for anything that an executor waits for: the transport that a shard has
//! (`net/`) is a task like the others, and the one place where its thread sleeps. So a task that is woken is woken by its
//! own thread.
//!
//! | file | what |
//! |---|---|
//! | `plain.rs` | the plain executor |
//! | `rings.rs` | whether io_uring is to be had; what glommio's executor takes |

mod plain;
mod rings;

pub use plain::has_ready;
pub use rings::{check_locked_memory, is_refusal, probe, remedy};

use futures_lite::future;
use glommio::{ExecutorJoinHandle, Latency, SharesManager, TaskQueueHandle};
use std::future::Future;
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Glommio,
    Plain,
}

/// A queue of tasks, of which each has its share of the thread's time. The plain executor has one.
#[derive(Clone, Copy)]
pub struct Queue(Option<TaskQueueHandle>);

/// What a queue has of the thread's time, against the others' shares.
pub enum Shares {
    Always(usize),
    By(Box<dyn Fn() -> usize>),
}

impl SharesManager for Shares {
    fn shares(&self) -> usize {
        match self {
            Shares::Always(shares) => *shares,
            Shares::By(shares) => shares(),
        }
    }
}

impl Queue {
    /// A new one. Where `preempt` is given, its tasks are asked to yield so soon (`yield_if_needed`), for the others' sake.
    pub fn new(name: &str, shares: Shares, preempt: Option<Duration>) -> Queue {
        if plain::is_here() {
            return Queue(None);
        }
        let shares = match shares {
            Shares::Always(shares) => glommio::Shares::Static(shares),
            shares @ Shares::By(_) => glommio::Shares::Dynamic(Rc::new(shares)),
        };
        let latency = preempt.map_or(Latency::NotImportant, Latency::Matters);
        Queue(Some(glommio::executor().create_task_queue(shares, latency, name)))
    }

    /// That of the task that runs now.
    pub fn current() -> Queue {
        Queue((!plain::is_here()).then(|| glommio::executor().current_task_queue()))
    }
}

/// Runs a task at once, until it first waits; then whenever it is woken.
pub fn spawn(task: impl Future<Output = ()> + 'static) {
    if plain::is_here() {
        plain::spawn(task);
    } else {
        glommio::spawn_local(task).detach();
    }
}

/// Runs a task when its queue's turn comes.
pub fn spawn_into(queue: Queue, task: impl Future<Output = ()> + 'static) {
    match queue.0 {
        None => plain::spawn_later(task),
        Some(queue) => {
            glommio::spawn_local_into(task, queue).expect("queues are not removed").detach();
        }
    }
}

/// Lets the other tasks that are ready go first.
pub async fn yield_now() {
    if plain::is_here() {
        future::yield_now().await;
    } else {
        glommio::executor().yield_task_queue_now().await;
    }
}

/// An executor's thread.
pub enum Running {
    Glommio(ExecutorJoinHandle<()>),
    Plain(JoinHandle<()>),
}

/// Starts an executor on a thread of its own, which stays on one core where that is asked for.
///
/// # Errors
/// What was refused, and what to do about it.
pub fn start<F: Future<Output = ()> + 'static>(
    kind: Kind,
    name: &str,
    core: Option<usize>,
    run: impl FnOnce() -> F + Send + 'static,
) -> Result<Running, String> {
    match kind {
        Kind::Glommio => rings::start(name, core, run).map(Running::Glommio),
        Kind::Plain => plain::start(name, core, run).map(Running::Plain).map_err(|error| error.to_string()),
    }
}

impl Running {
    /// Waits until the executor has ended.
    ///
    /// # Errors
    /// It has not ended well.
    pub fn join(self) -> Result<(), String> {
        match self {
            Running::Glommio(thread) => thread.join().map_err(|error| rings::explain(&error)),
            Running::Plain(thread) => thread.join().map_err(|_| "its thread has panicked".to_owned()),
        }
    }
}
