//! The connections of a shard that have not said who they are, where that is asked for: how long each has had for it.

use std::cell::RefCell;
use std::collections::BTreeMap;

#[derive(Default)]
pub struct Strangers {
    /// By their numbers, since when, store microseconds.
    since_us: RefCell<BTreeMap<u64, u64>>,
}

impl Strangers {
    pub fn add(&self, client: u64, now_us: u64) {
        self.since_us.borrow_mut().insert(client, now_us);
    }

    /// It has said who it is, or has gone.
    pub fn remove(&self, client: u64) {
        self.since_us.borrow_mut().remove(&client);
    }

    /// Those who have had so much time, or more.
    pub fn late(&self, now_us: u64, timeout_us: u64) -> Vec<u64> {
        let is_late = |since_us: u64| now_us.saturating_sub(since_us) >= timeout_us;
        self.since_us.borrow().iter().filter(|(_, since_us)| is_late(**since_us)).map(|(client, _)| *client).collect()
    }

    /// All of them are as if they had come now.
    pub fn begin_anew(&self, now_us: u64) {
        self.since_us.borrow_mut().values_mut().for_each(|since_us| *since_us = now_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_are_late_who_have_had_their_time() {
        let strangers = Strangers::default();
        strangers.add(7, 100);
        strangers.add(9, 200);
        assert!(strangers.late(1_099, 1_000).is_empty());
        assert_eq!(strangers.late(1_100, 1_000), [7]);
        assert_eq!(strangers.late(1_200, 1_000), [7, 9]);
        strangers.remove(7);
        assert_eq!(strangers.late(1_200, 1_000), [9]);
        strangers.begin_anew(1_200);
        assert!(strangers.late(2_199, 1_000).is_empty());
    }
}
