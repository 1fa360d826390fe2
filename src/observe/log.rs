//! The log: lines as Redis writes them, on standard output or in a file.

use crate::config::{Config, LogLevel};
use std::fmt::Arguments;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

static LEVEL: AtomicU8 = AtomicU8::new(LogLevel::Notice as u8);
static FILE: Mutex<Option<File>> = Mutex::new(None);

/// Takes over `loglevel`; the file is opened by [`open`].
pub fn configure(config: &Config) {
    LEVEL.store(config.loglevel as u8, Ordering::Relaxed);
}

/// Opens `logfile`, if one is named.
///
/// # Errors
/// Where the file cannot be opened for appending.
pub fn open(config: &Config) -> std::io::Result<()> {
    configure(config);
    if !config.logfile.is_empty() {
        let file = OpenOptions::new().create(true).append(true).open(&config.logfile)?;
        *FILE.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
    }
    Ok(())
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
    let line = format!("{}:M {} {mark} {text}\n", std::process::id(), time());
    let mut file = FILE.lock().unwrap_or_else(PoisonError::into_inner);
    // A log that cannot be written must not stop the server.
    let _ = match file.as_mut() {
        Some(file) => file.write_all(line.as_bytes()),
        None => std::io::stdout().write_all(line.as_bytes()),
    };
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
