//! Clients that wait, from several threads, as workers of a queue do.

use std::collections::BTreeSet;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use redis::streams::{StreamReadOptions, StreamReadReply};
use redis::{Commands, Connection, Direction};

use super::{connect, on_servers};
use crate::common::{Server, wait_until};

/// Key, member, score.
type Popped = (String, String, f64);
/// Key; members and scores.
type SeveralPopped = (String, Vec<(String, f64)>);

const LIMIT: Duration = Duration::from_secs(10);

fn blocked(server: &Server) -> usize {
    server.info("blocked_clients").and_then(|count| count.parse().ok()).expect("blocked_clients")
}

fn wait_for_blocked(server: &Server, count: usize) {
    assert!(wait_until(LIMIT, || blocked(server) == count), "{} wait, not {count}", blocked(server));
}

#[test]
fn waiting_clients_are_served_in_the_order_of_their_arrival() {
    const WORKERS: usize = 5;
    on_servers(|server| {
        let (sender, served) = mpsc::channel();
        thread::scope(|scope| {
            for worker in 0..WORKERS {
                let sender = sender.clone();
                scope.spawn(move || {
                    let mut redis = connect(server, "resp3");
                    let keys = ["first", "second"];
                    let popped: Option<(String, usize)> = redis.blpop(&keys, 0.0).expect("BLPOP");
                    sender.send((worker, popped)).expect("a receiver");
                });
                wait_for_blocked(server, worker + 1);
            }
            let mut redis = connect(server, "resp2");
            for n in 0..WORKERS {
                let key = if n.is_multiple_of(2) { "second" } else { "first" };
                let () = redis.rpush(key, n).expect("RPUSH");
                let served = served.recv_timeout(LIMIT).expect("one is served");
                assert_eq!(served, (n, Some((key.to_string(), n))), "who came first");
            }
            assert_eq!(redis.exists(&["first", "second"]), Ok(0));
        });
        assert_eq!(blocked(server), 0);
    });
}

#[test]
fn waiting_ends_when_the_time_is_over() {
    on_servers(|server| {
        for protocol in ["resp2", "resp3"] {
            let mut redis = connect(server, protocol);
            let begin = Instant::now();
            assert_eq!(redis.blpop(&["a", "b"], 0.1), Ok(None::<(String, String)>));
            assert_eq!(redis.blmove("a", "b", Direction::Left, Direction::Left, 0.1), Ok(None::<String>));
            assert_eq!(redis.bzpopmin("a", 0.1), Ok(None::<Popped>));
            let options = StreamReadOptions::default().block(100);
            let read: Option<StreamReadReply> = redis.xread_options(&["a"], &["$"], &options).expect("XREAD");
            assert!(read.is_none(), "{read:?}");
            let took = begin.elapsed();
            assert!(took >= Duration::from_millis(400), "{took:?}");
            assert!(took < LIMIT, "{took:?}");
            let () = redis::cmd("FLUSHALL").query(&mut redis).expect("FLUSHALL");
        }
    });
}

#[test]
fn waiting_clients_can_be_unblocked() {
    on_servers(|server| {
        let mut redis = connect(server, "resp3");
        thread::scope(|scope| {
            for (how, code) in [("TIMEOUT", None), ("ERROR", Some("UNBLOCKED"))] {
                let mut waiting = connect(server, "resp3");
                let id: i64 = redis::cmd("CLIENT").arg("ID").query(&mut waiting).expect("CLIENT ID");
                let waits = scope.spawn(move || waiting.blpop::<_, Option<(String, String)>>("key", 0.0));
                wait_for_blocked(server, 1);
                let mut unblock =
                    |how: &str| redis::cmd("CLIENT").arg(&["UNBLOCK", &id.to_string(), how]).query(&mut redis);
                assert_eq!(unblock(how), Ok(1));
                let reply = waits.join().expect("the thread ends");
                assert_eq!(reply.as_ref().err().and_then(|error| error.code()), code, "{reply:?}");
                assert_eq!(unblock(how), Ok(0), "it waits no longer");
            }
        });
    });
}

#[test]
fn who_hangs_up_while_waiting_takes_nothing() {
    on_servers(|server| {
        let mut gone = server.client();
        gone.send("BLPOP key 0");
        wait_for_blocked(server, 1);
        let mut redis = connect(server, "resp2");
        thread::scope(|scope| {
            let waits = scope.spawn(|| connect(server, "resp3").brpop::<_, Option<(String, String)>>("key", 0.0));
            wait_for_blocked(server, 2);
            drop(gone);
            wait_for_blocked(server, 1);
            assert_eq!(redis.lpush("key", "value"), Ok(1));
            let popped = waits.join().expect("the thread ends");
            assert_eq!(popped, Ok(Some(("key".to_string(), "value".to_string()))));
        });
        assert_eq!(redis.llen("key"), Ok(0));
    });
}

/// Producers and workers of a queue that moves each job into a list of those being worked on: none is lost, none is done
/// twice.
#[test]
fn workers_share_a_queue() {
    const PRODUCERS: usize = 3;
    const WORKERS: usize = 4;
    const JOBS: usize = 300;
    on_servers(|server| {
        let worker = |worker: usize| {
            let mut redis: Connection = connect(server, "resp3");
            let own = format!("working:{worker}");
            let mut done = Vec::new();
            loop {
                let job: String = redis.blmove("jobs", &own, Direction::Right, Direction::Left, 0.0).expect("BLMOVE");
                let () = redis.lrem(&own, 1, &job).expect("LREM");
                match job.as_str() {
                    "end" => return done,
                    job => done.push(job.to_string()),
                }
            }
        };
        let done: Vec<String> = thread::scope(|scope| {
            let workers: Vec<_> = (0..WORKERS).map(|n| scope.spawn(move || worker(n))).collect();
            let producers: Vec<_> = (0..PRODUCERS)
                .map(|producer| {
                    scope.spawn(move || {
                        let mut redis = connect(server, "resp2");
                        for n in 0..JOBS {
                            let () = redis.lpush("jobs", format!("{producer}:{n}")).expect("LPUSH");
                        }
                    })
                })
                .collect();
            producers.into_iter().for_each(|producer| producer.join().expect("a producer"));
            let () = connect(server, "resp2").lpush("jobs", &["end"; WORKERS]).expect("LPUSH");
            workers.into_iter().flat_map(|worker| worker.join().expect("a worker")).collect()
        });
        assert_eq!(done.len(), PRODUCERS * JOBS);
        assert_eq!(BTreeSet::from_iter(done).len(), PRODUCERS * JOBS, "each once");
        assert_eq!(server.client().call("KEYS *").items(), []);
    });
}

#[test]
fn sorted_sets_and_streams_are_waited_for() {
    on_servers(|server| {
        let mut redis = connect(server, "resp2");
        thread::scope(|scope| {
            let lowest = scope.spawn(|| connect(server, "resp3").bzpopmin::<_, Popped>(&["z", "y"], 0.0));
            wait_for_blocked(server, 1);
            let several = scope.spawn(|| connect(server, "resp2").bzmpop_max::<_, SeveralPopped>(0.0, &["y", "x"], 2));
            wait_for_blocked(server, 2);
            let () = redis.zadd_multiple("y", &[(2.0, "b"), (1.0, "a"), (3.0, "c")]).expect("ZADD");
            assert_eq!(lowest.join().expect("the thread ends"), Ok(("y".into(), "a".into(), 1.0)));
            let popped = several.join().expect("the thread ends");
            assert_eq!(popped, Ok(("y".into(), vec![("c".into(), 3.0), ("b".into(), 2.0)])));

            let () = redis.xgroup_create_mkstream("s", "g", "$").expect("XGROUP");
            let plain = scope.spawn(|| {
                let options = StreamReadOptions::default().block(0);
                connect(server, "resp3").xread_options::<_, _, StreamReadReply>(&["s"], &["$"], &options)
            });
            wait_for_blocked(server, 1);
            let grouped = scope.spawn(|| {
                let options = StreamReadOptions::default().block(0).group("g", "worker");
                connect(server, "resp2").xread_options::<_, _, StreamReadReply>(&["s"], &[">"], &options)
            });
            wait_for_blocked(server, 2);
            let id: Option<String> = redis.xadd("s", "*", &[("field", "value")]).expect("XADD");
            for waits in [plain, grouped] {
                let read = waits.join().expect("the thread ends").expect("an entry");
                assert_eq!(Some(&read.keys[0].ids[0].id), id.as_ref());
            }
        });
    });
}
