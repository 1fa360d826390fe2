//! Plots as SVG: bars of costs, the stale share by budget and over time.

use crate::Result;
use crate::costs::{Cost, DELETED, FIGURES};
use crate::stale::Stale;
use plotters::coord::ranged1d::Ranged;
use plotters::prelude::*;

const SIZE: (u32, u32) = (900, 420);
const COLORS: [RGBColor; 8] = [
    RGBColor(217, 72, 15),
    RGBColor(25, 113, 194),
    RGBColor(116, 192, 252),
    RGBColor(47, 158, 68),
    RGBColor(140, 233, 154),
    RGBColor(156, 54, 181),
    RGBColor(232, 180, 12),
    RGBColor(134, 142, 150),
];
/// A share below this is drawn as this, since the axis is logarithmic.
const LEAST_PERCENT: f64 = 0.001;

const ROOM_FOR_LEGEND: f64 = 1.25;

/// The contestant's color, the same in every plot.
fn color(name: &str) -> RGBColor {
    let at = crate::ENTRIES.iter().position(|entry| entry.name == name).unwrap_or(COLORS.len() - 1);
    COLORS[at % COLORS.len()]
}

/// Groups of bars on a logarithmic axis: one group a figure, one bar a contestant.
pub fn costs(million: f64, costs: &[&Cost]) -> Result<String> {
    let shown: Vec<usize> = (0..FIGURES.len()).filter(|&at| FIGURES[at] != DELETED).collect();
    // Ticks stand at halves: a group's name goes under its middle.
    let label = |at: &f64| match shown.get(*at as usize) {
        Some(&figure) if at.fract() == 0.5 => FIGURES[figure].to_owned(),
        _ => String::new(),
    };
    let most = costs.iter().flat_map(|cost| cost.figures).fold(10.0, f64::max);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(format!("CPU ns and bytes a key, {million} million keys"), ("sans-serif", 16))
            .margin(10)
            .x_label_area_size(30)
            .y_label_area_size(60)
            .build_cartesian_2d(0.0..shown.len() as f64, (1.0..most * 1.5).log_scale())?;
        chart.configure_mesh().disable_x_mesh().x_labels(2 * shown.len() + 1).x_label_formatter(&label).draw()?;
        let width = 0.9 / costs.len() as f64;
        for (at, cost) in costs.iter().enumerate() {
            let style = color(cost.name).filled();
            let bars = shown.iter().enumerate().map(|(group, &figure)| {
                let left = group as f64 + 0.05 + at as f64 * width;
                let value = cost.figures[figure];
                let height = if value.is_nan() { 1.0 } else { value.max(1.0) };
                Rectangle::new([(left, 1.0), (left + width * 0.9, height)], style)
            });
            let series = chart.draw_series(bars)?.label(cost.name);
            series.legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 10, y + 4)], style));
        }
        legend(&mut chart)?;
        root.present()?;
    }
    Ok(svg)
}

pub fn stale_by_budget(million: f64, all: &[&Stale]) -> Result<String> {
    let title = format!("Average stale share by CPU budget, {million} million keys");
    let lines = all.iter().map(|stale| {
        let points = stale.steady.iter().map(|steady| (steady.budget_ns as f64, steady.stale_average * 100.0));
        (stale.name, points.collect())
    });
    lines_plot(&title, "CPU ns for each death", lines.collect())
}

pub fn stale_by_time(million: f64, all: &[&Stale]) -> Result<String> {
    let budgets: Vec<String> =
        all.iter().take(1).flat_map(|stale| &stale.steady).map(|steady| steady.budget_ns.to_string()).collect();
    let title = format!("Stale share, {million} million keys, budgets of {} ns a death in turn", budgets.join(", "));
    let lines = all.iter().map(|stale| {
        let points = stale.series.iter().map(|&(second, _, share)| (second, share * 100.0));
        (stale.name, points.collect())
    });
    lines_plot(&title, "virtual seconds", lines.collect())
}

/// Percent on a logarithmic axis.
fn lines_plot(title: &str, x: &str, lines: Vec<(&'static str, Vec<(f64, f64)>)>) -> Result<String> {
    let most = lines.iter().flat_map(|(_, points)| points).map(|point| point.0).fold(1.0, f64::max);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(title, ("sans-serif", 16))
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(60)
            .build_cartesian_2d(0.0..most * ROOM_FOR_LEGEND, (LEAST_PERCENT..100.0).log_scale())?;
        chart.configure_mesh().x_desc(x).y_desc("dead keys, %").draw()?;
        for (name, points) in lines {
            let color = color(name);
            let points = points.into_iter().map(|(x, percent)| (x, percent.max(LEAST_PERCENT)));
            let series = chart.draw_series(LineSeries::new(points, color.stroke_width(2)))?.label(name);
            series.legend(move |(x, y)| PathElement::new([(x, y), (x + 12, y)], color.stroke_width(2)));
        }
        legend(&mut chart)?;
        root.present()?;
    }
    Ok(svg)
}

type Chart<'a, 'b, X, Y> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, Y>>;

fn legend<'a, 'b: 'a, X: Ranged, Y: Ranged>(chart: &mut Chart<'a, 'b, X, Y>) -> Result<()> {
    let mut labels = chart.configure_series_labels();
    labels.background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).position(SeriesLabelPosition::UpperRight);
    labels.draw().map_err(|error| error.to_string())?;
    Ok(())
}
