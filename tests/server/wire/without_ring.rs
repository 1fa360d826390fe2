//! Where io_uring is refused, as in many containers: what the server does then, and what it does not do where it is told to
//! take a ring.

use super::lifecycle::assert_explained;
use crate::common::seccomp::{Refused, is_ring_refused, refuse_io_uring};
use crate::common::server::{Port, start_and_fail_under};
use crate::common::tls::{Options, flags};
use crate::common::{Client, Kind, Server, Value, bulk, int, wait_until};
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);
const EMBERS: [Kind; 2] = [Kind::Ember { shards: 1 }, Kind::Ember { shards: 3 }];
/// What forbids io_uring (Docker, sysctl), what is without (Podman, old kernels), and what one cluster says.
const ANSWERS: [i32; 3] = [libc::EPERM, libc::ENOSYS, libc::EOPNOTSUPP];
/// (The network of a whole run comes before these flags.)
const AUTO: [&str; 2] = ["--network", "auto"];
/// What the server's own ring has room for; glommio's have less.
const OWN_RING_ENTRIES: u32 = 1024;

fn refusing(errno: i32) -> impl Fn(&mut Command) {
    move |command| refuse_io_uring(command, Refused::All, errno)
}

/// Gives the process as much lockable memory as many systems do.
fn lock_little(command: &mut Command) {
    let limit = libc::rlimit { rlim_cur: 64 * 1024, rlim_max: 64 * 1024 };
    // SAFETY: between fork and exec there is one system call, on memory of the closure's own.
    unsafe {
        command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
}

/// Data, deaths and the words about them, many connections, long values: all that a network carries.
#[track_caller]
fn assert_serves(server: &Server) {
    let mut listener = server.client();
    listener.call("CONFIG SET notify-keyspace-events Ex");
    listener.call("SUBSCRIBE __keyevent@0__:expired");
    let mut clients: Vec<Client> = (0..50).map(|_| server.client()).collect();
    for (i, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.command(&["SET", &format!("key:{i}"), "v"]), Value::ok());
    }
    let long = "x".repeat(4 << 20);
    assert_eq!(clients[0].command(&["SET", "long", &long]), Value::ok());
    for _ in 0..8 {
        clients[0].send("GET long");
    }
    for _ in 0..8 {
        assert_eq!(clients[0].read(), bulk(&long));
    }
    assert_eq!(clients[1].command(&["MSET", "a", "1", "b", "2", "c", "3"]), Value::ok());
    assert_eq!(clients[2].call("DEL a b c"), int(3));
    assert_eq!(clients[3].call("SET mortal v PX 30"), Value::ok());
    let told = listener.read_within(LIMIT).expect("its death is told");
    assert!(format!("{told:?}").contains("mortal"), "{told:?}");
    clients[4].send("BLPOP list 0");
    assert_eq!(clients[5].call("RPUSH list v"), int(1));
    assert_eq!(clients[4].read_within(LIMIT), Some(Value::Array(vec![bulk("list"), bulk("v")])));
    assert_eq!(clients[6].call("DBSIZE"), int(51));
}

#[test]
fn what_is_refused_is_done_without_and_said() {
    for (errno, kind) in ANSWERS.into_iter().flat_map(|errno| EMBERS.map(|kind| (errno, kind))) {
        let mut server = Server::start_prepared(kind, &AUTO, refusing(errno));
        assert_eq!(server.info("network").as_deref(), Some("epoll"));
        assert_eq!(server.info("multiplexing_api").as_deref(), Some("epoll"));
        assert_serves(&server);
        let output = server.output();
        assert_eq!(output.matches("io_uring is not available here").count(), 1, "{output}");
        assert!(output.contains("epoll network"), "{output}");
        server.signal("TERM");
        let (status, _) = server.wait_for_end(LIMIT).expect("it ends");
        assert!(status.success(), "{status}");
    }
}

#[test]
fn what_was_kept_comes_back() {
    for kind in EMBERS {
        let kept = [&AUTO[..], &["--appendonly", "yes", "--save", ""]].concat();
        let server = Server::start_prepared(kind, &kept, refusing(libc::EPERM));
        let mut client = server.client();
        for i in 0..100 {
            assert_eq!(client.command(&["SET", &format!("key:{i}"), "v", "EX", "1000"]), Value::ok());
        }
        assert!(matches!(client.call("BGREWRITEAOF"), Value::Simple(_)));
        assert!(wait_until(LIMIT, || server.info("aof_rewrite_in_progress").as_deref() == Some("0")));
        assert_eq!(client.call("SET last v"), Value::ok());
        let server = server.restart_prepared(&kept, refusing(libc::EPERM));
        let mut client = server.client();
        assert_eq!(client.call("DBSIZE"), int(101));
        assert!(matches!(client.call("TTL key:7"), Value::Int(900..=1000)));
        assert_eq!(client.call("SAVE"), Value::ok());
        // The snapshot alone, and where there is a ring again.
        let server = server.restart(&[&AUTO[..], &["--appendonly", "no"]].concat());
        assert_eq!(server.client().call("DBSIZE"), int(101));
        assert!(matches!(server.client().call("BGSAVE"), Value::Simple(_)));
        assert!(wait_until(LIMIT, || server.info("rdb_bgsave_in_progress").as_deref() == Some("0")));
    }
}

#[test]
fn tls_is_served() {
    for shards in [1, 3] {
        let port = Port::claim();
        let flags = [&AUTO[..], &flags(port.number())].concat();
        let server = Server::start_prepared(Kind::Ember { shards }, &flags, refusing(libc::ENOSYS));
        let mut client = Client::connect_tls(port.number(), Options::default()).expect("a connection under TLS");
        let long = "x".repeat(1 << 20);
        assert_eq!(client.command(&["SET", "long", &long]), Value::ok());
        for _ in 0..4 {
            client.send("GET long");
        }
        for _ in 0..4 {
            assert_eq!(client.read(), bulk(&long));
        }
        assert_eq!(server.client().call("STRLEN long"), int(1 << 20));
    }
}

/// Kernels before Linux 5.8 have io_uring, but too little of it for anybody here.
#[test]
fn a_kernel_that_is_too_old_for_rings_is_served_over_epoll() {
    if is_ring_refused() {
        return;
    }
    let refuse = |command: &mut Command| refuse_io_uring(command, Refused::Probe, libc::EINVAL);
    let server = Server::start_prepared(EMBERS[1], &AUTO, refuse);
    assert_eq!(server.info("network").as_deref(), Some("epoll"));
    let failed = start_and_fail_under(EMBERS[0], Port::claim().number(), &["--network", "glommio"], refuse);
    assert_explained(&failed, &["network glommio:", "linux 5.8", "network epoll"]);
}

/// It has no ring, and its memory is not locked.
#[test]
fn epoll_takes_nothing_of_io_uring() {
    for (flags, errno) in [(AUTO, libc::EPERM), (["--network", "epoll"], libc::EPERM), (["--network", "epoll"], 0)] {
        let server = Server::start_prepared(EMBERS[1], &flags, |command| {
            lock_little(command);
            if errno != 0 {
                refuse_io_uring(command, Refused::All, errno);
            }
        });
        assert_eq!(server.info("network").as_deref(), Some("epoll"));
        let open = fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("its open files");
        let open = open.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
        let open: Vec<String> = open.map(|path| path.display().to_string()).collect();
        assert_eq!(open.iter().filter(|path| path.contains("eventpoll")).count(), 3, "{open:?}");
        assert!(!open.iter().any(|path| path.contains("io_uring")), "{open:?}");
    }
}

#[test]
fn a_network_that_is_named_and_refused_is_a_clear_error() {
    for (errno, remedy) in ANSWERS.into_iter().zip(["kernel.io_uring_disabled", "linux 5.8", "seccomp"]) {
        for network in ["ring", "glommio"] {
            let flags = ["--network", network];
            let failed = start_and_fail_under(EMBERS[1], Port::claim().number(), &flags, refusing(errno));
            let name = format!("network {network}:");
            assert_explained(&failed, &[&name, "io_uring is not available", remedy, "seccomp", "network epoll"]);
        }
    }
}

/// Whoever gives a server too little memory should hear of it.
#[test]
fn memory_that_runs_short_is_no_refusal() {
    for network in ["auto", "ring", "glommio"] {
        let refuse = refusing(libc::ENOMEM);
        let failed = start_and_fail_under(EMBERS[0], Port::claim().number(), &["--network", network], refuse);
        assert_explained(&failed, &["io_uring does not work", "lockable memory", "ulimit -l"]);
    }
}

/// A kernel that has io_uring, but not all that the server's own ring takes of it.
#[test]
fn where_only_the_own_ring_is_refused_glommio_serves() {
    if is_ring_refused() {
        return;
    }
    let refuse = |command: &mut Command| refuse_io_uring(command, Refused::Long(OWN_RING_ENTRIES), libc::EINVAL);
    for kind in EMBERS {
        let server = Server::start_prepared(kind, &AUTO, refuse);
        assert_eq!(server.info("network").as_deref(), Some("glommio"));
        assert_eq!(server.info("multiplexing_api").as_deref(), Some("io_uring"));
        assert_serves(&server);
    }
    let failed = start_and_fail_under(EMBERS[0], Port::claim().number(), &["--network", "ring"], refuse);
    assert_explained(&failed, &["network ring:", "linux 6.1", "auto", "epoll"]);
}
