//! The state of TLS of one connection. rustls keeps no buffers here: what it needs of ciphertext is kept until a record is
//! whole, plaintext is appended to what the caller has, and ciphertext is written where it is sent from.

use super::files::{VERSION_ADVICE, is_about_version};
use rustls::ServerConfig;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus};
use std::cell::RefCell;
use std::sync::Arc;
use thiserror::Error;

/// What ciphertext of records that are not whole may be: a record has at most 18 KiB, a message of the handshake, which may
/// come in several, 64 KiB. Whoever has not said who they are may have it held, too.
const INCOMING_BYTES_MAX: usize = 96 * 1024;
/// Of plaintext in a record.
const RECORD_BYTES: usize = 16 * 1024;
/// What a record has beside that, at most.
const RECORD_OVERHEAD_BYTES: usize = 64;

/// What rustls holds of a connection, roughly: keys, and boxes around them.
const STATE_BYTES: usize = 3072;

#[derive(Debug, Error)]
pub enum Failure {
    #[error("{0}")]
    Tls(#[from] rustls::Error),
    #[error("a message is too long")]
    TooLong,
    #[error("its keys are used up")]
    Exhausted,
    #[error("it has ended")]
    Over,
}

impl Failure {
    /// For the log.
    pub fn reason(&self) -> String {
        match self {
            Failure::Tls(error) if is_about_version(error) => format!("the client's certificate: {VERSION_ADVICE}"),
            failure => failure.to_string(),
        }
    }
}

pub struct Layer {
    connection: UnbufferedServerConnection,
    /// Ciphertext that is no whole record.
    incoming: Vec<u8>,
    /// Messages of TLS itself that are to be sent before anything else.
    outgoing: Vec<u8>,
    /// The handshake is over.
    established: bool,
    /// The other side has said that it says no more.
    ended: bool,
    /// It has failed, or has said its last: rustls may be asked nothing any more.
    over: bool,
}

thread_local! {
    /// Where ciphertext is decrypted, if it begins a record.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Layer {
    /// # Errors
    /// The configuration is of no use.
    pub fn new(config: Arc<ServerConfig>) -> Result<Layer, Failure> {
        let connection = UnbufferedServerConnection::new(config)?;
        Ok(Layer {
            connection,
            incoming: Vec::new(),
            outgoing: Vec::new(),
            established: false,
            ended: false,
            over: false,
        })
    }

    /// Takes what has come; appends what it says to `plain`, which may be filled where this fails, too.
    ///
    /// # Errors
    /// The connection is of no use any more. What tells the other side is in [`Layer::take_outgoing`].
    pub fn receive(&mut self, bytes: &[u8], plain: &mut Vec<u8>) -> Result<(), Failure> {
        if self.over {
            return Ok(());
        }
        if !self.incoming.is_empty() {
            self.incoming.extend_from_slice(bytes);
            let mut incoming = std::mem::take(&mut self.incoming);
            let (used, result) = self.process(&mut incoming, plain);
            if used < incoming.len() && !self.ended {
                incoming.drain(..used);
                self.incoming = incoming;
            }
            return self.check(result);
        }
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.clear();
            scratch.extend_from_slice(bytes);
            let (used, result) = self.process(scratch, plain);
            if !self.ended {
                self.incoming.extend_from_slice(&scratch[used..]);
            }
            self.check(result)
        })
    }

    fn check(&mut self, result: Result<(), Failure>) -> Result<(), Failure> {
        let is_too_long = self.incoming.len() > INCOMING_BYTES_MAX;
        let result = if is_too_long { result.and(Err(Failure::TooLong)) } else { result };
        if result.is_err() {
            self.over = true;
            self.incoming = Vec::new();
        }
        result
    }

    /// Works on ciphertext as far as it is whole; how much of it is done with.
    fn process(&mut self, ciphertext: &mut [u8], plain: &mut Vec<u8>) -> (usize, Result<(), Failure>) {
        let mut used = 0;
        loop {
            let UnbufferedStatus { mut discard, state } = self.connection.process_tls_records(&mut ciphertext[used..]);
            let mut goes_on = true;
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        match record {
                            Ok(record) => {
                                plain.extend_from_slice(record.payload);
                                discard += record.discard;
                            }
                            Err(error) => return (used + discard, Err(error.into())),
                        }
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => encode(&mut data, &mut self.outgoing),
                // It is kept in order until it is.
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => self.ended = true,
                Ok(ConnectionState::WriteTraffic(_)) => {
                    self.established = true;
                    goes_on = false;
                }
                Ok(_) => goes_on = false,
                Err(error) => {
                    used += discard;
                    self.take_last_words(&mut ciphertext[used..]);
                    return (used, Err(error.into()));
                }
            }
            used += discard;
            if !goes_on {
                return (used, Ok(()));
            }
        }
    }

    fn take_last_words(&mut self, ciphertext: &mut [u8]) {
        // (It would look at what is wrong once more if there were nothing to send.)
        while self.connection.wants_write() {
            match self.connection.process_tls_records(ciphertext).state {
                Ok(ConnectionState::EncodeTlsData(mut data)) => encode(&mut data, &mut self.outgoing),
                _ => return,
            }
        }
    }

    /// Appends ciphertext of `plain` to `out`, behind what is to be sent before it.
    ///
    /// # Errors
    /// The connection is of no use any more.
    pub fn encrypt(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), Failure> {
        if self.over {
            return Err(Failure::Over);
        }
        out.append(&mut self.outgoing);
        let records = plain.len() / RECORD_BYTES + 1;
        let mut room = plain.len() + records * RECORD_OVERHEAD_BYTES;
        loop {
            // (What is not whole of a message stays where rustls has found it.)
            let UnbufferedStatus { discard, state } = self.connection.process_tls_records(&mut self.incoming);
            match state {
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    let at = out.len();
                    out.resize(at + room, 0);
                    match traffic.encrypt(plain, &mut out[at..]) {
                        Ok(len) => {
                            out.truncate(at + len);
                            self.incoming.drain(..discard);
                            return Ok(());
                        }
                        Err(EncryptError::InsufficientSize(size)) => {
                            out.truncate(at);
                            room = size.required_size;
                        }
                        Err(EncryptError::EncryptExhausted) => return Err(Failure::Exhausted),
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => encode(&mut data, out),
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => self.ended = true,
                Ok(_) => return Err(Failure::Over),
                Err(error) => return Err(error.into()),
            }
            self.incoming.drain(..discard);
        }
    }

    /// The end of what is said, as far as there is a connection.
    pub fn take_farewell(&mut self) -> Vec<u8> {
        let mut out = std::mem::take(&mut self.outgoing);
        if !self.established || std::mem::replace(&mut self.over, true) {
            return out;
        }
        loop {
            match self.connection.process_tls_records(&mut self.incoming).state {
                Ok(ConnectionState::EncodeTlsData(mut data)) => encode(&mut data, &mut out),
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => self.ended = true,
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    let at = out.len();
                    out.resize(at + 2 * RECORD_OVERHEAD_BYTES, 0);
                    let len = traffic.queue_close_notify(&mut out[at..]).unwrap_or(0);
                    out.truncate(at + len);
                    return out;
                }
                _ => return out,
            }
        }
    }

    /// What is to be sent before anything else.
    pub fn take_outgoing(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.outgoing)
    }

    pub fn has_outgoing(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// The handshake is over.
    pub fn is_established(&self) -> bool {
        self.established
    }

    /// The other side has said that it says no more.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Bytes that it holds.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Layer>() + STATE_BYTES + self.incoming.capacity() + self.outgoing.capacity()
    }
}

fn encode(data: &mut EncodeTlsData<'_, ServerConnectionData>, out: &mut Vec<u8>) {
    let at = out.len();
    if let Err(EncodeError::InsufficientSize(size)) = data.encode(&mut []) {
        out.resize(at + size.required_size, 0);
        let len = data.encode(&mut out[at..]).unwrap_or(0);
        out.truncate(at + len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustls::pki_types::{PrivatePkcs8KeyDer, ServerName};
    use rustls::version::{TLS12, TLS13};
    use rustls::{ClientConfig, ClientConnection, RootCertStore};
    use std::io::{Read, Write};
    use std::sync::LazyLock;

    /// What a server and its clients of either version go by.
    static CONFIGS: LazyLock<(Arc<ServerConfig>, [Arc<ClientConfig>; 2])> = LazyLock::new(|| {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let certificate = made.cert.der().clone();
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()).into();
        let provider = || Arc::new(rustls::crypto::ring::default_provider());
        let server = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let server = server.expect("versions").with_no_client_auth().with_single_cert(vec![certificate.clone()], key);
        let mut roots = RootCertStore::empty();
        roots.add(certificate).expect("a certificate");
        let client = |version| {
            let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[version]);
            Arc::new(builder.expect("a version").with_root_certificates(roots.clone()).with_no_client_auth())
        };
        (Arc::new(server.expect("a pair")), [client(&TLS12), client(&TLS13)])
    });

    fn pair(version: usize) -> (ClientConnection, Layer) {
        let (server, clients) = &*CONFIGS;
        let name = ServerName::try_from("localhost").expect("a name");
        let client = ClientConnection::new(clients[version].clone(), name).expect("a client");
        (client, Layer::new(server.clone()).expect("a server"))
    }

    fn sent_by(client: &mut ClientConnection) -> Vec<u8> {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).expect("taken");
        }
        bytes
    }

    /// What the client reads in this ciphertext.
    fn read_by(client: &mut ClientConnection, mut bytes: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        while !bytes.is_empty() {
            client.read_tls(&mut bytes).expect("taken");
            client.process_new_packets().expect("valid");
            let _ = client.reader().read_to_end(&mut plain);
        }
        plain
    }

    fn shake_hands(client: &mut ClientConnection, layer: &mut Layer) {
        for _ in 0..4 {
            layer.receive(&sent_by(client), &mut Vec::new()).expect("valid");
            read_by(client, &layer.take_outgoing());
        }
        assert!(layer.is_established() && !client.is_handshaking());
    }

    fn pieces(bytes: &[u8], cuts: &[usize]) -> Vec<Vec<u8>> {
        let (mut pieces, mut at) = (Vec::new(), 0);
        for cut in cuts.iter().cycle().take(bytes.len() + 1) {
            let end = (at + cut + 1).min(bytes.len());
            pieces.push(bytes[at..end].to_vec());
            at = end;
            if at == bytes.len() {
                break;
            }
        }
        pieces
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn ciphertext_may_come_in_any_pieces(
            version in 0..2usize,
            cuts in proptest::collection::vec(0..6000usize, 1..20),
            lens in proptest::collection::vec(0..40_000usize, 1..6),
        ) {
            let (mut client, mut layer) = pair(version);
            let mut plain = Vec::new();
            while client.is_handshaking() || !layer.is_established() {
                for piece in pieces(&sent_by(&mut client), &cuts) {
                    layer.receive(&piece, &mut plain).expect("valid");
                }
                read_by(&mut client, &layer.take_outgoing());
            }
            for len in lens {
                let said: Vec<u8> = (0..len).map(|at| at as u8).collect();
                let mut sent = Vec::new();
                for piece in said.chunks(10_000) {
                    client.writer().write_all(piece).expect("taken");
                    sent.append(&mut sent_by(&mut client));
                }
                plain.clear();
                for piece in pieces(&sent, &cuts) {
                    layer.receive(&piece, &mut plain).expect("valid");
                    // An answer goes out while a record is here in part.
                    let mut out = Vec::new();
                    layer.encrypt(b"answer", &mut out).expect("it goes on");
                    prop_assert_eq!(read_by(&mut client, &out), b"answer");
                }
                prop_assert!(plain == said);
                let mut out = Vec::new();
                layer.encrypt(&said, &mut out).expect("it goes on");
                if len > 0 {
                    prop_assert!(read_by(&mut client, &out) == said);
                }
            }
            prop_assert!(layer.incoming.is_empty() && layer.incoming.capacity() == 0);
            client.send_close_notify();
            layer.receive(&sent_by(&mut client), &mut plain).expect("valid");
            prop_assert!(layer.has_ended());
            layer.receive(&[7; 100], &mut plain).expect("nothing counts any more");
            read_by(&mut client, &layer.take_farewell());
        }

        #[test]
        fn no_bytes_do_any_harm(
            version in 0..2usize,
            established in any::<bool>(),
            garbage in proptest::collection::vec(any::<u8>(), 1..3000),
            at in any::<proptest::sample::Index>(),
            cuts in proptest::collection::vec(0..300usize, 1..5),
        ) {
            let (mut client, mut layer) = pair(version);
            if established {
                shake_hands(&mut client, &mut layer);
                client.writer().write_all(b"PING").expect("taken");
            }
            let mut bytes = sent_by(&mut client);
            let at = at.index(bytes.len());
            match garbage.len() % 3 {
                0 => bytes.splice(at..at, garbage.clone()).for_each(drop),
                1 => bytes[at] ^= garbage[0].max(1),
                _ => bytes = garbage.clone(),
            }
            let mut plain = Vec::new();
            for piece in pieces(&bytes, &cuts) {
                if layer.receive(&piece, &mut plain).is_err() {
                    break;
                }
            }
            prop_assert!(layer.incoming.len() <= INCOMING_BYTES_MAX);
            layer.take_farewell();
        }
    }
}
