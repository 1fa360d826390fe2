//! A histogram in HdrHistogram's percentile format, as <https://hdrhistogram.github.io/HdrHistogram/plotFiles.html>
//! reads it. Source: `outputPercentileDistribution` of HdrHistogram (Java).

use hdrhistogram::Histogram;
use std::fmt::Write;

/// Lines for each time the distance to 100 % halves.
const TICKS_A_HALF: u32 = 5;
const NS_A_MS: f64 = 1e6;

/// The distribution in milliseconds.
pub fn format(latency_ns: &Histogram<u64>) -> String {
    let mut text = format!("{:>12} {:>14} {:>10} {:>14}\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
    let mut count = 0;
    for step in latency_ns.iter_quantiles(TICKS_A_HALF) {
        count += step.count_since_last_iteration();
        let value = step.value_iterated_to() as f64 / NS_A_MS;
        let quantile = step.quantile_iterated_to();
        let written = if quantile < 1.0 {
            writeln!(text, "{value:>12.6} {quantile:>2.12} {count:>10} {:>14.2}", 1.0 / (1.0 - quantile))
        } else {
            writeln!(text, "{value:>12.6} {quantile:>2.12} {count:>10}")
        };
        written.expect("a string takes everything");
    }
    let (mean, deviation) = (latency_ns.mean() / NS_A_MS, latency_ns.stdev() / NS_A_MS);
    let (max, total) = (latency_ns.max() as f64 / NS_A_MS, latency_ns.len());
    // The plotter does not read them; other tools do.
    let (buckets, sub_buckets) = (latency_ns.buckets(), 2 * 10u32.pow(latency_ns.sigfig().into()));
    text += &format!("#[Mean    = {mean:>12.6}, StdDeviation   = {deviation:>12.6}]\n");
    text += &format!("#[Max     = {max:>12.6}, Total count    = {total:>12}]\n");
    text += &format!("#[Buckets = {buckets:>12}, SubBuckets     = {:>12}]\n", sub_buckets.next_power_of_two());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_the_plotter_reads() {
        let mut histogram = crate::recorder::histogram();
        (1..=1000u64).for_each(|ms| histogram.record(ms * 1_000_000).unwrap());
        let text = format(&histogram);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0].split_whitespace().collect::<Vec<_>>(),
            ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"]
        );
        assert_eq!(lines[1], "");
        let rows: Vec<Vec<f64>> = lines[2..]
            .iter()
            .take_while(|line| !line.starts_with('#'))
            .map(|line| line.split_whitespace().map(|cell| cell.parse().unwrap()).collect())
            .collect();
        let last = rows.len() - 1;
        assert!(rows[..last].iter().all(|row| row.len() == 4) && rows[last].len() == 3);
        assert!(rows.windows(2).all(|pair| pair[0][0] <= pair[1][0] && pair[0][1] < pair[1][1]));
        let median = rows.iter().find(|row| row[1] == 0.5).unwrap();
        assert!((median[0] - 500.0).abs() < 1.0 && median[2] == 500.0 && median[3] == 2.0);
        assert!((rows[last][0] - 1000.0).abs() < 1.0);
        assert_eq!((rows[last][1], rows[last][2]), (1.0, 1000.0));
        assert!(text.contains("#[Mean    =   500."));
        assert!(lines[lines.len() - 1].starts_with("#[Buckets ="));
    }

    #[test]
    fn nothing_recorded_is_no_mistake() {
        assert!(format(&crate::recorder::histogram()).contains("Total count    =            0"));
    }
}
