//! What SCAN and its kin have in common: their options, and the shape of their replies.

use crate::resp::{Error, Reply, Request, Result};
use crate::value::glob::glob_match;
use crate::value::number::{parse_i64, parse_u64};

/// The most elements that a call is asked for: more would keep everybody else waiting, as KEYS does.
const COUNT_MAX: usize = 1 << 17;

/// About as many elements are shown where nobody says how many.
pub const COUNT_DEFAULT: usize = 10;

/// The argument of COUNT.
pub fn count(argument: &[u8]) -> Result<usize> {
    let count = parse_i64(argument).ok_or(Error::NotAnInteger)?;
    let count = usize::try_from(count).ok().filter(|count| *count >= 1).ok_or(Error::Syntax)?;
    Ok(count.min(COUNT_MAX))
}

/// What may follow a cursor.
pub struct ScanOptions<'r> {
    /// About how many elements a call shows.
    pub count: usize,
    pattern: Option<&'r [u8]>,
    /// The type of key, for SCAN.
    pub kind: Option<&'r [u8]>,
    /// Fields without their values, for HSCAN; members without their scores, for ZSCAN.
    pub is_bare: bool,
}

/// A cursor among the arguments: any number.
pub fn cursor(request: Request, index: usize) -> Result<u64> {
    parse_u64(request.arg(index)).ok_or(Error::InvalidCursor)
}

impl<'r> ScanOptions<'r> {
    /// The options from an index on; `own` is the option that only one command has.
    pub fn parse(request: Request<'r>, from: usize, own: Own) -> Result<ScanOptions<'r>> {
        let mut options = ScanOptions { count: COUNT_DEFAULT, pattern: None, kind: None, is_bare: false };
        let mut index = from;
        while index < request.len() {
            if let Some((_, owner, refusal)) = BARE.iter().find(|(word, ..)| request.is(index, word)) {
                if own != *owner {
                    return Err(Error::text(refusal));
                }
                options.is_bare = true;
                index += 1;
                continue;
            }
            let Some(argument) = request.get(index + 1) else { return Err(Error::Syntax) };
            if request.is(index, "count") {
                options.count = count(argument)?;
            } else if request.is(index, "match") {
                options.pattern = Some(argument).filter(|pattern| *pattern != b"*");
            } else if own == Own::Type && request.is(index, "type") {
                options.kind = Some(argument);
            } else {
                return Err(Error::Syntax);
            }
            index += 2;
        }
        Ok(options)
    }

    #[inline]
    pub fn matches(&self, text: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob_match(pattern, text, false))
    }
}

/// An option that not all of them have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    None,
    Type,
    NoValues,
    NoScores,
}

/// The options that ask for less than there is, and what the commands say that have not this one.
const BARE: [(&str, Own, &str); 2] = [
    ("novalues", Own::NoValues, "ERR NOVALUES option can only be used in HSCAN"),
    ("noscores", Own::NoScores, "ERR NOSCORES option can only be used in ZSCAN"),
];

/// The reply: where to go on, and what was shown.
pub fn reply_page(reply: &mut Reply, next: u64, shown: &[Vec<u8>]) {
    reply.array(2);
    reply.bulk(next.to_string().as_bytes());
    reply.array(shown.len());
    shown.iter().for_each(|element| reply.bulk(element));
}
