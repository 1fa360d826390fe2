//! Which network it is: what the configuration names, or the best that the kernel allows.

use super::ring::available;
use super::{Bell, Epoll, Ring, Sockets, Transport};
use crate::config::Network;
use crate::executor::{Kind, check_locked_memory, is_refusal, probe, remedy};
use crate::observe::log;
use std::io;
use std::sync::Arc;

/// The network that all shards of the process have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen {
    Ring,
    Sockets,
    Epoll,
}

impl Chosen {
    pub fn name(self) -> &'static str {
        match self {
            Chosen::Ring => "ring",
            Chosen::Sockets => "glommio",
            Chosen::Epoll => "epoll",
        }
    }

    /// What runs the shards over it.
    pub fn executor(self) -> Kind {
        match self {
            Chosen::Ring | Chosen::Sockets => Kind::Glommio,
            Chosen::Epoll => Kind::Plain,
        }
    }

    /// A shard's end of it, made on the shard's thread.
    ///
    /// # Errors
    /// The system has not enough of something.
    pub fn open(self, shard: usize, bells: Arc<[Bell]>) -> io::Result<Transport> {
        Ok(match self {
            Chosen::Ring => Transport::Ring(Ring::new(shard, bells)?),
            Chosen::Sockets => Transport::Sockets(Sockets::new(shard, bells)),
            Chosen::Epoll => Transport::Epoll(Epoll::new(shard, bells)?),
        })
    }
}

/// Chooses for so many shards, and says so where it is not what one would like best.
///
/// # Errors
/// What is named, or needed, is not to be had: what to do about it.
pub fn choose(network: Network, shards: usize) -> Result<Chosen, String> {
    if network == Network::Epoll {
        return Ok(Chosen::Epoll);
    }
    let name = match network {
        Network::Ring => "network ring: ",
        Network::Glommio => "network glommio: ",
        Network::Auto | Network::Epoll => "",
    };
    if let Err(error) = probe() {
        let remedy = remedy(&error);
        if !is_refusal(&error) {
            return Err(format!("{name}io_uring does not work: {error}; {remedy}, or do without (network epoll)"));
        }
        if network != Network::Auto {
            return Err(format!(
                "{name}io_uring is not available here: {error}; {remedy}, or do without (network epoll)"
            ));
        }
        log::warning(format_args!(
            "io_uring is not available here: {error}. Connections go over epoll, which takes more CPU; to do better, {remedy}"
        ));
        return Ok(Chosen::Epoll);
    }
    check_locked_memory(shards).map_err(|error| format!("{name}{error}"))?;
    match network {
        Network::Glommio => Ok(Chosen::Sockets),
        Network::Ring => available().map(|()| Chosen::Ring).map_err(|error| {
            format!(
                "{name}this kernel does not give us the ring we need (Linux 6.1 or newer): {error}. With network auto, \
                 glommio or epoll it works without"
            )
        }),
        Network::Auto | Network::Epoll => Ok(if available().is_ok() { Chosen::Ring } else { Chosen::Sockets }),
    }
}
