//! The append-only log as a whole: how it is begun, taken up at the start, made anew from what there is, and ended.
//!
//! To make it anew a new file is begun in a moment in which somebody holds everything, and that moment is written down as a
//! snapshot beside the work of others. When that is on the disk it takes the place of all files before the new one.

use super::loading::{self, claim_at_start, give_up, load_file};
use super::policies;
use super::replay::{Source, WaitingDeaths, replay};
use super::saving::{self, Begun, begin_parts, hold_everything, write_file};
use super::tokens;
use crate::clock::{Clock, realtime_us, set_loaded_offset, set_log_offset, store_us};
use crate::executor;
use crate::journal::KnownAs;
use crate::net::on_thread;
use crate::observe::log;
use crate::persist::aof::batch;
use crate::persist::aof::manifest::{Entry, Manifest, Role};
use crate::persist::aof::reading::Read;
use crate::persist::disk::{Appendable, sync_all};
use crate::persist::writing::How;
use crate::resp::{Error, Result};
use crate::script::Catalog;
use crate::server::run::in_the_way::{self, let_pass, let_scripts_end};
use crate::server::state::Server;
use crate::server::state::appending::Files;
use crate::server::state::replication::ID_DIGITS;
use crate::shard::snapshot::TakeIn;
use crate::shard::{Shard, Transaction};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// How often a rewrite is begun anew where databases are emptied meanwhile.
const ATTEMPTS: usize = 16;
/// How soon one that is due by the log's size is tried again after a failure.
const RETRY_S: u64 = 5;

/// At the start, before anybody sees data: the log is taken up, or, where there is none, the snapshot, of which a log is
/// made if there is to be one. Ends the process where that fails: to begin without it would be to lose it.
pub async fn load_at_start(server: &Rc<Server>) {
    claim_at_start(server);
    let mut own_policies = None;
    if server.shard.config().follows.0.is_some() {
        // Its data are another server's, which says what has died, and so are the policies.
        server.shard.call_all(|shard| shard.set_following(true)).await;
        own_policies = Some(policies::give_up(server));
    }
    if !take_up(server).await {
        loading::load_at_start(server).await;
        begin_first(server).await;
    }
    if let Some(own) = own_policies.filter(|_| server.global.replication.restored().is_none()) {
        own.put_back(server);
    }
    tokens::begin(server).await;
    end_loading(server).await;
}

/// Data is there. How the log is to be may have been said while it was loaded: that is taken over now. (One that was
/// turned on or off is begun or ended by [`look`].)
async fn end_loading(server: &Rc<Server>) {
    server.global.snapshots.loading.store(false, Ordering::Relaxed);
    configure_log(server);
    if server.global.log.is_on() {
        server.shard.call_all(Server::follow_log).await;
    }
}

/// Whether there was a log.
async fn take_up(server: &Rc<Server>) -> bool {
    let began_us = store_us();
    match begin_with(server).await {
        Ok(true) => {
            let seconds = (store_us() - began_us) as f64 / 1e6;
            log::notice(format_args!("DB loaded from append only file: {seconds:.3} seconds"));
            true
        }
        Ok(false) => false,
        Err(reason) => give_up(&format!("Fatal error loading the append only file: {reason}. Exiting.")),
    }
}

async fn begin_with(server: &Rc<Server>) -> std::result::Result<bool, String> {
    let config = server.shard.config();
    configure_log(server);
    if !config.appendonly {
        return Ok(false);
    }
    server.global.log.start().map_err(|error| error.to_string())?;
    let folder = config.log_folder();
    let in_folder = |error: io::Error| format!("{}: {error}", folder.display());
    let mut files = Files::claim(&config, &server.shard.clock, server.shard.hasher.seed()).map_err(in_folder)?;
    let found = find(&mut files, &config.dir, &server.shard.clock)?;
    if !found {
        *server.global.appending.files() = Some(files);
        return Ok(false);
    }
    go_on_with(server, files, true).await?;
    Ok(true)
}

/// Loads these files, and writes on in the last. At the start replicas may go on with what is there, and so may this server where
/// it is one.
async fn go_on_with(server: &Rc<Server>, mut files: Files, is_start: bool) -> std::result::Result<(), String> {
    let step = files.steps.take(server.shard.clock.wall_offset_ms());
    let (read, known_as) = load(server, &mut files).await?;
    sync_what_was_read(server, &files).await.map_err(|error| format!("it cannot be brought to the disk: {error}"))?;
    let last = files.last_increment(read.position, read.is_foreign);
    let (file, bytes, position) = last.map_err(|error| error.to_string())?;
    if step.is_some() {
        files.set_manifest(files.manifest.clone()).map_err(|error| error.to_string())?;
    }
    set_log_offset(files.log_offset_ms());
    if let Err(error) = files.delete_history() {
        // It is said to be history still, and deleted another time.
        log::warning(format_args!("Can't delete what the append only file does not need any more: {error}"));
    }
    let (log, appending) = (&server.global.log, &server.global.appending);
    log.bytes.store(files.bytes(), Ordering::Relaxed);
    // (What the log has grown by since its base was made is not known.)
    appending.base_bytes.store(files.base_bytes(), Ordering::Relaxed);
    *appending.files() = Some(files);
    log.begin_at(position);
    log.go_on_in(file, bytes);
    switch_on(server, known_as.filter(|_| is_start)).await;
    Ok(())
}

/// What was read may have been written by a process that was killed before the disk had it. From now on it is shown, and
/// the heads of batches say that it is on the disk: so it has to be, under every `appendfsync`.
async fn sync_what_was_read(server: &Rc<Server>, files: &Files) -> io::Result<()> {
    let mut paths: Vec<PathBuf> = files.manifest.files().map(|entry| files.path(&entry.name)).collect();
    paths.push(files.manifest_path());
    paths.push(files.folder.clone());
    paths.extend(files.folder.parent().map(Path::to_owned));
    server.transport.beside(move || paths.iter().try_for_each(|path| sync_all(path))).await.and_then(|synced| synced)
}

/// Looks which files there are, and takes over what an old redis-server has left.
fn find(files: &mut Files, dir: &str, clock: &Clock) -> std::result::Result<bool, String> {
    let path = files.manifest_path();
    let old = Path::new(dir).join(&files.stem);
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            files.read_manifest(&text, clock)?;
            let is_half_done = files.manifest.is_of_old_file(&files.stem) && !files.path(&files.stem).exists();
            if is_half_done && old.is_file() {
                take_over_old_file(files, &old).map_err(|error| error.to_string())?;
            }
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if !old.is_file() {
                return Ok(false);
            }
            let base = Some(Entry { name: files.stem.clone(), number: 1, role: Role::Base });
            let named = files.set_manifest(Manifest { base, ..Manifest::default() });
            named.and_then(|()| take_over_old_file(files, &old)).map_err(|error| error.to_string())?;
            Ok(true)
        }
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// The manifest names it already: it moves into the folder. In this order redis-server does it, too, and either goes on
/// where the other was killed.
fn take_over_old_file(files: &Files, old: &Path) -> io::Result<()> {
    files.disk.open(old)?.sync()?;
    files.disk.rename(old, &files.path(&files.stem))?;
    log::notice(format_args!(
        "Successfully migrated an old-style AOF configuration ({}) into the AOF directory.",
        files.stem
    ));
    Ok(())
}

/// What was read, and under which name replicas know that.
async fn load(server: &Rc<Server>, files: &mut Files) -> std::result::Result<(Read, Option<KnownAs>), String> {
    let (mut sources, mut position, mut known_as) = (Vec::new(), None, None);
    let mut is_based = false;
    let mut deaths = WaitingDeaths::default();
    // From here on: what is late in the base may have been given more time since.
    set_replaying(server, true).await;
    for entry in files.manifest.files() {
        let path = files.path(&entry.name);
        let mut from = 0;
        if entry.role == Role::Base && is_snapshot(&path).map_err(|error| format!("{}: {error}", path.display()))? {
            let transaction = hold_everything(&server.shard).await;
            let how = TakeIn { replace: false, drop_dead: false, beside: false };
            set_loaded_offset(Some(files.steps.offset_of(&entry.name)));
            let loaded = load_file(server, how, &path.to_string_lossy()).await;
            set_loaded_offset(None);
            drop(transaction);
            let loaded = loaded.map_err(|reason| format!("{}: {reason}", entry.name))?;
            position = loaded.log_position;
            (deaths, known_as) = (loaded.deaths, loaded.known_as);
            from = loaded.end;
            if from == std::fs::metadata(&path).map_err(|error| error.to_string())?.len() {
                continue;
            }
        }
        is_based |= entry.role == Role::Base && begins_with(&path, batch::MARK).unwrap_or(false);
        sources.push(Source { path, from, offset_ms: files.steps.offset_of(&entry.name) });
    }
    let paths: Vec<PathBuf> = sources.iter().map(|source| source.path.clone()).collect();
    let read = replay(server, sources, position, &mut deaths).await?;
    if let Some(cut) = read.cut.as_ref().filter(|cut| is_based && cut.index == 0) {
        // It was on the disk as a whole before anything stood behind it: no crash has torn it.
        return Err(format!("the base {} is damaged at byte {}", paths[0].display(), cut.at));
    }
    cut(files, &paths, &read).map_err(|error| error.to_string())?;
    deaths.put_back(server).await;
    server.shard.call_all(Shard::end_loading_of).await;
    // Whatever stands behind the base says itself what there is then.
    let known_as = if read.has_changes { read.known_as.clone() } else { known_as };
    let known_as = known_as.filter(|known_as| known_as.id.len() == ID_DIGITS);
    Ok((read, known_as))
}

fn is_snapshot(path: &Path) -> io::Result<bool> {
    Ok(begins_with(path, b"REDIS")? || begins_with(path, b"VALKEY")?)
}

fn begins_with(path: &Path, text: &[u8]) -> io::Result<bool> {
    let mut head = Vec::new();
    let file = std::fs::File::open(path)?;
    io::Read::read_to_end(&mut io::Read::take(file, text.len() as u64), &mut head)?;
    Ok(head == text)
}

/// Takes away what a crash has left behind the whole part.
fn cut(files: &Files, paths: &[PathBuf], read: &Read) -> io::Result<()> {
    let Some(cut) = &read.cut else { return Ok(()) };
    let path = &paths[cut.index];
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match cut.damage {
        Some(what) => log::warning(format_args!(
            "!!! Warning: the AOF file {name} is damaged at byte {}: {what}!!! It is cut there: {} bytes are lost, which \
             aof-load-corrupt-tail-max-size allows",
            cut.at, cut.lost_bytes
        )),
        None if cut.is_empty => {}
        None => log::warning(format_args!(
            "!!! Warning: short read while loading the AOF file {name}!!! It is cut at byte {}: {} bytes that a crash has \
             left behind that are lost",
            cut.at, cut.lost_bytes
        )),
    }
    // From the end: a crash in between leaves more than was to be left, and never a gap.
    for (index, path) in paths.iter().enumerate().skip(cut.index).rev() {
        let file = files.disk.open(path)?;
        file.cut(if index == cut.index { cut.at } else { 0 })?;
        file.sync()?;
    }
    Ok(())
}

/// From now on every change is handed over to the log.
async fn switch_on(server: &Rc<Server>, known_as: Option<KnownAs>) {
    let transaction = hold_everything(&server.shard).await;
    let goes_on = known_as.is_some();
    if goes_on {
        *server.global.replication.restored() = known_as;
        loading::go_on_in_stream(server).await;
    }
    server.global.log.set_on(true);
    // What dies from now on is said to the log.
    set_replaying(server, false).await;
    if goes_on {
        policies::tell_all(server);
    }
    drop(transaction);
}

/// The log is read from now on, or not any more. Replicas are not told a second time what it says.
async fn set_replaying(server: &Server, wants: bool) {
    let set = move |shard: &Rc<Shard>| {
        shard.set_replaying(wants);
        Server::follow_log(shard);
        // (What they take is told.)
        shard.serve_waiters();
    };
    server.shard.call_all(set).await;
}

const LOG_IS_OFF: Error = Error::text("ERR the append only file is off");

/// DEBUG LOADAOF: what the log says takes the place of what there is. Others are answered LOADING meanwhile.
pub async fn load_again(server: &Rc<Server>) -> Result {
    if !server.global.log.is_on() {
        return Err(LOG_IS_OFF);
    }
    saving::begin(server)?;
    let loaded = empty_and_load(server).await;
    server.global.snapshots.is_saving.store(false, Ordering::Relaxed);
    loaded
}

async fn empty_and_load(server: &Rc<Server>) -> Result {
    let (global, shard) = (&server.global, &server.shard);
    let_pass(server).await?;
    global.snapshots.loading.store(true, Ordering::Relaxed);
    shard.let_admitted_arrive().await;
    let transaction = end_without_scripts(server).await.inspect_err(|_| {
        global.snapshots.loading.store(false, Ordering::Relaxed);
    })?;
    empty_held(server).await;
    drop(transaction);
    let files = global.appending.files().take();
    let loaded = match files {
        Some(files) => go_on_with(server, files, false).await,
        None => Err("there is none".to_owned()),
    };
    if let Err(reason) = loaded {
        give_up(&format!("Fatal error loading the append only file: {reason}. Exiting."));
    }
    end_loading(server).await;
    Ok(())
}

/// Holds everything while no script is under way, and ends the log.
async fn end_without_scripts(server: &Rc<Server>) -> Result<Transaction> {
    loop {
        let_scripts_end(server).await?;
        let transaction = in_the_way::hold_everything(server).await?;
        // A script that was in front of this, waiting for its keys, may have to begin again: it would do so among the data and
        // the commands of the log.
        if server.global.scripts_under_way.load(Ordering::Acquire) > 0 {
            continue;
        }
        if !server.global.log.is_on() {
            // Somebody has ended it meanwhile.
            return Err(LOG_IS_OFF);
        }
        let unwritable = |reason| Error::err(format_args!("The append only file cannot be written: {reason}"));
        end_held(server).await.map_err(unwritable)?;
        return Ok(transaction);
    }
}

/// Ends the log, of which everything is on the disk then, for somebody who holds everything.
///
/// # Errors
/// It cannot be written, and goes on.
pub async fn end_held(server: &Rc<Server>) -> io::Result<()> {
    server.shard.call_all(|shard| shard.hand_over_records()).await;
    let log = server.global.log.clone();
    server.transport.beside(move || log.bring_to_disk().map(|()| log.set_on(false))).await??;
    server.shard.call_all(Server::follow_log).await;
    Ok(())
}

/// Throws all data and libraries away, for somebody who holds everything.
pub async fn empty_held(server: &Rc<Server>) {
    server.shard.call_all(Shard::empty).await;
    drop(server.global.libraries.change(|_| Ok(Catalog::default())));
}

/// Why what there is is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// It takes the place of a log that has grown.
    Anew,
    /// It is what a log begins with.
    Begins,
    /// The log is off: that is all there is of it, for a server that starts with it on.
    Alone,
}

/// Makes the first log of data that is there, before anybody changes it. (One that was asked for while data was loaded has
/// no files yet, and begins beside the work of others.)
async fn begin_first(server: &Rc<Server>) {
    if !server.shard.config().appendonly || server.global.appending.files().is_none() {
        return;
    }
    match rewrite_now(server).await {
        Ok(()) => {}
        // It is not wanted any more.
        Err(_) if !server.global.config().appendonly => *server.global.appending.files() = None,
        Err(reason) => give_up(&format!("Can't begin the append only file: {reason}. Exiting.")),
    }
}

/// BGREWRITEAOF; whether it has begun, or waits for a snapshot.
pub fn rewrite_beside(server: &Rc<Server>) -> Result<bool> {
    let appending = &server.global.appending;
    if appending.is_rewriting.load(Ordering::Relaxed) {
        return Err(saving::REWRITING);
    }
    if server.global.snapshots.is_saving.load(Ordering::Relaxed) {
        appending.is_scheduled.store(true, Ordering::Relaxed);
        return Ok(false);
    }
    spawn(server, purpose_now(server)?);
    Ok(true)
}

/// What a rewrite is for as things stand; while the log is off its files are claimed for it.
fn purpose_now(server: &Rc<Server>) -> Result<Purpose> {
    if server.global.log.is_on() {
        return Ok(Purpose::Anew);
    }
    if server.shard.config().appendonly {
        begin_anew(server)?;
        return Ok(Purpose::Begins);
    }
    claim_files(server).map_err(|error| Error::err(format_args!("Can't write an append only file: {error}")))?;
    Ok(Purpose::Alone)
}

fn spawn(server: &Rc<Server>, purpose: Purpose) {
    let server = server.clone();
    let appending = server.global.appending.is_rewriting.swap(true, Ordering::Relaxed);
    if appending {
        return;
    }
    executor::spawn(async move {
        // Its log says what has become of it, and INFO.
        let _ = rewrite(&server, purpose).await;
        if server.global.log.is_on() && !server.global.config().appendonly {
            // It was turned off in the very moment in which it began.
            end(&server).await;
        }
    });
}

async fn rewrite_now(server: &Rc<Server>) -> std::result::Result<(), String> {
    server.global.appending.is_rewriting.store(true, Ordering::Relaxed);
    rewrite(server, Purpose::Begins).await
}

/// The task's work, once it is said that it is under way.
async fn rewrite(server: &Rc<Server>, purpose: Purpose) -> std::result::Result<(), String> {
    let appending = &server.global.appending;
    let began_s = realtime_us() / 1_000_000;
    appending.is_scheduled.store(false, Ordering::Relaxed);
    appending.began_s.store(began_s, Ordering::Relaxed);
    log::notice(format_args!("Background append only file rewriting started"));
    if server.shard.config().no_appendfsync_on_rewrite {
        server.global.log.rests.store(true, Ordering::Relaxed);
    }
    let mut written = saving::begin(server).map_err(|error| error.to_string()).map(|()| false);
    if written.is_ok() {
        for _ in 0..ATTEMPTS {
            written = rewrite_once(server, purpose).await;
            if written != Ok(false) || server.global.snapshots.gives_up.load(Ordering::Relaxed) {
                break;
            }
        }
        server.global.snapshots.is_saving.store(false, Ordering::Relaxed);
    }
    server.global.log.rests.store(false, Ordering::Relaxed);
    let outcome = match written {
        Ok(true) => Ok(()),
        Ok(false) => Err("databases were emptied all the time".to_owned()),
        Err(reason) => Err(reason),
    };
    let is_given_up = purpose != Purpose::Alone && !server.global.config().appendonly;
    match &outcome {
        Ok(()) => {
            log::notice(format_args!("Background AOF rewrite finished successfully"));
            appending.rewrites.fetch_add(1, Ordering::Relaxed);
            appending.failures.store(0, Ordering::Relaxed);
        }
        Err(reason) if is_given_up => {
            log::notice(format_args!("Background AOF rewrite given up, since the log is turned off: {reason}"));
        }
        Err(reason) => {
            log::warning(format_args!("Background AOF rewrite failed: {reason}"));
            appending.failures.fetch_add(1, Ordering::Relaxed);
        }
    }
    appending.has_failed.store(outcome.is_err() && !is_given_up, Ordering::Relaxed);
    appending.lasted_s.store((realtime_us() / 1_000_000).saturating_sub(began_s), Ordering::Relaxed);
    appending.began_s.store(0, Ordering::Relaxed);
    {
        // In this order: who turns the log on finds no files that are about to be given up.
        let mut files = appending.files();
        if !server.global.log.is_on() && !server.global.config().appendonly {
            *files = None;
        }
    }
    appending.is_rewriting.store(false, Ordering::Relaxed);
    outcome
}

/// Whether it is complete: else it has to begin anew.
async fn rewrite_once(server: &Rc<Server>, purpose: Purpose) -> std::result::Result<bool, String> {
    let config = server.shard.config();
    let global = server.global.clone();
    let is_begun = global.log.is_on() && !global.log.is_new();
    let is_alone = purpose == Purpose::Alone;
    let is_snapshot = config.aof_use_rdb_preamble;
    let log_offset_ms = server.shard.clock.log_offset_ms();
    // The disk is asked while nobody waits for it.
    let prepared = server.transport.beside(move || {
        global.appending.with_files(|files| {
            let mut manifest = files.manifest.clone();
            // What a broken file has not taken stands in the next one as it is.
            let goes_on = is_begun && global.log.trouble().is_some_and(|trouble| trouble.is_broken);
            let offset_ms = if goes_on { log_offset_ms } else { files.steps.offset_ms() };
            let increment = if is_alone { None } else { Some(files.add_increment(&mut manifest, offset_ms)?) };
            if is_begun {
                // It is a part of the log from the moment in which something is in it.
                files.set_manifest(manifest.clone())?;
            } else {
                files.manifest = manifest.clone();
            }
            let (base, number) = manifest.next_base(&files.stem, is_snapshot);
            Ok((increment, manifest, base.clone(), number, files.path(&base), offset_ms))
        })
    });
    let prepared = prepared.await.and_then(|prepared| prepared).map_err(|error| error.to_string())?;
    let (increment, manifest, base, number, path, offset_ms) = prepared;
    let begun = begin_part(server, increment, is_begun, offset_ms).await?;
    if begun.is_snapshot() != is_snapshot {
        // It was set otherwise meanwhile, and the file has the wrong name.
        server.shard.call_all(|shard| shard.stop_saving()).await;
        return Ok(false);
    }
    let how = How {
        compresses: config.rdbcompression,
        checksum: config.rdbchecksum,
        in_steps: config.aof_rewrite_incremental_fsync,
        lasts: true,
        base: None,
    };
    let name = path.to_string_lossy().into_owned();
    let is_whole = write_file(server, begun, name, how).await?.is_some();
    if !is_whole {
        return Ok(false);
    }
    let global = server.global.clone();
    let kept = manifest.rebased(base.clone(), number, usize::from(!is_alone));
    let done = server.transport.beside(move || {
        global.appending.with_files(|files| {
            // The clock may have been set since the base was begun.
            files.steps.begin(base, offset_ms);
            files.set_manifest(kept)?;
            if !is_alone {
                global.log.is_based();
                let bytes = files.bytes();
                global.appending.base_bytes.store(bytes, Ordering::Relaxed);
                global.log.bytes.store(bytes, Ordering::Relaxed);
            }
            files.delete_history()
        })
    });
    done.await.and_then(|done| done).map_err(|error| error.to_string())?;
    if purpose == Purpose::Begins {
        log::notice(format_args!("The append only file is on"));
    }
    Ok(true)
}

/// The moment: what was changed before goes to the file before, what is changed later to this one, and what there is now
/// is going to be written down. `is_begun`: the increment was made for a log that goes on. `offset_ms`: how far the times in
/// both are ahead of store time.
async fn begin_part(
    server: &Rc<Server>,
    increment: Option<Appendable>,
    is_begun: bool,
    offset_ms: i64,
) -> std::result::Result<Begun, String> {
    let transaction = in_the_way::hold_everything_at_last(server).await;
    // Who turns the log off, or on, holds everything, too: a log that is about to begin is not on yet, and ends here.
    let has_files = increment.is_none() || server.global.appending.files().is_some();
    let is_over = match is_begun {
        true => !server.global.log.is_on(),
        false => increment.is_some() && !server.global.config().appendonly,
    };
    if !has_files || is_over {
        drop(transaction);
        return Err("the log was turned off meanwhile".to_owned());
    }
    server.shard.call_all(|shard| shard.hand_over_records()).await;
    let position = match increment {
        Some(file) => begin_increment(server, file, offset_ms).await,
        None => Ok(0),
    };
    let begun = match position {
        // (What dies from here on is in the file already, though the shards have still to write down what there is.)
        Ok(position) => Ok(begin_parts(server, Some(position), offset_ms).await),
        Err(error) => Err(error.to_string()),
    };
    drop(transaction);
    begun
}

/// Where in the log it begins.
async fn begin_increment(server: &Rc<Server>, file: Appendable, offset_ms: i64) -> io::Result<u64> {
    let position = server.global.log.write_to(file, 0)?;
    set_log_offset(Some(offset_ms));
    server.global.log.set_on(true);
    server.shard.call_all(Server::follow_log).await;
    Ok(position)
}

fn configure_log(server: &Server) {
    let (config, log) = (server.global.config(), &server.global.log);
    log.set_fsync(config.appendfsync);
    log.set_limit(config.aof_buffer_limit);
    log.tells_time.store(config.aof_timestamp_enabled, Ordering::Relaxed);
}

/// Takes over a changed configuration: the log is begun or ended, and replies wait for the disk or do not. `in_exec`: who
/// asks holds keys, for which the end of the log would wait, so that the log ends when the transaction is over. So it does
/// where a script that lasts is in its way.
pub async fn take_over(server: &Rc<Server>, in_exec: bool) -> Result {
    let (config, log) = (server.shard.config(), &server.global.log);
    configure_log(server);
    if config.appendonly && !log.is_on() {
        begin_anew(server)?;
        if server.global.snapshots.is_saving.load(Ordering::Relaxed) {
            server.global.appending.is_scheduled.store(true, Ordering::Relaxed);
            log::notice(format_args!("The append only file begins when what is being written to disk now is there"));
        } else {
            spawn(server, Purpose::Begins);
        }
    } else if !config.appendonly && log.is_on() {
        if in_exec || let_pass(server).await.is_err() {
            let server = server.clone();
            executor::spawn(async move { end(&server).await });
        } else {
            end(server).await;
        }
    } else if log.is_on() {
        server.shard.call_all(Server::follow_log).await;
    }
    Ok(())
}

/// What a log that was there before has said does not matter any more once the new one is complete.
fn begin_anew(server: &Rc<Server>) -> Result {
    let begun = server.global.log.start().and_then(|()| claim_files(server));
    begun.map_err(|error| Error::err(format_args!("Can't begin the append only file: {error}")))
}

fn claim_files(server: &Rc<Server>) -> io::Result<()> {
    let mut files = server.global.appending.files();
    if files.is_none() {
        let mut claimed = Files::claim(&server.shard.config(), &server.shard.clock, server.shard.hasher.seed())?;
        if let Ok(text) = std::fs::read_to_string(claimed.manifest_path()) {
            claimed.read_manifest(&text, &server.shard.clock).map_err(io::Error::other)?;
        }
        *files = Some(claimed);
    }
    Ok(())
}

async fn end(server: &Rc<Server>) {
    if server.global.appending.is_ending.swap(true, Ordering::Relaxed) {
        // Somebody waits already for the moment in which the log ends.
        return;
    }
    // A disk that hangs is waited for here, while others go on. (What comes meanwhile is brought to the disk below.)
    let log = server.global.log.clone();
    let _ = on_thread("log-end", move || log.wait_for_disk()).await;
    let transaction = in_the_way::hold_everything_at_last(server).await;
    server.global.appending.is_ending.store(false, Ordering::Relaxed);
    if !server.global.log.is_on() || server.global.config().appendonly {
        // It has ended, or is wanted again.
        return;
    }
    server.shard.call_all(|shard| shard.hand_over_records()).await;
    let log = server.global.log.clone();
    let _ = server.transport.beside(move || log.set_on(false)).await;
    set_log_offset(None);
    server.shard.call_all(Server::follow_log).await;
    // Before anybody begins another one: a rewrite that is under way finds that its log is over.
    *server.global.appending.files() = None;
    if server.global.appending.is_rewriting.load(Ordering::Relaxed) {
        server.shard.call_all(|shard| shard.give_up_saving()).await;
    }
    drop(transaction);
    log::notice(format_args!("The append only file is off"));
}

/// Before the server ends: everything is on the disk.
pub async fn end_log(server: &Rc<Server>) -> io::Result<()> {
    server.shard.call_all(|shard| shard.hand_over_records()).await;
    let log = server.global.log.clone();
    // Replicas may have what has changed nothing (a message, a policy): they are to go on behind that.
    log.note_position();
    server.transport.beside(move || log.end()).await.and_then(|ended| ended)
}

/// What the log's files say of deadlines is in the time of a wall clock that may have been set since.
async fn look_at_clock(server: &Rc<Server>) {
    if server.global.snapshots.is_taking_in() {
        return;
    }
    let offset_ms = server.shard.clock.wall_offset_ms();
    // Where a disk is waited for just now, the next second will do.
    let is_set = |files: &Option<Files>| files.as_ref().is_some_and(|files| files.steps.is_new(offset_ms));
    if !server.global.appending.idle_files().is_some_and(|files| is_set(&files)) {
        return;
    }
    let global = server.global.clone();
    let look = move || {
        let mut files = global.appending.files();
        // (A log that was turned off meanwhile has no files.)
        files
            .as_mut()
            .map_or(Ok(None), |files| files.look_at_clock(offset_ms, global.log.is_on() && !global.log.is_new()))
    };
    match server.transport.beside(look).await.and_then(|looked| looked) {
        Ok(Some(by_ms)) => log::notice(format_args!("The clock was set by {by_ms} ms: the append only file knows")),
        Ok(None) => {}
        Err(error) => log::warning(format_args!("The clock was set, and the append only file cannot be told: {error}")),
    }
}

/// Once a second: is it time to make it anew, to begin or to end it?
pub async fn look(server: &Rc<Server>) {
    let (global, config) = (&server.global, server.shard.config());
    let appending = &global.appending;
    look_at_clock(server).await;
    let is_busy = appending.is_rewriting.load(Ordering::Relaxed) || global.snapshots.is_saving.load(Ordering::Relaxed);
    if is_busy || global.snapshots.is_taking_in() {
        return;
    }
    if global.log.is_on() && !config.appendonly {
        // It was turned off again while it began.
        return end(server).await;
    }
    let now_s = realtime_us() / 1_000_000;
    let since_try_s = now_s.saturating_sub(appending.tried_s.load(Ordering::Relaxed));
    if appending.has_failed.load(Ordering::Relaxed) && since_try_s < RETRY_S {
        return;
    }
    if !global.log.is_on() {
        // One that is wanted and could not begin is tried again until it does.
        let is_wanted = appending.is_scheduled.swap(false, Ordering::Relaxed) || config.appendonly;
        if is_wanted && let Ok(purpose) = purpose_now(server) {
            appending.tried_s.store(now_s, Ordering::Relaxed);
            spawn(server, purpose);
        }
        return;
    }
    let (bytes, base) = (global.log.bytes.load(Ordering::Relaxed), appending.base_bytes.load(Ordering::Relaxed).max(1));
    let grown = bytes.saturating_sub(base).saturating_mul(100) / base;
    let percentage = config.auto_aof_rewrite_percentage;
    let is_large = percentage > 0 && bytes > config.auto_aof_rewrite_min_size && grown >= percentage;
    // Nothing can be written behind what may be lost.
    let is_broken = global.log.trouble().is_some_and(|trouble| trouble.is_broken);
    if is_large && !is_broken {
        log::notice(format_args!("Starting automatic rewriting of AOF on {grown}% growth"));
    }
    // The first base could not be written: until there is one nothing that was pushed counts as kept.
    let lacks_base = global.log.awaits_base();
    if is_large || is_broken || lacks_base || appending.is_scheduled.load(Ordering::Relaxed) {
        appending.tried_s.store(now_s, Ordering::Relaxed);
        spawn(server, if global.log.is_new() { Purpose::Begins } else { Purpose::Anew });
    }
}
