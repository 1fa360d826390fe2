//! A stream socket, TCP, TLS or unix.

use super::target::Address;
use super::tls::TlsSocket;
use rustls::ClientConfig;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

pub enum Socket {
    Tcp(TcpStream),
    Tls(Box<TlsSocket>),
    Unix(UnixStream),
}

impl Socket {
    /// Where there is something about TLS, the handshake is over when this returns.
    pub fn connect(address: &Address, tls: Option<&Arc<ClientConfig>>) -> io::Result<Socket> {
        match address {
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                let Some(config) = tls else { return Ok(Socket::Tcp(stream)) };
                let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
                Ok(Socket::Tls(Box::new(TlsSocket::connect(stream, host, config.clone())?)))
            }
            Address::Unix(path) => Ok(Socket::Unix(UnixStream::connect(path)?)),
        }
    }

    pub fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.set_nonblocking(true),
            Socket::Tls(socket) => socket.set_nonblocking(),
            Socket::Unix(stream) => stream.set_nonblocking(true),
        }
    }

    pub fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.set_read_timeout(limit),
            Socket::Tls(socket) => socket.stream().set_read_timeout(limit),
            Socket::Unix(stream) => stream.set_read_timeout(limit),
        }
    }

    #[inline]
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.read(buffer),
            Socket::Tls(socket) => socket.read(buffer),
            Socket::Unix(stream) => stream.read(buffer),
        }
    }

    #[inline]
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.write(bytes),
            Socket::Tls(socket) => socket.write(bytes),
            Socket::Unix(stream) => stream.write(bytes),
        }
    }

    pub fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(taken) => bytes = &bytes[taken..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.flush()
    }

    /// Sends what was taken and not sent yet.
    #[inline]
    pub fn flush(&mut self) -> io::Result<()> {
        match self {
            Socket::Tls(socket) => socket.flush(),
            _ => Ok(()),
        }
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Socket::Tcp(stream) => stream.as_raw_fd(),
            Socket::Tls(socket) => socket.stream().as_raw_fd(),
            Socket::Unix(stream) => stream.as_raw_fd(),
        }
    }
}
