//! What matters of a configuration, in a line: for `--check`, and for the log of a server that starts.

use super::Config;

/// Where more is said.
const DOCS: &str = "emberdb --help and README.md";

/// Over which network, on how many shards, with how much memory, and what is left after a crash.
pub fn summary(config: &Config, shards: usize, network: &str) -> String {
    let value = |name: &str| config.get(|known| known == name).pop().map(|(_, value)| value).unwrap_or_default();
    let memory = match value("maxmemory") {
        none if none == "0" => "none".to_owned(),
        limit => format!("{limit} ({})", value("maxmemory-policy")),
    };
    let log = config.appendonly.then(|| format!("append-only log (fsync {})", value("appendfsync")));
    let snapshots = (!config.save.is_empty()).then(|| format!("snapshots (save {})", value("save")));
    let kept: Vec<String> = log.into_iter().chain(snapshots).collect();
    let kept = if kept.is_empty() { "nothing is kept on the disk".to_owned() } else { kept.join(" and ") };
    format!("network {network}; shards {shards}; memory limit {memory}; durability: {kept}; docs: {DOCS}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_is_lost_and_what_is_not() {
        let mut config = Config::default();
        let said = |config: &Config| summary(config, 2, "ring");
        config.set(&[("save", "")], true).unwrap();
        assert_eq!(
            said(&config),
            "network ring; shards 2; memory limit none; durability: nothing is kept on the disk; docs: emberdb --help and \
             README.md"
        );
        config.set(&[("save", "60 1"), ("maxmemory", "1mb"), ("appendonly", "yes")], true).unwrap();
        let text = said(&config);
        assert!(text.contains("memory limit 1048576 (noeviction)"), "{text}");
        assert!(text.contains("append-only log (fsync everysec) and snapshots (save 60 1)"), "{text}");
    }
}
