//! Lua scripts: what they answer, what they see of each other, and what they cannot do.

#[path = "scripting/answers.rs"]
mod answers;
#[path = "scripting/beside.rs"]
mod beside;
#[path = "scripting/harm.rs"]
mod harm;
#[path = "scripting/long.rs"]
mod long;
#[path = "scripting/moments.rs"]
mod moments;
#[path = "scripting/undone.rs"]
mod undone;

use crate::common::{Client, Value};

/// Runs a script with these keys and arguments.
fn eval(client: &mut Client, script: &str, keys: &[&str], args: &[&str]) -> Value {
    let count = keys.len().to_string();
    let words = ["EVAL", script, &count];
    let words: Vec<&str> = words.into_iter().chain(keys.iter().copied()).chain(args.iter().copied()).collect();
    client.command(&words)
}
