//! The machine's own functions, in C, as far as this room calls them: `lua.h` and `lauxlib.h` of Lua 5.1, which say what
//! each does. `build.rs` compiles them.
//!
//! Errors leave these functions by a jump, over all frames up to the next protected call ([`super::state`]).

#![allow(non_camel_case_types, non_snake_case)]

use std::ffi::{c_char, c_int, c_void};
use std::marker::{PhantomData, PhantomPinned};

/// As many results as there are.
pub const LUA_MULTRET: c_int = -1;

pub const LUA_REGISTRYINDEX: c_int = -10000;
pub const LUA_GLOBALSINDEX: c_int = -10002;

pub const fn lua_upvalueindex(index: c_int) -> c_int {
    LUA_GLOBALSINDEX - index
}

pub const LUA_TNIL: c_int = 0;
pub const LUA_TBOOLEAN: c_int = 1;
pub const LUA_TLIGHTUSERDATA: c_int = 2;
pub const LUA_TNUMBER: c_int = 3;
pub const LUA_TSTRING: c_int = 4;
pub const LUA_TTABLE: c_int = 5;
pub const LUA_TFUNCTION: c_int = 6;
pub const LUA_TUSERDATA: c_int = 7;
pub const LUA_TTHREAD: c_int = 8;

pub const LUA_GCCOLLECT: c_int = 2;
pub const LUA_GCCOUNT: c_int = 3;
pub const LUA_GCCOUNTB: c_int = 4;
pub const LUA_GCSTEP: c_int = 5;

/// The hook is called after some instructions.
pub const LUA_MASKCOUNT: c_int = 1 << 3;

/// A thread of Lua's, which only C code sees into.
#[repr(C)]
pub struct lua_State {
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

pub type lua_CFunction = unsafe extern "C-unwind" fn(state: *mut lua_State) -> c_int;
pub type lua_Alloc =
    unsafe extern "C" fn(of: *mut c_void, block: *mut c_void, old_bytes: usize, new_bytes: usize) -> *mut c_void;
pub type lua_Reader =
    unsafe extern "C-unwind" fn(state: *mut lua_State, of: *mut c_void, bytes: *mut usize) -> *const c_char;
pub type lua_Hook = unsafe extern "C-unwind" fn(state: *mut lua_State, debug: *mut lua_Debug);

/// What is known of a running function.
#[repr(C)]
pub struct lua_Debug {
    pub event: c_int,
    pub name: *const c_char,
    pub namewhat: *const c_char,
    pub what: *const c_char,
    pub source: *const c_char,
    pub currentline: c_int,
    pub nups: c_int,
    pub linedefined: c_int,
    pub lastlinedefined: c_int,
    pub short_src: [c_char; 60],
    i_ci: c_int,
}

unsafe extern "C-unwind" {
    pub fn lua_newstate(allocate: lua_Alloc, of: *mut c_void) -> *mut lua_State;
    pub fn lua_close(state: *mut lua_State);
    pub fn lua_newthread(state: *mut lua_State) -> *mut lua_State;

    pub fn lua_gettop(state: *mut lua_State) -> c_int;
    pub fn lua_settop(state: *mut lua_State, index: c_int);
    pub fn lua_pushvalue(state: *mut lua_State, index: c_int);
    pub fn lua_remove(state: *mut lua_State, index: c_int);
    pub fn lua_insert(state: *mut lua_State, index: c_int);
    pub fn lua_replace(state: *mut lua_State, index: c_int);
    pub fn lua_checkstack(state: *mut lua_State, more: c_int) -> c_int;
    pub fn lua_xmove(from: *mut lua_State, to: *mut lua_State, count: c_int);

    pub fn lua_isnumber(state: *mut lua_State, index: c_int) -> c_int;
    pub fn lua_type(state: *mut lua_State, index: c_int) -> c_int;
    pub fn lua_rawequal(state: *mut lua_State, one: c_int, other: c_int) -> c_int;
    pub fn lua_tonumber(state: *mut lua_State, index: c_int) -> f64;
    pub fn lua_toboolean(state: *mut lua_State, index: c_int) -> c_int;
    pub fn lua_tolstring(state: *mut lua_State, index: c_int, len: *mut usize) -> *const c_char;
    pub fn lua_objlen(state: *mut lua_State, index: c_int) -> usize;
    pub fn lua_touserdata(state: *mut lua_State, index: c_int) -> *mut c_void;
    pub fn lua_topointer(state: *mut lua_State, index: c_int) -> *const c_void;

    pub fn lua_pushnil(state: *mut lua_State);
    pub fn lua_pushnumber(state: *mut lua_State, number: f64);
    pub fn lua_pushlstring(state: *mut lua_State, bytes: *const c_char, len: usize);
    pub fn lua_pushcclosure(state: *mut lua_State, function: lua_CFunction, upvalues: c_int);
    pub fn lua_pushboolean(state: *mut lua_State, value: c_int);
    pub fn lua_pushlightuserdata(state: *mut lua_State, address: *mut c_void);

    pub fn lua_rawget(state: *mut lua_State, table: c_int);
    pub fn lua_rawgeti(state: *mut lua_State, table: c_int, index: c_int);
    pub fn lua_createtable(state: *mut lua_State, array: c_int, rest: c_int);
    pub fn lua_newuserdata(state: *mut lua_State, bytes: usize) -> *mut c_void;
    pub fn lua_getmetatable(state: *mut lua_State, index: c_int) -> c_int;

    pub fn lua_rawset(state: *mut lua_State, table: c_int);
    pub fn lua_rawseti(state: *mut lua_State, table: c_int, index: c_int);
    pub fn lua_setmetatable(state: *mut lua_State, index: c_int) -> c_int;
    pub fn lua_setfenv(state: *mut lua_State, function: c_int) -> c_int;

    pub fn lua_call(state: *mut lua_State, args: c_int, results: c_int);
    pub fn lua_pcall(state: *mut lua_State, args: c_int, results: c_int, handler: c_int) -> c_int;

    pub fn lua_gc(state: *mut lua_State, what: c_int, of: c_int) -> c_int;
    /// Raises the value on top of the stack.
    pub fn lua_error(state: *mut lua_State) -> !;
    pub fn lua_next(state: *mut lua_State, table: c_int) -> c_int;
    pub fn lua_concat(state: *mut lua_State, count: c_int);
    pub fn lua_getallocf(state: *mut lua_State, of: *mut *mut c_void) -> lua_Alloc;

    pub fn lua_getstack(state: *mut lua_State, level: c_int, debug: *mut lua_Debug) -> c_int;
    pub fn lua_getinfo(state: *mut lua_State, what: *const c_char, debug: *mut lua_Debug) -> c_int;
    pub fn lua_sethook(state: *mut lua_State, hook: Option<lua_Hook>, mask: c_int, count: c_int) -> c_int;

    /// How many of the items behind this one are there before the first that is missing; so many are looked at.
    pub fn lua_itemsafter(state: *mut lua_State, table: c_int, after: c_int, most: c_int) -> c_int;

    pub fn luaL_where(state: *mut lua_State, level: c_int);
    pub fn luaL_ref(state: *mut lua_State, table: c_int) -> c_int;
    pub fn luaL_unref(state: *mut lua_State, table: c_int, kept: c_int);
    pub fn lua_load(state: *mut lua_State, reader: lua_Reader, of: *mut c_void, name: *const c_char) -> c_int;

    pub fn luaopen_base(state: *mut lua_State) -> c_int;
    pub fn luaopen_table(state: *mut lua_State) -> c_int;
    pub fn luaopen_string(state: *mut lua_State) -> c_int;
    pub fn luaopen_math(state: *mut lua_State) -> c_int;
}
