//! Replies as values of Lua's, and values as replies.

use crate::lua::{Lua, Raise, Type, to_integer};
use crate::resp::{Error, Proto, Reply};
use crate::value::number::parse_i64;
use std::io::Write;

/// What a reply may be.
#[derive(Clone, Copy)]
pub struct Limits {
    /// As the client speaks it.
    pub proto: Proto,
    pub bytes: usize,
}

/// Pushes `{err = text}`.
pub fn push_error(lua: Lua, text: &[u8]) {
    lua.new_table(0, 2);
    lua.push_bytes(text);
    lua.set_field(-2, "err");
    lua.push_bool(true);
    lua.set_field(-2, "ignore_error_stats_update");
}

/// Pushes `{ok = text}`.
pub fn push_status(lua: Lua, text: &[u8]) {
    push_field(lua, "ok", |lua| lua.push_bytes(text));
}

/// Redis takes such texts for C's.
fn until_nul(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn push_field(lua: Lua, name: &str, push: impl FnOnce(Lua)) {
    lua.new_table(0, 1);
    push(lua);
    lua.set_field(-2, name);
}

/// Pushes what a command has answered, in whichever version of the protocol.
pub fn push(lua: Lua, reply: &[u8], proto: Proto) -> Result<(), Raise> {
    Reader { lua, proto, rest: reply }.push()
}

struct Reader<'r> {
    lua: Lua,
    proto: Proto,
    rest: &'r [u8],
}

impl<'r> Reader<'r> {
    fn line(&mut self) -> &'r [u8] {
        let end = memchr::memchr(b'\r', self.rest).unwrap_or(self.rest.len());
        let (line, rest) = self.rest.split_at(end);
        self.rest = rest.get(2..).unwrap_or_default();
        line
    }

    /// So many bytes, and the line end behind them.
    fn blob(&mut self, len: usize) -> &'r [u8] {
        let (blob, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest.get(2..).unwrap_or_default();
        blob
    }

    fn push(&mut self) -> Result<(), Raise> {
        let lua = self.lua;
        lua.ensure(8)?;
        let line = self.line();
        let Some((kind, text)) = line.split_first() else {
            lua.push_nil();
            return Ok(());
        };
        // A length of -1 is a nil of RESP2.
        let count = || parse_i64(text).and_then(|count| usize::try_from(count).ok());
        match kind {
            b'+' => push_status(lua, text),
            b'-' => push_error(lua, text),
            b':' => lua.push_number(parse_i64(text).unwrap_or_default() as f64),
            b'$' => match count() {
                Some(len) => lua.push_bytes(self.blob(len)),
                None => lua.push_bool(false),
            },
            b'*' | b'>' => match count() {
                Some(count) => self.push_array(count)?,
                None => lua.push_bool(false),
            },
            b'~' => self.push_set(count().unwrap_or_default())?,
            b'%' => self.push_map(count().unwrap_or_default())?,
            b'#' => lua.push_bool(text == b"t"),
            b',' => {
                let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN);
                push_field(lua, "double", |lua| lua.push_number(number));
            }
            b'(' => push_field(lua, "big_number", |lua| lua.push_bytes(text)),
            b'=' => {
                let blob = self.blob(count().unwrap_or_default());
                let (format, text) = blob.split_at(blob.len().min(4));
                push_field(lua, "verbatim_string", |lua| {
                    lua.new_table(0, 2);
                    lua.push_bytes(text);
                    lua.set_field(-2, "string");
                    lua.push_bytes(format.strip_suffix(b":").unwrap_or(format));
                    lua.set_field(-2, "format");
                });
            }
            _ => lua.push_nil(),
        }
        Ok(())
    }

    fn push_array(&mut self, count: usize) -> Result<(), Raise> {
        // In RESP3 elements may be missing. What Lua then says of the length depends on how the table has grown: as in Redis,
        // from nothing.
        self.lua.new_table(if self.proto == Proto::Resp3 { 0 } else { count }, 0);
        for index in 1..=count {
            self.push()?;
            self.lua.raw_set_index(-2, index as i32);
            self.lua.checkpoint(50)?;
        }
        Ok(())
    }

    /// The members are the keys of a table.
    fn push_set(&mut self, count: usize) -> Result<(), Raise> {
        let lua = self.lua;
        lua.new_table(0, 1);
        // It grows as in Redis, so that a script walks it in the same order.
        lua.new_table(0, 0);
        for _ in 0..count {
            self.push()?;
            lua.push_bool(true);
            lua.raw_set(-3);
            lua.checkpoint(100)?;
        }
        lua.set_field(-2, "set");
        Ok(())
    }

    fn push_map(&mut self, pairs: usize) -> Result<(), Raise> {
        let lua = self.lua;
        lua.new_table(0, 1);
        lua.new_table(0, 0);
        for _ in 0..pairs {
            self.push()?;
            self.push()?;
            if lua.is(-2, Type::Nil) {
                lua.pop(2);
            } else {
                lua.raw_set(-3);
            }
            lua.checkpoint(150)?;
        }
        lua.set_field(-2, "map");
        Ok(())
    }
}

/// Writes the value on top of the stack as the reply of a script whose commands answered in `script`'s protocol.
pub fn write(lua: Lua, script: Proto, limits: Limits, out: &mut Vec<u8>) -> Result<(), Raise> {
    Writer { lua, script, limits, out, depth: 0 }.write()
}

/// Items that are counted at once.
const ITEMS_AT_ONCE: i32 = 4096;
/// What a number takes, or a short string.
const ITEM_BYTES: usize = 8;

/// Tables within tables in one reply. (Redis goes as deep as its Lua stack, some thousands.)
const DEPTH_MAX: usize = 1_000;

struct Writer<'o> {
    lua: Lua,
    script: Proto,
    limits: Limits,
    out: &'o mut Vec<u8>,
    depth: usize,
}

impl Writer<'_> {
    fn reply(&mut self) -> Reply<'_> {
        Reply::new(self.out, self.limits.proto)
    }

    /// Writes the value on top of the stack, and takes it off.
    fn write(&mut self) -> Result<(), Raise> {
        let lua = self.lua;
        if self.out.len() > self.limits.bytes {
            lua.push_bytes("the reply is too long");
            return Err(Raise);
        }
        match lua.type_of(-1) {
            Type::String => self.reply().bulk(lua.bytes(-1).unwrap_or_default()),
            Type::Number => self.reply().int(to_integer(lua.known_number(-1))),
            Type::Bool if self.script == Proto::Resp3 => self.reply().bool(lua.bool(-1)),
            Type::Bool if lua.bool(-1) => self.reply().int(1),
            Type::Table => return self.write_table(),
            _ => self.reply().nil(),
        }
        lua.pop(1);
        Ok(())
    }

    fn write_table(&mut self) -> Result<(), Raise> {
        let lua = self.lua;
        if self.depth == DEPTH_MAX || !lua.has_room(8) {
            lua.pop(1);
            self.reply().error(Error::text("ERR reached lua stack limit"));
            return Ok(());
        }
        self.depth += 1;
        let table = lua.top();
        let is_told = self.write_told(table)?;
        lua.set_top(table);
        if !is_told {
            self.write_array()?;
        }
        self.depth -= 1;
        lua.pop(1);
        Ok(())
    }

    /// A field of the table at this place says what kind of reply it is; whether one does.
    fn write_told(&mut self, table: i32) -> Result<bool, Raise> {
        let lua = self.lua;
        let field = |name: &str| {
            lua.set_top(table);
            lua.field(table, name);
            lua.type_of(-1)
        };
        if field("err") == Type::String {
            self.reply().error(Error::Bytes(until_nul(lua.bytes(-1).unwrap_or_default()).into()));
        } else if field("ok") == Type::String {
            self.write_status(until_nul(lua.bytes(-1).unwrap_or_default()));
        } else if field("double") == Type::Number {
            self.reply().double(lua.number(-1).unwrap_or_default());
        } else if field("map") == Type::Table {
            self.write_pairs(true)?;
        } else if field("set") == Type::Table {
            self.write_pairs(false)?;
        } else if field("big_number") == Type::String {
            self.write_big_number(lua.bytes(-1).unwrap_or_default());
        } else if field("verbatim_string") == Type::Table {
            lua.field(-1, "format");
            lua.field(-2, "string");
            let (Some(format), Some(text)) = (lua.bytes(-2), lua.bytes(-1)) else { return Ok(false) };
            self.write_verbatim(format, text);
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn write_status(&mut self, text: &[u8]) {
        self.out.push(b'+');
        self.push_line(text);
    }

    fn push_line(&mut self, text: &[u8]) {
        self.out.extend(text.iter().map(in_line));
        self.out.extend_from_slice(b"\r\n");
    }

    fn write_big_number(&mut self, text: &[u8]) {
        let line: Vec<u8> = text.iter().map(in_line).collect();
        match self.limits.proto {
            Proto::Resp2 => self.reply().bulk(&line),
            Proto::Resp3 => {
                self.out.push(b'(');
                self.push_line(&line);
            }
        }
    }

    fn write_verbatim(&mut self, format: &[u8], text: &[u8]) {
        match self.limits.proto {
            Proto::Resp2 => self.reply().bulk(text),
            Proto::Resp3 => {
                let mut short = [b' '; 3];
                short.iter_mut().zip(format).for_each(|(to, from)| *to = *from);
                let _ = write!(self.out, "={}\r\n", text.len() + 4);
                self.out.extend_from_slice(&short);
                self.out.push(b':');
                self.out.extend_from_slice(text);
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Writes the table on top of the stack as a map, or its keys as a set. Their number comes before them and is known when
    /// they are written: others may change the table meanwhile.
    fn write_pairs(&mut self, with_values: bool) -> Result<(), Raise> {
        let (lua, start, mut count) = (self.lua, self.out.len(), 0);
        lua.push_nil();
        while lua.next(-2) {
            lua.copy(-2);
            self.write()?;
            if with_values {
                self.write()?;
            } else {
                lua.pop(1);
            }
            count += 1;
            lua.checkpoint(50)?;
        }
        let items = self.out.split_off(start);
        if with_values {
            self.reply().map(count);
        } else {
            self.reply().set(count);
        }
        self.out.extend_from_slice(&items);
        Ok(())
    }

    /// Up to the first nil.
    fn write_array(&mut self) -> Result<(), Raise> {
        let lua = self.lua;
        let mut count = 0;
        loop {
            let more = lua.items_after(-1, count, ITEMS_AT_ONCE);
            count += more;
            lua.checkpoint(2 * more as usize)?;
            if more < ITEMS_AT_ONCE {
                break;
            }
        }
        self.reply().array(count as usize);
        // Small items are not moved again and again while the reply grows.
        self.out.reserve((count as usize * ITEM_BYTES).min(self.limits.bytes));
        for index in 1..=count {
            lua.raw_get_index(-1, index);
            self.write()?;
            lua.checkpoint(50)?;
        }
        Ok(())
    }
}

/// Line ends inside a line would break the protocol.
fn in_line(byte: &u8) -> u8 {
    if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }
}

/// A number as an argument of a command: seventeen digits at most, as C's `%.17g` has them.
pub fn write_number(out: &mut Vec<u8>, number: f64) {
    const DIGITS: f64 = 1e17;
    if number == number.trunc() && number.abs() < DIGITS && !(number == 0.0 && number.is_sign_negative()) {
        let _ = write!(out, "{}", number as i64);
        return;
    }
    let mut text = [0u8; 40];
    // SAFETY: the text has room for more than the longest of such numbers, and the call writes no more than that.
    let len = unsafe { libc::snprintf(text.as_mut_ptr().cast(), text.len(), c"%.17g".as_ptr(), number) };
    out.extend_from_slice(&text[..usize::try_from(len).unwrap_or(0).min(text.len())]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_c_does() {
        let written = |number| {
            let mut out = Vec::new();
            write_number(&mut out, number);
            String::from_utf8(out).expect("digits")
        };
        let of = [3.1, 1e15, 1e17, 1e100, -0.0, 1.5, f64::NEG_INFINITY, 12.0, -7.0];
        let texts = of.map(written);
        assert_eq!(
            texts,
            ["3.1000000000000001", "1000000000000000", "1e+17", "1e+100", "-0", "1.5", "-inf", "12", "-7"]
        );
    }
}
