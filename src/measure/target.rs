//! Whom to measure: a name, an address, and the process whose CPU time is counted.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `host:port`, resolved when connecting.
    Tcp(String),
    Unix(PathBuf),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Names files too, hence letters, digits, `-`, `_` and `.` only.
    pub name: String,
    pub address: Address,
    /// The server's process where it was given; otherwise INFO is asked.
    pub pid: Option<u32>,
}

impl Address {
    /// True where the server may be a process of this machine.
    pub fn is_local(&self) -> bool {
        match self {
            Address::Unix(_) => true,
            Address::Tcp(address) => {
                let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
                host == "localhost" || host.starts_with("127.") || host == "[::1]" || host == "::1"
            }
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => f.write_str(address),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.address)
    }
}

impl FromStr for Target {
    type Err = String;

    /// `name=host:port`, `name=unix:/path`, with `,pid=N` behind it if wanted.
    fn from_str(text: &str) -> Result<Target, String> {
        let form = "write name=host:port or name=unix:/path, with ,pid=N behind it if wanted";
        let (name, rest) = text.split_once('=').ok_or(form)?;
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
            return Err(format!("`{name}` is no name: letters, digits, - _ and . only"));
        }
        let (address, pid) = match rest.rsplit_once(",pid=") {
            Some((address, pid)) => (address, Some(pid.parse().map_err(|_| format!("`{pid}` is no process id"))?)),
            None => (rest, None),
        };
        let address = match address.strip_prefix("unix:") {
            Some("") => return Err(form.to_owned()),
            Some(path) => Address::Unix(PathBuf::from(path)),
            None => {
                let (host, port) = address.rsplit_once(':').ok_or(form)?;
                if host.is_empty() || port.parse::<u16>().is_err() {
                    return Err(format!("`{address}` is no host:port; {form}"));
                }
                Address::Tcp(address.to_owned())
            }
        };
        Ok(Target { name: name.to_owned(), address, pid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_a_target() {
        let target: Target = "redis=127.0.0.1:6379,pid=1234".parse().unwrap();
        assert_eq!(target.name, "redis");
        assert_eq!(target.address, Address::Tcp("127.0.0.1:6379".into()));
        assert_eq!(target.pid, Some(1234));
        assert!(target.address.is_local());
        let target: Target = "ember=unix:/run/ember,1.sock".parse().unwrap();
        assert_eq!(target.address, Address::Unix("/run/ember,1.sock".into()));
        assert_eq!(target.pid, None);
        assert!(!"far=db.example:6379".parse::<Target>().unwrap().address.is_local());
        assert!("six=[::1]:6379".parse::<Target>().unwrap().address.is_local());
    }

    #[test]
    fn what_is_no_target() {
        for text in ["127.0.0.1:6379", "a=host", "a=host:99999", "=h:1", "a/b=h:1", "a=unix:", "a=h:1,pid=x"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}
