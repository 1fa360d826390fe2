//! Real server processes: EmberDB as built for this test run, and Debian's `redis-server` as the oracle.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::seccomp::is_ring_refused;
use super::{Client, Value, have_tool, ok, tls, wait_until};

const EMBERDB: &str = env!("CARGO_BIN_EXE_emberdb");
const REDIS: &str = "redis-server";

/// How long a server may take until it answers. Generous: test processes run side by side on small machines.
const START_LIMIT: Duration = Duration::from_secs(30);
/// A small log is written anew within this.
const REWRITE_LIMIT: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Ember {
        shards: usize,
    },
    Redis,
    /// A newer server of the same kind, by its binary.
    Peer(&'static str),
}

impl Kind {
    pub fn is_ember(self) -> bool {
        matches!(self, Kind::Ember { .. })
    }
}

/// A running server; killed when it goes out of scope. What it wrote is shown if the test fails.
pub struct Server {
    kind: Kind,
    child: Child,
    port: Port,
    folder: tempfile::TempDir,
}

/// Runs `test` against EmberDB with one shard, with three, and against redis-server: it asserts what Redis does.
pub fn on_every_server(flags: &[&str], test: impl Fn(&Server)) {
    on_embers(flags, &test);
    if have_redis() {
        run(Kind::Redis, flags, &test);
    }
}

pub fn have_redis() -> bool {
    have_tool(REDIS)
}

/// Runs `test` against EmberDB with one shard and with three.
pub fn on_embers(flags: &[&str], test: impl Fn(&Server)) {
    for shards in [1, 3] {
        run(Kind::Ember { shards }, flags, &test);
    }
}

fn run(kind: Kind, flags: &[&str], test: &impl Fn(&Server)) {
    // Shown by the test harness if `test` fails.
    eprintln!("--- against {kind:?}");
    test(&Server::start(kind, flags));
}

/// A server that is told all by `emberdb.conf` in this folder, and is there when `answers` of its port says so.
#[track_caller]
pub fn start_tls_with_file(folder: tempfile::TempDir, port: Port, answers: impl Fn(u16) -> bool) -> Server {
    let mut command = Command::new(EMBERDB);
    command.args(["emberdb.conf", "--shards", "2"]).stdin(Stdio::null());
    let mut server = Server::spawn(command, Kind::Ember { shards: 2 }, folder, port);
    let number = server.port();
    assert!(
        wait_until(START_LIMIT, || server.has_ended() || answers(number)) && !server.has_ended(),
        "it does not start"
    );
    server
}

impl Server {
    /// Starts a server with the given flags on a free port and waits until it answers.
    #[track_caller]
    pub fn start(kind: Kind, flags: &[&str]) -> Server {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Server::start_in(kind, flags, folder, Port::claim())
    }

    /// A server in whose folder there is a copy of a file.
    #[track_caller]
    pub fn start_with_file(kind: Kind, flags: &[&str], file: &Path, name: &str) -> Server {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::copy(file, folder.path().join(name)).expect("a copy");
        Server::start_in(kind, flags, folder, Port::claim())
    }

    /// A server in this folder, which may be long in coming.
    #[track_caller]
    pub fn start_without_waiting(kind: Kind, flags: &[&str], folder: tempfile::TempDir) -> Server {
        let port = Port::claim();
        let command = command(kind, port.number(), flags);
        Server::spawn(command, kind, folder, port)
    }

    /// A server whose process ended, to be started again with the same folder and port and these flags alone.
    #[track_caller]
    pub fn restart(mut self, flags: &[&str]) -> Server {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let folder = std::mem::replace(&mut self.folder, tempfile::tempdir().expect("a folder"));
        let claim = self.port.0.try_clone();
        let port = Port(claim.expect("a second handle of the socket"));
        let shards = flags.windows(2).find(|pair| pair[0] == "--shards").map(|pair| pair[1].parse().expect("a number"));
        let kind = shards.map_or(self.kind, |shards| Kind::Ember { shards });
        Server::start_in(kind, flags, folder, port)
    }

    /// A server under circumstances that `prepare` makes for its process.
    #[track_caller]
    pub fn start_prepared(kind: Kind, flags: &[&str], prepare: impl FnOnce(&mut Command)) -> Server {
        let port = Port::claim();
        let mut command = command(kind, port.number(), flags);
        prepare(&mut command);
        Server::start_command(command, kind, flags, tempfile::tempdir().expect("a temporary folder"), port)
    }

    /// [`Server::restart`], under such circumstances.
    #[track_caller]
    pub fn restart_prepared(mut self, flags: &[&str], prepare: impl FnOnce(&mut Command)) -> Server {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let folder = std::mem::replace(&mut self.folder, tempfile::tempdir().expect("a folder"));
        let port = Port(self.port.0.try_clone().expect("a second handle of the socket"));
        let mut command = command(self.kind, port.number(), flags);
        prepare(&mut command);
        Server::start_command(command, self.kind, flags, folder, port)
    }

    /// The same under a library that is loaded before all others. It may be long in coming, or end.
    #[track_caller]
    pub fn restart_under(mut self, library: &Path, flags: &[&str]) -> Server {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let folder = std::mem::replace(&mut self.folder, tempfile::tempdir().expect("a folder"));
        let port = Port(self.port.0.try_clone().expect("a second handle of the socket"));
        let mut command = command(self.kind, port.number(), flags);
        command.env("LD_PRELOAD", library);
        Server::spawn(command, self.kind, folder, port)
    }

    /// A server whose limit of open files is this from the start.
    #[track_caller]
    pub fn start_with_open_files(kind: Kind, flags: &[&str], limit: usize) -> Server {
        let port = Port::claim();
        let command = command(kind, port.number(), flags);
        let mut limited = Command::new("prlimit");
        limited.arg(format!("--nofile={limit}:{limit}")).arg(command.get_program()).args(command.get_args());
        Server::start_command(limited, kind, flags, tempfile::tempdir().expect("a temporary folder"), port)
    }

    /// A server whose folder is a disk of its own, of so many megabytes, which nobody else sees ([`Server::own_disk`]), with a
    /// copy of a snapshot on it. None where this process may not mount one.
    #[track_caller]
    pub fn start_on_own_disk(kind: Kind, flags: &[&str], megabytes: usize, file: Option<&Path>) -> Option<Server> {
        let may_mount = Command::new("unshare").args(["-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]).output();
        if !may_mount.is_ok_and(|run| run.status.success()) {
            eprintln!("skipped: a disk of its own takes root");
            return None;
        }
        let (folder, port) = (tempfile::tempdir().expect("a temporary folder"), Port::claim());
        fs::create_dir(folder.path().join("disk")).expect("a folder");
        let command = command(kind, port.number(), flags);
        let copy = file.map_or(String::new(), |file| format!("cp {} disk/dump.rdb && ", file.display()));
        let script = format!("mount -t tmpfs -o size={megabytes}m tmpfs disk && {copy} cd disk && exec \"$@\"");
        let mut mounted = Command::new("unshare");
        mounted.args(["-m", "sh", "-c", &script, "sh"]).arg(command.get_program()).args(command.get_args());
        Some(Server::start_command(mounted, kind, flags, folder, port))
    }

    /// Its disk, as it sees it.
    pub fn own_disk(&self) -> PathBuf {
        let inside = self.folder().join("disk");
        Path::new(&format!("/proc/{}/root", self.pid())).join(inside.strip_prefix("/").expect("an absolute path"))
    }

    /// Mounts that disk anew: `ro`, `rw`, `size=8m`.
    #[track_caller]
    pub fn remount_own_disk(&self, options: &str) {
        let mut remount = Command::new("nsenter");
        remount.args(["-m", "-t", &self.pid().to_string(), "mount", "-o"]);
        let status = remount.arg(format!("remount,{options}")).arg(self.folder().join("disk")).status();
        assert!(status.expect("nsenter").success());
    }

    /// A server under a library that is loaded before all others.
    #[track_caller]
    pub fn start_under(library: &Path, kind: Kind, flags: &[&str]) -> Server {
        let port = Port::claim();
        let mut command = command(kind, port.number(), flags);
        command.env("LD_PRELOAD", library);
        Server::start_command(command, kind, flags, tempfile::tempdir().expect("a temporary folder"), port)
    }

    #[track_caller]
    fn start_in(kind: Kind, flags: &[&str], folder: tempfile::TempDir, port: Port) -> Server {
        Server::start_command(command(kind, port.number(), flags), kind, flags, folder, port)
    }

    #[track_caller]
    fn start_command(command: Command, kind: Kind, flags: &[&str], folder: tempfile::TempDir, port: Port) -> Server {
        let mut server = Server::spawn(command, kind, folder, port);
        let answers = wait_until(START_LIMIT, || server.answers() || server.has_ended());
        assert!(answers && !server.has_ended(), "{kind:?} with {flags:?} does not answer");
        server
    }

    #[track_caller]
    fn spawn(mut command: Command, kind: Kind, folder: tempfile::TempDir, port: Port) -> Server {
        let child = command
            .current_dir(folder.path())
            .stdout(File::create(folder.path().join("stdout")).expect("a file for output"))
            .stderr(File::create(folder.path().join("stderr")).expect("a file for errors"))
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {kind:?}: {error}"));
        Server { kind, child, port, folder }
    }

    fn answers(&self) -> bool {
        let Ok(mut client) = Client::connect(self.port()) else {
            return false;
        };
        let sent = client.try_send_raw(b"*1\r\n$4\r\nPING\r\n");
        match sent.and_then(|()| client.try_read()) {
            Ok(Value::Error(text)) => text.starts_with("NOAUTH"),
            Ok(reply) => reply == Value::Simple(b"PONG".to_vec()),
            Err(_) => false,
        }
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Every shard sleeps up to so many microseconds before it handles what another sent it.
    pub fn delay_shards(&self, us: u64) {
        let Kind::Ember { shards } = self.kind else { return };
        let mut client = self.client();
        for shard in 0..shards {
            assert_eq!(client.call(&format!("DEBUG SHARD-DELAY {shard} {us}")), Value::ok());
        }
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    #[track_caller]
    pub fn client(&self) -> Client {
        Client::connect(self.port()).unwrap_or_else(|error| panic!("cannot connect to {:?}: {error}", self.kind))
    }

    /// A connection that speaks RESP3.
    #[track_caller]
    pub fn client3(&self) -> Client {
        let mut client = self.client();
        assert!(!client.call("HELLO 3").is_error());
        client
    }

    /// One field of INFO, `None` if there is none of that name.
    #[track_caller]
    pub fn info(&self, field: &str) -> Option<String> {
        let text = self.client().call("INFO everything").text();
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(name, _)| *name == field).map(|(_, value)| value.to_string())
    }

    /// Has the log written anew, and returns when the new base is there.
    #[track_caller]
    pub fn rewrite_log(&self) {
        let is_over = |field: &str| self.info(field).as_deref() == Some("0");
        let has_base = || is_over("aof_rewrite_in_progress") && is_over("aof_rewrite_scheduled");
        // (One that came with what was loaded may be under way.)
        assert!(wait_until(REWRITE_LIMIT, has_base), "{}", self.output());
        ok(&mut self.client(), "BGREWRITEAOF");
        assert!(wait_until(REWRITE_LIMIT, has_base), "{}", self.output());
    }

    /// Memory that the process holds now, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        self.bytes_of_status("VmRSS:")
    }

    /// The most that it has held since its start, or since somebody reset that.
    pub fn peak_bytes(&self) -> u64 {
        self.bytes_of_status("VmHWM:")
    }

    fn bytes_of_status(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("/proc");
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let kib = line.and_then(|line| line.split_whitespace().next());
        kib.and_then(|kib| kib.parse::<u64>().ok()).expect(field) * 1024
    }

    /// How often each shard's thread has gone to sleep so far.
    pub fn sleeps_of_shards(&self) -> Vec<u64> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid())).expect("the server runs");
        let of_shard = |folder: PathBuf| {
            let name = fs::read_to_string(folder.join("comm")).ok()?;
            let status = fs::read_to_string(folder.join("status")).ok()?;
            let sleeps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
            name.starts_with("shard-").then(|| sleeps.trim().parse().expect("a number"))
        };
        threads.filter_map(|thread| of_shard(thread.ok()?.path())).collect()
    }

    pub fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([&format!("-{signal}"), &self.pid().to_string()]).status();
        assert!(status.expect("kill").success());
    }

    /// Takes file descriptors away from the running process: none above this number can be opened any more.
    pub fn limit_open_files(&self, limit: usize) {
        let status = Command::new("prlimit")
            .args([&format!("--pid={}", self.pid()), &format!("--nofile={limit}:{limit}")])
            .status();
        assert!(status.expect("prlimit").success());
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("wait").is_some()
    }

    /// Waits for the process to end by itself; `None` if it has not after `limit`. Also how long it took.
    pub fn wait_for_end(&mut self, limit: Duration) -> Option<(ExitStatus, Duration)> {
        let begin = Instant::now();
        wait_until(limit, || self.has_ended());
        let status = self.child.try_wait().expect("wait")?;
        Some((status, begin.elapsed()))
    }

    /// What the process wrote to its standard output and standard error so far.
    pub fn output(&self) -> String {
        ["stdout", "stderr"]
            .map(|name| fs::read(self.folder.path().join(name)).unwrap_or_default())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .join("")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let output = self.output();
            let report = || output.find("REDIS BUG REPORT START");
            let panic = output.find("panicked at").or_else(report).map(|at| at.saturating_sub(400));
            let start = panic.unwrap_or(output.len()).min(output.len().saturating_sub(4000));
            let tail = output.get(start..).unwrap_or(&output);
            eprintln!("--- output of {:?} ---\n{tail}---", self.kind);
            if let Some(kept) = std::env::var_os("EMBERDB_TEST_KEEP") {
                let name = format!("{}-{}", std::process::id(), self.port());
                let _ = Command::new("cp").arg("-a").arg(self.folder.path()).arg(Path::new(&kept).join(name)).status();
            }
        }
    }
}

/// The outcome of a start that is expected to fail: exit status and everything that was written.
pub struct FailedStart {
    pub status: ExitStatus,
    pub output: String,
    pub took: Duration,
}

/// Starts a server that should refuse to run with these arguments; fails the test if it does not end by itself.
#[track_caller]
pub fn start_and_fail(kind: Kind, port: u16, flags: &[&str]) -> FailedStart {
    start_and_fail_under(kind, port, flags, |_| ())
}

/// The same, under circumstances that `prepare` makes for the process.
#[track_caller]
pub fn start_and_fail_under(kind: Kind, port: u16, flags: &[&str], prepare: impl FnOnce(&mut Command)) -> FailedStart {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("output");
    let file = File::create(&path).expect("a file for output");
    let mut command = command(kind, port, flags);
    prepare(&mut command);
    let mut child = command
        .current_dir(folder.path())
        .stdout(file.try_clone().expect("a second handle"))
        .stderr(file)
        .spawn()
        .expect("the server's binary");
    let begin = Instant::now();
    let ended = wait_until(START_LIMIT, || child.try_wait().expect("wait").is_some());
    let took = begin.elapsed();
    let _ = child.kill();
    let status = child.wait().expect("wait");
    let output = String::from_utf8_lossy(&fs::read(&path).expect("output")).into_owned();
    assert!(ended, "{kind:?} with {flags:?} runs, although it should refuse:\n{output}");
    FailedStart { status, output, took }
}

fn command(kind: Kind, port: u16, flags: &[&str]) -> Command {
    let mut command = match kind {
        Kind::Ember { shards } => {
            let binary = std::env::var_os("EMBERDB_TEST_SERVER").unwrap_or_else(|| EMBERDB.into());
            let mut command = Command::new(binary);
            configuration_file(&mut command, flags);
            command.args(["--shards", &shards.to_string()]);
            // `scripts/test` runs the tests of the protocol once over each of the networks.
            if let Ok(network) = std::env::var("EMBERDB_TEST_NETWORK") {
                command.args(["--network", &network]);
            }
            command
        }
        Kind::Redis | Kind::Peer(_) => {
            let mut command = Command::new(if let Kind::Peer(binary) = kind { binary } else { REDIS });
            configuration_file(&mut command, flags);
            command.args(["--save", "", "--appendonly", "no"]);
            command
        }
    };
    if are_under_tls() {
        command.args(["--bind", "127.0.0.1", "--port", "0"]).args(tls::flags(port));
    } else {
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string()]);
    }
    command.args(flags.iter().skip_while(|flag| !flag.starts_with("--"))).stdin(Stdio::null());
    command
}

/// The networks over which tests run that try several: the one of this run (`EMBERDB_TEST_NETWORK`), or those that take
/// part in every run.
pub fn networks() -> Vec<String> {
    match std::env::var("EMBERDB_TEST_NETWORK") {
        Ok(one) => vec![one],
        Err(_) if is_ring_refused() => vec!["auto".to_owned()],
        Err(_) => vec!["auto".to_owned(), "glommio".to_owned()],
    }
}

/// Whether all servers of this run speak TLS on their ports, and [`Client`] with them: `EMBERDB_TEST_TLS`.
pub fn are_under_tls() -> bool {
    std::env::var_os("EMBERDB_TEST_TLS").is_some()
}

/// A first argument that is no flag is the configuration file, and must stay first.
fn configuration_file(command: &mut Command, flags: &[&str]) {
    command.args(flags.iter().take_while(|flag| !flag.starts_with("--")));
}

/// A port that no other test on this machine uses while this value lives: the claim is a UDP socket bound to the same
/// number, which is atomic and vanishes with the process. The numbers lie below those that the kernel gives to outgoing
/// connections, so none of these takes the port between the check and the server's bind.
pub struct Port(UdpSocket);

impl Port {
    pub fn claim() -> Port {
        for _ in 0..1000 {
            let number = fastrand::u16(20_000..32_000);
            let Ok(claim) = UdpSocket::bind((Ipv4Addr::LOCALHOST, number)) else {
                continue;
            };
            if TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
                return Port(claim);
            }
        }
        panic!("no free port between 20,000 and 32,000");
    }

    pub fn number(&self) -> u16 {
        self.0.local_addr().expect("a bound socket").port()
    }
}
