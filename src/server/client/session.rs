//! What commands know and change of their connection.

use super::live::LiveQueries;
use super::multi::Multi;
use super::name_bytes;
use super::replica::Replica;
use super::tracks::Tracks;
use super::watched::WatchedKeys;
use crate::acl::{DEFAULT, User};
use crate::keyspace::Tracker;
use crate::net::ListenerKind;
use crate::resp::Proto;
use crate::server::admit::{Gate, Standing};
use std::collections::BTreeSet;
use std::os::fd::RawFd;
use std::sync::Arc;

/// A connection's socket and its other end, as they come from the listener.
pub struct Peer {
    /// Ids grow in the order in which connections are accepted.
    pub id: u64,
    pub fd: RawFd,
    /// Its two ends, as CLIENT LIST shows them.
    pub addr: String,
    pub laddr: String,
    /// From this machine.
    pub local: bool,
    /// Of the listener that has accepted it.
    pub kind: ListenerKind,
}

impl Peer {
    /// Through the Unix domain socket.
    pub fn is_unix(&self) -> bool {
        self.kind == ListenerKind::RespUnix
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Close {
    #[default]
    No,
    /// When everything is sent.
    AfterReplies,
    Now,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyMode {
    #[default]
    On,
    Off,
    /// Nothing is answered to the next command.
    SkipNext,
    /// This is that command, which may say otherwise.
    Skipped,
}

/// What of everything a snapshot has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Contents {
    #[default]
    Everything,
    Functions,
    Nothing,
}

/// What a connection has said of itself for SYNC (REPLCONF).
#[derive(Clone, Default)]
pub struct Asked {
    /// A snapshot, and no changes after it.
    pub rdb_only: bool,
    pub contents: Contents,
    /// A snapshot whose length is not known at its begin is understood, and that data may get another name.
    pub takes_eof: bool,
    pub takes_new_ids: bool,
    /// It is a server that knows of deadlines of fields.
    pub knows_fields: bool,
    /// Where it listens; that of the connection where it does not say so.
    pub port: u16,
    pub address: String,
}

pub struct Session {
    pub peer: Peer,
    pub created_us: u64,
    pub used_us: u64,
    pub last_command: &'static str,
    pub commands: u64,
    /// How many these were when a script was shown to who monitors.
    pub shown: Option<u64>,
    pub lib_name: Vec<u8>,
    pub lib_ver: Vec<u8>,
    // What RESET takes back, see `Session::reset`.
    pub name: Vec<u8>,
    pub db: usize,
    pub proto: Proto,
    /// Who it is; nobody where no connection has sent its commands.
    pub user: Option<Arc<User>>,
    /// Its user may not do everything.
    pub is_restricted: bool,
    /// It is its user: the default user without a password, or by its word.
    pub authenticated: bool,
    pub reply_mode: ReplyMode,
    pub no_evict: bool,
    pub no_touch: bool,
    // What RESET takes back and others know of.
    pub channels: BTreeSet<Box<[u8]>>,
    pub patterns: BTreeSet<Box<[u8]>>,
    pub shard_channels: BTreeSet<Box<[u8]>>,
    /// What the names of all of them take.
    pub heard_bytes: usize,
    pub watched: WatchedKeys,
    /// It sees all commands (MONITOR).
    pub monitors: bool,
    /// It is shown all changes (DEBUG JOURNAL).
    pub follows: bool,
    /// It is told when what it has read changes (CLIENT TRACKING): how, and what its commands take along.
    pub tracks: Option<Box<Tracks>>,
    pub tracks_bytes: usize,
    pub tracker: Option<Tracker>,
    /// It is told the results of these (LIVE).
    pub live: LiveQueries,
    /// CLIENT CACHING was about the next command.
    pub has_caching: bool,
    /// It is the server that this one follows.
    pub is_primary: bool,
    /// It is a replica of this server's.
    pub replica: Option<Arc<Replica>>,
    /// It is sent a snapshot (SYNC): what, and that it is.
    pub asked: Asked,
    pub is_sent_snapshot: bool,
    /// Commands between MULTI and EXEC.
    pub multi: Option<Box<Multi>>,
    /// What an EXEC that goes from command to command has queued, and has to answer so far.
    pub exec_bytes: usize,
    /// Which commands may run now.
    pub gate: Gate,
    /// A command has ended the connection.
    pub close: Close,
}

impl Session {
    /// A connection is the default user, by its word or, where that one is for everybody, without.
    pub fn new(peer: Peer, now_us: u64, default_user: Option<Arc<User>>) -> Session {
        Session {
            peer,
            created_us: now_us,
            used_us: now_us,
            last_command: "NULL",
            commands: 0,
            shown: None,
            lib_name: Vec::new(),
            lib_ver: Vec::new(),
            name: Vec::new(),
            db: 0,
            proto: Proto::default(),
            is_restricted: default_user.as_ref().is_some_and(|user| !user.is_unrestricted()),
            authenticated: default_user.as_ref().is_none_or(|user| user.is_for_everybody()),
            user: default_user,
            reply_mode: ReplyMode::On,
            no_evict: false,
            no_touch: false,
            channels: BTreeSet::new(),
            patterns: BTreeSet::new(),
            shard_channels: BTreeSet::new(),
            heard_bytes: 0,
            watched: WatchedKeys::default(),
            monitors: false,
            follows: false,
            tracks: None,
            tracks_bytes: 0,
            tracker: None,
            live: LiveQueries::default(),
            has_caching: false,
            is_primary: false,
            replica: None,
            asked: Asked::default(),
            is_sent_snapshot: false,
            multi: None,
            exec_bytes: 0,
            gate: Gate::default(),
            close: Close::No,
        }
    }

    /// For commands that no connection has sent.
    pub fn of_nobody() -> Session {
        let (addr, laddr, kind) = (String::new(), String::new(), ListenerKind::Resp);
        let peer = Peer { id: 0, fd: -1, addr, laddr, local: true, kind };
        Session::new(peer, 0, None)
    }

    /// What only the connection itself knows is as it was at the start. Its subscriptions, watched keys, MONITOR, DEBUG
    /// JOURNAL, CLIENT TRACKING and live queries are to be ended by the caller, since others know of them.
    pub fn reset(&mut self, default_user: &Arc<User>) {
        debug_assert!(self.subscriptions() == 0 && self.watched.is_empty() && !self.monitors && !self.follows);
        debug_assert!(self.tracks.is_none() && self.live.is_empty() && self.replica.is_none());
        self.name.clear();
        self.db = 0;
        self.proto = Proto::default();
        self.authenticated = default_user.is_for_everybody();
        self.set_user(default_user.clone());
        // As in Redis, whose RESET is not answered where CLIENT REPLY SKIP was about it.
        if self.reply_mode != ReplyMode::Skipped {
            self.reply_mode = ReplyMode::On;
        }
        self.no_evict = false;
        self.no_touch = false;
        self.asked = Asked::default();
        self.multi = None;
    }

    /// It is this user from now on, or its user is so.
    pub fn set_user(&mut self, user: Arc<User>) {
        self.is_restricted = !user.is_unrestricted();
        self.user = Some(user);
    }

    pub fn user_name(&self) -> &[u8] {
        self.user.as_ref().map_or(DEFAULT, |user| &user.name)
    }

    /// Tracks what it reads from now on, or not.
    pub fn set_tracks(&mut self, tracks: Option<Box<Tracks>>, shard: usize) {
        self.tracker = tracks.as_ref().map(|tracks| tracks.tracker(self.peer.id, shard));
        self.has_caching = tracks.as_ref().is_some_and(|tracks| tracks.caching);
        let prefixes = tracks.iter().flat_map(|tracks| &tracks.prefixes);
        self.tracks_bytes = prefixes.map(|prefix| name_bytes(prefix)).sum();
        self.tracks = tracks;
    }

    /// What it has sent, and what others know of it, but for its input and output.
    pub fn memory_bytes(&self) -> usize {
        let queued = self.multi.as_ref().map_or(0, |multi| multi.bytes());
        let named = self.name.capacity() + self.lib_name.capacity() + self.lib_ver.capacity();
        queued
            + self.exec_bytes
            + self.watched.bytes()
            + self.heard_bytes
            + self.tracks_bytes
            + self.live.bytes()
            + named
    }

    /// What CLIENT CACHING says of the next command.
    pub fn set_caching(&mut self, caching: bool, shard: usize) {
        if let Some(mut tracks) = self.tracks.take() {
            tracks.caching = caching;
            self.set_tracks(Some(tracks), shard);
        }
    }

    pub fn subscriptions(&self) -> usize {
        self.channels.len() + self.patterns.len() + self.shard_channels.len()
    }

    /// Whether messages come to it, or results of live queries.
    pub fn listens(&self) -> bool {
        self.subscriptions() > 0 || !self.live.is_empty()
    }

    /// Whether it is sent what it did not ask for just now: messages, or what others do.
    pub fn is_told(&self) -> bool {
        self.listens() || self.monitors || self.follows
    }

    /// As the gate asks for it.
    pub fn standing(&self) -> Standing {
        Standing {
            authenticated: self.authenticated,
            is_restricted: self.is_restricted,
            local: self.peer.local,
            in_multi: self.multi.is_some(),
            listens: self.listens() && self.proto == Proto::Resp2,
            monitors: self.monitors,
            is_replica: self.replica.is_some(),
            ..Standing::default()
        }
    }
}
