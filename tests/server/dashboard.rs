//! The dashboard for Grafana: every metric that it names is told, and every expression in it has data in a real Prometheus.

use crate::common::server::Port;
use crate::common::{have_tool, wait_until};
use crate::metrics::{PATIENCE, scrape, start};
use crate::page::use_it;
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

fn expressions() -> Vec<String> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/grafana-dashboard.json"));
    let dashboard: Json = serde_json::from_str(&text.expect("the dashboard")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels").clone();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let expressions: Vec<String> =
        targets.map(|target| target["expr"].as_str().expect("an expression").to_owned()).collect();
    assert!(panels.len() > 20 && expressions.len() > 40, "{} {}", panels.len(), expressions.len());
    expressions
}

/// The names of metrics in an expression.
fn metrics_in(expression: &str) -> Vec<&str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("redis_") || word.starts_with("emberdb_")).collect()
}

#[test]
fn every_metric_of_the_dashboard_is_told() {
    let (server, port) = start(2, &[]);
    use_it(&server);
    server.client().call("NOSUCH");
    assert!(wait_until(PATIENCE, || scrape(&port).contains_key("emberdb_forecast_keys{within=\"1h\"}")));
    let told = scrape(&port);
    let names: BTreeSet<&str> = told.keys().filter_map(|metric| metric.split('{').next()).collect();
    for expression in expressions() {
        let metrics = metrics_in(&expression);
        assert!(!metrics.is_empty(), "{expression}");
        for metric in metrics {
            assert!(names.contains(metric), "{metric} in {expression}");
        }
    }
}

#[test]
fn every_expression_of_the_dashboard_has_data_in_prometheus() {
    if !have_tool("prometheus") || !have_tool("promtool") {
        return;
    }
    let (server, port) = start(2, &["--appendonly", "yes"]);
    let (folder, of_prometheus) = (tempfile::tempdir().expect("a folder"), Port::claim());
    let config = folder.path().join("prometheus.yml");
    let scrapes = format!(
        "global:\n  scrape_interval: 1s\nscrape_configs:\n- job_name: emberdb\n  static_configs:\n  - targets: ['localhost:{}']\n",
        port.number()
    );
    fs::write(&config, scrapes).expect("written");
    let mut prometheus = Command::new("prometheus")
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{}", of_prometheus.number()))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it runs");
    let url = format!("http://127.0.0.1:{}", of_prometheus.number());
    let has_data = |expression: &str| {
        let expression = expression.replace("$__rate_interval", "30s").replace("$instance", ".*");
        let output = Command::new("promtool").args(["query", "instant", &url, &expression]).output().expect("it runs");
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success() && told.lines().any(|line| line.contains("=>") && !line.contains("NaN"))
    };
    let mut without = expressions();
    let has_all = wait_until(PATIENCE * 2, || {
        // There is always something of each kind in the last seconds.
        use_it(&server);
        server.client().call("NOSUCH");
        server.client().call("GET session:0");
        without.retain(|expression| !has_data(expression));
        without.is_empty()
    });
    let _ = prometheus.kill();
    let _ = prometheus.wait();
    assert!(has_all, "without data: {without:#?}");
}
