//! Memory above its ceiling. What is queued needs memory, too, whatever it is.

use super::{Admission, Asked, Conditions, Standing, Words};
use crate::command::spec::flag::{BY_CALLEE, DENY_OOM, ENDS_MULTI};
use crate::resp::Error;

pub fn words(standing: Standing, conditions: &Conditions) -> Words {
    let is_short = conditions.full || conditions.short;
    Words::denying(is_short, DENY_OOM | BY_CALLEE).and(Words::requiring(is_short && standing.in_multi, ENDS_MULTI))
}

pub fn answer(asked: &Asked) -> Admission {
    if asked.conditions.full { Admission::Refused(Error::OutOfMemory) } else { Admission::WithRoom }
}
