//! `--help`, `--version` and the README's table, all from the one table.

use std::fmt::Write;

use super::directive::Directive;
use super::directives::DIRECTIVES;
use super::values::Kind;

pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

const USAGE: &str = "\
Usage: emberdb [/path/to/redis.conf | -] [--name value ...]
       emberdb [/path/to/redis.conf] [--name value ...] --check | --healthcheck
       emberdb -h | --help
       emberdb -v | --version

Without arguments it runs with the defaults below. - reads the configuration from standard
input. Every directive is also an option, which wins over the file:

       emberdb --port 7777 --bind 127.0.0.1 ::1
       emberdb /etc/emberdb.conf --loglevel verbose

--check reads the configuration, says what it would do, and ends: 0 where it would start.
--healthcheck asks the server that runs with this configuration: 0 where it answers and is not
loading, which is what a container's health check wants to know.

In the file a directive stands on a line of its own (port 7777); # begins a comment line and
include /path/to/other.conf reads another file. (R): CONFIG SET changes it while it runs.";

pub(super) fn version() -> String {
    format!("EmberDB {VERSION}")
}

pub(super) fn help() -> String {
    let mut text = format!("{}: a Redis-compatible in-memory server whose heart is expiry.\n\n{USAGE}\n", version());
    let width = DIRECTIVES.iter().map(|row| row.name.len()).max();
    let width = width.unwrap_or(0) + 2;
    let mut group = None;
    for row in DIRECTIVES {
        if group != Some(row.group) {
            text.push_str(&format!("\n{}\n", row.group.title()));
            if let Some(why) = row.group.absence() {
                text.push_str(&format!("  {why}\n"));
            }
            group = Some(row.group);
        }
        let option = format!("--{}", row.name);
        let mark = if row.mutable { "(R)" } else { "   " };
        writeln!(text, "  {option:width$} {mark} {}; default {}", meaning(row), shown_default(row))
            .expect("a String takes all text");
    }
    text.truncate(text.trim_end().len());
    text
}

/// The configuration table of the README: a header and one row a directive that acts, or would act where it is
/// accepted, a line break after each.
pub fn markdown_table() -> String {
    let mut text = String::from("| name | default | run time? | meaning |\n|---|---|---|---|\n");
    for row in DIRECTIVES.iter().filter(|row| row.group.absence().is_none()) {
        writeln!(
            text,
            "| `{}` | `{}` | {} | {} |",
            row.name,
            shown_default(row),
            if row.mutable { "yes" } else { "no" },
            meaning(row)
        )
        .expect("a String takes all text");
    }
    text
}

/// The README's table of directives without effect: a header and one row a feature, a line break after each.
pub fn markdown_absent_table() -> String {
    let mut text = String::from("| about | take one value only | take any value, without effect |\n|---|---|---|\n");
    for rows in DIRECTIVES.chunk_by(|a, b| a.group == b.group).filter(|rows| rows[0].group.absence().is_some()) {
        let names = |only: bool| {
            let chosen = rows.iter().filter(|row| matches!(row.kind, Kind::Only { .. }) == only);
            let name = |row: &Directive| match only {
                true => format!("`{} {}`", row.name, shown_default(row)),
                false => format!("`{}`", row.name),
            };
            chosen.map(name).collect::<Vec<_>>().join(", ")
        };
        writeln!(text, "| {} | {} | {} |", rows[0].group.title(), names(true), names(false))
            .expect("a String takes all text");
    }
    text
}

fn meaning(row: &Directive) -> String {
    match row.kind.describe() {
        valid if valid.is_empty() => row.help.to_string(),
        valid => format!("{} ({valid})", row.help),
    }
}

fn shown_default(row: &Directive) -> &'static str {
    match row.default {
        "" => "\"\"",
        default => default,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_every_directive_and_group_once() {
        let text = help();
        for row in DIRECTIVES {
            let option = format!("\n  --{} ", row.name);
            assert_eq!(text.matches(&option).count(), 1, "{}", row.name);
            let title = format!("\n{}\n", row.group.title());
            assert_eq!(text.matches(&title).count(), 1, "{title}");
        }
    }

    #[test]
    fn the_table_has_four_columns_in_every_line() {
        let table = markdown_table();
        let absent = markdown_absent_table();
        for row in DIRECTIVES {
            let name = |end| format!("`{}{end}", row.name);
            assert!(table.contains(&name("`")) || absent.contains(&name("`")) || absent.contains(&name(" ")));
        }
        for line in table.lines() {
            assert_eq!(line.matches('|').count(), 5, "{line}");
        }
        assert!(table.contains("| `hz` | `10` | yes | background work: rounds a second (1 to 500) |"));
    }
}
