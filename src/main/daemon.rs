//! Into the background (`daemonize yes`): the program starts itself anew, in a session of its own, and ends. (One that forked
//! would leave the allocator's threads behind.)

use emberdb::config::Config;
use emberdb::observe::supervisor;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::setsid;
use rustix::stdio::dup2_stdin;
use std::env;
use std::fs::File;
use std::io::{self, Seek};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Says to the program that is started anew that it is the one in the background.
const IS_DAEMON: &str = "EMBERDB_DAEMON";
/// Where the process id is written if no file is named, as Redis does in the background.
pub const PID_FILE: &str = "/var/run/emberdb.pid";

/// A configuration that comes by the standard input is read twice where the program starts itself anew: so the input becomes one
/// that can be read again.
pub fn keep_input(args: &[String]) -> io::Result<()> {
    if args.first().is_none_or(|first| first != "-") || is_daemon() {
        return Ok(());
    }
    let mut kept = File::from(memfd_create("configuration", MemfdFlags::CLOEXEC)?);
    io::copy(&mut io::stdin().lock(), &mut kept)?;
    kept.rewind()?;
    Ok(dup2_stdin(&kept)?)
}

/// Whether the process that was started is not the one that serves. (A supervisor looks after the process that it has started.)
pub fn is_wanted(config: &Config) -> bool {
    goes(config) && !is_daemon()
}

/// Whether the server is to run in the background.
pub fn goes(config: &Config) -> bool {
    config.daemonize && !supervisor::is_there(config.supervised)
}

/// Starts the program in the background. What goes wrong there stands in its log file.
pub fn start() -> io::Result<()> {
    let mut args = env::args_os();
    let mut command = Command::new(env::current_exe()?);
    command.arg0(args.next().unwrap_or_default()).args(args).env(IS_DAEMON, "1");
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let input = if input.rewind().is_ok() { Stdio::from(input) } else { Stdio::null() };
    command.stdin(input).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    Ok(())
}

/// In the background the process belongs to no terminal.
pub fn settle() {
    if is_daemon() {
        // (A process that leads its group already keeps its session: then nobody started it from here.)
        let _ = setsid();
    }
}

fn is_daemon() -> bool {
    env::var_os(IS_DAEMON).is_some()
}
