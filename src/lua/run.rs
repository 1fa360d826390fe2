//! A piece of Lua code that runs on a stack of its own, so that it can be suspended wherever it is: in a function of ours,
//! or after some thousand instructions, also within `pcall`, or within what `string.gsub` calls, where Lua 5.1 itself
//! could not.
//!
//! All runs of a machine share its heap; each has a Lua thread and a C stack. One of them runs at a time, the others stand
//! still in one of the two places named above, where Lua expects that anything may have happened when it goes on.

use super::ffi;
use super::memory;
use super::state::{Lua, Raise};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Lua is asked to look up after so many instructions, which take some 50 microseconds.
const INSTRUCTIONS_A_LOOK: i32 = 10_000;
/// A function of ours is asked to after so many steps.
const STEPS_A_LOOK: usize = 50_000;

const TOO_LONG: &[u8] = b"the script has run for more instructions than it may";

/// Why a run stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// It has had its time.
    Slice,
    /// A function of ours waits for something ([`wait`]).
    Waits,
}

/// What is known of a run while it runs and while it stands still.
#[derive(Default)]
struct State {
    yielder: Cell<Option<*const Yielder<(), Pause>>>,
    slice_ends: Cell<Option<Instant>>,
    /// Looks that it has left before it is ended.
    looks_left: Cell<Option<u64>>,
    /// It must not go on, for this reason.
    killed: RefCell<Option<Rc<[u8]>>>,
}

thread_local! {
    /// The run that runs now.
    static CURRENT: Cell<*const State> = const { Cell::new(std::ptr::null()) };
    /// Steps that functions of ours may take before they look up.
    static STEPS_LEFT: Cell<usize> = const { Cell::new(STEPS_A_LOOK) };
}

pub struct Run {
    coroutine: Option<Coroutine<(), Pause, (), DefaultStack>>,
    state: Rc<State>,
    lua: Lua,
}

impl Run {
    /// A run that has not begun, on a stack that nobody else uses, and a thread of Lua's likewise.
    pub fn new(lua: Lua, stack: DefaultStack, body: impl FnOnce(Lua) + 'static) -> Run {
        let state = Rc::<State>::default();
        let of_run = state.clone();
        let coroutine = Coroutine::with_stack(stack, move |yielder: &Yielder<(), Pause>, ()| {
            of_run.yielder.set(Some(std::ptr::from_ref(yielder)));
            body(lua);
        });
        set_hook(lua, INSTRUCTIONS_A_LOOK);
        Run { coroutine: Some(coroutine), state, lua }
    }

    /// It is ended after so many instructions, which are counted in steps of [`INSTRUCTIONS_A_LOOK`]; after none where this is
    /// 0. What functions of ours do counts by the time that it takes.
    pub fn set_instructions(&self, most: u64) {
        let looks = most.div_ceil(INSTRUCTIONS_A_LOOK as u64);
        self.state.looks_left.set((most > 0).then_some(looks));
    }

    /// Runs for so long, or until it waits for something: then it is said why it stands still. `None` means that it is
    /// over.
    pub fn go_on(&mut self, slice: Option<Duration>) -> Option<Pause> {
        let coroutine = self.coroutine.as_mut()?;
        self.state.slice_ends.set(slice.map(|slice| Instant::now() + slice));
        let before = CURRENT.replace(Rc::as_ptr(&self.state));
        let result = coroutine.resume(());
        CURRENT.set(before);
        match result {
            CoroutineResult::Yield(pause) => Some(pause),
            CoroutineResult::Return(()) => None,
        }
    }

    pub fn is_over(&self) -> bool {
        self.coroutine.as_ref().is_none_or(Coroutine::done)
    }

    /// It is ended where it stands: whatever it tries from now on fails with this error.
    pub fn kill(&self, because: &[u8]) {
        self.state.killed.replace(Some(because.into()));
        set_hook(self.lua, 1);
    }

    /// The thread and the stack of a run that is over, for another.
    pub fn take_parts(&mut self) -> Option<(Lua, DefaultStack)> {
        let coroutine = self.coroutine.take_if(|coroutine| coroutine.done())?;
        Some((self.lua, coroutine.into_stack()))
    }
}

impl Run {
    /// Nobody wants it any more: it ends where it stands. Frames on its stack have things to drop, so that they must come to
    /// their end.
    pub fn give_up(&mut self) {
        while !self.is_over() {
            self.kill(b"the script is given up");
            self.go_on(None);
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl Lua {
    /// To be called by functions that may take long, with how much they have done since the last call, in steps that take
    /// about a nanosecond each: the script may be suspended here, or be killed.
    #[inline]
    pub fn checkpoint(self, steps: usize) -> Result<(), Raise> {
        if spend(steps) { pause_here(self) } else { Ok(()) }
    }
}

/// Suspends the run that runs now: a function of ours waits for something. An error is on top of the stack where the run
/// was killed meanwhile.
pub fn wait(lua: Lua) -> Result<(), Raise> {
    with_current(|state| suspend(state, Pause::Waits));
    check_killed(lua)
}

/// Counts steps; whether it is time to look up.
#[inline]
pub fn spend(steps: usize) -> bool {
    let left = STEPS_LEFT.get();
    STEPS_LEFT.set(left.saturating_sub(steps));
    left <= steps
}

/// Looks up: suspends the run if it has had its time.
#[cold]
pub fn pause_here(lua: Lua) -> Result<(), Raise> {
    STEPS_LEFT.set(STEPS_A_LOOK);
    with_current(|state| {
        if let Some(left) = state.looks_left.get() {
            state.looks_left.set(Some(left.saturating_sub(1)));
            if left == 0 {
                state.killed.borrow_mut().get_or_insert_with(|| TOO_LONG.into());
            }
        }
        if state.slice_ends.get().is_some_and(|ends| Instant::now() >= ends) {
            suspend(state, Pause::Slice);
        }
    });
    check_killed(lua)
}

/// An error where the run was killed: then nothing more is to be done for it.
pub fn check_killed(lua: Lua) -> Result<(), Raise> {
    let killed = with_current(|state| state.killed.borrow().clone()).flatten();
    match killed {
        None => Ok(()),
        Some(because) => {
            // The thread may be one that the script has made.
            set_hook(lua, 1);
            lua.push_bytes(&because);
            Err(Raise)
        }
    }
}

fn with_current<R>(work: impl FnOnce(&State) -> R) -> Option<R> {
    let current = CURRENT.get();
    // SAFETY: it is set while its run goes on, which keeps it.
    (!current.is_null()).then(|| work(unsafe { &*current }))
}

fn suspend(state: &State, pause: Pause) {
    if let Some(yielder) = state.yielder.get() {
        // SAFETY: it lives on the run's stack, which is the one that runs.
        unsafe { &*yielder }.suspend(pause);
    }
}

fn set_hook(lua: Lua, instructions: i32) {
    // SAFETY: it only sets fields of the state.
    unsafe { ffi::lua_sethook(lua.0, Some(hook), ffi::LUA_MASKCOUNT, instructions) };
}

/// Lua calls this after some instructions.
unsafe extern "C-unwind" fn hook(state: *mut ffi::lua_State, _: *mut ffi::lua_Debug) {
    memory::enter_native();
    let result = pause_here(Lua(state));
    memory::leave_native();
    if result.is_err() {
        // SAFETY: this frame has nothing to drop, so that the jump may pass over it.
        unsafe { ffi::lua_error(state) };
    }
}
