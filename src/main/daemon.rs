//! Into the background (`daemonize yes`): the program starts itself anew, in a session of its own, and ends. (One that forked
//! would leave the allocator's threads behind.)

use emberdb::config::Config;
use emberdb::observe::{log, supervisor};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::setsid;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::{env, fs};

/// Says to the program that is started anew that it is the one in the background.
const IS_DAEMON: &str = "EMBERDB_DAEMON";
/// Where the process id is written if no file is named, as Redis does in the background.
pub const PID_FILE: &str = "/var/run/emberdb.pid";

/// Whether the process that was started is not the one that serves. (A supervisor looks after the process that it has started.)
pub fn is_wanted(config: &Config) -> bool {
    goes(config) && !is_daemon()
}

/// Whether the server is to run in the background.
pub fn goes(config: &Config) -> bool {
    config.daemonize && !supervisor::is_there(config.supervised)
}

/// Starts the program in the background. What can be found out before is said here; what goes wrong there stands in its log file.
pub fn start(config: &Config) -> Result<(), String> {
    if config.file().is_some_and(|file| !fs::metadata(file).is_ok_and(|found| found.is_file())) {
        return Err(
            "the configuration is read again there: it has to be a file, or come by the standard input (-)".into()
        );
    }
    log::probe(config).map_err(|error| format!("Can't open the log file '{}': {error}", config.logfile))?;
    fs::read_dir(&config.dir).map_err(|error| format!("Can't chdir to '{}': {error}", config.dir))?;
    spawn(config).map_err(|error| error.to_string())
}

fn spawn(config: &Config) -> io::Result<()> {
    let mut args = env::args_os();
    let mut command = Command::new(env::current_exe()?);
    command.arg0(args.next().unwrap_or_default()).args(args).env(IS_DAEMON, "1");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(input) = &config.input {
        let mut kept = File::from(memfd_create("configuration", MemfdFlags::CLOEXEC)?);
        kept.write_all(input)?;
        kept.rewind()?;
        command.stdin(kept);
    }
    command.spawn()?;
    Ok(())
}

/// In the background the process belongs to no terminal. A configuration that says something else by now (a part of it was no file,
/// say) is not served: nobody would see that.
pub fn settle(config: &Config) -> Result<(), String> {
    if !is_daemon() {
        return Ok(());
    }
    // (A process that leads its group already keeps its session: then nobody started it from here.)
    let _ = setsid();
    if config.daemonize { Ok(()) } else { Err("the configuration is another one in the background".into()) }
}

fn is_daemon() -> bool {
    env::var_os(IS_DAEMON).is_some()
}
