//! Deadlines as timers: a key's death is told as soon as it is dead, not before, and nobody sees the key after that.

use crate::common::{Client, Server, Value, simple, wait_until, words};
use crate::wire::transactions::on_shards;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const PATIENCE: Duration = Duration::from_secs(10);

fn wall_ms() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis()
}

fn hear_of_deaths(server: &Server) -> Client {
    let mut subscriber = server.client();
    subscriber.send("SUBSCRIBE __keyevent@0__:expired");
    assert!(!subscriber.read().is_error());
    subscriber
}

/// What a cycle has left waits for the interval. With so long a one none of these may.
#[test]
fn a_death_does_not_wait_for_the_interval() {
    const KEYS: usize = 100;
    let flags = ["--active-expire-interval-ms", "60000", "--notify-keyspace-events", "Ex"];
    on_shards(&flags, |server| {
        let (mut subscriber, mut client) = (hear_of_deaths(server), server.client());
        for i in 0..KEYS {
            assert_eq!(client.call(&format!("SET timer:{i} v PX {}", 1 + i * 5)), Value::ok());
        }
        // Nobody looks for them.
        let all = || server.info("expired_keys") == Some(KEYS.to_string());
        assert!(wait_until(PATIENCE, all), "{:?} of {KEYS}", server.info("expired_keys"));
        (0..KEYS).for_each(|_| assert_eq!(subscriber.read().items()[0].text(), "message"));
    });
}

/// A transaction looks at one moment on all shards, while each of them deletes what is dead by its own clock.
#[test]
fn keys_that_die_together_are_seen_all_or_none() {
    const KEYS: usize = 40;
    const READERS: usize = 2;
    on_shards(&["--notify-keyspace-events", "Ex", "--enable-debug-command", "yes"], |server| {
        let mut subscriber = hear_of_deaths(server);
        let mut client = server.client();
        let mut readers: Vec<Client> = (0..READERS).map(|_| server.client()).collect();
        for round in 0..40 {
            // Transactions that are long on their way have moments that other shards' clocks would have passed.
            server.delay_shards(if round % 2 == 0 { 0 } else { 300 });
            let names: Vec<String> = (0..KEYS).map(|i| format!("{round}:{i}")).collect();
            let all = format!("MGET {}", names.join(" "));
            let none = |client: &mut Client| {
                let reply = client.call(&all);
                let missing = reply.items().iter().filter(|value| value.is_null()).count();
                assert!(missing == 0 || missing == KEYS, "{missing} of {KEYS} are dead");
                missing == KEYS
            };
            let deadline_ms = wall_ms() + 30;
            let sets: Vec<Vec<Vec<u8>>> =
                names.iter().map(|name| words(&format!("SET {name} v PXAT {deadline_ms}"))).collect();
            assert!(client.pipeline(&sets).iter().all(|reply| *reply == simple("OK")));
            if wall_ms() >= deadline_ms {
                // Some came too late to die.
                continue;
            }
            thread::scope(|scope| {
                for reader in &mut readers {
                    scope.spawn(move || while !none(reader) {});
                }
                let is_of_round = |message: &Value| message.items()[2].text().starts_with(&format!("{round}:"));
                while !is_of_round(&subscriber.read()) {}
                assert!(wall_ms() > deadline_ms, "told before it was dead");
                assert!(none(&mut client), "seen after its death was told");
            });
        }
        server.delay_shards(0);
        eprintln!(
            "deleted by the cycle: {:?}, in all: {:?}",
            server.info("expired_keys_active"),
            server.info("expired_keys")
        );
    });
}
