//! A replica, to which nobody but its primary writes.

use super::{Admission, Asked, Conditions, Standing, Words};
use crate::command::spec::flag::{BY_CALLEE, WRITE};
use crate::resp::Error;

pub fn words(_: Standing, conditions: &Conditions) -> Words {
    Words::denying(conditions.read_only, WRITE | BY_CALLEE)
}

pub const READ_ONLY: Error = Error::text("READONLY You can't write against a read only replica.");

pub fn answer(_: &Asked) -> Admission {
    Admission::Refused(READ_ONLY)
}
