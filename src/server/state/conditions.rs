//! What is said at a moment of everybody who asks for something.

use super::Server;
use crate::config::DebugCommand;
use crate::server::admit::{Conditions, Paused};
use crate::shard::Space;
use std::sync::atomic::Ordering;

impl Server {
    /// For a connection, where there is so much memory.
    pub fn conditions(&self, space: Space) -> Conditions {
        let (config, global) = (self.shard.config(), &self.global);
        Conditions {
            has_password: self.users.asks_for_password(),
            debug: config.enable_debug_command,
            paused: self.paused(),
            monitored: self.is_monitored(),
            busy: global.lasting_scripts.any(),
            // (A replica gives nothing up by itself.)
            full: space == Space::None && !global.following.is_replica(),
            short: space == Space::Soon && !global.following.is_replica(),
            loading: global.snapshots.is_loading(),
            arriving: global.snapshots.is_taking_in(),
            unsaved: global.snapshots.stops_writes(&config),
            unlogged: global.log.refuses_writes(),
            crowded: global.log.is_crowded_with(self.shard.unsaid_bytes()),
            lacks_replicas: global.replication.stops_writes(&config) && !global.following.is_replica(),
            read_only: global.following.is_read_only(),
            stale: global.following.is_stale(),
        }
    }

    /// Whether somebody, on whatever shard, sees what this shard's connections do.
    fn is_monitored(&self) -> bool {
        self.global.monitors.iter().any(|monitors| monitors.load(Ordering::Acquire) > 0)
    }

    fn paused(&self) -> Paused {
        let global = &self.global;
        if global.pauses.until_us() <= self.shard.clock.now().us {
            Paused::No
        } else if global.pauses.is_of_all() {
            Paused::All
        } else {
            Paused::Writes
        }
    }
}

/// For what a log says: nothing is in the way of what has been.
pub fn of_the_past() -> Conditions {
    Conditions { debug: DebugCommand::Yes, ..Conditions::default() }
}
