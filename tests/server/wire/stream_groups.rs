//! Groups of streams as Redis 7.2 and 8.2 have them: what was read and what lags where entries are gone, consumers that
//! found nothing, and entries that are deleted with a say of their groups.

use crate::common::{Client, Value, bulk, error, int, on_embers};

/// `entries-read` and `lag` of the first group.
fn progress(client: &mut Client, key: &str) -> (Value, Value) {
    let groups = client.call(&format!("XINFO GROUPS {key}"));
    let field = |name: &str| groups.items()[0].field(name).unwrap_or_else(|| panic!("{name} of {groups:?}")).clone();
    (field("entries-read"), field("lag"))
}

fn fill(client: &mut Client, key: &str, ids: std::ops::RangeInclusive<u32>) {
    for id in ids {
        assert_eq!(client.call(&format!("XADD {key} {id}-0 f v")), bulk(format!("{id}-0")));
    }
}

/// The cases of Redis's own tests (`unit/type/stream-cgroups`).
#[test]
fn the_lag_knows_what_was_deleted_and_trimmed() {
    on_embers(&[], |server| {
        let mut client = server.client();
        let read =
            |client: &mut Client, key: &str| client.call(&format!("XREADGROUP GROUP g c COUNT 1 STREAMS {key} >"));
        // Deleted ahead of the group.
        fill(&mut client, "x", 1..=5);
        client.call("XGROUP CREATE x g 0");
        assert_eq!(progress(&mut client, "x"), (Value::NullBulk, int(5)));
        client.call("XDEL x 1-0");
        assert_eq!(progress(&mut client, "x"), (Value::NullBulk, int(4)));
        read(&mut client, "x");
        assert_eq!(progress(&mut client, "x"), (int(2), int(3)));
        client.call("XDEL x 4-0");
        assert_eq!(progress(&mut client, "x"), (int(2), Value::NullBulk), "who knows what is missing");
        read(&mut client, "x");
        assert_eq!(progress(&mut client, "x"), (Value::NullBulk, Value::NullBulk));
        read(&mut client, "x");
        assert_eq!(progress(&mut client, "x"), (int(5), int(0)));
        // The entry that the group was delivered last is the gap: what was counted does not hold any more.
        fill(&mut client, "y", 1..=3);
        client.call("XGROUP CREATE y g 0");
        read(&mut client, "y");
        assert_eq!(progress(&mut client, "y"), (int(1), int(2)));
        client.call("XDEL y 1-0");
        client.call("XDEL y 2-0");
        assert_eq!(progress(&mut client, "y"), (int(1), int(1)));
        read(&mut client, "y");
        assert_eq!(progress(&mut client, "y"), (int(3), int(0)));
        // Everything is gone.
        fill(&mut client, "z", 1..=3);
        client.call("XGROUP CREATE z g 0 ENTRIESREAD 3");
        client.call("XTRIM z MAXLEN 0");
        assert_eq!(progress(&mut client, "z").1, int(0));
        // Trimmed ahead of the group: as many as there are.
        fill(&mut client, "t", 1..=5);
        client.call("XGROUP CREATE t g 0");
        read(&mut client, "t");
        client.call("XTRIM t MAXLEN 1");
        assert_eq!(progress(&mut client, "t"), (int(1), int(1)));
        read(&mut client, "t");
        assert_eq!(progress(&mut client, "t"), (int(5), int(0)));
        fill(&mut client, "t", 6..=7);
        assert_eq!(progress(&mut client, "t"), (int(5), int(2)));
        client.call("XADD t MAXLEN 1 8-0 f v");
        assert_eq!(progress(&mut client, "t"), (int(5), int(1)));
    });
}

#[test]
fn xsetid_does_not_go_below_what_was_deleted() {
    on_embers(&[], |server| {
        let mut client = server.client();
        fill(&mut client, "s", 1..=3);
        client.call("XDEL s 3-0");
        let refused = error("ERR The ID specified in XSETID is smaller than current max_deleted_entry_id");
        assert_eq!(client.call("XSETID s 2-5"), refused);
        assert_eq!(client.call("XSETID s 2-5 ENTRIESADDED 9 MAXDELETEDID 2-0"), refused);
        assert_eq!(client.call("XSETID s 3-0"), Value::ok());
        assert_eq!(client.call("XSETID s 1-0"), refused, "before the top item is looked at");
    });
}

#[test]
fn who_reads_and_finds_nothing_is_a_consumer() {
    on_embers(&["--notify-keyspace-events", "KEA"], |server| {
        let (mut client, mut other) = (server.client(), server.client());
        let mut names = |key: &str| -> Vec<String> {
            let found = other.call(&format!("XINFO CONSUMERS {key} g"));
            found.items().iter().map(|consumer| consumer.field("name").expect("a name").text()).collect()
        };
        client.call("XGROUP CREATE s g $ MKSTREAM");
        client.call("XGROUP CREATE t g $ MKSTREAM");
        assert_eq!(client.call("XREADGROUP GROUP g alice STREAMS s >"), Value::NullArray);
        assert_eq!(names("s"), ["alice"]);
        assert_eq!(client.call("XREADGROUP GROUP g bob NOACK STREAMS s t > >"), Value::NullArray);
        assert_eq!((names("s"), names("t")), (vec!["alice".to_owned(), "bob".to_owned()], vec!["bob".to_owned()]));
        assert_eq!(client.call("XREADGROUP GROUP g carol BLOCK 1 STREAMS s t > >"), Value::NullArray);
        assert_eq!((names("s").len(), names("t").len()), (3, 2), "who waits, too");
        assert!(client.call("XREADGROUP GROUP g dave STREAMS s none > >").is_error());
        assert_eq!(names("s").len(), 3, "an error has changed nothing");
    });
}

fn ints(all: &[i64]) -> Value {
    Value::Array(all.iter().map(|n| int(*n)).collect())
}

#[test]
fn xdelex_asks_the_groups() {
    on_embers(&[], |server| {
        let mut client = server.client();
        fill(&mut client, "s", 1..=6);
        client.call("XGROUP CREATE s g 0");
        client.call("XGROUP CREATE s h 0");
        client.call("XREADGROUP GROUP g c COUNT 3 STREAMS s >");
        client.call("XREADGROUP GROUP h c COUNT 2 STREAMS s >");
        client.call("XACK s g 1-0");
        assert_eq!(client.call("XDELEX s ACKED IDS 3 1-0 5-0 9-0"), ints(&[2, 2, 2]), "pending in h, not delivered");
        client.call("XACK s h 1-0");
        assert_eq!(client.call("XDELEX s IDS 2 1-0 1-0 ACKED"), ints(&[1, -1]));
        assert_eq!(client.call("XDELEX s keepref IDS 1 2-0"), ints(&[1]));
        assert_eq!(client.call("XPENDING s h").items()[0], int(1), "it stays pending");
        assert_eq!(client.call("XDELEX s DELREF IDS 2 2-0 3-0"), ints(&[-1, 1]));
        assert_eq!(client.call("XPENDING s g").items()[0], int(0));
        assert_eq!(client.call("XPENDING s h").items()[0], int(0));
        assert_eq!(client.call("XLEN s"), int(3));
        assert_eq!(
            client.call("XDELEX none DELREF IDS 2 a b"),
            ints(&[-1, -1]),
            "ids are read where there is a stream"
        );
        for (line, text) in [
            ("XDELEX s IDS 0 1-0", "ERR Number of IDs must be a positive integer"),
            ("XDELEX s IDS -1 1-0", "ERR Number of IDs must be a positive integer"),
            ("XDELEX s IDS x 1-0", "ERR Number of IDs must be a positive integer"),
            ("XDELEX s IDS 9223372036854775807 1-0", "ERR The `numids` parameter must match the number of arguments"),
            ("XDELEX none IDS 2 1-0", "ERR The `numids` parameter must match the number of arguments"),
            ("XDELEX s IDS 1 1-0 2-0", "ERR syntax error"),
            ("XDELEX s KEEPREF ACKED IDS 1 1-0", "ERR syntax error"),
            ("XDELEX s KEEPREF KEEPREF 1-0", "ERR syntax error"),
            ("XDELEX s IDS 1 abc", "ERR Invalid stream ID specified as stream command argument"),
            ("XDELEX s IDS 1", "ERR wrong number of arguments for 'xdelex' command"),
        ] {
            assert_eq!(client.call(line), error(text), "{line}");
        }
        client.call("SET k v");
        assert!(client.call("XDELEX k IDS 0 1-0").text().starts_with("WRONGTYPE"));
    });
}

#[test]
fn xackdel_acknowledges_and_deletes() {
    on_embers(&[], |server| {
        let mut client = server.client();
        fill(&mut client, "s", 1..=4);
        client.call("XGROUP CREATE s g 0");
        client.call("XGROUP CREATE s h 0");
        client.call("XREADGROUP GROUP g c STREAMS s >");
        client.call("XREADGROUP GROUP h c COUNT 3 STREAMS s >");
        assert_eq!(client.call("XACKDEL s g ACKED IDS 2 1-0 4-0"), ints(&[2, 2]));
        assert_eq!(client.call("XACKDEL s g ACKED IDS 1 1-0"), ints(&[-1]), "it is acknowledged already");
        assert_eq!(client.call("XACKDEL s h ACKED IDS 1 1-0"), ints(&[1]));
        assert_eq!(client.call("XACKDEL s g IDS 1 2-0"), ints(&[1]));
        assert_eq!(client.call("XPENDING s h").items()[0], int(2), "2-0 is gone, and stays pending");
        assert_eq!(client.call("XACKDEL s h IDS 1 2-0"), ints(&[1]), "gone counts as deleted");
        assert_eq!(client.call("XACKDEL s g DELREF IDS 1 3-0"), ints(&[1]));
        assert_eq!(client.call("XPENDING s h").items()[0], int(0));
        assert_eq!(client.call("XLEN s"), int(1));
        assert_eq!(client.call("XACKDEL s none IDS 1 4-0"), ints(&[-1]));
        assert_eq!(client.call("XACKDEL none g IDS 1 x"), ints(&[-1]));
        assert_eq!(client.call("XACKDEL s g IDS 0"), error("ERR wrong number of arguments for 'xackdel' command"));
        assert_eq!(client.call("XACKDEL s g 4-0 4-0 4-0"), error("ERR syntax error"));
        assert_eq!(client.call("XACKDEL s g ACKED KEEPREF ACKED"), error("ERR syntax error"));
    });
}

#[test]
fn trims_ask_the_groups() {
    on_embers(&[], |server| {
        let mut client = server.client();
        let ids = |client: &mut Client| -> Vec<String> {
            client.call("XRANGE s - +").items().iter().map(|entry| entry.items()[0].text()).collect()
        };
        fill(&mut client, "s", 1..=6);
        client.call("XGROUP CREATE s g 0");
        client.call("XREADGROUP GROUP g c COUNT 4 STREAMS s >");
        client.call("XACK s g 1-0 3-0");
        assert_eq!(client.call("XTRIM s MAXLEN = 0 ACKED"), int(2));
        assert_eq!(ids(&mut client), ["2-0", "4-0", "5-0", "6-0"]);
        assert_eq!(client.call("XADD s MAXLEN 2 ACKED 7-0 f v"), bulk("7-0"));
        assert_eq!(ids(&mut client).len(), 5, "nothing may go");
        assert_eq!(client.call("XADD s DELREF MINID = 4-0 8-0 f v"), bulk("8-0"));
        assert_eq!(ids(&mut client), ["4-0", "5-0", "6-0", "7-0", "8-0"]);
        assert_eq!(client.call("XPENDING s g").items()[0], int(1), "2-0 is not pending any more");
        assert_eq!(client.call("XTRIM s KEEPREF MAXLEN 1"), int(4));
        assert_eq!(client.call("XPENDING s g").items()[0], int(1));
        for line in ["XTRIM s MAXLEN 1 ACKED KEEPREF", "XTRIM s ACKED ACKED MAXLEN 1"] {
            assert_eq!(client.call(line), error("ERR syntax error"), "{line}");
        }
        let no_id = error("ERR Invalid stream ID specified as stream command argument");
        assert_eq!(client.call("XADD s KEEPREF DELREF 9-0 f v"), no_id);
        let no_strategy = error("ERR syntax error, XTRIM must be called with a trimming strategy");
        assert_eq!(client.call("XTRIM s ACKED DELREF"), error("ERR syntax error"));
        assert_eq!(client.call("XTRIM s ACKED LIMIT 0"), no_strategy);
    });
}
