//! redis-py, ioredis and node-redis: their checks are programs of their own, `python/check.py` and
//! `javascript/check.mjs`, with the packages that `scripts/test` installs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::common::{Kind, Server, tools_are_required};
use super::{on_servers, succeeded};

/// Where `scripts/test` installs packages.
const PACKAGES: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/clients");
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients");

/// Runs a check against both servers; EmberDB has to pass what is newer than redis-server 7.0, too.
fn check(program: impl Fn() -> Command) {
    on_servers(|server: &Server| {
        let mut command = program();
        command.arg(server.port().to_string());
        if server.kind() != Kind::Redis {
            command.arg("--newer");
        }
        succeeded(command.output().expect("the program starts"));
    });
}

/// The path of what has been installed, if it has.
fn installed(path: &str) -> Option<PathBuf> {
    let path = Path::new(PACKAGES).join(path);
    if path.exists() {
        return Some(path);
    }
    assert!(!tools_are_required(), "{} is missing; scripts/test installs it", path.display());
    eprintln!("skipped: {} is missing; scripts/test installs it", path.display());
    None
}

#[test]
fn redis_py_works() {
    let Some(python) = installed("python/bin/python") else { return };
    check(|| {
        let mut command = Command::new(&python);
        command.arg(Path::new(SOURCES).join("python/check.py"));
        command
    });
}

#[test]
fn ioredis_and_node_redis_work() {
    let Some(modules) = installed("javascript/node_modules") else { return };
    // A program finds its packages beside it.
    let program = modules.with_file_name("check.mjs");
    fs::copy(Path::new(SOURCES).join("javascript/check.mjs"), &program).expect("a copy of the program");
    check(|| {
        let mut command = Command::new("node");
        command.arg(&program);
        command
    });
}
