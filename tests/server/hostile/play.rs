//! Plays the scripts of a batch, each on a connection and a thread of its own, and judges what comes: it is RESP.

use super::scripts::{Act, End, Script};
use crate::common::value;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// A connection that is stuck for so long goes on to its end: it waits for what does not come, or does not read.
const STUCK: Duration = Duration::from_millis(100);
const NAP: Duration = Duration::from_micros(200);
/// Replies beyond this are read and not looked at.
const JUDGED_BYTES: usize = 8 << 20;
/// Sent last, where the answer is waited for.
const LAST_WORDS: &[u8] = b"*2\r\n$4\r\nECHO\r\n$13\r\nthat was all.\r\n";
const LAST_REPLY: &[u8] = b"that was all.";

/// What was answered.
#[derive(Default)]
pub struct Tally {
    pub replies: usize,
    pub errors: usize,
}

pub fn play(port: u16, batch: &[Script], tally: &mut Tally) {
    thread::scope(|scope| {
        let players: Vec<_> = batch.iter().map(|script| scope.spawn(|| Player::connect(port).play(script))).collect();
        for player in players {
            let of_player = player.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            tally.replies += of_player.replies;
            tally.errors += of_player.errors;
        }
    });
}

struct Player {
    stream: TcpStream,
    received: Vec<u8>,
    received_bytes: usize,
    is_over: bool,
}

impl Player {
    fn connect(port: u16) -> Player {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the server accepts connections");
        stream.set_nonblocking(true).expect("a socket");
        stream.set_nodelay(true).expect("a socket");
        Player { stream, received: Vec::new(), received_bytes: 0, is_over: false }
    }

    fn play(mut self, script: &Script) -> Tally {
        for act in &script.acts {
            match act {
                Act::Wait(time) => thread::sleep(*time),
                Act::Send(bytes) => self.send(bytes, script.reads),
            }
        }
        match script.end {
            End::Answered => {
                self.send(LAST_WORDS, true);
                self.read_until(|received| received.ends_with(b"\r\n") && contains_late(received, LAST_REPLY));
            }
            End::HalfClosed => {
                let _ = self.stream.shutdown(Shutdown::Write);
                self.read_until(|_| false);
            }
            End::HungUp => {}
            End::Reset => {
                socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).expect("a socket");
            }
        }
        self.judge()
    }

    fn send(&mut self, mut bytes: &[u8], reads: bool) {
        let mut last_progress = Instant::now();
        while !bytes.is_empty() && !self.is_over && last_progress.elapsed() < STUCK {
            let came = reads && self.read_some();
            match self.stream.write(bytes) {
                Ok(len) => bytes = &bytes[len..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if !came {
                        thread::sleep(NAP);
                        continue;
                    }
                }
                Err(_) => self.is_over = true,
            }
            last_progress = Instant::now();
        }
    }

    fn read_until(&mut self, is_enough: impl Fn(&[u8]) -> bool) {
        let mut last_progress = Instant::now();
        while !self.is_over && !is_enough(&self.received) && last_progress.elapsed() < STUCK {
            if self.read_some() {
                last_progress = Instant::now();
            } else {
                thread::sleep(NAP);
            }
        }
    }

    /// Whether something came.
    fn read_some(&mut self) -> bool {
        let mut chunk = [0; 64 * 1024];
        match self.stream.read(&mut chunk) {
            Ok(0) => self.is_over = true,
            Ok(len) => {
                self.received_bytes += len;
                if self.received_bytes > JUDGED_BYTES {
                    // The end is still looked at.
                    self.received.clear();
                }
                self.received.extend_from_slice(&chunk[..len]);
                return true;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.is_over = true,
        }
        false
    }

    /// Fails the test where the server sent what is no RESP.
    fn judge(&self) -> Tally {
        let mut tally = Tally::default();
        if self.received_bytes > JUDGED_BYTES {
            return tally;
        }
        let mut rest = &self.received[..];
        while let Some((reply, used)) = value::parse(rest) {
            rest = &rest[used..];
            tally.replies += 1;
            tally.errors += usize::from(reply.is_error());
        }
        tally
    }
}

/// Whether `text` is close to the end.
fn contains_late(received: &[u8], text: &[u8]) -> bool {
    let late = &received[received.len().saturating_sub(text.len() + 8)..];
    late.windows(text.len()).any(|window| window == text)
}
