//! Where results go: `bench-results/<date>-<machine>/<name>/`, and the clocks and counters that more than one program
//! reads.

use std::fs;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// The folder of one program's results.
pub fn folder(name: &str) -> PathBuf {
    PathBuf::from(format!("bench-results/{}-{}/{name}", today(), machine()))
}

/// The machine by what matters and not by its name: `<cores>core-linux<version>`.
pub fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let version: Vec<&str> = release.split(['.', '-']).take(2).collect();
    format!("{cores}core-linux{}", version.join("."))
}

/// Today in UTC as `YYYY-MM-DD`, by Howard Hinnant's `civil_from_days`
/// (<https://howardhinnant.github.io/date_algorithms.html>).
pub fn today() -> String {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    let shifted = (since_epoch.as_secs() / 86_400) as i64 + 719_468;
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
