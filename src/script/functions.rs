//! The functions of one shard: libraries that it has loaded, on a machine of their own.

use super::api::{self, Visible};
use super::libraries::{Catalog, Declared, Function, Heading, Libraries, Library};
use super::loading::{Closures, Loading, Registered};
use crate::lua::Machine;
use crate::resp::{Error, Result};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// A library as one shard has it.
pub struct Loaded {
    pub library: Arc<Library>,
    /// In the order of the library's functions.
    pub(super) closures: Closures,
}

impl Loaded {
    /// A library of its own, of what its code has registered.
    pub fn new(code: &[u8], heading: Heading, (functions, closures): Registered) -> Result<Loaded> {
        if functions.is_empty() {
            return Err(Error::text("ERR No functions registered"));
        }
        Ok(Loaded { library: Arc::new(Library { name: heading.name, code: code.into(), functions }), closures })
    }

    /// What the code of a library has registered that another shard has loaded before.
    pub fn again(library: Arc<Library>, (functions, closures): Registered) -> Result<Loaded> {
        // Code that is loaded has nothing to ask by which it could tell one shard from another.
        let names = |functions: &[Declared]| functions.iter().map(|of| of.name.clone()).collect::<Vec<_>>();
        if names(&functions) != names(&library.functions) {
            return Err(Error::text("ERR The library registers other functions than before"));
        }
        Ok(Loaded { library, closures })
    }
}

pub struct Functions {
    libraries: Arc<Libraries>,
    memory_limit: Cell<usize>,
    visible: Visible,
    /// Made for the first library, and gone with the last.
    machine: RefCell<Option<Rc<Machine>>>,
    /// The catalog, and its number.
    catalog: RefCell<Arc<Catalog>>,
    changes: Cell<u64>,
    loaded: RefCell<HashMap<Box<[u8]>, Rc<Loaded>, ahash::RandomState>>,
}

/// A machine with more is not given up in one go, which would take long: its garbage is collected, a slice at a time.
const CLOSED_AT_ONCE_BYTES: usize = 16 << 20;

impl Functions {
    pub fn new(libraries: Arc<Libraries>, memory_limit: usize, visible: Visible) -> Functions {
        Functions {
            changes: Cell::new(libraries.changes()),
            catalog: RefCell::new(libraries.catalog()),
            libraries,
            memory_limit: Cell::new(memory_limit),
            visible,
            machine: RefCell::default(),
            loaded: RefCell::default(),
        }
    }

    /// What is loaded and called from now on may use so many bytes.
    pub fn set_memory_limit(&self, bytes: usize) {
        self.memory_limit.set(bytes);
        if let Some(machine) = self.machine.borrow().as_ref() {
            machine.memory().set_limit(bytes);
        }
    }

    fn machine(&self) -> Rc<Machine> {
        let mut machine = self.machine.borrow_mut();
        let install = |lua| api::install_for_functions(lua, self.visible);
        let new = || Rc::new(Machine::new(self.memory_limit.get(), install));
        machine.get_or_insert_with(new).clone()
    }

    /// All libraries.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.refresh();
        self.catalog.borrow().clone()
    }

    pub fn find(&self, name: &[u8]) -> Option<Function> {
        self.refresh();
        self.catalog.borrow().function(name).cloned()
    }

    /// Gives up what was loaded of libraries that are no more.
    pub fn refresh(&self) {
        let changes = self.libraries.changes();
        if self.changes.replace(changes) == changes {
            return;
        }
        let catalog = self.libraries.catalog();
        let mut loaded = self.loaded.borrow_mut();
        let count = loaded.len();
        loaded
            .retain(|name, loaded| catalog.library(name).is_some_and(|library| Arc::ptr_eq(library, &loaded.library)));
        if loaded.len() < count {
            drop(loaded);
            self.collect();
        }
        self.catalog.replace(catalog);
    }

    /// Gives back the memory of what nobody needs any more, or sees to it that it is collected soon.
    pub fn collect(&self) {
        let mut kept = self.machine.borrow_mut();
        let Some(machine) = kept.as_ref() else { return };
        if self.loaded.borrow().is_empty() && machine.memory().used() < CLOSED_AT_ONCE_BYTES {
            // Calls that still run keep it until they are over.
            *kept = None;
        } else {
            machine.want_collection();
        }
    }

    /// Begins to load code, whose first line is read already.
    pub fn load(&self, code: &[u8], heading: &Heading) -> Result<Loading> {
        Loading::new(&self.machine(), self.visible.version, &code[heading.bytes..])
    }

    /// The library as this shard has it, if it has loaded it.
    pub fn loaded(&self, library: &Arc<Library>) -> Option<Rc<Loaded>> {
        let loaded = self.loaded.borrow();
        loaded.get(&library.name).filter(|loaded| Arc::ptr_eq(&loaded.library, library)).cloned()
    }

    /// Keeps what was loaded of a library, while the library is in the catalog; what was kept first stays.
    pub fn keep(&self, loaded: Loaded) -> Rc<Loaded> {
        self.refresh();
        if let Some(before) = self.loaded(&loaded.library) {
            return before;
        }
        let loaded = Rc::new(loaded);
        let library = &loaded.library;
        if self.catalog.borrow().library(&library.name).is_some_and(|of| Arc::ptr_eq(of, library)) {
            self.loaded.borrow_mut().insert(library.name.clone(), loaded.clone());
            self.machine.borrow_mut().get_or_insert_with(|| loaded.closures.machine.clone());
        }
        loaded
    }

    /// Gives a library up as it is loaded here, with whatever its functions have kept: it is loaded anew.
    pub fn forget(&self, of: &Rc<Loaded>) {
        let mut loaded = self.loaded.borrow_mut();
        if loaded.get(&of.library.name).is_some_and(|kept| Rc::ptr_eq(kept, of)) {
            loaded.remove(&of.library.name);
            of.closures.machine.want_collection();
        }
    }

    /// On which functions run, if there are any.
    pub fn loaded_machine(&self) -> Option<Rc<Machine>> {
        self.machine.borrow().clone()
    }

    /// Bytes that Lua uses for functions here.
    pub fn machine_bytes(&self) -> usize {
        self.machine.borrow().as_ref().map_or(0, |machine| machine.memory().used())
    }
}
