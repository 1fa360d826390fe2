//! TLS from outside: programs that people have, traffic of every kind, who may connect with which certificate, and clients
//! that mean harm. With `EMBERDB_TEST_TLS` all other tests of the protocol run under TLS, too.

#[path = "tls/certificates.rs"]
mod certificates;
#[path = "tls/hostile.rs"]
mod hostile;
#[path = "tls/programs.rs"]
mod programs;
#[path = "tls/traffic.rs"]
mod traffic;

use crate::common::server::{Port, networks};
use crate::common::tls::{Options, flags};
use crate::common::{Client, Kind, Server};

/// A server that speaks TLS on a port beside its own.
struct TlsServer {
    server: Server,
    port: Port,
}

impl TlsServer {
    #[track_caller]
    fn start(shards: usize, more: &[&str]) -> TlsServer {
        let port = Port::claim();
        let flags = [&flags(port.number()), more].concat();
        TlsServer { server: Server::start(Kind::Ember { shards }, &flags), port }
    }

    fn port(&self) -> u16 {
        self.port.number()
    }

    #[track_caller]
    fn client(&self) -> Client {
        self.client_with(Options::default())
    }

    #[track_caller]
    fn client_with(&self, options: Options) -> Client {
        Client::connect_tls(self.port(), options).expect("a connection under TLS")
    }
}

/// Runs a test over each network, with one shard and with three.
fn on_all(more: &[&str], test: impl Fn(&TlsServer)) {
    for network in networks() {
        for shards in [1, 3] {
            eprintln!("--- {shards} shards, network {network}");
            test(&TlsServer::start(shards, &[&["--network", &network], more].concat()));
        }
    }
}
