//! From what one server shows of its changes to others that make them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::common::{Client, Server, Value, encode, wait_until};

/// Commands in one pipeline.
const TOGETHER: usize = 100;
/// Connections that are shown the journal.
const FOLLOWERS: usize = 3;
const MARKER: &[u8] = b"propagation:marker";
/// Shown before one that was answered by an error.
const SHOWN: usize = 400;
/// Of so many commands it is known what they were.
const KEPT: usize = 200_000;

pub struct Feed {
    source: Client,
    marker: u64,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<u64>>,
}

#[derive(Default)]
struct Shared {
    /// The last marker that all targets have.
    seen: AtomicU64,
    /// Commands that all targets have run.
    done: AtomicU64,
    is_over: AtomicBool,
    /// The last commands.
    last: Mutex<VecDeque<Vec<Vec<u8>>>>,
}

impl Feed {
    pub fn start(source: &Server, targets: &[Server]) -> Feed {
        let mut followers = [(); FOLLOWERS].map(|()| source.client());
        followers.iter_mut().for_each(|follower| assert_eq!(follower.call("DEBUG JOURNAL"), Value::ok()));
        let mut targets: Vec<Client> = targets.iter().map(Server::client).collect();
        let shared = Arc::<Shared>::default();
        let of_thread = shared.clone();
        let thread = std::thread::spawn(move || feed(&mut followers, &mut targets, &of_thread));
        Feed { source: source.client(), marker: 0, shared, thread: Some(thread) }
    }

    /// Waits until all that was changed so far has reached the targets.
    pub fn catch_up(&mut self) {
        self.marker += 1;
        let set = [b"SET", MARKER, self.marker.to_string().as_bytes()].map(<[u8]>::to_vec);
        assert_eq!(self.source.command(&set), Value::ok());
        let (shared, thread) = (&self.shared, &self.thread);
        let is_over = || thread.as_ref().is_none_or(JoinHandle::is_finished);
        let seen = || shared.seen.load(Ordering::Acquire) >= self.marker;
        // As long as it goes on: much may have been changed since the last time.
        let mut done = u64::MAX;
        while !seen() && !is_over() && done != shared.done.load(Ordering::Relaxed) {
            done = shared.done.load(Ordering::Relaxed);
            wait_until(Duration::from_secs(60), || seen() || is_over());
        }
        if !seen() {
            self.end();
            panic!("the marker was never told");
        }
    }

    /// The last commands that were told and name what differs.
    pub fn tail(&self, differences: &[String]) -> String {
        let last = self.shared.last.lock().expect("the commands");
        let shown = last.iter().map(|args| shown(args));
        let names: Vec<&str> = differences.iter().filter_map(|of| of.split('|').nth(1)).collect();
        let about: Vec<String> = shown.filter(|line| names.iter().any(|name| line.contains(name))).collect();
        about[about.len().saturating_sub(40)..].join("\n")
    }

    /// Ends the feed; how many commands there were.
    pub fn end(&mut self) -> u64 {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.thread.take().map_or(0, |thread| thread.join().expect("the feed"))
    }
}

fn shown(args: &[Vec<u8>]) -> String {
    args.iter().map(|arg| arg[..arg.len().min(60)].escape_ascii().to_string()).collect::<Vec<_>>().join(" ")
}

fn feed(followers: &mut [Client], targets: &mut [Client], shared: &Shared) -> u64 {
    let (follower, others) = followers.split_first_mut().expect("there are some");
    let (mut count, mut marker) = (0, 0);
    let mut waiting: Vec<Vec<Vec<u8>>> = Vec::new();
    while !shared.is_over.load(Ordering::Relaxed) {
        let told = follower.read_within(Duration::from_millis(5));
        let is_idle = told.is_none();
        if let Some(told) = told {
            // The other followers, who are on other shards, are shown the very same.
            others.iter_mut().for_each(|other| assert_eq!(other.read(), told, "command {count}"));
            let args: Vec<Vec<u8>> = told.items().iter().map(|arg| arg.bytes().expect("text").to_vec()).collect();
            if args.len() == 3 && args[1] == MARKER {
                marker = String::from_utf8_lossy(&args[2]).parse().expect("a number");
            }
            count += 1;
            targets.iter_mut().for_each(|target| target.send_raw(&encode(&args)));
            waiting.push(args);
        }
        if waiting.len() >= TOGETHER || is_idle {
            for target in targets.iter_mut() {
                for args in &waiting {
                    let reply = target.read();
                    if has_error(&reply) {
                        let last = shared.last.lock().expect("the commands");
                        let before: Vec<String> = last.iter().chain(&waiting).map(|args| shown(args)).collect();
                        let before = before[before.len().saturating_sub(SHOWN)..].join("\n");
                        panic!(
                            "{} was answered {reply:?} by {}\n{before}",
                            shown(args),
                            target.call("INFO server").text()
                        );
                    }
                }
            }
            let mut last = shared.last.lock().expect("the commands");
            last.extend(waiting.drain(..));
            let too_many = last.len().saturating_sub(KEPT);
            last.drain(..too_many);
            shared.done.store(count, Ordering::Relaxed);
            shared.seen.store(marker, Ordering::Release);
        }
    }
    count
}

/// Whether a reply, or one within that of EXEC, is an error.
fn has_error(reply: &Value) -> bool {
    reply.is_error() || matches!(reply, Value::Array(items) if items.iter().any(has_error))
}
