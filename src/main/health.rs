//! `--healthcheck`: asks the server that runs with this configuration whether it is well. For containers, whose images have
//! no client: this is one.

use emberdb::config::{AuthClients, Config};
use emberdb::measure::client::{Client, Login};
use emberdb::measure::failure::Failure;
use emberdb::measure::resp::Value;
use emberdb::measure::target::{Address, Target};
use emberdb::measure::tls;
use rustls::ClientConfig;
use std::path::Path;
use std::sync::Arc;

const HEALTHCHECK: &str = "--healthcheck";

/// In a container this program is process 1: its arguments say which configuration is meant, where `--healthcheck` stands alone.
pub fn of_container(args: Vec<String>) -> Vec<String> {
    let program = |process: &str| std::fs::read_link(format!("/proc/{process}/exe")).ok();
    let is_alone = args == [HEALTHCHECK] && std::process::id() != 1;
    if !is_alone || program("1").is_none_or(|first| program("self") != Some(first)) {
        return args;
    }
    std::fs::read("/proc/1/cmdline").map_or(args, |line| arguments(&line))
}

fn arguments(line: &[u8]) -> Vec<String> {
    let line = line.strip_suffix(b"\0").unwrap_or(line);
    let words = line.split(|byte| *byte == 0).skip(1).map(|word| String::from_utf8_lossy(word).into_owned());
    words.chain([HEALTHCHECK.to_owned()]).collect()
}

/// # Errors
/// It does not answer, is loading, or has another password.
pub fn ask(config: &Config) -> Result<String, String> {
    let (address, is_tls) =
        address(config).ok_or("the server listens nowhere: port, tls-port and unixsocket are off")?;
    let target = Target { name: "emberdb".to_owned(), address, pid: None };
    let tls = if is_tls { Some(client_of(config)?) } else { None };
    let password = Some(config.requirepass.clone()).filter(|password| !password.is_empty());
    let login = Login { password, tls, ..Login::default() };
    let pinged = Client::open(&target, &login).and_then(|mut client| client.call(&[b"PING"]));
    match pinged {
        Ok(Value::Text(pong)) if pong == b"PONG" => Ok(format!("{target}: PONG")),
        // The users are kept in a file: who answers so serves those who know a password.
        Err(Failure::Refused { reply, .. }) if reply.starts_with("NOAUTH") => Ok(format!("{target}: {reply}")),
        Ok(_) => Err(format!("{target}: answers something else than PONG")),
        Err(failure) => Err(failure.to_string()),
    }
}

/// Where it is asked, and whether under TLS.
fn address(config: &Config) -> Option<(Address, bool)> {
    if !config.unixsocket.is_empty() {
        return Some((Address::Unix(Path::new(&config.dir).join(&config.unixsocket)), false));
    }
    let host = config.bind.first().map_or("127.0.0.1", |name| name.trim_start_matches('-'));
    let host = match host {
        "*" | "0.0.0.0" => "127.0.0.1".to_owned(),
        "::*" | "::" => "[::1]".to_owned(),
        ip if ip.contains(':') => format!("[{ip}]"),
        host => host.to_owned(),
    };
    let (port, is_tls) = if config.port > 0 { (config.port, false) } else { (config.tls.port, true) };
    (port > 0).then(|| (Address::Tcp(format!("{host}:{port}")), is_tls))
}

/// Its own certificate need not be for the address that is asked, and shows nothing that the configuration does not.
fn client_of(config: &Config) -> Result<Arc<ClientConfig>, String> {
    let of_dir = |name: &str| Path::new(&config.dir).join(name);
    let (certificate, key) = (of_dir(&config.tls.cert_file), of_dir(&config.tls.key_file));
    let shows = config.tls.auth_clients != AuthClients::No;
    tls::config(None, shows.then_some((&certificate, &key)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_of_the_server_are_those_of_the_check() {
        let line = b"/usr/bin/emberdb\0--bind\0*\0-::*\0--requirepass\0\0--port\x007000\0";
        let expected = ["--bind", "*", "-::*", "--requirepass", "", "--port", "7000", "--healthcheck"];
        assert_eq!(arguments(line), expected);
        assert_eq!(arguments(b"emberdb\0"), ["--healthcheck"]);
    }
}
