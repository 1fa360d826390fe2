//! The append-only log (`src/persist/aof/reading.rs`): whatever the bytes, what is handed on are whole commands that stand in
//! the file, a cut is where the file says so, and memory follows the bytes and not the numbers in them.

use std::fs;

use emberdb::persist::Progress;
use emberdb::persist::aof::reading::{Item, Tolerance, read};
use emberdb::resp::Limits;

use super::meter::measured;

const LIMITS: Limits = Limits { bulk_bytes: 1 << 20, authenticated: true };
/// What is read of a file at a time, twice.
const MEMORY_BYTES: usize = 4 << 20;
/// For each byte: the file, a piece of it, the commands that are kept here, and where the parts of a command begin.
const MEMORY_A_BYTE: usize = 64;

pub fn check(bytes: &[u8]) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    fs::write(&path, bytes).expect("a file");
    let none = Tolerance::default();
    let torn = Tolerance { torn: true, ..none };
    for tolerance in [none, torn, Tolerance { damaged_bytes: 50, ..torn }] {
        let mut commands = Vec::new();
        let mut send = |item| {
            match item {
                Item::Commands(piece) => commands.extend_from_slice(&piece),
                Item::File(index) => panic!("there is one file, not {index}"),
                Item::Note(note) | Item::Aside(note) => assert!(note.len() <= bytes.len()),
            }
            Ok(())
        };
        let files = [(path.clone(), 0)];
        let (result, memory) = measured(|| read(&files, None, LIMITS, tolerance, &Progress::default(), &mut send));
        assert!(memory <= MEMORY_BYTES + MEMORY_A_BYTE * bytes.len(), "{memory} bytes");
        assert!(commands.len() <= bytes.len());
        if let Ok(read) = result
            && let Some(cut) = read.cut
        {
            match cut.damage {
                Some(_) => assert!(cut.lost_bytes <= tolerance.damaged_bytes, "too much is cut"),
                None => assert!(tolerance.torn || cut.is_empty, "it was not to be cut"),
            }
            assert_eq!(cut.at + cut.lost_bytes, bytes.len() as u64);
            assert!(!cut.is_empty || bytes[cut.at as usize..].iter().all(|byte| *byte == 0));
        }
    }
}
