//! Whose files they are: of several servers that would write the same one, the first has it until it ends.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

/// Nobody else has it as long as this lives.
pub struct Claim(#[expect(dead_code, reason = "the lock goes with it")] File);

/// Claims the file of this name in the working folder. Beside it there is an empty one, which stays: who comes next would
/// else lock a file that is about to be deleted.
pub fn claim(name: &str) -> io::Result<Option<Claim>> {
    let path = Path::new(name);
    let lock = path.with_file_name(format!(".{}.lock", path.file_name().unwrap_or_default().to_string_lossy()));
    let file = File::options().create(true).truncate(false).write(true).open(lock)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(Claim(file))),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_it_until_it_ends() {
        let folder = tempfile::tempdir().expect("a folder");
        let name = folder.path().join("dump.rdb");
        let name = name.to_str().expect("a name");
        let first = claim(name).expect("a lock");
        assert!(first.is_some());
        assert!(claim(name).expect("a lock").is_none());
        drop(first);
        assert!(claim(name).expect("a lock").is_some());
    }
}
