//! Data that is still being loaded.

use super::{Admission, Asked, Conditions, Standing, Words};
use crate::command::spec::flag::{LOADING, NO_ASYNC_LOADING};
use crate::resp::Error;

pub fn words(_: Standing, conditions: &Conditions) -> Words {
    Words::requiring(conditions.loading, LOADING).and(Words::denying(conditions.arriving, NO_ASYNC_LOADING))
}

pub const IS_LOADING: Error = Error::text("LOADING Redis is loading the dataset in memory");

pub fn answer(_: &Asked) -> Admission {
    Admission::Refused(IS_LOADING)
}
