//! Clients that do not wait for replies, readers and subscribers of what these write, a disk that is slow, hangs, is full or
//! broken, rewrites and snapshots beside, and a server that is killed, or whose machine loses its power: then it is started
//! with another number of shards. Replies are those of their requests. What was acknowledged is there; under `always` so is,
//! whatever happens, what somebody was shown or heard. Nothing is there in part.
//!
//! `EMBERDB_STORM_SECONDS` says for how long, `EMBERDB_CRASH_SEED` repeats what was drawn.

#[path = "storm/families.rs"]
mod families;

use super::disk::{Disk, Platters, library};
use crate::common::{Client, Kind, Server, Value, encode, setting, wait_until, words};
use families::{Counts, FAMILIES};
use fastrand::Rng;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

const DEFAULT_SECONDS: u64 = 12;
const WRITERS: usize = 4;
const READERS: usize = 3;
/// So many requests of a writer are under way at most.
const WINDOW: usize = 200;
const PATIENCE: Duration = Duration::from_secs(60);
/// Then the next begins with nothing: what is counted becomes more and more.
const ROUNDS_A_FOLDER: usize = 20;
/// What is acknowledged under `everysec` survives a power cut that comes so much later.
const SYNCED_WITHIN: Duration = Duration::from_millis(2_500);
/// Replies wait for a write under `everysec` and `no`, unless it lasts longer than 20 ms: as it may on a machine that is busy.
const SLOW_US: i32 = 15_000;
const ENOSPC: i32 = 28;
const EIO: i32 = 5;

/// What is known of what one writer counts in one way.
#[derive(Default)]
struct Count {
    /// What was acknowledged.
    least: AtomicU64,
    /// What is there if all that was sent took effect.
    most: AtomicU64,
    /// What somebody was shown, or heard of.
    shown: AtomicU64,
    /// What was acknowledged longer ago than `everysec` may lose.
    long_ago: AtomicU64,
}

type Ledger = Vec<Vec<Count>>;

/// A request whose reply has not come.
struct Asked {
    /// None: an ECHO of the number.
    family: Option<usize>,
    number: u64,
    replies: usize,
    /// Whether its last reply says how far the family is.
    counts: bool,
}

/// What all clients of a round share.
struct Round<'r> {
    port: u16,
    ledger: &'r Ledger,
    /// Writes may be refused, and an error says nothing of what was done.
    has_faults: bool,
    is_over: AtomicBool,
}

/// Sends what a writer writes, until the server is gone.
fn write(round: &Round, writer: usize, mut rng: Rng, asked: &SyncSender<Asked>, stream: &mut impl Write) {
    let mut numbers: Vec<u64> = round.ledger[writer].iter().map(|count| count.most.load(Ordering::Relaxed)).collect();
    loop {
        let mut bytes = Vec::new();
        for _ in 0..rng.usize(1..20) {
            if rng.u32(..8) == 0 {
                let number = rng.u64(..1_000_000);
                bytes.extend(encode(&["ECHO", &number.to_string()]));
                if asked.send(Asked { family: None, number, replies: 1, counts: true }).is_err() {
                    return;
                }
            }
            let family = rng.usize(..FAMILIES.len());
            numbers[family] += 1;
            round.ledger[writer][family].most.fetch_add(1, Ordering::Relaxed);
            for (nth, template) in FAMILIES[family].writes.iter().enumerate() {
                let (of_one, replies) = families::request(template, writer, family, numbers[family]);
                bytes.extend(of_one);
                let counts = nth == FAMILIES[family].counting();
                let ask = Asked { family: Some(family), number: numbers[family], replies, counts };
                if asked.send(ask).is_err() {
                    return;
                }
            }
        }
        if stream.write_all(&bytes).is_err() {
            return;
        }
    }
}

/// Reads the replies, each of which must be the one of its request.
fn hear(round: &Round, writer: usize, client: &mut Client, asked: &Receiver<Asked>) -> Result<(), String> {
    while let Ok(ask) = asked.recv() {
        let mut replies = Vec::new();
        for _ in 0..ask.replies {
            let Ok(reply) = client.try_read() else { return Ok(()) };
            replies.push(reply);
        }
        let reply = replies.last().expect("at least one");
        let Some(family) = ask.family else {
            let said = families::numbers(reply);
            if said != [ask.number] {
                return Err(format!("writer {writer}: ECHO {} is answered {reply:?}", ask.number));
            }
            continue;
        };
        let what = || format!("writer {writer}, {:?}, number {}: {reply:?}", FAMILIES[family].writes, ask.number);
        if replies.iter().any(Value::is_error) {
            match round.has_faults {
                true => continue,
                false => return Err(what()),
            }
        }
        if !ask.counts {
            continue;
        }
        let count = &round.ledger[writer][family];
        let least = count.least.load(Ordering::Relaxed);
        let now = match FAMILIES[family].counts {
            Counts::OneMore => least + 1,
            Counts::Written => ask.number,
            Counts::Told => {
                let told = *families::numbers(reply).last().ok_or_else(what)?;
                let is_next = told == least + 1 || round.has_faults && told > least;
                if !is_next || told > count.most.load(Ordering::Relaxed) {
                    return Err(format!("{} behind {least}", what()));
                }
                told
            }
        };
        count.least.store(now, Ordering::Relaxed);
    }
    Ok(())
}

/// Reads what writers write, some requests at a time.
fn read(round: &Round, mut rng: Rng) -> Result<(), String> {
    let Ok(mut client) = Client::connect(round.port) else { return Ok(()) };
    let mut seen: Vec<Vec<u64>> = vec![vec![0; FAMILIES.len()]; WRITERS];
    while !round.is_over.load(Ordering::Relaxed) {
        // (Commands of one pipeline on different shards may take effect in either order.)
        let before = seen.clone();
        let (mut bytes, mut asked) = (Vec::new(), Vec::new());
        for _ in 0..rng.usize(1..12) {
            let (writer, family) = (rng.usize(..WRITERS), rng.usize(..FAMILIES.len()));
            let template = rng.choice(FAMILIES[family].reads).expect("some");
            let (of_one, replies) = families::request(template, writer, family, 0);
            bytes.extend(of_one);
            asked.push((writer, family, replies, template));
        }
        if client.try_send_raw(&bytes).is_err() {
            return Ok(());
        }
        for (writer, family, replies, template) in asked {
            let mut last = None;
            for _ in 0..replies {
                match client.try_read() {
                    Ok(reply) => last = Some(reply),
                    Err(_) => return Ok(()),
                }
            }
            let reply = last.expect("at least one");
            let said = families::numbers(&reply);
            if reply.is_error() && round.has_faults {
                continue;
            }
            if reply.is_error() || FAMILIES[family].is_pair && said.windows(2).any(|pair| pair[0] != pair[1]) {
                return Err(format!("{template} of writer {writer}: {reply:?}"));
            }
            let shown = said.last().copied().unwrap_or_default();
            if shown < before[writer][family] {
                return Err(format!("{template} of writer {writer}: {shown} behind {}", before[writer][family]));
            }
            seen[writer][family] = seen[writer][family].max(shown);
            round.ledger[writer][family].shown.fetch_max(shown, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Hears what is published.
fn listen(round: &Round) {
    let Ok(mut client) = Client::connect(round.port) else { return };
    if client.try_send_raw(&encode(&["PSUBSCRIBE", "*"])).is_err() {
        return;
    }
    while let Ok(message) = client.try_read() {
        let [_, _, channel, text] = message.items() else { continue };
        let (Some((writer, family)), [number]) = (families::of_name(&channel.text()), &families::numbers(text)[..])
        else {
            continue;
        };
        round.ledger[writer][family].shown.fetch_max(*number, Ordering::Relaxed);
    }
}

/// What is done to the disk, and to the log, while others write.
fn disturb(round: &Round, disk: &Disk, fault: Fault, mut rng: Rng) {
    let Ok(mut client) = Client::connect(round.port) else { return };
    while !round.is_over.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(rng.u64(10..200)));
        match fault {
            Fault::None => {}
            Fault::Slow => disk.set_delay(rng.i32(1..40)),
            Fault::Hangs => disk.set_delay(if rng.bool() { -1 } else { 0 }),
            Fault::Full => disk.set_error(if rng.bool() { ENOSPC } else { 0 }),
            Fault::Broken => disk.set_error(if rng.bool() { EIO } else { 0 }),
        }
        let line = match rng.u32(..8) {
            0 => "BGREWRITEAOF",
            1 => "BGSAVE",
            2 => "CONFIG SET aof-use-rdb-preamble no",
            3 => "CONFIG SET aof-use-rdb-preamble yes",
            _ => continue,
        };
        if client.try_send_raw(&encode(&words(line))).and_then(|()| client.try_read()).is_err() {
            return;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    Slow,
    Hangs,
    Full,
    Broken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The process is killed at some moment.
    Killed,
    /// It is killed before some operation of the disk.
    KilledAtDisk,
    /// And the machine loses its power.
    PowerCut,
    Asked,
}

fn flags(shards: usize, fsync: &str, rng: &mut Rng) -> Vec<String> {
    let shards = shards.to_string();
    let preamble = if rng.bool() { "yes" } else { "no" };
    let line = format!(
        "--shards {shards} --appendonly yes --appendfsync {fsync} --aof-use-rdb-preamble {preamble} \
         --auto-aof-rewrite-min-size {}kb --aof-rewrite-incremental-fsync {} --aof-buffer-limit {}",
        rng.u32(50..2_000),
        if rng.bool() { "yes" } else { "no" },
        // Where a disk hangs, writes reach the smaller one within a second, and wait.
        if rng.bool() { "1mb" } else { "128mb" },
    );
    let mut flags: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    flags.extend(["--save".to_owned(), String::new()]);
    flags
}

/// Starts it under the library, until it is loaded, or was killed on the way.
fn start(server: Server, library: &Path, flags: &[String]) -> Server {
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    Platters::note(server.folder());
    let mut server = server.restart_under(library, &flags);
    let is_loaded = |client: &mut Client| {
        client.try_send_raw(&encode(&["PING"])).and_then(|()| client.try_read()).is_ok_and(|reply| !reply.is_error())
    };
    let is_up = |server: &Server| Client::connect(server.port()).is_ok_and(|mut client| is_loaded(&mut client));
    assert!(wait_until(PATIENCE, || server.has_ended() || is_up(&server)), "it starts");
    server
}

/// What is there is at least what has to be, and no more than can be.
fn check(server: &Server, ledger: &Ledger, keeps: Keeps) -> Result<(), String> {
    let mut client = server.client();
    for (writer, counts) in ledger.iter().enumerate() {
        for (family, count) in counts.iter().enumerate() {
            let (least, most) = (count.least.load(Ordering::Relaxed), count.most.load(Ordering::Relaxed));
            let shown = count.shown.load(Ordering::Relaxed);
            let wrong = |what: &str| Err(format!("{what}: writer {writer}, {:?}", FAMILIES[family].writes));
            let found = match families::kept(&mut client, writer, family) {
                Ok(found) => found,
                Err(what) => return wrong(&what),
            };
            let bounds = format!("{found} is there, {least} acknowledged, {shown} shown, {most} sent");
            let is_lost = keeps.acknowledged && found < least || keeps.shown && found < shown;
            if found > most || is_lost || found < count.long_ago.swap(0, Ordering::Relaxed) {
                return wrong(&bounds);
            }
            count.least.store(found, Ordering::Relaxed);
            count.shown.store(0, Ordering::Relaxed);
            // (A number is written once.)
            if !FAMILIES[family].writes_numbers() {
                count.most.store(found, Ordering::Relaxed);
            }
        }
    }
    Ok(())
}

/// What has to be there after a crash.
#[derive(Clone, Copy, Debug)]
struct Keeps {
    acknowledged: bool,
    shown: bool,
}

/// One server's life: load, faults, an end. What it has to have kept.
fn live(server: &Server, ledger: &Ledger, disk: &Disk, fsync: &str, rng: &mut Rng, what: &mut String) -> (End, Keeps) {
    let fault = match rng.u32(..10) {
        0..5 => Fault::None,
        5 => Fault::Slow,
        6 | 7 => Fault::Hangs,
        8 => Fault::Full,
        _ => Fault::Broken,
    };
    let end = *rng.choice(&[End::Killed, End::KilledAtDisk, End::PowerCut, End::PowerCut, End::Asked]).expect("some");
    let mut lasts = Duration::from_millis(rng.u64(30..900));
    let tries_second = fsync == "everysec" && end == End::PowerCut && fault == Fault::None;
    if tries_second {
        lasts += SYNCED_WITHIN;
    }
    *what += &format!("; {fsync}, {fault:?}, {end:?} after {lasts:?}");
    let has_faults = matches!(fault, Fault::Hangs | Fault::Full | Fault::Broken);
    let round = Round { port: server.port(), ledger, has_faults, is_over: AtomicBool::new(false) };
    let failures: Vec<String> = thread::scope(|scope| {
        let round = &round;
        let mut clients = Vec::new();
        for writer in 0..WRITERS {
            let Ok(mut client) = Client::connect(round.port) else { continue };
            let mut stream = client.stream().try_clone().expect("a socket");
            let (sender, receiver) = sync_channel(WINDOW);
            let rng = rng.fork();
            scope.spawn(move || write(round, writer, rng, &sender, &mut stream));
            clients.push(scope.spawn(move || hear(round, writer, &mut client, &receiver)));
        }
        for _ in 0..READERS {
            let rng = rng.fork();
            clients.push(scope.spawn(move || read(round, rng)));
        }
        scope.spawn(move || listen(round));
        let of_disturber = rng.fork();
        scope.spawn(move || disturb(round, disk, fault, of_disturber));
        if end == End::KilledAtDisk {
            disk.kill_at(rng.i32(1..400));
        }
        let begin = Instant::now();
        let mut is_noted = !tries_second;
        while begin.elapsed() < lasts && clients.iter().all(|client| !client.is_finished()) {
            if !is_noted && begin.elapsed() + SYNCED_WITHIN >= lasts {
                let note = |count: &Count| count.long_ago.store(count.least.load(Ordering::Relaxed), Ordering::Relaxed);
                ledger.iter().flatten().for_each(note);
                is_noted = true;
            }
            thread::sleep(Duration::from_millis(5));
        }
        if end == End::Asked {
            disk.set_delay(0);
            disk.set_error(0);
            server.signal("TERM");
            let ended = Instant::now();
            while Path::new(&format!("/proc/{}", server.pid())).exists() && ended.elapsed() < Duration::from_secs(3) {
                thread::sleep(Duration::from_millis(5));
                if clients.iter().all(|client| client.is_finished()) {
                    break;
                }
            }
        }
        server.signal("KILL");
        round.is_over.store(true, Ordering::Relaxed);
        clients.into_iter().filter_map(|client| client.join().expect("a client").err()).collect()
    });
    assert!(failures.is_empty(), "{what}: {failures:?}\n{}", server.output());
    let is_always = fsync == "always";
    // (A part of a transaction that is late, on a busy machine, is told of by the server only.)
    let lets_go = server.output().contains("Replies do not wait for the AOF file");
    let is_kept = end != End::PowerCut && fault == Fault::None && !disk.was_slow(SLOW_US) && !lets_go;
    (end, Keeps { acknowledged: is_always || is_kept, shown: is_always })
}

/// An empty folder, of which a server that has no log knows, and nothing written.
fn begin() -> (Server, Ledger, Platters) {
    let ledger = (0..WRITERS).map(|_| FAMILIES.iter().map(|_| Count::default()).collect()).collect();
    (Server::start(Kind::Ember { shards: 1 }, &["--save", ""]), ledger, Platters::default())
}

/// Fails the test, and leaves the files.
fn fail(server: &Server, lives: &[String], what: &str) -> ! {
    let last = &lives[lives.len().saturating_sub(4)..];
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("storm");
    let _ = Command::new("cp").arg("-a").arg(server.folder()).arg(&folder).status();
    panic!("{what}\nbefore that: {last:#?}\nits files: {}\n{}", folder.display(), server.output());
}

#[test]
fn what_is_promised_holds_in_a_storm() {
    let Some((_folder, library)) = library("disk.c") else { return };
    let seed = setting("EMBERDB_CRASH_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("EMBERDB_CRASH_SEED={seed}");
    let mut rng = Rng::with_seed(seed);
    let (mut server, mut ledger, mut platters) = begin();
    let end = Instant::now() + Duration::from_secs(setting("EMBERDB_STORM_SECONDS").unwrap_or(DEFAULT_SECONDS));
    let (mut rounds, mut acknowledged, mut cuts) = (0, 0, 0);
    let mut keeps = Keeps { acknowledged: true, shown: true };
    // What was done in the last rounds.
    let mut lives: Vec<String> = Vec::new();
    while rounds == 0 || Instant::now() < end {
        if rounds > 0 && rounds % ROUNDS_A_FOLDER == 0 {
            (server, ledger, platters) = begin();
            keeps = Keeps { acknowledged: true, shown: true };
        }
        let fsync = *rng.choice(&["always", "always", "everysec", "no"]).expect("some");
        let flags = flags(rng.usize(1..5), fsync, &mut rng);
        let mut what = format!("seed {seed}, round {rounds}, {}", flags.join(" "));
        let disk = Disk::of(&server);
        if rng.u32(..6) == 0 {
            disk.kill_at(rng.i32(1..40));
        }
        server = start(server, &library, &flags);
        disk.kill_at(0);
        // (It may be about to be killed.)
        thread::sleep(Duration::from_millis(2));
        if !server.has_ended() {
            if let Err(wrong) = check(&server, &ledger, keeps) {
                fail(&server, &lives, &format!("{what}: {wrong}"));
            }
            let before: u64 = ledger.iter().flatten().map(|count| count.least.load(Ordering::Relaxed)).sum();
            let end;
            (end, keeps) = live(&server, &ledger, &disk, fsync, &mut rng, &mut what);
            let after: u64 = ledger.iter().flatten().map(|count| count.least.load(Ordering::Relaxed)).sum();
            acknowledged += after - before;
            assert!(wait_until(PATIENCE, || server.has_ended()), "{what}");
            platters.read(server.folder());
            if end == End::PowerCut {
                platters.cut_power(server.folder(), &mut rng);
                cuts += 1;
            }
        } else {
            let output = server.output();
            if output.contains("Fatal") || output.contains("panicked") {
                fail(&server, &lives, &what);
            }
            platters.read(server.folder());
        }
        lives.push(what);
        rounds += 1;
    }
    eprintln!("{rounds} rounds, {cuts} of them with a power cut; {acknowledged} writes acknowledged");
}
