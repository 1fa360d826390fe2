//! Circles among the files and folders of each folder.

use crate::modules::{Arrow, Crate, ModulePath};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

/// Files and folders of one folder, each of which leads back to itself by way of others.
pub struct Circle<'a> {
    pub folder: ModulePath,
    /// The shortest chains back, one for each of them where they differ.
    chains: Vec<Vec<&'a Arrow>>,
    members: BTreeSet<String>,
}

/// What stands in one folder, and an arrow for each pair of them that has any.
type Neighbors<'a> = BTreeMap<&'a str, BTreeMap<&'a str, &'a Arrow>>;

pub fn find(arrows: &[Arrow]) -> Vec<Circle<'_>> {
    let mut folders: BTreeMap<ModulePath, Neighbors> = BTreeMap::new();
    for arrow in arrows {
        let depth = arrow.from.iter().zip(&arrow.to).take_while(|(from, to)| from == to).count();
        let neighbors = folders.entry(arrow.from[..depth].to_vec()).or_default();
        neighbors.entry(&arrow.from[depth]).or_default().entry(&arrow.to[depth]).or_insert(arrow);
    }
    folders.into_iter().flat_map(|(folder, neighbors)| circles(&folder, &neighbors)).collect()
}

fn circles<'a>(folder: &ModulePath, neighbors: &Neighbors<'a>) -> Vec<Circle<'a>> {
    let mut found: Vec<Circle> = Vec::new();
    let chains = neighbors.keys().filter_map(|start| shortest_chain(neighbors, start, start));
    for chain in chains {
        let members: BTreeSet<String> = chain.iter().map(|arrow| arrow.from[folder.len()].clone()).collect();
        let one_circle = |circle: &&mut Circle| {
            let (one, other) = (members.first().expect("a chain"), circle.members.first().expect("a chain"));
            shortest_chain(neighbors, one, other).is_some() && shortest_chain(neighbors, other, one).is_some()
        };
        match found.iter_mut().find(one_circle) {
            Some(circle) if circle.chains.iter().any(|known| is_rotation(known, &chain)) => {}
            Some(circle) => {
                circle.members.extend(members);
                circle.chains.push(chain);
            }
            None => found.push(Circle { folder: folder.clone(), chains: vec![chain], members }),
        }
    }
    found
}

/// From one to another, or the shortest way back from one to itself.
fn shortest_chain<'a>(neighbors: &Neighbors<'a>, start: &str, end: &str) -> Option<Vec<&'a Arrow>> {
    let mut ways: VecDeque<(&str, Vec<&'a Arrow>)> = VecDeque::from([(start, Vec::new())]);
    let mut seen = BTreeSet::new();
    while let Some((at, way)) = ways.pop_front() {
        if at == end && !way.is_empty() {
            return Some(way);
        }
        for (next, arrow) in neighbors.get(at).into_iter().flatten() {
            if seen.insert(*next) {
                ways.push_back((next, [way.as_slice(), &[*arrow]].concat()));
            }
        }
    }
    None
}

/// Whether two chains have the same arrows, wherever they begin.
fn is_rotation(one: &[&Arrow], other: &[&Arrow]) -> bool {
    one.len() == other.len() && one.iter().all(|arrow| other.iter().any(|known| std::ptr::eq(*arrow, *known)))
}

impl Circle<'_> {
    /// The chains, each with the places of its arrows.
    pub fn tell(&self, src: &Path) -> String {
        let mut text = format!("a circle of {}\n", self.members.len());
        for chain in &self.chains {
            let names: Vec<&str> = chain.iter().map(|arrow| arrow.from[self.folder.len()].as_str()).collect();
            text += &format!("  {} -> {}\n", names.join(" -> "), names[0]);
            for arrow in chain {
                let file = arrow.file.strip_prefix(src).unwrap_or(&arrow.file);
                text += &format!("    {}:{} names {}\n", file.display(), arrow.line, arrow.to.join("::"));
            }
        }
        text
    }
}

/// Arrows of a crate with these files; `lib.rs` declares the room `a`.
fn arrows_of(files: &[(&str, &str)]) -> Vec<Arrow> {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir_all(folder.path().join("a/deep")).expect("folders");
    for (name, text) in [("lib.rs", "mod a;")].iter().chain(files) {
        std::fs::write(folder.path().join(name), text).expect("a file");
    }
    Crate::read(&folder.path().join("lib.rs")).arrows()
}

fn chains(files: &[(&str, &str)]) -> Vec<String> {
    let arrows = arrows_of(files);
    let names = |chain: &Vec<&Arrow>| chain.iter().map(|arrow| arrow.from[1].as_str()).collect::<Vec<_>>().join(" ");
    find(&arrows).iter().flat_map(|circle| circle.chains.iter().map(names)).collect()
}

#[test]
fn a_circle_does_not_hide_behind_reexports() {
    let room = ("a/mod.rs", "mod one; mod two; pub use self::two::{Thing as Other, *};");
    let one = ("a/one.rs", "use super::{Other}; pub fn one() {}");
    for two in
        ["use crate::a::one::one;", "fn two() { let x = super::one::one(); }", "fn f() { assert!(super::one::one()) }"]
    {
        let two = ("a/two.rs", &*format!("pub struct Thing; pub struct Globbed; {two}"));
        assert_eq!(chains(&[room, one, two]), ["one two"], "{}", two.1);
        assert_eq!(chains(&[room, ("a/one.rs", "pub fn one(_: super::Globbed) {}"), two]), ["one two"]);
    }
    let room = ("a/mod.rs", "mod one; mod two; pub struct Thing;");
    assert_eq!(chains(&[room, ("a/one.rs", "use super::{Thing, two};"), ("a/two.rs", "use super::Thing;")]), [""; 0]);
}

#[test]
fn tests_and_comments_have_no_arrows() {
    let room = ("a/mod.rs", "mod one; mod two;");
    let one = ("a/one.rs", "use super::two::Thing;");
    let two = "pub struct Thing; // super::one\n/// [`super::one`]\n#[cfg(test)] mod tests { use super::super::one; }\n\
               #[cfg(test)] use super::one;";
    assert_eq!(chains(&[room, one, ("a/two.rs", two)]), [""; 0]);
}

#[test]
fn a_folder_counts_as_one() {
    let room = ("a/mod.rs", "mod deep; mod one;");
    let deep = ("a/deep/mod.rs", "mod upper; pub struct Thing;");
    let upper = ("a/deep/upper.rs", "use super::super::one::One; use super::Thing;");
    assert_eq!(chains(&[room, deep, upper, ("a/one.rs", "pub struct One;")]), [""; 0]);
    assert_eq!(chains(&[room, deep, upper, ("a/one.rs", "pub struct One(super::deep::Thing);")]), ["deep one"]);
}
