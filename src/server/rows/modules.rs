//! MODULE: there are none, and none can be loaded.

use super::{container_spec, server_spec};
use crate::command::spec::flag::{ADMIN, NO_ASYNC_LOADING, NO_SCRIPT};
use crate::command::spec::{Row, Spec, tip};
use crate::resp::{Error, Request, Result};
use crate::server::state::{Run, SessionCtx};

pub const ROWS: &[Row<Run>] = &[Row::container(
    Spec { summary: "Groups commands about modules, of which there are none.", ..container_spec("module", "4.0.0") },
    Run::Container,
    &[
        Row::new(
            Spec { summary: "Lists the modules: none.", ..module_spec("list", 2, "4.0.0", "") },
            Run::Session(|ctx, _| {
                ctx.reply.array(0);
                Ok(())
            }),
        )
        .tips(&[tip::NONDETERMINISTIC_OUTPUT_ORDER]),
        Row::new(change("load", -3, "4.0.0", "path [arg]..."), Run::Session(unavailable)),
        Row::new(
            change("loadex", -3, "7.0.0", "path [CONFIG configs:(name value)]... [ARGS args:(arg)...]"),
            Run::Session(unavailable),
        ),
        Row::new(change("unload", 3, "4.0.0", "name"), Run::Session(unavailable)),
    ],
)];

/// A subcommand that would change something.
const fn change(name: &'static str, arity: i32, since: &'static str, syntax: &'static str) -> Spec {
    let of = module_spec(name, arity, since, syntax);
    Spec { flags: of.flags | NO_ASYNC_LOADING, summary: "Is refused.", ..of }
}

const fn module_spec(name: &'static str, arity: i32, since: &'static str, syntax: &'static str) -> Spec {
    Spec { syntax, ..server_spec(name, arity, ADMIN | NO_SCRIPT, since, "O(1)") }
}

fn unavailable(_: &mut SessionCtx, _: Request) -> Result {
    Err(Error::text("ERR modules are not available"))
}
