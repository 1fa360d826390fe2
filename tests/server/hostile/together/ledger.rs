//! What was pushed, what was popped, and what is left. An element is a name that is pushed once.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use super::{COUNTED_DATABASES, Round, actors};
use crate::common::{Client, Value};

#[derive(Default)]
pub struct Ledger {
    books: Mutex<Books>,
}

#[derive(Default)]
struct Books {
    /// Acknowledged.
    pushed: HashSet<String>,
    /// Sent, and nobody knows whether that was executed.
    perhaps: HashSet<String>,
    popped: HashMap<String, u32>,
    /// As many elements may have been in replies that nobody has read, since their connections ended.
    unread: usize,
    lost: usize,
}

/// What elements look like.
fn is_element(bytes: &[u8]) -> bool {
    bytes.starts_with(b"element:")
}

impl Ledger {
    pub fn push(&self, elements: Vec<String>) {
        self.books.lock().expect("unpoisoned").pushed.extend(elements);
    }

    pub fn push_perhaps(&self, elements: Vec<String>) {
        self.books.lock().expect("unpoisoned").perhaps.extend(elements);
    }

    /// Takes all elements within a reply, and says how many there are.
    pub fn pop(&self, reply: &Value) -> usize {
        let (mut books, mut count) = (self.books.lock().expect("unpoisoned"), 0);
        each_element(reply, &mut |element| {
            *books.popped.entry(element).or_default() += 1;
            count += 1;
        });
        count
    }

    /// A connection has ended while a request was under way that pops so many elements at most.
    pub fn pop_unread(&self, elements_max: usize) {
        self.books.lock().expect("unpoisoned").unread += elements_max;
    }

    pub fn pushed(&self) -> usize {
        self.books.lock().expect("unpoisoned").pushed.len()
    }

    pub fn popped(&self) -> usize {
        self.books.lock().expect("unpoisoned").popped.len()
    }

    /// Elements that are in no reply and not there any more, of clients that ended in the middle.
    pub fn lost(&self) -> usize {
        self.books.lock().expect("unpoisoned").lost
    }

    /// Counts what is left, takes it away, and says what is wrong.
    pub fn settle(&self, client: &mut Client, round: &Round) -> Option<String> {
        let mut left: HashMap<String, u32> = HashMap::new();
        for database in 0..COUNTED_DATABASES {
            client.call(&format!("SELECT {database}"));
            for key in actors::LISTS {
                let reply = client.call(&format!("LRANGE {key} 0 -1"));
                each_element(&reply, &mut |element| *left.entry(element).or_default() += 1);
            }
            for key in actors::SORTED_SETS {
                let reply = client.call(&format!("ZRANGE {key} 0 -1"));
                each_element(&reply, &mut |element| *left.entry(element).or_default() += 1);
            }
            for key in actors::STREAMS {
                let reply = client.call(&format!("XREADGROUP GROUP readers last STREAMS {key} >"));
                each_element(&reply, &mut |element| *left.entry(element).or_default() += 1);
            }
        }
        let mut books = self.books.lock().expect("unpoisoned");
        let times = |element: &String| {
            books.popped.get(element).copied().unwrap_or_default() + left.get(element).copied().unwrap_or_default()
        };
        let all = books.popped.keys().chain(left.keys());
        for element in all {
            if !books.pushed.contains(element) && !books.perhaps.contains(element) {
                return Some(format!("{element} is there, though its push was refused"));
            }
            if times(element) > 1 {
                return Some(format!("{element} was pushed once, and was there {} times", times(element)));
            }
        }
        let lost: Vec<&String> = books.pushed.iter().filter(|element| times(element) == 0).collect();
        let (count, unread) = (lost.len(), books.unread);
        if count > 0 {
            round.tell(format!("lost, of {unread} that may have been in replies that nobody read: {lost:?}"));
        }
        if count > unread {
            return Some(format!(
                "{count} elements are lost, and at most {unread} in replies that nobody read, such as {}",
                lost[0]
            ));
        }
        books.lost = count;
        None
    }
}

fn each_element(value: &Value, with: &mut impl FnMut(String)) {
    match value {
        Value::Array(items) | Value::Set(items) | Value::Push(items) => {
            items.iter().for_each(|item| each_element(item, with));
        }
        Value::Map(pairs) => pairs.iter().for_each(|(key, value)| {
            each_element(key, with);
            each_element(value, with);
        }),
        Value::Bulk(bytes) if is_element(bytes) => with(String::from_utf8_lossy(bytes).into_owned()),
        _ => {}
    }
}
