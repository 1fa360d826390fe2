//! A small HTTP server on a thread of its own: a few pages for those who watch over the server (`GET`, no bodies, a connection
//! a request). Nothing that its clients do reaches a shard: how many they are, how slow and how long is bounded here.

use super::tls::{Layer, Tls};
use crate::observe::log;
use mio::event::Event;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// At the same time. Should there be more, then the oldest goes that has not asked yet.
pub const CONNECTIONS: usize = 64;
const HEAD_BYTES: usize = 8 * 1024;
const HEADERS: usize = 64;
/// From one connection before others have their turns: more than a request may take.
const READS: usize = 8;
/// From the connection to its end.
const PATIENCE: Duration = Duration::from_secs(5);
/// What is still sent to a connection that has its answer is read for so long: else a reset overtakes the answer.
const LINGER: Duration = Duration::from_millis(500);

/// What is asked for.
pub struct Asked<'a> {
    /// Who asks.
    pub peer: Option<IpAddr>,
    /// Without what follows a question mark.
    pub path: &'a str,
    /// The name by which the client knows the server.
    pub host: Option<&'a str>,
    pub authorization: Option<&'a [u8]>,
}

pub struct Page {
    pub status: u16,
    /// Its content type.
    pub kind: &'static str,
    /// More lines of the head, each with its end.
    pub headers: Cow<'static, str>,
    pub body: Vec<u8>,
}

impl Page {
    pub fn text(status: u16, body: &str) -> Page {
        Page { status, kind: "text/plain; charset=utf-8", headers: "".into(), body: body.as_bytes().to_vec() }
    }

    fn write(self, is_head: bool) -> Vec<u8> {
        let Page { status, kind, headers, body } = self;
        let reason = match status {
            200 => "OK",
            400 => "Bad Request",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            429 => "Too Many Requests",
            431 => "Request Header Fields Too Large",
            503 => "Service Unavailable",
            _ => "Error",
        };
        let mut out = format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n{headers}\r\n",
            body.len()
        )
        .into_bytes();
        if !is_head {
            out.extend_from_slice(&body);
        }
        out
    }
}

/// Serves what is asked for on these sockets, in a thread of its own; under TLS, where there is some.
///
/// # Errors
/// There is no thread, or nothing to wait with.
pub fn serve(
    sockets: Vec<std::net::TcpListener>,
    tls: Option<Arc<Tls>>,
    page: impl FnMut(&Asked) -> Page + Send + 'static,
) -> io::Result<()> {
    let poll = Poll::new()?;
    let mut listeners = Vec::new();
    for (index, socket) in sockets.into_iter().enumerate() {
        socket.set_nonblocking(true)?;
        let mut listener = TcpListener::from_std(socket);
        poll.registry().register(&mut listener, Token(index), Interest::READABLE)?;
        listeners.push(listener);
    }
    let next = listeners.len();
    let server = Server { poll, listeners, tls, connections: HashMap::new(), next, page };
    std::thread::Builder::new().name("http".to_owned()).spawn(move || server.run())?;
    Ok(())
}

struct Server<F> {
    poll: Poll,
    listeners: Vec<TcpListener>,
    tls: Option<Arc<Tls>>,
    connections: HashMap<usize, Connection>,
    next: usize,
    page: F,
}

struct Connection {
    stream: TcpStream,
    until: Instant,
    layer: Option<Layer>,
    input: Vec<u8>,
    /// It has asked, and is answered.
    is_answered: bool,
    /// What it is sent, and how much of that it has.
    out: Vec<u8>,
    sent: usize,
}

/// Whether a connection stays.
enum Outcome {
    Stays,
    Ends,
}

impl<F: FnMut(&Asked) -> Page> Server<F> {
    fn run(mut self) {
        let mut events = Events::with_capacity(CONNECTIONS);
        loop {
            let until = self.connections.values().map(|connection| connection.until).min();
            let wait = until.map(|until| until.saturating_duration_since(Instant::now()) + Duration::from_millis(1));
            match self.poll.poll(&mut events, wait) {
                Err(error) if error.kind() != ErrorKind::Interrupted => {
                    log::warning(format_args!("There are no metrics any more: {error}"));
                    return;
                }
                _ => {}
            }
            for event in &events {
                self.take(event);
            }
            let now = Instant::now();
            self.connections.retain(|_, connection| connection.until > now);
        }
    }

    fn take(&mut self, event: &Event) {
        let Token(token) = event.token();
        if token < self.listeners.len() {
            while let Ok((stream, _)) = self.listeners[token].accept() {
                self.add(stream);
            }
        } else if let Some(connection) = self.connections.get_mut(&token)
            && matches!(connection.go_on(&mut self.page), Outcome::Ends)
        {
            self.connections.remove(&token);
        }
    }

    fn add(&mut self, mut stream: TcpStream) {
        if self.connections.len() >= CONNECTIONS {
            let asks_not = self.connections.iter().filter(|(_, connection)| !connection.is_answered);
            let oldest = asks_not.map(|(token, _)| *token).min().or_else(|| self.connections.keys().min().copied());
            oldest.map(|token| self.connections.remove(&token));
        }
        let layer = self.tls.as_ref().map(|tls| Layer::new(tls.server_config()));
        let Ok(layer) = layer.transpose() else { return };
        let token = self.next;
        self.next += 1;
        if self.poll.registry().register(&mut stream, Token(token), Interest::READABLE | Interest::WRITABLE).is_ok() {
            let until = Instant::now() + PATIENCE;
            let (input, out) = (Vec::new(), Vec::new());
            self.connections
                .insert(token, Connection { stream, until, layer, input, is_answered: false, out, sent: 0 });
        }
    }
}

impl Connection {
    fn go_on(&mut self, page: &mut impl FnMut(&Asked) -> Page) -> Outcome {
        let mut chunk = [0; 4096];
        // Who never stops sending is not read to the end.
        for _ in 0..READS {
            match self.stream.read(&mut chunk) {
                Ok(0) if self.sent == self.out.len() => return Outcome::Ends,
                Ok(0) => break,
                Ok(bytes) => {
                    if matches!(self.take(&chunk[..bytes], page), Outcome::Ends) {
                        // It hears why, if it can.
                        self.send();
                        return Outcome::Ends;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Outcome::Ends,
            }
        }
        self.send()
    }

    fn take(&mut self, bytes: &[u8], page: &mut impl FnMut(&Asked) -> Page) -> Outcome {
        let Some(layer) = &mut self.layer else {
            if !self.is_answered
                && let Some(answer) = self.ask(bytes, page)
            {
                self.out = answer;
            }
            return Outcome::Stays;
        };
        let mut plain = Vec::new();
        let received = layer.receive(bytes, &mut plain);
        self.out.append(&mut layer.take_outgoing());
        if received.is_err() {
            return Outcome::Ends;
        }
        if self.is_answered || plain.is_empty() {
            return Outcome::Stays;
        }
        let Some(answer) = self.ask(&plain, page) else { return Outcome::Stays };
        let Some(layer) = &mut self.layer else { return Outcome::Ends };
        if layer.encrypt(&answer, &mut self.out).is_err() {
            return Outcome::Ends;
        }
        self.out.append(&mut layer.take_farewell());
        Outcome::Stays
    }

    fn ask(&mut self, bytes: &[u8], page: &mut impl FnMut(&Asked) -> Page) -> Option<Vec<u8>> {
        self.input.extend_from_slice(bytes);
        let peer = self.stream.peer_addr().ok().map(|addr| addr.ip().to_canonical());
        let answer = answer(&self.input, peer, page)?;
        self.is_answered = true;
        self.input = Vec::new();
        Some(answer)
    }

    fn send(&mut self) -> Outcome {
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(bytes) => {
                    self.sent += bytes;
                    if self.is_answered && self.sent == self.out.len() {
                        let _ = self.stream.shutdown(Shutdown::Write);
                        self.until = self.until.min(Instant::now() + LINGER);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Outcome::Ends,
            }
        }
        Outcome::Stays
    }
}

/// The answer to what a connection has said, once that is all.
fn answer(input: &[u8], peer: Option<IpAddr>, page: &mut impl FnMut(&Asked) -> Page) -> Option<Vec<u8>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(input) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if input.len() < HEAD_BYTES => return None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Some(Page::text(431, "The head of the request is too long.\n").write(false));
        }
        Err(_) => return Some(Page::text(400, "This is no request.\n").write(false)),
    }
    let is_head = request.method == Some("HEAD");
    if !is_head && request.method != Some("GET") {
        let page = Page { headers: "Allow: GET, HEAD\r\n".into(), ..Page::text(405, "There are only pages to get.\n") };
        return Some(page.write(false));
    }
    let header = |name: &str| {
        request.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value)
    };
    let path = request.path.unwrap_or_default();
    let asked = Asked {
        peer,
        path: path.split('?').next().unwrap_or_default(),
        host: header("Host").and_then(|host| std::str::from_utf8(host).ok()),
        authorization: header("Authorization"),
    };
    Some(page(&asked).write(is_head))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn told(input: &[u8]) -> Option<String> {
        let mut page = |asked: &Asked| Page::text(200, &format!("{} {:?}\n", asked.path, asked.host));
        answer(input, None, &mut page).map(|answer| String::from_utf8_lossy(&answer).into_owned())
    }

    #[test]
    fn what_is_asked_is_answered_once_it_is_all_there() {
        let request = b"GET /metrics?x=1 HTTP/1.1\r\nhost: here:9121\r\n\r\n";
        for len in 0..request.len() {
            assert_eq!(told(&request[..len]), None, "{len}");
        }
        let answer = told(request).expect("an answer");
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\n/metrics Some(\"here:9121\")\n")
        );
        let head = told(b"HEAD /metrics HTTP/1.1\r\n\r\n").expect("an answer");
        assert!(head.contains("Content-Length: 14\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    }

    #[test]
    fn what_is_none_is_refused() {
        let long = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(HEAD_BYTES));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(HEADERS + 1));
        for (input, status) in [
            ("POST / HTTP/1.1\r\n\r\n", 405),
            ("\x16\x03\x01\x02", 400),
            ("GET /\r\n\r\n", 400),
            (&long, 431),
            (&many, 431),
        ] {
            let answer = told(input.as_bytes()).expect("an answer");
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        }
    }

    proptest! {
        #[test]
        fn nothing_that_is_sent_panics(input in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = told(&input);
        }
    }
}
