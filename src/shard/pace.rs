//! For how long something may go on before others have their turn.

use crate::clock::store_us;
use crate::keyspace::PREFETCHED;
use std::time::Duration;

/// What takes longer lets others have their turn.
pub const LONG_US: u64 = 200;

/// How long the executor's own work may have to wait for a task that does not yield.
pub const PREEMPT: Duration = Duration::from_millis(1);

/// Watches over commands that run one after the other. They are short nearly always: the clock is read after the first
/// and then once in a while, or after each where they are not.
pub struct Pace {
    began_us: u64,
    commands: u64,
    slow: bool,
}

impl Pace {
    pub fn new(began_us: u64) -> Pace {
        Pace { began_us, commands: 0, slow: false }
    }

    /// One more command has run: whether others should have their turn now.
    #[inline]
    pub fn is_long(&mut self) -> bool {
        self.commands += 1;
        if !self.slow && self.commands != 1 && !self.commands.is_multiple_of(PREFETCHED as u64) {
            return false;
        }
        let spent_us = store_us().saturating_sub(self.began_us);
        self.slow = spent_us / self.commands > LONG_US / PREFETCHED as u64;
        spent_us > LONG_US
    }
}
