//! What scripts cannot do: end the server, stop it, or use up its memory.

use super::eval;
use crate::common::{Kind, Server, Value, bulk, int, on_embers, wait_until};
use std::time::Duration;

/// A function of the server's raises an error of Lua's. Were that an unwinding panic, the server would end: it does so in
/// every build (`EMBERDB_TEST_SERVER` names another one to be tested, such as the release's).
#[test]
fn failing_calls_do_not_end_the_server() {
    on_embers(&[], |server| {
        let mut client = server.client();
        client.call("SET str v");
        for (script, expected) in [
            ("return redis.call('incr','str')", "ERR value is not an integer or out of range"),
            ("return {pcall(redis.call,'incr','str')}", ""),
            ("local ok = pcall(function() redis.call('incr','str') end) return tostring(ok)", "false"),
            ("return (string.gsub('abc','.',function() redis.call('incr','str') end))", "ERR value is not"),
            ("table.sort({3,2,1}, function() redis.call('incr','str') end)", "ERR value is not"),
            ("local f = coroutine.wrap(function() redis.call('incr','str') end) f()", "ERR "),
            ("return select(2, xpcall(function() redis.call('incr','str') end, redis.call))", ""),
            ("return select(2, xpcall(function() error('x') end, redis.pcall))", ""),
            ("return setmetatable({},{__index=function() redis.call('incr','str') end}).x", "ERR value is not"),
            (
                "return tostring(setmetatable({},{__tostring=function() redis.call('incr','str') end}))",
                "ERR value is not",
            ),
            ("return load(function() redis.call('incr','str') end)", ""),
            ("for _, f in pairs(redis) do pcall(f) pcall(f, {}) pcall(f, nil) end return 'through'", "through"),
            (
                "for _, l in pairs({string,table,math,bit,struct,cjson,cmsgpack,coroutine}) do for _, f in pairs(l) do \
              if type(f) == 'function' then pcall(f) pcall(f, {}) pcall(f, 'x', {}) pcall(f, -1, 1e300) end end end \
              return 'through'",
                "through",
            ),
        ] {
            let answer = eval(&mut client, script, &[], &[]);
            if !expected.is_empty() {
                assert!(answer.text().starts_with(expected), "{script}: {answer:?}");
            }
            assert_eq!(client.call("GET str").text(), "v");
        }
    });
}

/// They end by themselves, with an error.
/// CVE-2025-46817 ended the process. (The unit tests of `src/lua/holes.rs` have the other holes.)
#[test]
fn unpack_does_not_end_the_server() {
    on_embers(&[], |server| {
        let mut client = server.client();
        for range in ["-2, 2147483647", "0, 2147483647", "-2147483648, 2147483647"] {
            let error = "ERR user_script:1: too many results to unpack script: ";
            let answer = eval(&mut client, &format!("return {{unpack({{1, 2, 3}}, {range})}}"), &[], &[]);
            assert!(answer.text().starts_with(error), "{answer:?}");
            let caught = format!("return select(2, pcall(unpack, {{1, 2, 3}}, {range}))");
            assert_eq!(eval(&mut client, &caught, &[], &[]), bulk("too many results to unpack"));
        }
    });
}

/// CVE-2025-46818.
#[test]
fn deprecated_functions_are_there_for_who_asks_for_them() {
    let names = ["getfenv", "setfenv", "newproxy"];
    let library = |body: &str| format!("#!lua name=lib\nredis.register_function('f', function() {body} end)");
    for (arg, sees) in [(&[][..], false), (&["--lua-enable-deprecated-api", "yes"], true)] {
        on_embers(arg, |server| {
            let mut client = server.client();
            let told = client.call("CONFIG GET lua-enable-deprecated-api");
            assert_eq!(told, Value::bulks(&["lua-enable-deprecated-api", if sees { "yes" } else { "no" }]));
            let error = "ERR CONFIG SET failed (possibly related to argument 'lua-enable-deprecated-api') \
                         - can't set immutable config";
            assert_eq!(client.call("CONFIG SET lua-enable-deprecated-api yes").text(), error);
            for name in names {
                let body = format!("return type({name})");
                let loaded = client.command(&["FUNCTION", "LOAD", "REPLACE", &library(&body)]);
                assert_eq!(loaded, bulk("lib"));
                for answer in [eval(&mut client, &body, &[], &[]), client.call("FCALL f 0")] {
                    match sees {
                        true => assert_eq!(answer, bulk("function")),
                        false => assert!(answer.text().contains(&format!("nonexistent global variable '{name}'"))),
                    }
                }
            }
            if sees {
                // Whatever one script does to its own code and globals, others see nothing of it.
                for script in ["setfenv(0, {}) setfenv(1, {}) return 1", "setfenv(1, {tostring = 1}) return 1"] {
                    assert_eq!(eval(&mut client, script, &[], &[]), int(1));
                    assert_eq!(
                        eval(&mut client, "return type(loadstring('return tostring')())", &[], &[]),
                        bulk("function")
                    );
                    assert_eq!(eval(&mut client, script, &[], &[]), int(1));
                }
            }
        });
    }
}

#[test]
fn what_has_no_end_in_memory_ends() {
    on_embers(&[], |server| {
        let mut client = server.client();
        for script in [
            "local function f() return f() + 1 end return f()",
            "local function f() return pcall(f) end f() return {err='through'}",
            "local function f() return coroutine.wrap(f)() end return f()",
            "local f f = function() return (string.gsub('a', 'a', f)) end return f()",
            "local f f = function(a, b) table.sort({1,2,3}, f) return true end f() return {err='through'}",
            "local t = setmetatable({}, {}) getmetatable(t).__index = t return t.x",
            "local t = setmetatable({}, {__index = function(t, k) return t[k] end}) return t.x",
            "return string.rep('x', 1e10)",
            "local s = ('x'):rep(1e8) load(function() return s end)",
            "local s = ('x'):rep(1e8) local t = {} for i = 1, 7000 do t[i] = s end return redis.call('echo', unpack(t))",
            "local s = string.rep('x', 1e8) return (string.gsub(s, '.', s))",
            "local t = {} for i = 1, 20000 do t[i] = string.rep('x', 1e5) end return table.concat(t)",
            "return cjson.encode(setmetatable({}, {})) .. cjson.encode((function() local t = {} t[1] = t return t end)())",
            "local t = {} t.t = t return cmsgpack.pack(t) and {err='through'}",
            "return cjson.decode(string.rep('[', 100000))",
            "return cmsgpack.unpack(string.rep('\\145', 1000000))",
            "return string.find('x', string.rep('(', 100000))",
            "return string.find('x', string.rep('%b()', 100000) .. '%')",
            "return loadstring('return ' .. string.rep('(', 100000))()",
            "return unpack({}, 1, 1e8)",
            "return string.byte(string.rep('x', 1e6), 1, -1)",
        ] {
            let answer = eval(&mut client, script, &[], &[]);
            assert!(answer.is_error() || answer.is_null(), "{script}: {:.200}", format!("{answer:?}"));
            assert_eq!(client.call("PING").text(), "PONG", "{script}");
        }
        let logged = "local s = ('x'):rep(1e8) local t = {} for i = 1, 7000 do t[i] = s end \
                      redis.log(redis.LOG_DEBUG, unpack(t)) return 1";
        assert_eq!(eval(&mut client, logged, &[], &[]).number(), 1);
        // A reply of tables within tables, and one of very many.
        let deep = "local t = {} local x = t for i = 1, 1000000 do x[1] = {} x = x[1] end return #t";
        assert_eq!(eval(&mut client, deep, &[], &[]).number(), 1);
        let maps =
            "local t = {} local x = t for i = 1, 5000 do x.map = {a = {}} x = x.map.a end redis.setresp(3) return #t";
        assert_eq!(eval(&mut client, maps, &[], &[]).number(), 0);
        let nested = "local t = {} for i = 1, 65536 do t[i] = i end local function s() local n = 0 \
                      table.sort(t, function(a, b) n = n + 1 if n == 131000 then s() end return a < b end) end s() return 1";
        eval(&mut client, nested, &[], &[]);
        assert_eq!(client.call("PING").text(), "PONG");
        let wide = "local t = {} for i = 1, 300000 do t[i] = {} end return t";
        assert_eq!(eval(&mut client, wide, &[], &[]).items().len(), 300_000);
    });
}

/// They end when they are told to.
#[test]
fn what_has_no_end_in_time_is_killed() {
    on_embers(&[], |server| {
        for script in [
            "while true do end",
            "while true do pcall(function() while true do end end) end",
            "local function f() pcall(f) return f() end return f()",
            "local f = coroutine.wrap(function() while true do end end) f()",
            "while true do coroutine.wrap(function() end)() end",
            // None of them runs for long, and there are more of them than time.
            "local function f() for i = 1, 3 do coroutine.resume(coroutine.create(f)) end end f()",
            "local function f() for i = 1, 3 do pcall(coroutine.wrap(f)) end end f()",
            "local function f() table.sort({3, 2, 1}, function() coroutine.resume(coroutine.create(f)) end) end f()",
            "local function f() ('abc'):gsub('.', function() coroutine.resume(coroutine.create(f)) end) end f()",
            "return string.find(string.rep('a', 200000), '.-.-.-.-.-b')",
            "local t = {} for i = 1, 1e6 do t[i] = i end while true do table.sort(t, function(a, b) return a > b end) end",
            "while true do string.gsub('abc', '.', function() return redis.pcall('nosuch').err end) end",
            "while true do xpcall(error, function() while true do end end) end",
            "while true do redis.call('get', KEYS[1]) end",
            "while true do redis.call('mget', KEYS[1], KEYS[2], KEYS[3]) end",
        ] {
            let (mut client, mut other) = (server.client(), server.client());
            client.send_raw(&crate::common::encode(&["EVAL", script, "3", "a", "b", "c"]));
            let killed = wait_until(Duration::from_secs(20), || other.call("SCRIPT KILL") == Value::ok());
            assert!(killed, "{script}");
            let answer = client.read_within(Duration::from_secs(20)).unwrap_or_else(|| panic!("{script}: no reply"));
            assert!(answer.text().contains("Script killed by user with SCRIPT KILL"), "{script}: {answer:?}");
            assert_eq!(other.call("SET a 1"), Value::ok());
        }
    });
}

#[test]
fn who_hangs_up_leaves_nothing_behind() {
    let server = Server::start(Kind::Ember { shards: 3 }, &[]);
    let mut other = server.client();
    for _ in 0..20 {
        let mut client = server.client();
        let script = "for i = 1, 3e6 do end redis.call('incr', KEYS[1]) redis.call('incr', KEYS[2])";
        client.send_raw(&crate::common::encode(&["EVAL", script, "2", "one", "two"]));
        drop(client);
    }
    let both = || {
        let mut client = server.client();
        (client.call("GET one"), client.call("GET two"))
    };
    // Those that had begun went on to their end.
    let same = wait_until(Duration::from_secs(20), || {
        let (one, two) = both();
        one == two && other.call("SCRIPT KILL").text().starts_with("NOTBUSY")
    });
    assert!(same, "{:?}", both());
}

/// On several shards, whichever of them the keys are on.
#[test]
fn a_command_whose_last_key_lacks_its_value_is_an_error() {
    on_embers(&[], |server| {
        let mut client = server.client();
        let script = "return redis.call('MSETNX', KEYS[1], 1, KEYS[2], 2, KEYS[1])";
        for n in 0..60 {
            let keys = [format!("a:{n}"), format!("b:{n}")];
            let error = eval(&mut client, script, &[&keys[0], &keys[1]], &[]).text();
            assert!(error.starts_with("ERR wrong number of arguments for 'msetnx' command"), "{error}");
        }
    });
}
