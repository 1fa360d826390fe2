//! Commands as they are given on the command line: `ZADD board NUMBER KEY`.

use crate::encode::{Command, KeyForm, Part};
use std::fmt;
use std::str::FromStr;

/// A command whose words stand for something: KEY, NUMBER (NUMBER+9), RANDOM and VALUE; others for themselves.
#[derive(Clone, Debug)]
pub struct Template {
    text: String,
}

impl Template {
    /// RANDOM is a number below `keys`.
    pub fn command(&self, form: &KeyForm, keys: u64, value: &[u8]) -> Command {
        let part = |word| match word {
            "KEY" => Part::Key,
            "RANDOM" => Part::Random(keys),
            "VALUE" => Part::Word(value),
            word => plus(word).map_or(Part::Word(word.as_bytes()), Part::Number),
        };
        Command::new(form, &self.words().map(part).collect::<Vec<_>>())
    }

    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.text.split_whitespace()
    }
}

/// What is added to the key's number, if the word asks for that.
fn plus(word: &str) -> Option<u64> {
    match word.strip_prefix("NUMBER")? {
        "" => Some(0),
        // No sum of it and the number of a key overflows.
        more => more.strip_prefix('+')?.parse::<u32>().ok().map(u64::from),
    }
}

impl FromStr for Template {
    type Err = String;

    fn from_str(text: &str) -> Result<Template, String> {
        let words = || text.split_whitespace();
        if words().next().is_none() {
            return Err("a command is wanted".to_owned());
        }
        match words().find(|word| word.starts_with("NUMBER+") && plus(word).is_none()) {
            Some(word) => Err(format!("{word} is no number")),
            None => Ok(Template { text: words().collect::<Vec<_>>().join(" ") }),
        }
    }
}

impl fmt::Display for Template {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(text: &str) -> Vec<String> {
        let command = text.parse::<Template>().unwrap().command(&KeyForm::new("k", 4, 1000), 1, b"of two\r\n");
        let mut out = Vec::new();
        command.push(42, &mut fastrand::Rng::with_seed(1), &mut out);
        crate::workload::words(out)
    }

    #[test]
    fn words_stand_for_what_is_known_at_the_request() {
        assert_eq!(encoded("ZADD board NUMBER KEY"), ["*4", "ZADD", "board", "42", "k042"]);
        assert_eq!(encoded(" LRANGE  KEY NUMBER NUMBER+99"), ["*4", "LRANGE", "k042", "42", "141"]);
        assert_eq!(encoded("SADD NUMBERS RANDOM KEYS"), ["*4", "SADD", "NUMBERS", "0", "KEYS"]);
        assert_eq!(encoded("SET KEY VALUE")[3], "of two");
        assert_eq!(" GET \n KEY".parse::<Template>().unwrap().to_string(), "GET KEY");
    }

    #[test]
    fn what_is_no_command_is_said() {
        for text in ["", "  ", "ZRANGE z NUMBER NUMBER+x", "ZRANGE z NUMBER+ 3", "GET NUMBER+5000000000"] {
            assert!(text.parse::<Template>().is_err(), "{text}");
        }
    }
}
