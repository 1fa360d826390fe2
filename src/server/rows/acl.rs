//! ACL: what there is to say of users where there is one, `default`, who may do everything. Commands that would make
//! others are refused.

use super::connection::DEFAULT_USER;
use super::{container_spec, server_spec};
use crate::command::OwnedRequest;
use crate::command::describe::{self, CATEGORIES, Filter};
use crate::command::spec::flag::{ADMIN, LOADING, NO_SCRIPT, STALE};
use crate::command::spec::{Row, Secrets, Spec};
use crate::resp::{Error, Reply, Request, Result, printable};
use crate::server::state::{Found, Run, SessionCtx};
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::Read;

const ONE_USER: Error = Error::text(
    "ERR ACL users are not available yet: there is only the default user, who may do everything; requirepass is the \
     password",
);

const OPEN: u32 = NO_SCRIPT | LOADING | STALE;

pub const ROWS: &[Row<Run>] = &[Row::container(
    Spec { summary: "Groups questions about users. There is one, default.", ..container_spec("acl", "6.0.0") },
    Run::Container,
    &[
        Row::new(
            Spec {
                summary: "Lists all categories of commands, or the commands of one.",
                syntax: "[categoryname]",
                ..server_spec("cat", -2, OPEN, "6.0.0", "O(n) in the number of commands")
            },
            Run::Session(cat),
        ),
        Row::new(
            Spec {
                summary: "Is refused: there are no users besides the default user, who stays.",
                syntax: "username...",
                ..admin_spec("deluser", -3, "6.0.0")
            },
            Run::Session(delete_users),
        )
        .hiding(Secrets::From(2)),
        Row::new(
            Spec {
                summary: "Says whether a user may run a command, without running it.",
                syntax: "username command [arg]...",
                ..admin_spec("dryrun", -4, "7.0.0")
            },
            Run::Session(dry_run),
        ),
        Row::new(
            Spec {
                summary: "Makes up a password, as hexadecimal digits, of 256 bits if not said otherwise.",
                syntax: "[bits:integer]",
                ..server_spec("genpass", -2, OPEN, "6.0.0", "O(n) in the number of bits")
            },
            Run::Session(generate_password),
        ),
        Row::new(
            Spec { summary: "Tells what a user may do.", syntax: "username", ..admin_spec("getuser", 3, "6.0.0") },
            Run::Session(get_user),
        )
        .hiding(Secrets::From(2)),
        Row::new(
            Spec { summary: "Lists the users as lines of a configuration.", ..admin_spec("list", 2, "6.0.0") },
            Run::Session(list),
        ),
        Row::new(
            Spec { summary: "Is refused: there is no file of users.", ..admin_spec("load", 2, "6.0.0") },
            Run::Session(refuse),
        ),
        Row::new(
            Spec {
                summary: "Shows what users were refused, which is nothing. (Wrong passwords are not kept.)",
                syntax: "[operation:(count:integer|RESET)]",
                ..admin_spec("log", -2, "6.0.0")
            },
            Run::Session(show_log),
        ),
        Row::new(
            Spec { summary: "Is refused: there is no file of users.", ..admin_spec("save", 2, "6.0.0") },
            Run::Session(refuse),
        ),
        Row::new(
            Spec {
                summary: "Is refused: the default user may do everything, and there are no others.",
                syntax: "username [rule]...",
                ..admin_spec("setuser", -3, "6.0.0")
            },
            Run::Session(refuse),
        )
        .hiding(Secrets::From(2)),
        Row::new(
            Spec { summary: "Lists the names of the users.", ..admin_spec("users", 2, "6.0.0") },
            Run::Session(|ctx, _| {
                ctx.reply.array(1);
                ctx.reply.bulk(DEFAULT_USER);
                Ok(())
            }),
        ),
        Row::new(
            Spec {
                summary: "Returns the name of the connection's user.",
                ..server_spec("whoami", 2, OPEN, "6.0.0", "O(1)")
            },
            Run::Session(|ctx, _| {
                ctx.reply.bulk(DEFAULT_USER);
                Ok(())
            }),
        ),
    ],
)];

const fn admin_spec(name: &'static str, arity: i32, since: &'static str) -> Spec {
    server_spec(name, arity, ADMIN | OPEN, since, "O(1)")
}

fn refuse(_: &mut SessionCtx, _: Request) -> Result {
    Err(ONE_USER)
}

fn delete_users(_: &mut SessionCtx, request: Request) -> Result {
    if request.from(2).any(|name| name == DEFAULT_USER) {
        return Err(Error::text("ERR The 'default' user cannot be removed"));
    }
    Err(ONE_USER)
}

fn cat(ctx: &mut SessionCtx, request: Request) -> Result {
    match request.len() {
        2 => {
            ctx.reply.array(CATEGORIES.len());
            CATEGORIES.iter().for_each(|category| ctx.reply.bulk(&category.as_bytes()[1..]));
        }
        3 => {
            let wanted = request.arg(2);
            if !CATEGORIES.iter().any(|category| category.as_bytes()[1..].eq_ignore_ascii_case(wanted)) {
                return Err(Error::quoting(&[b"ERR Unknown category '", printable(wanted, 128), b"'"]));
            }
            let rows = ctx.server.table.commands().map(|command| &command.row);
            describe::list(&mut ctx.reply, rows, Filter::Category(wanted));
        }
        _ => return Err(Error::bad_subcommand("ACL", request.arg(1))),
    }
    Ok(())
}

fn dry_run(ctx: &mut SessionCtx, request: Request) -> Result {
    if request.arg(2) != DEFAULT_USER {
        return Err(Error::quoting(&[b"ERR User '", printable(request.arg(2), 128), b"' not found"]));
    }
    let asked = OwnedRequest::from_args(request.from(3));
    let asked = asked.as_request();
    let Found::Command(command) = ctx.server.table.find(asked) else {
        return Err(Error::quoting(&[b"ERR Command '", printable(asked.arg(0), 128), b"' not found"]));
    };
    if !command.spec.accepts(asked.len()) {
        return Err(Error::WrongArity(command.full_name.to_owned()));
    }
    ctx.reply.ok();
    Ok(())
}

const BITS_DEFAULT: i64 = 256;
const BITS_MAX: i64 = 4096;
const BITS_A_DIGIT: usize = 4;

fn generate_password(ctx: &mut SessionCtx, request: Request) -> Result {
    let bits = match request.len() {
        2 => BITS_DEFAULT,
        3 => request.int(2)?,
        _ => return Err(Error::bad_subcommand("ACL", request.arg(1))),
    };
    if !(1..=BITS_MAX).contains(&bits) {
        return Err(Error::text(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096",
        ));
    }
    let digits = (bits as usize).div_ceil(BITS_A_DIGIT);
    let mut bytes = vec![0; digits.div_ceil(2)];
    // What the kernel has is fit for passwords, and is there without waiting.
    File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut bytes))
        .map_err(|error| Error::err(format_args!("the system gives no random numbers: {error}")))?;
    ctx.reply.bulk(&hexadecimal(&bytes).as_bytes()[..digits]);
    Ok(())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What is shown of the password; None where any will do.
fn password_hash(ctx: &SessionCtx) -> Option<String> {
    let config = ctx.server.shard.config();
    (!config.requirepass.is_empty()).then(|| hexadecimal(&Sha256::digest(config.requirepass.as_bytes())))
}

fn get_user(ctx: &mut SessionCtx, request: Request) -> Result {
    if request.arg(2) != DEFAULT_USER {
        ctx.reply.nil();
        return Ok(());
    }
    let hash = password_hash(ctx);
    let flags: &[&str] = if hash.is_some() { &["on"] } else { &["on", "nopass"] };
    let reply = &mut ctx.reply;
    reply.map(6);
    reply.bulk(b"flags");
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"passwords");
    reply.array(hash.iter().len());
    hash.iter().for_each(|hash| reply.bulk(hash.as_bytes()));
    write_pair(reply, "commands", "+@all");
    write_pair(reply, "keys", "~*");
    write_pair(reply, "channels", "&*");
    reply.bulk(b"selectors");
    reply.array(0);
    Ok(())
}

fn write_pair(reply: &mut Reply, name: &str, value: &str) {
    reply.bulk(name.as_bytes());
    reply.bulk(value.as_bytes());
}

fn list(ctx: &mut SessionCtx, _: Request) -> Result {
    let password = password_hash(ctx).map_or("nopass".to_owned(), |hash| format!("#{hash}"));
    ctx.reply.array(1);
    ctx.reply.bulk(format!("user default on {password} ~* &* +@all").as_bytes());
    Ok(())
}

/// Nobody is refused anything, so there is nothing to forget either.
fn show_log(ctx: &mut SessionCtx, request: Request) -> Result {
    match request.len() {
        2 => ctx.reply.array(0),
        3 if request.is(2, "reset") => ctx.reply.ok(),
        3 => {
            request.int(2)?;
            ctx.reply.array(0);
        }
        _ => return Err(Error::bad_subcommand("ACL", request.arg(1))),
    }
    Ok(())
}
