//! `--check`: what would become of a start with this configuration, without one. It opens no port and writes nothing, so that
//! it may be asked beside a server that runs.

use super::shards_of;
use emberdb::config::{Config, summary};
use emberdb::net::choose;
use emberdb::net::tls::{Tls, client_config};
use emberdb::server::{table, users_at_start};
use rustix::fs::{Access, access};

/// # Errors
/// Why it would not start, or could not do what it is to do.
pub fn run(config: Config) -> Result<String, String> {
    let dir = config.dir.clone();
    // (Names of files count from there.)
    std::env::set_current_dir(&dir).map_err(|error| format!("Can't chdir to '{dir}': {error}"))?;
    if config.appendonly || !config.save.is_empty() {
        access(".", Access::WRITE_OK | Access::EXEC_OK).map_err(|error| {
            format!(
                "Can't write to '{dir}', where the snapshot and the log are: {error} (dir, save \"\", appendonly no)"
            )
        })?;
    }
    users_at_start(&config, &table())?;
    if config.tls.port > 0 || config.metrics_port > 0 && config.metrics_tls {
        Tls::new(&config.tls).map_err(|error| format!("Failed to configure TLS: {error}"))?;
    }
    if config.tls.replication {
        client_config(&config.tls).map_err(|error| format!("Failed to configure TLS: {error}"))?;
    }
    let shards = shards_of(&config, &core_affinity::get_core_ids().unwrap_or_default());
    let network = choose(config.network, shards)?.name();
    let mut text = format!("The configuration is valid.\nlisten: {}\n", listeners(&config));
    text.push_str(&summary(&config, shards, network).replace("; ", "\n"));
    let idle = config.without_effect();
    if !idle.is_empty() {
        text.push_str(&format!("\nwithout effect here: {}", idle.join(", ")));
    }
    Ok(text)
}

fn listeners(config: &Config) -> String {
    let at = |addresses: &[String], port: u16, what: &str| {
        (port > 0).then(|| format!("{what} port {port} of {}", addresses.join(" ")))
    };
    let all = [
        at(&config.bind, config.port, "TCP"),
        at(&config.bind, config.tls.port, "TLS"),
        at(&config.metrics_bind, config.metrics_port, "metrics on"),
        (!config.unixsocket.is_empty()).then(|| config.unixsocket.clone()),
    ];
    all.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
