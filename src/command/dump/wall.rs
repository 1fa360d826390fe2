//! Times in RDB form, which are those of the wall clock.

use crate::clock::{Clock, FIRST_DEADLINE_MS, Now};
use crate::command::Ctx;

/// What the wall clock says, the same for all of one value: RDB has times since 1970.
#[derive(Clone, Copy)]
pub struct Wall {
    now: Now,
    offset_ms: i64,
    /// Fields are written without their deadlines, for who knows of none.
    leaves_fields: bool,
}

impl Wall {
    pub fn of(ctx: &Ctx) -> Wall {
        Wall::at(ctx.now, ctx.clock)
    }

    pub fn at(now: Now, clock: &Clock) -> Wall {
        Wall::ahead(now, clock.wall_offset_ms())
    }

    /// As the log says times.
    pub fn of_log(ctx: &Ctx) -> Wall {
        Wall::ahead(ctx.now, ctx.clock.log_offset_ms())
    }

    /// Of a clock that is so far ahead of store time.
    pub fn ahead(now: Now, offset_ms: i64) -> Wall {
        Wall { now, offset_ms, leaves_fields: false }
    }

    /// The same for who knows of no deadlines of fields, or not.
    pub fn leaving_fields(self, leaves_fields: bool) -> Wall {
        Wall { leaves_fields, ..self }
    }

    pub fn leaves_fields(self) -> bool {
        self.leaves_fields
    }

    #[cfg(test)]
    pub fn since_1970() -> Wall {
        Wall { now: Now::from_ms(1), offset_ms: 0, leaves_fields: false }
    }

    pub fn now_ms(self) -> u64 {
        self.now.ms
    }

    /// Milliseconds since 1970; none is before that.
    pub fn of_store_ms(self, store_ms: u64) -> u64 {
        self.of_signed_ms(i64::try_from(store_ms).unwrap_or(i64::MAX))
    }

    pub fn to_store_ms(self, wall_ms: u64) -> u64 {
        self.to_signed_ms(wall_ms).max(FIRST_DEADLINE_MS as i64) as u64
    }

    /// [`Wall::of_store_ms`] for a time that may be before the start of store time.
    pub fn of_signed_ms(self, store_ms: i64) -> u64 {
        store_ms.saturating_add(self.offset_ms).max(0) as u64
    }

    pub fn to_signed_ms(self, wall_ms: u64) -> i64 {
        i64::try_from(wall_ms).unwrap_or(i64::MAX).saturating_sub(self.offset_ms)
    }
}
