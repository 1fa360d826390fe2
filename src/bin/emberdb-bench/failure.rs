//! What ends a run early. The program prints it and exits with 1; bad flags are clap's and exit with 2.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Server(#[from] emberdb::measure::failure::Failure),
    #[error("cannot set up event notification: {0}")]
    Events(io::Error),
    #[error("cannot write {}: {error}", path.display())]
    Write { path: PathBuf, error: io::Error },
    #[error("cannot read {}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("{0}")]
    Unfit(String),
}

pub type Result<T> = std::result::Result<T, Failure>;
