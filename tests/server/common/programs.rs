//! Programs that talk to a server.

use std::io::{self, Write};
use std::process::{Command, Output, Stdio};

/// Runs a program with this input; whether all of that was taken, and what became of the program.
#[track_caller]
pub fn fed(program: &mut Command, input: &[u8]) -> (io::Result<()>, Output) {
    let program = program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = program.spawn().expect("the program starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let taken = stdin.write_all(input);
    drop(stdin);
    (taken, child.wait_with_output().expect("the program ends"))
}

/// What a program has said, which must end well.
#[track_caller]
pub fn succeeded(output: Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    out
}
