//! Who asks the server: three threads with a connection each, so that what takes long (LIVE NEXT and EXPIRY FORECAST walk over
//! the keys) keeps nothing else waiting. Each connects again, for as long as anybody listens.

use crate::flags::Login;
use crate::info::Info;
use crate::link::{Link, Result, Trouble};
use crate::text::escaped;
use emberdb::measure::resp::Value;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Next deaths that are asked for.
const DEATHS: usize = 100;
/// How far ahead is looked.
pub const HORIZONS: [&str; 3] = ["1m", "10m", "1h"];
/// So many times as long as a forecast took, nobody asks for another.
const RESTS: u32 = 50;
/// With more connections than that CLIENT LIST is not asked for.
const CLIENTS_LISTED: u64 = 1_000;
/// Until the next attempt where the server is not there, and where it does not want us: it may count what is refused.
const ANEW: Duration = Duration::from_millis(500);
const ANEW_REFUSED: Duration = Duration::from_secs(10);
/// Without news a listener asks whether the server is still there.
const SILENCE: Duration = Duration::from_secs(20);

/// News that nobody has heard yet: whoever tells more waits.
const UNHEARD: usize = 8;

/// What is known, or why it is not.
pub type Part<T> = std::result::Result<T, String>;

#[derive(Clone, Debug)]
pub struct Facts {
    pub at: Instant,
    pub info: Info,
    pub policies: Part<Vec<Policy>>,
    pub clients: Part<Vec<ClientRow>>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    pub prefix: String,
    pub words: String,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientRow {
    pub id: u64,
    pub addr: String,
    pub name: String,
    pub user: String,
    pub age_s: u64,
    pub idle_s: u64,
    pub bytes: u64,
    pub command: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Death {
    pub key: String,
    /// In milliseconds since 1970.
    pub at_ms: i64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Horizon {
    pub within: &'static str,
    pub keys: u64,
    pub bytes: u64,
}

pub enum Told {
    Facts(Box<Facts>),
    Deaths(Part<Vec<Death>>),
    Forecast(Part<Vec<Horizon>>),
    /// The server is away.
    Lost(String),
}

/// Begins to ask; what is dropped ends it.
pub fn start(login: Login, interval: Duration, prefix: Option<String>) -> Receiver<Told> {
    let (tell, told) = sync_channel(UNHEARD);
    let watcher = Watcher { login, interval, tell };
    if let Some(prefix) = prefix {
        let (deaths, forecast) = (watcher.clone(), watcher.clone());
        thread::spawn(move || deaths.again_and_again(|link| deaths.listen(link, prefix.as_bytes()), Told::Deaths));
        thread::spawn(move || forecast.again_and_again(|link| forecast.look_ahead(link), Told::Forecast));
    }
    thread::spawn(move || {
        let lost = |why: Part<Facts>| Told::Lost(why.err().unwrap_or_default());
        watcher.again_and_again(|link| watcher.look(link), lost);
    });
    told
}

#[derive(Clone)]
struct Watcher {
    login: Login,
    interval: Duration,
    tell: SyncSender<Told>,
}

/// Nobody listens any more.
struct Over;

impl Watcher {
    fn tell(&self, told: Told) -> std::result::Result<(), Over> {
        self.tell.send(told).map_err(|_| Over)
    }

    /// Connects and works until that fails, says why, and begins anew.
    fn again_and_again<T>(&self, work: impl Fn(&mut Link) -> Result<Over>, failed: impl Fn(Part<T>) -> Told) {
        loop {
            let (why, wait) = match Link::open(&self.login).and_then(|mut link| work(&mut link)) {
                Ok(Over) => return,
                Err(Trouble::Refused(why)) => (why, ANEW_REFUSED),
                Err(Trouble::Lost(why)) => (why, ANEW),
            };
            if self.tell(failed(Err(why))).is_err() {
                return;
            }
            thread::sleep(wait);
        }
    }

    fn look(&self, link: &mut Link) -> Result<Over> {
        loop {
            let began = Instant::now();
            // The whole of INFO has what each command has done, too.
            let info = match link.ask(&[b"INFO", b"everything"])? {
                Value::Text(text) => Info::parse(&text),
                _ => return Err(Trouble::Lost("INFO is answered by what is no text".to_owned())),
            };
            let at = Instant::now();
            let policies = match info.is_ember() {
                true => part(link.ask(&[b"EXPIRY", b"POLICY", b"LIST"]))?.map(|list| policies(&list)),
                false => Err("this server has no policies".to_owned()),
            };
            let connected = info.count("connected_clients").unwrap_or(0);
            let clients = match connected > CLIENTS_LISTED {
                true => Err(format!("more than {CLIENTS_LISTED} connections are not listed")),
                false => part(link.ask(&[b"CLIENT", b"LIST"]))?.map(|list| clients(&list)),
            };
            if self.tell(Told::Facts(Box::new(Facts { at, info, policies, clients }))).is_err() {
                return Ok(Over);
            }
            thread::sleep(self.interval.saturating_sub(began.elapsed()));
        }
    }

    fn listen(&self, link: &mut Link, prefix: &[u8]) -> Result<Over> {
        needs_ember(link, "live queries")?;
        let most = DEATHS.to_string();
        let reply = link.ask(&[b"LIVE", b"NEXT", prefix, most.as_bytes()])?;
        let mut next = items(&reply).get(1).map(deaths).unwrap_or_default();
        loop {
            if self.tell(Told::Deaths(Ok(next))).is_err() {
                return Ok(Over);
            }
            next = loop {
                let told = match link.told_before(Instant::now() + SILENCE)? {
                    Some(told) => told,
                    // The answer, [pong, ""] or that it may not be asked, is news that changes nothing.
                    None => part(link.ask(&[b"PING"]))?.unwrap_or(Value::Nil),
                };
                if let [Value::Text(kind), _, result] = items(&told)
                    && kind == b"live"
                {
                    break deaths(result);
                }
            };
        }
    }

    fn look_ahead(&self, link: &mut Link) -> Result<Over> {
        needs_ember(link, "forecasts")?;
        loop {
            let began = Instant::now();
            let mut horizons = Vec::new();
            for within in HORIZONS {
                let reply = link.ask(&[b"EXPIRY", b"FORECAST", within.as_bytes()])?;
                let of = |name: &[u8]| {
                    let pair = items(&reply).chunks_exact(2).find(|pair| pair[0].text() == Some(name));
                    pair.and_then(|pair| u64::try_from(pair[1].number()?).ok()).unwrap_or(0)
                };
                horizons.push(Horizon { within, keys: of(b"keys"), bytes: of(b"bytes") });
            }
            if self.tell(Told::Forecast(Ok(horizons))).is_err() {
                return Ok(Over);
            }
            thread::sleep(self.interval.max(began.elapsed() * RESTS));
        }
    }
}

/// Any other server is not asked for what only EmberDB has: it would count that as errors.
fn needs_ember(link: &mut Link, what: &str) -> Result<()> {
    match Info::parse(link.ask(&[b"INFO", b"server"])?.text().unwrap_or_default()).is_ember() {
        true => Ok(()),
        false => Err(Trouble::Refused(format!("this server has no {what}"))),
    }
}

/// What is refused is said in its place, and the rest goes on.
fn part(answer: Result<Value>) -> Result<Part<Value>> {
    match answer {
        Ok(value) => Ok(Ok(value)),
        Err(Trouble::Refused(why)) => Ok(Err(why)),
        Err(lost) => Err(lost),
    }
}

fn items(value: &Value) -> &[Value] {
    match value {
        Value::List(items) => items,
        _ => &[],
    }
}

/// Names and deadlines in turn.
fn deaths(list: &Value) -> Vec<Death> {
    let death = |pair: &[Value]| Some(Death { key: escaped(pair[0].text()?), at_ms: pair[1].number()? });
    items(list).chunks_exact(2).filter_map(death).take(DEATHS).collect()
}

/// Prefixes and what was said of each in turn.
fn policies(list: &Value) -> Vec<Policy> {
    let policy = |pair: &[Value]| Some(Policy { prefix: escaped(pair[0].text()?), words: escaped(pair[1].text()?) });
    items(list).chunks_exact(2).filter_map(policy).collect()
}

/// Those that hold the most memory first.
fn clients(list: &Value) -> Vec<ClientRow> {
    let lines = list.text().unwrap_or_default().split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let mut rows: Vec<ClientRow> = lines.map(client).collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.bytes), row.id));
    rows
}

fn client(line: &[u8]) -> ClientRow {
    let mut row = ClientRow::default();
    for word in line.split(|&byte| byte == b' ') {
        let Some(at) = word.iter().position(|&byte| byte == b'=') else { continue };
        let value = escaped(&word[at + 1..]);
        let number = || value.parse().unwrap_or(0);
        match &word[..at] {
            b"id" => row.id = number(),
            b"age" => row.age_s = number(),
            b"idle" => row.idle_s = number(),
            b"tot-mem" => row.bytes = number(),
            b"addr" => row.addr = value,
            b"name" => row.name = value,
            b"user" => row.user = value,
            b"cmd" => row.command = value,
            _ => {}
        }
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> Value {
        Value::Text(bytes.to_vec())
    }

    #[test]
    fn lists_of_pairs() {
        let list =
            Value::List(vec![text(b"a:1"), text(b"1795781168448"), text(b"\x1b[2J"), text(b"-9223372036854775808")]);
        let next = deaths(&list);
        assert_eq!(next[0], Death { key: "a:1".to_owned(), at_ms: 1_795_781_168_448 });
        assert_eq!(next[1], Death { key: "\\u{1b}[2J".to_owned(), at_ms: i64::MIN });
        let wrong = Value::List(vec![text(b"a"), Value::Nil, Value::List(vec![]), text(b"1"), text(b"odd")]);
        assert_eq!(deaths(&wrong), []);
        assert_eq!((policies(&wrong), deaths(&Value::Nil)), (vec![], vec![]));
    }

    #[test]
    fn lines_of_clients() {
        let lines =
            b"id=1 addr=127.0.0.1:1 name=a tot-mem=5 cmd=get user=u\nid=2 tot-mem=9 = age=x odd name=\x1b\xff\n\n";
        let rows = clients(&text(lines));
        assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), [2, 1]);
        assert_eq!((rows[0].age_s, rows[0].name.as_str()), (0, "\\u{1b}\\xff"));
        assert_eq!((rows[1].command.as_str(), rows[1].user.as_str()), ("get", "u"));
        assert_eq!(clients(&Value::Nil), []);
    }
}
