//! One snapshot for all replicas that wait for one: as it is made (`repl-diskless-sync`), or as a file that is made first.
//!
//! Its moment is one for all shards, and the stream that each of them is sent behind it begins there.

use super::following::wait_until_idle;
use super::sending::{LOOK_EVERY, is_gone};
use crate::clock::{realtime_us, store_us};
use crate::executor;
use crate::net::{Nameless, sleep};
use crate::observe::log;
use crate::persist::disk::{Disk, RealDisk};
use crate::persist::handout::Handouts;
use crate::persist::writing::How;
use crate::server::client::ClientRef;
use crate::server::client::replica::Replica;
use crate::server::kept::saving::{self, Begun, begin_parts_for};
use crate::server::run::in_the_way::{self, let_all_pass};
use crate::server::state::Server;
use crate::server::state::replication::Ids;
use crate::server::state::syncs::{Held, Payload, Place, Source, Waiting};
use crate::server::told::output::most_bytes_of_replica;
use std::fs::File;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Waits for a snapshot; none where nobody is there any more.
pub async fn get(
    server: &Rc<Server>,
    client: &ClientRef,
    replica: &Arc<Replica>,
    takes_eof: bool,
) -> Option<Result<Payload, String>> {
    let place = Arc::<Place>::default();
    let waiting = Waiting { replica: replica.clone(), takes_eof, place: place.clone() };
    let is_first = server.global.replication.queue().join(waiting);
    if is_first {
        executor::spawn(serve(server.clone()));
    }
    loop {
        if let Some(given) = place.take() {
            return Some(given);
        }
        if is_gone(client) {
            place.leave();
            server.global.replication.queue().waiting.retain(|waiting| waiting.replica.client != client.id);
            return None;
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Makes snapshots until nobody waits for one.
async fn serve(server: Rc<Server>) {
    loop {
        while !is_due(&server) {
            sleep(LOOK_EVERY).await;
        }
        if !server.global.replication.queue().waiting.is_empty() {
            begin_one(&server).await;
        }
        let mut queue = server.global.replication.queue();
        if queue.waiting.is_empty() {
            queue.is_served = false;
            return;
        }
    }
}

/// Whether nobody waits for more replicas, or nobody waits at all.
fn is_due(server: &Server) -> bool {
    let config = server.shard.config();
    let queue = server.global.replication.queue();
    let (count, most) = (queue.waiting.len() as u64, config.repl_diskless_sync_max_replicas);
    let waited_us = store_us().saturating_sub(queue.since_us);
    !config.repl_diskless_sync
        || count == 0
        || most > 0 && count >= most
        || waited_us >= config.repl_diskless_sync_delay_s.saturating_mul(1_000_000)
}

async fn begin_one(server: &Rc<Server>) {
    let snapshots = &server.global.snapshots;
    while saving::begin(server).is_err() {
        sleep(LOOK_EVERY).await;
    }
    let waiting = std::mem::take(&mut server.global.replication.queue().waiting);
    if waiting.is_empty() || snapshots.gives_up.load(Ordering::Relaxed) {
        waiting.iter().for_each(|waiting| waiting.place.put(Err("the server ends".to_owned())));
        snapshots.is_saving.store(false, Ordering::Relaxed);
        return;
    }
    snapshots.began_s.store(realtime_us() / 1_000_000, Ordering::Relaxed);
    let is_diskless = server.shard.config().repl_diskless_sync && waiting.iter().all(|waiting| waiting.takes_eof);
    let target = if is_diskless { "replicas sockets" } else { "disk" };
    log::notice(format_args!("Starting BGSAVE for SYNC with target: {target}"));
    let made = match is_diskless {
        true => hand_out(server, &waiting).await,
        false => make_file(server, &waiting).await,
    };
    snapshots.began_s.store(0, Ordering::Relaxed);
    snapshots.is_saving.store(false, Ordering::Relaxed);
    match made {
        Ok(()) => log::notice(format_args!("Background transfer of a snapshot to {} replicas: done", waiting.len())),
        Err(reason) => {
            log::warning(format_args!("No snapshot for {} replicas: {reason}", waiting.len()));
            waiting.iter().for_each(|waiting| waiting.place.put(Err(reason.clone())));
        }
    }
}

/// The moment: what each shard has then is kept, and the stream of each replica begins.
async fn begin(server: &Rc<Server>, waiting: &[Waiting]) -> Result<(Begun, Vec<Held>), String> {
    let (global, shard) = (&server.global, &server.shard);
    global.log.start().map_err(|error| error.to_string())?;
    let_all_pass(server).await;
    // On a replica what is done and what is said of it to replicas of its own is one.
    let hold = wait_until_idle(server).await;
    let transaction = in_the_way::hold_everything_at_last(server).await;
    shard.call_all(|shard| shard.hand_over_records()).await;
    let config = shard.config();
    if global.feed.kept().is_none() {
        if !global.feed.is_relayed() {
            // Nobody can have come along with what was before.
            global.replication.set_ids(Ids::new());
        }
        global.feed.keep(Some(config.repl_backlog()));
    }
    let limit = most_bytes_of_replica(&config);
    let read = |waiting: &Waiting| Held::new(global.feed.clone(), global.feed.read(waiting.replica.shard, limit));
    let streams = waiting.iter().map(read).collect();
    shard.call_all(Server::follow_log).await;
    let is_old = |waiting: &Waiting| global.replication.takes_for_old(&waiting.replica, &config);
    let leaves_fields = waiting.iter().any(is_old);
    if leaves_fields {
        // (Who is old may have gone meanwhile, so that the stream is not: whoever is left begins anew.)
        global.feed.set_old(true);
        let sizes = shard.call_all(|shard| shard.sizes()).await;
        if sizes.iter().any(|sizes| sizes.has_field_deadlines) {
            global.replication.note_told_less();
        }
    }
    let begun = begin_parts_for(server, None, shard.clock.wall_offset_ms(), leaves_fields).await;
    drop(transaction);
    drop(hold);
    Ok((begun, streams))
}

/// What is made goes to all of them at once.
async fn hand_out(server: &Rc<Server>, waiting: &[Waiting]) -> Result<(), String> {
    let (begun, streams) = begin(server, waiting).await?;
    let handouts = Handouts::new(waiting.len());
    let id = server.global.replication.ids().id;
    for ((waiting, stream), handout) in waiting.iter().zip(streams).zip(handouts.all()) {
        let source = Source::Handout(handout.clone());
        waiting.place.put(Ok(Payload { source, len: None, stream, id: id.clone() }));
    }
    let disk: Arc<dyn Disk> = Arc::new(handouts.clone());
    let written = saving::write_to(server, begun, disk, "replicas".to_owned(), how(server)).await;
    let reason = match written {
        Ok(Some(_)) => return Ok(()),
        Ok(None) => "databases were emptied".to_owned(),
        Err(reason) => reason,
    };
    // Replicas that have read a part of it see that there is no more, and ask again.
    handouts.end(false);
    log::warning(format_args!("A snapshot for replicas was given up: {reason}"));
    Ok(())
}

async fn make_file(server: &Rc<Server>, waiting: &[Waiting]) -> Result<(), String> {
    let path = saving::for_tools(&server.shard.config().dir);
    let name = path.to_string_lossy().into_owned();
    for _ in 0..saving::ATTEMPTS {
        let (begun, streams) = begin(server, waiting).await?;
        let written = saving::write_to(server, begun, Arc::new(RealDisk), name.clone(), how(server)).await?;
        if written.is_none() {
            continue;
        }
        let opened = server.transport.beside(move || {
            let file = File::open(&path).and_then(|file| Ok((file.metadata()?.len(), file)));
            std::fs::remove_file(&path).and(file)
        });
        let (len, file) = opened.await.and_then(|opened| opened).map_err(|error| error.to_string())?;
        let (file, id) = (Arc::new(Nameless::new(file)), server.global.replication.ids().id);
        for (waiting, stream) in waiting.iter().zip(streams) {
            let source = Source::file(file.clone(), len);
            waiting.place.put(Ok(Payload { source, len: Some(len), stream, id: id.clone() }));
        }
        return Ok(());
    }
    Err("databases were emptied all the time".to_owned())
}

fn how(server: &Server) -> How {
    let config = server.shard.config();
    // The disk need not have it: it is read at once, and nobody wants it later.
    How { compresses: config.rdbcompression, checksum: config.rdbchecksum, ..How::default() }
}
