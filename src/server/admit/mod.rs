//! May this request run, for whoever asks, now? The one place that says so: dispatch asks for each request, whether it is to
//! run or to be queued, EXEC asks for all that was queued, and a script for each command that it calls.
//!
//! A condition is a file with two functions: `words` says which flags ([`flag`]) a command must not have, and which it must
//! have, while the condition holds; `answer` says what is told to a request that lacks them. A new condition is a file, a
//! field of [`Conditions`], which `state/conditions.rs` fills, and its place in one or both of the lists below.
//!
//! The words of all conditions together are a [`Gate`]. It is made for each turn of a connection, and again when a command
//! has changed the session, so that a request costs one test. Only a request that does not pass is asked about condition by
//! condition, in the order in which Redis does, since that decides which error a client sees. What calls a script has a flag
//! for that alone (`BY_CALLEE`): whether the script passes its own words say.
//!
//! | file | what |
//! |---|---|
//! | `protected.rs` | DEBUG is not for everybody |
//! | `stranger.rs` | the password was not said |
//! | `user.rs` | what the user may not do |
//! | `multi.rs` | what makes no sense between MULTI and EXEC |
//! | `memory.rs`, `disk.rs` | there is no room; the disk takes nothing |
//! | `replicas.rs` | too few replicas are near |
//! | `read_only.rs`, `stale.rs` | a replica: not written to; without its primary |
//! | `subscriber.rs`, `monitoring.rs` | connections to which messages come |
//! | `loading.rs`, `busy.rs`, `paused.rs`, `crowded.rs` | not yet |
//! | `script.rs`, `promise.rs` | what a script may not call, and one that has promised not to write |
//!
//! [`flag`]: crate::command::spec::flag

mod busy;
mod crowded;
mod disk;
mod loading;
mod memory;
mod monitoring;
mod multi;
mod paused;
mod promise;
mod protected;
mod read_only;
mod replicas;
mod script;
mod stale;
mod stranger;
mod subscriber;
pub mod user;

pub use loading::IS_LOADING;
pub use read_only::READ_ONLY;

use crate::acl::Denied;
use crate::command::spec::flag::NOTHING;
use crate::config::DebugCommand;
use crate::resp::Error;

/// Flags that a command must not have, and flags that it must have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Words {
    deny: u32,
    require: u32,
}

impl Words {
    fn denying(holds: bool, flags: u32) -> Words {
        Words { deny: if holds { flags } else { 0 }, require: 0 }
    }

    fn requiring(holds: bool, flags: u32) -> Words {
        Words { deny: 0, require: if holds { flags } else { 0 } }
    }

    fn and(self, other: Words) -> Words {
        Words { deny: self.deny | other.deny, require: self.require | other.require }
    }

    /// Whether all of several commands have the flags for it.
    #[inline]
    fn admit(self, flags: Flags) -> bool {
        flags.some_have & self.deny | flags.some_lack & self.require == 0
    }
}

/// The words of all conditions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    words: Words,
    /// Of all but the user's.
    others: Words,
    /// Somebody sees the commands that run.
    pub shows: bool,
}

impl Gate {
    #[inline]
    pub fn admits(self, flags: u32) -> bool {
        self.words.admit(Flags::of(flags))
    }

    /// Whether only the user may be in the way.
    #[inline]
    pub fn admits_but_for_user(self, flags: u32) -> bool {
        self.others.admit(Flags::of(flags))
    }

    /// Whether all of several commands may run.
    pub fn admits_all(self, flags: Flags) -> bool {
        self.words.admit(flags)
    }
}

/// Who asks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Standing {
    pub authenticated: bool,
    /// The user may not do everything.
    pub is_restricted: bool,
    /// From this machine.
    pub local: bool,
    /// Between MULTI and EXEC.
    pub in_multi: bool,
    /// The other side takes what comes for messages, certain replies excepted.
    pub listens: bool,
    /// It sees all commands.
    pub monitors: bool,
    /// It is a replica.
    pub is_replica: bool,
    /// A script, and not the connection that has called it.
    pub in_script: bool,
    /// A script that has promised not to write.
    pub reads_only: bool,
}

/// What CLIENT PAUSE holds back at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Paused {
    #[default]
    No,
    Writes,
    All,
}

/// What is said of everybody who asks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Conditions {
    /// The default user is not for everybody.
    pub has_password: bool,
    /// Who may use DEBUG.
    pub debug: DebugCommand,
    pub paused: Paused,
    /// Somebody sees all commands.
    pub monitored: bool,
    /// A script lasts, so that it may be in a command's way.
    pub busy: bool,
    /// Memory is above its ceiling, and nobody has anything to give back.
    pub full: bool,
    /// Memory is above its ceiling, and others are about to bring it below.
    pub short: bool,
    /// A snapshot is loaded.
    pub loading: bool,
    /// One is loaded, perhaps beside data that are served.
    pub arriving: bool,
    /// The last snapshot has failed, and writes are to stop then.
    pub unsaved: bool,
    /// The log cannot be written.
    pub unlogged: bool,
    /// More waits to be written to the log than may.
    pub crowded: bool,
    /// Too few replicas are near.
    pub lacks_replicas: bool,
    /// Another server has the data, and this one follows it: nobody else writes.
    pub read_only: bool,
    /// That server is out of reach, and its old data are not to be shown.
    pub stale: bool,
}

/// Flags that some of several commands have, and flags that some of them lack.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flags {
    some_have: u32,
    some_lack: u32,
}

impl Flags {
    #[inline]
    pub fn of(flags: u32) -> Flags {
        Flags { some_have: flags, some_lack: !flags }
    }

    pub fn add(&mut self, flags: u32) {
        self.some_have |= flags;
        self.some_lack |= !flags;
    }
}

/// A request as the conditions look at it.
pub struct Asked<'a> {
    pub full_name: &'a str,
    /// Of the command, or of all that EXEC is about to run.
    pub flags: Flags,
    pub standing: Standing,
    pub conditions: Conditions,
    /// Why the log cannot be written.
    pub log_trouble: &'a dyn Fn() -> String,
    /// Why the user may not run it.
    pub denied: &'a dyn Fn() -> Option<Denied>,
}

/// What becomes of a request.
#[derive(Debug)]
pub enum Admission {
    Runs,
    Refused(Error),
    /// It waits for memory that others are about to give back.
    WithRoom,
    /// It waits until the disk has taken some of what waits to be written to the log.
    Crowded,
    /// It runs unless one of the scripts that last is in its way.
    UnlessBusy,
    /// It waits for the end of CLIENT PAUSE.
    Paused,
}

macro_rules! in_order {
    ($gate:ident, $admit:ident: $($condition:ident)*) => {
        fn $gate(standing: Standing, conditions: &Conditions) -> Words {
            Words::default()$(.and($condition::words(standing, conditions)))*
        }

        fn $admit(asked: &Asked) -> Admission {
            $(if !$condition::words(asked.standing, &asked.conditions).admit(asked.flags) {
                match $condition::answer(asked) {
                    // It looks at more than flags, and has nothing to say.
                    Admission::Runs => {}
                    answer => return answer,
                }
            })*
            Admission::Runs
        }
    };
}

in_order!(words_of_connection, admit_to_connection:
    protected stranger multi user memory disk replicas read_only subscriber stale loading busy monitoring paused crowded);
in_order!(words_of_script, admit_to_script: script protected stale user promise read_only disk replicas memory);

impl Gate {
    /// For the commands of a connection.
    pub fn of(standing: Standing, conditions: &Conditions) -> Gate {
        let others = words_of_connection(Standing { is_restricted: false, ..standing }, conditions);
        let words = others.and(user::words(standing, conditions));
        Gate { words, others, shows: conditions.monitored || standing.monitors }
    }

    /// Each request is asked about.
    pub fn closed() -> Gate {
        let words = Words { deny: 0, require: NOTHING };
        Gate { words, others: words, shows: false }
    }

    /// For the commands that a script calls. Whether the script may be called was asked already: what stands in the way of
    /// that (a pause, a password) does not in its commands'.
    pub fn of_script(standing: Standing, conditions: &Conditions) -> Gate {
        let words = words_of_script(standing, conditions);
        Gate { words, others: words, shows: conditions.monitored }
    }
}

/// What becomes of a request of a connection.
#[cold]
pub fn admit(asked: &Asked) -> Admission {
    admit_to_connection(asked)
}

/// The error for a command of a script, if it may not run.
#[cold]
pub fn admit_in_script(asked: &Asked) -> Result<(), Error> {
    match admit_to_script(asked) {
        Admission::Refused(error) => Err(error),
        Admission::Runs | Admission::WithRoom | Admission::Crowded | Admission::UnlessBusy | Admission::Paused => {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::spec::flag::{FAST, NO_AUTH, READ, WRITE};

    #[test]
    fn a_word_denies_and_a_word_requires() {
        let gate = |deny, require| Gate { words: Words { deny, require }, ..Gate::default() };
        assert!(gate(WRITE, NO_AUTH).admits(NO_AUTH | READ));
        assert!(!gate(WRITE, NO_AUTH).admits(NO_AUTH | WRITE));
        assert!(!gate(WRITE, NO_AUTH).admits(READ));
        assert!(Gate::default().admits(0) && Gate::default().admits(WRITE));
        assert!(!gate(0, NOTHING).admits(!NOTHING));
    }

    #[test]
    fn several_are_admitted_where_each_is() {
        let words = Words { deny: WRITE, require: FAST };
        let gate = Gate { words, ..Gate::default() };
        for commands in [&[][..], &[FAST], &[FAST | READ, FAST], &[FAST, READ], &[FAST, FAST | WRITE]] {
            let mut flags = Flags::default();
            commands.iter().for_each(|of| flags.add(*of));
            assert_eq!(words.admit(flags), commands.iter().all(|flags| gate.admits(*flags)), "{commands:?}");
        }
    }
}
