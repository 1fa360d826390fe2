//! What a thread remembers: latencies by phase of the run, and of the current interval for those who watch.

use emberdb::measure::skim::Reply;
use hdrhistogram::Histogram;
use std::sync::{Arc, Mutex};

/// Latencies above it are recorded as it.
const LONGEST_NS: u64 = 600_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, SIGNIFICANT_DIGITS).expect("constant bounds")
}

/// What happened since somebody looked.
#[derive(Clone)]
pub struct Interval {
    pub latency_ns: Histogram<u64>,
    pub errors: u64,
}

impl Interval {
    pub fn new() -> Interval {
        Interval { latency_ns: histogram(), errors: 0 }
    }

    pub fn clear(&mut self) {
        self.latency_ns.reset();
        self.errors = 0;
    }
}

/// The thread adds each interval to it; the main thread takes it away.
pub type Shared = Arc<Mutex<Interval>>;

/// One phase of a run, from one bound to the next: what was planned in it.
#[derive(Clone)]
pub struct Phase {
    pub latency_ns: Histogram<u64>,
    /// Replies that came in this phase, whenever planned.
    pub replies: u64,
}

#[derive(Clone)]
pub struct Outcome {
    pub phases: Vec<Phase>,
    /// How late the generator itself was, where there was room to send.
    pub late_ns: Histogram<u64>,
    pub errors: u64,
    pub first_error: Option<String>,
    pub nils: u64,
    /// Sent or due, and without a reply when the run was given up.
    pub unanswered: u64,
    /// When the last reply came, since the start of the run.
    pub last_reply_ns: u64,
}

impl Outcome {
    pub fn new(phases: usize) -> Outcome {
        Outcome {
            phases: vec![Phase { latency_ns: histogram(), replies: 0 }; phases],
            late_ns: histogram(),
            errors: 0,
            first_error: None,
            nils: 0,
            unanswered: 0,
            last_reply_ns: 0,
        }
    }

    pub fn add(&mut self, other: &Outcome) {
        for (phase, theirs) in self.phases.iter_mut().zip(&other.phases) {
            phase.latency_ns.add(&theirs.latency_ns).expect("equal bounds");
            phase.replies += theirs.replies;
        }
        self.late_ns.add(&other.late_ns).expect("equal bounds");
        self.errors += other.errors;
        self.first_error = self.first_error.take().or_else(|| other.first_error.clone());
        self.nils += other.nils;
        self.unanswered += other.unanswered;
        self.last_reply_ns = self.last_reply_ns.max(other.last_reply_ns);
    }
}

pub struct Recorder {
    /// Where phases begin, and at the end where the last one ends; what was planned outside is not counted.
    bounds_ns: Vec<u64>,
    outcome: Outcome,
    interval: Interval,
    interval_ns: u64,
    next_interval_ns: u64,
    shared: Shared,
}

impl Recorder {
    pub fn new(bounds_ns: Vec<u64>, interval_ns: u64, shared: Shared) -> Recorder {
        assert!(bounds_ns.len() >= 2 && bounds_ns.is_sorted(), "phases have bounds");
        Recorder {
            outcome: Outcome::new(bounds_ns.len() - 1),
            interval: Interval::new(),
            interval_ns,
            next_interval_ns: bounds_ns[0] + interval_ns,
            shared,
            bounds_ns,
        }
    }

    /// Called at every turn of the thread's loop.
    #[inline]
    pub fn tick(&mut self, now_ns: u64) {
        if now_ns >= self.next_interval_ns {
            self.hand_over(now_ns);
        }
    }

    #[inline]
    pub fn reply(&mut self, planned_ns: u64, now_ns: u64, reply: Reply<'_>) {
        self.latency(planned_ns, now_ns);
        if let Some(phase) = phase(&self.bounds_ns, now_ns) {
            self.outcome.phases[phase].replies += 1;
            self.outcome.last_reply_ns = now_ns;
        }
        match reply {
            Reply::Value => {}
            Reply::Nil => self.outcome.nils += u64::from(planned_ns >= self.bounds_ns[0]),
            Reply::Error(text) => {
                self.outcome.errors += 1;
                self.interval.errors += 1;
                if self.outcome.first_error.is_none() {
                    self.outcome.first_error = Some(String::from_utf8_lossy(text).into_owned());
                }
            }
        }
    }

    /// A request that was due and has no reply: it has waited at least until now.
    pub fn unanswered(&mut self, planned_ns: u64, now_ns: u64) {
        if phase(&self.bounds_ns, planned_ns).is_some() {
            self.outcome.unanswered += 1;
            self.latency(planned_ns, now_ns);
        }
    }

    pub fn late(&mut self, planned_ns: u64, late_ns: u64) {
        if planned_ns >= self.bounds_ns[0] {
            self.outcome.late_ns.saturating_record(late_ns.max(1));
        }
    }

    pub fn finish(mut self, now_ns: u64) -> Outcome {
        self.hand_over(now_ns);
        self.outcome
    }

    #[inline]
    fn latency(&mut self, planned_ns: u64, now_ns: u64) {
        if let Some(phase) = phase(&self.bounds_ns, planned_ns) {
            let latency_ns = now_ns.saturating_sub(planned_ns).max(1);
            self.outcome.phases[phase].latency_ns.saturating_record(latency_ns);
            self.interval.latency_ns.saturating_record(latency_ns);
        }
    }

    fn hand_over(&mut self, now_ns: u64) {
        let mut shared = self.shared.lock().expect("nobody panics with it");
        shared.latency_ns.add(&self.interval.latency_ns).expect("equal bounds");
        shared.errors += self.interval.errors;
        drop(shared);
        self.interval.clear();
        while self.next_interval_ns <= now_ns {
            self.next_interval_ns += self.interval_ns;
        }
    }
}

/// The phase of a moment; `None` before the first and after the last.
#[inline]
fn phase(bounds_ns: &[u64], moment_ns: u64) -> Option<usize> {
    if moment_ns < bounds_ns[0] {
        return None;
    }
    bounds_ns[1..].iter().position(|&end_ns| moment_ns < end_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorder(bounds_ns: &[u64]) -> (Recorder, Shared) {
        let shared = Shared::new(Mutex::new(Interval::new()));
        (Recorder::new(bounds_ns.to_vec(), 1_000, shared.clone()), shared)
    }

    #[test]
    fn latency_counts_in_the_phase_it_was_planned_in() {
        let (mut recorder, shared) = recorder(&[100, 200, 300]);
        recorder.reply(50, 150, Reply::Value); // planned in the warm-up, answered after it
        recorder.reply(150, 250, Reply::Value);
        recorder.reply(199, 1_200, Reply::Nil);
        recorder.reply(250, 280, Reply::Error(b"ERR one"));
        recorder.reply(260, 290, Reply::Error(b"ERR two"));
        recorder.unanswered(299, 5_299);
        recorder.unanswered(300, 5_299);
        let outcome = recorder.finish(5_299);
        let counts: Vec<u64> = outcome.phases.iter().map(|phase| phase.latency_ns.len()).collect();
        assert_eq!(counts, [2, 3]);
        assert_eq!(outcome.phases[0].latency_ns.max(), 1_001);
        assert!(outcome.phases[1].latency_ns.max().abs_diff(5_000) < 10);
        assert_eq!(outcome.phases.iter().map(|phase| phase.replies).collect::<Vec<_>>(), [1, 3]);
        assert_eq!((outcome.errors, outcome.first_error.as_deref()), (2, Some("ERR one")));
        assert_eq!((outcome.nils, outcome.unanswered), (1, 1));
        let seen = shared.lock().unwrap();
        assert_eq!((seen.latency_ns.len(), seen.errors), (5, 2));
    }

    #[test]
    fn intervals_are_handed_over_when_they_end() {
        let (mut recorder, shared) = recorder(&[0, 10_000]);
        recorder.reply(10, 20, Reply::Value);
        recorder.tick(999);
        assert_eq!(shared.lock().unwrap().latency_ns.len(), 0);
        recorder.tick(1_000);
        assert_eq!(shared.lock().unwrap().latency_ns.len(), 1);
        recorder.tick(1_500);
        assert_eq!(shared.lock().unwrap().latency_ns.len(), 1);
    }

    #[test]
    fn outcomes_of_threads_add_up() {
        let (mut one, _) = recorder(&[0, 100]);
        let (mut two, _) = recorder(&[0, 100]);
        one.reply(1, 11, Reply::Value);
        two.reply(1, 50, Reply::Error(b"ERR x"));
        let mut sum = Outcome::new(1);
        sum.add(&one.finish(100));
        sum.add(&two.finish(100));
        assert_eq!((sum.phases[0].replies, sum.errors, sum.last_reply_ns), (2, 1, 50));
        assert_eq!(sum.first_error.as_deref(), Some("ERR x"));
    }
}
