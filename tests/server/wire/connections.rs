//! CLIENT: looking at connections, naming them, ending them, holding them up. A server of several shards answers as if
//! it had one list of connections.

use std::collections::BTreeSet;
use std::io::Read;
use std::time::{Duration, Instant};

use crate::common::{
    Client, Server, Value, bulk, encode, error, int, on_embers, on_every_server, simple, wait_until, words,
};

/// More than there are shards, so that some of them share one.
const CONNECTIONS: usize = 8;
const PATIENCE: Duration = Duration::from_secs(10);

fn connections(server: &Server) -> Vec<Client> {
    (0..CONNECTIONS).map(|_| server.client()).collect()
}

fn id(client: &mut Client) -> i64 {
    client.call("CLIENT ID").number()
}

/// The value of `name=value` in a line of CLIENT LIST.
fn field<'a>(line: &'a str, name: &str) -> &'a str {
    line.split_whitespace()
        .filter_map(|pair| pair.split_once('='))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value)
        .unwrap_or_else(|| panic!("no {name} in {line}"))
}

fn ids(list: &Value) -> BTreeSet<i64> {
    let text = list.text();
    let lines = text.lines();
    lines.map(|line| field(line, "id").parse().expect("an id")).collect()
}

#[test]
fn ids_grow_and_are_never_shared() {
    on_every_server(&[], |server| {
        let mut clients = connections(server);
        let ids: Vec<i64> = clients.iter_mut().map(id).collect();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{ids:?}");
        drop(clients);
        assert!(id(&mut server.client()) > ids[CONNECTIONS - 1]);
    });
}

#[test]
fn a_name_is_set_read_and_removed() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("CLIENT GETNAME"), Value::NullBulk);
        assert_eq!(client.call("CLIENT SETNAME worker-1"), Value::ok());
        assert_eq!(client.call("CLIENT GETNAME"), bulk("worker-1"));
        assert_eq!(field(&client.call("CLIENT INFO").text(), "name"), "worker-1");
        assert_eq!(
            client.command(&["CLIENT", "SETNAME", "two words"]),
            error("ERR Client names cannot contain spaces, newlines or special characters.")
        );
        assert_eq!(client.call("CLIENT GETNAME"), bulk("worker-1"));
        assert_eq!(client.command(&["CLIENT", "SETNAME", ""]), Value::ok());
        assert_eq!(client.call("CLIENT GETNAME"), Value::NullBulk);
    });
}

#[test]
fn a_library_tells_its_name_and_version() {
    on_embers(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("CLIENT SETINFO LIB-NAME ember-rs"), Value::ok());
        assert_eq!(client.call("CLIENT SETINFO lib-ver 1.2.3"), Value::ok());
        let info = client.call("CLIENT INFO").text();
        assert_eq!(field(&info, "lib-name"), "ember-rs");
        assert_eq!(field(&info, "lib-ver"), "1.2.3");
        assert_eq!(client.call("CLIENT SETINFO colour red"), error("ERR Unrecognized option 'colour'"));
        assert_eq!(
            client.command(&["CLIENT", "SETINFO", "LIB-NAME", "two words"]),
            error("ERR lib-name cannot contain spaces, newlines or special characters.")
        );
        let long = "n".repeat(16_385);
        for (request, what) in
            [("SETNAME", "Client names"), ("SETINFO lib-name", "lib-name"), ("SETINFO lib-ver", "lib-ver")]
        {
            assert_eq!(client.call(&format!("CLIENT {request} {}", &long[1..])), Value::ok());
            let refused = error(&format!("ERR {what} cannot be longer than 16384 bytes."));
            assert_eq!(client.call(&format!("CLIENT {request} {long}")), refused);
        }
    });
}

#[test]
fn the_list_shows_every_connection_of_every_shard() {
    on_every_server(&[], |server| {
        let mut clients = connections(server);
        let expected: BTreeSet<i64> = clients.iter_mut().map(id).collect();
        clients[3].call("SELECT 7");
        let list = clients[0].call("CLIENT LIST");
        assert!(ids(&list).is_superset(&expected));
        let text = list.text();
        let wanted = id(&mut clients[3]).to_string();
        let line = text.lines().find(|line| field(line, "id") == wanted);
        let line = line.expect("the fourth connection");
        assert_eq!(field(line, "db"), "7");
        assert_eq!(field(line, "resp"), "2");
        assert_eq!(field(line, "user"), "default");
        let address = clients[3].stream().local_addr().expect("an address");
        assert_eq!(field(line, "addr"), address.to_string());
        assert_eq!(field(line, "laddr"), format!("127.0.0.1:{}", server.port()));
        for name in ["fd", "name", "age", "idle", "flags", "sub", "psub", "cmd"] {
            field(line, name);
        }
    });
}

#[test]
fn the_list_can_be_narrowed_by_id_and_type() {
    on_every_server(&[], |server| {
        let mut clients = connections(server);
        let (a, b) = (id(&mut clients[1]), id(&mut clients[6]));
        let some = clients[0].call(&format!("CLIENT LIST ID {a} {b} 999999"));
        assert_eq!(ids(&some), BTreeSet::from([a, b]));
        clients[6].call("SUBSCRIBE news");
        let subscribers = clients[0].call("CLIENT LIST TYPE pubsub");
        assert_eq!(ids(&subscribers), BTreeSet::from([b]));
        let normal = clients[0].call("CLIENT LIST TYPE normal");
        assert!(ids(&normal).contains(&a) && !ids(&normal).contains(&b));
        assert_eq!(clients[0].call("CLIENT LIST TYPE foo"), error("ERR Unknown client type 'foo'"));
        assert_eq!(clients[0].call("CLIENT LIST ID x"), error("ERR Invalid client ID"));
    });
}

#[test]
fn info_is_the_line_of_ones_own_connection() {
    on_every_server(&[], |server| {
        let mut client = server.client3();
        let own = id(&mut client).to_string();
        let info = client.call("CLIENT INFO").text();
        assert_eq!(info.lines().count(), 1);
        assert_eq!(field(&info, "id"), own);
        assert_eq!(field(&info, "resp"), "3");
        assert_eq!(field(&info, "cmd"), "client|info");
    });
}

#[test]
fn kill_by_id_and_by_address_ends_that_connection_alone() {
    on_every_server(&[], |server| {
        let mut clients = connections(server);
        let mut boss = server.client();
        let victim = id(&mut clients[0]);
        assert_eq!(boss.call(&format!("CLIENT KILL ID {victim}")), int(1));
        assert!(clients[0].is_closed_by_server());
        assert_eq!(boss.call(&format!("CLIENT KILL ID {victim}")), int(0));
        let address = clients[1].stream().local_addr().expect("an address");
        assert_eq!(boss.call(&format!("CLIENT KILL ADDR {address}")), int(1));
        assert!(clients[1].is_closed_by_server());
        for client in &mut clients[2..] {
            assert_eq!(client.call("PING"), simple("PONG"));
        }
    });
}

#[test]
fn the_old_form_of_kill_answers_ok_or_an_error() {
    on_every_server(&[], |server| {
        let mut victim = server.client();
        let mut boss = server.client();
        let address = victim.stream().local_addr().expect("an address");
        assert_eq!(boss.call(&format!("CLIENT KILL {address}")), Value::ok());
        assert!(victim.is_closed_by_server());
        assert_eq!(boss.call(&format!("CLIENT KILL {address}")), error("ERR No such client"));
    });
}

#[test]
fn kill_by_type_spares_the_caller_unless_told_otherwise() {
    on_every_server(&[], |server| {
        let mut boss = server.client();
        let mut subscriber = server.client();
        subscriber.call("SUBSCRIBE news");
        assert_eq!(boss.call("CLIENT KILL TYPE pubsub"), int(1));
        assert!(subscriber.is_closed_by_server());

        let mut clients = connections(server);
        let mut bystander = server.client();
        let spared = id(&mut bystander);
        let laddr = format!("127.0.0.1:{}", server.port());
        // Conditions are joined by "and".
        assert_eq!(boss.call(&format!("CLIENT KILL ID {spared} TYPE pubsub LADDR {laddr}")), int(0));
        let others = CONNECTIONS as i64 + 1;
        assert_eq!(boss.call("CLIENT KILL TYPE normal SKIPME yes"), int(others));
        assert!(clients.iter_mut().all(Client::is_closed_by_server));
        assert_eq!(boss.call("PING"), simple("PONG"));
        assert_eq!(boss.call("CLIENT KILL TYPE normal SKIPME no"), int(1));
        assert!(boss.is_closed_by_server());
    });
}

#[test]
fn kill_refuses_what_it_does_not_understand() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        let mut refused = |options: &str, text: &str| {
            assert_eq!(client.call(&format!("CLIENT KILL {options}")), error(text));
        };
        refused("ID 0", "ERR client-id should be greater than 0");
        refused("ID x", "ERR client-id should be greater than 0");
        refused("TYPE foo", "ERR Unknown client type 'foo'");
        refused("USER nobody", "ERR No such user 'nobody'");
        refused("SKIPME maybe", "ERR syntax error");
        refused("FOO bar", "ERR syntax error");
        refused("ID 1 TYPE", "ERR syntax error");
    });
}

/// All of the transaction runs.
#[test]
fn who_ends_itself_in_a_transaction_hears_that_and_no_more() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        let own = id(&mut client);
        let kill = format!("CLIENT KILL ID {own} SKIPME no");
        let lines = ["MULTI", "SET k 1", &kill, "SET k 2", "GET k", "EXEC", "SET k 3"];
        client.send_raw(&lines.iter().flat_map(|line| encode(&words(line))).collect::<Vec<u8>>());
        let mut heard = Vec::new();
        client.stream().read_to_end(&mut heard).expect("it is ended");
        let expected = b"+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*4\r\n+OK\r\n:1\r\n";
        assert_eq!(heard.escape_ascii().to_string(), expected.escape_ascii().to_string());
        assert_eq!(server.client().call("GET k"), bulk("2"));
    });
}

#[test]
fn no_evict_and_no_touch_are_switches() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("CLIENT NO-EVICT ON"), Value::ok());
        assert!(field(&client.call("CLIENT INFO").text(), "flags").contains('e'));
        assert_eq!(client.call("CLIENT NO-EVICT OFF"), Value::ok());
        assert_eq!(client.call("CLIENT NO-EVICT maybe"), error("ERR syntax error"));
    });
    on_embers(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("CLIENT NO-TOUCH ON"), Value::ok());
        assert_eq!(client.call("CLIENT NO-TOUCH OFF"), Value::ok());
        assert_eq!(client.call("CLIENT NO-TOUCH maybe"), error("ERR syntax error"));
    });
}

#[test]
fn a_write_pause_holds_writes_and_lets_reads_pass() {
    on_every_server(&[], |server| {
        let mut boss = server.client();
        let mut clients = connections(server);
        assert_eq!(boss.call("SET k before"), Value::ok());
        assert_eq!(boss.call("CLIENT PAUSE 60000 WRITE"), Value::ok());
        for client in &mut clients {
            assert_eq!(client.call("GET k"), bulk("before"));
            client.send("SET k after");
        }
        let soon = Duration::from_millis(30);
        assert!(clients.iter_mut().all(|client| client.read_within(soon).is_none()));
        assert_eq!(boss.call("GET k"), bulk("before"));
        assert_eq!(boss.call("CLIENT UNPAUSE"), Value::ok());
        for client in &mut clients {
            assert_eq!(client.read(), Value::ok());
        }
        assert_eq!(boss.call("GET k"), bulk("after"));
    });
}

#[test]
fn a_full_pause_ends_by_itself() {
    on_every_server(&[], |server| {
        // Redis cuts what its clock shows to whole milliseconds.
        let pause = Duration::from_millis(300 - 1);
        let mut boss = server.client();
        let mut clients = connections(server);
        let begin = Instant::now();
        assert_eq!(boss.call("CLIENT PAUSE 300"), Value::ok());
        for client in &mut clients {
            client.send("PING");
        }
        for client in &mut clients {
            assert_eq!(client.read(), simple("PONG"));
        }
        assert!(begin.elapsed() >= pause, "after {:?}", begin.elapsed());
    });
}

#[test]
fn pause_refuses_bad_times_and_modes() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        let mut refused = |options: &str, text: &str| {
            assert_eq!(client.call(&format!("CLIENT PAUSE {options}")), error(text));
        };
        refused("x", "ERR timeout is not an integer or out of range");
        refused("-1", "ERR timeout is negative");
        refused("1 some", "ERR CLIENT PAUSE mode must be WRITE or ALL");
    });
}

#[test]
fn idle_connections_end_after_the_timeout_but_subscribers_stay() {
    on_every_server(&["--timeout", "1"], |server| {
        let mut subscriber = server.client();
        subscriber.call("SUBSCRIBE news");
        let mut clients = connections(server);
        assert!(clients.iter_mut().all(Client::is_closed_by_server));
        assert_eq!(server.client().call("PUBLISH news x"), int(1));
    });
}

#[test]
fn connected_clients_counts_all_shards() {
    on_every_server(&[], |server| {
        let count = || -> usize {
            let text = server.info("connected_clients").expect("connected_clients");
            text.parse().expect("a number")
        };
        // INFO itself comes over one more connection.
        let clients = connections(server);
        assert!(wait_until(PATIENCE, || count() == CONNECTIONS + 1));
        drop(clients);
        assert!(wait_until(PATIENCE, || count() == 1));
    });
}

#[test]
fn a_client_past_maxclients_is_told_so() {
    on_every_server(&["--maxclients", "5"], |server| {
        let text = "ERR max number of clients reached";
        let mut clients: Vec<Client> = Vec::new();
        let limit_reached = wait_until(PATIENCE, || {
            let mut client = server.client();
            // Greeted with the error, or answered.
            client.send("PING");
            match client.read() {
                Value::Error(reply) => {
                    assert_eq!(reply, text);
                    true
                }
                _ => {
                    clients.push(client);
                    false
                }
            }
        });
        assert!(limit_reached && clients.len() == 5, "{}", clients.len());
        assert_eq!(clients[0].call("PING"), simple("PONG"));
    });
}

#[test]
fn an_idle_connection_keeps_little_memory_whatever_it_has_said() {
    const MANY: usize = 800;
    const BYTES_EACH_MAX: u64 = 20 * 1024;
    on_embers(&[], |server| {
        let value = vec![b'v'; 50_000];
        let talk = |client: &mut Client| {
            assert_eq!(client.command(&[b"SET", b"big", &value[..]]), Value::ok());
            let gets: Vec<_> = (0..4).map(|_| vec!["GET", "big"]).collect();
            assert!(client.pipeline(&gets).iter().all(|reply| reply.bytes() == Some(&value)));
        };
        talk(&mut server.client());
        let before = server.resident_bytes();
        let mut clients: Vec<Client> = (0..MANY).map(|_| server.client()).collect();
        clients.iter_mut().for_each(talk);
        let each = || server.resident_bytes().saturating_sub(before) / MANY as u64;
        assert!(wait_until(PATIENCE, || each() <= BYTES_EACH_MAX), "{} bytes for each idle connection", each());
    });
}
