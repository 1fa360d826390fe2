//! What new connections are served with: made of the directives and the files that they name, and replaced as a whole or
//! not at all. Connections that are there go on with what they began with.

use super::files::{self, TlsError, VERSION_ADVICE, is_about_version};
use super::sessions::{Store, Tickets};
use crate::config::{self, AuthClients, Ciphers};
use crate::observe::log;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{
    CipherSuite, CipherSuiteCommon, Error, InconsistentKeys, RootCertStore, ServerConfig, SupportedCipherSuite,
    SupportedProtocolVersion, Tls12CipherSuite,
};
use sha2::{Digest, Sha256};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What is served now.
pub struct Tls {
    current: Mutex<Current>,
    /// The directives have changed.
    changed: Condvar,
}

struct Current {
    settings: config::Tls,
    loaded: Loaded,
    /// How often the directives were set.
    version: u64,
}

/// What directives and files come to.
#[derive(Clone)]
pub struct Loaded {
    config: Arc<ServerConfig>,
    /// Of the files' contents.
    digest: [u8; 32],
}

impl Tls {
    /// # Errors
    /// A file that is missing or not what it should be, or a certificate that is not the key's.
    pub fn new(settings: &config::Tls) -> Result<Arc<Tls>, TlsError> {
        let current = Current { settings: settings.clone(), loaded: Tls::load(settings)?, version: 0 };
        Ok(Arc::new(Tls { current: Mutex::new(current), changed: Condvar::new() }))
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the next connection.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        self.current().loaded.config.clone()
    }

    /// Reads the files that directives name; it takes some time. Nothing changes before [`Tls::replace`].
    ///
    /// # Errors
    /// As [`Tls::new`].
    pub fn load(settings: &config::Tls) -> Result<Loaded, TlsError> {
        if settings.cert_file.is_empty() {
            return Err(TlsError::NoCertificate);
        }
        if settings.key_file.is_empty() {
            return Err(TlsError::NoKey);
        }
        let asks = settings.auth_clients != AuthClients::No;
        if asks && settings.ca_cert_file.is_empty() && settings.ca_cert_dir.is_empty() {
            return Err(TlsError::NoAuthorities);
        }
        let chain = files::chain(&settings.cert_file)?;
        let key = files::key(&settings.key_file, &settings.key_file_pass)?;
        let authorities = files::authorities(&settings.ca_cert_file, &settings.ca_cert_dir)?;
        let digest = digest(&chain, &key, &authorities);
        let provider = Arc::new(provider(settings));
        let certified = CertifiedKey::from_der(chain, key, &provider).map_err(|error| misfit(settings, &error))?;
        let verifier =
            if asks { verifier(settings, authorities, &provider)? } else { WebPkiClientVerifier::no_client_auth() };
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions(settings))
            .map_err(|error| TlsError::Other(error.to_string()))?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.ignore_client_order = settings.prefer_server_ciphers;
        let timeout_s = settings.session_cache_timeout_s;
        if settings.session_caching && timeout_s > 0 {
            config.session_storage = Store::new(settings.session_cache_size, timeout_s);
            config.ticketer = Tickets::new(timeout_s).map_err(|error| TlsError::Other(error.to_string()))?;
        } else {
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(Loaded { config: Arc::new(config), digest })
    }

    /// Serves new connections with this from now on.
    pub fn replace(&self, settings: &config::Tls, loaded: Loaded) {
        let mut current = self.current();
        current.settings = settings.clone();
        current.loaded = loaded;
        current.version += 1;
        self.changed.notify_all();
    }

    /// Waits until the files are to be looked at again.
    fn wait(&self) {
        let mut current = self.current();
        loop {
            let interval_s = current.settings.auto_reload_interval_s;
            if interval_s == 0 {
                current = self.changed.wait(current).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let (waited, timeout) = self
                .changed
                .wait_timeout(current, Duration::from_secs(interval_s))
                .unwrap_or_else(PoisonError::into_inner);
            if timeout.timed_out() {
                return;
            }
            current = waited;
        }
    }

    /// Takes over files that have changed, unless the directives did meanwhile.
    fn reload(&self) {
        let (settings, version, digest) = {
            let current = self.current();
            (current.settings.clone(), current.version, current.loaded.digest)
        };
        match Tls::load(&settings) {
            Ok(loaded) if loaded.digest == digest => {}
            Ok(loaded) => {
                let mut current = self.current();
                if current.version == version {
                    current.loaded = loaded;
                    log::notice(format_args!("The files of TLS have changed and were read again."));
                }
            }
            Err(error) => {
                log::warning(format_args!("The files of TLS were not read again, the old ones stay: {error}"))
            }
        }
    }
}

/// Looks at the files from time to time (`tls-auto-reload-interval`), on a thread of its own.
///
/// # Errors
/// There is no thread.
pub fn reload(tls: &Arc<Tls>) -> std::io::Result<()> {
    let tls = tls.clone();
    let run = move || {
        loop {
            tls.wait();
            tls.reload();
        }
    };
    std::thread::Builder::new().name("tls-files".to_owned()).spawn(run).map(drop)
}

fn digest(chain: &[CertificateDer], key: &PrivateKeyDer, authorities: &[CertificateDer]) -> [u8; 32] {
    let mut digest = Sha256::new();
    let mut add = |part: &[u8]| {
        digest.update(part.len().to_le_bytes());
        digest.update(part);
    };
    chain.iter().for_each(|certificate| add(certificate));
    add(key.secret_der());
    authorities.iter().for_each(|certificate| add(certificate));
    digest.finalize().into()
}

/// Why a certificate and a key cannot be used together.
fn misfit(settings: &config::Tls, error: &Error) -> TlsError {
    let (certificate, key) = (settings.cert_file.clone(), settings.key_file.clone());
    match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            TlsError::Key { file: key, reason: format!("key values mismatch: it is not the key of {certificate}") }
        }
        error if is_about_version(error) => {
            TlsError::Certificate { file: certificate, reason: VERSION_ADVICE.to_owned() }
        }
        Error::InvalidCertificate(_) => TlsError::Certificate { file: certificate, reason: error.to_string() },
        error => TlsError::Key { file: key, reason: error.to_string() },
    }
}

fn verifier(
    settings: &config::Tls,
    authorities: Vec<CertificateDer<'static>>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let roots = Arc::new(roots(settings, authorities)?);
    let builder = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
    let builder = match settings.auth_clients {
        AuthClients::Optional => builder.allow_unauthenticated(),
        _ => builder,
    };
    builder.build().map_err(|error| of_authorities(settings, error.to_string()))
}

fn of_authorities(settings: &config::Tls, reason: String) -> TlsError {
    let file = if settings.ca_cert_file.is_empty() { &settings.ca_cert_dir } else { &settings.ca_cert_file };
    TlsError::Authorities { file: file.clone(), reason }
}

pub(super) fn roots(
    settings: &config::Tls,
    authorities: Vec<CertificateDer<'static>>,
) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        match roots.add(authority) {
            Ok(()) => {}
            // A folder may hold what is none.
            Err(_) if settings.ca_cert_file.is_empty() => {}
            Err(error) => return Err(of_authorities(settings, error.to_string())),
        }
    }
    Ok(roots)
}

/// The versions that are wanted.
pub(super) fn versions(settings: &config::Tls) -> Vec<&'static SupportedProtocolVersion> {
    let versions = [(settings.protocols.tls13, &TLS13), (settings.protocols.tls12, &TLS12)];
    versions.into_iter().filter(|(wanted, _)| *wanted).map(|(_, version)| version).collect()
}

/// The ciphers that are wanted, in that order.
pub(super) fn provider(settings: &config::Tls) -> CryptoProvider {
    let mut provider = ring::default_provider();
    provider.cipher_suites = LASTING.clone();
    let chosen = |ciphers: &Ciphers, is_13: bool| -> Vec<SupportedCipherSuite> {
        let all = provider.cipher_suites.iter().filter(|suite| suite.tls13().is_some() == is_13);
        if ciphers.names.is_empty() {
            return all.copied().collect();
        }
        let of = |name: &&str| provider.cipher_suites.iter().find(|suite| suite.suite() == suite_of(name)).copied();
        ciphers.names.iter().filter_map(of).collect()
    };
    let mut suites = chosen(&settings.ciphersuites, true);
    suites.extend(chosen(&settings.ciphers, false));
    CryptoProvider { cipher_suites: suites, ..provider }
}

/// A connection may send so many records. rustls ends one of TLS 1.2, whose keys do not change, after 2^24, which is a bound for
/// records of 16 KiB; replies are mostly a hundredth of that, and other servers have no bound. (TLS 1.3 takes new keys then.)
const RECORDS_MAX: u64 = 1 << 36;

/// The ciphers, with that bound.
static LASTING: LazyLock<Vec<SupportedCipherSuite>> = LazyLock::new(|| {
    let lasting = |suite: SupportedCipherSuite| match suite {
        SupportedCipherSuite::Tls12(suite) => {
            let common = CipherSuiteCommon { confidentiality_limit: RECORDS_MAX, ..suite.common };
            SupportedCipherSuite::Tls12(Box::leak(Box::new(Tls12CipherSuite { common, ..*suite })))
        }
        of_tls_13 => of_tls_13,
    };
    ring::default_provider().cipher_suites.into_iter().map(lasting).collect()
});

/// The cipher that OpenSSL calls so.
fn suite_of(name: &str) -> CipherSuite {
    match name {
        "TLS_AES_256_GCM_SHA384" => CipherSuite::TLS13_AES_256_GCM_SHA384,
        "TLS_AES_128_GCM_SHA256" => CipherSuite::TLS13_AES_128_GCM_SHA256,
        "TLS_CHACHA20_POLY1305_SHA256" => CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
        "ECDHE-ECDSA-AES256-GCM-SHA384" => CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        "ECDHE-RSA-AES256-GCM-SHA384" => CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        "ECDHE-ECDSA-AES128-GCM-SHA256" => CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        "ECDHE-RSA-AES128-GCM-SHA256" => CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        "ECDHE-ECDSA-CHACHA20-POLY1305" => CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        "ECDHE-RSA-CHACHA20-POLY1305" => CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        _ => CipherSuite::TLS_NULL_WITH_NULL_NULL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn every_name_of_a_cipher_is_one_of_ours_and_the_other_way() {
        let mut config = Config::default();
        let names = |suites: Vec<SupportedCipherSuite>| suites.iter().map(|suite| suite.suite()).collect::<Vec<_>>();
        let all = names(provider(&config.tls).cipher_suites);
        assert_eq!(all.len(), 9);
        config.set(&[("tls-ciphers", "ALL"), ("tls-ciphersuites", "ALL")], false).expect("lists of ciphers");
        let mut named = names(provider(&config.tls).cipher_suites);
        assert_eq!(named.len(), 9);
        named.retain(|suite| !all.contains(suite));
        assert_eq!(named, []);
        config.set(&[("tls-ciphers", "ECDHE-RSA-AES128-GCM-SHA256")], false).expect("a cipher");
        config.set(&[("tls-ciphersuites", "TLS_AES_128_GCM_SHA256")], false).expect("a cipher");
        assert_eq!(
            names(provider(&config.tls).cipher_suites),
            [CipherSuite::TLS13_AES_128_GCM_SHA256, CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]
        );
    }
}
