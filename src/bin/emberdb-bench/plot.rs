//! Latency by percentile as SVG, one curve a target.

use crate::failure::Failure;
use hdrhistogram::Histogram;
use plotters::prelude::*;
use std::path::Path;

const SIZE: (u32, u32) = (900, 480);
const COLORS: [RGBColor; 6] = [
    RGBColor(25, 113, 194),
    RGBColor(217, 72, 15),
    RGBColor(47, 158, 68),
    RGBColor(156, 54, 181),
    RGBColor(232, 137, 12),
    RGBColor(134, 142, 150),
];
/// Beyond 1 - 10^-this there is nothing to see.
const NINES_MAX: f64 = 6.0;

/// Draws milliseconds over nines: 0 is the minimum, 1 is p90, 2 is p99.
pub fn write(path: &Path, title: &str, curves: &[(&str, &Histogram<u64>)]) -> Result<(), Failure> {
    draw(path, title, curves).map_err(|error| Failure::Plot(error.to_string()))
}

fn draw(path: &Path, title: &str, curves: &[(&str, &Histogram<u64>)]) -> Result<(), Box<dyn std::error::Error>> {
    let points: Vec<Vec<(f64, f64)>> = curves.iter().map(|(_, latency)| points(latency)).collect();
    let all = || points.iter().flatten();
    let nines = all().map(|point| point.0).fold(2.0, f64::max).min(NINES_MAX);
    let low = all().map(|point| point.1).fold(f64::INFINITY, f64::min);
    let high = all().map(|point| point.1).fold(0.0, f64::max);
    let (low, high) = if low > high { (0.1, 1.0) } else { (low * 0.8, high * 1.25) };

    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 15))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..nines, (low..high).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("percentile")
        .y_desc("latency, ms")
        .x_labels(nines.ceil() as usize + 1)
        .x_label_formatter(&|nines| percent(*nines))
        .y_label_formatter(&|ms| format!("{ms}"))
        .light_line_style(WHITE)
        .draw()?;
    for (at, ((name, _), points)) in curves.iter().zip(points).enumerate() {
        let color = COLORS[at % COLORS.len()];
        chart
            .draw_series(LineSeries::new(points.into_iter().filter(|point| point.0 <= nines), color.stroke_width(2)))?
            .label(*name)
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], color.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE)
        .border_style(BLACK.mix(0.3))
        .draw()?;
    root.present()?;
    Ok(())
}

fn points(latency_ns: &Histogram<u64>) -> Vec<(f64, f64)> {
    let steps = latency_ns.iter_quantiles(20).filter(|step| step.quantile_iterated_to() < 1.0);
    steps
        .map(|step| (-(1.0 - step.quantile_iterated_to()).log10(), step.value_iterated_to() as f64 / 1e6))
        .filter(|(_, ms)| *ms > 0.0)
        .collect()
}

/// 0 is 0 %, 1 is 90 %, 3 is 99.9 %.
fn percent(nines: f64) -> String {
    let percent = 100.0 * (1.0 - 10f64.powf(-nines));
    let decimals = (nines.round() as usize).saturating_sub(2);
    format!("{percent:.decimals$} %")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_called_by_their_nines() {
        assert_eq!([0.0, 1.0, 2.0, 3.0, 5.0].map(percent), ["0 %", "90 %", "99 %", "99.9 %", "99.999 %"]);
    }
}
