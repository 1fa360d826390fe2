//! A request as selectors look at it.

use super::vocabulary::Known;
use crate::command::describe::Access;
use crate::command::spec::{Channels, Keys};
use crate::resp::Request;
use smallvec::SmallVec;
use std::cell::OnceCell;

/// Why a user may not run a request. Where several selectors refuse it for different reasons, the greatest counts, as in
/// Redis: a channel before a key before the command, and of these the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denied {
    Command,
    /// The index of the argument.
    Key(usize),
    Channel(usize),
}

/// What is asked: may this request run? The keys are looked for once, and only where a selector has not all of them.
pub struct Question<'q> {
    pub(super) id: usize,
    pub(super) known: &'q Known,
    pub(super) request: Request<'q>,
    /// Of the only key, and of all keys of a request that may have others.
    access: OnceCell<Access>,
    keys: OnceCell<SmallVec<[(usize, Access); 8]>>,
}

impl<'q> Question<'q> {
    pub(super) fn new(id: usize, known: &'q Known, request: Request<'q>) -> Question<'q> {
        Question { id, known, request, access: OnceCell::new(), keys: OnceCell::new() }
    }

    /// What is compared with the first arguments that rules allow.
    pub(super) fn first_argument(&self) -> Option<&'q [u8]> {
        self.request.get(1)
    }

    /// The index of its key, and what is done with that, where the first argument is its only key.
    #[inline]
    pub(super) fn only_key(&self) -> Option<(usize, Access)> {
        let is_it = self.known.spec.keys == Keys::ONE && self.request.len() > 1;
        let access = || self.known.keys.of_nth(&self.known.spec, self.request, 0);
        is_it.then(|| (1, *self.access.get_or_init(access)))
    }

    /// The indexes of its keys, and what is done with each.
    pub(super) fn keys(&self) -> &[(usize, Access)] {
        self.keys.get_or_init(|| {
            if self.known.spec.keys.are_too_few(self.request) {
                return SmallVec::new();
            }
            let indexes = self.known.spec.keys.indexes(self.request).enumerate();
            let access = |nth| self.known.keys.of_nth(&self.known.spec, self.request, nth);
            let beside = self.known.spec.keys.ruled_beside(self.request).map(|index| (0, index));
            let all = indexes.chain(beside).filter(|(_, index)| *index < self.request.len());
            all.map(|(nth, index)| (index, access(nth))).collect()
        })
    }

    /// The indexes of its channels, or of patterns of channels.
    pub(super) fn channels(&self) -> std::ops::Range<usize> {
        match self.known.channels {
            Channels::None => 0..0,
            Channels::First => 1..2.min(self.request.len()),
            Channels::All | Channels::Patterns => 1..self.request.len(),
        }
    }

    pub(super) fn names_patterns(&self) -> bool {
        self.known.channels == Channels::Patterns
    }
}
