//! The configuration file that packages install: every directive with what it is about and its default, as a comment, and
//! in force only what a service needs.

use super::rows::{effective_chapters, wrapped};
use crate::config::help::{meaning, shown_default};

const HEAD: &str = "\
# The configuration of EmberDB. Each directive stands below with its default, behind a #: take that away
# to change it, and restart the service (systemctl restart emberdb). What is marked (R) can be changed by
# CONFIG SET while the server runs, too; CONFIG REWRITE writes that into this file.
#
#   emberdb.conf(5)      the same as a man page
#   emberdb --help       the same as a list, with the directives of Redis that have no effect here
#
# Nobody but this machine gets in as long as bind is 127.0.0.1. Before you change that set requirepass,
# or users (lines such as: user web on >secret ~web:* +@all -@dangerous).
";

/// What a service has otherwise than by default, and why.
const IN_FORCE: &[(&str, &str, &str)] = &[
    ("dir", "/var/lib/emberdb", "data of the service"),
    ("appendonly", "yes", "what was acknowledged outlasts a restart; a cache may go without"),
];
const WIDTH: usize = 98;

pub(super) fn packaged() -> String {
    let mut text = HEAD.to_owned();
    for rows in effective_chapters() {
        let title = rows[0].group.title();
        text += &format!("\n#### {title} {}\n", "#".repeat(WIDTH.saturating_sub(title.len() + 6)));
        for row in rows {
            let mark = if row.mutable { " (R)" } else { "" };
            text += "\n";
            for line in wrapped(&format!("{}{mark}", meaning(row)), WIDTH - 2) {
                text += &format!("# {line}\n");
            }
            match IN_FORCE.iter().find(|(name, ..)| *name == row.name) {
                Some((name, value, why)) => {
                    text += &format!("# (By default {}. Here: {why}.)\n{name} {value}\n", shown_default(row));
                }
                None => text += &format!("#{} {}\n", row.name, shown_default(row)),
            }
        }
    }
    text
}
