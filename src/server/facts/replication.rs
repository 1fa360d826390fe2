//! Who follows this server, and whom it follows.

use super::{Facts, Gathered, Value, several};
use crate::server::client::replica::Stage;
use crate::server::state::following::LinkFacts;
use crate::server::state::replication::ID_DIGITS;
use crate::server::state::replication::Replication;

pub fn tell(told: &mut Facts, from: &Gathered) {
    let replication = &from.server.global.replication;
    match from.server.global.following.facts() {
        Some(link) => tell_link(told, from, &link),
        None => told.field("role", "master"),
    }
    tell_replicas(told, from);
    let (ids, feed) = (replication.ids(), &from.server.global.feed);
    told.field("master_failover_state", replication.failover.word());
    told.field("master_replid", ids.id);
    let (second, second_offset) = match ids.second {
        // (That of the first byte that whoever knows that name alone does not have.)
        Some((id, position)) => (id, position as i64 + 1),
        None => ("0".repeat(ID_DIGITS), -1),
    };
    told.field("master_replid2", second);
    told.field("master_repl_offset", feed.position());
    told.field("second_repl_offset", second_offset);
    let kept = feed.kept();
    let (first, bytes) = kept.map_or((0, 0), |(first, bytes)| (first + 1, bytes));
    told.field("repl_backlog_active", u8::from(kept.is_some()));
    told.field("repl_backlog_size", from.config.repl_backlog_bytes);
    told.field("repl_backlog_first_byte_offset", first);
    told.field("repl_backlog_histlen", bytes);
}

/// The server that is followed.
fn tell_link(told: &mut Facts, from: &Gathered, link: &LinkFacts) {
    let position = from.server.global.feed.position();
    told.field("role", "slave");
    told.field("master_host", link.primary.host.as_str());
    told.field("master_port", link.primary.port);
    told.field("master_link_status", if link.is_up { "up" } else { "down" });
    told.field("master_last_io_seconds_ago", link.last_io_s);
    told.field("master_sync_in_progress", u8::from(link.sync.is_some()));
    told.field("slave_read_repl_offset", link.read.max(position));
    told.field("slave_repl_offset", position);
    if let Some((bytes, read)) = link.sync {
        let share = if bytes > 0 { read as f64 * 100.0 / bytes as f64 } else { 0.0 };
        told.field("master_sync_total_bytes", bytes);
        told.field("master_sync_read_bytes", read);
        told.field("master_sync_left_bytes", bytes as i64 - read as i64);
        told.field("master_sync_perc", Value::Real(share, 2));
        told.field("master_sync_last_io_seconds_ago", link.sync_silent_s);
    }
    if let Some(down_since_s) = link.down_since_s {
        told.field("master_link_down_since_seconds", down_since_s);
    }
    told.field("slave_priority", from.config.replica_priority);
    told.field("slave_read_only", u8::from(from.config.replica_read_only));
    told.field("replica_announced", u8::from(from.config.replica_announced));
}

fn tell_replicas(told: &mut Facts, from: &Gathered) {
    let replication = &from.server.global.replication;
    let replicas = replication.replicas();
    told.field("connected_slaves", replicas.len());
    if from.config.min_replicas_to_write > 0 && from.config.min_replicas_max_lag_s > 0 {
        told.field("min_slaves_good_slaves", replication.near());
    }
    for (index, replica) in replicas.iter().enumerate() {
        let value = several([
            ("ip", replica.address.as_str().into()),
            ("port", replica.port.into()),
            ("state", replica.stage().word().into()),
            ("offset", replica.acked().into()),
            ("lag", replica.lag_s().into()),
        ]);
        told.field(format!("slave{index}"), value);
    }
}

/// Replicas as ROLE tells them: address, port, and how far they are.
pub fn online(from: &Replication) -> Vec<[String; 3]> {
    let online = from.replicas().into_iter().filter(|replica| replica.stage() == Stage::Online);
    online.map(|replica| [replica.address.clone(), replica.port.to_string(), replica.acked().to_string()]).collect()
}
