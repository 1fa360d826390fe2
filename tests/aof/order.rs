//! Clients that do not wait for a reply before they send the next request: replies come in the order of the requests,
//! whatever of them waits for the disk.

use crate::common::{Client, Kind, Server, Value, bulk, encode, int, simple, words};
use std::io::Write;
use std::thread;

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
