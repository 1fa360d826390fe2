//! What the README and the pages in `docs/` say is what the program does.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::common::{Client, Kind, Server, Value, wait_until};
use emberdb::config::{self, Start, generate};

/// Of the README, so that it stays a page.
const README_BYTES_MAX: usize = 10 * 1024;
/// How long the reply of a session may take to be what the page shows: a key there has to die first.
const LIMIT: Duration = Duration::from_secs(10);
const PROMPT: &str = "127.0.0.1:6379> ";
/// Commands that may be given again until the reply is what the page shows, since they change nothing.
const REPEATABLE: &[&str] = &["GET", "SMEMBERS", "TTL", "XRANGE", "ZRANGE"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The README and all pages.
fn pages() -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("docs")).expect("docs");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let pages = paths.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let others = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "tests/README.md", "examples/README.md"];
    others.iter().map(|name| root().join(name)).chain(pages).collect()
}

#[test]
fn the_readme_is_a_page() {
    let bytes = read(&root().join("README.md")).len();
    assert!(bytes <= README_BYTES_MAX, "{bytes} bytes");
}

#[test]
fn the_page_about_configuration_is_that_of_the_directives() {
    let page = generate("configuration").expect("such a page");
    let remedy = "emberdb --generate configuration > docs/configuration.md";
    assert!(read(&root().join("docs/configuration.md")).trim_end() == page, "not up to date: {remedy}");
}

#[test]
fn links_lead_to_what_is_there() {
    for path in pages() {
        let text = read(&path);
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains("://")) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let there = if file.is_empty() { path.clone() } else { path.parent().expect("a folder").join(file) };
            assert!(there.exists(), "{}: {target}", path.display());
            // (What has no headings may be a picture.)
            let has_it = heading.is_empty() || headings(&read(&there)).contains(heading);
            assert!(has_it, "{}: {target}", path.display());
        }
    }
}

/// Headings as links name them.
fn headings(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| line.starts_with('#'));
    let named = lines.map(|line| line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-"));
    let is_kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, '-' | '_');
    named.map(|name| name.chars().filter(is_kept).collect()).collect()
}

/// Every folder of results has a row in their index, and no row is about one that is not there.
#[test]
fn results_are_those_of_their_index() {
    let results = root().join("bench-results");
    let text = read(&results.join("INDEX.md"));
    let cells = text.lines().filter_map(|line| line.split('|').nth(3)).filter(|cell| cell.contains("-2core-linux"));
    let named: BTreeSet<String> = cells.map(|cell| cell.trim().trim_matches('`').to_owned()).collect();
    let folders = |of: &Path| fs::read_dir(of).expect("a folder").map(|entry| entry.expect("an entry").path());
    let days = folders(&results).filter(|path| path.is_dir());
    let there = days.flat_map(|day| folders(&day).collect::<Vec<_>>());
    let there = there.map(|path| path.strip_prefix(&results).expect("below it").to_string_lossy().into_owned());
    assert_eq!(named, there.collect());
}

#[test]
fn files_of_configuration_in_pages_can_be_read() {
    let mut seen = 0;
    for path in pages() {
        for block in read(&path).split("```conf\n").skip(1) {
            let text = block.split("```").next().expect("its end");
            configured(text);
            seen += 1;
        }
    }
    assert!(seen > 0);
}

fn configured(text: &str) -> config::Config {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("emberdb.conf");
    fs::write(&path, text).expect("written");
    match config::load(&[path.display().to_string()]) {
        Ok(Start::Run(config)) => *config,
        Ok(other) => panic!("{other:?}"),
        Err(error) => panic!("{error}\n{text}"),
    }
}

#[test]
fn the_file_of_packages_sets_what_a_service_needs_and_nothing_else() {
    let file = generate("emberdb.conf").expect("such a file");
    let packaged = configured(&file);
    let in_force = |config: &config::Config| config.get(|_| true);
    let differing: Vec<_> =
        in_force(&packaged).into_iter().filter(|row| !in_force(&configured("")).contains(row)).collect();
    let value = |text: &str| text.to_owned();
    assert_eq!(differing, [("dir", value("/var/lib/emberdb")), ("appendonly", value("yes"))]);
    // Each line behind a # is the default.
    let is_directive = |rest: &&str| rest.starts_with(|first: char| first.is_ascii_lowercase());
    let all: String = file
        .lines()
        .map(|line| line.strip_prefix('#').filter(is_directive).unwrap_or(line))
        .flat_map(|line| [line, "\n"])
        .collect();
    assert!(all.len() < file.len());
    assert_eq!(in_force(&configured(&all)), in_force(&packaged));
}

/// What a shell and man(1) get of all programs.
#[test]
fn what_packages_need_is_generated() {
    let said = |program: &str, name: &str| {
        let output = Command::new(program).args(["--generate", name]).output().expect("it runs");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (server, bench) = (env!("CARGO_BIN_EXE_emberdb"), env!("CARGO_BIN_EXE_emberdb-bench"));
    let top = env!("CARGO_BIN_EXE_emberdb-top");
    for name in ["configuration", "emberdb.1", "emberdb.conf.5", "emberdb.conf", "bash", "zsh", "fish"] {
        let (succeeded, text) = said(server, name);
        assert!(succeeded && text.contains("emberdb"), "{name}: {text}");
    }
    for name in ["man", "bash", "zsh", "fish"] {
        let (succeeded, text) = said(bench, name);
        assert!(succeeded && text.contains("pipeline"), "{name}: {text}");
        let (succeeded, text) = said(top, name);
        assert!(succeeded && text.contains("interval"), "{name}: {text}");
    }
    assert!(![server, bench, top].iter().any(|program| said(program, "nothing").0));
}

/// Every session, from above, page by page, against a server of its own.
#[test]
fn sessions_answer_what_the_pages_show() {
    let mut seen = 0;
    for path in pages() {
        let text = read(&path);
        let sessions: Vec<Session> = sessions(&text);
        if sessions.is_empty() {
            continue;
        }
        let server = Server::start(Kind::Ember { shards: 1 }, &[]);
        let mut client = server.client();
        for session in &sessions {
            let mut known = BTreeMap::new();
            for step in &session.steps {
                run(&mut client, step, &session.varying, &mut known, &path);
                seen += 1;
            }
        }
    }
    assert!(seen >= 40, "{seen} commands");
}

struct Session<'a> {
    steps: Vec<Step<'a>>,
    /// What is another one each time: a comment before the block lists it. Commands behind it say what it is this time.
    varying: Vec<&'a str>,
}

struct Step<'a> {
    command: &'a str,
    reply: Vec<&'a str>,
}

fn sessions(text: &str) -> Vec<Session<'_>> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("```console\n") {
        let block = &text[at + "```console\n".len()..];
        let block = block.split("\n```").next().expect("its end");
        let before = text[..at].trim_end().lines().last().unwrap_or_default();
        let varying = before.strip_prefix("<!-- varies: ").and_then(|list| list.strip_suffix(" -->"));
        let varying = varying.map(|list| list.split(", ").collect()).unwrap_or_default();
        let mut steps: Vec<Step> = Vec::new();
        for line in block.lines() {
            match (line.strip_prefix(PROMPT), steps.last_mut()) {
                (Some(command), _) => steps.push(Step { command, reply: Vec::new() }),
                (None, Some(step)) => step.reply.push(line),
                // `$ redis-cli`, or a session with something else, which other tests are about.
                (None, None) => {}
            }
        }
        if !steps.is_empty() {
            found.push(Session { steps, varying });
        }
    }
    found
}

fn run<'a>(client: &mut Client, step: &Step, varying: &[&'a str], known: &mut BTreeMap<&'a str, String>, path: &Path) {
    let this_time = |word: String| known.get(&word[..]).cloned().unwrap_or(word);
    let words: Vec<String> = words(step.command).into_iter().map(this_time).collect();
    let may_repeat = REPEATABLE.contains(&words[0].as_str());
    let mut shown = Vec::new();
    let is_so = |shown: &[String]| {
        shown.len() == step.reply.len()
            && shown.iter().zip(&step.reply).all(|(is, said)| is == said || but_for(is, said, varying).is_some())
    };
    wait_until(LIMIT, || {
        shown = lines(&client.command(&words));
        // Messages that are pushed.
        while shown.len() < step.reply.len() && words[0].ends_with("SUBSCRIBE") {
            shown.extend(lines(&client.read()));
        }
        is_so(&shown) || !may_repeat
    });
    assert!(is_so(&shown), "{}: {}\n{}", path.display(), step.command, shown.join("\n"));
    for (is, said) in shown.iter().zip(&step.reply) {
        known.extend(but_for(is, said, varying).map(|(value, rest)| (value, rest.to_owned())));
    }
}

/// Where a line is what the page says but for one of these that stands in it: which one, and what stands there.
fn but_for<'a, 'i>(is: &'i str, said: &str, varying: &[&'a str]) -> Option<(&'a str, &'i str)> {
    varying.iter().find_map(|value| {
        let (before, after) = said.split_once(value)?;
        let rest = is.strip_prefix(before).and_then(|rest| rest.strip_suffix(after))?;
        let is_number = rest.chars().all(|letter| letter.is_ascii_digit() || ".-".contains(letter));
        (!rest.is_empty() && is_number).then_some((*value, rest))
    })
}

/// The words of a command as redis-cli reads them, but for escapes.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (index, part) in line.split('"').enumerate() {
        match index % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

/// A reply as redis-cli shows it.
fn lines(value: &Value) -> Vec<String> {
    match value {
        Value::Simple(text) => vec![String::from_utf8_lossy(text).into_owned()],
        Value::Error(text) => vec![format!("(error) {text}")],
        Value::Int(number) => vec![format!("(integer) {number}")],
        Value::Bulk(text) => vec![format!("\"{}\"", String::from_utf8_lossy(text).replace('"', "\\\""))],
        Value::NullBulk | Value::NullArray => vec!["(nil)".to_owned()],
        Value::Array(items) if items.is_empty() => vec!["(empty array)".to_owned()],
        Value::Array(items) => {
            let width = items.len().to_string().len();
            let numbered = items.iter().enumerate().flat_map(|(index, item)| {
                let head = format!("{:width$}) ", index + 1);
                let blanks = " ".repeat(head.len());
                let inner = lines(item).into_iter().enumerate();
                inner
                    .map(move |(row, line)| format!("{}{line}", if row == 0 { &head } else { &blanks }))
                    .collect::<Vec<_>>()
            });
            numbered.collect()
        }
        other => panic!("sessions are in RESP2: {other:?}"),
    }
}
