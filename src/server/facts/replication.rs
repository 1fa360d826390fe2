//! Who follows this server, and whom it follows.

use super::sections::several;
use super::{Facts, Gathered};
use crate::server::client::replica::Stage;
use crate::server::state::global::ID_DIGITS;
use crate::server::state::replication::Replication;

pub fn tell(told: &mut Facts, from: &Gathered) {
    let replication = &from.server.global.replication;
    told.field("role", "master");
    tell_replicas(told, from);
    let (ids, feed) = (replication.ids(), &from.server.global.feed);
    told.field("master_failover_state", "no-failover");
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
