//! Files of snapshots (`src/rdb/file.rs`, `src/persist/reading.rs`): whatever the bytes, they are read or refused, memory
//! follows the bytes and not the numbers in them, and what was read is what is read again when it is written.

use std::cell::OnceCell;
use std::fs;
use std::path::{Path, PathBuf};

use emberdb::persist::Progress;
use emberdb::persist::reading::{self, Batch, Limits, LoadError, Origin};
use emberdb::rdb::file;

use super::meter::measured;
use super::rdb;

/// What is read at a time, and what that grows by.
const MEMORY_BYTES: usize = 4 << 20;
/// For each byte: what it can expand to, and that once more where it is copied.
const MEMORY_A_BYTE: usize = 2 * 88 + 64;
const SHARDS: usize = 3;
const DATABASES: usize = 16;
/// Of a text.
const TEXT_BYTES_MAX: usize = 64 << 20;

thread_local! {
    static FOLDER: OnceCell<tempfile::TempDir> = const { OnceCell::new() };
}

/// A key as it was read: its database, itself, its deadline, its value with the type in front.
type Key = (usize, Vec<u8>, Option<u64>, Vec<u8>);

pub fn check(bytes: &[u8]) {
    let path = file_of(bytes);
    let mut keys = Vec::new();
    let (read, memory) = measured(|| read(&path, false, &mut keys));
    assert!(memory <= MEMORY_BYTES + MEMORY_A_BYTE * bytes.len(), "{memory} bytes for {}", bytes.len());
    for (_, _, _, value) in &keys {
        rdb::check(value);
    }
    let mut same = Vec::new();
    if self::read(&path, true, &mut same).is_ok() {
        assert!(read.is_ok() && same == keys, "the checksum is right, and all is there");
    }
    if read.is_ok() {
        let again = file_of(&written(&keys));
        let mut known = Vec::new();
        let outcome = self::read(&again, true, &mut known);
        assert!(outcome.is_ok(), "what was read is written so that it can be read: {:?}", outcome.err());
        known.sort();
        keys.sort();
        assert!(known == keys);
    }
}

fn file_of(bytes: &[u8]) -> PathBuf {
    FOLDER.with(|folder| {
        let folder = folder.get_or_init(|| {
            // In memory where there is such a folder: each case writes files.
            let memory = Path::new("/dev/shm");
            let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
            made.expect("a folder")
        });
        let path = folder.path().join("dump.rdb");
        fs::write(&path, bytes).expect("a file");
        path
    })
}

fn read(path: &Path, checksum: bool, keys: &mut Vec<Key>) -> Result<(), LoadError> {
    let limits = Limits { text_bytes: TEXT_BYTES_MAX, databases: DATABASES, checksum, shards: SHARDS };
    let route = |key: &[u8]| key.first().map_or(0, |byte| usize::from(*byte) % SHARDS);
    let take = |shard: usize, batch: Batch| {
        for of in &batch.keys {
            assert!(of.db < DATABASES && route(batch.key(of)) == shard);
            keys.push((of.db, batch.key(of).to_vec(), of.deadline_ms, batch.value(of).to_vec()));
        }
        Ok(())
    };
    let length = fs::metadata(path).map_or(0, |metadata| metadata.len());
    let beside = reading::read(Origin::File(path.to_owned()), limits, &Progress::default(), route, take)?;
    assert!(beside.end <= length, "it ends inside of the file");
    Ok(())
}

fn written(keys: &[Key]) -> Vec<u8> {
    let mut out = Vec::new();
    file::write_head(&mut out, file::VERSION_OF_FIELD_DEADLINES);
    for (db, key, deadline_ms, value) in keys {
        file::write_db(&mut out, *db);
        file::write_key(&mut out, key, *deadline_ms, |out| out.extend_from_slice(value));
    }
    file::write_end(&mut out);
    let mut checksum = file::Checksum::default();
    checksum.update(&out);
    out.extend_from_slice(&checksum.get().to_le_bytes());
    out
}
