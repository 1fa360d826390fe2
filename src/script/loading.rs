//! A library's code that runs, to say which functions there are: `redis.register_function`.

use super::api::{install_for_loading, misuse};
use super::header::Flags;
use super::libraries::{Declared, NOT_A_NAME, is_name};
use super::shelf::Conduct;
use crate::config::RedisVersion;
use crate::lua::{Busy, Chunk, Lua, Machine, Raise, Returned, Run, Type, upvalue};
use crate::resp::{Error, Result};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// For how long a library's code may run. (Until it is compiled its length is what bounds it.)
const LIMIT: Duration = Duration::from_millis(500);

/// The functions that code has registered, and how they are called.
pub type Registered = (Vec<Declared>, Closures);

/// Functions of Lua's, kept by their machine.
pub struct Closures {
    pub machine: Rc<Machine>,
    chunks: Vec<Chunk>,
}

impl Closures {
    /// Pushes one of them.
    pub fn push(&self, lua: Lua, index: usize) {
        self.machine.push(lua, &self.chunks[index]);
    }
}

impl Drop for Closures {
    fn drop(&mut self) {
        self.chunks.drain(..).for_each(|chunk| self.machine.forget(chunk));
    }
}

pub struct Loading {
    machine: Rc<Machine>,
    run: Run,
    busy: Option<Busy>,
    end: Rc<RefCell<Option<Result<Registered>>>>,
    is_compiled: Rc<Cell<bool>>,
    ran: Duration,
}

impl Loading {
    /// Begins with code, of which nothing was compiled: that, too, is done in slices.
    pub fn new(machine: &Rc<Machine>, version: RedisVersion, code: &[u8]) -> Result<Loading> {
        let worker = machine.worker().map_err(|_| Error::text("ERR not enough memory for another script"))?;
        let lua = worker.lua;
        // What is registered; the table behind the code's globals, the globals.
        lua.new_table(0, 0);
        machine.push_globals(lua);
        lua.copy(BEHIND);
        lua.copy(REGISTERED);
        lua.push_closure(register_function, 1);
        install_for_loading(lua, version);
        lua.pop(1);
        let (end, is_compiled) = (Rc::<RefCell<Option<_>>>::default(), Rc::<Cell<bool>>::default());
        let (of_run, of_machine, compiled, code) =
            (end.clone(), machine.clone(), is_compiled.clone(), Box::<[u8]>::from(code));
        let (run, busy) = machine.start(worker, move |lua| {
            let registered = match lua.load(&code, c"@user_function") {
                Err(Raise) => {
                    let error = lua.to_bytes(-1).unwrap_or(b"not enough memory");
                    Err(Error::quoting(&[b"ERR Error compiling function: ", error]))
                }
                Ok(()) => {
                    compiled.set(true);
                    lua.copy(GLOBALS);
                    lua.set_environment(-2);
                    match lua.call(0, 0) {
                        Ok(()) => Ok(take_registered(lua, of_machine)),
                        Err(Raise) => Err(Error::quoting(&[b"ERR Error registering functions: ", &error_text(lua)])),
                    }
                }
            };
            of_run.replace(Some(registered));
        });
        Ok(Loading { machine: machine.clone(), run, busy: Some(busy), end, is_compiled, ran: Duration::ZERO })
    }

    /// Goes on for some time. What the code has registered, if it is over.
    pub fn go_on(&mut self, slice: Duration) -> Option<Result<Registered>> {
        let (began, runs) = (Instant::now(), self.is_compiled.get());
        let slice = if self.ran < LIMIT {
            Some(slice)
        } else {
            self.run.kill(b"FUNCTION LOAD timeout");
            None
        };
        self.run.go_on(slice);
        if runs {
            self.ran += began.elapsed();
        }
        self.end.take()
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        if let Some(busy) = self.busy.take() {
            self.run.give_up();
            self.machine.take_back(&mut self.run, busy);
        }
    }
}

/// Places on the stack of code that is loaded.
const REGISTERED: i32 = 1;
const BEHIND: i32 = 2;
const GLOBALS: i32 = 3;
/// The place in the table of what is registered that tells that no more can be.
const IS_OVER: i32 = 0;

/// What was registered. From now on the functions see what functions see.
fn take_registered(lua: Lua, machine: Rc<Machine>) -> Registered {
    lua.push_bool(true);
    lua.raw_set_index(REGISTERED, IS_OVER);
    lua.set_top(GLOBALS);
    machine.fill_globals(lua);
    let (mut functions, mut chunks) = (Vec::new(), Vec::new());
    for index in 1.. {
        lua.set_top(GLOBALS);
        lua.raw_get_index(REGISTERED, index);
        if !lua.is(-1, Type::Table) {
            break;
        }
        let entry = lua.top();
        let text = |name| {
            lua.field(entry, name);
            lua.bytes(-1).map(Box::from)
        };
        let (name, description) = (text("name").unwrap_or_default(), text("description"));
        lua.field(entry, "flags");
        let flags = Flags::of_bits(lua.number(-1).unwrap_or_default() as u8);
        lua.field(entry, "callback");
        functions.push(Declared { name, description, flags, conduct: Conduct::default() });
        chunks.push(machine.keep(lua));
    }
    (functions, Closures { machine, chunks })
}

/// The error that code has ended with, which is on top of the stack.
fn error_text(lua: Lua) -> Vec<u8> {
    if lua.is(-1, Type::Table) {
        lua.field(-1, "err");
        lua.to_bytes(-1).unwrap_or(b"ERR unknown error").to_vec()
    } else {
        [b"ERR ", lua.to_bytes(-1).unwrap_or(b"unknown error")].concat()
    }
}

/// What `redis.register_function` is called with.
#[derive(Default)]
struct Registration {
    name: Option<Vec<u8>>,
    description: Option<Vec<u8>>,
    flags: Flags,
    has_callback: bool,
}

/// The one upvalue is the table of what is registered: entries by number, and names in lower case.
fn register_function(lua: Lua) -> Returned {
    let registered = upvalue(1);
    lua.raw_get_index(registered, IS_OVER);
    if !lua.is(-1, Type::Nil) {
        return misuse(lua, "ERR redis.register_function can only be called on FUNCTION LOAD command");
    }
    lua.pop(1);
    let read = match lua.top() {
        1 => read_named(lua),
        2 => read_positional(lua),
        _ => Err("ERR wrong number of arguments to redis.register_function"),
    };
    let registration = match read {
        Ok(registration) => registration,
        Err(text) => return misuse(lua, text),
    };
    let name = registration.name.unwrap_or_default();
    if !is_name(&name) {
        return misuse(lua, NOT_A_NAME);
    }
    // The callback is on top of the stack.
    let callback = lua.top();
    lua.push_bytes(name.to_ascii_lowercase());
    lua.copy(-1);
    lua.raw_get(registered);
    if !lua.is(-1, Type::Nil) {
        return misuse(lua, "ERR Function already exists in the library");
    }
    lua.pop(1);
    lua.push_bool(true);
    lua.raw_set(registered);
    lua.new_table(0, 4);
    let entry = lua.top();
    lua.push_bytes(&name);
    lua.set_field(entry, "name");
    if let Some(description) = &registration.description {
        lua.push_bytes(description);
        lua.set_field(entry, "description");
    }
    lua.push_number(f64::from(registration.flags.bits()));
    lua.set_field(entry, "flags");
    lua.copy(callback);
    lua.set_field(entry, "callback");
    let count = lua.raw_len(registered) as i32;
    lua.raw_set_index(registered, count + 1);
    drop((name, registration.description));
    lua.check_memory(0)?;
    lua.checkpoint(500)?;
    Ok(0)
}

type Read = std::result::Result<Registration, &'static str>;

fn read_positional(lua: Lua) -> Read {
    let Some(name) = lua.to_bytes(1) else {
        return Err("ERR first argument to redis.register_function must be a string");
    };
    if !lua.is(2, Type::Function) {
        return Err("ERR second argument to redis.register_function must be a function");
    }
    Ok(Registration { name: Some(name.to_vec()), ..Registration::default() })
}

/// Reads a table of named arguments, and leaves the callback on top of the stack.
fn read_named(lua: Lua) -> Read {
    const TABLE: i32 = 1;
    const CALLBACK: i32 = 2;
    if !lua.is(TABLE, Type::Table) {
        return Err("ERR calling redis.register_function with a single argument is only applicable to Lua table \
                    (representing named arguments).");
    }
    let mut registration = Registration::default();
    lua.push_nil();
    lua.push_nil();
    while lua.next(TABLE) {
        // A number as a key would become a string where it stands.
        lua.copy(-2);
        let Some(key) = lua.to_bytes(-1).map(<[u8]>::to_ascii_lowercase) else {
            return Err("ERR named argument key given to redis.register_function is not a string");
        };
        lua.pop(1);
        match &*key {
            b"function_name" => {
                let Some(name) = lua.to_bytes(-1) else {
                    return Err("ERR function_name argument given to redis.register_function must be a string");
                };
                registration.name = Some(name.to_vec());
            }
            b"description" => {
                let Some(description) = lua.to_bytes(-1) else {
                    return Err("ERR description argument given to redis.register_function must be a string");
                };
                registration.description = Some(description.to_vec());
            }
            b"callback" => {
                if !lua.is(-1, Type::Function) {
                    return Err("ERR callback argument given to redis.register_function must be a function");
                }
                registration.has_callback = true;
                lua.copy(-1);
                lua.replace(CALLBACK);
            }
            b"flags" => {
                if !lua.is(-1, Type::Table) {
                    return Err("ERR flags argument to redis.register_function must be a table representing function \
                                flags");
                }
                registration.flags = read_flags(lua).ok_or("ERR unknown flag given")?;
            }
            _ => return Err("ERR unknown argument given to redis.register_function"),
        }
        lua.pop(1);
    }
    if registration.name.is_none() {
        return Err("ERR redis.register_function must get a function name argument");
    }
    if !registration.has_callback {
        return Err("ERR redis.register_function must get a callback argument");
    }
    Ok(registration)
}

/// The flags in the array on top of the stack, if all of them are known.
fn read_flags(lua: Lua) -> Option<Flags> {
    let (table, mut flags) = (lua.top(), Flags::default());
    for index in 1.. {
        lua.raw_get_index(table, index);
        if lua.is(-1, Type::Nil) {
            break;
        }
        flags.insert(Flags::of_any_case(lua.to_bytes(-1)?)?);
        lua.pop(1);
    }
    lua.set_top(table);
    Some(flags)
}
