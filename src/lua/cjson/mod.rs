//! The library `cjson`: JSON as lua-cjson 2.1.0 has it, with what Redis changed about it
//! (<https://kyne.au/~mark/software/lua-cjson-manual.html>).
//!
//! Text is bytes: what is no UTF-8 passes. Tables nest as deep as the configuration says (1000) and a function's stack has
//! places for them (8000, two or three a table), also where the configuration says more.
//!
//! The configuration belongs to an instance of the library: to the one that all scripts share, for as long as its machine
//! lives, or to one that a script has made with `new`.

mod decode;
mod encode;
mod number;
#[cfg(test)]
mod tests;

use super::state::{Lua, Raise, Returned, Type, upvalue};

/// What can be configured.
#[derive(Clone, Copy)]
struct Config {
    /// Arrays that are excessively sparse become objects, rather than an error.
    sparse_convert: i32,
    /// An array with more than this times as many places as values is excessively sparse; 0 if none is.
    sparse_ratio: i32,
    /// Arrays of up to so many places are not.
    sparse_safe: i32,
    encode_max_depth: i32,
    decode_max_depth: i32,
    /// The significant digits of numbers.
    precision: i32,
    /// Nothing depends on it here.
    keep_buffer: i32,
    encode_invalid_numbers: i32,
    decode_invalid_numbers: i32,
}

const DEFAULT: Config = Config {
    sparse_convert: 0,
    sparse_ratio: 2,
    sparse_safe: 10,
    encode_max_depth: 1000,
    decode_max_depth: 1000,
    precision: 14,
    keep_buffer: 1,
    encode_invalid_numbers: 0,
    decode_invalid_numbers: 1,
};

/// The values of `encode_invalid_numbers`: an error, what C prints, or null.
const INVALID_ERROR: i32 = 0;
const INVALID_AS_IS: i32 = 1;

/// Pushes the library.
pub fn open(lua: Lua) {
    lua.new_table(0, 16);
    let place = lua.new_userdata(size_of::<Config>());
    // SAFETY: Lua aligns the place for any type, and it is as large as this one.
    unsafe { place.cast::<Config>().write(DEFAULT) };
    set(lua, "encode", encode::encode);
    set(lua, "decode", decode::decode);
    set(lua, "encode_sparse_array", |lua| {
        args(lua, 3)?;
        switch(lua, 1, &["off", "on"], |config| &mut config.sparse_convert)?;
        integer(lua, 2, 0, i32::MAX, |config| &mut config.sparse_ratio)?;
        integer(lua, 3, 0, i32::MAX, |config| &mut config.sparse_safe)?;
        Ok(3)
    });
    set(lua, "encode_max_depth", |lua| {
        args(lua, 1)?;
        integer(lua, 1, 1, i32::MAX, |config| &mut config.encode_max_depth)
    });
    set(lua, "decode_max_depth", |lua| {
        args(lua, 1)?;
        integer(lua, 1, 1, i32::MAX, |config| &mut config.decode_max_depth)
    });
    set(lua, "encode_number_precision", |lua| {
        args(lua, 1)?;
        integer(lua, 1, 1, 14, |config| &mut config.precision)
    });
    set(lua, "encode_keep_buffer", |lua| {
        args(lua, 1)?;
        switch(lua, 1, &["off", "on"], |config| &mut config.keep_buffer)
    });
    set(lua, "encode_invalid_numbers", |lua| {
        args(lua, 1)?;
        switch(lua, 1, &["off", "on", "null"], |config| &mut config.encode_invalid_numbers)
    });
    set(lua, "decode_invalid_numbers", |lua| {
        args(lua, 1)?;
        switch(lua, 1, &["off", "on"], |config| &mut config.decode_invalid_numbers)
    });
    set(lua, "new", |lua| {
        open(lua);
        Ok(1)
    });
    lua.pop(1);
    lua.push_light(std::ptr::null());
    lua.set_field(-2, "null");
    lua.push_bytes("cjson");
    lua.set_field(-2, "_NAME");
    lua.push_bytes("2.1.0");
    lua.set_field(-2, "_VERSION");
}

/// Gives the library, which is below the configuration on top of the stack, a function.
fn set<F: Fn(Lua) -> Returned + Copy + 'static>(lua: Lua, name: &str, function: F) {
    lua.copy(-1);
    lua.push_closure(function, 1);
    lua.set_field(-3, name);
}

/// The configuration of the instance whose function runs.
fn config(lua: Lua) -> Config {
    // SAFETY: all functions of the library have it as their upvalue, which scripts cannot change.
    unsafe { lua.userdata(upvalue(1)).cast::<Config>().read() }
}

fn set_config(lua: Lua, config: Config) {
    // SAFETY: as above; no reference to it is held anywhere.
    unsafe { lua.userdata(upvalue(1)).cast::<Config>().write(config) }
}

/// There are so many arguments from now on.
fn args(lua: Lua, count: i32) -> Result<(), Raise> {
    if lua.top() > count {
        return Err(lua.arg_error(count + 1, "found too many arguments"));
    }
    lua.set_top(count);
    Ok(())
}

/// Sets an integer, if the argument is one, and pushes it.
fn integer(lua: Lua, arg: i32, least: i32, most: i32, of: fn(&mut Config) -> &mut i32) -> Returned {
    let mut config = config(lua);
    if !lua.is(arg, Type::Nil) {
        let value = lua.check_integer(arg)? as i32;
        if !(least..=most).contains(&value) {
            return Err(lua.arg_error(1, &format!("expected integer between {least} and {most}")));
        }
        *of(&mut config) = value;
        set_config(lua, config);
    }
    lua.push_number(f64::from(*of(&mut config)));
    Ok(1)
}

/// Sets one of several values, if the argument names one, and pushes it. The first two are also false and true.
fn switch(lua: Lua, arg: i32, names: &[&str], of: fn(&mut Config) -> &mut i32) -> Returned {
    let mut config = config(lua);
    if !lua.is(arg, Type::Nil) {
        *of(&mut config) = if lua.is(arg, Type::Bool) {
            i32::from(lua.bool(arg))
        } else {
            let name = lua.check_bytes(arg)?.split(|byte| *byte == 0).next().unwrap_or_default();
            match names.iter().position(|known| known.as_bytes() == name) {
                Some(value) => value as i32,
                None => {
                    let text = format!("invalid option '{}'", String::from_utf8_lossy(name));
                    return Err(lua.arg_error(arg, &text));
                }
            }
        };
        set_config(lua, config);
    }
    match *of(&mut config) {
        value @ (0 | 1) => lua.push_bool(value == 1),
        value => lua.push_bytes(names[value as usize]),
    }
    Ok(1)
}
