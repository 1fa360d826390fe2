//! Writing a file: to another name first, brought to the disk, then put in place of what was there.

use super::aof::batch;
use super::disk::{Disk, append_all};
use crate::rdb::Piece;
use crate::rdb::file::{self, Checksum};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Pieces that wait for the disk; who has more waits.
const PIECES: usize = 8;
/// So many bytes are brought to the disk at a time, where that is wanted: else the end would take long.
const SYNCED_BYTES: usize = 4 << 20;

/// How much the thread that writes gives way to the shards where they share a core (`nice`). Shards that write down what
/// changes hold it until it is written, so that it must not wait too long either: at 10 they held three times as much as at 5.
const NICE: libc::c_int = 5;

enum Next {
    Piece(Piece),
    End,
}

/// Where the pieces of a file go.
#[derive(Clone)]
pub struct Pieces {
    sender: SyncSender<Next>,
    turn: Arc<Mutex<Turn>>,
}

#[derive(Default)]
struct Turn {
    /// Whose piece has to come next, since a value of its does not end with its last one.
    owner: Option<usize>,
    /// No more are taken.
    is_over: bool,
}

/// What has become of a piece.
pub enum Offered {
    Taken,
    /// Later there is room for it.
    Full(Piece),
    /// Writing has failed, or was given up.
    Over,
}

impl Pieces {
    /// Hands a piece over. Where it `goes_on` it ends within a value: there is no room for others until the rest of that
    /// is there.
    pub fn offer(&self, from: usize, piece: Piece, goes_on: bool) -> Offered {
        let mut turn = self.turn();
        if turn.is_over {
            return Offered::Over;
        }
        if turn.owner.is_some_and(|owner| owner != from) {
            return Offered::Full(piece);
        }
        match self.sender.try_send(Next::Piece(piece)) {
            Ok(()) => {
                turn.owner = goes_on.then_some(from);
                Offered::Taken
            }
            Err(TrySendError::Full(Next::Piece(piece))) => Offered::Full(piece),
            Err(_) => Offered::Over,
        }
    }

    /// Somebody has no more to give, and it is not all: nobody waits for the rest of a value of theirs.
    pub fn give_up(&self) {
        self.turn().is_over = true;
    }

    /// (Nobody waits with this lock in hand.)
    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There are no more: the file is complete. Whether that was taken: where not, there is no room at the moment.
    pub fn end(&self) -> bool {
        !matches!(self.sender.try_send(Next::End), Err(TrySendError::Full(_)))
    }
}

/// How a file is written.
#[derive(Clone, Default)]
pub struct How {
    /// It consists of commands: see [`Base`].
    pub base: Option<Base>,
    /// Long strings are compressed.
    pub compresses: bool,
    /// It ends with its checksum.
    pub checksum: bool,
    /// It is brought to the disk piece by piece.
    pub in_steps: bool,
    /// It is brought to the disk at all: it is to be there after a crash.
    pub lasts: bool,
}

/// The base of a log that consists of commands. Each piece is a batch of its own.
#[derive(Clone, Default)]
pub struct Base {
    /// What it begins with: see [`batch::note`].
    pub notes: Vec<Vec<String>>,
    /// Where in the log the files begin whose base it is.
    pub position: u64,
}

impl Base {
    /// All of it was on the disk before it was the base: what is broken in it is damaged.
    const SYNCED: u64 = u64::MAX;

    fn begin(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for words in &self.notes {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            out.append(&mut batch::note(&words, out.len() as u64, Base::SYNCED).unwrap_or_default());
        }
        out
    }

    fn batch(bytes: &[u8], written: u64) -> Vec<u8> {
        let mut batch = batch::head(bytes, written, Base::SYNCED);
        batch.extend_from_slice(bytes);
        batch
    }

    fn end(&self, written: u64) -> Vec<u8> {
        batch::note(&[batch::BASE, &self.position.to_string()], written, Base::SYNCED).unwrap_or_default()
    }
}

/// Starts to write a file. What becomes of it comes through the receiver, after which `ring` is called: its length, or
/// why the old one is still there. Where all [`Pieces`] are gone before the end there will be none.
pub fn begin(
    disk: Arc<dyn Disk>,
    name: &str,
    how: How,
    ring: impl FnOnce() + Send + 'static,
) -> io::Result<(Pieces, Receiver<io::Result<u64>>)> {
    let path = PathBuf::from(name);
    let (sender, pieces) = mpsc::sync_channel(PIECES);
    let (tell, told) = mpsc::channel();
    std::thread::Builder::new().name("snapshot".to_owned()).spawn(move || {
        give_way();
        let temporary = temporary_in(path.parent().unwrap_or(Path::new("")));
        let filled = fill(&*disk, &temporary, &pieces, how);
        let written = filled.and_then(|bytes| disk.rename(&temporary, &path).map(|()| bytes));
        if written.is_err() {
            let _ = disk.remove(&temporary);
        }
        drop(pieces);
        // Where nobody waits for it any more there is nobody to be told.
        let _ = tell.send(written);
        ring();
    })?;
    Ok((Pieces { sender, turn: Arc::default() }, told))
}

/// This thread compresses, and has time.
fn give_way() {
    // SAFETY: a system call without memory. Linux applies it to the calling thread alone. It only lowers what the thread
    // may claim, which everybody may do; where it is refused nothing is lost.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}

/// What a file of this folder is called until it is complete.
pub fn temporary_in(folder: &Path) -> PathBuf {
    folder.join(format!("temp-{}.rdb", std::process::id()))
}

fn fill(disk: &dyn Disk, path: &Path, pieces: &Receiver<Next>, how: How) -> io::Result<u64> {
    let file = disk.open(path)?;
    // One of that name may be left of a process that was killed.
    file.cut(0)?;
    let (mut checksum, mut written, mut unsynced) = (Checksum::default(), 0, 0);
    let mut append = |bytes: &[u8]| {
        append_all(&*file, bytes, &[])?;
        written += bytes.len() as u64;
        unsynced += bytes.len();
        if how.in_steps && unsynced >= SYNCED_BYTES {
            file.sync()?;
            unsynced = 0;
        }
        io::Result::Ok(written)
    };
    let mut length = match &how.base {
        Some(base) => append(&base.begin())?,
        None => 0,
    };
    loop {
        let piece = match pieces.recv() {
            Ok(Next::Piece(piece)) => piece,
            Ok(Next::End) => break,
            Err(_) => return Err(io::Error::other("it was given up")),
        };
        let bytes = match (&how.base, how.compresses) {
            (Some(_), _) => Base::batch(&piece.into_bytes(), length),
            (None, true) => piece.into_compressed(),
            (None, false) => piece.into_bytes(),
        };
        if how.checksum {
            checksum.update(&bytes);
        }
        length = append(&bytes)?;
    }
    let end = match &how.base {
        Some(base) => base.end(length),
        None => {
            let mut end = Vec::new();
            file::write_end(&mut end);
            checksum.update(&end);
            end.extend_from_slice(&if how.checksum { checksum.get() } else { 0 }.to_le_bytes());
            end
        }
    };
    length = append(&end)?;
    if how.lasts {
        file.sync()?;
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::super::disk::{Appendable, Appended, RealDisk};
    use super::*;
    use std::fs::{self, File};

    fn how() -> How {
        How { base: None, compresses: true, checksum: true, in_steps: true, lasts: true }
    }

    fn write(disk: Arc<dyn Disk>, name: &str, pieces: &[&[u8]], ends: bool) -> io::Result<u64> {
        let (sender, told) = begin(disk, name, how(), || ())?;
        for piece in pieces {
            let mut piece = Piece::from(piece.to_vec());
            while let Offered::Full(again) = sender.offer(0, piece, false) {
                piece = again;
                std::thread::yield_now();
            }
        }
        while ends && !sender.end() {
            std::thread::yield_now();
        }
        drop(sender);
        told.recv().expect("an outcome")
    }

    fn write_well(name: &str, pieces: &[&[u8]], ends: bool) -> io::Result<u64> {
        write(Arc::new(RealDisk), name, pieces, ends)
    }

    /// A shard that left in the middle of a value was waited for by the others, for ever.
    #[test]
    fn nobody_waits_for_the_rest_of_a_value_that_does_not_come() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("dump.rdb");
        let name = path.to_str().expect("a name");
        let piece = || Piece::from(b"a part".to_vec());
        let (pieces, told) = begin(Arc::new(RealDisk), name, how(), || ()).expect("a thread");
        assert!(matches!(pieces.offer(0, piece(), true), Offered::Taken));
        assert!(matches!(pieces.offer(1, piece(), false), Offered::Full(_)));
        pieces.give_up();
        assert!(matches!(pieces.offer(1, piece(), false), Offered::Over));
        drop(pieces);
        assert!(told.recv().expect("an outcome").is_err() && !path.exists());
    }

    #[test]
    fn a_file_is_there_whole_or_not_at_all() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("dump.rdb");
        let name = path.to_str().expect("a name");
        assert!(write_well(name, &[b"REDIS0010"], false).is_err());
        assert!(!path.exists());
        assert_eq!(write_well(name, &[b"REDIS", b"0010"], true).ok(), Some(18));
        let whole = fs::read(&path).expect("a file");
        assert_eq!(whole[..10], *b"REDIS0010\xff");
        assert!(write_well(name, &[b"x"], false).is_err());
        assert_eq!(fs::read(&path).expect("a file"), whole);
        let left: Vec<_> = fs::read_dir(folder.path()).expect("a folder").collect();
        assert_eq!(left.len(), 1, "no temporary file is left");
        assert!(write_well(folder.path().join("none/dump.rdb").to_str().expect("a name"), &[b"x"], true).is_err());
    }

    #[test]
    fn what_a_killed_process_has_left_is_not_in_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("dump.rdb");
        let left = folder.path().join(format!("temp-{}.rdb", std::process::id()));
        fs::write(&left, [b'x'; 1000]).expect("a file");
        assert_eq!(write_well(path.to_str().expect("a name"), &[b"REDIS0010"], true).ok(), Some(18));
        assert_eq!(fs::read(&path).expect("a file").len(), 18);
    }

    /// What goes wrong.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Fault {
        Open,
        /// The disk is full in the middle of a piece.
        Full,
        Write,
        Sync,
        Rename,
    }

    struct BadDisk(Fault);

    struct BadFile(File, Fault);

    fn eio() -> io::Error {
        io::Error::from_raw_os_error(libc::EIO)
    }

    impl Disk for BadDisk {
        fn open(&self, path: &Path) -> io::Result<Appendable> {
            if self.0 == Fault::Open {
                return Err(eio());
            }
            Ok(Arc::new(BadFile(File::create(path)?, self.0)))
        }

        fn create(&self, path: &Path) -> io::Result<Appendable> {
            self.open(path)
        }

        fn make_folder(&self, path: &Path) -> io::Result<()> {
            RealDisk.make_folder(path)
        }

        fn replace(&self, path: &Path, content: &[u8]) -> io::Result<()> {
            RealDisk.replace(path, content)
        }

        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            if self.0 == Fault::Rename { Err(eio()) } else { RealDisk.rename(from, to) }
        }

        fn remove(&self, path: &Path) -> io::Result<()> {
            RealDisk.remove(path)
        }
    }

    impl Appended for BadFile {
        fn append(&self, start: &[u8], end: &[u8]) -> io::Result<usize> {
            const ROOM_BYTES: u64 = 100_000;
            let written = self.0.metadata()?.len();
            match self.1 {
                Fault::Write if written > 0 => Err(eio()),
                Fault::Full if written >= ROOM_BYTES => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
                Fault::Full => Appended::append(&self.0, &start[..start.len().min(1000)], &[]),
                _ => Appended::append(&self.0, start, end),
            }
        }

        fn make_room(&self, from: u64, to: u64) -> io::Result<()> {
            self.0.make_room(from, to)
        }

        fn sync(&self) -> io::Result<()> {
            if self.1 == Fault::Sync { Err(eio()) } else { Appended::sync(&self.0) }
        }

        fn cut(&self, bytes: u64) -> io::Result<()> {
            self.0.cut(bytes)
        }
    }

    /// Whatever fails: the reason is told, whoever has pieces does not wait for ever, the old file stays, and nothing else.
    #[test]
    fn a_disk_that_fails_leaves_the_old_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("dump.rdb");
        fs::write(&path, b"old").expect("a file");
        let piece = vec![b'x'; 10_000];
        for fault in [Fault::Open, Fault::Full, Fault::Write, Fault::Sync, Fault::Rename] {
            let pieces = vec![&piece[..]; 100];
            let error = write(Arc::new(BadDisk(fault)), path.to_str().expect("a name"), &pieces, true).err();
            let expected = if fault == Fault::Full { libc::ENOSPC } else { libc::EIO };
            assert_eq!(error.and_then(|error| error.raw_os_error()), Some(expected), "{fault:?}");
            assert_eq!(fs::read(&path).expect("a file"), b"old");
            assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "{fault:?}");
        }
    }
}
