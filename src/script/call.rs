//! One call of a script or a function, from its arguments to its reply.

use super::functions::Loaded;
use super::host::{Asked, Host, Shared, with_host};
use super::scripts::{Script, Scripts};
use super::values::{self, Limits};
use crate::lua::{Busy, Chunk, GLOBALS, Lua, Machine, Pause, Raise, Returned, Run, Type};
use crate::resp::{Error, Proto, Reply, Request, Result};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// Where a call is.
pub enum Outcome {
    /// Its reply.
    Done(Vec<u8>),
    /// It has had its time, and has more to do.
    Unfinished,
    /// It waits for a command: [`Call::answer`].
    Asks(Asked),
}

/// What a call may use.
#[derive(Clone, Copy)]
pub struct Bounds {
    pub reply_bytes: usize,
    /// Together with all others of its machine.
    pub memory_bytes: usize,
    /// Of Lua's; 0: as many as it wants.
    pub instructions: u64,
}

/// What is called.
pub enum Called {
    Script(Rc<Scripts>, Rc<Script>),
    /// A function of a library, by its number there.
    Function(Rc<Loaded>, usize),
}

impl Called {
    fn machine(&self) -> &Rc<Machine> {
        match self {
            Called::Script(scripts, _) => &scripts.machine,
            Called::Function(loaded, _) => &loaded.closures.machine,
        }
    }

    /// As errors show it.
    fn name(&self) -> &[u8] {
        match self {
            Called::Script(_, script) => &script.source.digest,
            Called::Function(loaded, index) => &loaded.library.functions[*index].name,
        }
    }

    /// A script's function is run by one call at a time, whose globals it has.
    fn take_function(&self) -> Result<Option<Chunk>> {
        match self {
            Called::Script(scripts, script) => scripts.take_function(script).map(Some),
            Called::Function(..) => Ok(None),
        }
    }

    fn keep_function(&self, function: Option<Chunk>) {
        if let (Called::Script(scripts, script), Some(function)) = (self, function) {
            scripts.keep_function(script, function);
        }
    }
}

pub struct Call {
    run: Run,
    busy: Option<Busy>,
    shared: Rc<Shared>,
    called: Called,
    function: Option<Chunk>,
    /// Its arguments are not left until another call takes their place.
    has_much: bool,
}

/// What an argument takes in Lua besides its bytes: a string's head, and its place in the table.
const ARGUMENT_BYTES: usize = 48;
/// Arguments of more than this are much.
const MUCH_BYTES: usize = 64 << 10;
const NO_ROOM: Error = Error::text("ERR not enough memory for the arguments of the script");

/// What arguments take in Lua, a little more at most.
pub fn bytes_of(request: Request) -> usize {
    request.extent() + request.len() * ARGUMENT_BYTES
}

impl Call {
    /// A call with these keys and arguments, which has not begun.
    pub fn new<'a>(
        called: Called,
        keys: impl ExactSizeIterator<Item = &'a [u8]>,
        args: impl ExactSizeIterator<Item = &'a [u8]>,
        arguments_bytes: usize,
        proto: Proto,
        bounds: Bounds,
    ) -> Result<Call> {
        let machine = called.machine();
        machine.memory().set_limit(bounds.memory_bytes);
        // (Memory is not refused to what pushes them.)
        if !machine.memory().has_room(arguments_bytes) {
            return Err(NO_ROOM);
        }
        let function = called.take_function()?;
        let Ok(worker) = machine.worker() else {
            called.keep_function(function);
            return Err(Error::text("ERR not enough memory for another script"));
        };
        let lua = worker.lua;
        lua.push_function(place_error);
        let count = match (&called, &function) {
            (Called::Function(loaded, index), _) => {
                loaded.closures.push(lua, *index);
                push_array(lua, keys);
                push_array(lua, args);
                2
            }
            (Called::Script(..), function) => {
                machine.push(lua, function.as_ref().expect("a script has a function"));
                lua.copy(GLOBALS);
                lua.set_environment(-2);
                worker.push_globals(lua);
                push_array(lua, keys);
                lua.set_field(-2, "KEYS");
                push_array(lua, args);
                lua.set_field(-2, "ARGV");
                lua.pop(1);
                0
            }
        };
        let shared = Rc::new(Shared {
            proto: Cell::new(Proto::Resp2),
            asked: RefCell::default(),
            answer: RefCell::default(),
            reply: RefCell::default(),
            name: called.name().into(),
            is_placed: Cell::new(false),
        });
        let of_run = shared.clone();
        let limits = Limits { proto, bytes: bounds.reply_bytes };
        let (run, busy) = machine.start(worker, move |lua| {
            let result = lua.call_with(count, 1, 1);
            let reply = reply_to(&of_run, lua, result, limits);
            of_run.reply.replace(reply);
        });
        run.set_instructions(bounds.instructions);
        let has_much = arguments_bytes > MUCH_BYTES;
        Ok(Call { run, busy: Some(busy), shared, called, function, has_much })
    }

    /// Goes on for some time.
    pub fn go_on(&mut self, host: &dyn Host, slice: Duration) -> Outcome {
        let shared = self.shared.clone();
        match with_host((host, &shared), || self.run.go_on(Some(slice))) {
            None => Outcome::Done(self.shared.reply.take()),
            Some(Pause::Slice) => Outcome::Unfinished,
            Some(Pause::Waits) => match self.shared.asked.take() {
                Some(asked) => Outcome::Asks(asked),
                None => Outcome::Unfinished,
            },
        }
    }

    /// The command it waited for has answered this.
    pub fn answer(&self, bytes: Vec<u8>) {
        self.shared.answer.replace(bytes);
    }

    /// Whatever it tries from now on fails with this error.
    pub fn kill(&self, because: &[u8]) {
        self.run.kill(because);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(busy) = self.busy.take() {
            self.run.give_up();
            if self.has_much {
                self.called.machine().clear_globals(&busy, ["KEYS", "ARGV"]);
            }
            self.called.machine().take_back(&mut self.run, busy);
        }
        self.called.keep_function(self.function.take());
    }
}

fn reply_to(shared: &Shared, lua: Lua, result: std::result::Result<(), Raise>, limits: Limits) -> Vec<u8> {
    let mut out = Vec::new();
    let result = result.and_then(|()| values::write(lua, shared.proto.get(), limits, &mut out));
    if result.is_err() {
        out.clear();
        let text = lua.to_bytes(-1).unwrap_or(b"ERR unknown error");
        let error = if shared.is_placed.get() {
            Error::Bytes(text.into())
        } else {
            Error::quoting(&[b"ERR ", text, b" script: ", &shared.name])
        };
        Reply::new(&mut out, limits.proto).error(error);
    }
    out
}

fn push_array<'a>(lua: Lua, items: impl ExactSizeIterator<Item = &'a [u8]>) {
    lua.new_table(items.len(), 0);
    for (index, item) in (1..).zip(items) {
        lua.push_bytes(item);
        lua.raw_set_index(-2, index);
    }
}

/// Called with an error that nothing has caught, where it was raised: makes of it the text that the client gets.
fn place_error(lua: Lua) -> Returned {
    let mut text = Vec::new();
    if lua.is(1, Type::Table) {
        lua.field(1, "err");
        text.extend_from_slice(lua.to_bytes(-1).unwrap_or(b"ERR unknown error"));
    } else {
        text.extend_from_slice(b"ERR ");
        match lua.type_of(1) {
            Type::Bool => text.extend_from_slice(if lua.bool(1) { b"true" } else { b"false" }),
            Type::String | Type::Number => text.extend_from_slice(lua.to_bytes(1).unwrap_or_default()),
            _ => text.extend_from_slice(lua.type_name(1).as_bytes()),
        }
    }
    super::host::with_call_if_any(|shared| {
        shared.is_placed.set(true);
        text.extend_from_slice(b" script: ");
        text.extend_from_slice(&shared.name);
    });
    // What raised it may be a function of ours, which is at no line.
    let place = lua.place(1).filter(|(_, line)| *line > 0).or_else(|| lua.place(2));
    if let Some((source, line)) = place {
        text.extend_from_slice(format!(", on {source}:{line}.").as_bytes());
    }
    lua.push_bytes(text);
    Ok(1)
}
