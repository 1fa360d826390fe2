//! Libraries of functions: how they are loaded, listed, called and given up, on one shard, on three, and exchanged with
//! redis-server.

use std::time::{Duration, Instant};

use crate::common::server::have_redis;
use crate::common::{Client, Kind, Server, Value, bulk, error, int, on_embers, on_every_server, wait_until};

const PATIENCE: Duration = Duration::from_secs(10);

/// Code of a library whose lines begin to count behind its heading.
fn code(library: &str, body: &str) -> String {
    format!("#!lua name={library}\n{body}")
}

#[track_caller]
fn load(client: &mut Client, library: &str, body: &str) {
    let reply = client.command(&["FUNCTION", "LOAD", "REPLACE", &code(library, body)]);
    assert_eq!(reply, bulk(library), "{body}");
}

fn names(list: &Value) -> Vec<String> {
    let name = |library: &Value| library.items()[1].text();
    let mut names: Vec<String> = list.items().iter().map(name).collect();
    names.sort();
    names
}

/// Each shard of three has some of these.
fn keys() -> impl Iterator<Item = String> {
    (0..20).map(|n| format!("key:{n}"))
}

#[test]
fn a_function_runs_where_its_keys_are() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        load(
            &mut client,
            "lib",
            "local function add(keys, args) return redis.call('INCRBY', keys[1], args[1]) end
             redis.register_function('add', add)
             redis.register_function{function_name = 'get', flags = {'no-writes'}, description = 'looks',
                 callback = function(keys) return redis.call('GET', keys[1]) end}
             redis.register_function('move', function(keys)
                 redis.call('SET', keys[2], redis.call('GETDEL', keys[1]))
                 return {#keys, redis.call('GET', keys[2])}
             end)
             redis.register_function('undeclared', function(keys, args)
                 redis.call('INCR', 'mark')
                 for _, key in ipairs(args) do redis.call('INCR', key) end
                 return #args
             end)",
        );
        let others: Vec<Client> = (0..3).map(|_| server.client()).collect();
        for mut client in others {
            for key in keys() {
                client.call(&format!("DEL {key}"));
                assert_eq!(client.call(&format!("FCALL add 1 {key} 5")), int(5));
                assert_eq!(client.call(&format!("FCALL_RO GET 1 {key}")), bulk("5"));
                assert_eq!(
                    client.call(&format!("FCALL move 2 {key} other:{key}")),
                    Value::Array(vec![int(2), bulk("5")])
                );
            }
        }
        let all = keys().collect::<Vec<_>>().join(" ");
        for _ in 0..3 {
            assert_eq!(client.call(&format!("FCALL undeclared 1 key:0 {all}")), int(20));
        }
        assert_eq!(client.call("GET mark"), bulk("3"));
        client.call("MULTI");
        client.call("FCALL add 1 key:1 10");
        client.call("FCALL get 1 key:1");
        assert_eq!(client.call("EXEC"), Value::Array(vec![int(13), bulk("13")]));
    });
}

#[test]
fn flags_and_mistakes_are_told() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        load(
            &mut client,
            "lib",
            "redis.register_function('write', function(keys) return redis.call('SET', keys[1], 'v') end)
             redis.register_function{function_name = 'look', flags = {'no-writes'},
                 callback = function(keys) return redis.call('SET', keys[1], 'v') end}
             redis.register_function('fail', function()
                 error('boom')
             end)
             redis.register_function('late', function() return redis.register_function end)
             redis.register_function('globals', function() x = 1 end)",
        );
        let replies = [
            ("FCALL_RO write 1 k", "ERR Can not execute a script with write flag using *_ro command."),
            (
                "FCALL look 1 k",
                "ERR Write commands are not allowed from read-only scripts. script: look, on @user_function:4.",
            ),
            ("FCALL fail 0", "ERR user_function:6: boom script: fail, on @user_function:6."),
            (
                "FCALL globals 0",
                "ERR user_function:9: Attempt to modify a readonly table script: globals, on @user_function:9.",
            ),
            ("FCALL nosuch x", "ERR Function not found"),
            ("FCALL write x", "ERR Bad number of keys provided"),
            ("FCALL write -1", "ERR Number of keys can't be negative"),
            ("FCALL write 2 k", "ERR Number of keys can't be greater than number of args"),
            ("FUNCTION DELETE nosuch", "ERR Library not found"),
            ("FUNCTION FLUSH now", "ERR FUNCTION FLUSH only supports SYNC|ASYNC option"),
            ("FUNCTION KILL", "NOTBUSY No scripts in execution right now."),
            ("FUNCTION LIST CODE", "ERR Unknown argument CODE"),
        ];
        for (line, reply) in replies {
            assert_eq!(client.call(line), error(reply), "{line}");
        }
        assert!(client.call("FCALL late 0").is_null());
    });
}

#[test]
fn code_that_cannot_be_loaded_leaves_nothing() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        load(&mut client, "lib", "redis.register_function('f', function() return 1 end)");
        let replies = [
            ("x = 1", "ERR Error registering functions: ERR user_function:2: Attempt to modify a readonly table"),
            ("return 1", "ERR No functions registered"),
            ("redis.register_function('F', function() end)", "ERR Function F already exists"),
            (
                "redis.call('GET', 'k')",
                "ERR Error registering functions: ERR user_function:2: Script attempted to access nonexistent global \
                 variable 'call'",
            ),
            ("syntax error", "ERR Error compiling function: user_function:2: '=' expected near 'error'"),
            (
                "redis.register_function('g', function() end) redis.register_function('g', function() end)",
                "ERR Error registering functions: ERR Function already exists in the library",
            ),
            ("while true do end", "ERR Error registering functions: ERR FUNCTION LOAD timeout"),
        ];
        for (body, reply) in replies {
            assert_eq!(client.command(&["FUNCTION", "LOAD", &code("other", body)]), error(reply), "{body}");
        }
        let again = code("lib", "redis.register_function('g', function() return 1 end)");
        assert_eq!(client.command(&["FUNCTION", "LOAD", &again]), error("ERR Library 'lib' already exists"));
        assert_eq!(names(&client.call("FUNCTION LIST")), ["lib"]);
        assert_eq!(client.call("FCALL f 0"), int(1));
    });
}

#[test]
fn libraries_are_listed_replaced_and_deleted() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        let first = "redis.register_function('f', function() return 1 end)";
        load(&mut client, "one", first);
        load(&mut client, "two", "redis.register_function('g', function() return 2 end)");
        assert_eq!(names(&client.call("FUNCTION LIST")), ["one", "two"]);
        let function = Value::Array(vec![
            bulk("name"),
            bulk("f"),
            bulk("description"),
            Value::NullBulk,
            bulk("flags"),
            Value::Array(vec![]),
        ]);
        let library = Value::Array(vec![
            bulk("library_name"),
            bulk("one"),
            bulk("engine"),
            bulk("LUA"),
            bulk("functions"),
            Value::Array(vec![function]),
            bulk("library_code"),
            bulk(code("one", first)),
        ]);
        assert_eq!(client.call("FUNCTION LIST WITHCODE LIBRARYNAME O*"), Value::Array(vec![library]));
        // Every shard has loaded what it is to give up.
        for key in keys() {
            assert_eq!(client.call(&format!("FCALL f 1 {key}")), int(1));
        }
        load(&mut client, "one", "redis.register_function('f', function() return 3 end)");
        for key in keys() {
            assert_eq!(client.call(&format!("FCALL f 1 {key}")), int(3));
        }
        let stats = |client: &mut Client| {
            let engine = client.call("FUNCTION STATS").items()[3].items()[1].clone();
            [engine.items()[1].number(), engine.items()[3].number()]
        };
        assert_eq!(stats(&mut client), [2, 2]);
        assert_eq!(client.call("FUNCTION DELETE one"), Value::ok());
        assert_eq!(client.call("FCALL f 1 key:3"), error("ERR Function not found"));
        assert_eq!(client.call("FCALL g 1 key:3"), int(2));
        assert_eq!(client.call("FUNCTION FLUSH"), Value::ok());
        assert_eq!(client.call("FCALL g 1 key:3"), error("ERR Function not found"));
        assert_eq!(stats(&mut client), [0, 0]);
        let info = client.call("INFO memory").text();
        assert!(info.contains("number_of_functions:0\r\nnumber_of_libraries:0\r\n"), "{info}");
    });
}

#[test]
fn a_dump_is_restored_whole_or_not() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        load(&mut client, "one", "redis.register_function('f', function() return 1 end)");
        load(&mut client, "two", "redis.register_function('g', function() return 2 end)");
        let dump = client.call("FUNCTION DUMP").bytes().expect("a payload").to_vec();
        let restore = |client: &mut Client, policy: &str| {
            client.command(&[b"FUNCTION".as_slice(), b"RESTORE", &dump, policy.as_bytes()])
        };
        let reply = restore(&mut client, "APPEND");
        assert!(reply == error("ERR Library one already exists") || reply == error("ERR Library two already exists"));
        assert_eq!(restore(&mut client, "REPLACE"), Value::ok());
        client.call("FUNCTION FLUSH");
        load(&mut client, "three", "redis.register_function('G', function() return 3 end)");
        for policy in ["APPEND", "REPLACE"] {
            assert_eq!(restore(&mut client, policy), error("ERR Function g already exists"));
            assert_eq!(names(&client.call("FUNCTION LIST")), ["three"]);
        }
        assert_eq!(restore(&mut client, "FLUSH"), Value::ok());
        assert_eq!(names(&client.call("FUNCTION LIST")), ["one", "two"]);
        assert_eq!(client.call("FCALL g 1 key:5"), int(2));
        assert_eq!(
            restore(&mut client, "NONE"),
            error("ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.")
        );
        assert_eq!(client.call("FUNCTION RESTORE x"), error("ERR DUMP payload version or checksum are wrong"));
    });
}

#[test]
fn dumps_are_exchanged_with_redis() {
    if !have_redis() {
        return;
    }
    let servers = [Server::start(Kind::Ember { shards: 3 }, &[]), Server::start(Kind::Redis, &[])];
    let body = format!("redis.register_function('f', function() return 1 end)\n{}", "-- filler\n".repeat(200));
    for (from, to) in [(0, 1), (1, 0)] {
        let (mut from, mut to) = (servers[from].client(), servers[to].client());
        load(&mut from, "lib", &body);
        let dump = from.call("FUNCTION DUMP").bytes().expect("a payload").to_vec();
        to.call("FUNCTION FLUSH");
        assert_eq!(to.command(&[b"FUNCTION".as_slice(), b"RESTORE", &dump]), Value::ok());
        assert_eq!(to.call("FCALL f 0"), int(1));
        assert_eq!(to.call("FUNCTION LIST WITHCODE"), from.call("FUNCTION LIST WITHCODE"));
        assert_eq!(to.call("FUNCTION DUMP"), bulk(dump));
    }
}

/// Who waits for a key and then runs for long holds it in turn.
#[test]
fn functions_that_last_take_turns_at_a_key() {
    on_embers(&[], |server| {
        let mut client = server.client();
        load(
            &mut client,
            "lib",
            "redis.register_function('slow', function(keys)
                 local before = redis.call('INCR', keys[1])
                 for i = 1, 300000 do before = before + 0 end
                 return before == tonumber(redis.call('GET', keys[1]))
             end)",
        );
        let mut clients: Vec<Client> = (0..9).map(|_| server.client()).collect();
        for key in ["key:1", "key:2", "key:3"] {
            clients.iter_mut().for_each(|client| client.send(&format!("FCALL slow 1 {key}")));
            clients.iter_mut().for_each(|client| assert_eq!(client.read(), int(1)));
            assert_eq!(client.call(&format!("GET {key}")), bulk("9"));
        }
    });
}

#[test]
fn what_never_ends_is_ended_while_others_are_served() {
    on_embers(&[], |server| {
        let (mut client, mut runs) = (server.client(), server.client());
        load(
            &mut client,
            "lib",
            "redis.register_function('loop', function() while true do end end)
             redis.register_function('write', function(keys)
                 redis.call('SET', keys[1], 'v')
                 while redis.call('GET', keys[1]) do end
             end)",
        );
        runs.send("FCALL loop 1 key:1 arg");
        let running = |client: &mut Client| client.call("FUNCTION STATS").items()[1].clone();
        assert!(wait_until(PATIENCE, || !running(&mut client).is_null()));
        let running = running(&mut client);
        assert_eq!(running.items()[1], bulk("loop"));
        assert_eq!(running.items()[3], Value::bulks(&["FCALL", "loop", "1", "key:1", "arg"]));
        assert_eq!(
            client.call("SCRIPT KILL"),
            error("BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.")
        );
        assert_eq!(client.call("FUNCTION KILL"), Value::ok());
        assert_eq!(
            runs.read(),
            error("ERR Script killed by user with SCRIPT KILL... script: loop, on @user_function:2.")
        );
        assert!(wait_until(PATIENCE, || {
            client.call("FUNCTION KILL") == error("NOTBUSY No scripts in execution right now.")
        }));

        let began = Instant::now();
        runs.command(&["FUNCTION", "LOAD", &code("slow", "while true do end")]);
        assert!(began.elapsed() >= Duration::from_millis(500));
        // More than once on a busy machine, where few commands have a turn within half a second.
        let mut served = 0;
        while served <= 10 {
            runs.send_raw(&crate::common::encode(&["FUNCTION", "LOAD", &code("slow", "while true do end")]));
            let before = served;
            while runs.read_within(Duration::from_millis(1)).is_none() {
                assert_eq!(client.call("SET key:2 v"), Value::ok());
                served += 1;
            }
            // (The first may come before the source does, and one that waited for the source's end would be the last.)
            assert!(served - before > 2, "{} commands were served meanwhile", served - before);
        }

        runs.send("FCALL write 1 key:1");
        assert!(wait_until(PATIENCE, || match client.call("FUNCTION KILL") {
            Value::Error(text) => text.starts_with("UNKILLABLE"),
            _ => false,
        }));
    });
}

/// A function that touches a key which it has not declared begins again with several shards. Once what it had counted in a
/// local of its library by then stayed counted.
#[test]
fn a_function_that_begins_again_finds_the_locals_of_its_library_as_they_were() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        for round in 0..10 {
            load(
                &mut client,
                "counts",
                &format!(
                    "local seen = {{}}
                     local function count{round}(keys, args)
                         seen[#seen + 1] = args[1]
                         redis.call('SET', keys[1], #seen)
                         redis.call('SET', args[1], #seen)
                         return #seen
                     end
                     redis.register_function('count{round}', count{round})"
                ),
            );
            for call in 1..4 {
                let line = format!("FCALL count{round} 1 key:{round} undeclared:{round}:{call}");
                assert_eq!(client.call(&line), int(call), "{line}");
            }
            assert_eq!(client.call(&format!("GET key:{round}")), bulk("3"));
        }
    });
}
