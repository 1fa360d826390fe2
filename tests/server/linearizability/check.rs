//! Is there an order of all operations, each at one moment between its request and its reply, in which one thread would
//! have given the same replies?
//!
//! The search is that of Wing and Gong (Testing and verifying concurrent objects, 1993) with Lowe's memory of what was
//! seen before and his just-in-time linearization (Testing for linearizability, 2017):
//!
//! - Requests and replies are walked in their order in time. An operation takes effect at the latest when its reply
//!   comes, and no other is placed unless one that must be placed now needs it.
//! - A [`Place`] is how far the walk has come, which of the operations in flight have taken effect, and the state. None
//!   is visited twice.
//! - An operation that fits and changes nothing, a read above all, is placed as soon as it fits: whatever can follow
//!   without it can follow with it.
//!
//! A moment without an operation in flight is a place like others. All states reachable there are kept, in the sense
//! that the search comes back for the next one when the first leads nowhere. Where an operation that is alone writes
//! every key ([`resets`]), only one state is reachable, and everything before it is settled and forgotten.

use std::rc::Rc;

use ahash::{AHashMap, AHashSet};

use super::history::{Action, Command, History, Operation};
use super::model::State;

/// Past so many places the search gives up: some gigabytes.
const PLACES_MAX: usize = 5_000_000;
/// So many of the states that led nowhere are shown.
const SHOWN_STATES: usize = 6;

#[derive(Debug)]
pub enum Verdict {
    /// After so many places.
    Linearizable { places: usize },
    /// No order exists; the text says where the search could not go on.
    Violation { places: usize, why: String },
    /// Neither found within [`PLACES_MAX`].
    Undecided,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Sent(usize),
    Answered(usize),
}

/// Operations are known by their index in order of time, and while in flight by the number of a bit.
struct Search<'a> {
    history: &'a History,
    operations: Vec<&'a Operation>,
    events: Vec<(i64, Event)>,
    bits: Vec<u32>,
    /// What is in flight after each event.
    in_flight: Vec<Vec<usize>>,
    /// The operations of the same pipeline that take effect before.
    predecessors: Vec<Vec<usize>>,
    /// Events after which there is one state only.
    resets: Vec<bool>,

    states: Vec<Rc<State>>,
    numbers: AHashMap<Rc<State>, u32>,
    seen: AHashSet<Place>,
    /// The furthest reply for which nothing could be placed, and the states there.
    furthest: (usize, Vec<Rc<State>>),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    /// Index of the next event.
    event: u32,
    state: u32,
    /// Those in flight that have taken effect, as bits.
    done: u64,
}

pub fn check(history: &History) -> Verdict {
    Search::new(history).run()
}

impl<'a> Search<'a> {
    fn new(history: &'a History) -> Search<'a> {
        let mut operations: Vec<&Operation> = history.operations.iter().collect();
        // Stable, so a pipeline keeps its order.
        operations.sort_by_key(|operation| operation.sent_us);
        let sent = operations.iter().enumerate().map(|(at, operation)| (operation.sent_us, Event::Sent(at)));
        let answered =
            operations.iter().enumerate().map(|(at, operation)| (operation.answered_us, Event::Answered(at)));
        let mut events: Vec<_> = sent.chain(answered).collect();
        // What happened in the same microsecond may have overlapped.
        events.sort_by_key(|(us, event)| (*us, matches!(event, Event::Answered(_))));

        let (bits, in_flight) = flights(&events, operations.len());
        let predecessors = predecessors(&operations);
        let resets = resets(history, &operations, &events, &in_flight);
        Search {
            history,
            operations,
            events,
            bits,
            in_flight,
            predecessors,
            resets,
            states: Vec::new(),
            numbers: AHashMap::new(),
            seen: AHashSet::new(),
            furthest: (0, Vec::new()),
        }
    }

    fn run(mut self) -> Verdict {
        let mut settled = 0;
        let start = State::empty(self.history);
        let mut stack = vec![Place { event: 0, done: 0, state: self.number(start) }];
        while let Some(place) = stack.pop() {
            let (place, was_reset) = self.advance(place);
            if place.event as usize == self.events.len() {
                return Verdict::Linearizable { places: settled + self.seen.len() };
            }
            let place = if was_reset {
                let state = State::clone(&self.states[place.state as usize]);
                settled += self.seen.len();
                stack.clear();
                self.seen.clear();
                self.numbers.clear();
                self.states.clear();
                Place { state: self.number(state), ..place }
            } else {
                place
            };
            if !self.seen.insert(place) {
                continue;
            }
            if self.seen.len() > PLACES_MAX {
                return Verdict::Undecided;
            }
            self.expand(place, &mut stack);
        }
        Verdict::Violation { places: settled + self.seen.len(), why: self.explain() }
    }

    /// Goes on as long as there is no choice: to the end, or to a reply to something that has not taken effect. Also
    /// whether a reset was on the way.
    fn advance(&mut self, mut place: Place) -> (Place, bool) {
        let mut was_reset = false;
        self.absorb(&mut place);
        while let Some((_, event)) = self.events.get(place.event as usize).copied() {
            match event {
                Event::Sent(_) => {
                    place.event += 1;
                    self.absorb(&mut place);
                }
                Event::Answered(at) => {
                    let bit = 1 << self.bits[at];
                    if place.done & bit == 0 {
                        break;
                    }
                    place.done &= !bit;
                    place.event += 1;
                }
            }
            was_reset |= self.resets[place.event as usize - 1];
        }
        (place, was_reset)
    }

    /// Places whatever fits and changes nothing.
    fn absorb(&self, place: &mut Place) {
        let state = &self.states[place.state as usize];
        loop {
            let before = place.done;
            for at in self.candidates(*place) {
                if state.stays_as_it_is_after(self.operations[at]) {
                    place.done |= 1 << self.bits[at];
                }
            }
            if place.done == before {
                return;
            }
        }
    }

    /// Pushes the places that are one operation further; the one whose reply is next is tried first.
    fn expand(&mut self, place: Place, stack: &mut Vec<Place>) {
        let event = place.event as usize;
        let (until_us, Event::Answered(due)) = self.events[event] else {
            unreachable!("a request leaves no choice");
        };
        if event > self.furthest.0 {
            self.furthest = (event, Vec::new());
        }
        if event == self.furthest.0 && self.furthest.1.len() < SHOWN_STATES {
            self.furthest.1.push(Rc::clone(&self.states[place.state as usize]));
        }
        let mut candidates: Vec<usize> = self.candidates(place).collect();
        candidates.sort_by_key(|at| (*at == due, std::cmp::Reverse(*at)));
        for at in candidates {
            let state = &self.states[place.state as usize];
            let done = place.done | 1 << self.bits[at];
            for after in state.after(self.operations[at], until_us, self.history.slack_us).into_iter().rev() {
                let state = self.number(after);
                stack.push(Place { state, done, ..place });
            }
        }
    }

    /// What is in flight, has not taken effect, and waits for nothing of its pipeline.
    fn candidates(&self, place: Place) -> impl Iterator<Item = usize> {
        let in_flight: &[usize] = match place.event.checked_sub(1) {
            Some(last) => &self.in_flight[last as usize],
            None => &[],
        };
        let waits = move |at: &usize| place.done & 1 << self.bits[*at] == 0;
        in_flight.iter().copied().filter(waits).filter(move |at| {
            let unfinished = |earlier: &usize| in_flight.contains(earlier) && waits(earlier);
            !self.predecessors[*at].iter().any(unfinished)
        })
    }

    fn number(&mut self, state: State) -> u32 {
        if let Some(number) = self.numbers.get(&state) {
            return *number;
        }
        let number = self.states.len() as u32;
        let state = Rc::new(state);
        self.states.push(Rc::clone(&state));
        self.numbers.insert(state, number);
        number
    }

    fn explain(&self) -> String {
        let (event, states) = &self.furthest;
        let (_, Event::Answered(due)) = self.events[*event] else {
            unreachable!("the search stops at a reply");
        };
        let due = self.operations[due];
        let line = |at: &usize| format!("\n    {}", self.history.line(self.operations[*at]));
        let states: String = states.iter().map(|state| format!("\n    {}", state.shown(self.history))).collect();
        let in_flight: String = self.in_flight[event - 1].iter().map(line).collect();
        // From the last moment at which nothing was in flight.
        let begin = self.in_flight[..event - 1].iter().rposition(Vec::is_empty).map_or(0, |quiet| quiet + 1);
        let sent = |(_, event): &(i64, Event)| match event {
            Event::Sent(at) => Some(*at),
            Event::Answered(_) => None,
        };
        let before: String = self.events[begin..*event].iter().filter_map(sent).map(|at| line(&at)).collect();
        format!(
            "no order explains\n    {}\n  in flight at its reply:{in_flight}\n  states from which the search \
             could not go on (* with a deadline), among them:{states}\n  \
             everything since the last quiet moment:{before}",
            self.history.line(due)
        )
    }
}

/// A bit for each operation that no other has while it is in flight, and what is in flight after each event.
fn flights(events: &[(i64, Event)], operations: usize) -> (Vec<u32>, Vec<Vec<usize>>) {
    let mut bits = vec![0; operations];
    let mut taken = 0u64;
    let mut now = Vec::new();
    let mut in_flight = Vec::with_capacity(events.len());
    for (_, event) in events {
        match event {
            Event::Sent(at) => {
                bits[*at] = taken.trailing_ones();
                assert!(bits[*at] < u64::BITS, "at most {} operations are in flight", u64::BITS);
                taken |= 1 << bits[*at];
                now.push(*at);
            }
            Event::Answered(at) => {
                taken &= !(1 << bits[*at]);
                now.retain(|other| other != at);
            }
        }
        in_flight.push(now.clone());
    }
    (bits, in_flight)
}

fn predecessors(operations: &[&Operation]) -> Vec<Vec<usize>> {
    let of = |at: usize| {
        let later = operations[at];
        let start = operations[..at].partition_point(|operation| operation.sent_us < later.sent_us);
        let same = |earlier: &Operation| (earlier.client, earlier.pipeline) == (later.client, later.pipeline);
        (start..at).filter(|at| same(operations[*at]) && operations[*at].precedes_in_pipeline(later)).collect()
    };
    (0..operations.len()).map(of).collect()
}

/// After which events nothing is left of what was before: an operation that was alone wrote every key and took all
/// deadlines, and nobody watches.
fn resets(
    history: &History,
    operations: &[&Operation],
    events: &[(i64, Event)],
    in_flight: &[Vec<usize>],
) -> Vec<bool> {
    let mut watching = vec![false; history.clients()];
    let mut resets = Vec::with_capacity(events.len());
    for (index, (_, event)) in events.iter().enumerate() {
        resets.push(match *event {
            Event::Sent(_) => false,
            Event::Answered(at) => {
                let operation = operations[at];
                if operation.is_of_session() {
                    watching[usize::from(operation.client)] = matches!(operation.action, Action::Watch(_));
                }
                let was_alone = matches!(events[index - 1].1, Event::Sent(_)) && in_flight[index - 1] == [at];
                was_alone && writes_all(operation, history) && !watching.contains(&true)
            }
        });
    }
    resets
}

fn writes_all(operation: &Operation, history: &History) -> bool {
    match &operation.action {
        Action::One(Command::Mset(pairs), _) => {
            (0..history.keys.len()).all(|key| pairs.iter().any(|(written, _)| usize::from(*written) == key))
        }
        _ => false,
    }
}
