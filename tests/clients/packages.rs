//! redis-py, ioredis and node-redis, and packages on top of them: their checks are programs of their own in `python` and
//! `javascript`, with the packages that `scripts/test` installs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::common::{Kind, Server, on_every_server, tools_are_required};
use super::{on_servers, succeeded};

/// Where `scripts/test` installs packages.
const PACKAGES: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/clients");
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients");

/// Runs a check against a server; EmberDB has to pass what is newer than redis-server 7.0, too.
fn check(server: &Server, mut program: Command) {
    program.arg(server.port().to_string());
    if server.kind() != Kind::Redis {
        program.arg("--newer");
    }
    succeeded(program.output().expect("the program starts"));
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

/// A program in `python`, if its packages have been installed.
fn python(program: &str) -> Option<impl Fn() -> Command> {
    let python = installed("python/bin/python")?;
    let program = Path::new(SOURCES).join("python").join(program);
    Some(move || {
        let mut command = Command::new(&python);
        // What it imports from beside it would be compiled into the sources' folder.
        command.arg("-B").arg(&program);
        command
    })
}

/// A program in `javascript`, if its packages have been installed.
fn javascript(program: &str) -> Option<impl Fn() -> Command> {
    let modules = installed("javascript/node_modules")?;
    // A program finds its packages beside it.
    let copy = modules.with_file_name(program);
    fs::copy(Path::new(SOURCES).join("javascript").join(program), &copy).expect("a copy of the program");
    Some(move || {
        let mut command = Command::new("node");
        command.arg(&copy);
        command
    })
}

#[test]
fn redis_py_works() {
    let Some(program) = python("check.py") else { return };
    on_servers(|server| check(server, program()));
}

#[test]
fn ioredis_and_node_redis_work() {
    let Some(program) = javascript("check.mjs") else { return };
    on_servers(|server| check(server, program()));
}

#[test]
fn locks_limits_and_caches_in_python_work() {
    let Some(program) = python("scripts.py") else { return };
    on_every_server(&[], |server| check(server, program()));
}

#[test]
fn rq_and_celery_work() {
    let Some(program) = python("queues.py") else { return };
    on_every_server(&[], |server| check(server, program()));
}

#[test]
fn queues_locks_limits_and_sessions_in_javascript_work() {
    let Some(program) = javascript("scripts.mjs") else { return };
    on_every_server(&[], |server| check(server, program()));
}
