//! docs/configuration.md.

use std::fmt::Write;

use super::rows::{chapters, effective_chapters};
use crate::config::directive::Directive;
use crate::config::help::{meaning, shown_default};
use crate::config::values::Kind;

const HEAD: &str = "\
# Configuration

This page is generated from the table of directives: `emberdb --generate configuration`.

A directive stands in a file in the syntax of `redis.conf`, which is the first argument (`emberdb /etc/emberdb/emberdb.conf`), \
or on the command line, where it wins (`--port 7000`). In the file `#` begins a comment line, a value with blanks or \
unusual bytes is put in quotes, and `include /path` reads another file in that place, `include /path/*.conf` all that there \
are. A name or a value that is wrong ends the start with the line, the reason and the nearest name that there is.

`CONFIG SET` changes what is marked *run time* while the server runs: all of its pairs, or none where one is wrong. \
`CONFIG GET` shows what is set, `CONFIG REWRITE` writes it into the file that the server was started with, and leaves \
comments and order in place. A unit may follow an amount of memory: `100mb` is 100 x 1024 x 1024, `100m` is 100,000,000.

## Every directive

";

const MIDDLE: &str = "
`active-expire-effort` sets those of `active-expire-cpu-percent`, `-fast-us`, `-sample-size` and `-acceptable-stale` \
that nobody set.

## Directives of Redis without effect

All other directives of redis.conf 7.0 are known, too. Whatever would turn on what is not there is refused, with the \
reason; the others are kept for `CONFIG GET` and `CONFIG REWRITE`, and a notice at start names those that are set to \
something else than the default. `emberdb --help` says what each is about.

";

const TAIL: &str = "
`rename-command` and `loadmodule` are refused.
";

pub(super) fn configuration() -> String {
    let mut text = HEAD.to_owned();
    text.push_str("| name | default | run time? | meaning |\n|---|---|---|---|\n");
    for row in effective_chapters().flatten() {
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
    text.push_str(MIDDLE);
    text.push_str("| about | take one value only | take any value, without effect |\n|---|---|---|\n");
    for rows in chapters().filter(|rows| rows[0].group.absence().is_some()) {
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
    text + TAIL
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::directives::DIRECTIVES;

    #[test]
    fn every_directive_stands_on_the_page_and_tables_have_their_columns() {
        let page = configuration();
        for row in DIRECTIVES {
            let name = |end| format!("`{}{end}", row.name);
            assert!(page.contains(&name("`")) || page.contains(&name(" ")), "{}", row.name);
        }
        let rows = |head: &str| {
            let table = page.split(head).nth(1).expect("a table");
            table.lines().skip(1).take_while(|line| !line.is_empty()).map(|line| line.matches('|').count())
        };
        assert!(rows("| meaning |").all(|bars| bars == 5));
        assert!(rows("without effect |").all(|bars| bars == 4));
        assert!(page.contains("| `hz` | `10` | yes | background work: rounds a second (1 to 500) |"));
    }
}
