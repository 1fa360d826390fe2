//! A connection under TLS: a line for the transport, which sees ciphertext, around one of the server's, which sees
//! plaintext. A turn's output is encrypted at once, and a piece of it at a time where it is long.

use super::layer::Layer;
use crate::net::{Line, LineId, Transport};
use crate::observe::log;
use crate::observe::memory::Transient;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Plaintext that is encrypted at a time: as much as shows how far a slow reader has come.
const PIECE_BYTES: usize = 256 * 1024;
/// Buffers that are kept for the next who needs one, and how long they may be.
const SPARE_BUFFERS: usize = 16;
const SPARE_BYTES: usize = 64 * 1024;

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
    /// What was decrypted last.
    static PLAIN: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// What TLS holds for a connection, as the server sees it.
#[derive(Default)]
pub struct Held {
    pub bytes: Cell<usize>,
    /// Ciphertext of what is there only to tell somebody of something.
    pub transient: RefCell<Transient>,
}

pub struct TlsLine {
    inner: Rc<dyn Line>,
    transport: Transport,
    id: LineId,
    layer: RefCell<Layer>,
    output: RefCell<Output>,
    /// Plaintext that came with the end of the handshake.
    first: Cell<Vec<u8>>,
    held: Rc<Held>,
    /// Whether what was taken of the server last is there only to tell somebody of something.
    is_transient: Box<dyn Fn() -> bool>,
    /// The server knows that the other side says no more.
    finished: Cell<bool>,
    failed: Cell<bool>,
}

/// What the server has given to be sent.
#[derive(Default)]
struct Output {
    plain: Vec<u8>,
    /// How much of it is encrypted, and how much of that is being sent.
    encrypted: usize,
    in_flight: usize,
    /// The transport sends something.
    sending: bool,
}

impl TlsLine {
    /// `first` is what was decrypted already. Calls `inner` as a transport would. `held` is kept up to date; see [`Transient`]
    /// for `is_transient`, which is about the output that was taken last.
    pub fn new(
        inner: Rc<dyn Line>,
        (transport, id): (Transport, LineId),
        (layer, first): (Layer, Vec<u8>),
        (held, is_transient): (Rc<Held>, Box<dyn Fn() -> bool>),
    ) -> Rc<TlsLine> {
        let (layer, output, first) = (RefCell::new(layer), RefCell::default(), Cell::new(first));
        let (finished, failed) = (Cell::new(false), Cell::new(false));
        let line = TlsLine { inner, transport, id, layer, output, first, held, is_transient, finished, failed };
        line.count();
        Rc::new(line)
    }

    /// Goes on with what the handshake has left; once the line is started, and not within a turn of somebody else.
    pub fn begin(&self) {
        self.received(&[]);
    }

    fn count(&self) {
        let output = self.output.borrow();
        let sending = if output.sending { output.in_flight } else { 0 };
        self.held.bytes.set(self.layer.borrow().memory_bytes() + sending);
    }

    /// There is no way on: what says so is sent if it can be, and the connection ends.
    fn fail(&self, reason: &dyn std::fmt::Display) {
        if !self.failed.replace(true) {
            log::verbose(format_args!("A connection was ended: TLS: {reason}"));
            self.transport.shut(self.id);
        }
    }
}

impl Line for TlsLine {
    fn received(&self, bytes: &[u8]) {
        let mut plain = self.first.take();
        if plain.is_empty() {
            plain = PLAIN.take();
            plain.clear();
        }
        let (result, has_outgoing, has_ended) = {
            let mut layer = self.layer.borrow_mut();
            let result = if self.failed.get() { Ok(()) } else { layer.receive(bytes, &mut plain) };
            (result, layer.has_outgoing(), layer.has_ended())
        };
        self.count();
        if !plain.is_empty() {
            self.inner.received(&plain);
        }
        if plain.capacity() <= SPARE_BYTES {
            PLAIN.set(plain);
        }
        if let Err(error) = result {
            self.fail(&error);
            return;
        }
        if has_outgoing {
            self.transport.mark(self.id);
        }
        if has_ended {
            self.finished();
        }
    }

    fn take_output(&self) -> Option<Vec<u8>> {
        if self.failed.get() {
            return None;
        }
        let is_empty = {
            let output = self.output.borrow();
            output.encrypted == output.plain.len()
        };
        let more = if is_empty { self.inner.take_output() } else { None };
        let mut output = self.output.borrow_mut();
        let mut layer = self.layer.borrow_mut();
        if let Some(plain) = more {
            (output.plain, output.encrypted) = (plain, 0);
        }
        let end = (output.encrypted + PIECE_BYTES).min(output.plain.len());
        if end == output.encrypted && !layer.has_outgoing() {
            return None;
        }
        let mut out = SPARE.with_borrow_mut(Vec::pop).unwrap_or_default();
        if end == output.encrypted {
            out.append(&mut layer.take_outgoing());
        } else if let Err(error) = layer.encrypt(&output.plain[output.encrypted..end], &mut out) {
            drop((output, layer));
            self.fail(&error);
            return None;
        }
        output.in_flight = end - output.encrypted;
        output.encrypted = end;
        output.sending = true;
        drop((output, layer));
        if (self.is_transient)() {
            self.held.transient.borrow_mut().set(out.capacity());
        }
        self.count();
        Some(out)
    }

    fn sent(&self, _bytes: usize, buffer: Option<Vec<u8>>) {
        // What was sent of a record says nothing of the plaintext: it counts when the whole piece is sent.
        let Some(mut buffer) = buffer else { return };
        let was_transient = {
            let mut transient = self.held.transient.borrow_mut();
            let bytes = transient.bytes();
            transient.set(0);
            bytes > 0
        };
        if buffer.capacity() <= SPARE_BYTES && !was_transient {
            buffer.clear();
            SPARE.with_borrow_mut(|spare| {
                if spare.len() < SPARE_BUFFERS {
                    spare.push(buffer);
                }
            });
        }
        let (bytes, whole, has_more) = {
            let mut output = self.output.borrow_mut();
            output.sending = false;
            let bytes = std::mem::take(&mut output.in_flight);
            let is_whole = bytes > 0 && output.encrypted == output.plain.len();
            let whole = is_whole.then(|| std::mem::take(&mut output.plain));
            if is_whole {
                output.encrypted = 0;
            }
            (bytes, whole, output.encrypted < output.plain.len())
        };
        self.count();
        if has_more || self.layer.borrow().has_outgoing() {
            self.transport.mark(self.id);
        }
        if bytes > 0 {
            self.inner.sent(bytes, whole);
        } else {
            // Something may have come to be said meanwhile.
            self.transport.mark(self.id);
        }
    }

    fn finished(&self) {
        if !self.finished.replace(true) {
            self.inner.finished();
        }
    }

    fn ended(&self) {
        self.held.bytes.set(0);
        self.held.transient.borrow_mut().set(0);
        self.inner.ended();
    }

    fn farewell(&self) -> Vec<u8> {
        let (Ok(mut layer), Ok(output)) = (self.layer.try_borrow_mut(), self.output.try_borrow()) else {
            return Vec::new();
        };
        let is_whole = output.encrypted == output.plain.len();
        match (output.sending, is_whole && !self.failed.get()) {
            (true, _) => Vec::new(),
            (false, true) => layer.take_farewell(),
            (false, false) => layer.take_outgoing(),
        }
    }
}
