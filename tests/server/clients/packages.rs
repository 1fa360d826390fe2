//! redis-py, ioredis and node-redis, and packages on top of them: their checks are programs of their own in `python` and
//! `javascript`.

use std::process::Command;

use super::{on_servers, succeeded};
use crate::common::{Kind, Server, javascript, on_every_server, python};

/// Runs a check against a server; EmberDB has to pass what is newer than redis-server 7.0, too.
fn check(server: &Server, mut program: Command) {
    program.arg(server.port().to_string());
    if server.kind() != Kind::Redis {
        program.arg("--newer");
    }
    succeeded(program.output().expect("the program starts"));
}

#[test]
fn redis_py_works() {
    let Some(program) = python("tests/server/clients/python/check.py") else { return };
    on_servers(|server| check(server, program()));
}

#[test]
fn ioredis_and_node_redis_work() {
    let Some(program) = javascript("tests/server/clients/javascript/check.mjs") else { return };
    on_servers(|server| check(server, program()));
}

#[test]
fn locks_limits_and_caches_in_python_work() {
    let Some(program) = python("tests/server/clients/python/scripts.py") else { return };
    on_every_server(&[], |server| check(server, program()));
}

#[test]
fn rq_and_celery_work() {
    let Some(program) = python("tests/server/clients/python/queues.py") else { return };
    on_every_server(&[], |server| check(server, program()));
}

#[test]
fn queues_locks_limits_and_sessions_in_javascript_work() {
    let Some(program) = javascript("tests/server/clients/javascript/scripts.mjs") else { return };
    on_every_server(&[], |server| check(server, program()));
}

#[test]
fn rooms_and_semaphores_of_many_processes_in_javascript_work() {
    let Some(program) = javascript("tests/server/clients/javascript/rooms.mjs") else { return };
    on_every_server(&[], |server| check(server, program()));
}
