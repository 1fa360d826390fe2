//! Links under TLS, between servers of both kinds.

use super::{PATIENCE, QUICK, STRICT, seed, settle, wait_for, wait_for_link};
use crate::common::server::Port;
use crate::common::tls::{certificate, flags};
use crate::common::{Kind, Server, Value, bulk, have_tool, int, wait_until};
use crate::differential::generate::families::Family;
use crate::propagation::extras::Extras;
use crate::propagation::play;

const EMBER: Kind = Kind::Ember { shards: 2 };

/// What a server needs to trust another one, and to be trusted where certificates are asked for.
fn trust() -> Vec<&'static str> {
    let [authority, client, key] = ["ca.crt", "client.crt", "client.key"].map(certificate);
    let client = ["--tls-client-cert-file", client, "--tls-client-key-file", key];
    [&["--tls-replication", "yes", "--tls-ca-cert-file", authority][..], &client].concat()
}

fn replica_of(port: u16, kind: Kind, flags: &[&str]) -> Server {
    Server::start(kind, &[&["--replicaof", "127.0.0.1", &port.to_string()], flags].concat())
}

/// A primary that speaks TLS to who shows a certificate.
fn primary(kind: Kind, port: u16) -> Server {
    let asks = ["--tls-auth-clients", "yes", "--tls-ca-cert-file", certificate("ca.crt")];
    Server::start(kind, &[&flags(port), QUICK, &asks].concat())
}

#[test]
fn a_link_may_be_encrypted() {
    let seed = seed();
    let kinds = [(EMBER, EMBER), (Kind::Redis, EMBER), (EMBER, Kind::Redis)];
    for (of_primary, of_replica) in kinds {
        if (of_primary == Kind::Redis || of_replica == Kind::Redis) && !have_tool("redis-server") {
            continue;
        }
        let port = Port::claim();
        let primary = primary(of_primary, port.number());
        play(&primary, Family::Everything, Extras::Everything, seed, 500);
        let of_replica_only = if of_replica == Kind::Redis { STRICT } else { &[] };
        // (redis-server wants a certificate of its own, too.)
        let pair = ["--tls-cert-file", certificate("client.crt"), "--tls-key-file", certificate("client.key")];
        let replica = replica_of(port.number(), of_replica, &[&trust()[..], &pair, of_replica_only].concat());
        wait_for_link(&replica);
        play(&primary, Family::Everything, Extras::Everything, seed + 1, 500);
        settle(&primary, &replica);
        // One value that takes many records, and a link that breaks in between.
        let value = "v".repeat(3_000_000);
        primary.client().command(&["SET", "large", &value]);
        assert_eq!(primary.client().call("CLIENT KILL TYPE replica"), int(1));
        primary.client().call("SET behind 1");
        assert!(wait_until(PATIENCE, || replica.client().call("GET behind") == bulk("1")));
        assert_eq!(replica.client().call("STRLEN large"), int(3_000_000));
        wait_for(&primary, "sync_full", "1");
    }
}

/// Who is not trusted is told so in the log, on the side that does not trust.
#[test]
fn a_primary_that_nobody_vouches_for_is_not_followed() {
    let port = Port::claim();
    let primary = primary(EMBER, port.number());
    primary.client().call("SET a 1");
    let stranger = ["--tls-replication", "yes", "--tls-ca-cert-file", certificate("other-ca.crt")];
    let replica = replica_of(port.number(), EMBER, &stranger);
    let says = |replica: &Server, reason: &str| wait_until(PATIENCE, || replica.output().contains(reason));
    assert!(says(&replica, "The link to the primary has ended: invalid peer certificate"), "{}", replica.output());
    // It trusts this one, and is not trusted.
    let unknown = ["--tls-replication", "yes", "--tls-ca-cert-file", certificate("ca.crt")];
    let replica = replica_of(port.number(), EMBER, &unknown);
    assert!(says(&replica, "The link to the primary has ended: "), "{}", replica.output());
    assert_eq!(replica.client().call("DBSIZE"), int(0));
    // In the clear nobody answers; with the certificate it comes up.
    let in_the_clear = replica_of(port.number(), EMBER, &["--repl-timeout", "2"]);
    assert!(says(&in_the_clear, "The link to the primary has ended: "), "{}", in_the_clear.output());
    let mut client = replica.client();
    for (name, file) in [("tls-client-key-file", "client.key"), ("tls-client-cert-file", "client.crt")] {
        // (A key without its certificate is not used.)
        assert_eq!(client.command(&["CONFIG", "SET", name, certificate(file)]), Value::ok());
    }
    wait_for_link(&replica);
    let reply = client.command(&["CONFIG", "SET", "tls-ca-cert-file", "/none"]);
    assert!(reply.is_error() && reply.text().contains("Unable to update TLS configuration"), "{reply:?}");
}

#[test]
fn keys_move_under_tls() {
    let port = Port::claim();
    let target = primary(EMBER, port.number());
    let source = Server::start(EMBER, &trust());
    let mut client = source.client();
    client.command(&["SET", "large", &"v".repeat(1_000_000)]);
    client.call("HSET small a 1");
    for key in ["large", "small"] {
        assert_eq!(client.call(&format!("MIGRATE 127.0.0.1 {} {key} 0 5000", port.number())), Value::ok());
    }
    assert_eq!((client.call("DBSIZE"), target.client().call("STRLEN large")), (int(0), int(1_000_000)));
    // A target that speaks no TLS.
    client.call("SET b 1");
    let reply = client.call(&format!("MIGRATE 127.0.0.1 {} b 0 500", target.port()));
    assert!(reply.text().starts_with("IOERR"), "{reply:?}");
    assert_eq!(client.call("GET b"), bulk("1"));
}
