//! Configuration files (`src/config/file.rs`): a file is valid or refused with its line; what CONFIG REWRITE writes
//! says the same as what was read.

use std::cell::OnceCell;
use std::fs;
use std::path::Path;

use emberdb::config::{self, Config, Start, StartError};

use super::meter::measured;

/// Of memory for reading a file: for each of its bytes, and besides.
const MEMORY_A_BYTE: usize = 128;
const MEMORY_BYTES: usize = 64 * 1024;

thread_local! {
    static FOLDER: OnceCell<tempfile::TempDir> = const { OnceCell::new() };
}

pub fn check(text: &[u8]) {
    // Not to read whatever the machine has.
    if text.to_ascii_lowercase().windows(7).any(|word| word == b"include") {
        return;
    }
    FOLDER.with(|folder| {
        let folder = folder.get_or_init(|| {
            // In memory where there is such a folder: each case writes a file.
            let memory = Path::new("/dev/shm");
            let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
            made.expect("a folder")
        });
        check_file(&folder.path().join("ember.conf"), text);
    });
}

fn check_file(path: &Path, text: &[u8]) {
    fs::write(path, text).expect("a file");
    let (read, bytes) = measured(|| load(path));
    assert!(bytes <= MEMORY_BYTES + MEMORY_A_BYTE * text.len(), "{bytes} bytes for {}", text.len());
    let config = match read {
        Ok(config) => config,
        Err(error @ StartError::Line { .. }) => {
            let report = error.to_string();
            assert!(report.lines().count() >= 4 && report.contains("at line "), "{report}");
            return;
        }
        Err(error) => panic!("the file can be read: {error}"),
    };
    config.rewrite().expect("a file that was read can be rewritten");
    let again = load(path).unwrap_or_else(|error| panic!("what was rewritten is valid: {error}"));
    assert_eq!(again.get(|_| true), config.get(|_| true), "rewritten");
}

fn load(path: &Path) -> Result<Config, StartError> {
    let path = path.to_str().expect("a path in UTF-8").to_owned();
    match config::load(&[path])? {
        Start::Run(config) => Ok(*config),
        Start::Check(_) | Start::Healthcheck(_) | Start::Help(_) | Start::Version(_) => panic!("a file is no flag"),
    }
}
