//! The import law of `src/lib.rs`: a room imports only from rooms on floors below its own, and within a room the files
//! stand in an order, too.

#[path = "architecture/circles.rs"]
mod circles;
#[path = "architecture/modules.rs"]
mod modules;
#[path = "architecture/tables.rs"]
mod tables;

use modules::Crate;
use std::fs;
use std::path::{Path, PathBuf};

/// Lowest first. Rooms on one floor do not import each other.
const FLOORS: &[&[&str]] = &[
    &["clock", "config", "executor", "lua"],
    &["observe"],
    &["table"],
    &["value"],
    &["resp", "net"],
    &["journal", "script", "replicate"],
    &["rdb", "keyspace"],
    &["expiry", "persist"],
    &["command"],
    &["acl"],
    &["shard"],
    &["server"],
];
/// No room imports this one, which is for programs that measure servers, and it imports none.
const APART: &str = "measure";
/// What glommio waits for in its own reactor, which nothing looks at while the ring drives the shard.
const OF_THE_REACTOR: &[&str] = &["glommio::timer", "glommio::net", "glommio::io", "spawn_blocking"];
/// The one file that may use it.
const ON_THE_REACTOR: &str = "net/sockets.rs";
/// The room that may name glommio beside it: everything else must run on the other executor, too.
const OF_EXECUTORS: &str = "executor";
/// Folders whose `mod.rs` has no table yet: these may only become fewer.
const WITHOUT_TABLE: &[&str] = &[
    "command/dump",
    "command/geo",
    "command/hashes",
    "command/sort",
    "expiry",
    "keyspace",
    "keyspace/snapshot",
    "lua/cjson",
    "measure",
    "net",
    "observe",
    "persist",
    "persist/aof",
    "rdb",
    "rdb/stream",
    "resp",
    "server/rows",
    "shard/transactions",
    "table",
    "table/block",
    "value",
    "value/list",
    "value/order",
    "value/zset",
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
        // Below all floors: it may import none of them.
        let own = if from == APART { Some(0) } else { floor(&from) };
        let own = own.unwrap_or_else(|| panic!("{from} stands on no floor"));
        let text = fs::read_to_string(path).expect("a source is readable");
        for (line, to) in imports(&text).filter(|(_, to)| *to != from) {
            if floor(to).is_none_or(|floor| floor >= own) {
                arrows.push(format!("{}:{line}: {from} imports {to}", path.display()));
            }
        }
    }
    assert!(arrows.is_empty(), "against the import law:\n{}", arrows.join("\n"));
}

/// A file may name what its own folder's `mod.rs` declares, and `mod.rs` what its files do: it is their map. Among
/// themselves the files and folders of a folder have an order, as floors of rooms do.
#[test]
fn files_of_a_room_import_each_other_in_one_direction() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut told = String::new();
    for root in [src.join("lib.rs"), src.join("bin/emberdb-bench/main.rs"), src.join("bin/emberdb-top/main.rs")] {
        let read = Crate::read(&root);
        assert!(read.len() > 10, "the modules of {} are found", root.display());
        for circle in circles::find(&read.arrows()) {
            told += &format!("\n{}", circle.tell(&src));
        }
    }
    assert!(told.is_empty(), "files import each other in circles:{told}");
}

/// A newcomer finds every file in the table of its folder, and what is imported below who imports it.
#[test]
fn tables_of_folders_are_complete_and_in_order() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let arrows = Crate::read(&src.join("lib.rs")).arrows();
    let mut paths = Vec::new();
    sources(&src, &mut paths);
    let (mut wrong, mut without) = (Vec::new(), Vec::new());
    for path in paths.iter().filter(|path| path.ends_with("mod.rs") && !path.starts_with(src.join("bin"))) {
        let folder = path.parent().expect("a file has a folder");
        let inside = folder.strip_prefix(&src).expect("found below src").to_string_lossy().into_owned();
        let text = fs::read_to_string(path).expect("a source is readable");
        let table = tables::read(&text);
        if table.is_empty() {
            without.push(inside);
            continue;
        }
        let (named, there) = (table.keys().cloned().collect(), tables::beside(folder, &text));
        wrong.extend(there.difference(&named).map(|name| format!("{inside}: {name} is in no row")));
        wrong.extend(named.difference(&there).map(|name| format!("{inside}: there is no {name}")));
        let module: Vec<String> = inside.split('/').map(str::to_owned).collect();
        wrong.extend(tables::upwards(&module, &table, &arrows).iter().map(|arrow| {
            let file = arrow.file.strip_prefix(&src).unwrap_or(&arrow.file);
            format!("{}:{}: {} stands above in the table of {inside}", file.display(), arrow.line, arrow.to.join("::"))
        }));
    }
    without.sort();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(without, WITHOUT_TABLE, "folders without a table");
}

/// The shard sleeps in one place: a task that waited for glommio's reactor would wait for ever where the ring drives it.
#[test]
fn only_the_sockets_wait_for_the_reactor() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    sources(&src, &mut paths);
    for path in paths.iter().filter(|path| !path.ends_with(ON_THE_REACTOR)) {
        let text = fs::read_to_string(path).expect("a source is readable");
        for (number, line) in text.lines().enumerate() {
            let used = OF_THE_REACTOR.iter().find(|used| line.contains(*used));
            assert!(used.is_none(), "{}:{}: {}", path.display(), number + 1, used.unwrap_or(&""));
        }
    }
}

#[test]
fn executors_are_named_in_one_room() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    sources(&src, &mut paths);
    for path in paths.iter().filter(|path| room(path, &src) != OF_EXECUTORS && !path.ends_with(ON_THE_REACTOR)) {
        let text = fs::read_to_string(path).expect("a source is readable");
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
            let named = ["glommio::", "async_task::"].iter().find(|named| line.contains(*named));
            assert!(named.is_none(), "{}:{}: {}", path.display(), number + 1, named.unwrap_or(&""));
        }
    }
}

/// The load generator and the terminal view talk to any RESP server, so they may know nothing of ours.
#[test]
fn programs_for_any_server_import_only_what_measures() {
    for main in ["src/bin/emberdb-bench/main.rs", "src/bin/emberdb-top/main.rs"] {
        let read = Crate::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(main));
        let paths = read.paths_into("emberdb");
        assert!(paths.iter().any(|(.., path)| path.first().is_some_and(|room| room == APART)), "its imports are found");
        for (file, line, path) in paths {
            assert_eq!(path.first().map(String::as_str), Some(APART), "{}:{line}", file.display());
        }
    }
}

#[test]
fn rooms_of_the_map_are_those_of_the_tree() {
    let lib = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).expect("lib.rs");
    let mut declared: Vec<&str> = lib
        .lines()
        .filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'))
        .collect();
    let mut rooms: Vec<&str> = FLOORS.iter().flat_map(|rooms| rooms.iter().copied()).chain([APART]).collect();
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
