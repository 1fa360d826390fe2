//! Keys of a log's commands that are under way on several shards.

use ahash::RandomState;
use std::collections::HashMap;

/// Commands that may be under way at the same time, and keys that each may have.
const COMMANDS_MAX: usize = 64;
const KEYS_MAX: usize = 64;

/// The keys of those commands of a log that go from shard to shard and have not arrived. A command with other keys goes on beside
/// these commands; a command with one of their keys stays in the input.
#[derive(Default)]
pub struct Stepping {
    commands: usize,
    /// How many of the commands have each key, by the key's hash.
    hashes: HashMap<u64, usize, RandomState>,
}

impl Stepping {
    /// Whether a command with these keys has few enough.
    pub fn is_for<K>(mut keys: impl Iterator<Item = K>) -> bool {
        keys.nth(KEYS_MAX).is_none()
    }

    pub fn is_empty(&self) -> bool {
        self.commands == 0
    }

    pub fn is_full(&self) -> bool {
        self.commands >= COMMANDS_MAX
    }

    pub fn has_one_of(&self, mut hashes: impl Iterator<Item = u64>) -> bool {
        hashes.any(|hash| self.hashes.contains_key(&hash))
    }

    pub fn begin(&mut self, hashes: impl Iterator<Item = u64>) {
        self.commands += 1;
        hashes.for_each(|hash| *self.hashes.entry(hash).or_default() += 1);
    }

    pub fn end(&mut self, hashes: impl Iterator<Item = u64>) {
        self.commands -= 1;
        for hash in hashes {
            if let Some(commands) = self.hashes.get_mut(&hash) {
                *commands -= 1;
                if *commands == 0 {
                    self.hashes.remove(&hash);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_in_the_way_until_the_last_command_that_has_it_has_arrived() {
        let mut stepping = Stepping::default();
        stepping.begin([1, 2, 2].into_iter());
        stepping.begin([2, 3].into_iter());
        stepping.end([1, 2, 2].into_iter());
        assert!(stepping.has_one_of([5, 2].into_iter()) && !stepping.has_one_of([1].into_iter()));
        stepping.end([2, 3].into_iter());
        assert!(stepping.is_empty() && !stepping.has_one_of([1, 2, 3].into_iter()));
    }

    #[test]
    fn there_is_a_bound_to_how_many_are_under_way() {
        let mut stepping = Stepping::default();
        (0..COMMANDS_MAX as u64).for_each(|hash| stepping.begin([hash].into_iter()));
        assert!(stepping.is_full());
        stepping.end([0].into_iter());
        assert!(!stepping.is_full());
    }
}
