//! Scripts that last. Whether one of them is in the way of this request is looked at then (`run/in_the_way.rs`).

use super::{Admission, Asked, Conditions, Standing, Words};
use crate::command::spec::flag::ALLOW_BUSY;

pub fn words(_: Standing, conditions: &Conditions) -> Words {
    Words::requiring(conditions.busy, ALLOW_BUSY)
}

pub fn answer(_: &Asked) -> Admission {
    Admission::UnlessBusy
}
