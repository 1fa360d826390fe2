//! Builds the machine on which scripts run: Lua 5.1.5, patched.
//!
//! The crate `lua-src`, of one version, has the source as it was published in 2012. The patches of `src/lua/patches` mend
//! what was found since; each begins with its reason. A patch that does not fit the source exactly ends the build.
//!
//! ```text
//!  lua-src (pinned, in Cargo's registry) ── patches ──> OUT_DIR/lua ── cc ──> libscriptlua.a, linked into the crate
//! ```
//!
//! Cargo does not tell a build script where its packages are, but `cargo metadata` does, of a manifest that depends on
//! nothing but `lua-src`: it is asked offline, so that it needs only what Cargo has fetched for this build anyway.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// As `Cargo.toml` pins it.
const LUA_SRC: &str = "=551.0.2";
const PATCHES: &str = "src/lua/patches";
/// What is compiled: the core, the loading of source, and the libraries of which scripts see something. Nothing that
/// reads files, starts programs, loads code from elsewhere or looks into running functions is there.
const FILES: &[&str] = &[
    "lapi.c",
    "lauxlib.c",
    "lbaselib.c",
    "lcode.c",
    "ldebug.c",
    "ldo.c",
    "ldump.c",
    "lfunc.c",
    "lgc.c",
    "llex.c",
    "lmathlib.c",
    "lmem.c",
    "lobject.c",
    "lopcodes.c",
    "lparser.c",
    "lstate.c",
    "lstring.c",
    "lstrlib.c",
    "ltable.c",
    "ltablib.c",
    "ltm.c",
    "lundump.c",
    "lvm.c",
    "lzio.c",
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={PATCHES}");
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(variable("OUT_DIR"));

    let source = source_folder(&root, &out.join("locate"));
    let mut files = read_source(&source);
    for patch in patches(&root.join(PATCHES)) {
        apply(&patch, &mut files);
    }
    let folder = out.join("lua");
    write_changed(&folder, &files);
    compile(&folder);
}

fn variable(name: &str) -> OsString {
    env::var_os(name).unwrap_or_else(|| panic!("cargo sets {name} for build scripts"))
}

/// Where Cargo keeps the package `lua-src`.
fn source_folder(root: &Path, folder: &Path) -> PathBuf {
    fs::create_dir_all(folder.join("src")).expect("a folder for a manifest");
    let manifest = folder.join("Cargo.toml");
    let text = format!(
        "[package]\nname = \"locate\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\n\
         [dependencies]\nlua-src = \"{LUA_SRC}\"\n\n[workspace]\n"
    );
    fs::write(&manifest, text).expect("a manifest can be written");
    fs::write(folder.join("src/lib.rs"), "").expect("a crate can be written");
    // The versions of this build; those of other packages are dropped from the copy.
    let _ = fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock"));
    let output = Command::new(variable("CARGO"))
        .args(["metadata", "--offline", "--format-version", "1", "--manifest-path"])
        .arg(&manifest)
        .current_dir(root)
        .output()
        .expect("cargo runs");
    let metadata = String::from_utf8_lossy(&output.stdout);
    let found = manifest_paths(&metadata).find(|path| path.parent().is_some_and(is_source));
    match found.as_deref().and_then(Path::parent) {
        Some(folder) => folder.join("lua-5.1.5"),
        None => panic!(
            "cargo metadata does not say where the package lua-src is:\n{}",
            String::from_utf8_lossy(&output.stderr)
        ),
    }
}

fn is_source(folder: &Path) -> bool {
    folder.join("lua-5.1.5/lapi.c").is_file()
}

/// The paths of all packages' manifests, as they stand in JSON.
fn manifest_paths(metadata: &str) -> impl Iterator<Item = PathBuf> + '_ {
    metadata.split("\"manifest_path\":\"").skip(1).filter_map(|rest| {
        let end = rest.find('"')?;
        Some(PathBuf::from(rest[..end].replace("\\\\", "\\")))
    })
}

/// Text of each file of the source, by name.
fn read_source(folder: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.expect("an entry of a folder").path());
    let is_code = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "c" || extension == "h");
    paths.filter(is_code).map(|path| (name_of(&path), read(&path))).collect()
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A unified diff, with its name.
struct Patch {
    name: String,
    text: String,
}

/// The patches in the order in which they are applied, which is that of their names.
fn patches(folder: &Path) -> Vec<Patch> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry of a folder").path()).collect();
    paths.sort();
    paths.iter().map(|path| Patch { name: name_of(path), text: read(path) }).collect()
}

/// Replaces each hunk's lines. They must stand in the file exactly once: numbers of lines are not looked at.
fn apply(patch: &Patch, files: &mut BTreeMap<String, String>) {
    let mut hunks = 0;
    for (file, before, after) in hunks_of(patch) {
        let text = files.get_mut(&file).unwrap_or_else(|| panic!("{}: there is no file {file}", patch.name));
        let found = text.matches(&before).count();
        assert!(
            found == 1,
            "{}: a hunk for {file} stands there {found} times rather than once. Is lua-src still {LUA_SRC}?\n{before}",
            patch.name
        );
        *text = text.replacen(&before, &after, 1);
        hunks += 1;
    }
    assert!(hunks > 0, "{}: nothing is changed by it", patch.name);
}

/// The file of each hunk, with what stands there before and after.
fn hunks_of(patch: &Patch) -> Vec<(String, String, String)> {
    let mut file = None;
    let mut hunks: Vec<(String, String, String)> = Vec::new();
    let mut is_open = false;
    for line in patch.text.lines() {
        if let Some(name) = line.strip_prefix("+++ b/") {
            file = Some(name.to_owned());
            is_open = false;
        } else if line.starts_with("--- a/") {
            is_open = false;
        } else if line.starts_with("@@") {
            let file = file.clone().unwrap_or_else(|| panic!("{}: a hunk without a file", patch.name));
            hunks.push((file, String::new(), String::new()));
            is_open = true;
        } else if let (true, Some((_, before, after))) = (is_open, hunks.last_mut()) {
            let kept = line.strip_prefix(' ').or_else(|| line.is_empty().then_some(""));
            if let Some(text) = kept.or_else(|| line.strip_prefix('-')) {
                writeln!(before, "{text}").expect("strings grow");
            }
            if let Some(text) = kept.or_else(|| line.strip_prefix('+')) {
                writeln!(after, "{text}").expect("strings grow");
            }
        }
    }
    hunks
}

/// Writes what is not there already, so that nothing that did not change is compiled anew.
fn write_changed(folder: &Path, files: &BTreeMap<String, String>) {
    fs::create_dir_all(folder).expect("a folder for the source");
    for (name, text) in files {
        let path = folder.join(name);
        if fs::read_to_string(&path).is_ok_and(|there| there == *text) {
            continue;
        }
        fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

fn compile(folder: &Path) {
    let mut build = cc::Build::new();
    build.include(folder).files(FILES.iter().map(|file| folder.join(file))).warnings(false);
    // Errors jump without saving the mask of signals. Nothing else of what Linux has is used.
    build.define("LUA_USE_ULONGJMP", None);
    // Where an integer overflows, it wraps around: a test for that is never compiled away.
    build.flag_if_supported("-fwrapv").flag_if_supported("-fno-common");
    if env::var_os("CARGO_CFG_DEBUG_ASSERTIONS").is_some() {
        build.define("LUA_USE_APICHECK", None);
    }
    if is_sanitized() {
        build.define("LUA_USE_ASAN", None).flag("-fsanitize=address").flag("-fno-omit-frame-pointer").debug(true);
        // clang lets libFuzzer see which ways through the code an input takes.
        build.flag_if_supported("-fsanitize=fuzzer-no-link");
    }
    build.compile("scriptlua");
}

/// Whether the crate is compiled for the address sanitiser, as cargo-fuzz does.
fn is_sanitized() -> bool {
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    flags.split('\x1f').any(|flag| flag.trim_start_matches("-Z").trim_start_matches("sanitizer=") == "address")
}
