//! The flags, named as redis-cli's where that has them.

use clap::error::ErrorKind;
use clap::{ArgAction, CommandFactory, Parser};
use emberdb::measure::generated::Generated;
use emberdb::measure::target::{Address, Target};
use emberdb::measure::tls;
use rustls::ClientConfig;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Where redis-cli, too, finds the password that no flag gives.
const PASSWORD_VARIABLE: &str = "REDISCLI_AUTH";
const PORT: u16 = 6379;

/// Shows what a server does: lag against the promised bound, rates, the keys that die next, policies, shards, memory, clients.
///
/// It asks with INFO, LIVE NEXT, EXPIRY and CLIENT LIST, and changes nothing. Of a redis-server it shows what INFO tells.
/// The password may stand in the environment variable REDISCLI_AUTH, where the list of processes does not show it.
#[derive(Clone, Debug, Parser)]
#[command(name = "emberdb-top", version, disable_help_flag = true, max_term_width = 110)]
pub struct Flags {
    /// Host of the server
    #[arg(short = 'h', long = "host", value_name = "HOST", default_value = "127.0.0.1")]
    host: String,
    /// Port of the server
    #[arg(short, long, value_name = "PORT", default_value_t = PORT)]
    port: u16,
    /// Unix socket of the server, instead of host and port
    #[arg(short, long, value_name = "PATH", conflicts_with_all = ["host", "port", "uri", "tls"])]
    socket: Option<PathBuf>,
    /// The server as redis://user:password@host:port/db, or rediss:// for TLS
    #[arg(short, long, value_name = "URI", conflicts_with_all = ["host", "port"])]
    uri: Option<String>,
    /// Password for AUTH
    #[arg(short = 'a', long = "pass", value_name = "PASSWORD")]
    pass: Option<String>,
    /// Name for AUTH
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Database whose keys are forecast and die next
    #[arg(short = 'n', value_name = "DB")]
    db: Option<u32>,
    /// Connect by TLS
    #[arg(long)]
    tls: bool,
    /// File with the authority that has to stand behind the server's certificate, PEM
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// Take any certificate for the server's
    #[arg(long, conflicts_with = "cacert")]
    insecure: bool,
    /// File with a client's certificate, PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// File with its key, PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Seconds from one look to the next; rates are those of this time
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,
    /// Which keys' next deaths are shown
    #[arg(long, value_name = "PREFIX", default_value = "")]
    pub prefix: String,
    /// Ask neither LIVE nor EXPIRY FORECAST, which walk over the keys
    #[arg(long)]
    pub no_walks: bool,
    /// Print one screen as plain text and end: nothing of it controls a terminal
    #[arg(long)]
    pub once: bool,
    /// With --once: print JSON
    #[arg(long, requires = "once")]
    pub json: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
    /// Print the man page, or what a shell completes, for packages
    #[arg(long, value_enum, exclusive = true, hide = true)]
    pub generate: Option<Generated>,
}

/// Which server is watched, and as whom.
#[derive(Clone)]
pub struct Login {
    pub target: Target,
    pub tls: Option<Arc<ClientConfig>>,
    pub user: Option<String>,
    pub password: Option<String>,
    pub db: u32,
}

impl Flags {
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// What the flags say about the server; ends the process with 2 if that is wrong.
    pub fn login(&self) -> Login {
        let password = std::env::var(PASSWORD_VARIABLE).ok().filter(|password| !password.is_empty());
        self.checked(password).unwrap_or_else(|message| {
            Flags::command().error(ErrorKind::ValueValidation, message).exit();
        })
    }

    fn checked(&self, password: Option<String>) -> Result<Login, String> {
        let uri = self.uri.as_deref().map(Uri::parse).transpose()?.unwrap_or_default();
        let has_tls = self.tls || uri.tls;
        let address = match &self.socket {
            Some(path) => Address::Unix(path.clone()),
            None => {
                let host = uri.host.as_deref().unwrap_or(&self.host);
                // An address of IPv6 is told from its port by brackets.
                let is_bare = host.contains(':') && !host.starts_with('[');
                let host = if is_bare { format!("[{host}]") } else { host.to_owned() };
                Address::Tcp(format!("{host}:{}", uri.port.unwrap_or(self.port)))
            }
        };
        let of_tls = self.cacert.is_some() || self.insecure || self.cert.is_some();
        let tls = match has_tls {
            true if self.cacert.is_none() && !self.insecure => {
                return Err("TLS takes --cacert or --insecure".to_owned());
            }
            true => Some(tls::config(self.cacert.as_deref(), self.cert.as_deref().zip(self.key.as_deref()))?),
            false if of_tls => return Err("--cacert, --insecure and --cert go with --tls".to_owned()),
            false => None,
        };
        let password = self.pass.clone().or(uri.password).or(password);
        let user = self.user.clone().or(uri.user);
        if user.is_some() && password.is_none() {
            return Err(format!("a user needs a password: -a, or {PASSWORD_VARIABLE}"));
        }
        let target = Target { name: "server".to_owned(), address, pid: None };
        Ok(Login { target, tls, user, password, db: self.db.or(uri.db).unwrap_or(0) })
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "a number of seconds from 0.1 to 3600 is wanted".to_owned())
}

/// `redis://user:password@host:port/db`, any part of which may be missing.
#[derive(Debug, Default, PartialEq)]
struct Uri {
    tls: bool,
    user: Option<String>,
    password: Option<String>,
    host: Option<String>,
    port: Option<u16>,
    db: Option<u32>,
}

impl Uri {
    fn parse(text: &str) -> Result<Uri, String> {
        // The text is not shown: it may have a password.
        let wrong = || "a URI is redis://user:password@host:port/db, or rediss:// for TLS".to_owned();
        let (tls, rest) = match (text.strip_prefix("redis://"), text.strip_prefix("rediss://")) {
            (Some(rest), _) => (false, rest),
            (None, Some(rest)) => (true, rest),
            (None, None) => return Err(wrong()),
        };
        let (who, rest) = match rest.rsplit_once('@') {
            Some((who, rest)) => (Some(who), rest),
            None => (None, rest),
        };
        // As with redis-cli, one word before the @ is a password.
        let (user, password) = match who.map(|who| who.split_once(':').unwrap_or(("", who))) {
            Some((user, password)) => (decoded(user).ok_or_else(wrong)?, decoded(password).ok_or_else(wrong)?),
            None => (String::new(), String::new()),
        };
        let (place, db) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port),
            _ => (place, ""),
        };
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Ok(Uri {
            tls,
            user: some(&user),
            password: some(&password),
            host: some(host),
            port: some(port).map(|port| port.parse().map_err(|_| wrong())).transpose()?,
            db: some(db).map(|db| db.parse().map_err(|_| wrong())).transpose()?,
        })
    }
}

/// With each `%41` as the byte it stands for.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let digits = behind.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = &behind[2..];
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(line: &str) -> Result<Login, String> {
        let words = std::iter::once("emberdb-top").chain(line.split_whitespace());
        Flags::try_parse_from(words).map_err(|error| error.to_string())?.checked(None)
    }

    fn address(line: &str) -> String {
        login(line).unwrap().target.address.to_string()
    }

    #[test]
    fn the_table_is_sound() {
        Flags::command().debug_assert();
    }

    #[test]
    fn where_the_server_is() {
        assert_eq!(address(""), "127.0.0.1:6379");
        assert_eq!(address("-h db.example -p 7000"), "db.example:7000");
        assert_eq!(address("-h ::1"), "[::1]:6379");
        assert_eq!(address("-s /run/ember.sock"), "unix:/run/ember.sock");
        assert_eq!(address("-u redis://db.example"), "db.example:6379");
        assert_eq!(address("-u redis://[::1]:7/3"), "[::1]:7");
        assert_eq!(address("-u redis://[::1]"), "[::1]:6379");
    }

    #[test]
    fn who_is_logged_in() {
        let who = |line| login(line).map(|login| (login.user, login.password, login.db)).unwrap();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(who("-a p --user u -n 4"), (some("u"), some("p"), 4));
        assert_eq!(who("--pass p"), (None, some("p"), 0));
        assert_eq!(who("-u redis://u:p%40%3a@h/2"), (some("u"), some("p@:"), 2));
        assert_eq!(who("-u redis://p@h"), (None, some("p"), 0));
        assert_eq!(who("-u redis://:p@h"), (None, some("p"), 0));
        assert_eq!(who("-u redis://u:old@h -a new"), (some("u"), some("new"), 0));
        assert!(login("-u rediss://h --insecure").unwrap().tls.is_some());
    }

    #[test]
    fn a_password_of_the_environment_stands_behind_that_of_a_flag() {
        let flags = Flags::try_parse_from(["emberdb-top", "-a", "flag"]).unwrap();
        assert_eq!(flags.checked(Some("environment".to_owned())).unwrap().password.as_deref(), Some("flag"));
        let flags = Flags::try_parse_from(["emberdb-top"]).unwrap();
        assert_eq!(flags.checked(Some("environment".to_owned())).unwrap().password.as_deref(), Some("environment"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for line in [
            "-p 70000",
            "-u http://h",
            "-u redis://h:x",
            "-u redis://h/x",
            "-u redis://%zz@h",
            "-u redis://%a\u{e9}@h",
            "-u rediss://h",
            "-u redis://h -p 7",
            "--tls",
            "--cacert /nowhere",
            "--tls --cacert /nowhere",
            "--tls --insecure --cert c",
            "--user u",
            "--json",
            "-i 0",
            "-i nan",
            "-i 1e9",
            "-s /x --tls --insecure",
        ] {
            let wrong = login(line).err().unwrap_or_else(|| panic!("{line} is accepted"));
            assert!(!wrong.contains("redis://h:x"), "{wrong}");
        }
    }
}
