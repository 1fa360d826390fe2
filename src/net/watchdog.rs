//! Over glommio's sockets: a thread that looks whether every shard's pulse beats, and wakes those that sleep too deeply.
//!
//! A shard sets timers so that it wakes up although glommio may send it to sleep with work to do (`sockets.rs`). Should
//! all of them be lost nothing inside of the shard could help it: a signal ends any wait in the kernel. One to a thread
//! that is only busy, or waits for its core, does nothing.

use super::Bell;
use crate::observe::log;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// A shard that did not beat between two looks is woken. Its pulse at rest is a tenth of this.
const LOOK: Duration = Duration::from_secs(1);

/// Nobody else uses it, and nobody is hurt by it.
const SIGNAL: libc::c_int = libc::SIGURG;

/// Watches over all shards for as long as the process runs.
///
/// # Errors
/// Where the signal cannot be handled, or a thread cannot be had.
pub fn watch_over(bells: Arc<[Bell]>) -> io::Result<()> {
    // A signal that is ignored interrupts nothing.
    signal_hook::flag::register(SIGNAL, Arc::new(AtomicBool::new(false)))?;
    let mut beats = vec![0; bells.len()];
    std::thread::Builder::new().name("watchdog".to_owned()).spawn(move || {
        loop {
            std::thread::sleep(LOOK);
            for (index, (bell, before)) in bells.iter().zip(&mut beats).enumerate() {
                let (thread, now) = bell.pulse();
                if thread != 0 && now == std::mem::replace(before, now) {
                    log::debug(format_args!("Shard {index} is busy or sleeps too deeply: waking it"));
                    // SAFETY: a system call on numbers; the thread is one of this process.
                    unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), thread, SIGNAL) };
                }
            }
        }
    })?;
    Ok(())
}
