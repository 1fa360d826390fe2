//! TLS for tests: an authority with certificates, and the client's side of a connection.

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use emberdb::measure::tls::Trusting;
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType, date_time_ymd,
};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, StreamOwned};

/// A folder with what [`make`] makes, for all tests of this build.
pub fn certificates() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let folder = root.join("certificates-1");
        if !folder.exists() {
            let fresh = tempfile::tempdir_in(root).expect("a folder");
            make(fresh.path());
            // Another process may have been faster, whose certificates are as good.
            let _ = fs::rename(fresh.path(), &folder);
        }
        folder
    })
}

/// The path of one of them, as a flag takes it.
pub fn certificate(name: &str) -> &'static str {
    certificates().join(name).display().to_string().leak()
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str, path: &Path) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("valid");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        fs::write(path, params.self_signed(&key).expect("a certificate").pem()).expect("written");
        Authority { issuer: Issuer::new(params, key) }
    }

    /// Writes `name.crt` and `name.key`.
    fn issue(
        &self,
        folder: &Path,
        name: &str,
        purpose: ExtendedKeyUsagePurpose,
        change: impl FnOnce(&mut CertificateParams),
    ) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("valid");
        params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.extended_key_usages.push(purpose);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2099, 1, 1);
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        fs::write(folder.join(format!("{name}.crt")), certificate.pem()).expect("written");
        fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).expect("written");
    }
}

/// An authority (`ca.crt`) and another (`other-ca.crt`); the servers' certificates `server` and `renewed`; the clients'
/// `client`, `expired`, `future`, and `stranger` of the other authority.
fn make(folder: &Path) {
    use ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
    let authority = Authority::new("Test authority", &folder.join("ca.crt"));
    let other = Authority::new("Other authority", &folder.join("other-ca.crt"));
    authority.issue(folder, "server", ServerAuth, |_| ());
    authority.issue(folder, "renewed", ServerAuth, |_| ());
    authority.issue(folder, "client", ClientAuth, |_| ());
    authority.issue(folder, "expired", ClientAuth, |params| params.not_after = date_time_ymd(2021, 1, 1));
    authority.issue(folder, "future", ClientAuth, |params| params.not_before = date_time_ymd(2098, 1, 1));
    other.issue(folder, "stranger", ClientAuth, |_| ());
}

/// Flags of a server that speaks TLS on this port to everybody.
pub fn flags(port: u16) -> Vec<&'static str> {
    let port: &'static str = port.to_string().leak();
    let (certificate, key) = (certificate("server.crt"), certificate("server.key"));
    vec!["--tls-port", port, "--tls-cert-file", certificate, "--tls-key-file", key, "--tls-auth-clients", "no"]
}

/// How a client connects.
#[derive(Clone, Copy, Default)]
pub struct Options {
    /// The name of its certificate.
    pub certificate: Option<&'static str>,
    pub only_tls12: bool,
    pub only_tls13: bool,
}

/// A configuration that trusts every server.
pub fn client_config(options: Options) -> Arc<ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    let versions = match options {
        Options { only_tls12: true, .. } => vec![&TLS12],
        Options { only_tls13: true, .. } => vec![&TLS13],
        _ => vec![&TLS13, &TLS12],
    };
    let builder =
        ClientConfig::builder_with_provider(provider.clone()).with_protocol_versions(&versions).expect("versions");
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(Trusting(provider)));
    Arc::new(match options.certificate {
        None => builder.with_no_client_auth(),
        Some(name) => {
            let chain = CertificateDer::pem_file_iter(certificate(&format!("{name}.crt"))).expect("a file");
            let key = PrivateKeyDer::from_pem_file(certificate(&format!("{name}.key"))).expect("a key");
            builder.with_client_auth_cert(chain.collect::<Result<_, _>>().expect("certificates"), key).expect("a pair")
        }
    })
}

pub type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// The client's side of a connection, whose handshake comes with the first bytes.
pub fn wrap(stream: TcpStream, config: Arc<ClientConfig>) -> TlsStream {
    let name = ServerName::try_from("localhost").expect("a name");
    StreamOwned::new(ClientConnection::new(config, name).expect("a connection"), stream)
}

/// A socket, under TLS or not.
pub enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

impl Stream {
    pub fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => &stream.sock,
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(buffer),
            Stream::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.flush(),
            Stream::Tls(stream) => stream.flush(),
        }
    }
}
