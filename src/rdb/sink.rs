//! What a value holds, told piece by piece.

use crate::value::pack::Element;
use crate::value::stream::Id;

/// Takes what a value holds, in the order of the list below; one kind of calls only for one value.
///
/// - a string: [`string`](Sink::string) once
/// - a list: [`element`](Sink::element) for each from the left
/// - a set, sorted set or hash: [`member`](Sink::member), [`scored`](Sink::scored) or [`field`](Sink::field) for each,
///   in any order; where one comes twice, which the sink has to see, this is no value
/// - a stream: [`entry`](Sink::entry) for each, ascending, then [`stream`](Sink::stream) once, also if there are none
///
/// Elements are kept as integers where they can be ([`Element::of`]). A value may be refused behind any of these calls, and is worth nothing then.
pub trait Sink {
    fn string(&mut self, value: Element);
    fn element(&mut self, element: Element);
    /// As [`Sink::field`] has it.
    fn member(&mut self, member: Element, deadline_ms: Option<u64>);
    /// The score is not NaN, the deadline as [`Sink::field`] has it.
    fn scored(&mut self, member: Element, score: f64, deadline_ms: Option<u64>);
    /// The deadline is in milliseconds since 1970, and may have passed.
    fn field(&mut self, field: Element, value: Element, deadline_ms: Option<u64>);
    /// Entries of a stream come that were kept together; some of them may share these fields.
    fn run(&mut self, fields: &[Element]);
    fn entry(&mut self, id: Id, texts: EntryTexts);
    fn stream(&mut self, stream: Stream);
}

/// What a stream's entry has; of nothing there is one at least.
#[derive(Clone, Copy, Debug)]
pub enum EntryTexts<'t, 'a> {
    /// The values of its run's fields.
    Values(&'t [Element<'a>]),
    /// Fields and values alternate.
    Pairs(&'t [Element<'a>]),
}

/// A stream without its entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    pub last_id: Id,
    pub max_deleted_id: Id,
    pub entries_added: u64,
    pub groups: Vec<Group>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    pub name: Vec<u8>,
    pub last_id: Id,
    /// None: not known.
    pub entries_read: Option<u64>,
    pub consumers: Vec<Consumer>,
    /// What was delivered and is not acknowledged, by ID.
    pub pending: Vec<Pending>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consumer {
    pub name: Vec<u8>,
    /// Milliseconds since 1970.
    pub seen_ms: u64,
    /// None: never.
    pub active_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    pub id: Id,
    pub delivered_ms: u64,
    pub deliveries: u64,
    /// Index of the consumer.
    pub owner: usize,
}
