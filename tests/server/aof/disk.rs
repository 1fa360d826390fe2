//! A disk that tests rule: `disk.c`, loaded before all others. It is slow, hangs, is full or broken when it is told so, kills
//! the server at an operation, and tells what it was asked, of which [`Platters`] know what a power cut leaves.

use crate::common::{Server, have_tool};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A library that is loaded before all others, of this source.
pub fn library(source: &str) -> Option<(tempfile::TempDir, PathBuf)> {
    if !have_tool("cc") {
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let library = folder.path().join("library.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server/aof").join(source);
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).arg("-ldl").status();
    assert!(compiled.expect("cc runs").success());
    Some((folder, library))
}

/// What the library of `disk.c` is told, and tells.
pub struct Disk {
    control: File,
}

impl Disk {
    /// That of a server that is started in this folder later.
    pub fn of(server: &Server) -> Disk {
        let path = server.folder().join("disk.ctl");
        let control = File::options().create(true).truncate(true).read(true).write(true).open(path).expect("a file");
        control.set_len(4096).expect("a length");
        Disk { control }
    }

    fn set(&self, nth: u64, value: i32) {
        self.control.write_all_at(&value.to_ne_bytes(), nth * 4).expect("a file");
    }

    /// From now on: operations are counted, and before the one of this number the server ends.
    pub fn kill_at(&self, operation: i32) {
        self.set(1, 0);
        self.set(0, operation);
    }

    fn get(&self, nth: u64) -> i32 {
        let mut word = [0; 4];
        self.control.read_exact_at(&mut word, nth * 4).expect("a file");
        i32::from_ne_bytes(word)
    }

    pub fn operations(&self) -> i32 {
        self.get(1)
    }

    /// Whether a write to the log has lasted for so long, or was not over when the process ended.
    pub fn was_slow(&self, us: i32) -> bool {
        self.get(4) >= us || self.get(5) > 0
    }

    /// How long each operation on the log lasts from now on; below 0: without an end.
    pub fn set_delay(&self, ms: i32) {
        self.set(2, ms);
    }

    /// With which error of the system writes and syncs end from now on; 0: with none.
    pub fn set_error(&self, errno: i32) {
        self.set(3, errno);
    }
}

/// What a process has done to a file, which no sync has brought to the disk yet.
enum Change {
    Write(usize, Vec<u8>),
    Cut(usize),
}

impl Change {
    fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Change::Write(at, bytes) => {
                to.resize(to.len().max(at + bytes.len()), 0);
                to[*at..at + bytes.len()].copy_from_slice(bytes);
            }
            Change::Cut(length) => to.resize(*length, 0),
        }
    }
}

#[derive(Default)]
struct Content {
    /// As a process reads it.
    read: Vec<u8>,
    /// As it is on the disk for certain.
    kept: Vec<u8>,
    /// What a sync brings there.
    changes: Vec<Change>,
    /// So many changes were there before these.
    settled: usize,
    /// A sync has failed, and some of what is read never reaches the disk.
    has_lost: bool,
}

type Names = BTreeMap<PathBuf, usize>;

/// What was done to names.
enum Naming {
    Add(PathBuf, usize),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

impl Naming {
    fn apply(&self, names: &mut Names) {
        match self {
            Naming::Add(path, file) => drop(names.insert(path.clone(), *file)),
            Naming::Rename(from, to) => {
                let Some(file) = names.remove(from) else { return };
                names.insert(to.clone(), file);
            }
            Naming::Remove(path) => drop(names.remove(path)),
        }
    }

    /// The folder where that is written down.
    fn folder(&self) -> &Path {
        let (Naming::Add(path, _) | Naming::Rename(_, path) | Naming::Remove(path)) = self;
        path.parent().expect("a path of a file")
    }
}

/// The files of a folder: as processes see them, and as the disk has them for certain. Names reach the disk in their order,
/// the pages of a file in any.
#[derive(Default)]
pub struct Platters {
    files: Vec<Content>,
    names: Names,
    kept_names: Names,
    /// With their numbers.
    changes: Vec<(usize, Naming)>,
    named: usize,
}

const PAGE: usize = 4096;

/// What is in the folder and no data.
fn is_beside(path: &Path) -> bool {
    let is = |names: &[&str], of: Option<&std::ffi::OsStr>| names.iter().any(|name| of == Some(name.as_ref()));
    is(&["stdout", "stderr", "disk.ctl", "disk.trace"], path.file_name()) || is(&["lock"], path.extension())
}

/// The data in a folder.
fn files_of(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut files, mut folders) = (BTreeMap::new(), vec![PathBuf::new()]);
    while let Some(of) = folders.pop() {
        for entry in fs::read_dir(folder.join(&of)).expect("a folder") {
            let entry = entry.expect("an entry");
            let path = of.join(entry.file_name());
            let kind = entry.file_type().expect("a kind");
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() && !is_beside(&path) {
                files.insert(path, fs::read(entry.path()).expect("a file"));
            }
        }
    }
    files
}

impl Platters {
    /// Of a folder whose files are on the disk.
    pub fn of(folder: &Path) -> Platters {
        let mut platters = Platters::default();
        for (path, read) in files_of(folder) {
            platters.names.insert(path, platters.files.len());
            platters.files.push(Content { read: read.clone(), kept: read, ..Content::default() });
        }
        platters.kept_names = platters.names.clone();
        platters
    }

    /// Begins to note what a server does that is started in this folder next.
    pub fn note(folder: &Path) {
        File::create(folder.join("disk.trace")).expect("a file");
    }

    /// Takes what was noted, of a server that has ended.
    pub fn read(&mut self, folder: &Path) {
        let trace = fs::read(folder.join("disk.trace")).expect("a file");
        let mut rest = trace.as_slice();
        let (mut open, mut folders, mut begun) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        while let Some((head, behind)) = rest.split_first_chunk::<17>() {
            let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
            let (id, at, len) = (word(1), word(5) as usize, word(13) as usize);
            let Some((bytes, behind)) = behind.split_at_checked(len) else { break };
            rest = behind;
            let text = || String::from_utf8_lossy(bytes).into_owned();
            match head[0] {
                b'O' => {
                    let path = PathBuf::from(text());
                    let file = self.file(path);
                    if at != 0 {
                        self.change(file, Change::Cut(0));
                    }
                    open.insert(id, file);
                    folders.remove(&id);
                }
                b'd' => drop(folders.insert(id, PathBuf::from(if text() == "." { String::new() } else { text() }))),
                b'W' => self.change(open[&id], Change::Write(at, bytes.to_vec())),
                b'T' => self.change(open[&id], Change::Cut(at)),
                b'B' => {
                    let done = if folders.contains_key(&id) { self.named } else { self.files[open[&id]].done() };
                    begun.insert(id, done);
                }
                b'S' if folders.contains_key(&id) => self.keep_names(&folders[&id], begun[&id]),
                b'S' => self.files[open[&id]].keep(begun[&id]),
                b'F' if folders.contains_key(&id) => {}
                b'F' => self.files[open[&id]].forget(),
                b'R' => {
                    let both = text();
                    let (from, to) = both.split_once('\n').expect("two names");
                    self.rename(Naming::Rename(from.into(), to.into()));
                }
                b'U' => self.rename(Naming::Remove(text().into())),
                other => panic!("{other}"),
            }
        }
        self.catch_up(folder);
        self.files.iter_mut().for_each(Content::forgive);
    }

    /// A process that is killed may have done one thing more than it has noted.
    fn catch_up(&mut self, folder: &Path) {
        let found = files_of(folder);
        let gone: Vec<PathBuf> = self.names.keys().filter(|path| !found.contains_key(*path)).cloned().collect();
        for path in gone {
            let is_known =
                |to: &Path, bytes: &Vec<u8>| self.names.get(to).is_some_and(|to| self.files[*to].read == *bytes);
            let read = &self.files[self.names[&path]].read;
            let renamed = found.iter().find(|(to, bytes)| *bytes == read && !is_known(to, bytes));
            self.rename(match renamed {
                Some((to, _)) => Naming::Rename(path, to.clone()),
                None => Naming::Remove(path),
            });
        }
        for (path, bytes) in found {
            let file = self.file(path);
            let read = &self.files[file].read;
            if *read != bytes {
                let same = read.iter().zip(&bytes).take_while(|(a, b)| a == b).count();
                self.change(file, Change::Cut(bytes.len()));
                self.change(file, Change::Write(same, bytes[same..].to_vec()));
            }
        }
    }

    /// The file of this name, which is made if there is none.
    fn file(&mut self, path: PathBuf) -> usize {
        if let Some(file) = self.names.get(&path) {
            return *file;
        }
        self.files.push(Content::default());
        self.rename(Naming::Add(path, self.files.len() - 1));
        self.files.len() - 1
    }

    fn rename(&mut self, naming: Naming) {
        naming.apply(&mut self.names);
        self.changes.push((self.named, naming));
        self.named += 1;
    }

    fn change(&mut self, file: usize, change: Change) {
        change.apply(&mut self.files[file].read);
        self.files[file].changes.push(change);
    }

    /// Of the first so many changes of names those in this folder are on the disk.
    fn keep_names(&mut self, folder: &Path, count: usize) {
        let kept_names = &mut self.kept_names;
        self.changes.retain(|(nth, naming)| {
            let is_kept = *nth < count && naming.folder() == folder;
            if is_kept {
                naming.apply(kept_names);
            }
            !is_kept
        });
    }

    /// The power is cut: leaves in the folder what the disk may have.
    pub fn cut_power(&mut self, folder: &Path, rng: &mut Rng) {
        let kept = rng.usize(..=self.changes.len());
        self.changes.drain(..).take(kept).for_each(|(_, naming)| naming.apply(&mut self.kept_names));
        for path in self.names.keys().chain(self.kept_names.keys()) {
            let _ = fs::remove_file(folder.join(path));
        }
        let luck = *rng.choice(&[0.0, 0.5, 0.5, 0.5, 1.0]).expect("some");
        let mut files = Vec::new();
        self.names.clear();
        for (path, file) in &self.kept_names {
            let content = self.files[*file].after_power_cut(luck, rng);
            let path_there = folder.join(path);
            fs::create_dir_all(path_there.parent().expect("a folder")).expect("a folder");
            fs::write(path_there, &content).expect("a file");
            self.names.insert(path.clone(), files.len());
            files.push(Content { read: content.clone(), kept: content, ..Content::default() });
        }
        self.kept_names = self.names.clone();
        self.files = files;
    }
}

impl Content {
    /// How many changes there were.
    fn done(&self) -> usize {
        self.settled + self.changes.len()
    }

    /// The first so many are on the disk (some of them since another sync has ended).
    fn keep(&mut self, count: usize) {
        let count = count.saturating_sub(self.settled);
        self.changes.drain(..count).for_each(|change| change.apply(&mut self.kept));
        self.settled += count;
    }

    /// A sync has failed: the system takes what has changed for written, and never tries again.
    fn forget(&mut self) {
        self.settled += self.changes.len();
        self.changes.clear();
        self.has_lost = true;
    }

    /// A process that starts now cannot know of syncs that failed before: what it reads and syncs counts as written.
    fn forgive(&mut self) {
        if std::mem::take(&mut self.has_lost) {
            self.changes = vec![Change::Cut(self.read.len()), Change::Write(0, self.read.clone())];
        }
    }

    fn after_power_cut(&self, luck: f64, rng: &mut Rng) -> Vec<u8> {
        let (kept, read) = (self.kept.len(), self.read.len());
        let between = rng.usize(kept.min(read)..=kept.max(read));
        let length = *rng.choice(&[kept, read, between]).expect("some");
        let mut content = self.kept.clone();
        content.resize(length, 0);
        for start in (0..length.min(read)).step_by(PAGE) {
            let end = (start + PAGE).min(length).min(read);
            if rng.f64() < luck {
                content[start..end].copy_from_slice(&self.read[start..end]);
            }
        }
        content
    }
}
