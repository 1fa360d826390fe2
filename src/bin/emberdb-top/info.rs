//! What INFO told, as fields. The server may be any, and may tell anything: nothing is expected to be there.

use crate::text::escaped;
use std::collections::HashMap;

#[derive(Clone, Debug, Default)]
pub struct Info {
    /// Names and values, as they may be shown.
    fields: HashMap<String, String>,
}

/// `keys=1,expires=0`
#[derive(Clone, Debug, Default)]
pub struct Several<'a>(&'a str);

impl Info {
    pub fn parse(text: &[u8]) -> Info {
        let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.starts_with(b"#"));
        let fields = lines.filter_map(|line| {
            let at = line.iter().position(|&byte| byte == b':')?;
            Some((escaped(&line[..at]), escaped(line[at + 1..].trim_ascii())))
        });
        Info { fields: fields.collect() }
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }

    /// A number that is none, or less than nothing, is not told.
    pub fn real(&self, name: &str) -> Option<f64> {
        number(self.text(name)?)
    }

    pub fn count(&self, name: &str) -> Option<u64> {
        whole(self.text(name)?)
    }

    /// Those whose names are `prefix` and a number, by number.
    pub fn numbered(&self, prefix: &str) -> Vec<(u32, Several<'_>)> {
        let number = |name: &str| name.strip_prefix(prefix)?.parse().ok();
        let mut found: Vec<(u32, Several)> =
            self.fields.iter().filter_map(|(name, value)| Some((number(name)?, Several(value)))).collect();
        found.sort_unstable_by_key(|(number, _)| *number);
        found
    }

    /// Those whose names begin so, by what is behind it.
    pub fn beginning(&self, prefix: &str) -> impl Iterator<Item = (&str, Several<'_>)> {
        self.fields.iter().filter_map(move |(name, value)| Some((name.strip_prefix(prefix)?, Several(value))))
    }

    pub fn is_ember(&self) -> bool {
        self.fields.contains_key("emberdb_version")
    }

    /// The sum of a field of all databases.
    pub fn of_databases(&self, field: &str) -> u64 {
        self.numbered("db").iter().filter_map(|(_, several)| several.count(field)).fold(0, u64::saturating_add)
    }
}

impl Several<'_> {
    fn text(&self, name: &str) -> Option<&str> {
        self.0.split(',').find_map(|part| part.split_once('=').filter(|(key, _)| *key == name)).map(|(_, value)| value)
    }

    pub fn count(&self, name: &str) -> Option<u64> {
        whole(self.text(name)?)
    }

    pub fn real(&self, name: &str) -> Option<f64> {
        number(self.text(name)?)
    }
}

fn number(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0)
}

/// (Without what is behind the point, if there is one.)
fn whole(text: &str) -> Option<u64> {
    text.parse().ok().or_else(|| number(text).filter(|number| *number < u64::MAX as f64).map(|number| number as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_all_kinds() {
        let info = Info::parse(b"# Stats\r\nexpired_keys:12\r\nperc:0.50\r\ndb1:keys=3,expires=1\r\ndb0:keys=2\r\n");
        assert_eq!((info.count("expired_keys"), info.real("perc"), info.count("perc")), (Some(12), Some(0.5), Some(0)));
        let databases: Vec<u32> = info.numbered("db").iter().map(|(number, _)| *number).collect();
        assert_eq!((databases, info.of_databases("keys"), info.of_databases("expires")), (vec![0, 1], 5, 1));
        assert!(!info.is_ember());
    }

    #[test]
    fn what_is_no_number_is_not_told() {
        let long = format!("long:{}\n", "9".repeat(400));
        let text = [b"a:\nb:-3\nc:nan\nd:1e999\ne:x\xff\x1b[2J\n:\n::\nno colon\n\xff:\n".as_slice(), long.as_bytes()]
            .concat();
        let info = Info::parse(&text);
        for name in ["a", "b", "c", "d", "e", "f", "long"] {
            assert_eq!((info.count(name), info.real(name)), (None, None), "{name}");
        }
        assert_eq!(info.text("e"), Some("x\\xff\\u{1b}[2J"));
        let many = Info::parse(b"db0:keys=18446744073709551615\ndb1:keys=18446744073709551615\ndb99999999999:keys=1\n");
        assert_eq!(many.of_databases("keys"), u64::MAX);
    }
}
