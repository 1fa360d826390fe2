//! Replicas that wait for a snapshot, and what each of them is given.

use crate::clock::store_us;
use crate::journal::{Feed, Reader};
use crate::net::Nameless;
use crate::persist::handout::Handout;
use crate::server::client::replica::Replica;
use std::sync::{Arc, Mutex, PoisonError};

/// Reads the stream for a connection that may end at any time.
pub struct Held {
    feed: Arc<Feed>,
    reader: Option<Reader>,
}

impl Held {
    pub fn new(feed: Arc<Feed>, reader: Reader) -> Held {
        Held { feed, reader: Some(reader) }
    }

    pub fn position(&self) -> u64 {
        self.reader.as_ref().map_or(0, Reader::position)
    }

    /// From now on somebody else sees to its end.
    pub fn release(mut self) -> Option<Reader> {
        self.reader.take()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(reader) = &self.reader {
            self.feed.end(reader);
        }
    }
}

/// Where a snapshot comes from.
pub enum Source {
    File {
        file: Arc<Nameless>,
        at: u64,
        len: u64,
    },
    /// As it is made.
    Handout(Arc<Handout>),
}

impl Source {
    pub fn file(file: Arc<Nameless>, len: u64) -> Source {
        Source::File { file, at: 0, len }
    }
}

/// Nobody waits for who does not read any more.
impl Drop for Source {
    fn drop(&mut self) {
        if let Source::Handout(handout) = self {
            handout.give_up();
        }
    }
}

/// A snapshot for one replica.
pub struct Payload {
    pub source: Source,
    /// Its length, where that is known.
    pub len: Option<u64>,
    /// What is sent behind it.
    pub stream: Held,
    /// Under which name the data are known.
    pub id: String,
}

/// Where a replica that waits is given one.
#[derive(Default)]
pub struct Place(Mutex<Given>);

#[derive(Default)]
enum Given {
    #[default]
    Nothing,
    Payload(Box<Result<Payload, String>>),
    /// Nobody waits any more: what comes is let go at once, so that nobody waits for who reads nothing.
    Left,
}

impl Place {
    pub fn put(&self, given: Result<Payload, String>) {
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*place, Given::Left) {
            *place = Given::Payload(Box::new(given));
        }
    }

    pub fn take(&self) -> Option<Result<Payload, String>> {
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::take(&mut *place) {
            Given::Payload(given) => Some(*given),
            Given::Nothing => None,
            Given::Left => {
                *place = Given::Left;
                None
            }
        }
    }

    pub fn leave(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Given::Left;
    }
}

/// A replica that waits.
pub struct Waiting {
    pub replica: Arc<Replica>,
    /// It takes a snapshot whose length nobody knows before its end.
    pub takes_eof: bool,
    pub place: Arc<Place>,
}

/// Who waits, and whether somebody makes snapshots for them.
#[derive(Default)]
pub struct Queue {
    pub waiting: Vec<Waiting>,
    /// Since when the first of them does, store microseconds.
    pub since_us: u64,
    pub is_served: bool,
}

impl Queue {
    /// One more waits; whether somebody has to begin to make snapshots.
    pub fn join(&mut self, waiting: Waiting) -> bool {
        if self.waiting.is_empty() {
            self.since_us = store_us();
        }
        self.waiting.push(waiting);
        !std::mem::replace(&mut self.is_served, true)
    }
}
