//! A log becomes data again: a connection of the server's own says what is in it.
//!
//! While that goes on no key is dead, however late it is: the log says of each when it has died
//! ([`Shard::set_replaying`](crate::shard::Shard::set_replaying)). Policies do not hold, since what they have done is in
//! the log.

use super::policies;
use crate::clock::{realtime_us, set_loaded_offset};
use crate::command::deaths::death_of;
use crate::config::split_words;
use crate::journal::aside::{self, Aside};
use crate::net::{next_from_outside, sleep};
use crate::observe::log;
use crate::persist::aof::batch;
use crate::persist::aof::reading::{self, Item, LogError, Read, Tolerance};
use crate::resp::{Limits, Proto};
use crate::server::client::session::{Close, ReplyMode};
use crate::server::client::{Client, ClientRef};
use crate::server::run::replayed::REPLAYED_BYTES;
use crate::server::state::Server;
use crate::server::wire::connection::advance;
use futures_lite::future::or;
use indexmap::IndexMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

/// Pieces that wait for the shards; who reads the files waits then.
const PIECES: usize = 4;
/// What the connection has not done of them, at the most.
const BACKLOG_BYTES: usize = 1 << 20;

/// Deaths of keys whose entries are still to be written, by their numbers, in the order in which the keys have died.
#[derive(Default)]
pub struct WaitingDeaths {
    notes: IndexMap<u64, Vec<u8>>,
    /// Pieces of one that is not complete.
    pieces: Vec<u8>,
}

impl WaitingDeaths {
    pub fn add(&mut self, server: &Server, note: Vec<u8>) {
        let shard = &server.shard;
        match death_of(&note, shard.config().databases, &shard.hasher, &shard.clock) {
            Some(death) => drop(self.notes.insert(death.number, note)),
            None => log::warning(format_args!("A death that waits says nothing: '{}'", note.escape_ascii())),
        }
    }

    fn take_line(&mut self, server: &Server, line: &[u8]) {
        match Aside::parse(line) {
            Some(Aside::Told(number)) => drop(self.notes.shift_remove(&number)),
            Some(Aside::Death(left, piece)) => {
                self.pieces.extend_from_slice(&piece);
                if left == 0 {
                    let pieces = std::mem::take(&mut self.pieces);
                    self.add(server, aside::unescape(&pieces).unwrap_or(pieces));
                }
            }
            None => {
                log::warning(format_args!("A line in the append only log says nothing: '{}'", line.escape_ascii()));
            }
        }
    }

    /// Those that wait are written by the shards of their keys.
    pub async fn put_back(self, server: &Rc<Server>) {
        let shard = &server.shard;
        for note in self.notes.into_values() {
            if let Some(death) = death_of(&note, shard.config().databases, &shard.hasher, &shard.clock) {
                let target = shard.hasher.shard_of(shard.hasher.key(&death.key));
                shard.call(target, move |shard| shard.put_back_death(death)).await;
            }
        }
    }
}

/// A file that is read.
pub struct Source {
    pub path: PathBuf,
    /// The byte from which on.
    pub from: u64,
    /// How far the times in it are ahead of store time.
    pub offset_ms: i64,
}

/// Does what these files say, in their order; the first begins at this position of the log, where that is known. `deaths`
/// wait from what was before.
pub async fn replay(
    server: &Rc<Server>,
    files: Vec<Source>,
    position: Option<u64>,
    deaths: &mut WaitingDeaths,
) -> Result<Read, String> {
    let config = server.shard.config();
    let of_bytes = files.iter().filter_map(|file| Some(std::fs::metadata(&file.path).ok()?.len())).sum();
    server.global.snapshots.progress.begin(of_bytes, realtime_us() / 1_000_000);
    policies::suspend(server, true).await;
    let (sender, items) = mpsc::sync_channel(PIECES);
    let (tell, told) = mpsc::channel::<Result<Read, LogError>>();
    let (global, me) = (server.global.clone(), server.shard.id);
    // No string is longer than the files that it stands in: who claims that is damaged.
    let bulk_bytes = config.limits.string_bytes.max(usize::try_from(of_bytes).unwrap_or(usize::MAX));
    let limits = Limits { bulk_bytes: bulk_bytes.min(REPLAYED_BYTES), authenticated: true };
    let tolerance = Tolerance { torn: config.aof_load_truncated, damaged_bytes: config.aof_load_corrupt_tail_max_size };
    let offsets_ms: Vec<i64> = files.iter().map(|file| file.offset_ms).collect();
    let files: Vec<(PathBuf, u64)> = files.into_iter().map(|file| (file.path, file.from)).collect();
    let read = move || {
        let mut send = |item| {
            let sent = sender.send(item).map_err(|_| "nobody takes it".to_owned());
            global.bells[me].ring_from_outside();
            sent
        };
        let read = reading::read(&files, position, limits, tolerance, &global.snapshots.progress, &mut send);
        drop(sender);
        // Where nobody waits for it any more there is nobody to be told.
        let _ = tell.send(read);
        global.bells[me].ring_from_outside();
    };
    std::thread::Builder::new().name("loading".to_owned()).spawn(read).map_err(|error| error.to_string())?;
    let client = Rc::new(Client::replaying(server.global.next_client_id()));
    {
        let session = &mut client.state.borrow_mut().session;
        session.reply_mode = ReplyMode::Off;
        // A SUBSCRIBE keeps nothing from running that stands behind it.
        session.proto = Proto::Resp3;
    }
    server.add_client(client.clone());
    set_loaded_offset(offsets_ms.first().copied());
    while let Some(item) = next_from_outside(&items).await {
        match item {
            Item::Commands(bytes) => {
                until_done(server, &client, BACKLOG_BYTES).await?;
                advance(server, &client, &bytes);
            }
            Item::File(index) => {
                until_done(server, &client, 0).await?;
                set_loaded_offset(Some(offsets_ms[index]));
                // As in Redis, each file begins in the first database.
                client.state.borrow_mut().session.db = 0;
            }
            Item::Aside(line) => deaths.take_line(server, &line),
            Item::Note(words) => {
                until_done(server, &client, 0).await?;
                take_note(server, &words);
            }
        }
    }
    until_done(server, &client, 0).await?;
    set_loaded_offset(None);
    server.remove_client(client.id);
    let errors: u64 = server.shard.call_all(|shard| shard.meter.log_errors()).await.into_iter().sum();
    if errors > 0 {
        log::warning(format_args!("{errors} commands of the append only log have answered errors"));
    }
    policies::suspend(server, false).await;
    match next_from_outside(&told).await {
        Some(read) => read.map_err(|error| error.to_string()),
        None => Err("the thread that reads it has ended".to_owned()),
    }
}

/// What has become of a log's commands is looked at after so long at the latest, and each time some were answered.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Waits until no more than so many bytes of what it was given are to be done.
async fn until_done(server: &Server, client: &ClientRef, bytes: usize) -> Result<(), String> {
    loop {
        {
            let state = &mut *client.state.borrow_mut();
            if state.flow.close != Close::No {
                let ends = "a command in it ends its connection";
                return Err(state.flow.refused.take().map_or_else(|| ends.to_owned(), String::from));
            }
            let left = state.input.len() - state.at;
            if left <= bytes && (bytes > 0 || state.replies.is_idle() && !state.flow.barrier) {
                return Ok(());
            }
        }
        // (A task that looked again and again would take the time of the shards for which it waits, where there are few cores.)
        or(server.replayed.wait(), sleep(LOOK_AGAIN)).await;
    }
}

/// What only this server understands.
fn take_note(server: &Server, words: &[u8]) {
    let said = split_words(words).unwrap_or_default();
    let said: Vec<&str> = said.iter().map(String::as_str).collect();
    let taken = match &said[..] {
        // What it says is for those who read the files.
        [batch::BASE, ..] => Some(()),
        said => policies::take_note(server, said),
    };
    if taken.is_none() {
        log::warning(format_args!("A note in the append only log says nothing: '{}'", words.escape_ascii()));
    }
}
