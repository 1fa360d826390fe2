//! The append-only log: every change, as commands that make it again, in the multi-part form of Redis 7.
//!
//! - [`log`]: what is written, when, and when it is on the disk
//! - [`reading`]: a log from its first file to its last, as far as it is whole
//! - [`manifest`]: which files make it
//! - [`batch`]: how it is protected against damage; `pieces`: what else may stand in a file
//! - `behind`: whether damage was done by a crash
//! - [`steps`], [`seed`]: what else the manifest says: steps of the wall clock, where keys were
//!
//! # Why a kill between any two disk operations loses nothing
//!
//! The manifest alone says which files make the log, and is replaced at once: written beside, brought to the disk, given its
//! name, and its folder brought to the disk. Three rules hold for it.
//!
//! 1. *A file that it names is there before.* It was made, and its name brought to the disk, and what the manifest promises of
//!    it (the base: all of it; an increment begun at a start: its first head) as well. (One exception: an old single file,
//!    below.) So each start finds what it looks for.
//! 2. *A name is used once while anything has it.* A new file gets a number above those of all files that the manifest names,
//!    history included. So what is deleted as history is never what is written now. A file that is in no manifest was left by
//!    a procedure that did not come to its end, and is emptied when its name comes up again.
//! 3. *A file is deleted after the manifest has called it history, and never while it is called anything else.*
//!
//! What each procedure does, with what the next start finds between the steps:
//!
//! - *The first start, and the log turned on*: an increment is made; in a moment in which somebody holds everything the log
//!   goes into it from then on; what there is becomes a base; the manifest names both, and calls what was there before
//!   history; history is deleted; the manifest forgets it. Before the manifest: what was there before (the snapshot, or the log
//!   as it was turned off), since nothing is promised before the log is on, which is told after that. Behind it: base and
//!   increment. Where databases are emptied meanwhile there is a second increment, and a second moment: the manifest names the
//!   base of that moment, and what came since.
//! - *A rewrite*: the same, but that the manifest names the increment before the moment, so that what is acknowledged stands in
//!   named files all the time: until the base is there, the old files and the new one say everything together.
//! - *A rewrite while the log is off*: a base alone, and everything else is history. A start makes an increment.
//! - *A start*: what a crash has left behind the whole part is cut off, from the last file to the first, so that a crash in
//!   between leaves more than was to be left and no gap. It goes on in the last increment, where that has batches only, or
//!   nothing. Behind what redis-server wrote it begins another increment, whose first head, which says where in the log it is,
//!   is on the disk before the manifest has its name: what is torn behind that is known for what it is.
//! - *An old single file*: the manifest names it as the base, then it moves into the folder: the order of redis-server, which
//!   goes on from either. Between the two the base is missing, and the file is where it was: a start moves it.
//! - *A sync that failed*: what was written to that file is uncertain. Another increment is named, gets what could not be
//!   written any more, and a base is made beside. Until that is there no batch says that anything since is on the disk, and
//!   writes are refused: should the file before have lost its end, then it is a torn end, and nothing behind it was promised.
//!
//! # What is cut, and what ends a start
//!
//! A crash leaves a file that ends too early, or blocks that were never written, which are zeros. That is cut off, unless a
//! whole batch says that it was on the disk. Anything else before a whole batch was no crash: the start is refused, and says
//! where and how much would be lost, for who wants to lose that (`aof-load-corrupt-tail-max-size`). Batches are looked for
//! wherever they stand, since bytes may be missing or too many; how much is summed up in vain has a bound (`behind`).

pub mod batch;
mod behind;
pub mod log;
pub mod manifest;
mod pieces;
pub mod reading;
pub mod seed;
pub mod steps;
