//! What becomes of connections when the rights of their user change: who is ended, who stays, what waits no longer.

use crate::common::{Server, Value, bulk, error, int, on_embers, on_every_server, wait_until};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(5);
const NO_KEYS: &str = "NOPERM this user has no permissions to access one of the keys used as arguments";

fn set_user(server: &Server, rules: &str) {
    assert_eq!(server.client().call(&format!("ACL SETUSER {rules}")), Value::ok(), "{rules}");
}

#[test]
fn whose_user_is_deleted_is_ended() {
    on_every_server(&[], |server| {
        set_user(server, "anna on nopass ~* &* +@all");
        let mut connections: Vec<_> = (0..6).map(|_| server.client()).collect();
        for connection in &mut connections {
            assert_eq!(connection.call("AUTH anna x"), Value::ok());
        }
        connections[1].call("SUBSCRIBE a");
        connections[2].call("MULTI");
        connections[3].send("BLPOP nosuch 0");
        let mut other = server.client();
        assert_eq!(other.call("ACL DELUSER anna nobody"), int(1));
        for connection in &mut connections {
            assert!(connection.is_closed_by_server());
        }
        assert_eq!(other.call("PING"), Value::Simple(b"PONG".to_vec()));
        // One of the same name who comes after is another.
        set_user(server, "anna on nopass");
        assert_eq!(other.call("ACL DELUSER anna"), int(1));
        assert_eq!(other.call("ACL DELUSER anna"), int(0));
    });
}

#[test]
fn who_deletes_himself_hears_the_answer() {
    on_every_server(&[], |server| {
        set_user(server, "anna on nopass +@all");
        let mut anna = server.client();
        anna.call("AUTH anna x");
        assert_eq!(anna.call("ACL DELUSER anna"), int(1));
        assert!(anna.is_closed_by_server());
    });
}

#[test]
fn who_listens_to_what_is_no_longer_allowed_is_ended() {
    on_every_server(&[], |server| {
        set_user(server, "anna on nopass +@all &a* &b");
        let listen = |line: &str| {
            let mut client = server.client();
            assert_eq!(client.call("AUTH anna x"), Value::ok());
            assert!(!client.call(line).is_error(), "{line}");
            client
        };
        let mut stay = [listen("SUBSCRIBE b"), listen("SSUBSCRIBE b"), listen("PING")];
        set_user(server, "anna ~*");
        let mut go = [listen("SUBSCRIBE a1"), listen("PSUBSCRIBE a*"), listen("SSUBSCRIBE a2")];
        set_user(server, "anna &c");
        stay.iter_mut()
            .chain(&mut go)
            .for_each(|client| assert!(client.read_within(Duration::from_millis(10)).is_none()));
        set_user(server, "anna resetchannels &b");
        assert!(go.iter_mut().all(|client| client.is_closed_by_server()));
        set_user(server, "anna off resetkeys");
        let mut publisher = server.client();
        assert_eq!(publisher.call("PUBLISH b x"), int(1), "who is turned off stays");
        assert_eq!(stay[0].read().items()[2], bulk("x"));
    });
}

#[test]
fn rights_that_are_taken_away_are_gone_when_that_is_answered() {
    on_every_server(&[], |server| {
        let mut admin = server.client();
        admin.call("ACL SETUSER anna on nopass ~* +@all");
        let mut annas: Vec<_> = (0..6).map(|_| server.client()).collect();
        annas.iter_mut().for_each(|anna| assert_eq!(anna.call("AUTH anna x"), Value::ok()));
        for round in 0..20 {
            assert_eq!(admin.call("ACL SETUSER anna resetkeys"), Value::ok());
            for anna in &mut annas {
                assert_eq!(anna.call("GET a"), error(NO_KEYS), "{round}");
            }
            assert_eq!(admin.call("ACL SETUSER anna ~*"), Value::ok());
            for anna in &mut annas {
                assert_eq!(anna.call("GET a"), Value::NullBulk, "{round}");
            }
        }
    });
}

/// (Redis 7.0 serves them all the same; 7.2 asks again when there is something.)
#[test]
fn who_waits_for_what_he_may_not_have_any_more_waits_no_longer() {
    on_embers(&[], |server| {
        set_user(server, "anna on nopass ~* +@all");
        let mut waiting = Vec::new();
        for line in
            ["BLPOP a 0", "BLMOVE a b LEFT LEFT 0", "XREAD BLOCK 0 STREAMS s $", "BZPOPMIN z 0", "BLPOP a b c d 0"]
        {
            let mut anna = server.client();
            anna.call("AUTH anna x");
            anna.send(line);
            waiting.push(anna);
        }
        let mut spared = server.client();
        spared.call("AUTH anna x");
        spared.send("BLPOP e:1 0");
        assert!(wait_until(LIMIT, || server.info("blocked_clients").as_deref() == Some("6")));
        set_user(server, "anna resetkeys ~e:*");
        for anna in &mut waiting {
            assert_eq!(anna.read(), error(NO_KEYS));
        }
        let mut other = server.client();
        assert_eq!(other.call("RPUSH a 1 2 3"), int(3));
        assert_eq!(other.call("RPUSH e:1 1"), int(1));
        assert_eq!(spared.read(), Value::bulks(&["e:1", "1"]));
        assert_eq!(other.call("LLEN a"), int(3), "nobody was served");
        waiting.iter_mut().for_each(|anna| assert_eq!(anna.call("GET e:2"), Value::NullBulk));
        assert_eq!(other.call("ACL LOG").items().len(), 3, "three asked for the same");
    });
}

#[test]
fn what_is_refused_is_counted_by_its_reason() {
    on_embers(&[], |server| {
        set_user(server, "anna on >secret ~a* &a* +@all -flushall");
        let mut anna = server.client();
        assert!(anna.call("AUTH anna wrong").is_error());
        assert_eq!(anna.call("AUTH anna secret"), Value::ok());
        for line in ["FLUSHALL", "GET b", "SET b 1", "EVAL return_redis.call('GET','b') 0", "PUBLISH b 1"] {
            let words: Vec<String> = line.split(' ').map(|word| word.replace('_', " ")).collect();
            assert!(anna.command(&words).is_error(), "{line}");
        }
        let refusals = ["auth", "cmd", "key", "channel"].map(|reason| format!("acl_access_denied_{reason}"));
        let counted = || refusals.each_ref().map(|name| server.info(name));
        assert_eq!(counted(), ["1", "1", "3", "1"].map(|count| Some(count.to_owned())));
        server.client().call("CONFIG RESETSTAT");
        assert_eq!(counted(), ["0"; 4].map(|count| Some(count.to_owned())));
    });
}

#[test]
fn queued_commands_are_asked_about_again() {
    const CHANGED: &str = "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This \
                           command is no longer allowed for the following reason: ";
    on_every_server(&[], |server| {
        for (keys, watched) in [("a a a", false), ("a b c d e f", false), ("a b c", true)] {
            set_user(server, "anna reset on nopass ~* &* +@all");
            let mut anna = server.client();
            anna.call("AUTH anna x");
            if watched {
                anna.call("WATCH a b w");
            }
            anna.call("MULTI");
            for key in keys.split(' ') {
                assert_eq!(anna.call(&format!("SET {key} 1")).text(), "QUEUED");
            }
            for line in
                ["FLUSHALL", "PUBLISH c x", "GET own:1", "EVAL return(1) 1 a", "SORT own:1 BY w_*", "RENAME a b"]
            {
                assert_eq!(anna.call(line).text(), "QUEUED");
            }
            set_user(server, "anna resetkeys %R~own:* resetchannels -flushall");
            let reply = anna.call("EXEC");
            let count = keys.split(' ').count();
            let reason = |reason: &str| error(&format!("{CHANGED}{reason}"));
            let no_keys = reason("no permission to touch the specified keys");
            assert!(reply.items()[..count].iter().all(|reply| *reply == no_keys), "{reply:?}");
            assert_eq!(reply.items()[count], reason("no permission to execute the command or subcommand"));
            assert_eq!(
                reply.items()[count + 1],
                reason("no permission to access one of the channels used as arguments")
            );
            assert_eq!(reply.items()[count + 2], Value::NullBulk);
            assert_eq!(reply.items()[count + 3], no_keys);
            let by = error("ERR BY option of SORT denied due to insufficient ACL permissions.");
            assert_eq!(reply.items()[count + 4], by);
            assert_eq!(reply.items()[count + 5], no_keys);
            assert_eq!(server.client().call("DBSIZE"), int(0), "{keys}");
        }
    });
}

#[test]
fn a_transaction_may_change_who_it_is() {
    on_every_server(&[], |server| {
        set_user(server, "anna on nopass ~* +@all");
        set_user(server, "berta on nopass ~b +get +set +acl|whoami");
        let mut anna = server.client();
        anna.call("AUTH anna x");
        anna.call("MULTI");
        for line in [
            "SET a 1",
            "AUTH berta x",
            "SET a 2",
            "SET b 2",
            "ACL WHOAMI",
            "AUTH anna x",
            "ACL SETUSER anna -get",
            "GET a",
        ] {
            assert_eq!(anna.call(line).text(), "QUEUED", "{line}");
        }
        let reply = anna.call("EXEC");
        let is_error: Vec<bool> = reply.items().iter().map(Value::is_error).collect();
        assert_eq!(is_error, [false, false, true, false, false, false, false, true], "{reply:?}");
        assert_eq!(reply.items()[4], bulk("berta"));
        assert_eq!(server.client().call("GET a"), bulk("1"));
    });
}

#[test]
fn scripts_have_the_rights_of_who_calls_them() {
    on_every_server(&[], |server| {
        set_user(server, "anna on nopass ~a* ~{tag}* &* +@all -del -publish +publish|x");
        let mut anna = server.client();
        anna.call("AUTH anna x");
        let call = |anna: &mut crate::common::Client, keys: &[&str], script: &str| {
            let count = keys.len().to_string();
            let mut args = vec!["EVAL", script, &count];
            args.extend(keys);
            anna.command(&args)
        };
        for keys in [&[][..], &["a"], &["a1", "a2", "a3", "a4"], &["{tag}1"]] {
            assert_eq!(call(&mut anna, keys, "return redis.call('set','a','1')"), Value::ok());
            for (script, what) in [
                (
                    "return redis.pcall('get','b')",
                    "can't access at least one of the keys mentioned in the command arguments",
                ),
                (
                    "return redis.pcall('mget','a','b')",
                    "can't access at least one of the keys mentioned in the command arguments",
                ),
                ("return redis.pcall('del','a')", "can't run this command or subcommand"),
            ] {
                let reply = call(&mut anna, keys, script);
                assert_eq!(reply, error(&format!("ERR The user executing the script {what}")), "{keys:?}");
            }
            let by = call(&mut anna, keys, "return redis.pcall('sort','a','by','w_*')");
            assert_eq!(by, error("ERR BY option of SORT denied due to insufficient ACL permissions."));
            for (command, allowed) in
                [("'get','b'", false), ("'get','a'", true), ("'del','a'", false), ("'ping'", true)]
            {
                let reply = call(&mut anna, keys, &format!("return redis.acl_check_cmd({command})"));
                assert_eq!(reply, if allowed { int(1) } else { Value::NullBulk }, "{command}");
            }
        }
        // Functions, called by one who may not make them.
        let library =
            "#!lua name=l\nredis.register_function('f', function(keys, args) return redis.call('get', args[1]) end)";
        assert_eq!(server.client().command(&["FUNCTION", "LOAD", library]), bulk("l"));
        assert_eq!(anna.call("FCALL f 1 a a"), bulk("1"));
        assert!(anna.call("FCALL f 1 a b").text().contains("can't access at least one of the keys"));
        assert!(anna.call("FCALL f 0 b").text().contains("can't access at least one of the keys"));
        assert_eq!(anna.call("FCALL f 1 b a"), error(NO_KEYS));
        let log = server.client().call("ACL LOG 100");
        let contexts: Vec<String> = log.items().iter().map(|entry| entry.field("context").unwrap().text()).collect();
        assert_eq!(contexts.iter().filter(|context| *context == "lua").count(), 2, "{contexts:?}");
    });
}

#[test]
fn who_may_not_choose_a_database_stays_in_his() {
    on_every_server(&[], |server| {
        for own in ["a a", "a b c d", "a {a}1 z"] {
            set_user(server, "anna reset on nopass ~* &* +@all");
            set_user(server, "berta reset on nopass ~* &* +@all -select");
            let mut anna = server.client();
            anna.call("AUTH anna x");
            anna.call("MULTI");
            anna.call("SELECT 1");
            own.split(' ').for_each(|key| assert_eq!(anna.call(&format!("SET {key} 1")).text(), "QUEUED"));
            set_user(server, "anna -select");
            assert!(anna.call("EXEC").items()[0].is_error());
            // Another user may become less within the transaction.
            set_user(server, "anna +select");
            anna.call("MULTI");
            for line in ["AUTH berta x", "SELECT 1", "SET later 1", "SORT later BY w_*", "GET later"] {
                assert_eq!(anna.call(line).text(), "QUEUED");
            }
            let reply = anna.call("EXEC");
            assert!(reply.items()[1].is_error() && reply.items()[4] == bulk("1"), "{reply:?}");
            let mut admin = server.client();
            admin.call("SELECT 1");
            assert_eq!(admin.call("DBSIZE"), int(0), "{own}");
        }
    });
}
