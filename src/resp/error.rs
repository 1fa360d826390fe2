//! The vocabulary of errors a client sees: the texts Redis users know, each with its code in front.

use std::borrow::Cow;
use thiserror::Error;

pub type Result<T = ()> = std::result::Result<T, Error>;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    #[error("ERR syntax error")]
    Syntax,
    #[error("ERR value is not an integer or out of range")]
    NotAnInteger,
    #[error("ERR value is not a valid float")]
    NotAFloat,
    #[error("WRONGTYPE Operation against a key holding the wrong kind of value")]
    WrongType,
    #[error("ERR no such key")]
    NoSuchKey,
    #[error("ERR index out of range")]
    IndexOutOfRange,
    #[error("ERR offset is out of range")]
    OffsetOutOfRange,
    #[error("ERR increment or decrement would overflow")]
    WouldOverflow,
    #[error("ERR increment would produce NaN or Infinity")]
    NanOrInfinity,
    #[error("ERR decrement would overflow")]
    DecrementOverflow,
    #[error("ERR string exceeds maximum allowed size (proto-max-bulk-len)")]
    StringTooLong,
    /// A count is a client's number, and nothing else bounds the reply.
    #[error("ERR value is out of range, the reply exceeds proto-max-bulk-len")]
    ReplyTooLong,
    /// Nothing but the client's request bounds it: one key may be named a million times.
    #[error("ERR the reply is longer than a client may have to read (client-output-buffer-limit); the command was run")]
    OutputTooLong,
    #[error("ERR invalid expire time in '{0}' command")]
    InvalidExpireTime(&'static str),
    #[error("ERR wrong number of arguments for '{0}' command")]
    WrongArity(String),
    #[error("ERR invalid cursor")]
    InvalidCursor,
    #[error("ERR DB index is out of range")]
    DbOutOfRange,
    #[error("ERR invalid DB index")]
    InvalidDb,
    #[error("NOAUTH Authentication required.")]
    NoAuth,
    #[error("WRONGPASS invalid username-password pair or user is disabled.")]
    WrongPass,
    #[error("NOPROTO unsupported protocol version")]
    NoProto,
    #[error("OOM command not allowed when used memory > 'maxmemory'.")]
    OutOfMemory,
    /// Any other text, code included.
    #[error("{0}")]
    Text(Cow<'static, str>),
    /// The same with bytes of a client in it, which go out as they came.
    #[error("{}", String::from_utf8_lossy(.0))]
    Bytes(Box<[u8]>),
}

/// At most `limit` bytes of an argument, for an error text; like Redis, up to the first zero.
pub fn printable(bytes: &[u8], limit: usize) -> &[u8] {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    &text[..text.len().min(limit)]
}

impl Error {
    /// An error with the plain code `ERR`.
    pub fn err(text: impl std::fmt::Display) -> Error {
        Error::Text(format!("ERR {text}").into())
    }

    /// A subcommand whose arguments are not what it takes.
    pub fn bad_subcommand(container: &str, subcommand: &[u8]) -> Error {
        let head = b"ERR unknown subcommand or wrong number of arguments for '";
        Error::quoting(&[head, printable(subcommand, 128), b"'. Try ", container.as_bytes(), b" HELP."])
    }

    /// A text, code included, that quotes what a client sent.
    pub fn quoting(parts: &[&[u8]]) -> Error {
        Error::Bytes(parts.concat().into())
    }

    /// The text as it goes out.
    pub fn to_bytes(&self) -> Cow<'_, [u8]> {
        match self {
            Error::Bytes(bytes) => Cow::Borrowed(bytes),
            Error::Text(text) => Cow::Borrowed(text.as_bytes()),
            error => Cow::Owned(error.to_string().into_bytes()),
        }
    }

    /// A fixed text with its code in front.
    pub const fn text(text: &'static str) -> Error {
        Error::Text(Cow::Borrowed(text))
    }
}
