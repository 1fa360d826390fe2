//! Everything that is tested from outside, with real server processes: one binary, since each one links the whole library anew.

mod acl;
mod aof;
mod bench;
mod clients;
mod common;
mod dashboard;
mod differential;
mod documents;
mod dump;
mod examples;
mod functions;
mod hostile;
mod linearizability;
mod metrics;
mod page;
mod propagation;
mod pubsub;
mod replication;
mod scan;
mod scripting;
mod security;
mod snapshots;
mod tls;
mod top;
mod tracking;
mod wire;
