//! The protocol: requests are parsed where they lie in the receive buffer, replies are written into the
//! connection's send buffer in RESP2 or RESP3, errors have one vocabulary.

mod error;
mod parse;
mod reply;

pub use error::{Error, Result, printable};
pub use parse::{Limits, Parsed, Parser, ProtocolError, Request, Span};
pub use reply::{Proto, Reply};
