//! What SECURITY.md says is what the program does.

use std::fs;

use crate::common::server::{Port, start_tls_with_file};
use crate::common::{Client, Value, tls};

/// The configuration in SECURITY.md lets in whom it says, and nobody else.
#[test]
fn the_hardened_configuration_holds() {
    let text = include_str!("../../SECURITY.md");
    let conf = text.split_once("```conf\n").and_then(|(_, rest)| rest.split_once("```")).expect("a configuration").0;
    let (folder, port) = (tempfile::tempdir().expect("a folder"), Port::claim());
    let conf = conf
        .replace("tls-port 6380", &format!("tls-port {}", port.number()))
        .replace("/etc/emberdb/tls", &tls::certificates().display().to_string())
        .replace("/var/lib/emberdb", &folder.path().display().to_string());
    fs::write(folder.path().join("emberdb.conf"), conf).expect("written");
    let with_certificate = || tls::Options { certificate: Some("client"), ..tls::Options::default() };
    let connect = |number| Client::connect_tls(number, with_certificate());
    let server = start_tls_with_file(folder, port, |number| connect(number).is_ok());
    let mut client = connect(server.port()).expect("a connection");
    let refused = |answer: Value, code: &str| assert!(answer.text().starts_with(code), "{answer:?}");
    refused(client.call("PING"), "NOAUTH");
    refused(client.call("AUTH test"), "WRONGPASS");
    refused(client.call("AUTH sessions wrong"), "WRONGPASS");
    assert_eq!(client.call("AUTH sessions test"), Value::ok());
    assert_eq!(client.call("SET session:1 x EX 100"), Value::ok());
    assert_eq!(client.call("EXPIRE session:1 200").number(), 1);
    for line in ["GET other:1", "FLUSHALL", "KEYS *", "CONFIG GET *", "ACL LIST", "PUBLISH x y", "EVAL return(1) 0"] {
        refused(client.call(line), "NOPERM");
    }
    let mut watch = connect(server.port()).expect("a connection");
    assert_eq!(watch.call("AUTH watch test2"), Value::ok());
    assert!(watch.call("INFO memory").text().contains("used_memory"));
    refused(watch.call("GET session:1"), "NOPERM");
    // Without a certificate there is nobody to talk to.
    let mut stranger = Client::connect_tls(server.port(), tls::Options::default());
    assert!(stranger.as_mut().map_or(true, |stranger| stranger.is_closed_by_server()));
}
