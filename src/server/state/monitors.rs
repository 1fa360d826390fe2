//! The monitors of one shard, and what it has to say to those of all.

use super::shown::{self, quote};
use crate::command::spec::Secrets;
use crate::resp::Request;
use crate::server::client::ClientRef;
use crate::server::client::session::Peer;
use std::cell::RefCell;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

pub struct Monitors {
    pub clients: RefCell<Vec<ClientRef>>,
    /// What this shard's connections did in this turn.
    lines: RefCell<Vec<u8>>,
    /// Bytes that are on their way to each shard. One that does not take them loses its monitors, as one monitor does
    /// that does not read.
    pub on_their_way: Vec<Arc<AtomicUsize>>,
}

/// Who has sent a command.
#[derive(Clone, Copy)]
pub enum By<'p> {
    Client(&'p Peer),
    /// A script's call.
    Script,
}

impl Monitors {
    pub fn new(shards: usize) -> Monitors {
        Monitors {
            clients: RefCell::default(),
            lines: RefCell::default(),
            on_their_way: (0..shards).map(|_| Arc::default()).collect(),
        }
    }

    /// Writes the line of a command, at a moment of the wall clock. It is cut short when it has more than `most` bytes:
    /// no monitor may hold so much, so it ends, whatever else the line says.
    pub fn write(&self, by: By, db: usize, (secrets, request): (Secrets, Request), now_us: u64, most: usize) {
        let mut lines = self.lines.borrow_mut();
        let (unix, addr) = match by {
            By::Script => ("", "lua"),
            By::Client(peer) => match peer.addr.strip_suffix(":0") {
                Some(path) if peer.is_unix() => ("unix:", path),
                _ => ("", &peer.addr[..]),
            },
        };
        let (seconds, us) = (now_us / 1_000_000, now_us % 1_000_000);
        write!(lines, "+{seconds}.{us:06} [{db} {unix}{addr}]").expect("writing to memory");
        let most = lines.len().saturating_add(most);
        for arg in shown::args(secrets, request) {
            lines.push(b' ');
            if !quote(arg, &mut lines, most) {
                break;
            }
        }
        lines.extend_from_slice(b"\r\n");
    }

    #[inline]
    pub fn has_lines(&self) -> bool {
        !self.lines.borrow().is_empty()
    }

    /// The lines of the turn, which are handed out now.
    pub fn take_lines(&self) -> Arc<[u8]> {
        self.lines.take().into()
    }
}
