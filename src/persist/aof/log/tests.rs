//! The log on a disk that fails: what is told to be certain is there whatever happens.

use super::super::reading::{self, Item};
use super::*;
use crate::journal::{Command, Shards, Transaction};
use crate::persist::Progress;
use crate::persist::disk::Appended;
use crate::resp::Limits;
use fastrand::Rng;
use std::time::Duration;

/// A file whose end may be lost, on a disk that fails when it is told to.
#[derive(Default)]
struct Fake {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    bytes: Vec<u8>,
    /// What is appended goes there: zeros may stand behind it.
    end: usize,
    /// What a power cut leaves for certain.
    synced: Vec<u8>,
    fails_to_write: bool,
    fails_to_sync: bool,
    hangs: bool,
    hangs_to_write: bool,
    rng: Option<Rng>,
}

impl Fake {
    fn with<R>(&self, work: impl FnOnce(&mut Kept) -> R) -> R {
        work(&mut self.kept.lock().expect("no panic"))
    }
}

impl Kept {
    fn put(&mut self, bytes: &[u8]) {
        let end = self.end + bytes.len();
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[self.end..end].copy_from_slice(bytes);
        self.end = end;
    }

    /// What a power cut leaves: of what was not synced any pages in any order.
    fn after_power_cut(&self, rng: &mut Rng) -> Vec<u8> {
        const PAGE_BYTES: usize = 64;
        let len = rng.usize(self.synced.len().min(self.bytes.len())..=self.bytes.len());
        let mut left = self.bytes[..len].to_vec();
        for (page, bytes) in left.chunks_mut(PAGE_BYTES).enumerate() {
            if rng.bool() {
                let synced = self.synced.get(page * PAGE_BYTES..).unwrap_or_default();
                let kept = bytes.len().min(synced.len());
                bytes[..kept].copy_from_slice(&synced[..kept]);
                bytes[kept..].fill(0);
            }
        }
        left
    }
}

impl Appended for Fake {
    fn append(&self, start: &[u8], end: &[u8]) -> io::Result<usize> {
        while self.with(|kept| kept.hangs_to_write) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.with(|kept| {
            if kept.fails_to_write {
                // A part may be there in spite of it.
                let some = start.len() / 2;
                kept.put(&start[..some]);
                kept.fails_to_write = some == 0;
                return match some {
                    0 => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
                    some => {
                        kept.fails_to_write = true;
                        Ok(some)
                    }
                };
            }
            let all = [start, end].concat();
            let count = kept.rng.as_mut().map_or(all.len(), |rng| rng.usize(1..=all.len()));
            kept.put(&all[..count]);
            Ok(count)
        })
    }

    fn make_room(&self, from: u64, to: u64) -> io::Result<()> {
        self.with(|kept| {
            let (from, to) = (usize::try_from(from).expect("short"), usize::try_from(to).expect("short"));
            if kept.fails_to_write {
                kept.bytes.resize(from + (to - from) / 2, 0);
                return Err(io::Error::from_raw_os_error(libc::ENOSPC));
            }
            kept.bytes.resize(to, 0);
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        while self.with(|kept| kept.hangs) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.with(|kept| {
            if kept.fails_to_sync {
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            kept.synced = kept.bytes.clone();
            Ok(())
        })
    }

    fn cut(&self, bytes: u64) -> io::Result<()> {
        self.with(|kept| {
            kept.end = usize::try_from(bytes).expect("short");
            kept.bytes.truncate(kept.end);
        });
        Ok(())
    }
}

fn record(text: &str) -> Record {
    Record { part_of: None, commands: vec![Command::new(0, ["SET", text, "1"].map(str::as_bytes).into_iter())] }
}

fn part(number: u64, text: &str) -> Record {
    let part_of = Some(Transaction { number, shards: [0, 1].into_iter().collect::<Shards>() });
    Record { part_of, ..record(text) }
}

fn new_log() -> Arc<Log> {
    let bells = Bell::for_all(2).expect("bells");
    Log::new(Arc::new(Feed::new(bells.clone())), bells)
}

fn log_in(file: &Arc<Fake>, fsync: Fsync) -> Arc<Log> {
    let log = new_log();
    log.set_fsync(fsync);
    log.go_on_in(file.clone(), 0);
    log.set_on(true);
    log.start().expect("a thread");
    log
}

fn wait_until(what: impl Fn() -> bool) {
    let began = Instant::now();
    while !what() {
        assert!(began.elapsed() < Duration::from_secs(20), "it does not come to that");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn is_synced(log: &Log, shard: usize, push: u64) -> bool {
    log.synced(shard) >= push
}

/// The names of the keys that a file sets, as far as it is whole.
fn keys_in(bytes: &[u8]) -> Vec<String> {
    keys_behind(None, bytes)
}

/// The same, behind a base that stands at this position of the log.
fn keys_behind(base: Option<u64>, bytes: &[u8]) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    std::fs::write(&path, bytes).expect("a file");
    let mut text = String::new();
    let mut send = |item| {
        if let Item::Commands(bytes) = item {
            text.push_str(&String::from_utf8(bytes).expect("text"));
        }
        Ok(())
    };
    let limits = Limits { bulk_bytes: 1 << 20, authenticated: true };
    let torn = reading::Tolerance { torn: true, damaged_bytes: 0 };
    reading::read(&[(path, 0)], base, limits, torn, &Progress::default(), &mut send).expect("no damage");
    let lines: Vec<&str> = text.lines().collect();
    lines.windows(3).filter(|lines| lines[0] == "SET").map(|lines| lines[2].to_owned()).collect()
}

#[test]
fn what_is_certain_survives_a_power_cut() {
    for seed in 0..50 {
        let mut rng = Rng::with_seed(seed);
        let file = Arc::new(Fake::default());
        file.with(|kept| kept.rng = Some(Rng::with_seed(seed)));
        let log = log_in(&file, Fsync::Always);
        let mut pushed: Vec<(usize, u64, String)> = Vec::new();
        let mut half: Option<(usize, u64)> = None;
        for number in 0..60 {
            let shard = rng.usize(..2);
            let name = format!("key{number}");
            let record = match half.take() {
                // The other part of a transaction.
                Some((other, of)) if other != shard => part(of, &name),
                Some(waits) => {
                    half = Some(waits);
                    record(&name)
                }
                None if rng.u32(..4) == 0 => {
                    half = Some((shard, number));
                    part(number, &name)
                }
                None => record(&name),
            };
            let push = log.push(shard, vec![record]);
            pushed.push((shard, push, name));
            if rng.bool() {
                std::thread::sleep(Duration::from_micros(rng.u64(..300)));
            }
        }
        // What is certain is looked at first: more may become so meanwhile.
        let certain: Vec<&String> =
            pushed.iter().filter(|(shard, push, _)| is_synced(&log, *shard, *push)).map(|(_, _, name)| name).collect();
        let left = file.with(|kept| kept.after_power_cut(&mut rng));
        let found = keys_in(&left);
        for name in &certain {
            assert!(found.contains(name), "seed {seed}: {name} of {certain:?} is not in {found:?}");
        }
        drop(log.end());
        let all = keys_in(&file.with(|kept| kept.bytes.clone()));
        // A transaction that is not complete holds up what stands behind its parts, and nothing else.
        assert!(half.is_some() || all.len() == pushed.len(), "seed {seed}");
    }
}

#[test]
fn a_full_disk_holds_it_up_and_nothing_is_written_twice() {
    for fsync in [Fsync::Always, Fsync::EverySecond, Fsync::No] {
        let file = Arc::new(Fake::default());
        let log = log_in(&file, fsync);
        log.push(0, vec![record("first")]);
        wait_until(|| file.with(|kept| !kept.bytes.is_empty()));
        file.with(|kept| kept.fails_to_write = true);
        let push = log.push(0, vec![record("second")]);
        wait_until(|| log.has_failed());
        assert_eq!(log.trouble().map(|trouble| trouble.is_broken), Some(false));
        assert!(log.trouble().is_some_and(|trouble| trouble.reason.contains("No space left")));
        log.push(1, vec![record("third")]);
        assert!(!is_synced(&log, 0, push));
        file.with(|kept| kept.fails_to_write = false);
        wait_until(|| !log.has_failed() && log.waiting_bytes() == 0);
        assert_eq!(keys_in(&file.with(|kept| kept.bytes.clone())), ["first", "second", "third"], "{fsync:?}");
    }
}

#[test]
fn after_a_sync_that_failed_another_file_is_needed() {
    let file = Arc::new(Fake::default());
    let log = log_in(&file, Fsync::Always);
    let first = log.push(0, vec![record("first")]);
    wait_until(|| is_synced(&log, 0, first));
    file.with(|kept| kept.fails_to_sync = true);
    let second = log.push(0, vec![record("second")]);
    wait_until(|| log.trouble().is_some_and(|trouble| trouble.is_broken));
    file.with(|kept| kept.fails_to_sync = false);
    std::thread::sleep(Duration::from_millis(20));
    assert!(!is_synced(&log, 0, second), "what the disk has lost is not told to be there");
    let other = Arc::new(Fake::default());
    log.write_to(other.clone(), 0).expect("a file");
    let third = log.push(1, vec![record("third")]);
    wait_until(|| other.with(|kept| !kept.synced.is_empty()));
    std::thread::sleep(Duration::from_millis(20));
    assert!(!is_synced(&log, 1, third), "the base is not there");
    log.is_based();
    wait_until(|| is_synced(&log, 0, second) && is_synced(&log, 1, third));
    assert!(!log.has_failed());
    assert_eq!(keys_in(&other.with(|kept| kept.bytes.clone())), ["third"]);
}

#[test]
fn pushes_without_changes_do_not_wait() {
    let file = Arc::new(Fake::default());
    let log = log_in(&file, Fsync::Always);
    let push = log.push(0, Vec::new());
    wait_until(|| is_synced(&log, 0, push));
    let push = log.push(1, vec![record("one")]);
    let empty = log.push(1, Vec::new());
    wait_until(|| is_synced(&log, 1, push) && is_synced(&log, 1, empty));
}

#[test]
fn under_everysec_it_is_written_at_once() {
    let file = Arc::new(Fake::default());
    let log = log_in(&file, Fsync::EverySecond);
    let push = log.push(0, vec![record("one")]);
    wait_until(|| log.settled(0) >= push);
    assert_eq!(keys_in(&file.with(|kept| kept.bytes.clone())), ["one"]);
    wait_until(|| file.with(|kept| kept.synced == kept.bytes));
}

/// A disk that hangs: what waits for it has a bound, past which writes are refused until it has come back.
#[test]
fn what_waits_for_the_disk_is_bounded() {
    for fsync in [Fsync::Always, Fsync::EverySecond] {
        let file = Arc::new(Fake::default());
        let log = log_in(&file, fsync);
        log.set_limit(1_000);
        // One change that is larger is no reason.
        log.push(0, vec![record(&"x".repeat(2_000))]);
        assert!(!log.refuses_writes());
        wait_until(|| log.waiting_bytes() == 0 && !log.syncs() && file.with(|kept| kept.synced == kept.bytes));
        file.with(|kept| kept.hangs = true);
        log.push(0, vec![record("first")]);
        wait_until(|| log.syncs());
        // At first writes wait, as soon as too much was handed over. (Under `everysec` what was handed over may be in the file
        // before anybody has looked.)
        log.push(1, vec![record(&"y".repeat(1_100))]);
        assert!(fsync == Fsync::EverySecond || log.is_crowded());
        wait_until(|| {
            log.push(1, vec![record(&"y".repeat(1_100))]);
            log.is_crowded()
        });
        wait_until(|| {
            log.push(1, vec![record(&"y".repeat(100))]);
            log.look();
            log.refuses_writes()
        });
        assert!(log.is_full() && log.waiting_bytes() > 1_000 && !log.has_failed());
        assert!(log.failure().contains("aof-buffer-limit"), "{}", log.failure());
        assert_eq!(log.trouble(), None);
        file.with(|kept| kept.hangs = false);
        wait_until(|| !log.refuses_writes() && log.waiting_bytes() == 0);
        assert_eq!(log.failure(), "the disk did not keep up");
        assert!(!log.is_crowded());
    }
}

/// What another shard's part of a transaction is missing for grew without a bound while that shard was busy.
#[test]
fn what_waits_for_parts_is_bounded_unless_a_script_lasts() {
    let log = log_in(&Arc::new(Fake::default()), Fsync::EverySecond);
    log.set_limit(1_000);
    log.push(0, vec![part(1, "here")]);
    log.push(0, vec![record(&"x".repeat(2_000))]);
    wait_until(|| log.feed.queued_bytes() == 0 && log.is_crowded());
    log.feed.script_lasts();
    assert!(!log.is_crowded(), "it may never end");
    log.feed.script_is_over();
    assert!(log.is_crowded() && !log.refuses_writes());
    log.push(1, vec![part(1, "there")]);
    wait_until(|| !log.is_crowded());
}

/// What was acknowledged and could not be written before a sync failed is in the next file, though there is no base; and no
/// batch there says that what came before is on the disk. Writes are refused until there is a base.
#[test]
fn nothing_that_waits_is_lost_with_a_broken_file() {
    let file = Arc::new(Fake::default());
    let log = log_in(&file, Fsync::EverySecond);
    log.push(0, vec![record("first")]);
    file.with(|kept| kept.fails_to_sync = true);
    wait_until(|| log.trouble().is_some_and(|trouble| trouble.is_broken));
    log.push(0, vec![record("second")]);
    assert!(log.end().is_err(), "it is not on the disk");
    let other = Arc::new(Fake::default());
    let base = log.write_to(other.clone(), 0).expect("a file");
    log.push(1, vec![record("third")]);
    wait_until(|| keys_in(&other.with(|kept| kept.bytes.clone())) == ["second", "third"]);
    // The base has what was acknowledged before it was begun: a second INCR would count twice.
    assert_eq!(keys_behind(Some(base), &other.with(|kept| kept.bytes.clone())), ["third"]);
    assert!(log.refuses_writes() && log.trouble().is_some() && !log.is_new());
    wait_until(|| other.with(|kept| kept.synced == kept.bytes));
    let push = log.push(1, vec![record("fourth")]);
    wait_until(|| log.settled(1) >= push);
    let bytes = other.with(|kept| kept.bytes.clone());
    let heads = memchr::memmem::find_iter(&bytes, super::batch::MARK).map(|at| super::batch::read(&bytes[at..]));
    let synced: Vec<u64> = heads.map(|head| head.expect("a head").synced).collect();
    assert!(!synced.is_empty() && synced.iter().all(|synced| *synced == 0), "{synced:?}");
    log.is_based();
    assert!(!log.refuses_writes() && log.trouble().is_none());
}

/// What was there before stands nowhere until then, so that what is acknowledged would be lost without it.
#[test]
fn replies_wait_for_the_first_base() {
    let log = new_log();
    log.set_fsync(Fsync::Always);
    log.write_to(Arc::new(Fake::default()), 0).expect("a file");
    log.set_on(true);
    assert!(log.is_new() && log.holds_replies());
    log.is_based();
    assert!(!log.is_new() && log.holds_replies());
}

/// A disk that hangs is nobody's affair but the thread's: pushes return, replies wait no longer than a moment, and then not at
/// all; what waits is bounded, and everything is there in its order when the disk comes back.
#[test]
fn a_write_that_hangs_holds_nobody_up() {
    for fsync in [Fsync::EverySecond, Fsync::No] {
        let file = Arc::new(Fake::default());
        let log = log_in(&file, fsync);
        let mut reader = log.feed.read(0, usize::MAX);
        file.with(|kept| kept.hangs_to_write = true);
        let mut names = vec!["key".to_owned()];
        let first = log.push(0, vec![record("key")]);
        wait_until(|| {
            log.look();
            log.settled(0) >= first
        });
        for number in 0..100 {
            names.push(format!("key{number}"));
            let push = log.push(number % 2, vec![record(&names[number + 1])]);
            // (Nobody looks: the thread that stands in is called by pushes.)
            wait_until(|| log.settled(number % 2) >= push);
        }
        // Whoever else reads the feed sees what has come.
        let shown: Vec<u8> = std::iter::from_fn(|| reader.take()).flat_map(|piece| piece.to_vec()).collect();
        assert_eq!(String::from_utf8_lossy(&shown).matches("SET").count(), names.len());
        assert!(file.with(|kept| kept.bytes.is_empty()) && !log.refuses_writes());
        std::thread::sleep(STUCK);
        log.set_limit(1_000);
        assert!(log.refuses_writes() && log.is_full());
        file.with(|kept| kept.hangs_to_write = false);
        wait_until(|| !log.refuses_writes() && log.waiting_bytes() == 0);
        assert_eq!(keys_in(&file.with(|kept| kept.bytes.clone())), names, "{fsync:?}");
    }
}

/// Whoever asks whether the disk is slow has the state, for which the thread that writes may wait: that is not the disk.
#[test]
fn who_waits_for_the_state_does_not_wait_for_the_disk() {
    let log = new_log();
    let mut state = log.lock();
    let (tell, told) = std::sync::mpsc::channel();
    let writer = std::thread::spawn({
        let log = log.clone();
        move || {
            tell.send(thread::here().expect("/proc")).expect("somebody wants it");
            drop(log.lock());
        }
    });
    let writes = told.recv().expect("it says so");
    wait_until(|| thread::waits(&writes));
    state.writer = Some(writes);
    state.writes_since = Instant::now().checked_sub(2 * SLOW);
    assert!(!state.is_slow(&log.is_at_disk));
    log.is_at_disk.store(true, Ordering::SeqCst);
    assert!(state.is_slow(&log.is_at_disk));
    drop(state);
    writer.join().expect("it ends");
}

/// Another file is begun while the one before it hangs: nobody waits, and each file has what belongs there.
#[test]
fn another_file_is_begun_without_a_wait() {
    let (file, other) = (Arc::new(Fake::default()), Arc::new(Fake::default()));
    let log = log_in(&file, Fsync::EverySecond);
    file.with(|kept| kept.hangs_to_write = true);
    log.push(0, vec![record("first")]);
    log.push(1, vec![record("second")]);
    let base = log.write_to(other.clone(), 0).expect("a file");
    log.push(0, vec![record("third")]);
    log.is_based();
    std::thread::sleep(Duration::from_millis(5));
    assert!(other.with(|kept| kept.bytes.is_empty()));
    file.with(|kept| kept.hangs_to_write = false);
    wait_until(|| other.with(|kept| !kept.bytes.is_empty()) && log.waiting_bytes() == 0);
    let (before, behind) = (file.with(|kept| kept.bytes.clone()), other.with(|kept| kept.bytes.clone()));
    assert_eq!((keys_in(&before), base), (vec!["first".to_owned(), "second".to_owned()], before.len() as u64));
    assert_eq!(keys_behind(Some(base), &behind), ["third"]);
}

/// A sync fails while another file is to be begun: what was not written stands there, before the base, which has it.
#[test]
fn what_a_broken_file_lacks_is_in_the_one_that_was_to_be_begun() {
    for seed in 0..30 {
        let mut rng = Rng::with_seed(seed);
        let (file, other) = (Arc::new(Fake::default()), Arc::new(Fake::default()));
        let log = log_in(&file, Fsync::Always);
        let first = log.push(0, vec![record("first")]);
        wait_until(|| is_synced(&log, 0, first));
        file.with(|kept| (kept.hangs, kept.fails_to_sync) = (true, true));
        log.push(0, vec![record("second")]);
        wait_until(|| log.syncs());
        let third = log.push(1, vec![record("third")]);
        let base = log.write_to(other.clone(), 0).expect("a file");
        let fourth = log.push(0, vec![record("fourth")]);
        file.with(|kept| kept.hangs = false);
        wait_until(|| keys_in(&other.with(|kept| kept.bytes.clone())) == ["third", "fourth"]);
        assert!(!log.has_failed() && log.refuses_writes() && log.trouble().is_some_and(|trouble| !trouble.is_broken));
        assert!(!is_synced(&log, 1, third), "there is no base");
        wait_until(|| other.with(|kept| kept.synced == kept.bytes));
        log.is_based();
        wait_until(|| is_synced(&log, 1, third) && is_synced(&log, 0, fourth));
        let bytes = other.with(|kept| kept.bytes.clone());
        assert_eq!(keys_behind(Some(base), &bytes), ["fourth"]);
        // A crash may leave any part of what could not be written: the base has it.
        let cut = &bytes[..rng.usize(..=bytes.len())];
        assert!(["fourth"].starts_with(&keys_behind(Some(base), cut).iter().map(String::as_str).collect::<Vec<_>>()));
        drop(log.end());
    }
}

/// What stands behind a note stands behind it in the file, too.
#[test]
fn notes_have_their_place() {
    let file = Arc::new(Fake::default());
    let log = log_in(&file, Fsync::Always);
    log.push(0, vec![record("first")]);
    let note = log.push_note(1, ["POLICY", "p:", "1s"].map(str::to_owned).to_vec());
    let last = log.push(0, vec![record("second")]);
    wait_until(|| is_synced(&log, 1, note) && is_synced(&log, 0, last));
    let bytes = file.with(|kept| kept.bytes.clone());
    let at = |text: &str| memchr::memmem::find(&bytes, text.as_bytes()).expect(text);
    assert!(at("first") < at("POLICY") && at("POLICY") < at("second"));
    assert_eq!(keys_in(&bytes), ["first", "second"]);
}

/// A file breaks while a write to it is under way, and another is begun: what was under way is a matter of the file before, and
/// the next one says where it goes on.
#[test]
fn a_file_breaks_under_a_write() {
    for is_planned in [true, false] {
        let (file, other) = (Arc::new(Fake::default()), Arc::new(Fake::default()));
        let log = log_in(&file, Fsync::EverySecond);
        let first = log.push(0, vec![record("first")]);
        wait_until(|| log.settled(0) >= first);
        file.with(|kept| (kept.fails_to_sync, kept.hangs_to_write) = (true, true));
        log.push(0, vec![record("second")]);
        wait_until(|| log.lock().is_writing());
        log.push(1, vec![record("third")]);
        let mut base = is_planned.then(|| log.write_to(other.clone(), 0).expect("a file"));
        wait_until(|| log.trouble().is_some_and(|trouble| trouble.is_broken));
        let base = *base.get_or_insert_with(|| log.write_to(other.clone(), 0).expect("a file"));
        log.push(0, vec![record("fourth")]);
        assert!(other.with(|kept| kept.bytes.is_empty()));
        file.with(|kept| kept.hangs_to_write = false);
        wait_until(|| keys_in(&other.with(|kept| kept.bytes.clone())) == ["third", "fourth"]);
        let (before, bytes) = (file.with(|kept| kept.bytes.clone()), other.with(|kept| kept.bytes.clone()));
        assert_eq!(keys_in(&before), ["first", "second"]);
        assert_eq!(keys_behind(Some(base), &bytes), ["fourth"]);
        log.is_based();
        wait_until(|| !log.refuses_writes() && log.trouble().is_none());
    }
}

/// A base is no reason to take writes again where the file that was begun with it has broken meanwhile.
#[test]
fn a_base_mends_no_broken_file() {
    let file = Arc::new(Fake::default());
    let log = new_log();
    log.set_fsync(Fsync::EverySecond);
    log.start().expect("threads");
    log.write_to(file.clone(), 0).expect("a file");
    log.set_on(true);
    file.with(|kept| kept.fails_to_sync = true);
    log.push(0, vec![record("first")]);
    wait_until(|| log.trouble().is_some_and(|trouble| trouble.is_broken));
    log.is_based();
    assert!(log.refuses_writes() && log.trouble().is_some_and(|trouble| trouble.is_broken));
    assert!(log.bring_to_disk().is_err(), "nobody may take what is there for all");
    let other = Arc::new(Fake::default());
    log.write_to(other.clone(), 0).expect("a file");
    log.is_based();
    assert!(!log.refuses_writes());
    log.push(0, vec![record("second")]);
    log.bring_to_disk().expect("the disk is well");
    assert_eq!(keys_in(&other.with(|kept| kept.synced.clone())), ["second"]);
    // Turned off, and begun anew: nothing is left of what was before.
    log.set_on(false);
    let last = Arc::new(Fake::default());
    log.write_to(last.clone(), 0).expect("a file");
    log.set_on(true);
    log.is_based();
    log.push(1, vec![record("third")]);
    log.bring_to_disk().expect("the disk is well");
    assert_eq!(keys_in(&last.with(|kept| kept.synced.clone())), ["third"]);
}
