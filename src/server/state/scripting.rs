//! The scripts and functions of one shard: those that are there, and those that run for longer than a moment.

use super::global::Global;
use crate::clock::store_us;
use crate::command::OwnedRequest;
use crate::lua::Machine;
use crate::net::step_back_in_turn;
use crate::resp::Result;
use crate::script::{Functions, Heading, Library, Loaded, Loading, Registered, Scripts, Visible};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// For how long a script runs before others have their turn.
pub const SLICE: Duration = Duration::from_micros(400);
/// The same for a script that is begun while others last: a lot of such may begin in one turn.
const FIRST_SLICE_BESIDE: Duration = Duration::from_micros(50);

/// A script or a function that was suspended, and has more to do.
pub struct Running {
    /// When it began, store microseconds.
    pub began_us: u64,
    /// The name of a function.
    pub function: Option<Box<[u8]>>,
    /// What has called it.
    pub request: Rc<OwnedRequest>,
    pub has_written: Cell<bool>,
    /// Somebody wants it to end.
    pub is_killed: Cell<bool>,
}

pub struct Scripting {
    pub scripts: Rc<Scripts>,
    pub functions: Functions,
    running: RefCell<Vec<Rc<Running>>>,
    /// A task collects what scripts have left.
    pub is_collecting: Cell<bool>,
}

impl Scripting {
    pub fn new(global: &Global) -> Scripting {
        let config = global.config();
        let memory_bytes = config.script_memory_bytes;
        let visible = Visible { version: config.redis_version, deprecated: config.lua_enable_deprecated_api };
        drop(config);
        Scripting {
            scripts: Rc::new(Scripts::new(global.scripts.clone(), memory_bytes, visible)),
            functions: Functions::new(global.libraries.clone(), memory_bytes, visible),
            running: RefCell::default(),
            is_collecting: Cell::new(false),
        }
    }

    pub fn add(&self, running: Rc<Running>) {
        self.running.borrow_mut().push(running);
    }

    pub fn remove(&self, running: &Rc<Running>) {
        self.running.borrow_mut().retain(|of| !Rc::ptr_eq(of, running));
    }

    /// A machine whose garbage is to be collected.
    pub fn untidy(&self) -> Option<Rc<Machine>> {
        let machines = [Some(self.scripts.machine.clone()), self.functions.loaded_machine()];
        machines.into_iter().flatten().find(|machine| machine.wants_collection())
    }

    /// For how long a script runs at first.
    pub fn first_slice(&self) -> Duration {
        if self.running.borrow().is_empty() { SLICE } else { FIRST_SLICE_BESIDE }
    }

    /// Those that run, oldest first.
    pub fn running(&self) -> Vec<Rc<Running>> {
        let mut running = self.running.borrow().clone();
        running.sort_unstable_by_key(|of| of.began_us);
        running
    }

    /// Loads a library that nobody knows yet.
    pub async fn load_new(&self, code: &[u8], heading: Heading, memory_bytes: usize) -> Result<Loaded> {
        self.functions.set_memory_limit(memory_bytes);
        self.make_room_for_library().await;
        let loaded = match self.functions.load(code, &heading) {
            Ok(loading) => finish(loading).await.and_then(|registered| Loaded::new(code, heading, registered)),
            Err(error) => Err(error),
        };
        if loaded.is_err() {
            self.functions.collect();
        }
        loaded
    }

    async fn make_room_for_library(&self) {
        if let Some(machine) = self.functions.loaded_machine() {
            make_room(&machine, 0, u64::MAX).await;
        }
    }

    /// Loads a library that another shard has loaded before.
    pub async fn load_again(&self, library: &Arc<Library>) -> Result<Rc<Loaded>> {
        let heading = Heading::parse(&library.code)?;
        self.make_room_for_library().await;
        let registered = finish(self.functions.load(&library.code, &heading)?).await?;
        Ok(self.functions.keep(Loaded::again(library.clone(), registered)?))
    }
}

/// Waits until all that nobody needs is collected, where another run with so many bytes of arguments might find too little
/// memory before that; whether it is. `patience`: for how long, in microseconds.
pub async fn make_room(machine: &Machine, bytes: usize, patience_us: u64) -> bool {
    if !machine.is_tight_for(bytes) {
        return true;
    }
    let until_us = store_us().saturating_add(patience_us);
    while !collect_for(machine, SLICE) {
        if store_us() >= until_us {
            return false;
        }
        step_back_in_turn().await;
    }
    true
}

/// Collects for so long; whether that was all.
fn collect_for(machine: &Machine, slice: Duration) -> bool {
    let until_us = store_us().saturating_add(slice.as_micros() as u64);
    loop {
        if machine.collect_some() {
            return true;
        }
        if store_us() >= until_us {
            return false;
        }
    }
}

/// Collects all that nobody needs while others have their turns.
pub async fn collect(machine: &Machine) {
    while !machine.collect_some() {
        step_back_in_turn().await;
    }
}

async fn finish(mut loading: Loading) -> Result<Registered> {
    loop {
        if let Some(result) = loading.go_on(SLICE) {
            return result;
        }
        step_back_in_turn().await;
    }
}
