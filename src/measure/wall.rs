//! Wall-clock time, the scale on which absolute deadlines (`PXAT`) are given and their lag is measured.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub fn unix_us() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    since_epoch.as_micros() as i64
}

pub fn unix_ms() -> i64 {
    unix_us() / 1_000
}

/// The moment at which the wall clock shows `at_ms`, on the clock that does not jump.
pub fn instant_at(at_ms: i64) -> Instant {
    let ahead_us = at_ms * 1_000 - unix_us();
    let away = Duration::from_micros(ahead_us.unsigned_abs());
    if ahead_us < 0 { Instant::now() - away } else { Instant::now() + away }
}

/// Seconds from `origin` to `now`, negative where `now` comes first.
pub fn seconds_since(origin: Instant, now: Instant) -> f64 {
    now.saturating_duration_since(origin).as_secs_f64() - origin.saturating_duration_since(now).as_secs_f64()
}

pub fn sleep_until(moment: Instant) {
    std::thread::sleep(moment.saturating_duration_since(Instant::now()));
}
