//! Tasks that go on for long let others go first.

use super::notify::note_woken;
use super::timers::sleep;
use super::turns::Turns;
use crate::clock::store_us;
use crate::executor::yield_now;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

thread_local! {
    /// When a task of this executor has rested last, store microseconds; none where tasks need no rests.
    static RESTED_US: Cell<Option<u64>> = const { Cell::new(None) };
    /// Of the long tasks that clients have begun, one steps back at a time.
    static LONG: Rc<Turns> = Rc::default();
}

/// A rest, and how long until the next.
const REST: Duration = Duration::from_micros(50);
const REST_EVERY_US: u64 = 1_000;

/// Lets whatever else waits go first.
pub async fn step_back() {
    note_woken();
    match is_to_rest() {
        true => {
            sleep(REST).await;
            // (Not before: until then whoever steps back rests, too, so that nobody is left who is ready.)
            RESTED_US.set(Some(store_us()));
        }
        false => yield_now().await,
    }
}

/// The same for long tasks of which clients may begin as many as they like: between two slices of such tasks, however many there
/// are, everybody else has one turn. (If each stepped back by itself all of them would be ready at once, and the sockets would
/// wait until each has had its slice.)
pub async fn step_back_in_turn() {
    let long = LONG.with(Rc::clone);
    let turn = long.take().await;
    step_back().await;
    drop(turn);
}

/// Tasks of this executor rest now and then in place of a step back. glommio looks for what comes from outside when its timer of
/// preemption rings, and sets no timer where it has slept and what woke it was another timer: a task that only ever steps back then
/// keeps everybody from the sockets.
pub(super) fn rest_now_and_then() {
    RESTED_US.set(Some(store_us()));
}

fn is_to_rest() -> bool {
    RESTED_US.get().is_some_and(|rested_us| store_us().saturating_sub(rested_us) >= REST_EVERY_US)
}
