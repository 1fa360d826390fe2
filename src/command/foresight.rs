//! EXPIRY SCAN: the keys whose deadlines fall into a window, on all shards, as SCAN walks all keys.

use super::scanning::{self, COUNT_DEFAULT};
use super::{Across, Ctx};
use crate::keyspace::Cursor;
use crate::resp::{Error, Request, Result};
use crate::value::number::parse_i64;
use std::sync::Arc;

/// A moment among the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// Milliseconds since 1970: a plain integer.
    Unix(i64),
    /// So many milliseconds from the moment of the call on: a duration with a unit.
    In(u64),
}

impl Moment {
    fn parse(request: Request, index: usize) -> Result<Moment> {
        match parse_i64(request.arg(index)) {
            Some(unix_ms) => Ok(Moment::Unix(unix_ms)),
            None if request.arg(index).last().is_some_and(u8::is_ascii_digit) => Err(Error::NotAnInteger),
            None => request.duration(index).map(Moment::In),
        }
    }

    fn unix_ms(self, ctx: &Ctx) -> i64 {
        match self {
            Moment::Unix(unix_ms) => unix_ms,
            Moment::In(ms) => ctx.clock.to_wall_ms(ctx.now.ms.saturating_add(ms)),
        }
    }
}

/// What may follow the cursor.
struct Options {
    /// Deadlines later than this ...
    after: Option<Moment>,
    /// ... and no later than this.
    before: Option<Moment>,
    prefix: Vec<u8>,
    count: usize,
    with_deadlines: bool,
}

impl Options {
    fn parse(request: Request) -> Result<Options> {
        let mut options =
            Options { after: None, before: None, prefix: Vec::new(), count: COUNT_DEFAULT, with_deadlines: false };
        let mut index = 3;
        while index < request.len() {
            if request.is(index, "withdeadlines") {
                options.with_deadlines = true;
                index += 1;
                continue;
            }
            let argument = request.get(index + 1).ok_or(Error::Syntax)?;
            if request.is(index, "after") {
                options.after = Some(Moment::parse(request, index + 1)?);
            } else if request.is(index, "before") {
                options.before = Some(Moment::parse(request, index + 1)?);
            } else if request.is(index, "prefix") {
                options.prefix = argument.to_vec();
            } else if request.is(index, "count") {
                options.count = scanning::count(argument)?;
            } else {
                return Err(Error::Syntax);
            }
            index += 2;
        }
        Ok(options)
    }
}

/// What one call shows: keys and their deadlines, milliseconds since 1970.
#[derive(Default)]
struct Page {
    next: Option<Cursor>,
    seen: usize,
    found: Vec<(Vec<u8>, i64)>,
}

impl Page {
    /// Looks at about `count` keys of the cursor's shard.
    fn add(&mut self, ctx: &mut Ctx, cursor: Cursor, count: usize, options: &Options) {
        let after_ms = options.after.map(|moment| moment.unix_ms(ctx));
        let before_ms = options.before.map(|moment| moment.unix_ms(ctx));
        let is_in = |at_ms: i64| {
            after_ms.is_none_or(|after_ms| at_ms > after_ms) && before_ms.is_none_or(|before_ms| at_ms <= before_ms)
        };
        let Page { next, seen, found } = self;
        *next = ctx.keyspace.scan_deadlines(ctx.db, cursor, count, ctx.shards, ctx.now, |live| {
            *seen += 1;
            let at_ms = live.deadline_ms.map(|deadline_ms| ctx.clock.to_wall_ms(deadline_ms));
            if let Some(at_ms) = at_ms.filter(|at_ms| is_in(*at_ms) && live.key().starts_with(&options.prefix)) {
                found.push((live.key().to_vec(), at_ms));
            }
        });
    }
}

/// `EXPIRY SCAN cursor ...`, which any shard can start.
pub async fn scan(across: Across) -> Result<Vec<u8>> {
    let cursor = Cursor::from_u64(scanning::cursor(across.request.as_request(), 2)?);
    let options = Arc::new(Options::parse(across.request.as_request())?);
    let mut page = Page::default();
    let mut from = Some(cursor).filter(|cursor| cursor.shard < across.hop.shards());
    while let Some(cursor) = from {
        let of_shard = {
            let options = options.clone();
            move |ctx: &mut Ctx| {
                page.add(ctx, cursor, options.count - page.seen, &options);
                page
            }
        };
        page = across.on(cursor.shard, of_shard).await;
        // The shard is done, and the page is not full.
        from = page.next.filter(|next| next.shard != cursor.shard && page.seen < options.count);
    }
    Ok(across.reply(|reply| {
        reply.array(2);
        reply.bulk(page.next.map_or(0, Cursor::to_u64).to_string().as_bytes());
        reply.array(page.found.len() * if options.with_deadlines { 2 } else { 1 });
        for (key, at_ms) in &page.found {
            reply.bulk(key);
            if options.with_deadlines {
                reply.int(*at_ms);
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::OwnedRequest;

    #[test]
    fn windows_are_moments_or_durations() {
        let parsed = |line: &str| {
            let request = OwnedRequest::from_args(line.split(' ').map(str::as_bytes));
            Options::parse(request.as_request()).map(|options| (options.after, options.before))
        };
        assert_eq!(parsed("expiry scan 0"), Ok((None, None)));
        let both = Ok((Some(Moment::Unix(1_700_000_000_000)), Some(Moment::In(90 * 60_000))));
        assert_eq!(parsed("expiry scan 0 BEFORE 1.5h AFTER 1700000000000 count 5"), both);
        for wrong in ["BEFORE", "BEFORE 1x", "AFTER 0s", "AFTER 1.5", "COUNT 0", "PREFIX", "MATCH *"] {
            assert!(parsed(&format!("expiry scan 0 {wrong}")).is_err(), "{wrong}");
        }
    }
}
