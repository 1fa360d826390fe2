//! Writing a file: to another name first, brought to the disk, then put in place of what was there.

use super::disk::sync_folder_of;
use crate::rdb::file::{self, Checksum};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};

/// Pieces that wait for the disk; who has more waits.
const PIECES: usize = 8;
/// So many bytes are brought to the disk at a time, where that is wanted: else the end would take long.
const SYNCED_BYTES: usize = 4 << 20;

enum Piece {
    Bytes(Vec<u8>),
    End,
}

/// Where the pieces of a file go.
#[derive(Clone)]
pub struct Pieces(SyncSender<Piece>);

/// What has become of a piece.
pub enum Offered {
    Taken,
    /// Later there is room for it.
    Full(Vec<u8>),
    /// Writing has failed.
    Over,
}

impl Pieces {
    pub fn offer(&self, bytes: Vec<u8>) -> Offered {
        match self.0.try_send(Piece::Bytes(bytes)) {
            Ok(()) => Offered::Taken,
            Err(TrySendError::Full(Piece::Bytes(bytes))) => Offered::Full(bytes),
            Err(_) => Offered::Over,
        }
    }

    /// There are no more: the file is complete. Whether that was taken: where not, there is no room at the moment.
    pub fn end(&self) -> bool {
        !matches!(self.0.try_send(Piece::End), Err(TrySendError::Full(_)))
    }
}

/// How a file is written.
#[derive(Clone, Copy)]
pub struct How {
    /// It ends with its checksum.
    pub checksum: bool,
    /// It is brought to the disk piece by piece.
    pub in_steps: bool,
}

/// Starts to write a file. What becomes of it comes through the receiver, after which `ring` is called: its length, or
/// why the old one is still there. Where all [`Pieces`] are gone before the end there will be none.
pub fn begin(
    name: &str,
    how: How,
    ring: impl FnOnce() + Send + 'static,
) -> io::Result<(Pieces, Receiver<io::Result<u64>>)> {
    let path = PathBuf::from(name);
    let (sender, pieces) = mpsc::sync_channel(PIECES);
    let (tell, told) = mpsc::channel();
    std::thread::Builder::new().name("snapshot".to_owned()).spawn(move || {
        let temporary = path.with_file_name(format!("temp-{}.rdb", std::process::id()));
        let written = fill(&temporary, &pieces, how).and_then(|bytes| put_in_place(&temporary, &path).map(|()| bytes));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        drop(pieces);
        // Where nobody waits for it any more there is nobody to be told.
        let _ = tell.send(written);
        ring();
    })?;
    Ok((Pieces(sender), told))
}

fn fill(path: &Path, pieces: &Receiver<Piece>, how: How) -> io::Result<u64> {
    let mut file = File::create(path)?;
    let (mut checksum, mut written, mut unsynced) = (Checksum::default(), 0, 0);
    loop {
        let (bytes, is_end) = match pieces.recv() {
            Ok(Piece::Bytes(bytes)) => (bytes, false),
            Ok(Piece::End) => {
                let mut end = Vec::new();
                file::write_end(&mut end);
                (end, true)
            }
            Err(_) => return Err(io::Error::other("it was given up")),
        };
        file.write_all(&bytes)?;
        if how.checksum {
            checksum.update(&bytes);
        }
        written += bytes.len() as u64;
        unsynced += bytes.len();
        if is_end {
            let checksum = if how.checksum { checksum.get() } else { 0 };
            file.write_all(&checksum.to_le_bytes())?;
            file.sync_all()?;
            return Ok(written + file::CHECKSUM_BYTES as u64);
        }
        if how.in_steps && unsynced >= SYNCED_BYTES {
            file.sync_data()?;
            unsynced = 0;
        }
    }
}

fn put_in_place(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    sync_folder_of(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(name: &str, pieces: &[&[u8]], ends: bool) -> io::Result<u64> {
        let (sender, told) = begin(name, How { checksum: true, in_steps: true }, || ())?;
        for piece in pieces {
            let mut bytes = piece.to_vec();
            while let Offered::Full(again) = sender.offer(bytes) {
                bytes = again;
                std::thread::yield_now();
            }
        }
        while ends && !sender.end() {
            std::thread::yield_now();
        }
        drop(sender);
        told.recv().expect("an outcome")
    }

    #[test]
    fn a_file_is_there_whole_or_not_at_all() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("dump.rdb");
        let name = path.to_str().expect("a name");
        assert!(write(name, &[b"REDIS0010"], false).is_err());
        assert!(!path.exists());
        assert_eq!(write(name, &[b"REDIS", b"0010"], true).ok(), Some(18));
        let whole = fs::read(&path).expect("a file");
        assert_eq!(whole[..10], *b"REDIS0010\xff");
        assert!(write(name, &[b"x"], false).is_err());
        assert_eq!(fs::read(&path).expect("a file"), whole);
        let left: Vec<_> = fs::read_dir(folder.path()).expect("a folder").collect();
        assert_eq!(left.len(), 1, "no temporary file is left");
        assert!(write(folder.path().join("none/dump.rdb").to_str().expect("a name"), &[b"x"], true).is_err());
    }
}
