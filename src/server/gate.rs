//! May this command run, for this connection, now? The one place that says so: dispatch asks for each request, whether
//! it is to run or to be queued, and EXEC asks for all that was queued.
//!
//! A gate is two words of a command's flags ([`flag`]): what it must not have, and what it must have. It is made for
//! each turn of a connection, and again when a command has changed the session, so that a request costs one test.
//!
//! [`flag`]: crate::command::spec::flag

use crate::command::spec::Spec;
use crate::command::spec::flag::{
    ALLOW_BUSY, DENY_OOM, ENDS_MULTI, LOADING, MAY_REPLICATE, NO_AUTH, NO_MULTI, PROTECTED, READ, SUBSCRIBED,
    TELLS_HEALTH, WRITE,
};
use crate::config::DebugCommand;
use crate::resp::Error;

/// Commands that look at data, or change what others see.
const DATA: u32 = READ | CHANGES;
/// What CLIENT PAUSE WRITE holds back.
const CHANGES: u32 = WRITE | MAY_REPLICATE;
/// A flag that no command has.
const NOTHING: u32 = 1 << 31;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    deny: u32,
    require: u32,
    /// Somebody sees the commands that run.
    pub shows: bool,
}

/// What a connection is at the moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Standing {
    pub authenticated: bool,
    /// From this machine.
    pub local: bool,
    /// Between MULTI and EXEC.
    pub in_multi: bool,
    /// The other side takes what comes for messages, certain replies excepted.
    pub listens: bool,
    /// It sees all commands.
    pub monitors: bool,
}

/// What CLIENT PAUSE holds back at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Paused {
    #[default]
    No,
    Writes,
    All,
}

/// What is said of all connections.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// There is a password.
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
    /// The last snapshot has failed, and writes are to stop then.
    pub unsaved: bool,
    /// The log cannot be written.
    pub unlogged: bool,
}

/// Flags that some of several commands have, and flags that some of them lack.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flags {
    some_have: u32,
    some_lack: u32,
}

impl Flags {
    pub fn any_has(self, flag: u32) -> bool {
        self.some_have & flag != 0
    }

    pub fn add(&mut self, flags: u32) {
        self.some_have |= flags;
        self.some_lack |= !flags;
    }
}

/// Why a command may not run.
#[derive(Debug)]
pub enum Refusal {
    Error(Error),
    /// Later it may, or at once, unless one of the scripts that last is in its way.
    Later,
    /// When there is room for it.
    WithRoom,
}

impl Conditions {
    /// Nothing is said.
    pub fn none() -> Conditions {
        Conditions {
            has_password: false,
            debug: DebugCommand::No,
            paused: Paused::No,
            monitored: false,
            busy: false,
            full: false,
            short: false,
            loading: false,
            unsaved: false,
            unlogged: false,
        }
    }

    fn is_stranger(self, standing: Standing) -> bool {
        self.has_password && !standing.authenticated
    }

    /// Whether memory is too short for a command, or to queue it.
    fn lacks_memory(self, standing: Standing, spec: &Spec) -> bool {
        (self.full || self.short) && (spec.has(DENY_OOM) || standing.in_multi && !spec.has(ENDS_MULTI))
    }

    fn may_debug(self, standing: Standing) -> bool {
        self.debug.allows(standing.local)
    }
}

impl Gate {
    pub fn of(standing: Standing, conditions: Conditions) -> Gate {
        let mut gate = Gate { shows: conditions.monitored || standing.monitors, ..Gate::default() };
        if conditions.is_stranger(standing) {
            gate.require |= NO_AUTH;
        }
        if !conditions.may_debug(standing) {
            gate.deny |= PROTECTED;
        }
        if standing.in_multi {
            gate.deny |= NO_MULTI;
        }
        if standing.listens {
            gate.require |= SUBSCRIBED;
        }
        if standing.monitors {
            gate.deny |= DATA;
        }
        if conditions.full || conditions.short {
            gate.deny |= DENY_OOM;
            gate.require |= if standing.in_multi { ENDS_MULTI } else { 0 };
        }
        if conditions.unsaved || conditions.unlogged {
            gate.deny |= WRITE | TELLS_HEALTH;
        }
        if conditions.loading {
            gate.require |= LOADING;
        }
        if conditions.busy {
            gate.require |= ALLOW_BUSY;
        }
        match conditions.paused {
            Paused::No => {}
            Paused::Writes => gate.deny |= CHANGES,
            Paused::All => gate.require |= NOTHING,
        }
        gate
    }

    #[inline]
    pub fn admits(self, flags: u32) -> bool {
        flags & self.deny | !flags & self.require == 0
    }

    /// Whether all of several commands may run.
    pub fn admits_all(self, flags: Flags) -> bool {
        flags.some_have & self.deny | flags.some_lack & self.require == 0
    }
}

/// Why a gate does not admit a command; the first reason in the order in which Redis asks for them. `log_trouble` says why
/// the log cannot be written.
#[cold]
pub fn refusal(
    standing: Standing,
    conditions: Conditions,
    spec: &Spec,
    full_name: &str,
    log_trouble: impl FnOnce() -> String,
) -> Refusal {
    Refusal::Error(if spec.has(PROTECTED) && !conditions.may_debug(standing) {
        Error::text(
            "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from a \
             local connection, otherwise you need to set this option in the configuration file, and then restart the \
             server.",
        )
    } else if conditions.is_stranger(standing) && !spec.has(NO_AUTH) {
        Error::NoAuth
    } else if conditions.lacks_memory(standing, spec) {
        if !conditions.full {
            return Refusal::WithRoom;
        }
        Error::OutOfMemory
    } else if conditions.unsaved && spec.flags & (WRITE | TELLS_HEALTH) != 0 {
        Error::text(
            "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that \
             may modify the data set are disabled, because this instance is configured to report errors during writes if \
             RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details about \
             the RDB error.",
        )
    } else if conditions.unlogged && spec.flags & (WRITE | TELLS_HEALTH) != 0 {
        Error::quoting(&[b"MISCONF Errors writing to the AOF file: ", log_trouble().as_bytes()])
    } else if conditions.loading && !spec.has(LOADING) {
        Error::text("LOADING Redis is loading the dataset in memory")
    } else if standing.in_multi && spec.has(NO_MULTI) {
        Error::text("ERR Command not allowed inside a transaction")
    } else if standing.listens && !spec.has(SUBSCRIBED) {
        Error::err(format_args!(
            "Can't execute '{full_name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in \
             this context"
        ))
    } else if standing.monitors && spec.flags & DATA != 0 {
        // To Redis who monitors is a kind of replica.
        Error::text("ERR Replica can't interact with the keyspace")
    } else {
        return Refusal::Later;
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::spec::flag::FAST;

    #[test]
    fn a_word_denies_and_a_word_requires() {
        let gate = Gate { deny: WRITE, require: NO_AUTH, shows: false };
        assert!(gate.admits(NO_AUTH | READ));
        assert!(!gate.admits(NO_AUTH | WRITE));
        assert!(!gate.admits(READ));
        assert!(Gate::default().admits(0) && Gate::default().admits(WRITE));
        assert!(!Gate { require: NOTHING, ..Gate::default() }.admits(!NOTHING));
    }

    #[test]
    fn several_are_admitted_where_each_is() {
        let gate = Gate { deny: WRITE, require: FAST, shows: false };
        let all = |of: &[u32]| {
            let mut flags = Flags::default();
            of.iter().for_each(|of| flags.add(*of));
            gate.admits_all(flags)
        };
        for commands in [&[][..], &[FAST], &[FAST | READ, FAST], &[FAST, READ], &[FAST, FAST | WRITE]] {
            assert_eq!(all(commands), commands.iter().all(|flags| gate.admits(*flags)), "{commands:?}");
        }
    }
}
