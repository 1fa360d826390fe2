//! The syntax of redis.conf and of the command line, and what a person reads when either is wrong.
//!
//! A line is a name and its values: blanks between words, `#` in front of a comment, `"..."` with the escapes
//! `\n \r \t \a \b \" \\ \xHH`, `'...'` with `\'` alone. `include path` reads another file in that place; a
//! relative path counts from the directory the server was started in. The last value wins. An option of the command
//! line is such a line, its values already apart.

use glob::MatchOptions;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::directive::Directive;
use super::directives::{self, DIRECTIVES};
use super::generate;
use super::help::{VERSION, help, version};
use super::nearest::nearest;
use super::users::UserLine;
use super::values::{Kind, ValueError};
use super::{Config, REDACTED, values};

/// What the command line asks for.
#[derive(Debug)]
pub enum Start {
    Run(Box<Config>),
    /// To say what it would do, and no more.
    Check(Box<Config>),
    /// To ask a server that runs with this whether it is well.
    Healthcheck(Box<Config>),
    /// Text to print, without a last line break.
    Help(String),
    /// Text to print, without a last line break.
    Version(String),
}

/// Why the server does not start, in the several lines that users of Redis know.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(
        "*** FATAL CONFIG FILE ERROR (EmberDB {VERSION}) ***\n\
         Can't open the configuration file '{}': {error}{}", .path.display(), HintLine(.hint)
    )]
    Open { path: PathBuf, error: io::Error, hint: Option<String> },
    #[error(
        "*** FATAL CONFIG FILE ERROR (EmberDB {VERSION}) ***\n\
         {place}\n>>> '{}'\n{reason}{}", Shown(.line), HintLine(&.reason.hint())
    )]
    Line { place: Place, line: String, reason: Box<Reason> },
}

/// Where the wrong line stands. Line numbers count from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    File { line: usize },
    Included { path: PathBuf, line: usize },
    CommandLine,
}

/// What is wrong with a line.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    #[error("Unknown directive '{}'", name_alone(.name))]
    UnknownName { name: String },
    #[error("Options begin with '--'")]
    NotAnOption { word: String },
    #[error("{error}")]
    Value { directive: &'static str, args: Vec<String>, error: ValueError },
    #[error("Unbalanced quotes in configuration line")]
    Quotes,
    #[error("The value is not valid UTF-8")]
    NotUtf8,
    #[error("{0}")]
    Unavailable(&'static str),
    #[error("--generate takes one name of these: {}", .0.join(", "))]
    NotGenerated(Vec<&'static str>),
    #[error("include takes exactly one path")]
    IncludeCount,
    #[error("Can't open the included file '{}': {error}", .path.display())]
    Include { path: PathBuf, error: io::Error },
    #[error("Files include each other more than {INCLUDE_DEPTH_MAX} deep; does one include itself?")]
    IncludeDepth,
}

const CHECK: &str = "--check";
const HEALTHCHECK: &str = "--healthcheck";

/// Reads the command line (`args` without the program's name) and the file it names.
///
/// Errors: a file that cannot be read, an unknown name, a value that is not valid; the first one found.
pub fn load(args: &[String]) -> Result<Start, StartError> {
    let (file, options) = match args.split_first() {
        Some((first, _)) if first == "-h" => return Ok(Start::Help(help())),
        Some((first, _)) if first == "-v" => return Ok(Start::Version(version())),
        Some((first, rest)) if first == "--generate" => return generated(rest).map(Start::Help),
        Some((first, rest)) if first == "-" || !first.starts_with('-') => (Some(first), rest),
        _ => (None, args),
    };
    if options.iter().any(|option| option == "--help") {
        return Ok(Start::Help(help()));
    }
    if options.iter().any(|option| option == "--version") {
        return Ok(Start::Version(version()));
    }
    let asks = |option: &str| options.iter().any(|word| word == option);
    let (checks, asks_for_health) = (asks(CHECK), asks(HEALTHCHECK));
    let options: Vec<String> =
        options.iter().filter(|word| ![CHECK, HEALTHCHECK].contains(&word.as_str())).cloned().collect();

    let mut config =
        Config { started_in: std::env::current_dir().unwrap_or_else(|_| PathBuf::from(".")), ..Config::default() };
    match file.map(String::as_str) {
        Some("-") => {
            let bytes = read_all(io::stdin().lock()).map_err(|error| StartError::Open {
                path: "-".into(),
                error,
                hint: None,
            })?;
            read_file(&mut config, &bytes, None, 0)?;
            config.input = Some(bytes);
        }
        Some(path) => {
            let absolute = std::path::absolute(path).unwrap_or_else(|_| config.started_in.join(path));
            let bytes = open(&absolute).map_err(|error| StartError::Open {
                path: path.into(),
                error,
                hint: directives::find(path).map(|row| format!("Did you mean '--{}'?", row.name)),
            })?;
            config.file = Some(absolute);
            read_file(&mut config, &bytes, None, 0)?;
        }
        None => {}
    }
    for (text, words) in split_options(&options, file.is_some())? {
        let fail = |reason: Reason| StartError::Line {
            place: Place::CommandLine,
            line: text.clone(),
            reason: Box::new(reason),
        };
        let statement = Statement::parse(words).map_err(fail)?;
        statement.run(&mut config, 0, fail)?;
    }
    let config = Box::new(config);
    Ok(match (checks, asks_for_health) {
        (true, _) => Start::Check(config),
        (false, true) => Start::Healthcheck(config),
        (false, false) => Start::Run(config),
    })
}

/// What `--generate` prints.
fn generated(names: &[String]) -> Result<String, StartError> {
    let text = if let [name] = names { generate::generate(name) } else { None };
    text.ok_or_else(|| StartError::Line {
        place: Place::CommandLine,
        line: format!("--generate {}", names.join(" ")).trim_end().to_owned(),
        reason: Box::new(Reason::NotGenerated(generate::names().collect())),
    })
}

/// One line, understood.
pub(super) enum Statement {
    Nothing,
    Include(PathBuf),
    Set(&'static Directive, Vec<String>),
    /// Names and patterns of users are any bytes.
    User(UserLine),
}

impl Statement {
    pub(super) fn parse_line(line: &[u8]) -> Result<Statement, Reason> {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            return Ok(Statement::Nothing);
        }
        let words = split_bytes(line)?;
        if is_user(words.first().map(Vec::as_slice)) {
            return Ok(Statement::User(words.into_iter().skip(1).collect()));
        }
        Statement::parse(texts(words)?)
    }

    fn parse(words: Vec<String>) -> Result<Statement, Reason> {
        if is_user(words.first().map(String::as_bytes)) {
            return Ok(Statement::User(words.into_iter().skip(1).map(String::into_bytes).collect()));
        }
        let mut words = words.into_iter();
        let Some(name) = words.next() else {
            return Ok(Statement::Nothing);
        };
        let args: Vec<String> = words.collect();
        if name.eq_ignore_ascii_case("include") {
            return match args.as_slice() {
                [path] => Ok(Statement::Include(path.into())),
                _ => Err(Reason::IncludeCount),
            };
        }
        if let Some((_, why)) = UNAVAILABLE.iter().find(|(absent, _)| name.eq_ignore_ascii_case(absent)) {
            return Err(Reason::Unavailable(why));
        }
        match directives::find(&name) {
            Some(directive) => Ok(Statement::Set(directive, args)),
            None => Err(Reason::UnknownName { name }),
        }
    }

    /// Does what the line says. `fail` knows where it stands.
    pub(super) fn run(
        self,
        config: &mut Config,
        depth: usize,
        fail: impl Fn(Reason) -> StartError,
    ) -> Result<(), StartError> {
        match self {
            Statement::Nothing => Ok(()),
            Statement::User(line) => {
                config.users.push(line);
                Ok(())
            }
            Statement::Include(path) => {
                if depth == INCLUDE_DEPTH_MAX {
                    return Err(fail(Reason::IncludeDepth));
                }
                for path in included(&config.started_in, &path) {
                    match open(&path) {
                        Ok(bytes) => read_file(config, &bytes, Some(&path), depth + 1)?,
                        Err(error) => return Err(fail(Reason::Include { path, error })),
                    }
                }
                Ok(())
            }
            Statement::Set(directive, args) => assign(config, directive, &args)
                .map_err(|error| fail(Reason::Value { directive: directive.name, args, error })),
        }
    }
}

impl Reason {
    /// What may help, beyond the reason.
    pub fn hint(&self) -> Option<String> {
        match self {
            Reason::UnknownName { name } => {
                if let Some((name, value)) = name.split_once('=')
                    && let Some(directive) = directives::find(name)
                {
                    let value = if directive.kind.is_secret() { REDACTED } else { value };
                    return Some(format!("Did you mean '{name} {value}'?"));
                }
                let known = DIRECTIVES.iter().map(|row| row.name);
                Some(match nearest(name, known.chain(["include"])) {
                    Some(near) => format!("Did you mean '{near}'?"),
                    None => "All directives: emberdb --help".to_string(),
                })
            }
            Reason::NotAnOption { word } => {
                let word = word.trim_start_matches('-');
                let known = DIRECTIVES.iter().map(|row| row.name);
                let near = nearest(word, known.chain(["help", "version"]))?;
                Some(format!("Did you mean '--{near}'?"))
            }
            Reason::Value { directive, args, .. } => directives::find(directive)?.kind.hint(args),
            Reason::NotUtf8 => Some("Names and values are text in UTF-8.".to_string()),
            _ => None,
        }
    }
}

/// A line as whoever reads the log may see it: the value is left out where it may be a password, misspelled names included.
struct Shown<'a>(&'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(end) = self.0.find([' ', '\t', '=']) else { return f.write_str(self.0) };
        let name = self.0[..end].trim_matches(['-', '"', '\'']);
        let is_meant = nearest(name, DIRECTIVES.iter().map(|row| row.name).chain(["user"]));
        let is_directive = is_meant.and_then(directives::find).is_some_and(|row| row.kind.is_secret());
        let is_secret = is_directive || is_meant.is_some_and(|name| is_user(Some(name.as_bytes())));
        if is_secret { write!(f, "{} {REDACTED}", &self.0[..end]) } else { f.write_str(self.0) }
    }
}

/// A name without the value that stands behind it in the same word.
fn name_alone(word: &str) -> &str {
    word.split('=').next().unwrap_or(word)
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File { line } => write!(f, "Reading the configuration file, at line {line}"),
            Place::Included { path, line } => {
                let path = path.display();
                write!(f, "Reading the included file '{path}', at line {line}")
            }
            Place::CommandLine => f.write_str("Reading the command line options"),
        }
    }
}

/// Lines that may stand in a file of Redis more than once, so that they are no directives with a value, and what is not
/// there yet that they ask for.
const UNAVAILABLE: &[(&str, &str)] = &[
    ("loadmodule", "modules are not available"),
    ("rename-command", "renaming and disabling commands is not available yet"),
];

fn is_user(name: Option<&[u8]>) -> bool {
    name.is_some_and(|name| name.eq_ignore_ascii_case(b"user"))
}

const INCLUDE_DEPTH_MAX: usize = 16;
/// So that `include /dev/zero` is an error and not the end of memory.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Reads a file below the size limit.
pub(super) fn open(path: &Path) -> io::Result<Vec<u8>> {
    read_all(File::open(path)?)
}

fn read_all(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("larger than {}", values::format_memory(FILE_BYTES_MAX))));
    }
    Ok(bytes)
}

/// The files of an `include`, in the order of their names. As in Redis, a pattern may have none, and names no hidden files.
fn included(folder: &Path, name: &Path) -> Vec<PathBuf> {
    let path = folder.join(name);
    let is_pattern = name.to_str().is_some_and(|name| name.contains(['*', '?', '[']));
    if !is_pattern || path.exists() {
        return vec![path];
    }
    // (Two stars mean the same as one.)
    let mut pattern =
        PathBuf::from(glob::Pattern::escape(&folder.to_string_lossy())).join(name).to_string_lossy().into_owned();
    while pattern.contains("**") {
        pattern = pattern.replace("**", "*");
    }
    let options =
        MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };
    match glob::glob_with(&pattern, options) {
        Ok(found) => found.filter_map(|path| path.ok()).filter(|path| !path.is_dir()).collect(),
        Err(_) => vec![path],
    }
}

/// Runs all lines. `included` is none for the file the server was started from.
fn read_file(config: &mut Config, bytes: &[u8], included: Option<&Path>, depth: usize) -> Result<(), StartError> {
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let fail = |reason| fail_at(included, index, line, reason);
        let statement = Statement::parse_line(line).map_err(fail)?;
        statement.run(config, depth, fail)?;
    }
    Ok(())
}

/// The error for a line, counted from 0.
pub(super) fn fail_at(included: Option<&Path>, index: usize, line: &[u8], reason: Reason) -> StartError {
    let line_number = index + 1;
    StartError::Line {
        place: match included {
            None => Place::File { line: line_number },
            Some(path) => Place::Included { path: path.to_path_buf(), line: line_number },
        },
        line: String::from_utf8_lossy(line.trim_ascii()).into_owned(),
        reason: Box::new(reason),
    }
}

fn assign(config: &mut Config, directive: &'static Directive, args: &[String]) -> Result<(), ValueError> {
    let mut words: Vec<&str> = args.iter().map(String::as_str).collect();
    if directive.kind.is_list() {
        // One quoted word may hold the whole list, as in `--bind "127.0.0.1 ::1"`; an empty one is an empty list.
        if words.is_empty() && !matches!(directive.kind, Kind::SavePoints) {
            return Err(ValueError::WrongCount);
        }
        // (A prefix and its policy are words in their own right: the prefix may be empty.)
        if !matches!(directive.kind, Kind::ExpiryPolicy) || words.len() == 1 && !words[0].is_empty() {
            words = words.iter().flat_map(|word| word.split_whitespace()).collect();
        }
    }
    config.assign(directive, &words)
}

/// Options as lines: for each its text, and its words without the dashes. As in Redis the first behind a file may do without.
fn split_options(args: &[String], has_file: bool) -> Result<Vec<(String, Vec<String>)>, StartError> {
    let mut options: Vec<(String, Vec<String>)> = Vec::new();
    for arg in args {
        if let Some(option) = arg.strip_prefix("--") {
            // `"--port 7777"` in one argument, as scripts for Redis have it, perhaps with quotes.
            let plain = || option.split_ascii_whitespace().map(str::to_owned).collect();
            let words: Vec<String> = split_bytes(option.as_bytes()).and_then(texts).unwrap_or_else(|_| plain());
            options.push((arg.clone(), if words.is_empty() { vec![String::new()] } else { words }));
        } else if let Some((text, words)) = options.last_mut() {
            text.push(' ');
            text.push_str(&shell_word(arg));
            words.push(arg.clone());
        } else if has_file && directives::find(arg).is_some() {
            options.push((arg.clone(), vec![arg.clone()]));
        } else {
            return Err(StartError::Line {
                place: Place::CommandLine,
                line: arg.clone(),
                reason: Box::new(Reason::NotAnOption { word: arg.clone() }),
            });
        }
    }
    Ok(options)
}

fn shell_word(arg: &str) -> String {
    if arg.is_empty() || arg.contains(|letter: char| letter.is_whitespace() || letter == '"') {
        values::quote(arg)
    } else {
        arg.to_string()
    }
}

fn texts(words: Vec<Vec<u8>>) -> Result<Vec<String>, Reason> {
    words.into_iter().map(|word| String::from_utf8(word).map_err(|_| Reason::NotUtf8)).collect()
}

/// A line's words, quotes and escapes resolved; `None` where quotes do not match.
pub fn split_arguments(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    split_bytes(line).ok()
}

fn split_bytes(line: &[u8]) -> Result<Vec<Vec<u8>>, Reason> {
    let mut words = Vec::new();
    let mut rest = line.trim_ascii_start();
    while !rest.is_empty() {
        let word;
        (word, rest) = split_word(rest)?;
        words.push(word);
        rest = rest.trim_ascii_start();
    }
    Ok(words)
}

/// The first word and what follows it. Quotes may begin within a word but must end it.
fn split_word(mut rest: &[u8]) -> Result<(Vec<u8>, &[u8]), Reason> {
    let mut word = Vec::new();
    loop {
        match rest {
            [] => return Ok((word, rest)),
            [b'"', tail @ ..] => {
                rest = double_quoted(tail, &mut word)?;
                return end_of_quoted(word, rest);
            }
            [b'\'', tail @ ..] => {
                rest = single_quoted(tail, &mut word)?;
                return end_of_quoted(word, rest);
            }
            [byte, ..] if byte.is_ascii_whitespace() => return Ok((word, rest)),
            [byte, tail @ ..] => {
                word.push(*byte);
                rest = tail;
            }
        }
    }
}

fn end_of_quoted(word: Vec<u8>, rest: &[u8]) -> Result<(Vec<u8>, &[u8]), Reason> {
    match rest.first() {
        Some(byte) if !byte.is_ascii_whitespace() => Err(Reason::Quotes),
        _ => Ok((word, rest)),
    }
}

fn double_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], Reason> {
    loop {
        match rest {
            [] => return Err(Reason::Quotes),
            [b'"', tail @ ..] => return Ok(tail),
            [b'\\', b'x', high, low, tail @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                word.push(hex_digit(*high) << 4 | hex_digit(*low));
                rest = tail;
            }
            [b'\\', escaped, tail @ ..] => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                rest = tail;
            }
            [byte, tail @ ..] => {
                word.push(*byte);
                rest = tail;
            }
        }
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], Reason> {
    loop {
        match rest {
            [] => return Err(Reason::Quotes),
            [b'\'', tail @ ..] => return Ok(tail),
            [b'\\', b'\'', tail @ ..] => {
                word.push(b'\'');
                rest = tail;
            }
            [byte, tail @ ..] => {
                word.push(*byte);
                rest = tail;
            }
        }
    }
}

/// The value of an ASCII hex digit.
fn hex_digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20).wrapping_sub(b'a').wrapping_add(10),
    }
}

struct HintLine<'a>(&'a Option<String>);

impl fmt::Display for HintLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|hint| write!(f, "\n{hint}"))
    }
}

#[cfg(test)]
mod tests;
