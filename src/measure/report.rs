//! Figures of rounds: what they are called and how they are shown, their medians and ratios, and tables of them.
//!
//! A figure that is not known is NaN, one that did not come while it was awaited is infinite.

pub struct Metric {
    /// With its unit, for files.
    pub name: &'static str,
    /// For readers.
    pub header: &'static str,
    /// What is shown is the figure times this.
    pub scale: f64,
    pub decimals: usize,
    /// Whether a ratio to another server's says something.
    pub compared: bool,
}

impl Metric {
    pub const fn new(name: &'static str, header: &'static str, scale: f64, decimals: usize, compared: bool) -> Metric {
        Metric { name, header, scale, decimals, compared }
    }

    /// One that has the same name everywhere and is shown as it is.
    pub const fn plain(name: &'static str, decimals: usize) -> Metric {
        Metric::new(name, name, 1.0, decimals, false)
    }

    pub fn show(&self, figure: f64) -> String {
        if figure.is_nan() {
            "-".to_owned()
        } else if figure.is_infinite() {
            "never".to_owned()
        } else {
            format!("{:.*}", self.decimals, figure * self.scale)
        }
    }
}

/// The median, of an even number the mean of the middle two. NaN where nothing is known.
pub fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut known: Vec<f64> = figures.into_iter().filter(|figure| !figure.is_nan()).collect();
    known.sort_by(f64::total_cmp);
    match known.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => known[count / 2],
        // Infinite figures stay so.
        count => (known[count / 2 - 1] + known[count / 2]) / 2.0,
    }
}

/// The median of one metric over rounds, each of which has a figure for each metric.
pub fn median_of(rounds: &[Vec<f64>], metric: usize) -> f64 {
    median(rounds.iter().map(|round| round[metric]))
}

/// The median of the ratios to the same rounds of another server: what disturbed the machine disturbed both.
pub fn ratio_of(rounds: &[Vec<f64>], of_other: &[Vec<f64>], metric: usize) -> f64 {
    median(rounds.iter().zip(of_other).map(|(own, other)| own[metric] / other[metric]))
}

pub fn show_ratio(ratio: f64) -> String {
    if ratio.is_finite() { format!("{ratio:.2}x") } else { "-".to_owned() }
}

/// The quantile among `all`, of which those that did not come are infinitely late.
pub fn quantile_of(sorted: &[f64], all: u64, quantile: f64) -> f64 {
    let rank = ((all as f64 * quantile).ceil() as usize).max(1);
    sorted.get(rank - 1).copied().unwrap_or(f64::INFINITY)
}

/// Rows, each with its names and then its figures.
pub struct Table {
    /// How many columns have names in them.
    names: usize,
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new<'a>(names: &[&'a str], figures: impl IntoIterator<Item = &'a str>) -> Table {
        let headings = names.iter().copied().chain(figures).map(str::to_owned).collect();
        Table { names: names.len(), headings, rows: Vec::new() }
    }

    pub fn push(&mut self, cells: impl IntoIterator<Item = String>) {
        let row: Vec<String> = cells.into_iter().collect();
        assert_eq!(row.len(), self.headings.len(), "a cell in each column");
        self.rows.push(row);
    }

    fn lines(&self) -> impl Iterator<Item = &Vec<String>> {
        std::iter::once(&self.headings).chain(&self.rows)
    }

    /// Columns of equal width, names to the left, figures to the right.
    pub fn text(&self) -> String {
        let width = |at: usize| self.lines().map(|row| row[at].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.headings.len()).map(width).collect();
        let mut text = String::new();
        for row in self.lines() {
            let cells = row.iter().zip(&widths).enumerate().map(|(at, (cell, &width))| {
                if at < self.names { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            });
            text += cells.collect::<Vec<_>>().join("  ").trim_end();
            text.push('\n');
        }
        text
    }

    pub fn markdown(&self) -> String {
        let line = |row: &Vec<String>| format!("| {} |\n", row.join(" | "));
        let rule = format!("|{}{}\n", "---|".repeat(self.names), "---:|".repeat(self.headings.len() - self.names));
        line(&self.headings) + &rule + &self.rows.iter().map(line).collect::<String>()
    }

    pub fn csv(&self) -> String {
        self.lines().map(|row| row.join(",") + "\n").collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, f64::NAN, 2.0, 3.0]), 2.5);
        assert_eq!(median([1.0, f64::INFINITY, f64::INFINITY]), f64::INFINITY);
        assert!(median([f64::NAN]).is_nan());
    }

    #[test]
    fn ratios_are_of_rounds_and_not_of_medians() {
        // The machine was slow in the second round.
        let (one, two) = ([100.0, 10.0, 120.0].map(|rate| vec![rate]), [200.0, 19.0, 240.0].map(|rate| vec![rate]));
        assert_eq!((median_of(&one, 0), median_of(&two, 0)), (100.0, 200.0));
        assert_eq!(ratio_of(&two, &one, 0), 2.0);
    }

    #[test]
    fn what_did_not_come_is_infinitely_late() {
        let lags = [1.0, 2.0, 3.0];
        assert_eq!(quantile_of(&lags, 4, 0.5), 2.0);
        assert_eq!(quantile_of(&lags, 4, 0.75), 3.0);
        assert_eq!(quantile_of(&lags, 4, 1.0), f64::INFINITY);
        assert_eq!(quantile_of(&lags, 3, 1.0), 3.0);
    }

    #[test]
    fn figures_are_shown_in_their_unit() {
        let metric = Metric::new("p99_us", "p99 ms", 1e-3, 2, true);
        assert_eq!([1500.0, f64::NAN, f64::INFINITY].map(|us| metric.show(us)), ["1.50", "-", "never"]);
        assert_eq!(show_ratio(2.5), "2.50x");
    }

    #[test]
    fn a_table_in_every_form() {
        let mut table = Table::new(&["name"], ["x", "y"]);
        table.push(["a", "12345", ""].map(str::to_owned));
        assert_eq!(table.text(), "name      x  y\na     12345\n");
        assert_eq!(table.markdown(), "| name | x | y |\n|---|---:|---:|\n| a | 12345 |  |\n");
        assert_eq!(table.csv(), "name,x,y\na,12345,\n");
    }
}
