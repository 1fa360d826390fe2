//! GEOSEARCH and the older forms of it.

use super::{parse_point, parse_unit, reply_distance, reply_point};
use crate::command::zsets::{Items, of_kind, store, view};
use crate::command::{Across, Ctx, reply_element};
use crate::keyspace::Event;
use crate::resp::{Error, Reply, Request, Result, printable};
use crate::value::geohash::{Point, Polygon, Search, Shape};
use crate::value::number::{compare_f64, parse_f64, parse_i64};
use crate::value::pack::Element;
use crate::value::zset::{AtScore, Border, View};
use std::ops::ControlFlow;

/// The most vertices of a polygon. Every point within its bounding box is compared with every edge, and all others on the
/// shard wait meanwhile.
const VERTICES_MAX: usize = 1024;

/// The commands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Radius { read_only: bool },
    RadiusByMember { read_only: bool },
    Search,
    SearchStore,
}

impl Form {
    /// Index of the key that is searched.
    fn key(self) -> usize {
        if self == Form::SearchStore { 2 } else { 1 }
    }

    /// Index of the first option.
    fn options(self) -> usize {
        match self {
            Form::Radius { .. } => 6,
            Form::RadiusByMember { .. } => 5,
            Form::Search => 2,
            Form::SearchStore => 3,
        }
    }

    fn is_search(self) -> bool {
        matches!(self, Form::Search | Form::SearchStore)
    }

    /// Whether STORE and STOREDIST name a key.
    fn may_store(self) -> bool {
        matches!(self, Form::Radius { read_only: false } | Form::RadiusByMember { read_only: false })
    }

    fn event(self) -> Event {
        if self.is_search() { Event::GeoSearchStore } else { Event::GeoRadiusStore }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// As they are found.
    None,
    Ascending,
    Descending,
}

/// What a search is asked for.
struct Asked {
    /// `None` where there is nothing to be searched.
    search: Option<Search>,
    order: Order,
    count: Option<usize>,
    /// Stop when there are enough, whether they are the nearest or not.
    any: bool,
    with_distance: bool,
    with_hash: bool,
    with_point: bool,
    /// Index of the destination.
    store: Option<usize>,
    /// Store distances, not positions.
    store_distance: bool,
}

/// What has been said of where to search.
#[derive(Default)]
struct Area {
    /// Where it is said of a key that is not there, no center is known.
    has_center: bool,
    center: Option<Point>,
    shape: Option<(Shape, f64)>,
    polygon: Option<Polygon>,
    from_member: bool,
    from_position: bool,
}

impl Area {
    /// A member as the center. `view`: the sorted set, if there is one.
    fn set_member(&mut self, view: Option<View>, member: &[u8]) -> Result {
        self.has_center = true;
        if let Some(view) = view {
            let score = view.score(member).ok_or(Error::text("ERR could not decode requested zset member"))?;
            self.center = Some(Point::of_score(score));
        }
        Ok(())
    }

    fn set_center(&mut self, request: Request, index: usize) -> Result {
        self.has_center = true;
        self.center = Some(parse_point(request, index)?);
        Ok(())
    }

    /// A radius and its unit.
    fn set_circle(&mut self, request: Request, index: usize) -> Result {
        let radius = parse_f64(request.arg(index)).ok_or(Error::text("ERR need numeric radius"))?;
        if radius < 0.0 {
            return Err(Error::text("ERR radius cannot be negative"));
        }
        self.shape = Some((Shape::Circle { radius }, parse_unit(request.arg(index + 1))?));
        Ok(())
    }

    /// Width, height and their unit.
    fn set_rectangle(&mut self, request: Request, index: usize) -> Result {
        let width = parse_f64(request.arg(index)).ok_or(Error::text("ERR need numeric width"))?;
        let height = parse_f64(request.arg(index + 1)).ok_or(Error::text("ERR need numeric height"))?;
        if width < 0.0 || height < 0.0 {
            return Err(Error::text("ERR height or width cannot be negative"));
        }
        self.shape = Some((Shape::Rectangle { width, height }, parse_unit(request.arg(index + 2))?));
        Ok(())
    }

    /// A number and so many vertices; returns the number.
    fn set_polygon(&mut self, request: Request, index: usize) -> Result<usize> {
        let vertices = parse_i64(request.arg(index)).and_then(|vertices| i32::try_from(vertices).ok());
        let vertices = vertices.ok_or(Error::text("ERR invalid number of vertices"))?;
        let first = index + 1;
        let there = 3..=(request.len() - first) / 2;
        let vertices = usize::try_from(vertices).ok().filter(|vertices| there.contains(vertices));
        let vertices = vertices.ok_or(Error::text("ERR GEOSEARCH BYPOLYGON must have at least 3 vertices"))?;
        if vertices > VERTICES_MAX {
            return Err(Error::err(format_args!("GEOSEARCH BYPOLYGON must have at most {VERTICES_MAX} vertices")));
        }
        let points = (0..vertices).map(|nth| parse_point(request, first + 2 * nth)).collect::<Result<_>>()?;
        self.polygon = Some(Polygon::new(points));
        Ok(vertices)
    }

    fn is_circle(&self) -> bool {
        matches!(self.shape, Some((Shape::Circle { .. }, _)))
    }

    fn is_rectangle(&self) -> bool {
        matches!(self.shape, Some((Shape::Rectangle { .. }, _)))
    }
}

/// `view`: the sorted set, if there is one; members are looked up where they are named.
fn parse(request: Request, form: Form, view: Option<View>) -> Result<Asked> {
    let mut area = Area::default();
    match form {
        Form::Radius { .. } => {
            area.set_center(request, 2)?;
            area.set_circle(request, 4)?;
        }
        Form::RadiusByMember { .. } if view.is_some() => {
            area.set_member(view, request.arg(2))?;
            area.set_circle(request, 3)?;
        }
        _ => {}
    }
    let mut asked = Asked {
        search: None,
        order: Order::None,
        count: None,
        any: false,
        with_distance: false,
        with_hash: false,
        with_point: false,
        store: (form == Form::SearchStore).then_some(1),
        store_distance: false,
    };
    let mut index = form.options();
    while index < request.len() {
        index += parse_option(request, index, form, view, &mut asked, &mut area)?;
    }
    check(request, form, &asked, &area)?;
    if asked.count.is_some() && asked.order == Order::None && !asked.any {
        asked.order = Order::Ascending;
    }
    let around = area.center.zip(area.shape).map(|(center, (shape, unit_m))| Search { center, shape, unit_m });
    asked.search = area.polygon.map(Search::within).or(around);
    Ok(asked)
}

/// One option; returns how many arguments it takes.
fn parse_option(
    request: Request,
    index: usize,
    form: Form,
    view: Option<View>,
    asked: &mut Asked,
    area: &mut Area,
) -> Result<usize> {
    let behind = request.len() - index - 1;
    let is_search = form.is_search();
    match request.arg(index).to_ascii_lowercase().as_slice() {
        b"withdist" => asked.with_distance = true,
        b"withhash" => asked.with_hash = true,
        b"withcoord" => asked.with_point = true,
        b"any" => asked.any = true,
        b"asc" => asked.order = Order::Ascending,
        b"desc" => asked.order = Order::Descending,
        b"count" if behind >= 1 => {
            let count = usize::try_from(request.int(index + 1)?).ok().filter(|count| *count > 0);
            asked.count = Some(count.ok_or(Error::text("ERR COUNT must be > 0"))?);
            return Ok(2);
        }
        option @ (b"store" | b"storedist") if form.may_store() && behind >= 1 => {
            asked.store = Some(index + 1);
            asked.store_distance = option == b"storedist";
            return Ok(2);
        }
        b"frommember" if is_search && behind >= 1 && !area.from_position && area.polygon.is_none() => {
            area.set_member(view, request.arg(index + 1))?;
            area.from_member = true;
            return Ok(2);
        }
        b"fromlonlat" if is_search && behind >= 2 && !area.from_member && area.polygon.is_none() => {
            area.set_center(request, index + 1)?;
            area.from_position = true;
            return Ok(3);
        }
        b"byradius" if is_search && behind >= 2 && !area.is_rectangle() && area.polygon.is_none() => {
            area.set_circle(request, index + 1)?;
            return Ok(3);
        }
        b"bybox" if is_search && behind >= 3 && !area.is_circle() && area.polygon.is_none() => {
            area.set_rectangle(request, index + 1)?;
            return Ok(4);
        }
        b"bypolygon" if is_search && behind >= 2 && !area.has_center && area.shape.is_none() => {
            let vertices = area.set_polygon(request, index + 1)?;
            return Ok(2 + 2 * vertices);
        }
        b"storedist" if form == Form::SearchStore => asked.store_distance = true,
        _ => return Err(Error::Syntax),
    }
    Ok(1)
}

/// What does not go together.
fn check(request: Request, form: Form, asked: &Asked, area: &Area) -> Result {
    let name = || printable(request.arg(0), 128);
    if asked.store.is_some() && (asked.with_distance || asked.with_hash || asked.with_point) {
        let who = if form.is_search() { "GEOSEARCHSTORE" } else { "STORE option in GEORADIUS" };
        return Err(Error::err(format_args!("{who} is not compatible with WITHDIST, WITHHASH and WITHCOORD options")));
    }
    let has_polygon = area.polygon.is_some();
    if form.is_search() && !area.has_center && !has_polygon {
        let text = b"ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for ";
        return Err(Error::quoting(&[text, name()]));
    }
    if form.is_search() && area.shape.is_none() && !has_polygon {
        return Err(Error::quoting(&[b"ERR exactly one of BYRADIUS and BYBOX can be specified for ", name()]));
    }
    if asked.any && asked.count.is_none() {
        return Err(Error::text("ERR the ANY argument requires COUNT argument"));
    }
    Ok(())
}

/// A point that was found.
struct Hit<'a> {
    member: Element<'a>,
    score: f64,
    point: Point,
    distance_m: f64,
    /// Its place among all that were found.
    nth: usize,
}

/// The points asked for, in the order asked for.
fn find<'a>(view: View<'a>, asked: &Asked) -> Vec<Hit<'a>> {
    let Some(search) = &asked.search else { return Vec::new() };
    let enough = asked.count.filter(|_| asked.any).unwrap_or(usize::MAX);
    let mut hits: Vec<Hit> = Vec::new();
    for range in search.ranges() {
        if hits.len() >= enough {
            break;
        }
        let border = |score| Border::Score(AtScore { score, behind: false });
        view.walk(view.ranks(border(range.start), border(range.end)), false, |member, score| {
            let point = Point::of_score(score);
            if let Some(distance_m) = search.distance_m(point) {
                hits.push(Hit { member, score, point, distance_m, nth: hits.len() });
            }
            if hits.len() >= enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
    }
    let by_distance = |a: &Hit, b: &Hit| {
        let nearer = compare_f64(a.distance_m, b.distance_m);
        let first = if asked.order == Order::Descending { nearer.reverse() } else { nearer };
        first.then(a.nth.cmp(&b.nth))
    };
    if let Some(count) = asked.count.filter(|count| *count < hits.len()) {
        if asked.order != Order::None {
            hits.select_nth_unstable_by(count - 1, by_distance);
        }
        hits.truncate(count);
    }
    if asked.order != Order::None {
        hits.sort_unstable_by(by_distance);
    }
    hits
}

/// What is to be stored.
fn items(hits: &[Hit], asked: &Asked) -> Items {
    let mut items = Items::default();
    let unit_m = asked.search.as_ref().map_or(1.0, |search| search.unit_m);
    for hit in hits {
        items.push_element(hit.member, if asked.store_distance { hit.distance_m / unit_m } else { hit.score });
    }
    items
}

fn reply(reply: &mut Reply, hits: &[Hit], asked: &Asked) {
    let options = [asked.with_distance, asked.with_hash, asked.with_point].into_iter().filter(|with| *with).count();
    let unit_m = asked.search.as_ref().map_or(1.0, |search| search.unit_m);
    reply.array(hits.len());
    for hit in hits {
        if options > 0 {
            reply.array(1 + options);
        }
        reply_element(reply, hit.member);
        if asked.with_distance {
            reply_distance(reply, hit.distance_m / unit_m);
        }
        if asked.with_hash {
            reply.int(hit.score as i64);
        }
        if asked.with_point {
            reply_point(reply, hit.point);
        }
    }
}

/// Searches; hands the points to `found`, with what was asked for.
fn search<R>(
    ctx: &mut Ctx,
    request: Request,
    form: Form,
    found: impl FnOnce(&mut Reply, Vec<Hit>, Asked) -> R,
) -> Result<R> {
    let key = ctx.other_key(request.arg(form.key()));
    ctx.keyspace.thin_out_dead_elements(ctx.db, key, ctx.now);
    let live = of_kind(ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch))?;
    let view = live.as_ref().map(view);
    let asked = parse(request, form, view)?;
    let hits = view.map_or_else(Vec::new, |view| find(view, &asked));
    Ok(found(&mut ctx.reply, hits, asked))
}

pub fn read(ctx: &mut Ctx, request: Request, form: Form) -> Result {
    search(ctx, request, form, |to, hits, asked| reply(to, &hits, &asked))
}

/// Searches, and replies where the points are not to be stored; else they are returned with the destination's index.
fn search_to_store(ctx: &mut Ctx, request: Request, form: Form) -> Result<Option<(usize, Items)>> {
    search(ctx, request, form, |to, hits, asked| match asked.store {
        Some(index) => Some((index, items(&hits, &asked))),
        None => {
            reply(to, &hits, &asked);
            None
        }
    })
}

pub fn here(ctx: &mut Ctx, request: Request, form: Form) -> Result {
    if let Some((index, items)) = search_to_store(ctx, request, form)? {
        let key = ctx.other_key(request.arg(index));
        let stored = store(ctx, key, items, form.event())?;
        if stored > 0 {
            // Which of the points come first where not all are wanted (ANY) is nobody else's to know.
            ctx.propagate_state(key);
        } else {
            // Where nothing is dead before this shard says it, there may be some to be stored.
            ctx.keyspace.take_dead_elements(ctx.db, ctx.other_key(request.arg(form.key())), ctx.now);
        }
        ctx.reply.int(stored as i64);
    }
    Ok(())
}

/// Both keys are held, so that nobody sees the moment between the steps.
pub async fn across(across: Across, form: Form) -> Result<Vec<u8>> {
    let request = across.request.as_request();
    let source = across.shard_of(request.arg(form.key()));
    let (searching, proto) = (across.request.clone(), across.proto);
    let search = move |ctx: &mut Ctx| {
        let mut to_store = None;
        let bytes = ctx.written(proto, |ctx| {
            to_store = search_to_store(ctx, searching.as_request(), form)?;
            Ok(())
        })?;
        Ok((bytes, to_store))
    };
    let (bytes, to_store): (Vec<u8>, _) = across.on(source, search).await?;
    let Some((index, items)) = to_store else { return Ok(bytes) };
    let destination = request.arg(index).to_vec();
    let shard = across.shard_of(&destination);
    let put = move |ctx: &mut Ctx| store(ctx, ctx.other_key(&destination), items, form.event());
    let stored = across.on(shard, put).await?;
    Ok(across.reply(|reply| reply.int(stored as i64)))
}
