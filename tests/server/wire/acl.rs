//! ACL where nobody has made users: there is one, who may do everything.

use crate::common::{Client, Value, bulk, error, on_every_server};
use std::collections::BTreeSet;

const SECRET_SHA256: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

fn wrong_number(name: &str) -> Value {
    error(&format!("ERR wrong number of arguments for '{name}' command"))
}

#[test]
fn there_is_one_user() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("ACL WHOAMI"), bulk("default"));
        assert_eq!(client.call("ACL USERS"), Value::bulks(&["default"]));
        assert_eq!(client.call("ACL LIST"), Value::bulks(&["user default on nopass ~* &* +@all"]));
        assert_eq!(client.call("ACL GETUSER default"), get_user(&["on", "nopass"], &[]));
        assert_eq!(client.call("ACL GETUSER anna"), Value::NullBulk);
        assert_eq!(client.call("AUTH default anything"), Value::ok());
        assert_eq!(client.call("CONFIG SET requirepass secret"), Value::ok());
        let line = format!("user default on #{SECRET_SHA256} ~* &* +@all");
        assert_eq!(client.call("ACL LIST"), Value::bulks(&[line]));
        assert_eq!(client.call("ACL GETUSER default"), get_user(&["on"], &[SECRET_SHA256]));
        let mut stranger = server.client();
        assert_eq!(stranger.call("ACL WHOAMI"), error("NOAUTH Authentication required."));
        let wrong = error("WRONGPASS invalid username-password pair or user is disabled.");
        assert_eq!(stranger.call("AUTH default wrong"), wrong);
        assert_eq!(stranger.call("AUTH anna secret"), wrong);
        assert_eq!(stranger.call("AUTH default secret"), Value::ok());
        assert_eq!(stranger.call("ACL WHOAMI"), bulk("default"));
        assert_eq!(client.command(&[&b"CONFIG"[..], b"SET", b"requirepass", b""]), Value::ok());
        assert_eq!(client.call("ACL GETUSER default"), get_user(&["on", "nopass"], &[]));
    });
}

/// The reply of GETUSER in RESP2.
fn get_user(flags: &[&str], passwords: &[&str]) -> Value {
    Value::Array(vec![
        bulk("flags"),
        Value::bulks(flags),
        bulk("passwords"),
        Value::bulks(passwords),
        bulk("commands"),
        bulk("+@all"),
        bulk("keys"),
        bulk("~*"),
        bulk("channels"),
        bulk("&*"),
        bulk("selectors"),
        Value::Array(vec![]),
    ])
}

#[test]
fn a_user_is_a_map_in_resp3() {
    on_every_server(&[], |server| {
        let mut client = server.client3();
        let Value::Map(pairs) = client.call("ACL GETUSER default") else { panic!("a map") };
        let flags = Value::Set(vec![bulk("on"), bulk("nopass")]);
        assert_eq!(pairs[0], (bulk("flags"), flags));
        assert_eq!(pairs[1], (bulk("passwords"), Value::Array(vec![])));
        assert_eq!(pairs[5], (bulk("selectors"), Value::Array(vec![])));
        assert_eq!(client.call("ACL GETUSER anna"), Value::Null);
        assert!(matches!(client.call("ACL CAT"), Value::Array(_)));
    });
}

fn names(client: &mut Client, line: &str) -> BTreeSet<String> {
    client.call(line).items().iter().map(Value::text).collect()
}

#[test]
fn categories_and_their_commands() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        let all = names(&mut client, "ACL CAT");
        assert_eq!(all.len(), 21);
        for (category, command) in [
            ("string", "getex"),
            ("TRANSACTION", "multi"),
            ("connection", "readonly"),
            ("slow", "acl|list"),
            ("dangerous", "failover"),
            ("scripting", "function|load"),
        ] {
            assert!(all.contains(&category.to_lowercase()));
            let of_category = names(&mut client, &format!("ACL CAT {category}"));
            assert!(of_category.contains(command), "{category}: {of_category:?}");
            assert!(!of_category.contains("zadd"), "{category}: {of_category:?}");
            let listed = names(&mut client, &format!("COMMAND LIST FILTERBY ACLCAT {category}"));
            assert_eq!(of_category, listed);
        }
        assert_eq!(client.call("ACL CAT @string"), error("ERR Unknown category '@string'"));
        assert_eq!(client.call("ACL CAT cluster"), error("ERR Unknown category 'cluster'"));
        let too_many = "ERR unknown subcommand or wrong number of arguments for 'CAT'. Try ACL HELP.";
        assert_eq!(client.call("ACL CAT a b"), error(too_many));
    });
}

#[test]
fn passwords_are_made_up() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        let mut made = BTreeSet::new();
        for (argument, digits) in [("", 64), ("1", 1), ("4", 1), ("5", 2), ("12", 3), ("128", 32), ("4096", 1024)] {
            let password = client.call(&format!("ACL GENPASS {argument}")).text();
            assert_eq!(password.len(), digits, "{argument}");
            assert!(password.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')), "{password}");
            if digits > 16 {
                assert!(made.insert(client.call("ACL GENPASS").text()) && made.insert(password));
            }
        }
        let bounds = "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up \
                      to 4096";
        for wrong in ["0", "-1", "4097", "9223372036854775807"] {
            assert_eq!(client.call(&format!("ACL GENPASS {wrong}")), error(bounds), "{wrong}");
        }
        assert_eq!(client.call("ACL GENPASS x"), error("ERR value is not an integer or out of range"));
        let too_many = "ERR unknown subcommand or wrong number of arguments for 'GENPASS'. Try ACL HELP.";
        assert_eq!(client.call("ACL GENPASS 1 2"), error(too_many));
    });
}

#[test]
fn the_default_user_may_do_everything() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        for line in ["get a", "FLUSHALL", "config get x", "acl setuser anna", "object help", "command"] {
            assert_eq!(client.call(&format!("ACL DRYRUN default {line}")), Value::ok(), "{line}");
        }
        for (line, name) in [
            ("get", "get"),
            ("set a", "set"),
            ("config", "config"),
            ("config get", "config|get"),
            ("object help x", "object|help"),
        ] {
            assert_eq!(client.call(&format!("ACL DRYRUN default {line}")), wrong_number(name), "{line}");
        }
        assert_eq!(client.call("ACL DRYRUN default nosuch x"), error("ERR Command 'nosuch' not found"));
        assert_eq!(client.call("ACL DRYRUN default config nosuch"), error("ERR Command 'config' not found"));
        assert_eq!(client.call("ACL DRYRUN anna get a"), error("ERR User 'anna' not found"));
        assert_eq!(client.call("ACL DRYRUN default"), wrong_number("acl|dryrun"));
        assert_eq!(client.call("ACL LOG"), Value::Array(vec![]));
        assert_eq!(client.call("ACL LOG 5"), Value::Array(vec![]));
        assert_eq!(client.call("ACL LOG reset"), Value::ok());
        assert_eq!(client.call("ACL LOG x"), error("ERR value is not an integer or out of range"));
        let too_many = "ERR unknown subcommand or wrong number of arguments for 'LOG'. Try ACL HELP.";
        assert_eq!(client.call("ACL LOG 1 2"), error(too_many));
    });
}

#[test]
fn what_is_said_wrong() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("ACL"), wrong_number("acl"));
        assert_eq!(client.call("ACL NOSUCH"), error("ERR unknown subcommand 'NOSUCH'. Try ACL HELP."));
        assert_eq!(client.call("ACL SETUSER"), wrong_number("acl|setuser"));
        assert_eq!(client.call("ACL WHOAMI x"), wrong_number("acl|whoami"));
        assert_eq!(client.call("ACL HELP x"), wrong_number("acl|help"));
        assert!(client.call("ACL HELP").items()[0].text().starts_with("ACL <subcommand>"));
        let stays = error("ERR The 'default' user cannot be removed");
        assert_eq!(client.call("ACL DELUSER default"), stays);
        assert_eq!(client.call("ACL DELUSER anna default"), stays);
        assert!(client.call("ACL LOAD").is_error());
        assert!(client.call("ACL SAVE").is_error());
    });
}
