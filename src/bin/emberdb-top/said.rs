//! What is said to whoever started the program. He may have stopped listening (`| head`), which is no reason to panic.

use std::fmt::Display;
use std::io::Write;

/// On standard output.
pub fn say(text: impl Display) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// On standard error.
pub fn complain(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "emberdb-top: {text}");
}
