//! DEBUG, which is for those alone whom `enable-debug-command` allows it.

use super::{Admission, Asked, Conditions, Standing, Words};
use crate::command::spec::flag::PROTECTED;
use crate::resp::Error;

pub fn words(standing: Standing, conditions: &Conditions) -> Words {
    Words::denying(!conditions.debug.allows(standing.local), PROTECTED)
}

pub fn answer(_: &Asked) -> Admission {
    Admission::Refused(Error::text(
        "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from a local \
         connection, otherwise you need to set this option in the configuration file, and then restart the server.",
    ))
}
