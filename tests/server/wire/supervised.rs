//! What those are told who start the process and look after it: systemd, containers, and whoever asks before.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::common::programs::{fed, succeeded};
use crate::common::server::{Port, are_under_tls};
use crate::common::{Client, Kind, Server, Value, on_every_server, tls, wait_until};

const LIMIT: Duration = Duration::from_secs(30);
const EMBERDB: &str = env!("CARGO_BIN_EXE_emberdb");

/// Runs the program until it ends by itself.
fn ask(folder: &Path, args: &[&str]) -> Output {
    Command::new(EMBERDB).args(args).current_dir(folder).stdin(Stdio::null()).output().expect("it starts")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

struct Supervised {
    child: Child,
    port: Port,
    folder: tempfile::TempDir,
    socket: UnixDatagram,
}

impl Supervised {
    /// `prepare` makes the folder in which it is started.
    fn start(flags: &[&str], prepare: impl FnOnce(&Path)) -> Supervised {
        let (folder, port) = (tempfile::tempdir().expect("a folder"), Port::claim());
        prepare(folder.path());
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_read_timeout(Some(LIMIT)).expect("a timeout");
        let output = fs::File::create(folder.path().join("output")).expect("a file");
        let child = Command::new(EMBERDB)
            .args(["--port", &port.number().to_string(), "--shards", "1", "--save", ""])
            .args(flags)
            .current_dir(folder.path())
            .env("NOTIFY_SOCKET", &path)
            .stdin(Stdio::null())
            .stdout(output)
            .spawn()
            .expect("it starts");
        Supervised { child, port, folder, socket }
    }

    /// The next datagram.
    #[track_caller]
    fn told(&self) -> String {
        let mut bytes = [0; 4096];
        let len = self.socket.recv(&mut bytes).expect("a word");
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    }

    fn end(&mut self) {
        // SAFETY: a signal for a process that was started here and not waited for.
        unsafe { libc::kill(self.child.id().cast_signed(), libc::SIGTERM) };
        assert!(wait_until(LIMIT, || self.child.try_wait().expect("wait").is_some()));
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server in the background, whose process nobody here has started.
struct Daemon(i32);

impl Drop for Daemon {
    fn drop(&mut self) {
        // SAFETY: a signal for the process that says that it is the server.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
    }
}

#[test]
fn a_server_goes_into_the_background() {
    let (folder, port) = (tempfile::tempdir().expect("a folder"), Port::claim());
    let path = |name: &str| folder.path().join(name).display().to_string();
    let lines = format!(
        "daemonize yes\nport {}\nshards 1\nsave \"\"\npidfile {}\nlogfile {}\nappendonly no\n",
        port.number(),
        path("pid"),
        path("log")
    );
    // With a file, and with what comes by the standard input.
    for from_file in [true, false] {
        fs::write(path("conf"), &lines).expect("a file");
        let mut program = Command::new(EMBERDB);
        program.arg(if from_file { "conf" } else { "-" }).current_dir(folder.path());
        let (_, output) = fed(&mut program, lines.as_bytes());
        assert_eq!(succeeded(output), "");
        let pid = || fs::read_to_string(path("pid")).ok().and_then(|text| text.trim().parse::<i32>().ok());
        assert!(wait_until(LIMIT, || pid().is_some() && Client::connect(port.number()).is_ok()), "{lines}");
        let pid = pid().expect("it is there");
        let server = Daemon(pid);
        let mut client = Client::connect(port.number()).expect("it listens");
        let told = client.call("INFO server").text();
        assert!(told.contains(&format!("process_id:{pid}\r\n")), "{told}");
        assert_eq!(client.call("CONFIG GET daemonize").items()[1].text(), "yes");
        // It leads a session of its own, without a terminal.
        // SAFETY: a question about a process.
        assert_eq!(unsafe { libc::getsid(pid) }, pid);
        client.send("SHUTDOWN NOSAVE");
        assert!(wait_until(LIMIT, || !Path::new(&format!("/proc/{pid}/exe")).exists()));
        drop(server);
        assert!(!Path::new(&path("pid")).exists());
    }
}

/// What would go wrong where nobody sees it is said before.
#[test]
fn what_can_not_go_into_the_background_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    for (args, reason) in [
        (&["--daemonize", "yes", "--logfile", "none/log"][..], "Can't open the log file 'none/log': No such file"),
        (&["--daemonize", "yes", "--dir", "none"], "Can't chdir to 'none': No such file"),
        (&["/dev/stdin"], "it has to be a file, or come by the standard input (-)"),
    ] {
        let mut program = Command::new(EMBERDB);
        let (_, output) = fed(program.args(args).current_dir(folder.path()), b"daemonize yes\n");
        assert!(!output.status.success() && said(&output).contains(reason), "{args:?}: {}", said(&output));
    }
}

#[test]
fn systemd_is_told_when_the_server_is_ready_and_when_it_stops() {
    for supervised in ["systemd", "auto"] {
        let mut server = Supervised::start(&["--supervised", supervised], |_| ());
        let ready = loop {
            let told = server.told();
            if !told.contains("EXTEND_TIMEOUT_USEC=") {
                break told;
            }
        };
        assert_eq!(ready, "STATUS=Ready to accept connections\nREADY=1\n");
        assert!(Client::connect(server.port.number()).is_ok(), "it listens");
        server.end();
        assert_eq!(server.told(), "STATUS=Stopping\nSTOPPING=1\n");
    }
}

/// The file that is loaded is a pipe: the loading lasts for as long as the test does not write.
#[test]
fn systemd_is_asked_for_more_time_while_data_are_loaded() {
    let snapshot = {
        let server = Server::start(Kind::Ember { shards: 1 }, &[]);
        let mut client = server.client();
        assert_eq!(client.call("SET k v"), Value::ok());
        assert_eq!(client.call("SAVE"), Value::ok());
        fs::read(server.folder().join("dump.rdb")).expect("a snapshot")
    };
    let pipe = |folder: &Path| {
        let made = Command::new("mkfifo").arg(folder.join("dump.rdb")).status();
        assert!(made.expect("mkfifo").success());
    };
    let mut server = Supervised::start(&["--supervised", "systemd"], pipe);
    let told = server.told();
    assert!(told.starts_with("STATUS=Loading") && told.ends_with("\nEXTEND_TIMEOUT_USEC=60000000\n"), "{told}");
    let port = server.port.number().to_string();
    assert!(wait_until(LIMIT, || Client::connect(server.port.number()).is_ok()));
    let asked = ask(server.folder.path(), &["--port", &port, "--healthcheck"]);
    assert_eq!(asked.status.code(), Some(1), "it is not well before it has loaded: {}", said(&asked));
    assert!(said(&asked).contains("LOADING"), "{}", said(&asked));
    assert!(server.told().contains("EXTEND_TIMEOUT_USEC="), "again");
    fs::OpenOptions::new()
        .write(true)
        .open(server.folder.path().join("dump.rdb"))
        .unwrap()
        .write_all(&snapshot)
        .unwrap();
    while !server.told().contains("READY=1") {}
    assert!(ask(server.folder.path(), &["--port", &port, "--healthcheck"]).status.success());
    assert_eq!(Client::connect(server.port.number()).unwrap().call("GET k").text(), "v");
    server.end();
}

#[test]
fn a_server_that_nobody_supervises_starts_all_the_same() {
    let flags = ["--supervised", "systemd"];
    on_every_server(&flags, |server| {
        assert!(wait_until(LIMIT, || server.output().contains("NOTIFY_SOCKET not found")));
    });
}

#[test]
fn health_is_what_the_server_answers() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("socket").display().to_string();
    let server = Server::start(Kind::Ember { shards: 2 }, &["--requirepass", "secret", "--unixsocket", &socket]);
    let port = server.port().to_string();
    let mut over = vec!["--port", &port];
    if are_under_tls() {
        over = vec!["--port", "0"];
        over.extend(tls::flags(server.port()));
    }
    let is_well = |args: &[&str]| {
        let all: Vec<&str> = args.iter().copied().chain(["--healthcheck"]).collect();
        let output = ask(folder.path(), &all);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
        (output.status.success(), said(&output))
    };
    let with = |more: &[&str]| is_well(&[&over, more].concat());
    assert!(with(&["--requirepass", "secret"]).0);
    assert!(with(&[]).0, "it answers, and that is what is asked");
    let (well, text) = with(&["--requirepass", "a-wrong-one"]);
    assert!(!well && text.contains("WRONGPASS") && !text.contains("a-wrong-one"), "{text}");
    assert!(is_well(&["--unixsocket", &socket, "--requirepass", "secret"]).0);
    let free = Port::claim();
    assert!(!is_well(&["--port", &free.number().to_string()]).0, "nobody listens");
    assert!(!is_well(&["--port", "0"]).0, "nobody could");
    // Its configuration is that of the server.
    fs::write(folder.path().join("conf"), format!("requirepass secret\nunixsocket {socket}\n")).expect("written");
    assert!(is_well(&["conf"]).0);
}

#[test]
fn a_configuration_is_checked_without_a_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().display().to_string();
    let check = |args: &[&str]| {
        let output = ask(folder.path(), &[args, &["--check"]].concat());
        (output.status.code(), said(&output))
    };
    let (code, text) =
        check(&["--port", "7777", "--shards", "1", "--maxmemory", "100mb", "--appendonly", "yes", "--save", ""]);
    assert_eq!(code, Some(0), "{text}");
    for part in [
        "TCP port 7777 of 127.0.0.1",
        "shards 1",
        "memory limit 104857600 (noeviction)",
        "append-only log (fsync everysec)",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is written");
    fs::write(folder.path().join("users.acl"), "user anna on >x +@nosuch\n").expect("written");
    let wrong: [(&[&str], &str); 5] = [
        (&["--prot", "7"], "Did you mean"),
        (&["--dir", "/nowhere/at/all"], "Can't chdir to '/nowhere/at/all'"),
        (&["--tls-port", "7", "--tls-cert-file", "none.crt", "--tls-key-file", "none.key"], "Failed to configure TLS"),
        (&["--aclfile", "users.acl"], "ACL"),
        (&["nosuch.conf"], "Can't open the configuration file"),
    ];
    for (args, reason) in wrong {
        let (code, text) = check(&[args, &["--dir", &dir][..if args[0] == "--dir" { 0 } else { 2 }]].concat());
        assert!(code == Some(1) && text.contains(reason), "{args:?}: {code:?} {text}");
    }
    // Beside a server that has the port.
    let server = Server::start(Kind::Ember { shards: 1 }, &[]);
    assert_eq!(check(&["--port", &server.port().to_string(), "--shards", "1"]).0, Some(0));
}

#[test]
fn a_start_says_what_matters() {
    let server = Server::start(Kind::Ember { shards: 2 }, &["--maxmemory", "100mb", "--save", "60 1"]);
    let line = "shards 2; memory limit 104857600 (noeviction); durability: snapshots (save 60 1); docs: ";
    assert!(wait_until(LIMIT, || server.output().contains(line)), "{}", server.output());
}

/// redis-server leaves it to the umask, but for the log of changes, which others may read.
#[test]
fn files_with_data_are_not_for_others() {
    let logfile = ["--logfile", "server.log", "--appendonly", "yes", "--save", ""];
    let server = Server::start(Kind::Ember { shards: 1 }, &logfile);
    let mut client = server.client();
    assert_eq!(client.call("SET k v"), Value::ok());
    assert_eq!(client.call("SAVE"), Value::ok());
    let mut files = Vec::new();
    let mut folders = vec![server.folder().to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    let written = |path: &&std::path::PathBuf| !path.ends_with("stdout") && !path.ends_with("stderr");
    let written: Vec<_> = files.iter().filter(written).collect();
    assert!(written.len() >= 4, "{written:?}");
    for path in written {
        let mode = fs::metadata(path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o007, 0, "{} has mode {mode:o}", path.display());
    }
}

/// What is as small as a process may be in a container: it has the number 1, and ends when it is told to.
#[test]
fn the_first_process_of_a_container_ends_when_it_is_told_to() {
    let namespaced = |args: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child"]).args(args);
        command
    };
    if !namespaced(&["true"]).output().is_ok_and(|run| run.status.success()) {
        eprintln!("skipped: a namespace of processes takes root");
        return;
    }
    let (folder, port) = (tempfile::tempdir().expect("a folder"), Port::claim());
    let number = port.number().to_string();
    let mut command = namespaced(&[EMBERDB, "--port", &number, "--shards", "1", "--save", ""]);
    let mut child =
        command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("unshare");
    assert!(wait_until(LIMIT, || Client::connect(port.number()).is_ok()));
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).expect("children");
    let server: i32 = children.trim().parse().expect("one child");
    // SAFETY: a signal for the child of a process that was started here and not waited for.
    unsafe { libc::kill(server, libc::SIGTERM) };
    let ended = wait_until(LIMIT, || child.try_wait().expect("wait").is_some());
    let _ = child.kill();
    let status = child.wait().expect("wait");
    assert!(ended && status.success(), "{status}");
}
