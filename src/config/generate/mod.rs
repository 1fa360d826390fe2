//! What packages and pages need that follows from the table of directives: `emberdb --generate NAME` prints it.
//!
//! | file | what |
//! |---|---|
//! | `markdown.rs` | docs/configuration.md |
//! | `man.rs` | the man pages emberdb(1) and emberdb.conf(5) |
//! | `conf.rs` | an emberdb.conf in which every directive stands, with its default, as a comment |
//! | `completion.rs` | what shells complete |
//! | `rows.rs` | directives as all of these show them |

mod completion;
mod conf;
mod man;
mod markdown;
mod rows;

type Make = fn() -> String;

/// Each name, and what makes it.
const ALL: &[(&str, Make)] = &[
    ("configuration", markdown::configuration),
    ("emberdb.1", man::program),
    ("emberdb.conf.5", man::configuration),
    ("emberdb.conf", conf::packaged),
    ("bash", completion::bash),
    ("zsh", completion::zsh),
    ("fish", completion::fish),
];

/// The text of that name, without a last line break; none where there is no such name.
pub fn generate(name: &str) -> Option<String> {
    let (_, make) = ALL.iter().find(|(known, _)| *known == name)?;
    let mut text = make();
    text.truncate(text.trim_end().len());
    Some(text)
}

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|(name, _)| *name)
}
