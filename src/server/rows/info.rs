//! INFO: the facts as lines of `name:value`, in sections.

use crate::command::spec::flag::{LOADING, STALE};
use crate::command::spec::{Group, Keys, Row, Spec, tip};
use crate::resp::{Request, Result};
use crate::server::facts::{self, Facts, Gathered, LATENCYSTATS, ON_REQUEST, SECTIONS};
use crate::server::state::{Run, TaskCtx};
use std::fmt::Write;

pub const ROWS: &[Row<Run>] = &[Row::new(
    Spec {
        name: "info",
        arity: -1,
        flags: LOADING | STALE,
        keys: Keys::NONE,
        group: Group::Server,
        since: "1.0.0",
        complexity: "O(1), and O(n) in the number of dead keys not deleted yet and of connections",
        summary: "Tells about the server, by section.",
        syntax: "[section]...",
    },
    Run::Task(|ctx| Box::pin(info(ctx))),
)
.tips(&[tip::NONDETERMINISTIC_OUTPUT, tip::ASK_ALL_SHARDS, tip::REPLY_SPECIAL])];

/// Words that stand for all sections that need not be asked for, or for all.
const DEFAULT: &str = "default";
const EVERY_SECTION: [&str; 2] = ["all", "everything"];

async fn info(ctx: TaskCtx) -> Result<Vec<u8>> {
    let request = ctx.request.as_request();
    let gathered = facts::gather(&ctx.server, is_wanted(request, LATENCYSTATS)).await;
    let text = text_of(request, &gathered);
    Ok(ctx.reply(|reply| reply.verbatim("txt", &text)))
}

fn text_of(request: Request, gathered: &Gathered) -> String {
    let mut text = String::new();
    for (name, tell) in SECTIONS.iter().filter(|(name, _)| is_wanted(request, name)) {
        let mut told = Facts::default();
        tell(&mut told, gathered);
        let gap = if text.is_empty() { "" } else { "\r\n" };
        // Writing to a string does not fail.
        let _ = write!(text, "{gap}# {name}\r\n");
        for fact in told.0 {
            let _ = write!(text, "{}:{}\r\n", fact.name, fact.value);
        }
    }
    text
}

fn is_wanted(request: Request, section: &str) -> bool {
    let is_default = !ON_REQUEST.contains(&section);
    let names = |index| {
        request.is(index, section)
            || is_default && request.is(index, DEFAULT)
            || EVERY_SECTION.iter().any(|word| request.is(index, word))
    };
    request.len() == 1 && is_default || (1..request.len()).any(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::OwnedRequest;

    #[test]
    fn sections_are_chosen_by_name() {
        let chosen = |line: &str| {
            let request = OwnedRequest::from_args(line.split(' ').map(str::as_bytes));
            let names = SECTIONS.iter().map(|(name, _)| *name);
            names.filter(|name| is_wanted(request.as_request(), name)).collect::<Vec<_>>()
        };
        assert_eq!(chosen("info").len(), SECTIONS.len() - ON_REQUEST.len());
        assert_eq!(chosen("info default errorstats"), chosen("info"));
        assert_eq!(chosen("info nosuch ALL").len(), SECTIONS.len());
        assert_eq!(chosen("info KeySpace server nosuch"), ["Server", "Keyspace"]);
        assert!(chosen("info nosuch").is_empty());
    }
}
