//! Users that outlive the server: `user` lines, the ACL file, CONFIG REWRITE, and passwords of the configuration.

use crate::common::server::{Port, start_and_fail};
use crate::common::{Kind, Server, Value, bulk, error, have_tool, int, on_every_server};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

const NO_FILE: &str = "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL \
                       SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in \
                       order to store users in the Redis configuration.";

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a folder"))
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).expect("written");
        path.display().to_string()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("a file")
    }
}

const KINDS: [Kind; 3] = [Kind::Ember { shards: 1 }, Kind::Ember { shards: 3 }, Kind::Redis];

fn kinds() -> impl Iterator<Item = Kind> {
    KINDS.into_iter().filter(|kind| kind.is_ember() || have_tool("redis-server"))
}

#[test]
fn there_is_no_file_unless_somebody_says_so() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("ACL LOAD"), error(NO_FILE));
        assert_eq!(client.call("ACL SAVE"), error(NO_FILE));
    });
}

#[test]
fn users_of_a_file_are_saved_and_loaded() {
    for kind in kinds() {
        let folder = Folder::new();
        let file = folder.write(
            "users.acl",
            "user anna on >secret ~a* +@read (~b* +set)\n\n  user default on nopass ~* &* +@all\r\n",
        );
        let server = Server::start(kind, &["--aclfile", &file]);
        let mut client = server.client();
        assert_eq!(client.call("ACL USERS"), Value::bulks(&["anna", "default"]));
        assert_eq!(client.call("AUTH anna secret"), Value::ok());
        assert!(client.call("SET a x").is_error() && client.call("SET b x") == Value::ok());
        let mut admin = server.client();
        assert_eq!(admin.call("ACL SETUSER berta on nopass ~x"), Value::ok());
        assert_eq!(admin.call("ACL SAVE"), Value::ok());
        let saved = folder.read("users.acl");
        assert!(
            saved.starts_with("user anna on #2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b ~a* "),
            "{saved}"
        );
        assert!(
            saved.contains("\nuser berta on nopass ~x ") && saved.contains("\nuser default on nopass ~* &* +@all\n")
        );
        assert!(!saved.contains("secret"));
        assert_eq!(admin.call("ACL SETUSER carl"), Value::ok());
        assert_eq!(admin.call("ACL SETUSER berta off"), Value::ok());
        assert_eq!(admin.call("ACL LOAD"), Value::ok());
        assert_eq!(admin.call("ACL USERS"), Value::bulks(&["anna", "berta", "default"]));
        assert!(admin.call("ACL GETUSER berta").field("flags").unwrap().items().contains(&bulk("on")));
    }
}

#[test]
fn a_wrong_file_changes_nothing() {
    for kind in kinds() {
        let folder = Folder::new();
        let file = folder.write("users.acl", "user anna on nopass ~a +get\n");
        let server = Server::start(kind, &["--aclfile", &file]);
        let mut admin = server.client();
        let place = &file;
        for (text, expected) in [
            ("nonsense\n", format!("{place}:1 should start with user keyword followed by the username. ")),
            ("user a on\nuser a on\n", "WARNING: Duplicate user 'a' found on line 2. ".to_owned()),
            (
                "user a on +nosuch\n",
                format!("{place}:1: Error in applying operation '+nosuch': Unknown command or category name in ACL. "),
            ),
            (
                "user a on >x <y\n",
                format!("{place}:1: The password you are trying to remove from the user does not exist. "),
            ),
            ("user a (+get\n", format!("{place}:1: Unmatched parenthesis in selector definition.")),
        ] {
            fs::write(&file, text).unwrap();
            let end = "WARNING: ACL errors detected, no change to the previously active ACL rules was performed";
            assert_eq!(admin.call("ACL LOAD"), error(&format!("ERR {expected}{end}")), "{text}");
            assert_eq!(admin.call("ACL USERS"), Value::bulks(&["anna", "default"]));
        }
        fs::remove_file(&file).unwrap();
        let gone = format!("ERR Error loading ACLs, opening file '{place}': No such file or directory");
        assert_eq!(admin.call("ACL LOAD"), error(&gone));
    }
}

/// As Redis 7.4, and not as 7.0, which ends everybody who is not the default user.
#[test]
fn loading_ends_whose_user_is_gone_or_has_lost_channels() {
    for shards in [1, 3] {
        let folder = Folder::new();
        let text = "user anna on nopass +@all ~* &*\nuser berta on nopass +@all ~*\nuser carl on nopass +@all ~* &*\n";
        let file = folder.write("users.acl", text);
        let server = Server::start(Kind::Ember { shards }, &["--aclfile", &file]);
        let connect = |name: &str| {
            let mut client = server.client();
            assert_eq!(client.call(&format!("AUTH {name} x")), Value::ok());
            client
        };
        let (mut anna, mut berta, mut carl, mut listener) =
            (connect("anna"), connect("berta"), connect("carl"), connect("carl"));
        listener.call("SUBSCRIBE a");
        fs::write(&file, "user berta on nopass +@all ~b\nuser carl on nopass +@all ~*\n").unwrap();
        assert_eq!(anna.call("ACL LOAD"), Value::ok(), "who is removed by his own command hears the answer");
        assert!(anna.is_closed_by_server() && listener.is_closed_by_server());
        assert!(berta.call("GET a").is_error() && berta.call("GET b") == Value::NullBulk);
        assert_eq!(carl.call("GET a"), Value::NullBulk);
        assert_eq!(server.client().call("ACL WHOAMI"), bulk("default"));
    }
}

#[test]
fn lines_of_a_configuration_are_users() {
    for kind in kinds() {
        let folder = Folder::new();
        let text =
            "user anna on >a ~a* resetchannels +@read (~b* +set)\n# between\nuser berta on nopass +@all\nhz 10\n";
        let path = folder.write("redis.conf", text);
        let server = Server::start(kind, &[&path, "--requirepass", "secret"]);
        let mut client = server.client();
        assert!(client.call("PING").is_error());
        assert_eq!(client.call("AUTH wrong"), error("WRONGPASS invalid username-password pair or user is disabled."));
        assert_eq!(client.call("AUTH anna a"), Value::ok());
        assert!(client.call("SET b x") == Value::ok() && client.call("SET a x").is_error());
        assert_eq!(client.call("AUTH secret"), Value::ok());
        assert_eq!(client.call("ACL USERS"), Value::bulks(&["anna", "berta", "default"]));
        assert_eq!(client.call("ACL SETUSER carl on nopass &x >hunter2"), Value::ok());
        assert_eq!(client.call("ACL DELUSER berta"), int(1));
        assert_eq!(client.call("CONFIG REWRITE"), Value::ok());
        let written = folder.read("redis.conf");
        let hash = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb";
        let anna = format!("user anna on #{hash} ~a* resetchannels -@all +@read (~b* resetchannels -@all +set)\n");
        assert!(written.contains(&anna), "{written}");
        assert!(written.contains("\nuser carl on #") && !written.contains("berta") && !written.contains("hunter2"));
        drop(server);
        if !kind.is_ember() {
            // (Its folder, in which it would start again, is gone.)
            continue;
        }
        let server = Server::start(kind, &[&path]);
        let mut client = server.client();
        assert_eq!(client.call("AUTH secret"), Value::ok());
        assert_eq!(client.call("AUTH carl hunter2"), Value::ok());
        assert_eq!(client.call("AUTH default secret"), Value::ok());
        assert_eq!(client.call("ACL USERS"), Value::bulks(&["anna", "carl", "default"]));
        assert_eq!(client.call("CONFIG REWRITE"), Value::ok());
        assert!(folder.read("redis.conf").contains(&anna));
    }
}

#[test]
fn users_stand_in_one_place() {
    for kind in kinds() {
        let folder = Folder::new();
        let acl = folder.write("users.acl", "");
        let conf = folder.write("redis.conf", &format!("aclfile {acl}\nuser anna on\n"));
        let failed = start_and_fail_with_file(kind, &conf);
        assert!(failed.contains("but not both"), "{failed}");
        for (text, what) in [
            ("user anna on >hunter2 +nosuch\n", "Unknown command or category name in ACL"),
            ("user anna on\nuser anna off\n", "Duplicate user"),
            ("user anna <hunter2\n", ""),
        ] {
            let conf = folder.write("redis.conf", text);
            let failed = start_and_fail_with_file(kind, &conf);
            assert!(failed.contains(what), "{failed}");
            // (Redis shows the whole line.)
            assert!(!kind.is_ember() || !failed.contains("hunter2"), "{failed}");
        }
        let acl = folder.write("users.acl", "user anna +nosuch\n");
        let conf = folder.write("redis.conf", &format!("aclfile {acl}\n"));
        assert!(start_and_fail_with_file(kind, &conf).contains("Unknown command or category name in ACL"));
        let conf = folder.write("redis.conf", "aclfile /no/such/file\n");
        assert!(start_and_fail_with_file(kind, &conf).contains("No such file or directory"));
    }
}

fn start_and_fail_with_file(kind: Kind, path: &str) -> String {
    start_and_fail(kind, Port::claim().number(), &[path]).output
}

#[test]
fn files_are_for_their_owner() {
    let folder = Folder::new();
    let file = folder.write("users.acl", "user anna on >x\n");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let server = Server::start(Kind::Ember { shards: 1 }, &["--aclfile", &file]);
    let mut admin = server.client();
    assert_eq!(admin.call("ACL SAVE"), Value::ok());
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640, "as it was");
    fs::remove_file(&file).unwrap();
    assert_eq!(admin.call("ACL SAVE"), Value::ok());
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "a new one");
    assert_eq!(fs::read_dir(folder.0.path()).unwrap().count(), 1, "nothing is left beside it");
    drop(folder);
    assert!(admin.call("ACL SAVE").text().contains("There was an error trying to save the ACLs"));
}

#[test]
fn the_password_of_the_configuration_is_the_default_users() {
    on_every_server(&["--requirepass", "one"], |server| {
        let mut client = server.client();
        assert!(client.call("PING").is_error());
        assert_eq!(client.call("AUTH one"), Value::ok());
        assert_eq!(client.call("ACL SETUSER default >two"), Value::ok());
        assert_eq!(server.client().call("AUTH two"), Value::ok());
        assert_eq!(server.client().call("AUTH one"), Value::ok());
        assert_eq!(client.call("CONFIG SET requirepass three"), Value::ok());
        assert!(server.client().call("AUTH one").is_error() && server.client().call("AUTH two").is_error());
        assert_eq!(server.client().call("AUTH three"), Value::ok());
        assert_eq!(client.call("ACL SETUSER default nopass"), Value::ok());
        assert_eq!(server.client().call("PING"), Value::Simple(b"PONG".to_vec()));
        assert_eq!(client.call("ACL SETUSER default off"), Value::ok());
        let mut stranger = server.client();
        assert_eq!(stranger.call("PING"), error("NOAUTH Authentication required."));
        assert_eq!(
            stranger.call("AUTH default x"),
            error("WRONGPASS invalid username-password pair or user is disabled.")
        );
        assert_eq!(client.call("PING"), Value::Simple(b"PONG".to_vec()), "who is there stays");
    });
}

/// Once a tool that set its whole configuration anew opened a server whose default user had got the password by ACL SETUSER.
#[test]
fn a_password_that_is_set_already_takes_no_other() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("ACL SETUSER default resetpass >two"), Value::ok());
        assert_eq!(client.command(&["CONFIG", "SET", "requirepass", "", "hz", "11"]), Value::ok());
        assert_eq!(server.client().call("PING"), error("NOAUTH Authentication required."));
        assert_eq!(client.call("CONFIG SET requirepass one"), Value::ok());
        assert!(server.client().call("AUTH two").is_error());
        assert_eq!(client.call("ACL SETUSER default >two"), Value::ok());
        assert_eq!(client.call("CONFIG SET requirepass one"), Value::ok());
        assert_eq!(server.client().call("AUTH two"), Value::ok());
        assert_eq!(server.client().call("AUTH one"), Value::ok());
    });
}

#[test]
fn new_users_have_the_channels_that_the_configuration_gives() {
    on_every_server(&["--acl-pubsub-default", "allchannels"], |server| {
        let mut client = server.client();
        client.call("ACL SETUSER anna (+get)");
        let channels = |client: &mut crate::common::Client| client.call("ACL GETUSER anna").field("channels").unwrap();
        assert_eq!(channels(&mut client), bulk("&*"));
        let selectors = client.call("ACL GETUSER anna").field("selectors").unwrap();
        assert_eq!(selectors.items()[0].field("channels"), Some(bulk("&*")));
        assert_eq!(client.call("CONFIG SET acl-pubsub-default resetchannels"), Value::ok());
        assert_eq!(channels(&mut client), bulk("&*"));
        client.call("ACL SETUSER anna reset");
        assert_eq!(channels(&mut client), bulk(""));
    });
}
