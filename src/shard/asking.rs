//! Who was admitted and is about to ask for keys: a long transaction looks for several turns which keys it needs. What comes
//! behind all that was admitted, another role or the begin of loading, waits until it has asked.

use super::Shard;
use crate::net::step_back;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

#[derive(Default)]
pub(super) struct Asking {
    next: Cell<u64>,
    /// In the order in which they have begun.
    now: RefCell<BTreeSet<u64>>,
}

/// Somebody is about to ask, as long as this lives.
pub struct AboutToAsk {
    shard: Rc<Shard>,
    number: u64,
}

impl Drop for AboutToAsk {
    fn drop(&mut self) {
        self.shard.asking.now.borrow_mut().remove(&self.number);
    }
}

impl Shard {
    /// To be let go when the keys are asked for, without a turn between.
    pub fn is_about_to_ask(self: &Rc<Shard>) -> AboutToAsk {
        let number = self.asking.next.get();
        self.asking.next.set(number + 1);
        self.asking.now.borrow_mut().insert(number);
        AboutToAsk { shard: self.clone(), number }
    }

    /// Waits until all have asked who are about to now.
    pub(super) async fn let_ask(&self) {
        let end = self.asking.next.get();
        while self.asking.now.borrow().first().is_some_and(|first| *first < end) {
            step_back().await;
        }
    }
}
