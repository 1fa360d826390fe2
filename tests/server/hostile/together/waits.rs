//! Who waits for whom, drawn several times a second while everything odd goes on: the same circle in two pictures, one after
//! the other, is one that nobody leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Round;
use crate::common::{Client, Value, encode, words};

const EVERY: Duration = Duration::from_millis(100);

type Edges = BTreeSet<(String, String)>;

/// Draws until the round is over, and says how often it could: its client is ended and told BUSY like others.
pub fn watch(round: &Round) -> usize {
    let (mut client, mut last, mut count) = (None::<Client>, Edges::new(), 0);
    while !round.is_over() {
        std::thread::sleep(EVERY);
        let Some(drawn) = draw(round, &mut client) else {
            client = None;
            continue;
        };
        count += 1;
        let circles = in_circles(drawn);
        let stays: Edges = in_circles(circles.intersection(&last).cloned().collect());
        if !stays.is_empty() {
            round.fail(format!("they wait for each other: {stays:?}"));
        }
        last = circles;
    }
    count
}

fn draw(round: &Round, client: &mut Option<Client>) -> Option<Edges> {
    let client = client.get_or_insert_with(|| round.server.client());
    client.try_send_raw(&encode(&words("DEBUG WAITS"))).ok()?;
    match client.try_read_within(Duration::from_secs(5)).ok()? {
        Value::Array(lines) => Some(lines.iter().map(edge).collect()),
        _ => None,
    }
}

fn edge(line: &Value) -> (String, String) {
    let text = line.text();
    let (waiter, holder) = text.split_once(" -> ").expect("an edge");
    (waiter.to_owned(), holder.to_owned())
}

/// The edges from which there is a way back.
fn in_circles(mut edges: Edges) -> Edges {
    // Whoever waits for nobody, or is waited for by nobody, stands in no circle.
    loop {
        let waiters: BTreeSet<String> = edges.iter().map(|(waiter, _)| waiter.clone()).collect();
        let holders: BTreeSet<String> = edges.iter().map(|(_, holder)| holder.clone()).collect();
        let before = edges.len();
        edges.retain(|(waiter, holder)| holders.contains(waiter) && waiters.contains(holder));
        if edges.len() == before {
            break;
        }
    }
    let mut next: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    edges.iter().for_each(|(waiter, holder)| next.entry(waiter).or_default().push(holder));
    let leads_back = |(waiter, holder): &&(String, String)| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![holder.as_str()]);
        while let Some(at) = open.pop() {
            if at == waiter {
                return true;
            }
            if seen.insert(at) {
                open.extend(next.get(at).into_iter().flatten());
            }
        }
        false
    };
    edges.iter().filter(leads_back).cloned().collect()
}

#[test]
fn circles_are_found_in_drawings() {
    let edges = |drawn: &[(&str, &str)]| drawn.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect::<Edges>();
    assert_eq!(in_circles(edges(&[("a", "b"), ("b", "c"), ("a", "c"), ("d", "a")])), Edges::new());
    let circle = [("a", "b"), ("b", "c"), ("c", "a")];
    let beside = [("d", "a"), ("c", "e"), ("e", "f"), ("f", "f")];
    assert_eq!(in_circles(edges(&[&circle[..], &beside].concat())), edges(&[&circle[..], &[("f", "f")]].concat()));
}
