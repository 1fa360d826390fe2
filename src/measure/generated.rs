//! What packages need of a program that follows from the flags: the man page, and what shells complete.

use clap::{Command, ValueEnum};
use clap_complete::Shell;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Generated {
    Man,
    Bash,
    Zsh,
    Fish,
}

impl Generated {
    /// The text for a program with these flags, whole, so that it can be said to whoever listens no more.
    #[must_use]
    pub fn text(self, mut command: Command) -> String {
        let mut text = Vec::new();
        let shell = match self {
            Generated::Man => {
                let page = clap_mangen::Man::new(command.version(env!("CARGO_PKG_VERSION")));
                page.render(&mut text).expect("a Vec takes all text");
                return String::from_utf8_lossy(&text).into_owned();
            }
            Generated::Bash => Shell::Bash,
            Generated::Zsh => Shell::Zsh,
            Generated::Fish => Shell::Fish,
        };
        let name = command.get_name().to_owned();
        clap_complete::generate(shell, &mut command, name, &mut text);
        String::from_utf8_lossy(&text).into_owned()
    }
}
