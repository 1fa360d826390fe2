//! The file layer under the log: what it asks of the system, so that a test can put a disk in its place that fails.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file that is only appended to.
pub trait Appended: Send + Sync {
    /// Appends some of these bytes, those before `end` first; how many.
    fn append(&self, start: &[u8], end: &[u8]) -> io::Result<usize>;
    /// Makes room from one byte to another: zeros that what is appended replaces.
    fn make_room(&self, from: u64, to: u64) -> io::Result<()>;
    /// Brings all of it to the disk.
    fn sync(&self) -> io::Result<()>;
    /// Cuts it to this length.
    fn cut(&self, bytes: u64) -> io::Result<()>;
}

pub type Appendable = Arc<dyn Appended>;

pub trait Disk: Send + Sync {
    /// Opens a file at its end, and makes it where there is none.
    fn open(&self, path: &Path) -> io::Result<Appendable>;
    /// Makes an empty file, or empties the one that is there. Its name is on the disk then.
    fn create(&self, path: &Path) -> io::Result<Appendable>;
    /// Makes a folder and those that it is in, where they are not there, so that they stay.
    fn make_folder(&self, path: &Path) -> io::Result<()>;
    /// Puts a file of this content in place of what is there, at once, and so that it stays.
    fn replace(&self, path: &Path, content: &[u8]) -> io::Result<()>;
    /// Gives a file another name, so that it stays.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// The system's.
pub struct RealDisk;

impl Appended for File {
    fn append(&self, start: &[u8], end: &[u8]) -> io::Result<usize> {
        let mut file = self;
        file.write_vectored(&[io::IoSlice::new(start), io::IoSlice::new(end)])
    }

    fn make_room(&self, from: u64, to: u64) -> io::Result<()> {
        static ZEROS: [u8; 256 << 10] = [0; 256 << 10];
        let mut at = from;
        while at < to {
            let len = usize::try_from(to - at).unwrap_or(usize::MAX).min(ZEROS.len());
            self.write_all_at(&ZEROS[..len], at)?;
            at += len as u64;
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn cut(&self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)?;
        let mut file = self;
        file.seek(SeekFrom::Start(bytes)).map(drop)
    }
}

impl Disk for RealDisk {
    fn open(&self, path: &Path) -> io::Result<Appendable> {
        let mut file = File::options().create(true).truncate(false).write(true).open(path)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Arc::new(file))
    }

    fn create(&self, path: &Path) -> io::Result<Appendable> {
        let file = File::create(path)?;
        file.sync_all()?;
        sync_folder_of(path)?;
        Ok(Arc::new(file))
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        if path.is_dir() {
            return Ok(());
        }
        fs::create_dir_all(path)?;
        sync_folder_of(path)
    }

    fn replace(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let temporary = beside(path);
        let written = fs::write(&temporary, content).and_then(|()| File::open(&temporary)?.sync_all());
        match written.and_then(|()| self.rename(&temporary, path)) {
            Ok(()) => Ok(()),
            Err(error) => {
                let _ = fs::remove_file(&temporary);
                Err(error)
            }
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)?;
        sync_folder_of(to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}

fn beside(path: &Path) -> PathBuf {
    path.with_file_name(format!("temp-{}", path.file_name().unwrap_or_default().to_string_lossy()))
}

/// Only then is a name on the disk, too.
fn sync_folder_of(path: &Path) -> io::Result<()> {
    sync_all(path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")))
}

/// Brings a file that somebody has written, or the names in a folder, to the disk.
pub fn sync_all(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Appends all of both.
pub fn append_all(file: &dyn Appended, mut first: &[u8], mut second: &[u8]) -> io::Result<()> {
    while !first.is_empty() || !second.is_empty() {
        match file.append(first, second) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                let of_first = count.min(first.len());
                first = &first[of_first..];
                second = &second[count - of_first..];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
