//! Certificates and keys, as they are read from files.

use crate::observe::log;
use pkcs8::EncryptedPrivateKeyInfoRef;
use pkcs8::der::SecretDocument;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use thiserror::Error;

/// Why TLS cannot be served as the directives have it. The texts begin as those that Redis logs.
#[derive(Debug, Error)]
pub enum TlsError {
    #[error("No tls-cert-file configured!")]
    NoCertificate,
    #[error("No tls-key-file configured!")]
    NoKey,
    #[error(
        "Either tls-ca-cert-file or tls-ca-cert-dir must be specified when tls-cluster, tls-replication or \
         tls-auth-clients are enabled!"
    )]
    NoAuthorities,
    #[error("Failed to load certificate: {file}: {reason}")]
    Certificate { file: String, reason: String },
    #[error("Failed to load private key: {file}: {reason}")]
    Key { file: String, reason: String },
    #[error("Failed to configure CA certificate(s) file/directory: {file}: {reason}")]
    Authorities { file: String, reason: String },
    #[error("{0}")]
    Other(String),
}

/// A longer file is no certificate.
const FILE_BYTES: u64 = 4 << 20;
/// So many files of a folder are read.
const FOLDER_FILES: usize = 10_000;

/// Whether an error is about a certificate of the first version.
pub(super) fn is_about_version(error: &rustls::Error) -> bool {
    format!("{error:?}").contains("UnsupportedCertVersion")
}

/// What to do about such a certificate.
pub(super) const VERSION_ADVICE: &str = "it is an X.509 certificate of version 1, which is not supported: make one of version 3 \
    (openssl x509 -req takes -extfile with a file of extensions, such as subjectAltName=DNS:localhost)";

/// The certificates of a file, the server's own first.
pub(super) fn chain(file: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |reason: String| TlsError::Certificate { file: file.to_owned(), reason };
    let chain = read(Path::new(file)).map_err(|error| failed(log::reason(&error)))?;
    let chain = certificates(&chain).map_err(|error| failed(pem_reason(&error)))?;
    if chain.is_empty() { Err(failed("there is no certificate in it (PEM)".to_owned())) } else { Ok(chain) }
}

/// The first private key of a file, decrypted with the password where it is encrypted.
pub(super) fn key(file: &str, password: &str) -> Result<PrivateKeyDer<'static>, TlsError> {
    let failed = |reason: &str| TlsError::Key { file: file.to_owned(), reason: reason.to_owned() };
    let text = read(Path::new(file)).map_err(|error| failed(&log::reason(&error)))?;
    match PrivateKeyDer::from_pem_slice(&text) {
        Ok(_) if contains(&text, b"Proc-Type: 4,ENCRYPTED") => Err(failed(OLD_ENCRYPTION)),
        Ok(key) => Ok(key),
        Err(_) if contains(&text, b"Proc-Type: 4,ENCRYPTED") => Err(failed(OLD_ENCRYPTION)),
        Err(pem::Error::NoItemsFound) => match encrypted(&text) {
            Some(_) if password.is_empty() => Err(failed("it is encrypted, and there is no tls-key-file-pass")),
            Some(section) => decrypt(&section, password).map_err(|reason| failed(&reason)),
            None => Err(failed("there is no private key in it (PEM)")),
        },
        Err(error) => Err(failed(&pem_reason(&error))),
    }
}

const OLD_ENCRYPTION: &str = "it is encrypted in OpenSSL's old way, which is not supported: make one in PKCS#8 of it \
    (openssl pkcs8 -topk8 -in OLD -out NEW)";

const BEGIN: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----";
const END: &str = "-----END ENCRYPTED PRIVATE KEY-----";

/// The section of a file that is an encrypted key.
fn encrypted(text: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(text).ok()?;
    let begin = text.find(BEGIN)?;
    let len = text[begin..].find(END)? + END.len();
    Some(text[begin..begin + len].replace('\r', "") + "\n")
}

fn decrypt(section: &str, password: &str) -> Result<PrivateKeyDer<'static>, String> {
    let (_, document) = SecretDocument::from_pem(section).map_err(|error| error.to_string())?;
    let info = EncryptedPrivateKeyInfoRef::try_from(document.as_bytes())
        .map_err(|error| format!("it is encrypted in a way that is not supported (PBES2 is): {error}"))?;
    let key = info
        .decrypt(password)
        .map_err(|_| "it cannot be decrypted: tls-key-file-pass is wrong, or the way is not supported".to_owned())?;
    Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
}

/// The certificates of authorities in a file and in a folder, either of which may be none.
pub(super) fn authorities(file: &str, folder: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |of: &str, reason: String| TlsError::Authorities { file: of.to_owned(), reason };
    let mut found = Vec::new();
    if !file.is_empty() {
        let text = read(Path::new(file)).map_err(|error| failed(file, log::reason(&error)))?;
        found = certificates(&text).map_err(|error| failed(file, pem_reason(&error)))?;
        if found.is_empty() {
            return Err(failed(file, "there is no certificate in it (PEM)".to_owned()));
        }
    }
    if !folder.is_empty() {
        let entries = std::fs::read_dir(folder).map_err(|error| failed(folder, log::reason(&error)))?;
        let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
        paths.sort();
        // Other files may lie there, and links to the same ones (openssl rehash).
        for text in paths.iter().take(FOLDER_FILES).filter_map(|path| read(path).ok()) {
            for certificate in certificates(&text).unwrap_or_default() {
                if !found.contains(&certificate) {
                    found.push(certificate);
                }
            }
        }
        if found.is_empty() {
            return Err(failed(folder, "there is no certificate in its files (PEM)".to_owned()));
        }
    }
    Ok(found)
}

fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, pem::Error> {
    CertificateDer::pem_slice_iter(text).collect()
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    // (To open a pipe waits until somebody writes to it, which may be never.)
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.file_type().is_fifo() {
        return Err(io::Error::other("it is a pipe, which cannot be read again"));
    }
    file.take(FILE_BYTES + 1).read_to_end(&mut text)?;
    if text.len() as u64 > FILE_BYTES { Err(io::Error::other("the file is too long")) } else { Ok(text) }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    memchr::memmem::find(text, part).is_some()
}

fn pem_reason(error: &pem::Error) -> String {
    format!("it is no PEM: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(text: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("it can be written");
        file
    }

    fn refused(text: &str) -> String {
        let file = file(text.as_bytes());
        key(file.path().to_str().expect("a name"), "").expect_err("no key").to_string()
    }

    #[test]
    fn what_is_no_key_says_why() {
        assert!(refused("").ends_with("there is no private key in it (PEM)"));
        let old = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nAAAA\n\
                   -----END RSA PRIVATE KEY-----\n";
        assert!(refused(old).contains("openssl pkcs8 -topk8"), "{}", refused(old));
        assert!(refused(&format!("{BEGIN}\nAAAA\n{END}\n")).ends_with("there is no tls-key-file-pass"));
        assert!(
            key("/no/such/file", "")
                .expect_err("none")
                .to_string()
                .ends_with("/no/such/file: No such file or directory")
        );
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("pipe").display().to_string();
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
        assert!(chain(&pipe).expect_err("a pipe").to_string().contains("it is a pipe"));
        assert!(chain("/").expect_err("a folder").to_string().ends_with("/: Is a directory"));
    }

    proptest! {
        #[test]
        fn files_of_any_content_are_read_or_refused(text in proptest::collection::vec(any::<u8>(), 0..300), sections in 0..3) {
            let mut text = text;
            for _ in 0..sections {
                text.extend_from_slice(BEGIN.as_bytes());
                text.extend_from_slice(b"\nMIIB\n");
                text.extend_from_slice(END.as_bytes());
            }
            let file = file(&text);
            let path = file.path().to_str().expect("a name");
            let _ = (key(path, "secret"), chain(path), authorities(path, ""));
        }
    }
}
