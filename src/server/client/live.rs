//! The live queries of a connection (LIVE).

use super::name_bytes;
use crate::keyspace::{Aspect, ViewOf};
use crate::net::Notify;
use crate::resp::{Proto, Reply};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// A connection may have so many.
pub const QUERIES_MAX: usize = 1_000;
/// A query shows no more names than this.
pub const NAMES_MAX: usize = 1_000;
/// So many where it does not say how many.
pub const NAMES_DEFAULT: usize = 100;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    pub db: usize,
    pub prefix: Box<[u8]>,
    /// With as many names as are asked for.
    pub aspect: Aspect,
}

impl Question {
    /// The view that answers it. Views that differ in how many names they show would do the same work many times: there are
    /// two sizes.
    pub fn view(&self) -> ViewOf {
        let size = |names: usize| if names <= NAMES_DEFAULT { NAMES_DEFAULT } else { NAMES_MAX };
        let aspect = match self.aspect {
            Aspect::Names(names) => Aspect::Names(size(names)),
            Aspect::Next(names) => Aspect::Next(size(names)),
            other => other,
        };
        ViewOf { db: self.db, prefix: self.prefix.clone(), aspect }
    }

    /// As LIVE calls it.
    pub fn name(&self) -> &'static str {
        match self.aspect {
            Aspect::Count => "count",
            Aspect::Bytes => "sum",
            Aspect::Names(_) => "keys",
            Aspect::Next(_) => "next",
        }
    }

    /// How many names it shows at the most.
    pub fn names(&self) -> Option<usize> {
        match self.aspect {
            Aspect::Count | Aspect::Bytes => None,
            Aspect::Names(names) | Aspect::Next(names) => Some(names),
        }
    }
}

/// What a view shows of all shards.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub keys: u64,
    pub bytes: u64,
    pub names: Vec<Box<[u8]>>,
    /// Names with their deadlines, milliseconds since 1970, the earliest first.
    pub next: Vec<(i64, Box<[u8]>)>,
}

impl Answer {
    /// Of all names in it.
    fn names_bytes(&self) -> usize {
        let names = self.names.iter().chain(self.next.iter().map(|(_, name)| name));
        names.map(|name| size_of::<Box<[u8]>>() + name.len()).sum()
    }

    /// The result of a query, as its connection gets it.
    pub fn result(&self, question: &Question, proto: Proto) -> Vec<u8> {
        let mut out = Vec::new();
        let reply = &mut Reply::new(&mut out, proto);
        match question.aspect {
            Aspect::Count => reply.int(self.keys as i64),
            Aspect::Bytes => reply.int(self.bytes as i64),
            Aspect::Names(most) => {
                let shown = &self.names[..self.names.len().min(most)];
                reply.array(2);
                reply.int(self.keys as i64);
                reply.array(shown.len());
                shown.iter().for_each(|name| reply.bulk(name));
            }
            Aspect::Next(most) => {
                let shown = &self.next[..self.next.len().min(most)];
                reply.array(2 * shown.len());
                for (deadline_ms, name) in shown {
                    reply.bulk(name);
                    reply.int(*deadline_ms);
                }
            }
        }
        out
    }
}

/// One live query.
pub struct LiveQuery {
    /// Its connection, and its number there.
    pub client: u64,
    pub id: u64,
    pub question: Question,
    /// The view that answers it, when it is known.
    pub view: Cell<Option<u64>>,
    newest: RefCell<Option<Arc<Answer>>>,
    /// What its names take, and what those of all queries of its connection do.
    names_bytes: Cell<usize>,
    names_bytes_of_all: Rc<Cell<usize>>,
    /// A hash of what the connection was told last; none before the reply to LIVE.
    pub told: Cell<Option<u64>>,
    /// It has something to be told that the connection could not take.
    pub is_late: Cell<bool>,
    /// Nobody wants to know any more.
    pub is_over: Cell<bool>,
    /// There is a first answer, or it is over.
    pub alarm: Notify,
}

/// So many times names are kept that a query shows: twice where the keys are, once where the first shard adds up, and for the
/// connection.
const NAMES_COPIES: usize = 4;

impl LiveQuery {
    pub fn newest(&self) -> Option<Arc<Answer>> {
        self.newest.borrow().clone()
    }

    pub fn has_answer(&self) -> bool {
        self.newest.borrow().is_some()
    }

    pub fn set_newest(&self, answer: Arc<Answer>) {
        self.count_names(NAMES_COPIES * answer.names_bytes());
        self.newest.replace(Some(answer));
    }

    fn count_names(&self, bytes: usize) {
        let of_others = self.names_bytes_of_all.get() - self.names_bytes.replace(bytes);
        self.names_bytes_of_all.set(of_others + bytes);
    }
}

/// Those of a connection, by their numbers.
#[derive(Default)]
pub struct LiveQueries {
    last_id: u64,
    queries: BTreeMap<u64, Rc<LiveQuery>>,
    bytes: usize,
    names_bytes: Rc<Cell<usize>>,
}

impl LiveQueries {
    pub fn len(&self) -> usize {
        self.queries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.queries.is_empty()
    }

    /// What they take, here and where they are answered.
    pub fn bytes(&self) -> usize {
        self.bytes + self.names_bytes.get()
    }

    /// One more, unless there are too many.
    pub fn add(&mut self, client: u64, question: Question) -> Option<Rc<LiveQuery>> {
        if self.queries.len() == QUERIES_MAX {
            return None;
        }
        self.last_id += 1;
        self.bytes += bytes_of(&question);
        let query = Rc::new(LiveQuery {
            client,
            id: self.last_id,
            question,
            view: Cell::new(None),
            newest: RefCell::default(),
            names_bytes: Cell::new(0),
            names_bytes_of_all: self.names_bytes.clone(),
            told: Cell::new(None),
            is_late: Cell::new(false),
            is_over: Cell::new(false),
            alarm: Notify::default(),
        });
        self.queries.insert(query.id, query.clone());
        Some(query)
    }

    pub fn get(&self, id: u64) -> Option<&Rc<LiveQuery>> {
        self.queries.get(&id)
    }

    pub fn remove(&mut self, id: u64) -> Option<Rc<LiveQuery>> {
        let query = self.queries.remove(&id)?;
        self.bytes -= bytes_of(&query.question);
        query.count_names(0);
        Some(query)
    }

    pub fn take_all(&mut self) -> Vec<Rc<LiveQuery>> {
        self.bytes = 0;
        // (An answer that comes later counts nowhere.)
        self.names_bytes = Rc::default();
        std::mem::take(&mut self.queries).into_values().collect()
    }

    /// In the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &LiveQuery> {
        self.queries.values().map(|query| &**query)
    }
}

fn bytes_of(question: &Question) -> usize {
    size_of::<LiveQuery>() + name_bytes(&question.prefix)
}
