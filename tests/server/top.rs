//! `emberdb-top` against real servers: what it prints is what INFO, LIVE and EXPIRY say, and a terminal is left as it was.

use crate::common::server::{Port, are_under_tls};
use crate::common::{Kind, Server, have_tool, on_embers, succeeded, wait_until};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(30);

fn command(port: u16, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_emberdb-top"));
    command.args(["-p", &port.to_string(), "-i", "0.2"]).args(arguments).env_remove("REDISCLI_AUTH");
    if are_under_tls() {
        command.args(["--tls", "--insecure"]);
    }
    command
}

fn top(server: &Server, arguments: &[&str]) -> Output {
    command(server.port(), arguments).output().expect("emberdb-top starts")
}

fn json(server: &Server, arguments: &[&str]) -> Value {
    let text = succeeded(top(server, &[&["--once", "--json"], arguments].concat()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn json_says_what_the_server_does() {
    on_embers(&[], |server| {
        let mut client = server.client();
        for number in 0..20 {
            client.call(&format!("SET key:{number} value EX {}", 1_000 + number));
        }
        client.call("SET soon:\\x1b[2J value EX 500");
        client.call("SET for-ever value");
        client.call("EXPIRY POLICY SET session: 30m SLIDING");
        let told = json(server, &[]);
        assert_eq!(told["server"]["role"], "master");
        assert!(told["server"]["emberdb_version"].is_string(), "{told}");
        assert_eq!(told["lag_us"]["promised"], 12_000);
        for lag in ["p50", "p99", "max", "due_now"] {
            assert!(told["lag_us"][lag].is_u64(), "{lag}: {told}");
        }
        let next = told["next_deaths"].as_array().expect("deaths");
        assert_eq!((next.len(), &next[0]["key"], &next[1]["key"]), (21, &json!("soon:\\\\x1b[2J"), &json!("key:0")));
        assert_eq!(client.call("PEXPIRETIME key:0").number(), next[1]["at_ms"].as_i64().expect("a deadline"));
        let within = |span: &str| {
            let forecast = told["forecast"].as_array().expect("a forecast");
            forecast.iter().find(|horizon| horizon["within"] == span).expect("that span")["keys"].clone()
        };
        assert_eq!((within("1m"), within("10m"), within("1h")), (json!(0), json!(1), json!(21)));
        assert_eq!(told["policies"], json!([{ "prefix": "session:", "policy": "30m SLIDING" }]));
        assert_eq!((&told["databases"][0]["keys"], &told["databases"][0]["expires"]), (&json!(22), &json!(21)));
        let Kind::Ember { shards } = server.kind() else { unreachable!("EmberDB only") };
        let told_shards = told["shards"].as_array().expect("shards");
        assert_eq!(told_shards.len(), shards);
        assert_eq!(told_shards.iter().map(|shard| shard["keys"].as_u64().expect("keys")).sum::<u64>(), 22);
        assert!(told_shards.iter().all(|shard| shard["commands_a_second"].is_f64()), "{told}");
        assert!(told["rates"]["commands"].as_f64().expect("a rate") > 0.0, "{told}");
        assert!(told["memory"]["used"].as_u64().expect("memory") > 0);
        let clients = told["clients"].as_array().expect("clients");
        assert!(clients.iter().any(|client| client["name"] == "emberdb-top"), "{told}");
        let only = json(server, &["--prefix", "soon:"]);
        assert_eq!(only["next_deaths"].as_array().expect("deaths").len(), 1);
        let without = json(server, &["--no-walks"]);
        assert!(without["next_deaths"]["missing"].is_string() && without["forecast"]["missing"].is_string());
        assert_eq!(json(server, &["-n", "3"])["next_deaths"], json!([]));
        // It has changed nothing, and no command of it was refused.
        assert_eq!(server.info("total_error_replies"), Some("0".to_owned()));
    });
}

#[test]
fn plain_text_is_one_screen() {
    on_embers(&[], |server| {
        let mut client = server.client();
        client.command(&["SET", "evil\x1b[2J\u{202e}\r\n", "value", "EX", "100"]);
        client.call("EXPIRY POLICY SET otp: 5m MAX 10m");
        let text = succeeded(top(server, &["--once"]));
        for expected in [
            "EmberDB",
            "\nLag\n",
            "promised     12.0 ms",
            "\nRates\n",
            "\nNext deaths\n",
            "within 10m 1 keys",
            "evil\\u{1b}[2J\\u{202e}\\r\\n",
            "\nShards\n",
            "\nPolicies\n",
            "\"otp:\"",
            "\nMemory\n",
            "\nClients\n",
        ] {
            assert!(text.contains(expected), "{expected:?} is not in\n{text}");
        }
        assert!(!text.chars().any(|c| c.is_control() && c != '\n' || c == '\u{202e}'), "{text:?}");
    });
}

#[test]
fn of_another_server_it_shows_what_info_tells() {
    if !have_tool("redis-server") {
        return;
    }
    let server = Server::start(Kind::Redis, &[]);
    server.client().call("SET a b EX 100");
    let told = json(&server, &[]);
    assert_eq!((&told["server"]["emberdb_version"], &told["lag_us"]["promised"]), (&Value::Null, &Value::Null));
    assert_eq!(told["server"]["redis_version"].as_str(), server.info("redis_version").as_deref());
    assert_eq!(told["databases"][0]["expires"], 1);
    assert!(told["rates"]["commands"].as_f64().expect("a rate") > 0.0, "{told}");
    assert!(told["memory"]["used"].as_u64().expect("memory") > 0);
    for part in ["next_deaths", "forecast", "policies"] {
        assert!(told[part]["missing"].as_str().expect(part).contains("this server has no"), "{told}");
    }
    assert_eq!(told["shards"], json!([]));
    let text = succeeded(top(&server, &["--once"]));
    assert!(text.contains("this server does not tell how late keys die"), "{text}");
    assert_eq!(server.info("total_error_replies"), Some("0".to_owned()), "it is not asked for what it cannot do");
}

#[test]
fn who_watches_shows_who_he_is() {
    let server = Server::start(Kind::Ember { shards: 2 }, &["--requirepass", "s3cret"]);
    let refused = top(&server, &["--once"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && said.contains("NOAUTH"), "{refused:?}");
    let wrong = top(&server, &["--once", "-a", "wrong"]);
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(wrong.status.code() == Some(1) && said.contains("WRONGPASS") && !said.contains("wrong"), "{wrong:?}");
    assert!(json(&server, &["--pass", "s3cret"])["next_deaths"].is_array());
    let by_environment = command(server.port(), &["--once", "--json"]).env("REDISCLI_AUTH", "s3cret").output();
    succeeded(by_environment.expect("emberdb-top starts"));
    // Somebody who may see no keys sees the rest.
    let mut client = server.client();
    client.call("AUTH s3cret");
    client.call("ACL SETUSER watcher on >w +info +ping");
    let told = json(&server, &["--user", "watcher", "-a", "w"]);
    assert!(told["memory"]["used"].is_u64(), "{told}");
    for part in ["next_deaths", "forecast", "policies", "clients"] {
        assert!(told[part]["missing"].as_str().expect(part).contains("NOPERM"), "{part}: {told}");
    }
    // What the page on operations names is enough.
    client.call("ACL SETUSER viewer on >v %R~* +info +client|list +expiry|policy +expiry|forecast +live|next");
    let told = json(&server, &["--user", "viewer", "-a", "v"]);
    for part in ["next_deaths", "forecast", "policies", "clients"] {
        assert!(told[part].is_array(), "{part}: {told}");
    }
    if !are_under_tls() {
        let uri = format!("redis://watcher:w@127.0.0.1:{}/0", server.port());
        let run = Command::new(env!("CARGO_BIN_EXE_emberdb-top")).args(["-u", &uri, "--once", "-i", "0.1"]).output();
        succeeded(run.expect("emberdb-top starts"));
    }
}

#[test]
fn over_a_unix_socket() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s.sock").display().to_string();
    let _server = Server::start(Kind::Ember { shards: 1 }, &["--unixsocket", &path]);
    let run = Command::new(env!("CARGO_BIN_EXE_emberdb-top")).args(["-s", &path, "--once", "-i", "0.1"]).output();
    assert!(succeeded(run.expect("emberdb-top starts")).contains("Shards"));
}

/// A server that answers each connection so, whatever it is asked, and then says no more.
fn stranger(reply: Vec<u8>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let reply = reply.clone();
            std::thread::spawn(move || {
                let mut chunk = [0; 4096];
                while stream.read(&mut chunk).is_ok_and(|bytes| bytes > 0) && stream.write_all(&reply).is_ok() {}
            });
        }
    });
    port
}

#[test]
fn no_answer_is_a_panic() {
    let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len()).into_bytes();
    let hostile = "emberdb_version:\x1b]0;x\x07\nshard0:keys=99999999999999999999999\nserver_time_usec:18446744073709551615\n\
                   used_memory:-1\nexpire_lag_promised_us:0\nexpire_lag_p99_us:18446744073709551615\n";
    // All of these are answered to everything: to CLIENT SETNAME and LIVE NEXT, too.
    for (reply, succeeds) in [
        (bulk(hostile), true),
        (bulk(""), true),
        (bulk("\u{9b}\u{9b}:\u{9b}\n"), true),
        (b"*1\r\n".repeat(100_000), false),
        (b"%9223372036854775807\r\n:1\r\n-\r\n?\r\n".to_vec(), false),
        (b"-ERR \x1b[2Jno\r\n".to_vec(), false),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), false),
        (b"*3\r\n$4\r\nlive\r\n:1\r\n*2\r\n:1\r\n:-9223372036854775808\r\n".to_vec(), false),
    ] {
        let port = stranger(reply.clone());
        for form in [&["--once"][..], &["--once", "--json"]] {
            let mut run = Command::new(env!("CARGO_BIN_EXE_emberdb-top"));
            run.args(["-p", &port.to_string(), "-i", "0.1"]).args(form).env_remove("REDISCLI_AUTH");
            let run = run.output().expect("emberdb-top starts");
            let shown = String::from_utf8_lossy(&reply[..reply.len().min(60)]).into_owned();
            assert_eq!(run.status.code(), Some(i32::from(!succeeds)), "{shown:?}: {run:?}");
            let printed = String::from_utf8([run.stdout, run.stderr].concat()).expect("UTF-8");
            assert!(!printed.chars().any(|c| c.is_control() && c != '\n'), "{printed:?}");
        }
    }
}

#[test]
fn nobody_there_is_said() {
    let port = Port::claim();
    let run = command(port.number(), &["--once"]).output().expect("emberdb-top starts");
    assert_eq!(run.status.code(), Some(1), "{run:?}");
    assert!(String::from_utf8_lossy(&run.stderr).contains("cannot connect"), "{run:?}");
    let run = command(port.number(), &[]).stdin(Stdio::null()).output().expect("emberdb-top starts");
    assert!(String::from_utf8_lossy(&run.stderr).contains("--once"), "no terminal: {run:?}");
}

/// A terminal of so many columns and rows, with the program in it.
struct Terminal {
    /// The side that people sit at.
    people: File,
    program: OwnedFd,
    child: Child,
    before: libc::termios,
    shown: Vec<u8>,
}

impl Terminal {
    fn start(port: u16, columns: u16, rows: u16) -> Terminal {
        let size = libc::winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 };
        let (mut people, mut program) = (-1, -1);
        // SAFETY: valid places to write to, and a valid size.
        let opened = unsafe { libc::openpty(&mut people, &mut program, std::ptr::null_mut(), std::ptr::null(), &size) };
        assert_eq!(opened, 0, "a terminal");
        // SAFETY: both were opened just now, and belong to nobody else.
        let (people, program) = unsafe { (File::from_raw_fd(people), OwnedFd::from_raw_fd(program)) };
        // SAFETY: an open file.
        assert_eq!(unsafe { libc::fcntl(people.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) }, 0);
        let before = modes(&program);
        let mut command = command(port, &[]);
        let side = || Stdio::from(program.try_clone().expect("a copy"));
        command.stdin(side()).stdout(side()).stderr(side()).env("TERM", "xterm-256color");
        // SAFETY: only calls that may stand between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            })
        };
        let child = command.spawn().expect("emberdb-top starts");
        Terminal { people, program, child, before, shown: Vec::new() }
    }

    fn read(&mut self) {
        let mut chunk = [0; 64 << 10];
        loop {
            match self.people.read(&mut chunk) {
                Ok(0) => return,
                Ok(bytes) => self.shown.extend_from_slice(&chunk[..bytes]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown).into_owned()
    }

    #[track_caller]
    fn expect(&mut self, text: &str) {
        let found = wait_until(LIMIT, || {
            self.read();
            seen(&self.text()).contains(text)
        });
        assert!(found, "{text} is not in {}", seen(&self.text()));
    }

    fn press(&mut self, keys: &str) {
        self.people.write_all(keys.as_bytes()).expect("written");
    }

    fn signal(&self, signal: i32) {
        // SAFETY: the process is ours, and is not waited for yet.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// How it ended, after the terminal is found as it was.
    #[track_caller]
    fn end(mut self) -> std::process::ExitStatus {
        let end = Instant::now() + LIMIT;
        let status = loop {
            self.read();
            match self.child.try_wait().expect("it can be waited for") {
                Some(status) => break status,
                None => assert!(Instant::now() < end, "it does not end: {}", self.text()),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        self.read();
        let last = self.text();
        assert!(last.contains("\x1b[?1049l") && last.contains("\x1b[?25h"), "another screen, no cursor: {last:?}");
        let after = modes(&self.program);
        assert_eq!(after.c_lflag, self.before.c_lflag, "the terminal echoes, and knows lines");
        assert_eq!((after.c_iflag, after.c_oflag), (self.before.c_iflag, self.before.c_oflag));
        status
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What people see: only what differs is drawn, wherever that is.
fn seen(drawn: &str) -> String {
    let mut cells: BTreeMap<(usize, usize), char> = BTreeMap::new();
    let (mut row, mut column) = (1, 1);
    let mut rest = drawn.chars();
    while let Some(character) = rest.next() {
        if character != '\x1b' {
            cells.insert((row, column), character);
            column += 1;
            continue;
        }
        // ESC [ numbers letter, of which two letters matter: go there, and take everything away.
        let sequence: String = rest.by_ref().take_while(|c| !c.is_ascii_alphabetic()).collect();
        let end = drawn[..drawn.len() - rest.as_str().len()].chars().next_back();
        let mut numbers = sequence.trim_start_matches('[').split(';').map(|number| number.parse().unwrap_or(1));
        match end {
            Some('H') => (row, column) = (numbers.next().unwrap_or(1), numbers.next().unwrap_or(1)),
            Some('J') => cells.clear(),
            _ => {}
        }
    }
    let (mut text, mut last) = (String::new(), (1, 1));
    for ((row, column), character) in cells {
        if row != last.0 {
            (text, last) = (text + "\n", (row, 1));
        }
        text += &" ".repeat(column - last.1);
        text.push(character);
        last.1 = column + 1;
    }
    text
}

fn modes(terminal: &OwnedFd) -> libc::termios {
    // SAFETY: zeros are a value of it, which the call overwrites.
    let mut modes: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: an open terminal, and a valid place to write to.
    assert_eq!(unsafe { libc::tcgetattr(terminal.as_raw_fd(), &mut modes) }, 0);
    modes
}

#[test]
fn a_terminal_shows_it_and_is_left_as_it_was() {
    on_embers(&[], |server| {
        server.client().call("SET session:42 alice EX 1000");
        let mut terminal = Terminal::start(server.port(), 120, 40);
        terminal.expect("promised");
        terminal.expect("session:42");
        // What changes is shown without being asked for.
        server.client().call("SET sooner:43 alice EX 500");
        terminal.expect("sooner:43");
        terminal.press("?");
        terminal.expect("shift-tab");
        terminal.press("?\t\t\x1b[B\x1b[A z ");
        terminal.press("q");
        assert_eq!(terminal.end().code(), Some(0));
        let mut terminal = Terminal::start(server.port(), 80, 24);
        terminal.expect("promised");
        terminal.press("\x03");
        assert_eq!(terminal.end().code(), Some(0));
    });
}

#[test]
fn signals_end_it_and_leave_the_terminal_as_it_was() {
    let server = Server::start(Kind::Ember { shards: 1 }, &[]);
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        let mut terminal = Terminal::start(server.port(), 80, 24);
        terminal.expect("promised");
        terminal.signal(signal);
        assert_eq!(terminal.end().signal(), Some(signal));
    }
}

#[test]
fn small_terminals_are_enough() {
    let server = Server::start(Kind::Ember { shards: 3 }, &[]);
    for (columns, rows) in [(20, 5), (5, 2), (1, 1)] {
        let mut terminal = Terminal::start(server.port(), columns, rows);
        // It has the keyboard.
        assert!(wait_until(LIMIT, || modes(&terminal.program).c_lflag & libc::ECHO == 0));
        terminal.press("\t\t\t\t\t\t?z");
        terminal.press("q");
        assert_eq!(terminal.end().code(), Some(0), "{columns} x {rows}");
    }
}

#[test]
fn a_restart_of_the_server_is_followed() {
    let server = Server::start(Kind::Ember { shards: 2 }, &[]);
    let mut terminal = Terminal::start(server.port(), 120, 40);
    terminal.expect("promised");
    let mut client = server.client();
    client.send("SHUTDOWN NOSAVE");
    terminal.expect("away");
    let server = server.restart(&["--shards", "2"]);
    server.client().call("SET again:1 x EX 1000");
    terminal.expect("again:1");
    terminal.press("q");
    assert_eq!(terminal.end().code(), Some(0));
}
