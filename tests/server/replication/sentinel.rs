//! Debian's Sentinel, as it is, fails over from one EmberDB to another.

use super::{PATIENCE, field, replica_of, settle, wait_for_link};
use crate::common::server::{Port, are_under_tls};
use crate::common::{Client, Kind, Server, Value, encode, have_tool, int, wait_until};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

struct Sentinel {
    child: Child,
    port: Port,
    folder: tempfile::TempDir,
}

impl Sentinel {
    fn of(primary: &Server) -> Sentinel {
        let (folder, port) = (tempfile::tempdir().expect("a folder"), Port::claim());
        let file = folder.path().join("sentinel.conf");
        let text = format!(
            "port {}\nbind 127.0.0.1\ndir {}\nsentinel monitor m 127.0.0.1 {} 1\nsentinel down-after-milliseconds m 1000\n\
             sentinel failover-timeout m 10000\nsentinel parallel-syncs m 1\n",
            port.number(),
            folder.path().display(),
            primary.port()
        );
        std::fs::write(&file, text).expect("a file");
        let log = std::fs::File::create(folder.path().join("log")).expect("a file");
        let child = Command::new("redis-server").arg(&file).arg("--sentinel").stdout(Stdio::from(log)).spawn();
        Sentinel { child: child.expect("it starts"), port, folder }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).expect("its log")
    }

    fn client(&self) -> Client {
        let mut client = None;
        assert!(wait_until(PATIENCE, || {
            client = Client::connect(self.port.number()).ok();
            client.is_some()
        }));
        client.expect("it answers")
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a server says so. (Sentinel ends connections of clients where it changes a role.)
fn has_role(server: &Server, role: &str) -> bool {
    let asked = Client::connect(server.port()).and_then(|mut client| {
        client.try_send_raw(&encode(&["ROLE"]))?;
        client.try_read()
    });
    asked.is_ok_and(|said| said.items().first().is_some_and(|first| first.text() == role))
}

/// No write that WAIT 1 has acknowledged is lost, keys keep their deadlines, and the former primary follows when it comes back.
#[test]
fn sentinel_fails_over() {
    if !have_tool("redis-server") || are_under_tls() {
        return;
    }
    let flags = ["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"];
    let primary = Server::start(Kind::Ember { shards: 2 }, &flags);
    let replica = replica_of(&primary, Kind::Ember { shards: 3 }, &flags);
    wait_for_link(&replica);
    let sentinel = Sentinel::of(&primary);
    let mut asked = sentinel.client();
    let replicas = |client: &mut Client| client.call("SENTINEL REPLICAS m").items().len();
    assert!(wait_until(PATIENCE, || replicas(&mut asked) == 1));
    let mut client = primary.client();
    client.call("SET lives 1 EX 1000");
    let mut acknowledged = 0;
    for number in 0..500 {
        client.call(&format!("SET key:{number} {number}"));
        if client.call("WAIT 1 1000") == int(1) {
            acknowledged = number;
        }
    }
    primary.signal("KILL");
    let began = Instant::now();
    assert!(wait_until(PATIENCE, || has_role(&replica, "master")));
    let lasted = began.elapsed();
    eprintln!("promoted after {lasted:?}");
    assert!(lasted < Duration::from_secs(20), "{lasted:?}");
    // Sentinel connects to the new primary a second after its last try with the former one: with a second of patience it can take the
    // new primary for down at once, and promote the former one, which comes back empty.
    assert_eq!(sentinel.client().call("SENTINEL SET m down-after-milliseconds 10000"), Value::ok());
    // (Until then Sentinel ends connections of clients.)
    let address = || sentinel.client().call("SENTINEL GET-MASTER-ADDR-BY-NAME m");
    let is_known = || address().items().get(1).is_some_and(|port| port.text() == replica.port().to_string());
    assert!(wait_until(PATIENCE, is_known));
    let mut client = replica.client();
    for number in 0..=acknowledged {
        assert_eq!(client.call(&format!("GET key:{number}")).text(), number.to_string());
    }
    assert!(client.call("TTL lives").number() > 900);
    assert!(wait_until(PATIENCE, || client.call("SET new 1") == Value::ok()));
    let former = primary.restart(&[&flags[..], &["--shards", "2"]].concat());
    // (Sentinel waits for a while before it does that, and for half a minute each time it has seen the machine stand still.)
    assert!(wait_until(Duration::from_secs(180), || has_role(&former, "slave")), "{}", sentinel.log());
    std::thread::sleep(Duration::from_millis(300));
    wait_for_link(&former);
    settle(&replica, &former);
    assert_eq!(field(&replica, "connected_slaves"), "1");
}
