//! The log: lines as Redis writes them, on standard output or in a file.
//!
//! A thread of its own writes, so that no shard stops where the log does: a terminal that was stopped, a pipe that nobody
//! reads, a disk that is full. Lines for which there is no room meanwhile are dropped, and counted.

use crate::config::{Config, LogLevel};
use std::fmt::Arguments;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Why something that the system was asked for has failed, without the number that Rust adds.
pub fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split_once(" (os error").map_or(text.as_str(), |(reason, _)| reason).to_owned()
}

static LEVEL: AtomicU8 = AtomicU8::new(LogLevel::Notice as u8);
/// To the thread that writes, when there is one.
static WRITER: OnceLock<SyncSender<Entry>> = OnceLock::new();
/// Lines that were dropped and not reported yet.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Lines that wait to be written.
const LINES: usize = 1024;
/// Who may read the log is told which addresses connect, and which users are refused.
const FILE_MODE: u32 = 0o640;
/// How long the end of the process waits for the last lines.
const LAST_LINES: Duration = Duration::from_millis(200);

enum Entry {
    Line(String),
    /// Everything before it was written: tells whoever waits for that.
    Flush(SyncSender<()>),
}

/// Takes over `loglevel`; the file is opened by [`open`].
pub fn configure(config: &Config) {
    LEVEL.store(config.loglevel as u8, Ordering::Relaxed);
}

/// Opens `logfile`, if one is named, and starts to write from a thread.
///
/// # Errors
/// Where the file cannot be opened for appending, or a thread cannot be had.
pub fn open(config: &Config) -> std::io::Result<()> {
    configure(config);
    let file = file(config)?;
    let (sender, receiver) = sync_channel(LINES);
    std::thread::Builder::new().name("log".to_owned()).spawn(move || write_all(&receiver, file))?;
    // A second log is never opened.
    let _ = WRITER.set(sender);
    Ok(())
}

/// Whether the log could be opened.
pub fn probe(config: &Config) -> std::io::Result<()> {
    file(config).map(drop)
}

/// `None`: the standard output.
fn file(config: &Config) -> std::io::Result<Option<File>> {
    match &config.logfile[..] {
        "" => Ok(None),
        path => OpenOptions::new().create(true).append(true).mode(FILE_MODE).open(path).map(Some),
    }
}

fn write_all(lines: &Receiver<Entry>, mut file: Option<File>) {
    // A log that cannot be written must not stop the server.
    let mut put = |line: &str| match &mut file {
        Some(file) => drop(file.write_all(line.as_bytes())),
        None => drop(std::io::stdout().write_all(line.as_bytes())),
    };
    for entry in lines {
        match entry {
            Entry::Line(line) => put(&line),
            Entry::Flush(done) => drop(done.try_send(())),
        }
        let dropped = DROPPED.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            put(&line_of('#', format_args!("{dropped} lines of the log were dropped: it could not be written")));
        }
    }
}

/// Waits for a moment until what was logged is written, for before the process ends.
pub fn flush() {
    let Some(writer) = WRITER.get() else { return };
    let (done, written) = sync_channel(1);
    if writer.try_send(Entry::Flush(done)).is_ok() {
        let _ = written.recv_timeout(LAST_LINES);
    }
}

pub fn debug(text: Arguments) {
    write(LogLevel::Debug, '.', text);
}

pub fn verbose(text: Arguments) {
    write(LogLevel::Verbose, '-', text);
}

pub fn notice(text: Arguments) {
    write(LogLevel::Notice, '*', text);
}

pub fn warning(text: Arguments) {
    write(LogLevel::Warning, '#', text);
}

fn write(level: LogLevel, mark: char, text: Arguments) {
    if (level as u8) < LEVEL.load(Ordering::Relaxed) {
        return;
    }
    let line = line_of(mark, text);
    match WRITER.get() {
        // Before the log is open nobody else depends on this thread.
        None => drop(std::io::stdout().write_all(line.as_bytes())),
        Some(writer) => hand_over(writer, line),
    }
}

/// Never waits for who writes.
fn hand_over(writer: &SyncSender<Entry>, line: String) {
    if writer.try_send(Entry::Line(line)).is_err() {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

fn line_of(mark: char, text: Arguments) -> String {
    format!("{}:M {} {mark} {text}\n", std::process::id(), time())
}

/// Local time, as in `21 Nov 2026 05:39:56.123`.
fn time() -> String {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let wall_us = crate::clock::realtime_us();
    let seconds = (wall_us / 1_000_000) as libc::time_t;
    // SAFETY: all-zero bytes are a valid `tm` (integers and a pointer that may be null).
    let mut local: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for the call.
    unsafe { libc::localtime_r(&seconds, &mut local) };
    let month = MONTHS[local.tm_mon.clamp(0, 11) as usize];
    let (day, year) = (local.tm_mday, local.tm_year + 1900);
    let (hour, minute, second, ms) = (local.tm_hour, local.tm_min, local.tm_sec, wall_us / 1000 % 1000);
    format!("{day:02} {month} {year} {hour:02}:{minute:02}:{second:02}.{ms:03}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A full pipe on standard output used to stop every shard at the lock of the log.
    #[test]
    fn a_log_that_nobody_reads_stops_nobody() {
        let (writer, lines) = sync_channel(2);
        (0..5).for_each(|line| hand_over(&writer, format!("{line}\n")));
        drop(writer);
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        write_all(&lines, Some(File::create(&path).expect("a file")));
        let written = std::fs::read_to_string(path).expect("a log");
        assert!(written.starts_with("0\n") && written.contains("3 lines of the log were dropped"), "{written}");
        assert!(written.contains("\n1\n"));
    }
}
