//! The machine on which scripts run: Lua 5.1, whose code can be suspended wherever it is, with the libraries that scripts
//! know, and nothing by which one of them could harm another.
//!
//! | file | what |
//! |---|---|
//! | `machine.rs` | a heap, its compiled chunks, and the threads and stacks on which they run |
//! | `sandbox.rs` | what scripts see of Lua |
//! | `strings.rs`, `formats.rs`, `search.rs`, `patterns.rs` | `string`, where its own could take for ever, or differs |
//! | `tables.rs`, `sorting.rs`, `random.rs` | the same of `table` and `math` |
//! | `cjson/`, `cmsgpack.rs`, `packing.rs`, `bits.rs` | the libraries that Redis adds: cjson, cmsgpack, struct, bit |
//! | `proxies.rs` | tables that cannot be changed |
//! | `output.rs`, `source.rs` | long strings, and source that is compiled, piece by piece |
//! | `run.rs`, `state.rs`, `memory.rs` | code that runs on a stack of its own; its values; where memory comes from |
//! | `ffi.rs`, `patches/` | the machine's functions in C, and what we change about them |
//!
//! This room knows nothing of the others. The machine itself is Lua 5.1.5 as it was published, with the patches of the
//! folder `patches`, which `build.rs` applies and compiles: each says which hole it mends. This room speaks to the machine
//! without a safe layer like mlua's, which keeps one running thread at a time in mind and runs each function of ours under
//! a landing pad of its own, while here runs change places in the middle of functions, and a process that aborts on panic
//! has nothing to land.

mod bits;
mod cjson;
mod cmsgpack;
mod ffi;
mod formats;
#[cfg(test)]
mod holes;
mod machine;
mod memory;
mod output;
mod packing;
mod patterns;
mod proxies;
mod random;
mod run;
mod sandbox;
mod search;
mod sorting;
mod source;
mod state;
mod strings;
mod tables;
#[cfg(test)]
mod trial;

pub use machine::{Busy, Chunk, Machine};
pub use memory::MAX_BYTES;
pub use proxies::protect;
pub use run::{Pause, Run, check_killed, wait};
pub use sandbox::{add_deprecated, refuse_unknown};
pub use state::{GLOBALS, Lua, Raise, Returned, Type, to_integer, upvalue};
