//! What is otherwise with commands that a log says: limits of clients do not hold, and a command that cannot run ends the start.

use super::turn::{Progress, Turn};
use crate::command::keys::parse_db;
use crate::resp::{Error, Request, printable};
use crate::server::client::session::Close;
use crate::server::state::{Command, Found};

/// How long a string of a log may be: its place in what was read has 32 bits.
pub const REPLAYED_BYTES: usize = u32::MAX as usize >> 1;

/// A command of the log cannot run: the server does not start without it, as Redis does not.
pub fn refuse(turn: &mut Turn, reason: String) {
    turn.flow.refused = Some(reason.into_boxed_str());
    turn.flow.close = Close::AfterReplies;
}

/// A command of the primary's cannot run here: the others do.
#[cold]
pub fn note_refused(turn: &mut Turn, request: Request, error: &Error) {
    let (name, error) = (printable(request.arg(0), 128).escape_ascii().to_string(), error.to_bytes());
    let error = String::from_utf8_lossy(error.trim_ascii()).into_owned();
    turn.server.global.following.note_refused(&name, &error);
}

#[cold]
pub fn refuse_command(turn: &mut Turn, request: Request, found: &Found, error: &Error) {
    /// How much of a command is shown.
    const SHOWN_BYTES: usize = 128;
    let shown = |text: &[u8]| printable(text, SHOWN_BYTES).escape_ascii().to_string();
    let name = shown(request.arg(0));
    let why = match found {
        Found::Unknown => format!("Unknown command '{name}' reading the append only file"),
        Found::UnknownSubcommand(_) => {
            format!("Unknown command '{name}|{}' reading the append only file", shown(request.arg(1)))
        }
        Found::Command(_) => {
            let error = error.to_bytes();
            let error = String::from_utf8_lossy(error.trim_ascii());
            format!("Command '{name}' reading the append only file: {error}")
        }
    };
    let key = request.get(1).map(|key| format!(" (its first argument is '{}')", shown(key))).unwrap_or_default();
    let repair = "Nothing of the log was changed. Start a server that has this command on a copy of the folder, or take the \
                  command out of the copy (docs/durability.md, \"A log with a command that is unknown\")";
    refuse(turn, format!("{why}{key}. {repair}"));
}

/// SELECT needs to wait for nothing: each command goes to its shard with its database.
pub fn select(turn: &mut Turn, command: &Command, request: Request) -> Progress {
    match parse_db(request.arg(1), turn.server.shard.config().databases) {
        Ok(db) => {
            turn.session.db = db;
            turn.server.shard.meter.note(command.id);
        }
        Err(error) => {
            let (error, db) = (error.to_bytes(), printable(request.arg(1), 32).escape_ascii());
            let error = String::from_utf8_lossy(error.trim_ascii());
            refuse(
                turn,
                format!(
                    "SELECT {db} reading the append only file: {error}. Start with 'databases' as the server had it that \
                     wrote the log"
                ),
            );
        }
    }
    Progress::Taken
}
