//! What looking a key up leaves behind.

/// What looking a key up leaves behind. A command's row decides it, see `Spec::touch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch(u8);

impl Touch {
    const USES: u8 = 1;
    const COUNTS: u8 = 2;
    const TELLS: u8 = 4;
    /// A use that renews no life under a sliding policy, or in a sliding group.
    const RENEWS_NOTHING: u8 = 8;
    /// Nothing: nobody uses the key, or the same command has looked it up already.
    pub const NOTHING: Touch = Touch(0);

    /// As a command that reads a value.
    #[cfg(test)]
    pub const TEST_READ: Touch = Touch(Touch::USES | Touch::COUNTS);

    /// - `uses`: a key that is there counts as used: its access clock is set
    /// - `counts`: a hit or a miss is counted
    /// - `tells`: that a key is missing is an event, if it is counted
    pub fn new(uses: bool, counts: bool, tells: bool) -> Touch {
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        Touch(bit(uses, Touch::USES) | bit(counts, Touch::COUNTS) | bit(tells, Touch::TELLS))
    }

    #[inline]
    pub fn uses(self) -> bool {
        self.0 & Touch::USES != 0
    }

    #[inline]
    pub fn counts(self) -> bool {
        self.0 & Touch::COUNTS != 0
    }

    #[inline]
    pub fn tells(self) -> bool {
        self.0 & Touch::TELLS != 0
    }

    #[inline]
    pub fn renews(self) -> bool {
        self.0 & Touch::RENEWS_NOTHING == 0
    }

    /// The same, of somebody who asks about the key, or what might be done to it.
    pub fn without_renewal(self) -> Touch {
        Touch(self.0 | Touch::RENEWS_NOTHING)
    }

    pub fn counted(self) -> Touch {
        Touch(self.0 | Touch::COUNTS)
    }

    pub fn uncounted(self) -> Touch {
        Touch(self.0 & !Touch::COUNTS)
    }
}
