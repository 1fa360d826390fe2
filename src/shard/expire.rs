//! The task that runs the cycle, and the one that gives back the memory of flushed databases. The budget bounds what the
//! cycle takes in a second; how much it takes in a turn follows from how long the others had theirs.

use super::Shard;
use super::pace::PREEMPT;
use super::transactions::HELD_FOR;
use crate::clock::{store_us, thread_cpu_ns};
use crate::config::Config;
use crate::executor::{Queue, Shares, spawn_into};
use crate::expiry::{Form, Outcome, Settings};
use crate::keyspace::NEVER_MS;
use crate::net::{Transport, sleep, step_back};
use crate::observe::Event;
use futures_lite::future::or;
use std::rc::Rc;
use std::time::Duration;

/// Entries freed between two looks at the work that waits.
pub const GARBAGE_A_SLICE: usize = 256;
/// Up to here garbage is freed a slice a turn, however fast others make it.
const GARBAGE_UNHURRIED_MIB: u64 = 16;
/// From here on freeing it takes as long as others had: to make a collection takes longer than to free it.
const GARBAGE_MOST_MIB: u64 = 64;
/// A turn of a saturated shard's cycle lasts no longer than this.
const LONGEST_TURN_US: u64 = 500;
/// How long to wait for a clock that stands still.
const CLOCK_HELD: Duration = Duration::from_micros(50);

pub(super) fn settings(config: &Config) -> Settings {
    Settings {
        enabled: config.active_expire_enabled,
        interval_ms: config.active_expire_interval_ms,
        cpu_percent: config.active_expire_cpu_percent,
        fast_us: config.active_expire_fast_us,
        sample_size: config.active_expire_sample_size as usize,
        acceptable_stale_percent: config.active_expire_acceptable_stale_percent,
        hz: config.hz,
    }
}

/// Shares against the 1,000 of serving, so that under load the queue gets the budget's part of the time.
fn budget_shares(shard: &Shard) -> usize {
    let percent = shard.settings().cpu_percent as usize;
    (1000 * percent / (100 - percent.min(99))).clamp(1, 1000)
}

/// Starts the tasks: beside the transport's where it is a ring or epoll, which lets each task that is ready have its turn
/// after its own and whose waiting a queue's shares would take for work; else in a queue of their own.
pub(super) fn start(shard: &Rc<Shard>, transport: &Transport) {
    let queue = match transport {
        Transport::Ring(_) | Transport::Epoll(_) => Queue::current(),
        Transport::Sockets(_) => {
            let shard = shard.clone();
            Queue::new("expiry", Shares::By(Box::new(move || budget_shares(&shard))), Some(PREEMPT))
        }
    };
    spawn_into(queue, run_cycle(shard.clone()));
    spawn_into(queue, free_garbage(shard.clone()));
    spawn_into(queue, end_stale(shard.clone()));
}

async fn run_cycle(shard: Rc<Shard>) {
    let mut turns = 0;
    loop {
        let now = shard.catch_up();
        let settings = shard.settings();
        if shard.stands_still(now) {
            sleep_until(&shard, shard.still_until_us()).await;
            continue;
        }
        if shard.is_everything_held() {
            sleep(HELD_FOR).await;
            continue;
        }
        if settings.automatic() {
            let (keyspace, mut rng) = (shard.keyspace.borrow(), shard.rng.borrow_mut());
            let idle = turns == shard.turns.get();
            if shard.cycle.borrow_mut().sample(&keyspace, &mut rng, now, &settings, idle, thread_cpu_ns) {
                turns = shard.turns.get();
            }
        }
        let due_ms = shard.keyspace.borrow().next_due_hint_ms();
        let form = shard.cycle.borrow().due_form(due_ms, now, &settings);
        if let Some(form) = form
            && !run_one(&shard, form, &settings).await
        {
            sleep(HELD_FOR).await;
            continue;
        }
        let now = shard.catch_up();
        let wake_us = shard.cycle.borrow_mut().next_wake_us(&shard.keyspace.borrow(), now, &shard.settings());
        // Only an earlier deadline than the one slept for may wake the task before its time.
        let due_ms = shard.keyspace.borrow().next_due_hint_ms();
        let slept_for_ms = if due_ms == NEVER_MS { NEVER_MS } else { due_ms.min(wake_us / 1000) };
        shard.cycle_wakes_ms.set(if shard.settings().automatic() { slept_for_ms } else { 0 });
        sleep_until(&shard, wake_us).await;
    }
}

/// Whether nobody had to be waited for.
async fn run_one(shard: &Rc<Shard>, form: Form, settings: &Settings) -> bool {
    shard.cycle.borrow_mut().start(form, shard.clock.now(), settings);
    // A slice a turn is the rule. Where the shard is saturated a turn comes only every few milliseconds: it then lasts
    // as long as the budget's part of the time that others had.
    let mut turn_ends_us = 0;
    loop {
        if form == Form::Fast {
            // The fast form is for a shard that is about to block: nobody was served while this task stood back.
            let turns = shard.turns.get();
            step_back().await;
            if shard.turns.get() != turns {
                return true;
            }
        }
        let began_us = store_us();
        let Some(now) = shard.cycle_now().filter(|_| !shard.stands_still(shard.clock.now())) else {
            return false;
        };
        let outcome = {
            let (mut keyspace, mut rng) = (shard.keyspace.borrow_mut(), shard.rng.borrow_mut());
            let mut cycle = shard.cycle.borrow_mut();
            cycle.slice(form, &mut keyspace, &mut rng, now, settings, thread_cpu_ns)
        };
        shard.after_commands();
        let ended_us = store_us();
        shard.meter.count_event(Event::ExpireCycle, ended_us.saturating_sub(began_us).saturating_mul(1_000));
        if outcome != Outcome::More {
            return true;
        }
        if ended_us >= turn_ends_us {
            step_back().await;
            let resumed_us = store_us();
            let percent = u64::from(settings.cpu_percent);
            let part_us = (resumed_us - ended_us) * percent / (100 - percent.min(99));
            turn_ends_us = resumed_us + part_us.min(LONGEST_TURN_US);
        }
    }
}

/// Sleeps until then, or until somebody rings.
async fn sleep_until(shard: &Shard, wake_us: u64) {
    let alarm = &shard.cycle_alarm;
    if wake_us == u64::MAX {
        alarm.wait().await;
        return;
    }
    let rest = Duration::from_micros(wake_us.saturating_sub(store_us()));
    if !rest.is_zero() {
        or(alarm.wait(), sleep(rest)).await;
    } else if shard.catch_up().us < wake_us {
        // It waits for a shard that is sending transactions, and whose thread may have lost its core: looking again at
        // once would be in its way.
        sleep(CLOCK_HELD).await;
    } else {
        step_back().await;
    }
}

/// How long so much garbage is freed for, when others had so long to make more of it.
fn garbage_turn_ns(mebibytes: u64, others_ns: u64) -> u64 {
    others_ns * mebibytes.min(GARBAGE_MOST_MIB) / GARBAGE_MOST_MIB
}

/// What is done in slices when there is time: memory of what has gone is given back, and access clocks get the meaning that
/// another `maxmemory-policy` gives them.
async fn free_garbage(shard: Rc<Shard>) {
    loop {
        shard.garbage_alarm.wait().await;
        while shard.keyspace.borrow_mut().collect_garbage(GARBAGE_A_SLICE) {
            let mebibytes = (shard.keyspace.borrow().garbage_bytes() >> 20) as u64;
            if mebibytes < GARBAGE_UNHURRIED_MIB {
                step_back().await;
                continue;
            }
            let began_ns = thread_cpu_ns();
            step_back().await;
            let resumed_ns = thread_cpu_ns();
            let ends_ns = resumed_ns + garbage_turn_ns(mebibytes, resumed_ns.saturating_sub(began_ns));
            while thread_cpu_ns() < ends_ns && shard.keyspace.borrow_mut().collect_garbage(GARBAGE_A_SLICE) {}
        }
        while shard.keyspace.borrow_mut().renew_clocks(shard.clock.now()) {
            step_back().await;
        }
    }
}

/// Copies of what has died whose time is over, taken out together.
const STALE_A_SLICE: usize = 64;
/// Nobody sees them any more, so that there is no hurry.
const STALE_PAUSE_MS: u64 = 100;

/// Gives back the memory of what has died and was to be shown for a while.
async fn end_stale(shard: Rc<Shard>) {
    loop {
        shard.stale_alarm.wait().await;
        while shard.keyspace.borrow().stale_copies() > 0 {
            let now = shard.catch_up();
            if shard.keyspace.borrow_mut().sweep_stale(STALE_A_SLICE, now) {
                step_back().await;
            } else {
                sleep(Duration::from_millis(STALE_PAUSE_MS)).await;
            }
        }
    }
}
