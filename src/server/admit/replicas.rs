//! Too few replicas have what is changed here (`min-replicas-to-write`).

use super::{Admission, Asked, Conditions, Standing, Words};
use crate::command::spec::flag::{BY_CALLEE, WRITE};
use crate::resp::Error;

pub fn words(standing: Standing, conditions: &Conditions) -> Words {
    let flags = if standing.in_script { WRITE } else { WRITE | BY_CALLEE };
    Words::denying(conditions.lacks_replicas, flags)
}

pub fn answer(_: &Asked) -> Admission {
    Admission::Refused(Error::text("NOREPLICAS Not enough good replicas to write."))
}
