//! Where handlers run, and how long they take.
//!
//! Reading the clock takes a tenth of a command's time. So quick requests ([`Command::is_quick`]) are noted, and the time
//! until the clock is read next is shared out to them in equal parts: the shard reads the clock for each connection that has
//! something to say, and when it has worked on all of them. All others, and those with long replies, are measured one by one.
//!
//! [`Command::is_quick`]: crate::command::Command::is_quick

use super::Shard;
use super::ceiling::Space;
use super::message::{At, Part};
use crate::clock::{Now, realtime_us, store_us};
use crate::command::spec::Spec;
use crate::command::spec::flag::{FAST, LOADING, READ, WRITE};
use crate::command::{CommandId, Ctx, Handler};
use crate::config::Config;
use crate::keyspace::Tracker;
use crate::observe::{Event, Sample, Spikes, Statistics, log};
use crate::resp::{Error, Proto, Reply, Request};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell, RefMut};
use std::sync::Arc;

/// A reply of this size is written for so long that its command is measured alone.
pub const LONG_REPLY_BYTES: usize = 16 * 1024;
/// Errors that the commands of a log, or of a primary, answer, as far as each is told.
const COMPLAINTS: u64 = 10;
/// How long strings of a log may become at least.
const REPLAYED_STRING_BYTES: usize = u32::MAX as usize;
/// Below this threshold of the slow log every command is measured alone, in microseconds.
const EXACT_BELOW_US: i64 = 1_000;

#[derive(Default)]
pub struct Meter {
    specs: Arc<[Spec]>,
    /// When the last measurement ended, store microseconds.
    lapped_us: Cell<u64>,
    /// Commands that share the time since then: the last, how often it ran in a row (zero: nothing was noted), and
    /// those before it.
    last_noted: Cell<Option<CommandId>>,
    count_noted: Cell<u64>,
    others_noted: Cell<bool>,
    noted: RefCell<SmallVec<[(CommandId, u64); 4]>>,
    /// Whether all are measured one by one.
    is_exact: Cell<bool>,
    /// What takes longer goes into the slow log.
    slow_ns: Cell<u64>,
    /// What takes at least as long is a latency spike.
    spike_ns: Cell<u64>,
    spikes: RefCell<Spikes>,
    /// Errors that commands of a log have answered, while one is replayed.
    log_errors: Cell<Option<u64>>,
    /// Errors that writes have answered, while another server is followed.
    replica_errors: Cell<Option<u64>>,
    /// The last calls, if they took the same time: those that share it do.
    last: Cell<Option<(CommandId, u64, u64)>>,
    statistics: RefCell<Statistics>,
}

impl Meter {
    /// `specs` are what is said of the commands, by their numbers.
    pub fn new(specs: Arc<[Spec]>) -> Meter {
        Meter { specs, spike_ns: Cell::new(u64::MAX), ..Meter::default() }
    }

    pub(super) fn configure(&self, config: &Config) {
        self.statistics.borrow_mut().tracks_latency = config.latency_tracking;
        let slower_than_us = config.slowlog_log_slower_than_us;
        let spike_ms = Some(config.latency_monitor_threshold_ms).filter(|ms| *ms > 0);
        self.is_exact.set((0..EXACT_BELOW_US).contains(&slower_than_us) || spike_ms.is_some());
        self.spike_ns.set(spike_ms.map_or(u64::MAX, |ms| ms.saturating_mul(1_000_000)));
        self.slow_ns.set(u64::try_from(slower_than_us).map_or(u64::MAX, |us| us.saturating_mul(1_000)));
    }

    /// Whether something that took so long belongs into the slow log.
    #[inline]
    pub fn is_slow(&self, ns: u64) -> bool {
        ns >= self.slow_ns.get()
    }

    /// What this shard's connections have asked for, wherever it ran.
    pub fn statistics(&self) -> RefMut<'_, Statistics> {
        let mut statistics = self.statistics.borrow_mut();
        if let Some((command, ns, calls)) = self.last.take() {
            statistics.ran(command.index(), calls, ns * calls);
        }
        statistics
    }

    /// Whether commands share their time with others where they can.
    #[inline]
    pub fn shares(&self) -> bool {
        !self.is_exact.get()
    }

    /// A command of this shard's connections has run, and shares its time.
    #[inline]
    pub fn note(&self, command: CommandId) {
        if self.last_noted.get() != Some(command) {
            self.note_another(command);
        }
        self.count_noted.set(self.count_noted.get() + 1);
    }

    #[inline(never)]
    fn note_another(&self, command: CommandId) {
        let count = self.count_noted.take();
        let last = self.last_noted.replace(Some(command));
        if let Some(last) = last.filter(|_| count > 0) {
            self.noted.borrow_mut().push((last, count));
            self.others_noted.set(true);
        }
    }

    /// The clock was read: what was noted since the last time has taken until now.
    #[inline]
    pub fn lap(&self, now_us: u64) {
        if self.has_noted() {
            let ns = now_us.saturating_sub(self.lapped_us.get()).saturating_mul(1_000);
            match self.last_noted.get() {
                Some(command) if !self.others_noted.get() => {
                    let count = self.count_noted.take();
                    self.count(command, ns / count, count);
                }
                _ => self.share(ns),
            }
        }
        self.lapped_us.set(now_us);
    }

    #[inline]
    fn has_noted(&self) -> bool {
        self.count_noted.get() > 0
    }

    #[inline(never)]
    fn share(&self, ns: u64) {
        let mut noted = self.noted.borrow_mut();
        noted.extend(self.last_noted.get().map(|last| (last, self.count_noted.take())));
        let count: u64 = noted.iter().map(|(_, count)| count).sum();
        noted.drain(..).for_each(|(command, calls)| self.count(command, ns / count, calls));
        self.others_noted.set(false);
    }

    /// When the last measurement ended, store microseconds.
    pub fn lapped_us(&self) -> u64 {
        self.lapped_us.get()
    }

    /// Something begins that is measured alone.
    pub fn begin(&self) {
        self.lap(store_us());
    }

    /// What was noted, if anything, has taken until now.
    pub fn lap_noted(&self) {
        if self.has_noted() {
            self.lap(store_us());
        }
    }

    /// It ends: for how long it went on, in nanoseconds.
    pub fn end(&self) -> u64 {
        let (now_us, began_us) = (store_us(), self.lapped_us.get());
        self.lapped_us.set(now_us);
        now_us.saturating_sub(began_us).saturating_mul(1_000)
    }

    /// So many end together: for how long each went on. None where there are none.
    fn end_of(&self, count: u64) -> Option<u64> {
        (count > 0).then(|| self.end() / count)
    }

    /// A command of this shard's connections has run, for so long.
    #[inline]
    pub fn ran(&self, command: CommandId, ns: u64) {
        self.count(command, ns, 1);
    }

    /// Calls that took so long each.
    #[inline]
    fn count(&self, command: CommandId, ns: u64, more: u64) {
        if ns >= self.spike_ns.get() {
            self.count_spike_of(command, ns);
        }
        let calls = match self.last.get() {
            Some((last, last_ns, calls)) if (last, last_ns) == (command, ns) => calls,
            last => {
                if last.is_some() {
                    drop(self.statistics());
                }
                0
            }
        };
        self.last.set(Some((command, ns, calls + more)));
    }

    #[cold]
    fn count_spike_of(&self, command: CommandId, ns: u64) {
        let is_fast = self.specs.get(command.index()).is_some_and(|spec| spec.has(FAST));
        self.add_spike(if is_fast { Event::FastCommand } else { Event::Command }, ns);
    }

    /// Counts an event where it has lasted so long that LATENCY should tell.
    pub(super) fn count_event(&self, event: Event, ns: u64) {
        if ns >= self.spike_ns.get() {
            self.add_spike(event, ns);
        }
    }

    #[cold]
    fn add_spike(&self, event: Event, ns: u64) {
        let sample = Sample { time_s: realtime_us() / 1_000_000, ms: ns / 1_000_000 };
        self.spikes.borrow_mut().add(event, sample);
    }

    /// What took long on this shard, or was asked for by its connections and took long.
    pub fn spikes(&self) -> RefMut<'_, Spikes> {
        self.spikes.borrow_mut()
    }

    /// A command was refused; None where there is no such command.
    pub fn rejected(&self, command: Option<CommandId>, reply: &[u8]) {
        self.statistics.borrow_mut().rejected(command.map(CommandId::index), reply);
    }

    /// It has failed with this error.
    #[cold]
    pub fn failed(&self, command: CommandId, error: &[u8]) {
        if let Some(errors) = self.log_errors.get() {
            self.note_log_error(command, error, errors);
        } else if let Some(errors) = self.replica_errors.get() {
            self.note_replica_error(command, error, errors);
        }
        self.statistics.borrow_mut().failed(command.index(), error);
    }

    /// Some of the errors of a log are told in the server's, since nobody else hears of them.
    fn note_log_error(&self, command: CommandId, error: &[u8], before: u64) {
        // While data is loaded others are let through with commands of this flag only.
        let Some(spec) = self.specs.get(command.index()).filter(|spec| !spec.has(LOADING)) else { return };
        self.log_errors.set(Some(before + 1));
        if before < COMPLAINTS {
            let error = error.trim_ascii().escape_ascii();
            log::warning(format_args!("A command of the log, {}, has answered {error}", spec.name));
        }
    }

    /// What a primary has done does not fail here, unless this server's data are not the primary's any more.
    fn note_replica_error(&self, command: CommandId, error: &[u8], before: u64) {
        let Some(spec) = self.specs.get(command.index()).filter(|spec| spec.has(WRITE)) else { return };
        // (A client that had waited, and came too late.)
        if error.starts_with(b"-READONLY") {
            return;
        }
        let count = before + 1;
        self.replica_errors.set(Some(count));
        if count <= COMPLAINTS || count.is_power_of_two() {
            let error = error.trim_ascii().escape_ascii();
            log::warning(format_args!(
                "== CRITICAL == A write on this replica, {}, has answered {error} ({count} on this shard so far): its data \
                 may differ from the primary's",
                spec.name
            ));
        }
    }

    /// Another server is followed from now on, or not any more.
    pub(super) fn set_following(&self, wants: bool) {
        self.replica_errors.set(wants.then_some(0));
    }

    /// How many commands of the log that is replayed have answered errors.
    pub fn log_errors(&self) -> u64 {
        self.log_errors.get().unwrap_or(0)
    }

    /// It has answered this; counted where it is an error.
    #[inline]
    pub fn answered(&self, command: CommandId, reply: &[u8]) {
        if reply.first() == Some(&b'-') {
            self.failed(command, reply);
        }
    }
}

/// Measures the parts of a batch, which are run one after the other: those that are quick together, others alone.
#[derive(Default)]
pub(super) struct Laps {
    /// The first part whose time is not known yet.
    from: usize,
}

impl Laps {
    /// The parts before this one are measured already.
    pub fn new(from: usize) -> Laps {
        Laps { from }
    }

    /// This part is about to run.
    #[inline]
    pub fn before(&mut self, shard: &Shard, parts: &mut [Part], next: usize) {
        if !shard.is_quick(parts[next].at) {
            self.end(shard, &mut parts[..next]);
        }
    }

    /// It has run.
    #[inline]
    pub fn after(&mut self, shard: &Shard, parts: &mut [Part], next: usize) {
        let Part { at, out: (start, end), .. } = parts[next];
        if !shard.is_quick(at) || end - start >= LONG_REPLY_BYTES {
            self.end(shard, &mut parts[..=next]);
        }
    }

    /// These have run, and what of them is not measured shares the time since the last measurement.
    pub fn end(&mut self, shard: &Shard, parts: &mut [Part]) {
        shard.share(&mut parts[self.from..]);
        self.from = parts.len();
    }
}

impl Shard {
    /// Runs a command that is not part of something larger, if there is room for it.
    #[inline]
    pub fn execute_alone(
        &self,
        handler: Handler,
        request: Request,
        at: At,
        now: Now,
        out: &mut Vec<u8>,
        ends: &mut Vec<usize>,
    ) {
        if self.space_for(&at, request) == Space::None {
            Reply::new(out, at.proto).error(Error::OutOfMemory);
            return;
        }
        self.execute(handler, request, at, now, out, ends);
    }

    /// Runs one command's handler. An error takes the place of whatever was written.
    #[inline]
    pub fn execute(
        &self,
        handler: Handler,
        request: Request,
        at: At,
        now: Now,
        out: &mut Vec<u8>,
        ends: &mut Vec<usize>,
    ) {
        let (start, first_end) = (out.len(), ends.len());
        let run = |ctx: &mut Ctx| {
            if at.write && ctx.keyspace.has_required_deadlines() {
                ctx.check_required(self.spec(at.command), request)?;
            }
            handler(ctx, request).inspect_err(|_| ctx.keyspace.effects.close_all())
        };
        let result = self.on_data(at, now, (out, ends), Some(request), run);
        let error = match result {
            Ok(()) if out.len() - start <= self.reply_bytes.get() => return,
            Ok(()) => Error::OutputTooLong,
            Err(error) => error,
        };
        out.truncate(start);
        ends.truncate(first_end);
        Reply::new(out, at.proto).error(error);
    }

    /// The reply of one of a transaction's commands begins at `start`, the first of theirs at `first`. Where those before
    /// it are too long already, an error takes its place.
    #[inline]
    pub fn keep_short(&self, first: usize, start: usize, proto: Proto, out: &mut Vec<u8>) {
        if start - first > self.reply_bytes.get() {
            out.truncate(start);
            Reply::new(out, proto).error(Error::OutputTooLong);
        }
    }

    /// Runs one step of a command that goes from shard to shard; its result, and for how long it ran, in nanoseconds.
    pub fn step_of<R>(&self, at: At, now: Now, step: impl FnOnce(&mut Ctx) -> R) -> (R, u64) {
        self.measured(|| self.on_data(at, now, (&mut Vec::new(), &mut Vec::new()), None, step))
    }

    /// Whatever works on this shard's data comes through here, under the number of its command. A step of a coordinator
    /// has no request that could be repeated.
    #[inline]
    fn on_data<R>(
        &self,
        at: At,
        now: Now,
        (out, ends): (&mut Vec<u8>, &mut Vec<usize>),
        request: Option<Request>,
        work: impl FnOnce(&mut Ctx) -> R,
    ) -> R {
        let (limits, mut keyspace) = (&*self.limits.borrow(), self.keyspace.borrow_mut());
        let now = if at.is_told || self.is_replaying.get() { Now::from_ms(0) } else { now };
        let changes = keyspace.effects.dirty;
        let mut ctx = Ctx {
            keyspace: &mut keyspace,
            db: at.db,
            now,
            clock: &self.clock,
            rng: &mut self.rng.borrow_mut(),
            reply: Reply::within(out, at.proto, limits.reply_bytes),
            hash: at.hash,
            limits,
            touch: at.touch,
            ends,
            shards: self.count,
            in_script: at.in_script,
        };
        let is_told = at.tracker.is_some() || ctx.is_journaled() || ctx.keyspace.has_sliding_lives();
        if is_told {
            ctx.keyspace.effects.writer = at.tracker;
            ctx.keyspace.buries = at.write && ctx.is_journaled();
            ctx.begin_to_say(request);
        }
        let result = work(&mut ctx);
        debug_assert!(ctx.keyspace.effects.is_closed(), "{}: of a change nothing was said", self.spec(at.command).name);
        if is_told {
            self.end_command(&mut ctx, at, request);
        }
        if self.durable.is_kept() {
            self.note_shown(at, request, ctx.keyspace.effects.dirty != changes);
        }
        result
    }

    /// Remembers which push the reply of a command waits for.
    #[cold]
    fn note_shown(&self, at: At, request: Option<Request>, has_changed: bool) {
        let keys = self.spec(at.command).keys;
        let names_one = request.is_some_and(|request| keys.indexes(request).count() == 1 && !keys.name_others(request));
        let hash = Some(at.hash).filter(|hash| names_one && *hash != 0);
        match has_changed {
            true => self.durable.changed(hash),
            false => self.durable.read(hash),
        }
    }

    /// From now on commands come from a log, and no key is dead before it says so, or not any more: then whoever waits for what has
    /// come is to be served ([`Shard::serve_waiters`]).
    pub fn set_replaying(&self, wants: bool) {
        self.is_replaying.set(wants);
        self.meter.log_errors.set(wants.then_some(0));
        self.take_limits(&self.config());
        self.follow_hold();
        self.keyspace.borrow_mut().was_emptied = false;
    }

    pub fn is_replaying(&self) -> bool {
        self.is_replaying.get()
    }

    /// Takes over how long things may be. A log that is replayed has been written under other limits: as in Redis, its
    /// strings may be as long as they are.
    pub(super) fn take_limits(&self, config: &Config) {
        let mut limits = config.feasible_limits();
        if self.is_replaying.get() {
            limits.string_bytes = limits.string_bytes.max(REPLAYED_STRING_BYTES);
        }
        self.reply_bytes.set(limits.reply_bytes);
        *self.limits.borrow_mut() = limits;
    }

    /// What a command, or a step of one, has changed is told to the journal; what it has read is remembered, where its
    /// connection tracks that.
    #[cold]
    fn end_command(&self, ctx: &mut Ctx, at: At, request: Option<Request>) {
        if ctx.is_journaled() {
            ctx.end_saying(request);
        }
        if ctx.keyspace.has_sliding_lives() {
            let latest = self.clock.now();
            if self.stands_still(latest) {
                ctx.keyspace.take_used();
            }
            ctx.renew_used(latest);
        }
        if ctx.is_journaled() {
            self.records.end_command(&mut ctx.keyspace.effects);
        }
        ctx.keyspace.effects.writer = None;
        ctx.keyspace.buries = false;
        let (tracker, spec) = (at.tracker.filter(|tracker| tracker.remembers), self.spec(at.command));
        if let (Some(tracker), Some(request)) = (tracker, request.filter(|_| spec.has(READ))) {
            for index in spec.keys.indexes(request) {
                ctx.keyspace.effects.remember(request.arg(index), tracker, self.tracked_keys.get(), ctx.rng);
            }
        }
    }

    /// Keys of this shard that a coordinator is about to read are remembered.
    pub fn remember(&self, tracker: Tracker, keys: &[Box<[u8]>]) {
        let (mut keyspace, most, rng) =
            (self.keyspace.borrow_mut(), self.tracked_keys.get(), &mut self.rng.borrow_mut());
        keys.iter().for_each(|key| keyspace.effects.remember(key, tracker, most, rng));
    }

    /// Commands of a batch share the time since the last measurement.
    fn share(&self, parts: &mut [Part]) {
        let count = parts.iter().filter(|part| !part.deferred).count() as u64;
        if let Some(each_ns) = self.meter.end_of(count) {
            parts.iter_mut().filter(|part| !part.deferred).for_each(|part| part.ns = each_ns);
        }
    }

    /// Runs something that is measured alone; its result, and for how long it ran, in nanoseconds.
    pub fn measured<R>(&self, work: impl FnOnce() -> R) -> (R, u64) {
        self.meter.begin();
        let result = work();
        (result, self.meter.end())
    }

    /// Whether a command shares its time with others.
    #[inline]
    pub fn is_quick(&self, at: At) -> bool {
        at.is_quick && self.meter.shares()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Table, rows};

    #[test]
    fn those_that_run_between_two_looks_at_the_clock_share_the_time() {
        let table = Table::new(rows().copied());
        let id = |name: &[u8]| table.by_full_name(name).expect("declared").0.id;
        let meter = Meter::default();
        meter.lap(1_000);
        (0..3).for_each(|_| meter.note(id(b"get")));
        meter.note(id(b"set"));
        meter.lap(1_008);
        meter.lap(5_000);
        meter.note(id(b"get"));
        meter.lap(5_001);
        let statistics = meter.statistics();
        let of = |name| statistics.commands().find(|(index, _)| *index == id(name).index()).expect("called").1;
        assert_eq!((of(b"get").calls, of(b"get").ns), (4, 7_000));
        assert_eq!((of(b"set").calls, of(b"set").ns), (1, 2_000));
    }
}
