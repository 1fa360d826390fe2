//! What other threads tell tasks of an executor: they leave it somewhere, and ring the shard's bell
//! ([`Bell::ring_from_outside`]).
//!
//! [`Bell::ring_from_outside`]: super::Bell::ring_from_outside

use super::bell::Bell;
use super::notify::note_woken;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::future::poll_fn;
use std::io::{self, Read};
use std::ops::Deref;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

thread_local! {
    static WAITING: RefCell<Vec<Waker>> = const { RefCell::new(Vec::new()) };
    /// The bells, and which of them is this executor's.
    static BELL: RefCell<Option<(Arc<[Bell]>, usize)>> = const { RefCell::new(None) };
    static RUNG: Cell<u64> = const { Cell::new(0) };
}

/// Of a thread of its own: there may be many.
const STACK_BYTES: usize = 256 << 10;

type Work = Box<dyn FnOnce() + Send>;

/// Has work done by the one thread of the process that may block.
pub(super) fn beside(work: Work) -> io::Result<()> {
    static WORKER: Mutex<Option<Sender<Work>>> = Mutex::new(None);
    let mut worker = WORKER.lock().unwrap_or_else(PoisonError::into_inner);
    if worker.is_none() {
        let (sender, receiver) = mpsc::channel::<Work>();
        let run = move || receiver.into_iter().for_each(|work| work());
        std::thread::Builder::new().name("beside".to_owned()).spawn(run)?;
        *worker = Some(sender);
    }
    let sent = worker.as_ref().is_some_and(|worker| worker.send(work).is_ok());
    if sent { Ok(()) } else { Err(io::Error::other("the thread has ended")) }
}

/// Which bell the threads ring that this executor waits for.
pub(super) fn here_is(bells: Arc<[Bell]>, me: usize) {
    BELL.set(Some((bells, me)));
}

/// Runs something that may block for long, on a thread of its own: nobody else waits for that.
///
/// # Errors
/// Where no thread can be had.
pub async fn on_thread<R: Send + 'static>(name: &str, work: impl FnOnce() -> R + Send + 'static) -> io::Result<R> {
    let bell = BELL.with_borrow(Clone::clone);
    let (bells, me) = bell.ok_or_else(|| io::Error::other("nothing would hear of its end"))?;
    let (sender, receiver) = mpsc::channel();
    let run = move || {
        // Where nobody waits any more the process ends.
        let _ = sender.send(work());
        bells[me].ring_from_outside();
    };
    std::thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(run)?;
    next_from_outside(&receiver).await.ok_or_else(|| io::Error::other("the thread has ended"))
}

/// A file whose name is gone. The system frees its bytes where the last handle is closed, which for gigabytes takes a disk a
/// while: a thread of its own closes the handle.
#[derive(Debug)]
pub struct Nameless(File);

impl Nameless {
    pub fn new(file: File) -> Nameless {
        Nameless(file)
    }
}

impl Deref for Nameless {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Read for Nameless {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read(bytes)
    }
}

impl Drop for Nameless {
    fn drop(&mut self) {
        // (What cannot be had for the thread is closed here.)
        let Ok(nothing) = File::open("/dev/null") else { return };
        let file = std::mem::replace(&mut self.0, nothing);
        let _ = std::thread::Builder::new().name("close".to_owned()).stack_size(STACK_BYTES).spawn(move || drop(file));
    }
}

/// Some thread has rung: all who wait for one look.
pub(super) fn rung() {
    RUNG.set(RUNG.get() + 1);
    let waiting = WAITING.take();
    if !waiting.is_empty() {
        note_woken();
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// Waits until some thread has rung since it was looked last, which `looked` counts.
pub async fn rung_outside(looked: &mut u64) {
    poll_fn(|cx| {
        let rung = RUNG.get();
        if std::mem::replace(looked, rung) != rung {
            return Poll::Ready(());
        }
        WAITING.with_borrow_mut(|waiting| waiting.push(cx.waker().clone()));
        Poll::Pending
    })
    .await;
}

/// The next that another thread sends; None when nothing will come any more. The sender rings after each.
pub async fn next_from_outside<T>(receiver: &Receiver<T>) -> Option<T> {
    poll_fn(|cx| match receiver.try_recv() {
        Ok(item) => Poll::Ready(Some(item)),
        Err(TryRecvError::Disconnected) => Poll::Ready(None),
        Err(TryRecvError::Empty) => {
            WAITING.with_borrow_mut(|waiting| waiting.push(cx.waker().clone()));
            Poll::Pending
        }
    })
    .await
}
