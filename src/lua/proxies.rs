//! Tables that cannot be changed.
//!
//! Redis has a Lua of its own whose tables can be marked as read-only. Here such a table is hidden behind a proxy, which is
//! empty and refuses to be filled; what could get around that (`rawset`, `setmetatable`, `table.insert`, ...) asks
//! [`check_writable`], and what would see an empty table (`next`, `rawget`, cjson, ...) looks behind it ([`push_hidden`]).

use super::state::{Lua, Raise, Returned, Type};
use std::ffi::c_int;

/// The address is the key in a proxy's metatable under which the hidden table stands.
static HIDDEN: u8 = 0;

fn hidden() -> *const () {
    std::ptr::from_ref(&HIDDEN).cast()
}

/// Puts a proxy, which cannot be changed, in the place of the table on top of the stack.
pub fn protect(lua: Lua) {
    lua.new_table(0, 0);
    lua.new_table(0, 3);
    lua.copy(-3);
    lua.set_field(-2, "__index");
    lua.set_function(-1, "__newindex", refuse);
    lua.push_light(hidden());
    lua.copy(-4);
    lua.raw_set(-3);
    lua.set_metatable(-2);
    lua.remove(-2);
}

const READ_ONLY: &str = "Attempt to modify a readonly table";

fn refuse(lua: Lua) -> Returned {
    Err(lua.error(READ_ONLY))
}

/// Pushes the table behind a proxy, if it is one.
pub fn push_hidden(lua: Lua, index: c_int) -> bool {
    let index = lua.absolute(index);
    if !lua.is(index, Type::Table) || !lua.metatable(index) {
        return false;
    }
    lua.push_light(hidden());
    lua.raw_get(-2);
    lua.remove(-2);
    if lua.is(-1, Type::Table) {
        return true;
    }
    lua.pop(1);
    false
}

/// What is going to be changed is a table, and none that must not be.
pub fn check_writable(lua: Lua, arg: c_int) -> Result<(), Raise> {
    lua.check(arg, Type::Table, "table")?;
    if push_hidden(lua, arg) {
        // (Redis raises this without a place, since it is its Lua's C code that does.)
        lua.push_bytes(READ_ONLY);
        return Err(Raise);
    }
    Ok(())
}

/// The length of the table that is the first argument, as C's integer.
pub fn length(lua: Lua) -> Result<i32, Raise> {
    lua.check(1, Type::Table, "table")?;
    let is_hidden = push_hidden(lua, 1);
    let len = lua.raw_len(if is_hidden { -1 } else { 1 }) as i32;
    if is_hidden {
        lua.pop(1);
    }
    Ok(len)
}
