//! A script that runs long holds its keys and nobody else.

use super::eval;
use crate::common::{Client, Value, bulk, encode, error, int, on_embers, wait_until};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(30);

#[test]
fn others_are_served_while_a_script_runs() {
    on_embers(&[], |server| {
        let (mut client, mut other, mut waiting) = (server.client(), server.client(), server.client());
        assert_eq!(other.call("SET held before"), Value::ok());
        let script = "redis.call('SET', KEYS[1], 'half') while redis.call('EXISTS', KEYS[1]) == 1 do end";
        client.send_raw(&encode(&["EVAL", script, "1", "held"]));
        // Whoever wants the key waits; all others do not.
        assert!(wait_until(LONG, || other.call("SCRIPT KILL").text().starts_with("UNKILLABLE")));
        waiting.send_raw(&encode(&["GET", "held"]));
        for n in 0..200 {
            let began = Instant::now();
            assert_eq!(other.call(&format!("SET free:{n} {n} PX 50")), Value::ok());
            let found = eval(&mut other, "return redis.call('GET', KEYS[1])", &[&format!("free:{n}")], &[]);
            // (It may have died meanwhile.)
            assert!(found == bulk(n.to_string()) || found.is_null() && began.elapsed().as_millis() >= 50, "{found:?}");
        }
        assert_eq!(waiting.read_within(Duration::from_millis(50)), None);
        // Deaths go on, too.
        assert!(wait_until(LONG, || server
            .info("db0")
            .is_some_and(|db| db.contains("keys=1,") || !db.contains("expires"))));
        drop(client);
        assert!(other.call("SCRIPT KILL").text().starts_with("UNKILLABLE"));
    });
}

#[test]
fn a_script_that_has_not_written_can_be_killed() {
    on_embers(&[], |server| {
        let (mut client, mut other) = (server.client(), server.client());
        assert_eq!(other.call("SCRIPT KILL").text(), "NOTBUSY No scripts in execution right now.");
        other.call("SET k v");
        client.send_raw(&encode(&["EVAL", "while redis.call('GET', KEYS[1]) do end", "1", "k"]));
        assert!(wait_until(LONG, || other.call("SCRIPT KILL") == Value::ok()));
        assert!(client.read().text().starts_with("ERR Script killed by user with SCRIPT KILL"));
        assert_eq!(other.call("DEL k"), int(1));
        assert_eq!(other.call("SCRIPT KILL").text(), "NOTBUSY No scripts in execution right now.");
    });
}

const BUSY: &str = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
const BUSY_FUNCTION: &str = "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.";

#[test]
fn who_needs_the_keys_of_a_long_script_is_told() {
    on_embers(&["--busy-reply-threshold", "100"], |server| {
        let (mut client, mut other, mut early) = (server.client(), server.client(), server.client());
        other.call("SET held v");
        client.send_raw(&encode(&["EVAL", "while redis.call('GET', KEYS[1]) do end", "1", "held"]));
        assert!(wait_until(LONG, || other.call("GET held").text() == BUSY));
        early.send_raw(b"SET held 1\r\nPING\r\nGET held\r\n");
        assert_eq!(early.read().text(), BUSY);
        assert_eq!(early.read().text(), "PONG");
        assert_eq!(early.read().text(), BUSY);
        for refused in ["SET held 1", "MSET held 1 b 2", "DEL held", "FLUSHALL", "DBSIZE", "RENAME held other"] {
            assert_eq!(other.call(refused).text(), BUSY, "{refused}");
        }
        for n in 0..20 {
            assert_eq!(other.call(&format!("SET free:{n} {n}")), Value::ok());
        }
        other.call("MULTI");
        assert_eq!(other.call("GET held").text(), BUSY);
        assert!(other.call("EXEC").text().starts_with("EXECABORT"));
        other.call("MULTI");
        assert_eq!(other.call("GET free:1").text(), "QUEUED");
        assert_eq!(other.call("EXEC"), Value::Array(vec![bulk("1")]));
        assert_eq!(eval(&mut other, "return redis.call('GET', KEYS[1])", &["free:2"], &[]), bulk("2"));
        assert_eq!(eval(&mut other, "return redis.call('GET', KEYS[1])", &["held"], &[]).text(), BUSY);
        assert!(other.call("FUNCTION KILL").text().starts_with(BUSY));
        assert_eq!(other.call("SCRIPT KILL"), Value::ok());
        assert!(client.read().text().starts_with("ERR Script killed by user with SCRIPT KILL"));
        assert_eq!(other.call("GET held"), bulk("v"));
    });
}

#[test]
fn everybody_is_told_where_that_is_wanted() {
    on_embers(&["--busy-reply-threshold", "50", "--busy-script-scope", "server"], |server| {
        let (mut client, mut other) = (server.client(), server.client());
        let library = "#!lua name=l\nredis.register_function{function_name='f', callback=function() while true do end end, \
                       flags={'no-writes'}}";
        assert_eq!(other.command(&["FUNCTION", "LOAD", library]), bulk("l"));
        for (call, kill, busy) in [
            (&["EVAL", "while true do end", "0"], "SCRIPT KILL", BUSY),
            (&["FCALL", "f", "0"], "FUNCTION KILL", BUSY_FUNCTION),
        ] {
            client.send_raw(&encode(call));
            assert!(wait_until(LONG, || other.call("PING").text() == busy));
            for refused in ["GET k", "SET k v", "CONFIG GET port", "INFO", "SUBSCRIBE c", "EVAL \"return 1\" 0"] {
                assert_eq!(other.call(refused).text(), busy, "{refused}");
            }
            assert_eq!(other.call("MULTI"), Value::ok());
            assert_eq!(other.call("GET k").text(), busy);
            assert_eq!(other.call("DISCARD"), Value::ok());
            assert_eq!(other.call("MULTI"), Value::ok());
            assert_eq!(other.call("EXEC").text(), format!("EXECABORT Transaction discarded because of: {busy}"));
            assert_eq!(other.call(kill), Value::ok());
            assert!(client.read().is_error());
            assert_eq!(other.call("PING").text(), "PONG");
        }
    });
}

#[test]
fn a_script_has_as_many_instructions_and_as_much_memory_as_it_may() {
    let limits = ["--script-instruction-limit", "10000000", "--script-memory-limit", "16mb"];
    on_embers(&limits, |server| {
        let mut client = server.client();
        let error = eval(&mut client, "while true do pcall(error, 'caught') end", &[], &[]).text();
        assert!(error.starts_with("ERR the script has run for more instructions than it may"), "{error}");
        let error = eval(&mut client, "local t = {} for i = 1, 100000000 do t[i] = {} end", &[], &[]).text();
        assert!(error.contains("not enough memory"), "{error}");
        let count = "local n = 0 for i = 1, 1000000 do n = n + 1 end return n";
        assert_eq!(eval(&mut client, count, &[], &[]), int(1_000_000));
        assert_eq!(client.call("CONFIG SET script-instruction-limit 1000 script-memory-limit 64mb"), Value::ok());
        assert!(eval(&mut client, count, &[], &[]).is_error());
        assert_eq!(client.call("CONFIG SET script-instruction-limit 0"), Value::ok());
        assert_eq!(
            eval(&mut client, "local t = {} for i = 1, 1000000 do t[i] = i end return #t", &[], &[]),
            int(1_000_000)
        );
    });
}

/// Arguments stayed in the machine, so that every script of everybody failed from then on.
#[test]
fn arguments_take_no_memory_once_their_script_is_over() {
    on_embers(&["--script-memory-limit", "64mb"], |server| {
        let (mut client, mut other) = (server.client(), server.client());
        let many = vec![b'x'; 40 << 20];
        for _ in 0..4 {
            let len = client.command(&[&b"EVAL"[..], b"return #ARGV[1]", b"1", b"k", &many]);
            assert_eq!(len, int(40 << 20));
            assert_eq!(eval(&mut other, "return redis.call('INCR', KEYS[1]) and 1", &["n"], &[]), int(1));
        }
        let too_many = vec![b'x'; 70 << 20];
        let refused = client.command(&[&b"EVAL"[..], b"return #ARGV[1]", b"1", b"k", &too_many]);
        assert_eq!(refused, error("ERR not enough memory for the arguments of the script"));
        assert_eq!(eval(&mut other, "return redis.call('INCR', KEYS[1])", &["n"], &[]), int(5));
    });
}

/// What functions were making was in nobody's books: as many scripts as clients had 300 MB each.
#[test]
fn scripts_share_what_they_may_have_while_it_is_made() {
    on_embers(&["--script-memory-limit", "64mb"], |server| {
        let before = server.resident_bytes();
        let script = "local s = ('x'):rep(40 * 1024 * 1024) for i = 1, 1e6 do end return #s";
        let mut clients: Vec<Client> = (0..24).map(|_| server.client()).collect();
        clients.iter_mut().for_each(|client| client.send_raw(&encode(&["EVAL", script, "0"])));
        let is_full = |value: &Value| value.text().contains("not enough memory");
        let replies: Vec<Value> = clients.iter_mut().map(Client::read).collect();
        assert!(replies.iter().all(|reply| *reply == int(40 << 20) || is_full(reply)), "{replies:?}");
        assert!(replies.contains(&int(40 << 20)), "{replies:?}");
        let grown = server.resident_bytes().saturating_sub(before);
        // A string is there twice when it is handed over to Lua.
        assert!(grown < 3 * (160 << 20), "{grown}");
        assert!(wait_until(LONG, || eval(&mut clients[0], script, &[], &[]) == int(40 << 20)));
    });
}

/// Once it was collected by the next script, in one go, which nobody else was served beside; and if none came, never.
#[test]
fn what_a_script_has_left_is_collected_without_another_one() {
    let limits = ["--script-memory-limit", "96mb", "--maxmemory", "64mb"];
    on_embers(&limits, |server| {
        let (mut client, mut other) = (server.client(), server.client());
        let fill = "local t = {} for i = 1, 100000000 do t[i] = 'value' .. i end";
        let error = eval(&mut client, fill, &[], &[]).text();
        assert!(error.contains("not enough memory"), "{error}");
        assert!(wait_until(LONG, || other.call("SET k v") == Value::ok()), "there is room again");
        let error = eval(&mut client, fill, &[], &[]).text();
        assert!(error.contains("not enough memory"), "{error}");
        let build = "local t = {} for i = 1, 100000 do t[i] = 'value' .. i end return #t";
        assert_eq!(eval(&mut client, build, &[], &[]), int(100_000), "the next one has room at once");
        assert!(wait_until(LONG, || other.call("SET k v") == Value::ok()));
    });
}

/// Whoever has to wait too long until that is collected is told so, and lets go of keys that others want. Once the next script waited
/// for 19 s behind one that had had a gigabyte.
#[test]
fn who_waits_for_memory_is_told() {
    on_embers(&["--script-memory-limit", "96mb", "--busy-reply-threshold", "1"], |server| {
        let mut client = server.client();
        let error = eval(&mut client, "local t = {} for i = 1, 100000000 do t[i] = 'value' .. i end", &[], &[]).text();
        assert!(error.contains("not enough memory"), "{error}");
        let next = || eval(&mut server.client(), "return redis.call('INCR', KEYS[1])", &["n"], &[]);
        let first = next();
        assert!(first == int(1) || first.text().starts_with("BUSY"), "{first:?}");
        assert!(wait_until(LONG, || !next().is_error()));
    });
}

/// Once a source of 10 MB kept its shard for a second.
#[test]
fn long_sources_keep_nobody_waiting() {
    on_embers(&[], |server| {
        let (mut client, mut other) = (server.client(), server.client());
        let source = format!("local a = 0 {} return 1", "a = a + 1 ".repeat(60_000));
        for command in [&["EVAL", &source, "0"][..], &["SCRIPT", "LOAD", &source]] {
            let refusal = "ERR the source of a script has at most 524288 bytes, that of a library may have more";
            assert_eq!(client.command(command).text(), refusal);
        }
        assert_eq!(eval(&mut client, &source[source.len() - "return 1".len()..], &[], &[]), int(1));
        let library = format!(
            "#!lua name=long\nlocal a = 0 {} redis.register_function('count', function() return a end)",
            "a = a + 1 ".repeat(800_000)
        );
        client.send_raw(&encode(&["FUNCTION", "LOAD", &library]));
        let mut turns = 0;
        while client.read_within(Duration::from_millis(1)).is_none() {
            assert_eq!(other.call("PING").text(), "PONG");
            turns += 1;
        }
        // (How many there are is up to the machine. In one piece there would be one at most.)
        assert!(turns >= 3, "{turns} turns");
        assert_eq!(client.call("FCALL count 0"), int(800_000));
    });
}
