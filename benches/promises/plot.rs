//! Line plots as SVG: a frame, ticks, one polyline a series. Enough for what the experiments show.

/// One axis. A logarithmic one leaves out points at or below 0.
#[derive(Clone, Copy)]
pub struct Axis {
    pub label: &'static str,
    pub logarithmic: bool,
}

pub struct Series {
    pub label: String,
    pub points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 48.0;
const TICKS: usize = 6;
const COLORS: [&str; 8] = ["#d9480f", "#1971c2", "#2f9e44", "#9c36b5", "#e8890c", "#0c8599", "#868e96", "#c2255c"];

/// The plot of all series over common axes.
pub fn lines(title: &str, x: Axis, y: Axis, series: &[Series]) -> String {
    let shown: Vec<Vec<(f64, f64)>> = series.iter().map(|one| visible(&one.points, x, y)).collect();
    let all = || shown.iter().flatten();
    let (x_low, x_high) = range(all().map(|point| point.0), x);
    let (y_low, y_high) = range(all().map(|point| point.1), y);
    let across = |value: f64| LEFT + (value - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT);
    let down = |value: f64| HEIGHT - BOTTOM - (value - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM);

    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    svg += &text(WIDTH / 2.0, 16.0, "middle", title);
    svg += &text((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 10.0, "middle", x.label);
    svg += &text(6.0, TOP - 8.0, "start", y.label);
    for (value, label) in ticks(x_low, x_high, x) {
        svg += &line((across(value), TOP), (across(value), HEIGHT - BOTTOM));
        svg += &text(across(value), HEIGHT - BOTTOM + 16.0, "middle", &label);
    }
    for (value, label) in ticks(y_low, y_high, y) {
        svg += &line((LEFT, down(value)), (WIDTH - RIGHT, down(value)));
        svg += &text(LEFT - 6.0, down(value) + 4.0, "end", &label);
    }
    for (at, points) in shown.iter().enumerate() {
        let color = COLORS[at % COLORS.len()];
        let path: String = points.iter().map(|&(px, py)| format!("{:.1},{:.1} ", across(px), down(py))).collect();
        svg += &format!("<polyline points=\"{path}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.5\"/>\n");
        let legend_y = TOP + 14.0 + 16.0 * at as f64;
        svg += &format!(
            "<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"3\" fill=\"{color}\"/>\n",
            LEFT + 8.0,
            legend_y - 5.0
        );
        svg += &text(LEFT + 26.0, legend_y, "start", &series[at].label);
    }
    svg + "</svg>\n"
}

fn visible(points: &[(f64, f64)], x: Axis, y: Axis) -> Vec<(f64, f64)> {
    let scale = |value: f64, axis: Axis| if axis.logarithmic { value.log10() } else { value };
    let scaled = points.iter().map(|&(px, py)| (scale(px, x), scale(py, y)));
    scaled.filter(|(px, py)| px.is_finite() && py.is_finite()).collect()
}

/// Least and greatest value, never equal; a linear axis of values from 0 starts at 0.
fn range(values: impl Iterator<Item = f64>, axis: Axis) -> (f64, f64) {
    let (low, high) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    if low > high {
        return (0.0, 1.0);
    }
    if axis.logarithmic {
        return (low.floor(), high.ceil().max(low.floor() + 1.0));
    }
    let low = low.min(0.0);
    (low, if high > low { high } else { low + 1.0 })
}

/// Positions on the scaled axis and what to write there.
fn ticks(low: f64, high: f64, axis: Axis) -> Vec<(f64, String)> {
    if axis.logarithmic {
        let decades = low as i32..=high as i32;
        return decades.map(|power| (f64::from(power), format!("{}", 10f64.powi(power)))).collect();
    }
    let rough = (high - low) / TICKS as f64;
    let decade = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * decade).into_iter().find(|&step| step >= rough);
    let step = step.unwrap_or(10.0 * decade);
    let decimals = (-step.log10().floor()).max(0.0) as usize;
    let first = (low / step).ceil() as i64;
    let last = (high / step).floor() as i64;
    (first..=last).map(|at| (at as f64 * step, format!("{:.decimals$}", at as f64 * step))).collect()
}

fn text(x: f64, y: f64, anchor: &str, content: &str) -> String {
    let content = content.replace('&', "&amp;").replace('<', "&lt;");
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{content}</text>\n")
}

fn line(from: (f64, f64), to: (f64, f64)) -> String {
    let ((x1, y1), (x2, y2)) = (from, to);
    format!("<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"#ddd\"/>\n")
}
