//! Disks that fail under snapshots. (`src/persist/writing.rs` has tests of a disk that fails at each single step.)

use super::{FILE, PATIENCE, saved_by};
use crate::common::{Kind, Server, Value, bulk, error, wait_until};
use std::fs;

const FLAGS: [&str; 4] = ["--save", "3600 1", "--enable-debug-command", "yes"];

fn misconf(reply: &Value) -> bool {
    reply.is_error() && reply.text().starts_with("MISCONF Redis is configured to save RDB")
}

/// Makes BGSAVE fail, in which `reason` stands, and looks at what that changes; `repair` makes the disk whole again.
fn fails_and_recovers(server: &Server, reason: &str, repair: impl FnOnce()) {
    let mut client = server.client();
    let file = server.own_disk().join(FILE);
    let old = fs::read(&file).expect("a file");
    assert_eq!(client.call("BGSAVE"), Value::Simple("Background saving started".into()));
    let status = || server.info("rdb_last_bgsave_status");
    assert!(wait_until(PATIENCE, || status().as_deref() == Some("err")), "{}", server.output());
    let cause = server.info("rdb_last_bgsave_error").expect("a cause");
    assert!(cause.contains(reason), "{cause}");
    let line = format!("Error saving DB on disk: {cause}");
    assert!(server.output().contains(&line), "{}", server.output());
    assert_eq!(fs::read(&file).expect("the old file"), old);
    let left: Vec<_> = fs::read_dir(server.own_disk()).expect("a folder").flatten().map(|of| of.file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with("temp")), "{left:?}");
    // Writes stop, reads go on.
    for command in ["SET other 1", "DEL small", "PING"] {
        assert!(misconf(&client.call(command)), "{command}");
    }
    assert_eq!(client.call("GET small"), bulk("1"));
    let failed = client.call("SAVE").text();
    assert!(failed.starts_with("ERR Error saving DB on disk: ") && failed.contains(reason), "{failed}");
    let mut tool = server.client();
    assert_eq!(tool.call("REPLCONF rdb-only 1"), Value::ok());
    let unsent = tool.call("SYNC").text();
    assert!(unsent.starts_with("ERR Error making a snapshot: ") && unsent.contains(reason), "{unsent}");
    assert_eq!(tool.call("GET small"), bulk("1"));
    repair();
    assert!(!client.call("BGSAVE").is_error());
    assert!(wait_until(PATIENCE, || client.call("SET small 1") == Value::ok()), "{}", server.output());
    assert_eq!(status().as_deref(), Some("ok"));
    assert_eq!(server.info("rdb_last_bgsave_error"), None);
    assert_ne!(fs::read(&file).expect("a new file"), old);
}

#[test]
fn a_full_disk_stops_writes_until_there_is_room() {
    let Some(server) = Server::start_on_own_disk(Kind::Ember { shards: 2 }, &FLAGS, 3, None) else { return };
    let mut client = server.client();
    assert_eq!(client.call("SET small 1"), Value::ok());
    assert_eq!(client.call("SAVE"), Value::ok());
    assert_eq!(client.call("CONFIG SET rdbcompression no"), Value::ok());
    assert_eq!(client.call("DEBUG POPULATE 20000 key 500"), Value::ok());
    fails_and_recovers(&server, "No space left on device", || server.remount_own_disk("size=64m"));
}

#[test]
fn a_disk_that_is_read_only_stops_writes_until_it_is_not() {
    let source = Server::start(Kind::Ember { shards: 1 }, &[]);
    assert_eq!(source.client().call("SET small 1"), Value::ok());
    let file = saved_by(&source);
    // Without save points: else the server would keep a file open for writing, so that its disk could not be made so.
    let Some(server) = Server::start_on_own_disk(Kind::Ember { shards: 2 }, &[], 16, Some(&file)) else { return };
    let mut client = server.client();
    assert_eq!(client.call("SET more 1"), Value::ok());
    server.remount_own_disk("ro");
    assert_eq!(client.command(&["CONFIG", "SET", "save", "3600 1"]), Value::ok());
    fails_and_recovers(&server, "Read-only file system", || server.remount_own_disk("rw"));
}

/// The folder itself is gone.
#[test]
fn a_folder_that_is_gone_is_no_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().join("data");
    fs::create_dir(&dir).expect("a folder");
    let flags = [&FLAGS[..], &["--dir", dir.to_str().expect("a name")]].concat();
    let server = Server::start(Kind::Ember { shards: 2 }, &flags);
    let mut client = server.client();
    assert_eq!(client.call("SET small 1"), Value::ok());
    assert_eq!(client.call("SAVE"), Value::ok());
    fs::remove_dir_all(&dir).expect("a folder");
    assert!(client.call("SAVE").text().contains("No such file or directory"));
    assert!(!client.call("BGSAVE").is_error());
    assert!(wait_until(PATIENCE, || misconf(&client.call("SET other 2"))));
    assert_eq!(client.call("GET small"), bulk("1"));
    assert_eq!(client.call("CONFIG SET stop-writes-on-bgsave-error no"), Value::ok());
    assert_eq!(client.call("SET small 2"), Value::ok());
    assert_ne!(client.call("BGSAVE"), error("ERR Background save already in progress"));
}
