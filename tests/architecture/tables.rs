//! The table in a folder's `mod.rs` names every file and folder beside it, and who imports stands above whom it imports.

use crate::modules::{Arrow, ModulePath};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Files and folders of a folder by the rows of its table, from above.
pub type Table = BTreeMap<String, usize>;

/// The names in the first column of the first table of these lines.
pub fn read(text: &str) -> Table {
    let docs = text.lines().take_while(|line| line.starts_with("//!"));
    let rows = docs.filter_map(|line| line.strip_prefix("//! | ")).filter_map(|row| row.split('|').next());
    let mut table = Table::new();
    for (index, cell) in rows.enumerate() {
        // `name.rs` is a file, `name/` a folder.
        for name in cell.split('`').skip(1).step_by(2) {
            let name = name.strip_suffix(".rs").or_else(|| name.strip_suffix('/'));
            if let Some(name) = name.filter(|name| !name.contains('/')) {
                table.entry(name.to_owned()).or_insert(index);
            }
        }
    }
    table
}

/// What stands beside a `mod.rs` of this text, tests aside.
pub fn beside(folder: &Path, text: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).expect("a folder is readable");
    let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    let is_test = |name: &str| text.contains(&format!("#[cfg(test)]\nmod {name};"));
    let names = names.map(|name| name.trim_end_matches(".rs").to_owned());
    names.filter(|name| name != "mod" && !is_test(name)).collect()
}

/// Arrows within a folder that lead upwards in its table.
pub fn upwards<'a>(folder: &ModulePath, table: &Table, arrows: &'a [Arrow]) -> Vec<&'a Arrow> {
    let depth = folder.len();
    let row = |path: &ModulePath| path.get(depth).and_then(|name| table.get(name));
    let is_within = |path: &ModulePath| path.len() > depth && path.starts_with(folder);
    arrows
        .iter()
        .filter(|arrow| is_within(&arrow.from) && is_within(&arrow.to) && arrow.from[depth] != arrow.to[depth])
        .filter(|arrow| row(&arrow.from).zip(row(&arrow.to)).is_some_and(|(from, to)| from > to))
        .collect()
}

#[test]
fn a_table_is_read_as_it_stands() {
    let text = "//! Text about `x.rs`.\n//!\n//! | file | what |\n//! |---|---|\n//! | `a.rs`, `b/` | `c.rs` |\n//! | `d.rs` | d |\nmod a;";
    let expected = [("a", 1), ("b", 1), ("d", 2)].map(|(name, row)| (name.to_owned(), row));
    assert_eq!(read(text), Table::from(expected));
}
