//! Where users are kept: the ACL file, or the `user` lines of the configuration, but not both.

use crate::acl::{FileErrors, Users, Vocabulary};
use crate::config::{ChannelsOfUsers, Config, replace_file};
use crate::observe::log;
use crate::server::state::Table;
use crate::server::state::users::KnownUsers;
use std::path::Path;

const BOTH: &str = "Configuring users with 'user' lines and at the same time setting an ACL file path is invalid. This setup is \
                    very likely to lead to configuration errors and security holes, please define either an ACL file or declare \
                    users directly in the configuration file, but not both.";

/// The users with which the server begins.
///
/// Errors: users that are declared twice or wrong, an ACL file that cannot be read; nobody is served then.
pub fn read_at_start(config: &Config, table: &Table) -> Result<KnownUsers, String> {
    let vocabulary = Vocabulary::of(table);
    let lines = config.users.get();
    let (password, all_channels) = (config.requirepass.as_bytes(), has_all_channels(config));
    let declared = Users::declared(&vocabulary, &lines, password, all_channels)
        .map_err(|error| format!("Critical error while loading ACLs: {error}"))?;
    let users = if config.aclfile.is_empty() {
        declared
    } else {
        if !lines.is_empty() {
            return Err(BOTH.to_owned());
        }
        read(&vocabulary, &config.aclfile, &declared, all_channels)
            .map_err(|errors| format!("Aborting startup because of ACL errors: {errors}"))?
    };
    if !config.requirepass.is_empty() && users.default_user().has_no_password() {
        log::warning(format_args!(
            "requirepass has no effect: the rules of the default user say that it has no password"
        ));
    }
    for user in users.iter().filter(|user| !user.is_on()) {
        log::notice(format_args!(
            "The user '{}' is disabled (there is no 'on' modifier in the user description). Make sure this is not a \
             configuration error.",
            String::from_utf8_lossy(&user.name)
        ));
    }
    Ok(KnownUsers::new(vocabulary, users))
}

/// Whether a new user may use all channels.
pub fn has_all_channels(config: &Config) -> bool {
    config.acl_pubsub_default == ChannelsOfUsers::All
}

/// The users of an ACL file.
pub fn read(vocabulary: &Vocabulary, path: &str, before: &Users, all_channels: bool) -> Result<Users, FileErrors> {
    let text = std::fs::read(path).map_err(|error| FileErrors::unreadable(path, &log::reason(&error)))?;
    Users::from_file(vocabulary, (path, &text), before, all_channels)
}

/// Replaces the ACL file: whoever reads it, or a machine that loses power, finds the old users or the new ones.
pub fn write(path: &str, users: &Users) -> std::io::Result<()> {
    replace_file(Path::new(path), &users.file())
}
