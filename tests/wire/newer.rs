//! Commands and options that are newer than the redis-server beside which the differential test runs.

use crate::common::{Value, bulk, error, int, on_embers};

#[test]
fn set_compares_before_it_stores() {
    on_embers(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("SET k new IFEQ old"), Value::NullBulk, "nothing is there");
        assert_eq!(client.call("SET k 1 IFNE other"), Value::ok(), "nothing is not equal");
        assert_eq!(client.call("SET k 2 IFNE 1"), Value::NullBulk);
        assert_eq!(client.call("SET k 2 IFEQ 1 EX 100"), Value::ok());
        assert_eq!(client.call("TTL k"), int(100));
        assert_eq!(client.call("SET k 3 ifeq 2 KEEPTTL GET"), bulk("2"));
        assert_eq!(client.call("TTL k"), int(100));
        assert_eq!(client.call("SET k 4 IFEQ 2 GET"), bulk("3"), "what is there comes back though nothing is stored");
        assert_eq!(client.call("GET k"), bulk("3"));
        assert_eq!(client.call("SET k text IFEQ 3"), Value::ok());
        assert_eq!(client.call("TTL k"), int(-1));
        assert_eq!(client.call("SET k x IFEQ Text"), Value::NullBulk, "bytes are compared");
        for wrong in
            ["SET k v IFEQ", "SET k v IFEQ a IFNE b", "SET k v NX IFEQ a", "SET k v IFEQ a XX", "SET k v NX XX"]
        {
            assert_eq!(client.call(wrong), error("ERR syntax error"), "{wrong}");
        }
        assert_eq!(client.call("GET k"), bulk("text"));
    });
}

#[test]
fn delex_compares_before_it_deletes() {
    on_embers(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("DELEX k"), int(0));
        assert_eq!(client.call("SET k token"), Value::ok());
        assert_eq!(client.call("DELEX k IFEQ other"), int(0));
        assert_eq!(client.call("DELEX k IFNE token"), int(0));
        assert_eq!(client.call("DELEX k IFEQ token"), int(1));
        assert_eq!(client.call("DELEX k IFNE token"), int(0), "nothing is there to delete");
        assert_eq!(client.call("SET k 7"), Value::ok());
        assert_eq!(client.call("DELEX k IFNE 8"), int(1));
        assert_eq!(client.call("SET k 7"), Value::ok());
        assert_eq!(client.call("DELEX k"), int(1));
        for wrong in ["DELEX k IFEQ", "DELEX k IF 1", "DELEX k IFEQ 1 2"] {
            assert_eq!(client.call(wrong), error("ERR syntax error"), "{wrong}");
        }
    });
}
