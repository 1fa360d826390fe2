//! What a client hears that asks for a cluster, modules or replicas: there are none, in the words of redis-server alone.

use crate::common::{Value, error, on_embers, on_every_server};

const NO_CLUSTER: &str = "ERR This instance has cluster support disabled";

fn wrong_number(name: &str) -> Value {
    error(&format!("ERR wrong number of arguments for '{name}' command"))
}

#[test]
fn there_is_no_cluster() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        for line in [
            "CLUSTER INFO",
            "cluster nodes",
            "CLUSTER MYID",
            "CLUSTER SLOTS",
            "CLUSTER SHARDS",
            "CLUSTER HELP",
            "CLUSTER KEYSLOT k",
            "CLUSTER MEET 127.0.0.1 7000",
            "CLUSTER SETSLOT 1 STABLE",
            "CLUSTER RESET HARD",
            "CLUSTER ADDSLOTS x",
            "READONLY",
            "READWRITE",
            "ASKING",
        ] {
            assert_eq!(client.call(line), error(NO_CLUSTER), "{line}");
        }
        for (line, name) in [
            ("CLUSTER", "cluster"),
            ("CLUSTER HELP x", "cluster|help"),
            ("CLUSTER NODES x", "cluster|nodes"),
            ("CLUSTER KEYSLOT", "cluster|keyslot"),
            ("CLUSTER ADDSLOTSRANGE 1", "cluster|addslotsrange"),
            ("READONLY x", "readonly"),
            ("ASKING x", "asking"),
        ] {
            assert_eq!(client.call(line), wrong_number(name), "{line}");
        }
        assert_eq!(client.call("CLUSTER NOSUCH"), error("ERR unknown subcommand 'NOSUCH'. Try CLUSTER HELP."));
        client.call("MULTI");
        assert_eq!(client.call("CLUSTER INFO"), Value::Simple(b"QUEUED".to_vec()));
        assert_eq!(client.call("EXEC"), Value::Array(vec![error(NO_CLUSTER)]));
        let script = "EVAL return(redis.pcall('cluster','info').err) 0";
        assert_eq!(client.call(script).text(), NO_CLUSTER);
    });
}

#[test]
fn there_is_no_shard_of_a_cluster() {
    on_embers(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("CLUSTER MYSHARDID"), error(NO_CLUSTER));
        assert_eq!(client.call("CLUSTER MYSHARDID x"), wrong_number("cluster|myshardid"));
    });
}

#[test]
fn there_are_no_modules() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("MODULE LIST"), Value::Array(vec![]));
        assert_eq!(client.call("MODULE LIST x"), wrong_number("module|list"));
        assert_eq!(client.call("MODULE"), wrong_number("module"));
        assert_eq!(client.call("MODULE UNLOAD"), wrong_number("module|unload"));
        assert_eq!(client.call("MODULE NOSUCH"), error("ERR unknown subcommand 'NOSUCH'. Try MODULE HELP."));
        assert!(client.call("MODULE HELP").items()[0].text().starts_with("MODULE <subcommand>"));
        for line in ["MODULE LOAD /x.so", "MODULE LOADEX /x.so CONFIG a b ARGS c", "MODULE UNLOAD x"] {
            assert!(client.call(line).is_error(), "{line}");
        }
    });
    on_embers(&[], |server| {
        assert_eq!(server.client().call("MODULE LOAD /x.so"), error("ERR modules are not available"));
    });
}

#[test]
fn there_is_no_replica_to_take_over() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        for line in ["", " TO h 1", " FORCE", " TIMEOUT 5 TO h 1 FORCE", " TO h 99999999"] {
            let reply = client.call(&format!("FAILOVER{line}"));
            assert_eq!(reply, error("ERR FAILOVER requires connected replicas."), "{line}");
        }
        for line in ["TO", "TO h", "TIMEOUT", "ABORT x", "x", "TO h 1 TO h 1", "FORCE FORCE", "TIMEOUT 1 TIMEOUT 1"] {
            assert_eq!(client.call(&format!("FAILOVER {line}")), error("ERR syntax error"), "{line}");
        }
        assert_eq!(client.call("FAILOVER ABORT"), error("ERR No failover in progress."));
        let no_integer = error("ERR value is not an integer or out of range");
        assert_eq!(client.call("FAILOVER TIMEOUT x"), no_integer);
        assert_eq!(client.call("FAILOVER TO h x"), no_integer);
        assert_eq!(client.call("FAILOVER TIMEOUT 0"), error("ERR FAILOVER timeout must be greater than 0"));
    });
}

#[test]
fn a_server_that_follows_no_one_goes_on_so() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        for line in ["REPLICAOF NO ONE", "slaveof no one"] {
            assert_eq!(client.call(line), Value::ok(), "{line}");
        }
        for line in ["REPLICAOF h x", "REPLICAOF h 65536", "SLAVEOF NO TWO", "REPLICAOF h -1"] {
            assert_eq!(client.call(line), error("ERR Invalid master port"), "{line}");
        }
        assert_eq!(client.call("ROLE").items()[0].text(), "master");
    });
}
