//! A replica that has lost its primary, and is not to show what it has of old.

use super::{Admission, Asked, Conditions, Standing, Words};
use crate::command::spec::flag::{BY_CALLEE, STALE};
use crate::resp::Error;

pub fn words(_: Standing, conditions: &Conditions) -> Words {
    Words::requiring(conditions.stale, STALE).and(Words::denying(conditions.stale, BY_CALLEE))
}

pub fn answer(asked: &Asked) -> Admission {
    Admission::Refused(if asked.standing.in_script {
        Error::text("ERR Can not execute the command on a stale replica")
    } else {
        Error::text("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.")
    })
}
