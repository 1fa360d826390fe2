//! What the system says of a thread: whether it waits for something, or would go on if it had a core.

use std::path::Path;
use std::sync::Arc;

thread_local! {
    static HERE: Option<Arc<Path>> = find();
}

fn find() -> Option<Arc<Path>> {
    let here = std::fs::read_link("/proc/thread-self").ok()?;
    Some(Path::new("/proc").join(here).join("stat").into())
}

/// Where the system tells of this thread, if it does.
pub(super) fn here() -> Option<Arc<Path>> {
    HERE.with(Clone::clone)
}

/// Whether the thread that is told of there waits. One of which nothing is known is taken to.
pub(super) fn waits(thread: &Path) -> bool {
    let told = std::fs::read(thread).unwrap_or_default();
    // Behind its name, which may be anything, in brackets.
    let state = memchr::memrchr(b')', &told).and_then(|end| told.get(end + 2));
    state != Some(&b'R')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;

    #[test]
    fn a_thread_that_computes_is_told_from_one_that_waits() {
        static STOPS: AtomicBool = AtomicBool::new(false);
        let (tell, told) = mpsc::channel();
        let (go_on, goes_on) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(here().expect("/proc")).expect("somebody wants it");
            let _ = goes_on.recv();
            while !STOPS.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let of_thread = told.recv().expect("it says so");
        while !waits(&of_thread) {
            std::thread::yield_now();
        }
        drop(go_on);
        while waits(&of_thread) {
            std::thread::yield_now();
        }
        STOPS.store(true, Ordering::Relaxed);
        thread.join().expect("it ends");
        assert!(waits(&of_thread), "nothing is known of it any more");
    }
}
