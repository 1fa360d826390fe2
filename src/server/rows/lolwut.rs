//! LOLWUT: the version, under a fire.

use super::server_spec;
use crate::command::spec::flag::{FAST, READ};
use crate::command::spec::{Row, Spec};
use crate::resp::{Request, Result};
use crate::server::state::{Run, SessionCtx};

pub const ROWS: &[Row<Run>] = &[Row::new(
    Spec {
        summary: "Draws a fire, and tells the version.",
        syntax: "[version:(VERSION version:integer)] [columns:integer] [rows:integer]",
        ..server_spec("lolwut", -1, READ | FAST, "5.0.0", "O(n) in the size of the fire")
    },
    Run::Session(lolwut),
)];

const COLUMNS: usize = 64;
const LINES: usize = 16;
const COLUMNS_MAX: i64 = 200;
const LINES_MAX: i64 = 100;
/// From cold to hot.
const EMBERS: &[u8] = b"  .:-=+*oO%#@";

fn lolwut(ctx: &mut SessionCtx, request: Request) -> Result {
    // Which version of the art is wanted makes no difference: there is one.
    let first = if request.is(1, "version") { 3 } else { 1 };
    if first == 3 && request.len() > 2 {
        request.int(2)?;
    }
    let size = |index: usize, default: usize, most: i64| match request.get(index) {
        Some(_) => request.int(index).map(|size| size.clamp(1, most) as usize),
        None => Ok(default),
    };
    let (columns, lines) = (size(first, COLUMNS, COLUMNS_MAX)?, size(first + 1, LINES, LINES_MAX)?);
    let mut text = fire(columns, lines, &mut ctx.server.shard.rng.borrow_mut());
    let as_redis = ctx.server.shard.config().redis_version;
    text += &format!("\nEmberDB ver. {} (as Redis ver. {as_redis})\n", env!("CARGO_PKG_VERSION"));
    ctx.reply.verbatim("txt", &text);
    Ok(())
}

/// Each ember is as hot as one below it, which the wind moves, and a little colder.
fn fire(columns: usize, lines: usize, rng: &mut fastrand::Rng) -> String {
    let hottest = EMBERS.len() - 1;
    let mut row: Vec<usize> = (0..columns).map(|_| rng.usize(hottest / 2..=hottest)).collect();
    let mut drawn: Vec<String> = Vec::with_capacity(lines);
    for _ in 0..lines {
        drawn.push(row.iter().map(|heat| char::from(EMBERS[*heat])).collect());
        row = (0..columns)
            .map(|column| {
                let below = (column + columns + rng.usize(0..3) - 1) % columns;
                row[below].saturating_sub(rng.usize(0..3))
            })
            .collect();
    }
    let mut text = String::new();
    drawn.iter().rev().for_each(|line| {
        text += line.trim_end();
        text.push('\n');
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fire_has_the_size_that_was_asked_for() {
        let mut rng = fastrand::Rng::with_seed(1);
        for (columns, lines) in [(1, 1), (64, 16), (200, 100)] {
            let text = fire(columns, lines, &mut rng);
            assert_eq!(text.lines().count(), lines);
            assert!(text.lines().all(|line| line.len() <= columns));
            assert!(!text.trim().is_empty());
        }
    }
}
