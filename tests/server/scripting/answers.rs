//! Scripts answer what they answer in Redis.

use super::eval;
use crate::common::{Client, Kind, Server, Value, bulk, have_tool, int, on_embers, on_every_server};

/// Each runs on an empty server with `str`, a string, `list` of three and `h`, a hash of one field, in both protocols.
const SCRIPTS: &[&str] = &[
    // Values as replies.
    "return 1",
    "return 3.99",
    "return -3.99",
    "return 1e300",
    "return 0/0",
    "return 'text'",
    "return ''",
    "return nil",
    "return true",
    "return false",
    "return {1,2,'x',{3,{4}},nil,5}",
    "return {}",
    "return {ok='fine'}",
    "return {ok='a\\r\\nb'}",
    "return {err='MY own'}",
    "return {err='x\\ny'}",
    "return {err=5}",
    "return {ok=5}",
    "return {ok='x',err='y'}",
    "return {double=3.25}",
    "return {double='a'}",
    "return {map={a=1}}",
    "return {set={x=true}}",
    "return {big_number='123'}",
    "return {big_number='12\\n3'}",
    "return {verbatim_string={string='a',format='txt'}}",
    "return {verbatim_string={string='a'}}",
    "return {map=5}",
    "return function() end",
    "redis.setresp(3) return {true,false,{double=1.5},{map={a=1}},{set={x=true}}}",
    "return KEYS",
    "return ARGV[1]",
    // The order of strings is that of their bytes.
    "local all, out = {'', '\\0', '\\0\\0', 'a', 'a\\0', 'a\\0b', 'a\\0c', 'ab', 'a\\255', '\\255'}, {} \
     for _, a in ipairs(all) do for _, b in ipairs(all) do out[#out+1] = tostring(a < b) .. tostring(a <= b) end end return out",
    // Replies as values.
    "return type(redis.call('get','nothing'))",
    "redis.setresp(3) return type(redis.call('get','nothing'))",
    "return redis.call('get','nothing')",
    "return redis.call('set','k',1)",
    "return redis.call('set','k',1).ok",
    "return type(redis.call('incr','n'))",
    "return redis.call('lrange','list',0,-1)",
    "return #redis.call('lrange','list',0,-1)",
    "return redis.call('hgetall','h')",
    "redis.setresp(3) return redis.call('hgetall','h')",
    "redis.setresp(3) return redis.call('hgetall','h').map.f",
    "redis.setresp(3) redis.call('sadd','s','m') return redis.call('smembers','s').set.m",
    "redis.setresp(3) redis.call('zadd','z',1.5,'m') return redis.call('zscore','z','m').double == 1.5",
    "return redis.call('zscore','none','m')",
    "return redis.call('mget','str','nothing')[2] == false",
    "return redis.pcall('incr','str').err",
    // Arguments.
    "redis.call('set','k',3.1) return redis.call('get','k')",
    "redis.call('set','k',1e15) return redis.call('get','k')",
    "redis.call('set','k',1e17) return redis.call('get','k')",
    "redis.call('set','k',-0.0) return redis.call('get','k')",
    "return redis.call('set','k',true)",
    "return redis.call('set','k',nil)",
    "return redis.call({})",
    "return redis.call()",
    // What cannot be called.
    "return redis.call('nosuch')",
    "return redis.call('get')",
    "return redis.call('multi')",
    "return redis.call('eval','return 1',0)",
    "return redis.call('blpop','list',0)",
    "return redis.call('subscribe','c')",
    "return redis.call('watch','str')",
    "return redis.call('config','get','port')",
    "return redis.call('xread','block','0','streams','s','$')",
    "return redis.call('xread','streams','none','0')",
    "return redis.call('ping')",
    "return redis.call('echo','x')",
    "return redis.call('object','encoding','str')",
    "return redis.call('dbsize')",
    "redis.call('select',3) redis.call('set','there',1) redis.call('select',0) return redis.call('dbsize')",
    "return redis.call('publish','c','m')",
    // Errors.
    "error('boom')",
    "error({err='MY boom'})",
    "error()",
    "error(12)",
    "error(true)",
    "local a = nil + 1",
    "return nothing_of_that_name",
    "global = 1",
    "\n\nerror('in line three')",
    "local f = function() error({err='ERR within'}) end\nf()",
    "return redis.call('incr','str')",
    "return pcall(redis.call,'incr','str')",
    "local ok, e = pcall(redis.call,'incr','str') return {tostring(ok), type(e), e}",
    "local ok, e = pcall(redis.call) return e",
    "local ok, e = pcall(error,'x') return e",
    "local ok, e = xpcall(function() error('x') end, function(m) return 'h:'..m end) return e",
    "local function f(n) return f(n+1)+1 end return f(1)",
    "syntax error",
    "return redis.error_reply('My Err')",
    "return redis.error_reply('-My Err')",
    "return redis.error_reply('ERR')",
    "return redis.error_reply('')",
    "return redis.error_reply(1,2)",
    "return redis.status_reply('fine')",
    "return redis.status_reply()",
    "return redis.sha1hex('')",
    "return redis.sha1hex()",
    "return redis.log(1)",
    "return redis.log('a','b')",
    "return redis.log(7,'b')",
    "return redis.setresp(4)",
    "return redis.setresp()",
    "return redis.set_repl(8)",
    "return redis.set_repl()",
    "return redis.replicate_commands()",
    "return redis.acl_check_cmd('set','a','b')",
    "return redis.acl_check_cmd('nosuch')",
    "return redis.REDIS_VERSION",
    // First lines.
    "#!lua flags=no-writes\nreturn redis.call('set','a','b')",
    "#!lua flags=no-writes\nreturn redis.call('get','str')",
    "#!lua flags=bad\nreturn 1",
    "#!lua x=y\nreturn 1",
    "#!js\nreturn 1",
    "#!lua",
    // A set has an order.
    "redis.call('sadd',KEYS[1],'d','a','C','10','9','b') return redis.call('sort',KEYS[1],'by','_')",
    "redis.call('sadd',KEYS[1],'d','a','C','10','9','b') return redis.call('sort',KEYS[1],'by','_','desc','limit',1,3)",
    "redis.call('sadd',KEYS[1],'d','a','C','10','9','b') return redis.call('sort_ro',KEYS[1],'by','_','get','#','get','x*')",
    "redis.call('rpush',KEYS[1],'d','a','C','10') return redis.call('sort',KEYS[1],'by','_')",
    // What cannot be changed.
    "redis.foo = 1",
    "return rawset(redis,'foo',1)",
    "return setmetatable(redis,{})",
    "return setmetatable(_G,{})",
    "table.insert(redis,1)",
    "getmetatable('').__index = nil",
    "return getmetatable('').__index == string",
    "return {loadstring(string.dump(function() end))}",
    // Libraries.
    "return cjson.encode({1,2,{a='b'}})",
    "return cjson.encode({})",
    "return cjson.decode('[1,2,{\"a\":null}]')[3].a == cjson.null",
    "return cjson.decode('nonsense')",
    "return {cmsgpack.unpack(cmsgpack.pack(1,'a',{1,2}))}",
    "return bit.tohex(bit.bxor(0xff, 0x0f))",
    "return struct.unpack('>I2', struct.pack('>I2', 513))",
    "return {string.find('hello world', '(o) (w)')}",
    "return string.format('%5.2f|%q', 3.14159, 'a\"b')",
];

fn prepare(server: &Server, proto: &str) -> Client {
    let mut client = server.client();
    for line in [&format!("HELLO {proto}"), "FLUSHALL", "SET str v", "RPUSH list a b c", "HSET h f v"] {
        assert!(!client.call(line).is_error());
    }
    client
}

#[test]
fn scripts_answer_what_they_answer_in_redis() {
    if !have_tool("redis-server") {
        return;
    }
    // Scripts can ask for the version.
    let ours = |shards| Server::start(Kind::Ember { shards }, &["--redis-version", "7.0.15"]);
    let servers = [Server::start(Kind::Redis, &[]), ours(1), ours(3)];
    for script in SCRIPTS {
        for proto in ["2", "3"] {
            let [redis, ours @ ..] = &servers;
            let answer = |server: &Server| eval(&mut prepare(server, proto), script, &["k1", "k2"], &["a1"]);
            let expected = answer(redis);
            for server in ours {
                assert_eq!(answer(server), expected, "{script} in RESP{proto}, {:?}", server.kind());
            }
        }
    }
}

#[test]
fn scripts_are_kept_under_their_digests() {
    on_every_server(&[], |server| {
        let (mut one, mut other) = (server.client(), server.client());
        let digest = one.command(&["SCRIPT", "LOAD", "return {KEYS[1],ARGV[1]}"]).text();
        assert_eq!(other.command(&["EVALSHA", &digest, "1", "k", "a"]), Value::bulks(&["k", "a"]));
        assert_eq!(other.command(&["EVALSHA", &digest.to_uppercase(), "1", "k", "a"]), Value::bulks(&["k", "a"]));
        assert_eq!(other.command(&["EVALSHA_RO", &digest, "1", "k", "a"]), Value::bulks(&["k", "a"]));
        let none = "0".repeat(40);
        assert_eq!(one.command(&["SCRIPT", "EXISTS", &digest, &none, "x"]), Value::Array(vec![int(1), int(0), int(0)]));
        assert_eq!(one.call("SCRIPT FLUSH"), Value::ok());
        assert_eq!(other.command(&["EVALSHA", &digest, "0"]).text(), "NOSCRIPT No matching script. Please use EVAL.");
        // EVAL keeps a script, too.
        assert_eq!(eval(&mut one, "return ARGV[1]", &[], &["x"]), bulk("x"));
        let digest = eval(&mut one, "return redis.sha1hex('return ARGV[1]')", &[], &[]).text();
        assert_eq!(other.command(&["EVALSHA", &digest, "0", "y"]), bulk("y"));
        for (words, error) in [
            (vec!["EVAL", "return 1", "x"], "ERR value is not an integer or out of range"),
            (vec!["EVAL", "return 1", "-1"], "ERR Number of keys can't be negative"),
            (vec!["EVAL", "return 1", "2", "k"], "ERR Number of keys can't be greater than number of args"),
            (
                vec!["EVAL", "return 1", "9223372036854775807"],
                "ERR Number of keys can't be greater than number of args",
            ),
            (vec!["SCRIPT", "FLUSH", "soon"], "ERR SCRIPT FLUSH only support SYNC|ASYNC option"),
            (vec!["SCRIPT", "KILL"], "NOTBUSY No scripts in execution right now."),
        ] {
            assert_eq!(one.command(&words).text(), error);
        }
        let error = one.command(&["EVAL_RO", "return redis.call('set','a','b')", "0"]).text();
        assert!(error.starts_with("ERR Write commands are not allowed from read-only scripts."), "{error}");
    });
}

/// Scripts of one second are gone from memory, except the last of them.
#[test]
fn scripts_that_came_by_eval_make_room() {
    for shards in [1, 3] {
        let server = Server::start(Kind::Ember { shards }, &[]);
        let mut client = server.client();
        let kept = client.command(&["SCRIPT", "LOAD", "return 'kept'"]).text();
        let scripts: Vec<String> = (0..3_000).map(|n| format!("return {n}")).collect();
        for some in scripts.chunks(500) {
            let commands: Vec<Vec<&str>> = some.iter().map(|script| vec!["EVAL", script, "0"]).collect();
            client.pipeline(&commands).iter().for_each(|reply| assert!(!reply.is_error(), "{reply:?}"));
        }
        assert_eq!(client.command(&["EVALSHA", &kept, "0"]), bulk("kept"));
        let digest_of_first = eval(&mut client, "return redis.sha1hex('return 0')", &[], &[]).text();
        assert_eq!(client.command(&["SCRIPT", "EXISTS", &digest_of_first, &kept]), Value::Array(vec![int(0), int(1)]));
    }
}

/// Patterns name keys on any shard. A script over one key once asked shards that took no part in it, and the server ended.
#[test]
fn scripts_may_sort_by_what_other_keys_hold() {
    on_embers(&[], |server| {
        let mut client = server.client();
        client.call("SADD letters a b c d e");
        for (weight, letter) in ["e", "d", "c", "b", "a"].iter().enumerate() {
            client.call(&format!("SET weight:{letter} {weight}"));
        }
        let sorted = Value::bulks(&["e", "d", "c", "b", "a"]);
        let all = [0, 1, 2, 3, 4].map(|weight| weight.to_string());
        for before in ["", "redis.call('SET', KEYS[2], 'v') ", "redis.call('SET', 'undeclared', 'v') "] {
            for verb in ["SORT", "SORT_RO"] {
                let script = format!("{before}return redis.call('{verb}', KEYS[1], 'BY', 'weight:*')");
                assert_eq!(eval(&mut client, &script, &["letters", "other"], &[]), sorted, "{script}");
                let script = format!("{before}return redis.call('{verb}', KEYS[1], 'BY', '_', 'GET', 'weight:*')");
                // (A script sees a set in the order of its elements, where it asks for none.)
                let in_order = Value::bulks(&["4", "3", "2", "1", "0"]);
                assert_eq!(eval(&mut client, &script, &["letters", "other"], &[]), in_order, "{script}");
            }
        }
        let script = "return redis.call('SORT', KEYS[1], 'BY', 'weight:*', 'GET', 'weight:*', 'STORE', KEYS[2])";
        assert_eq!(eval(&mut client, script, &["letters", "other"], &[]), int(5));
        assert_eq!(client.call("LRANGE other 0 -1"), Value::bulks(&all));
    });
}
