//! What a command calls: a script, a function of a library, or what it guards.

use crate::command::spec::flag::{BY_CALLEE, DENY_OOM, MAY_REPLICATE, STALE, WRITE};
use crate::lua::Machine;
use crate::observe::log;
use crate::resp::{Error, Request, Result, printable};
use crate::script::{Called, Conduct, Flags, Function, Header, Loaded, Script, named};
use crate::server::client::multi::Verb;
use crate::server::state::{By, Calls, Command, Found, Run, Server};
use std::rc::Rc;
use std::sync::atomic::Ordering;

pub enum Callee {
    Script(Rc<Script>),
    /// A function, and its library as this shard has loaded it.
    Function(Function, Option<Rc<Loaded>>),
}

/// What a command asks for, and how many of its arguments are keys, from the third on.
pub fn find(server: &Server, calls: Calls, request: Request) -> Result<(Callee, usize)> {
    let (callee, keys) = match calls.by {
        By::Function => (find_function(server, request)?, count_keys(request, BAD_NUMBER)?),
        // What is no digest is looked at before the number of keys is.
        By::Digest if named(request.arg(1)).is_none() => return Err(NO_SCRIPT),
        _ => {
            let keys = count_keys(request, Error::NotAnInteger)?;
            (Callee::Script(find_script(server, calls, request)?), keys)
        }
    };
    if calls.read_only && callee.may_write() {
        return Err(Error::text("ERR Can not execute a script with write flag using *_ro command."));
    }
    Ok((callee, keys))
}

/// The command that GUARD is around, and its request.
pub fn guarded<'s, 'r>(server: &'s Server, request: Request<'r>) -> Result<(&'s Command, Request<'r>)> {
    let guarded = request.rest(3);
    if guarded.is_empty() {
        return Err(Error::WrongArity("guard".to_owned()));
    }
    let Found::Command(command) = server.table.find(guarded) else {
        let name = printable(guarded.arg(0), 128);
        return Err(Error::quoting(&[b"ERR unknown command '", name, b"' behind GUARD"]));
    };
    if !command.spec.accepts(guarded.len()) {
        return Err(Error::WrongArity(command.full_name.to_owned()));
    }
    Ok((command, guarded))
}

/// Whether a request ends a transaction, guarded or not.
pub fn is_exec(server: &Server, command: &Command, request: Request) -> bool {
    match command.run {
        Run::Multi(Verb::Exec) => true,
        Run::Multi(Verb::Guard) => {
            guarded(server, request).is_ok_and(|(inner, _)| matches!(inner.run, Run::Multi(Verb::Exec)))
        }
        _ => false,
    }
}

/// A command's flags, as conditions look at them: where a script is called that says what it needs, that counts, whatever
/// its command may do; and where something is guarded, that.
pub fn flags_of(server: &Server, command: &Command, request: Request) -> u32 {
    if let Run::Multi(Verb::Guard) = command.run {
        return match guarded(server, request) {
            // (It is refused.)
            Ok((inner, _)) if matches!(inner.run, Run::Multi(Verb::Guard)) => command.spec.flags & !BY_CALLEE,
            Ok((inner, guarded)) => flags_of(server, inner, guarded),
            Err(_) => command.spec.flags & !BY_CALLEE,
        };
    }
    let Run::Script(calls) = command.run else { return command.spec.flags };
    let flags = command.spec.flags & !BY_CALLEE;
    declared(server, calls, request).map_or(flags, |declared| with_declared(flags, declared))
}

/// What is called says this of itself, if anything.
fn declared(server: &Server, calls: Calls, request: Request) -> Option<Flags> {
    if calls.by == By::Source {
        // It may not come to be called: it is not kept for that.
        let header = Header::parse(request.arg(1)).ok()?;
        return (header.bytes > 0).then_some(header.flags);
    }
    find(server, calls, request).ok()?.0.declared()
}

/// The flags of a call of what declares these.
fn with_declared(flags: u32, declared: Flags) -> u32 {
    let may_write = !declared.has(Flags::NO_WRITES);
    let needs_memory = may_write && !declared.has(Flags::ALLOW_OOM);
    let when = |holds: bool, flag: u32| if holds { flag } else { 0 };
    (flags & !(STALE | DENY_OOM | WRITE | MAY_REPLICATE))
        | when(may_write, WRITE)
        | when(needs_memory, DENY_OOM)
        | when(declared.has(Flags::ALLOW_STALE), STALE)
}

const NO_SCRIPT: Error = Error::text("NOSCRIPT No matching script. Please use EVAL.");
const BAD_NUMBER: Error = Error::text("ERR Bad number of keys provided");

fn count_keys(request: Request, no_number: Error) -> Result<usize> {
    let count = request.int(2).map_err(|_| no_number)?;
    if count > request.len() as i64 - 3 {
        return Err(Error::text("ERR Number of keys can't be greater than number of args"));
    }
    usize::try_from(count).map_err(|_| Error::text("ERR Number of keys can't be negative"))
}

fn find_script(server: &Server, calls: Calls, request: Request) -> Result<Rc<Script>> {
    if calls.by == By::Source {
        return server.scripting.scripts.load(request.arg(1), true);
    }
    let script = match named(request.arg(1)) {
        Some(digest) => server.scripting.scripts.find(&digest)?,
        None => None,
    };
    script.ok_or(NO_SCRIPT)
}

fn find_function(server: &Server, request: Request) -> Result<Callee> {
    let functions = &server.scripting.functions;
    let function = functions.find(request.arg(1)).ok_or(Error::text("ERR Function not found"))?;
    let loaded = functions.loaded(&function.library);
    Ok(Callee::Function(function, loaded))
}

impl Callee {
    fn flags(&self) -> Flags {
        match self {
            Callee::Script(script) => script.source.header.flags,
            Callee::Function(function, _) => function.declared().flags,
        }
    }

    /// It has promised not to write.
    pub fn never_writes(&self) -> bool {
        self.flags().has(Flags::NO_WRITES)
    }

    /// What it says of itself. (A script without a first line for that is held to nothing.)
    fn declared(&self) -> Option<Flags> {
        match self {
            Callee::Script(script) if script.source.header.bytes == 0 => None,
            _ => Some(self.flags()),
        }
    }

    /// It could have promised not to write, and has not.
    fn may_write(&self) -> bool {
        self.declared().is_some_and(|declared| !declared.has(Flags::NO_WRITES))
    }

    /// It has said that it may run where memory is short.
    pub fn allows_oom(&self) -> bool {
        self.flags().has(Flags::ALLOW_OOM)
    }

    /// What the conditions ask it for before it begins. (What says nothing of itself is asked for each of its commands, but
    /// never shows old data.)
    pub fn flags_asked(&self) -> u32 {
        self.declared().map_or(0, |declared| with_declared(0, declared))
    }

    fn conduct(&self) -> &Conduct {
        match self {
            Callee::Script(script) => &script.source.conduct,
            Callee::Function(function, _) => &function.declared().conduct,
        }
    }

    /// Whether it has left its keys before, and will do so again.
    pub fn strays(&self) -> bool {
        self.conduct().strays.load(Ordering::Relaxed)
    }

    /// Whether it has come to its end within its keys before.
    pub fn has_stayed(&self) -> bool {
        self.conduct().has_stayed.load(Ordering::Relaxed)
    }

    pub fn note_stayed(&self) {
        if !self.has_stayed() {
            self.conduct().has_stayed.store(true, Ordering::Relaxed);
        }
    }

    /// It has left its keys: whoever runs the server is told once.
    pub fn note_strays(&self) {
        if self.conduct().strays.swap(true, Ordering::Relaxed) {
            return;
        }
        let name = match self {
            Callee::Script(script) => &script.source.digest[..],
            Callee::Function(function, _) => &function.declared().name,
        };
        let name = String::from_utf8_lossy(name);
        log::notice(format_args!(
            "Script {name} has touched keys that it has not declared: with several shards it holds everything from now on"
        ));
    }

    /// A function's name.
    pub fn function_name(&self) -> Option<&[u8]> {
        match self {
            Callee::Script(_) => None,
            Callee::Function(function, _) => Some(&function.declared().name),
        }
    }

    /// On which it runs; none where its library is to be loaded first.
    pub fn machine(&self, server: &Server) -> Option<Rc<Machine>> {
        match self {
            Callee::Script(_) => Some(server.scripting.scripts.machine.clone()),
            Callee::Function(..) => server.scripting.functions.loaded_machine(),
        }
    }

    /// Whether it can be called at once.
    pub fn is_loaded(&self) -> bool {
        !matches!(self, Callee::Function(_, None))
    }

    /// Loads what has to be.
    pub async fn load(&mut self, server: &Server) -> Result {
        if let Callee::Function(function, loaded @ None) = self {
            *loaded = Some(server.scripting.load_again(&function.library).await?);
        }
        Ok(())
    }

    /// A function has run and is to begin again, as if it had not: its library is loaded anew, since the function may have
    /// changed the library's locals.
    pub fn undo(&mut self, server: &Server) {
        if let Callee::Function(_, loaded) = self
            && let Some(loaded) = loaded.take()
        {
            server.scripting.functions.forget(&loaded);
        }
    }

    pub fn called(&self, server: &Server) -> Called {
        match self {
            Callee::Script(script) => Called::Script(server.scripting.scripts.clone(), script.clone()),
            Callee::Function(function, loaded) => {
                Called::Function(loaded.clone().expect("loaded before it is called"), function.index)
            }
        }
    }
}
