//! What is said of TLS: the files, who needs a certificate, versions, ciphers.

use super::types::Choice;
use super::values::{Kind, Setting, ValueError, quote};

/// The directives that begin with `tls-`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// 0: no listener.
    pub port: u16,
    pub cert_file: String,
    pub key_file: String,
    /// Of the key's file; empty: it is not encrypted.
    pub key_file_pass: String,
    /// Connections to other servers are under TLS; which certificate those servers are shown, where it is another one.
    pub replication: bool,
    pub client_cert_file: String,
    pub client_key_file: String,
    pub client_key_file_pass: String,
    pub ca_cert_file: String,
    pub ca_cert_dir: String,
    pub auth_clients: AuthClients,
    pub protocols: Protocols,
    /// Of TLS 1.2.
    pub ciphers: Ciphers,
    /// Of TLS 1.3.
    pub ciphersuites: Ciphers,
    pub prefer_server_ciphers: bool,
    pub session_caching: bool,
    /// 0: as many as there is memory for.
    pub session_cache_size: u32,
    pub session_cache_timeout_s: u32,
    /// 0: the files are read when they are set, and not again.
    pub auto_reload_interval_s: u64,
}

/// Whether clients have to show a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthClients {
    No,
    #[default]
    Yes,
    /// Those that show one are turned away where it is not valid.
    Optional,
}

impl Choice for AuthClients {
    const NAMES: &'static [&'static str] = &["no", "yes", "optional"];
    const ALL: &'static [AuthClients] = &[AuthClients::No, AuthClients::Yes, AuthClients::Optional];
}

pub(super) const PROTOCOLS: &[&str] = &["TLSv1.2", "TLSv1.3"];
const OLD_PROTOCOLS: &[&str] = &["TLSv1", "TLSv1.0", "TLSv1.1"];

/// Versions of TLS, with the text that named them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protocols {
    pub tls12: bool,
    pub tls13: bool,
    text: String,
}

impl Default for Protocols {
    fn default() -> Protocols {
        Protocols { tls12: true, tls13: true, text: String::new() }
    }
}

impl Setting for Protocols {
    fn read(&mut self, _kind: &Kind, args: &[&str]) -> Result<(), ValueError> {
        let text = args.join(" ");
        let mut read = Protocols { tls12: false, tls13: false, text };
        for name in read.text.split_ascii_whitespace() {
            let is = |known: &str| known.eq_ignore_ascii_case(name);
            match PROTOCOLS.iter().position(|known| is(known)) {
                Some(0) => read.tls12 = true,
                Some(_) => read.tls13 = true,
                None if OLD_PROTOCOLS.iter().any(|old| is(old)) => return Err(ValueError::OldProtocol),
                None => return Err(ValueError::NotAChoice(PROTOCOLS)),
            }
        }
        if !read.tls12 && !read.tls13 {
            read = Protocols::default();
        }
        *self = read;
        Ok(())
    }

    fn show(&self) -> String {
        self.text.clone()
    }

    fn line(&self, _kind: &Kind) -> String {
        quote(&self.text)
    }
}

/// The ciphers of TLS 1.2 by the names of OpenSSL, in the order in which this server prefers them.
pub(super) const CIPHERS: &[&str] = &[
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-CHACHA20-POLY1305",
];
/// Those of TLS 1.3.
pub(super) const CIPHERSUITES: &[&str] =
    &["TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"];

/// Kinds of ciphers that OpenSSL has names for and that are not here: to exclude them takes nothing away.
const ABSENT: &[&str] = &[
    "LOW", "MEDIUM", "EXP", "EXPORT", "aNULL", "eNULL", "NULL", "ADH", "AECDH", "RC4", "RC2", "DES", "3DES", "MD5",
    "SHA1", "SHA", "PSK", "SRP", "DSS", "aDSS", "kRSA", "DH", "DHE", "kDHE", "EDH", "SSLv3", "TLSv1", "CAMELLIA",
    "SEED", "IDEA", "ARIA", "AESCCM", "AESCCM8",
];
/// What all of them are.
const EVERY: &[&str] = &["ALL", "DEFAULT", "HIGH", "ECDHE", "EECDH", "kECDHE", "kEECDH", "ECDH", "TLSv1.2"];

/// A list of ciphers as OpenSSL reads it, with the text that named them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ciphers {
    /// In the order in which they were named; empty: all.
    pub names: Vec<&'static str>,
    text: String,
}

impl Ciphers {
    fn parse(text: &str, known: &'static [&'static str]) -> Result<Vec<&'static str>, ValueError> {
        let (mut chosen, mut banned) = (Vec::new(), Vec::new());
        let is_separator = |letter: char| matches!(letter, ':' | ',' | ';') || letter.is_ascii_whitespace();
        for word in text.split(is_separator).filter(|word| !word.is_empty()) {
            let (sign, name) = match word.chars().next() {
                Some(sign @ ('!' | '-' | '+')) => (sign, &word[1..]),
                _ => (' ', word),
            };
            let unknown = || ValueError::NotACipher { name: word.to_owned(), known };
            let found: Vec<&'static str> = match known.iter().find(|cipher| cipher.eq_ignore_ascii_case(name)) {
                Some(cipher) => vec![cipher],
                None => {
                    let classes: Vec<&str> = name.split('+').collect();
                    let is_absent = classes.iter().any(|class| ABSENT.contains(class));
                    if is_absent && sign == ' ' || !classes.iter().all(|class| is_class(class)) {
                        return Err(unknown());
                    }
                    let is_in = |cipher: &&str| !is_absent && classes.iter().all(|class| has_class(cipher, class));
                    known.iter().copied().filter(is_in).collect()
                }
            };
            let fresh = |name: &&str, chosen: &Vec<&str>| !chosen.contains(name);
            match sign {
                ' ' => {
                    let more: Vec<_> = found.into_iter().filter(|name| fresh(name, &chosen)).collect();
                    chosen.extend(more);
                }
                '+' => {
                    // Those that are chosen already go to the end.
                    let (moved, stay): (Vec<_>, Vec<_>) = chosen.into_iter().partition(|name| found.contains(name));
                    chosen = stay;
                    chosen.extend(moved);
                }
                sign => {
                    chosen.retain(|name| !found.contains(name));
                    if sign == '!' {
                        banned.extend(found);
                    }
                }
            }
        }
        chosen.retain(|name| !banned.contains(name));
        if chosen.is_empty() && !text.trim().is_empty() {
            return Err(ValueError::NoCipher { known });
        }
        Ok(chosen)
    }
}

fn is_class(class: &str) -> bool {
    const CLASSES: &[&str] = &["AES", "AESGCM", "AES128", "AES256", "CHACHA20", "RSA", "aRSA", "ECDSA", "aECDSA"];
    CLASSES.contains(&class) || ABSENT.contains(&class) || EVERY.contains(&class)
}

fn has_class(cipher: &str, class: &str) -> bool {
    match class {
        "AES" | "AESGCM" => cipher.contains("AES"),
        "AES128" | "AES256" | "CHACHA20" => cipher.contains(class),
        // OpenSSL's RSA alone means the exchange of keys by RSA or a signature with it.
        "RSA" | "aRSA" => cipher.contains("-RSA-"),
        "ECDSA" | "aECDSA" => cipher.contains("-ECDSA-"),
        class => EVERY.contains(&class),
    }
}

impl Setting for Ciphers {
    fn read(&mut self, kind: &Kind, args: &[&str]) -> Result<(), ValueError> {
        let Kind::Ciphers(known) = *kind else { return Err(ValueError::WrongCount) };
        let [text] = args else { return Err(ValueError::WrongCount) };
        *self = Ciphers { names: Ciphers::parse(text, known)?, text: (*text).to_owned() };
        Ok(())
    }

    fn show(&self) -> String {
        self.text.clone()
    }

    fn line(&self, _kind: &Kind) -> String {
        quote(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn protocols(text: &str) -> Result<(bool, bool), ValueError> {
        let mut protocols = Protocols::default();
        protocols.read(&Kind::Words(PROTOCOLS), &[text]).map(|()| (protocols.tls12, protocols.tls13))
    }

    #[test]
    fn versions_are_those_that_are_named() {
        assert_eq!(protocols(""), Ok((true, true)));
        assert_eq!(protocols("TLSv1.2 tlsv1.3"), Ok((true, true)));
        assert_eq!(protocols("tlsv1.2"), Ok((true, false)));
        assert_eq!(protocols("TLSv1.3"), Ok((false, true)));
        for old in ["TLSv1", "TLSv1.1", "TLSv1.2 TLSv1.1"] {
            assert_eq!(protocols(old), Err(ValueError::OldProtocol));
        }
        assert_eq!(protocols("SSLv3"), Err(ValueError::NotAChoice(PROTOCOLS)));
    }

    #[test]
    fn lists_of_ciphers_are_read_as_openssl_reads_them() {
        let chosen = |text: &str| Ciphers::parse(text, CIPHERS);
        assert_eq!(chosen(""), Ok(vec![]));
        assert_eq!(chosen("DEFAULT:!MEDIUM"), Ok(CIPHERS.to_vec()));
        assert_eq!(chosen("ECDHE-RSA-AES128-GCM-SHA256"), Ok(vec!["ECDHE-RSA-AES128-GCM-SHA256"]));
        assert_eq!(
            chosen("ECDHE+CHACHA20:HIGH:!aNULL:!AES128:-AES256"),
            Ok(vec!["ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-RSA-CHACHA20-POLY1305"])
        );
        assert_eq!(
            chosen("aECDSA+AESGCM:+AES256"),
            Ok(vec!["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384"])
        );
        assert_eq!(chosen("ALL:!ALL"), Err(ValueError::NoCipher { known: CIPHERS }));
        for unknown in ["AES256-SHA", "DHE-RSA-AES256-GCM-SHA384", "RC4", "kRSA", "@STRENGTH", "!nothing"] {
            let error = chosen(unknown).expect_err(unknown).to_string();
            assert!(error.contains(unknown) && error.contains(CIPHERS[5]), "{error}");
        }
        let suite = "TLS_AES_128_GCM_SHA256";
        assert_eq!(Ciphers::parse(suite, CIPHERSUITES), Ok(vec![suite]));
    }

    proptest! {
        #[test]
        fn any_list_is_read_or_refused(text in "[-!+:, A-Za-z0-9_@=é]{0,60}") {
            let chosen = Ciphers::parse(&text, CIPHERS);
            prop_assert!(chosen.map_or(true, |names| names.iter().all(|name| CIPHERS.contains(name))));
        }
    }
}
