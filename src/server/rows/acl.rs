//! ACL: users are made, changed and looked at; what they were refused is shown. A change is made to the process's users,
//! then all shards take it over; only then it is answered.

use super::{container_spec, server_spec};
use crate::acl::log::Entry;
use crate::acl::{DEFAULT, Denied, Selector, User, Users, is_name};
use crate::clock::realtime_us;
use crate::command::OwnedRequest;
use crate::command::describe::{self, CATEGORIES, Filter};
use crate::command::spec::flag::{ADMIN, LOADING, NO_SCRIPT, STALE};
use crate::command::spec::{Row, Secrets, Spec};
use crate::observe::log;
use crate::resp::{Error, Reply, Request, Result, printable};
use crate::server::client::multi::Verb;
use crate::server::kept::acl_file::{self, has_all_channels};
use crate::server::run::callee::guarded;
use crate::server::state::{Found, Run, SessionCtx, TaskCtx};
use crate::server::told::users::tell_all;
use std::convert::Infallible;
use std::fs::File;
use std::io::Read;
use std::sync::{Mutex, PoisonError};

const OPEN: u32 = NO_SCRIPT | LOADING | STALE;

pub const ROWS: &[Row<Run>] = &[Row::container(
    Spec { summary: "Groups what is about users and their rights.", ..container_spec("acl", "6.0.0") },
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
                summary: "Removes users, and ends their connections.",
                syntax: "username...",
                ..admin_spec("deluser", -3, "6.0.0")
            },
            Run::Task(|ctx| Box::pin(delete_users(ctx))),
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
            Spec { summary: "Takes the users of the ACL file, all or none of them.", ..admin_spec("load", 2, "6.0.0") },
            Run::Task(|ctx| Box::pin(load(ctx))),
        ),
        Row::new(
            Spec {
                summary: "Shows what users were refused, and wrong passwords.",
                syntax: "[operation:(count:integer|RESET)]",
                ..admin_spec("log", -2, "6.0.0")
            },
            Run::Task(|ctx| Box::pin(show_log(ctx))),
        ),
        Row::new(
            Spec { summary: "Writes the users to the ACL file.", ..admin_spec("save", 2, "6.0.0") },
            Run::Task(|ctx| Box::pin(save(ctx))),
        ),
        Row::new(
            Spec {
                summary: "Makes or changes a user, by all of the rules or none.",
                syntax: "username [rule]...",
                ..admin_spec("setuser", -3, "6.0.0")
            },
            Run::Task(|ctx| Box::pin(set_user(ctx))),
        )
        .hiding(Secrets::From(2)),
        Row::new(
            Spec { summary: "Lists the names of the users.", ..admin_spec("users", 2, "6.0.0") },
            Run::Session(|ctx, _| {
                let users = ctx.server.users.get();
                ctx.reply.array(users.iter().len());
                users.iter().for_each(|user| ctx.reply.bulk(&user.name));
                Ok(())
            }),
        ),
        Row::new(
            Spec {
                summary: "Returns the name of the connection's user.",
                ..server_spec("whoami", 2, OPEN, "6.0.0", "O(1)")
            },
            Run::Session(|ctx, _| {
                ctx.reply.bulk(ctx.session.user_name());
                Ok(())
            }),
        ),
    ],
)];

const fn admin_spec(name: &'static str, arity: i32, since: &'static str) -> Spec {
    server_spec(name, arity, ADMIN | OPEN, since, "O(n) in the number of users, or of rules of one")
}

async fn set_user(ctx: TaskCtx) -> Result<Vec<u8>> {
    let request = ctx.request.as_request();
    let name = request.arg(2);
    if !is_name(name) {
        return Err(Error::text("ERR Usernames can't contain spaces or null characters"));
    }
    let rules: Vec<&[u8]> = request.from(3).collect();
    {
        let global = &ctx.server.global;
        let config = global.config();
        let all_channels = has_all_channels(&config);
        let modify = |users: &mut Users| users.modify(&global.users.vocabulary, name, &rules, all_channels);
        global.users.change(modify).map_err(|error| Error::quoting(&[b"ERR ", &error.text()]))?;
    }
    tell_all(&ctx.server, ctx.client.id).await;
    Ok(ctx.reply(|reply| reply.ok()))
}

async fn delete_users(ctx: TaskCtx) -> Result<Vec<u8>> {
    let request = ctx.request.as_request();
    if request.from(2).any(|name| name == DEFAULT) {
        return Err(Error::text("ERR The 'default' user cannot be removed"));
    }
    let removed = {
        let global = &ctx.server.global;
        let remove = |users: &mut Users| Ok(request.from(2).filter(|name| users.remove(name)).count());
        global.users.change(remove).unwrap_or_else(|never: Infallible| match never {})
    };
    tell_all(&ctx.server, ctx.client.id).await;
    Ok(ctx.reply(|reply| reply.int(removed as i64)))
}

const NO_FILE: Error = Error::text(
    "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER \
     command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store users \
     in the Redis configuration.",
);

fn path(ctx: &TaskCtx) -> Result<String> {
    let path = ctx.server.shard.config().aclfile.clone();
    if path.is_empty() { Err(NO_FILE) } else { Ok(path) }
}

async fn load(ctx: TaskCtx) -> Result<Vec<u8>> {
    let path = path(&ctx)?;
    let global = ctx.server.global.clone();
    // On a thread beside the shard: nobody waits for the disk.
    let loaded = ctx.server.transport.beside(move || {
        let before = global.users.newest();
        let all_channels = has_all_channels(&global.config());
        let read = acl_file::read(&global.users.vocabulary, &path, &before, all_channels);
        read.map_err(|errors| Error::quoting(&[b"ERR ", errors.text()])).map(|loaded| {
            // (A user who was made meanwhile is gone, too: the file is all there is.)
            let replace = |users: &mut Users| {
                users.replace_by(loaded);
                Ok(())
            };
            global.users.change(replace).unwrap_or_else(|never: Infallible| match never {});
        })
    });
    loaded.await.unwrap_or_else(|error| Err(Error::err(error)))?;
    tell_all(&ctx.server, ctx.client.id).await;
    Ok(ctx.reply(|reply| reply.ok()))
}

/// Held while the file is written, so that of two the later one has the newer users.
static SAVING: Mutex<()> = Mutex::new(());

async fn save(ctx: TaskCtx) -> Result<Vec<u8>> {
    let path = path(&ctx)?;
    let global = ctx.server.global.clone();
    let written = ctx.server.transport.beside(move || {
        let _alone = SAVING.lock().unwrap_or_else(PoisonError::into_inner);
        acl_file::write(&path, &global.users.newest()).map_err(|error| error.to_string())
    });
    match written.await.unwrap_or_else(|error| Err(error.to_string())) {
        Ok(()) => Ok(ctx.reply(|reply| reply.ok())),
        Err(reason) => {
            log::warning(format_args!("Writing the ACL file failed: {reason}"));
            Err(Error::text(
                "ERR There was an error trying to save the ACLs. Please check the server logs for more information",
            ))
        }
    }
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
    let users = ctx.server.users.get();
    let Some(user) = users.get(request.arg(2)) else {
        return Err(Error::quoting(&[b"ERR User '", printable(request.arg(2), 128), b"' not found"]));
    };
    let asked = OwnedRequest::from_args(request.from(3));
    let asked = asked.as_request();
    let Found::Command(command) = ctx.server.table.find(asked) else {
        return Err(Error::quoting(&[b"ERR Command '", printable(asked.arg(0), 128), b"' not found"]));
    };
    if !command.spec.accepts(asked.len()) {
        return Err(Error::WrongArity(command.full_name.to_owned()));
    }
    // What is guarded is asked about like the guard.
    let guarded = match command.run {
        Run::Multi(Verb::Guard) => Some(guarded(ctx.server, asked)?),
        _ => None,
    };
    const HEAD: &[u8] = b"This user has no permissions to ";
    for (command, asked) in [(command, asked)].into_iter().chain(guarded) {
        let Err(denied) = user.check(&ctx.server.global.users.vocabulary, command.id, asked) else { continue };
        let what = match denied {
            Denied::Command => [b"run the '", command.full_name.as_bytes(), b"' command"],
            Denied::Key(index) => [b"access the '", asked.arg(index), b"' key"],
            Denied::Channel(index) => [b"access the '", asked.arg(index), b"' channel"],
        };
        ctx.reply.bulk(&[HEAD, &what.concat()].concat());
        return Ok(());
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
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    ctx.reply.bulk(&text.as_bytes()[..digits]);
    Ok(())
}

fn get_user(ctx: &mut SessionCtx, request: Request) -> Result {
    let users = ctx.server.users.get();
    match users.get(request.arg(2)) {
        Some(user) => reply_user(&mut ctx.reply, user),
        None => ctx.reply.nil(),
    }
    Ok(())
}

fn reply_user(reply: &mut Reply, user: &User) {
    reply.map(6);
    reply.bulk(b"flags");
    let flags = user.flags();
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"passwords");
    let passwords = user.passwords();
    reply.array(passwords.len());
    passwords.for_each(|hash| reply.bulk(hash.as_bytes()));
    let rules = |reply: &mut Reply, selector: &Selector| {
        write_pair(reply, "commands", &selector.commands());
        write_pair(reply, "keys", &selector.keys().join(&b' '));
        write_pair(reply, "channels", &selector.channels().join(&b' '));
    };
    rules(reply, user.root());
    reply.bulk(b"selectors");
    reply.array(user.selectors().len());
    for selector in user.selectors() {
        reply.map(3);
        rules(reply, selector);
    }
}

fn write_pair(reply: &mut Reply, name: &str, value: &[u8]) {
    reply.bulk(name.as_bytes());
    reply.bulk(value);
}

fn list(ctx: &mut SessionCtx, _: Request) -> Result {
    let users = ctx.server.users.get();
    ctx.reply.array(users.iter().len());
    users.iter().for_each(|user| ctx.reply.bulk(&user.line()));
    Ok(())
}

const SHOWN_DEFAULT: i64 = 10;

async fn show_log(ctx: TaskCtx) -> Result<Vec<u8>> {
    let request = ctx.request.as_request();
    let count = match request.len() {
        2 => SHOWN_DEFAULT,
        3 if request.is(2, "reset") => {
            ctx.server.log_refused();
            ctx.server.global.users.log().clear();
            return Ok(ctx.reply(|reply| reply.ok()));
        }
        3 => request.int(2)?,
        _ => return Err(Error::bad_subcommand("ACL", request.arg(1))),
    };
    // (Of a transaction what came before may not stand there yet.)
    ctx.server.log_refused();
    let now_ms = realtime_us() / 1_000;
    let log = ctx.server.global.users.log();
    let entries: Vec<&Entry> = log.iter().take(usize::try_from(count).unwrap_or(0)).collect();
    Ok(ctx.reply(|reply| {
        reply.array(entries.len());
        entries.iter().for_each(|entry| reply_entry(reply, entry, now_ms));
    }))
}

fn reply_entry(reply: &mut Reply, entry: &Entry, now_ms: u64) {
    reply.map(7);
    reply.bulk(b"count");
    reply.int(i64::try_from(entry.count).unwrap_or(i64::MAX));
    write_pair(reply, "reason", entry.reason.name().as_bytes());
    write_pair(reply, "context", entry.context.name().as_bytes());
    write_pair(reply, "object", &entry.object);
    write_pair(reply, "username", &entry.user);
    reply.bulk(b"age-seconds");
    reply.double(now_ms.saturating_sub(entry.time_ms) as f64 / 1_000.0);
    write_pair(reply, "client-info", entry.client.as_bytes());
}
