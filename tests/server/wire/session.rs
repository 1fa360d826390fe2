//! What one connection agrees on with the server: protocol version, password, name, database, and its end.

use std::io::Read;
use std::time::Duration;

use crate::common::{Value, bulk, error, int, on_embers, on_every_server, simple, words};

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const NO_AUTH: &str = "NOAUTH Authentication required.";

#[test]
fn ping_and_echo_return_what_they_are_given() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("PING"), simple("PONG"));
        assert_eq!(client.call("PING hello"), bulk("hello"));
        assert_eq!(client.call("ECHO hello"), bulk("hello"));
        assert_eq!(client.call("PING a b"), error("ERR wrong number of arguments for 'ping' command"));
    });
}

#[test]
fn quit_answers_ok_and_ends_the_connection_there() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        client.send_raw(b"SET before 1\r\nQUIT\r\nSET after 1\r\n");
        assert_eq!(client.read(), Value::ok());
        assert_eq!(client.read(), Value::ok());
        assert!(client.is_closed_by_server());
        assert_eq!(server.client().call("EXISTS before after"), int(1));
    });
}

#[test]
fn hello_describes_the_server() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        for (hello, proto) in [("HELLO", 2), ("HELLO 2", 2), ("HELLO 3", 3), ("HELLO", 3)] {
            let reply = client.call(hello);
            assert_eq!(matches!(reply, Value::Map(_)), proto == 3, "{hello}: {reply:?}");
            let field = |name: &str| reply.field(name).unwrap_or_else(|| panic!("no {name} in {reply:?}"));
            assert!(!field("server").text().is_empty());
            assert!(field("version").text().split('.').count() == 3);
            assert_eq!(field("proto"), int(proto));
            assert_eq!(field("mode"), bulk("standalone"));
            assert_eq!(field("role"), bulk("master"));
            assert_eq!(field("modules"), Value::Array(vec![]));
            assert_eq!(field("id"), client.call("CLIENT ID"));
        }
        assert!(matches!(client.call("HELLO 2"), Value::Array(_)));
    });
}

#[test]
fn hello_refuses_what_it_does_not_speak_and_changes_nothing() {
    on_every_server(&[], |server| {
        let mut client = server.client3();
        let version = error("NOPROTO unsupported protocol version");
        assert_eq!(client.call("HELLO 4"), version);
        assert_eq!(client.call("HELLO 1"), version);
        assert_eq!(client.call("HELLO three"), error("ERR Protocol version is not an integer or out of range"));
        assert_eq!(client.call("HELLO 2 FOO"), error("ERR Syntax error in HELLO option 'FOO'"));
        assert_eq!(client.call("HELLO 2 AUTH default"), error("ERR Syntax error in HELLO option 'AUTH'"));
        assert_eq!(
            client.command(&["HELLO", "2", "SETNAME", "two words"]),
            error("ERR Client names cannot contain spaces, newlines or special characters.")
        );
        assert_eq!(client.call("GET nothing"), Value::Null, "still RESP3");
    });
}

#[test]
fn hello_can_authenticate_and_name_the_connection() {
    on_every_server(&["--requirepass", "secret"], |server| {
        let mut client = server.client();
        assert_eq!(
            client.call("HELLO 3"),
            error(
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH \
                 <user> <pass> option can be used to authenticate the client and select the RESP protocol version at \
                 the same time"
            )
        );
        assert_eq!(client.call("HELLO 3 AUTH default wrong"), error(WRONG_PASSWORD));
        assert_eq!(client.call("GET k"), error(NO_AUTH));
        let reply = client.call("HELLO 3 AUTH default secret SETNAME worker");
        assert_eq!(reply.field("proto"), Some(int(3)));
        assert_eq!(client.call("CLIENT GETNAME"), bulk("worker"));
        assert_eq!(client.call("GET k"), Value::Null);
    });
}

#[test]
fn a_password_shuts_strangers_out_until_auth() {
    on_every_server(&["--requirepass", "secret"], |server| {
        let mut client = server.client();
        for command in ["GET k", "PING", "CLIENT ID", "CONFIG GET *", "NOSUCH x"] {
            let reply = client.call(command);
            let unknown = command.starts_with("NOSUCH");
            assert!(unknown || reply == error(NO_AUTH), "{command}: {reply:?}");
        }
        assert_eq!(client.call("AUTH wrong"), error(WRONG_PASSWORD));
        assert_eq!(client.call("AUTH nobody secret"), error(WRONG_PASSWORD));
        assert_eq!(client.call("AUTH a b c"), error("ERR syntax error"), "too many arguments");
        assert_eq!(client.call("GET k"), error(NO_AUTH));
        assert_eq!(client.call("AUTH secret"), Value::ok());
        assert_eq!(client.call("GET k"), Value::NullBulk);
        assert_eq!(server.client().call("AUTH default secret"), Value::ok());
    });
}

#[test]
fn auth_without_a_password_says_so() {
    on_every_server(&[], |server| {
        assert_eq!(
            server.client().call("AUTH secret"),
            error(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
                 configuration is correct?"
            )
        );
    });
}

#[test]
fn a_password_set_at_run_time_holds_for_new_connections_on_every_shard() {
    on_every_server(&[], |server| {
        let mut old = server.client();
        assert_eq!(old.call("CONFIG SET requirepass secret"), Value::ok());
        assert_eq!(old.call("PING"), simple("PONG"), "was there before");
        for _ in 0..6 {
            assert_eq!(server.client().call("PING"), error(NO_AUTH));
        }
        assert_eq!(old.command(&["CONFIG", "SET", "requirepass", ""]), Value::ok());
        for _ in 0..6 {
            assert_eq!(server.client().call("PING"), simple("PONG"));
        }
    });
}

#[test]
fn reset_takes_a_connection_back_to_its_beginning() {
    on_every_server(&["--requirepass", "secret"], |server| {
        let mut client = server.client();
        assert!(!client.call("HELLO 3 AUTH default secret SETNAME worker").is_error());
        assert_eq!(client.call("SELECT 5"), Value::ok());
        assert!(matches!(client.call("SUBSCRIBE news"), Value::Push(_)));
        assert_eq!(client.call("RESET"), simple("RESET"));
        assert_eq!(client.call("PING"), error(NO_AUTH));
        assert_eq!(client.call("AUTH secret"), Value::ok());
        assert_eq!(client.call("CLIENT GETNAME"), Value::NullBulk, "RESP2, no name");
        let info = client.call("CLIENT INFO").text();
        assert!(info.contains(" db=0 ") && info.contains(" sub=0 "), "{info}");
    });
}

#[test]
fn a_connection_keeps_its_database_to_itself() {
    on_every_server(&[], |server| {
        let mut first = server.client();
        let mut second = server.client();
        assert_eq!(first.call("SELECT 3"), Value::ok());
        assert_eq!(first.call("SET k three"), Value::ok());
        assert_eq!(second.call("GET k"), Value::NullBulk);
        assert_eq!(second.call("DBSIZE"), int(0));
        assert_eq!(first.call("DBSIZE"), int(1));
        assert_eq!(first.call("SELECT 16"), error("ERR DB index is out of range"));
        assert_eq!(first.call("GET k"), bulk("three"), "stays where it was");
        assert_eq!(first.call("FLUSHDB"), Value::ok());
        assert_eq!(first.call("DBSIZE"), int(0));
    });
}

/// One reply of each kind that the two protocol versions spell differently.
#[test]
fn replies_have_the_types_of_the_protocol_version() {
    on_every_server(&[], |server| {
        let mut two = server.client();
        let mut three = server.client3();
        assert_eq!(two.call("SET k v EX 1000"), Value::ok());

        assert_eq!(two.call("GET nothing"), Value::NullBulk);
        assert_eq!(three.call("GET nothing"), Value::Null);
        assert_eq!(two.call("MGET k nothing").items()[1], Value::NullBulk);
        assert_eq!(three.call("MGET k nothing").items()[1], Value::Null);
        assert_eq!(two.call("SET k w NX"), Value::NullBulk);
        assert_eq!(three.call("SET k w NX"), Value::Null);
        assert_eq!(two.call("CONFIG GET hz"), Value::bulks(&["hz", "10"]));
        let map = Value::Map(vec![(bulk("hz"), bulk("10"))]);
        assert_eq!(three.call("CONFIG GET hz"), map);
        assert_eq!(two.call("COMMAND INFO nosuch").items()[0], Value::NullBulk);
        assert_eq!(three.call("COMMAND INFO nosuch").items()[0], Value::Null);
        assert!(matches!(two.call("COMMAND DOCS get"), Value::Array(_)));
        assert!(matches!(three.call("COMMAND DOCS get"), Value::Map(_)));
        let flags = |info: Value| info.items()[0].items()[2].clone();
        assert!(matches!(flags(two.call("COMMAND INFO get")), Value::Array(_)));
        assert!(matches!(flags(three.call("COMMAND INFO get")), Value::Set(_)));
        assert!(matches!(two.call("INFO server"), Value::Bulk(_)));
        assert!(matches!(three.call("INFO server"), Value::Verbatim(..)));
        assert!(matches!(two.call("CLIENT LIST"), Value::Bulk(_)));
        assert!(matches!(three.call("CLIENT LIST"), Value::Verbatim(..)));
        assert!(matches!(two.call("LCS k k IDX"), Value::Array(_)));
        assert!(matches!(three.call("LCS k k IDX"), Value::Map(_)));
        // Integers and simple strings are the same in both.
        assert_eq!(three.call("TTL nothing"), int(-2));
        assert_eq!(three.call("PING"), simple("PONG"));
    });
}

#[test]
fn debug_protocol_shows_every_type() {
    on_every_server(&["--enable-debug-command", "yes"], |server| {
        let mut two = server.client();
        let mut three = server.client3();
        let mut both = |kind: &str| {
            let command = words(&format!("DEBUG PROTOCOL {kind}"));
            (two.command(&command), three.command(&command))
        };
        let numbers = || vec![int(0), int(1), int(2)];
        assert_eq!(both("STRING"), (bulk("Hello World"), bulk("Hello World")));
        assert_eq!(both("INTEGER"), (int(12345), int(12345)));
        assert_eq!(both("DOUBLE"), (bulk("3.141"), Value::Double("3.141".into())));
        assert_eq!(both("NULL"), (Value::NullBulk, Value::Null));
        assert_eq!(both("ARRAY"), (Value::Array(numbers()), Value::Array(numbers())));
        assert_eq!(both("SET"), (Value::Array(numbers()), Value::Set(numbers())));
        let pairs = [(0, false), (1, true), (2, false)];
        let flat = pairs.iter().flat_map(|(n, b)| [int(*n), int(i64::from(*b))]);
        let map = pairs.iter().map(|(n, b)| (int(*n), Value::Bool(*b)));
        assert_eq!(both("MAP"), (Value::Array(flat.collect()), Value::Map(map.collect())));
        assert_eq!(both("TRUE"), (int(1), Value::Bool(true)));
        assert_eq!(both("FALSE"), (int(0), Value::Bool(false)));
        let big = "1234567999999999999999999999999999999";
        assert_eq!(both("BIGNUM"), (bulk(big), Value::BigNumber(big.into())));
        let verbatim = "This is a verbatim\nstring";
        assert_eq!(both("VERBATIM"), (bulk(verbatim), Value::Verbatim(b"txt".to_vec(), verbatim.into())));
    });
}

#[test]
fn client_reply_silences_the_connection_as_asked() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        client.send("CLIENT REPLY OFF");
        client.send("SET k 1");
        client.send("GET k");
        assert_eq!(client.call("CLIENT REPLY ON"), Value::ok(), "the first reply again");
        assert_eq!(client.call("GET k"), bulk("1"));
        client.send("CLIENT REPLY SKIP");
        client.send("INCR k");
        assert_eq!(client.call("GET k"), bulk("2"), "INCR's was skipped");
        assert_eq!(client.call("CLIENT REPLY maybe"), error("ERR syntax error"));
        client.assert_in_step();
    });
}

/// What comes back where CLIENT REPLY stands at odd places, a marker behind it.
#[test]
fn client_reply_silences_what_it_silences_in_redis() {
    on_every_server(&[], |server| {
        let header = |length: usize| format!("*{length}\r\n").into_bytes();
        let lines = |text: &str| text.split(' ').map(|word| format!("{word}\r\n")).collect::<String>().into_bytes();
        for (request, expected) in [
            ("CLIENT REPLY SKIP|RESET|PING", lines("+PONG")),
            ("CLIENT REPLY OFF|RESET|PING", lines("+RESET +PONG")),
            ("CLIENT REPLY SKIP|CLIENT REPLY x|PING", lines("+PONG")),
            ("CLIENT REPLY SKIP|CLIENT REPLY ON|PING", lines("+OK +PONG")),
            ("CLIENT REPLY SKIP|CLIENT REPLY SKIP|PING|PING", lines("+PONG")),
            ("CLIENT REPLY SKIP|CLIENT REPLY OFF|PING|CLIENT REPLY ON", lines("+OK")),
            ("CLIENT REPLY OFF|CLIENT REPLY SKIP|CLIENT REPLY ON|PING", lines("+OK +PONG")),
            ("CLIENT REPLY SKIP|HELLO 9|PING", lines("+PONG")),
            ("CLIENT REPLY SKIP|NOSUCH|PING", lines("+PONG")),
            ("CLIENT REPLY SKIP|KEYS nothing*|PING", lines("+PONG")),
            ("CLIENT REPLY OFF|PUBSUB CHANNELS|PUBLISH a b|CLIENT REPLY ON", lines("+OK")),
            (
                "MULTI|CLIENT REPLY OFF|PING|SET k v|EXEC|PING|CLIENT REPLY ON|PING",
                [lines("+OK +QUEUED +QUEUED +QUEUED"), header(3), lines("+OK +PONG")].concat(),
            ),
            (
                "MULTI|CLIENT REPLY OFF|DBSIZE|CLIENT LIST|EXEC|CLIENT REPLY ON",
                [lines("+OK +QUEUED +QUEUED +QUEUED"), header(3), lines("+OK")].concat(),
            ),
            (
                "MULTI|CLIENT REPLY SKIP|PING|EXEC|PING|PING",
                [lines("+OK +QUEUED +QUEUED"), header(2), lines("+PONG +PONG")].concat(),
            ),
        ] {
            let mut client = server.client();
            request.split('|').for_each(|command| client.send(command));
            client.send("ECHO marker");
            let end = b"$6\r\nmarker\r\n";
            let mut bytes = Vec::new();
            while !bytes.ends_with(end) {
                let mut some = [0; 1024];
                let count = client.stream().read(&mut some).expect("the marker");
                assert!(count > 0, "{request}");
                bytes.extend_from_slice(&some[..count]);
            }
            bytes.truncate(bytes.len() - end.len());
            assert_eq!(bytes.escape_ascii().to_string(), expected.escape_ascii().to_string(), "{request}");
        }
    });
}

#[test]
fn replies_of_commands_for_all_shards_keep_their_place() {
    on_embers(&[], |server| {
        let mut client = server.client();
        let mut commands = Vec::new();
        for i in 0..200 {
            commands.push(words(&format!("SET key:{i} {i}")));
            commands.push(words(&format!("MGET key:{i} key:nothing")));
            commands.push(words("DBSIZE"));
            commands.push(words(&format!("ECHO {i}")));
        }
        for (i, replies) in client.pipeline(&commands).chunks(4).enumerate() {
            let text = i.to_string();
            let values = Value::Array(vec![bulk(&text), Value::NullBulk]);
            let expected = [Value::ok(), values, int(i as i64 + 1), bulk(&text)];
            assert_eq!(replies, expected);
        }
        assert_eq!(client.read_within(Duration::from_millis(20)), None);
    });
}
