//! GEOSEARCH and GEOSEARCHSTORE within a polygon (Valkey 9.0).

use crate::common::{Client, Value, bulk, error, int, on_embers};

/// Somewhere in Sydney, and a crooked polygon, as in Valkey's own test.
const POINTS: &[(&str, &str)] = &[
    ("elizabeth", "151.20932132005692 -33.877723137822436"),
    ("liverpool", "151.2119820713997 -33.87697539508043"),
    ("fountain", "151.2119820713997 -33.87156123068408"),
    ("oxford", "151.2229523062706 -33.883973760201364"),
    ("goodhope", "151.22852593660355 -33.88116782387797"),
    ("darlinghurst", "151.2224105000496 -33.87544442350019"),
    ("reg", "151.22953444719315 -33.874838625143106"),
];
const CROOKED: &str = "BYPOLYGON 11 151.21619137411474 -33.869643764947696 151.20408853981647 -33.87845382042545 \
                       151.2123775086366 -33.87864711938855 151.21046943124387 -33.87588862400425 \
                       151.21701035939626 -33.874286511854834 151.2239557405701 -33.8735722632175 \
                       151.22495056246407 -33.87893571656996 151.2274447496748 -33.882307713036354 \
                       151.23212935868654 -33.88136096120022 151.23097291274465 -33.87456240592362 \
                       151.22475424781445 -33.87099633192101";
/// Its edges cross each other.
const STAR: &str = "BYPOLYGON 5 151.2154285314146 -33.867438205607186 151.20024487595015 -33.88138572784347 \
                    151.2374118848648 -33.87601765283626 151.19695829592922 -33.87272872054441 \
                    151.2278336546125 -33.88345323146266";

#[test]
fn what_lies_in_a_polygon_is_found() {
    on_embers(&[], |server| {
        let mut client = server.client();
        for (name, position) in POINTS {
            client.call(&format!("GEOADD points {position} {name}"));
        }
        let search = |client: &mut Client, rest: &str| client.call(&format!("GEOSEARCH points {rest}"));
        assert_eq!(search(&mut client, CROOKED), Value::bulks(&["goodhope", "reg", "elizabeth"]));
        assert_eq!(search(&mut client, STAR), Value::bulks(&["elizabeth", "fountain", "darlinghurst"]));
        let far = |name, distance| Value::bulks(&[name, distance]);
        let by_distance =
            Value::Array(vec![far("reg", "858.3013"), far("goodhope", "929.4979"), far("elizabeth", "1035.7735")]);
        assert_eq!(search(&mut client, &format!("{CROOKED} WITHDIST ASC")), by_distance, "in meters from its middle");
        assert_eq!(search(&mut client, &format!("ASC COUNT 1 {CROOKED}")), Value::bulks(&["reg"]));
        assert_eq!(search(&mut client, &format!("{CROOKED} DESC COUNT 1")), Value::bulks(&["elizabeth"]));
        assert_eq!(client.call(&format!("GEOSEARCHSTORE into points {CROOKED} COUNT 2 STOREDIST")), int(2));
        assert_eq!(client.call("ZRANGE into 0 -1"), Value::bulks(&["reg", "goodhope"]));
        assert_eq!(client.call("ZRANGEBYSCORE into 858.301 858.302"), Value::bulks(&["reg"]));
        assert_eq!(client.call(&format!("GEOSEARCHSTORE into points {STAR}")), int(3));
        assert_eq!(client.call("ZSCORE into fountain"), client.call("ZSCORE points fountain"));
        assert_eq!(client.call(&format!("GEOSEARCHSTORE into none {STAR}")), int(0));
        assert_eq!(client.call("EXISTS into"), int(0));
        assert_eq!(client.call(&format!("GEOSEARCH none {STAR}")), Value::Array(vec![]));
    });
}

#[test]
fn polygons_are_large_and_at_the_end_of_the_world() {
    on_embers(&[], |server| {
        let mut client = server.client();
        for longitude in (-175..=175).step_by(10) {
            for latitude in (-80..=80).step_by(10) {
                client.call(&format!("GEOADD all {longitude} {latitude} {longitude}:{latitude}"));
            }
        }
        let count = |client: &mut Client, polygon: &str| {
            client.call(&format!("GEOSEARCH all BYPOLYGON {polygon}")).items().len()
        };
        assert_eq!(count(&mut client, "4 -180 -85 180 -85 180 85 -180 85"), 36 * 17);
        assert_eq!(count(&mut client, "4 -180 65 180 65 180 85 -180 85"), 36 * 2, "around the pole");
        assert_eq!(count(&mut client, "4 170 -15 180 -15 180 15 170 15"), 3);
        assert_eq!(count(&mut client, "4 -180 -15 -170 -15 -170 15 -180 15"), 3);
        assert_eq!(count(&mut client, "4 -170 -5 170 -5 170 5 -170 5"), 34, "not across the 180th meridian");
        assert_eq!(count(&mut client, "3 0 0 0 0 0 0"), 0);
    });
}

#[test]
fn polygons_are_judged() {
    on_embers(&[], |server| {
        let mut client = server.client();
        client.call("GEOADD points 1 1 a");
        let few = "ERR GEOSEARCH BYPOLYGON must have at least 3 vertices";
        let triangle = "BYPOLYGON 3 0 0 2 0 1 2";
        for (rest, text) in [
            ("BYPOLYGON 2 0 0 2 0 WITHDIST", few),
            ("BYPOLYGON 0 0 0 2 0 1 2", few),
            ("BYPOLYGON -3 0 0 2 0 1 2", few),
            ("BYPOLYGON 4 0 0 2 0 1 2", few),
            ("BYPOLYGON 2147483647 0 0 2 0 1 2", few),
            ("BYPOLYGON 2147483648 0 0 2 0 1 2", "ERR invalid number of vertices"),
            ("BYPOLYGON x 0 0 2 0 1 2", "ERR invalid number of vertices"),
            ("BYPOLYGON 3 0 0 2 0 1 x", "ERR value is not a valid float"),
            ("BYPOLYGON 3 0 0 2 0 181 2", "ERR invalid longitude,latitude pair 181.000000,2.000000"),
            ("BYPOLYGON 3 0 0 2 0 1 2 3", "ERR syntax error"),
            ("ASC DESC WITHDIST WITHHASH BYPOLYGON", "ERR syntax error"),
            ("BYPOLYGON 3 0 0 2 0 1 2 FROMMEMBER a", "ERR syntax error"),
            ("BYPOLYGON 3 0 0 2 0 1 2 FROMLONLAT 1 1", "ERR syntax error"),
            ("BYPOLYGON 3 0 0 2 0 1 2 BYRADIUS 1 km", "ERR syntax error"),
            ("BYPOLYGON 3 0 0 2 0 1 2 BYBOX 1 1 km", "ERR syntax error"),
            ("FROMMEMBER a BYPOLYGON 3 0 0 2 0 1 2", "ERR syntax error"),
            ("FROMLONLAT 1 1 BYPOLYGON 3 0 0 2 0 1 2", "ERR syntax error"),
            ("BYRADIUS 1 km BYPOLYGON 3 0 0 2 0 1 2", "ERR syntax error"),
            ("BYPOLYGON 3 0 0 2 0 1 2 ANY", "ERR the ANY argument requires COUNT argument"),
        ] {
            for key in ["points", "none"] {
                assert_eq!(client.call(&format!("GEOSEARCH {key} {rest}")), error(text), "{key} {rest}");
                assert!(client.call(&format!("GEOSEARCHSTORE x {key} {rest}")).is_error(), "{key} {rest}");
            }
        }
        assert_eq!(client.call(&format!("GEOSEARCH points {triangle}")), Value::Array(vec![bulk("a")]));
        assert_eq!(client.call(&format!("GEORADIUS points 1 1 5 km {triangle}")), error("ERR syntax error"));
    });
}

#[test]
fn polygons_have_at_most_1024_vertices() {
    on_embers(&[], |server| {
        let mut client = server.client();
        client.call("GEOADD points 0 0 middle 5 5 corner 20 20 far");
        let circle = |vertices: usize| {
            let vertex = |nth: usize| {
                let angle = std::f64::consts::TAU * nth as f64 / vertices as f64;
                format!(" {:.6} {:.6}", 6.0 * angle.cos(), 6.0 * angle.sin())
            };
            format!("BYPOLYGON {vertices}{}", (0..vertices).map(vertex).collect::<String>())
        };
        assert_eq!(client.call(&format!("GEOSEARCH points {}", circle(1024))), Value::bulks(&["middle"]));
        assert_eq!(client.call(&format!("GEOSEARCHSTORE into points {}", circle(1024))), int(1));
        let many = error("ERR GEOSEARCH BYPOLYGON must have at most 1024 vertices");
        for key in ["points", "none"] {
            assert_eq!(client.call(&format!("GEOSEARCH {key} {}", circle(1025))), many);
            assert_eq!(client.call(&format!("GEOSEARCHSTORE into {key} {}", circle(1025))), many);
        }
        assert_eq!(client.call("ZCARD into"), int(1));
    });
}
