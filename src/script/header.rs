//! The first line of a script, where it begins with `#!`: the engine, and what the script is allowed and promises.

use crate::resp::{Error, Result, printable};

/// What a script says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    pub const NO_WRITES: Flags = Flags(1);
    pub const ALLOW_OOM: Flags = Flags(2);
    pub const ALLOW_STALE: Flags = Flags(4);
    pub const NO_CLUSTER: Flags = Flags(8);
    pub const ALLOW_CROSS_SLOT_KEYS: Flags = Flags(16);

    pub const NAMES: [(Flags, &'static str); 5] = [
        (Flags::NO_WRITES, "no-writes"),
        (Flags::ALLOW_OOM, "allow-oom"),
        (Flags::ALLOW_STALE, "allow-stale"),
        (Flags::NO_CLUSTER, "no-cluster"),
        (Flags::ALLOW_CROSS_SLOT_KEYS, "allow-cross-slot-keys"),
    ];

    pub fn of_name(name: &[u8]) -> Option<Flags> {
        Flags::NAMES.iter().find(|(_, of)| of.as_bytes() == name).map(|(flag, _)| *flag)
    }

    /// The same in whatever case.
    pub fn of_any_case(name: &[u8]) -> Option<Flags> {
        Flags::of_name(&name.to_ascii_lowercase())
    }

    pub fn bits(self) -> u8 {
        self.0
    }

    pub fn of_bits(bits: u8) -> Flags {
        Flags(bits)
    }

    pub fn insert(&mut self, other: Flags) {
        self.0 |= other.0;
    }

    pub fn has(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }

    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Flags::NAMES.iter().filter(move |(flag, _)| self.has(*flag)).map(|(_, name)| *name)
    }
}

/// What the first line of a script says; without one it says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    pub flags: Flags,
    /// Bytes before the code, whose first line is empty then, so that lines are counted right.
    pub bytes: usize,
}

impl Header {
    pub fn parse(source: &[u8]) -> Result<Header> {
        if !source.starts_with(b"#!") {
            return Ok(Header::default());
        }
        let Some(end) = source.iter().position(|byte| *byte == b'\n') else {
            return Err(Error::text("ERR Invalid script shebang"));
        };
        let mut header = Header { flags: Flags::default(), bytes: end };
        let mut words = source[..end].split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let engine = words.next().unwrap_or_default();
        if engine != b"#!lua" {
            return Err(Error::quoting(&[b"ERR Unexpected engine in script shebang: ", printable(engine, 128)]));
        }
        for word in words {
            let Some(flags) = word.strip_prefix(b"flags=") else {
                return Err(Error::quoting(&[b"ERR Unknown lua shebang option: ", printable(word, 128)]));
            };
            for name in flags.split(|byte| *byte == b',').filter(|name| !name.is_empty()) {
                let Some(flag) = Flags::of_name(name) else {
                    return Err(Error::quoting(&[b"ERR Unexpected flag in script shebang: ", printable(name, 128)]));
                };
                header.flags.insert(flag);
            }
        }
        Ok(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_says_what_a_script_may_do() {
        let flags =
            |source: &str| Header::parse(source.as_bytes()).map(|header| header.flags.names().collect::<Vec<_>>());
        assert_eq!(flags("return 1"), Ok(vec![]));
        assert_eq!(flags("#!lua\nreturn 1"), Ok(vec![]));
        assert_eq!(flags("#!lua flags=no-writes,allow-stale\n"), Ok(vec!["no-writes", "allow-stale"]));
        let error = |source: &str| Header::parse(source.as_bytes()).expect_err("refused").to_string();
        assert_eq!(error("#!lua"), "ERR Invalid script shebang");
        assert_eq!(error("#!js\n"), "ERR Unexpected engine in script shebang: #!js");
        assert_eq!(error("#!lua x=y\n"), "ERR Unknown lua shebang option: x=y");
        assert_eq!(error("#!lua flags=bad\n"), "ERR Unexpected flag in script shebang: bad");
    }
}
