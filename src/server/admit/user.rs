//! A user who may not do everything. Nothing is asked of the others, for whom no word of flags is in the way.

use super::{Admission, Asked, Conditions, Standing, Words};
use crate::acl::Denied;
use crate::command::spec::flag::NOTHING;
use crate::resp::Error;

pub(super) fn words(standing: Standing, _: &Conditions) -> Words {
    Words::requiring(standing.is_restricted, NOTHING)
}

pub(super) fn answer(asked: &Asked) -> Admission {
    match (asked.denied)() {
        None => Admission::Runs,
        Some(denied) if asked.standing.in_script => Admission::Refused(in_script(denied)),
        Some(denied) => Admission::Refused(no_permission(asked.full_name, denied)),
    }
}

pub fn no_permission(full_name: &str, denied: Denied) -> Error {
    match denied {
        Denied::Command => {
            Error::quoting(&[b"NOPERM this user has no permissions to run the '", full_name.as_bytes(), b"' command"])
        }
        Denied::Key(_) => NO_KEY,
        Denied::Channel(_) => CHANNEL,
    }
}

pub const NO_KEY: Error =
    Error::text("NOPERM this user has no permissions to access one of the keys used as arguments");
const CHANNEL: Error =
    Error::text("NOPERM this user has no permissions to access one of the channels used as arguments");

fn in_script(denied: Denied) -> Error {
    Error::text(match denied {
        Denied::Command => "ERR The user executing the script can't run this command or subcommand",
        Denied::Key(_) => {
            "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments"
        }
        Denied::Channel(_) => "ERR The user executing the script can't publish to the channel mentioned in the command",
    })
}
