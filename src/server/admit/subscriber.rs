//! A connection to which messages may come at any time, which RESP2 does not tell from replies.

use super::{Admission, Asked, Conditions, Standing, Words};
use crate::command::spec::flag::SUBSCRIBED;
use crate::resp::Error;

pub fn words(standing: Standing, _: &Conditions) -> Words {
    Words::requiring(standing.listens, SUBSCRIBED)
}

pub fn answer(asked: &Asked) -> Admission {
    let name = asked.full_name;
    Admission::Refused(Error::err(format_args!(
        "Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
    )))
}
