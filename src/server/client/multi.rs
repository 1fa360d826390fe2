//! Commands between MULTI and EXEC, as a connection keeps them.

use crate::command::{CommandId, OwnedRequest};
use crate::resp::{Request, Span};
use crate::server::admit::Flags;

/// What brackets a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Multi,
    Exec,
    Discard,
    /// Around a command, EXEC perhaps.
    Guard,
}

#[derive(Default)]
pub struct Multi {
    /// The arguments of all commands.
    args: OwnedRequest,
    commands: Vec<Queued>,
    /// A command was refused: EXEC will be, too.
    pub broken: bool,
    /// Of all commands.
    pub flags: Flags,
}

#[derive(Clone, Copy)]
pub struct Queued {
    pub command: CommandId,
    /// Its first argument, and the end. (Of more of them than this no memory holds the bytes that a transaction may have.)
    args: (u32, u32),
}

impl Multi {
    pub fn bytes(&self) -> usize {
        self.args.bytes() + self.args.arg_count() * size_of::<Span>() + size_of_val(&self.commands[..])
    }

    pub fn commands(&self) -> &[Queued] {
        &self.commands
    }

    /// One more command, with these flags.
    pub fn push(&mut self, command: CommandId, flags: u32, request: Request) {
        let start = self.args.arg_count();
        request.from(0).for_each(|arg| self.args.push(arg));
        self.flags.add(flags);
        self.commands.push(Queued { command, args: (start as u32, self.args.arg_count() as u32) });
    }

    pub fn request(&self, queued: Queued) -> Request<'_> {
        self.args.part(queued.args.0 as usize..queued.args.1 as usize)
    }
}
