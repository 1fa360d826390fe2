//! A replica, or a connection that sees all commands, which to Redis is a kind of replica.

use super::{Admission, Asked, Conditions, Standing, Words};
use crate::command::spec::flag::{MAY_REPLICATE, READ, WRITE};
use crate::resp::Error;

pub fn words(standing: Standing, _: &Conditions) -> Words {
    Words::denying(standing.monitors || standing.is_replica, READ | WRITE | MAY_REPLICATE)
}

pub fn answer(_: &Asked) -> Admission {
    Admission::Refused(Error::text("ERR Replica can't interact with the keyspace"))
}
