//! What SCAN and its kin have in common: their options, and the shape of their replies.

use super::{Across, Ctx};
use crate::keyspace::Cursor;
use crate::resp::{Error, Reply, Request, Result};
use crate::value::glob::glob_match;
use crate::value::number::{parse_i64, parse_u64};
use std::sync::Arc;

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
        let mut options = ScanOptions::of(COUNT_DEFAULT);
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
            if own == Own::Type && request.is(index, "type") {
                options.kind = Some(request.get(index + 1).ok_or(Error::Syntax)?);
            } else {
                options.add(request, index)?;
            }
            index += 2;
        }
        Ok(options)
    }

    /// Those where nothing is said but about how many are shown.
    pub fn of(count: usize) -> ScanOptions<'r> {
        ScanOptions { count, pattern: None, kind: None, is_bare: false }
    }

    /// One of those that all have, at this index.
    pub fn add(&mut self, request: Request<'r>, index: usize) -> Result {
        let argument = request.get(index + 1).ok_or(Error::Syntax)?;
        if request.is(index, "count") {
            self.count = count(argument)?;
        } else if request.is(index, "match") {
            self.pattern = Some(argument).filter(|pattern| *pattern != b"*");
        } else {
            return Err(Error::Syntax);
        }
        Ok(())
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

/// A walk over keys of all shards: how it is asked for, and what it looks at.
#[derive(Clone, Copy)]
pub struct Walk {
    /// Where the cursor is among the arguments.
    pub cursor_at: usize,
    pub options: for<'r> fn(Request<'r>) -> Result<ScanOptions<'r>>,
    /// Looks at about so many keys of the cursor's shard.
    pub look: fn(&mut Page, &Ctx, Cursor, usize, &ScanOptions),
}

/// What one call of a walk shows.
#[derive(Default)]
pub struct Page {
    /// Where to go on, if anywhere.
    pub next: Option<Cursor>,
    pub seen: usize,
    pub found: Vec<Vec<u8>>,
}

impl Page {
    fn reply(&self, reply: &mut Reply) {
        reply_page(reply, self.next.map_or(0, Cursor::to_u64), &self.found);
    }
}

impl Walk {
    fn cursor(self, request: Request) -> Result<Cursor> {
        cursor(request, self.cursor_at).map(Cursor::from_u64)
    }

    /// One call, where all is on this shard.
    pub fn run(self, ctx: &mut Ctx, request: Request) -> Result {
        let cursor = self.cursor(request)?;
        let options = (self.options)(request)?;
        let mut page = Page::default();
        if cursor.shard < ctx.shards {
            (self.look)(&mut page, ctx, cursor, options.count, &options);
        }
        page.reply(&mut ctx.reply);
        Ok(())
    }

    /// The same over several shards: few keys are shown by one call, wherever they are.
    pub async fn run_across(self, across: Across) -> Result<Vec<u8>> {
        let request = Arc::new(across.request.clone());
        let cursor = self.cursor(request.as_request())?;
        let count = (self.options)(request.as_request())?.count;
        let mut page = Page::default();
        let mut from = Some(cursor).filter(|cursor| cursor.shard < across.hop.shards());
        while let Some(cursor) = from {
            let request = request.clone();
            let of_shard = move |ctx: &mut Ctx| {
                let options = (self.options)(request.as_request())?;
                let rest = count - page.seen;
                (self.look)(&mut page, ctx, cursor, rest, &options);
                Result::Ok(page)
            };
            page = across.on(cursor.shard, of_shard).await?;
            // The shard is done, and the page is not full.
            from = page.next.filter(|next| next.shard != cursor.shard && page.seen < count);
        }
        Ok(across.reply(|reply| page.reply(reply)))
    }
}
