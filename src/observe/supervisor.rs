//! Whoever has started the process is told when it is ready (`supervised`): systemd by a datagram of lines, as sd_notify(3)
//! has it; upstart by a process that stops itself.
//!
//! While data are loaded systemd is asked for more time, again and again, for as long as the loading gets on: a start that
//! takes longer than `TimeoutStartSec` is none that hangs.

use super::log;
use crate::config::Supervised;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What systemd is asked for each time.
const MORE: Duration = Duration::from_secs(60);
/// How often.
const ASK_EVERY: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A loading that has not got on for so long hangs.
const STILL: Duration = Duration::from_secs(120);

struct Systemd {
    socket: UnixDatagram,
    address: SocketAddr,
    is_ready: AtomicBool,
}

static SYSTEMD: OnceLock<Systemd> = OnceLock::new();

impl Systemd {
    /// `address`: a path, or the name of an abstract socket behind an `@`.
    fn connect(address: &str) -> io::Result<Systemd> {
        let address = match address.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(address)?,
        };
        Ok(Systemd { socket: UnixDatagram::unbound()?, address, is_ready: AtomicBool::new(false) })
    }

    /// Nothing can be done where nobody listens.
    fn tell(&self, lines: &str) {
        let _ = self.socket.send_to_addr(lines.as_bytes(), &self.address);
    }
}

/// Whether a loading gets on.
struct Pace {
    done: (u64, u64),
    since: Instant,
}

impl Pace {
    /// `done` changes as it gets on.
    fn gets_on(&mut self, done: (u64, u64), now: Instant) -> bool {
        if done != self.done {
            *self = Pace { done, since: now };
        }
        now.saturating_duration_since(self.since) < STILL
    }
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Whether somebody has started the process who wants to be told.
pub fn is_there(wanted: Supervised) -> bool {
    let (job, socket) = (environment("UPSTART_JOB").is_some(), environment("NOTIFY_SOCKET").is_some());
    match wanted {
        Supervised::No => false,
        Supervised::Upstart => job,
        Supervised::Systemd => socket,
        Supervised::Auto => job || socket,
    }
}

/// At the start. `progress` says of what is loaded how many bytes of how many are.
pub fn begin(wanted: Supervised, progress: impl Fn() -> (u64, u64) + Send + 'static) {
    let (job, socket) = (environment("UPSTART_JOB"), environment("NOTIFY_SOCKET"));
    match (wanted, job, socket) {
        (Supervised::No, ..) | (Supervised::Auto, None, None) => {}
        (Supervised::Upstart | Supervised::Auto, Some(_), _) => {
            log::notice(format_args!("supervised by upstart, will stop to signal readiness"));
            if let Err(error) = signal_hook::low_level::raise(libc::SIGSTOP) {
                log::warning(format_args!("Can't tell upstart that the server is ready: {error}"));
            }
        }
        (Supervised::Upstart, None, _) => {
            log::warning(format_args!("upstart supervision requested, but UPSTART_JOB not found!"));
        }
        (Supervised::Systemd | Supervised::Auto, _, Some(address)) => {
            log::notice(format_args!(
                "supervised by systemd. Please make sure you set appropriate values for \
                                      TimeoutStartSec and TimeoutStopSec in your service unit."
            ));
            if let Err(error) = watch(&address, progress) {
                log::warning(format_args!("Can't tell systemd how the start gets on: {error}"));
            }
        }
        (Supervised::Systemd, _, None) => {
            log::warning(format_args!("systemd supervision requested, but NOTIFY_SOCKET not found!"));
        }
    }
}

/// Starts a thread that tells systemd how the loading gets on, until that is over.
fn watch(address: &str, progress: impl Fn() -> (u64, u64) + Send + 'static) -> io::Result<()> {
    let connected = Systemd::connect(address)?;
    let systemd = SYSTEMD.get_or_init(|| connected);
    let mut pace = Pace { done: (0, 0), since: Instant::now() };
    let mut asked: Option<Instant> = None;
    let watch = move || {
        while !systemd.is_ready.load(Ordering::Acquire) {
            let (done, now) = (progress(), Instant::now());
            let gets_on = pace.gets_on(done, now);
            if gets_on && asked.is_none_or(|asked| now - asked >= ASK_EVERY) {
                asked = Some(now);
                let (bytes, of_bytes) = done;
                let status = if of_bytes > 0 { format!(": {bytes} of {of_bytes} bytes") } else { String::new() };
                systemd.tell(&format!("STATUS=Loading{status}\nEXTEND_TIMEOUT_USEC={}\n", MORE.as_micros()));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    };
    std::thread::Builder::new().name("supervisor".to_owned()).spawn(watch).map(drop)
}

/// Connections are served from now on.
pub fn ready(status: &str) {
    if let Some(systemd) = SYSTEMD.get() {
        systemd.is_ready.store(true, Ordering::Release);
        systemd.tell(&format!("STATUS={status}\nREADY=1\n"));
    }
}

/// The process is about to end.
pub fn stopping() {
    if let Some(systemd) = SYSTEMD.get() {
        systemd.tell("STATUS=Stopping\nSTOPPING=1\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loading_that_stands_still_gets_no_more_time() {
        let start = Instant::now();
        let mut pace = Pace { done: (0, 0), since: start };
        assert!(pace.gets_on((0, 0), start + STILL - Duration::from_secs(1)));
        assert!(!pace.gets_on((0, 0), start + STILL));
        assert!(pace.gets_on((1, 10), start + STILL), "it has moved");
        assert!(pace.gets_on((1, 10), start + STILL + STILL / 2));
        assert!(!pace.gets_on((1, 10), start + STILL + STILL));
    }

    #[test]
    fn both_kinds_of_sockets_are_told() {
        let name = format!("emberdb-test-{}", std::process::id());
        let listens = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let folder = std::env::temp_dir().join(&name);
        let on_disk = UnixDatagram::bind(&folder).unwrap();
        let path = folder.display().to_string();
        for (address, socket) in [(format!("@{name}"), listens), (path, on_disk)] {
            Systemd::connect(&address).unwrap().tell("READY=1\n");
            let mut said = [0; 64];
            let bytes = socket.recv(&mut said).unwrap();
            assert_eq!(&said[..bytes], b"READY=1\n");
        }
        std::fs::remove_file(folder).unwrap();
    }
}
