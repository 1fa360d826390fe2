//! A connection with many requests in flight: what is to be sent, what is in flight, and the reply that is here in part.

use super::failure::{Failure, Result};
use super::skim::{Reply, Skim};
use super::socket::Socket;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};

/// A request without a reply.
#[derive(Clone, Copy, Debug)]
pub struct InFlight {
    pub planned_ns: u64,
    pub tag: u64,
}

pub struct Link {
    pub socket: Socket,
    /// Encoded and not sent yet, from `sent` on.
    pub out: Vec<u8>,
    sent: usize,
    /// Oldest first.
    pub in_flight: VecDeque<InFlight>,
    /// True while the socket takes no more.
    pub blocked: bool,
    skim: Skim,
    /// A header line in part.
    partial: Vec<u8>,
}

impl Link {
    /// `replies`: how many each request has.
    pub fn new(socket: Socket, pipeline: usize, replies: u32) -> Link {
        Link {
            socket,
            out: Vec::with_capacity(16 << 10),
            sent: 0,
            in_flight: VecDeque::with_capacity(pipeline),
            blocked: false,
            skim: Skim::new(replies),
            partial: Vec::new(),
        }
    }

    /// Sends what can be sent; true if something is left until the socket takes more.
    #[inline]
    pub fn flush(&mut self, target: &str) -> Result<bool> {
        while self.sent < self.out.len() {
            match self.socket.write(&self.out[self.sent..]) {
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Failure::Lost { target: target.to_owned(), error }),
            }
        }
        self.out.clear();
        self.sent = 0;
        match self.socket.flush() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(true),
            Err(error) => Err(Failure::Lost { target: target.to_owned(), error }),
            Ok(()) => Ok(false),
        }
    }

    /// Reads once and hands out the replies that are complete, each with the moment of reading. True if there may be
    /// more to read.
    #[inline]
    pub fn receive(
        &mut self,
        buffer: &mut [u8],
        target: &str,
        clock: impl FnOnce() -> u64,
        mut replied: impl FnMut(u64, InFlight, Reply<'_>),
    ) -> Result<bool> {
        let lost = |error| Failure::Lost { target: target.to_owned(), error };
        let malformed = |reason| Failure::Malformed { target: target.to_owned(), reason };
        let kept = self.partial.len();
        if kept >= buffer.len() {
            return Err(malformed("a reply too long to be one"));
        }
        let read = loop {
            match self.socket.read(&mut buffer[kept..]) {
                Ok(0) => return Err(lost(io::Error::other("closed by the server"))),
                Ok(bytes) => break bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(lost(error)),
            }
        };
        let now_ns = clock();
        buffer[..kept].copy_from_slice(&self.partial);
        let bytes = &buffer[..kept + read];
        let in_flight = &mut self.in_flight;
        let mut unasked = false;
        let used = self
            .skim
            .feed(bytes, |reply| match in_flight.pop_front() {
                Some(request) => replied(now_ns, request, reply),
                None => unasked = true,
            })
            .map_err(|error| malformed(error.0))?;
        if unasked {
            return Err(malformed("a reply that nobody asked for"));
        }
        self.partial.clear();
        self.partial.extend_from_slice(&bytes[used..]);
        Ok(kept + read == buffer.len())
    }
}
