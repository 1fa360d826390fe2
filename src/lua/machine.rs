//! A heap of Lua's, its compiled chunks, and the threads and stacks on which they run.

use super::memory::{ALLOCATE, Memory, enter_native};
use super::run::Run;
use super::sandbox;
use super::state::{Lua, REGISTRY};
use corosensei::stack::DefaultStack;
use mlua_sys as ffi;
use std::cell::{Cell, RefCell};
use std::ffi::CStr;

/// Bytes of a run's stack, of which only those are real that were written to. Lua bounds how deep C calls nest (200).
const STACK_BYTES: usize = 4 << 20;
/// Workers that are kept for the next.
const SPARE_WORKERS: usize = 32;

/// A compiled piece of source, kept by its machine.
#[derive(Debug, PartialEq, Eq)]
pub struct Chunk(i32);

/// A thread of Lua's with globals of its own, and a stack to run on.
pub struct Worker {
    pub lua: Lua,
    stack: DefaultStack,
    /// The thread and the table of its globals, in the registry.
    thread: i32,
    globals: i32,
}

/// What becomes of a worker while its run goes on.
pub struct Busy {
    thread: i32,
    globals: i32,
}

pub struct Machine {
    main: Lua,
    memory: Box<Memory>,
    /// The functions and tables that every script sees, in the registry.
    visible: i32,
    spare: RefCell<Vec<Worker>>,
    /// What was used when a round of collecting was over.
    collected: Cell<usize>,
}

/// Less than this is not worth a round of collecting.
const COLLECTION_BYTES: usize = 4 << 20;

impl Machine {
    /// A machine whose code may use so many bytes. `install` adds tables and functions to those that every script sees: the
    /// table of these is on top of the stack.
    pub fn new(limit: usize, install: impl FnOnce(Lua)) -> Machine {
        let memory = Box::new(Memory::new(usize::MAX));
        enter_native();
        // SAFETY: the memory is kept as long as the machine, at one place.
        let state = unsafe { ffi::lua_newstate(ALLOCATE, std::ptr::from_ref(&*memory).cast_mut().cast()) };
        assert!(!state.is_null(), "there is memory for a Lua state");
        let main = Lua(state);
        sandbox::open(main, install);
        let visible = main.keep();
        memory.set_limit(limit);
        let collected = Cell::new(memory.used());
        Machine { main, memory, visible, spare: RefCell::default(), collected }
    }

    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Compiles source under a name, as errors show it; or the error.
    pub fn compile(&self, source: &[u8], name: &CStr) -> Result<Chunk, Vec<u8>> {
        let mut result = self.main.load(source, name);
        if result.is_err() && self.memory.is_tight(self.collected.get()) {
            // Lua collects nothing before it fails.
            self.main.pop(1);
            self.collect();
            result = self.main.load(source, name);
        }
        if result.is_err() {
            let error = self.main.to_bytes(-1).unwrap_or(b"not enough memory").to_vec();
            self.main.pop(1);
            return Err(error);
        }
        Ok(Chunk(self.main.keep()))
    }

    /// Pushes a chunk's function.
    pub fn push(&self, lua: Lua, chunk: &Chunk) {
        lua.push_kept(chunk.0);
    }

    /// Keeps the value on top of a stack.
    pub fn keep(&self, lua: Lua) -> Chunk {
        Chunk(lua.keep())
    }

    pub fn forget(&self, chunk: Chunk) {
        self.main.drop_kept(chunk.0);
    }

    /// Pushes globals for code that has its own: see [`sandbox::push_globals`].
    pub fn push_globals(&self, lua: Lua) {
        sandbox::push_globals(lua);
    }

    /// Gives those globals, which are on top of the stack, what every script sees.
    pub fn fill_globals(&self, lua: Lua) {
        lua.push_kept(self.visible);
        sandbox::fill_globals(lua);
    }

    /// A thread and a stack for a run.
    pub fn worker(&self) -> std::io::Result<Worker> {
        if self.memory.is_tight(self.collected.get()) {
            self.collect();
        }
        if let Some(worker) = self.spare.borrow_mut().pop() {
            return Ok(worker);
        }
        let stack = DefaultStack::new(STACK_BYTES)?;
        // SAFETY: memory is never refused here.
        let lua = Lua(unsafe { ffi::lua_newthread(self.main.0) });
        let thread = self.main.keep();
        self.main.push_kept(self.visible);
        let globals = sandbox::set_globals(self.main, lua);
        Ok(Worker { lua, stack, thread, globals })
    }

    /// Starts something on a worker.
    pub fn start(&self, worker: Worker, body: impl FnOnce(Lua) + 'static) -> (Run, Busy) {
        let Worker { lua, stack, thread, globals } = worker;
        (Run::new(lua, stack, body), Busy { thread, globals })
    }

    /// Takes back the worker of a run that is over.
    pub fn take_back(&self, run: &mut Run, Busy { thread, globals }: Busy) {
        if let Some((lua, stack)) = run.take_parts() {
            lua.set_top(0);
            let mut spare = self.spare.borrow_mut();
            if spare.len() < SPARE_WORKERS {
                spare.push(Worker { lua, stack, thread, globals });
                return;
            }
        }
        self.main.drop_kept(thread);
        self.main.drop_kept(globals);
    }

    /// A slice of collecting what nobody needs; whether that was the last of a round.
    pub fn collect_some(&self) -> bool {
        enter_native();
        // SAFETY: no value of ours has a finaliser, so that no code runs.
        let is_over = unsafe { ffi::lua_gc(self.main.0, ffi::LUA_GCSTEP, 64) == 1 };
        if is_over {
            self.collected.set(self.memory.used());
        }
        is_over
    }

    /// Whether so much was used since all that nobody needs was collected that it is time to do so again.
    pub fn wants_collection(&self) -> bool {
        self.memory.used() > self.collected.get() * 2 + COLLECTION_BYTES
    }

    /// Collects all that nobody needs.
    pub fn collect(&self) {
        enter_native();
        // SAFETY: as above.
        unsafe { ffi::lua_gc(self.main.0, ffi::LUA_GCCOLLECT, 0) };
        self.collected.set(self.memory.used());
    }
}

impl Worker {
    /// Pushes the table in which this thread's globals are looked up.
    pub fn push_globals(&self, lua: Lua) {
        lua.raw_get_index(REGISTRY, self.globals);
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.spare.borrow_mut().clear();
        enter_native();
        // SAFETY: nobody runs on it any more, since runs are owned by those who own the machine.
        unsafe { ffi::lua_close(self.main.0) };
    }
}
