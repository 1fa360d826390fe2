//! The libraries of functions. Shards share their sources; each loads for itself what it calls.

use super::header::Flags;
use super::shelf::Conduct;
use crate::config::split_arguments;
use crate::resp::{Error, Result, printable};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a library's code has said of one of its functions.
pub struct Declared {
    pub name: Box<[u8]>,
    pub description: Option<Box<[u8]>>,
    pub flags: Flags,
    pub conduct: Conduct,
}

pub struct Library {
    pub name: Box<[u8]>,
    /// With its first line.
    pub code: Box<[u8]>,
    /// In the order in which they were registered; their names differ, in whatever case.
    pub functions: Vec<Declared>,
}

/// A function of a library.
#[derive(Clone)]
pub struct Function {
    pub library: Arc<Library>,
    pub index: usize,
}

impl Function {
    pub fn declared(&self) -> &Declared {
        &self.library.functions[self.index]
    }
}

/// All libraries at one moment.
#[derive(Clone, Default)]
pub struct Catalog {
    libraries: BTreeMap<Box<[u8]>, Arc<Library>>,
    /// By their names in lower case.
    functions: HashMap<Box<[u8]>, Function, ahash::RandomState>,
}

/// The catalog that is in force. Who has a copy sees by one number whether it still is.
#[derive(Default)]
pub struct Libraries {
    catalog: Mutex<Arc<Catalog>>,
    changes: AtomicU64,
}

impl Libraries {
    fn lock(&self) -> MutexGuard<'_, Arc<Catalog>> {
        // What is behind the lock is changed by one assignment.
        self.catalog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn catalog(&self) -> Arc<Catalog> {
        self.lock().clone()
    }

    /// How often the catalog was changed.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Puts another catalog in the place of the one in force, unless there is an error.
    pub fn change(&self, change: impl FnOnce(&Catalog) -> Result<Catalog>) -> Result {
        let mut catalog = self.lock();
        let changed = Arc::new(change(&catalog)?);
        let before = std::mem::replace(&mut *catalog, changed);
        self.changes.fetch_add(1, Ordering::Release);
        // The lock goes first: there may be much to give up.
        drop(catalog);
        drop(before);
        Ok(())
    }
}

impl Catalog {
    pub fn library(&self, name: &[u8]) -> Option<&Arc<Library>> {
        self.libraries.get(name)
    }

    /// By name.
    pub fn libraries(&self) -> impl ExactSizeIterator<Item = &Arc<Library>> {
        self.libraries.values()
    }

    pub fn functions(&self) -> usize {
        self.functions.len()
    }

    /// The function of this name, in whatever case.
    pub fn function(&self, name: &[u8]) -> Option<&Function> {
        self.functions.get(name).or_else(|| self.functions.get(name.to_ascii_lowercase().as_slice()))
    }

    /// With these libraries, which take the place of others of their names where that is wanted.
    pub fn with(&self, libraries: &[Arc<Library>], replace: bool) -> Result<Catalog> {
        let mut catalog = self.clone();
        for library in libraries {
            if catalog.remove(&library.name) && !replace {
                return Err(Error::quoting(&[b"ERR Library ", &library.name, b" already exists"]));
            }
        }
        for library in libraries {
            for (index, declared) in library.functions.iter().enumerate() {
                let function = Function { library: library.clone(), index };
                if catalog.functions.insert(declared.name.to_ascii_lowercase().into(), function).is_some() {
                    return Err(Error::quoting(&[b"ERR Function ", &declared.name, b" already exists"]));
                }
            }
            catalog.libraries.insert(library.name.clone(), library.clone());
        }
        Ok(catalog)
    }

    /// Without the library of this name, if there is one.
    pub fn without(&self, name: &[u8]) -> Option<Catalog> {
        let mut catalog = self.clone();
        catalog.remove(name).then_some(catalog)
    }

    fn remove(&mut self, name: &[u8]) -> bool {
        let Some(library) = self.libraries.remove(name) else { return false };
        self.functions.retain(|_, function| !Arc::ptr_eq(&function.library, &library));
        true
    }

    /// Bytes of all libraries.
    pub fn bytes(&self) -> usize {
        self.libraries.values().map(|library| library.bytes()).sum()
    }
}

impl Library {
    fn bytes(&self) -> usize {
        let of_function = |function: &Declared| {
            size_of::<Declared>() + function.name.len() + function.description.as_ref().map_or(0, |text| text.len())
        };
        let functions: usize = self.functions.iter().map(of_function).sum();
        size_of::<Library>() + self.name.len() + self.code.len() + functions
    }
}

/// What the first line of a library's code says.
pub struct Heading {
    pub name: Box<[u8]>,
    /// Bytes before the code, whose first line is empty then, so that lines are counted right.
    pub bytes: usize,
}

impl Heading {
    pub fn parse(code: &[u8]) -> Result<Heading> {
        const INVALID: Error = Error::text("ERR Invalid library metadata");
        if !code.starts_with(b"#!") {
            return Err(Error::text("ERR Missing library metadata"));
        }
        let bytes = memchr::memchr(b'\n', code).ok_or(INVALID)?;
        let words = split_arguments(&code[..bytes]).ok_or(INVALID)?;
        let (engine, words) = words.split_first().ok_or(INVALID)?;
        let mut name = None;
        for word in words {
            let is_name = word.get(..5).is_some_and(|key| key.eq_ignore_ascii_case(b"name="));
            if !is_name {
                return Err(Error::quoting(&[b"ERR Invalid metadata value given: ", printable(word, usize::MAX)]));
            }
            if name.replace(Box::from(&word[5..])).is_some() {
                return Err(Error::text("ERR Invalid metadata value, name argument was given multiple times"));
            }
        }
        let name: Box<[u8]> = name.ok_or(Error::text("ERR Library name was not given"))?;
        if !is_name(&name) {
            return Err(Error::text(NOT_A_NAME));
        }
        let engine = engine.get(2..).unwrap_or_default();
        if !engine.eq_ignore_ascii_case(b"lua") {
            return Err(Error::quoting(&[b"ERR Engine '", printable(engine, usize::MAX), b"' not found"]));
        }
        Ok(Heading { name, bytes })
    }
}

/// Whether a library or a function may have this name.
pub fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

pub const NOT_A_NAME: &str = "ERR Library names can only contain letters, numbers, or underscores(_) and must be at \
                              least one character long";

#[cfg(test)]
mod tests {
    use super::*;

    fn library(name: &str, functions: &[&str]) -> Arc<Library> {
        let declared = |name: &&str| Declared {
            name: name.as_bytes().into(),
            description: None,
            flags: Flags::default(),
            conduct: Conduct::default(),
        };
        Arc::new(Library {
            name: name.as_bytes().into(),
            code: b"code".as_slice().into(),
            functions: functions.iter().map(declared).collect(),
        })
    }

    #[test]
    fn libraries_share_the_names_of_functions() {
        let one = Catalog::default().with(&[library("one", &["f", "g"])], false).expect("new names");
        let refused =
            |catalog: &Catalog, of, replace| catalog.with(&[of], replace).err().map(|error| error.to_string());
        assert_eq!(refused(&one, library("one", &["h"]), false).as_deref(), Some("ERR Library one already exists"));
        assert_eq!(refused(&one, library("two", &["F"]), true).as_deref(), Some("ERR Function F already exists"));
        let replaced = one.with(&[library("one", &["G"]), library("two", &["f"])], true).expect("new names");
        assert_eq!(&*replaced.function(b"F").expect("there").library.name, b"two");
        assert_eq!(&*replaced.function(b"g").expect("there").declared().name, b"G");
        let without = replaced.without(b"one").expect("there");
        assert!(without.function(b"g").is_none() && without.without(b"one").is_none());
        assert_eq!((without.functions(), without.libraries().len()), (1, 1));
    }

    #[test]
    fn the_first_line_names_the_library() {
        let parsed =
            |code: &str| Heading::parse(code.as_bytes()).map(|heading| heading.name).map_err(|e| e.to_string());
        assert_eq!(parsed("#!LUA  Name=\"ab\"\n"), Ok(b"ab".as_slice().into()));
        let error = |code: &str| parsed(code).expect_err("refused");
        assert_eq!(error("x"), "ERR Missing library metadata");
        assert_eq!(error("#!lua name=a"), "ERR Invalid library metadata");
        assert_eq!(error("#!lua name='a\n"), "ERR Invalid library metadata");
        assert_eq!(error("#!lua\n"), "ERR Library name was not given");
        assert_eq!(error("#!lua name=\n"), NOT_A_NAME);
        assert_eq!(error("#!js name=a\n"), "ERR Engine 'js' not found");
        assert_eq!(error("#! lua name=a\n"), "ERR Invalid metadata value given: lua");
        assert_eq!(
            error("#!lua name=a NAME=b\n"),
            "ERR Invalid metadata value, name argument was given multiple times"
        );
    }
}
