//! Points on the globe as sorted set scores, computed as Redis 7.0.15 does, operation by operation: distances and
//! positions agree to the last digit, and a search finds its members in the same order.
//!
//! A score is a geohash of 52 bits: longitude and latitude, each as 26 bits of its range, interleaved with the latitude
//! in the even bits. A cell of `step` bits an axis is the range of all scores that begin with its `2 * step` bits. A
//! search takes the cells whose size is that of the searched shape: the one around its center and the eight beside it
//! (the scheme of ardb's geohash-int, which Redis adopted).

use std::ops::Range;

/// Web Mercator's (EPSG:3857) end of the world.
pub const LATITUDE_MAX: f64 = 85.05112878;
pub const LONGITUDE_MAX: f64 = 180.0;

const STEP_MAX: u32 = 26;
const SCORE_BITS: u32 = 2 * STEP_MAX;
const EARTH_RADIUS_M: f64 = 6372797.560856;
/// Half the length of the equator in Web Mercator.
const MERCATOR_MAX_M: f64 = 20037726.37;
const LATITUDES: u64 = 0x5555_5555_5555_5555;
const LONGITUDES: u64 = 0xaaaa_aaaa_aaaa_aaaa;
const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";

/// In degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub longitude: f64,
    pub latitude: f64,
}

/// In units of a search.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    Circle { radius: f64 },
    Rectangle { width: f64, height: f64 },
    Polygon(Polygon),
}

/// An area between vertices, as a map shows it on which degrees are a grid: no edge goes across the 180th meridian.
#[derive(Clone, Debug, PartialEq)]
pub struct Polygon {
    vertices: Vec<Point>,
    bounds: Area,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    pub center: Point,
    pub shape: Shape,
    /// Meters in one unit of the shape's lengths.
    pub unit_m: f64,
}

/// The degrees a grid of cells covers.
#[derive(Clone, Copy)]
struct Grid {
    longitude_max: f64,
    latitude_max: f64,
}

/// The grid of scores.
const SCORES: Grid = Grid { longitude_max: LONGITUDE_MAX, latitude_max: LATITUDE_MAX };
/// That of the usual text form, which reaches the poles.
const TEXT: Grid = Grid { longitude_max: 180.0, latitude_max: 90.0 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    bits: u64,
    step: u32,
}

/// Degrees from `min` to `max`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Span {
    min: f64,
    max: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Area {
    longitude: Span,
    latitude: Span,
}

impl Point {
    /// Whether there is a score for it.
    pub fn is_valid(self) -> bool {
        (-LONGITUDE_MAX..=LONGITUDE_MAX).contains(&self.longitude)
            && (-LATITUDE_MAX..=LATITUDE_MAX).contains(&self.latitude)
    }

    /// The score of a valid point.
    pub fn score(self) -> f64 {
        Cell::at(SCORES, self, STEP_MAX).bits as f64
    }

    /// The middle of the smallest cell that a score stands for; any score stands for one.
    pub fn of_score(score: f64) -> Point {
        let area = Cell { bits: bits_of(score), step: STEP_MAX }.area();
        let middle = |span: Span, max: f64| ((span.min + span.max) / 2.0).min(max).max(-max);
        Point { longitude: middle(area.longitude, LONGITUDE_MAX), latitude: middle(area.latitude, LATITUDE_MAX) }
    }

    /// The geohash in its usual text form; the last of the eleven letters says nothing, since there are 52 bits.
    pub fn text(self) -> [u8; 11] {
        let bits = Cell::at(TEXT, self, STEP_MAX).bits;
        std::array::from_fn(|at| match at {
            10 => ALPHABET[0],
            _ => ALPHABET[(bits >> (SCORE_BITS as usize - (at + 1) * 5)) as usize & 0x1f],
        })
    }

    /// Meters along the great circle (haversine).
    pub fn distance_m(self, other: Point) -> f64 {
        let v = ((radians(other.longitude) - radians(self.longitude)) / 2.0).sin();
        if v == 0.0 {
            return latitude_distance_m(self, other);
        }
        let (latitude, other_latitude) = (radians(self.latitude), radians(other.latitude));
        let u = ((other_latitude - latitude) / 2.0).sin();
        let a = u * u + latitude.cos() * other_latitude.cos() * v * v;
        2.0 * EARTH_RADIUS_M * a.sqrt().asin()
    }
}

impl Polygon {
    pub fn new(vertices: Vec<Point>) -> Polygon {
        let span = |part: fn(&Point) -> f64| {
            let parts = vertices.iter().map(part);
            parts.fold(Span { min: f64::MAX, max: f64::MIN }, |span, part| Span {
                min: span.min.min(part),
                max: span.max.max(part),
            })
        };
        let bounds = Area { longitude: span(|point| point.longitude), latitude: span(|point| point.latitude) };
        Polygon { vertices, bounds }
    }

    /// The middle of the vertices on the globe.
    fn centroid(&self) -> Point {
        let (mut x, mut y, mut z) = (0.0, 0.0, 0.0);
        for vertex in &self.vertices {
            let (longitude, latitude) = (radians(vertex.longitude), radians(vertex.latitude));
            x += latitude.cos() * longitude.cos();
            y += latitude.cos() * longitude.sin();
            z += latitude.sin();
        }
        let away_from_axis = f64::sqrt(x * x + y * y);
        Point { longitude: degrees(f64::atan2(y, x)), latitude: degrees(f64::atan2(z, away_from_axis)) }
    }

    /// Whether a ray from the point to the east crosses an odd number of edges (PNPOLY, W. Randolph Franklin,
    /// https://wrfranklin.org/Research/Short_Notes/pnpoly.html).
    fn contains(&self, point: Point) -> bool {
        let within = |value: f64, span: Span| span.min <= value && value <= span.max;
        if !within(point.longitude, self.bounds.longitude) || !within(point.latitude, self.bounds.latitude) {
            return false;
        }
        let is_crossed = |(a, b): &(&Point, &Point)| {
            (a.latitude > point.latitude) != (b.latitude > point.latitude)
                && point.longitude
                    < (b.longitude - a.longitude) * (point.latitude - a.latitude) / (b.latitude - a.latitude)
                        + a.longitude
        };
        // The vertex before the first is the last. (Skipping to it in a cycle would walk all of them for every point.)
        let before = self.vertices.last().into_iter().chain(&self.vertices);
        self.vertices.iter().zip(before).filter(is_crossed).count() % 2 == 1
    }
}

impl Search {
    /// What lies in a polygon; distances are in meters from its centroid.
    pub fn within(polygon: Polygon) -> Search {
        Search { center: polygon.centroid(), shape: Shape::Polygon(polygon), unit_m: 1.0 }
    }

    /// The ranges of scores in which everything is that a search finds, in the order in which Redis walks them. They
    /// may hold more, and one range may come twice, not in a row.
    pub fn ranges(&self) -> impl Iterator<Item = Range<f64>> {
        let mut last: Option<Cell> = None;
        self.cells().into_iter().enumerate().filter_map(move |(index, cell)| {
            // Of cells as large as the world's half, neighbours can be the same; the first of all is not compared.
            let cell = cell.filter(|cell| last != Some(*cell))?;
            last = (index > 0).then_some(cell);
            let shift = SCORE_BITS - 2 * cell.step;
            Some((cell.bits << shift) as f64..((cell.bits + 1) << shift) as f64)
        })
    }

    /// The point's distance from the center in meters, if it lies inside the shape.
    pub fn distance_m(&self, point: Point) -> Option<f64> {
        match &self.shape {
            Shape::Polygon(polygon) => polygon.contains(point).then(|| self.center.distance_m(point)),
            Shape::Circle { radius } => {
                {
                    // What is no number is inside, as in Redis.
                    let distance_m = self.center.distance_m(point);
                    let is_outside = distance_m > *radius * self.unit_m;
                    (!is_outside).then_some(distance_m)
                }
            }
            Shape::Rectangle { width, height } => {
                let beside = Point { longitude: self.center.longitude, ..point };
                let outside = latitude_distance_m(point, self.center) > *height * self.unit_m / 2.0
                    || point.distance_m(beside) > *width * self.unit_m / 2.0;
                (!outside).then(|| self.center.distance_m(point))
            }
        }
    }

    /// The cell of the center and its eight neighbours, but those that cannot hold anything of the shape.
    fn cells(&self) -> [Option<Cell>; 9] {
        let bounds = self.bounds();
        let center = self.center_of_cells();
        let mut step = step_for(self.reach_m(), center.latitude);
        let mut cell = Cell::at(SCORES, center, step);
        if let Shape::Polygon(_) = self.shape {
            while step > 1 && !cell.reaches(&bounds) {
                step -= 1;
                cell = Cell::at(SCORES, center, step);
            }
        } else if step > 1 && !cell.neighbours_cover(&bounds) {
            step -= 1;
            cell = Cell::at(SCORES, center, step);
        }
        let area = cell.area();
        let needed = |x: i32, y: i32| {
            let south = area.latitude.min < bounds.latitude.min;
            let north = area.latitude.max > bounds.latitude.max;
            let west = area.longitude.min < bounds.longitude.min;
            let east = area.longitude.max > bounds.longitude.max;
            step < 2 || !(y < 0 && south || y > 0 && north || x < 0 && west || x > 0 && east)
        };
        const MOVES: [(i32, i32); 9] = [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];
        MOVES.map(|(x, y)| needed(x, y).then(|| cell.moved(x, y)))
    }

    /// The point whose cell is the middle one: of a polygon one within its bounds, beside which its centroid may be.
    fn center_of_cells(&self) -> Point {
        // What lies on the northern or eastern end of the world belongs to no cell.
        const WITHIN: f64 = 1e-9;
        let Shape::Polygon(Polygon { bounds, .. }) = &self.shape else { return self.center };
        let clamped = |value: f64, span: Span, max: f64| value.max(span.min).min(span.max).min(max - WITHIN);
        Point {
            longitude: clamped(self.center.longitude, bounds.longitude, LONGITUDE_MAX),
            latitude: clamped(self.center.latitude, bounds.latitude, LATITUDE_MAX),
        }
    }

    /// From the center to the farthest point of the shape, or of a polygon's bounds.
    fn reach_m(&self) -> f64 {
        match &self.shape {
            Shape::Circle { radius } => self.unit_m * *radius,
            Shape::Rectangle { width, height } => {
                let (width, height) = (*width, *height);
                self.unit_m * ((width / 2.0) * (width / 2.0) + (height / 2.0) * (height / 2.0)).sqrt()
            }
            Shape::Polygon(Polygon { bounds: Area { longitude, latitude }, .. }) => {
                let corner = |longitude, latitude| self.center_of_cells().distance_m(Point { longitude, latitude });
                let sides = |longitude| corner(longitude, latitude.min).max(corner(longitude, latitude.max));
                sides(longitude.min).max(sides(longitude.max))
            }
        }
    }

    /// The degrees that the shape reaches over; its wider side, that towards the nearer pole, counts.
    fn bounds(&self) -> Area {
        let Point { longitude, latitude } = self.center;
        let (half_width, half_height) = match &self.shape {
            Shape::Polygon(polygon) => return polygon.bounds,
            Shape::Circle { radius } => (*radius, *radius),
            Shape::Rectangle { width, height } => (*width / 2.0, *height / 2.0),
        };
        let (half_width_m, half_height_m) = (self.unit_m * half_width, self.unit_m * half_height);
        let dy = degrees(half_height_m / EARTH_RADIUS_M);
        let side = if latitude < 0.0 { latitude - dy } else { latitude + dy };
        let dx = degrees(half_width_m / EARTH_RADIUS_M / radians(side).cos());
        Area {
            longitude: Span { min: longitude - dx, max: longitude + dx },
            latitude: Span { min: latitude - dy, max: latitude + dy },
        }
    }
}

impl Cell {
    fn at(grid: Grid, point: Point, step: u32) -> Cell {
        let part = |value: f64, max: f64| ((value + max) / (max + max) * (1u64 << step) as f64) as u32;
        let latitude = spread(part(point.latitude, grid.latitude_max));
        let longitude = spread(part(point.longitude, grid.longitude_max));
        Cell { bits: latitude | longitude << 1, step }
    }

    /// In the grid of scores.
    fn area(self) -> Area {
        let span = |part: u32, max: f64| {
            let degrees = |part: u32| -max + f64::from(part) / (1u64 << self.step) as f64 * (max + max);
            Span { min: degrees(part), max: degrees(part.wrapping_add(1)) }
        };
        Area { longitude: span(gather(self.bits >> 1), LONGITUDE_MAX), latitude: span(gather(self.bits), LATITUDE_MAX) }
    }

    /// So many cells to the east and to the north, at most one each; around the world where it ends.
    fn moved(self, x: i32, y: i32) -> Cell {
        let unused = 64 - 2 * self.step;
        let (longitudes, latitudes) = (LONGITUDES >> unused, LATITUDES >> unused);
        // A carry has to pass the bits of the other axis: they are all ones for an addition, none for a subtraction.
        let moved = |own: u64, others: u64, by: i32| match by {
            0 => own,
            1.. => own.wrapping_add(others + 1),
            _ => (own | others).wrapping_sub(others + 1),
        };
        let longitude = moved(self.bits & LONGITUDES, latitudes, x);
        let latitude = moved(self.bits & LATITUDES, longitudes, y);
        let kept = |own: u64, mask: u64, by: i32| if by == 0 { own } else { own & mask };
        Cell { bits: kept(longitude, longitudes, x) | kept(latitude, latitudes, y), step: self.step }
    }

    /// Whether the cells around this one, or the end of the world, are beyond these bounds on each side.
    fn reaches(self, bounds: &Area) -> bool {
        let area = self.area();
        let reaches = |own: Span, bound: Span| {
            let size = own.max - own.min;
            own.max + size >= bound.max && own.min - size <= bound.min
        };
        reaches(area.longitude, bounds.longitude) && reaches(area.latitude, bounds.latitude)
    }

    fn neighbours_cover(self, bounds: &Area) -> bool {
        let latitude = |y: i32| self.moved(0, y).area().latitude;
        let longitude = |x: i32| self.moved(x, 0).area().longitude;
        // Written so that a bound that is not a number is covered.
        !(latitude(1).max < bounds.latitude.max
            || latitude(-1).min > bounds.latitude.min
            || longitude(1).max < bounds.longitude.max
            || longitude(-1).min > bounds.longitude.min)
    }
}

/// The finest cells of which nine cover a circle, estimated.
fn step_for(reach_m: f64, latitude: f64) -> u32 {
    if reach_m == 0.0 {
        return STEP_MAX;
    }
    let (mut step, mut reach_m) = (1, reach_m);
    while reach_m < MERCATOR_MAX_M {
        reach_m *= 2.0;
        step += 1;
    }
    // Cells are narrower towards the poles.
    step -= 2 + i32::from(latitude.abs() > 66.0) + i32::from(latitude.abs() > 80.0);
    step.clamp(1, STEP_MAX as i32) as u32
}

fn latitude_distance_m(a: Point, b: Point) -> f64 {
    EARTH_RADIUS_M * (radians(b.latitude) - radians(a.latitude)).abs()
}

const RADIANS_PER_DEGREE: f64 = std::f64::consts::PI / 180.0;

fn radians(degrees: f64) -> f64 {
    degrees * RADIANS_PER_DEGREE
}

fn degrees(radians: f64) -> f64 {
    radians / RADIANS_PER_DEGREE
}

/// A score's bits. Scores that are no geohashes (negative, huge, infinite) become what an x86-64 makes of them.
fn bits_of(score: f64) -> u64 {
    const TOP: f64 = (1u64 << 63) as f64;
    if score < TOP {
        return score as i64 as u64;
    }
    if score < 2.0 * TOP { score as u64 } else { 0 }
}

/// Puts a zero before each bit.
fn spread(part: u32) -> u64 {
    const STEPS: [(u32, u64); 5] = [
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, LATITUDES),
    ];
    STEPS.iter().fold(part.into(), |bits: u64, (shift, mask)| (bits | bits << shift) & mask)
}

/// Every other bit, from the lowest on.
fn gather(bits: u64) -> u32 {
    const STEPS: [(u32, u64); 5] = [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0f0f_0f0f_0f0f_0f0f),
        (4, 0x00ff_00ff_00ff_00ff),
        (8, 0x0000_ffff_0000_ffff),
        (16, 0x0000_0000_ffff_ffff),
    ];
    STEPS.iter().fold(bits & LATITUDES, |bits, (shift, mask)| (bits | bits >> shift) & mask) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    const PALERMO: Point = Point { longitude: 13.361389, latitude: 38.115556 };
    const CATANIA: Point = Point { longitude: 15.087269, latitude: 37.502669 };

    fn random(rng: &mut Rng, longitude_max: f64, latitude_max: f64) -> Point {
        let mut draw = |max: f64| (rng.f64() * 2.0 - 1.0) * max;
        Point { longitude: draw(longitude_max), latitude: draw(latitude_max) }
    }

    #[test]
    fn the_cities_of_the_manual() {
        assert_eq!((PALERMO.score(), CATANIA.score()), (3479099956230698.0, 3479447370796909.0));
        let (palermo, catania) = (Point::of_score(PALERMO.score()), Point::of_score(CATANIA.score()));
        assert_eq!(
            format!("{:.17} {:.17}", palermo.longitude, palermo.latitude),
            "13.36138933897018433 38.11555639549629859"
        );
        assert_eq!((&palermo.text(), &catania.text()), (b"sqc8b49rny0", b"sqdtr74hyu0"));
        assert_eq!(format!("{:.4}", palermo.distance_m(catania)), "166274.1516");
    }

    #[test]
    fn every_score_is_a_point_as_on_redis() {
        const LATITUDE_LAST: f64 = 85.051_124_977_918_25;
        for (score, longitude, latitude, text) in [
            (-1.0, 180.0, LATITUDE_MAX, b"bp05b5048p0"),
            (1e19, 180.0, LATITUDE_MAX, b"bp05b5048p0"),
            (f64::INFINITY, -179.999_997_317_790_99, -85.051_127_512_639_43, b"00bh0hbj200"),
            (9.3e18, 180.0, LATITUDE_MAX, b"bp05b5048p0"),
            (f64::NEG_INFINITY, 180.0, -85.051_127_512_639_43, b"00bh0hbj200"),
            (1.5, -179.999_997_317_790_99, -LATITUDE_LAST, b"00bh0hbj210"),
        ] {
            let point = Point::of_score(score);
            assert_eq!(point, Point { longitude, latitude }, "{score}");
            assert_eq!(&point.text(), text, "{score}");
        }
        assert_eq!(Point { longitude: 180.0, latitude: LATITUDE_MAX }.score(), 13510798882111488.0);
    }

    #[test]
    fn a_point_is_near_that_of_its_score() {
        let mut rng = Rng::with_seed(1);
        for _ in 0..10_000 {
            let point = random(&mut rng, LONGITUDE_MAX, LATITUDE_MAX);
            assert!(point.is_valid());
            assert!(point.distance_m(Point::of_score(point.score())) < 0.5, "{point:?}");
        }
    }

    /// Far from the poles, where the estimate of the cells' size is good, and from the ends of the map.
    #[test]
    fn a_search_covers_its_shape() {
        let mut rng = Rng::with_seed(2);
        for round in 0..2_000 {
            let center = random(&mut rng, 100.0, 50.0);
            let reach = 10f64.powi(rng.i32(0..=6)) * (rng.f64() + 0.01);
            let shape = if rng.bool() {
                Shape::Circle { radius: reach }
            } else {
                Shape::Rectangle { width: reach * rng.f64(), height: reach }
            };
            let search = Search { center, shape, unit_m: 1.0 };
            let ranges: Vec<_> = search.ranges().collect();
            assert!((1..=9).contains(&ranges.len()));
            for _ in 0..20 {
                let degrees = reach / 50_000.0;
                let near = random(&mut rng, degrees, degrees);
                let point =
                    Point { longitude: center.longitude + near.longitude, latitude: center.latitude + near.latitude };
                if point.is_valid() && search.distance_m(point).is_some() {
                    let score = point.score();
                    assert!(ranges.iter().any(|range| range.contains(&score)), "{round}: {search:?} {point:?}");
                }
            }
        }
    }

    #[test]
    fn extreme_searches_end() {
        for radius in [0.0, 5e-324, 1e300, f64::INFINITY] {
            for latitude in [0.0, 67.0, -81.0, LATITUDE_MAX, -LATITUDE_MAX] {
                let center = Point { longitude: 180.0, latitude };
                let rectangle = Shape::Rectangle { width: radius, height: radius };
                for shape in [Shape::Circle { radius }, rectangle] {
                    let search = Search { center, shape, unit_m: 1000.0 };
                    assert!(search.ranges().count() > 0);
                    search.distance_m(PALERMO);
                }
            }
        }
    }

    #[test]
    fn a_polygon_is_searched_wherever_it_is() {
        let (mut rng, mut found) = (Rng::with_seed(3), 0);
        for round in 0..2_000 {
            let corner = random(&mut rng, LONGITUDE_MAX, LATITUDE_MAX);
            let size = 10f64.powi(rng.i32(-4..=2)) * (rng.f64() + 0.01);
            let vertices: Vec<Point> = (0..rng.usize(3..12))
                .map(|_| {
                    let off = random(&mut rng, size, size);
                    let longitude = (corner.longitude + off.longitude).clamp(-LONGITUDE_MAX, LONGITUDE_MAX);
                    Point { longitude, latitude: (corner.latitude + off.latitude).clamp(-LATITUDE_MAX, LATITUDE_MAX) }
                })
                .collect();
            let search = Search::within(Polygon::new(vertices.clone()));
            let ranges: Vec<_> = search.ranges().collect();
            assert!((1..=9).contains(&ranges.len()));
            for _ in 0..30 {
                // Somewhere between three of the vertices, mostly inside.
                let mut drawn = || vertices[rng.usize(..vertices.len())];
                let (a, b, c) = (drawn(), drawn(), drawn());
                let (longitude, latitude) =
                    (a.longitude + b.longitude + c.longitude, a.latitude + b.latitude + c.latitude);
                let point = Point { longitude: longitude / 3.0, latitude: latitude / 3.0 };
                let score = point.score();
                if search.distance_m(Point::of_score(score)).is_some() {
                    found += 1;
                    let times = ranges.iter().filter(|range| range.contains(&score)).count();
                    assert_eq!(times, 1, "{round}: {search:?} {point:?}");
                }
            }
        }
        assert!(found > 10_000, "{found}");
    }

    #[test]
    fn a_ray_decides_what_is_inside() {
        let at = |longitude: f64, latitude: f64| Point { longitude, latitude };
        // A U, whose notch is open to the north.
        let polygon = Polygon::new(vec![
            at(0.0, 0.0),
            at(9.0, 0.0),
            at(9.0, 9.0),
            at(6.0, 9.0),
            at(6.0, 3.0),
            at(3.0, 3.0),
            at(3.0, 9.0),
            at(0.0, 9.0),
        ]);
        for (point, is_inside) in [
            (at(1.0, 8.0), true),
            (at(8.0, 8.0), true),
            (at(4.5, 1.0), true),
            (at(4.5, 8.0), false),
            (at(-1.0, 1.0), false),
            (at(10.0, 1.0), false),
            (at(4.5, -1.0), false),
        ] {
            assert_eq!(polygon.contains(point), is_inside, "{point:?}");
        }
        let centroid = polygon.centroid();
        assert!((centroid.longitude - 4.5).abs() < 0.1 && (centroid.latitude - 5.2).abs() < 0.2, "{centroid:?}");
        let line = Polygon::new(vec![at(1.0, 1.0); 3]);
        assert!(!line.contains(at(1.0, 1.0)));
    }

    #[test]
    fn moving_around_the_world_comes_back() {
        for step in 1..=STEP_MAX {
            let start = Cell::at(SCORES, CATANIA, step);
            assert_eq!(start.moved(1, 1).moved(-1, -1), start);
            assert_eq!(start.moved(1, 0).moved(0, -1).moved(-1, 1), start);
            if step < 10 {
                assert_eq!((0..1 << step).fold(start, |cell, _| cell.moved(1, 0)), start);
            }
        }
    }
}
