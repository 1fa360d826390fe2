//! MEMORY USAGE: what a key takes. (The rest of MEMORY is about the server.)

use super::Ctx;
use super::spec::flag::{NO_TOUCH, READ};
use super::spec::{Group, Keys, Spec};
use crate::keyspace::Touch;
use crate::resp::{Error, Request, Result};

pub const USAGE: Spec = Spec {
    name: "usage",
    arity: -3,
    flags: READ | NO_TOUCH,
    keys: Keys::SECOND,
    group: Group::Server,
    since: "4.0.0",
    complexity: "O(1)",
    summary: "Returns the bytes that a key and its value take, whatever the samples.",
    syntax: "key [SAMPLES count:integer]",
};

/// The books are kept with every change, so that nothing is estimated from samples.
pub fn usage(ctx: &mut Ctx, request: Request) -> Result {
    let mut index = 3;
    while index < request.len() {
        if !request.is(index, "samples") || index + 1 == request.len() {
            return Err(Error::Syntax);
        }
        if request.int(index + 1)? < 0 {
            return Err(Error::Syntax);
        }
        index += 2;
    }
    let key = ctx.key(request.arg(2));
    match ctx.keyspace.find(ctx.db, key, ctx.now, Touch::NOTHING) {
        Some(live) => ctx.reply.int(live.bytes() as i64),
        None => ctx.reply.nil(),
    }
    Ok(())
}
