//! What is printed and kept: tables on stdout and in `summary.md`, raw data as CSV, plots as SVG.

use crate::costs::{Cost, DELETED, FIGURES};
use crate::stale::{Stale, Steady};
use crate::{ENTRIES, Result, plot, results};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

pub struct Report {
    out: PathBuf,
    costs: Vec<Cost>,
    stale: Vec<Stale>,
}

impl Report {
    pub fn new(out: &Path) -> Result<Report> {
        fs::create_dir_all(out)?;
        Ok(Report { out: out.to_owned(), costs: Vec::new(), stale: Vec::new() })
    }

    pub fn add_cost(&mut self, cost: Cost) {
        let figures: Vec<String> =
            FIGURES.iter().zip(cost.figures).map(|(name, value)| format!("{name} {value:.1}")).collect();
        println!("{} keys, {}: {}", cost.keys, cost.name, figures.join(", "));
        self.costs.push(cost);
    }

    pub fn add_stale(&mut self, stale: Stale) {
        for steady in &stale.steady {
            let Steady { budget_ns, stale_average, stale_worst, .. } = steady;
            let (average, worst) = (percent(*stale_average), percent(*stale_worst));
            println!("{} keys, {}, {budget_ns} ns a death: stale {average}, worst {worst}", stale.keys, stale.name);
        }
        self.stale.push(stale);
    }

    /// Writes all files and prints the summary.
    pub fn finish(self) -> Result<()> {
        let mut page = format!(
            "# Deadlines: the column against the classic structures\n\nMachine: {}. CPU time of one thread. Keys and \
             values are kept in the same store by all ({} bytes a key beyond key, value and an 8-byte header), and all \
             work in prefetched batches of 16; `none` keeps no deadlines and shows what an operation costs without. \
             See `benches/deadlines/main.rs`.\n",
            results::machine(),
            self.costs.first().map_or(String::new(), |cost| format!("{:.1}", cost.store_bytes)),
        );
        let mut sizes: Vec<u64> = self.costs.iter().map(|cost| cost.keys).collect();
        sizes.dedup();
        for keys in sizes {
            self.page_of_size(keys, &mut page)?;
        }
        fs::write(self.out.join("costs.csv"), self.costs_csv())?;
        fs::write(self.out.join("stale.csv"), self.stale_csv())?;
        fs::write(self.out.join("stale-series.csv"), self.series_csv())?;
        fs::write(self.out.join("summary.md"), &page)?;
        println!("\n{page}results: {}", self.out.display());
        Ok(())
    }

    fn page_of_size(&self, keys: u64, page: &mut String) -> Result<()> {
        let costs: Vec<&Cost> = self.costs.iter().filter(|cost| cost.keys == keys).collect();
        let stale: Vec<&Stale> = self.stale.iter().filter(|stale| stale.keys == keys).collect();
        let million = keys as f64 / 1e6;
        let _ = write!(
            page,
            "\n## {million} million keys\n\nCPU ns a key, bytes a key for deadlines; in brackets the ratio to the \
             column. The share of the due keys that one unlimited cycle deleted stands before its cost.\n\n"
        );
        page.push_str(&costs_table(&costs));
        let _ = write!(
            page,
            "\nDead keys among all in the steady state, with the same CPU for each (nanoseconds for each death; in \
             brackets the ratio to the column; the longest call of the cycle, settling included):\n\n"
        );
        page.push_str(&stale_table(&stale));
        for (name, svg) in [
            ("costs", plot::costs(million, &costs)?),
            ("stale-budget", plot::stale_by_budget(million, &stale)?),
            ("stale-time", plot::stale_by_time(million, &stale)?),
        ] {
            let file = format!("{name}-{keys}.svg");
            fs::write(self.out.join(&file), svg)?;
            let _ = write!(page, "\n![{name}]({file})\n");
        }
        Ok(())
    }

    fn costs_csv(&self) -> String {
        let names = FIGURES.map(|name| name.replace(' ', "_")).join(",");
        let mut csv = format!("keys,structure,{names},store_bytes\n");
        for cost in &self.costs {
            let values = cost.figures.map(|value| if value.is_nan() { String::new() } else { value.to_string() });
            let _ = writeln!(csv, "{},\"{}\",{},{}", cost.keys, cost.name, values.join(","), cost.store_bytes);
        }
        csv
    }

    fn stale_csv(&self) -> String {
        let mut csv =
            String::from("keys,structure,budget_ns_a_death,cpu_share,cpu_share_used,average,worst,longest_call_ns\n");
        for stale in &self.stale {
            for steady in &stale.steady {
                let figures = [
                    steady.budget_ns.to_string(),
                    steady.cpu_share.to_string(),
                    steady.cpu_share_used.to_string(),
                    steady.stale_average.to_string(),
                    steady.stale_worst.to_string(),
                    steady.longest_call_ns.to_string(),
                ]
                .join(",");
                let _ = writeln!(csv, "{},\"{}\",{figures}", stale.keys, stale.name);
            }
        }
        csv
    }

    fn series_csv(&self) -> String {
        let mut csv = String::from("keys,structure,virtual_second,budget_ns_a_death,stale_share\n");
        for stale in &self.stale {
            for (second, budget_ns, share) in &stale.series {
                let _ = writeln!(csv, "{},\"{}\",{second},{budget_ns},{share}", stale.keys, stale.name);
            }
        }
        csv
    }
}

fn costs_table(costs: &[&Cost]) -> String {
    let Some(column) = costs.iter().find(|cost| cost.name == ENTRIES[0].name) else { return String::new() };
    let mut table = format!("| | {} |\n|---|{}\n", FIGURES.join(" | "), "---|".repeat(FIGURES.len()));
    for cost in costs {
        let cell = |at: usize| match (FIGURES[at], cost.figures[at]) {
            (_, value) if value.is_nan() => String::new(),
            (DELETED, value) => percent(value),
            (_, value) => format!("{value:.1} ({:.2})", value / column.figures[at]),
        };
        let cells: Vec<String> = (0..FIGURES.len()).map(cell).collect();
        let _ = writeln!(table, "| {} | {} |", cost.name, cells.join(" | "));
    }
    table
}

/// Ratios above this say no more than this.
const RATIO_MAX: f64 = 1000.0;

fn stale_table(all: &[&Stale]) -> String {
    let Some(column) = all.iter().find(|stale| stale.name == ENTRIES[0].name) else { return String::new() };
    let mut table =
        String::from("| budget a death | | average | worst | CPU used | longest call |\n|---|---|---|---|---|---|\n");
    for (at, of_column) in column.steady.iter().enumerate() {
        for stale in all {
            let steady = &stale.steady[at];
            let ratio = |value: f64, to: f64| match value / to {
                ratio if ratio > RATIO_MAX => format!("{} (>{RATIO_MAX})", percent(value)),
                ratio => format!("{} ({ratio:.1})", percent(value)),
            };
            let _ = writeln!(
                table,
                "| {} ns = {} of a core | {} | {} | {} | {} | {:.0} us |",
                steady.budget_ns,
                percent(steady.cpu_share),
                stale.name,
                ratio(steady.stale_average, of_column.stale_average),
                ratio(steady.stale_worst, of_column.stale_worst),
                percent(steady.cpu_share_used),
                steady.longest_call_ns as f64 / 1000.0,
            );
        }
    }
    table
}

/// With as many digits as are worth reading.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let decimals = if percent >= 10.0 {
        1
    } else if percent >= 0.1 {
        2
    } else {
        4
    };
    format!("{percent:.decimals$} %")
}
