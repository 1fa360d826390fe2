//! The compiled scripts of one shard.

use super::api::{self, Visible};
use super::shelf::{Digest, Shelf, Source, digest};
use crate::lua::{Chunk, Machine};
use crate::resp::{Error, Result};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Compiled functions of one script that are kept for the next calls.
const SPARE_FUNCTIONS: usize = 8;
/// With fewer compiled scripts nobody looks for those that are on the shelf no more.
const COMPILED_FEW: usize = 2_000;

/// A script, as one shard has it.
pub struct Script {
    pub source: Arc<Source>,
    /// Compiled functions that nobody runs. Each is run by one call at a time, whose globals it has.
    spare: RefCell<Vec<Chunk>>,
}

/// A script is compiled in one go: a longer source would keep its shard for too long.
const SOURCE_BYTES_MAX: usize = 512 << 10;
const TOO_LONG: Error =
    Error::text("ERR the source of a script has at most 524288 bytes, that of a library may have more");

pub struct Scripts {
    pub machine: Rc<Machine>,
    shelf: Arc<Shelf>,
    compiled: RefCell<HashMap<Digest, Rc<Script>, ahash::RandomState>>,
    /// Beyond so many compiled scripts those that are on the shelf no more are looked for.
    looked_for_at: Cell<usize>,
    /// [`Shelf::flushes`] when they were compiled.
    flushes: Cell<u64>,
}

impl Scripts {
    pub fn new(shelf: Arc<Shelf>, memory_limit: usize, visible: Visible) -> Scripts {
        let machine = Rc::new(Machine::new(memory_limit, |lua| api::install(lua, visible)));
        Scripts {
            machine,
            flushes: Cell::new(shelf.flushes()),
            shelf,
            compiled: RefCell::default(),
            looked_for_at: Cell::new(COMPILED_FEW),
        }
    }

    /// The script of this name, compiled.
    pub fn find(&self, digest: &Digest) -> Result<Option<Rc<Script>>> {
        self.forget_flushed();
        if let Some(script) = self.compiled.borrow().get(digest) {
            script.source.used.store(true, Ordering::Relaxed);
            return Ok(Some(script.clone()));
        }
        let Some(source) = self.shelf.find(digest) else { return Ok(None) };
        let chunk = self.compile(&source.text, source.header.bytes)?;
        Ok(Some(self.add(source, chunk)))
    }

    /// The script of this source, which is put on the shelf where it was not.
    pub fn load(&self, text: &[u8], by_eval: bool) -> Result<Rc<Script>> {
        if text.len() > SOURCE_BYTES_MAX {
            return Err(TOO_LONG);
        }
        let digest = digest(text);
        if let Some(script) = self.find(&digest)? {
            if !by_eval {
                self.shelf.put(digest, text, false)?;
            }
            return Ok(script);
        }
        let header = super::Header::parse(text)?;
        let chunk = self.compile(text, header.bytes)?;
        let source = self.shelf.put(digest, text, by_eval)?;
        Ok(self.add(source, chunk))
    }

    fn add(&self, source: Arc<Source>, chunk: Chunk) -> Rc<Script> {
        let script = Rc::new(Script { spare: RefCell::new(vec![chunk]), source });
        let mut compiled = self.compiled.borrow_mut();
        compiled.insert(script.source.digest, script.clone());
        if compiled.len() > self.looked_for_at.get() {
            let gone: Vec<Digest> =
                compiled.keys().filter(|digest| self.shelf.find(digest).is_none()).copied().collect();
            gone.iter().filter_map(|digest| compiled.remove(digest)).for_each(|script| self.drop_functions(&script));
            // Those that were loaded stay, and there may be any number of them: all are looked at again when there are twice as many.
            self.looked_for_at.set(COMPILED_FEW.max(2 * compiled.len()));
        }
        script
    }

    fn compile(&self, text: &[u8], from: usize) -> Result<Chunk> {
        self.machine
            .compile(&text[from..], c"@user_script")
            .map_err(|error| Error::quoting(&[b"ERR Error compiling script (new function): ", &error]))
    }

    /// A function of a script's, for one call.
    pub fn take_function(&self, script: &Script) -> Result<Chunk> {
        match script.spare.borrow_mut().pop() {
            Some(chunk) => Ok(chunk),
            None => self.compile(&script.source.text, script.source.header.bytes),
        }
    }

    pub fn keep_function(&self, script: &Script, chunk: Chunk) {
        let mut spare = script.spare.borrow_mut();
        let is_kept = self.compiled.borrow().get(&script.source.digest).is_some_and(|of| std::ptr::eq(&**of, script));
        if spare.len() < SPARE_FUNCTIONS && is_kept {
            spare.push(chunk);
        } else {
            self.machine.forget(chunk);
        }
    }

    fn forget_flushed(&self) {
        let flushes = self.shelf.flushes();
        if self.flushes.replace(flushes) != flushes {
            self.looked_for_at.set(COMPILED_FEW);
            self.compiled.take().into_values().for_each(|script| self.drop_functions(&script));
            self.machine.want_collection();
        }
    }

    fn drop_functions(&self, script: &Script) {
        script.spare.take().into_iter().for_each(|chunk| self.machine.forget(chunk));
    }
}
