//! What can go wrong between a program that measures and a server.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("cannot connect to {target}: {error}")]
    Connect { target: String, error: io::Error },
    #[error("connection to {target} lost: {error}")]
    Lost { target: String, error: io::Error },
    #[error("{target} sent what is not RESP: {reason}")]
    Malformed { target: String, reason: &'static str },
    #[error("{target} refused {command}: {reply}")]
    Refused { target: String, command: String, reply: String },
}

pub type Result<T> = std::result::Result<T, Failure>;
