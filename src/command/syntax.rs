//! The notation in which a row says what arguments its command takes, and the tree that `COMMAND DOCS` makes of it.
//!
//! | notation | meaning |
//! |---|---|
//! | `value` | an argument: a string |
//! | `key` | the argument of this name is a key |
//! | `name:type` | one of another type: `integer`, `double`, `key`, `pattern`, `unix-time` |
//! | `GET` | a word to be written as it is, named by its lower case |
//! | `GT greater:pure-token` | the same with a name of its own |
//! | `EX seconds:integer` | an argument with a token in front |
//! | `name:(a\|b)` | one of several; each alternative is one argument |
//! | `name:(a b)` | a block: several that belong together |
//! | `[a]` | may be left out |
//! | `a...` | once or more; `TOKEN a...` has its token once |
//! | `[a...]`, `[a]...` | any number of times; with `[TOKEN a]...` each has its token |
//!
//! ```text
//! arguments   = argument*
//! argument    = unit ["..."] | "[" argument "]" ["..."]
//! unit        = TOKEN | [TOKEN] name [":" (type | group)]
//! group       = "(" argument ("|" argument)+ ")" | "(" argument+ ")"
//! ```
//!
//! A word without lower-case letters is a token; what follows it in the same brackets, if it is a name, is its
//! argument. Rows are constants: a test parses all of them, and nothing else is ever parsed.

use thiserror::Error;

/// One argument, or a group of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    pub name: String,
    pub kind: Kind,
    pub token: Option<String>,
    pub optional: bool,
    pub multiple: bool,
    /// Where it is repeated, its token is so too.
    pub multiple_token: bool,
    /// The alternatives of a [`Kind::OneOf`], the parts of a [`Kind::Block`].
    pub children: Vec<Argument>,
    /// Of a [`Kind::Key`]: how many came before it. A command with fewer key specifications has the last for the rest.
    pub key_spec_index: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    String,
    Integer,
    Double,
    Key,
    Pattern,
    UnixTime,
    PureToken,
    OneOf,
    Block,
}

/// The notation was not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{problem}, at byte {at}")]
pub struct SyntaxError {
    pub problem: &'static str,
    pub at: usize,
}

/// The tree of a row's arguments.
pub fn parse(syntax: &str) -> Result<Vec<Argument>, SyntaxError> {
    let mut parser = Parser { syntax, at: 0, keys: 0 };
    let mut arguments = Vec::new();
    while parser.peek().is_some() {
        arguments.push(parser.argument()?);
    }
    Ok(arguments)
}

/// The arguments as people write them: `key value [NX | XX] [GET] [EX seconds | PX milliseconds]`.
pub fn usage(syntax: &str) -> String {
    match parse(syntax) {
        Ok(arguments) => joined(&arguments, " "),
        Err(_) => syntax.to_owned(),
    }
}

impl Kind {
    /// Its name in `COMMAND DOCS`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::String => "string",
            Kind::Integer => "integer",
            Kind::Double => "double",
            Kind::Key => "key",
            Kind::Pattern => "pattern",
            Kind::UnixTime => "unix-time",
            Kind::PureToken => "pure-token",
            Kind::OneOf => "oneof",
            Kind::Block => "block",
        }
    }

    /// The type after a colon; groups are known by their parentheses.
    fn written(word: &str) -> Option<Kind> {
        let scalars =
            [Kind::String, Kind::Integer, Kind::Double, Kind::Key, Kind::Pattern, Kind::UnixTime, Kind::PureToken];
        scalars.into_iter().find(|kind| kind.name() == word)
    }
}

impl Argument {
    fn new(name: &str, kind: Kind) -> Argument {
        Argument {
            name: name.to_owned(),
            kind,
            token: None,
            optional: false,
            multiple: false,
            multiple_token: false,
            children: Vec::new(),
            key_spec_index: None,
        }
    }

    /// A part of [`usage`].
    fn usage(&self) -> String {
        let body = match self.kind {
            Kind::PureToken => String::new(),
            Kind::Block => joined(&self.children, " "),
            Kind::OneOf if self.optional && !self.multiple && self.token.is_none() => joined(&self.children, " | "),
            Kind::OneOf => format!("<{}>", joined(&self.children, " | ")),
            _ => self.name.clone(),
        };
        let once = match &self.token {
            Some(token) if body.is_empty() => token.clone(),
            Some(token) => format!("{token} {body}"),
            None => body.clone(),
        };
        let all = match (self.multiple, self.multiple_token || self.token.is_none()) {
            (false, _) => once,
            (true, true) => format!("{once} [{once} ...]"),
            (true, false) => format!("{once} [{body} ...]"),
        };
        if self.optional { format!("[{all}]") } else { all }
    }
}

fn joined(arguments: &[Argument], separator: &str) -> String {
    arguments.iter().map(Argument::usage).collect::<Vec<_>>().join(separator)
}

struct Parser<'s> {
    syntax: &'s str,
    at: usize,
    /// How many keys were met.
    keys: usize,
}

impl<'s> Parser<'s> {
    fn argument(&mut self) -> Result<Argument, SyntaxError> {
        if !self.eat("[") {
            let mut argument = self.unit()?;
            argument.multiple = self.eat_here("...");
            return Ok(argument);
        }
        let mut argument = self.argument()?;
        if !self.eat("]") {
            return self.fail("brackets hold one argument and are closed");
        }
        argument.optional = true;
        if self.eat_here("...") {
            argument.multiple = true;
            argument.multiple_token = argument.token.is_some() && argument.kind != Kind::PureToken;
        }
        Ok(argument)
    }

    fn unit(&mut self) -> Result<Argument, SyntaxError> {
        let word = self.word()?;
        if !is_token(word) {
            let argument = self.named(word)?;
            return if argument.kind == Kind::PureToken {
                self.fail("a pure token needs a token")
            } else {
                Ok(argument)
            };
        }
        let after_token = self.at;
        let mut argument = match self.word() {
            Ok(name) if !is_token(name) => self.named(name)?,
            _ => {
                self.at = after_token;
                Argument::new(&word.to_ascii_lowercase(), Kind::PureToken)
            }
        };
        argument.token = Some(word.to_owned());
        Ok(argument)
    }

    /// What follows a name: nothing, a type or a group.
    fn named(&mut self, name: &str) -> Result<Argument, SyntaxError> {
        let kind = if !self.eat_here(":") {
            if name == "key" { Kind::Key } else { Kind::String }
        } else if self.eat_here("(") {
            return self.group(name);
        } else {
            match Kind::written(self.word()?) {
                Some(kind) => kind,
                None => return self.fail("an unknown type"),
            }
        };
        let mut argument = Argument::new(name, kind);
        if kind == Kind::Key {
            argument.key_spec_index = Some(self.keys);
            self.keys += 1;
        }
        Ok(argument)
    }

    fn group(&mut self, name: &str) -> Result<Argument, SyntaxError> {
        let mut children = vec![self.argument()?];
        let kind = if self.peek() == Some(b'|') { Kind::OneOf } else { Kind::Block };
        while !self.eat(")") {
            if kind == Kind::OneOf && !self.eat("|") {
                return self.fail("an alternative is one argument");
            }
            children.push(self.argument()?);
        }
        Ok(Argument { children, ..Argument::new(name, kind) })
    }

    /// The next byte that is not a space; spaces are skipped.
    fn peek(&mut self) -> Option<u8> {
        let rest = &self.syntax[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        self.syntax.as_bytes().get(self.at).copied()
    }

    fn eat(&mut self, mark: &str) -> bool {
        self.peek();
        self.eat_here(mark)
    }

    /// Without a space in front.
    fn eat_here(&mut self, mark: &str) -> bool {
        let found = self.syntax[self.at..].starts_with(mark);
        self.at += if found { mark.len() } else { 0 };
        found
    }

    fn word(&mut self) -> Result<&'s str, SyntaxError> {
        self.peek();
        let rest = &self.syntax[self.at..];
        let end = rest.find(|c: char| c.is_whitespace() || "[]()|:".contains(c)).unwrap_or(rest.len());
        let word = &rest[..rest[..end].find("...").unwrap_or(end)];
        if word.is_empty() {
            return self.fail("a word was expected");
        }
        self.at += word.len();
        Ok(word)
    }

    fn fail<T>(&self, problem: &'static str) -> Result<T, SyntaxError> {
        Err(SyntaxError { problem, at: self.at })
    }
}

fn is_token(word: &str) -> bool {
    !word.bytes().any(|byte| byte.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tree in short: `name:kind`, the token after `=`, `?` optional, `*` multiple, `**` token and all.
    fn tree(syntax: &str) -> String {
        fn short(argument: &Argument) -> String {
            let mut text = format!("{}:{}", argument.name, argument.kind.name());
            if let Some(token) = &argument.token {
                text += &format!("={token}");
            }
            if let Some(index) = argument.key_spec_index {
                text += &format!("#{index}");
            }
            text += if argument.optional { "?" } else { "" };
            text += if argument.multiple { "*" } else { "" };
            text += if argument.multiple_token { "*" } else { "" };
            if !argument.children.is_empty() {
                text += &format!("({})", argument.children.iter().map(short).collect::<Vec<_>>().join(" "));
            }
            text
        }
        parse(syntax).unwrap().iter().map(short).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn names_types_and_tokens() {
        assert_eq!(tree(""), "");
        assert_eq!(tree("  "), "");
        assert_eq!(tree("key value"), "key:key#0 value:string");
        assert_eq!(tree("source:key destination:key"), "source:key#0 destination:key#1");
        assert_eq!(
            tree("a:string b:integer c:double d:pattern e:unix-time"),
            "a:string b:integer c:double d:pattern e:unix-time"
        );
        assert_eq!(tree("GET"), "get:pure-token=GET");
        assert_eq!(tree("ID client-id:integer"), "client-id:integer=ID");
        assert_eq!(tree("NX XX"), "nx:pure-token=NX xx:pure-token=XX");
        assert_eq!(tree("= equal:pure-token value"), "equal:pure-token== value:string");
    }

    #[test]
    fn groups() {
        assert_eq!(tree("mode:(ON|OFF)"), "mode:oneof(on:pure-token=ON off:pure-token=OFF)");
        assert_eq!(
            tree("[expiration:(EX seconds:integer | PX milliseconds:integer|KEEPTTL)]"),
            "expiration:oneof?(seconds:integer=EX milliseconds:integer=PX keepttl:pure-token=KEEPTTL)"
        );
        assert_eq!(tree("data:(key value)..."), "data:block*(key:key#0 value:string)");
        assert_eq!(
            tree("[LIMIT limit:(offset:integer count:integer)]"),
            "limit:block=LIMIT?(offset:integer count:integer)"
        );
        assert_eq!(tree("a:(b:(c d)|e)"), "a:oneof(b:block(c:string d:string) e:string)");
        assert_eq!(tree("a:(b [c])"), "a:block(b:string c:string?)");
    }

    #[test]
    fn repetition() {
        assert_eq!(tree("key..."), "key:key#0*");
        assert_eq!(tree("[pattern:pattern...]"), "pattern:pattern?*");
        assert_eq!(tree("[pattern:pattern]..."), "pattern:pattern?*");
        assert_eq!(tree("[GET pattern]..."), "pattern:string=GET?**");
        assert_eq!(tree("[WEIGHTS weight:integer...]"), "weight:integer=WEIGHTS?*");
        assert_eq!(tree("[BCAST]..."), "bcast:pure-token=BCAST?*");
    }

    #[test]
    fn what_is_not_the_notation_is_refused() {
        for (syntax, problem, at) in [
            ("key:strin", "an unknown type", 9),
            ("key:", "a word was expected", 4),
            ("[key", "brackets hold one argument and are closed", 4),
            ("[key value]", "brackets hold one argument and are closed", 5),
            ("[]", "a word was expected", 1),
            ("key]", "a word was expected", 3),
            ("(A|B)", "a word was expected", 0),
            ("a:(B|C", "an alternative is one argument", 6),
            ("a:(b|c d)", "an alternative is one argument", 7),
            ("a:(b c|d)", "a word was expected", 6),
            ("a:()", "a word was expected", 3),
            ("a:pure-token", "a pure token needs a token", 12),
            ("key ...", "a word was expected", 4),
        ] {
            assert_eq!(parse(syntax), Err(SyntaxError { problem, at }), "{syntax}");
        }
        let error = parse("[key").unwrap_err();
        assert_eq!(error.to_string(), "brackets hold one argument and are closed, at byte 4");
    }

    #[test]
    fn usage_is_what_people_write() {
        for (syntax, expected) in [
            ("", ""),
            ("key...", "key [key ...]"),
            ("[pattern:pattern]...", "[pattern [pattern ...]]"),
            ("data:(key value)...", "key value [key value ...]"),
            ("[GET pattern]...", "[GET pattern [GET pattern ...]]"),
            ("WEIGHTS weight:integer...", "WEIGHTS weight [weight ...]"),
            ("mode:(ON|OFF)", "<ON | OFF>"),
            ("[TYPE type:(NORMAL|PUBSUB)]", "[TYPE <NORMAL | PUBSUB>]"),
            ("[DB destination-db:integer] [REPLACE]", "[DB destination-db] [REPLACE]"),
            (
                "key value [condition:(NX|XX)] [GET] [expiration:(EX seconds:integer|PX milliseconds:integer)]",
                "key value [NX | XX] [GET] [EX seconds | PX milliseconds]",
            ),
        ] {
            assert_eq!(usage(syntax), expected);
        }
    }
}
