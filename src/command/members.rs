//! Members in requests: what SEXPIRE, ZEXPIRE and their kin have in common, beside what all [`elements`](super::elements)
//! have.

use super::deadlines::Conditions;
use crate::resp::{Error, Request, Result, printable};
use crate::value::number::parse_i64;
use std::ops::Range;

pub const NO_MEMBERS: Error = Error::text("ERR missing MEMBERS argument");
pub const TWICE: Error = Error::text("ERR MEMBERS keyword specified multiple times");

/// The members behind MEMBERS, which stands at an index, and their number. More may stand behind them.
pub fn members(request: Request, at: usize, bad_count: &'static str) -> Result<Range<usize>> {
    let count = request.get(at + 1).and_then(parse_i64).filter(|count| (1..=i64::from(i32::MAX)).contains(count));
    let count = count.and_then(|count| usize::try_from(count).ok()).ok_or(Error::text(bad_count))?;
    let members = at + 2..(at + 2).saturating_add(count);
    if members.end > request.len() {
        return Err(Error::text("ERR wrong number of arguments"));
    }
    Ok(members)
}

pub fn unknown(word: &[u8]) -> Error {
    Error::quoting(&[b"ERR unknown argument: ", printable(word, 128)])
}

/// What stands behind the time, in any order.
pub fn parse_expire(request: Request) -> Result<(Conditions, Range<usize>)> {
    let (mut conditions, mut found) = (Conditions::default(), None);
    let mut index = 3;
    while index < request.len() {
        if request.is(index, "members") {
            if found.is_some() {
                return Err(TWICE);
            }
            if index + 2 >= request.len() {
                return Err(Error::text("ERR MEMBERS requires at least nummembers and one member argument"));
            }
            let members = members(request, index, "ERR Parameter `numMembers` should be greater than 0")?;
            index = members.end;
            found = Some(members);
        } else if conditions.add(request.arg(index)) {
            index += 1;
        } else {
            return Err(unknown(request.arg(index)));
        }
    }
    let members = found.ok_or(NO_MEMBERS)?;
    if conditions.count() > 1 {
        return Err(Error::text("ERR Multiple condition flags specified"));
    }
    Ok((conditions, members))
}

/// The members of commands in which MEMBERS has its place behind the key.
pub fn parse_named(request: Request) -> Result<Range<usize>> {
    if !request.is(2, "members") {
        return Err(Error::text("ERR Mandatory argument MEMBERS is missing or not at the right position"));
    }
    let count = request.get(3).and_then(parse_i64).filter(|count| *count > 0);
    let count = count.ok_or(Error::text("ERR Number of members must be a positive integer"))?;
    if usize::try_from(count).ok() != Some(request.len() - 4) {
        return Err(Error::text("ERR The `nummembers` parameter must match the number of arguments"));
    }
    Ok(4..request.len())
}
