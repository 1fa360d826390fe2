//! A script that has promised not to write.

use super::{Admission, Asked, Conditions, Standing, Words};
use crate::command::spec::flag::{MAY_REPLICATE, WRITE};
use crate::resp::Error;

pub fn words(standing: Standing, _: &Conditions) -> Words {
    Words::denying(standing.reads_only, WRITE | MAY_REPLICATE)
}

pub fn answer(_: &Asked) -> Admission {
    Admission::Refused(Error::text("ERR Write commands are not allowed from read-only scripts."))
}
