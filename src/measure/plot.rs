//! Lines over two axes, as SVG. The legend stands to the right of the plotting area, where it hides nothing.

pub struct Axis<'a> {
    pub label: &'a str,
    pub scale: Scale,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// From 0, or from the least value where that is below.
    Linear,
    /// Points at or below 0 are left out.
    Logarithmic,
    /// Nines of a percentile: 0 is the minimum, 1 is p90, 2 is p99.
    Nines,
}

pub struct Line {
    pub label: String,
    pub points: Vec<(f64, f64)>,
}

// All in pixels. The area is where the lines are; it grows with what the legend needs.
const AREA_WIDTH: f64 = 680.0;
const AREA_HEIGHT_MIN: f64 = 320.0;
const LEFT: f64 = 76.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 48.0;
const GAP: f64 = 20.0;
const LEGEND_LINE: f64 = 18.0;
const LEGEND_MARK: f64 = 26.0;
/// Of a letter at this size of type, more or less.
const LETTER_WIDTH: f64 = 7.0;
/// A linear axis has no more steps than this.
const STEPS_MAX: f64 = 6.0;
/// Where a logarithmic axis has no more decades than this, 2 and 5 of each have ticks, too.
const FINE_DECADES: f64 = 3.0;
const COLORS: [&str; 8] = ["#1971c2", "#d9480f", "#2f9e44", "#9c36b5", "#e8890c", "#0c8599", "#868e96", "#c2255c"];

/// The plot of all lines over common axes.
pub fn lines(title: &str, x: &Axis, y: &Axis, lines: &[Line]) -> String {
    let shown: Vec<Vec<(f64, f64)>> = lines.iter().map(|line| visible(&line.points, x.scale, y.scale)).collect();
    let all = || shown.iter().flatten();
    let (x_low, x_high) = range(all().map(|point| point.0), x.scale);
    let (y_low, y_high) = range(all().map(|point| point.1), y.scale);
    let height = AREA_HEIGHT_MIN.max(lines.len() as f64 * LEGEND_LINE);
    let (right, bottom) = (LEFT + AREA_WIDTH, TOP + height);
    let across = |value: f64| LEFT + (value - x_low) / (x_high - x_low) * AREA_WIDTH;
    let down = |value: f64| bottom - (value - y_low) / (y_high - y_low) * height;

    let legend_width = LEGEND_MARK + lines.iter().map(|line| text_width(&line.label)).fold(0.0, f64::max);
    let whole_width = (right + GAP + legend_width).max(LEFT + text_width(title)) + GAP;
    let whole_height = bottom + BOTTOM;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{whole_width}\" height=\"{whole_height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    svg += &text(LEFT, 18.0, "start", title);
    svg += &text(LEFT + AREA_WIDTH / 2.0, bottom + 38.0, "middle", x.label);
    svg += &text(6.0, TOP - 10.0, "start", y.label);
    for (value, label) in ticks(x_low, x_high, x.scale) {
        svg += &grid_line((across(value), TOP), (across(value), bottom));
        svg += &text(across(value), bottom + 16.0, "middle", &label);
    }
    for (value, label) in ticks(y_low, y_high, y.scale) {
        svg += &grid_line((LEFT, down(value)), (right, down(value)));
        svg += &text(LEFT - 6.0, down(value) + 4.0, "end", &label);
    }
    for (at, (line, points)) in lines.iter().zip(&shown).enumerate() {
        let color = COLORS[at % COLORS.len()];
        let path: Vec<String> = points.iter().map(|&(px, py)| format!("{:.1},{:.1}", across(px), down(py))).collect();
        let path = path.join(" ");
        svg += &format!("<polyline points=\"{path}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.5\"/>\n");
        let (mark_x, legend_y) = (right + GAP, TOP + (at as f64 + 0.5) * LEGEND_LINE);
        svg += &format!("<rect x=\"{mark_x}\" y=\"{legend_y}\" width=\"18\" height=\"3\" fill=\"{color}\"/>\n");
        svg += &text(mark_x + LEGEND_MARK, legend_y + 5.0, "start", &line.label);
    }
    svg + "</svg>\n"
}

/// The points where they are on the scales.
fn visible(points: &[(f64, f64)], x: Scale, y: Scale) -> Vec<(f64, f64)> {
    let place = |value: f64, scale: Scale| if scale == Scale::Logarithmic { value.log10() } else { value };
    let places = points.iter().map(|&(px, py)| (place(px, x), place(py, y)));
    places.filter(|(px, py)| px.is_finite() && py.is_finite()).collect()
}

/// From where to where a scale goes; never the same place.
fn range(places: impl Iterator<Item = f64>, scale: Scale) -> (f64, f64) {
    let (low, high) =
        places.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), place| (low.min(place), high.max(place)));
    if low > high {
        return (0.0, 1.0);
    }
    let (low, high) = match scale {
        Scale::Linear | Scale::Nines => (low.min(0.0), high),
        Scale::Logarithmic => {
            let (first, last) = (low.floor() as i32, high.floor() as i32);
            // Ends at the ticks around what there is.
            let below = fine_ticks(first).map(|(place, _)| place).into_iter().rfind(|&place| place <= low);
            let above = fine_ticks(last).map(|(place, _)| place).into_iter().find(|&place| place >= high);
            (below.unwrap_or(low.floor()), above.unwrap_or(high.floor() + 1.0))
        }
    };
    (low, if high > low { high } else { low + 1.0 })
}

/// Places on the scale and what to write there.
fn ticks(low: f64, high: f64, scale: Scale) -> Vec<(f64, String)> {
    match scale {
        Scale::Linear => linear_ticks(low, high),
        Scale::Logarithmic => {
            let decades = low.floor() as i32..=high.floor() as i32;
            let all = decades.flat_map(fine_ticks).enumerate();
            let few = all.filter(|(at, _)| high - low <= FINE_DECADES || at % 3 == 0).map(|(_, tick)| tick);
            few.filter(|(place, _)| (low..=high).contains(place)).collect()
        }
        Scale::Nines => (0..=high.floor() as u32).map(|nines| (f64::from(nines), percent(nines))).collect(),
    }
}

fn linear_ticks(low: f64, high: f64) -> Vec<(f64, String)> {
    let rough = (high - low) / STEPS_MAX;
    let decade = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0].map(|factor| factor * decade).into_iter().find(|&step| step >= rough);
    let step = step.unwrap_or(10.0 * decade);
    let decimals = (-step.log10().floor()).max(0.0) as usize;
    let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
    (first..=last).map(|at| (at as f64 * step, format!("{:.decimals$}", at as f64 * step))).collect()
}

/// 1, 2 and 5 of a decade.
fn fine_ticks(power: i32) -> [(f64, String); 3] {
    let decimals = (-power).max(0) as usize;
    [1.0, 2.0, 5.0]
        .map(|factor: f64| (f64::from(power) + factor.log10(), format!("{:.decimals$}", factor * 10f64.powi(power))))
}

/// 0 is 0 %, 1 is 90 %, 3 is 99.9 %.
fn percent(nines: u32) -> String {
    let percent = 100.0 * (1.0 - 10f64.powi(-(nines as i32)));
    let decimals = nines.saturating_sub(2) as usize;
    format!("{percent:.decimals$} %")
}

fn text_width(content: &str) -> f64 {
    content.chars().count() as f64 * LETTER_WIDTH
}

fn text(x: f64, y: f64, anchor: &str, content: &str) -> String {
    let content = content.replace('&', "&amp;").replace('<', "&lt;");
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{content}</text>\n")
}

fn grid_line(from: (f64, f64), to: (f64, f64)) -> String {
    let ((x1, y1), (x2, y2)) = (from, to);
    format!("<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"#ddd\"/>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(low: f64, high: f64, scale: Scale) -> Vec<String> {
        ticks(low, high, scale).into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn percentiles_are_called_by_their_nines() {
        assert_eq!(labels(0.0, 3.4, Scale::Nines), ["0 %", "90 %", "99 %", "99.9 %"]);
        assert_eq!(percent(5), "99.999 %");
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(labels(0.0, 1.0, Scale::Linear), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(0.0, 4_000.0, Scale::Linear), ["0", "1000", "2000", "3000", "4000"]);
        assert_eq!(labels(-2.0, 0.0, Scale::Logarithmic), ["0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "1"]);
        assert_eq!(labels(-1.0, 3.0, Scale::Logarithmic), ["0.1", "1", "10", "100", "1000"]);
    }

    #[test]
    fn a_scale_ends_at_ticks_around_what_there_is() {
        let around = |values: &[f64]| {
            let (low, high) = range(values.iter().map(|value| value.log10()), Scale::Logarithmic);
            [low, high].map(|place| format!("{:.2}", 10f64.powf(place)))
        };
        assert_eq!(around(&[0.3, 70.0]), ["0.20", "100.00"]);
        assert_eq!(around(&[1.0, 4.0]), ["1.00", "5.00"]);
        assert_eq!(range([].into_iter(), Scale::Logarithmic), (0.0, 1.0));
        assert_eq!(range([3.0, 8.0].into_iter(), Scale::Linear), (0.0, 8.0));
    }

    #[test]
    fn the_legend_stands_beside_the_lines() {
        let points = vec![(0.0, 1.0), (1.0, 5.0), (2.0, 0.0)];
        let named = |label: &str| Line { label: label.to_owned(), points: points.clone() };
        let x = Axis { label: "s", scale: Scale::Linear };
        let y = Axis { label: "ms", scale: Scale::Logarithmic };
        let svg = lines("a < b", &x, &y, &[named("one"), named("two")]);
        assert!(svg.starts_with("<svg") && svg.contains("a &lt; b"));
        let number = |line: &str, name: &str| -> f64 {
            let (_, rest) = line.split_once(&format!("{name}=\"")).expect("such an attribute");
            rest.split('"').next().expect("a value").parse().expect("a number")
        };
        let paths: Vec<&str> = svg.lines().filter(|line| line.starts_with("<polyline")).collect();
        // What is 0 has no place on a logarithmic axis.
        assert!(paths.len() == 2 && paths[0].matches(',').count() == 2, "{paths:?}");
        let marks = svg.lines().filter(|line| line.contains("height=\"3\""));
        assert!(marks.clone().count() == 2 && marks.clone().all(|mark| number(mark, "x") > LEFT + AREA_WIDTH), "{svg}");
    }
}
