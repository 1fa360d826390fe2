//! Changes come faster than the disk takes them.

use super::{Admission, Asked, Conditions, Standing, Words};
use crate::command::spec::flag::{BY_CALLEE, WRITE};

pub fn words(_: Standing, conditions: &Conditions) -> Words {
    Words::denying(conditions.crowded, WRITE | BY_CALLEE)
}

pub fn answer(_: &Asked) -> Admission {
    Admission::Crowded
}
