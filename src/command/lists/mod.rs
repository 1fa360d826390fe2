//! Lists.
//!
//! | file | what |
//! |---|---|
//! | `many.rs` | several elements at once from one list to another |
//! | `moves.rs` | from one list to another, and from the first of several; what waits for that |
//! | `inside.rs` | by index and by element |
//! | `ends.rs` | pushing to the ends and taking from them |
//!
//! A list is packed in its key's entry while `list-max-listpack-size` allows it, else a [`List`] of chunks; when it has
//! become half as small, it is packed again (Redis 7.2).

mod ends;
mod inside;
mod many;
mod moves;
#[cfg(test)]
mod tests;

use super::blocking::{self, Blocking, Nil};
use super::spec::flag::{BLOCKING, DENY_OOM, FAST, MOVABLE_KEYS, NO_SCRIPT, READ, WRITE};
use super::spec::{Group, Keys, Row, Spec};
use super::{Ctx, OwnedRequest, Run};
use crate::keyspace::{Key, KeyEdit, Kind, Live, Stored};
use crate::resp::{Error, Result};
use crate::value::list::{End, Limit, List, View};

pub const ROWS: &[Row<Run>] = &[
    Row::new(
        Spec {
            name: "lpush",
            arity: -3,
            flags: WRITE | DENY_OOM | FAST,
            keys: Keys::ONE,
            group: Group::List,
            since: "1.0.0",
            complexity: "O(1) for each element",
            summary: "Puts elements in front of a list, which is made if there is none.",
            syntax: "key element...",
        },
        Run::Key(|ctx, request| ends::push(ctx, request, End::Front, false)),
    ),
    Row::new(
        Spec {
            name: "rpush",
            arity: -3,
            flags: WRITE | DENY_OOM | FAST,
            keys: Keys::ONE,
            group: Group::List,
            since: "1.0.0",
            complexity: "O(1) for each element",
            summary: "Puts elements behind a list, which is made if there is none.",
            syntax: "key element...",
        },
        Run::Key(|ctx, request| ends::push(ctx, request, End::Back, false)),
    ),
    Row::new(
        Spec {
            name: "lpushx",
            arity: -3,
            flags: WRITE | DENY_OOM | FAST,
            keys: Keys::ONE,
            group: Group::List,
            since: "2.2.0",
            complexity: "O(1) for each element",
            summary: "Puts elements in front of a list, where there is one.",
            syntax: "key element...",
        },
        Run::Key(|ctx, request| ends::push(ctx, request, End::Front, true)),
    ),
    Row::new(
        Spec {
            name: "rpushx",
            arity: -3,
            flags: WRITE | DENY_OOM | FAST,
            keys: Keys::ONE,
            group: Group::List,
            since: "2.2.0",
            complexity: "O(1) for each element",
            summary: "Puts elements behind a list, where there is one.",
            syntax: "key element...",
        },
        Run::Key(|ctx, request| ends::push(ctx, request, End::Back, true)),
    ),
    Row::new(
        Spec {
            name: "lpop",
            arity: -2,
            flags: WRITE | FAST,
            keys: Keys::ONE,
            group: Group::List,
            since: "1.0.0",
            complexity: "O(1) for each element taken",
            summary: "Takes the first elements of a list and returns them.",
            syntax: "key [count:integer]",
        },
        Run::Key(|ctx, request| ends::pop(ctx, request, End::Front, "lpop")),
    ),
    Row::new(
        Spec {
            name: "rpop",
            arity: -2,
            flags: WRITE | FAST,
            keys: Keys::ONE,
            group: Group::List,
            since: "1.0.0",
            complexity: "O(1) for each element taken",
            summary: "Takes the last elements of a list and returns them, the last one first.",
            syntax: "key [count:integer]",
        },
        Run::Key(|ctx, request| ends::pop(ctx, request, End::Back, "rpop")),
    ),
    Row::new(
        Spec {
            name: "llen",
            arity: 2,
            flags: READ | FAST,
            keys: Keys::ONE,
            group: Group::List,
            since: "1.0.0",
            complexity: "O(1)",
            summary: "Returns the length of a list.",
            syntax: "key",
        },
        Run::Key(inside::llen),
    ),
    Row::new(
        Spec {
            name: "lindex",
            arity: 3,
            flags: READ,
            keys: Keys::ONE,
            group: Group::List,
            since: "1.0.0",
            complexity: "O(n / 100,000), and O(1) near the ends",
            summary: "Returns the element at an index; negative ones count from the end.",
            syntax: "key index:integer",
        },
        Run::Key(inside::lindex),
    ),
    Row::new(
        Spec {
            name: "lset",
            arity: 4,
            flags: WRITE | DENY_OOM,
            keys: Keys::ONE,
            group: Group::List,
            since: "1.0.0",
            complexity: "O(n / 100,000), and O(1) near the ends",
            summary: "Puts an element in the place of that at an index.",
            syntax: "key index:integer element",
        },
        Run::Key(inside::lset),
    ),
    Row::new(
        Spec {
            name: "linsert",
            arity: 5,
            flags: WRITE | DENY_OOM,
            keys: Keys::ONE,
            group: Group::List,
            since: "2.2.0",
            complexity: "O(n) in the number of elements before the pivot",
            summary: "Puts an element next to the first one that is equal to the pivot.",
            syntax: "key where:(BEFORE|AFTER) pivot element",
        },
        Run::Key(inside::linsert),
    ),
    Row::new(
        Spec {
            name: "lrange",
            arity: 4,
            flags: READ,
            keys: Keys::ONE,
            group: Group::List,
            since: "1.0.0",
            complexity: "O(n) in the number of elements returned",
            summary: "Returns the elements between two indexes, both included.",
            syntax: "key start:integer stop:integer",
        },
        Run::Key(inside::lrange),
    ),
    Row::new(
        Spec {
            name: "lrem",
            arity: 4,
            flags: WRITE,
            keys: Keys::ONE,
            group: Group::List,
            since: "1.0.0",
            complexity: "O(n) in the length of the list",
            summary: "Removes elements equal to one given: all of them, or so many from the front or, where negative, from the back.",
            syntax: "key count:integer element",
        },
        Run::Key(inside::lrem),
    ),
    Row::new(
        Spec {
            name: "ltrim",
            arity: 4,
            flags: WRITE,
            keys: Keys::ONE,
            group: Group::List,
            since: "1.0.0",
            complexity: "O(n / 1,000) in the number of elements removed",
            summary: "Keeps the elements between two indexes, both included.",
            syntax: "key start:integer stop:integer",
        },
        Run::Key(inside::ltrim),
    ),
    Row::new(
        Spec {
            name: "lpos",
            arity: -3,
            flags: READ,
            keys: Keys::ONE,
            group: Group::List,
            since: "6.0.6",
            complexity: "O(n) in the number of elements looked at",
            summary: "Returns the indexes of elements equal to one given.",
            syntax: "key element [RANK rank:integer] [COUNT num-matches:integer] [MAXLEN len:integer]",
        },
        Run::Key(inside::lpos),
    ),
    Row::new(
        Spec {
            name: "rpoplpush",
            arity: 3,
            flags: WRITE | DENY_OOM,
            keys: Keys::TWO,
            group: Group::List,
            since: "1.2.0",
            complexity: "O(1)",
            summary: "Takes the last element of a list and puts it in front of another list, or of the same.",
            syntax: "source:key destination:key",
        },
        MOVE,
    )
    .deprecated("6.2.0", "`LMOVE` with the `RIGHT` and `LEFT` arguments"),
    Row::new(
        Spec {
            name: "lmove",
            arity: 5,
            flags: WRITE | DENY_OOM,
            keys: Keys::TWO,
            group: Group::List,
            since: "6.2.0",
            complexity: "O(1)",
            summary: "Takes an element from an end of a list and puts it at an end of another list, or of the same.",
            syntax: "source:key destination:key wherefrom:(LEFT|RIGHT) whereto:(LEFT|RIGHT)",
        },
        MOVE,
    ),
    Row::new(
        Spec {
            name: "lmpop",
            arity: -4,
            flags: WRITE | MOVABLE_KEYS,
            keys: Keys::COUNTED,
            group: Group::List,
            since: "7.0.0",
            complexity: "O(n + m) in the numbers of keys and of elements taken",
            summary: "Takes elements from an end of the first list that has any.",
            syntax: "numkeys:integer key... where:(LEFT|RIGHT) [COUNT count:integer]",
        },
        POP_FIRST,
    ),
    Row::new(
        Spec {
            name: "blpop",
            arity: -3,
            flags: WRITE | NO_SCRIPT | BLOCKING,
            keys: Keys::ALL_BUT_LAST,
            group: Group::List,
            since: "2.0.0",
            complexity: "O(n) in the number of keys",
            summary: "Takes the first element of the first list that has any; waits until one has.",
            syntax: "key... timeout:double",
        },
        POP_OR_WAIT,
    ),
    Row::new(
        Spec {
            name: "brpop",
            arity: -3,
            flags: WRITE | NO_SCRIPT | BLOCKING,
            keys: Keys::ALL_BUT_LAST,
            group: Group::List,
            since: "2.0.0",
            complexity: "O(n) in the number of keys",
            summary: "Takes the last element of the first list that has any; waits until one has.",
            syntax: "key... timeout:double",
        },
        POP_OR_WAIT,
    ),
    Row::new(
        Spec {
            name: "brpoplpush",
            arity: 4,
            flags: WRITE | DENY_OOM | NO_SCRIPT | BLOCKING,
            keys: Keys::TWO,
            group: Group::List,
            since: "2.2.0",
            complexity: "O(1)",
            summary: "RPOPLPUSH that waits until there is an element.",
            syntax: "source:key destination:key timeout:double",
        },
        MOVE_OR_WAIT,
    )
    .deprecated("6.2.0", "`BLMOVE` with the `RIGHT` and `LEFT` arguments"),
    Row::new(
        Spec {
            name: "blmove",
            arity: 6,
            flags: WRITE | DENY_OOM | NO_SCRIPT | BLOCKING,
            keys: Keys::TWO,
            group: Group::List,
            since: "6.2.0",
            complexity: "O(1)",
            summary: "LMOVE that waits until there is an element.",
            syntax: "source:key destination:key wherefrom:(LEFT|RIGHT) whereto:(LEFT|RIGHT) timeout:double",
        },
        MOVE_OR_WAIT,
    ),
    Row::new(
        Spec {
            name: "lmovem",
            arity: -5,
            flags: WRITE | DENY_OOM,
            keys: Keys::TWO,
            group: Group::List,
            since: "8.10.0",
            complexity: "O(n) in the number of elements moved",
            summary: "Moves several elements from an end of one list to an end of another and returns them as they stand.",
            syntax: "source:key destination:key wherefrom:(LEFT|RIGHT) whereto:(LEFT|RIGHT) \
                     [how-many:(selector:(COUNT count:integer|EXACTLY exactly:integer) ordering:(OBO|BULK))]",
        },
        MOVE_MANY,
    ),
    Row::new(
        Spec {
            name: "blmovem",
            arity: -6,
            flags: WRITE | DENY_OOM | BLOCKING,
            keys: Keys::TWO,
            group: Group::List,
            since: "8.10.0",
            complexity: "O(n) in the number of elements moved",
            summary: "LMOVEM that waits until there are as many elements as it needs.",
            syntax: "source:key destination:key wherefrom:(LEFT|RIGHT) whereto:(LEFT|RIGHT) timeout:double \
                     [how-many:(selector:(COUNT count:integer|EXACTLY exactly:integer) ordering:(OBO|BULK))]",
        },
        MOVE_MANY_OR_WAIT,
    ),
    Row::new(
        Spec {
            name: "blmpop",
            arity: -5,
            flags: WRITE | MOVABLE_KEYS | BLOCKING,
            keys: Keys::COUNTED_LATER,
            group: Group::List,
            since: "7.0.0",
            complexity: "O(n + m) in the numbers of keys and of elements taken",
            summary: "LMPOP that waits until a list has elements.",
            syntax: "timeout:double numkeys:integer key... where:(LEFT|RIGHT) [COUNT count:integer]",
        },
        POP_FIRST_OR_WAIT,
    ),
];

const MOVE: Run = Run::Atomic(
    |ctx, request| blocking::once(ctx, request, blocking::never, moves::try_move, Nil::Bulk),
    |across| Box::pin(blocking::once_across(across, blocking::never, moves::try_move_across, Nil::Bulk)),
);

const MOVE_MANY: Run = Run::Atomic(
    |ctx, request| blocking::once(ctx, request, blocking::never, many::attempt, Nil::Array),
    |across| Box::pin(blocking::once_across(across, blocking::never, many::attempt_across, Nil::Array)),
);

/// Only the source is waited for.
const MOVE_MANY_OR_WAIT: Run = Run::Blocking(Blocking {
    wait: many::wait,
    attempt: (many::attempt, many::attempt_across),
    once: crate::command::blocking::both_once!(many::wait, many::attempt, many::attempt_across, Nil::Array),
    nil: Nil::Array,
    keys: Keys::ONE,
    kind: Kind::List,
    narrow: |_, request, _| OwnedRequest::of(request),
    is_enough: many::is_enough,
    ends_with_key: false,
});

const POP_FIRST: Run = Run::Atomic(
    |ctx, request| blocking::once(ctx, request, blocking::never, moves::try_pop_first, Nil::Array),
    |across| Box::pin(blocking::once_across(across, blocking::never, moves::try_pop_first_across, Nil::Array)),
);

const POP_OR_WAIT: Run = Run::Blocking(Blocking {
    wait: moves::pop_wait,
    attempt: (moves::try_pop, moves::try_pop_across),
    once: crate::command::blocking::both_once!(moves::pop_wait, moves::try_pop, moves::try_pop_across, Nil::Array),
    nil: Nil::Array,
    keys: Keys::ALL_BUT_LAST,
    kind: Kind::List,
    narrow: moves::with_one_key_of_all,
    is_enough: blocking::any_is_enough,
    ends_with_key: false,
});

/// Only the source is waited for.
const MOVE_OR_WAIT: Run = Run::Blocking(Blocking {
    wait: moves::move_wait,
    attempt: (moves::try_move, moves::try_move_across),
    once: crate::command::blocking::both_once!(moves::move_wait, moves::try_move, moves::try_move_across, Nil::Bulk),
    nil: Nil::Array,
    keys: Keys::ONE,
    kind: Kind::List,
    narrow: |_, request, _| OwnedRequest::of(request),
    is_enough: blocking::any_is_enough,
    ends_with_key: false,
});

const POP_FIRST_OR_WAIT: Run = Run::Blocking(Blocking {
    wait: moves::pop_first_wait,
    attempt: (moves::try_pop_first, moves::try_pop_first_across),
    once: crate::command::blocking::both_once!(
        moves::pop_first_wait,
        moves::try_pop_first,
        moves::try_pop_first_across,
        Nil::Array
    ),
    nil: Nil::Array,
    keys: Keys::COUNTED_LATER,
    kind: Kind::List,
    narrow: moves::with_one_key,
    is_enough: blocking::any_is_enough,
    ends_with_key: false,
});

/// The live list under a key; another type is an error.
fn find<'c>(ctx: &'c mut Ctx, key: Key) -> Result<Option<Live<'c>>> {
    of_kind(ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch))
}

fn of_kind(found: Option<Live>) -> Result<Option<Live>> {
    match found {
        Some(live) if live.kind() != Kind::List => Err(Error::WrongType),
        found => Ok(found),
    }
}

fn view<'l>(live: &'l Live) -> View<'l> {
    View::of(live.content())
}

fn limit(ctx: &Ctx) -> Limit {
    Limit::configured(ctx.limits)
}

/// Changes the list of chunks that a list is from now on, if it was not.
fn change_chunks<R>(live: &mut KeyEdit, limit: Limit, change: impl FnOnce(&mut List) -> R) -> R {
    if let Some(packed) = live.packed() {
        let list = List::from_packed(packed, limit);
        live.promote(list);
    }
    live.change_node(change).expect("a list that is not packed is a node")
}

/// What has to be done when elements were removed: a list without elements is deleted, a small one is packed. Returns
/// whether it is gone.
fn settle(mut live: KeyEdit, limit: Limit) -> bool {
    if view(&live).is_empty() {
        live.remove();
        return true;
    }
    pack_small(&mut live, limit);
    false
}

/// Packs a list of chunks that has become small.
fn pack_small(live: &mut KeyEdit, limit: Limit) {
    if let Some(packed) = live.node::<List>().and_then(|list| list.to_packed(limit)) {
        live.set_value(Stored::Packed(Kind::List, false, &packed));
    }
}

/// An index, negative ones counted from the end; below zero where it is before the first element.
fn from_end(index: i64, len: usize) -> i64 {
    if index < 0 { index.saturating_add(len as i64) } else { index }
}
