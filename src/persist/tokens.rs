//! Fencing tokens: numbers of which each that is given is greater than all that were given before, whatever becomes of the
//! server. LEASE TAKE gives them, and what is guarded by them, here or elsewhere, can tell an older holder from a newer one.
//!
//! A server gives one after the other, by counting. What has to be argued is where it begins:
//!
//! - **After a restart** it begins above a bound that it has written into a file of its own and brought to the disk before it
//!   gave any token below that bound ([`BLOCK`] tokens a write). So a crash loses at most the rest of a block, neither log nor
//!   snapshot need know of tokens, and what becomes of keys (DEL, FLUSHALL, a restored backup) has no part in it.
//! - **After a failover** another server gives tokens, which has another file. A primary tells each replica, before it sends
//!   it anything, a horizon: a number that all tokens lie below which this run of it is going to give ([`RUN`] of them). Who
//!   takes its place begins above the greatest horizon that it was told, whatever of the stream has not come by then.
//! - **Besides**, a run begins above the clock, in steps of which a millisecond has [`STEPS_A_MS`]. No server gives so many
//!   for long, so tokens stay behind the clock, and a server begins above what any other has given where their clocks agree:
//!   this is for one that was told nothing, since its primary is a redis-server, or was never reached after a restart.
//!
//! While a server runs its clock does not matter, and where the clock was turned back the first two rules hold. Tokens are
//! below 2^53, so that they are whole numbers in JavaScript and Lua, too; the clock alone reaches that in the year 2303, and
//! failovers, each of which may leave [`RUN`] numbers out, after a hundred thousand of them.
//!
//! The number is the server's, not the key's: a key that was renamed or copied brings no token that a later one of its new
//! name could lie below.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The file in the working folder.
pub const FILE: &str = "lease-tokens";

/// The greatest there can be.
pub const GREATEST: u64 = (1 << 53) - 1;
/// How many a write of the file allows.
const BLOCK: u64 = 1 << 20;
/// How many a run gives at the most before its replicas would have to be told anew.
const RUN: u64 = 1 << 36;
const STEPS_A_MS: u64 = 1 << 10;
/// The clock counts from 2025-01-01.
const CLOCK_BEGAN_MS: u64 = 1_735_689_600_000;
/// A number of so many digits, and the end of its line.
const DIGITS: usize = 16;

#[derive(Default)]
pub struct Tokens {
    /// The last that was given, or where the run begins.
    last: AtomicU64,
    /// Up to this one they may be given: that is on the disk.
    reserved: AtomicU64,
    /// Another server may have given all up to this one.
    known: AtomicU64,
    /// Where this run begins, if that was decided.
    base: Mutex<Option<u64>>,
    is_reserving: AtomicBool,
}

/// Who has it sees to it that more can be given.
pub struct Reserving<'t>(&'t Tokens);

impl Drop for Reserving<'_> {
    fn drop(&mut self) {
        self.0.is_reserving.store(false, Ordering::Release);
    }
}

impl Tokens {
    /// The next one, where that is allowed.
    pub fn take(&self) -> Option<u64> {
        let next = |last| (last < self.reserved.load(Ordering::Acquire)).then_some(last + 1);
        self.last.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).ok().map(|last| last + 1)
    }

    /// Whether it is time to reserve more.
    pub fn are_few(&self) -> bool {
        self.reserved.load(Ordering::Acquire).saturating_sub(self.last.load(Ordering::Acquire)) < BLOCK / 2
    }

    /// One at a time reserves.
    pub fn start_reserving(&self) -> Option<Reserving<'_>> {
        (!self.is_reserving.swap(true, Ordering::AcqRel)).then_some(Reserving(self))
    }

    /// Another server may have given all tokens up to this one, by what it says itself or by what a snapshot says.
    pub fn learn(&self, known: u64) {
        let known = known.min(GREATEST);
        self.known.fetch_max(known, Ordering::AcqRel);
        // (What is reserved may begin below it.)
        if known > self.last.load(Ordering::Acquire) {
            self.reserved.store(0, Ordering::Release);
        }
    }

    /// All that this server has given, or knows of, lie at or below it; 0 where it knows of none.
    pub fn greatest(&self) -> u64 {
        [&self.reserved, &self.known, &self.last].map(|of| of.load(Ordering::Acquire)).into_iter().max().unwrap_or(0)
    }

    /// What a replica is told: all that this server is going to give, while it is a primary, lie below. (Where it is a
    /// replica itself and becomes a primary soon, likewise.)
    pub fn horizon(&self, realtime_ms: u64) -> u64 {
        let base = self.base().unwrap_or(0);
        (base.max(self.greatest()).max(of_clock(realtime_ms)) + RUN).min(GREATEST)
    }

    /// A run begins: of the process, or of a replica that becomes a primary. Reads the file.
    ///
    /// # Errors
    /// Where there is one that cannot be read.
    pub fn begin(&self, path: &Path, realtime_ms: u64) -> io::Result<()> {
        let saved = match File::open(path) {
            Ok(file) => read(&file)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        let mut base = self.base();
        self.reserved.store(0, Ordering::Release);
        *base = Some(self.start(saved, realtime_ms));
        Ok(())
    }

    /// Another run begins in the same process, which knows what its file allows: it was read before, or is when the first token
    /// is wanted.
    pub fn begin_anew(&self, realtime_ms: u64) {
        let mut base = self.base();
        self.reserved.store(0, Ordering::Release);
        *base = base.map(|before| self.start(before, realtime_ms));
    }

    fn start(&self, saved: u64, realtime_ms: u64) -> u64 {
        saved.max(of_clock(realtime_ms)).max(self.known.load(Ordering::Acquire)).max(self.last.load(Ordering::Acquire))
    }

    /// Allows a block more, which is on the disk when this returns.
    ///
    /// # Errors
    /// Where the file cannot be read or written, or there are no more numbers.
    pub fn reserve(&self, path: &Path, realtime_ms: u64) -> io::Result<()> {
        let is_new = !path.exists();
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        // (Where another server has the same folder.)
        file.lock()?;
        let saved = read(&file)?;
        // (Nobody waits for the disk who asks where the run begins.)
        let begin = *self.base().get_or_insert_with(|| self.start(saved, realtime_ms));
        let known = self.known.load(Ordering::Acquire);
        let from = begin.max(known).max(saved).max(self.last.load(Ordering::Acquire));
        let to = from.checked_add(BLOCK).filter(|to| *to <= GREATEST);
        let to = to.ok_or_else(|| io::Error::other("there are no greater numbers"))?;
        file.write_all_at(format!("{to:0DIGITS$}\n").as_bytes(), 0)?;
        file.sync_all()?;
        if is_new {
            File::open(path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")))?
                .sync_all()?;
        }
        // What is left of the block before is given first, unless somebody else may have given it.
        if self.reserved.load(Ordering::Acquire) == 0 || known > self.last.load(Ordering::Acquire) {
            self.last.fetch_max(from, Ordering::AcqRel);
        }
        self.reserved.store(to, Ordering::Release);
        // Where another run has begun meanwhile, or others have given more, this says nothing.
        if *self.base() != Some(begin) || self.known.load(Ordering::Acquire) != known {
            self.reserved.store(0, Ordering::Release);
        }
        Ok(())
    }

    fn base(&self) -> MutexGuard<'_, Option<u64>> {
        self.base.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a run begins by the clock.
fn of_clock(realtime_ms: u64) -> u64 {
    realtime_ms.saturating_sub(CLOCK_BEGAN_MS).saturating_mul(STEPS_A_MS).min(GREATEST)
}

/// What a file allows; nothing where it is empty.
fn read(file: &File) -> io::Result<u64> {
    let mut text = String::new();
    file.take(1 + DIGITS as u64 + 1).read_to_string(&mut text)?;
    let number = || text.strip_suffix('\n').filter(|text| text.len() == DIGITS)?.parse().ok();
    match text.is_empty() {
        true => Ok(0),
        false => number()
            .filter(|number| *number <= GREATEST)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "its content is not what a server has written")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    const NOW_MS: u64 = CLOCK_BEGAN_MS + 1_000_000;

    /// A server's run: its tokens, and where its file is.
    struct Run {
        tokens: Tokens,
        path: PathBuf,
        now_ms: u64,
    }

    impl Run {
        fn begin(folder: &Path, now_ms: u64) -> Run {
            let run = Run { tokens: Tokens::default(), path: folder.join(FILE), now_ms };
            run.tokens.begin(&run.path, now_ms).expect("a file or none");
            run
        }

        fn take(&self) -> u64 {
            if let Some(token) = self.tokens.take() {
                return token;
            }
            self.tokens.reserve(&self.path, self.now_ms).expect("a disk");
            self.tokens.take().expect("a block")
        }
    }

    #[test]
    fn tokens_grow_over_restarts_whatever_the_clock_says() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut rng = fastrand::Rng::with_seed(1);
        let mut greatest = 0;
        for _ in 0..200 {
            let now_ms = [0, NOW_MS, NOW_MS - rng.u64(0..1_000_000), NOW_MS + rng.u64(0..1_000_000)][rng.usize(..4)];
            let run = Run::begin(folder.path(), now_ms);
            for _ in 0..rng.u64(0..20) {
                let token = run.take();
                assert!(token > greatest && token <= GREATEST, "{token} after {greatest}");
                greatest = token;
            }
            assert!(run.tokens.greatest() >= greatest || run.tokens.greatest() == 0);
        }
    }

    #[test]
    fn a_block_is_followed_by_the_next() {
        let folder = tempfile::tempdir().expect("a folder");
        let run = Run::begin(folder.path(), NOW_MS);
        let first = run.take();
        for n in 1..2 * BLOCK + 10 {
            if run.tokens.are_few() && n % 2 == 0 {
                run.tokens.reserve(&run.path, NOW_MS).expect("a disk");
            }
            assert_eq!(run.take(), first + n, "none is left out while a server runs");
        }
    }

    /// A replica becomes a primary without a look at its file, and gives tokens below what it tells its own replicas.
    #[test]
    fn a_promotion_begins_above_all_that_is_known() {
        let folder = tempfile::tempdir().expect("a folder");
        let run = Run::begin(folder.path(), NOW_MS);
        let mut greatest = run.take();
        for now_ms in [NOW_MS, NOW_MS - 1_000_000, NOW_MS + 1_000_000] {
            let told = greatest + 3 * BLOCK;
            run.tokens.learn(told);
            run.tokens.begin_anew(now_ms);
            let horizon = run.tokens.horizon(now_ms);
            greatest = run.take();
            assert!(greatest > told && greatest < horizon, "{greatest}");
        }
    }

    /// A replica that was told of its primary's run begins above it, though its clock is behind and it was sent nothing since.
    #[test]
    fn a_promoted_replica_begins_above_its_primary() {
        let (ours, theirs) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let primary = Run::begin(theirs.path(), NOW_MS + 3_600_000);
        let replica = Run::begin(ours.path(), NOW_MS);
        let before = replica.take();
        replica.tokens.learn(primary.tokens.horizon(primary.now_ms));
        let last = (0..1000).map(|_| primary.take()).max().expect("some");
        replica.tokens.begin(&replica.path, NOW_MS).expect("a file");
        let token = replica.take();
        assert!(token > last && token > before, "{token} after {last} and {before}");
        // And the other way round: the old primary comes back.
        primary.tokens.learn(replica.tokens.horizon(replica.now_ms));
        assert!(primary.take() > token);
        // One that was told nothing has the clock.
        let other = tempfile::tempdir().expect("a folder");
        let late = Run::begin(other.path(), NOW_MS + 200_000_000);
        assert!(late.take() > token);
    }

    #[test]
    fn what_others_may_have_given_is_not_given() {
        let folder = tempfile::tempdir().expect("a folder");
        let run = Run::begin(folder.path(), NOW_MS);
        let token = run.take();
        run.tokens.learn(token - 1);
        assert_eq!(run.take(), token + 1, "that is known");
        for known in [token + 100, token + 5 * BLOCK] {
            run.tokens.learn(known);
            assert!(run.take() > known);
        }
    }

    #[test]
    fn a_damaged_file_and_the_end_of_numbers_are_errors() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE);
        for damaged in ["x", "12\n", "00000000000000x1\n", "9999999999999999\n", "0000000000000001\n0"] {
            std::fs::write(&path, damaged).expect("a disk");
            assert!(Tokens::default().begin(&path, NOW_MS).is_err(), "{damaged:?}");
            assert!(Tokens::default().reserve(&path, NOW_MS).is_err(), "{damaged:?}");
        }
        std::fs::write(&path, format!("{:016}\n", GREATEST - BLOCK)).expect("a disk");
        let run = Run::begin(folder.path(), NOW_MS);
        assert_eq!(run.take(), GREATEST - BLOCK + 1);
        assert!(run.tokens.reserve(&path, NOW_MS).is_err());
        assert_eq!(run.tokens.horizon(NOW_MS), GREATEST);
        run.tokens.learn(u64::MAX);
        assert_eq!(run.tokens.take(), None);
        assert!(run.tokens.reserve(&path, NOW_MS).is_err());
    }
}
