//! Whether this server follows another one. So far only DEBUG says so.

use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Default)]
pub struct Role {
    is_read_only: AtomicBool,
    is_stale: AtomicBool,
}

impl Role {
    /// Nobody but the server that this one follows may write.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only.load(Ordering::Relaxed)
    }

    /// That server is out of reach, and its old data are not to be shown.
    pub fn is_stale(&self) -> bool {
        self.is_stale.load(Ordering::Relaxed)
    }

    pub fn set_read_only(&self, wants: bool) {
        self.is_read_only.store(wants, Ordering::Relaxed);
    }

    pub fn set_stale(&self, wants: bool) {
        self.is_stale.store(wants, Ordering::Relaxed);
    }
}
