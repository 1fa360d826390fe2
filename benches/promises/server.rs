//! A server process of either kind: started on a free port in a folder of its own, pinned, watched through `/proc`,
//! and ended by its pid whatever happens to this program.

use crate::Result;
use crate::options::Options;
use emberdb::measure::client::{Client, Login};
use emberdb::measure::failure;
use emberdb::measure::process;
use emberdb::measure::resp::Value;
use emberdb::measure::target::{Address, Target};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const START_LIMIT: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Ember,
    Redis,
}

/// What an experiment asks of the server beside the common settings.
#[derive(Clone, Copy, Default)]
pub struct Settings {
    /// Publish an `expired` event for each key that dies.
    pub events: bool,
    /// EmberDB's `active-expire-cpu-percent`; its default where absent. redis-server has no such directive and keeps
    /// its default effort of 1.
    pub expire_cpu_percent: Option<u32>,
}

pub struct Server {
    kind: Kind,
    port: u16,
    target: Target,
    process: Child,
    folder: PathBuf,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Ember => "emberdb",
            Kind::Redis => "redis-server",
        }
    }

    /// What the binary says of its version, on one line.
    pub fn version(self, options: &Options) -> String {
        let output = Command::new(options.binary(self)).arg("--version").output();
        output.map_or_else(
            |error| format!("unknown ({error})"),
            |output| String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or("unknown").to_owned(),
        )
    }
}

impl Server {
    /// Starts a server and waits until it answers PING.
    pub fn start(options: &Options, kind: Kind, settings: Settings) -> Result<Server> {
        let binary = options.binary(kind);
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let folder = new_folder()?;
        let log = File::create(folder.join("log"))?;
        let mut command = Command::new(binary);
        command.args(["--port", &port.to_string(), "--save", "", "--appendonly", "no"]);
        if settings.events {
            command.args(["--notify-keyspace-events", "Ehx"]);
        }
        if kind == Kind::Ember {
            command.args(["--shards", "1"]);
            if let Some(percent) = settings.expire_cpu_percent {
                command.args(["--active-expire-cpu-percent", &percent.to_string()]);
            }
            command.args(&options.emberdb_arguments);
        }
        command.current_dir(&folder).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        pin_and_bind_to_parent(&mut command, options.server_core);
        let process = command.spawn().map_err(|error| format!("cannot start {}: {error}", binary.display()))?;
        let address = Address::Tcp(format!("127.0.0.1:{port}"));
        let target = Target { name: kind.name().to_owned(), address, pid: Some(process.id()) };
        let mut server = Server { kind, port, target, process, folder };
        server.wait_until_ready()?;
        server.warn_where_unpinned(options.server_core)?;
        Ok(server)
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// A connection of its own.
    pub fn client(&self) -> failure::Result<Client> {
        Client::open(&self.target, &Login::default())
    }

    /// Stops the process from running while another server is measured on the same core.
    pub fn pause(&self) {
        self.signal(libc::SIGSTOP);
    }

    pub fn resume(&self) {
        self.signal(libc::SIGCONT);
    }

    /// The numeric fields of one section of INFO, over a connection of its own.
    pub fn info(&self, section: &str) -> Result<HashMap<String, f64>> {
        Ok(numbers(self.client()?.info(section)?))
    }

    pub fn rss_bytes(&self) -> Result<u64> {
        Ok(process::resident_bytes(self.process.id()).ok_or("the server is gone")?)
    }

    /// RSS once five readings 100 ms apart differ by less than 0.1 %, or after 10 s.
    pub fn settled_rss_bytes(&self) -> Result<u64> {
        let mut last = self.rss_bytes()?;
        let mut steady = 0;
        for _ in 0..100 {
            std::thread::sleep(Duration::from_millis(100));
            let now = self.rss_bytes()?;
            steady = if now.abs_diff(last) * 1_000 < now { steady + 1 } else { 0 };
            last = now;
            if steady == 5 {
                break;
            }
        }
        Ok(last)
    }

    /// CPU time of all threads so far.
    pub fn cpu_time(&self) -> Result<Duration> {
        Ok(Duration::from_nanos(process::cpu_ns(self.process.id()).ok_or("the server is gone")?))
    }

    fn proc(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}", self.process.id()))
    }

    fn signal(&self, signal: i32) {
        // SAFETY: kill takes two integers; the pid is that of our own child, which has not been waited for.
        unsafe { libc::kill(self.process.id() as i32, signal) };
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let limit = Instant::now() + START_LIMIT;
        loop {
            let pong = self.client().and_then(|mut client| client.call(&[b"PING"]));
            if pong.is_ok_and(|reply| reply == Value::Text(b"PONG".to_vec())) {
                return Ok(());
            }
            if self.process.try_wait()?.is_some() || Instant::now() > limit {
                let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                return Err(format!("{} did not start; its log:\n{log}", self.kind.name()).into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn warn_where_unpinned(&self, core: usize) -> Result<()> {
        for thread in fs::read_dir(self.proc().join("task"))? {
            let status = fs::read_to_string(thread?.path().join("status"))?;
            let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or("?").trim();
            if allowed != core.to_string() {
                eprintln!("warning: a thread of {} may run on cores {allowed}, not {core} alone", self.kind.name());
            }
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Either may fail only where the process is gone or the folder is, which is what is wanted.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// One server of each kind asked for, all but the one whose turn it is stopped.
pub struct Contest {
    servers: Vec<Server>,
}

impl Contest {
    /// Starts and prepares the servers one after the other.
    pub fn start(options: &Options, settings: Settings, prepare: impl Fn(&Server) -> Result<()>) -> Result<Contest> {
        let mut servers = Vec::new();
        for &kind in &options.kinds {
            let server = Server::start(options, kind, settings)?;
            prepare(&server)?;
            server.pause();
            servers.push(server);
        }
        Ok(Contest { servers })
    }

    /// Gives each server its turn, in the opposite order every second round.
    pub fn round(&self, round: usize, mut turn: impl FnMut(&Server) -> Result<()>) -> Result<()> {
        for server in alternating(&self.servers, round) {
            server.resume();
            turn(server)?;
            server.pause();
        }
        Ok(())
    }
}

/// The items in their order, in even rounds backwards, so that drift of the machine meets them equally.
pub fn alternating<T>(items: &[T], round: usize) -> impl Iterator<Item = &T> {
    let backwards = round.is_multiple_of(2);
    (0..items.len()).map(move |at| if backwards { &items[items.len() - 1 - at] } else { &items[at] })
}

/// The fields of INFO that are plain numbers.
pub fn numbers(info: HashMap<String, String>) -> HashMap<String, f64> {
    info.into_iter().filter_map(|(name, value)| Some((name, value.parse().ok()?))).collect()
}

/// Lets the command run on one core only and die with this program, even where the program is killed.
pub fn pin_and_bind_to_parent(command: &mut Command, core: usize) {
    let prepare = move || {
        if !core_affinity::set_for_current(core_affinity::CoreId { id: core }) {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: prctl with PR_SET_PDEATHSIG takes an integer and touches only the calling process.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes two system calls and neither allocates nor locks.
    unsafe { command.pre_exec(prepare) };
}

fn new_folder() -> io::Result<PathBuf> {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    let serial = STARTED.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("emberdb-promises-{}-{serial}", std::process::id()));
    fs::create_dir_all(&folder)?;
    Ok(folder)
}
