//! Whether io_uring is to be had; and glommio's executor, which needs three rings a shard.

use glommio::{ExecutorJoinHandle, LocalExecutorBuilder, Placement};
use io_uring::{IoUring, Probe, opcode};
use std::fmt::Display;
use std::future::Future;
use std::io;
use std::time::Duration;

/// Memory that each executor's rings lock. glommio takes about 512 KiB with these settings, and asks for as much of
/// everybody.
const LOCKED_BYTES_A_SHARD: u64 = 512 * 1024;
const IO_MEMORY_BYTES: usize = 64 * 1024;
const RING_DEPTH: usize = 128;
/// An operation that came with the kernel that glommio asks for.
const SINCE_LINUX_5_8: u8 = opcode::Tee::CODE;
/// When glommio interrupts what has no queue with a preemption timer of its own: never. An executor that is to be
/// preempted when it looks for tasks believes that there are none, and sleeps (see `net::sockets`).
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Makes a ring, uses it as those who need rings do, and gives it back: glommio panics where that does not work.
///
/// # Errors
/// What the kernel, or who guards it, answers. Where the kernel is too old for glommio (before Linux 5.8) that is ENOSYS.
pub fn probe() -> io::Result<()> {
    let too_old = || io::Error::from_raw_os_error(libc::ENOSYS);
    let (mut ring, mut known) = (IoUring::new(1)?, Probe::new());
    ring.submitter().register_probe(&mut known).map_err(|error| match error.raw_os_error() {
        // Before Linux 5.6 nobody could ask.
        Some(libc::EINVAL) => too_old(),
        _ => error,
    })?;
    if !known.is_supported(SINCE_LINUX_5_8) {
        return Err(too_old());
    }
    // SAFETY: an entry that refers to nothing.
    unsafe { ring.submission().push(&opcode::Nop::new().build()) }.map_err(io::Error::other)?;
    ring.submit_and_wait(1).map(drop)
}

/// Whether io_uring is not to be had at all: the kernel is without (ENOSYS), or it is forbidden (kernel.io_uring_disabled
/// and most seccomp profiles: EPERM; Podman's: ENOSYS; some: EOPNOTSUPP). Where memory is short it is to be had.
pub fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS | libc::EOPNOTSUPP))
}

/// What to do about an error of [`probe`].
pub fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOSYS) => "use Linux 5.8 or newer, or allow io_uring in the container's seccomp profile",
        Some(libc::EPERM | libc::EOPNOTSUPP) => {
            "allow it with sysctl kernel.io_uring_disabled=0, or in the container's seccomp profile (Docker: \
             --security-opt seccomp=...)"
        }
        Some(libc::ENOMEM) => "raise the limit of lockable memory (ulimit -l, or LimitMEMLOCK= in a systemd unit)",
        _ => "see whether the system's log says why",
    }
}

/// Whether as much memory may be locked as rings for so many shards take.
///
/// # Errors
/// What to do about it.
pub fn check_locked_memory(shards: usize) -> Result<(), String> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a valid place to write to.
    unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) };
    // SAFETY: no arguments, no memory touched.
    let root = unsafe { libc::geteuid() } == 0;
    let counted = if root { 1 } else { shards };
    let needed = counted as u64 * LOCKED_BYTES_A_SHARD;
    if limit.rlim_cur >= needed {
        return Ok(());
    }
    let fewer = if counted > 1 { ", start fewer shards with --shards" } else { "" };
    Err(format!(
        "io_uring needs {needed} bytes of lockable memory for {shards} shards, and the limit is {}: raise it (ulimit \
         -l {}, or LimitMEMLOCK= in a systemd unit){fewer}, or do without io_uring (network epoll)",
        limit.rlim_cur,
        needed / 1024
    ))
}

pub(super) fn start<F: Future<Output = ()> + 'static>(
    name: &str,
    core: Option<usize>,
    run: impl FnOnce() -> F + Send + 'static,
) -> Result<ExecutorJoinHandle<()>, String> {
    LocalExecutorBuilder::new(core.map_or(Placement::Unbound, Placement::Fixed))
        .name(name)
        .io_memory(IO_MEMORY_BYTES)
        .ring_depth(RING_DEPTH)
        .preempt_timer(NEVER)
        .spawn(run)
        .map_err(|error| explain(&error))
}

/// What is amiss where an executor does not start.
pub(super) fn explain(error: &impl Display) -> String {
    format!(
        "{error}. Rings need io_uring (Linux 5.8 or newer; not disabled by kernel.io_uring_disabled or a container's \
         seccomp profile) and {LOCKED_BYTES_A_SHARD} bytes of lockable memory for each shard (ulimit -l). With network \
         epoll it works without"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_told_from_what_runs_short() {
        let error = io::Error::from_raw_os_error;
        for code in [libc::EPERM, libc::ENOSYS, libc::EOPNOTSUPP] {
            assert!(is_refusal(&error(code)), "{code}");
        }
        for code in [libc::ENOMEM, libc::EMFILE, libc::ENFILE, libc::EINVAL] {
            assert!(!is_refusal(&error(code)), "{code}");
        }
    }
}
