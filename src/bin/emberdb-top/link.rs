//! A connection to the server, which may send anything, or nothing.

use crate::flags::Login;
use crate::text::escaped;
use emberdb::measure::client::{self, Client};
use emberdb::measure::resp::{Value, push_command};
use std::time::{Duration, Instant};

/// How long a reply may take.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// No reply is longer, unless somebody means harm.
const REPLY_BYTES_MAX: usize = 16 << 20;
/// How the connections are called in CLIENT LIST.
const NAME: &[u8] = b"emberdb-top";

/// Why there is no answer, as it may be shown.
#[derive(Clone, Debug, PartialEq)]
pub enum Trouble {
    /// The server answered with an error.
    Refused(String),
    /// The connection is of no use any more.
    Lost(String),
}

pub type Result<T> = std::result::Result<T, Trouble>;

pub struct Link(Client);

impl Link {
    /// Connects, and logs in where there is something to log in with.
    ///
    /// # Errors
    /// What the server refuses here is refused.
    pub fn open(login: &Login) -> Result<Link> {
        let plain = client::Login { tls: login.tls.clone(), ..client::Login::default() };
        let mut link = Link(Client::open(&login.target, &plain).map_err(lost)?);
        link.0.bound_replies(REPLY_BYTES_MAX);
        if let Some(password) = &login.password {
            let words: &[&[u8]] = match &login.user {
                Some(user) => &[b"AUTH", user.as_bytes(), password.as_bytes()],
                None => &[b"AUTH", password.as_bytes()],
            };
            link.ask(words)?;
        }
        if login.db != 0 {
            link.ask(&[b"SELECT", login.db.to_string().as_bytes()])?;
        }
        // Whoever may not do that, or whose server is too old for it, goes without.
        match link.ask(&[b"CLIENT", b"SETNAME", NAME]) {
            Err(Trouble::Lost(why)) => Err(Trouble::Lost(why)),
            _ => Ok(link),
        }
    }

    pub fn ask(&mut self, words: &[&[u8]]) -> Result<Value> {
        let mut out = Vec::new();
        push_command(&mut out, words);
        self.0.send(&out).map_err(lost)?;
        match self.told_before(Instant::now() + PATIENCE)? {
            Some(Value::Error(why)) => Err(Trouble::Refused(escaped(why.as_bytes()))),
            Some(value) => Ok(value),
            None => Err(Trouble::Lost(format!("no reply for {} s", PATIENCE.as_secs()))),
        }
    }

    /// What the server says next, if it does until then.
    pub fn told_before(&mut self, limit: Instant) -> Result<Option<Value>> {
        self.0.next_before(limit).map_err(lost)
    }
}

fn lost(failure: emberdb::measure::failure::Failure) -> Trouble {
    Trouble::Lost(escaped(failure.to_string().as_bytes()))
}
