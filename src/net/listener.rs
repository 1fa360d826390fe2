//! What the server listens on.

use std::os::fd::OwnedFd;

/// What is spoken on a socket that listens, and on all that it accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListenerKind {
    /// Redis's protocol over TCP.
    #[default]
    Resp,
    /// The same under TLS.
    RespTls,
    /// The same over a Unix domain socket.
    RespUnix,
    /// Pages for those who watch over the server.
    Http,
    /// The same under TLS.
    HttpTls,
}

impl ListenerKind {
    pub fn is_http(self) -> bool {
        matches!(self, ListenerKind::Http | ListenerKind::HttpTls)
    }
}

pub struct Listener {
    pub fd: OwnedFd,
    pub kind: ListenerKind,
}
