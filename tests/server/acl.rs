//! Users: who may do what, and what becomes of those who may not any more.

#[path = "acl/differential.rs"]
mod differential;
#[path = "acl/ends.rs"]
mod ends;
#[path = "acl/files.rs"]
mod files;
#[path = "acl/holes.rs"]
mod holes;
#[path = "acl/told.rs"]
mod told;
