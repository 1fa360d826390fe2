//! LATENCY GRAPH: spikes as columns of text, with how long ago each was below.

use crate::observe::{Event, Series};

/// Spikes beside each other, the newest at the right.
const COLUMNS: usize = 80;
const ROWS: usize = 4;
/// The upper end of a column within its row, from low to high.
const TIPS: [char; 3] = ['_', 'o', '#'];

pub fn graph(event: Event, series: &Series, now_s: u64) -> String {
    let skipped = series.samples().len().saturating_sub(COLUMNS);
    let shown: Vec<_> = series.samples().skip(skipped).collect();
    let (lowest_ms, highest_ms) =
        shown.iter().fold((u64::MAX, 0), |(lowest, highest), sample| (lowest.min(sample.ms), highest.max(sample.ms)));
    let heights = shown.iter().map(|sample| height(sample.ms, lowest_ms, highest_ms));
    let heights: Vec<usize> = heights.collect();
    let labels: Vec<String> = shown.iter().map(|sample| ago(now_s.saturating_sub(sample.time_s))).collect();
    let mut text = format!(
        "{} - high {highest_ms} ms, low {lowest_ms} ms (all time high {} ms)\n{}\n",
        event.name(),
        series.longest_ms,
        "-".repeat(COLUMNS)
    );
    for row in (0..ROWS).rev() {
        let line: String = heights.iter().map(|height| cell(*height, row)).collect();
        text += line.trim_end();
        text.push('\n');
    }
    text.push('\n');
    // The labels read downwards.
    for letter in 0..labels.iter().map(String::len).max().unwrap_or(0) {
        let line: String = labels.iter().map(|label| label.chars().nth(letter).unwrap_or(' ')).collect();
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Of a column, in thirds of a row; the lowest has one.
fn height(ms: u64, lowest_ms: u64, highest_ms: u64) -> usize {
    let steps = (ROWS * TIPS.len() - 1) as u64;
    match highest_ms - lowest_ms {
        0 => 1,
        range_ms => 1 + (u128::from(ms - lowest_ms) * u128::from(steps) / u128::from(range_ms)) as usize,
    }
}

fn cell(height: usize, row: usize) -> char {
    match height.saturating_sub(row * TIPS.len()) {
        0 => ' ',
        within if within <= TIPS.len() => TIPS[within - 1],
        _ => '|',
    }
}

fn ago(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::{Sample, Spikes};

    #[test]
    fn columns_rise_from_the_lowest_to_the_highest() {
        let mut spikes = Spikes::default();
        for (time_s, ms) in [(100, 10), (130, 1_000), (7_200, 505)] {
            spikes.add(Event::Command, Sample { time_s, ms });
        }
        let text = graph(Event::Command, spikes.of(Event::Command), 7_205);
        let expected = "command - high 1000 ms, low 10 ms (all time high 1000 ms)\n\
            --------------------------------------------------------------------------------\n\
            \x20#\n\
            \x20|\n\
            \x20|#\n\
            _||\n\
            \n\
            115\n\
            hhs\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn equal_spikes_are_flat_and_extremes_do_not_overflow() {
        assert_eq!(height(5, 5, 5), 1);
        assert_eq!(height(u64::MAX, 0, u64::MAX), ROWS * TIPS.len());
        assert_eq!(
            ["59s", "1m", "59m", "1h", "23h", "1d"].map(str::to_owned),
            [59, 60, 3_599, 3_600, 86_399, 86_400].map(ago)
        );
    }
}
