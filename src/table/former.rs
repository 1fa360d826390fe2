//! Which entries of a table have an access clock of the former meaning: see `clocks`.

/// Positions of entries whose clocks have the former meaning: `left` of them from `from` on.
#[derive(Clone, Copy, Debug)]
pub struct Former {
    pub from: u64,
    pub left: u128,
}

impl Former {
    pub fn has(&self, position: u64) -> bool {
        u128::from(position.wrapping_sub(self.from)) < self.left
    }
}
