//! Databases that arrive beside those that are there, which nobody sees until they take their place: what a replica loads of
//! its primary's snapshot while its own data stay as they are.

use super::{Keyspace, elements};
use crate::clock::Now;
use crate::table::Table;

impl Keyspace {
    /// Others arrive from now on, empty at first.
    pub fn begin_arriving(&mut self) {
        let empty = || Table::new(self.hasher.clone(), elements::any_lives);
        self.arriving = (0..self.dbs.len()).map(|_| empty()).collect();
    }

    /// What is done to the databases is done to those that arrive. Views and advisors are about the others.
    pub fn with_arriving<R>(&mut self, work: impl FnOnce(&mut Keyspace) -> R) -> R {
        let (views, advisor) = (self.effects.take_views(), self.effects.take_advisor());
        std::mem::swap(&mut self.dbs, &mut self.arriving);
        self.exchange_pins();
        let result = work(self);
        self.exchange_pins();
        std::mem::swap(&mut self.dbs, &mut self.arriving);
        views.into_iter().for_each(|views| self.effects.put_views_back(views));
        advisor.into_iter().for_each(|advisor| self.effects.put_advisor(advisor));
        result
    }

    /// Those that have arrived take the place of those that are there, or are given up.
    pub fn end_arriving(&mut self, takes_place: bool, now: Now) {
        for (db, arrived) in std::mem::take(&mut self.arriving).into_iter().enumerate() {
            if !takes_place {
                self.nodes.take_table(arrived);
                continue;
            }
            self.flush(db, now);
            self.dbs[db] = arrived;
            self.effects.views_mut().into_iter().for_each(|views| views.swapped(db));
            self.touch_awaited(db, now);
        }
        self.end_arriving_pins(takes_place);
    }
}
