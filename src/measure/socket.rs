//! A stream socket, TCP or unix.

use super::target::Address;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

pub enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    pub fn connect(address: &Address) -> io::Result<Socket> {
        match address {
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                Ok(Socket::Tcp(stream))
            }
            Address::Unix(path) => Ok(Socket::Unix(UnixStream::connect(path)?)),
        }
    }

    pub fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.set_nonblocking(true),
            Socket::Unix(stream) => stream.set_nonblocking(true),
        }
    }

    pub fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.set_read_timeout(limit),
            Socket::Unix(stream) => stream.set_read_timeout(limit),
        }
    }

    #[inline]
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.read(buffer),
            Socket::Unix(stream) => stream.read(buffer),
        }
    }

    #[inline]
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.write(bytes),
            Socket::Unix(stream) => stream.write(bytes),
        }
    }

    pub fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.write_all(bytes),
            Socket::Unix(stream) => stream.write_all(bytes),
        }
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Socket::Tcp(stream) => stream.as_raw_fd(),
            Socket::Unix(stream) => stream.as_raw_fd(),
        }
    }
}
