//! The pages of the metrics' listener: what Prometheus reads, a live page for people, and whether the server is well. They
//! are served by a thread of their own, which asks the first shard for what the shards know, and waits for it with an end.
//!
//! | file | what |
//! |---|---|
//! | `status.rs` | what the live page shows, as JSON |
//! | `live/` | the live page itself: one file, with its style and its script |

mod status;

use self::status::{Document, Gatherer, Rights, Status};
use super::facts::{self, metrics};
use super::state::Server;
use super::state::global::Global;
use crate::acl::log::{Context, Entry, Reason};
use crate::acl::{DEFAULT, Login, User, Users};
use crate::clock::{realtime_us, store_us};
use crate::net::http::{self, Asked, Page};
use crate::net::{ListenerKind, next_from_outside};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};
use std::io;
use std::net::{IpAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

/// How long the shards have to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// For so long one answer is good enough for all who ask.
const FRESH: Duration = Duration::from_millis(900);

/// What the thread asks the first shard.
pub enum Question {
    Metrics(Sender<String>),
    Status(Sender<Status>),
    /// Whether all shards answer.
    Health(Sender<()>),
}

/// Whom the pages ask.
struct Shards {
    global: Arc<Global>,
    questions: Sender<Question>,
}

struct Pages {
    global: Arc<Global>,
    shards: Shards,
    /// Only this machine reaches the listener.
    is_local: bool,
    metrics: Shared<String>,
    status: Shared<Document>,
    /// The head of the live page.
    live_headers: String,
}

/// What was answered last, for all who ask.
struct Shared<A>(Option<(Instant, Option<A>)>);

impl<A> Shared<A> {
    /// The answer, which is made anew where it is too old. `None`: the shards do not answer.
    fn get(&mut self, make: impl FnOnce() -> Option<A>) -> Option<&A> {
        if self.0.as_ref().is_none_or(|(at, _)| at.elapsed() > FRESH) {
            let answer = make();
            self.0 = Some((Instant::now(), answer));
        }
        self.0.as_ref().and_then(|(_, answer)| answer.as_ref())
    }
}

const PROTECTED: &str = "EmberDB is running in protected mode, and no password is set for the default user: only this \
                         machine has the pages. Set a password with 'requirepass', or turn protected mode off with \
                         'protected-mode no' where nobody but you can reach the port.\n";
const LIVE: &str = include_str!("live/page.html");

/// Nothing but the page's own style and script is ever loaded, and nothing is asked of anybody but this server.
fn live_headers() -> String {
    let hash = |element: &str| {
        let (start, end) = (format!("<{element}>"), format!("</{element}>"));
        let inside =
            LIVE.split_once(&start).and_then(|(_, rest)| rest.split_once(&end)).map_or("", |(inside, _)| inside);
        BASE64_STANDARD.encode(Sha256::digest(inside))
    };
    format!(
        "Content-Security-Policy: default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; img-src data:; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'\r\nReferrer-Policy: no-referrer\r\n",
        hash("style"),
        hash("script")
    )
}

/// Begins to serve the pages, on the listeners that are for them; what they ask is for [`answer`].
///
/// # Errors
/// There is no thread for it.
pub fn serve(global: &Arc<Global>) -> io::Result<Receiver<Question>> {
    let (questions, asked) = mpsc::channel();
    let of_pages = global.listeners.iter().filter(|listener| listener.kind.is_http());
    let sockets = of_pages.map(|listener| listener.fd.try_clone().map(TcpListener::from));
    let sockets = sockets.collect::<io::Result<Vec<_>>>()?;
    if sockets.is_empty() {
        return Ok(asked);
    }
    let is_local = sockets.iter().all(|socket| socket.local_addr().is_ok_and(|addr| addr.ip().is_loopback()));
    let mut pages = Pages {
        global: global.clone(),
        shards: Shards { global: global.clone(), questions },
        is_local,
        metrics: Shared(None),
        status: Shared(None),
        live_headers: live_headers(),
    };
    let is_encrypted = global.listeners.iter().any(|listener| listener.kind == ListenerKind::HttpTls);
    let tls = global.tls.clone().filter(|_| is_encrypted);
    http::serve(sockets, tls, move |asked| pages.page(asked))?;
    Ok(asked)
}

/// Answers what the pages ask, for as long as they do.
pub async fn answer(server: Rc<Server>, questions: Receiver<Question>) {
    let gatherer = Gatherer::default();
    while let Some(question) = next_from_outside(&questions).await {
        // Who has stopped waiting hears nothing.
        let _ = match question {
            Question::Metrics(asker) => {
                let gathered = facts::gather(&server, true).await;
                let outlook = gatherer.foresight.latest(&server);
                asker.send(metrics::text(&gathered, outlook).await).is_ok()
            }
            Question::Status(asker) => asker.send(gatherer.gather(&server).await).is_ok(),
            Question::Health(asker) => {
                server.shard.call_all(|_| ()).await;
                asker.send(()).is_ok()
            }
        };
    }
}

impl Pages {
    fn page(&mut self, asked: &Asked) -> Page {
        if self.is_local && !asked.host.is_none_or(is_this_machine) {
            // A page from elsewhere whose name was made to lead here.
            return Page::text(403, "This listener is for this machine alone: ask for it by that name.\n");
        }
        match asked.path {
            "/healthz" => return self.health(),
            "/readyz" => return self.readiness(),
            "/" | "/status.json" | "/metrics" => {}
            _ => return Page::text(404, "There are /, /status.json, /metrics, /healthz and /readyz.\n"),
        }
        let users = self.global.users.newest();
        let reader = match self.reader(&users, asked) {
            Ok(reader) => reader,
            Err(refusal) => return refusal,
        };
        match asked.path {
            "/metrics" => self.metrics(),
            "/status.json" => self.status(reader),
            _ => Page {
                kind: "text/html; charset=utf-8",
                headers: self.live_headers.clone().into(),
                ..Page::text(200, LIVE)
            },
        }
    }

    /// Who may have the metrics: whoever says the default user's password, or the name and the password of a user who may run
    /// INFO; and everybody, as the default user, where that has no password.
    /// In protected mode it is nobody from another machine, and wrong passwords count as those of AUTH do.
    fn reader<'u>(&self, users: &'u Users, asked: &Asked) -> Result<&'u User, Page> {
        let default = users.default_user();
        let (is_local, config) = (asked.peer.is_some_and(|peer| peer.is_loopback()), self.global.config());
        if config.protected_mode && default.has_no_password() && !is_local {
            return Err(Page::text(403, PROTECTED));
        }
        let watched = asked.peer.filter(|_| config.auth_slowdown.concerns(is_local));
        drop(config);
        let guesses = &self.global.guesses;
        if asked.authorization.is_some() && watched.is_some_and(|peer| guesses.has_to_wait(peer, store_us())) {
            let headers = "Retry-After: 1\r\n".into();
            return Err(Page { headers, ..Page::text(429, "Too many wrong passwords have come from this address.\n") });
        }
        match asked.authorization.map(|authorization| self.authorized(users, authorization)) {
            Some(Ok(user)) => return Ok(user),
            _ if default.is_for_everybody() => return Ok(default),
            Some(Err(Some(name))) => {
                watched.iter().for_each(|peer| guesses.note_and_tell(*peer, store_us()));
                self.note_refused(&name, asked.peer);
            }
            Some(Err(None)) | None => {}
        }
        let headers = "WWW-Authenticate: Basic realm=\"EmberDB\", charset=\"UTF-8\"\r\n".into();
        Err(Page {
            headers,
            ..Page::text(
                401,
                "Say the password (requirepass), or a user and a password, as basic or bearer authentication.\n",
            )
        })
    }

    /// Writes down that a password was wrong.
    fn note_refused(&self, name: &[u8], peer: Option<IpAddr>) {
        let users = &self.global.users;
        users.refusals(Reason::Login).fetch_add(1, Ordering::Relaxed);
        let keep = usize::try_from(self.global.config().acllog_max_len).unwrap_or(usize::MAX);
        let entry = Entry::new((0, name), Context::TopLevel, (Reason::Login, b"http"), realtime_us() / 1_000);
        let client = peer.map_or_else(String::new, |peer| format!("addr={peer}"));
        users.log().add(Entry { client, ..entry }, keep);
    }

    /// Who has said the right password; else the name of who was said to ask, if a password was said.
    fn authorized<'u>(&self, users: &'u Users, authorization: &[u8]) -> Result<&'u User, Option<Box<[u8]>>> {
        let default = users.default_user();
        let is_welcome = |user: &User, password: &[u8]| user.log_in(password) == Login::Welcome;
        let (scheme, credentials) = split(authorization, b' ').unwrap_or_default();
        let credentials = credentials.trim_ascii();
        if scheme.eq_ignore_ascii_case(b"bearer") {
            return if is_welcome(default, credentials) { Ok(default) } else { Err(Some(DEFAULT.into())) };
        }
        let pair = BASE64_STANDARD.decode(credentials).unwrap_or_default();
        let Some((name, password)) = split(&pair, b':').filter(|_| scheme.eq_ignore_ascii_case(b"basic")) else {
            return Err(None);
        };
        let named = users.get(name).filter(|user| user.id != default.id);
        let user: &User = named.unwrap_or(default);
        let has_right = named.is_none() || user.may_run(&self.global.users.vocabulary, b"info");
        if is_welcome(user, password) && has_right { Ok(user) } else { Err(Some(name.into())) }
    }

    fn metrics(&mut self) -> Page {
        match self.metrics.get(|| self.shards.ask(Question::Metrics)) {
            Some(text) => Page { kind: metrics::CONTENT_TYPE, ..Page::text(200, text) },
            None => Page::text(503, "The shards do not answer.\n"),
        }
    }

    fn status(&mut self, reader: &User) -> Page {
        let may_run = |name: &str| reader.may_run(&self.global.users.vocabulary, name.as_bytes());
        let rights = Rights {
            policies: may_run("expiry|policy"),
            slow: may_run("slowlog|get"),
            clients: may_run("client|list"),
        };
        match self.status.get(|| self.shards.ask(Question::Status).map(|status| status.write())) {
            Some(document) => Page { kind: "application/json", body: document.of(rights), ..Page::text(200, "") },
            None => Page::text(503, "The shards do not answer.\n"),
        }
    }

    fn health(&self) -> Page {
        match self.shards.ask(Question::Health) {
            Some(()) => Page::text(200, "ok\n"),
            None => Page::text(503, "The shards do not answer.\n"),
        }
    }

    fn readiness(&self) -> Page {
        let global = &self.global;
        if global.stopping.load(Ordering::Relaxed) {
            Page::text(503, "The server ends.\n")
        } else if global.snapshots.is_loading() {
            Page::text(503, "Data is being loaded.\n")
        } else if global.following.is_stale() {
            Page::text(503, "The server that this one follows is out of reach.\n")
        } else {
            self.health()
        }
    }
}

impl Shards {
    fn ask<A>(&self, question: impl FnOnce(Sender<A>) -> Question) -> Option<A> {
        let (asker, answered) = mpsc::channel();
        self.questions.send(question(asker)).ok()?;
        self.global.bells[0].ring_from_outside();
        answered.recv_timeout(PATIENCE).ok()
    }
}

fn split(bytes: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == at)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

/// Whether a name, with a port or without, is one of this machine's for itself.
fn is_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let address = name.parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_machine_are_known() {
        for host in ["localhost", "LOCALHOST:9121", "127.0.0.1", "127.3.4.5:1", "[::1]:9121", "[::1]"] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in ["", "evil.example", "localhost.evil.example:9121", "10.0.0.1", "[::2]", "[", "127.0.0.1.evil"] {
            assert!(!is_this_machine(host), "{host}");
        }
    }
}
