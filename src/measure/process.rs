//! What the system says about a server's process, and about our own.

use std::fs;

/// CPU time of all its threads, nanoseconds: `stat` counts in clock ticks, and ten seconds of a server at 0.1 % are
/// one of them. Threads that end in between take theirs with them.
pub fn cpu_ns(pid: u32) -> Option<u64> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let times = tasks.filter_map(|task| {
        let text = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Some(times.sum())
}

/// Memory it holds now, bytes.
pub fn resident_bytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

/// CPU time of this process, nanoseconds: all threads, those that have ended too.
pub fn own_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid place to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Cores of the machine, whichever of them this process may use.
pub fn cores() -> u64 {
    // SAFETY: no memory is touched.
    let cores = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    cores.max(1) as u64
}

pub fn exists(pid: u32) -> bool {
    fs::exists(format!("/proc/{pid}/task")).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_seen() {
        let pid = std::process::id();
        assert!(exists(pid) && cpu_ns(pid).is_some());
        assert!(resident_bytes(pid).unwrap() > 100_000);
        assert!(own_cpu_ns() > 0 && cores() > 0);
        assert!(!exists(u32::MAX) && cpu_ns(u32::MAX).is_none());
    }
}
