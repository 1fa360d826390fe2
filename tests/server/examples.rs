//! The programs in `examples` run with real clients, and what they say of themselves holds.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{Server, Value, int, javascript, on_embers, python, wait_until};

/// An example ends within a few seconds; where the machine does much else it takes longer, and gives up before this.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs an example against servers with one shard and with three. It has to succeed, and to leave nothing behind.
fn holds(example: Option<impl Fn() -> Command>) {
    let Some(example) = example else { return };
    on_embers(&[], |server| {
        run(server, example());
        let mut client = server.client();
        assert_eq!(client.call("DBSIZE"), int(0), "{:?} are left", client.call("KEYS *"));
        assert_eq!(client.call("EXPIRY POLICY LIST"), Value::Array(Vec::new()));
    });
}

fn run(server: &Server, mut example: Command) {
    let path = server.folder().join("example");
    let output = fs::File::create(&path).expect("a file for output");
    let mut child = example
        .env("EMBERDB_PORT", server.port().to_string())
        .stdin(Stdio::null())
        .stdout(output.try_clone().expect("a second handle"))
        .stderr(output)
        .spawn()
        .expect("the example starts");
    let ended = wait_until(LIMIT, || child.try_wait().expect("wait").is_some());
    let _ = child.kill();
    let status = child.wait().expect("wait");
    let output = String::from_utf8_lossy(&fs::read(&path).expect("output")).into_owned();
    assert!(ended, "{example:?} has not ended after {LIMIT:?}:\n{output}");
    assert!(status.success(), "{example:?}: {status}\n{output}");
}

#[test]
fn the_session_store_holds() {
    holds(python("examples/session_store.py"));
}

#[test]
fn the_cache_holds() {
    holds(python("examples/cache.py"));
}

#[test]
fn the_rate_limiter_holds() {
    holds(javascript("examples/rate_limiter.mjs"));
}

#[test]
fn delayed_jobs_hold() {
    holds(javascript("examples/delayed_jobs.mjs"));
}
