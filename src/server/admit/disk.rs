//! A disk that does not take what is written to it.

use super::{Admission, Asked, Conditions, Standing, Words};
use crate::command::spec::flag::{BY_CALLEE, TELLS_HEALTH, WRITE};
use crate::resp::Error;

pub fn words(standing: Standing, conditions: &Conditions) -> Words {
    let flags = if standing.in_script { WRITE } else { WRITE | TELLS_HEALTH | BY_CALLEE };
    Words::denying(conditions.unsaved || conditions.unlogged, flags)
}

pub fn answer(asked: &Asked) -> Admission {
    Admission::Refused(if asked.conditions.unsaved {
        Error::text(
            "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that \
             may modify the data set are disabled, because this instance is configured to report errors during writes if \
             RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details about \
             the RDB error.",
        )
    } else {
        Error::quoting(&[b"MISCONF Errors writing to the AOF file: ", (asked.log_trouble)().as_bytes()])
    })
}
