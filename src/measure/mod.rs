//! For programs that measure servers: the load generator (`src/bin/emberdb-bench`) and the benches. No other room
//! imports this one, and it imports none, since it is for any RESP server.
//!
//! ```text
//!  client     a connection for one thing after the other        report     medians and ratios of rounds, tables
//!  link       a connection with many requests in flight         plot       lines over two axes, as SVG
//!  skim       where replies end, for links                      process    CPU time and memory of processes
//!  resp       commands to bytes, bytes to values                wall       the clock that deadlines are of
//!  socket     TCP, TLS or unix                                  target     which server, and where
//!  failure    what went wrong between the two           tls        the client's side of TLS
//!  generated  man pages, completions
//! ```

pub mod client;
pub mod failure;
pub mod generated;
pub mod link;
pub mod plot;
pub mod process;
pub mod report;
pub mod resp;
pub mod skim;
pub mod socket;
pub mod target;
pub mod tls;
pub mod wall;
