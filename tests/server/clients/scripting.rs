//! The `redis` crate runs Lua scripts by its `Script`, in both protocols; redis-server has to pass, too.

use std::collections::HashMap;
use std::time::Duration;

use redis::{Commands, Connection, ErrorKind, Script, ServerErrorKind};

use super::{connect, with_redis};
use crate::common::{on_every_server, wait_until};

fn forget_scripts(redis: &mut Connection) {
    let () = redis::cmd("SCRIPT").arg("FLUSH").query(redis).expect("SCRIPT FLUSH");
}

#[test]
fn the_redis_crate_runs_scripts() {
    with_redis(|redis| {
        forget_scripts(redis);
        let total = Script::new(
            "local n = 0
             for _, key in ipairs(KEYS) do n = n + redis.call('INCRBY', key, ARGV[1]) end
             return n",
        );
        let sum = |redis: &mut Connection, by: i64| total.key("a").key("b").key("c").arg(by).invoke::<i64>(redis);
        // The crate loads the script when the server does not know it.
        assert_eq!(sum(redis, 2), Ok(6));
        assert_eq!(sum(redis, 1), Ok(9));
        forget_scripts(redis);
        assert_eq!(sum(redis, 1), Ok(12));
        assert_eq!(redis.mget(&["a", "b", "c"]), Ok([4, 4, 4]));
        assert_eq!(total.load(redis), Ok(total.get_hash().to_string()));
        let known = redis::cmd("SCRIPT").arg("EXISTS").arg(total.get_hash()).arg("nothing").query(redis);
        assert_eq!(known, Ok([true, false]));
    });
}

#[test]
fn the_redis_crate_reads_what_scripts_return() {
    with_redis(|redis| {
        let mut returns = |body: &str| Script::new(body).key("k").arg("two").invoke::<redis::Value>(redis).expect(body);
        assert_eq!(returns("return 2.9"), redis::Value::Int(2));
        assert_eq!(returns("return nil"), redis::Value::Nil);
        assert_eq!(returns("return {ok = 'FINE'}"), redis::Value::SimpleString("FINE".to_string()));
        assert_eq!(returns("return redis.call('SET', KEYS[1], ARGV[1])"), redis::Value::Okay);
        let text = |text: &str| redis::Value::BulkString(text.as_bytes().to_vec());
        let list = vec![redis::Value::Int(1), text("two"), redis::Value::Nil, redis::Value::Array(vec![text("k")])];
        assert_eq!(returns("return {1, ARGV[1], false, {KEYS[1]}}"), redis::Value::Array(list));
        let fields = "redis.call('HSET', KEYS[1], 'f', ARGV[1], 'g', 2) return redis.call('HGETALL', KEYS[1])";
        let hash: HashMap<String, String> = Script::new(fields).key("h").arg(1).invoke(redis).expect("a hash");
        assert_eq!(hash, HashMap::from([("f", "1"), ("g", "2")].map(|(f, v)| (f.to_string(), v.to_string()))));
        let pair: (Option<String>, i64) =
            Script::new("return {redis.call('GET', KEYS[1]), 7}").key("nothing").invoke(redis).expect("a pair");
        assert_eq!(pair, (None, 7));
        let bytes: Vec<u8> = (0..=255).collect();
        let same: Vec<u8> = Script::new("return ARGV[1]").arg(&bytes[..]).invoke(redis).expect("bytes");
        assert_eq!(same, bytes);
    });
}

#[test]
fn the_redis_crate_reports_what_scripts_fail_with() {
    with_redis(|redis| {
        let own = Script::new("return redis.error_reply('MINE it failed')").invoke::<i64>(redis).expect_err("an error");
        assert_eq!((own.code(), own.detail()), (Some("MINE"), Some("it failed")));
        let wrong = Script::new("redis.call('RPUSH', KEYS[1], 'x') return redis.call('INCR', KEYS[1])");
        let wrong = wrong.key("l").invoke::<i64>(redis).expect_err("a list");
        assert_eq!(wrong.code(), Some("WRONGTYPE"));
        assert_eq!(redis.llen("l"), Ok(1), "what came before the error was done");
        let caught = Script::new("return redis.pcall('INCR', KEYS[1]).err").key("l").invoke::<String>(redis);
        assert!(caught.as_ref().is_ok_and(|error| error.starts_with("WRONGTYPE")), "{caught:?}");
        let broken = Script::new("this is no script").invoke::<i64>(redis).expect_err("no Lua");
        assert!(broken.to_string().contains("Error compiling script"), "{broken}");
        let unknown = redis::cmd("EVALSHA").arg("0".repeat(40)).arg(0).query::<i64>(redis).expect_err("no script");
        assert_eq!(unknown.kind(), ErrorKind::Server(ServerErrorKind::NoScript));
    });
}

#[test]
fn the_redis_crate_runs_scripts_in_pipelines() {
    with_redis(|redis| {
        let both = Script::new("redis.call('SET', KEYS[1], ARGV[1]) return redis.call('INCRBY', KEYS[2], ARGV[1])");
        let _: String = both.load(redis).expect("SCRIPT LOAD");
        let mut pipeline = redis::pipe();
        for n in 1..=200 {
            pipeline.invoke_script(both.key(format!("key:{n}")).key("sum").arg(n));
        }
        let sums: Vec<i64> = pipeline.query(redis).expect("a pipeline");
        assert_eq!(sums, (1..=200).map(|n| n * (n + 1) / 2).collect::<Vec<_>>());
        let mut pipeline = redis::pipe();
        pipeline.atomic().set("sum", 10).ignore().invoke_script(both.key("other").key("sum").arg(5)).get("other");
        assert_eq!(pipeline.query(redis), Ok((15, 5)));
    });
}

#[test]
fn the_redis_crate_keeps_a_lock_by_scripts() {
    const WORKERS: i64 = 4;
    const ROUNDS: i64 = 25;
    // Only the holder may let go of the lock.
    let release = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
    let acquire = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 20000) then return 1 end return 0";
    on_every_server(&[], |server| {
        let (acquire, release) = (Script::new(acquire), Script::new(release));
        std::thread::scope(|scope| {
            for worker in 0..WORKERS {
                let (acquire, release) = (&acquire, &release);
                scope.spawn(move || {
                    let mut redis = connect(server, "resp3");
                    for _ in 0..ROUNDS {
                        let mut tries = || acquire.key("lock").arg(worker).invoke(&mut redis) == Ok(1);
                        assert!(wait_until(Duration::from_secs(20), &mut tries), "the lock is never free");
                        // Without the lock two workers would write the same number.
                        let number: Option<i64> = redis.get("number").expect("GET");
                        assert_eq!(release.key("lock").arg("another").invoke(&mut redis), Ok(0));
                        let () = redis.set("number", number.unwrap_or(0) + 1).expect("SET");
                        assert_eq!(release.key("lock").arg(worker).invoke(&mut redis), Ok(1));
                    }
                });
            }
        });
        let mut redis = connect(server, "resp2");
        assert_eq!(redis.get("number"), Ok(WORKERS * ROUNDS));
        assert_eq!(redis.exists("lock"), Ok(false));
    });
}
