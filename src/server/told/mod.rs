//! What connections are told beside the replies to their requests, and what leaves them.
//!
//! | file | what |
//! |---|---|
//! | `pubsub.rs` | messages, and the events of keys |
//! | `tracking.rs` | that what a connection has read has changed |
//! | `live.rs` | the results of live queries |
//! | `monitor.rs` | the commands of others |
//! | `users.rs` | that users have changed |
//! | `output.rs` | the output of a connection, and its limits |

pub mod live;
pub mod monitor;
pub mod output;
pub mod pubsub;
pub mod tracking;
pub mod users;

use crate::server::state::Server;
use std::rc::Rc;

/// Does something on a shard when nothing else runs there, so that none of its connections is in use, in the order of these
/// calls.
fn on_shard(server: &Rc<Server>, target: usize, work: impl FnOnce(&Rc<Server>) + Send + 'static) {
    if target == server.shard.id {
        let here = server.clone();
        server.shard.defer(move || work(&here));
    } else {
        server.shard.tell(target, move |shard| work(&Server::of(shard)));
    }
}
