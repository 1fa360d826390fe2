//! MIGRATE.

use super::server_spec;
use crate::command;
use crate::command::spec::flag::{COUNTED, MOVABLE_KEYS, WRITE};
use crate::command::spec::{Group, Keys, Row, Secrets, Spec, tip};
use crate::server::replication::migrate;
use crate::server::state::Run;

pub const ROWS: &[Row<Run>] = &[Row::new(
    Spec {
        keys: Keys::MIGRATE,
        group: Group::Generic,
        summary: "Moves keys to another server, or copies them there.",
        syntax: "host:string port:integer key_or_empty_string:(key | \"\" empty_string:pure-token) \
                 destination-db:integer timeout:integer [COPY] [REPLACE] [authentication:(AUTH password | \
                 username_password:(AUTH2 username password))] [KEYS key...]",
        ..server_spec(
            "migrate",
            -6,
            WRITE | MOVABLE_KEYS | COUNTED,
            "2.6.0",
            "O(n) in the bytes of the values, here, there and in between",
        )
    },
    Run::Data(command::Run::Coordinated(|across| Box::pin(migrate::run(across)))),
)
.hiding(Secrets::Migrate)
.tips(&[tip::NONDETERMINISTIC_OUTPUT])];
