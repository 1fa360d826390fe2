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
    let file = File::options().create(true).truncate(false).write(true).open(&lock);
    let file = file.map_err(|error| io::Error::new(error.kind(), reason(&lock, &error)))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(Claim(file))),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Why a file cannot be locked, and what to do about it.
fn reason(lock: &Path, error: &io::Error) -> String {
    let path = std::path::absolute(lock).unwrap_or_else(|_| lock.to_owned());
    let path = path.display();
    match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "the lock file {path} cannot be opened by this user: {error}. Another user, root perhaps, has made it or owns \
             its folder: give both to the user that runs the server (chown), or delete the lock file while no server runs \
             there"
        ),
        _ => format!("the lock file {path} cannot be opened: {error}"),
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

    #[test]
    fn who_may_not_open_the_lock_is_told_what_to_do() {
        let said = reason(Path::new("/data/.dump.rdb.lock"), &io::ErrorKind::PermissionDenied.into());
        assert!(said.contains("/data/.dump.rdb.lock") && said.contains("chown"), "{said}");
    }
}
