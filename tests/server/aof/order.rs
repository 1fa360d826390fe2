//! Clients that do not wait for a reply before they send the next request: replies come in the order of the requests,
//! whatever of them waits for the disk.

use crate::common::{Client, Kind, Server, Value, bulk, encode, int, simple, wait_until, words};
use std::io::Write;
use std::thread;
use std::time::Duration;

const REQUESTS: i64 = 4_000;

/// Sends the requests a packet each, while the replies are read.
fn each_alone(client: &mut Client, requests: Vec<Vec<u8>>, replies: usize) -> Vec<Value> {
    let mut stream = client.stream().try_clone().expect("a socket");
    stream.set_nodelay(true).expect("a socket");
    thread::scope(|scope| {
        scope.spawn(move || requests.iter().for_each(|request| stream.write_all(request).expect("it is read")));
        (0..replies).map(|_| client.read()).collect()
    })
}

fn request(line: &str) -> Vec<u8> {
    encode(&words(line))
}

#[test]
fn replies_that_wait_for_the_disk_stay_in_order() {
    for shards in [1, 2] {
        let flags = ["--appendonly", "yes", "--appendfsync", "always"];
        let server = Server::start(Kind::Ember { shards }, &flags);
        let mut client = server.client();

        let requests = (0..REQUESTS).map(|_| request("INCR n")).collect();
        let replies = each_alone(&mut client, requests, REQUESTS as usize);
        assert_eq!(replies, (1..=REQUESTS).map(int).collect::<Vec<_>>());

        // What waits for the disk and what does not, on one shard and on another, alone and in transactions.
        let mut requests = Vec::new();
        let mut expected = Vec::new();
        for count in 1..=REQUESTS / 8 {
            for key in ["{a}n", "{b}n", "{c}n"] {
                requests.push(request(&format!("INCR {key}")));
                expected.push(int(count));
            }
            requests.push(request(&format!("ECHO {count}")));
            expected.push(bulk(count.to_string()));
            for line in ["MULTI", "INCR {a}t", "INCR {d}t", "EXEC"] {
                requests.push(request(line));
            }
            let queued = simple("QUEUED");
            expected.extend([Value::ok(), queued.clone(), queued, Value::Array(vec![int(count), int(count)])]);
        }
        let count = expected.len();
        assert_eq!(each_alone(&mut client, requests, count), expected);
    }
}

/// Changes of libraries and policies stood in the log in another order than they took effect where several shards made them.
#[test]
fn what_took_effect_last_stands_last_in_the_log() {
    const ROUNDS: usize = 60;
    let flags = ["--appendonly", "yes", "--appendfsync", "always"];
    let server = Server::start(Kind::Ember { shards: 3 }, &flags);
    let mut clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
    let mut value = 1_000;
    for round in 0..ROUNDS {
        for client in &mut clients {
            value += 1;
            let name = format!("lib{round}");
            let code = format!("#!lua name={name}\nredis.register_function('{name}f', function() return {value} end)");
            client.send_raw(&encode(&["FUNCTION", "LOAD", "REPLACE", &code]));
            client.send(&format!("EXPIRY POLICY SET p{round}: {value}s"));
        }
        for client in &mut clients {
            assert_eq!(client.read(), bulk(format!("lib{round}")));
            assert_eq!(client.read(), Value::ok());
        }
    }
    let state = |client: &mut Client| -> Vec<Value> {
        let lines = (0..ROUNDS).map(|round| [format!("FCALL lib{round}f 0"), format!("EXPIRY POLICY GET p{round}:")]);
        lines.flatten().map(|line| client.call(&line)).collect()
    };
    let before = state(&mut server.client());
    server.signal("KILL");
    let server = server.restart(&flags);
    let mut client = server.client();
    assert!(wait_until(Duration::from_secs(20), || !client.call("DBSIZE").is_error()));
    assert_eq!(state(&mut client), before);
}
