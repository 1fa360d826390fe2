//! Who waits for scripts that last, and for how long; and that nothing of them is half done.

use super::eval;
use crate::common::{Client, Kind, Server, Value, bulk, encode, int, on_embers, wait_until};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(30);
const BUSY: &str = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
/// Writes its key, and goes on until that is gone.
const HOLDS: &str = "redis.call('SET', KEYS[1], 'half') while redis.call('GET', KEYS[1]) do end";
/// Goes on without a key until it is ended.
const ENDLESS: &str = "while true do end";

fn is_running(other: &mut Client) -> bool {
    other.call("INFO stats").text().contains("expired") && !other.call("SCRIPT KILL").text().starts_with("NOTBUSY")
}

/// Starts a script that cannot be killed.
fn hold(server: &Server, key: &str) -> Client {
    let (mut client, mut other) = (server.client(), server.client());
    client.send_raw(&encode(&["EVAL", HOLDS, "1", key]));
    assert!(wait_until(LONG, || is_running(&mut other)));
    client
}

const ABOUT_EVERYTHING: [&str; 7] =
    ["DBSIZE", "KEYS *", "FLUSHALL", "SWAPDB 0 1", "RANDOMKEY", "BGSAVE", "MSET held 1 a 2 b 3 c 4 d 5"];

const TRANSACTION: [&str; 4] = ["MULTI", "SET held 1", "INCR n", "EXEC"];

/// Clients that ask about everything, and behind them one with a transaction, while a script has a key.
fn ask_about_everything(server: &Server) -> (Vec<(Client, &'static str)>, Client) {
    let mut waiting: Vec<(Client, &str)> = ABOUT_EVERYTHING.iter().map(|line| (server.client(), *line)).collect();
    waiting.iter_mut().for_each(|(client, line)| client.send(line));
    let mut queued = server.client();
    TRANSACTION.iter().for_each(|line| queued.send(line));
    (waiting, queued)
}

/// Once nobody was served behind a command about everything that waited for a script with one key.
#[test]
fn who_waits_for_everything_keeps_nobody_waiting() {
    on_embers(&["--busy-reply-threshold", "60000"], |server| {
        let mut other = server.client();
        let _script = hold(server, "held");
        let (mut waiting, _queued) = ask_about_everything(server);
        for n in 0..60 {
            assert_eq!(other.call(&format!("SET free:{n} v")), Value::ok());
            let both = Value::Array(vec![bulk("v"), Value::NullBulk]);
            assert_eq!(other.call(&format!("MGET free:{n} free:x")), both);
        }
        for (client, line) in &mut waiting {
            assert_eq!(client.read_within(Duration::from_millis(1)), None, "{line}");
        }
    });
}

#[test]
fn who_waits_for_everything_is_told() {
    on_embers(&["--busy-reply-threshold", "600"], |server| {
        let mut other = server.client();
        let _script = hold(server, "held");
        let (mut waiting, mut queued) = ask_about_everything(server);
        for (client, line) in &mut waiting {
            assert_eq!(client.read().text(), BUSY, "{line}");
        }
        let said: Vec<String> = TRANSACTION.iter().map(|_| queued.read().text()).collect();
        assert!(said[3].starts_with("EXECABORT"), "{said:?}");
        assert_eq!(other.call("GET n"), Value::NullBulk);
    });
}

/// Replies that are ready stay for a moment, since those behind them may be on their way from other shards: for no longer.
#[test]
fn replies_that_are_ready_do_not_wait_for_one_that_is_long_in_coming() {
    on_embers(&["--busy-reply-threshold", "60000"], |server| {
        let _script = hold(server, "held");
        let mut client = server.client();
        let (before, behind): (Vec<String>, Vec<String>) =
            (0..32).map(|n| (format!("GET before:{n}"), format!("GET behind:{n}"))).unzip();
        before.iter().chain(["GET held".into()].iter()).chain(&behind).for_each(|line| client.send(line));
        for line in &before {
            assert_eq!(client.read(), Value::NullBulk, "{line}");
        }
    });
}

/// Once scripts, and other commands whose coordinator had asked for the one key before the script that had it was busy, waited
/// until that script was over.
#[test]
fn who_waits_for_the_one_key_is_told() {
    let lines: [&[&str]; 6] = [
        &["EVAL", "return redis.call('GET', KEYS[1])", "1", "held"],
        &["EVAL", "while true do end", "1", "held"],
        &["BLPOP", "held", "0"],
        &["LEASE", "TAKE", "held", "1000"],
        &["WATCH", "held"],
        &["MIGRATE", "127.0.0.1", "1", "held", "0", "100"],
    ];
    on_embers(&["--busy-reply-threshold", "1500"], |server| {
        let _script = hold(server, "held");
        // (On other shards' connections, too.)
        let mut waiting: Vec<(Client, &[&str])> =
            lines.iter().cycle().take(3 * lines.len()).map(|line| (server.client(), *line)).collect();
        waiting.iter_mut().for_each(|(client, line)| client.send_raw(&encode(line)));
        for (client, line) in &mut waiting {
            assert_eq!(client.read_within(LONG).map(|reply| reply.text()).as_deref(), Some(BUSY), "{line:?}");
        }
    });
}

/// Where no script is busy yet, who waits is served when the script is over.
#[test]
fn who_waits_for_everything_is_served_in_the_end() {
    on_embers(&[], |server| {
        let mut other = server.client();
        let spin = "redis.call('SET', KEYS[1], 1) for i = 1, 3e7 do end return 'done'";
        for line in ["DBSIZE", "MSET held 1 a 2 b 3", "FLUSHALL"] {
            let (mut script, mut waiting) = (server.client(), server.client());
            script.send_raw(&encode(&["EVAL", spin, "1", "held"]));
            assert!(wait_until(LONG, || is_running(&mut other)));
            waiting.send(line);
            assert_eq!(script.read(), bulk("done"));
            assert!(!waiting.read().is_error(), "{line}");
        }
    });
}

/// A script without keys is in nobody's way, but for those who need everything: they were never answered.
#[test]
fn who_strays_beside_an_endless_script_is_told() {
    for scope in ["keys", "server"] {
        on_embers(&["--busy-reply-threshold", "300", "--busy-script-scope", scope], |server| {
            let (mut endless, mut stray, mut other) = (server.client(), server.client(), server.client());
            endless.send_raw(&encode(&["EVAL", ENDLESS, "0"]));
            // It lasts: this would tell of a function that does.
            assert!(wait_until(LONG, || other.call("FUNCTION KILL").text().starts_with("BUSY")));
            assert!(wait_until(LONG, || other.call("DBSIZE").is_error()));
            stray.send_raw(&encode(&["EVAL", "return redis.call('SET', 'un' .. 'declared', 1)", "0"]));
            assert_eq!(stray.read().text(), BUSY);
            let told = other.call("SET k v");
            assert_eq!(told.text(), if scope == "keys" { "OK" } else { BUSY });
            assert_eq!(other.call("SCRIPT KILL"), Value::ok());
            assert!(endless.read().is_error());
            assert_eq!(eval(&mut stray, "return redis.call('SET', 'un' .. 'declared', 1)", &[], &[]), Value::ok());
        });
    }
}

/// What began at once on the only shard, has written and asks for everything gets it, whoever else runs.
#[test]
fn a_script_that_has_written_comes_to_its_end() {
    for ask in ["'DBSIZE'", "'KEYS', '*'", "'RANDOMKEY'", "'SCAN', 0", "'GET', 'un' .. 'declared'", "'FLUSHDB'"] {
        let server = Server::start(Kind::Ember { shards: 1 }, &[]);
        let mut clients: Vec<Client> = (0..6).map(|_| server.client()).collect();
        let script = format!(
            "redis.call('SET', KEYS[1], 'half') for i = 1, 3e6 do end redis.call({ask})
             redis.call('SET', KEYS[2], 'whole') return 'done'"
        );
        for (n, client) in clients.iter_mut().enumerate() {
            let (half, whole) = (format!("half:{n}"), format!("whole:{n}"));
            client.send_raw(&encode(&["EVAL", &script, "2", &half, &whole]));
        }
        for (n, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.read(), bulk("done"), "{ask}, {n}");
        }
    }
}

/// MOVE and COPY change another database, too.
#[test]
fn other_databases_are_put_back() {
    on_embers(&[], |server| {
        let mut client = server.client();
        for change in ["'MOVE', KEYS[1], 3", "'COPY', KEYS[1], KEYS[2], 'DB', 3", "'COPY', KEYS[1], KEYS[1], 'db', 3"] {
            assert_eq!(client.call("FLUSHALL"), Value::ok());
            assert_eq!(client.call("SET {t}a v"), Value::ok());
            let script = format!(
                "redis.call('SET', KEYS[2], 'w') local done = redis.call({change}) redis.call('GET', 'un' .. 'declared')
                 return done"
            );
            assert_eq!(eval(&mut client, &script, &["{t}a", "{t}b"], &[]), int(1), "{change}");
        }
    });
}

#[test]
fn scripts_of_those_who_hung_up_end() {
    on_embers(&["--busy-reply-threshold", "200"], |server| {
        let mut other = server.client();
        for _ in 0..100 {
            server.client().send_raw(&encode(&["EVAL", ENDLESS, "0"]));
            server.client().send_raw(&encode(&["EVAL", ENDLESS, "1", "key"]));
        }
        // One that has written goes on: what it is about to write counts.
        let writes = "redis.call('SET', KEYS[1], 1) for i = 1, 3e8 do end redis.call('SET', KEYS[1], 2)";
        server.client().send_raw(&encode(&["EVAL", writes, "1", "written"]));
        let mut slowest = Duration::ZERO;
        assert!(wait_until(LONG, || {
            let began = Instant::now();
            assert_eq!(other.call("PING").text(), "PONG");
            slowest = slowest.max(began.elapsed());
            other.call("GET written") == bulk("2")
        }));
        assert!(wait_until(LONG, || other.call("SCRIPT KILL").text().starts_with("NOTBUSY")));
        println!("the slowest PING took {slowest:?}");
    });
}

/// Once each turn of the loop came when all scripts had had a slice: with 300 a PING took a quarter of a second.
#[test]
fn others_have_a_turn_between_the_slices_of_any_two_scripts() {
    const SCRIPTS: usize = 300;
    // So long two rounds of all of them would take, one to hear a request and one to answer.
    const ROUNDS: Duration = Duration::from_micros(2 * 400 * SCRIPTS as u64);
    on_embers(&["--busy-reply-threshold", "60000"], |server| {
        let mut other = server.client();
        let mut clients: Vec<Client> = (0..SCRIPTS).map(|_| server.client()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            client.send_raw(&encode(&["EVAL", ENDLESS, "1", &format!("key:{number}")]));
        }
        assert!(wait_until(LONG, || is_running(&mut other)));
        let mut took: Vec<Duration> = (0..21)
            .map(|_| {
                let began = Instant::now();
                assert_eq!(other.call("PING").text(), "PONG");
                began.elapsed()
            })
            .collect();
        took.sort_unstable();
        assert!(took[10] < ROUNDS / 4, "{took:?}");
    });
}

/// Whoever waits for a script's key is drawn, and on which transaction.
#[test]
fn who_waits_for_whom_is_drawn() {
    on_embers(&["--enable-debug-command", "yes", "--busy-reply-threshold", "60000"], |server| {
        let (mut other, mut writer) = (server.client(), server.client());
        let lines = |other: &mut Client| match other.call("DEBUG WAITS") {
            Value::Array(lines) => lines.iter().map(Value::text).collect::<Vec<String>>(),
            reply => panic!("{reply:?}"),
        };
        assert_eq!(lines(&mut other), Vec::<String>::new());
        let mut script = server.client();
        script.send_raw(&encode(&["EVAL", "while redis.call('GET', KEYS[2]) ~= 'x' do end", "2", "held", "end"]));
        assert!(wait_until(LONG, || other.call("INFO commandstats").text().contains("cmdstat_get:")));
        writer.send("SET held v");
        let is_drawn =
            |lines: Vec<String>| lines.iter().any(|line| line.starts_with("command:") && line.contains("-> hold:"));
        assert!(wait_until(LONG, || is_drawn(lines(&mut other))));
        assert_eq!(other.call("SCRIPT KILL"), Value::ok());
        assert_eq!(writer.read(), Value::ok());
        assert_eq!(lines(&mut other), Vec::<String>::new());
    });
}

/// Elements that die in a collection which a script holds and has written are alive for the script. Once no key of that
/// shard died before the script was over.
#[test]
fn keys_die_beside_a_script_whose_elements_are_due() {
    const WRITES: &str = "redis.call('HSET', KEYS[1], 'lasting', 1) \
        for _, key in ipairs(KEYS) do redis.call('HPEXPIRE', key, 20, 'FIELDS', 1, 'early') end ";
    const ASKS: &str =
        "return {redis.call('HLEN', KEYS[1]), redis.call('HGET', KEYS[1], 'early'), redis.call('HLEN', KEYS[2])}";
    on_embers(&[], |server| {
        let (mut client, mut other) = (server.client(), server.client());
        let mut begin = || ["h", "g"].map(|key| assert!(!other.call(&format!("HSET {key} early 1")).is_error()));
        begin();
        let lasting = format!("{WRITES} for i = 1, 3e6 do end {ASKS}");
        let said = eval(&mut client, &lasting, &["h", "g"], &[]);
        assert_eq!(said, Value::Array(vec![int(2), bulk("1"), int(1)]));
        assert!(wait_until(LONG, || client.call("EXISTS g") == int(0)));
        assert_eq!((client.call("HLEN h"), client.call("HGET h early")), (int(1), Value::NullBulk));

        begin();
        let endless = format!("{WRITES} while redis.call('EXISTS', KEYS[1]) == 1 do end");
        client.send_raw(&encode(&["EVAL", &endless, "2", "h", "g"]));
        assert!(wait_until(LONG, || is_running(&mut other)));
        for n in 0..100 {
            assert_eq!(other.call(&format!("SET free:{n} v PX 100")), Value::ok());
        }
        assert!(wait_until(LONG, || server
            .info("expired_keys")
            .is_some_and(|count| count.parse::<u64>().is_ok_and(|count| count >= 100))));
        assert!(client.read_within(Duration::ZERO).is_none());
    });
}
