//! Who may connect, with which certificate, version and cipher; and how that changes while the server runs.

use super::TlsServer;
use crate::common::server::{Port, start_and_fail};
use crate::common::tls::{self, Options, certificate, certificates, client_config, flags};
use crate::common::{Client, Kind, Value, error, simple, wait_until};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{CipherSuite, ClientConfig, HandshakeKind, ProtocolVersion};
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

/// Whether somebody with this certificate is served.
fn is_served(server: &TlsServer, certificate: Option<&'static str>) -> bool {
    is_served_with(server, Options { certificate, ..Options::default() })
}

/// (The client's handshake of TLS 1.3 is over before the server has seen its certificate.)
fn is_served_with(server: &TlsServer, options: Options) -> bool {
    let Ok(mut client) = Client::connect_tls(server.port(), options) else { return false };
    client.try_send_raw(b"PING\r\n").is_ok() && client.try_read().is_ok_and(|reply| reply == simple("PONG"))
}

fn with_ca(auth: &'static str) -> TlsServer {
    TlsServer::start(1, &["--tls-ca-cert-file", certificate("ca.crt"), "--tls-auth-clients", auth])
}

#[test]
fn only_valid_certificates_open_the_door() {
    const CERTIFICATES: [Option<&str>; 5] = [None, Some("client"), Some("expired"), Some("future"), Some("stranger")];
    for (auth, served) in [
        ("yes", [false, true, false, false, false]),
        ("optional", [true, true, false, false, false]),
        // Nobody is asked for one.
        ("no", [true; 5]),
    ] {
        let server = with_ca(auth);
        for (certificate, expected) in CERTIFICATES.into_iter().zip(served) {
            for only_tls12 in [false, true] {
                let options = Options { certificate, only_tls12, ..Options::default() };
                assert_eq!(is_served_with(&server, options), expected, "{auth}: {certificate:?}, 1.2: {only_tls12}");
            }
        }
        if auth != "no" {
            let output = server.server.output();
            assert!(output.contains("Error accepting a client connection: "), "{output}");
        }
    }
}

/// A certificate that is no client's is none for clients.
#[test]
fn a_servers_certificate_is_none_for_clients() {
    assert!(!is_served(&with_ca("yes"), Some("server")));
}

#[test]
fn authorities_may_lie_in_a_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::copy(certificate("ca.crt"), folder.path().join("0a1b2c3d.0")).expect("a copy");
    fs::copy(certificate("ca.crt"), folder.path().join("ca.pem")).expect("a copy");
    fs::write(folder.path().join("README"), "not a certificate").expect("written");
    let path = folder.path().display().to_string();
    let server = TlsServer::start(1, &["--tls-ca-cert-dir", &path, "--tls-auth-clients", "yes"]);
    assert!(is_served(&server, Some("client")) && !is_served(&server, Some("stranger")));
}

#[test]
fn who_may_connect_changes_while_it_runs() {
    let server = TlsServer::start(1, &[]);
    let mut admin = server.server.client();
    let mut before = server.client();
    let refused = |name: &str| {
        error(&format!(
            "ERR CONFIG SET failed (possibly related to argument '{name}') - Unable to update TLS configuration. Check server \
             logs."
        ))
    };
    assert_eq!(admin.call("CONFIG SET tls-auth-clients yes"), refused("tls-auth-clients"));
    assert!(is_served(&server, None));
    let set = format!("CONFIG SET tls-ca-cert-file {} tls-auth-clients yes", certificate("ca.crt"));
    assert_eq!(admin.call(&set), Value::ok());
    assert!(!is_served(&server, None) && is_served(&server, Some("client")));
    let set = format!("CONFIG SET TLS-CA-CERT-FILE {}", certificate("other-ca.crt"));
    assert_eq!(admin.call(&set), Value::ok());
    assert!(!is_served(&server, Some("client")) && is_served(&server, Some("stranger")));
    assert_eq!(admin.call("CONFIG SET tls-ca-cert-file /no/such/file"), refused("tls-ca-cert-file"));
    assert!(is_served(&server, Some("stranger")));
    assert_eq!(before.call("PING"), simple("PONG"), "who is there stays");
    assert!(server.server.output().contains("/no/such/file: No such file or directory"));
}

/// The certificate that a server shows.
fn shown(port: u16) -> CertificateDer<'static> {
    let mut client = Client::connect_tls(port, Options::default()).expect("a connection");
    client.tls().conn.peer_certificates().expect("it shows one")[0].clone().into_owned()
}

fn stored(path: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(path).expect("a certificate")
}

#[test]
fn certificate_and_key_change_together_or_not_at_all() {
    let server = TlsServer::start(3, &[]);
    let mut admin = server.server.client();
    let (old, new) = (stored(&certificates().join("server.crt")), stored(&certificates().join("renewed.crt")));
    assert_eq!(shown(server.port()), old);
    let (cert, key) = (certificate("renewed.crt"), certificate("renewed.key"));
    for half in [format!("tls-cert-file {cert}"), format!("tls-key-file {key}"), "tls-cert-file /etc/hostname".into()] {
        let reply = admin.call(&format!("CONFIG SET {half}"));
        assert!(reply.text().contains("Unable to update TLS configuration. Check server logs."), "{reply:?}");
        assert_eq!(shown(server.port()), old);
        let name = half.split(' ').next().expect("a name");
        let kept = admin.call(&format!("CONFIG GET {name}"));
        assert!(kept.items()[1].text().contains("/server."), "{kept:?}");
    }
    assert!(server.server.output().contains("key values mismatch"));
    // What else is in it does not change either.
    let reply = admin.call(&format!("CONFIG SET hz 50 tls-key-file {key}"));
    assert!(reply.text().contains("'tls-key-file'"), "{reply:?}");
    assert_eq!(admin.call("CONFIG GET hz").items()[1].text(), "10");
    assert_eq!(admin.call(&format!("CONFIG SET tls-key-file {key} tls-cert-file {cert}")), Value::ok());
    assert_eq!(shown(server.port()), new);
    assert_eq!(server.client().call("PING"), simple("PONG"));
}

/// Two who change it at the same time: what is served in the end is what is said.
#[test]
fn changes_at_the_same_time_do_not_mix() {
    let server = TlsServer::start(3, &[]);
    std::thread::scope(|scope| {
        for name in ["server", "renewed"] {
            let mut admin = server.server.client();
            scope.spawn(move || {
                let (cert, key) = (certificate(&format!("{name}.crt")), certificate(&format!("{name}.key")));
                for _ in 0..50 {
                    let reply = admin.call(&format!("CONFIG SET tls-cert-file {cert} tls-key-file {key}"));
                    assert_eq!(reply, Value::ok());
                }
            });
        }
    });
    let said = server.server.client().call("CONFIG GET tls-cert-file").items()[1].text();
    assert_eq!(shown(server.port()), stored(Path::new(&said)));
}

#[test]
fn files_that_change_are_read_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let put = |from: &str, what: &str| {
        // As tools do that renew certificates.
        fs::copy(certificates().join(format!("{from}.{what}")), path("new")).expect("a copy");
        fs::rename(path("new"), path(what)).expect("renamed");
    };
    put("server", "crt");
    put("server", "key");
    let (cert, key) = (path("crt"), path("key"));
    let server =
        TlsServer::start(1, &["--tls-cert-file", &cert, "--tls-key-file", &key, "--tls-auto-reload-interval", "1"]);
    let (old, new) = (stored(&certificates().join("server.crt")), stored(&certificates().join("renewed.crt")));
    assert_eq!(shown(server.port()), old);
    // Half of a pair: the old one stays.
    put("renewed", "crt");
    assert!(wait_until(LIMIT, || server.server.output().contains("were not read again, the old ones stay")));
    assert_eq!(shown(server.port()), old);
    put("renewed", "key");
    assert!(wait_until(LIMIT, || shown(server.port()) == new));
    let told = || server.server.output().contains("The files of TLS have changed and were read again.");
    assert!(wait_until(LIMIT, told));
    // Not any more.
    assert_eq!(server.server.client().call("CONFIG SET tls-auto-reload-interval 0"), Value::ok());
    put("server", "crt");
    put("server", "key");
    assert!(!wait_until(Duration::from_millis(2_500), || shown(server.port()) == old));
}

fn fails(flags: &[&str]) -> String {
    let failed = start_and_fail(Kind::Ember { shards: 1 }, Port::claim().number(), flags);
    assert!(!failed.status.success());
    failed.output
}

fn openssl(folder: &Path, args: &str) -> bool {
    let run = Command::new("openssl").current_dir(folder).args(args.split(' ')).output();
    run.is_ok_and(|run| run.status.success())
}

#[test]
fn what_is_wrong_at_the_start_is_said() {
    let port = Port::claim().number().to_string();
    let (cert, key) = (certificate("server.crt"), certificate("server.key"));
    let start = |more: &[&str]| fails(&[&["--tls-port", &port], more].concat());
    assert!(start(&[]).contains("Failed to configure TLS: No tls-cert-file configured!"));
    assert!(start(&["--tls-cert-file", cert]).contains("No tls-key-file configured!"));
    let pair = ["--tls-cert-file", cert, "--tls-key-file", key];
    let output = start(&pair);
    assert!(output.contains("Either tls-ca-cert-file or tls-ca-cert-dir must be specified"), "{output}");
    let with = |more: &[&str]| start(&[&pair[..], &["--tls-auth-clients", "no"], more].concat());
    let output = with(&["--tls-cert-file", "/no/cert"]);
    assert!(output.contains("Failed to load certificate: /no/cert: No such file or directory"), "{output}");
    let output = with(&["--tls-key-file", certificate("client.key")]);
    assert!(output.contains("Failed to load private key: ") && output.contains("key values mismatch"), "{output}");
    let output = with(&["--tls-key-file", cert]);
    assert!(output.contains("there is no private key in it"), "{output}");
    let output = with(&["--tls-ca-cert-dir", "/no/folder"]);
    assert!(output.contains("Failed to configure CA certificate(s) file/directory: /no/folder"), "{output}");
    for (flag, value, reason) in [
        ("--tls-protocols", "TLSv1.1", "versions before TLSv1.2 are not available"),
        ("--tls-protocols", "TLSv4", "argument(s) must be one of the following: TLSv1.2, TLSv1.3"),
        (
            "--tls-ciphers",
            "AES128-SHA",
            "'AES128-SHA' is no cipher that there is here: use ECDHE-ECDSA-AES256-GCM-SHA384",
        ),
        ("--tls-ciphersuites", "TLS_AES_128_CCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"),
        ("--tls-auth-clients", "maybe", "must be one of the following: no, yes, optional"),
        ("--tls-replication", "yes", "Either tls-ca-cert-file or tls-ca-cert-dir must be specified"),
        ("--tls-cluster", "yes", "cluster is not available yet"),
    ] {
        let output = with(&[flag, value]);
        assert!(output.contains(reason), "{flag} {value}: {output}");
    }
}

#[test]
fn certificates_of_version_one_are_refused_with_advice() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = openssl(folder.path(), "req -newkey rsa:2048 -nodes -keyout key -out request -subj /CN=localhost")
        && openssl(folder.path(), "x509 -req -in request -signkey key -out cert -days 10");
    if !made {
        return;
    }
    let path = |name: &str| folder.path().join(name).display().to_string();
    let port = Port::claim();
    let (cert, key) = (path("cert"), path("key"));
    let output = fails(&[&flags(port.number())[..], &["--tls-cert-file", &cert, "--tls-key-file", &key]].concat());
    assert!(output.contains("it is an X.509 certificate of version 1"), "{output}");
    assert!(output.contains("-extfile"), "{output}");
}

#[test]
fn keys_of_all_kinds_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let kinds: [(&str, &[&str], &str); 6] = [
        ("RSA", &["genrsa -out key 2048"], ""),
        ("RSA, PKCS#1", &["genrsa -traditional -out key 2048"], ""),
        ("P-384, SEC1", &["ecparam -name secp384r1 -genkey -noout -out key"], ""),
        ("Ed25519", &["genpkey -algorithm ed25519 -out key"], ""),
        ("encrypted", &["genrsa -out plain 2048", "pkcs8 -topk8 -in plain -out key -passout pass:sesame"], "sesame"),
        (
            "encrypted with scrypt",
            &[
                "ecparam -name prime256v1 -genkey -noout -out plain",
                "pkcs8 -topk8 -in plain -out key -scrypt -passout pass:sesame",
            ],
            "sesame",
        ),
    ];
    if !openssl(folder.path(), "version") {
        return;
    }
    for (name, commands, password) in kinds {
        assert!(commands.iter().all(|command| openssl(folder.path(), command)), "{name}");
        let mut request = "req -x509 -new -key key -out cert -days 10 -subj /CN=localhost".to_owned();
        if !password.is_empty() {
            request += &format!(" -passin pass:{password}");
        }
        assert!(openssl(folder.path(), &request), "{name}");
        let (cert, key) = (path("cert"), path("key"));
        let files = ["--tls-cert-file", &cert, "--tls-key-file", &key];
        let server = TlsServer::start(1, &[&files[..], &["--tls-key-file-pass", password]].concat());
        assert!(is_served(&server, None), "{name}");
        if password.is_empty() {
            continue;
        }
        let mut admin = server.server.client();
        let reply = admin.call("CONFIG SET tls-key-file-pass wrong");
        assert!(reply.text().contains("Unable to update TLS configuration"), "{reply:?}");
        assert_eq!(admin.call("CONFIG GET tls-key-file-pass").items()[1].text(), password);
        assert!(!server.server.output().contains(password), "a password is in the log");
        let port = Port::claim();
        let output = fails(&[&flags(port.number())[..], &files].concat());
        assert!(output.contains("it is encrypted, and there is no tls-key-file-pass"), "{output}");
        let wrong = [&flags(port.number())[..], &files, &["--tls-key-file-pass", "wrong"]].concat();
        assert!(fails(&wrong).contains("it cannot be decrypted: tls-key-file-pass is wrong"));
    }
    // OpenSSL's old way.
    assert!(openssl(folder.path(), "genrsa -traditional -aes256 -passout pass:sesame -out key 2048"));
    let (port, key) = (Port::claim(), path("key"));
    let output =
        fails(&[&flags(port.number())[..], &["--tls-key-file", &key, "--tls-key-file-pass", "sesame"]].concat());
    assert!(output.contains("openssl pkcs8 -topk8"), "{output}");
}

/// What two agree on.
fn agreed(server: &TlsServer, options: Options) -> Option<(ProtocolVersion, CipherSuite)> {
    let mut client = Client::connect_tls(server.port(), options).ok()?;
    let connection = &client.tls().conn;
    Some((connection.protocol_version()?, connection.negotiated_cipher_suite()?.suite()))
}

#[test]
fn versions_and_ciphers_are_those_that_are_named() {
    let server = TlsServer::start(1, &[]);
    let mut admin = server.server.client();
    let (old, new) =
        (Options { only_tls12: true, ..Options::default() }, Options { only_tls13: true, ..Options::default() });
    assert!(agreed(&server, old).is_some() && agreed(&server, new).is_some());
    assert_eq!(admin.command(&["CONFIG", "SET", "tls-protocols", "TLSv1.3"]), Value::ok());
    assert!(agreed(&server, old).is_none() && agreed(&server, new).is_some());
    assert_eq!(admin.command(&["CONFIG", "SET", "tls-protocols", "tlsv1.2"]), Value::ok());
    assert!(agreed(&server, old).is_some() && agreed(&server, new).is_none());
    assert_eq!(admin.command(&["CONFIG", "SET", "tls-protocols", "TLSv1.2 TLSv1.3"]), Value::ok());
    assert_eq!(admin.call("CONFIG GET tls-protocols").items()[1].text(), "TLSv1.2 TLSv1.3");
    let chacha = "ECDHE-RSA-CHACHA20-POLY1305:ECDHE-ECDSA-CHACHA20-POLY1305";
    assert_eq!(admin.call(&format!("CONFIG SET tls-ciphers {chacha}")), Value::ok());
    let cipher = agreed(&server, old).map(|(_, cipher)| cipher);
    assert_eq!(cipher, Some(CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256));
    assert_eq!(admin.call("CONFIG SET tls-ciphersuites TLS_AES_128_GCM_SHA256"), Value::ok());
    assert_eq!(agreed(&server, new).map(|(_, cipher)| cipher), Some(CipherSuite::TLS13_AES_128_GCM_SHA256));
    // The client prefers the other order.
    let set =
        "CONFIG SET tls-prefer-server-ciphers yes tls-ciphersuites TLS_CHACHA20_POLY1305_SHA256:TLS_AES_256_GCM_SHA384";
    assert_eq!(admin.call(set), Value::ok());
    assert_eq!(agreed(&server, new).map(|(_, cipher)| cipher), Some(CipherSuite::TLS13_CHACHA20_POLY1305_SHA256));
    assert_eq!(admin.call("CONFIG SET tls-prefer-server-ciphers no"), Value::ok());
    assert_eq!(agreed(&server, new).map(|(_, cipher)| cipher), Some(CipherSuite::TLS13_AES_256_GCM_SHA384));
    let reply = admin.call("CONFIG SET tls-ciphers RC4-SHA");
    assert!(reply.text().contains("'tls-ciphers') - 'RC4-SHA' is no cipher that there is here: use "), "{reply:?}");
}

/// How a connection began that has one before it.
fn second(server: &TlsServer, config: &Arc<ClientConfig>, pause: Duration) -> Option<HandshakeKind> {
    for connection in 0..2 {
        let mut client = Client::connect_with(server.port(), config.clone()).expect("a connection");
        assert_eq!(client.call("PING"), simple("PONG"));
        if connection == 1 {
            return client.tls().conn.handshake_kind();
        }
        client.send("QUIT");
        let _ = client.tls().read_to_end(&mut Vec::new());
        std::thread::sleep(pause);
    }
    None
}

#[test]
fn sessions_are_taken_up_again_as_long_as_they_may() {
    let server = TlsServer::start(1, &[]);
    let mut admin = server.server.client();
    for only_tls12 in [false, true] {
        let fresh = || tls::client_config(Options { only_tls12, ..Options::default() });
        assert_eq!(second(&server, &fresh(), Duration::ZERO), Some(HandshakeKind::Resumed));
        assert_eq!(admin.call("CONFIG SET tls-session-cache-timeout 1"), Value::ok());
        assert_eq!(second(&server, &fresh(), Duration::from_millis(2_100)), Some(HandshakeKind::Full));
        assert_eq!(admin.call("CONFIG SET tls-session-cache-timeout 300 tls-session-caching no"), Value::ok());
        assert_eq!(second(&server, &fresh(), Duration::ZERO), Some(HandshakeKind::Full));
        assert_eq!(admin.call("CONFIG SET tls-session-caching yes"), Value::ok());
    }
}

/// A session that began without a certificate is none for a server that asks for one.
#[test]
fn sessions_do_not_outlive_what_they_began_under() {
    let server = TlsServer::start(1, &[]);
    let config = client_config(Options::default());
    assert_eq!(second(&server, &config, Duration::ZERO), Some(HandshakeKind::Resumed));
    let set = format!("CONFIG SET tls-ca-cert-file {} tls-auth-clients yes", certificate("ca.crt"));
    assert_eq!(server.server.client().call(&set), Value::ok());
    let Ok(mut client) = Client::connect_with(server.port(), config) else { return };
    let _ = client.try_send_raw(b"PING\r\n");
    assert!(client.try_read().is_err());
}

#[test]
fn metrics_are_served_under_tls() {
    let port = Port::claim();
    let number = port.number().to_string();
    let server = TlsServer::start(1, &["--metrics-port", &number, "--metrics-tls", "yes"]);
    let ask = |bytes: &[u8]| {
        let mut client = Client::connect_tls(port.number(), Options::default()).expect("a connection");
        client.send_raw(bytes);
        let mut answer = String::new();
        client.tls().read_to_string(&mut answer).expect("an answer that ends well");
        answer
    };
    let answer = ask(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("emberdb_"), "{answer}");
    assert!(ask(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").ends_with("ok\n"));
    // Without TLS there is nothing to read.
    let mut plain = std::net::TcpStream::connect(("127.0.0.1", port.number())).expect("a connection");
    std::io::Write::write_all(&mut plain, b"GET /metrics HTTP/1.1\r\n\r\n").expect("sent");
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    assert!(is_served(&server, None));
}

#[test]
fn directives_are_written_to_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, port) = (folder.path().join("emberdb.conf"), Port::claim());
    let text = format!(
        "tls-port {}\ntls-cert-file {}\ntls-key-file {}\ntls-auth-clients no\ntls-protocols \"TLSv1.2 TLSv1.3\"\n",
        port.number(),
        certificate("server.crt"),
        certificate("server.key")
    );
    fs::write(&file, &text).expect("written");
    let path = file.display().to_string();
    let server = TlsServer { server: crate::common::Server::start(Kind::Ember { shards: 1 }, &[&path]), port };
    let mut admin = server.server.client();
    assert_eq!(admin.call("CONFIG SET tls-ciphers HIGH:!aNULL tls-session-cache-size 5"), Value::ok());
    assert_eq!(admin.call("CONFIG REWRITE"), Value::ok());
    let text = fs::read_to_string(&file).expect("it is there");
    for line in ["tls-ciphers \"HIGH:!aNULL\"", "tls-session-cache-size 5", "tls-protocols \"TLSv1.2 TLSv1.3\""] {
        assert!(text.lines().any(|found| found.replace('"', "") == line.replace('"', "")), "{line}:\n{text}");
    }
}
