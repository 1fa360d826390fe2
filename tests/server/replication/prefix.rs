//! What a replica shows is what its primary had at some moment, and never an earlier one than it has shown: a checker of that.
//!
//! Each writer changes keys of its own, one change after the other: single writes, transactions, scripts, renames, over several
//! shards. So what there is of a writer's keys says how many of its changes have been done, and must be exactly what those make.
//! And of two writers: where a change is there, every change is that was answered before this one was asked for.

use super::{PATIENCE, PRIMARY, seed, setting, settle, wait_for_link};
use crate::common::{Client, Kind, Server, Value, encode, wait_until};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// For how long.
pub const SECONDS: usize = 8;
const WRITERS: usize = 3;
/// So many writes are sent before an answer is read, by the one who does not wait.
const PIPELINE: usize = 10_000;
const KEYS: [&str; 8] = ["single", "a", "b", "c", "d", "count", "here", "there"];
/// No change was done of what is there.
const NOTHING: State = [0; KEYS.len()];

/// The values of a writer's keys; 0 where there is none.
type State = [u32; KEYS.len()];

/// What a writer has done: what each change has made, when it was asked for and when it was answered.
#[derive(Default)]
struct History {
    states: Vec<State>,
    times: Vec<(Instant, Option<Instant>)>,
}

fn key(writer: usize, name: &str) -> String {
    format!("{name}:{writer}")
}

/// The next change, and what it makes of what is there. Every other one is a single write that says its number.
fn change(writer: usize, number: u32, state: &mut State, rng: &mut fastrand::Rng) -> Vec<Vec<String>> {
    let name = |index: usize| key(writer, KEYS[index]);
    let set = |index: usize| vec!["SET".to_owned(), name(index), number.to_string()];
    let line = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    if number % 2 == 1 {
        state[0] = number;
        return vec![set(0)];
    }
    if number == 2 {
        state[6] = number;
        return vec![set(6)];
    }
    match rng.u32(..6) {
        0 => {
            (state[1], state[2]) = (number, number);
            vec![line(&["MULTI"]), set(1), set(2), line(&["EXEC"])]
        }
        1 => {
            (state[1], state[2]) = (number, number);
            vec![line(&["MSET", &name(1), &number.to_string(), &name(2), &number.to_string()])]
        }
        2 => {
            (state[3], state[4]) = (number, number);
            let script = "for _, key in ipairs(KEYS) do redis.call('SET', key, ARGV[1]) end";
            vec![line(&["EVAL", script, "2", &name(3), &name(4), &number.to_string()])]
        }
        3 => {
            let (from, to) = if state[6] > 0 { (6, 7) } else { (7, 6) };
            state.swap(from, to);
            vec![line(&["RENAME", &name(from), &name(to)])]
        }
        4 => {
            // Everything in one moment.
            state[5] += 1;
            (state[1], state[2], state[3], state[4]) = (number, number, number, number);
            let sets = (1..5).map(set);
            let count = [line(&["INCR", &name(5)])];
            [line(&["MULTI"])].into_iter().chain(sets).chain(count).chain([line(&["EXEC"])]).collect()
        }
        _ => {
            state[5] += 1;
            vec![line(&["INCR", &name(5)])]
        }
    }
}

fn write(primary: &Server, writer: usize, seed: u64, history: &Mutex<History>, is_over: &AtomicBool) {
    let (mut client, mut rng) = (primary.client(), fastrand::Rng::with_seed(seed ^ writer as u64));
    let mut state = NOTHING;
    for number in 1.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let lines = change(writer, number, &mut state, &mut rng);
        {
            let mut history = history.lock().expect("a history");
            history.states.push(state);
            history.times.push((Instant::now(), None));
        }
        let bytes: Vec<u8> = lines.iter().flat_map(|line| encode(line)).collect();
        client.send_raw(&bytes);
        for line in &lines {
            let answer = client.read();
            assert!(!answer.is_error(), "{line:?}: {answer:?}");
        }
        history.lock().expect("a history").times.last_mut().expect("pushed").1 = Some(Instant::now());
    }
}

/// A client that does not wait: of its two keys, on one shard, the first is as new as the second, or one newer.
fn write_without_waiting(primary: &Server, is_over: &AtomicBool) {
    let mut client = primary.client();
    let bytes = [encode(&["INCR", "{p}first"]), encode(&["INCR", "{p}second"])].concat().repeat(PIPELINE / 2);
    while !is_over.load(Ordering::Relaxed) {
        client.send_raw(&bytes);
        for _ in 0..PIPELINE {
            assert!(!client.read().is_error());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_millis() as u64
}

/// Keys with deadlines, each of which says when it dies.
fn write_mortals(primary: &Server, is_over: &AtomicBool) {
    let mut client = primary.client();
    for number in 0_u64.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let deadline = (now_ms() + 1 + number * 7 % 300).to_string();
        let key = format!("mortal:{}", number % 20);
        assert!(!client.command(&["SET", &key, &deadline, "PXAT", &deadline]).is_error());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Asks a server that may be down.
fn ask(client: &mut Option<Client>, port: u16, args: &[String]) -> Option<Value> {
    if client.is_none() {
        *client = Client::connect(port).ok();
    }
    let of = client.as_mut()?;
    let answer = of.try_send_raw(&encode(args)).and_then(|()| of.try_read_within(Duration::from_secs(10)));
    match answer {
        Ok(answer) => Some(answer).filter(|answer| !answer.is_error()),
        Err(_) => {
            *client = None;
            std::thread::sleep(Duration::from_millis(5));
            None
        }
    }
}

/// Reads a replica until it is over, and says what is wrong with what it shows. How often it has looked.
fn watch(port: u16, restarts: &AtomicU64, histories: &[Mutex<History>], is_over: &AtomicBool) -> Result<usize, String> {
    let names = |of: &[&str]| of.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let all = (0..WRITERS).flat_map(|writer| KEYS.map(|name| key(writer, name)));
    let mget: Vec<String> = names(&["MGET"]).into_iter().chain(all).chain(names(&["{p}first", "{p}second"])).collect();
    let mortals: Vec<String> =
        names(&["MGET"]).into_iter().chain((0..20).map(|number| format!("mortal:{number}"))).collect();
    let (mut client, mut seen, mut epoch, mut looks) = (None, [0; WRITERS], 0, 0);
    while !is_over.load(Ordering::Relaxed) {
        let began = restarts.load(Ordering::SeqCst);
        let Some(answer) = ask(&mut client, port, &mget) else { continue };
        let values: Vec<u32> = answer
            .items()
            .iter()
            .map(|item| if item.is_null() { 0 } else { item.text().parse().expect("a number") })
            .collect();
        let ended = restarts.load(Ordering::SeqCst);
        if began != ended || began != epoch || began % 2 == 1 {
            (seen, epoch) = ([0; WRITERS], began);
        }
        let mut done = [0; WRITERS];
        for (writer, history) in histories.iter().enumerate() {
            let state: State = values[writer * KEYS.len()..][..KEYS.len()].try_into().expect("so many");
            let history = history.lock().expect("a history");
            let after = |count: usize| if count == 0 { Some(NOTHING) } else { history.states.get(count - 1).copied() };
            let least = state[0] as usize;
            let count = [least, least + 1].into_iter().find(|count| after(*count) == Some(state));
            let Some(count) = count else {
                let (first, second) = (after(least), after(least + 1));
                drop(history);
                let at_ms = now_ms();
                std::thread::sleep(Duration::from_millis(500));
                let later = ask(&mut client, port, &mget).map(|answer| {
                    let of_writer = &answer.items()[writer * KEYS.len()..][..KEYS.len()];
                    of_writer.iter().map(|item| format!("{item:?}")).collect::<Vec<_>>().join(" ")
                });
                return Err(format!(
                    "{port}: writer {writer}: {state:?} is no state; {first:?} and {second:?} are; at {at_ms}, epoch {began} to {ended}; half a second later {later:?}"
                ));
            };
            if began == ended && began == epoch && count < seen[writer] {
                return Err(format!("{port}: writer {writer}: {} changes were shown, and now {count}", seen[writer]));
            }
            (done[writer], seen[writer]) = (count, count);
        }
        for (newer, count) in done.iter().enumerate().filter(|(_, count)| **count > 0) {
            let asked = histories[newer].lock().expect("a history").times[count - 1].0;
            for (older, missing) in done.iter().enumerate() {
                let history = histories[older].lock().expect("a history");
                let answered = history.times.get(*missing).and_then(|times| times.1);
                if answered.is_some_and(|answered| answered < asked) {
                    return Err(format!(
                        "change {count} of writer {newer} is there, and change {} of writer {older} is not, which was answered before",
                        missing + 1
                    ));
                }
            }
        }
        let (first, second) = (values[values.len() - 2], values[values.len() - 1]);
        if first != second && first != second + 1 {
            return Err(format!("a pipeline: {first} and {second}"));
        }
        let asked_ms = now_ms();
        if let Some(answer) = ask(&mut client, port, &mortals) {
            let late = answer
                .items()
                .iter()
                .find(|item| !item.is_null() && item.text().parse::<u64>().expect("a moment") < asked_ms);
            if let Some(late) = late {
                return Err(format!("at {asked_ms} a key is shown that was dead at {}", late.text()));
            }
        }
        looks += 1;
    }
    Ok(looks)
}

/// Breaks links, and kills replicas: of `servers` the first follows the primary, and the second the first.
fn harm(
    primary: &Server,
    servers: Vec<Server>,
    flags: &[Vec<String>],
    restarts: &AtomicU64,
    seed: u64,
    until: Instant,
) -> Vec<Server> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut servers: Vec<Option<Server>> = servers.into_iter().map(Some).collect();
    while Instant::now() < until {
        std::thread::sleep(Duration::from_millis(rng.u64(50..700)));
        let which = rng.usize(..servers.len());
        let server = servers[which].as_ref().expect("it is there");
        match rng.u32(..6) {
            0 => drop(primary.client().call("CLIENT KILL TYPE replica")),
            1 => drop(server.client().call("CLIENT KILL TYPE master")),
            2 => drop(server.client().call("CLIENT KILL TYPE replica")),
            3 => {
                // Who comes back now needs a snapshot.
                primary.client().call("CONFIG SET repl-backlog-size 16kb");
                primary.client().call("CLIENT KILL TYPE replica");
                std::thread::sleep(Duration::from_millis(300));
                primary.client().call("CONFIG SET repl-backlog-size 100mb");
            }
            _ => {
                // What a replica that was killed has forgotten it, and who follows it, may show again.
                restarts.fetch_add(1, Ordering::SeqCst);
                let flags: Vec<&str> = flags[which].iter().map(String::as_str).collect();
                let server = servers[which].take().expect("it is there");
                servers[which] = Some(server.restart(&flags));
                std::thread::sleep(Duration::from_millis(100));
                for server in servers.iter().flatten() {
                    let is_up = || server.info("master_link_status").is_some_and(|status| status == "up");
                    assert!(wait_until(2 * PATIENCE, is_up), "{}", server.output());
                }
                restarts.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
    servers.into_iter().flatten().collect()
}

#[test]
fn what_replicas_show_is_always_a_prefix_of_what_the_primary_did() {
    let (seed, seconds) = (seed(), setting("EMBERDB_REPLICATION_SECONDS", SECONDS));
    let primary = Server::start(Kind::Ember { shards: 3 }, &[PRIMARY, &["--repl-backlog-size", "100mb"]].concat());
    let mut servers: Vec<Server> = Vec::new();
    let mut flags: Vec<Vec<String>> = Vec::new();
    let more: [&[&str]; 2] = [
        &["--shards", "2", "--appendonly", "yes", "--save", ""],
        &["--shards", "3", "--repl-diskless-load", if seed.is_multiple_of(2) { "swapdb" } else { "on-empty-db" }],
    ];
    for (index, more) in more.iter().enumerate() {
        let of = servers.last().unwrap_or(&primary).port();
        let follows = [
            "--replicaof".to_owned(),
            format!("127.0.0.1 {of}"),
            "--repl-diskless-sync-delay".to_owned(),
            "0".to_owned(),
        ];
        flags.push(more.iter().map(|flag| (*flag).to_owned()).chain(follows).collect());
        let first: Vec<&str> = flags[index][2..].iter().map(String::as_str).collect();
        servers.push(Server::start(Kind::Ember { shards: if index == 0 { 2 } else { 3 } }, &first));
        wait_for_link(&servers[index]);
    }
    let histories: Vec<Mutex<History>> = (0..WRITERS).map(|_| Mutex::default()).collect();
    let restarts = AtomicU64::new(0);
    let ports: Vec<u16> = servers.iter().map(Server::port).collect();
    let is_over = AtomicBool::new(false);
    let until = Instant::now() + Duration::from_secs(seconds as u64);
    let (primary, histories, restarts, is_over) = (&primary, &histories, &restarts, &is_over);
    let servers = std::thread::scope(|scope| {
        for (writer, history) in histories.iter().enumerate() {
            scope.spawn(move || write(primary, writer, seed, history, is_over));
        }
        scope.spawn(|| write_without_waiting(primary, is_over));
        scope.spawn(|| write_mortals(primary, is_over));
        let watching: Vec<_> =
            ports.iter().map(|port| scope.spawn(move || watch(*port, restarts, histories, is_over))).collect();
        let harming = scope.spawn(|| harm(primary, servers, &flags, restarts, seed, until));
        let wrong = || watching.iter().any(|watcher| watcher.is_finished());
        wait_until(Duration::from_secs(seconds as u64 + 60), || harming.is_finished() || wrong());
        let servers = harming.join();
        is_over.store(true, Ordering::Relaxed);
        for watcher in watching {
            let looks = watcher.join().expect("a watcher").unwrap_or_else(|wrong| panic!("{wrong}"));
            eprintln!("{looks} looks");
            assert!(looks > 10);
        }
        servers.expect("nothing is wrong")
    });
    for replica in &servers {
        assert!(wait_until(2 * PATIENCE, || super::field(replica, "master_link_status") == "up"));
        settle(primary, replica);
        assert!(!replica.output().contains("CRITICAL"), "{}", replica.output());
    }
    let changes: usize = histories.iter().map(|history| history.lock().expect("a history").states.len()).sum();
    eprintln!("{changes} changes; {} restarts", restarts.load(Ordering::Relaxed) / 2);
}
