//! HyperLogLogs: sparse and dense, and strings that only look like them.

use super::super::{Args, Generator, args};

pub const NAMES: &[&str] = &["PFADD", "PFCOUNT", "PFMERGE"];

/// Keys of their own, in runs about several families.
const HYPERLOGLOGS: [&[u8]; 3] = [b"hyperloglog:1", b"hyperloglog:2", b"{tag}hyperloglog"];

impl Generator {
    pub fn hyperloglog(&mut self) -> Args {
        // Where commands of other families break what is under the usual keys, the two look at different moments.
        let key = if self.is_mixed() { self.pick(&HYPERLOGLOGS).to_vec() } else { self.key() };
        match self.rng.u32(..100) {
            46..95 if self.is_mixed() => {
                let name = *self.pick(&["PFCOUNT", "PFMERGE"]);
                let others = self.pick(&HYPERLOGLOGS).to_vec();
                args(name, [key, others])
            }
            0..40 => {
                let count = self.rng.usize(..8);
                [args("PFADD", [key]), self.times(count, Generator::element)].concat()
            }
            40..45 => [args("PFADD", [key]), self.crowd()].concat(),
            // Enough for the dense form.
            45 => {
                let first = self.rng.u32(..);
                let elements = (0..3_000).map(|n: u32| first.wrapping_add(n).to_string().into());
                args("PFADD", [key]).into_iter().chain(elements).collect()
            }
            46..75 => self.many_keys("PFCOUNT"),
            75..95 => self.many_keys("PFMERGE"),
            // What is left of a sparse one that got longer is judged by the two at different moments: not here.
            95 => args("APPEND", [key, Vec::new()]),
            96 => args("SETRANGE", [key, self.any_of(&["0", "3", "4"]), self.any_of(&["HYLX", "\u{2}", "x"])]),
            97 => args("SET", [key, self.any_of(&["HYLL", "HYLL\0\0\0\0", "HYLL\u{1}\0\0\0\0\0\0\0\0\0\0\0", ""])]),
            _ => args("STRLEN", [key]),
        }
    }
}
