//! What a script asks of whoever calls it.

use crate::resp::{Error, Proto, Request};
use std::cell::{Cell, RefCell};

/// What has become of a command.
pub enum Answer {
    /// It has run, and its reply was written.
    Written,
    /// It must not run.
    Refused(Error),
    /// It runs elsewhere, or later: the script waits for [`super::Call::answer`].
    Later,
}

pub trait Host {
    /// Runs a command of the script's, if that can be done here and now.
    fn run(&self, request: Request, proto: Proto, out: &mut Vec<u8>) -> Answer;
    /// Whether whoever has called the script may run a command; none where there is no such command.
    fn allows(&self, request: Request) -> Option<bool>;
}

/// What a call's functions share with who drives it.
pub(super) struct Shared {
    /// How commands answer it (`redis.setresp`).
    pub proto: Cell<Proto>,
    /// A command that somebody else has to run.
    pub asked: RefCell<Option<Asked>>,
    /// What that has answered.
    pub answer: RefCell<Vec<u8>>,
    /// The call's own reply.
    pub reply: RefCell<Vec<u8>>,
    /// The name of what runs, as errors show it.
    pub name: Box<[u8]>,
    /// The error has been given its place.
    pub is_placed: Cell<bool>,
}

/// A command that a script waits for.
pub struct Asked {
    pub buffer: Vec<u8>,
    pub spans: Vec<(u32, u32)>,
    pub proto: Proto,
}

impl Asked {
    pub fn request(&self) -> Request<'_> {
        Request::new(&self.buffer, &self.spans)
    }
}

thread_local! {
    /// Who calls the script that runs now, and what it shares with its driver.
    static CURRENT: Cell<Option<(*const dyn Host, *const Shared)>> = const { Cell::new(None) };
}

/// Runs something during which a call speaks to this host.
pub(super) fn with_host<R>((host, shared): (&dyn Host, &Shared), work: impl FnOnce() -> R) -> R {
    // SAFETY: only the lifetime is forgotten; the address is taken back before the borrow ends.
    let host: *const (dyn Host + 'static) = unsafe { std::mem::transmute(std::ptr::from_ref(host)) };
    let before = CURRENT.replace(Some((host, shared)));
    let result = work();
    CURRENT.set(before);
    result
}

/// The host of the script that runs now. A call that is given up has none: it is killed before, and whoever comes here has
/// asked ([`crate::lua::check_killed`]).
pub(super) fn with_current<R>(work: impl FnOnce(&dyn Host) -> R) -> R {
    let (host, _) = CURRENT.get().expect("scripts run under a host");
    // SAFETY: see `with_host`, which is still running.
    work(unsafe { &*host })
}

/// The call that runs now.
pub(super) fn with_call<R>(work: impl FnOnce(&Shared) -> R) -> R {
    with_call_if_any(work).expect("scripts run under a host")
}

/// The call that runs now, unless it is given up.
pub(super) fn with_call_if_any<R>(work: impl FnOnce(&Shared) -> R) -> Option<R> {
    // SAFETY: see `with_host`, which is still running.
    CURRENT.get().map(|(_, shared)| work(unsafe { &*shared }))
}
