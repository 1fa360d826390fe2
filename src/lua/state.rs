//! The stack of a Lua state, as the functions below see it that Lua code calls.
//!
//! Lua raises an error by jumping over whatever stands between it and the next `pcall` (`longjmp`). No Rust frame that has
//! something to drop may stand there. So functions return [`Raise`], with the error on top of the stack, and the
//! trampoline around them, which owns nothing, raises it; and nothing that is called here raises one by itself: what may
//! run Lua code goes through [`Lua::call`], and memory is never refused while a function of ours runs ([`super::memory`]).

use super::ffi;
use super::memory::{self, MAX_BYTES, Memory};
use std::ffi::{CStr, c_int, c_void};

/// A Lua state: the stack of one thread of Lua's. Indexes count from 1, or from the top down from -1.
#[derive(Clone, Copy)]
pub struct Lua(pub(super) *mut ffi::lua_State);

/// An error is to be raised: its value is on top of the stack.
#[derive(Debug)]
pub struct Raise;

/// What a function returns: how many values it has left on top of the stack.
pub type Returned = std::result::Result<c_int, Raise>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    None,
    Nil,
    Bool,
    Light,
    Number,
    String,
    Table,
    Function,
    Userdata,
    Thread,
}

/// The index of a function's upvalue.
pub const fn upvalue(index: c_int) -> c_int {
    ffi::lua_upvalueindex(index)
}

/// The table that only we see.
const REGISTRY: c_int = ffi::LUA_REGISTRYINDEX;
/// The table of a thread's globals.
pub const GLOBALS: c_int = ffi::LUA_GLOBALSINDEX;
pub const ALL_RESULTS: c_int = ffi::LUA_MULTRET;

/// Makes a function of ours one of Lua's. It must not capture anything.
pub fn native<F: Fn(Lua) -> Returned + Copy + 'static>(_: F) -> ffi::lua_CFunction {
    const { assert!(size_of::<F>() == 0, "the function is known by its type alone") }
    unsafe extern "C-unwind" fn trampoline<F: Fn(Lua) -> Returned + Copy>(state: *mut ffi::lua_State) -> c_int {
        let returned = {
            // SAFETY: F has no bytes, so there is nothing that could be wrong about them.
            let function: F = unsafe { std::mem::zeroed() };
            memory::enter_native();
            memory::was_exceeded();
            let mut returned = function(Lua(state));
            if memory::was_exceeded() && returned.is_ok() {
                // It was given what it asked for; who called it is not.
                returned = Err(Lua(state).out_of_memory());
            }
            memory::leave_native();
            returned
        };
        match returned {
            Ok(results) => results,
            // SAFETY: this frame has nothing to drop, so that the jump may pass over it.
            Err(Raise) => unsafe { ffi::lua_error(state) },
        }
    }
    trampoline::<F>
}

/// SAFETY of all calls below: the state lives as long as its machine, whoever has a `Lua` runs on it; indexes are those
/// of values on the stack, for which there is room (Lua guarantees 20 places to a function, more are asked for with
/// [`Lua::ensure`]); and none of these functions runs Lua code or fails for want of memory.
impl Lua {
    pub fn top(self) -> c_int {
        unsafe { ffi::lua_gettop(self.0) }
    }

    pub fn set_top(self, index: c_int) {
        unsafe { ffi::lua_settop(self.0, index) }
    }

    pub fn pop(self, count: c_int) {
        unsafe { ffi::lua_settop(self.0, -count - 1) }
    }

    /// Whether there is room for so many more values, which is made: a function's stack has 8000 places. If it can be, there
    /// is room for an error besides.
    pub fn has_room(self, count: c_int) -> bool {
        unsafe { ffi::lua_checkstack(self.0, count + 3) != 0 || ffi::lua_checkstack(self.0, count) != 0 }
    }

    /// Room for so many more values.
    pub fn ensure(self, count: c_int) -> Result<(), Raise> {
        if self.has_room(count) { Ok(()) } else { Err(self.fail("stack overflow")) }
    }

    /// An error of a function whose stack may be full: what is on it makes room for the error.
    pub fn fail(self, text: impl AsRef<[u8]>) -> Raise {
        self.set_top(0);
        self.error(text)
    }

    pub fn copy(self, index: c_int) {
        unsafe { ffi::lua_pushvalue(self.0, index) }
    }

    pub fn remove(self, index: c_int) {
        unsafe { ffi::lua_remove(self.0, index) }
    }

    /// Moves the top to this place, and what is there and above it up.
    pub fn insert(self, index: c_int) {
        unsafe { ffi::lua_insert(self.0, index) }
    }

    /// Moves the top to this place, over what is there.
    pub fn replace(self, index: c_int) {
        unsafe { ffi::lua_replace(self.0, index) }
    }

    /// Moves values from the top of this stack to that of another thread of the machine.
    pub fn move_to(self, other: Lua, count: c_int) {
        unsafe { ffi::lua_xmove(self.0, other.0, count) }
    }

    pub fn type_of(self, index: c_int) -> Type {
        match unsafe { ffi::lua_type(self.0, index) } {
            ffi::LUA_TNIL => Type::Nil,
            ffi::LUA_TBOOLEAN => Type::Bool,
            ffi::LUA_TLIGHTUSERDATA => Type::Light,
            ffi::LUA_TNUMBER => Type::Number,
            ffi::LUA_TSTRING => Type::String,
            ffi::LUA_TTABLE => Type::Table,
            ffi::LUA_TFUNCTION => Type::Function,
            ffi::LUA_TUSERDATA => Type::Userdata,
            ffi::LUA_TTHREAD => Type::Thread,
            _ => Type::None,
        }
    }

    pub fn is(self, index: c_int, of: Type) -> bool {
        self.type_of(index) == of
    }

    pub fn is_none_or_nil(self, index: c_int) -> bool {
        matches!(self.type_of(index), Type::None | Type::Nil)
    }

    /// The name of a value's type, as errors have it.
    pub fn type_name(self, index: c_int) -> &'static str {
        match self.type_of(index) {
            Type::None => "no value",
            Type::Nil => "nil",
            Type::Bool => "boolean",
            Type::Light | Type::Userdata => "userdata",
            Type::Number => "number",
            Type::String => "string",
            Type::Table => "table",
            Type::Function => "function",
            Type::Thread => "thread",
        }
    }

    pub fn push_nil(self) {
        unsafe { ffi::lua_pushnil(self.0) }
    }

    pub fn push_bool(self, value: bool) {
        unsafe { ffi::lua_pushboolean(self.0, c_int::from(value)) }
    }

    pub fn push_number(self, value: f64) {
        unsafe { ffi::lua_pushnumber(self.0, value) }
    }

    pub fn push_bytes(self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        unsafe { ffi::lua_pushlstring(self.0, bytes.as_ptr().cast(), bytes.len()) }
    }

    pub fn push_function<F: Fn(Lua) -> Returned + Copy + 'static>(self, function: F) {
        self.push_closure(function, 0);
    }

    /// A function with upvalues, which are taken from the stack.
    pub fn push_closure<F: Fn(Lua) -> Returned + Copy + 'static>(self, function: F, upvalues: c_int) {
        unsafe { ffi::lua_pushcclosure(self.0, native(function), upvalues) }
    }

    /// An address, as something that is equal to itself alone.
    pub fn push_light(self, address: *const ()) {
        unsafe { ffi::lua_pushlightuserdata(self.0, address.cast_mut().cast()) }
    }

    /// The address that a light userdata is.
    pub fn light(self, index: c_int) -> Option<*const ()> {
        self.is(index, Type::Light).then(|| unsafe { ffi::lua_touserdata(self.0, index) }.cast_const().cast())
    }

    pub fn bool(self, index: c_int) -> bool {
        unsafe { ffi::lua_toboolean(self.0, index) != 0 }
    }

    /// A value that is a number, and no string that looks like one.
    pub fn number(self, index: c_int) -> Option<f64> {
        self.is(index, Type::Number).then(|| unsafe { ffi::lua_tonumber(self.0, index) })
    }

    /// The number that a value is whose type was asked already; 0 where it is none.
    pub fn known_number(self, index: c_int) -> f64 {
        unsafe { ffi::lua_tonumber(self.0, index) }
    }

    /// A number, or a string that looks like one.
    pub fn to_number(self, index: c_int) -> Option<f64> {
        (unsafe { ffi::lua_isnumber(self.0, index) } != 0).then(|| unsafe { ffi::lua_tonumber(self.0, index) })
    }

    /// The bytes of a string (a number is none). They stay where they are while the string is on the stack, or in
    /// something that is: that is all that keeps them, so do not hold them for longer.
    pub fn bytes<'s>(self, index: c_int) -> Option<&'s [u8]> {
        if self.is(index, Type::String) { Some(self.text(index)) } else { None }
    }

    /// The same for a number, too, which becomes a string where it stands.
    pub fn to_bytes<'s>(self, index: c_int) -> Option<&'s [u8]> {
        matches!(self.type_of(index), Type::String | Type::Number).then(|| self.text(index))
    }

    fn text<'s>(self, index: c_int) -> &'s [u8] {
        let mut len = 0;
        // SAFETY: it is a string or a number, so that there are bytes, which Lua does not move.
        unsafe {
            let start = ffi::lua_tolstring(self.0, index, &mut len);
            std::slice::from_raw_parts(start.cast(), len)
        }
    }

    /// The address of a table, a function, ...: its identity.
    pub fn address(self, index: c_int) -> *const c_void {
        unsafe { ffi::lua_topointer(self.0, index) }
    }

    pub fn raw_equal(self, one: c_int, other: c_int) -> bool {
        unsafe { ffi::lua_rawequal(self.0, one, other) != 0 }
    }

    /// The length of a string or of a table's array. (A number becomes a string where it stands.)
    pub fn raw_len(self, index: c_int) -> usize {
        unsafe { ffi::lua_objlen(self.0, index) }
    }

    /// How many of a table's items behind this one are there before the first that is missing; `most` are looked at.
    pub fn items_after(self, table: c_int, after: c_int, most: c_int) -> c_int {
        unsafe { ffi::lua_itemsafter(self.0, table, after, most) }
    }

    pub fn new_table(self, array: usize, rest: usize) {
        let hint = |count: usize| c_int::try_from(count.min(1 << 16)).unwrap_or(0);
        unsafe { ffi::lua_createtable(self.0, hint(array), hint(rest)) }
    }

    /// The value under the key on top of the stack takes its place. No metatable is asked.
    pub fn raw_get(self, table: c_int) {
        unsafe { ffi::lua_rawget(self.0, table) }
    }

    /// Takes a value and, below it, its key from the stack. The key is neither nil nor NaN.
    pub fn raw_set(self, table: c_int) {
        unsafe { ffi::lua_rawset(self.0, table) }
    }

    pub fn raw_get_index(self, table: c_int, index: c_int) {
        unsafe { ffi::lua_rawgeti(self.0, table, index) }
    }

    pub fn raw_set_index(self, table: c_int, index: c_int) {
        unsafe { ffi::lua_rawseti(self.0, table, index) }
    }

    /// Pushes a field. No metatable is asked.
    pub fn field(self, table: c_int, name: &str) {
        let table = self.absolute(table);
        self.push_bytes(name);
        self.raw_get(table);
    }

    /// Takes a field's value from the stack.
    pub fn set_field(self, table: c_int, name: &str) {
        let table = self.absolute(table);
        self.push_bytes(name);
        self.insert(-2);
        self.raw_set(table);
    }

    pub fn set_function<F: Fn(Lua) -> Returned + Copy + 'static>(self, table: c_int, name: &str, function: F) {
        let table = self.absolute(table);
        self.push_function(function);
        self.set_field(table, name);
    }

    /// The next pair of a table takes the place of the key on top of the stack; whether there is one. The key is one of
    /// the table's, or nil.
    pub fn next(self, table: c_int) -> bool {
        let key = self.top();
        self.try_next(table).unwrap_or_else(|Raise| {
            // Others of whom the table is have run meanwhile, and its place is gone: the walk is over.
            self.set_top(key - 1);
            false
        })
    }

    /// The same with any key, of which there may be none.
    pub fn try_next(self, table: c_int) -> Result<bool, Raise> {
        let table = self.absolute(table);
        if !self.is(-1, Type::Nil) {
            self.copy(-1);
            self.raw_get(table);
            let is_missing = self.is(-1, Type::Nil);
            self.pop(1);
            if is_missing {
                return self.next_of_missing(table);
            }
        }
        Ok(unsafe { ffi::lua_next(self.0, table) != 0 })
    }

    /// `lua_next` raises where there is no such key; one whose value was removed on the way may still have its place. So it
    /// is asked under a protected call.
    #[cold]
    fn next_of_missing(self, table: c_int) -> Result<bool, Raise> {
        unsafe extern "C-unwind" fn next(state: *mut ffi::lua_State) -> c_int {
            // SAFETY: a table and a key; nothing in this frame is to be dropped.
            unsafe { if ffi::lua_next(state, 1) != 0 { 2 } else { 0 } }
        }
        let key = self.top();
        unsafe { ffi::lua_pushcclosure(self.0, next, 0) };
        self.copy(table);
        self.copy(key);
        self.call(2, ALL_RESULTS)?;
        self.remove(key);
        Ok(self.top() > key)
    }

    /// Pushes a value's metatable, if it has one.
    pub fn metatable(self, index: c_int) -> bool {
        unsafe { ffi::lua_getmetatable(self.0, index) != 0 }
    }

    /// Takes a metatable, or nil, from the stack.
    pub fn set_metatable(self, index: c_int) {
        unsafe { ffi::lua_setmetatable(self.0, index) };
    }

    /// Takes a function's environment from the stack.
    pub fn set_environment(self, function: c_int) {
        unsafe { ffi::lua_setfenv(self.0, function) };
    }

    /// A place for plain bytes that Lua code can hold and not see into.
    pub fn new_userdata(self, bytes: usize) -> *mut c_void {
        unsafe { ffi::lua_newuserdata(self.0, bytes) }
    }

    pub fn userdata(self, index: c_int) -> *mut c_void {
        unsafe { ffi::lua_touserdata(self.0, index) }
    }

    /// Keeps the value on top of the stack in the registry; under this number it is there again.
    pub fn keep(self) -> c_int {
        unsafe { ffi::luaL_ref(self.0, REGISTRY) }
    }

    pub fn push_kept(self, kept: c_int) {
        self.raw_get_index(REGISTRY, kept);
    }

    pub fn drop_kept(self, kept: c_int) {
        unsafe { ffi::luaL_unref(self.0, REGISTRY, kept) }
    }

    /// The index counted from the bottom.
    pub fn absolute(self, index: c_int) -> c_int {
        if index < 0 && index > REGISTRY { self.top() + index + 1 } else { index }
    }

    /// Calls the function below its arguments, under a `pcall`: an error is returned, and is on top of the stack then.
    pub fn call(self, args: c_int, results: c_int) -> Result<(), Raise> {
        self.call_with(args, results, 0)
    }

    /// The same with a function that is called with the error where it was raised.
    pub fn call_with(self, args: c_int, results: c_int, handler: c_int) -> Result<(), Raise> {
        memory::leave_native();
        // SAFETY: errors end at this call.
        let status = unsafe { ffi::lua_pcall(self.0, args, results, handler) };
        memory::enter_native();
        if status == 0 { Ok(()) } else { Err(Raise) }
    }

    /// An error with the place in front where the running function was called.
    pub fn error(self, text: impl AsRef<[u8]>) -> Raise {
        self.push_place(1);
        self.push_bytes(text);
        // SAFETY: two strings, of which no metamethod is asked.
        unsafe { ffi::lua_concat(self.0, 2) };
        Raise
    }

    /// The memory of the machine.
    pub fn memory<'m>(self) -> &'m Memory {
        let mut of = std::ptr::null_mut();
        // SAFETY: the function and what it is called with are those of `memory`, which lives as long as the machine.
        unsafe {
            ffi::lua_getallocf(self.0, &mut of);
            &*of.cast::<Memory>()
        }
    }

    /// To be called by functions that make values without end: since memory is not refused them, they must ask; also
    /// before they push a string of so many bytes.
    pub fn check_memory(self, more: usize) -> Result<(), Raise> {
        if more <= MAX_BYTES && self.memory().has_room(more) { Ok(()) } else { Err(self.out_of_memory()) }
    }

    /// The error that Lua raises where it is refused memory. What is on the stack makes room for it.
    #[cold]
    pub fn out_of_memory(self) -> Raise {
        self.set_top(0);
        self.push_bytes("not enough memory");
        Raise
    }

    /// Pushes `chunk:line: ` for a level of the stack, 1 being who called the function that runs; or nothing where there is
    /// no such place.
    pub fn push_place(self, level: c_int) {
        unsafe { ffi::luaL_where(self.0, level) }
    }

    /// The chunk's name and the line of a level of the stack that runs Lua code.
    pub fn place(self, level: c_int) -> Option<(String, c_int)> {
        // SAFETY: plain data, which Lua fills in.
        let mut debug: ffi::lua_Debug = unsafe { std::mem::zeroed() };
        unsafe {
            if ffi::lua_getstack(self.0, level, &mut debug) == 0
                || ffi::lua_getinfo(self.0, c"Sl".as_ptr(), &mut debug) == 0
            {
                return None;
            }
        }
        // SAFETY: a string that lives as long as the function.
        let source = unsafe { CStr::from_ptr(debug.source) };
        Some((source.to_string_lossy().into_owned(), debug.currentline))
    }

    /// An error about an argument.
    pub fn arg_error(self, mut arg: c_int, what: &str) -> Raise {
        // SAFETY: as in `place`.
        let mut debug: ffi::lua_Debug = unsafe { std::mem::zeroed() };
        let known = unsafe {
            ffi::lua_getstack(self.0, 0, &mut debug) != 0 && ffi::lua_getinfo(self.0, c"n".as_ptr(), &mut debug) != 0
        };
        if !known {
            return self.error(format!("bad argument #{arg} ({what})"));
        }
        // SAFETY: strings that live as long as the function.
        let text = |text: *const std::ffi::c_char| {
            (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        let name = text(debug.name).unwrap_or_else(|| "?".to_owned());
        if text(debug.namewhat).as_deref() == Some("method") {
            arg -= 1;
            if arg == 0 {
                return self.error(format!("calling '{name}' on bad self ({what})"));
            }
        }
        self.error(format!("bad argument #{arg} to '{name}' ({what})"))
    }

    /// An argument is of another type than this.
    pub fn type_error(self, arg: c_int, expected: &str) -> Raise {
        self.arg_error(arg, &format!("{expected} expected, got {}", self.type_name(arg)))
    }

    pub fn check(self, arg: c_int, of: Type, name: &str) -> Result<(), Raise> {
        if self.is(arg, of) { Ok(()) } else { Err(self.type_error(arg, name)) }
    }

    pub fn check_any(self, arg: c_int) -> Result<(), Raise> {
        if self.is(arg, Type::None) { Err(self.arg_error(arg, "value expected")) } else { Ok(()) }
    }

    /// An argument that is a string, or a number as one.
    pub fn check_bytes<'s>(self, arg: c_int) -> Result<&'s [u8], Raise> {
        self.to_bytes(arg).ok_or_else(|| self.type_error(arg, "string"))
    }

    pub fn check_number(self, arg: c_int) -> Result<f64, Raise> {
        self.to_number(arg).ok_or_else(|| self.type_error(arg, "number"))
    }

    /// An argument that is a number, as C would make an integer of it.
    pub fn check_integer(self, arg: c_int) -> Result<i64, Raise> {
        self.check_number(arg).map(to_integer)
    }

    pub fn check_integer_or(self, arg: c_int, default: i64) -> Result<i64, Raise> {
        if self.is_none_or_nil(arg) { Ok(default) } else { self.check_integer(arg) }
    }
}

/// A number as an integer, as a C cast on x86-64 has it: what does not fit is the least one.
pub fn to_integer(number: f64) -> i64 {
    if (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&number) { number as i64 } else { i64::MIN }
}
