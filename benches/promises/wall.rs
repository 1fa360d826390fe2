//! Wall-clock time, the scale on which absolute deadlines (`PXAT`) are given and their lag is measured.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub fn unix_us() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    since_epoch.as_micros() as i64
}

pub fn unix_ms() -> i64 {
    unix_us() / 1_000
}

/// The monotonic moment at which the wall clock will show `at_ms`, or now where that has passed.
pub fn instant_at(at_ms: i64) -> Instant {
    let wait_us = (at_ms * 1_000 - unix_us()).max(0);
    Instant::now() + Duration::from_micros(wait_us as u64)
}

/// Seconds from `origin` to `now`, negative where `now` comes first.
pub fn seconds_since(origin: Instant, now: Instant) -> f64 {
    now.saturating_duration_since(origin).as_secs_f64() - origin.saturating_duration_since(now).as_secs_f64()
}

pub fn sleep_until(moment: Instant) {
    std::thread::sleep(moment.saturating_duration_since(Instant::now()));
}

/// Today in UTC as `YYYY-MM-DD`, by Howard Hinnant's `civil_from_days`
/// (<https://howardhinnant.github.io/date_algorithms.html>).
pub fn today() -> String {
    let shifted = unix_ms() / 86_400_000 + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}
