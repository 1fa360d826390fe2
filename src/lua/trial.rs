//! Scripts for the tests of the libraries.

use super::machine::Machine;
use super::state::{GLOBALS, Lua, Type};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// What a script returns, as text: its first value, or the error that it ends with. It is suspended whenever that is
/// possible.
pub fn eval(source: &str) -> String {
    eval_on(&Machine::new(64 << 20, |_| ()), source, |_| ())
}

/// The same on a machine that is there, of which something is asked whenever the script is suspended.
pub fn eval_on(machine: &Machine, source: &str, mut meanwhile: impl FnMut(&Machine)) -> String {
    let chunk = match machine.compile(source.as_bytes(), c"@user_script") {
        Ok(chunk) => chunk,
        Err(error) => return String::from_utf8_lossy(&error).into_owned(),
    };
    let worker = machine.worker().expect("there is memory for a stack");
    let lua = worker.lua;
    machine.push(lua, &chunk);
    lua.copy(GLOBALS);
    lua.set_environment(-2);
    let result = Rc::new(RefCell::new(String::new()));
    let of_run = result.clone();
    let (mut run, busy) = machine.start(worker, move |lua| {
        let text = if lua.call(0, 1).is_ok() { text(lua) } else { format!("error: {}", text(lua)) };
        of_run.replace(text);
    });
    while run.go_on(Some(Duration::ZERO)).is_some() {
        meanwhile(machine);
    }
    machine.take_back(&mut run, busy);
    machine.forget(chunk);
    result.take()
}

fn text(lua: Lua) -> String {
    match lua.type_of(-1) {
        Type::Bool => lua.bool(-1).to_string(),
        Type::Number | Type::String => String::from_utf8_lossy(lua.to_bytes(-1).unwrap_or_default()).into_owned(),
        _ => lua.type_name(-1).to_owned(),
    }
}
