//! A file, or a stream, that is read from its start to its end, of which a part is in memory.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// What is read of a file at a time, and at the least.
const READ_BYTES: usize = 1 << 20;
/// The same of a stream: whoever sends may take a while for more.
const STREAM_BYTES: usize = 64 << 10;

pub struct Window {
    source: Box<dyn Read + Send>,
    /// What is read at a time, and at the least.
    least: usize,
    bytes: Vec<u8>,
    at: usize,
    /// Bytes of the file before what is left.
    passed: u64,
}

impl Window {
    pub fn open(path: &Path) -> io::Result<Window> {
        File::open(path).map(|file| Window::of_file(Box::new(file)))
    }

    pub fn of_file(file: Box<dyn Read + Send>) -> Window {
        Window::new(file, READ_BYTES)
    }

    pub fn of_stream(stream: Box<dyn Read + Send>) -> Window {
        Window::new(stream, STREAM_BYTES)
    }

    fn new(source: Box<dyn Read + Send>, least: usize) -> Window {
        Window { source, least, bytes: Vec::new(), at: 0, passed: 0 }
    }

    /// What is in memory and was not passed.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// How much was passed.
    pub fn passed(&self) -> u64 {
        self.passed
    }

    pub fn pass(&mut self, len: usize) {
        self.at += len;
        self.passed += len as u64;
    }

    /// Passes what stands before this byte, as far as there is anything.
    pub fn pass_to(&mut self, byte: u64) -> io::Result<()> {
        while self.passed < byte && self.has(1)? {
            let left = usize::try_from(byte - self.passed).unwrap_or(usize::MAX);
            self.pass(self.rest().len().min(left));
        }
        Ok(())
    }

    /// Reads as much again as is left, so that what is long is not looked at too often before it is there. Whether there
    /// was any more.
    pub fn read_more(&mut self) -> io::Result<bool> {
        self.bytes.drain(..self.at);
        self.at = 0;
        let before = self.bytes.len();
        let wanted = before.max(self.least);
        self.bytes.resize(before + wanted, 0);
        let mut end = before;
        while end < self.bytes.len() {
            match self.source.read(&mut self.bytes[end..]) {
                Ok(0) => break,
                Ok(count) => end += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.bytes.truncate(before);
                    return Err(error);
                }
            }
        }
        self.bytes.truncate(end);
        Ok(end > before)
    }

    /// Whether so many bytes are left, which are in memory then.
    pub fn has(&mut self, len: usize) -> io::Result<bool> {
        while self.rest().len() < len {
            if !self.read_more()? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
