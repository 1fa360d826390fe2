//! Listening sockets. A thread for each accepts; the first shard deals connections out, each to the shard that has the
//! fewest.

use super::connection;
use crate::config::{Config, FileMode};
use crate::executor;
use crate::net::tls::{Handshakes, Layer, Shaken, Tls};
use crate::net::{Bell, Listener, ListenerKind, next_from_outside, step_back};
use crate::observe::log;
use crate::server::client::session::Peer;
use crate::server::state::Server;
use crate::server::state::global::Global;
use socket2::{Domain, SockAddr, SockRef, Socket, TcpKeepalive, Type};
use std::fs::Permissions;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum ListenError {
    // (Redis's own tests look for the second sentence, to try another port.)
    #[error("Could not create server TCP listening socket {addr}: {reason}. Failed listening on port {} (TCP), aborting.", addr.port())]
    Bind { addr: SocketAddr, reason: String },
    #[error("Could not create server Unix listening socket {path}: {reason}")]
    BindUnix { path: String, reason: String },
    #[error("'{0}' is not an address to listen on")]
    NoAddress(String),
    #[error("None of `port`, `tls-port`, `bind` and `unixsocket` leaves anything to listen on")]
    Nothing,
}

/// Connections that are accepted and not admitted yet: others wait in the backlog.
const ACCEPTED: usize = 128;
/// Connections that are admitted before others have their turn.
const ADMITTED_A_TURN: usize = 16;
/// How long to wait after an error of accept that lasts, such as too many open files.
const BACK_OFF: Duration = Duration::from_millis(100);
/// How long a port may stay taken at the start before that is an error.
const PORT_PATIENCE: Duration = Duration::from_secs(1);
const PORT_RETRY: Duration = Duration::from_millis(20);

/// Opens the listening sockets of a configuration, before any shard starts.
///
/// # Errors
/// A port that is taken, by another EmberDB too (the sockets are not opened for sharing), or an address that this
/// machine does not have. Addresses marked with `-` may be missing.
pub fn open(config: &Config) -> Result<Vec<Listener>, ListenError> {
    let mut listeners = Vec::new();
    for (kind, names, port) in
        [(ListenerKind::Resp, &config.bind, config.port), (ListenerKind::RespTls, &config.bind, config.tls.port)]
    {
        let sockets = open_tcp(names, port, config.tcp_backlog)?;
        listeners.extend(sockets.into_iter().map(|socket| Listener { fd: socket.into(), kind }));
    }
    if !config.unixsocket.is_empty() {
        let socket = bind_unix(&config.unixsocket, config.unixsocketperm, config.tcp_backlog);
        let socket = socket.map_err(|error| ListenError::BindUnix {
            path: config.unixsocket.clone(),
            reason: format!("bind: {error}"),
        })?;
        listeners.push(Listener { fd: socket.into(), kind: ListenerKind::RespUnix });
    }
    if listeners.is_empty() {
        return Err(ListenError::Nothing);
    }
    let kind = if config.metrics_tls { ListenerKind::HttpTls } else { ListenerKind::Http };
    let of_pages = open_tcp(&config.metrics_bind, config.metrics_port, config.tcp_backlog)?;
    listeners.extend(of_pages.into_iter().map(|socket| Listener { fd: socket.into(), kind }));
    Ok(listeners)
}

/// Sockets at these addresses; none where the port is 0.
///
/// # Errors
/// One of them, which was not said to be dispensable, cannot be had.
fn open_tcp(names: &[String], port: u16, backlog: u32) -> Result<Vec<TcpListener>, ListenError> {
    let mut sockets = Vec::new();
    for name in if port == 0 { &[][..] } else { names } {
        let (name, optional) = name.strip_prefix('-').map_or((&name[..], false), |name| (name, true));
        let addr = address(name, port).ok_or_else(|| ListenError::NoAddress(name.to_owned()))?;
        match bind_patiently(addr, backlog) {
            Ok(socket) => sockets.push(socket.into()),
            Err(error) if optional && error.raw_os_error() != Some(libc::EADDRINUSE) => {
                log::warning(format_args!("Not listening on {addr}: {error}"));
            }
            Err(error) => return Err(ListenError::Bind { addr, reason: reason(&error) }),
        }
    }
    Ok(sockets)
}

/// A socket that a server left behind is replaced, as Redis does, and so is an empty file, with which a program has reserved the
/// name (`mktemp`); any other file stays and is an error, where Redis deletes it.
fn bind_unix(path: &str, mode: FileMode, backlog: u32) -> io::Result<Socket> {
    let found = std::fs::symlink_metadata(path);
    if found.is_ok_and(|found| found.file_type().is_socket() || found.is_file() && found.len() == 0) {
        std::fs::remove_file(path)?;
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM.cloexec(), None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    if mode.0 != 0 {
        std::fs::set_permissions(path, Permissions::from_mode(mode.0))?;
    }
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(socket)
}

fn address(name: &str, port: u16) -> Option<SocketAddr> {
    match name {
        "*" => Some(SocketAddr::from(([0, 0, 0, 0], port))),
        "::*" => Some(SocketAddr::from(([0u16; 8], port))),
        name => match name.parse::<IpAddr>() {
            Ok(ip) => Some(SocketAddr::new(ip, port)),
            Err(_) => (name, port).to_socket_addrs().ok()?.next(),
        },
    }
}

/// The kernel takes down the rings of a process that was killed after it is gone, and its listening socket with them:
/// a port that is taken now may be free in a moment.
fn bind_patiently(addr: SocketAddr, backlog: u32) -> io::Result<Socket> {
    let deadline = Instant::now() + PORT_PATIENCE;
    loop {
        match bind(addr, backlog) {
            Err(error) if error.raw_os_error() == Some(libc::EADDRINUSE) && Instant::now() < deadline => {
                std::thread::sleep(PORT_RETRY);
            }
            result => return result,
        }
    }
}

fn bind(addr: SocketAddr, backlog: u32) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM.cloexec(), None)?;
    socket.set_reuse_address(true)?;
    if addr.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&addr.into())?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(socket)
}

fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EADDRINUSE) => "bind: Address already in use".to_owned(),
        _ => format!("bind: {error}"),
    }
}

/// A connection that a listener has accepted.
pub struct Accepted {
    socket: Socket,
    kind: ListenerKind,
    /// Under TLS, where its handshake is over; and what it has said already.
    under_tls: Option<(Layer, Vec<u8>)>,
}

/// Starts a thread for each listening socket that accepts, and sends the connections to what is returned; the first
/// shard's bell rings for each. Those under TLS are sent when their handshakes are over. (A thread that blocks leaves nothing
/// behind in a ring: when the process ends the port is free at once.)
///
/// # Errors
/// Where a thread cannot be had.
pub fn accept(listeners: &[Listener], tls: Option<&Arc<Tls>>, bells: &Arc<[Bell]>) -> io::Result<Receiver<Accepted>> {
    let (sender, receiver) = mpsc::sync_channel(ACCEPTED);
    for listener in listeners.iter().filter(|listener| !listener.kind.is_http()) {
        let (socket, kind) = (Socket::from(listener.fd.try_clone()?), listener.kind);
        let (sender, bells, bell) = (sender.clone(), bells.clone(), bells.clone());
        let hand_over = move |accepted: Accepted| {
            let is_taken = sender.send(accepted).is_ok();
            bells[0].ring_from_outside();
            is_taken
        };
        if let (ListenerKind::RespTls, Some(tls)) = (kind, tls) {
            let done = move |Shaken { stream, layer, plain }| {
                hand_over(Accepted { socket: stream.into(), kind, under_tls: Some((layer, plain)) })
            };
            let mut handshakes = Handshakes::start(tls, done)?;
            start_accepting(socket, move |socket| handshakes.take(socket.into()), bell)?;
        } else {
            let hand_over = move |socket| hand_over(Accepted { socket, kind, under_tls: None });
            start_accepting(socket, hand_over, bell)?;
        }
    }
    Ok(receiver)
}

/// Accepts on a thread of its own; rings when that ends.
fn start_accepting(
    listener: Socket,
    mut take: impl FnMut(Socket) -> bool + Send + 'static,
    bells: Arc<[Bell]>,
) -> io::Result<()> {
    let accept = move || {
        accept_all(&listener, &mut take);
        drop(take);
        bells[0].ring_from_outside();
    };
    std::thread::Builder::new().name("accept".to_owned()).spawn(accept).map(drop)
}

/// Accepts for as long as somebody takes the connections and the server listens.
fn accept_all(socket: &Socket, mut take: impl FnMut(Socket) -> bool) {
    loop {
        match socket.accept() {
            Ok((stream, _)) => {
                if !take(stream) {
                    return;
                }
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR | libc::ECONNABORTED) => {}
                // Shut down: the server ends.
                Some(libc::EINVAL) => return,
                _ => {
                    log::warning(format_args!("Error accepting a client connection: {error}"));
                    std::thread::sleep(BACK_OFF);
                }
            },
        }
    }
}

/// Stops listening, but for those who ask whether the server ends.
pub fn stop(listeners: &[Listener]) {
    for listener in listeners.iter().filter(|listener| !listener.kind.is_http()) {
        crate::net::shut(listener.fd.as_raw_fd());
    }
}

/// Takes over what the accepting threads accept, for as long as the server runs.
pub fn start(server: &Rc<Server>, accepted: Receiver<Accepted>) {
    let server = server.clone();
    executor::spawn(async move {
        let mut turn = 0;
        while let Some(accepted) = next_from_outside(&accepted).await {
            turn += 1;
            admit(&server, accepted, turn);
            if turn % ADMITTED_A_TURN == 0 {
                step_back().await;
            }
        }
        if !server.global.stopping.load(Ordering::Relaxed) {
            log::warning(format_args!("No more clients are accepted"));
        }
    });
}

/// Refuses a connection, or gives it to a shard.
fn admit(server: &Rc<Server>, accepted: Accepted, turn: usize) {
    let Accepted { socket, kind, under_tls } = accepted;
    let config = server.shard.config();
    let global = &server.global;
    if global.stopping.load(Ordering::Relaxed) {
        return;
    }
    let addr = socket.peer_addr().ok().and_then(|addr| addr.as_socket());
    // A peer that has reset already has no address, and is no neighbour for that.
    if addr.is_none() && kind != ListenerKind::RespUnix {
        return;
    }
    let laddr = socket.local_addr().ok().and_then(|addr| addr.as_socket());
    let stranger = addr.is_some_and(|addr| !addr.ip().to_canonical().is_loopback());
    // Clients of the Unix socket have its path for a name, as in Redis.
    let text =
        |addr: Option<SocketAddr>| addr.map_or_else(|| format!("{}:0", config.unixsocket), |addr| addr.to_string());
    let refusal = if config.protected_mode && server.users.get().default_user().has_no_password() && stranger {
        Some(PROTECTED)
    } else if global.connected() >= config.maxclients as usize {
        Some("-ERR max number of clients reached\r\n")
    } else {
        None
    };
    if let Some(refusal) = refusal {
        global.rejected.fetch_add(1, Ordering::Relaxed);
        refuse(&socket, refusal.as_bytes(), under_tls);
        return;
    }
    prepare(&socket, config.tcp_keepalive_s);
    let target = fewest(global, turn);
    global.accepted.fetch_add(1, Ordering::Relaxed);
    global.connections[target].fetch_add(1, Ordering::Relaxed);
    let peer = Peer {
        id: global.next_client_id(),
        fd: socket.into_raw_fd(),
        addr: text(addr),
        laddr: text(laddr),
        local: addr.is_none_or(|addr| addr.ip().to_canonical().is_loopback()),
        kind,
    };
    if target == server.shard.id {
        connection::serve(server, peer, under_tls);
    } else {
        server.shard.tell(target, move |shard| connection::serve(&Server::of(shard), peer, under_tls));
    }
}

/// Says why a connection is not taken, as far as its socket takes that at once.
fn refuse(socket: &Socket, reason: &[u8], under_tls: Option<(Layer, Vec<u8>)>) {
    let mut words = reason.to_vec();
    if let Some((mut layer, _)) = under_tls {
        words.clear();
        if layer.encrypt(reason, &mut words).is_err() {
            return;
        }
        words.append(&mut layer.take_farewell());
    }
    let _ = socket.send(&words);
}

const PROTECTED: &str = "-DENIED EmberDB is running in protected mode because protected mode is enabled and no \
    password is set for the default user. In this mode connections are only accepted from the loopback interface. If \
    you want to connect from external computers, set a password with 'requirepass', or turn protected mode off with \
    'protected-mode no' where nobody but you can reach the port.\r\n";

/// The shard with the fewest connections; where several have as few, they take turns.
fn fewest(global: &Global, turn: usize) -> usize {
    let shards = global.connections.len();
    (0..shards)
        .map(|offset| (turn + offset) % shards)
        .min_by_key(|shard| global.connections[*shard].load(Ordering::Relaxed))
        .unwrap_or(0)
}

fn prepare(socket: &Socket, keepalive_s: u64) {
    let socket = SockRef::from(socket);
    // None of this is worth refusing a connection for.
    let _ = socket.set_nonblocking(true);
    let _ = socket.set_tcp_nodelay(true);
    if keepalive_s > 0 {
        let idle = Duration::from_secs(keepalive_s);
        let keepalive = TcpKeepalive::new().with_time(idle).with_interval(idle / 3).with_retries(3);
        let _ = socket.set_tcp_keepalive(&keepalive);
    }
}
