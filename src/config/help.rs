//! `--help` and `--version`, from the table of directives.

use std::fmt::Write;

use super::directive::Directive;
use super::directives::DIRECTIVES;
use super::version::RedisVersion;

pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

const USAGE: &str = "\
Usage: emberdb [/path/to/redis.conf | -] [--name value ...]
       emberdb [/path/to/redis.conf] [--name value ...] --check | --healthcheck
       emberdb -h | --help
       emberdb -v | --version
       emberdb --generate NAME

Without arguments it runs with the defaults below. - reads the configuration from standard
input. Every directive is also an option, which wins over the file:

       emberdb --port 7777 --bind 127.0.0.1 ::1
       emberdb /etc/emberdb.conf --loglevel verbose

--check reads the configuration, says what it would do, and ends: 0 where it would start.
--healthcheck asks the server that runs with this configuration: 0 where it answers and is not
loading, which is what a container's health check wants to know.

In the file a directive stands on a line of its own (port 7777); # begins a comment line and
include /path/to/other.conf reads another file. (R): CONFIG SET changes it while it runs.";

/// Programs that start a redis-server of their own look for its `v=`.
pub(super) fn version() -> String {
    format!("EmberDB {VERSION} (as Redis server v={})", RedisVersion::DEFAULT)
}

pub(super) fn help() -> String {
    let mut text =
        format!("EmberDB {VERSION}: a Redis-compatible in-memory server whose heart is expiry.\n\n{USAGE}\n");
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

/// What a directive is about, and which values it takes.
pub(super) fn meaning(row: &Directive) -> String {
    match row.kind.describe() {
        valid if valid.is_empty() => row.help.to_string(),
        valid => format!("{} ({valid})", row.help),
    }
}

pub(super) fn shown_default(row: &Directive) -> &'static str {
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
}
