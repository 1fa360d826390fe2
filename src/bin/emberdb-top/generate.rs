//! What packages need that follows from the flags: the man page, and what shells complete.

use crate::flags::{Flags, Generated};
use clap::CommandFactory;
use clap_complete::Shell;

/// The text for that, whole, so that it can be said to whoever listens no more.
pub fn text(what: Generated) -> String {
    let mut command = Flags::command();
    let mut text = Vec::new();
    let shell = match what {
        Generated::Man => {
            clap_mangen::Man::new(command).render(&mut text).expect("a Vec takes all text");
            return String::from_utf8_lossy(&text).into_owned();
        }
        Generated::Bash => Shell::Bash,
        Generated::Zsh => Shell::Zsh,
        Generated::Fish => Shell::Fish,
    };
    clap_complete::generate(shell, &mut command, "emberdb-top", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}
