//! DEBUG HTSTATS: how full hash tables are, as Redis describes its own. There are no chains here: each element has a slot
//! of its own.

use super::{find, on_key};
use crate::keyspace::Kind;
use crate::resp::{Error, Request, Result};
use crate::server::state::TaskCtx;
use crate::shard::Shard;
use crate::value::Node;
use crate::value::hash::Hash;
use crate::value::set::Set;
use crate::value::zset::Zset;
use std::rc::Rc;

#[derive(Clone, Copy, Default)]
struct Fill {
    slots: usize,
    used: usize,
}

/// Deadlines stand in a column of the table of keys, which has a place for each slot.
pub async fn of_database(ctx: &TaskCtx, request: Request<'_>) -> Result<Vec<u8>> {
    let databases = ctx.server.shard.keyspace.borrow().databases();
    let db = usize::try_from(request.int(2)?).ok().filter(|db| *db < databases);
    let db = db.ok_or(Error::text("ERR Out of range database"))?;
    let of_shard = move |shard: &Rc<Shard>| {
        let keyspace = shard.keyspace.borrow();
        let slots = keyspace.shape(db).slots;
        [keyspace.len(db), keyspace.with_deadline(db)].map(|used| Fill { slots, used })
    };
    let mut sums = [Fill::default(); 2];
    for fills in ctx.server.shard.call_all(of_shard).await {
        for (sum, fill) in sums.iter_mut().zip(fills) {
            sum.slots += fill.slots;
            sum.used += fill.used;
        }
    }
    let [keys, deadlines] = sums.map(describe);
    let text = format!("[Dictionary HT]\n{keys}[Expires HT]\n{deadlines}");
    Ok(ctx.reply(|reply| reply.verbatim("txt", &text)))
}

pub async fn of_key(ctx: &TaskCtx, key: &[u8]) -> Result<Vec<u8>> {
    let fill = on_key(ctx, key, |ctx, bytes| {
        let live = find(ctx, bytes).ok_or(Error::NoSuchKey)?;
        let dict = match live.kind() {
            Kind::Hash => live.node::<Hash>().and_then(Node::dict),
            Kind::Set => live.node::<Set>().and_then(Node::dict),
            Kind::Zset => live.node::<Zset>().and_then(Node::dict),
            Kind::String | Kind::List | Kind::Stream => None,
        };
        let dict = dict
            .ok_or(Error::text("ERR The value stored at the specified key is not represented using an hash table"))?;
        Ok(Fill { slots: dict.slots(), used: dict.len() })
    });
    let text = describe(fill.await?);
    Ok(ctx.reply(|reply| reply.verbatim("txt", &text)))
}

fn describe(Fill { slots, used }: Fill) -> String {
    let head = "Hash table 0 stats (main hash table):\n";
    if used == 0 {
        return format!("{head}No stats available for empty dictionaries\n");
    }
    let free = slots - used;
    let percent = |part: usize| part as f64 * 100.0 / slots as f64;
    let distribution = [(0, free), (1, used)].into_iter().filter(|(_, part)| *part > 0);
    let distribution: String =
        distribution.map(|(len, part)| format!("   {len}: {part} ({:.2}%)\n", percent(part))).collect();
    format!(
        "{head} table size: {slots}\n number of elements: {used}\n different slots: {used}\n max chain length: 1\n \
         avg chain length (counted): 1.00\n avg chain length (computed): 1.00\n Chain length distribution:\n{distribution}"
    )
}
