//! Requests as operators see them, in the slow log and through MONITOR: passwords are left out.

use crate::command::spec::Secrets;
use crate::config::{REDACTED, escape, is_secret_directive};
use crate::resp::Request;

/// The arguments of a request, without what its row says is secret.
pub fn args<'r>(secrets: Secrets, request: Request<'r>) -> impl Iterator<Item = &'r [u8]> {
    let mut hidden = Hidden::of(secrets);
    request.from(0).enumerate().map(move |(index, arg)| if hidden.has(index, arg) { REDACTED.as_bytes() } else { arg })
}

/// Commands whose arguments have passwords among them.
const WITH_PASSWORDS: &[&[u8]] = &[b"acl", b"auth", b"config", b"hello", b"migrate"];

/// Which arguments are hidden, as far as a request has been read.
enum Hidden {
    From(usize),
    /// So many of the arguments that come next belong to HELLO's option AUTH, or to another.
    Hello {
        secret: usize,
        plain: usize,
    },
    /// So many of the arguments that come next belong to MIGRATE's options; none behind KEYS does.
    Migrate {
        secret: usize,
        is_over: bool,
    },
    /// All behind the command at this index, where that names passwords.
    Inner {
        at: usize,
        is_secret: bool,
    },
    /// Whether the value that comes next is. The names stand at every second index from the first on.
    Directives {
        first: usize,
        is_next: bool,
    },
}

impl Hidden {
    fn of(secrets: Secrets) -> Hidden {
        match secrets {
            Secrets::None => Hidden::From(usize::MAX),
            Secrets::From(first) => Hidden::From(first),
            Secrets::Hello => Hidden::Hello { secret: 0, plain: 2 },
            Secrets::Inner(at) => Hidden::Inner { at, is_secret: false },
            Secrets::Migrate => Hidden::Migrate { secret: 0, is_over: false },
            Secrets::Directives(first) => Hidden::Directives { first, is_next: false },
        }
    }

    fn has(&mut self, index: usize, arg: &[u8]) -> bool {
        match self {
            Hidden::From(first) => index >= *first,
            Hidden::Hello { secret, .. } if *secret > 0 => {
                *secret -= 1;
                true
            }
            Hidden::Hello { plain, .. } if *plain > 0 => {
                *plain -= 1;
                false
            }
            Hidden::Hello { secret, plain } => {
                if arg.eq_ignore_ascii_case(b"auth") {
                    *secret = 2;
                } else if arg.eq_ignore_ascii_case(b"setname") {
                    *plain = 1;
                }
                false
            }
            Hidden::Inner { at, is_secret } => {
                let was_secret = *is_secret;
                *is_secret |= index == *at && WITH_PASSWORDS.iter().any(|name| arg.eq_ignore_ascii_case(name));
                was_secret
            }
            Hidden::Migrate { secret, .. } if *secret > 0 => {
                *secret -= 1;
                true
            }
            Hidden::Migrate { secret, is_over } => {
                if index >= 6 && !*is_over {
                    *secret = match () {
                        () if arg.eq_ignore_ascii_case(b"auth") => 1,
                        () if arg.eq_ignore_ascii_case(b"auth2") => 2,
                        () => 0,
                    };
                    *is_over = arg.eq_ignore_ascii_case(b"keys");
                }
                false
            }
            Hidden::Directives { first, is_next } => {
                let is_name = index >= *first && (index - *first).is_multiple_of(2);
                let is_secret = *is_next;
                *is_next = is_name && is_secret_directive(arg);
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
    use crate::server::state::Found;

    fn shown(request: &str) -> String {
        let request = OwnedRequest::from_args(request.split(' ').map(str::as_bytes));
        let table = crate::server::table();
        let Found::Command(command) = table.find(request.as_request()) else { panic!("no command") };
        let args: Vec<&[u8]> = args(command.row.secrets, request.as_request()).collect();
        String::from_utf8(args.join(&b' ')).expect("text")
    }

    /// Behind GUARD as much is hidden as without it.
    #[test]
    fn commands_with_passwords_are_those_whose_rows_hide_some() {
        let rows = crate::server::table();
        let hides = |name: &[u8]| {
            let containers: [&[&[u8]]; 2] = [&[name, b"set", b"x"], &[name, b"setuser", b"x"]];
            containers.into_iter().any(|words| {
                let request = OwnedRequest::from_args(words.iter().copied());
                matches!(rows.find(request.as_request()), Found::Command(command) if command.row.secrets != Secrets::None)
            })
        };
        WITH_PASSWORDS.iter().for_each(|name| assert!(hides(name), "{}", name.escape_ascii()));
        let others = crate::command::rows().map(|row| row.spec.name.as_bytes());
        others.for_each(|name| assert!(!hides(name) || WITH_PASSWORDS.contains(&name), "{}", name.escape_ascii()));
    }

    /// As Redis 7.0.15 shows them in its slow log, and more: names of users, and directives that it lacks without TLS.
    #[test]
    fn passwords_are_left_out() {
        for (request, expected) in [
            ("AUTH secret", "AUTH (redacted)"),
            ("guard k 1 Auth secret", "guard k 1 Auth (redacted)"),
            ("guard k 1 set auth value", "guard k 1 set auth value"),
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
            (
                "CONFIG SET masterauth a masteruser b hz 10",
                "CONFIG SET masterauth (redacted) masteruser (redacted) hz 10",
            ),
            (
                "config set nosuch x tls-key-file-pass a TLS-CLIENT-KEY-FILE-PASS b",
                "config set nosuch x tls-key-file-pass (redacted) TLS-CLIENT-KEY-FILE-PASS (redacted)",
            ),
            ("config set hz masterauth requirepass", "config set hz masterauth requirepass"),
            ("config set masterauth secret requirepass", "config set masterauth (redacted) requirepass"),
            ("config get requirepass", "config get requirepass"),
            (
                "acl setuser bob on >secret #0123 +@all",
                "acl setuser (redacted) (redacted) (redacted) (redacted) (redacted)",
            ),
            ("acl deluser bob", "acl deluser (redacted)"),
            ("acl getuser bob", "acl getuser (redacted)"),
            ("set requirepass x", "set requirepass x"),
            ("migrate auth 1 auth 0 9 copy AUTH secret", "migrate auth 1 auth 0 9 copy AUTH (redacted)"),
            ("migrate h 1 k 0 9 auth keys keys auth b", "migrate h 1 k 0 9 auth (redacted) keys auth b"),
            ("migrate h 1 k 0 9 auth2 u p replace", "migrate h 1 k 0 9 auth2 (redacted) (redacted) replace"),
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
