//! A heap of Lua's, its compiled chunks, and the threads and stacks on which they run.

use super::ffi;
use super::memory::{ALLOCATE, Memory, enter_native};
use super::run::Run;
use super::sandbox;
use super::state::{GLOBALS, Lua};
use corosensei::stack::DefaultStack;
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
    kept: Kept,
}

/// What becomes of a worker while its run goes on.
pub struct Busy(Kept);

/// A worker's thread, its globals and the table behind them, in the registry.
struct Kept {
    thread: i32,
    behind: i32,
    globals: i32,
}

pub struct Machine {
    main: Lua,
    memory: Box<Memory>,
    /// The functions and tables that every script sees, in the registry.
    visible: i32,
    /// Scripts may give their thread other globals (`setfenv(0, ...)`).
    may_change_globals: bool,
    spare: RefCell<Vec<Worker>>,
    /// What was used when all that nobody needed had been collected.
    collected: Cell<usize>,
    /// The same when nothing ran: what a run still had in use says nothing once it is over.
    collected_idle: Cell<usize>,
    /// Runs that have begun and are not over.
    running: Cell<usize>,
    /// The round of collecting that goes on is the second one: see [`Machine::collect_some`].
    is_second_round: Cell<bool>,
    /// Much has been given up.
    wants_collection: Cell<bool>,
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
        main.field(-1, "setfenv");
        let may_change_globals = !main.is_none_or_nil(-1);
        main.pop(1);
        let visible = main.keep();
        memory.set_limit(limit);
        let used = memory.used();
        Machine {
            main,
            memory,
            visible,
            may_change_globals,
            spare: RefCell::default(),
            collected: Cell::new(used),
            collected_idle: Cell::new(used),
            running: Cell::new(0),
            is_second_round: Cell::new(false),
            wants_collection: Cell::new(false),
        }
    }

    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Compiles source under a name, as errors show it; or the error. It may have an eighth more memory than runs may have:
    /// a heap that a run has filled is collected in slices, and until that is done sources are compiled all the same.
    pub fn compile(&self, source: &[u8], name: &CStr) -> Result<Chunk, Vec<u8>> {
        let limit = self.memory.limit();
        self.memory.set_limit(limit.saturating_add(limit / 8));
        let result = self.compile_within(source, name);
        self.memory.set_limit(limit);
        result
    }

    fn compile_within(&self, source: &[u8], name: &CStr) -> Result<Chunk, Vec<u8>> {
        let mut result = self.main.load(source, name);
        if result.is_err() && self.is_tight() {
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

    /// A thread and a stack for a run. Before it begins all that nobody needs should be collected where that
    /// [is tight](Machine::is_tight).
    pub fn worker(&self) -> std::io::Result<Worker> {
        if let Some(worker) = self.spare.borrow_mut().pop() {
            return Ok(worker);
        }
        let stack = DefaultStack::new(STACK_BYTES)?;
        // SAFETY: memory is never refused here.
        let lua = Lua(unsafe { ffi::lua_newthread(self.main.0) });
        let thread = self.main.keep();
        self.main.push_kept(self.visible);
        let (behind, globals) = sandbox::set_globals(self.main, lua);
        Ok(Worker { lua, stack, kept: Kept { thread, behind, globals } })
    }

    /// Starts something on a worker.
    pub fn start(&self, worker: Worker, body: impl FnOnce(Lua) + 'static) -> (Run, Busy) {
        let Worker { lua, stack, kept } = worker;
        self.running.set(self.running.get() + 1);
        (Run::new(lua, stack, body), Busy(kept))
    }

    /// Takes globals from the thread of a run that is over: the next one would find them in place of its own, and nobody
    /// could collect them until then.
    pub fn clear_globals(&self, busy: &Busy, names: [&str; 2]) {
        self.main.push_kept(busy.0.behind);
        for name in names {
            self.main.push_nil();
            self.main.set_field(-2, name);
        }
        self.main.pop(1);
        self.want_collection();
    }

    /// Takes back the worker of a run that is over.
    pub fn take_back(&self, run: &mut Run, Busy(kept): Busy) {
        self.running.set(self.running.get() - 1);
        if self.running.get() == 0 {
            self.collected.set(self.collected_idle.get());
            self.is_second_round.set(false);
        }
        if let Some((lua, stack)) = run.take_parts() {
            lua.set_top(0);
            let mut spare = self.spare.borrow_mut();
            if spare.len() < SPARE_WORKERS {
                if self.may_change_globals {
                    lua.push_kept(kept.globals);
                    lua.replace(GLOBALS);
                }
                spare.push(Worker { lua, stack, kept });
                return;
            }
        }
        let Kept { thread, behind, globals } = kept;
        [thread, behind, globals].into_iter().for_each(|kept| self.main.drop_kept(kept));
    }

    /// A slice of collecting what nobody needs; whether that was the last one. What was in use when a round began is left
    /// by it, so that there is a second one where the first has left much.
    pub fn collect_some(&self) -> bool {
        enter_native();
        // SAFETY: no value of ours has a finaliser, so that no code runs.
        let is_over = unsafe { ffi::lua_gc(self.main.0, ffi::LUA_GCSTEP, 64) == 1 };
        if !is_over {
            return false;
        }
        if self.is_much() && !self.is_second_round.replace(true) {
            return false;
        }
        self.note_collected();
        true
    }

    /// Whether it is time to collect what nobody needs.
    pub fn wants_collection(&self) -> bool {
        self.wants_collection.get() || self.is_much()
    }

    /// What nobody needs is to be collected soon, since it may be much.
    pub fn want_collection(&self) {
        self.wants_collection.set(true);
    }

    /// Whether there may be too little memory for another run before all that nobody needs is collected.
    pub fn is_tight(&self) -> bool {
        self.memory.is_tight(self.collected.get())
    }

    /// The same for a run with so many bytes of arguments.
    pub fn is_tight_for(&self, bytes: usize) -> bool {
        self.is_tight() || !self.memory.has_room(bytes)
    }

    /// Whether much was used since all that nobody needs was collected.
    fn is_much(&self) -> bool {
        self.memory.used() > self.collected.get() * 2 + COLLECTION_BYTES
    }

    fn note_collected(&self) {
        self.collected.set(self.memory.used());
        if self.running.get() == 0 {
            self.collected_idle.set(self.memory.used());
        }
        self.is_second_round.set(false);
        self.wants_collection.set(false);
        self.memory.note_collected();
    }

    /// Collects all that nobody needs, in one go.
    fn collect(&self) {
        enter_native();
        // SAFETY: as above.
        unsafe { ffi::lua_gc(self.main.0, ffi::LUA_GCCOLLECT, 0) };
        self.note_collected();
    }
}

impl Worker {
    /// Pushes the table in which this thread's globals are looked up.
    pub fn push_globals(&self, lua: Lua) {
        lua.push_kept(self.kept.behind);
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

#[cfg(test)]
mod tests {
    use super::super::trial::eval_on;
    use super::*;

    const LIMIT: usize = 64 << 20;
    const FILL: &str = "local t = {} for i = 1, 1e9 do t[i] = 'value' .. i end";

    fn filled() -> Machine {
        let machine = Machine::new(LIMIT, |_| ());
        assert_eq!(eval_on(&machine, FILL, |_| ()), "error: not enough memory");
        assert!(machine.is_tight());
        machine
    }

    /// Collects everything; in how many slices.
    fn collect(machine: &Machine) -> usize {
        let mut slices = 1;
        while !machine.collect_some() {
            slices += 1;
        }
        slices
    }

    #[test]
    fn a_full_heap_is_collected_in_slices_and_never_in_one_go() {
        let machine = filled();
        let before = machine.memory().used();
        let chunk = machine.compile(b"return 1", c"@user_script").expect("there is some memory for sources");
        let worker = machine.worker().expect("a worker");
        assert!(machine.memory().used() > before / 8 * 7, "a new run does not collect it");
        drop((chunk, worker));
        assert!(collect(&machine) > 20);
        assert!(machine.memory().used() < LIMIT / 8, "{} bytes are left", machine.memory().used());
        assert!(!machine.is_tight() && !machine.wants_collection());
        assert_eq!(eval_on(&machine, "return 1", |_| ()), "1");
    }

    #[test]
    fn what_was_in_use_when_collecting_began_is_collected_too() {
        for slices in [1, 10, 100, 150] {
            let machine = Machine::new(LIMIT, |_| ());
            let hold = "local t = {} for i = 1, 300000 do t[i] = 'value' .. i end \
                        for i = 1, 1e6 do t[i] = i end";
            let mut left = slices;
            eval_on(&machine, hold, |machine| {
                if machine.memory().used() > LIMIT / 4 && left > 0 {
                    left -= 1;
                    machine.collect_some();
                }
            });
            assert_eq!(left, 0, "it was suspended often enough");
            collect(&machine);
            assert!(machine.memory().used() < LIMIT / 8, "{} bytes are left", machine.memory().used());
        }
    }

    #[test]
    fn what_is_given_up_is_collected_soon() {
        let machine = Machine::new(LIMIT, |_| ());
        assert!(!machine.wants_collection());
        machine.want_collection();
        assert!(machine.wants_collection());
        collect(&machine);
        assert!(!machine.wants_collection());
    }
}
