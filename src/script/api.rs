//! The library `redis`: what scripts can ask of the server.

use super::host::{Answer, Asked, with_call, with_current};
use super::shelf::digest;
use super::values;
use crate::config::RedisVersion;
use crate::lua::{Lua, MAX_BYTES, Raise, Returned, add_deprecated, check_killed, protect, refuse_unknown, wait};
use crate::observe::log;
use crate::resp::{Error, Proto, Request};
use std::cell::Cell;

/// What of the configuration decides what scripts see.
#[derive(Clone, Copy)]
pub struct Visible {
    pub version: RedisVersion,
    /// They see what Lua has deprecated, too.
    pub deprecated: bool,
}

/// Adds the library to what scripts see: the table of that is on top of the stack.
pub fn install(lua: Lua, visible: Visible) {
    if visible.deprecated {
        add_deprecated(lua);
    }
    push_library(lua, visible.version);
    let table = lua.top();
    lua.set_function(table, "replicate_commands", |lua| answer(lua, true));
    lua.set_function(table, "breakpoint", |lua| answer(lua, false));
    lua.set_function(table, "debug", |_| Ok(0));
    protect(lua);
    lua.set_field(-2, "redis");
}

/// Adds the library to what functions see.
pub fn install_for_functions(lua: Lua, visible: Visible) {
    if visible.deprecated {
        add_deprecated(lua);
    }
    push_library(lua, visible.version);
    protect(lua);
    lua.set_field(-2, "redis");
}

/// Adds what there is of the library while functions are loaded, `redis.register_function` being the
/// function on top of the stack.
pub fn install_for_loading(lua: Lua, version: RedisVersion) {
    lua.new_table(0, 16);
    lua.insert(-2);
    lua.set_field(-2, "register_function");
    let table = lua.top();
    lua.set_function(table, "log", log);
    set_constants(lua, version);
    refuse_unknown(lua);
    protect(lua);
    lua.set_field(-2, "redis");
}

fn push_library(lua: Lua, version: RedisVersion) {
    lua.new_table(0, 32);
    let table = lua.top();
    lua.set_function(table, "call", call);
    lua.set_function(table, "pcall", pcall);
    lua.set_function(table, "log", log);
    lua.set_function(table, "sha1hex", sha1hex);
    lua.set_function(table, "error_reply", error_reply);
    lua.set_function(table, "status_reply", status_reply);
    lua.set_function(table, "setresp", set_resp);
    lua.set_function(table, "set_repl", set_repl);
    lua.set_function(table, "acl_check_cmd", acl_check_cmd);
    set_numbers(lua, &REPL_FLAGS);
    set_constants(lua, version);
}

/// Adds what the library has at any time to the table on top of the stack.
fn set_constants(lua: Lua, version: RedisVersion) {
    set_numbers(lua, &LOG_LEVELS);
    set_numbers(lua, &[("REDIS_VERSION_NUM", version.number())]);
    lua.push_bytes(version.to_string());
    lua.set_field(-2, "REDIS_VERSION");
}

fn set_numbers(lua: Lua, numbers: &[(&str, i32)]) {
    for (name, number) in numbers {
        lua.push_number(f64::from(*number));
        lua.set_field(-2, name);
    }
}

const LOG_LEVELS: [(&str, i32); 4] = [("LOG_DEBUG", 0), ("LOG_VERBOSE", 1), ("LOG_NOTICE", 2), ("LOG_WARNING", 3)];
const REPL_FLAGS: [(&str, i32); 5] = [
    ("REPL_NONE", 0),
    ("REPL_AOF", REPL_AOF),
    ("REPL_SLAVE", REPL_REPLICA),
    ("REPL_REPLICA", REPL_REPLICA),
    ("REPL_ALL", REPL_AOF | REPL_REPLICA),
];
const REPL_AOF: i32 = 1;
const REPL_REPLICA: i32 = 2;

fn answer(lua: Lua, value: bool) -> Returned {
    lua.push_bool(value);
    Ok(1)
}

/// Buffers of a command and its reply, which are used again.
#[derive(Default)]
struct Scratch {
    buffer: Vec<u8>,
    spans: Vec<(u32, u32)>,
    out: Vec<u8>,
}

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// Larger buffers are not kept.
const SCRATCH_BYTES: usize = 64 * 1024;

impl Scratch {
    fn take() -> Box<Scratch> {
        SCRATCH.take().unwrap_or_default()
    }

    fn give_back(mut self: Box<Scratch>) {
        if self.buffer.capacity() <= SCRATCH_BYTES && self.out.capacity() <= SCRATCH_BYTES {
            self.buffer.clear();
            self.spans.clear();
            self.out.clear();
            SCRATCH.set(Some(self));
        }
    }
}

fn call(lua: Lua) -> Returned {
    run_command(lua, true)
}

fn pcall(lua: Lua) -> Returned {
    run_command(lua, false)
}

/// Runs the command that the arguments are. An error is raised, or returned.
fn run_command(lua: Lua, raises: bool) -> Returned {
    let mut scratch = Scratch::take();
    let returned = run_with(lua, raises, &mut scratch);
    scratch.give_back();
    returned
}

fn run_with(lua: Lua, raises: bool, scratch: &mut Scratch) -> Returned {
    check_killed(lua)?;
    let Scratch { buffer, spans, out } = scratch;
    if let Err(text) = collect_args(lua, buffer, spans) {
        return fail(lua, raises, &Error::text(text));
    }
    let proto = with_call(|shared| shared.proto.get());
    let answer = with_current(|host| host.run(Request::new(buffer, spans), proto, out));
    match answer {
        Answer::Written => {}
        Answer::Refused(error) => return fail(lua, raises, &error),
        Answer::Later => {
            let asked = Asked { buffer: std::mem::take(buffer), spans: std::mem::take(spans), proto };
            with_call(|shared| shared.asked.replace(Some(asked)));
            wait(lua)?;
            *out = with_call(|shared| shared.answer.take());
        }
    }
    lua.set_top(0);
    values::push(lua, out, proto)?;
    if raises && out.first() == Some(&b'-') {
        return Err(Raise);
    }
    Ok(1)
}

/// Takes down the arguments as those of a command.
fn collect_args(lua: Lua, buffer: &mut Vec<u8>, spans: &mut Vec<(u32, u32)>) -> Result<(), &'static str> {
    const TOO_LONG: &str = "ERR the arguments are too long";
    if lua.top() == 0 {
        return Err("ERR Please specify at least one argument for this redis lib call");
    }
    for arg in 1..=lua.top() {
        let start = u32::try_from(buffer.len()).map_err(|_| TOO_LONG)?;
        if let Some(number) = lua.number(arg) {
            values::write_number(buffer, number);
        } else if let Some(bytes) = lua.bytes(arg) {
            if buffer.len() + bytes.len() > MAX_BYTES {
                return Err(TOO_LONG);
            }
            buffer.extend_from_slice(bytes);
        } else {
            return Err("ERR Lua redis lib command arguments must be strings or integers");
        }
        spans.push((start, u32::try_from(buffer.len()).map_err(|_| TOO_LONG)?));
    }
    Ok(())
}

/// As much of a message as Redis logs.
const LOGGED_BYTES: usize = 1024;

/// An error that a command would have answered.
fn fail(lua: Lua, raises: bool, error: &Error) -> Returned {
    values::push_error(lua, &error.to_bytes());
    if raises { Err(Raise) } else { Ok(1) }
}

/// A function was called as it must not be.
pub(super) fn misuse(lua: Lua, text: &'static str) -> Returned {
    fail(lua, true, &Error::text(text))
}

fn log(lua: Lua) -> Returned {
    check_killed(lua)?;
    if lua.top() < 2 {
        return misuse(lua, "ERR redis.log() requires two arguments or more.");
    }
    let Some(level) = lua.number(1) else {
        return misuse(lua, "ERR First argument must be a number (log level).");
    };
    let mut text = Vec::new();
    for arg in 2..=lua.top() {
        let Some(word) = lua.to_bytes(arg) else { continue };
        if !text.is_empty() {
            text.push(b' ');
        }
        text.extend_from_slice(&word[..word.len().min(LOGGED_BYTES)]);
        if text.len() >= LOGGED_BYTES {
            break;
        }
    }
    text.truncate(LOGGED_BYTES);
    let text = String::from_utf8_lossy(&text);
    match level as i64 {
        0 => log::debug(format_args!("{text}")),
        1 => log::verbose(format_args!("{text}")),
        2 => log::notice(format_args!("{text}")),
        3 => log::warning(format_args!("{text}")),
        _ => return misuse(lua, "ERR Invalid debug level."),
    }
    Ok(0)
}

fn sha1hex(lua: Lua) -> Returned {
    if lua.top() != 1 {
        return misuse(lua, "ERR wrong number of arguments");
    }
    let digits = digest(lua.to_bytes(1).unwrap_or_default());
    lua.push_bytes(digits);
    Ok(1)
}

fn error_reply(lua: Lua) -> Returned {
    let text = if lua.top() == 1 { lua.bytes(1) } else { None };
    let Some(text) = text else {
        values::push_error(lua, b"ERR wrong number or type of arguments");
        return Ok(1);
    };
    let text = text.strip_prefix(b"-").unwrap_or(text);
    if text.contains(&b' ') {
        values::push_error(lua, text);
    } else {
        values::push_error(lua, &[b"ERR ", text].concat());
    }
    Ok(1)
}

fn status_reply(lua: Lua) -> Returned {
    let text = if lua.top() == 1 { lua.bytes(1) } else { None };
    match text {
        Some(text) => values::push_status(lua, text),
        None => values::push_error(lua, b"ERR wrong number or type of arguments"),
    }
    Ok(1)
}

fn set_resp(lua: Lua) -> Returned {
    check_killed(lua)?;
    if lua.top() != 1 {
        return misuse(lua, "ERR redis.setresp() requires one argument.");
    }
    let proto = match lua.to_number(1).map(|number| number as i64) {
        Some(2) => Proto::Resp2,
        Some(3) => Proto::Resp3,
        _ => return misuse(lua, "ERR RESP version must be 2 or 3."),
    };
    with_call(|shared| shared.proto.set(proto));
    Ok(0)
}

/// What a script does is propagated as its effects; there is nobody yet to whom it could be propagated in part.
fn set_repl(lua: Lua) -> Returned {
    if lua.top() != 1 {
        return misuse(lua, "ERR redis.set_repl() requires two arguments.");
    }
    let flags = lua.to_number(1).unwrap_or_default() as i64;
    if flags & !i64::from(REPL_AOF | REPL_REPLICA) != 0 {
        return misuse(lua, "ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.");
    }
    Ok(0)
}

/// Whether the user who has called the script may run a command.
fn acl_check_cmd(lua: Lua) -> Returned {
    check_killed(lua)?;
    let (mut buffer, mut spans) = (Vec::new(), Vec::new());
    if let Err(text) = collect_args(lua, &mut buffer, &mut spans) {
        return fail(lua, true, &Error::text(text));
    }
    let Some(is_allowed) = with_current(|host| host.allows(Request::new(&buffer, &spans))) else {
        return misuse(lua, "ERR Invalid command passed to redis.acl_check_cmd()");
    };
    lua.push_bool(is_allowed);
    Ok(1)
}
