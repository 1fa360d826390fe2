//! Sets: members without order.
//!
//! ```text
//!  packed          count u16 | member*
//!  packed, marked  integers in order, as in [`intset`]
//!  Set             a Dict of members, some of them with deadlines
//! ```
//! A set starts with integers, is packed when another text comes, and a [`Set`] when it becomes too large; it never
//! goes back (`t_set.c` of Redis 7.2). Where a member gets a deadline the set is a [`Set`] from then on.
//!
//! A member whose deadline has passed may still stand there: who reads says what the time is, and sees none that is dead.

use super::number::{I64_TEXT_BYTES_MAX, parse_i64};
use super::pack::{self, Buffer, COUNT_BYTES, COUNT_MAX, Element, Encoded, Item, has_room};
use super::{Node, NodeType, Portion, intset};
use crate::config::Limits;
use crate::table::{Dict, Entry, Kind, NEVER_MS, Stored, Value};

/// A set that is not packed.
#[derive(Clone, Default)]
pub struct Set {
    pub members: Dict,
}

impl NodeType for Set {
    const KIND: Kind = Kind::Set;
}

impl Node for Set {
    fn kind(&self) -> Kind {
        Kind::Set
    }

    fn bytes(&self) -> usize {
        size_of::<Set>() + self.members.bytes()
    }

    fn free_some(&mut self, budget: usize) -> bool {
        self.members.free_some(budget)
    }

    fn boxed_clone(&self) -> Box<dyn Node> {
        Box::new(self.clone())
    }

    fn dict(&self) -> Option<&Dict> {
        Some(&self.members)
    }

    fn begin_saving(&mut self) -> bool {
        self.members.begin_saving()
    }

    fn save_some(&mut self, to: &mut dyn FnMut(Portion)) -> bool {
        self.members.save_some(&mut |member, _, deadline_ms| to(Portion::Member(member, deadline_ms)))
    }

    fn stop_saving(&mut self) {
        self.members.stop_saving();
    }

    fn is_saved(&self) -> bool {
        self.members.is_saved()
    }
}

impl Set {
    /// Adds a member; whether it is new.
    pub fn insert(&mut self, member: &[u8]) -> bool {
        self.members.add(member, Value::Bytes(b""))
    }

    /// Whether it still has this member, which is dead.
    pub fn has_dead(&self, member: &[u8], now_ms: u64) -> bool {
        self.members.earliest_ms() < now_ms
            && self.members.get_with_deadline(member).is_some_and(|(_, deadline_ms)| !lives(deadline_ms, now_ms))
    }

    /// The same set, not packed.
    pub fn of(view: View) -> Set {
        let mut set = Set::default();
        let mut text = [0; I64_TEXT_BYTES_MAX];
        for member in view.iter() {
            set.insert(member.text(&mut text));
        }
        set
    }
}

#[inline]
fn lives(deadline_ms: Option<u64>, now_ms: u64) -> bool {
    deadline_ms.is_none_or(|deadline_ms| deadline_ms >= now_ms)
}

/// A set, to read from: those of its members that are alive.
#[derive(Clone, Copy)]
pub enum View<'a> {
    Ints(&'a [u8]),
    Packed(&'a [u8]),
    /// All are alive.
    Dict(&'a Dict),
    /// Some may be dead at this moment.
    Timed(&'a Dict, u64),
}

impl<'a> View<'a> {
    pub const EMPTY: View<'static> = View::Packed(&[0; COUNT_BYTES]);

    /// The set that is kept like this, as it is now.
    pub fn of(content: Stored<'a>, now_ms: u64) -> View<'a> {
        match content {
            Stored::Packed(Kind::Set, marked, bytes) => View::packed(bytes, marked),
            // SAFETY: the node of a set is a `Set`, and lives as long as its entry, from which the content is borrowed.
            Stored::Node(Kind::Set, node) => View::of_dict(unsafe { &node.cast::<Set>().as_ref().members }, now_ms),
            _ => unreachable!("it is a set"),
        }
    }

    #[inline]
    fn of_dict(members: &'a Dict, now_ms: u64) -> View<'a> {
        if members.earliest_ms() < now_ms { View::Timed(members, now_ms) } else { View::Dict(members) }
    }

    #[inline]
    pub fn packed(bytes: &'a [u8], marked: bool) -> View<'a> {
        if marked { View::Ints(bytes) } else { View::Packed(bytes) }
    }

    #[inline]
    pub fn len(self) -> usize {
        match self {
            View::Ints(bytes) | View::Packed(bytes) => pack::count(bytes),
            View::Dict(dict) => dict.len(),
            View::Timed(dict, now_ms) => dict.len() - dict.count_dead(now_ms),
        }
    }

    pub fn is_empty(self) -> bool {
        match self {
            View::Timed(dict, now_ms) => !dict.any_lives(now_ms),
            _ => self.len() == 0,
        }
    }

    /// When the first member dies, at the earliest; [`NEVER_MS`] where none has a deadline.
    pub fn earliest_ms(self) -> u64 {
        match self {
            View::Ints(_) | View::Packed(_) => NEVER_MS,
            View::Dict(dict) | View::Timed(dict, _) => dict.earliest_ms(),
        }
    }

    /// The deadline of a member, [`NEVER_MS`] where it has none; nothing of what is no member.
    pub fn deadline_ms(self, text: &[u8]) -> Option<u64> {
        match self {
            View::Dict(dict) | View::Timed(dict, _) => {
                let (_, deadline_ms) = dict.get_with_deadline(text)?;
                self.contains(text).then(|| deadline_ms.unwrap_or(NEVER_MS))
            }
            packed => packed.contains(text).then_some(NEVER_MS),
        }
    }

    /// All members with their deadlines.
    pub fn iter_with_deadlines(self) -> impl Iterator<Item = (Element<'a>, Option<u64>)> {
        let (packed, dict) = match self {
            View::Dict(dict) => (None, Some((dict, 0))),
            View::Timed(dict, now_ms) => (None, Some((dict, now_ms))),
            packed => (Some(packed.iter().map(|member| (member, None))), None),
        };
        let of_dict = |(dict, now_ms): (&'a Dict, u64)| {
            dict.iter_with_deadlines()
                .filter(move |(_, deadline_ms)| lives(*deadline_ms, now_ms))
                .map(|(entry, deadline_ms)| (of_entry(entry), deadline_ms))
        };
        packed.into_iter().flatten().chain(dict.into_iter().flat_map(of_dict))
    }

    #[inline]
    pub fn contains(self, text: &[u8]) -> bool {
        match self {
            View::Ints(bytes) => parse_i64(text).is_some_and(|n| intset::contains(bytes, n)),
            View::Packed(bytes) => find(bytes, Element::of(text)).is_some(),
            View::Dict(dict) => dict.get(text).is_some(),
            View::Timed(dict, now_ms) => {
                dict.get_with_deadline(text).is_some_and(|(_, deadline_ms)| lives(deadline_ms, now_ms))
            }
        }
    }

    /// Whether it has a member of another set.
    pub fn has(self, member: Element) -> bool {
        match (self, member) {
            (_, Element::Bytes(text)) => self.contains(text),
            (View::Ints(bytes), Element::Int(n)) => intset::contains(bytes, n),
            (View::Packed(bytes), Element::Int(_)) => find(bytes, member).is_some(),
            (View::Dict(_) | View::Timed(..), Element::Int(_)) => {
                self.contains(member.text(&mut [0; I64_TEXT_BYTES_MAX]))
            }
        }
    }

    /// All members. One that looks like an integer may come as bytes all the same.
    pub fn iter(self) -> impl Iterator<Item = Element<'a>> {
        let (mut ints, mut packed, mut dict, mut timed) = (None, None, None, None);
        match self {
            View::Ints(bytes) => ints = Some(intset::iter(bytes).map(Element::Int)),
            View::Packed(bytes) => packed = Some(pack::iter(bytes, COUNT_BYTES).map(|(_, member)| member)),
            View::Dict(members) => dict = Some(members.iter().map(of_entry)),
            View::Timed(members, now_ms) => {
                let alive = members.iter_with_deadlines().filter(move |(_, deadline_ms)| lives(*deadline_ms, now_ms));
                timed = Some(alive.map(|(entry, _)| of_entry(entry)));
            }
        }
        let packed = ints.into_iter().flatten().chain(packed.into_iter().flatten());
        packed.chain(dict.into_iter().flatten()).chain(timed.into_iter().flatten())
    }

    /// One call of a scan; see [`Dict::scan`]. A packed set is shown as a whole.
    pub fn scan(self, cursor: u64, count: usize, mut each: impl FnMut(Element)) -> u64 {
        match self {
            View::Dict(dict) => dict.scan(cursor, count, |entry, _| each(of_entry(entry))),
            View::Timed(dict, now_ms) => dict.scan(cursor, count, |entry, deadline_ms| {
                if lives(deadline_ms, now_ms) {
                    each(of_entry(entry));
                }
            }),
            packed => {
                packed.iter().for_each(each);
                0
            }
        }
    }

    /// A member chosen uniformly; none of an empty set.
    pub fn random(self, rng: &mut fastrand::Rng) -> Option<Element<'a>> {
        if self.is_empty() {
            return None;
        }
        match self {
            View::Ints(bytes) => Some(Element::Int(intset::get(bytes, rng.usize(..intset::len(bytes))))),
            View::Packed(bytes) => {
                let at = pack::skip(bytes, COUNT_BYTES, rng.usize(..pack::count(bytes)));
                Some(pack::read(bytes, at).0)
            }
            View::Dict(dict) => dict.random(rng, |_| true).map(|(entry, _)| of_entry(entry)),
            View::Timed(dict, now_ms) => {
                dict.random(rng, |deadline_ms| lives(deadline_ms, now_ms)).map(|(entry, _)| of_entry(entry))
            }
        }
    }

    /// `count` different members, chosen uniformly, in the order of the set; all of them where there are no more.
    ///
    /// Selection sampling: D. Knuth, The Art of Computer Programming, volume 2, algorithm 3.4.2 S.
    pub fn sample(self, count: usize, rng: &mut fastrand::Rng) -> impl Iterator<Item = Element<'a>> {
        let (mut left, mut wanted) = (self.len(), count);
        self.iter().filter(move |_| {
            let taken = wanted > 0 && rng.usize(..left) < wanted;
            left -= 1;
            wanted -= usize::from(taken);
            taken
        })
    }
}

fn of_entry(entry: Entry<'_>) -> Element<'_> {
    Element::Bytes(entry.key())
}

fn find(bytes: &[u8], member: Element) -> Option<usize> {
    pack::find(bytes, COUNT_BYTES, Item::ELEMENT, &member.encoded())
}

/// A set that is under no key.
pub enum Form {
    Packed { bytes: Encoded, marked: bool },
    Node(Set),
}

/// What came of adding a member to a packed set.
pub enum Added {
    New,
    Present,
    /// It is new, and the set needs this form.
    Changed(Form),
}

impl Default for Form {
    fn default() -> Form {
        Form::Packed { bytes: Encoded::from_slice(&[0; COUNT_BYTES]), marked: true }
    }
}

impl Form {
    /// An empty set that is going to have so many members, of which this one is the first.
    pub fn for_members(first: &[u8], count: usize, limits: &Limits) -> Form {
        let bytes = Encoded::from_slice(&[0; COUNT_BYTES]);
        if parse_i64(first).is_some() {
            Form::Packed { bytes, marked: true }
        } else if count <= limits.set.entries {
            Form::Packed { bytes, marked: false }
        } else {
            Form::Node(Set::default())
        }
    }

    /// A packed set, to be kept.
    pub fn stored(bytes: &[u8], marked: bool) -> Stored<'_> {
        Stored::Packed(Kind::Set, marked, bytes)
    }

    pub fn view(&self) -> View<'_> {
        match self {
            Form::Packed { bytes, marked } => View::packed(bytes, *marked),
            Form::Node(set) => View::Dict(&set.members),
        }
    }

    /// Adds a member; whether it is new.
    pub fn insert(&mut self, member: &[u8], limits: &Limits) -> bool {
        let added = match self {
            Form::Packed { bytes, marked } => add(bytes, *marked, member, limits),
            Form::Node(set) => return set.insert(member),
        };
        match added {
            Added::New => true,
            Added::Present => false,
            Added::Changed(form) => {
                *self = form;
                true
            }
        }
    }
}

/// Adds a member to a packed set.
pub fn add(buffer: &mut impl Buffer, marked: bool, member: &[u8], limits: &Limits) -> Added {
    if !marked {
        return add_packed(buffer, member, limits);
    }
    let view = View::Ints(buffer.bytes());
    let Some(n) = parse_i64(member) else {
        return Added::Changed(add_to_ints(buffer.bytes(), member, limits));
    };
    if view.len() < limits.intset_entries.min(COUNT_MAX) {
        return if intset::insert(buffer, n) { Added::New } else { Added::Present };
    }
    if view.contains(member) {
        return Added::Present;
    }
    // As in Redis 7.2, a set that has become too large for integers is not packed, even if `limits` would allow it; one
    // that must not be of integers at all is.
    let form = if view.is_empty() { add_to_ints(buffer.bytes(), member, limits) } else { unpacked(view, member) };
    Added::Changed(form)
}

fn add_packed(buffer: &mut impl Buffer, member: &[u8], limits: &Limits) -> Added {
    let encoded = Element::of(member).encoded();
    let bytes = buffer.bytes();
    if pack::find(bytes, COUNT_BYTES, Item::ELEMENT, &encoded).is_some() {
        return Added::Present;
    }
    if !is_packable(pack::count(bytes) + 1, member.len(), limits) || !has_room(bytes.len(), member.len()) {
        return Added::Changed(unpacked(View::Packed(bytes), member));
    }
    let end = bytes.len();
    buffer.splice(end..end, &encoded);
    pack::add_count(buffer, 1);
    Added::New
}

/// The set of these integers and a new member that must not be among them, packed or not.
fn add_to_ints(ints: &[u8], member: &[u8], limits: &Limits) -> Form {
    let view = View::Ints(ints);
    let longest = match view.len() {
        0 => 0,
        len => {
            [0, len - 1].map(|index| Element::Int(intset::get(ints, index)).text_len()).into_iter().max().unwrap_or(0)
        }
    };
    if !is_packable(view.len() + 1, member.len().max(longest), limits) {
        return unpacked(view, member);
    }
    let mut bytes = Encoded::from_slice(&((view.len() + 1) as u16).to_le_bytes());
    for int in view.iter() {
        int.encode(&mut bytes);
    }
    Element::of(member).encode(&mut bytes);
    Form::Packed { bytes, marked: false }
}

fn is_packable(count: usize, longest: usize, limits: &Limits) -> bool {
    count <= limits.set.entries.min(COUNT_MAX) && longest <= limits.set.value_bytes
}

fn unpacked(view: View, member: &[u8]) -> Form {
    let mut set = Set::of(view);
    set.insert(member);
    Form::Node(set)
}

/// The set with room for so many members more, where its form is too small for that.
pub fn widened(view: View, more: usize, limits: &Limits) -> Option<Form> {
    let is_too_small = matches!(view, View::Packed(_)) && more > limits.set.entries;
    is_too_small.then(|| Form::Node(Set::of(view)))
}

/// Removes a member of a packed set; whether it was there.
pub fn remove(buffer: &mut impl Buffer, marked: bool, member: &[u8]) -> bool {
    if marked {
        return parse_i64(member).is_some_and(|n| intset::remove(buffer, n));
    }
    let bytes = buffer.bytes();
    let Some(at) = find(bytes, Element::of(member)) else { return false };
    let end = at + pack::len_at(bytes, at);
    buffer.splice(at..end, &[]);
    pack::add_count(buffer, -1);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PackLimits;
    use std::collections::{BTreeMap, BTreeSet};

    fn limits(ints: usize, entries: usize, value_bytes: usize) -> Limits {
        Limits { intset_entries: ints, set: PackLimits { entries, value_bytes }, ..Limits::default() }
    }

    fn random_member(rng: &mut fastrand::Rng, ints_only: bool) -> Vec<u8> {
        match rng.u8(..8) {
            0..6 => rng.i64(-30..30).to_string().into_bytes(),
            _ if ints_only => (rng.i64(..) >> rng.u32(..64)).to_string().into_bytes(),
            6 => format!("0{}", rng.u8(..20)).into_bytes(),
            _ => vec![b'm'; rng.usize(..12)],
        }
    }

    fn check(form: &Form, model: &BTreeSet<Vec<u8>>) {
        let view = form.view();
        assert_eq!(view.len(), model.len());
        let members: BTreeSet<Vec<u8>> = view.iter().map(Element::to_vec).collect();
        assert_eq!(members, *model);
        assert_eq!(view.iter().count(), model.len());
        assert!(model.iter().all(|member| view.contains(member) && view.has(Element::of(member))));
        assert!(model.iter().all(|member| view.has(Element::Bytes(member))));
    }

    fn remove_from(form: &mut Form, member: &[u8]) -> bool {
        match form {
            Form::Packed { bytes, marked } => remove(bytes, *marked, member),
            Form::Node(set) => set.members.remove(member),
        }
    }

    #[test]
    fn edits_are_those_of_a_model() {
        let steps = if cfg!(miri) { 60 } else { 200 };
        for seed in 0..if cfg!(miri) { 3 } else { 300 } {
            let mut rng = fastrand::Rng::with_seed(seed);
            let limits = limits(rng.usize(..40), rng.usize(..20), rng.usize(..12));
            let (mut form, mut model) = (Form::default(), BTreeSet::new());
            let ints = rng.usize(..steps * 3 / 4);
            for step in 0..steps {
                let member = random_member(&mut rng, step < ints);
                if rng.u8(..5) > 1 {
                    assert_eq!(form.insert(&member, &limits), model.insert(member));
                } else {
                    assert_eq!(remove_from(&mut form, &member), model.remove(&member));
                }
                check(&form, &model);
            }
        }
    }

    fn encoding(members: &[&str], limits: &Limits) -> &'static str {
        let mut form = Form::default();
        for member in members {
            form.insert(member.as_bytes(), limits);
        }
        match form.view() {
            View::Ints(_) => "intset",
            View::Packed(_) => "listpack",
            View::Dict(_) | View::Timed(..) => "hashtable",
        }
    }

    #[test]
    fn forms_are_those_of_redis() {
        let usual = limits(3, 3, 5);
        assert_eq!(encoding(&["1", "2", "-3"], &usual), "intset");
        assert_eq!(encoding(&["1", "2", "3", "4"], &usual), "hashtable");
        assert_eq!(encoding(&["1", "2", "3", "3"], &usual), "intset");
        assert_eq!(encoding(&["1", "a"], &usual), "listpack");
        assert_eq!(encoding(&["1", "2", "3", "a"], &usual), "hashtable");
        assert_eq!(encoding(&["1", "abcdef"], &usual), "hashtable");
        assert_eq!(encoding(&["1234567", "a"], &usual), "hashtable");
        assert_eq!(encoding(&["a", "1234567"], &usual), "hashtable");
        assert_eq!(encoding(&["1"], &limits(0, 3, 5)), "listpack");
        assert_eq!(encoding(&["1"], &limits(0, 0, 5)), "hashtable");
        assert_eq!(encoding(&["1", "2", "3", "4"], &limits(3, 128, 64)), "hashtable");
    }

    /// Every pair of four members comes as often as any other.
    #[test]
    #[cfg_attr(miri, ignore = "thousands of draws, of what other tests draw from")]
    fn samples_are_uniform() {
        let limits = limits(512, 128, 64);
        for members in [["1", "2", "3", "4"], ["1", "2", "3", "d"]] {
            let mut form = Form::default();
            for member in members {
                form.insert(member.as_bytes(), &limits);
            }
            let node = Form::Node(Set::of(form.view()));
            for form in [form, node] {
                let mut rng = fastrand::Rng::with_seed(3);
                let (mut pairs, mut singles) = (BTreeMap::<_, usize>::new(), BTreeMap::<_, usize>::new());
                for _ in 0..6000 {
                    let mut pair: Vec<_> = form.view().sample(2, &mut rng).map(Element::to_vec).collect();
                    pair.sort();
                    *pairs.entry(pair).or_default() += 1;
                    *singles.entry(form.view().random(&mut rng).unwrap().to_vec()).or_default() += 1;
                }
                assert!(pairs.len() == 6 && pairs.values().all(|count| (880..1120).contains(count)), "{pairs:?}");
                assert!(singles.len() == 4 && singles.values().all(|count| (1350..1650).contains(count)));
            }
        }
    }
}
