//! Values of Lua's as JSON.

use super::super::output::Output;
use super::super::proxies;
use super::super::state::{Lua, Raise, Returned, Type};
use super::{Config, INVALID_AS_IS, INVALID_ERROR, config, number};

/// Bytes of a string that are written at once.
const PIECE: usize = 16 << 10;
/// What is reserved at first.
const FIRST_BYTES: usize = 256;

pub fn encode(lua: Lua) -> Returned {
    if lua.top() != 1 {
        return Err(lua.arg_error(1, "expected 1 argument"));
    }
    let mut encode = Encode { lua, config: config(lua), output: Output::new(lua), open: Vec::new() };
    encode.output.reserve(FIRST_BYTES)?;
    encode.run()?;
    encode.output.push()
}

/// A table that is being written. It is on the stack, and above it an object's last key.
enum Open {
    Array { written: i32, len: i32 },
    Object { is_first: bool },
}

struct Encode {
    lua: Lua,
    config: Config,
    output: Output,
    open: Vec<Open>,
}

impl Encode {
    /// Writes the value on top of the stack, with all that is in it, and takes it from there.
    fn run(&mut self) -> Result<(), Raise> {
        loop {
            let before = self.output.bytes.len();
            if self.lua.is(-1, Type::Table) {
                self.begin()?;
            } else {
                self.scalar()?;
                self.lua.pop(1);
            }
            while let Some(open) = self.open.pop() {
                if let Some(open) = self.go_on(open)? {
                    self.open.push(open);
                    break;
                }
                self.lua.pop(1);
            }
            self.output.count()?;
            self.lua.checkpoint(20 + (self.output.bytes.len() - before) / 8)?;
            if self.open.is_empty() {
                return Ok(());
            }
        }
    }

    /// Begins with the table on top of the stack.
    fn begin(&mut self) -> Result<(), Raise> {
        let lua = self.lua;
        let depth = self.open.len() + 1;
        let is_deep = i32::try_from(depth).is_ok_and(|depth| depth > self.config.encode_max_depth);
        if is_deep || !lua.has_room(3) {
            return Err(lua.fail(format!("Cannot serialise, excessive nesting ({depth})")));
        }
        if proxies::push_hidden(lua, -1) {
            lua.replace(-2);
        }
        let len = self.array_len()?;
        if len > 0 {
            self.output.bytes.push(b'[');
            self.open.push(Open::Array { written: 0, len });
        } else {
            self.output.bytes.push(b'{');
            lua.push_nil();
            self.open.push(Open::Object { is_first: true });
        }
        Ok(())
    }

    /// The length of the table on top of the stack as an array; none where it is to become an object.
    ///
    /// Lengths are C integers of 32 bits: an index that does not fit is the least of them, and so means an object unless
    /// another comes after it.
    fn array_len(&self) -> Result<i32, Raise> {
        let lua = self.lua;
        let (mut most, mut count) = (0, 0_i32);
        lua.push_nil();
        while lua.next(-2) {
            lua.pop(1);
            let Some(key) = lua.number(-1).filter(|key| *key >= 1.0 && key.floor() == *key) else {
                lua.pop(1);
                return Ok(0);
            };
            if key > f64::from(most) {
                most = if key <= f64::from(i32::MAX) { key as i32 } else { i32::MIN };
            }
            count = count.wrapping_add(1);
            lua.checkpoint(10)?;
        }
        let Config { sparse_convert, sparse_ratio, sparse_safe, .. } = self.config;
        let is_sparse = sparse_ratio > 0 && most > count.wrapping_mul(sparse_ratio) && most > sparse_safe;
        match is_sparse {
            true if sparse_convert == 0 => Err(self.refuse(-1, "excessively sparse array")),
            true => Ok(0),
            false => Ok(most),
        }
    }

    /// Pushes what comes next in the table on top of the stack, or ends it.
    fn go_on(&mut self, open: Open) -> Result<Option<Open>, Raise> {
        let lua = self.lua;
        match open {
            Open::Array { written, len } if written == len => {
                self.output.bytes.push(b']');
                Ok(None)
            }
            Open::Array { written, len } => {
                if written > 0 {
                    self.output.bytes.push(b',');
                }
                lua.raw_get_index(-1, written + 1);
                Ok(Some(Open::Array { written: written + 1, len }))
            }
            Open::Object { is_first } => {
                if !lua.next(-2) {
                    self.output.bytes.push(b'}');
                    return Ok(None);
                }
                if !is_first {
                    self.output.bytes.push(b',');
                }
                self.key()?;
                Ok(Some(Open::Object { is_first: false }))
            }
        }
    }

    /// Writes the key that is below the value on top of the stack.
    fn key(&mut self) -> Result<(), Raise> {
        match self.lua.type_of(-2) {
            Type::Number => {
                self.output.bytes.push(b'"');
                self.number(-2)?;
                self.output.bytes.extend_from_slice(b"\":");
            }
            Type::String => {
                self.string(-2)?;
                self.output.bytes.push(b':');
            }
            _ => return Err(self.refuse(-2, "table key must be a number or string")),
        }
        Ok(())
    }

    /// Writes the value on top of the stack, which is no table.
    fn scalar(&mut self) -> Result<(), Raise> {
        let lua = self.lua;
        match lua.type_of(-1) {
            Type::String => return self.string(-1),
            Type::Number => return self.number(-1),
            Type::Bool if lua.bool(-1) => self.output.bytes.extend_from_slice(b"true"),
            Type::Bool => self.output.bytes.extend_from_slice(b"false"),
            Type::Nil => self.output.bytes.extend_from_slice(b"null"),
            Type::Light if lua.light(-1).is_some_and(<*const ()>::is_null) => {
                self.output.bytes.extend_from_slice(b"null")
            }
            _ => return Err(self.refuse(-1, "type not supported")),
        }
        Ok(())
    }

    fn number(&mut self, index: i32) -> Result<(), Raise> {
        let number = self.lua.number(index).unwrap_or_default();
        if !number.is_finite() {
            match self.config.encode_invalid_numbers {
                INVALID_ERROR => return Err(self.refuse(index, "must not be NaN or Inf")),
                INVALID_AS_IS if number.is_nan() => self.output.bytes.extend_from_slice(b"nan"),
                INVALID_AS_IS => number::write(&mut self.output.bytes, number, 1),
                _ => self.output.bytes.extend_from_slice(b"null"),
            }
            return Ok(());
        }
        number::write(&mut self.output.bytes, number, self.config.precision as usize);
        Ok(())
    }

    fn string(&mut self, index: i32) -> Result<(), Raise> {
        self.output.bytes.push(b'"');
        for piece in self.lua.bytes(index).unwrap_or_default().chunks(PIECE) {
            self.output.reserve(piece.len() + 8)?;
            let mut plain = piece;
            while let Some(len) = plain.iter().position(|byte| ESCAPED[usize::from(*byte)]) {
                self.output.bytes.extend_from_slice(&plain[..len]);
                self.escape(plain[len]);
                plain = &plain[len + 1..];
            }
            self.output.bytes.extend_from_slice(plain);
            self.output.count()?;
            self.lua.checkpoint(piece.len())?;
        }
        self.output.bytes.push(b'"');
        Ok(())
    }

    fn escape(&mut self, byte: u8) {
        let letter = match byte {
            b'"' | b'\\' | b'/' => byte,
            8 => b'b',
            9 => b't',
            10 => b'n',
            12 => b'f',
            13 => b'r',
            _ => {
                let digits = b"0123456789abcdef";
                self.output.bytes.extend_from_slice(b"\\u00");
                return self.output.bytes.extend([digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]]);
            }
        };
        self.output.bytes.extend([b'\\', letter]);
    }

    fn refuse(&self, index: i32, because: &str) -> Raise {
        let kind = self.lua.type_name(index);
        self.lua.fail(format!("Cannot serialise {kind}: {because}"))
    }
}

/// The bytes that do not stand for themselves in a string.
const ESCAPED: [bool; 256] = {
    let mut escaped = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        escaped[byte] = byte < 0x20 || byte == 0x7f || matches!(byte as u8, b'"' | b'\\' | b'/');
        byte += 1;
    }
    escaped
};
