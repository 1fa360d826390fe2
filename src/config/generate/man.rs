//! The man pages emberdb(1) and emberdb.conf(5), in the language of man(7).

use super::rows::{chapters, effective_chapters};
use crate::config::help::{VERSION, meaning};

pub(super) fn program() -> String {
    let mut page = head("EMBERDB", 1, "User Commands");
    page += "\
.SH NAME
emberdb \\- Redis\\-compatible in\\-memory store whose heart is expiry
.SH SYNOPSIS
.B emberdb
.RI [ /path/to/emberdb.conf\\  |\\  \\- ]
.RB [ \\-\\- \\fIname\\fR
.IR value\\  ...]
.br
.B emberdb
.BR \\-h \\ |\\  \\-\\-help
.br
.B emberdb
.BR \\-v \\ |\\  \\-\\-version
.SH DESCRIPTION
EmberDB keeps keys in memory that carry deadlines, are never seen after them, and give their memory back within a bound
that is promised, measured and published. It speaks the protocol of Redis (RESP2 and RESP3), so that
.BR redis\\-cli (1)
and the clients of Redis work with it.
.PP
Without arguments it serves 127.0.0.1:6379. The first argument may be a configuration file, or \\- for standard input. Every
directive of
.BR emberdb.conf (5)
is also an option, which wins over the file.
.SH OPTIONS
.TP
.BR \\-h ,\\  \\-\\-help
Print all directives with their defaults.
.TP
.BR \\-v ,\\  \\-\\-version
Print the version.
.TP
.BI \\-\\-generate\\  name
Print what follows from the table of directives:
";
    let names: Vec<&str> = super::names().collect();
    page += &format!("{}.\n", escaped(&names.join(", ")));
    page += "\
.TP
.BI \\-\\- name\\  value
Set a directive, for example
.B \\-\\-port 7777 \\-\\-bind 127.0.0.1 ::1
.SH SIGNALS
.TP
.BR SIGTERM ,\\  SIGINT
End, after a snapshot where the configuration has save points
.RB ( shutdown\\-on\\-sigterm ,
.BR shutdown\\-on\\-sigint ).
.SH EXIT STATUS
0 where it was told to end; 1 where it could not start, with the reason on standard error.
.SH FILES
.TP
.I /etc/emberdb/emberdb.conf
The configuration of the service.
.TP
.I /var/lib/emberdb
Its data.
.SH EXAMPLES
.nf
emberdb \\-\\-port 7777 \\-\\-appendonly yes \\-\\-dir /tmp/data
redis\\-cli \\-p 7777 SET session:42 alice EX 1800
.fi
.SH SEE ALSO
.BR emberdb.conf (5),
.BR emberdb\\-bench (1),
.BR redis\\-cli (1);
.I /usr/share/doc/emberdb
";
    page
}

pub(super) fn configuration() -> String {
    let mut page = head("EMBERDB.CONF", 5, "File Formats");
    page += "\
.SH NAME
emberdb.conf \\- configuration of emberdb
.SH DESCRIPTION
A directive stands on a line of its own: its name and its values. # begins a comment line; a value with blanks stands in
quotes, \"...\" with \\en, \\er, \\et, \\ea, \\eb, \\e\", \\e\\e and \\exHH or \\(aq...\\(aq; the last value wins.
.PP
.BI include\\  path
reads another file in that place; a pattern (*.conf) names all that there are. A line that begins with
.B user
describes a user, by the rules of ACL SETUSER. An amount of memory may have a unit: 1kb is 1024 bytes, 1k is 1000.
.PP
What is marked (R) can be changed by CONFIG SET while the server runs.
";
    for rows in effective_chapters() {
        page += &format!(".SH {}\n", escaped(&rows[0].group.title().to_uppercase()));
        for row in rows {
            let mark = if row.mutable { " (R)" } else { "" };
            page += &format!(".TP\n\\fB{}\\fR \\(dq{}\\(dq{mark}\n", escaped(row.name), escaped(row.default));
            page += &format!("{}.\n", escaped(&meaning(row)));
        }
    }
    page += ".SH DIRECTIVES OF REDIS WITHOUT EFFECT\n";
    page += "What would turn on what is not there is refused; other values are kept and shown, without effect.\n";
    for rows in chapters().filter(|rows| rows[0].group.absence().is_some()) {
        let names: Vec<&str> = rows.iter().map(|row| row.name).collect();
        page += &format!(".TP\n.B {}\n{}.\n", escaped(rows[0].group.title()), escaped(&names.join(", ")));
    }
    page += ".SH SEE ALSO\n.BR emberdb (1)\n";
    page
}

fn head(title: &str, section: u32, about: &str) -> String {
    // Names are neither broken nor spread.
    format!(
        ".\\\" Generated from the table of directives: emberdb --generate\n\
         .TH {title} {section} \"\" \"EmberDB {VERSION}\" \"{about}\"\n.ad l\n.nh\n"
    )
}

/// Text as the language has it: signs that it would read otherwise, and lines that it would take for its own.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq").replace('`', "");
    if text.starts_with('.') { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::directives::DIRECTIVES;

    #[test]
    fn every_directive_stands_on_the_page() {
        let page = configuration();
        for row in DIRECTIVES {
            assert!(page.contains(&escaped(row.name)), "{}", row.name);
        }
    }

    #[test]
    fn no_line_of_text_is_taken_for_a_macro() {
        const MACROS: &[&str] =
            &["TH", "SH", "TP", "B", "BR", "BI", "RB", "RI", "IR", "I", "PP", "ad", "nh", "br", "nf", "fi", "\\\""];
        for page in [program(), configuration()] {
            for line in page.lines().filter_map(|line| line.strip_prefix('.')) {
                let (word, _) = line.split_once(' ').unwrap_or((line, ""));
                assert!(MACROS.contains(&word), "{line}");
            }
            assert!(page.lines().all(|line| !line.starts_with('\'')));
        }
        assert_eq!(escaped(".5 - it's `x`"), "\\&.5 \\- it\\(aqs x");
    }
}
