//! The server that this one follows.

use super::values::{Kind, Setting, ValueError};
use std::fmt;

/// A server by its name or address, and its port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Primary {
    pub host: String,
    pub port: u16,
}

/// None: this server is a primary itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Follows(pub Option<Primary>);

impl fmt::Display for Follows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |Primary { host, port }| write!(f, "{host} {port}"))
    }
}

impl Setting for Follows {
    fn read(&mut self, _: &Kind, args: &[&str]) -> Result<(), ValueError> {
        // (Redis splits what is given as one word, too.)
        let words: Vec<&str> = args.iter().flat_map(|arg| arg.split(' ')).filter(|word| !word.is_empty()).collect();
        self.0 = match words[..] {
            [] => None,
            ["no" | "NO" | "No", "one" | "ONE" | "One"] => None,
            [host, port] => {
                // (As in Redis, and as REPLICAOF does, which CONFIG REWRITE writes down: there may be nobody at a port.)
                let port = port.parse().map_err(|_| ValueError::PrimaryPort)?;
                Some(Primary { host: host.to_owned(), port })
            }
            _ => return Err(ValueError::WrongCount),
        };
        Ok(())
    }

    fn show(&self) -> String {
        self.to_string()
    }

    fn line(&self, _: &Kind) -> String {
        if self.0.is_none() { "\"\"".to_owned() } else { self.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_and_a_port_or_nobody() {
        let read = |args: &[&str]| {
            let mut follows = Follows::default();
            follows.read(&Kind::Primary, args).map(|()| follows.show())
        };
        assert_eq!(read(&["localhost", "6379"]), Ok("localhost 6379".to_owned()));
        assert_eq!(read(&["localhost 6379"]), Ok("localhost 6379".to_owned()));
        assert_eq!(
            (read(&["no", "one"]), read(&[""]), read(&[])),
            (Ok(String::new()), Ok(String::new()), Ok(String::new()))
        );
        assert_eq!(read(&["localhost"]), Err(ValueError::WrongCount));
        assert_eq!(read(&["localhost", "0"]), Ok("localhost 0".to_owned()));
        for port in ["65536", "-1", "x"] {
            assert_eq!(read(&["localhost", port]), Err(ValueError::PrimaryPort));
        }
    }
}
