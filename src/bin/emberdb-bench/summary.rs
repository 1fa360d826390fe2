//! `summary.md` from the result.json files below a folder: a table for each sort of experiment, a row for each result
//! and target, ratios to the first target beside the figures.

use crate::failure::{Failure, Result};
use crate::metric::{IDLE, LAG, LOAD, MASS_EXPIRY, MEMORY, STALL};
use emberdb::measure::report::{Metric, Table, show_ratio};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

const FILE: &str = "result.json";

/// A table, its columns by the names of metrics.
struct Section {
    title: &'static str,
    metrics: &'static [Metric],
    columns: &'static [&'static str],
}

const SECTIONS: &[Section] = &[
    Section {
        title: "Load",
        metrics: LOAD,
        columns: &[
            "rate",
            "p50_us",
            "p99_us",
            "p99.9_us",
            "max_us",
            "max_p50s",
            "server_cpu_us",
            "generator_cpu_us",
            "generator_cpu_percent",
            "errors",
        ],
    },
    Section {
        title: "Lag of expired events",
        metrics: LAG,
        columns: &["lag_p50_ms", "lag_p99_ms", "lag_last_ms", "events", "server_lag_p99_us"],
    },
    Section {
        title: "Mass expiry",
        metrics: MASS_EXPIRY,
        columns: &[
            "offered_rate",
            "before_p99_us",
            "during_p99_us",
            "after_p99_us",
            "lag_last_ms",
            "used_memory_back_s",
            "rss_back_s",
        ],
    },
    Section {
        title: "Idle connections",
        metrics: IDLE,
        columns: &["idle_connections", "server_cpu_percent", "bytes_a_connection"],
    },
    Section {
        title: "Memory",
        metrics: MEMORY,
        columns: &["used_bytes_a_key", "rss_bytes_a_key", "used_bytes", "rss_bytes"],
    },
    Section {
        title: "Stalls by one command",
        metrics: STALL,
        columns: &[
            "command_ms",
            "before_p99.9_us",
            "before_max_us",
            "after_p99.9_us",
            "after_max_us",
            "after_slow",
            "used_memory_back_s",
            "rss_back_s",
        ],
    },
];

pub fn write(folder: &Path) -> Result<()> {
    let mut files = Vec::new();
    find(folder, &mut files)?;
    files.sort();
    if files.is_empty() {
        return Err(Failure::Unfit(format!("there is no {FILE} below {}", folder.display())));
    }
    let mut results = Vec::new();
    for path in files {
        let failed = |error| Failure::Read { path: path.clone(), error };
        let text = fs::read_to_string(&path).map_err(failed)?;
        let result: Value = serde_json::from_str(&text).map_err(|error| failed(error.into()))?;
        let name = path.parent().and_then(|parent| parent.strip_prefix(folder).ok()).unwrap_or(folder);
        results.push((name.display().to_string(), result));
    }
    let preface = folder.join("preface.md");
    let mut text = String::from("# Side by side\n\n");
    if let Ok(about) = fs::read_to_string(&preface) {
        text += &format!("{}\n\n", about.trim_end());
    }
    text += &markdown(&results);
    let path = folder.join("summary.md");
    fs::write(&path, text).map_err(|error| Failure::Write { path, error })
}

fn find(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let failed = |error| Failure::Read { path: folder.to_owned(), error };
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            find(&path, files)?;
        } else if path.file_name().is_some_and(|name| name == FILE) {
            files.push(path);
        }
    }
    Ok(())
}

fn markdown(results: &[(String, Value)]) -> String {
    let mut text = String::from(
        "Medians of rounds in which the targets took turns; in brackets the median of the ratios to the first target \
         in the same round.\n",
    );
    for section in SECTIONS {
        // The first metric tells the sorts of results apart.
        let of_section: Vec<&(String, Value)> =
            results.iter().filter(|(_, result)| result["metrics"][0] == section.metrics[0].name).collect();
        if of_section.is_empty() {
            continue;
        }
        let columns: Vec<&Metric> = section.columns.iter().map(|name| column(section.metrics, name)).collect();
        let mut table = Table::new(&["result", "target"], columns.iter().map(|metric| metric.header));
        for (name, result) in of_section {
            for (at, target) in result["targets"].as_array().into_iter().flatten().enumerate() {
                let link = if at == 0 { format!("[{name}]({name}/{FILE})") } else { String::new() };
                let names = [link, target["name"].as_str().unwrap_or("?").to_owned()];
                table.push(names.into_iter().chain(columns.iter().map(|metric| cell(metric, target, at > 0))));
            }
        }
        text += &format!("\n## {}\n\n{}", section.title, table.markdown());
    }
    text
}

fn column(metrics: &'static [Metric], name: &str) -> &'static Metric {
    metrics.iter().find(|metric| metric.name == name).expect("columns are metrics of their table")
}

fn cell(metric: &Metric, target: &Value, with_ratio: bool) -> String {
    let figure = match &target["median"][metric.name] {
        Value::String(never) => never.clone(),
        number => metric.show(number.as_f64().unwrap_or(f64::NAN)),
    };
    match target["ratio"][metric.name].as_f64() {
        Some(ratio) if with_ratio && metric.compared => format!("{figure} ({})", show_ratio(ratio)),
        _ => figure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn results_become_rows() {
        let figures = |rate: f64| json!({ "rate": rate, "p50_us": 1500.0, "errors": 0.0 });
        let result = json!({
            "metrics": ["rate"],
            "targets": [
                { "name": "redis", "median": figures(1000.0), "ratio": { "rate": 1.0 } },
                { "name": "ember", "median": figures(2500.0), "ratio": { "rate": 2.5 } },
            ],
        });
        let text = markdown(&[("get-p1".to_owned(), result)]);
        assert!(text.contains("| [get-p1](get-p1/result.json) | redis | 1000 | 1.500 | - |"), "{text}");
        assert!(text.contains("|  | ember | 2500 (2.50x) | 1.500 | - |"), "{text}");
        assert!(!text.contains("Mass expiry"));
    }

    #[test]
    fn every_column_is_a_metric() {
        for section in SECTIONS {
            section.columns.iter().for_each(|name| assert_eq!(column(section.metrics, name).name, *name));
        }
    }
}
