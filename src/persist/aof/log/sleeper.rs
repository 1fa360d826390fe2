//! A thread that sleeps until it is called, by callers that never wait.
//!
//! Who calls leaves something to do before; who goes to sleep says so and then looks once more. A fence between the two steps
//! on each side makes sure that one of the two sees the other.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::Thread;
use std::time::Duration;

#[derive(Default)]
pub(super) struct Sleeper {
    sleeps: AtomicBool,
    /// It was called, and has not looked since.
    is_called: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Sleeper {
    /// Wakes the thread, if it sleeps.
    #[inline]
    pub fn call(&self) {
        self.is_called.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.sleeps.load(Ordering::Relaxed) && self.sleeps.swap(false, Ordering::AcqRel) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// To be called by the thread: returns when it was called since this returned last, or after so long; whether it was called.
    pub fn sleep(&self, at_most: Option<Duration>) -> bool {
        self.thread.get_or_init(std::thread::current);
        loop {
            // (It may be woken for nothing, by a call that it has seen already, which has taken this back.)
            self.sleeps.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if self.is_called.load(Ordering::Relaxed) {
                break;
            }
            match at_most {
                Some(at_most) => {
                    std::thread::park_timeout(at_most);
                    break;
                }
                None => std::thread::park(),
            }
        }
        self.sleeps.store(false, Ordering::Relaxed);
        // What was left before a call is seen from here on; a call that comes later is for the next time.
        self.is_called.swap(false, Ordering::AcqRel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    /// A call that is lost would let this wait for ever.
    #[test]
    fn no_call_is_lost() {
        let (sleeper, made, seen) =
            (Arc::new(Sleeper::default()), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (of_thread, told, look) = (sleeper.clone(), made.clone(), seen.clone());
        let thread = std::thread::spawn(move || {
            while look.load(Ordering::Relaxed) < 20_000 {
                of_thread.sleep(None);
                look.store(told.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        });
        for number in 1..=20_000 {
            made.store(number, Ordering::Relaxed);
            sleeper.call();
            if number % 100 == 0 {
                while seen.load(Ordering::Relaxed) < number {
                    std::thread::yield_now();
                }
            }
        }
        thread.join().expect("no panic");
        let began = std::time::Instant::now();
        sleeper.sleep(Some(Duration::from_millis(1)));
        assert!(began.elapsed() < Duration::from_secs(10));
    }
}
