//! What no script may call.

use super::{Admission, Asked, Conditions, Standing, Words};
use crate::command::spec::flag::NO_SCRIPT;
use crate::resp::Error;

pub fn words(_: Standing, _: &Conditions) -> Words {
    Words::denying(true, NO_SCRIPT)
}

pub fn answer(_: &Asked) -> Admission {
    Admission::Refused(Error::text("ERR This Redis command is not allowed from script"))
}
