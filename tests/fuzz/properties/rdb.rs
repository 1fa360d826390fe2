//! Values in RDB form (`src/rdb`): whatever the bytes, what a sink is told keeps its promises, and memory follows the
//! bytes and not the numbers in them.

use emberdb::rdb::stream::Stream;
use emberdb::rdb::{EntryTexts, Reader, Sink, decode, payload};
use emberdb::value::pack::Element;
use emberdb::value::stream::Id;

use super::meter::measured;

/// The longest copy that three compressed bytes stand for.
const EXPANSION: usize = 88;
/// For each byte, expanded: an element of a node takes two and is held in 16, and so are the fields of an entry, twice.
const MEMORY_A_BYTE: usize = 32;
const MEMORY_BYTES: usize = 4096;

/// Counts what it is told and drops it.
#[derive(Default)]
struct Counted {
    calls: usize,
    ended: bool,
    last_id: Option<Id>,
    /// Fields of the run.
    fields: usize,
}

pub fn check(bytes: &[u8]) {
    if let Ok(value) = payload::open(bytes) {
        let mut again = value.to_vec();
        payload::seal(&mut again);
        assert_eq!(payload::open(&again), Ok(value));
    }
    let mut counted = Counted::default();
    let (result, memory) = measured(|| decode(&mut Reader::new(bytes, usize::MAX), &mut counted));
    assert!(memory <= MEMORY_BYTES + MEMORY_A_BYTE * EXPANSION * bytes.len(), "{memory} bytes");
    assert!(result.is_err() || counted.calls > 0);
}

impl Counted {
    fn call(&mut self) {
        assert!(!self.ended, "nothing comes behind the end");
        self.calls += 1;
    }
}

impl Sink for Counted {
    fn string(&mut self, _: Element) {
        self.call();
        self.ended = true;
    }

    fn element(&mut self, _: Element) {
        self.call();
    }

    fn member(&mut self, _: Element, deadline_ms: Option<u64>) {
        assert!(deadline_ms != Some(0));
        self.call();
    }

    fn scored(&mut self, _: Element, score: f64, deadline_ms: Option<u64>) {
        assert!(!score.is_nan() && deadline_ms != Some(0));
        self.call();
    }

    fn field(&mut self, _: Element, _: Element, deadline_ms: Option<u64>) {
        assert!(deadline_ms != Some(0));
        self.call();
    }

    fn run(&mut self, fields: &[Element]) {
        self.fields = fields.len();
    }

    fn entry(&mut self, id: Id, texts: EntryTexts) {
        match texts {
            EntryTexts::Values(values) => assert!(!values.is_empty() && values.len() == self.fields),
            EntryTexts::Pairs(pairs) => assert!(!pairs.is_empty() && pairs.len().is_multiple_of(2)),
        }
        assert!(self.last_id.replace(id).is_none_or(|last| last < id));
        self.call();
    }

    fn stream(&mut self, stream: Stream) {
        assert!(self.last_id.is_none_or(|last| last <= stream.last_id));
        for group in &stream.groups {
            assert!(group.pending.is_sorted_by(|a, b| a.id < b.id));
            assert!(group.pending.iter().all(|pending| pending.owner < group.consumers.len()));
        }
        self.call();
        self.ended = true;
    }
}
