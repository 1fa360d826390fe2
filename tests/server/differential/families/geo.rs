//! Positions on the earth. Each member has places of its own, so that no two are equally far from a third.

use super::super::{Args, Generator, Step, args};
use crate::differential::compare::Rule;

pub const NAMES: &[&str] = &[
    "GEOADD",
    "GEODIST",
    "GEOHASH",
    "GEOPOS",
    "GEORADIUS",
    "GEORADIUSBYMEMBER",
    "GEORADIUSBYMEMBER_RO",
    "GEORADIUS_RO",
    "GEOSEARCH",
    "GEOSEARCHSTORE",
];

const MEMBERS: u32 = 24;

/// Keys of their own, in runs about several families.
const PLACES: [&[u8]; 3] = [b"places:1", b"places:2", b"{tag}places"];
/// The key under which distances are stored.
pub const DISTANCES: &[u8] = b"distances";

impl Generator {
    pub fn geo(&mut self) -> Step {
        // Several members with one score are at one place, and their order is up to chance.
        let key = if self.is_mixed() { self.pick(&PLACES).to_vec() } else { self.key() };
        Step::of(match self.rng.u32(..100) {
            0..25 => {
                let mut out = args("GEOADD", [key]);
                for _ in 0..*self.pick(&[0, 0, 0, 1, 1, 2]) {
                    let option = *self.pick(&["NX", "XX", "CH", "CH"]);
                    out.push(self.word(option));
                }
                for _ in 0..self.rng.usize(1..6) {
                    out.extend(self.placed_member());
                }
                out
            }
            25..33 => {
                let mut out = args("GEODIST", [key, self.place_name(), self.place_name()]);
                if self.one_in(2) {
                    out.push(self.unit());
                }
                out
            }
            33..43 => {
                let name = *self.pick(&["GEOPOS", "GEOHASH"]);
                let count = self.rng.usize(..4);
                [args(name, [key]), self.times(count, Generator::place_name)].concat()
            }
            43..65 => return self.geosearch(args("GEOSEARCH", [key]), false),
            65..72 => {
                let into = self.key();
                return self.geosearch(args("GEOSEARCHSTORE", [into, key]), true);
            }
            72..95 => return self.georadius(key),
            95..97 => args("ZREM", [key, self.place_name(), self.place_name()]),
            97 => args("ZCARD", [key]),
            _ => args("ZRANGE", [key, b"0".to_vec(), b"-1".to_vec(), b"WITHSCORES".to_vec()]),
        })
    }

    fn geosearch(&mut self, mut out: Args, store: bool) -> Step {
        let parts = if self.one_in(20) { 3 } else { 2 };
        for part in 0..parts {
            match (part, self.one_in(2)) {
                (0, true) => {
                    let member = self.place_name();
                    out.extend([self.word("FROMMEMBER"), member]);
                }
                (0, false) => {
                    let (longitude, latitude) = (self.longitude(), self.latitude());
                    out.extend([self.word("FROMLONLAT"), longitude, latitude]);
                }
                (_, true) => out.extend([self.word("BYRADIUS"), self.radius(), self.unit()]),
                (_, false) => out.extend([self.word("BYBOX"), self.radius(), self.radius(), self.unit()]),
            }
        }
        let (any, sorted) = self.search_options(&mut out, store);
        if store && self.one_in(3) {
            out.push(self.word("STOREDIST"));
        }
        Self::found(out, any, sorted, store)
    }

    fn georadius(&mut self, key: Vec<u8>) -> Step {
        let read_only = self.one_in(2);
        let mut out = if self.one_in(2) {
            let name = if read_only { "GEORADIUS_RO" } else { "GEORADIUS" };
            args(name, [key, self.longitude(), self.latitude(), self.radius(), self.unit()])
        } else {
            let name = if read_only { "GEORADIUSBYMEMBER_RO" } else { "GEORADIUSBYMEMBER" };
            args(name, [key, self.place_name(), self.radius(), self.unit()])
        };
        let store = self.one_in(if read_only { 20 } else { 4 });
        let (any, sorted) = self.search_options(&mut out, store);
        if store {
            let option = *self.pick(&["STORE", "STOREDIST"]);
            out.extend([self.word(option), self.key()]);
        }
        Self::found(out, any, sorted, store)
    }

    fn found(out: Args, any: bool, sorted: bool, store: bool) -> Step {
        let rule = match (any, sorted || store) {
            (true, _) => Rule::SameLength,
            (false, true) => Rule::Exact,
            (false, false) => Rule::Unordered,
        };
        Step::Command(out, rule)
    }

    /// Options of a search; whether it may take any members it likes, and whether they are sorted.
    fn search_options(&mut self, out: &mut Args, store: bool) -> (bool, bool) {
        let (mut any, mut sorted) = (false, false);
        for _ in 0..*self.pick(&[0, 1, 1, 2, 2, 3]) {
            match self.rng.u32(..10) {
                0..3 => {
                    sorted = true;
                    let direction = *self.pick(&["ASC", "DESC"]);
                    out.push(self.word(direction));
                }
                3..6 => {
                    sorted = true;
                    out.extend([self.word("COUNT"), self.any_of(&["1", "2", "3", "10", "1000", "0", "-1", "x"])]);
                    // What is stored would differ from then on.
                    if self.one_in(3) && !store {
                        any = true;
                        out.push(self.word("ANY"));
                    }
                }
                6..9 if !store || self.one_in(10) => {
                    let option = *self.pick(&["WITHCOORD", "WITHDIST", "WITHHASH"]);
                    out.push(self.word(option));
                }
                6..9 => {}
                _ if self.one_in(3) => out.push(self.any_of(&["ANY", "FOO", "WITHDIST", "COUNT", ""])),
                _ => {}
            }
        }
        (any, sorted)
    }

    /// Longitude, latitude and the member that is sometimes there.
    fn placed_member(&mut self) -> Args {
        let member = self.rng.u32(..MEMBERS);
        if self.one_in(30) {
            let place = self.any_of(&["181", "-181", "nan", "x", "", "inf", "1e10"]);
            return vec![place, self.latitude(), self.name_of(member)];
        }
        if self.one_in(30) {
            let place = self.any_of(&["85.06", "-85.06", "90", "x", "nan"]);
            return vec![self.longitude(), place, self.name_of(member)];
        }
        let mut places = fastrand::Rng::with_seed(u64::from(member * 4 + self.rng.u32(..4)));
        // Half of them in one region, half all over the world.
        let (longitude, latitude) = if member.is_multiple_of(2) {
            (10.0 + places.f64() * 6.0, 36.0 + places.f64() * 6.0)
        } else {
            (places.f64() * 360.0 - 180.0, places.f64() * 170.0 - 85.0)
        };
        vec![format!("{longitude:.6}").into(), format!("{latitude:.6}").into(), self.name_of(member)]
    }

    fn name_of(&self, member: u32) -> Vec<u8> {
        format!("place:{member}").into()
    }

    fn place_name(&mut self) -> Vec<u8> {
        if self.one_in(25) {
            return self.any_of(&["nowhere", "", "a"]);
        }
        let member = self.rng.u32(..MEMBERS);
        self.name_of(member)
    }

    fn longitude(&mut self) -> Vec<u8> {
        match self.rng.u32(..40) {
            0 => self.any_of(&["180", "-180", "0", "181", "-180.1", "x", "nan", "", "inf"]),
            1..5 => format!("{:.5}", self.rng.f64() * 360.0 - 180.0).into(),
            _ => format!("{:.5}", 10.0 + self.rng.f64() * 6.0).into(),
        }
    }

    fn latitude(&mut self) -> Vec<u8> {
        match self.rng.u32(..40) {
            0 => self.any_of(&["85.05112878", "-85.05112878", "0", "86", "-90", "x", "nan", ""]),
            1..5 => format!("{:.5}", self.rng.f64() * 170.0 - 85.0).into(),
            _ => format!("{:.5}", 36.0 + self.rng.f64() * 6.0).into(),
        }
    }

    fn radius(&mut self) -> Vec<u8> {
        match self.rng.u32(..12) {
            0..6 => self.rng.u32(1..600).to_string().into(),
            6..9 => self.any_of(&["5000", "20000", "0.5", "1e3", "100000"]),
            9 if self.one_in(3) => self.any_of(&["0", "-1", "x", "", "nan", "inf"]),
            _ => format!("{:.3}", self.rng.f64() * 1000.0).into(),
        }
    }

    fn unit(&mut self) -> Vec<u8> {
        let unit = if self.one_in(30) { "parsec" } else { *self.pick(&["km", "km", "km", "mi", "mi", "m", "ft"]) };
        self.word(unit)
    }
}
