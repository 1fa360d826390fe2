//! CLIENT PAUSE.

use super::{Admission, Asked, Conditions, Paused, Standing, Words};
use crate::command::spec::flag::{MAY_REPLICATE, NOTHING, WRITE};

pub fn words(_: Standing, conditions: &Conditions) -> Words {
    match conditions.paused {
        Paused::No => Words::default(),
        Paused::Writes => Words::denying(true, WRITE | MAY_REPLICATE),
        Paused::All => Words::requiring(true, NOTHING),
    }
}

pub fn answer(_: &Asked) -> Admission {
    Admission::Paused
}
