//! Ways around the rules that other servers had, each a test: a request that does something must not pass for one that does
//! something else.

use crate::common::{Client, Server, Value, bulk, encode, error, int, on_embers, on_every_server, words};

const NO_KEYS: &str = "NOPERM this user has no permissions to access one of the keys used as arguments";

/// A connection of a user who may run everything, and read `r*`, write `w*`, both with `rw*`.
fn reader_and_writer(server: &Server) -> Client {
    let mut admin = server.client();
    assert_eq!(admin.call("ACL SETUSER anna on nopass +@all -@dangerous %R~r* %W~w* ~rw* &c*"), Value::ok());
    let mut client = server.client();
    assert_eq!(client.call("AUTH anna x"), Value::ok());
    client
}

/// Each request, and whether the rules allow it.
fn check(server: &Server, requests: &[(&str, bool)]) {
    let mut client = reader_and_writer(server);
    let mut admin = server.client();
    let mut scripted = reader_and_writer(server);
    for (line, allowed) in requests {
        let reply = client.call(line);
        assert_eq!(reply == error(NO_KEYS), !allowed, "{line}: {reply:?}");
        let dry = admin.call(&format!("ACL DRYRUN anna {line}"));
        assert_eq!(dry == Value::ok(), *allowed, "{line}: {dry:?}");
        let mut script: Vec<Vec<u8>> =
            [&b"EVAL"[..], b"return redis.pcall(unpack(ARGV))", b"0"].map(<[u8]>::to_vec).to_vec();
        script.extend(words(line));
        let reply = format!("{:?}", scripted.command(&script));
        assert_eq!(reply.contains("access at least one of the keys mentioned"), !allowed, "{line}: {reply}");
    }
}

/// Once the prefix counted as read where some selector let the user read it, whatever else that one was for.
#[test]
fn one_selector_allows_the_request_and_the_prefix_that_it_names() {
    on_embers(&[], |server| {
        let mut admin = server.client();
        let rules = "ACL SETUSER anna on nopass +@all ~a:* (%R~b:* +get)";
        assert_eq!(admin.call(rules), Value::ok());
        let mut client = server.client3();
        assert_eq!(client.call("AUTH anna x"), Value::ok());
        let requests = [
            "LIVE COUNT b:",
            "LIVE KEYS b:",
            "LIVE NEXT b: 5",
            "LIVE SUM b: BYTES",
            "CLIENT TRACKING ON BCAST PREFIX b:",
            "EXPIRY ADVISOR ON b:",
            "EXPIRY POLICY SET b: NONE EVENTS a:ended WITHVALUE",
            "EXPIRY POLICY SET a: NONE EVENTS b:ended",
        ];
        requests.iter().for_each(|line| assert_eq!(client.call(line), error(NO_KEYS), "{line}"));
        assert_eq!(client.call("EXPIRY POLICY SET a: NONE EVENTS a:ended"), Value::ok());
        assert!(!client.call("LIVE COUNT a:").is_error());
        // The query goes on as long as one selector allows all of it.
        assert_eq!(admin.call(&format!("{rules} (+live ~a:*)")), Value::ok());
        client.assert_in_step();
        assert_eq!(admin.call("ACL SETUSER anna clearselectors resetkeys ~b:* (+get ~a:*)"), Value::ok());
        assert!(client.is_closed_by_server());
    });
}

#[test]
fn letters_of_keys_follow_what_is_done() {
    on_every_server(&[], |server| {
        check(
            server,
            &[
                // dragonfly#7984, #8249: the source.
                ("COPY w1 w2", false),
                ("COPY r1 w2", true),
                ("COPY r1 r2", false),
                ("GEOSEARCHSTORE w1 w2 FROMMEMBER a BYRADIUS 1 km", false),
                ("GEOSEARCHSTORE w1 r2 FROMMEMBER a BYRADIUS 1 km", true),
                ("ZRANGESTORE w1 w2 0 1", false),
                ("ZUNIONSTORE w1 2 r1 w2", false),
                ("BITOP AND w1 r1 w2", false),
                ("PFMERGE w1 w2", false),
                // redis#10148, #11086: what is read and what is not.
                ("SET w1 x", true),
                ("SET w1 x GET", false),
                ("SET w1 x EX 10 gEt", false),
                ("SET rw1 x GET", true),
                ("BITFIELD r1 GET u8 0", true),
                ("BITFIELD w1 GET u8 0", false),
                ("BITFIELD r1 GET u8 0 SET u8 0 1", false),
                ("BITFIELD w1 SET u8 0 1", false),
                ("BITFIELD rw1 SET u8 0 1", true),
                ("GETEX r1", false),
                ("GETDEL r1", false),
                ("GETSET w1 x", false),
                ("RENAME r1 w1", false),
                ("RENAME rw1 w1", true),
                ("LMOVE r1 w1 LEFT LEFT", false),
                ("LMOVE rw1 w1 LEFT LEFT", true),
                ("SMOVE rw1 r1 m", false),
                // What is only looked at needs no letter.
                ("STRLEN w1", true),
                ("EXISTS w1 r1", true),
                ("EXISTS w1 x", false),
                ("OBJECT ENCODING w1", true),
                ("OBJECT ENCODING x", false),
                ("MEMORY USAGE x", false),
                ("XREAD COUNT 1 STREAMS r1 w1 0 0", false),
                ("XREAD STREAMS r1 r2 0 0", true),
                ("SINTERCARD 2 r1 w1", false),
                ("LMPOP 2 rw1 r1 LEFT", false),
                ("MSET w1 x r1 x", false),
                ("MSETNX w1 x w2 x", true),
                ("EVAL return(1) 2 rw1 r1", false),
                ("EVAL_RO return(1) 2 rw1 r1", true),
                ("FCALL f 1 r1", false),
                ("FCALL_RO f 1 w1", false),
            ]
            .map(|(line, allowed)| (line, allowed))
            .into_iter()
            // (No script calls these.)
            .filter(|(line, _)| !["EVAL", "FCALL"].iter().any(|name| line.starts_with(name)))
            .collect::<Vec<_>>(),
        );
        let mut client = reader_and_writer(server);
        for (line, allowed) in [
            ("EVAL return(1) 2 rw1 r1", false),
            ("EVAL_RO return(1) 2 rw1 r1", true),
            ("EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 1 w1", false),
            ("FCALL f 1 r1", false),
            ("FCALL_RO f 1 w1", false),
            ("WATCH x", false),
            ("BLPOP r1 0", false),
            ("BLMOVE rw1 r1 LEFT LEFT 0", false),
            ("BZMPOP 0 2 rw1 r1 MIN", false),
            ("XREADGROUP GROUP g c BLOCK 0 STREAMS w1 >", false),
        ] {
            let reply = client.call(line);
            assert_eq!(reply == error(NO_KEYS), !allowed, "{line}: {reply:?}");
        }
    });
}

/// Where Redis 7.0 looks for keys by another parser than the command has, or has no such command.
#[test]
fn the_keys_that_are_checked_are_those_that_are_used() {
    on_embers(&[], |server| {
        check(
            server,
            &[
                // redis#14659: the later keys.
                ("MSETEX 2 w1 x r1 x", false),
                ("MSETEX 2 w1 x w2 x", true),
                ("MSETEX 1 w1 x r1 x", true),
                // redis#15478: the last STORE counts, and a consumer may be called STREAMS.
                ("GEORADIUS r1 0 0 1 km STORE w1 STORE r2", false),
                ("GEORADIUS r1 0 0 1 km STORE r2 STORE w1", true),
                ("GEORADIUSBYMEMBER r1 m 1 km STOREDIST x", false),
                ("GETFRESH r1 COST 10s", true),
                ("GETFRESH w1 COST 10s", false),
                ("HGETDEL w1 FIELDS 1 f", false),
                ("HGETEX w1 FIELDS 1 f", false),
            ],
        );
        let mut client = reader_and_writer(server);
        for (line, allowed) in [
            ("XREADGROUP GROUP g STREAMS STREAMS w1 >", false),
            ("XREADGROUP GROUP g STREAMS STREAMS r1 >", true),
            ("XREADGROUP GROUP STREAMS STREAMS COUNT 1 STREAMS w1 >", false),
            ("XREADGROUP COUNT 1 GROUP g c STREAMS w1 >", false),
            ("SORT r1 STORE w1", true),
        ] {
            let line = if line.starts_with("SORT") { "GET r1" } else { line };
            let reply = client.call(line);
            assert_eq!(reply == error(NO_KEYS), !allowed, "{line}: {reply:?}");
        }
        // (SORT is dangerous.)
        let mut admin = server.client();
        admin.call("ACL SETUSER anna +sort +sort_ro");
        for (line, allowed) in [
            ("SORT r1 STORE w1 STORE r2", false),
            ("SORT r1 STORE r2 STORE w1", true),
            ("SORT_RO w1", false),
            ("SORT w1", false),
        ] {
            let reply = client.call(line);
            assert_eq!(reply == error(NO_KEYS), !allowed, "{line}: {reply:?}");
        }
    });
}

/// CVE-2023-41053, and the patterns of SORT.
#[test]
fn sort_reads_what_its_patterns_name() {
    on_every_server(&[], |server| {
        let mut admin = server.client();
        admin.call("ACL SETUSER anna on nopass +@all %R~r* ~l*");
        admin.call("RPUSH l 2 1");
        admin.call("MSET w_1 5 w_2 4 r_1 a");
        let mut client = server.client();
        client.call("AUTH anna x");
        let by = error("ERR BY option of SORT denied due to insufficient ACL permissions.");
        let get = error("ERR GET option of SORT denied due to insufficient ACL permissions.");
        assert_eq!(client.call("SORT l BY w_*"), by);
        assert_eq!(client.call("SORT_RO l BY w_*"), by);
        assert_eq!(client.call("SORT l GET w_*"), get);
        assert_eq!(client.call("SORT l DESC GET #"), get);
        assert_eq!(client.call("SORT_RO l GET w_* BY w_*"), get);
        assert_eq!(client.call("SORT l BY nosort"), Value::bulks(&["2", "1"]));
        assert_eq!(client.call("SORT_RO w_1"), error(NO_KEYS));
        assert_eq!(client.call("SORT l STORE r1"), error(NO_KEYS));
        client.call("MULTI");
        assert_eq!(client.call("SORT l BY w_*").text(), "QUEUED");
        assert_eq!(client.call("EXEC"), Value::Array(vec![by]));
        admin.call("ACL SETUSER anna %R~*");
        assert_eq!(client.call("SORT l BY w_*"), Value::bulks(&["2", "1"]));
    });
}

/// CVE-2024-31227.
#[test]
fn patterns_without_letters_are_refused() {
    on_embers(&[], |server| {
        let mut client = server.client();
        for rule in ["%~x", "%~", "(%~x)"] {
            let reply = client.command(&["ACL", "SETUSER", "anna", rule]);
            assert_eq!(reply, error(&format!("ERR Error in ACL SETUSER modifier '{rule}': Syntax error")));
        }
        assert_eq!(client.call("ACL LIST").items().len(), 1);
    });
}

#[test]
fn walks_over_all_keys_ignore_patterns() {
    on_every_server(&[], |server| {
        let mut admin = server.client();
        admin.call("MSET a 1 b 2");
        admin.call("ACL SETUSER anna on nopass +@all ~a");
        let mut client = server.client();
        client.call("AUTH anna x");
        assert_eq!(client.call("KEYS *").items().len(), 2);
        assert_eq!(client.call("SCAN 0 COUNT 100").items()[1].items().len(), 2);
        assert!(!client.call("RANDOMKEY").is_error());
        assert_eq!(client.call("DBSIZE"), int(2));
        assert_eq!(client.call("FLUSHDB"), Value::ok());
    });
}

#[test]
fn what_has_no_right_says_nothing_of_what_is_there() {
    on_every_server(&[], |server| {
        let mut admin = server.client();
        admin.call("SET hidden marker-of-value");
        admin.call("ACL SETUSER berta on >marker-of-password ~marker-of-pattern +@all");
        admin.call("ACL SETUSER anna on nopass +get +acl|whoami +multi +exec ~own");
        let mut client = server.client();
        client.call("AUTH anna x");
        for line in [
            "GET hidden",
            "GET nothing",
            "ACL LIST",
            "ACL GETUSER berta",
            "CONFIG GET *",
            "SET hidden x",
            "OBJECT FREQ hidden",
        ] {
            let reply = client.call(line);
            assert!(reply.is_error() && !reply.text().contains("marker"), "{line}: {reply:?}");
        }
        assert_eq!(client.call("GET hidden"), client.call("GET nothing"));
        let wrong = client.call("AUTH berta x");
        assert_eq!(wrong, client.call("AUTH nobody x"), "a wrong name and a wrong password are the same");
    });
}

/// (Ours: no other server has these.)
#[test]
fn prefixes_and_streams_of_policies_are_keys() {
    on_embers(&[], |server| {
        let mut admin = server.client();
        admin.call("ACL SETUSER anna on nopass +@all %R~r:* %W~w:*");
        let mut client = server.client();
        client.call("AUTH anna x");
        client.call("HELLO 3");
        for (line, allowed) in [
            ("CLIENT TRACKING ON BCAST", false),
            ("CLIENT TRACKING ON BCAST PREFIX w:", false),
            ("CLIENT TRACKING ON BCAST PREFIX r:1 PREFIX x", false),
            ("CLIENT TRACKING ON BCAST PREFIX r", false),
            ("CLIENT TRACKING ON BCAST PREFIX r: PREFIX r2", false),
            ("CLIENT TRACKING ON BCAST PREFIX r:", true),
            ("CLIENT TRACKING OFF", true),
            ("CLIENT TRACKING ON", true),
            ("EXPIRY POLICY SET r: 1h EVENTS r:stream", false),
            ("EXPIRY POLICY SET p: 1h EVENTS w:stream", false),
            ("EXPIRY POLICY SET r: 1h EVENTS w:stream", true),
            ("EXPIRY POLICY SET p: 1h", true),
        ] {
            let reply = client.call(line);
            assert_eq!(reply == error(NO_KEYS), !allowed, "{line}: {reply:?}");
            assert_eq!(reply.is_error(), !allowed, "{line}: {reply:?}");
        }
        let mut tracking = server.client3();
        tracking.call("AUTH anna x");
        assert_eq!(tracking.call("CLIENT TRACKING ON BCAST PREFIX r:a"), Value::Simple(b"OK".to_vec()));
        admin.call("ACL SETUSER anna ~more");
        assert_eq!(tracking.call("GET r:1"), Value::Null);
        admin.call("ACL SETUSER anna resetkeys");
        assert!(tracking.is_closed_by_server());
        for (line, category) in [
            ("expiry|policy", "admin"),
            ("expiry|scan", "dangerous"),
            ("expiry|purge", "dangerous"),
            ("getfresh", "read"),
        ] {
            let of = admin.call(&format!("ACL CAT {category}"));
            assert!(of.items().contains(&bulk(line)), "{line}");
        }
    });
}

#[test]
fn what_the_log_says_is_asked_nothing() {
    on_embers(&["--appendonly", "yes", "--enable-debug-command", "yes"], |server| {
        let mut admin = server.client();
        admin.call("ACL SETUSER anna on nopass +@all ~*");
        let mut client = server.client();
        client.call("AUTH anna x");
        assert_eq!(client.call("SET a 1"), Value::ok());
        assert_eq!(client.call("EVAL redis.call('set',KEYS[1],'2') 1 b"), Value::NullBulk);
        client.call("MULTI");
        client.call("SET c 1");
        client.call("RENAME c d");
        client.call("EXEC");
        assert_eq!(admin.call("ACL SETUSER default -@all +acl +debug +auth +dbsize"), Value::ok());
        assert_eq!(
            admin.call("DEBUG LOADAOF").text(),
            "OK",
            "the default user may do nothing, and what was done stays done"
        );
        assert_eq!(admin.call("DBSIZE"), int(3));
    });
}

#[test]
fn any_bytes_make_users_or_errors() {
    on_embers(&[], |server| {
        let seed = fastrand::u64(..);
        eprintln!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut client = server.client();
        let signs: &[&[u8]] = &[
            b"~",
            b"%R~",
            b"%",
            b"&",
            b">",
            b"<",
            b"#",
            b"!",
            b"+",
            b"-",
            b"+@",
            b"(",
            b")",
            b"(+get ~",
            b"+select|",
            b"",
        ];
        for _ in 0..2_000 {
            let mut args: Vec<Vec<u8>> = vec![b"ACL".to_vec(), b"SETUSER".to_vec(), b"anna".to_vec()];
            for _ in 0..rng.usize(0..4) {
                let mut rule = signs[rng.usize(..signs.len())].to_vec();
                rule.extend((0..rng.usize(0..8)).map(|_| if rng.bool() { rng.u8(..) } else { b'a' }));
                args.push(rule);
            }
            client.send_raw(&encode(&args));
            let reply = client.read();
            assert!(reply == Value::ok() || reply.text().starts_with("ERR "), "{args:?}: {reply:?}");
        }
        client.assert_in_step();
        assert_eq!(client.call("ACL LIST").items().len(), 2);
    });
}
