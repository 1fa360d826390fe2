//! What every test that talks to a running server shares: starting and stopping servers ([`server`]), a small RESP
//! client that shows every byte type of the protocol as it came ([`client`], [`value`]), TLS ([`tls`]), programs and
//! packages in other languages ([`programs`], [`packages`]), kernels without io_uring ([`seccomp`]), and waiting with a deadline.
//!
//! A test never sleeps a fixed time and hopes: it polls with [`wait_until`] or reads from a socket with a timeout.

// Each file in `tests/` is a crate of its own and uses a part of this module.
#![allow(dead_code, unused_imports)]

pub mod client;
pub mod packages;
pub mod programs;
pub mod seccomp;
pub mod server;
pub mod tls;
pub mod value;

use std::time::{Duration, Instant};

pub use client::{Client, encode, words};
pub use packages::{javascript, python};
pub use programs::{fed, succeeded};
pub use server::{Kind, Server, on_embers, on_every_server};
pub use value::{Value, bulk, error, int, simple};

/// How often [`wait_until`] looks.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Looks at `condition` until it holds (true) or `limit` has passed (false). It is looked at once more at the end, so a
/// test process that was not scheduled for a while does not report a failure it never saw.
pub fn wait_until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() >= end {
            return condition();
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// A number that the environment has under this name.
pub fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

/// A command whose reply is no error.
pub fn ok(client: &mut Client, line: &str) {
    let reply = client.call(line);
    assert!(!reply.is_error(), "{line}: {reply:?}");
}

/// True where a missing tool is a failure instead of a reason to skip.
pub fn tools_are_required() -> bool {
    std::env::var_os("CI").is_some()
}

/// True if `program` can be started. A missing one is reported on standard error, and fails the test where `CI` is set.
pub fn have_tool(program: &str) -> bool {
    let found = std::process::Command::new(program).arg("--version").output().is_ok();
    if !found {
        assert!(!tools_are_required(), "{program} is not installed; scripts/test installs it");
        eprintln!("skipped: {program} is not installed; scripts/test installs it");
    }
    found
}
