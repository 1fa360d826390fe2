//! The form of a sorted set that is not packed.

use super::super::number::{I64_TEXT_BYTES_MAX, compare_f64};
use super::super::order::{Member, Order};
use super::super::pack::Element;
use super::super::{Node, NodeType, Portion};
use super::saving::{Item, Saving};
use super::{Edit, View, deadline_of, is_dead};
use crate::table::block::prefetch;
use crate::table::{Dict, Entry, Kind, Swept, Value, Whole};
use std::cmp::Ordering;
use std::ops::Range;

/// An entry of `members` holds a score in eight bytes whatever the score is, so that the entry stays where it is until
/// its member goes, or is given its first deadline, or loses its last one: `order` points at it.
pub struct Zset {
    members: Dict,
    order: Order<Whole>,
    /// What it had at a moment is shown in slices.
    saving: Option<Box<Saving>>,
}

impl Default for Zset {
    fn default() -> Zset {
        Zset { members: Dict::pinned(), order: Order::default(), saving: None }
    }
}

// SAFETY: a sorted set owns what its entries point at, and nothing in them belongs to a thread.
unsafe impl Send for Zset {}

impl Member for Whole {
    #[inline]
    fn bytes(&self) -> &[u8] {
        self.entry().key()
    }

    #[inline]
    fn prefetch(&self) {
        prefetch(self.entry().address() as *const u8);
    }
}

impl NodeType for Zset {
    const KIND: Kind = Kind::Zset;
}

impl Node for Zset {
    fn kind(&self) -> Kind {
        Kind::Zset
    }

    fn bytes(&self) -> usize {
        size_of::<Zset>() + self.members.bytes() + self.order.bytes()
    }

    fn free_some(&mut self, budget: usize) -> bool {
        self.order.free_some(budget) && self.members.free_some(budget)
    }

    fn boxed_clone(&self) -> Box<dyn Node> {
        Box::new(self.clone())
    }

    fn dict(&self) -> Option<&Dict> {
        Some(&self.members)
    }

    fn begin_saving(&mut self) -> bool {
        self.saving = Saving::begin(self.len());
        self.is_saved()
    }

    fn save_some(&mut self, to: &mut dyn FnMut(Portion)) -> bool {
        let Zset { order, saving, .. } = self;
        saving.as_mut().is_some_and(|saving| saving.save_some(order, to))
    }

    fn stop_saving(&mut self) {
        self.saving = None;
    }

    fn is_saved(&self) -> bool {
        self.saving.is_some()
    }
}

impl Clone for Zset {
    fn clone(&self) -> Zset {
        let members = self.members.clone();
        let copy_of = |(score, member): (f64, Whole)| members.get_pinned(member.bytes()).map(|copy| (score, copy));
        let order = Order::from_sorted(self.order.iter(0..self.len()).filter_map(copy_of));
        Zset { members, order, saving: None }
    }
}

/// What a member is before it changes.
fn item_of(member: Whole) -> Item {
    (score_of(member.entry()), deadline_of(member))
}

pub(super) fn score_of(entry: Entry) -> f64 {
    match entry.value() {
        Value::Int(bits) => f64::from_bits(bits as u64),
        Value::Bytes(_) => unreachable!("a score is kept as an integer"),
    }
}

fn value_of(score: f64) -> Value<'static> {
    Value::Int(score.to_bits() as i64)
}

/// What is no number has no place in the order, where nothing would find it again.
#[inline]
fn numeric(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// Makes a sorted set of items that come in order.
pub struct Builder {
    members: Dict,
    items: Vec<(f64, Whole)>,
    /// An item came that belonged before another: the order points at members, so that it has to be one.
    mixed: bool,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder { members: Dict::pinned(), items: Vec::new(), mixed: false }
    }
}

impl Builder {
    /// Adds an item, unless its member is there.
    pub fn push(&mut self, member: &[u8], score: f64) {
        let score = numeric(score);
        let (entry, new) = self.members.add_pinned(member, value_of(score));
        if new {
            self.mixed |= self.items.last().is_some_and(|last| by_item(last, &(score, entry)).is_gt());
            self.items.push((score, entry));
        }
    }

    pub fn finish(mut self) -> Zset {
        if self.mixed {
            self.items.sort_unstable_by(by_item);
        }
        Zset { members: self.members, order: Order::from_sorted(self.items.into_iter()), saving: None }
    }
}

fn by_item(a: &(f64, Whole), b: &(f64, Whole)) -> Ordering {
    compare_f64(a.0, b.0).then_with(|| a.1.bytes().cmp(b.1.bytes()))
}

impl Zset {
    /// The same sorted set in this form.
    pub fn of(view: View) -> Zset {
        let mut builder = Builder::default();
        let mut text = [0; I64_TEXT_BYTES_MAX];
        view.for_each(|member, score| builder.push(member.text(&mut text), score));
        builder.finish()
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(in crate::value) fn members(&self) -> &Dict {
        &self.members
    }

    pub(super) fn order(&self) -> &Order<Whole> {
        &self.order
    }

    pub(super) fn rank(&self, member: &[u8]) -> Option<(usize, f64)> {
        let score = score_of(self.members.get(member)?);
        Some((self.order.rank(score, member)?, score))
    }

    /// The ranks of those that are dead, ascending.
    pub(super) fn dead_ranks(&self, now_ms: u64) -> Vec<usize> {
        if self.members.count_dead(now_ms) > self.len() / SOUGHT_OF {
            let items = self.order.iter(0..self.len()).enumerate();
            return items.filter(|(_, (_, member))| is_dead(*member, now_ms)).map(|(rank, _)| rank).collect();
        }
        let dead = self.members.dead(now_ms);
        let mut ranks: Vec<usize> = dead.filter_map(|entry| self.order.rank(score_of(entry), entry.key())).collect();
        ranks.sort_unstable();
        ranks
    }

    /// The ranks, among all, between the first and the last of those that have these ranks among the living.
    pub(super) fn with_dead(&self, ranks: Range<usize>, now_ms: u64) -> Range<usize> {
        if ranks.is_empty() {
            return 0..0;
        }
        let dead_ranks = self.dead_ranks(now_ms);
        // Before each of the dead ones as many live as its rank is more than its place among the dead.
        let among_all = |rank: usize| {
            let before = dead_ranks.iter().enumerate().take_while(|(index, dead)| **dead - index <= rank);
            rank + before.count()
        };
        among_all(ranks.start)..among_all(ranks.end - 1) + 1
    }

    /// Whether it still has this member, which is dead.
    pub fn has_dead(&self, member: &[u8], now_ms: u64) -> bool {
        self.members.earliest_ms() < now_ms
            && self.members.get_pinned(member).is_some_and(|member| is_dead(member, now_ms))
    }

    /// Sets or clears the deadline of a member that is there.
    pub fn set_deadline(&mut self, member: &[u8], deadline_ms: Option<u64>, now_ms: u64) {
        let Some(place) = self.members.get_pinned(member) else { return };
        if let Some(saving) = &mut self.saving {
            saving.before_change(member, Some(item_of(place)));
        }
        let (score, moves) = (score_of(place.entry()), deadline_of(place).is_some() != deadline_ms.is_some());
        if moves {
            self.order.remove(score, member);
        }
        self.members.set_deadline(member, deadline_ms, now_ms);
        if moves && let Some(place) = self.members.get_pinned(member) {
            self.order.insert(score, place);
        }
    }

    /// Takes at most `limit` members out whose deadlines are before `before_ms`, and shows each before.
    pub(in crate::value) fn sweep(
        &mut self,
        before_ms: u64,
        now_ms: u64,
        limit: usize,
        mut each: impl FnMut(Entry, u64),
    ) -> Swept {
        let Zset { members, order, saving } = self;
        members.sweep(before_ms, now_ms, limit, |entry, deadline_ms| {
            let score = score_of(entry);
            if let Some(saving) = saving {
                saving.before_change(entry.key(), Some((score, Some(deadline_ms))));
            }
            // First out of the order, which reads the member.
            order.remove(score, entry.key());
            each(entry, deadline_ms);
        })
    }
}

/// Where no more than one of so many members is dead their ranks are sought one by one.
const SOUGHT_OF: usize = 8;

impl Edit for Zset {
    type Place = Whole;

    #[inline]
    fn find(&self, member: &[u8]) -> Option<(Whole, f64)> {
        self.members.get_pinned(member).map(|whole| (whole, score_of(whole.entry())))
    }

    fn insert(&mut self, member: &[u8], score: f64) -> bool {
        let score = numeric(score);
        let (whole, new) = self.members.add_pinned(member, value_of(score));
        if new {
            if let Some(saving) = &mut self.saving {
                saving.before_change(member, None);
            }
            self.order.insert(score, whole);
        } else {
            // A second item would be left behind in the order when the member goes.
            self.change(whole, member, score);
        }
        true
    }

    fn change(&mut self, place: Whole, _: &[u8], score: f64) {
        let score = numeric(score);
        if let Some(saving) = &mut self.saving {
            saving.before_change(place.bytes(), Some(item_of(place)));
        }
        self.order.change(score_of(place.entry()), place, score);
        // SAFETY: the value keeps its length, so that the entry is not moved.
        let same = unsafe { place.replace_value(value_of(score).into()) };
        debug_assert_eq!(same, place);
    }

    fn remove(&mut self, place: Whole, member: &[u8]) {
        if let Some(saving) = &mut self.saving {
            saving.before_change(member, Some(item_of(place)));
        }
        // First out of the order, which reads the member.
        self.order.remove(score_of(place.entry()), member);
        self.members.remove(member);
    }

    fn remove_range(&mut self, ranks: Range<usize>, mut removed: impl FnMut(Element, f64)) {
        let Zset { members, order, saving } = self;
        order.remove_range(ranks, |score, entry| {
            if let Some(saving) = saving {
                saving.before_change(entry.bytes(), Some((score, deadline_of(entry))));
            }
            removed(Element::Bytes(entry.bytes()), score);
            members.remove(entry.bytes());
        });
    }
}
