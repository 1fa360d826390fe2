//! The library `cmsgpack`: MessagePack as lua-cmsgpack 0.4.0 has it (<https://github.com/antirez/lua-cmsgpack>), which is
//! the format before it knew of bytes that are no text, and of extensions.
//!
//! Tables that are nested more than 16 deep are packed as nil. What is unpacked may be nested as deep as a function's stack
//! has places for it (8000, two a table), and as many values can be unpacked at once.

use super::output::Output;
use super::proxies;
use super::state::{Lua, Raise, Returned, Type, to_integer};

/// How deep tables are packed.
const MAX_NESTING: usize = 16;
/// What is reserved at first for what is packed.
const FIRST_BYTES: usize = 256;
/// The most that stands before a string.
const LONGEST_HEAD: usize = 5;
const TOO_MANY_ARGUMENTS: &str = "Too many arguments for MessagePack pack.";
const TOO_MANY_VALUES: &str =
    "stack overflow (too many return values at once; use unpack_one or unpack_limit instead.)";

/// Pushes the library.
pub fn open(lua: Lua) {
    lua.new_table(0, 8);
    lua.set_function(-1, "pack", pack);
    lua.set_function(-1, "unpack", |lua| unpack(lua, 0, 0));
    lua.set_function(-1, "unpack_one", |lua| {
        let offset = lua.check_integer_or(2, 0)?;
        unpack(lua, 1, offset)
    });
    lua.set_function(-1, "unpack_limit", |lua| {
        let limit = lua.check_integer(2)?;
        let offset = lua.check_integer_or(3, 0)?;
        unpack(lua, limit, offset)
    });
    let texts = [
        ("_NAME", "cmsgpack"),
        ("_VERSION", "lua-cmsgpack 0.4.0"),
        ("_COPYRIGHT", "Copyright (C) 2012, Salvatore Sanfilippo"),
        ("_DESCRIPTION", "MessagePack C implementation for Lua"),
    ];
    for (name, text) in texts {
        lua.push_bytes(text);
        lua.set_field(-2, name);
    }
}

fn pack(lua: Lua) -> Returned {
    let args = lua.top();
    if args == 0 {
        return Err(lua.arg_error(0, "MessagePack pack needs input."));
    }
    // Redis has the arguments a second time on the stack, packed.
    if !lua.has_room(args) {
        lua.set_top(0);
        return Err(lua.arg_error(0, TOO_MANY_ARGUMENTS));
    }
    let mut out = Output::new(lua);
    out.reserve(FIRST_BYTES)?;
    for arg in 1..=args {
        lua.ensure(1)?;
        lua.copy(arg);
        pack_value(lua, &mut out, 0)?;
    }
    out.push()
}

/// Packs the value on top of the stack, and takes it from there.
fn pack_value(lua: Lua, output: &mut Output, level: usize) -> Result<(), Raise> {
    let out = &mut output.bytes;
    let before = out.len();
    match lua.type_of(-1) {
        Type::String => {
            let bytes = lua.bytes(-1).unwrap_or_default();
            output.reserve(bytes.len() + LONGEST_HEAD)?;
            pack_bytes(&mut output.bytes, bytes);
        }
        Type::Bool => out.push(if lua.bool(-1) { 0xc3 } else { 0xc2 }),
        Type::Number => pack_number(out, lua.number(-1).unwrap_or_default()),
        Type::Table if level < MAX_NESTING => pack_table(lua, output, level)?,
        _ => out.push(0xc0),
    }
    lua.pop(1);
    output.count()?;
    lua.check_memory(0)?;
    lua.checkpoint(10 + (output.bytes.len() - before) / 8)
}

fn pack_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = bytes.len();
    if len < 32 {
        out.push(0xa0 | len as u8);
    } else if let Ok(len) = u8::try_from(len) {
        out.extend([0xd9, len]);
    } else {
        pack_count(out, len, 0xda, 0xdb);
    }
    out.extend_from_slice(bytes);
}

/// A count that has two bytes, or four.
fn pack_count(out: &mut Vec<u8>, count: usize, short: u8, long: u8) {
    if let Ok(count) = u16::try_from(count) {
        out.push(short);
        out.extend(count.to_be_bytes());
    } else {
        out.push(long);
        out.extend((count as u32).to_be_bytes());
    }
}

fn pack_number(out: &mut Vec<u8>, number: f64) {
    let integer = to_integer(number);
    if integer as f64 == number {
        return pack_integer(out, integer);
    }
    let short = number as f32;
    if f64::from(short) == number {
        out.push(0xca);
        out.extend(short.to_be_bytes());
    } else {
        out.push(0xcb);
        out.extend(number.to_be_bytes());
    }
}

/// An integer in as few bytes as it can be.
fn pack_integer(out: &mut Vec<u8>, integer: i64) {
    let (kind, bytes) = match integer {
        -32..=127 => return out.push(integer as u8),
        0x80..=0xff => (0xcc, 1),
        0x100..=0xffff => (0xcd, 2),
        0x1_0000..=0xffff_ffff => (0xce, 4),
        0x1_0000_0000.. => (0xcf, 8),
        -0x80..=-33 => (0xd0, 1),
        -0x8000..=-0x81 => (0xd1, 2),
        -0x8000_0000..=-0x8001 => (0xd2, 4),
        ..=-0x8000_0001 => (0xd3, 8),
    };
    out.push(kind);
    out.extend(&integer.to_be_bytes()[8 - bytes..]);
}

/// Packs the table on top of the stack.
fn pack_table(lua: Lua, output: &mut Output, level: usize) -> Result<(), Raise> {
    lua.ensure(3)?;
    if proxies::push_hidden(lua, -1) {
        lua.replace(-2);
    }
    let (is_array, count) = measure(lua)?;
    let out = &mut output.bytes;
    if is_array {
        if count < 16 {
            out.push(0x90 | count as u8)
        } else {
            pack_count(out, count, 0xdc, 0xdd)
        }
        for index in 1..=count {
            lua.raw_get_index(-1, index as i32);
            pack_value(lua, output, level + 1)?;
        }
    } else {
        if count < 16 {
            out.push(0x80 | count as u8)
        } else {
            pack_count(out, count, 0xde, 0xdf)
        }
        lua.push_nil();
        while lua.next(-2) {
            lua.copy(-2);
            pack_value(lua, output, level + 1)?;
            pack_value(lua, output, level + 1)?;
        }
    }
    Ok(())
}

/// Whether the table on top of the stack has the keys from 1 on and no others; and how many.
fn measure(lua: Lua) -> Result<(bool, usize), Raise> {
    let mut count = 0;
    let mut most = 0.0;
    lua.push_nil();
    while lua.next(-2) {
        lua.pop(1);
        count += 1;
        most = match lua.number(-1) {
            Some(key) if key > 0.0 && f64::from(key as i32) == key => key.max(most),
            _ => f64::INFINITY,
        };
        lua.checkpoint(10)?;
    }
    Ok((most == count as f64, count))
}

/// A table that is not complete. It is on the stack, and above it an array's next index, or a map's key if that is known.
enum Open {
    Array { index: usize, left: usize },
    Map { has_key: bool, left: usize },
}

struct Unpack<'d> {
    lua: Lua,
    rest: &'d [u8],
    open: Vec<Open>,
}

/// Unpacks so many values from this place on, and says before them where the next begins, or -1 where there is none. Where
/// both are 0, unpacks all and says nothing.
fn unpack(lua: Lua, limit: i64, offset: i64) -> Returned {
    let data = lua.check_bytes(1)?;
    let len = data.len();
    let is_all = limit == 0 && offset == 0;
    if !is_all {
        lua.set_top(1);
    }
    if offset < 0 || limit < 0 {
        let (offset, len) = (offset as i32, len as i32);
        return Err(lua.error(format!("Invalid request to unpack with offset of {offset} and limit of {len}.")));
    }
    let Some(rest) = data.get(offset as usize..) else {
        let (offset, len) = (offset as i32, len as i32);
        return Err(lua.error(format!("Start offset {offset} greater than input length {len}.")));
    };
    let mut unpack = Unpack { lua, rest, open: Vec::new() };
    let limit = if is_all { i64::from(i32::MAX) } else { limit };
    let mut count = 0;
    while !unpack.rest.is_empty() && i64::from(count) < limit {
        unpack.value()?;
        count += 1;
    }
    if is_all {
        return Ok(count);
    }
    if !lua.has_room(1) {
        return Err(lua.fail("stack overflow (in function mp_unpack_full)"));
    }
    lua.push_number(if unpack.rest.is_empty() { -1.0 } else { (len - unpack.rest.len()) as f64 });
    lua.insert(2);
    Ok(count + 1)
}

impl Unpack<'_> {
    /// Pushes the next value, with all that is in it.
    fn value(&mut self) -> Result<(), Raise> {
        loop {
            let before = self.rest.len();
            let is_complete = self.begin()?;
            self.lua.check_memory(0)?;
            self.lua.checkpoint(30 + (before - self.rest.len()) / 8)?;
            if is_complete && self.place()? {
                return Ok(());
            }
        }
    }

    /// Puts the complete value on top of the stack where it belongs, and whatever is complete by that. Whether nothing is
    /// left open.
    fn place(&mut self) -> Result<bool, Raise> {
        let lua = self.lua;
        loop {
            let left = match self.open.last_mut() {
                None => return Ok(true),
                Some(Open::Map { has_key: has_key @ false, .. }) => {
                    *has_key = true;
                    return Ok(false);
                }
                Some(Open::Map { has_key, left }) => {
                    *has_key = false;
                    Self::check_key(lua)?;
                    left
                }
                Some(Open::Array { index, left }) => {
                    *index += 1;
                    left
                }
            };
            lua.raw_set(-3);
            *left -= 1;
            if *left > 0 {
                if let Some(Open::Array { index, .. }) = self.open.last() {
                    lua.push_number(*index as f64);
                }
                return Ok(false);
            }
            self.open.pop();
        }
    }

    /// Pushes a value, or a table in which some are to come. Whether it is complete.
    fn begin(&mut self) -> Result<bool, Raise> {
        let Some((&kind, rest)) = self.rest.split_first() else { return Err(self.missing()) };
        let lua = self.lua;
        if !lua.has_room(1) {
            return Err(lua.fail(TOO_MANY_VALUES));
        }
        self.rest = rest;
        match kind {
            0x00..=0x7f => lua.push_number(f64::from(kind)),
            0x80..=0x8f => return self.map(usize::from(kind & 0xf)),
            0x90..=0x9f => return self.array(usize::from(kind & 0xf)),
            0xa0..=0xbf => self.text(usize::from(kind & 0x1f))?,
            0xc0 => lua.push_nil(),
            0xc2 | 0xc3 => lua.push_bool(kind == 0xc3),
            0xca => lua.push_number(f64::from(f32::from_be_bytes(self.take()?))),
            0xcb => lua.push_number(f64::from_be_bytes(self.take()?)),
            0xcc => lua.push_number(f64::from(u8::from_be_bytes(self.take()?))),
            0xcd => lua.push_number(f64::from(u16::from_be_bytes(self.take()?))),
            0xce => lua.push_number(f64::from(u32::from_be_bytes(self.take()?))),
            0xd0 => lua.push_number(f64::from(i8::from_be_bytes(self.take()?))),
            0xd1 => lua.push_number(f64::from(i16::from_be_bytes(self.take()?))),
            0xd2 => lua.push_number(f64::from(i32::from_be_bytes(self.take()?))),
            // An unsigned one goes through Lua's integers, too, which have a sign.
            0xcf | 0xd3 => lua.push_number(i64::from_be_bytes(self.take()?) as f64),
            0xd9 => {
                let len = u8::from_be_bytes(self.take()?);
                self.text(usize::from(len))?;
            }
            0xda => {
                let len = self.short()?;
                self.text(len)?;
            }
            0xdb => {
                let len = self.long()?;
                self.text(len)?;
            }
            0xdc => {
                let count = self.short()?;
                return self.array(count);
            }
            0xdd => {
                let count = self.long()?;
                return self.array(count);
            }
            0xde => {
                let count = self.short()?;
                return self.map(count);
            }
            0xdf => {
                let count = self.long()?;
                return self.map(count);
            }
            0xe0.. => lua.push_number(f64::from(kind.cast_signed())),
            0xc1 | 0xc4..=0xc9 | 0xd4..=0xd8 => return Err(lua.fail("Bad data format in input.")),
        }
        Ok(true)
    }

    fn missing(&self) -> Raise {
        self.lua.fail("Missing bytes in input.")
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Raise> {
        let Some((bytes, rest)) = self.rest.split_first_chunk() else { return Err(self.missing()) };
        self.rest = rest;
        Ok(*bytes)
    }

    fn short(&mut self) -> Result<usize, Raise> {
        self.take().map(|bytes| usize::from(u16::from_be_bytes(bytes)))
    }

    fn long(&mut self) -> Result<usize, Raise> {
        self.take().map(|bytes| u32::from_be_bytes(bytes) as usize)
    }

    fn text(&mut self, len: usize) -> Result<(), Raise> {
        let Some((text, rest)) = self.rest.split_at_checked(len) else { return Err(self.missing()) };
        self.lua.check_memory(len)?;
        self.lua.push_bytes(text);
        self.rest = rest;
        Ok(())
    }

    fn array(&mut self, count: usize) -> Result<bool, Raise> {
        let lua = self.lua;
        lua.new_table(0, 0);
        if !lua.has_room(1) {
            return Err(lua.fail("stack overflow (in function mp_decode_to_lua_array)"));
        }
        if count > 0 {
            self.open.push(Open::Array { index: 1, left: count });
            lua.push_number(1.0);
        }
        Ok(count == 0)
    }

    fn map(&mut self, count: usize) -> Result<bool, Raise> {
        self.lua.new_table(0, 0);
        if count > 0 {
            self.open.push(Open::Map { has_key: false, left: count });
        }
        Ok(count == 0)
    }

    /// What is below the value on top of the stack can be a key.
    fn check_key(lua: Lua) -> Result<(), Raise> {
        let wrong = match lua.type_of(-2) {
            Type::Nil => "table index is nil",
            Type::Number if lua.number(-2).is_some_and(f64::is_nan) => "table index is NaN",
            _ => return Ok(()),
        };
        lua.set_top(0);
        lua.push_bytes(wrong);
        Err(Raise)
    }
}

#[cfg(test)]
mod tests {
    use super::super::trial::eval;

    #[test]
    fn values_take_as_few_bytes_as_they_can() {
        let hex = "local function hex(s) return (s:gsub('.', function(c) return bit.tohex(c:byte(), 2) end)) end ";
        let packed = |values: &str| eval(&format!("{hex} return hex(cmsgpack.pack({values}))"));
        assert_eq!(packed("0, 127, 128, -32, -33, 65536"), "007fcc80e0d0dfce00010000");
        assert_eq!(packed("0.5, 2^53, true, 'a'"), "ca3f000000cf0020000000000000c3a161");
        assert_eq!(packed("{1, 2}, {a = 1}, {}, {[2] = 1}"), "92010281a1610190810201");
    }

    #[test]
    fn nesting_is_bounded() {
        assert_eq!(eval("local t = {} t[1] = t return #cmsgpack.pack(t)"), "17");
        let deep = "error: user_script:1: stack overflow (in function mp_decode_to_lua_array)";
        assert_eq!(eval("return cmsgpack.unpack(('\\145'):rep(100000))"), deep);
        assert_eq!(eval("return type(cmsgpack.unpack(('\\145'):rep(3000) .. '\\1'))"), "table");
    }

    #[test]
    fn what_is_no_message_is_refused() {
        assert_eq!(eval("return cmsgpack.unpack('\\193')"), "error: user_script:1: Bad data format in input.");
        assert_eq!(
            eval("return cmsgpack.unpack('\\221\\255\\255\\255\\255')"),
            "error: user_script:1: Missing bytes in input."
        );
        assert_eq!(eval("return cmsgpack.unpack('\\129\\192\\1')"), "error: table index is nil");
    }

    #[test]
    fn memory_is_bounded() {
        let script = "return cmsgpack.unpack('\\221\\0\\255\\255\\255' .. ('\\144'):rep(16777215))";
        assert_eq!(eval(script), "error: not enough memory");
    }
}
