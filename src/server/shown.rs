//! Requests as operators see them, in the slow log and through MONITOR: passwords are left out.

use crate::config::escape;
use crate::resp::Request;

const REDACTED: &[u8] = b"(redacted)";

/// The arguments of a request, its passwords excepted.
pub fn args<'r>(request: Request<'r>) -> impl Iterator<Item = &'r [u8]> {
    let mut secrets = Secrets::of(request);
    request.from(0).enumerate().map(move |(index, arg)| if secrets.has(index, arg) { REDACTED } else { arg })
}

/// Which arguments are secret, as far as a request has been read.
enum Secrets {
    None,
    /// AUTH: all but the name of the command.
    All,
    /// HELLO: so many of the arguments that come next belong to its option AUTH, or to another.
    Hello {
        secret: usize,
        plain: usize,
    },
    /// CONFIG SET: whether the value that comes next is.
    Config {
        is_next: bool,
    },
}

impl Secrets {
    fn of(request: Request) -> Secrets {
        if request.is(0, "auth") {
            Secrets::All
        } else if request.is(0, "hello") {
            Secrets::Hello { secret: 0, plain: 2 }
        } else if request.is(0, "config") && request.is(1, "set") {
            Secrets::Config { is_next: false }
        } else {
            Secrets::None
        }
    }

    fn has(&mut self, index: usize, arg: &[u8]) -> bool {
        match self {
            Secrets::None => false,
            Secrets::All => index > 0,
            Secrets::Hello { secret, .. } if *secret > 0 => {
                *secret -= 1;
                true
            }
            Secrets::Hello { plain, .. } if *plain > 0 => {
                *plain -= 1;
                false
            }
            Secrets::Hello { secret, plain } => {
                if arg.eq_ignore_ascii_case(b"auth") {
                    *secret = 2;
                } else if arg.eq_ignore_ascii_case(b"setname") {
                    *plain = 1;
                }
                false
            }
            Secrets::Config { is_next } => {
                let is_secret = *is_next;
                *is_next = index >= 2 && index.is_multiple_of(2) && arg.eq_ignore_ascii_case(b"requirepass");
                is_secret
            }
        }
    }
}

/// Appends an argument in quotes, as redis-cli would read it; whether that is all of it, and `out` has no more than
/// `most` bytes.
pub fn quote(arg: &[u8], out: &mut Vec<u8>, most: usize) -> bool {
    out.push(b'"');
    for byte in arg {
        if out.len() > most {
            return false;
        }
        escape(*byte, out);
    }
    out.push(b'"');
    out.len() <= most
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::OwnedRequest;

    fn shown(request: &str) -> String {
        let request = OwnedRequest::from_args(request.split(' ').map(str::as_bytes));
        let args: Vec<&[u8]> = args(request.as_request()).collect();
        String::from_utf8(args.join(&b' ')).expect("text")
    }

    #[test]
    fn passwords_are_left_out() {
        for (request, expected) in [
            ("AUTH secret", "AUTH (redacted)"),
            ("auth user secret", "auth (redacted) (redacted)"),
            ("hello 3", "hello 3"),
            ("hello 3 auth default secret setname x", "hello 3 auth (redacted) (redacted) setname x"),
            ("HELLO 3 SETNAME auth AUTH u secret", "HELLO 3 SETNAME auth AUTH (redacted) (redacted)"),
            (
                "hello 3 setname a SetName b auth u secret auth v secret",
                "hello 3 setname a SetName b auth (redacted) (redacted) auth (redacted) (redacted)",
            ),
            ("hello 3 auth auth auth", "hello 3 auth (redacted) (redacted)"),
            ("config set port 1 RequirePass secret", "config set port 1 RequirePass (redacted)"),
            ("config get requirepass", "config get requirepass"),
            ("set requirepass x", "set requirepass x"),
        ] {
            assert_eq!(shown(request), expected);
        }
    }

    #[test]
    fn what_cannot_be_printed_is_escaped() {
        let mut out = Vec::new();
        assert!(quote(b"a \\\"\n\r\t\x07\x08\0\x7f\xff~", &mut out, usize::MAX));
        assert_eq!(out, br#""a \\\"\n\r\t\a\b\x00\x7f\xff~""#);
    }

    #[test]
    fn nothing_is_quoted_past_a_limit() {
        let mut out = Vec::new();
        assert!(!quote(&[0xff; 1000], &mut out, 100));
        assert!(out.len() <= 104);
        assert!(!quote(b"", &mut out, 100));
    }
}
