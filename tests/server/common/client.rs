//! A blocking RESP client with nothing hidden: it sends what it is told, byte by byte if need be, and returns what
//! comes.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::server;
use super::tls::{self, Stream, TlsStream};
use super::value::{self, Value};
use rustls::ClientConfig;

/// How long a reply may take before the test fails.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

pub struct Client {
    stream: Stream,
    /// Received and not yet parsed: `buffer[start..]`.
    buffer: Vec<u8>,
    start: usize,
}

/// The arguments of a command that is written as one line: `words("SET k v")`.
pub fn words(line: &str) -> Vec<Vec<u8>> {
    line.split_whitespace().map(|word| word.as_bytes().to_vec()).collect()
}

/// A command as an array of bulk strings.
pub fn encode<A: AsRef<[u8]>>(args: &[A]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        let arg = arg.as_ref();
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
    out
}

fn socket(port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
    stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
    Ok(stream)
}

impl Client {
    pub fn connect(port: u16) -> io::Result<Client> {
        if server::are_under_tls() {
            return Client::connect_tls(port, tls::Options::default());
        }
        let stream = socket(port)?;
        Ok(Client { stream: Stream::Plain(stream), buffer: Vec::new(), start: 0 })
    }

    /// A connection under TLS, whatever the environment says; its handshake is over.
    pub fn connect_tls(port: u16, options: tls::Options) -> io::Result<Client> {
        Client::connect_with(port, tls::client_config(options))
    }

    /// The same with a configuration that several connections share.
    pub fn connect_with(port: u16, config: Arc<ClientConfig>) -> io::Result<Client> {
        let mut stream = tls::wrap(socket(port)?, config);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(Client { stream: Stream::Tls(Box::new(stream)), buffer: Vec::new(), start: 0 })
    }

    /// Its side of TLS.
    pub fn tls(&mut self) -> &mut TlsStream {
        match &mut self.stream {
            Stream::Tls(stream) => stream,
            Stream::Plain(_) => panic!("this connection is not encrypted"),
        }
    }

    /// Sends a command given as a line, `call("SET k v")`, and returns its reply.
    #[track_caller]
    pub fn call(&mut self, line: &str) -> Value {
        self.command(&words(line))
    }

    /// Sends one command with arguments of any bytes and returns its reply.
    #[track_caller]
    pub fn command<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Value {
        self.send_raw(&encode(args));
        self.read()
    }

    /// Sends a command given as a line and reads nothing.
    #[track_caller]
    pub fn send(&mut self, line: &str) {
        self.send_raw(&encode(&words(line)));
    }

    /// Sends all commands in one write, then reads as many replies.
    #[track_caller]
    pub fn pipeline<A: AsRef<[u8]>>(&mut self, commands: &[Vec<A>]) -> Vec<Value> {
        let bytes: Vec<u8> = commands.iter().flat_map(|args| encode(args)).collect();
        self.send_raw(&bytes);
        commands.iter().map(|_| self.read()).collect()
    }

    #[track_caller]
    pub fn send_raw(&mut self, bytes: &[u8]) {
        if let Err(error) = self.try_send_raw(bytes) {
            panic!("cannot send {} bytes: {error}", bytes.len());
        }
    }

    pub fn try_send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// The next reply or push; fails the test if none comes in time.
    #[track_caller]
    pub fn read(&mut self) -> Value {
        match self.try_read() {
            Ok(value) => value,
            Err(error) => {
                panic!("no reply: {error}; received so far: \"{}\"", self.buffer[self.start..].escape_ascii())
            }
        }
    }

    /// The next reply or push; an error of kind `UnexpectedEof` if the server closed the connection.
    pub fn try_read(&mut self) -> io::Result<Value> {
        self.read_before(Instant::now() + REPLY_TIMEOUT)
    }

    /// The next reply or push if it comes within `limit`.
    #[track_caller]
    pub fn read_within(&mut self, limit: Duration) -> Option<Value> {
        match self.read_before(Instant::now() + limit) {
            Ok(value) => Some(value),
            Err(error) if error.kind() == ErrorKind::TimedOut => None,
            Err(error) => panic!("no reply: {error}"),
        }
    }

    /// The next reply or push; an error of kind `TimedOut` if none comes within `limit`.
    pub fn try_read_within(&mut self, limit: Duration) -> io::Result<Value> {
        self.read_before(Instant::now() + limit)
    }

    /// Everything that has arrived and what else arrives until nothing came for `quiet`.
    pub fn drain(&mut self, quiet: Duration) -> Vec<Value> {
        std::iter::from_fn(|| self.read_within(quiet)).collect()
    }

    /// True if the server closes the connection in time; replies before the end are dropped.
    pub fn is_closed_by_server(&mut self) -> bool {
        loop {
            match self.try_read() {
                Ok(_) => {}
                Err(error) => return error.kind() != ErrorKind::TimedOut,
            }
        }
    }

    /// Asserts that nothing is left unread: a reply too many would be taken for that of the next command.
    #[track_caller]
    pub fn assert_in_step(&mut self) {
        let marker = format!("in-step-{}", fastrand::u64(..));
        assert_eq!(self.command(&["ECHO", &marker]), value::bulk(&marker));
    }

    pub fn stream(&self) -> &TcpStream {
        self.stream.socket()
    }

    fn read_before(&mut self, end: Instant) -> io::Result<Value> {
        loop {
            if let Some((value, used)) = value::parse(&self.buffer[self.start..]) {
                self.start += used;
                if self.start == self.buffer.len() {
                    self.buffer.clear();
                    self.start = 0;
                }
                return Ok(value);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            self.stream.socket().set_read_timeout(Some(left))?;
            let mut chunk = [0; 64 * 1024];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => self.buffer.extend_from_slice(&chunk[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
