//! Connections of this server to others, in the clear or under TLS. Whoever uses one may wait; one thread reads, and others
//! write meanwhile.

use super::context::{provider, roots, versions};
use super::files::{self, TlsError};
use crate::config;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Ciphertext that is read at a time.
const READ_BYTES: usize = 16 << 10;

pub struct Outgoing {
    stream: TcpStream,
    secure: Option<Mutex<Secure>>,
}

struct Secure {
    connection: ClientConnection,
    /// What has come and was not decrypted yet.
    ciphertext: Vec<u8>,
}

impl Outgoing {
    pub fn plain(stream: TcpStream) -> Outgoing {
        Outgoing { stream, secure: None }
    }

    /// Shakes hands with a server, whose certificate has to be of one of the authorities that the directives name.
    ///
    /// # Errors
    /// The server is none of those, does not take this server's certificate, or lets wait for longer than the stream does.
    pub fn secure(stream: TcpStream, settings: &config::Tls) -> io::Result<Outgoing> {
        let config = client_config(settings).map_err(io::Error::other)?;
        // (Nobody asks for which name a certificate is, as in Redis: servers are named by addresses mostly.)
        let name = ServerName::from(std::net::IpAddr::from(Ipv4Addr::LOCALHOST));
        let mut connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut &stream)?;
        }
        let secure = Mutex::new(Secure { connection, ciphertext: Vec::new() });
        Ok(Outgoing { stream, secure: Some(secure) })
    }

    /// For its limits of time, and to break it off.
    pub fn socket(&self) -> &TcpStream {
        &self.stream
    }
}

impl Read for &Outgoing {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let Some(secure) = &self.secure else { return (&self.stream).read(bytes) };
        let mut ciphertext = [0; READ_BYTES];
        loop {
            {
                let mut secure = lock(secure);
                match secure.connection.reader().read(bytes) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    read => return read,
                }
                if secure.decrypt()? {
                    // A handshake of the other side's may ask for an answer.
                    secure.flush(&self.stream)?;
                    continue;
                }
            }
            // (Nobody who writes waits for this.)
            let count = (&self.stream).read(&mut ciphertext)?;
            let mut secure = lock(secure);
            secure.ciphertext.extend_from_slice(&ciphertext[..count]);
            if count == 0 {
                secure.connection.read_tls(&mut io::empty())?;
                secure.connection.process_new_packets().map_err(io::Error::other)?;
            }
        }
    }
}

impl Write for &Outgoing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(secure) = &self.secure else { return (&self.stream).write(bytes) };
        let mut secure = lock(secure);
        let count = secure.connection.writer().write(bytes)?;
        secure.flush(&self.stream)?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn lock(secure: &Mutex<Secure>) -> MutexGuard<'_, Secure> {
    secure.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Secure {
    /// Decrypts some of what has come; whether there was anything.
    fn decrypt(&mut self) -> io::Result<bool> {
        if self.ciphertext.is_empty() {
            return Ok(false);
        }
        let count = self.connection.read_tls(&mut &self.ciphertext[..])?;
        self.ciphertext.drain(..count);
        self.connection.process_new_packets().map_err(io::Error::other)?;
        Ok(count > 0)
    }

    fn flush(&mut self, mut stream: &TcpStream) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut stream)?;
        }
        Ok(())
    }
}

/// What connections to other servers are made with. It reads files.
///
/// # Errors
/// There is no authority, or a file that is missing or not what it should be.
pub fn client_config(settings: &config::Tls) -> Result<Arc<ClientConfig>, TlsError> {
    if settings.ca_cert_file.is_empty() && settings.ca_cert_dir.is_empty() {
        return Err(TlsError::NoAuthorities);
    }
    let other = |error: Error| TlsError::Other(error.to_string());
    let provider = Arc::new(provider(settings));
    let authorities = files::authorities(&settings.ca_cert_file, &settings.ca_cert_dir)?;
    let roots = Arc::new(roots(settings, authorities)?);
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
    let verifier = verifier.map_err(|error| TlsError::Other(error.to_string()))?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions(settings))
        .map_err(other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(OfAnyName(verifier)));
    let (certificate, key, password) = match settings.client_cert_file.is_empty() {
        true => (&settings.cert_file, &settings.key_file, &settings.key_file_pass),
        false => (&settings.client_cert_file, &settings.client_key_file, &settings.client_key_file_pass),
    };
    let mut config = match certificate.is_empty() {
        true => builder.with_no_client_auth(),
        false if key.is_empty() => return Err(TlsError::NoKey),
        false => {
            let pair = (files::chain(certificate)?, files::key(key, password)?);
            let failed = |error: Error| TlsError::Certificate { file: certificate.clone(), reason: error.to_string() };
            builder.with_client_auth_cert(pair.0, pair.1).map_err(failed)?
        }
    };
    config.enable_sni = false;
    Ok(Arc::new(config))
}

/// Takes a server's certificate for whatever name it is, where an authority stands behind it.
#[derive(Debug)]
struct OfAnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for OfAnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        status: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.0.verify_server_cert(certificate, between, name, status, now) {
            // (That is looked at last.)
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
