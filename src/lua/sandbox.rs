//! What scripts see of Lua.
//!
//! Scripts share a heap, but nothing that one of them could change and another see: the tables of functions are hidden
//! behind proxies that are empty and refuse to be filled, each thread has globals of its own, and what could get around
//! that (`rawset`, `setmetatable`, `table.insert`) knows the proxies. (Redis has a Lua of its own, whose tables can be
//! marked as read-only.)

use super::ffi;
use super::output::Held;
use super::proxies::{check_writable, protect, push_hidden};
use super::run::check_killed;
use super::state::{ALL_RESULTS, GLOBALS, Lua, Raise, Returned, Type};
use super::{bits, cjson, cmsgpack, packing, random, strings, tables};
use std::ffi::{CString, c_int};

/// Globals of Lua's own that scripts see.
const VISIBLE: &[&str] = &[
    "_VERSION",
    "assert",
    "collectgarbage",
    "coroutine",
    "error",
    "gcinfo",
    "getmetatable",
    "ipairs",
    "load",
    "loadstring",
    "math",
    "next",
    "pairs",
    "pcall",
    "rawequal",
    "rawget",
    "rawset",
    "select",
    "setmetatable",
    "string",
    "table",
    "tonumber",
    "tostring",
    "type",
    "unpack",
    "xpcall",
];
/// What Lua's later versions have no more, and who may change what others' code sees can do harm with: scripts see it where
/// they are told to.
const DEPRECATED: &[&str] = &["getfenv", "newproxy", "setfenv"];
/// Tables among them.
const LIBRARIES: &[&str] = &["coroutine", "math", "string", "table"];

/// A library's name, and what opens it.
type Library = (&'static str, fn(Lua));

/// Opens the libraries and leaves the table of what scripts see on the stack.
pub fn open(lua: Lua, install: impl FnOnce(Lua)) {
    type Open = unsafe extern "C-unwind" fn(*mut ffi::lua_State) -> c_int;
    let libraries: [(&std::ffi::CStr, Open); 4] = [
        (c"", ffi::luaopen_base),
        (c"table", ffi::luaopen_table),
        (c"string", ffi::luaopen_string),
        (c"math", ffi::luaopen_math),
    ];
    for (name, open) in libraries {
        // SAFETY: this is how they are to be called; nothing is refused them.
        unsafe {
            ffi::lua_pushcclosure(lua.0, open, 0);
            ffi::lua_pushlstring(lua.0, name.as_ptr(), name.count_bytes());
            ffi::lua_call(lua.0, 1, 0);
        }
    }
    lua.new_table(0, 64);
    for name in VISIBLE {
        lua.field(GLOBALS, name);
        lua.set_field(-2, name);
    }
    set_functions(lua);
    let changed: [Library; 3] = [("string", strings::open), ("table", tables::open), ("math", random::open)];
    for (name, open) in changed {
        lua.field(-1, name);
        open(lua);
        lua.pop(1);
    }
    let added: [Library; 5] = [
        ("bit", bits::open),
        ("cjson", cjson::open),
        ("cmsgpack", cmsgpack::open),
        ("os", open_os),
        ("struct", packing::open),
    ];
    for (name, open) in added {
        open(lua);
        protect(lua);
        lua.set_field(-2, name);
    }
    install(lua);
    for name in LIBRARIES {
        lua.field(-1, name);
        protect(lua);
        lua.set_field(-2, name);
    }
    // Methods of strings are looked up in the table that scripts see, so that it is theirs.
    lua.push_bytes("");
    lua.metatable(-1);
    lua.field(-3, "string");
    lua.set_field(-2, "__index");
    lua.pop(2);
}

/// Adds the deprecated functions to the table of what scripts see, which is on top of the stack. The environments that
/// they show are a thread's own globals, which refuse to be changed, and what `newproxy` makes is never finalised.
pub fn add_deprecated(lua: Lua) {
    for name in DEPRECATED {
        lua.field(GLOBALS, name);
        lua.set_field(-2, name);
    }
}

/// The one function of Lua's library `os` that tells nothing of the machine: the seconds that the process has computed.
fn open_os(lua: Lua) {
    lua.new_table(0, 1);
    lua.set_function(-1, "clock", |lua| {
        let mut used = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the call writes into what it is given.
        unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut used) };
        // As C's `clock` counts it, in microseconds.
        lua.push_number(used.tv_sec as f64 + (used.tv_nsec / 1_000) as f64 / 1e6);
        Ok(1)
    });
}

fn set_functions(lua: Lua) {
    let table = lua.top();
    lua.set_function(table, "rawset", raw_set);
    lua.set_function(table, "rawget", raw_get);
    lua.set_function(table, "next", next);
    lua.set_function(table, "pairs", pairs);
    lua.set_function(table, "setmetatable", set_metatable);
    lua.set_function(table, "getmetatable", get_metatable);
    lua.set_function(table, "load", load);
    lua.set_function(table, "loadstring", load_string);
    lua.set_function(table, "pcall", pcall);
    lua.set_function(table, "xpcall", xpcall);
    lua.set_function(table, "collectgarbage", collect_garbage);
}

/// Gives a thread globals of its own. The table of what every script sees is on top of the main stack, and is taken from
/// it. The table behind the new globals and the globals themselves are kept, and their numbers returned.
pub fn set_globals(main: Lua, thread: Lua) -> (c_int, c_int) {
    let visible = main.top();
    push_globals(main);
    main.copy(visible);
    fill_globals(main);
    main.copy(-1);
    main.move_to(thread, 1);
    thread.replace(GLOBALS);
    let globals = main.keep();
    let behind = main.keep();
    main.set_top(visible - 1);
    (behind, globals)
}

/// Pushes the table behind new globals, which is empty, and the globals themselves, which refuse to be changed.
pub fn push_globals(lua: Lua) {
    lua.new_table(0, 64);
    refuse_unknown(lua);
    lua.copy(-1);
    protect(lua);
}

/// Makes of what is not in the table on top of the stack an error.
pub fn refuse_unknown(lua: Lua) {
    lua.new_table(0, 1);
    lua.set_function(-1, "__index", no_such_global);
    lua.set_metatable(-2);
}

/// Adds what a table has to globals: the table is on top of the stack and is taken from it; below it is what
/// [`push_globals`] has pushed.
pub fn fill_globals(lua: Lua) {
    let visible = lua.top();
    let behind = visible - 2;
    lua.push_nil();
    while lua.next(visible) {
        lua.copy(-2);
        lua.insert(-2);
        lua.raw_set(behind);
    }
    lua.pop(1);
    lua.copy(-1);
    lua.set_field(behind, "_G");
}

fn no_such_global(lua: Lua) -> Returned {
    let mut text = b"Script attempted to access nonexistent global variable '".to_vec();
    text.extend_from_slice(lua.to_bytes(2).unwrap_or(b"?"));
    text.push(b'\'');
    Err(lua.error(text))
}

fn raw_set(lua: Lua) -> Returned {
    check_writable(lua, 1)?;
    lua.check_any(2)?;
    lua.check_any(3)?;
    if lua.is(2, Type::Nil) {
        lua.push_bytes("table index is nil");
        return Err(Raise);
    }
    if lua.number(2).is_some_and(f64::is_nan) {
        lua.push_bytes("table index is NaN");
        return Err(Raise);
    }
    lua.set_top(3);
    lua.raw_set(1);
    Ok(1)
}

fn raw_get(lua: Lua) -> Returned {
    lua.check(1, Type::Table, "table")?;
    lua.check_any(2)?;
    lua.set_top(2);
    if push_hidden(lua, 1) {
        lua.replace(1);
    }
    lua.raw_get(1);
    Ok(1)
}

fn next(lua: Lua) -> Returned {
    lua.check(1, Type::Table, "table")?;
    lua.set_top(2);
    if push_hidden(lua, 1) {
        lua.replace(1);
    }
    if lua.try_next(1)? {
        Ok(2)
    } else {
        lua.push_nil();
        Ok(1)
    }
}

fn pairs(lua: Lua) -> Returned {
    lua.check(1, Type::Table, "table")?;
    lua.push_function(next);
    lua.copy(1);
    lua.push_nil();
    Ok(3)
}

fn set_metatable(lua: Lua) -> Returned {
    lua.check(1, Type::Table, "table")?;
    if !lua.is(2, Type::Nil) && !lua.is(2, Type::Table) {
        return Err(lua.arg_error(2, "nil or table expected"));
    }
    check_writable(lua, 1)?;
    if lua.metatable(1) {
        lua.field(-1, "__metatable");
        if !lua.is(-1, Type::Nil) {
            return Err(lua.error("cannot change a protected metatable"));
        }
    }
    lua.set_top(2);
    lua.set_metatable(1);
    Ok(1)
}

fn get_metatable(lua: Lua) -> Returned {
    lua.check_any(1)?;
    if push_hidden(lua, 1) || !lua.metatable(1) {
        lua.push_nil();
        return Ok(1);
    }
    lua.field(-1, "__metatable");
    if !lua.is(-1, Type::Nil) {
        return Ok(1);
    }
    lua.pop(1);
    if lua.is(1, Type::String) {
        protect(lua);
    }
    Ok(1)
}

/// `pcall`, which makes of an error that `redis.call` raised its text, as scripts have always seen it.
fn pcall(lua: Lua) -> Returned {
    lua.check_any(1)?;
    if lua.call(lua.top() - 1, ALL_RESULTS).is_err() {
        if lua.is(-1, Type::Table) {
            lua.field(-1, "err");
            if lua.to_bytes(-1).is_some() {
                lua.replace(-2);
            } else {
                lua.pop(1);
            }
        }
        lua.push_bool(false);
        lua.insert(-2);
        return Ok(2);
    }
    lua.ensure(1)?;
    lua.push_bool(true);
    lua.insert(1);
    Ok(lua.top())
}

/// `xpcall`, whose handler runs when the error has left what raised it. Lua's own calls it where the error is raised: where
/// that is the hook that ends a script, no hook would ever end the handler.
fn xpcall(lua: Lua) -> Returned {
    lua.check_any(2)?;
    lua.set_top(2);
    lua.insert(1);
    if lua.call(0, ALL_RESULTS).is_ok() {
        lua.ensure(1)?;
        lua.push_bool(true);
        lua.replace(1);
        return Ok(lua.top());
    }
    check_killed(lua)?;
    if lua.call(1, 1).is_err() {
        check_killed(lua)?;
        lua.push_bytes("error in error handling");
    }
    lua.push_bool(false);
    lua.insert(-2);
    Ok(2)
}

fn load_string(lua: Lua) -> Returned {
    let source = lua.check_bytes(1)?;
    let name = if lua.is_none_or_nil(2) { source } else { lua.check_bytes(2)? };
    load_bytes(lua, source, name)
}

/// `load`, which gets its source in pieces from a function.
fn load(lua: Lua) -> Returned {
    lua.check(1, Type::Function, "function")?;
    let name = if lua.is_none_or_nil(2) { b"=(load)" } else { lua.check_bytes(2)? };
    let (mut source, mut held) = (Vec::new(), Held::new(lua));
    loop {
        lua.copy(1);
        if lua.call(0, 1).is_err() {
            lua.push_nil();
            lua.insert(-2);
            return Ok(2);
        }
        if lua.is(-1, Type::Nil) {
            break;
        }
        let Some(piece) = lua.to_bytes(-1) else {
            lua.push_nil();
            lua.push_bytes("reader function must return a string");
            return Ok(2);
        };
        if piece.is_empty() {
            break;
        }
        held.set(source.len() + piece.len())?;
        source.extend_from_slice(piece);
        lua.pop(1);
        lua.checkpoint(1_000)?;
    }
    load_bytes(lua, &source, name)
}

fn load_bytes(lua: Lua, source: &[u8], name: &[u8]) -> Returned {
    let name: Vec<u8> = shown(name).iter().copied().take_while(|byte| *byte != 0).collect();
    let name = CString::new(name).unwrap_or_default();
    let result = lua.load(source, &name);
    if result.is_ok() {
        return Ok(1);
    }
    check_killed(lua)?;
    lua.push_nil();
    lua.insert(-2);
    Ok(2)
}

/// Bytes of a chunk's name. Each error in a chunk looks through the name for what is shown of it, which is less than this.
const NAME_BYTES: usize = 64 << 10;

/// What is kept of a name: its beginning, or, of a file's name, its end.
fn shown(name: &[u8]) -> &[u8] {
    match name {
        name if name.len() <= NAME_BYTES => name,
        [b'@', ..] => &name[name.len() - NAME_BYTES..],
        name => &name[..NAME_BYTES],
    }
}

/// The heap is everybody's: a script can look at it and ask for a step, and change nothing of how it is collected.
fn collect_garbage(lua: Lua) -> Returned {
    let what = if lua.is_none_or_nil(1) { b"collect" } else { lua.check_bytes(1)? };
    // SAFETY: no value of ours has a finaliser, so that no code runs.
    let ask = |what: c_int, of: c_int| unsafe { ffi::lua_gc(lua.0, what, of) };
    let answer = match what {
        b"count" => f64::from(ask(ffi::LUA_GCCOUNT, 0)) + f64::from(ask(ffi::LUA_GCCOUNTB, 0)) / 1024.0,
        b"collect" | b"step" => {
            let is_over = ask(ffi::LUA_GCSTEP, 16) == 1;
            if what == b"step" {
                lua.push_bool(is_over);
                return Ok(1);
            }
            0.0
        }
        b"stop" | b"restart" => 0.0,
        b"setpause" | b"setstepmul" => 200.0,
        other => {
            let other = String::from_utf8_lossy(other).into_owned();
            return Err(lua.arg_error(1, &format!("invalid option '{other}'")));
        }
    };
    lua.push_number(answer);
    Ok(1)
}
