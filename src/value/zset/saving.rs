//! The items of a sorted set as of one moment, shown in slices while it goes on changing: from the greatest, as snapshots
//! have them.
//!
//! An item that the walk has not come to is copied before it changes for the first time, and the walk passes over it.

use super::super::Portion;
use super::super::number::compare_f64;
use super::super::order::{AtItem, Member, Order};
use super::deadline_of;
use crate::table::{Changed, Lots, Whole, element_hash};

/// Items that are shown in one slice.
const ITEMS_AT_ONCE: usize = 256;
/// Sets with no more items are shown at once.
const ITEMS_MIN: usize = 1024;

/// The score of a member, and its deadline.
pub type Item = (f64, Option<u64>);

/// Where such a walk is.
pub struct Saving {
    /// The least item that was shown.
    at: Option<(f64, Box<[u8]>)>,
    /// All were.
    is_done: bool,
    /// Members that have changed since the moment.
    changed: Changed,
    /// What they were, as far as it was not shown.
    kept: Lots<(Box<[u8]>, Item)>,
}

impl Saving {
    /// A member is about to get another score or deadline, to come or to go; `was` is what it had until then.
    #[cold]
    pub fn before_change(&mut self, member: &[u8], was: Option<Item>) {
        if self.is_done || !self.changed.insert(element_hash(member), member) {
            return;
        }
        let was_shown = |score: f64| {
            let at = self.at.as_ref();
            at.is_some_and(|(least, name)| compare_f64(score, *least).then_with(|| member.cmp(name)).is_ge())
        };
        if let Some(item) = was.filter(|(score, _)| !was_shown(*score)) {
            self.kept.push((member.into(), item));
        }
    }
}

impl Saving {
    /// A walk through so many items, unless they can be shown at once.
    pub fn begin(items: usize) -> Option<Box<Saving>> {
        (items > ITEMS_MIN).then(|| {
            Box::new(Saving { at: None, is_done: false, changed: Changed::among(items), kept: Lots::default() })
        })
    }

    /// Shows some items; whether there may be more.
    pub fn save_some(&mut self, order: &Order<Whole>, to: &mut dyn FnMut(Portion)) -> bool {
        if let Some(kept) = self.kept.pop() {
            kept.iter().for_each(|(member, (score, deadline_ms))| to(Portion::Scored(member, *score, *deadline_ms)));
        } else if !self.is_done {
            self.walk(order, to);
        }
        !self.is_done || !self.kept.is_empty()
    }

    fn walk(&mut self, order: &Order<Whole>, to: &mut dyn FnMut(Portion)) {
        let end = match &self.at {
            None => order.len(),
            Some((score, member)) => order.count_before(AtItem { score: *score, member, behind: false }),
        };
        let from = end.saturating_sub(ITEMS_AT_ONCE);
        let mut least = None;
        for (score, member) in order.iter(from..end).rev() {
            least = Some((score, member));
            if !self.changed.contains(|| element_hash(member.bytes()), member.bytes()) {
                to(Portion::Scored(member.bytes(), score, deadline_of(member)));
            }
        }
        self.is_done = from == 0;
        if let Some((score, member)) = least {
            self.at = Some((score, member.bytes().into()));
        }
    }
}
