//! What took longer than `latency-monitor-threshold`, by kind of event and second: LATENCY LATEST, HISTORY, GRAPH,
//! DOCTOR.

use std::collections::VecDeque;

/// Seconds with spikes that are kept of each kind of event, as in Redis.
pub const SAMPLES: usize = 160;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// A command that is not O(1) or O(log n).
    Command,
    /// Keys went because memory was short.
    EvictionCycle,
    ExpireCycle,
    /// A dead key was deleted because somebody asked for it.
    ExpireDel,
    FastCommand,
}

impl Event {
    pub const ALL: [Event; 5] =
        [Event::Command, Event::EvictionCycle, Event::ExpireCycle, Event::ExpireDel, Event::FastCommand];

    pub fn name(self) -> &'static str {
        match self {
            Event::Command => "command",
            Event::EvictionCycle => "eviction-cycle",
            Event::ExpireCycle => "expire-cycle",
            Event::ExpireDel => "expire-del",
            Event::FastCommand => "fast-command",
        }
    }

    pub fn named(name: &[u8]) -> Option<Event> {
        Event::ALL.into_iter().find(|event| event.name().as_bytes() == name)
    }
}

/// The longest event of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Seconds of the wall clock.
    pub time_s: u64,
    pub ms: u64,
}

/// Events of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// Oldest first.
    samples: VecDeque<Sample>,
    /// The longest of all, also of those that are not kept any more.
    pub longest_ms: u64,
}

impl Series {
    fn add(&mut self, sample: Sample) {
        self.longest_ms = self.longest_ms.max(sample.ms);
        match self.samples.back_mut() {
            Some(last) if last.time_s == sample.time_s => last.ms = last.ms.max(sample.ms),
            _ => self.samples.push_back(sample),
        }
        if self.samples.len() > SAMPLES {
            self.samples.pop_front();
        }
    }

    pub fn samples(&self) -> impl ExactSizeIterator<Item = Sample> + Clone {
        self.samples.iter().copied()
    }

    pub fn last(&self) -> Option<Sample> {
        self.samples.back().copied()
    }

    /// Those of several shards as one.
    fn merge(&mut self, other: &Series) {
        let longest_ms = self.longest_ms.max(other.longest_ms);
        let mut all: Vec<Sample> = self.samples.drain(..).chain(other.samples()).collect();
        all.sort_by_key(|sample| sample.time_s);
        all.into_iter().for_each(|sample| self.add(sample));
        self.longest_ms = longest_ms;
    }
}

#[derive(Clone, Debug, Default)]
pub struct Spikes([Series; Event::ALL.len()]);

impl Spikes {
    pub fn add(&mut self, event: Event, sample: Sample) {
        self.0[event as usize].add(sample);
    }

    pub fn of(&self, event: Event) -> &Series {
        &self.0[event as usize]
    }

    /// The kinds of events that there were, in the order of their names.
    pub fn seen(&self) -> impl Iterator<Item = (Event, &Series)> {
        Event::ALL.into_iter().map(|event| (event, self.of(event))).filter(|(_, series)| series.last().is_some())
    }

    /// Forgets a kind; whether there was something to forget.
    pub fn forget(&mut self, event: Event) -> bool {
        std::mem::take(&mut self.0[event as usize]).last().is_some()
    }

    pub fn merge(&mut self, other: &Spikes) {
        self.0.iter_mut().zip(&other.0).for_each(|(own, other)| own.merge(other));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(samples: &[(u64, u64)]) -> Series {
        let mut series = Series::default();
        samples.iter().for_each(|&(time_s, ms)| series.add(Sample { time_s, ms }));
        series
    }

    #[test]
    fn a_second_keeps_its_longest_event_and_old_seconds_are_forgotten() {
        let of_one_second = series(&[(10, 5), (10, 9), (10, 7)]);
        assert_eq!(of_one_second, series(&[(10, 9)]));
        let all: Vec<(u64, u64)> = (0..200).map(|n| (n, 200 - n)).collect();
        let many = series(&all);
        assert_eq!((many.samples().len(), many.longest_ms), (SAMPLES, 200));
        assert_eq!(many.samples().next(), Some(Sample { time_s: 40, ms: 160 }));
    }

    #[test]
    fn shards_are_merged_second_by_second() {
        let mut merged = series(&[(1, 10), (3, 30)]);
        merged.merge(&series(&[(1, 12), (2, 20), (3, 3)]));
        assert_eq!(merged, series(&[(1, 12), (2, 20), (3, 30)]));
    }

    #[test]
    fn names_are_in_order_and_found_again() {
        let names: Vec<&str> = Event::ALL.iter().map(|event| event.name()).collect();
        assert!(names.is_sorted());
        assert!(Event::ALL.into_iter().all(|event| Event::named(event.name().as_bytes()) == Some(event)));
    }
}
