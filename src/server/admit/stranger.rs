//! A connection that has not said the password.

use super::{Admission, Asked, Conditions, Standing, Words};
use crate::command::spec::flag::NO_AUTH;
use crate::resp::Error;

pub fn words(standing: Standing, conditions: &Conditions) -> Words {
    Words::requiring(conditions.has_password && !standing.authenticated, NO_AUTH)
}

pub fn answer(_: &Asked) -> Admission {
    Admission::Refused(Error::NoAuth)
}
