//! The process: how it starts, what it refuses to start with, and how it ends.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::common::seccomp::is_ring_refused;
use crate::common::server::{FailedStart, Port, start_and_fail, start_and_fail_under};
use crate::common::{Client, Kind, Server, Value, bulk, encode, error, on_every_server, simple, wait_until, words};

/// EmberDB promises a second; machines that run the tests are busy.
const END_LIMIT: Duration = Duration::from_secs(5);

const EMBERS: [Kind; 2] = [Kind::Ember { shards: 1 }, Kind::Ember { shards: 3 }];
const EVERY_KIND: [Kind; 3] = [EMBERS[0], EMBERS[1], Kind::Redis];

/// A server with idle connections, one in the middle of a command, and some data.
fn busy_server(kind: Kind) -> (Server, Vec<Client>) {
    let server = Server::start(kind, &[]);
    let mut clients: Vec<Client> = (0..20).map(|_| server.client()).collect();
    for (i, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.command(&["SET", &format!("key:{i}"), "v"]), Value::ok());
    }
    clients[0].send_raw(b"*2\r\n$3\r\nGET\r\n$1000\r\nhalf");
    (server, clients)
}

#[track_caller]
fn assert_ends_well(mut server: Server) {
    let end = server.wait_for_end(END_LIMIT);
    let (status, _) = end.unwrap_or_else(|| panic!("{:?} does not end", server.kind()));
    assert!(status.success(), "{:?}: {status}", server.kind());
    assert!(Client::connect(server.port()).is_err(), "nobody listens");
}

#[test]
fn shutdown_ends_the_process_with_clients_connected() {
    for kind in EVERY_KIND {
        for command in ["SHUTDOWN", "SHUTDOWN NOSAVE"] {
            let (server, mut clients) = busy_server(kind);
            clients[5].send(command);
            assert!(clients[5].is_closed_by_server());
            assert!(clients.iter_mut().all(Client::is_closed_by_server));
            assert_ends_well(server);
        }
    }
}

#[test]
fn shutdown_with_a_bad_option_is_an_error_and_no_end() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("SHUTDOWN FOO"), error("ERR syntax error"));
        assert_eq!(client.call("SHUTDOWN SAVE NOSAVE"), error("ERR syntax error"));
        assert_eq!(client.call("PING"), simple("PONG"));
    });
}

#[test]
fn sigterm_and_sigint_end_the_process() {
    for kind in EVERY_KIND {
        for signal in ["TERM", "INT"] {
            let (server, mut clients) = busy_server(kind);
            server.signal(signal);
            assert!(clients.iter_mut().all(Client::is_closed_by_server));
            assert_ends_well(server);
        }
    }
}

/// Redis drops them; EmberDB drains.
#[test]
fn replies_of_commands_before_the_end_are_delivered() {
    for kind in EMBERS {
        let server = Server::start(kind, &[]);
        let mut client = server.client();
        let mut bytes: Vec<u8> = (0..100).flat_map(|i| encode(&words(&format!("ECHO {i}")))).collect();
        bytes.extend(encode(&words("SHUTDOWN NOSAVE")));
        client.send_raw(&bytes);
        for i in 0..100 {
            assert_eq!(client.read(), bulk(i.to_string()));
        }
        assert!(client.is_closed_by_server());
        assert_ends_well(server);
    }
}

#[test]
fn the_port_is_free_again_at_once() {
    for kind in EVERY_KIND {
        let (server, _clients) = busy_server(kind);
        server.client().send("SHUTDOWN NOSAVE");
        let server = server.restart(&[]);
        assert_eq!(server.client().call("PING"), simple("PONG"));
    }
}

#[test]
fn a_taken_port_is_a_clear_error() {
    for kind in EMBERS {
        let first = Server::start(kind, &[]);
        let second = start_and_fail(kind, first.port(), &[]);
        assert!(!second.status.success());
        let output = second.output.to_lowercase();
        let port = first.port().to_string();
        assert!(output.contains(&port) && output.contains("in use"), "{}", second.output);
        // The first one kept the port to itself: no connection went to the second.
        for _ in 0..20 {
            assert_eq!(first.client().call("PING"), simple("PONG"));
        }
    }
}

#[test]
fn a_unix_socket_is_served_and_goes_with_the_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ember.sock");
    let path_text = path.to_str().expect("a path in UTF-8");
    for kind in EMBERS {
        // What a server that was killed leaves behind is no obstacle.
        drop(UnixListener::bind(&path).expect("a socket"));
        let mut server = Server::start(kind, &["--unixsocket", path_text, "--unixsocketperm", "700"]);
        assert_eq!(std::fs::metadata(&path).expect("the socket").permissions().mode() & 0o777, 0o700);
        let mut stream = UnixStream::connect(&path).expect("it listens");
        stream.write_all(b"SET k v EX 100\r\nGET k\r\nCLIENT INFO\r\nQUIT\r\n").expect("sent");
        let mut replies = String::new();
        stream.read_to_string(&mut replies).expect("answered and closed");
        assert!(replies.starts_with("+OK\r\n$1\r\nv\r\n$"), "{replies}");
        assert!(replies.contains(&format!("addr={path_text}:0 laddr={path_text}:0")), "{replies}");
        assert!(replies.contains(" flags=U "), "{replies}");
        assert_eq!(server.client().call("GET k"), bulk("v"));
        server.signal("TERM");
        assert!(server.wait_for_end(END_LIMIT).is_some());
        assert!(!path.exists());
    }
    // The tests of Perl's Redis give the server a name that they have reserved with an empty file.
    std::fs::write(&path, "").expect("a file");
    let server = Server::start(EMBERS[0], &["--unixsocket", path_text]);
    drop(UnixStream::connect(&path).expect("it listens"));
    drop(server);
    let _ = std::fs::remove_file(&path);
    std::fs::write(&path, "no socket").expect("a file");
    let claim = Port::claim();
    let failed = start_and_fail(EMBERS[0], claim.number(), &["--unixsocket", path_text]);
    assert_explained(&failed, &[&path_text.to_lowercase(), "in use"]);
    assert_eq!(std::fs::read_to_string(&path).expect("still there"), "no socket");
}

#[test]
fn who_has_said_everything_is_still_answered() {
    on_every_server(&[], |server| {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).expect("it listens");
        stream.write_all(b"MSET a 1 b 2 c 3\r\nGET a\r\nGET b\r\nMGET a b c\r\nGET c\r\nGE").expect("sent");
        stream.shutdown(Shutdown::Write).expect("half closed");
        let mut replies = String::new();
        stream.read_to_string(&mut replies).expect("answered and closed");
        assert_eq!(replies, "+OK\r\n$1\r\n1\r\n$1\r\n2\r\n*3\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n$1\r\n3\r\n");
    });
}

#[test]
fn a_port_that_another_program_has_taken_is_a_clear_error() {
    let claim = Port::claim();
    let _other = TcpListener::bind((Ipv4Addr::LOCALHOST, claim.number())).expect("a free port");
    for kind in EMBERS {
        let failed = start_and_fail(kind, claim.number(), &[]);
        assert_explained(&failed, &[&claim.number().to_string(), "in use"]);
    }
}

/// Refused in time and in one sentence, which names these things; not by a panic.
#[track_caller]
pub(super) fn assert_explained(failed: &FailedStart, named: &[&str]) {
    let output = &failed.output;
    assert_eq!(failed.status.code(), Some(1), "{output}");
    assert!(failed.took < END_LIMIT, "{:?}", failed.took);
    // As the log has it on standard output and, for people, on standard error.
    let report = output.lines().find(|line| line.starts_with("emberdb: "));
    let report = report.unwrap_or_else(|| panic!("no report: {output}")).to_lowercase();
    assert!(named.iter().all(|name| report.contains(name)), "{output}");
    // (What a start without a ring says besides is no part of it.)
    let lines = output.lines().filter(|line| !line.contains("io_uring is not available here"));
    assert!(lines.count() <= 2 && !output.contains("panicked"), "{output}");
}

#[test]
fn too_little_lockable_memory_is_a_clear_error() {
    if is_ring_refused() {
        return;
    }
    /// What many systems grant.
    const GRANTED_BYTES: u64 = 64 * 1024;
    let lock_little = |command: &mut Command| {
        let limit = libc::rlimit { rlim_cur: GRANTED_BYTES, rlim_max: GRANTED_BYTES };
        // SAFETY: between fork and exec there is one system call, on memory of the closure's own.
        unsafe {
            command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            })
        };
    };
    for (kind, network) in
        EMBERS.into_iter().flat_map(|kind| ["auto", "ring", "glommio"].map(|network| (kind, network)))
    {
        let flags = ["--network", network];
        let failed = start_and_fail_under(kind, Port::claim().number(), &flags, lock_little);
        assert_explained(&failed, &["lockable memory", "65536", "ulimit -l", "limitmemlock", "network epoll"]);
    }
}

#[test]
fn a_wrong_directive_names_the_nearest_right_one() {
    for (flags, nearest) in [
        (["--active-expire-intervall-ms", "5"], "active-expire-interval-ms"),
        (["--max-clients", "5"], "maxclients"),
        (["--notify-keyspace-event", "KEA"], "notify-keyspace-events"),
        (["--shard", "2"], "shards"),
    ] {
        let failed = start_and_fail(EMBERS[0], Port::claim().number(), &flags);
        assert!(!failed.status.success());
        let wrong = flags[0].trim_start_matches('-');
        assert!(failed.output.contains(wrong) && failed.output.contains(nearest), "{}", failed.output);
    }
}

#[test]
fn a_bad_value_names_the_directive_and_the_reason() {
    for flags in [
        ["--hz", "often"],
        ["--port", "65536"],
        ["--shards", "257"],
        ["--active-expire-enabled", "maybe"],
        ["--active-expire-cpu-percent", "101"],
        ["--proto-max-bulk-len", "lots"],
        ["--notify-keyspace-events", "Q"],
        ["--databases", "-1"],
    ] {
        let failed = start_and_fail(EMBERS[0], Port::claim().number(), &flags);
        assert!(!failed.status.success());
        let name = flags[0].trim_start_matches('-');
        assert!(failed.output.contains(name), "{}", failed.output);
        assert!(failed.output.contains(flags[1]), "{}", failed.output);
    }
    let failed = start_and_fail(EMBERS[0], Port::claim().number(), &["--hz"]);
    assert!(!failed.status.success(), "a value is missing");
    assert!(failed.output.contains("hz"), "{}", failed.output);
}

#[test]
fn a_configuration_file_is_read_as_redis_reads_it() {
    for kind in EVERY_KIND {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ember.conf");
        let path = path.to_str().expect("a path in UTF-8");
        let text = "# a comment\n\n  HZ 33\nrequirepass \"two words\"\nproto-max-bulk-len 3mb\n\
                    notify-keyspace-events ''\n";
        std::fs::write(path, text).expect("a file");
        let server = Server::start(kind, &[path, "--hz", "44"]);
        let mut client = server.client();
        assert_eq!(client.command(&["AUTH", "two words"]), Value::ok());
        let shown = client.call("CONFIG GET hz proto-max-bulk-len");
        assert_eq!(shown.field("hz"), Some(bulk("44")), "flags win over the file");
        assert_eq!(shown.field("proto-max-bulk-len"), Some(bulk("3145728")));
    }
}

#[test]
fn a_mistake_in_the_file_is_reported_with_its_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ember.conf");
    let path = path.to_str().expect("a path in UTF-8");
    for (line, nearest) in [("hzz 10", "hz"), ("hz often", "hz"), ("hz \"10", "hz")] {
        std::fs::write(path, format!("# fine\nhz 10\n{line}\n")).expect("a file");
        let failed = start_and_fail(EMBERS[0], Port::claim().number(), &[path]);
        assert!(!failed.status.success());
        assert!(failed.output.contains("at line 3") && failed.output.contains(line), "{}", failed.output);
        assert!(failed.output.contains(nearest), "{}", failed.output);
    }
    let failed = start_and_fail(EMBERS[0], Port::claim().number(), &["/no/such/file.conf"]);
    assert!(!failed.status.success());
    assert!(failed.output.contains("/no/such/file.conf"), "{}", failed.output);
}

#[test]
fn running_out_of_file_descriptors_costs_new_connections_only() {
    for kind in EMBERS {
        // Enough for the process itself; far fewer than the connections below.
        let server = Server::start(kind, &[]);
        server.limit_open_files(120);
        let mut served = server.client();
        assert_eq!(served.call("PING"), simple("PONG"));
        let crowd: Vec<_> = (0..200).filter_map(|_| Client::connect(server.port()).ok()).collect();
        for _ in 0..100 {
            assert_eq!(served.call("PING"), simple("PONG"));
        }
        drop(crowd);
        let answers = || {
            let mut client = Client::connect(server.port()).ok()?;
            client.try_send_raw(b"PING\r\n").ok()?;
            client.read_within(Duration::from_secs(1))
        };
        assert!(
            wait_until(Duration::from_secs(20), || answers() == Some(simple("PONG"))),
            "{kind:?} accepts nobody any more"
        );
    }
}

/// The cores on which the threads of a server's shards may run.
fn cores_of_shards(server: &Server) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid())).expect("/proc").flatten();
    // Threads of others (the kernel's for the ring, for one) may end before their files are read.
    let of_task = |name: &str, task: &std::fs::DirEntry| std::fs::read_to_string(task.path().join(name)).ok();
    let mut shards: Vec<(String, String)> = tasks
        .filter_map(|task| Some((of_task("comm", &task)?, of_task("status", &task)?)))
        .filter(|(name, _)| name.starts_with("shard-"))
        .collect();
    shards.sort();
    let allowed = |status: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.expect("Cpus_allowed_list").trim().to_string()
    };
    shards.iter().map(|(_, status)| allowed(status)).collect()
}

#[test]
fn a_shard_stays_on_one_core_only_where_each_has_its_own() {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let is_one_core = |allowed: &String| allowed.parse::<usize>().is_ok();
    let pinned = |shards, flags: &[&str]| {
        let server = Server::start(Kind::Ember { shards }, flags);
        cores_of_shards(&server).iter().any(is_one_core)
    };
    if cores == 1 {
        return;
    }
    assert!(!pinned(1, &[]), "others would have to share its core with it");
    assert!(!pinned(cores + 1, &[]), "two would have one core");
    assert!(pinned(cores, &[]));
    assert!(!pinned(cores, &["--pin-shards", "no"]));
    assert!(pinned(1, &["--pin-shards", "yes"]));
}

/// A signal from the watchdog does no harm to a shard that is only busy. Ring and epoll need none: there it sleeps in one
/// place.
#[test]
fn a_shard_that_is_silent_is_called() {
    let flags = ["--loglevel", "debug", "--enable-debug-command", "yes"];
    let server = Server::start(Kind::Ember { shards: 2 }, &flags);
    let mut client = server.client();
    assert!(!server.output().contains("waking it"));
    assert_eq!(client.call("DEBUG SLEEP 2.5"), Value::ok());
    assert_eq!(server.output().contains("waking it"), !sleeps_in_one_place(&server), "{}", server.output());
    assert_eq!(client.call("MSET a 1 b 2 c 3 d 4"), Value::ok());
    assert_eq!(client.call("MGET a b c d"), Value::bulks(&["1", "2", "3", "4"]));
}

fn sleeps_in_one_place(server: &Server) -> bool {
    server.info("network").as_deref() != Some("glommio")
}

/// A thread of the server that sleeps wakes up for its next timer, or when something comes.
#[test]
fn an_idle_shard_hardly_wakes_up() {
    let server = Server::start(Kind::Ember { shards: 2 }, &[]);
    if !sleeps_in_one_place(&server) {
        return;
    }
    let mut clients: Vec<Client> = (0..20).map(|_| server.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.call(&format!("SET key:{number} 1 EX 100000")), Value::ok());
    }
    // Whatever was still to be done is done within one of these seconds.
    let few = wait_until(END_LIMIT * 4, || {
        let before = server.sleeps_of_shards();
        thread::sleep(Duration::from_secs(1));
        let after = server.sleeps_of_shards();
        after.iter().zip(&before).all(|(after, before)| after - before <= 3)
    });
    assert!(few, "a shard wakes up more than three times in every second");
}

/// A pipe whose reader has gone, as `| head` leaves it.
fn deaf() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

/// Two of the programs panicked where their output could not be written.
#[test]
fn nobody_has_to_listen_to_what_is_printed() {
    let (server, bench) = (env!("CARGO_BIN_EXE_emberdb"), env!("CARGO_BIN_EXE_emberdb-bench"));
    let top = env!("CARGO_BIN_EXE_emberdb-top");
    let well = [(server, "--help"), (server, "--version"), (bench, "--help"), (top, "--help"), (top, "--version")];
    for (program, flag) in well {
        let run = Command::new(program).arg(flag).stdout(deaf()).output().expect("it starts");
        assert!(run.status.success(), "{program} {flag}: {run:?}");
        assert_eq!(String::from_utf8_lossy(&run.stderr), "", "{program} {flag}");
    }
    for (program, flag) in [
        (server, "--no-such-flag"),
        (bench, "--summary=/nowhere"),
        (server, "--dir=/nowhere/at/all"),
        (top, "--socket=/nowhere"),
    ] {
        let run = Command::new(program).arg(flag).stdout(deaf()).stderr(deaf()).status().expect("it starts");
        // 101 is a panic's.
        assert!(matches!(run.code(), Some(1 | 2)), "{program} {flag}: {run}");
    }
}

#[test]
fn a_server_goes_on_where_nobody_reads_its_log() {
    let port = Port::claim();
    for closed in [false, true] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_emberdb"));
        command.args(["--port", &port.number().to_string(), "--shards", "2", "--loglevel", "debug"]);
        command.args(["--enable-debug-command", "yes"]);
        command.stdin(Stdio::null()).stdout(deaf()).stderr(deaf());
        if closed {
            // SAFETY: closes two descriptors of the new process, which nothing has used yet.
            unsafe {
                command.pre_exec(|| {
                    libc::close(1);
                    libc::close(2);
                    Ok(())
                })
            };
        }
        let mut server = command.spawn().expect("it starts");
        assert!(wait_until(END_LIMIT * 4, || Client::connect(port.number()).is_ok()));
        let mut client = Client::connect(port.number()).expect("a connection");
        for _ in 0..3 {
            assert_eq!(client.call("DEBUG LOG line"), Value::ok());
            assert_eq!(client.call("CONFIG SET maxmemory 0"), Value::ok());
        }
        client.assert_in_step();
        client.send("SHUTDOWN NOSAVE");
        assert!(client.is_closed_by_server());
        assert!(wait_until(END_LIMIT, || server.try_wait().expect("wait").is_some()));
        assert!(server.wait().expect("wait").success());
    }
}
