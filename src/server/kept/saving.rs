//! SAVE and BGSAVE: all shards write what they have at one moment into one file, while nobody changes anything, or while
//! all go on.

use super::policies::{self, Change};
use crate::clock::{realtime_us, store_us};
use crate::command::dump;
use crate::config::SavePoint;
use crate::executor;
use crate::journal::KnownAs;
use crate::net::{next_from_outside, on_thread, sleep};
use crate::observe::{log, memory};
use crate::persist::disk::{Disk, RealDisk};
use crate::persist::reading::OWN_VERSION;
use crate::persist::writing::{self, Base, How, Offered, Pieces};
use crate::rdb::Piece;
use crate::rdb::file::{self, Checksum};
use crate::resp::{Error, Result};
use crate::server::client::session::Contents;
use crate::server::run::in_the_way::{self, let_pass};
use crate::server::state::Server;
use crate::shard::snapshot::{Form, Sizes, Wrote};
use crate::shard::{Shard, Transaction};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long to wait for the disk.
const FULL: Duration = Duration::from_millis(1);
/// How long after a failure one is tried again that a save point has asked for.
const RETRY_S: u64 = 5;
/// The field that says where in the log the files begin whose base it is.
pub const LOG_POSITION: &str = "emberdb-log-position";

/// The fields that say where in whose stream the data are, as Redis writes them.
pub const STREAM_ID: &str = "repl-id";
pub const STREAM_OFFSET: &str = "repl-offset";
/// The database that was chosen there.
pub const STREAM_DB: &str = "repl-stream-db";
/// The field that says that the stream is for servers, too, that know of no deadlines of fields.
pub const STREAM_IS_OLD: &str = "emberdb-stream-is-old";
/// The field that says how far tokens of leases reach.
pub const TOKENS: &str = "emberdb-lease-tokens";

/// Nobody but this transaction touches anything, on any shard. (Where scripts may run see [`in_the_way::hold_everything`].)
pub async fn hold_everything(shard: &Rc<Shard>) -> Transaction {
    let transaction = shard.hold(shard.everything()).await;
    for target in 0..shard.count {
        // Until it is this transaction's turn there.
        transaction.on(target, |_, _| ()).await;
    }
    transaction
}

pub const REWRITING: Error = Error::text("ERR Background append only file rewriting already in progress");

/// How often it is begun anew where databases are emptied meanwhile.
pub const ATTEMPTS: usize = 16;

/// Writes the file that `dbfilename` names, as of one moment of all shards; nobody touches anything until it is done.
pub async fn save(server: &Rc<Server>) -> Result {
    let transaction = in_the_way::hold_everything(server).await?;
    let saved = save_held(server).await;
    drop(transaction);
    saved
}

/// The same for somebody who holds everything.
pub async fn save_held(server: &Rc<Server>) -> Result {
    begin(server)?;
    save_begun(server).await
}

async fn save_begun(server: &Rc<Server>) -> Result {
    let begun = begin_parts(server, None, server.shard.clock.wall_offset_ms()).await;
    let saved = write(server, begun).await;
    end(server, false, saved)
}

/// The same, while others go on. Returns when the moment was.
pub async fn save_beside(server: &Rc<Server>) -> Result {
    let_pass(server).await?;
    begin(server)?;
    // (A script may have begun since.)
    let transaction = in_the_way::hold_everything(server).await.inspect_err(|_| {
        server.global.snapshots.is_saving.store(false, Ordering::Relaxed);
    })?;
    let begun = begin_held(server, transaction).await;
    go_on_beside(server, Some(begun));
    Ok(())
}

/// The same for somebody who holds keys: the moment is when they are free.
pub fn save_later(server: &Rc<Server>) -> Result {
    begin(server)?;
    go_on_beside(server, None);
    Ok(())
}

fn go_on_beside(server: &Rc<Server>, mut begun: Option<Begun>) {
    server.global.snapshots.began_s.store(realtime_us() / 1_000_000, Ordering::Relaxed);
    log::notice(format_args!("Background saving started"));
    let server = server.clone();
    executor::spawn(async move {
        let mut saved = Ok(None);
        for _ in 0..ATTEMPTS {
            let begun = match begun.take() {
                Some(begun) => begun,
                None => begin_beside(&server).await,
            };
            saved = write(&server, begun).await;
            if saved != Ok(None) || server.global.snapshots.gives_up.load(Ordering::Relaxed) {
                break;
            }
        }
        // Its log says what has become of it, and INFO.
        let _ = end(&server, true, saved);
    });
}

/// One moment for all shards; from then on they see to it themselves.
pub async fn begin_beside(server: &Rc<Server>) -> Begun {
    let transaction = in_the_way::hold_everything_at_last(server).await;
    begin_held(server, transaction).await
}

async fn begin_held(server: &Rc<Server>, transaction: Transaction) -> Begun {
    let begun = begin_parts(server, None, server.shard.clock.wall_offset_ms()).await;
    drop(transaction);
    begun
}

/// Before the server ends: one that is being made is given up, and another one is made.
pub async fn save_last(server: &Rc<Server>) -> Result {
    let snapshots = &server.global.snapshots;
    snapshots.gives_up.store(true, Ordering::Relaxed);
    while begin(server).is_err() {
        server.shard.call_all(|shard| shard.give_up_saving()).await;
        sleep(FULL).await;
    }
    let transaction = hold_everything(&server.shard).await;
    let saved = save_begun(server).await;
    drop(transaction);
    // Otherwise the server ends, and nobody begins another one before that.
    if saved.is_err() {
        snapshots.gives_up.store(false, Ordering::Relaxed);
    }
    saved
}

/// The server ends: nobody finds what was not complete. Whoever still writes it has no name for it any more.
pub fn leave_nothing(server: &Server) {
    if server.global.snapshots.is_saving.load(Ordering::Relaxed) {
        let config = server.shard.config();
        let temporary = [Path::new(&config.dir), &config.log_folder()].map(writing::temporary_in);
        for path in temporary.into_iter().chain([for_tools(&config.dir)]) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Where a snapshot is made that is only sent.
pub fn for_tools(dir: &str) -> PathBuf {
    Path::new(dir).join(format!("temp-sync-{}.rdb", std::process::id()))
}

/// Once a second: is a save point reached, or has everything been deleted?
pub async fn look(server: &Rc<Server>) {
    let (config, snapshots) = (server.shard.config(), &server.global.snapshots);
    if snapshots.is_taking_in() || snapshots.is_saving.load(Ordering::Relaxed) {
        return;
    }
    if snapshots.is_scheduled.swap(false, Ordering::Relaxed) {
        let _ = save_beside(server).await;
        return;
    }
    if config.save.is_empty() {
        return;
    }
    let now_s = realtime_us() / 1_000_000;
    let elapsed_s = now_s.saturating_sub(snapshots.last_save_s.load(Ordering::Relaxed));
    let since_try_s = now_s.saturating_sub(snapshots.tried_s.load(Ordering::Relaxed));
    if snapshots.has_failed.load(Ordering::Relaxed) && since_try_s < RETRY_S {
        return;
    }
    if std::mem::take(&mut server.shard.keyspace.borrow_mut().was_emptied) {
        log::notice(format_args!("All keys were deleted. Saving..."));
        snapshots.tried_s.store(now_s, Ordering::Relaxed);
        // Where this fails, a save point asks for the next one.
        let _ = save_beside(server).await;
        return;
    }
    // Shards that sleep are not woken before it may matter what they say.
    if config.save.0.iter().all(|point| elapsed_s <= point.seconds) {
        return;
    }
    let changes: u64 = server.shard.call_all(|shard| shard.changes()).await.into_iter().sum();
    let changes = changes.saturating_sub(snapshots.saved_changes.load(Ordering::Relaxed));
    let is_due = |point: &&SavePoint| changes >= point.changes && elapsed_s > point.seconds;
    if let Some(point) = config.save.0.iter().find(is_due) {
        log::notice(format_args!("{} changes in {} seconds. Saving...", point.changes, point.seconds));
        snapshots.tried_s.store(now_s, Ordering::Relaxed);
        // What has begun meanwhile is as good.
        let _ = save_beside(server).await;
    }
}

/// From now on one is made, which is the only one.
pub fn begin(server: &Server) -> Result {
    let is_rewriting = &server.global.appending.is_rewriting;
    match server.global.snapshots.is_saving.swap(true, Ordering::Relaxed) {
        // (A rewrite of the log makes one, too.)
        true if is_rewriting.load(Ordering::Relaxed) => Err(REWRITING),
        true => Err(Error::text("ERR Background save already in progress")),
        false => Ok(()),
    }
}

fn end(server: &Server, is_beside: bool, saved: std::result::Result<Option<u64>, String>) -> Result {
    let snapshots = &server.global.snapshots;
    let now_s = realtime_us() / 1_000_000;
    let saved = saved.and_then(|changes| changes.ok_or_else(|| "databases were emptied all the time".to_owned()));
    if is_beside {
        snapshots.lasted_s.store(now_s.saturating_sub(snapshots.began_s.load(Ordering::Relaxed)), Ordering::Relaxed);
        snapshots.has_failed.store(saved.is_err(), Ordering::Relaxed);
    }
    let result = match saved {
        Ok(changes) => {
            snapshots.saved_changes.store(changes, Ordering::Relaxed);
            snapshots.last_save_s.store(now_s, Ordering::Relaxed);
            snapshots.saves.fetch_add(1, Ordering::Relaxed);
            snapshots.has_failed.store(false, Ordering::Relaxed);
            log::notice(format_args!("DB saved on disk"));
            Ok(())
        }
        Err(reason) => {
            log::warning(format_args!("Error saving DB on disk: {reason}"));
            if is_beside {
                snapshots.set_failure(&reason);
            }
            Err(Error::err(format_args!("Error saving DB on disk: {reason}")))
        }
    };
    snapshots.began_s.store(0, Ordering::Relaxed);
    snapshots.is_saving.store(false, Ordering::Relaxed);
    result
}

/// A snapshot whose moment has been.
pub struct Begun {
    /// What stands before the keys.
    head: Piece,
    /// Changes that it has.
    changes: u64,
    /// What is written where it is commands.
    base: Option<Base>,
}

impl Begun {
    /// Whether it is written as a snapshot.
    pub fn is_snapshot(&self) -> bool {
        self.base.is_none()
    }
}

/// While everything is held: each shard keeps what it has at this moment. It may be the base of the files that begin at a
/// position of the log. `offset_ms`: how far ahead of store time the times in it are.
pub async fn begin_parts(server: &Rc<Server>, base_of: Option<u64>, offset_ms: i64) -> Begun {
    begin_parts_for(server, base_of, offset_ms, false).await
}

/// The same, for servers that know of no deadlines of fields, or not.
pub async fn begin_parts_for(server: &Rc<Server>, base_of: Option<u64>, offset_ms: i64, leaves_fields: bool) -> Begun {
    let is_commands = base_of.is_some() && !server.shard.config().aof_use_rdb_preamble;
    let form = if is_commands { Form::Commands } else { Form::Snapshot };
    let begin = move |shard: &Rc<Shard>| {
        shard.begin_saving(form, offset_ms, leaves_fields);
        shard.sizes()
    };
    let mut sizes = server.shard.call_all(begin).await;
    sizes.iter_mut().for_each(|sizes| sizes.has_field_deadlines &= !leaves_fields);
    let known_as = known_as(server).await;
    let changes = sizes.iter().map(|sizes| sizes.changes).sum();
    let mut head = Piece::default();
    let notes = || policies::all(server).iter().map(Change::in_log).collect();
    let base = base_of.filter(|_| is_commands).map(|position| Base { notes: notes(), position });
    head.write(|out| match form {
        Form::Snapshot => write_head(out, server, &sizes, base_of, offset_ms, known_as.as_ref()),
        Form::Commands => {
            let catalog = server.scripting.functions.catalog();
            catalog.libraries().for_each(|library| dump::load_library(out, &library.code));
        }
    });
    Begun { head, changes, base }
}

/// Under which name replicas know the data, and where in the stream they are what they are now. Everything is held.
async fn known_as(server: &Rc<Server>) -> Option<KnownAs> {
    let global = &server.global;
    global.feed.kept()?;
    // (A part of a primary's stream that has been done is counted with what it has changed.)
    server.shard.call_all(|shard| shard.hand_over_records()).await;
    global.feed.known_as()
}

/// Writes the file that `dbfilename` names, where that is this server's.
async fn write(server: &Rc<Server>, begun: Begun) -> std::result::Result<Option<u64>, String> {
    let config = server.shard.config();
    let (global, dir, name) = (server.global.clone(), config.dir.clone(), config.dbfilename.clone());
    let is_ours = match global.snapshots.has_claimed(&dir, &name) {
        true => Ok(true),
        false => on_thread("claim", move || global.snapshots.claim(&dir, &name)).await.flatten(),
    };
    let is_ours = is_ours.map_err(|error| error.to_string());
    if is_ours != Ok(true) {
        server.shard.call_all(|shard| shard.stop_saving()).await;
        let stranger = format!("'{}' in '{}' belongs to another server that runs", config.dbfilename, config.dir);
        return Err(is_ours.err().unwrap_or(stranger));
    }
    let how = How {
        compresses: config.rdbcompression,
        checksum: config.rdbchecksum,
        in_steps: config.rdb_save_incremental_fsync,
        lasts: true,
        base: None,
    };
    write_file(server, begun, config.dbfilename.clone(), how).await
}

/// How many changes the file has; none where it has to begin anew.
pub async fn write_file(
    server: &Rc<Server>,
    begun: Begun,
    name: String,
    how: How,
) -> std::result::Result<Option<u64>, String> {
    write_to(server, begun, Arc::new(RealDisk), name, how).await
}

/// The same, wherever the file goes.
pub async fn write_to(
    server: &Rc<Server>,
    begun: Begun,
    disk: Arc<dyn Disk>,
    name: String,
    how: How,
) -> std::result::Result<Option<u64>, String> {
    let how = How { base: begun.base, ..how };
    let written = write_parts(server, begun.head, disk, &name, how).await;
    server.shard.call_all(|shard| shard.stop_saving()).await;
    written.map(|is_whole| is_whole.then_some(begun.changes))
}

async fn write_parts(
    server: &Rc<Server>,
    head: Piece,
    disk: Arc<dyn Disk>,
    name: &str,
    how: How,
) -> std::result::Result<bool, String> {
    let shard = &server.shard;
    let (bells, me) = (server.global.bells.clone(), shard.id);
    let begun = writing::begin(disk, name, how, move || bells[me].ring_from_outside());
    let (pieces, outcome) = begun.map_err(|error| error.to_string())?;
    let mut is_void = false;
    if head.is_empty() || send(&pieces, me, head).await {
        let of_all = pieces.clone();
        let wrote = shard.call_all_later(move |shard| shard.write_down(of_all)).await;
        is_void = wrote.contains(&Wrote::Nothing);
        while wrote.iter().all(|wrote| *wrote == Wrote::All) && !pieces.end() {
            sleep(FULL).await;
        }
    }
    drop(pieces);
    match next_from_outside(&outcome).await {
        Some(Ok(_)) => Ok(true),
        Some(Err(_)) if is_void => Ok(false),
        Some(Err(error)) => Err(error.to_string()),
        None => Err("the thread that writes it has ended".to_owned()),
    }
}

async fn send(pieces: &Pieces, from: usize, mut piece: Piece) -> bool {
    loop {
        match pieces.offer(from, piece, false) {
            Offered::Taken => return true,
            Offered::Over => return false,
            Offered::Full(again) => {
                piece = again;
                sleep(FULL).await;
            }
        }
    }
}

/// A snapshot that has no keys.
pub fn without_keys(server: &Server, contents: Contents) -> Vec<u8> {
    let mut out = Vec::new();
    file::write_head(&mut out, file::VERSION);
    write_fields(&mut out, server, false, server.shard.clock.wall_offset_ms());
    if contents != Contents::Nothing {
        write_libraries(&mut out, server);
    }
    file::write_end(&mut out);
    let mut checksum = Checksum::default();
    if server.shard.config().rdbchecksum {
        checksum.update(&out);
        out.extend_from_slice(&checksum.get().to_le_bytes());
    } else {
        out.extend_from_slice(&[0; file::CHECKSUM_BYTES]);
    }
    out
}

/// What stands before the keys.
fn write_head(
    out: &mut Vec<u8>,
    server: &Server,
    sizes: &[Sizes],
    base_of: Option<u64>,
    offset_ms: i64,
    known_as: Option<&KnownAs>,
) {
    let has_field_deadlines = sizes.iter().any(|sizes| sizes.has_field_deadlines);
    file::write_head(out, if has_field_deadlines { file::VERSION_OF_FIELD_DEADLINES } else { file::VERSION });
    write_fields(out, server, base_of.is_some(), offset_ms);
    if let Some(KnownAs { id, position, db, is_old }) = known_as {
        file::write_field(out, STREAM_DB, db.to_string().as_bytes());
        file::write_field(out, STREAM_ID, id.as_bytes());
        file::write_field(out, STREAM_OFFSET, position.to_string().as_bytes());
        if *is_old {
            file::write_field(out, STREAM_IS_OLD, b"1");
        }
    }
    if let Some(position) = base_of {
        file::write_field(out, LOG_POSITION, position.to_string().as_bytes());
    }
    policies::write(out, server);
    write_libraries(out, server);
    let databases = sizes.first().map_or(0, |sizes| sizes.databases.len());
    for db in 0..databases {
        let of_all = sizes.iter().map(|sizes| sizes.databases[db]);
        let (keys, with_deadline) = of_all.fold((0, 0), |all, of| (all.0 + of.0, all.1 + of.1));
        if keys > 0 {
            file::write_db(out, db);
            file::write_sizes(out, keys, with_deadline);
        }
    }
}

/// What is said of the file itself. `offset_ms`: how far the times in it are ahead of store time.
fn write_fields(out: &mut Vec<u8>, server: &Server, is_base: bool, offset_ms: i64) {
    file::write_field(out, "redis-ver", server.shard.config().redis_version.to_string().as_bytes());
    file::write_field(out, "redis-bits", b"64");
    let begun_s = offset_ms.saturating_add_unsigned(store_us() / 1000) / 1000;
    file::write_field(out, "ctime", begun_s.to_string().as_bytes());
    file::write_field(out, "used-mem", memory::used_bytes().to_string().as_bytes());
    file::write_field(out, "aof-base", if is_base { b"1" } else { b"0" });
    file::write_field(out, OWN_VERSION, env!("CARGO_PKG_VERSION").as_bytes());
    let tokens = server.global.tokens.greatest();
    if tokens > 0 {
        file::write_field(out, TOKENS, tokens.to_string().as_bytes());
    }
}

fn write_libraries(out: &mut Vec<u8>, server: &Server) {
    for library in server.scripting.functions.catalog().libraries() {
        file::write_library(out, &library.code);
    }
}
