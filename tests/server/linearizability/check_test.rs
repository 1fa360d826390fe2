//! Small histories written by hand: what the search accepts and what it refuses.

use super::check::{Verdict, check};
use super::history::History;

fn verdict(text: &str) -> Verdict {
    let history: History = format!("slack_us 10\nkeys 0a 0b 1a 1b\n{text}").parse().expect("a history");
    check(&history)
}

#[track_caller]
fn good(text: &str) {
    let verdict = verdict(text);
    assert!(matches!(verdict, Verdict::Linearizable { .. }), "{verdict:?}");
}

/// `culprit` is the operation that the report names.
#[track_caller]
fn bad(text: &str, culprit: &str) {
    match verdict(text) {
        Verdict::Violation { why, .. } => {
            let named = why.lines().nth(1).expect("a second line").trim();
            assert!(named.ends_with(culprit), "{why}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_is_linearizable() {
    good("");
}

#[test]
fn a_read_sees_the_last_write() {
    good("0 0 1 2 set 0a 5 -> OK\n1 0 3 4 get 0a -> 5");
    good("0 0 1 2 get 0a -> nil");
}

#[test]
fn a_read_beside_a_write_sees_either() {
    for seen in ["nil", "5"] {
        good(&format!("0 0 1 10 set 0a 5 -> OK\n1 0 2 4 get 0a -> {seen}"));
        good(&format!("0 0 1 3 set 0a 5 -> OK\n1 0 3 4 get 0a -> {seen}"));
    }
}

#[test]
fn a_stale_read_is_refused() {
    bad("0 0 1 2 set 0a 5 -> OK\n0 1 3 4 set 0a 6 -> OK\n1 0 5 6 get 0a -> 5", "get 0a -> 5");
    // The first to see a write that is still in flight shows it to everybody after.
    bad("0 0 1 9 set 0a 5 -> OK\n1 0 2 3 get 0a -> 5\n2 0 4 5 get 0a -> nil", "get 0a -> nil");
}

#[test]
fn a_value_that_nobody_wrote_is_refused() {
    bad("0 0 1 9 set 0a 5 -> OK\n1 0 2 8 get 0a -> 7", "get 0a -> 7");
}

#[test]
fn writes_in_flight_have_an_order_that_all_see() {
    let writes = "0 0 1 2 set 0a 5 -> OK\n1 0 1 2 set 0a 6 -> OK\n";
    good(&format!("{writes}2 0 3 4 get 0a -> 5\n3 0 5 6 get 0a -> 5"));
    good(&format!("{writes}2 0 3 4 get 0a -> 6"));
    bad(&format!("{writes}2 0 3 4 get 0a -> 5\n3 0 5 6 get 0a -> 6"), "get 0a -> 6");
}

#[test]
fn all_states_of_a_quiet_moment_are_kept() {
    // Which of two pairs of writes came first shows long after, each in its own way.
    let writes = "0 0 1 2 set 0a 1 -> OK\n1 0 1 2 set 0a 2 -> OK\n0 1 3 4 set 1a 3 -> OK\n1 1 3 4 set 1a 4 -> OK\n";
    for (first, second) in [(1, 3), (1, 4), (2, 3), (2, 4)] {
        good(&format!("{writes}2 0 9 10 mget 0a 1a -> {first} {second}"));
    }
    bad(&format!("{writes}2 0 9 10 mget 0a 1a -> 1 2"), "mget 0a 1a -> 1 2");
}

#[test]
fn half_of_an_mset_is_refused() {
    let mset = "0 0 1 9 mset 0a 5 1a 6 -> OK\n";
    good(&format!("{mset}1 0 2 3 mget 0a 1a -> nil nil\n1 1 4 5 mget 0a 1a -> 5 6"));
    bad(&format!("{mset}1 0 2 3 mget 0a 1a -> 5 nil"), "mget 0a 1a -> 5 nil");
    bad(&format!("{mset}1 0 2 3 get 0a -> 5\n1 1 4 5 get 1a -> nil"), "get 1a -> nil");
}

#[test]
fn two_readers_who_disagree_about_the_order_of_two_writes_are_refused() {
    let writes = "0 0 1 9 set 0a 5 -> OK\n1 0 1 9 set 1a 6 -> OK\n";
    good(&format!("{writes}2 0 2 3 mget 0a 1a -> 5 nil\n3 0 4 5 mget 0a 1a -> 5 6"));
    bad(&format!("{writes}2 0 2 3 mget 0a 1a -> 5 nil\n3 0 2 3 mget 0a 1a -> nil 6"), "mget 0a 1a -> nil 6");
}

#[test]
fn half_of_a_transaction_is_refused() {
    let exec = "0 0 1 9 exec set 0a 5 -> OK ; incr 1a -> 1\n";
    good(&format!("{exec}1 0 2 3 exec get 0a -> 5 ; get 1a -> 1"));
    bad(&format!("{exec}1 0 2 3 exec get 0a -> nil ; get 1a -> 1"), "get 1a -> 1");
    bad("0 0 1 9 exec set 0a 5 -> OK ; get 0a -> nil", "get 0a -> nil");
}

#[test]
fn a_lost_update_is_refused() {
    let start = "0 0 1 2 set 0a 5 -> OK\n";
    good(&format!("{start}0 1 3 9 incr 0a -> 7\n1 0 3 9 incr 0a -> 6"));
    bad(&format!("{start}0 1 3 9 incr 0a -> 6\n1 0 3 9 incr 0a -> 6"), "incr 0a -> 6");
    // Both read 5 under WATCH and write what they made of it.
    let read = "0 1 3 4 watch 0a\n1 0 3 4 watch 0a\n0 2 5 6 get 0a -> 5\n1 1 5 6 get 0a -> 5\n";
    good(&format!("{start}{read}0 3 7 9 exec set 0a 6 -> OK\n1 2 7 9 abort\n2 0 10 11 get 0a -> 6"));
    bad(&format!("{start}{read}0 3 7 8 exec set 0a 6 -> OK\n1 2 9 10 exec set 0a 7 -> OK"), "exec set 0a 7 -> OK");
    bad(&format!("{start}{read}0 3 7 9 exec set 0a 6 -> OK\n1 2 7 9 exec set 0a 7 -> OK"), "-> OK");
}

#[test]
fn a_transaction_whose_watched_key_changed_is_refused() {
    let watch = "0 0 1 2 watch 0a 1a\n1 0 3 4 set 1a 5 -> OK\n";
    good(&format!("{watch}0 1 5 6 abort"));
    bad(&format!("{watch}0 1 5 6 exec set 0b 6 -> OK"), "exec set 0b 6 -> OK");
    // Nothing is left of a watch after EXEC or UNWATCH, and a change by oneself counts.
    good(&format!("{watch}0 1 5 6 abort\n0 2 7 8 exec set 0b 6 -> OK"));
    good(&format!("{watch}0 1 5 6 unwatch\n0 2 7 8 exec set 0b 6 -> OK"));
    bad("0 0 1 2 watch 0a\n0 1 3 4 incr 0a -> 1\n0 2 5 6 exec get 0b -> nil", "get 0b -> nil");
}

#[test]
fn a_transaction_that_fails_without_a_reason_is_refused() {
    bad("0 0 1 2 watch 0a\n1 0 3 4 set 1a 5 -> OK\n0 1 5 6 abort", "abort");
    // DEL of what is not there changes nothing.
    bad("0 0 1 2 watch 0a\n1 0 3 4 del 0a -> 0\n0 1 5 6 abort", "abort");
    bad("0 0 1 2 abort", "abort");
}

#[test]
fn a_deadline_in_the_past_deletes() {
    let set = "0 0 1 2 set 0a 5 -> OK\n0 1 3 4 pexpire 0a -1 -> 1\n";
    good(&format!("{set}1 0 5 6 get 0a -> nil\n1 1 7 8 pexpire 0a 0 -> 0"));
    bad(&format!("{set}1 0 5 6 get 0a -> 5"), "get 0a -> 5");
}

/// The deadline is at 1,003 at the earliest and at 1,004 at the latest; the slack is ten.
const DEADLINE: &str = "0 0 1 2 set 0a 5 -> OK\n0 1 3 4 pexpire 0a 1 -> 1\n";

#[test]
fn a_key_is_alive_before_its_deadline_and_dead_after() {
    good(&format!("{DEADLINE}1 0 980 990 get 0a -> 5\n1 1 1015 1016 get 0a -> nil"));
    bad(&format!("{DEADLINE}1 0 980 990 get 0a -> nil"), "get 0a -> nil");
    bad(&format!("{DEADLINE}1 0 1015 1016 get 0a -> 5"), "get 0a -> 5");
    // It does not have to die between: both answers may come from before, and from after.
    for seen in ["5", "nil"] {
        good(&format!("{DEADLINE}1 0 990 1000 get 0a -> {seen}"));
        good(&format!("{DEADLINE}1 0 1014 2000 get 0a -> {seen}"));
    }
}

#[test]
fn a_dead_key_does_not_come_back() {
    good(&format!("{DEADLINE}1 0 995 996 get 0a -> 5\n1 1 997 998 get 0a -> nil"));
    bad(&format!("{DEADLINE}1 0 995 996 get 0a -> nil\n1 1 997 998 get 0a -> 5"), "get 0a -> 5");
    bad(&format!("{DEADLINE}1 0 995 996 incr 0a -> 1\n1 1 997 998 incr 0a -> 7"), "incr 0a -> 7");
}

#[test]
fn a_deadline_goes_with_a_new_value_and_stays_with_incr() {
    good(&format!("{DEADLINE}1 0 10 11 set 0a 6 -> OK\n1 1 5000 5001 get 0a -> 6"));
    good(&format!("{DEADLINE}1 0 10 11 incr 0a -> 6\n1 1 5000 5001 get 0a -> nil"));
    bad(&format!("{DEADLINE}1 0 10 11 incr 0a -> 6\n1 1 5000 5001 get 0a -> 6"), "get 0a -> 6");
    good(&format!("{DEADLINE}1 0 10 11 pexpire 0a 100 -> 1\n1 1 5000 5001 get 0a -> 5"));
}

#[test]
fn the_death_of_a_watched_key_is_a_change() {
    let watch = format!("{DEADLINE}1 0 10 11 watch 0a\n");
    good(&format!("{watch}1 1 2000 2001 abort"));
    bad(&format!("{watch}1 1 2000 2001 exec get 0b -> nil"), "get 0b -> nil");
    bad(&format!("{watch}1 1 900 901 abort"), "abort");
    good(&format!("{watch}1 1 1000 1001 abort"));
    good(&format!("{watch}1 1 1000 1001 exec get 0b -> nil"));
    bad(&format!("{watch}1 1 1000 1001 abort\n1 2 1002 1003 get 0a -> 5"), "get 0a -> 5");
    // Dead already when it was watched: its removal is no change.
    good(&format!("{DEADLINE}1 0 2000 2001 watch 0a\n1 1 3000 3001 exec get 0a -> nil"));
}

#[test]
fn a_pipeline_keeps_the_order_of_each_key() {
    good("0 0 1 9 set 0a 5 -> OK\n0 0 1 9 get 0a -> 5");
    bad("0 0 1 9 set 0a 5 -> OK\n0 0 1 9 get 0a -> nil", "get 0a -> nil");
    bad("0 0 1 9 set 0a 5 -> OK\n0 0 1 9 mset 0a 6 1a 7 -> OK\n1 0 10 11 get 0a -> 5", "get 0a -> 5");
    // Through a key in between.
    bad("0 0 1 9 get 1a -> 6\n0 0 1 9 mset 0a 5 1a 6 -> OK", "get 1a -> 6");
    // What is sent one after the other has an order over all keys.
    good("0 0 1 9 set 0a 5 -> OK\n0 0 1 9 set 1a 6 -> OK\n1 0 2 3 mget 0a 1a -> nil 6");
    bad("0 0 1 2 set 0a 5 -> OK\n0 1 3 9 set 1a 6 -> OK\n1 0 4 5 mget 0a 1a -> nil 6", "mget 0a 1a -> nil 6");
}

#[test]
fn after_all_keys_were_written_alone_the_search_goes_on_from_there() {
    let reset = "0 0 1 9 set 0a 1 -> OK\n1 0 1 9 set 0a 2 -> OK\n0 1 10 11 mset 0a 3 0b 4 1a 5 1b 6 -> OK\n";
    good(&format!("{reset}1 1 12 13 mget 0a 0b 1a 1b -> 3 4 5 6"));
    bad(&format!("{reset}1 1 12 13 mget 0a 0b -> 2 4"), "mget 0a 0b -> 2 4");
    // Not where somebody watches.
    good(&format!("2 0 1 2 watch 1b\n{reset}2 1 12 13 abort"));
}
