//! A snapshot's file becomes keys: at the start, and by DEBUG RELOAD.

use super::policies;
use super::replay::WaitingDeaths;
use super::saving::{LOG_POSITION, STREAM_DB, STREAM_ID, STREAM_IS_OLD, STREAM_OFFSET, TOKENS, hold_everything};
use crate::clock::{realtime_us, store_us};
use crate::command::shard_of;
use crate::journal::KnownAs;
use crate::net::{Bell, next_from_outside};
use crate::observe::log;
use crate::persist::reading::{self, Beside, Limits, LoadError, OWN_VERSION, Origin};
use crate::script::{self, Catalog, Heading, Library};
use crate::server::state::Server;
use crate::server::state::replication::{ID_DIGITS, Ids};
use crate::shard::snapshot::{DEATH, TakeIn, TakenIn};
use crate::shard::{GROUP, Note, Shard};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};

/// Batches that wait for a shard; who reads the file waits then.
const BATCHES: usize = 4;

/// To begin where another server writes the snapshot would be to lose it.
pub fn claim_at_start(server: &Rc<Server>) {
    let config = server.shard.config();
    if config.save.is_empty() {
        return;
    }
    let why = match server.global.snapshots.claim(&config.dir, &config.dbfilename) {
        Ok(true) => return,
        Ok(false) => "it belongs to another server that runs, or cannot be claimed".to_owned(),
        Err(error) => error.to_string(),
    };
    give_up(&format!("Can't save to '{}' in '{}': {why}", config.dbfilename, config.dir));
}

/// Loads the snapshot that is there before anybody sees data, or ends the process: to begin without it would be to lose
/// it.
pub async fn load_at_start(server: &Rc<Server>) {
    let config = server.shard.config();
    if !Path::new(&config.dbfilename).exists() {
        return;
    }
    let began_us = store_us();
    let how =
        TakeIn { replace: false, drop_dead: !config.expired_while_down && config.follows.0.is_none(), beside: false };
    let transaction = hold_everything(&server.shard).await;
    match load_held(server, how).await {
        Ok(taken) => {
            go_on_in_stream(server).await;
            policies::tell_all(server);
            log::notice(format_args!("Done loading RDB, keys loaded: {}, keys expired: {}.", taken.keys, taken.dead));
            let seconds = (store_us() - began_us) as f64 / 1e6;
            log::notice(format_args!("DB loaded from disk: {seconds:.3} seconds"));
        }
        Err(reason) => {
            give_up(&format!(
                "Fatal error loading the DB from '{}': {reason}. Exiting. (Another dbfilename begins without it.)",
                config.dbfilename
            ));
        }
    }
    drop(transaction);
}

/// Replicas that have what was loaded go on with it. Nobody has changed anything since, and what dies from now on
/// they are told.
pub async fn go_on_in_stream(server: &Rc<Server>) {
    let global = &server.global;
    if server.shard.config().follows.0.is_some() {
        return;
    }
    let Some(KnownAs { id, position, is_old, .. }) = global.replication.restored().clone() else { return };
    if let Err(error) = global.log.start() {
        log::warning(format_args!("Replicas cannot go on: {error}"));
        return;
    }
    let ids = Ids { second: None, id };
    global.replication.set_ids(ids.renamed(position, Ids::new().id));
    global.feed.set_position(position, 0);
    // Nobody knows which replicas come back: those for whom it was may go on in it.
    global.feed.set_old(is_old);
    if is_old {
        global.replication.note_told_less();
    }
    global.feed.keep(Some(server.shard.config().repl_backlog()));
    server.shard.call_all(Server::follow_log).await;
}

pub fn give_up(reason: &str) -> ! {
    log::warning(format_args!("{reason}"));
    log::flush();
    std::process::exit(1);
}

/// Loads the file that `dbfilename` names, for somebody who holds everything.
pub async fn load_held(server: &Rc<Server>, how: TakeIn) -> Result<TakenIn, String> {
    let name = server.shard.config().dbfilename.clone();
    let loaded = load_file(server, how, &name).await?;
    // (Where some keys or elements were left out because they are dead, nobody was told of their deaths.)
    if loaded.taken.dead + loaded.taken.thinned == 0 || !how.drop_dead {
        *server.global.replication.restored() = loaded.known_as;
    }
    loaded.deaths.put_back(server).await;
    Ok(loaded.taken)
}

/// What was loaded.
pub struct Loaded {
    pub taken: TakenIn,
    /// Where the snapshot ends in its file.
    pub end: u64,
    /// Where in the log what stands behind it begins.
    pub log_position: Option<u64>,
    /// What had died before it, and was not written to its stream.
    pub deaths: WaitingDeaths,
    /// Under which name replicas know the data, and where in the stream that is so.
    pub known_as: Option<KnownAs>,
}

/// Loads a file for somebody who holds everything.
pub async fn load_file(server: &Rc<Server>, how: TakeIn, name: &str) -> Result<Loaded, String> {
    let of_bytes = std::fs::metadata(name).map_err(|error| error.to_string())?.len();
    let keys = read_keys(server, how, Origin::File(PathBuf::from(name)), of_bytes).await?;
    keys.take_rest(server, how).await
}

/// The keys of a snapshot that are there, and what it has beside keys, which is not yet.
pub struct Keys {
    taken: TakenIn,
    beside: Beside,
    libraries: Vec<script::Loaded>,
}

/// Reads a snapshot, as long as may be known (0: it is not), and takes in its keys. Nobody else changes those databases.
pub async fn read_keys(server: &Rc<Server>, how: TakeIn, origin: Origin, of_bytes: u64) -> Result<Keys, String> {
    let (shard, config) = (&server.shard, server.shard.config());
    server.global.snapshots.progress.begin(of_bytes, realtime_us() / 1_000_000);
    // (As in Redis, what was written under another limit is read.)
    let most = match origin {
        Origin::File(_) => usize::try_from(of_bytes).unwrap_or(usize::MAX),
        Origin::Open(ref file) => {
            file.metadata().ok().and_then(|known| usize::try_from(known.len()).ok()).unwrap_or(usize::MAX)
        }
        Origin::Stream(_) => usize::MAX,
    };
    let limits = Limits {
        text_bytes: config.limits.string_bytes.max(most),
        databases: config.databases,
        checksum: config.rdbchecksum,
        shards: shard.count,
    };
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..shard.count).map(|_| mpsc::sync_channel(BATCHES)).unzip();
    let (tell, told) = mpsc::channel::<Result<Beside, LoadError>>();
    let (global, hasher) = (server.global.clone(), shard.hasher.clone());
    let read = move || {
        let send = |target: usize, batch| {
            let sent = senders[target].send(batch).map_err(|_| "a shard does not take it".to_owned());
            global.bells[target].ring_from_outside();
            sent
        };
        let route = |key: &[u8]| shard_of(&hasher, key);
        let outcome = reading::read(origin, limits, &global.snapshots.progress, route, send);
        // The shards see that there is no more.
        drop(senders);
        // Where nobody waits for it any more there is nobody to be told.
        let _ = tell.send(outcome);
        global.bells.iter().for_each(Bell::ring_from_outside);
    };
    std::thread::Builder::new().name("loading".to_owned()).spawn(read).map_err(|error| error.to_string())?;
    let mut calls = Vec::new();
    for (target, batches) in receivers.into_iter().enumerate() {
        calls.push(shard.call_later(target, move |shard: Rc<Shard>| shard.load_from(batches, how)));
    }
    let mut all = TakenIn::default();
    let mut refused = None;
    for call in calls {
        match call.await {
            Ok(taken) => {
                all.keys += taken.keys;
                all.dead += taken.dead;
                all.thinned += taken.thinned;
            }
            Err(reason) => refused = refused.or(Some(reason)),
        }
    }
    let read = next_from_outside(&told).await;
    if let Some(reason) = refused {
        return Err(reason);
    }
    let mut beside = match read {
        Some(read) => read.map_err(|error| error.to_string())?,
        None => return Err("the thread that reads it has ended".to_owned()),
    };
    let libraries = load_libraries(server, std::mem::take(&mut beside.libraries)).await?;
    Ok(Keys { taken: all, beside, libraries })
}

impl Keys {
    /// Whether the snapshot is one of EmberDB's.
    pub fn are_embers(&self) -> bool {
        self.beside.fields.iter().any(|(name, _)| *name == *OWN_VERSION.as_bytes())
    }

    /// Takes in the rest, for somebody who holds everything.
    pub async fn take_rest(self, server: &Rc<Server>, how: TakeIn) -> Result<Loaded, String> {
        let Keys { taken, beside, libraries } = self;
        let end = beside.end;
        let field = |wanted: &str| {
            let found = beside.fields.iter().find(|(name, _)| name == wanted.as_bytes());
            found.and_then(|(_, value)| std::str::from_utf8(value).ok())
        };
        if let Some(known) = field(TOKENS).and_then(|value| value.parse().ok()) {
            server.global.tokens.learn(known);
        }
        let log_position = field(LOG_POSITION).and_then(|value| value.parse().ok());
        let id = field(STREAM_ID).filter(|id| id.len() == ID_DIGITS).map(str::to_owned);
        let position = field(STREAM_OFFSET).and_then(|value| value.parse().ok());
        let db = field(STREAM_DB).and_then(|value| value.parse().ok()).unwrap_or(0);
        let is_old = field(STREAM_IS_OLD).is_some();
        let known_as = id.zip(position).map(|(id, position)| KnownAs { id, position, db, is_old });
        let mut deaths = WaitingDeaths::default();
        for (_, note) in beside.fields.iter().filter(|(name, _)| name == DEATH.as_bytes()) {
            deaths.add(server, note.clone());
        }
        server.shard.recall_groups(notes_of_groups(server, &beside)).await;
        policies::take(server, &beside).await;
        keep_libraries(server, libraries, how).await?;
        let changes = server.shard.call_all(|shard| shard.end_loading()).await;
        let snapshots = &server.global.snapshots;
        snapshots.saved_changes.store(changes.into_iter().sum(), Ordering::Relaxed);
        snapshots.loaded_keys.store(taken.keys, Ordering::Relaxed);
        snapshots.loaded_dead.store(taken.dead, Ordering::Relaxed);
        Ok(Loaded { taken, end, log_position, deaths, known_as })
    }
}

/// What the file says of groups of keys.
fn notes_of_groups(server: &Server, beside: &Beside) -> Vec<Note> {
    let databases = server.shard.config().databases;
    let read = |value: &Vec<u8>| {
        let note = Note::of_field(value, databases);
        if note.is_none() {
            log::warning(format_args!("What the file says of a group is nothing: '{}'", value.escape_ascii()));
        }
        note
    };
    let fields = beside.fields.iter().filter(|(name, _)| name == GROUP.as_bytes());
    fields.filter_map(|(_, value)| read(value)).collect()
}

/// Runs the code of libraries, which nobody can call yet.
async fn load_libraries(server: &Rc<Server>, codes: Vec<Vec<u8>>) -> Result<Vec<script::Loaded>, String> {
    let memory_bytes = server.shard.config().script_memory_bytes;
    let mut all = Vec::new();
    for code in codes {
        let loaded = match Heading::parse(&code) {
            Ok(heading) => server.scripting.load_new(&code, heading, memory_bytes).await,
            Err(error) => Err(error),
        };
        all.push(loaded.map_err(|error| String::from_utf8_lossy(&error.to_bytes()).into_owned())?);
    }
    Ok(all)
}

async fn keep_libraries(server: &Rc<Server>, all: Vec<script::Loaded>, how: TakeIn) -> Result<(), String> {
    let libraries: Vec<Arc<Library>> = all.iter().map(|loaded| loaded.library.clone()).collect();
    let with = |catalog: &Catalog| match how.beside {
        // As the keys do, they take the place of those that were there.
        true => Catalog::default().with(&libraries, false),
        false => catalog.with(&libraries, how.replace),
    };
    let changed = server.global.libraries.change(with);
    changed.map_err(|error| String::from_utf8_lossy(&error.to_bytes()).into_owned())?;
    all.into_iter().for_each(|loaded| drop(server.scripting.functions.keep(loaded)));
    server.shard.call_all(|shard| Server::of(shard).scripting.functions.refresh()).await;
    Ok(())
}
