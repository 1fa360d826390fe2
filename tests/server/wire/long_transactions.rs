//! EXEC of very many commands: it answers as they would one by one, nobody sees it half done, others have their turns
//! meanwhile, and what it has queued counts as its connection's.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::transactions::on_shards;
use crate::common::{Client, Value, encode, on_embers, words};

const LONG: Duration = Duration::from_secs(120);

/// MULTI and these commands, all of them queued.
fn queue(client: &mut Client, lines: &[String]) {
    assert_eq!(client.call("MULTI"), Value::ok());
    for some in lines.chunks(1_000) {
        let commands: Vec<_> = some.iter().map(|line| words(line)).collect();
        assert!(client.pipeline(&commands).iter().all(|reply| reply.text() == "QUEUED"));
    }
}

fn exec(client: &mut Client) -> Vec<Value> {
    client.send("EXEC");
    match client.read_within(LONG).expect("a reply") {
        Value::Array(replies) => replies,
        other => panic!("{other:?}"),
    }
}

/// A command, each of which says the same whenever it runs in this order.
fn command(rng: &mut fastrand::Rng) -> String {
    let mut key = || format!("key:{}", rng.u32(..40));
    let (a, b, c) = (key(), key(), key());
    match rng.u32(..40) {
        0..10 => format!("SET {a} {}", rng.u32(..100)),
        10..16 => format!("GET {a}"),
        16..20 => format!("INCR {a}"),
        20..22 => format!("APPEND {a} 7"),
        22..24 => format!("LPUSH {a} element"),
        24..27 => format!("MGET {a} {b} {c}"),
        27..29 => format!("MSET {a} 1 {b} 2"),
        29..32 => format!("DEL {a} {b}"),
        32 => format!("RENAME {a} {b}"),
        33 => format!("COPY {a} {b}"),
        34 => "DBSIZE".to_owned(),
        35 => format!("SELECT {}", rng.u32(..3)),
        36 => format!("BLPOP {a} {b} 0"),
        37 => "CLIENT GETNAME".to_owned(),
        38 => format!("EVAL return{{redis.call('EXISTS',KEYS[1])}} 1 {a}"),
        _ => format!("SET {a}"),
    }
}

#[test]
fn long_transactions_answer_as_their_commands_do_one_by_one() {
    on_shards(&[], |server| {
        let mut rng = fastrand::Rng::with_seed(34);
        let complete = |line: &String| !(line.starts_with("SET") && words(line).len() == 2);
        let lines: Vec<String> = std::iter::repeat_with(|| command(&mut rng)).filter(complete).take(6_000).collect();
        let mut client = server.client();
        // (What BLPOP waits for outside of a transaction it does not wait for within.)
        let one_by_one = |line: &String| match line.strip_prefix("BLPOP ") {
            Some(rest) => format!("LMPOP 2 {} LEFT", rest.trim_end_matches(" 0")),
            None => line.clone(),
        };
        let expected: Vec<Value> = lines.iter().map(|line| client.call(&one_by_one(line))).collect();
        for line in ["SELECT 0", "FLUSHALL"] {
            assert_eq!(client.call(line), Value::ok());
        }
        queue(&mut client, &lines);
        let replies = exec(&mut client);
        assert_eq!(replies.len(), lines.len());
        for (line, (reply, expected)) in lines.iter().zip(replies.iter().zip(&expected)) {
            match line.starts_with("BLPOP") {
                true => assert_eq!(reply.is_null(), expected.is_null(), "{line}: {reply:?}, {expected:?}"),
                false => assert_eq!(reply, expected, "{line}"),
            }
        }
        client.assert_in_step();
    });
}

#[test]
fn nobody_sees_a_long_transaction_half_done() {
    on_shards(&[], |server| {
        const KEYS: usize = 64;
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut reader = server.client();
                let all: String = (0..KEYS).map(|key| format!(" key:{key}")).collect();
                let mut seen = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let Value::Array(values) = reader.call(&format!("MGET{all}")) else { panic!("no array") };
                    assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
                    seen += 1;
                }
                seen
            });
            let mut client = server.client();
            for round in 0..5 {
                let sets = (0..100).flat_map(|n| (0..KEYS).map(move |key| format!("SET key:{key} {round}:{n}")));
                queue(&mut client, &sets.collect::<Vec<_>>());
                assert!(exec(&mut client).iter().all(|reply| *reply == Value::ok()));
            }
            is_over.store(true, Ordering::Relaxed);
            assert!(reader.join().expect("it sees nothing half done") > 0);
        });
    });
}

/// Once a shard answered nobody while it ran an EXEC of a million commands, and what was queued counted as nobody's by then.
#[test]
fn others_have_their_turns_beside_a_long_transaction() {
    const COMMANDS: usize = 5_000;
    on_embers(&["--enable-debug-command", "yes"], |server| {
        let mut client = server.client();
        let Value::Int(id) = client.call("CLIENT ID") else { panic!("no number") };
        // Each goes over a megabyte: however fast the machine, all of them take long.
        assert_eq!(client.call("SETRANGE counted 1048575 x"), Value::Int(1 << 20));
        let count = encode(&["BITCOUNT", "counted"]);
        assert_eq!(client.call("MULTI"), Value::ok());
        for _ in 0..COMMANDS / 1_000 {
            client.send_raw(&count.repeat(1_000));
            (0..1_000).for_each(|_| assert_eq!(client.read().text(), "QUEUED"));
        }
        let mut others: Vec<Client> = (0..6).map(|_| server.client()).collect();
        client.send("EXEC");
        let (mut turns, mut most) = (0, 0);
        // The reply begins when all of it has run.
        client.stream().set_read_timeout(Some(Duration::from_millis(1))).expect("a timeout");
        while client.stream().peek(&mut [0]).is_err() {
            for other in &mut others {
                assert_eq!(other.call("PING").text(), "PONG");
            }
            turns += 1;
            let listed = others[0].call(&format!("CLIENT LIST ID {id}")).text();
            let memory = listed.split("tot-mem=").nth(1).and_then(|rest| rest.split(' ').next());
            most = most.max(memory.expect("tot-mem").parse::<usize>().expect("bytes"));
        }
        assert!(turns >= 3, "{turns} turns");
        assert!(matches!(client.read_within(LONG), Some(Value::Array(replies)) if replies.len() == COMMANDS));
        assert!(most > COMMANDS * "BITCOUNTcounted".len(), "{most} bytes");
        let listed = others[0].call(&format!("CLIENT LIST ID {id}")).text();
        assert!(listed.contains("multi=-1"), "{listed}");
    });
}

/// More keys than are locked one by one: the shards are locked as a whole, and nothing stays locked.
#[test]
fn a_transaction_of_very_many_keys_lets_go_of_all() {
    on_embers(&["--enable-debug-command", "yes"], |server| {
        let (mut client, mut other) = (server.client(), server.client());
        let lines: Vec<String> = (0..20_000).map(|key| format!("INCR key:{key}")).collect();
        queue(&mut client, &lines);
        assert!(exec(&mut client).iter().all(|reply| *reply == Value::Int(1)));
        assert_eq!(other.call("INCR key:19999"), Value::Int(2));
        assert_eq!(other.call("DBSIZE"), Value::Int(20_000));
        assert_eq!(other.call("DEBUG WAITS"), Value::Array(vec![]));
    });
}
