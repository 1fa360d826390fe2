//! How a connection tracks what it reads (CLIENT TRACKING).

use crate::keyspace::Tracker;
use std::collections::BTreeSet;
use std::ops::Bound;

/// Of which keys a connection is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Those that it reads.
    All,
    /// Those that it reads behind CLIENT CACHING YES.
    OptIn,
    /// Those that it reads, but for what is behind CLIENT CACHING NO.
    OptOut,
    /// Those that begin as it said, read or not.
    Broadcast,
}

#[derive(Clone, Debug)]
pub struct Tracks {
    pub mode: Mode,
    /// It is not told of its own changes.
    pub no_loop: bool,
    /// The connection that is told instead, and its shard.
    pub redirect: Option<(u64, usize)>,
    /// That one is gone.
    pub is_broken: bool,
    /// CLIENT CACHING has said so of the next command.
    pub caching: bool,
    pub prefixes: BTreeSet<Box<[u8]>>,
}

impl Tracks {
    /// What its commands take along.
    pub fn tracker(&self, client: u64, shard: usize) -> Tracker {
        let remembers = match self.mode {
            Mode::All => true,
            Mode::OptIn => self.caching,
            Mode::OptOut => !self.caching,
            Mode::Broadcast => false,
        };
        Tracker::new(client, shard, remembers, self.no_loop)
    }

    /// A prefix among some that another one begins with, or that is there already, with that one; whether it is the
    /// connection's from before. No key may be told twice.
    pub fn collision<'p>(&'p self, prefixes: &[&'p [u8]]) -> Option<(&'p [u8], &'p [u8], bool)> {
        let mut sorted: Vec<usize> = (0..prefixes.len()).collect();
        sorted.sort_by_key(|index| (prefixes[*index], *index));
        // Where any collides with another, some collides with its neighbour.
        let neighbours = sorted.windows(2).filter(|pair| prefixes[pair[1]].starts_with(prefixes[pair[0]]));
        let own = neighbours.map(|pair| (pair[0].min(pair[1]), pair[0].max(pair[1]))).min();
        // Who asks for all keys is not asked what else it listens to: that prefix may stand beside others, before them.
        let all = self.prefixes.first().filter(|of| of.is_empty());
        for (index, prefix) in prefixes.iter().copied().enumerate() {
            let upto = (Bound::Unbounded, Bound::Included(prefix));
            let before = self.prefixes.range::<[u8], _>(upto).next_back().filter(|of| prefix.starts_with(of));
            let from = (Bound::Included(prefix), Bound::Unbounded);
            let behind = self.prefixes.range::<[u8], _>(from).next().filter(|of| of.starts_with(prefix));
            if let Some(existing) = all.or(before).or(behind) {
                return Some((prefix, existing, true));
            }
            if let Some((_, other)) = own.filter(|(first, _)| *first == index) {
                return Some((prefix, prefixes[other], false));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_that_collide() {
        let existing = ["user:", "x", "zz"].map(|prefix| prefix.as_bytes().into());
        let tracks = Tracks {
            mode: Mode::Broadcast,
            no_loop: false,
            redirect: None,
            is_broken: false,
            caching: false,
            prefixes: existing.into_iter().collect(),
        };
        let collision_with = |tracks: &Tracks, prefixes: &[&'static str]| {
            let prefixes: Vec<&[u8]> = prefixes.iter().map(|prefix| prefix.as_bytes()).collect();
            let text = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
            tracks.collision(&prefixes).map(|(new, other, exists)| (text(new), text(other), exists))
        };
        let collision = |prefixes: &[&'static str]| collision_with(&tracks, prefixes);
        let found = |new: &str, other: &str, exists| Some((new.to_owned(), other.to_owned(), exists));
        assert_eq!(collision(&["a", "b", "y", "z:"]), None);
        assert_eq!(collision(&["user:1"]), found("user:1", "user:", true));
        assert_eq!(collision(&["use"]), found("use", "user:", true));
        assert_eq!(collision(&[""]), found("", "user:", true));
        assert_eq!(collision(&["z"]), found("z", "zz", true));
        assert_eq!(collision(&["a", "b", "ab"]), found("a", "ab", false));
        assert_eq!(collision(&["ab", "b", "a"]), found("ab", "a", false));
        assert_eq!(collision(&["a", "a"]), found("a", "a", false));
        assert_eq!(collision(&["ab", "x1", "a"]), found("ab", "a", false));
        assert_eq!(collision(&["x1", "ab", "a"]), found("x1", "x", true));
        let mut tracks = tracks.clone();
        tracks.prefixes.insert(Box::default());
        assert_eq!(collision_with(&tracks, &["x"]), found("x", "", true), "the first of them all, as Redis walks them");
    }
}
