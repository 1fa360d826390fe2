//! Points on the globe, kept as scores of a sorted set ([`crate::value::geohash`]).
//!
//! `search.rs` has GEOSEARCH and the older forms of it.

mod search;

use super::spec::flag::{COUNTED, DENY_OOM, MOVABLE_KEYS, READ, WRITE};
use super::spec::{Group, Keys, Row, Spec};
use super::zsets::{AddOptions, add, of_kind, view};
use super::{Ctx, Run};
use crate::resp::{Error, Reply, Request, Result};
use crate::value::geohash::Point;
use crate::value::number::parse_f64;
use crate::value::zset::View;
use search::Form;
use smallvec::SmallVec;

pub const ROWS: &[Row<Run>] = &[
    Row::new(
        Spec {
            flags: WRITE | DENY_OOM,
            complexity: "O(log n) for each point",
            summary: "Adds points to a sorted set, which is made if there is none, or moves them.",
            ..of_key(
                "geoadd",
                -5,
                "3.2.0",
                "key [condition:(NX|XX)] [CH change:pure-token] data:(longitude:double latitude:double member)...",
            )
        },
        Run::Key(geoadd),
    ),
    Row::new(
        Spec { summary: "Returns the positions of points.", ..of_key("geopos", -2, "3.2.0", "key [member...]") },
        Run::Key(geopos),
    ),
    Row::new(
        Spec {
            complexity: "O(1)",
            summary: "Returns the distance between two points.",
            ..of_key("geodist", -4, "3.2.0", "key member1:string member2:string [unit:(M|KM|FT|MI)]")
        },
        Run::Key(geodist),
    ),
    Row::new(
        Spec {
            summary: "Returns the geohashes of points in their usual text form.",
            ..of_key("geohash", -2, "3.2.0", "key [member...]")
        },
        Run::Key(geohash),
    ),
    Row::new(
        Spec {
            summary: "Searches points around a position or another point, or within a polygon.",
            ..searching(
                "geosearch",
                -7,
                "6.2.0",
                "key [from:(FROMMEMBER member|FROMLONLAT fromlonlat:(longitude:double latitude:double))] \
                 by:(circle:(BYRADIUS radius:double unit:(M|KM|FT|MI))|box:(BYBOX width:double height:double \
                 unit:(M|KM|FT|MI))|polygon:(BYPOLYGON num-vertices:integer vertex:(longitude:double \
                 latitude:double)...)) [order:(ASC|DESC)] [count-block:(COUNT count:integer [ANY])] [WITHCOORD] \
                 [WITHDIST] [WITHHASH]",
            )
        },
        Run::Key(|ctx, request| search::read(ctx, request, Form::Search)),
    ),
    Row::new(
        Spec {
            flags: WRITE | COUNTED | DENY_OOM,
            keys: Keys::TWO,
            summary: "Searches points around a position or another point, or within a polygon, and stores them as a sorted set.",
            ..searching(
                "geosearchstore",
                -8,
                "6.2.0",
                "destination:key source:key [from:(FROMMEMBER member|FROMLONLAT fromlonlat:(longitude:double \
                 latitude:double))] by:(circle:(BYRADIUS radius:double unit:(M|KM|FT|MI))|box:(BYBOX width:double \
                 height:double unit:(M|KM|FT|MI))|polygon:(BYPOLYGON num-vertices:integer vertex:(longitude:double \
                 latitude:double)...)) [order:(ASC|DESC)] [count-block:(COUNT count:integer [ANY])] \
                 [STOREDIST]",
            )
        },
        Run::Atomic(
            |ctx, request| search::here(ctx, request, Form::SearchStore),
            |across| Box::pin(search::across(across, Form::SearchStore)),
        ),
    ),
    Row::new(
        Spec {
            flags: WRITE | COUNTED | DENY_OOM | MOVABLE_KEYS,
            keys: Keys::ONE_AND_STORE,
            summary: "Searches points around a position, and returns or stores them.",
            ..searching(
                "georadius",
                -6,
                "3.2.0",
                "key longitude:double latitude:double radius:double unit:(M|KM|FT|MI) [WITHCOORD] [WITHDIST] \
                 [WITHHASH] [count-block:(COUNT count:integer [ANY])] [order:(ASC|DESC)] [store:(STORE \
                 storekey:key|STOREDIST storedistkey:key)]",
            )
        },
        Run::Atomic(
            |ctx, request| search::here(ctx, request, Form::Radius { read_only: false }),
            |across| Box::pin(search::across(across, Form::Radius { read_only: false })),
        ),
    )
    .deprecated("6.2.0", "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` argument"),
    Row::new(
        Spec {
            summary: "Searches points around a position.",
            ..searching(
                "georadius_ro",
                -6,
                "3.2.10",
                "key longitude:double latitude:double radius:double unit:(M|KM|FT|MI) [WITHCOORD] [WITHDIST] \
                 [WITHHASH] [count-block:(COUNT count:integer [ANY])] [order:(ASC|DESC)]",
            )
        },
        Run::Key(|ctx, request| search::read(ctx, request, Form::Radius { read_only: true })),
    )
    .deprecated("6.2.0", "`GEOSEARCH` with the `BYRADIUS` argument"),
    Row::new(
        Spec {
            flags: WRITE | COUNTED | DENY_OOM | MOVABLE_KEYS,
            keys: Keys::ONE_AND_STORE,
            summary: "Searches points around another point, and returns or stores them.",
            ..searching(
                "georadiusbymember",
                -5,
                "3.2.0",
                "key member radius:double unit:(M|KM|FT|MI) [WITHCOORD] [WITHDIST] [WITHHASH] [count-block:(COUNT \
                 count:integer [ANY])] [order:(ASC|DESC)] [store:(STORE storekey:key|STOREDIST storedistkey:key)]",
            )
        },
        Run::Atomic(
            |ctx, request| search::here(ctx, request, Form::RadiusByMember { read_only: false }),
            |across| Box::pin(search::across(across, Form::RadiusByMember { read_only: false })),
        ),
    )
    .deprecated("6.2.0", "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` and `FROMMEMBER` arguments"),
    Row::new(
        Spec {
            summary: "Searches points around another point.",
            ..searching(
                "georadiusbymember_ro",
                -5,
                "3.2.10",
                "key member radius:double unit:(M|KM|FT|MI) [WITHCOORD] [WITHDIST] [WITHHASH] [count-block:(COUNT \
                 count:integer [ANY])] [order:(ASC|DESC)]",
            )
        },
        Run::Key(|ctx, request| search::read(ctx, request, Form::RadiusByMember { read_only: true })),
    )
    .deprecated("6.2.0", "`GEOSEARCH` with the `BYRADIUS` and `FROMMEMBER` arguments"),
];

const fn of_key(name: &'static str, arity: i32, since: &'static str, syntax: &'static str) -> Spec {
    Spec {
        name,
        arity,
        flags: READ,
        keys: Keys::ONE,
        group: Group::Geo,
        since,
        complexity: "O(1) for each point",
        summary: "",
        syntax,
    }
}

const fn searching(name: &'static str, arity: i32, since: &'static str, syntax: &'static str) -> Spec {
    let complexity = "O(n + log m) with n points in the cells around the area and m in the sorted set";
    Spec { complexity, ..of_key(name, arity, since, syntax) }
}

/// The position in two arguments.
fn parse_point(request: Request, index: usize) -> Result<Point> {
    let degrees = |index| parse_f64(request.arg(index)).ok_or(Error::NotAFloat);
    let point = Point { longitude: degrees(index)?, latitude: degrees(index + 1)? };
    if !point.is_valid() {
        let Point { longitude, latitude } = point;
        return Err(Error::err(format_args!("invalid longitude,latitude pair {longitude:.6},{latitude:.6}")));
    }
    Ok(point)
}

/// Meters in a unit.
fn parse_unit(text: &[u8]) -> Result<f64> {
    match text.to_ascii_lowercase().as_slice() {
        b"m" => Ok(1.0),
        b"km" => Ok(1000.0),
        b"ft" => Ok(0.3048),
        b"mi" => Ok(1609.34),
        _ => Err(Error::text("ERR unsupported unit provided. please use M, KM, FT, MI")),
    }
}

fn geoadd(ctx: &mut Ctx, request: Request) -> Result {
    let mut options = AddOptions::default();
    let mut first = 2;
    while first < request.len() {
        match () {
            () if request.is(first, "nx") => options.nx = true,
            () if request.is(first, "xx") => options.xx = true,
            () if request.is(first, "ch") => options.ch = true,
            () => break,
        }
        first += 1;
    }
    let points = request.len() - first;
    if !points.is_multiple_of(3) || points == 0 || options.nx && options.xx {
        return Err(Error::Syntax);
    }
    let mut pairs: SmallVec<[(f64, &[u8]); 4]> = SmallVec::with_capacity(points / 3);
    for index in (first..request.len()).step_by(3) {
        pairs.push((parse_point(request, index)?.score(), request.arg(index + 2)));
    }
    add(ctx, ctx.key(request.arg(1)), &pairs, options)
}

/// Shows the point of each member asked for, `None` where there is none.
fn each_point(ctx: &mut Ctx, request: Request, each: impl Fn(&mut Reply, Option<Point>)) -> Result {
    let key = ctx.key(request.arg(1));
    let live = of_kind(ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch))?;
    let view = live.as_ref().map_or(View::EMPTY, view);
    ctx.reply.array(request.len() - 2);
    request.from(2).for_each(|member| each(&mut ctx.reply, view.score(member).map(Point::of_score)));
    Ok(())
}

fn geopos(ctx: &mut Ctx, request: Request) -> Result {
    each_point(ctx, request, |reply, point| match point {
        Some(point) => reply_point(reply, point),
        None => reply.nil_array(),
    })
}

fn geohash(ctx: &mut Ctx, request: Request) -> Result {
    each_point(ctx, request, |reply, point| match point {
        Some(point) => reply.bulk(&point.text()),
        None => reply.nil(),
    })
}

fn geodist(ctx: &mut Ctx, request: Request) -> Result {
    let unit_m = match request.len() {
        4 => 1.0,
        5 => parse_unit(request.arg(4))?,
        _ => return Err(Error::Syntax),
    };
    let key = ctx.key(request.arg(1));
    let live = of_kind(ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch))?;
    let view = live.as_ref().map_or(View::EMPTY, view);
    let point = |index| view.score(request.arg(index)).map(Point::of_score);
    match point(2).zip(point(3)) {
        Some((a, b)) => reply_distance(&mut ctx.reply, a.distance_m(b) / unit_m),
        None => ctx.reply.nil(),
    }
    Ok(())
}

/// With four digits, as text in either protocol.
fn reply_distance(reply: &mut Reply, distance: f64) {
    reply.bulk(format!("{distance:.4}").as_bytes());
}

fn reply_point(reply: &mut Reply, point: Point) {
    reply.array(2);
    for degrees in [point.longitude, point.latitude] {
        let text = format!("{degrees:.17}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        reply.number_text(if text == "-0" { b"0" } else { text.as_bytes() });
    }
}
