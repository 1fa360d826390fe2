//! What all shards know of the append-only log beside what is in it: its files, and whether they are made anew.

use crate::clock::{Clock, store_us};
use crate::config::Config;
use crate::observe::log;
use crate::persist::aof::batch;
use crate::persist::aof::manifest::{Entry, Manifest};
use crate::persist::aof::seed;
use crate::persist::aof::steps::Steps;
use crate::persist::claim::{Claim, claim};
use crate::persist::disk::{Appendable, Disk, RealDisk, append_all};
use crate::persist::reading::begun_s;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// By how much the wall clock has to be behind the log that somebody is told.
const BEHIND_MS: i64 = 1000;

/// The log's folder and files, once it is known which they are.
pub struct Files {
    pub folder: PathBuf,
    /// Begin of the files' names.
    pub stem: String,
    pub manifest: Manifest,
    pub steps: Steps,
    /// Of the hash that says where keys are.
    seed: u64,
    pub disk: Box<dyn Disk>,
    /// They are this server's, and nobody else's.
    _claim: Claim,
}

impl Files {
    /// Makes the folder where there is none, and claims the files in it.
    ///
    /// # Errors
    /// It cannot be made, or another server has the files.
    pub fn claim(config: &Config, clock: &Clock, seed: u64) -> io::Result<Files> {
        let folder = config.log_folder();
        let disk = Box::new(RealDisk);
        disk.make_folder(&folder)?;
        let stem = config.appendfilename.clone();
        let name = folder.join(Manifest::name(&stem));
        let claim = claim(&name.to_string_lossy())?
            .ok_or_else(|| io::Error::other(format!("{} belongs to another server that runs", name.display())))?;
        Ok(Files {
            folder,
            stem,
            manifest: Manifest::default(),
            steps: Steps::new(clock.wall_offset_ms()),
            seed,
            disk,
            _claim: claim,
        })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub fn manifest_path(&self) -> PathBuf {
        self.path(&Manifest::name(&self.stem))
    }

    /// Puts another manifest in place of the one that is there.
    pub fn set_manifest(&mut self, manifest: Manifest) -> io::Result<()> {
        let text = manifest.text() + &self.steps.text(&manifest) + &seed::line(self.seed);
        self.disk.replace(&self.manifest_path(), text.as_bytes())?;
        self.steps.follow(&manifest);
        self.manifest = manifest;
        Ok(())
    }

    /// Reads the manifest that is there; what is wrong with it.
    pub fn read_manifest(&mut self, text: &str, clock: &Clock) -> Result<(), String> {
        self.manifest = Manifest::parse(text)?;
        let wall_offset_ms = clock.wall_offset_ms();
        let begun_s = self.manifest.base.as_ref().and_then(|base| begun_s(&self.path(&base.name)));
        let begun_ms = begun_s.map(|s| s.saturating_mul(1000).saturating_sub_unsigned(store_us() / 1000));
        self.steps = Steps::parse(text, &self.manifest, wall_offset_ms, begun_ms);
        let behind_ms = self.steps.offset_ms().saturating_sub(wall_offset_ms);
        if behind_ms > BEHIND_MS {
            log::warning(format_args!(
                "The clock is {behind_ms} ms behind the moment at which the base of the append only file was begun: \
                 lifetimes go on as of then"
            ));
        }
        Ok(())
    }

    /// Should the wall clock have been set, then the manifest says so, if it is the one of the log on the disk (`is_written`); by
    /// how much the clock was set.
    pub fn look_at_clock(&mut self, wall_offset_ms: i64, is_written: bool) -> io::Result<Option<i64>> {
        let before = self.steps.clone();
        let step = self.steps.take(wall_offset_ms);
        if step.is_some()
            && is_written
            && let Err(error) = self.set_manifest(self.manifest.clone())
        {
            self.steps = before;
            return Err(error);
        }
        Ok(step)
    }

    /// How far ahead of store time the times are that the last increment says.
    pub fn log_offset_ms(&self) -> Option<i64> {
        self.manifest.increments.last().map(|last| self.steps.offset_of(&last.name))
    }

    /// A new file, which is the last increment of this manifest. `offset_ms`: how far ahead of store time the times in it
    /// will be.
    pub fn add_increment(&mut self, manifest: &mut Manifest, offset_ms: i64) -> io::Result<Appendable> {
        let name = manifest.add_increment(&self.stem);
        let file = self.disk.create(&self.path(&name))?;
        self.steps.begin(name, offset_ms);
        Ok(file)
    }

    /// The file in which a log goes on that was read up to this position, its length, and where in the log it ends. What
    /// others have written (`is_foreign`) is not written on in the same file.
    pub fn last_increment(&mut self, position: u64, is_foreign: bool) -> io::Result<(Appendable, u64, u64)> {
        let last = self.manifest.increments.last().filter(|_| !is_foreign);
        if let Some(path) = last.map(|last| self.path(&last.name)) {
            let file = self.disk.open(&path)?;
            return Ok((file, std::fs::metadata(&path)?.len(), position));
        }
        let mut manifest = self.manifest.clone();
        let file = self.add_increment(&mut manifest, self.steps.offset_ms())?;
        // The position is in it before the manifest has it: so it can be told from then on what a crash has left there.
        let head = batch::head(b"", position, position);
        append_all(&*file, &head, &[])?;
        file.sync()?;
        self.set_manifest(manifest)?;
        Ok((file, head.len() as u64, position + head.len() as u64))
    }

    /// How long all files are.
    pub fn bytes(&self) -> u64 {
        self.manifest.files().map(|entry| self.length(entry)).sum()
    }

    /// How long the base is.
    pub fn base_bytes(&self) -> u64 {
        self.manifest.base.as_ref().map_or(0, |base| self.length(base))
    }

    fn length(&self, entry: &Entry) -> u64 {
        std::fs::metadata(self.path(&entry.name)).map_or(0, |metadata| metadata.len())
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

    /// The same for who would not wait for a disk: none where somebody is at work on them.
    pub fn idle_files(&self) -> Option<MutexGuard<'_, Option<Files>>> {
        self.files.try_lock().ok()
    }

    /// Does something about the files, which are there.
    pub fn with_files<R>(&self, work: impl FnOnce(&mut Files) -> io::Result<R>) -> io::Result<R> {
        match &mut *self.files() {
            Some(files) => work(files),
            None => Err(io::Error::other("there is no log")),
        }
    }
}
