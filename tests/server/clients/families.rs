//! The `redis` crate reads every family's replies into its own types, in both protocols; redis-server has to pass, too.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use redis::geo::{Coord, RadiusOptions, RadiusOrder, RadiusSearchResult, Unit};
use redis::streams::{
    StreamAutoClaimOptions, StreamAutoClaimReply, StreamId, StreamInfoConsumersReply, StreamInfoGroupsReply,
    StreamInfoStreamReply, StreamMaxlen, StreamPendingCountReply, StreamPendingReply, StreamRangeReply,
    StreamReadOptions, StreamReadReply,
};
use redis::{
    Commands, Connection, CopyOptions, Direction, ExpireOption, IntegerReplyOrNoOp, LposOptions, SortedSetAddOptions,
    UpdateCheck,
};

use super::{connect, three_shards, with_redis};

fn strings<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.map(str::to_string).to_vec()
}

fn scored<const N: usize>(members: [(&str, f64); N]) -> Vec<(String, f64)> {
    members.map(|(member, score)| (member.to_string(), score)).to_vec()
}

#[test]
fn the_redis_crate_works_with_lists() {
    with_redis(|redis| {
        assert_eq!(redis.rpush("l", &["a", "b", "c", "b"]), Ok(4));
        assert_eq!(redis.lpush_exists("nothing", "a"), Ok(0));
        assert_eq!(redis.lrange("l", 0, -1), Ok(strings(["a", "b", "c", "b"])));
        assert_eq!(redis.lpos("l", "b", LposOptions::default()), Ok(Some(1)));
        assert_eq!(redis.lpos("l", "b", LposOptions::default().count(0).rank(-1)), Ok(vec![3, 1]));
        assert_eq!(redis.lpos("l", "none", LposOptions::default()), Ok(None::<usize>));
        assert_eq!(redis.linsert_before("l", "c", "x"), Ok(5));
        assert_eq!(redis.lset("l", -1, "z"), Ok(()));
        assert_eq!(redis.lindex("l", 4), Ok(Some("z".to_string())));
        assert_eq!(redis.lrem("l", 0, "b"), Ok(1));
        assert_eq!(redis.lmove("l", "other", Direction::Left, Direction::Right), Ok(Some("a".to_string())));
        assert_eq!(redis.rpoplpush("nothing", "other"), Ok(None::<String>));
        let popped = redis.lmpop(2, &["nothing", "l"], Direction::Right, 2);
        assert_eq!(popped, Ok(Some(("l".to_string(), strings(["z", "c"])))));
        assert_eq!(redis.lpop("l", std::num::NonZeroUsize::new(5)), Ok(strings(["x"])));
        assert_eq!(redis.exists("l"), Ok(false), "an empty list is none");
        assert_eq!(redis.lpop("l", None), Ok(None::<String>));
        assert_eq!(redis.llen("other"), Ok(1));
        let big: Vec<String> = (0..2_000).map(|n| format!("element:{n}")).collect();
        let () = redis.rpush("big", &big).expect("RPUSH");
        let () = redis.ltrim("big", 500, -500).expect("LTRIM");
        assert_eq!(redis.lrange("big", 0, -1), Ok(big[500..=1_500].to_vec()));
    });
}

#[test]
fn the_redis_crate_works_with_sets() {
    with_redis(|redis| {
        assert_eq!(redis.sadd("s", &["a", "b", "c", "a"]), Ok(3));
        assert_eq!(redis.sadd("t", &["b", "c", "d"]), Ok(3));
        assert_eq!(redis.sismember("s", "a"), Ok(true));
        assert_eq!(redis.smismember("s", &["a", "d"]), Ok(vec![true, false]));
        let members: BTreeSet<String> = redis.smembers("s").expect("SMEMBERS");
        assert_eq!(members, BTreeSet::from_iter(strings(["a", "b", "c"])));
        let both: BTreeSet<String> = redis.sinter(&["s", "t"]).expect("SINTER");
        assert_eq!(both, BTreeSet::from_iter(strings(["b", "c"])));
        assert_eq!(redis.sunionstore("u", &["s", "t"]), Ok(4));
        assert_eq!(redis.sdiff(&["s", "t"]), Ok(strings(["a"])));
        assert_eq!(redis.smove("s", "t", "a"), Ok(true));
        assert_eq!(redis.srem("s", &["b", "nothing"]), Ok(1));
        assert_eq!(redis.spop("s"), Ok(Some("c".to_string())));
        assert_eq!(redis.spop("s"), Ok(None::<String>));
        assert_eq!(redis.srandmember_multiple("t", -20).map(|some: Vec<String>| some.len()), Ok(20));
        let numbers: BTreeSet<i64> = (0..1_000).collect();
        let () = redis.sadd("big", Vec::from_iter(&numbers)).expect("SADD");
        let found: Vec<i64> = redis.sscan("big").expect("SSCAN").collect::<Result<_, _>>().expect("every step");
        assert_eq!(BTreeSet::from_iter(found), numbers);
    });
}

#[test]
fn the_redis_crate_works_with_hashes() {
    with_redis(|redis| {
        assert_eq!(redis.hset_multiple("h", &[("a", "1"), ("b", "2")]), Ok(()));
        assert_eq!(redis.hset("h", "c", 3), Ok(1));
        assert_eq!(redis.hget("h", "a"), Ok(Some(1)));
        assert_eq!(redis.hget("h", "nothing"), Ok(None::<i64>));
        assert_eq!(redis.hmget("h", &["a", "nothing", "c"]), Ok(vec![Some(1), None, Some(3)]));
        let all: BTreeMap<String, i64> = redis.hgetall("h").expect("HGETALL");
        assert_eq!(all, BTreeMap::from([("a".to_string(), 1), ("b".to_string(), 2), ("c".to_string(), 3)]));
        assert_eq!(redis.hincr("h", "a", 41), Ok(42));
        assert_eq!(redis.hincr("h", "b", 0.5), Ok(2.5));
        assert_eq!(redis.hset_nx("h", "a", 0), Ok(false));
        assert_eq!(redis.hexists("h", "nothing"), Ok(false));
        assert_eq!(redis.hdel("h", &["b", "nothing"]), Ok(1));
        assert_eq!(redis.hkeys("h"), Ok(strings(["a", "c"])));
        assert_eq!(redis.hvals("h"), Ok(vec![42, 3]));
        let some: Vec<(String, i64)> =
            redis::cmd("HRANDFIELD").arg("h").arg(5).arg("WITHVALUES").query(redis).expect("pairs");
        assert_eq!(some.len(), 2);
        let big: BTreeMap<String, usize> = (0..2_000).map(|n| (format!("field:{n}"), n)).collect();
        let () = redis.hset_multiple("big", &Vec::from_iter(&big)).expect("HSET");
        let found: Vec<(String, usize)> =
            redis.hscan("big").expect("HSCAN").collect::<Result<_, _>>().expect("every step");
        assert_eq!(BTreeMap::from_iter(found), big);
        assert_eq!(redis.hlen("big"), Ok(2_000));
    });
}

/// Newer than redis-server 7.0.
#[test]
fn the_redis_crate_gives_fields_deadlines() {
    use IntegerReplyOrNoOp::{ExistsButNotRelevant, IntegerReply, NotExists};
    let server = three_shards();
    for protocol in ["resp2", "resp3"] {
        let mut redis = connect(&server, protocol);
        let () = redis.hset_multiple("h", &[("a", "1"), ("b", "2")]).expect("HSET");
        let set = redis.hexpire("h", 100, ExpireOption::NONE, &["a", "nothing"]);
        assert_eq!(set, Ok(vec![IntegerReply(1), NotExists]));
        let ttl = redis.httl("h", &["a", "b", "nothing"]);
        assert_eq!(ttl, Ok(vec![IntegerReply(100), ExistsButNotRelevant, NotExists]));
        assert_eq!(redis.hpersist("h", &["a"]), Ok(vec![IntegerReply(1)]));
        assert_eq!(redis.hget_del("h", &["a", "nothing"]), Ok(vec![Some("1".to_string()), None]));
        assert_eq!(redis.hlen("h"), Ok(1));
        let () = redis.del("h").expect("DEL");
    }
}

#[test]
fn the_redis_crate_works_with_sorted_sets() {
    with_redis(|redis| {
        assert_eq!(redis.zadd_multiple("z", &[(1.0, "a"), (2.5, "b"), (f64::NEG_INFINITY, "c")]), Ok(3));
        let greater = SortedSetAddOptions::add_or_update(Some(UpdateCheck::GT)).include_changed_count();
        assert_eq!(redis.zadd_options("z", "a", 0, &greater), Ok(0));
        assert_eq!(redis.zadd_options("z", "a", 3, &greater), Ok(1));
        let all = scored([("c", f64::NEG_INFINITY), ("b", 2.5), ("a", 3.0)]);
        assert_eq!(redis.zrange_withscores("z", 0, -1), Ok(all.clone()));
        assert_eq!(redis.zrangebyscore_limit("z", 0, "+inf", 1, 1), Ok(strings(["a"])));
        assert_eq!(redis.zscore("z", "b"), Ok(Some(2.5)));
        assert_eq!(redis.zscore_multiple("z", &["b", "nothing"]), Ok(Some(vec![Some(2.5), None])));
        assert_eq!(redis.zrank("z", "a"), Ok(Some(2)));
        assert_eq!(redis.zrevrank("z", "nothing"), Ok(None::<usize>));
        assert_eq!(redis.zincr("z", "a", 0.25), Ok(3.25));
        assert_eq!(redis.zcount("z", "(2.5", "inf"), Ok(1));
        assert_eq!(redis.zunionstore_weights("u", &[("z", 2), ("nothing", 1)]), Ok(3));
        assert_eq!(redis.zpopmax("u", 1), Ok(scored([("a", 6.5)])));
        let popped = redis.zmpop_min(&["nothing", "u"], 2);
        assert_eq!(popped, Ok(Some(("u".to_string(), scored([("c", f64::NEG_INFINITY), ("b", 5.0)])))));
        let some: Vec<(String, f64)> = redis.zrandmember_withscores("z", 10).expect("ZRANDMEMBER");
        assert_eq!(some.len(), 3);
        assert_eq!(redis.zrembyscore("z", "-inf", 3), Ok(2));
        let names: BTreeSet<String> = (0..1_000).map(|n| format!("member:{n:04}")).collect();
        let members: Vec<(f64, &String)> = names.iter().map(|name| (0.0, name)).collect();
        let () = redis.zadd_multiple("big", &members).expect("ZADD");
        assert_eq!(redis.zrangebylex("big", "[member:0998", "+"), Ok(strings(["member:0998", "member:0999"])));
        assert_eq!(redis.zlexcount("big", "-", "(member:0010"), Ok(10));
        let found: Vec<(String, f64)> =
            redis.zscan("big").expect("ZSCAN").collect::<Result<_, _>>().expect("every step");
        assert_eq!(found.into_iter().map(|(name, _)| name).collect::<BTreeSet<_>>(), names);
    });
}

#[test]
fn the_redis_crate_works_with_streams() {
    let ids = |entries: &[StreamId]| entries.iter().map(|entry| entry.id.clone()).collect::<Vec<_>>();
    with_redis(|redis| {
        for n in 1..=3 {
            assert_eq!(redis.xadd("s", format!("{n}-0"), &[("n", n)]), Ok(Some(format!("{n}-0"))));
        }
        let made: Option<String> = redis.xadd("s", "*", &[("n", 4)]).expect("XADD");
        assert!(made.expect("an identifier").ends_with("-0"));
        assert!(redis.xadd::<_, _, _, _, String>("s", "2-0", &[("n", 0)]).is_err(), "identifiers only grow");
        let all: StreamRangeReply = redis.xrange_all("s").expect("XRANGE");
        assert_eq!(all.ids[1].get::<i64>("n"), Some(2));
        let back: StreamRangeReply = redis.xrevrange_count("s", "3-0", "-", 2).expect("XREVRANGE");
        assert_eq!(ids(&back.ids), ["3-0", "2-0"]);
        assert_eq!(redis.xtrim("s", StreamMaxlen::Equals(3)), Ok(1));
        let () = redis.xgroup_create_mkstream("s", "g", "0").expect("XGROUP");
        let options = StreamReadOptions::default().group("g", "alice").count(2);
        let read: Option<StreamReadReply> = redis.xread_options(&["s"], &[">"], &options).expect("XREADGROUP");
        let read = read.expect("entries");
        assert_eq!(ids(&read.keys[0].ids), ["2-0", "3-0"]);
        match redis.xpending("s", "g").expect("XPENDING") {
            StreamPendingReply::Data(data) => assert_eq!((data.count, data.consumers.len()), (2, 1)),
            other => panic!("two entries are pending, not {other:?}"),
        }
        assert_eq!(redis.xack("s", "g", &["2-0"]), Ok(1));
        let options = StreamAutoClaimOptions::default();
        let claimed: StreamAutoClaimReply =
            redis.xautoclaim_options("s", "g", "bob", 0, "0-0", options).expect("XAUTOCLAIM");
        assert_eq!(ids(&claimed.claimed), ["3-0"]);
        let pending: StreamPendingCountReply = redis.xpending_count("s", "g", "-", "+", 10).expect("XPENDING");
        assert_eq!((pending.ids[0].consumer.as_str(), pending.ids[0].times_delivered), ("bob", 2));
        let info: StreamInfoStreamReply = redis.xinfo_stream("s").expect("XINFO STREAM");
        assert_eq!((info.length, info.groups, info.first_entry.id.as_str()), (3, 1, "2-0"));
        let groups: StreamInfoGroupsReply = redis.xinfo_groups("s").expect("XINFO GROUPS");
        let groups = groups.groups;
        assert_eq!((groups[0].consumers, groups[0].pending, groups[0].lag), (2, 1, Some(1)));
        let consumers: StreamInfoConsumersReply = redis.xinfo_consumers("s", "g").expect("XINFO CONSUMERS");
        let consumers = consumers.consumers;
        assert_eq!(consumers[1].name, "bob");
        assert_eq!(redis.xdel("s", &["3-0"]), Ok(1));
        assert_eq!(redis.xlen("s"), Ok(2));
    });
}

#[test]
fn the_redis_crate_works_with_bits_and_hyperloglogs() {
    with_redis(|redis| {
        assert_eq!(redis.setbit("b", 7, true), Ok(false));
        assert_eq!(redis.setbit("b", 17, true), Ok(false));
        assert_eq!(redis.getbit("b", 7), Ok(true));
        assert_eq!(redis.bitcount("b"), Ok(2));
        assert_eq!(redis.bitcount_range("b", 0, 0), Ok(1));
        assert_eq!(redis.bit_not("not", "b"), Ok(3));
        assert_eq!(redis.bit_or("or", &["b", "not"]), Ok(3));
        assert_eq!(redis.get("or"), Ok(vec![0xff_u8; 3]));
        let fields = "u8 0 SET i5 #1 -3 OVERFLOW FAIL INCRBY u2 100 4".split(' ').collect::<Vec<_>>();
        let values: Vec<Option<i64>> =
            redis::cmd("BITFIELD").arg("b").arg("GET").arg(fields).query(redis).expect("BITFIELD");
        assert_eq!(values, [Some(1), Some(4), None]);
        assert_eq!(redis.pfadd("hll", &["a", "b", "c"]), Ok(true));
        assert_eq!(redis.pfadd("hll", &["a"]), Ok(false));
        let many: Vec<u32> = (0..10_000).collect();
        let () = redis.pfadd("more", &many).expect("PFADD");
        let () = redis.pfmerge("all", &["hll", "more"]).expect("PFMERGE");
        let count: usize = redis.pfcount("all").expect("PFCOUNT");
        assert!((9_700..10_300).contains(&count), "{count}");
        assert_eq!(redis.pfcount(&["hll", "nothing"]), Ok(3));
    });
}

#[test]
fn the_redis_crate_works_with_positions() {
    with_redis(|redis| {
        let palermo = (Coord::lon_lat(13.361389, 38.115556), "Palermo");
        let catania = (Coord::lon_lat(15.087269, 37.502669), "Catania");
        assert_eq!(redis.geo_add("g", &[palermo, catania]), Ok(2));
        let distance_km: Option<f64> = redis.geo_dist("g", "Palermo", "Catania", Unit::Kilometers).expect("GEODIST");
        assert!((distance_km.expect("both are there") - 166.2742).abs() < 0.0001);
        assert_eq!(redis.geo_dist("g", "Palermo", "nowhere", Unit::Meters), Ok(None::<f64>));
        assert_eq!(redis.geo_hash("g", &["Palermo"]), Ok(strings(["sqc8b49rny0"])));
        let places: Vec<Option<Coord<f64>>> = redis.geo_pos("g", &["Catania", "nowhere"]).expect("GEOPOS");
        assert!((places[0].as_ref().expect("it is there").longitude - 15.087269).abs() < 1e-5);
        assert!(places[1].is_none());
        let options = RadiusOptions::default().with_dist().with_coord().order(RadiusOrder::Asc);
        let found: Vec<RadiusSearchResult> =
            redis.geo_radius("g", 15.0, 37.0, 200.0, Unit::Kilometers, options).expect("GEORADIUS");
        assert_eq!(found.iter().map(|place| place.name.as_str()).collect::<Vec<_>>(), ["Catania", "Palermo"]);
        assert!((found[0].dist.expect("WITHDIST") - 56.4413).abs() < 0.0001);
        let search = "FROMMEMBER Palermo BYBOX 400 400 km ASC COUNT 1".split(' ').collect::<Vec<_>>();
        assert_eq!(redis::cmd("GEOSEARCH").arg("g").arg(search).query(redis), Ok(strings(["Palermo"])));
    });
}

#[test]
fn the_redis_crate_sorts_copies_dumps_and_restores() {
    with_redis(|redis| {
        let () = redis.rpush("l", &[3, 1, 2]).expect("RPUSH");
        let () = redis.mset(&[("w_1", 30), ("w_2", 20), ("w_3", 10)]).expect("MSET");
        let sorted = redis::cmd("SORT").arg("l").arg(&["BY", "w_*", "GET", "#", "GET", "w_*"]).query(redis);
        assert_eq!(sorted, Ok(vec![3, 10, 2, 20, 1, 30]));
        assert_eq!(redis::cmd("SORT").arg("l").arg("STORE").arg("sorted").query(redis), Ok(3));
        assert_eq!(redis.lrange("sorted", 0, -1), Ok(vec![1, 2, 3]));
        let () = redis.zadd("z", "member", 1.5).expect("ZADD");
        let () = redis.expire("z", 100).expect("EXPIRE");
        assert_eq!(redis.copy("z", "copy", CopyOptions::default()), Ok(true));
        assert_eq!(redis.ttl("copy"), Ok(100));
        let payload: Vec<u8> = redis::cmd("DUMP").arg("z").query(redis).expect("DUMP");
        let () = redis::cmd("RESTORE").arg("restored").arg(0).arg(&payload).query(redis).expect("RESTORE");
        assert_eq!(redis.zrange_withscores("restored", 0, -1), Ok(scored([("member", 1.5)])));
        let again: redis::RedisResult<()> = redis::cmd("RESTORE").arg("restored").arg(0).arg(&payload).query(redis);
        assert_eq!(again.expect_err("it is there").code(), Some("BUSYKEY"));
        let kinds: Vec<String> =
            ["l", "z", "w_1"].iter().map(|key| redis::cmd("TYPE").arg(key).query(redis).expect("TYPE")).collect();
        assert_eq!(kinds, ["list", "zset", "string"]);
        assert_eq!(redis.lpush::<_, _, i64>("z", "x").expect_err("no list").code(), Some("WRONGTYPE"));
    });
}

/// MULTI and EXEC over all types at once; replies of every form inside an array.
#[test]
fn the_redis_crate_runs_transactions_over_all_types() {
    type Replies = (i64, i64, f64, Vec<String>, HashMap<String, i64>, Option<(String, f64)>);
    with_redis(|redis: &mut Connection| {
        let mut pipeline = redis::pipe();
        pipeline.atomic().rpush("l", &["a", "b"]).sadd("s", 1).zincr("z", "m", 1.5).lrange("l", 0, -1);
        pipeline.hset("h", "f", 7).ignore().hgetall("h").cmd("ZRANDMEMBER").arg("nothing");
        let replies: Replies = pipeline.query(redis).expect("EXEC");
        let hash = HashMap::from([("f".to_string(), 7)]);
        assert_eq!(replies, (2, 1, 1.5, strings(["a", "b"]), hash, None));
    });
}
