//! The import law of `src/lib.rs`: a room imports only from rooms on floors below its own.

use std::fs;
use std::path::{Path, PathBuf};

/// Lowest first. Rooms on one floor do not import each other.
const FLOORS: &[&[&str]] = &[
    &["clock", "config"],
    &["observe"],
    &["table"],
    &["value"],
    &["resp", "net"],
    &["rdb", "keyspace"],
    &["expiry"],
    &["command"],
    &["shard"],
    &["server"],
];
/// A file past this is a folder that has not been made yet.
const LINES: usize = 1000;

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("src is readable") {
        let path = entry.expect("src is readable").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn floor(room: &str) -> Option<usize> {
    FLOORS.iter().position(|rooms| rooms.contains(&room))
}

/// The room of a file: the first part of its path below `src`, without an ending.
fn room(path: &Path, src: &Path) -> String {
    let inside = path.strip_prefix(src).expect("found below src");
    let first = inside.components().next().expect("not src itself").as_os_str().to_string_lossy();
    first.trim_end_matches(".rs").to_owned()
}

/// The rooms named by `crate::room` in a text, wherever it stands.
fn imports(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")).flat_map(|(number, line)| {
        line.match_indices("crate::").map(move |(at, prefix)| {
            let rest = &line[at + prefix.len()..];
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            (number + 1, &rest[..end])
        })
    })
}

#[test]
fn rooms_import_only_from_floors_below() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    sources(&src, &mut paths);
    assert!(paths.len() > 20, "the sources are found");
    let mut arrows = Vec::new();
    for path in &paths {
        let from = room(path, &src);
        if from == "lib" || from == "main" || from == "bin" {
            continue;
        }
        let own = floor(&from).unwrap_or_else(|| panic!("{from} stands on no floor"));
        let text = fs::read_to_string(path).expect("a source is readable");
        for (line, to) in imports(&text).filter(|(_, to)| *to != from) {
            if floor(to).is_none_or(|floor| floor >= own) {
                arrows.push(format!("{}:{line}: {from} imports {to}", path.display()));
            }
        }
    }
    assert!(arrows.is_empty(), "against the import law:\n{}", arrows.join("\n"));
}

#[test]
fn rooms_of_the_map_are_those_of_the_tree() {
    let lib = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).expect("lib.rs");
    let mut declared: Vec<&str> = lib
        .lines()
        .filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'))
        .collect();
    let mut rooms: Vec<&str> = FLOORS.iter().flat_map(|rooms| rooms.iter().copied()).collect();
    declared.sort_unstable();
    rooms.sort_unstable();
    assert_eq!(declared, rooms);
}

#[test]
fn no_file_is_a_thousand_lines() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    sources(&src, &mut paths);
    for path in paths {
        let lines = fs::read_to_string(&path).expect("a source is readable").lines().count();
        assert!(lines <= LINES, "{} has {lines} lines", path.display());
    }
}
