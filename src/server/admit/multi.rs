//! A transaction, in which some commands make no sense.

use super::{Admission, Asked, Conditions, Standing, Words};
use crate::command::spec::flag::NO_MULTI;
use crate::resp::Error;

pub fn words(standing: Standing, _: &Conditions) -> Words {
    Words::denying(standing.in_multi, NO_MULTI)
}

pub fn answer(_: &Asked) -> Admission {
    Admission::Refused(Error::text("ERR Command not allowed inside a transaction"))
}
