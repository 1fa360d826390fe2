//! Who is shown the journal, as one shard's server knows them.

use crate::journal::Reader;
use crate::server::client::ClientRef;
use std::cell::RefCell;

/// Connections of this shard that are shown the journal.
#[derive(Default)]
pub struct Followers(RefCell<Vec<Follower>>);

struct Follower {
    client: ClientRef,
    reader: Reader,
}

/// What there is for a connection.
pub struct Shown {
    pub client: ClientRef,
    pub bytes: Vec<u8>,
    /// There was more, which is lost to the connection.
    pub has_missed: bool,
}

impl Followers {
    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    pub fn add(&self, client: ClientRef, reader: Reader) {
        self.0.borrow_mut().push(Follower { client, reader });
    }

    /// What reads for a connection, which is shown nothing any more.
    pub fn remove(&self, client: u64) -> Option<Reader> {
        let mut followers = self.0.borrow_mut();
        let at = followers.iter().position(|follower| follower.client.id == client)?;
        Some(followers.swap_remove(at).reader)
    }

    /// What has come for each of them. The shard is rung for when there is more.
    pub fn take(&self, limit: usize) -> Vec<Shown> {
        let mut followers = self.0.borrow_mut();
        let shown = followers.iter_mut().map(|Follower { client, reader }| {
            reader.set_limit(limit);
            let mut bytes = Vec::new();
            while let Some(piece) = reader.take() {
                bytes.extend_from_slice(&piece);
            }
            Shown { client: client.clone(), bytes, has_missed: reader.has_missed() }
        });
        shown.filter(|shown| !shown.bytes.is_empty() || shown.has_missed).collect()
    }
}
