//! The protocol as a client sees it, byte by byte: framing and its limits, sessions, transactions, connections,
//! administration, and the life of the process.
//!
//! Most tests run against EmberDB with one shard, with three, and against redis-server, so that what they expect is
//! what Redis 7.0.15 answers; tests of what Redis 7.0 lacks run against EmberDB alone.

#[path = "wire/acl.rs"]
mod acl;
#[path = "wire/administration.rs"]
mod administration;
#[path = "wire/admission.rs"]
mod admission;
#[path = "wire/advisor.rs"]
mod advisor;
#[path = "wire/arguments.rs"]
mod arguments;
#[path = "wire/blocking.rs"]
mod blocking;
#[path = "wire/cardinality.rs"]
mod cardinality;
#[path = "wire/ceiling.rs"]
mod ceiling;
#[path = "wire/client_eviction.rs"]
mod client_eviction;
#[path = "wire/compressed_lists.rs"]
mod compressed_lists;
#[path = "wire/condemned.rs"]
mod condemned;
#[path = "wire/connections.rs"]
mod connections;
#[path = "wire/corners.rs"]
mod corners;
#[path = "wire/cost.rs"]
mod cost;
#[path = "wire/deaths.rs"]
mod deaths;
#[path = "wire/dump.rs"]
mod dump;
#[path = "wire/foresight.rs"]
mod foresight;
#[path = "wire/framing.rs"]
mod framing;
#[path = "wire/fresh.rs"]
mod fresh;
#[path = "wire/groups.rs"]
mod groups;
#[path = "wire/groups_told.rs"]
mod groups_told;
#[path = "wire/guard.rs"]
mod guard;
#[path = "wire/hop.rs"]
mod hop;
#[path = "wire/http.rs"]
mod http;
#[path = "wire/introspection.rs"]
mod introspection;
#[path = "wire/leases.rs"]
mod leases;
#[path = "wire/lifecycle.rs"]
mod lifecycle;
#[path = "wire/live.rs"]
mod live;
#[path = "wire/long_transactions.rs"]
mod long_transactions;
#[path = "wire/many_keys.rs"]
mod many_keys;
#[path = "wire/members.rs"]
mod members;
#[path = "wire/memory.rs"]
mod memory;
#[path = "wire/monitor.rs"]
mod monitor;
#[path = "wire/moves.rs"]
mod moves;
#[path = "wire/newer.rs"]
mod newer;
#[path = "wire/order_of_evictions.rs"]
mod order_of_evictions;
#[path = "wire/overwritten.rs"]
mod overwritten;
#[path = "wire/pauses.rs"]
mod pauses;
#[path = "wire/pins.rs"]
mod pins;
#[path = "wire/policies.rs"]
mod policies;
#[path = "wire/polygons.rs"]
mod polygons;
#[path = "wire/pressure.rs"]
mod pressure;
#[path = "wire/scored_members.rs"]
mod scored_members;
#[path = "wire/secrets.rs"]
mod secrets;
#[path = "wire/session.rs"]
mod session;
#[path = "wire/standalone.rs"]
mod standalone;
#[path = "wire/statistics.rs"]
mod statistics;
#[path = "wire/strangers.rs"]
mod strangers;
#[path = "wire/stream_groups.rs"]
mod stream_groups;
#[path = "wire/streams.rs"]
mod streams;
#[path = "wire/subkeys.rs"]
mod subkeys;
#[path = "wire/supervised.rs"]
mod supervised;
#[path = "wire/timers.rs"]
mod timers;
#[path = "wire/transactions.rs"]
mod transactions;
#[path = "wire/watch.rs"]
mod watch;
#[path = "wire/without_ring.rs"]
mod without_ring;
