//! Who is shown the stream of changes, as one shard's server knows them.

use crate::journal::Reader;
use crate::server::client::ClientRef;
use std::cell::RefCell;

/// A replica is given more where less than this waits to be sent to it: the rest lies where all replicas share it.
const REPLICA_BYTES: usize = 256 << 10;

/// Connections of this shard that are shown the stream.
#[derive(Default)]
pub struct Followers(RefCell<Vec<Follower>>);

struct Follower {
    client: ClientRef,
    reader: Reader,
    shows: Shows,
}

/// To whom the stream is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// To who has asked for the journal: whatever has come, and within the limits of those who listen.
    Journal,
    /// To a replica: no more than it reads.
    Replica,
    /// To a replica as soon as it says that it has loaded its snapshot.
    ReplicaLater,
}

/// What there is for a connection.
pub struct Shown {
    pub client: ClientRef,
    pub is_replica: bool,
    pub bytes: Vec<u8>,
    /// There was more, which is lost to the connection.
    pub has_missed: bool,
}

/// How many bytes may lie there.
#[derive(Clone, Copy)]
pub struct MostBytes {
    pub of_journal: usize,
    pub of_replica: usize,
}

impl Followers {
    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    pub fn add(&self, client: ClientRef, reader: Reader, shows: Shows) {
        self.0.borrow_mut().push(Follower { client, reader, shows });
    }

    /// What reads for a connection, which is shown nothing any more.
    pub fn remove(&self, client: u64) -> Option<Reader> {
        let mut followers = self.0.borrow_mut();
        let at = followers.iter().position(|follower| follower.client.id == client)?;
        Some(followers.swap_remove(at).reader)
    }

    /// A replica has loaded its snapshot; whether it was waited for.
    pub fn begin(&self, client: u64) -> bool {
        let mut followers = self.0.borrow_mut();
        let waits = |follower: &&mut Follower| follower.client.id == client && follower.shows == Shows::ReplicaLater;
        followers.iter_mut().find(waits).map(|follower| follower.shows = Shows::Replica).is_some()
    }

    /// How many bytes wait for a replica, what is about to be sent included.
    pub fn waiting(&self, client: u64) -> usize {
        let followers = self.0.borrow();
        let of = followers.iter().find(|follower| follower.client.id == client);
        of.map_or(0, |Follower { client, reader, .. }| reader.waiting() + client.state.borrow().unsent())
    }

    /// What has come for each of them. The shard is rung for when there is more; a replica that has not read what it was
    /// sent is given the rest when it has.
    pub fn take(&self, most: MostBytes) -> Vec<Shown> {
        let mut followers = self.0.borrow_mut();
        let shown = followers.iter_mut().map(|Follower { client, reader, shows }| {
            let is_replica = *shows != Shows::Journal;
            reader.set_limit(if is_replica { most.of_replica } else { most.of_journal });
            let room = match shows {
                Shows::Journal => usize::MAX,
                Shows::Replica => REPLICA_BYTES.saturating_sub(client.state.borrow().unsent()),
                Shows::ReplicaLater => 0,
            };
            let mut bytes = Vec::new();
            while bytes.len() < room
                && let Some(piece) = reader.take()
            {
                bytes.extend_from_slice(&piece);
            }
            Shown { client: client.clone(), is_replica, bytes, has_missed: reader.has_missed() }
        });
        shown.filter(|shown| !shown.bytes.is_empty() || shown.has_missed).collect()
    }
}
