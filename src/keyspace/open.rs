//! Keys that were changed and of which nothing was recorded yet.

use super::said::KeyName;
use std::collections::HashMap;

/// Room for a longer name is not kept.
const NAME_BYTES: usize = 4096;

#[derive(Default)]
pub(super) struct Open {
    /// The database and the hash of the first of them: mostly there is one at a time. Its name lies where the last one's has.
    first: Option<(usize, u64)>,
    name: Vec<u8>,
    /// The names of the others.
    others: HashMap<(usize, u64), Box<[u8]>, ahash::RandomState>,
}

impl Open {
    #[inline(never)]
    pub fn add(&mut self, db: usize, hash: u64, name: &[u8]) {
        if self.is_empty() {
            self.first = Some((db, hash));
            self.name.clear();
            self.name.extend_from_slice(name);
        } else if self.first != Some((db, hash)) {
            self.others.entry((db, hash)).or_insert_with(|| name.into());
        }
    }

    #[inline(never)]
    pub fn remove(&mut self, db: usize, hash: u64) {
        if self.first == Some((db, hash)) {
            self.first = None;
            if self.name.capacity() > NAME_BYTES {
                self.name = Vec::new();
            }
        } else if !self.others.is_empty() {
            self.others.remove(&(db, hash));
        }
    }

    pub fn clear(&mut self) {
        self.first = None;
        self.others.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.first.is_none() && self.others.is_empty()
    }

    pub fn take(&mut self) -> Vec<KeyName> {
        let first = self.first.take().map(|(db, _)| (db, self.name.as_slice().into()));
        first.into_iter().chain(self.others.drain().map(|((db, _), name)| (db, name))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn each_is_there_from_its_first_change_to_its_record(steps in prop::collection::vec((0..6, 0..2_usize, 0..4_u64), 0..60)) {
            let (mut open, mut model) = (Open::default(), BTreeSet::new());
            let name = |hash: u64| vec![b'k'; if hash == 3 { NAME_BYTES + 1 } else { hash as usize }];
            for (step, db, hash) in steps {
                match step {
                    0..=2 => {
                        open.add(db, hash, &name(hash));
                        model.insert((db, hash));
                    }
                    3 | 4 => {
                        open.remove(db, hash);
                        model.remove(&(db, hash));
                    }
                    _ => {
                        let mut taken: Vec<(usize, Vec<u8>)> =
                            open.take().into_iter().map(|(db, name)| (db, name.into_vec())).collect();
                        taken.sort();
                        let mut expected: Vec<(usize, Vec<u8>)> =
                            std::mem::take(&mut model).into_iter().map(|(db, hash)| (db, name(hash))).collect();
                        expected.sort();
                        prop_assert_eq!(taken, expected);
                    }
                }
                prop_assert_eq!(open.is_empty(), model.is_empty());
            }
        }
    }
}
