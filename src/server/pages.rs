//! The pages of the metrics' listener: what Prometheus reads, and whether the server is well. They are served by a thread of
//! their own, which asks the first shard for what the shards know, and waits for it with an end.

use super::facts::{self, metrics};
use super::state::Server;
use super::state::global::Global;
use crate::acl::{Login, User};
use crate::net::http::{self, Asked, Page};
use crate::net::{ListenerKind, next_from_outside};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
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
    /// Whether all shards answer.
    Health(Sender<()>),
}

struct Pages {
    global: Arc<Global>,
    questions: Sender<Question>,
    /// Only this machine reaches the listener.
    is_local: bool,
    /// What was answered, and when.
    metrics: Option<(Instant, Option<String>)>,
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
    let mut pages = Pages { global: global.clone(), questions, is_local, metrics: None };
    let is_encrypted = global.listeners.iter().any(|listener| listener.kind == ListenerKind::HttpTls);
    let tls = global.tls.clone().filter(|_| is_encrypted);
    http::serve(sockets, tls, move |asked| pages.page(asked))?;
    Ok(asked)
}

/// Answers what the pages ask, for as long as they do.
pub async fn answer(server: Rc<Server>, questions: Receiver<Question>) {
    while let Some(question) = next_from_outside(&questions).await {
        // Who has stopped waiting hears nothing.
        let _ = match question {
            Question::Metrics(asker) => {
                let gathered = facts::gather(&server, true).await;
                asker.send(metrics::text(&gathered).await).is_ok()
            }
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
            "/metrics" if !self.may_read(asked) => Page {
                headers: "WWW-Authenticate: Basic realm=\"EmberDB\"\r\n",
                ..Page::text(
                    401,
                    "Say the password (requirepass), or a user and a password, as basic or bearer authentication.\n",
                )
            },
            "/metrics" => self.metrics(),
            "/healthz" => self.health(),
            "/readyz" => self.readiness(),
            _ => Page::text(404, "There are /metrics, /healthz and /readyz.\n"),
        }
    }

    /// Whether somebody may have the metrics: whoever says the default user's password, or the name and the password of a user
    /// who may run INFO.
    fn may_read(&self, asked: &Asked) -> bool {
        let known = &self.global.users;
        let users = known.newest();
        let default = users.default_user();
        if default.is_for_everybody() {
            return true;
        }
        let Some(authorization) = asked.authorization else { return false };
        let (scheme, credentials) = match authorization.iter().position(|byte| *byte == b' ') {
            Some(end) => (&authorization[..end], authorization[end..].trim_ascii()),
            None => return false,
        };
        let is_welcome = |user: &User, password: &[u8]| user.log_in(password) == Login::Welcome;
        if scheme.eq_ignore_ascii_case(b"bearer") {
            return is_welcome(default, credentials);
        }
        let Ok(pair) = BASE64_STANDARD.decode(credentials) else { return false };
        let Some(colon) = pair.iter().position(|byte| *byte == b':') else { return false };
        let (name, password) = (&pair[..colon], &pair[colon + 1..]);
        let is_allowed = match users.get(name).filter(|user| user.id != default.id) {
            Some(user) => is_welcome(user, password) && user.may_run(&known.vocabulary, b"info"),
            None => is_welcome(default, password),
        };
        scheme.eq_ignore_ascii_case(b"basic") && is_allowed
    }

    fn metrics(&mut self) -> Page {
        if self.metrics.as_ref().is_none_or(|(at, _)| at.elapsed() > FRESH) {
            let answered = self.ask(Question::Metrics);
            self.metrics = Some((Instant::now(), answered));
        }
        match &self.metrics {
            Some((_, Some(text))) => Page { kind: metrics::CONTENT_TYPE, ..Page::text(200, text) },
            _ => Page::text(503, "The shards do not answer.\n"),
        }
    }

    fn health(&self) -> Page {
        match self.ask(Question::Health) {
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

    fn ask<A>(&self, question: impl FnOnce(Sender<A>) -> Question) -> Option<A> {
        let (asker, answered) = mpsc::channel();
        self.questions.send(question(asker)).ok()?;
        self.global.bells[0].ring_from_outside();
        answered.recv_timeout(PATIENCE).ok()
    }
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
