//! What is told of users: ACL LOG, CLIENT LIST, the words of refusals.

use crate::common::{Server, Value, bulk, error, int, on_embers, on_every_server};
use std::collections::BTreeMap;

const WRONG: &str = "WRONGPASS invalid username-password pair or user is disabled.";

fn entries(server: &Server, line: &str) -> Vec<BTreeMap<String, String>> {
    let log = server.client().call(line);
    let of_entry = |entry: &Value| {
        let pairs = entry.items().chunks_exact(2);
        pairs
            .map(|pair| {
                (pair[0].text(), if pair[0].text() == "count" { pair[1].number().to_string() } else { pair[1].text() })
            })
            .collect()
    };
    log.items().iter().map(of_entry).collect()
}

#[test]
fn refusals_are_kept() {
    on_every_server(&["--acllog-max-len", "4"], |server| {
        let mut admin = server.client();
        admin.call("ACL SETUSER anna on >x ~a &c +@all -flushall");
        let mut anna = server.client();
        assert_eq!(anna.call("AUTH anna y"), error(WRONG));
        assert_eq!(anna.call("HELLO 2 AUTH anna y"), error(WRONG));
        anna.call("HELLO 2 AUTH anna x SETNAME hers");
        anna.call("FLUSHALL");
        (0..3).for_each(|_| assert!(anna.call("GET b").is_error()));
        anna.call("PUBLISH d x");
        anna.call("MULTI");
        anna.call("GET b");
        anna.call("DISCARD");
        let told: Vec<Vec<String>> = entries(server, "ACL LOG")
            .iter()
            .map(|entry| ["count", "reason", "context", "object", "username"].map(|name| entry[name].clone()).to_vec())
            .collect();
        assert_eq!(
            told,
            [
                ["1", "key", "multi", "b", "anna"],
                ["1", "channel", "toplevel", "d", "anna"],
                ["3", "key", "toplevel", "b", "anna"],
                ["1", "command", "toplevel", "flushall", "anna"],
            ]
        );
        let entry = &entries(server, "ACL LOG 2")[1];
        assert_eq!(entry.len(), 7);
        assert!(entry["client-info"].contains(" name=hers ") && entry["client-info"].contains(" user=anna "));
        assert!(entry["client-info"].contains(" cmd=publish "), "{}", entry["client-info"]);
        assert!(entry["age-seconds"].parse::<f64>().unwrap() < 30.0);
        assert_eq!(entries(server, "ACL LOG 1").len(), 1);
        assert_eq!(entries(server, "ACL LOG 0").len() + entries(server, "ACL LOG -1").len(), 0);
        assert_eq!(admin.call("ACL LOG RESET"), Value::ok());
        assert!(entries(server, "ACL LOG").is_empty());
        assert_eq!(admin.call("CONFIG SET acllog-max-len 0"), Value::ok());
        anna.call("GET b");
        assert!(entries(server, "ACL LOG").is_empty());
    });
}

#[test]
fn wrong_names_and_passwords_are_kept() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        for line in ["AUTH nobody hunter2", "AUTH nobody hunter3", "HELLO 2 AUTH anna hunter2"] {
            assert_eq!(client.call(line), error(WRONG));
        }
        let log = entries(server, "ACL LOG");
        assert_eq!(log.len(), 2);
        assert_eq!((&log[0]["object"][..], &log[0]["username"][..]), ("HELLO", "anna"));
        assert_eq!((&log[1]["object"][..], &log[1]["username"][..], &log[1]["count"][..]), ("AUTH", "nobody", "2"));
        assert!(log.iter().all(|entry| entry["reason"] == "auth" && !format!("{entry:?}").contains("hunter")));
    });
}

#[test]
fn long_names_are_cut() {
    on_embers(&[], |server| {
        let mut admin = server.client();
        admin.call("ACL SETUSER anna on nopass +get");
        let mut anna = server.client();
        anna.call("AUTH anna x");
        anna.command(&[&b"GET"[..], &vec![b'k'; 1 << 20]]);
        anna.command(&[&b"AUTH"[..], &vec![b'u'; 1 << 20], b"x"]);
        let log = entries(server, "ACL LOG");
        assert_eq!((log[0]["username"].len(), log[1]["object"].len()), (1024, 1024));
    });
}

#[test]
fn connections_are_shown_with_their_users() {
    on_every_server(&[], |server| {
        let mut admin = server.client();
        admin.call("ACL SETUSER anna on nopass +@all");
        let mut anna = server.client();
        anna.call("AUTH anna x");
        assert_eq!(anna.call("ACL WHOAMI"), bulk("anna"));
        assert!(anna.call("CLIENT INFO").text().contains(" user=anna "));
        let list = admin.call("CLIENT LIST").text();
        assert!(list.contains(" user=anna ") && list.contains(" user=default "), "{list}");
        assert_eq!(admin.call("CLIENT KILL USER nobody"), error("ERR No such user 'nobody'"));
        assert_eq!(admin.call("CLIENT KILL USER anna"), int(1));
        assert!(anna.is_closed_by_server());
        let mut again = server.client();
        again.call("AUTH anna x");
        assert_eq!(again.call("RESET").text(), "RESET");
        assert_eq!(again.call("ACL WHOAMI"), bulk("default"));
    });
}

#[test]
fn who_has_not_said_who_he_is_may_say_it() {
    on_every_server(&[], |server| {
        let mut admin = server.client();
        admin.call("ACL SETUSER anna on >x ~* +@all");
        assert_eq!(admin.call("ACL SETUSER default off"), Value::ok());
        let no_auth = error("NOAUTH Authentication required.");
        let mut client = server.client();
        for line in ["PING", "GET a", "ACL WHOAMI", "MULTI", "SUBSCRIBE a"] {
            assert_eq!(client.call(line), no_auth, "{line}");
        }
        assert!(client.call("HELLO 3").text().starts_with("NOAUTH HELLO must be called"));
        assert!(client.call("AUTH x").is_error());
        assert!(!client.call("HELLO 2 AUTH anna x").is_error());
        assert_eq!(client.call("ACL WHOAMI"), bulk("anna"));
        assert_eq!(client.call("AUTH anna wrong"), error(WRONG));
        assert_eq!(client.call("ACL WHOAMI"), bulk("anna"), "who fails stays who he was");
        client.call("RESET");
        assert_eq!(client.call("PING"), no_auth);
        assert_eq!(client.call("QUIT"), Value::ok());
    });
}

#[test]
fn names_of_users() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        let blank = error("ERR Usernames can't contain spaces or null characters");
        for name in [&b"a b"[..], b"a\0", b"\ta", b"a\n"] {
            assert_eq!(client.command(&[&b"ACL"[..], b"SETUSER", name]), blank);
        }
        for name in [&b"\xff\xfe"[..], b"UPPER", b"(", b"\"quoted\""] {
            assert_eq!(client.command(&[&b"ACL"[..], b"SETUSER", name, b"on", b">x"]), Value::ok());
            assert_eq!(server.client().command(&[&b"AUTH"[..], name, b"x"]), Value::ok());
        }
        assert!(server.client().call("AUTH upper x").is_error(), "names differ by case");
        assert_eq!(client.call("ACL USERS").items().len(), 5);
    });
}
