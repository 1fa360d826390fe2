//! What those can reach who have not said who they are: little memory, little time, and few guesses.

use std::io::Read;
use std::time::{Duration, Instant};

use crate::common::{Client, Kind, Server, Value, error, on_embers, on_every_server, simple, wait_until};

const LIMIT: Duration = Duration::from_secs(20);
const PASSWORD: &[&str] = &["--requirepass", "secret"];
const NO_AUTH: &str = "NOAUTH Authentication required.";
const WRONG: &str = "WRONGPASS invalid username-password pair or user is disabled.";

fn friend(server: &Server) -> Client {
    let mut client = server.client();
    assert_eq!(client.call("AUTH secret"), Value::ok());
    client
}

#[test]
fn a_stranger_may_send_ten_arguments_of_16_kib() {
    on_every_server(PASSWORD, |server| {
        let refused = |request: &[u8], text: &str| {
            let mut client = server.client();
            client.send_raw(request);
            assert_eq!(client.read(), error(text));
            assert!(client.is_closed_by_server());
        };
        refused(b"*11\r\n", "ERR Protocol error: unauthenticated multibulk length");
        refused(b"*2\r\n$4\r\nECHO\r\n$16385\r\n", "ERR Protocol error: unauthenticated bulk length");
        let mut client = server.client();
        let long = "x".repeat(16 * 1024);
        let args: Vec<&str> = ["DEL"].into_iter().chain(std::iter::repeat_n(long.as_str(), 9)).collect();
        assert_eq!(client.command(&args), error(NO_AUTH));
        // Who is known may send more, in the same breath.
        let known: [&[&str]; 2] = [&["AUTH", "secret"], &["SET", "k", &"y".repeat(100_000)]];
        let known: Vec<Vec<&str>> = known.iter().map(|args| args.to_vec()).collect();
        assert_eq!(client.pipeline(&known), [Value::ok(), Value::ok()]);
        // And is a stranger again by RESET.
        assert_eq!(client.call("RESET"), simple("RESET"));
        client.send_raw(b"*11\r\n");
        assert_eq!(client.read(), error("ERR Protocol error: unauthenticated multibulk length"));
    });
}

#[test]
fn a_stranger_that_reads_is_answered_all_it_asks() {
    on_embers(PASSWORD, |server| {
        let mut client = server.client();
        let pings: Vec<Vec<&str>> = (0..2_000).map(|_| vec!["PING"]).collect();
        let answers = client.pipeline(&pings);
        assert!(answers.iter().all(|answer| *answer == error(NO_AUTH)));
        let known: Vec<Vec<&str>> = [vec!["AUTH", "secret"]].into_iter().chain(pings).collect();
        let answers = client.pipeline(&known);
        assert_eq!(answers[0], Value::ok());
        assert!(answers[1..].iter().all(|answer| *answer == simple("PONG")));
    });
}

/// CVE-2025-21605: replies that nobody reads piled up without an end, and before anybody was asked for a password.
#[test]
fn what_strangers_do_not_read_takes_little_memory() {
    /// Each may have what is received at a time, its replies, and what the process, or the allocator of each shard, keeps of
    /// connections. (Each is offered six megabytes.)
    const BYTES_A_STRANGER: u64 = 768 * 1024;
    const STRANGERS: u64 = 40;
    on_embers(PASSWORD, |server| {
        let before_bytes = server.resident_bytes();
        let noise = b"PING\r\n".repeat(16 * 1024);
        let strangers: Vec<Client> = (0..STRANGERS)
            .map(|_| {
                let mut stranger = server.client();
                stranger.stream().set_write_timeout(Some(Duration::from_millis(20))).expect("a timeout");
                // (The kernel's buffers take a part of it.)
                for _ in 0..64 {
                    if stranger.try_send_raw(&noise).is_err() {
                        break;
                    }
                }
                stranger
            })
            .collect();
        let mut friend = friend(server);
        friend.assert_in_step();
        // (What was freed goes back to the system within a second or two.)
        let grown_bytes = || server.resident_bytes().saturating_sub(before_bytes);
        let is_little = wait_until(LIMIT, || grown_bytes() < STRANGERS * BYTES_A_STRANGER);
        assert!(is_little, "{} bytes for {STRANGERS} strangers", grown_bytes());
        drop(strangers);
    });
}

#[test]
fn who_has_not_said_the_password_in_time_has_to_go() {
    on_embers(&["--requirepass", "secret", "--auth-timeout", "1"], |server| {
        let (mut stranger, mut friend) = (server.client(), friend(server));
        let mut turncoat = server.client();
        assert_eq!(turncoat.call("AUTH secret"), Value::ok());
        assert_eq!(turncoat.call("RESET"), simple("RESET"));
        assert!(stranger.is_closed_by_server());
        assert!(turncoat.is_closed_by_server());
        friend.assert_in_step();
        // A password that is asked for later gives those who came before all the time, and they are no strangers.
        assert_eq!(friend.command(&["CONFIG", "SET", "requirepass", ""]), Value::ok());
        let mut early = server.client();
        assert_eq!(early.call("PING"), simple("PONG"));
        assert_eq!(friend.call("CONFIG SET requirepass secret auth-timeout 1"), Value::ok());
        let mut late = server.client();
        assert!(late.is_closed_by_server());
        early.assert_in_step();
        assert_eq!(friend.call("CONFIG SET auth-timeout 0"), Value::ok());
    });
}

#[test]
fn guessing_is_slow_and_holds_up_nobody_else() {
    on_embers(&["--requirepass", "secret", "--auth-slowdown", "yes"], |server| {
        let mut friend = friend(server);
        let mut guesser = server.client();
        for _ in 0..20 {
            assert_eq!(guesser.call("AUTH wrong"), error(WRONG));
        }
        let began = Instant::now();
        // What waits is the whole connection, in its order.
        guesser.send_raw(b"AUTH wrong\r\nPING\r\n");
        let mut others: Vec<Client> = (0..80).map(|_| server.client()).collect();
        others.iter_mut().for_each(|other| other.send("HELLO 2 AUTH default secret"));
        friend.assert_in_step();
        assert!(began.elapsed() < Duration::from_secs(1), "nobody else waits");
        assert_eq!(guesser.read(), error(WRONG));
        assert!(began.elapsed() >= Duration::from_millis(900), "a guess costs a second: {:?}", began.elapsed());
        assert_eq!(guesser.read(), error(NO_AUTH));
        // Of one address only so many wait; those that do not are told so.
        let answers: Vec<Value> = others.iter_mut().map(Client::read).collect();
        let sent_away = "ERR too many wrong passwords from this address, try again in a few seconds";
        let refused = answers.iter().filter(|answer| **answer == error(sent_away)).count();
        assert!((1..80).contains(&refused), "{refused} were sent away");
        assert!(answers.iter().all(|answer| !answer.is_error() || *answer == error(sent_away)));
        let log = friend.call("ACL LOG");
        let entry =
            log.items().iter().find(|entry| entry.field("reason").is_some_and(|reason| reason.text() == "auth"));
        let count = entry.and_then(|entry| entry.field("count")).map(|count| count.number());
        assert_eq!(count, Some(21), "{log:?}");
        assert!(wait_until(LIMIT, || server.output().contains("Too many wrong passwords from 127.0.0.1")));
        assert_eq!(friend.call("CONFIG SET auth-slowdown no"), Value::ok());
        assert_eq!(guesser.call("AUTH secret"), Value::ok(), "at once");
    });
}

/// What one user has written, and is called, is in nothing that another is told: an error, a list, a log. (SCAN and RANDOMKEY
/// tell all names, as in Redis.)
#[test]
fn nobody_is_told_what_others_have() {
    const MARKERS: [&str; 4] = ["mark-key", "mark-value", "mark-password", "mark-new-password"];
    const ASKED: &[&str] = &[
        "GET owner:mark-key",
        "SET owner:x y",
        "EVAL return(redis.call('get','owner:x')) 0",
        "KEYS *",
        "SLOWLOG GET",
        "LATENCY LATEST",
        "LATENCY HISTORY command",
        "MONITOR",
        "CONFIG GET *",
        "ACL LIST",
        "ACL LOG",
        "ACL GETUSER owner",
        "ACL WHOAMI",
        "CLIENT LIST",
        "CLIENT INFO",
        "INFO everything",
        "COMMAND DOCS get",
        "DEBUG OBJECT owner:x",
        "OBJECT ENCODING owner:x",
        "MEMORY USAGE owner:x",
        "DUMP owner:x",
        "COPY owner:x guest:x",
        "RENAME owner:x guest:x",
        "SORT guest:l BY owner:*",
        "PUBSUB CHANNELS",
        "SUBSCRIBE owner",
        "HELLO 3 AUTH owner wrong",
        "AUTH owner wrong",
        "WAIT 0 0",
        "MEMORY STATS",
        "EXPIRY SCAN 0",
        "EXPIRY POLICY LIST",
        "FUNCTION LIST",
        "SCRIPT EXISTS x",
        "XREAD STREAMS owner:s 0",
    ];
    let flags = &["--loglevel", "debug", "--slowlog-log-slower-than", "0", "--latency-monitor-threshold", "1"];
    on_embers(flags, |server| {
        let mut owner = server.client();
        for line in [
            "ACL SETUSER owner on >mark-password ~owner:* &owner +@all",
            "ACL SETUSER guest on >guest ~guest:* &guest +@all -@dangerous -@admin",
            "ACL SETUSER owner >mark-new-password",
        ] {
            assert_eq!(owner.call(line), Value::ok());
        }
        assert_eq!(owner.call("AUTH owner mark-password"), Value::ok());
        for line in
            ["SET owner:mark-key mark-value", "GET owner:mark-key", "INCR owner:mark-key", "SET guest:mark-key 1"]
        {
            owner.call(line);
        }
        owner.call("AUTH owner mark-new-password");
        let mut guest = server.client();
        assert_eq!(guest.call("AUTH guest guest"), Value::ok());
        for line in ASKED {
            let told = format!("{:?}", guest.call(line))
                .replace("owner:mark-key", if line.contains("mark-key") { "" } else { "owner:mark-key" });
            assert!(MARKERS.iter().all(|marker| !told.contains(marker)), "{line}: {told}");
        }
        let log = server.output();
        assert!(MARKERS.iter().all(|marker| !log.contains(marker)), "{log}");
    });
}

/// What strangers send while everything is paused is held in little memory, too.
#[test]
fn a_stranger_that_is_paused_is_not_read_without_an_end() {
    let server = Server::start(Kind::Ember { shards: 1 }, PASSWORD);
    let mut friend = friend(&server);
    let mut stranger = server.client();
    assert_eq!(friend.call("CLIENT PAUSE 4000 ALL"), Value::ok());
    let before_bytes = server.resident_bytes();
    stranger.stream().set_write_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    let noise = b"AUTH secret\r\n".repeat(100_000);
    while stranger.try_send_raw(&noise).is_ok() {}
    let grown_bytes = server.resident_bytes().saturating_sub(before_bytes);
    assert!(grown_bytes < 4 << 20, "{grown_bytes} bytes");
    let mut first = [0; 5];
    if !crate::common::server::are_under_tls() {
        let mut stream = stranger.stream();
        stream.read_exact(&mut first).expect("an answer");
        assert_eq!(&first, b"+OK\r\n");
    }
}
