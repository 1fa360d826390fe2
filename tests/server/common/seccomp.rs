//! Kernels, and containers' profiles, that refuse io_uring.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Which calls are refused.
#[derive(Clone, Copy, Debug)]
pub enum Refused {
    /// Everything of io_uring.
    All,
    /// Asking which operations there are, which kernels could not answer at first.
    Probe,
    /// Rings of so many entries or more: those of the server's own network, not glommio's.
    Long(u32),
}

/// Whether this whole run is where io_uring is refused (`scripts/without-ring`): what needs a ring is passed over.
pub fn is_ring_refused() -> bool {
    std::env::var_os("EMBERDB_TEST_WITHOUT_RING").is_some()
}

/// Whether a network has to be passed over, since it needs a ring where there is none.
pub fn is_refused(network: &str) -> bool {
    network == "glommio" && is_ring_refused()
}

const OF_IO_URING: [libc::c_long; 3] =
    [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

const fn step(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

const fn load(offset: usize) -> libc::sock_filter {
    step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset as u32)
}

/// Goes on with the next step where it holds, else with the one behind so many.
const fn unless(test: u32, k: u32, skip: u8) -> libc::sock_filter {
    libc::sock_filter { jf: skip, ..step(libc::BPF_JMP | test | libc::BPF_K, k) }
}

/// The process, and those that it starts, are answered this error.
pub fn refuse_io_uring(command: &mut Command, refused: Refused, errno: i32) {
    const NUMBER: usize = std::mem::offset_of!(libc::seccomp_data, nr);
    // (The lower half of each argument, on machines that keep it in front.)
    const ARGUMENTS: usize = std::mem::offset_of!(libc::seccomp_data, args);
    /// `IORING_REGISTER_PROBE`.
    const REGISTER_PROBE: u32 = 8;
    let answer = step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | errno as u32);
    let mut filter = vec![load(NUMBER)];
    match refused {
        Refused::All => {
            for call in OF_IO_URING {
                filter.extend([unless(libc::BPF_JEQ, call as u32, 1), answer]);
            }
        }
        Refused::Probe => filter.extend([
            unless(libc::BPF_JEQ, libc::SYS_io_uring_register as u32, 3),
            load(ARGUMENTS + size_of::<u64>()),
            unless(libc::BPF_JEQ, REGISTER_PROBE, 1),
            answer,
        ]),
        Refused::Long(entries) => filter.extend([
            unless(libc::BPF_JEQ, libc::SYS_io_uring_setup as u32, 3),
            load(ARGUMENTS),
            unless(libc::BPF_JGE, entries, 1),
            answer,
        ]),
    }
    filter.push(step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    // SAFETY: between fork and exec there are two system calls, on memory of the closure's own.
    unsafe {
        command.pre_exec(move || {
            let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
            let prepared = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0;
            if prepared { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        })
    };
}
