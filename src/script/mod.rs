//! Lua scripts and functions: how they are kept and called, what they can ask of the server, and how replies become values
//! of Lua's and values replies.
//!
//! | file | what |
//! |---|---|
//! | `call.rs` | one call of a script or a function, from its arguments to its reply |
//! | `scripts.rs` | the compiled scripts of one shard |
//! | `functions.rs` | the functions of one shard: libraries that it has loaded |
//! | `loading.rs` | a library's code that runs, to say which functions there are |
//! | `libraries.rs` | the sources of all libraries, which shards share |
//! | `api.rs` | the library `redis` |
//! | `shelf.rs` | the sources of all scripts, which shards share |
//! | `values.rs` | replies as values, values as replies |
//! | `header.rs` | the first line of a script, with its flags |
//! | `host.rs` | what a script asks of whoever calls it |
//!
//! This room knows how a script runs and nothing of keys, shards and connections: whoever calls a script is its
//! [`Host`], and runs its commands.

mod api;
mod call;
mod functions;
mod header;
mod host;
mod libraries;
mod loading;
mod scripts;
mod shelf;
mod values;

pub use api::Visible;
pub use call::{Bounds, Call, Called, Outcome, bytes_of};
pub use functions::{Functions, Loaded};
pub use header::{Flags, Header};
pub use host::{Answer, Asked, Host};
pub use libraries::{Catalog, Function, Heading, Libraries, Library};
pub use loading::{Loading, Registered};
pub use scripts::{Script, Scripts};
pub use shelf::{Conduct, Shelf, named};
