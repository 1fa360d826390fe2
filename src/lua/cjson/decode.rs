//! JSON as values of Lua's.

use super::super::output::Held;
use super::super::state::{Lua, Raise, Returned};
use super::{Config, config, number};
use std::ops::Range;

/// Bytes of a string, or of the white space between values, that are read at once.
const PIECE: usize = 16 << 10;

pub fn decode(lua: Lua) -> Returned {
    if lua.top() != 1 {
        return Err(lua.arg_error(1, "expected 1 argument"));
    }
    let text = lua.check_bytes(1)?;
    if text.len() >= 2 && (text[0] == 0 || text[1] == 0) {
        return Err(lua.error("JSON parser does not support UTF-16 or UTF-32"));
    }
    let (string, held) = (Vec::new(), Held::new(lua));
    let mut decode = Decode { lua, config: config(lua), text, at: 0, string, held, open: Vec::new() };
    decode.run()?;
    match decode.next()? {
        (_, Token::End) => Ok(1),
        other => Err(decode.unexpected("the end", other)),
    }
}

/// What a text is made of.
enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    /// Its bytes are a part of the text, or else what was put together last.
    String(Option<Range<usize>>),
    Number(f64),
    Bool(bool),
    Null,
    Colon,
    Comma,
    End,
    Error(&'static str),
}

/// With the place where it begins, or is wrong.
type Placed = (usize, Token);

/// A table that is not complete. It is on the stack, and above it the key that is next in an object.
enum Open {
    Array { len: i32 },
    Object,
}

struct Decode<'t> {
    lua: Lua,
    config: Config,
    text: &'t [u8],
    at: usize,
    /// A string that had escapes.
    string: Vec<u8>,
    held: Held,
    open: Vec<Open>,
}

impl Decode<'_> {
    /// Pushes the value that the text begins with.
    fn run(&mut self) -> Result<(), Raise> {
        let mut token = self.next()?;
        loop {
            let before = self.at;
            let next = match token.1 {
                Token::ObjectBegin => self.begin_object()?,
                Token::ArrayBegin => self.begin_array()?,
                _ => {
                    self.scalar(token)?;
                    None
                }
            };
            token = match next {
                Some(next) => next,
                None => match self.place()? {
                    Some(next) => next,
                    None => return Ok(()),
                },
            };
            self.held.set(self.string.capacity())?;
            self.lua.check_memory(0)?;
            self.lua.checkpoint(40 + (self.at - before) / 8)?;
        }
    }

    fn scalar(&self, token: Placed) -> Result<(), Raise> {
        match token.1 {
            Token::String(bytes) => self.push_string(bytes)?,
            Token::Number(number) => self.lua.push_number(number),
            Token::Bool(value) => self.lua.push_bool(value),
            Token::Null => self.lua.push_light(std::ptr::null()),
            _ => return Err(self.unexpected("value", token)),
        }
        Ok(())
    }

    /// Pushes a table; what its first value begins with, unless it is empty.
    fn begin_object(&mut self) -> Result<Option<Placed>, Raise> {
        self.descend(3)?;
        self.lua.new_table(0, 0);
        let token = self.next()?;
        if matches!(token.1, Token::ObjectEnd) {
            return Ok(None);
        }
        self.open.push(Open::Object);
        self.key(token).map(Some)
    }

    fn begin_array(&mut self) -> Result<Option<Placed>, Raise> {
        self.descend(2)?;
        self.lua.new_table(0, 0);
        let token = self.next()?;
        if matches!(token.1, Token::ArrayEnd) {
            return Ok(None);
        }
        self.open.push(Open::Array { len: 0 });
        Ok(Some(token))
    }

    fn descend(&self, places: i32) -> Result<(), Raise> {
        let depth = self.open.len() + 1;
        let is_deep = i32::try_from(depth).is_ok_and(|depth| depth > self.config.decode_max_depth);
        if is_deep || !self.lua.has_room(places) {
            let text = format!("Found too many nested data structures ({depth}) at character {}", self.at);
            return Err(self.lua.fail(text));
        }
        Ok(())
    }

    /// Pushes a key; what its value begins with.
    fn key(&mut self, token: Placed) -> Result<Placed, Raise> {
        let (_, Token::String(bytes)) = token else { return Err(self.unexpected("object key string", token)) };
        self.push_string(bytes)?;
        let token = self.next()?;
        if !matches!(token.1, Token::Colon) {
            return Err(self.unexpected("colon", token));
        }
        self.next()
    }

    /// Puts the value on top of the stack where it belongs, and whatever is complete by that. What the next value begins
    /// with, unless nothing is left open.
    fn place(&mut self) -> Result<Option<Placed>, Raise> {
        let lua = self.lua;
        loop {
            match self.open.last_mut() {
                None => return Ok(None),
                Some(Open::Array { len }) => {
                    *len = len.wrapping_add(1);
                    lua.raw_set_index(-2, *len);
                    let token = self.next()?;
                    match token.1 {
                        Token::Comma => return self.next().map(Some),
                        Token::ArrayEnd => (),
                        _ => return Err(self.unexpected("comma or array end", token)),
                    }
                }
                Some(Open::Object) => {
                    lua.raw_set(-3);
                    let token = self.next()?;
                    match token.1 {
                        Token::Comma => {
                            let token = self.next()?;
                            return self.key(token).map(Some);
                        }
                        Token::ObjectEnd => (),
                        _ => return Err(self.unexpected("comma or object end", token)),
                    }
                }
            }
            self.open.pop();
        }
    }

    fn push_string(&self, bytes: Option<Range<usize>>) -> Result<(), Raise> {
        let bytes = bytes.map_or(&self.string[..], |range| &self.text[range]);
        self.lua.check_memory(bytes.len())?;
        self.lua.push_bytes(bytes);
        Ok(())
    }

    fn unexpected(&self, expected: &str, (at, token): Placed) -> Raise {
        let found = match token {
            Token::ObjectBegin => "T_OBJ_BEGIN",
            Token::ObjectEnd => "T_OBJ_END",
            Token::ArrayBegin => "T_ARR_BEGIN",
            Token::ArrayEnd => "T_ARR_END",
            Token::String(_) => "T_STRING",
            Token::Number(_) => "T_NUMBER",
            Token::Bool(_) => "T_BOOLEAN",
            Token::Null => "T_NULL",
            Token::Colon => "T_COLON",
            Token::Comma => "T_COMMA",
            Token::End => "T_END",
            Token::Error(what) => what,
        };
        self.lua.fail(format!("Expected {expected} but found {found} at character {}", at + 1))
    }

    /// A byte of the text, which is a C string: a zero byte ends it, wherever it stands.
    fn byte(&self, at: usize) -> u8 {
        self.text.get(at).copied().unwrap_or(0)
    }

    fn next(&mut self) -> Result<Placed, Raise> {
        let mut since = self.at;
        while matches!(self.byte(self.at), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
            if self.at - since == PIECE {
                since = self.at;
                self.lua.checkpoint(PIECE)?;
            }
        }
        let at = self.at;
        let token = match self.byte(at) {
            b'{' => Token::ObjectBegin,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ArrayBegin,
            b']' => Token::ArrayEnd,
            b',' => Token::Comma,
            b':' => Token::Colon,
            0 => return Ok((at, Token::End)),
            b'"' => return self.string(at),
            b'-' | b'0'..=b'9' => return Ok((at, self.number(self.config.decode_invalid_numbers == 0))),
            b'f' | b'i' | b'I' | b'n' | b'N' | b't' | b'+' => return Ok((at, self.word())),
            _ => return Ok((at, Token::Error("invalid token"))),
        };
        self.at += 1;
        Ok((at, token))
    }

    fn word(&mut self) -> Token {
        let rest = &self.text[self.at..];
        for (word, token) in [("true", Token::Bool(true)), ("false", Token::Bool(false)), ("null", Token::Null)] {
            if rest.starts_with(word.as_bytes()) {
                self.at += word.len();
                return token;
            }
        }
        if self.config.decode_invalid_numbers != 0 && is_invalid_number(rest) {
            return self.number(false);
        }
        Token::Error("invalid token")
    }

    /// A number, which may have to be one that JSON knows. (Not quite: what is let pass is as in the original.)
    fn number(&mut self, is_strict: bool) -> Token {
        let rest = &self.text[self.at..];
        if !(is_strict && is_invalid_number(rest))
            && let Some((number, len)) = number::read(rest)
        {
            self.at += len;
            return Token::Number(number);
        }
        Token::Error("invalid number")
    }

    /// A string, from its quotation mark on.
    fn string(&mut self, begin: usize) -> Result<Placed, Raise> {
        self.at += 1;
        let start = self.at;
        self.string.clear();
        let mut has_escapes = false;
        loop {
            let end = self.text.len().min(self.at + PIECE);
            let piece = &self.text[self.at..end];
            let plain = piece.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0));
            let plain_end = plain.map_or(end, |len| self.at + len);
            if has_escapes {
                self.string.extend_from_slice(&self.text[self.at..plain_end]);
            }
            let done = plain_end - self.at;
            self.at = plain_end;
            match self.byte(plain_end) {
                _ if plain.is_none() && end < self.text.len() => (),
                b'"' => break,
                b'\\' => {
                    if !has_escapes {
                        has_escapes = true;
                        self.string.extend_from_slice(&self.text[start..plain_end]);
                    }
                    if let Err(what) = self.escape() {
                        return Ok((self.at, Token::Error(what)));
                    }
                }
                _ => return Ok((self.at, Token::Error("unexpected end of string"))),
            }
            self.held.set(self.string.capacity())?;
            self.lua.checkpoint(5 + done)?;
        }
        let end = self.at;
        self.at += 1;
        Ok((begin, Token::String((!has_escapes).then_some(start..end))))
    }

    /// Adds what an escape means to the string.
    fn escape(&mut self) -> Result<(), &'static str> {
        let byte = match self.byte(self.at + 1) {
            byte @ (b'"' | b'\\' | b'/') => byte,
            b'b' => 8,
            b't' => b'\t',
            b'n' => b'\n',
            b'f' => 12,
            b'r' => b'\r',
            b'u' => return self.unicode().ok_or("invalid unicode escape code"),
            _ => return Err("invalid escape code"),
        };
        self.string.push(byte);
        self.at += 2;
        Ok(())
    }

    /// The same for a character's number; high and low surrogates come in pairs.
    fn unicode(&mut self) -> Option<()> {
        let first = self.code_unit(self.at)?;
        let (code, len) = match first {
            0xd800..=0xdbff => {
                let second = self.code_unit(self.at + 6).filter(|unit| (0xdc00..=0xdfff).contains(unit))?;
                (0x1_0000 + ((first & 0x3ff) << 10 | (second & 0x3ff)), 12)
            }
            _ => (first, 6),
        };
        // A low surrogate alone is no character.
        let character = char::from_u32(code)?;
        self.string.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        self.at += len;
        Some(())
    }

    /// The number in an escape.
    fn code_unit(&self, at: usize) -> Option<u32> {
        let digits = self.text.get(at..at + 6)?.strip_prefix(b"\\u")?;
        digits.iter().try_fold(0, |unit, byte| Some(unit << 4 | (*byte as char).to_digit(16)?))
    }
}

/// What JSON does not know and C does: numbers in hexadecimal, with a plus sign or leading zeros, infinity, NaN.
fn is_invalid_number(text: &[u8]) -> bool {
    let byte = |at: usize| text.get(at).copied().unwrap_or(0);
    if byte(0) == b'+' {
        return true;
    }
    let at = usize::from(byte(0) == b'-');
    match byte(at) {
        b'0' => matches!(byte(at + 1), b'x' | b'X' | b'0'..=b'9'),
        ..=b'9' => false,
        _ => text
            .get(at..at + 3)
            .is_some_and(|word| word.eq_ignore_ascii_case(b"inf") || word.eq_ignore_ascii_case(b"nan")),
    }
}
