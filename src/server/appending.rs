//! What all shards know of the append-only log beside what is in it: its files, and whether they are made anew.

use crate::config::Config;
use crate::persist::aof::manifest::Manifest;
use crate::persist::claim::{Claim, claim};
use crate::persist::disk::{Appendable, Disk, RealDisk};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The log's folder and files, once it is known which they are.
pub struct Files {
    pub folder: PathBuf,
    /// Begin of the files' names.
    pub stem: String,
    pub manifest: Manifest,
    pub disk: Box<dyn Disk>,
    /// They are this server's, and nobody else's.
    _claim: Claim,
}

impl Files {
    /// Makes the folder where there is none, and claims the files in it.
    ///
    /// # Errors
    /// It cannot be made, or another server has the files.
    pub fn claim(config: &Config) -> io::Result<Files> {
        let folder = Path::new(&config.dir).join(&config.appenddirname);
        std::fs::create_dir_all(&folder)?;
        let stem = config.appendfilename.clone();
        let name = folder.join(Manifest::name(&stem));
        let claim = claim(&name.to_string_lossy())?
            .ok_or_else(|| io::Error::other(format!("{} belongs to another server that runs", name.display())))?;
        Ok(Files { folder, stem, manifest: Manifest::default(), disk: Box::new(RealDisk), _claim: claim })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub fn manifest_path(&self) -> PathBuf {
        self.path(&Manifest::name(&self.stem))
    }

    /// Puts another manifest in place of the one that is there.
    pub fn set_manifest(&mut self, manifest: Manifest) -> io::Result<()> {
        self.disk.replace(&self.manifest_path(), manifest.text().as_bytes())?;
        self.manifest = manifest;
        Ok(())
    }

    /// The file that is written next, and its length.
    pub fn last_increment(&mut self) -> io::Result<(Appendable, u64)> {
        if self.manifest.increments.is_empty() {
            let mut manifest = self.manifest.clone();
            manifest.add_increment(&self.stem);
            self.set_manifest(manifest)?;
        }
        let name = self.manifest.increments.last().map(|last| last.name.clone()).unwrap_or_default();
        let path = self.path(&name);
        let file = self.disk.open(&path)?;
        Ok((file, std::fs::metadata(&path)?.len()))
    }

    /// How long all files are.
    pub fn bytes(&self) -> u64 {
        let length = |name: &str| std::fs::metadata(self.path(name)).map_or(0, |metadata| metadata.len());
        self.manifest.files().map(|entry| length(&entry.name)).sum()
    }

    /// Deletes what is not needed any more.
    pub fn delete_history(&mut self) -> io::Result<()> {
        if self.manifest.history.is_empty() {
            return Ok(());
        }
        for entry in &self.manifest.history {
            match self.disk.remove(&self.folder.join(&entry.name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let manifest = Manifest { history: Vec::new(), ..self.manifest.clone() };
        self.set_manifest(manifest)
    }
}

pub struct Appending {
    files: Mutex<Option<Files>>,
    /// They are made anew.
    pub is_rewriting: AtomicBool,
    /// They are to be, as soon as a snapshot is written that is under way.
    pub is_scheduled: AtomicBool,
    /// Somebody waits for the moment in which the log ends.
    pub is_ending: AtomicBool,
    /// When that began, seconds since 1970, or 0; how long it lasted the last time (all bits set: it was never).
    pub began_s: AtomicU64,
    pub lasted_s: AtomicU64,
    pub has_failed: AtomicBool,
    pub rewrites: AtomicU64,
    /// Failures since the last success.
    pub failures: AtomicU64,
    /// When one was last begun because of the size, seconds since 1970.
    pub tried_s: AtomicU64,
    /// How long all files were after that, or at the start.
    pub base_bytes: AtomicU64,
}

impl Default for Appending {
    fn default() -> Appending {
        Appending {
            files: Mutex::default(),
            is_rewriting: AtomicBool::new(false),
            is_scheduled: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            began_s: AtomicU64::new(0),
            lasted_s: AtomicU64::new(u64::MAX),
            has_failed: AtomicBool::new(false),
            rewrites: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            tried_s: AtomicU64::new(0),
            base_bytes: AtomicU64::new(0),
        }
    }
}

impl Appending {
    pub fn files(&self) -> MutexGuard<'_, Option<Files>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something about the files, which are there.
    pub fn with_files<R>(&self, work: impl FnOnce(&mut Files) -> io::Result<R>) -> io::Result<R> {
        match &mut *self.files() {
            Some(files) => work(files),
            None => Err(io::Error::other("there is no log")),
        }
    }
}
