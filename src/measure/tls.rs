//! The client's side of TLS, over a socket that waits or one that does not.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::cell::Cell;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

/// What connections under TLS have in common. `authority`: a file with certificates, one of which has to stand behind the
/// server's; none: whatever the server shows is good enough. `pair`: the files with a client's certificate and key.
///
/// # Errors
/// A file is missing, or not what it should be.
pub fn config(authority: Option<&Path>, pair: Option<(&Path, &Path)>) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    let builder = match authority {
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(file)? {
                roots.add(certificate).map_err(|error| format!("{}: {error}", file.display()))?;
            }
            builder.with_root_certificates(roots)
        }
        None => builder.dangerous().with_custom_certificate_verifier(Arc::new(Trusting(provider))),
    };
    let Some((certificate, key)) = pair else { return Ok(Arc::new(builder.with_no_client_auth())) };
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| format!("{}: {error}", key.display()))?;
    let config = builder.with_client_auth_cert(certificates(certificate)?, private);
    config.map(Arc::new).map_err(|error| format!("{}: {error}", certificate.display()))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let failed = |error| format!("{}: {error}", file.display());
    CertificateDer::pem_file_iter(file).map_err(failed)?.collect::<Result<_, _>>().map_err(failed)
}

/// Takes every certificate for the server's.
#[derive(Debug)]
pub struct Trusting(pub Arc<CryptoProvider>);

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Plaintext that is encrypted before the socket has to take what is made of it.
const WRITE_BYTES: usize = 16 << 10;

/// Of ciphertext that is read at a time.
const READ_BYTES: usize = 16 << 10;

pub struct TlsSocket {
    stream: TcpStream,
    connection: ClientConnection,
    /// What was read, of which `taken..read` is still to be decrypted.
    ciphertext: Vec<u8>,
    taken: usize,
    read: usize,
    waits: Cell<bool>,
}

impl TlsSocket {
    /// Does the handshake with `host`, which waits.
    pub fn connect(mut stream: TcpStream, host: &str, config: Arc<ClientConfig>) -> io::Result<TlsSocket> {
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        let mut connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut stream)?;
        }
        let (ciphertext, waits) = (vec![0; READ_BYTES], Cell::new(true));
        Ok(TlsSocket { stream, connection, ciphertext, taken: 0, read: 0, waits })
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub fn set_nonblocking(&self) -> io::Result<()> {
        self.waits.set(false);
        self.stream.set_nonblocking(true)
    }

    /// What has come, at least a byte; where the socket does not wait, all that there is room for.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (mut len, mut is_drained) = (0, false);
        while len < buffer.len() {
            match self.connection.reader().read(&mut buffer[len..]) {
                Ok(0) => return Ok(len),
                Ok(bytes) => {
                    len += bytes;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // An end without a word is an end.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(len),
                Err(error) => return Err(error),
            }
            if self.taken == self.read {
                if len > 0 && (self.waits.get() || is_drained) {
                    return Ok(len);
                }
                self.read = match self.stream.read(&mut self.ciphertext) {
                    Err(error) if len > 0 && error.kind() == ErrorKind::WouldBlock => return Ok(len),
                    read => read?,
                };
                self.taken = 0;
                is_drained = self.read < READ_BYTES;
            }
            self.taken += self.connection.read_tls(&mut &self.ciphertext[self.taken..self.read])?;
            self.connection.process_new_packets().map_err(io::Error::other)?;
        }
        Ok(len)
    }

    /// Takes as much as the socket takes; what is encrypted already may wait for [`TlsSocket::flush`].
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.flush()?;
        let len = self.connection.writer().write(&bytes[..bytes.len().min(WRITE_BYTES)])?;
        match self.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(len),
        }
    }

    /// Sends what is encrypted.
    pub fn flush(&mut self) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut self.stream)?;
        }
        Ok(())
    }
}
