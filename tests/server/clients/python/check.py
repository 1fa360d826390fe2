"""redis-py against a server: every family of commands in both protocols, and clients that wait.

usage: check.py PORT [--newer] [CHECK...]    as harness.py says
"""

import threading
import time

import redis
from redis.cache import CacheConfig

from harness import LIMIT_S, check, fails, main, newer, same, under_tls, wait_until


@check
def lists(r):
    same(r.rpush("l", "a", "b", "c", "b"), 4)
    same(r.lrange("l", 0, -1), ["a", "b", "c", "b"])
    same(r.lpos("l", "b", rank=-1, count=0), [3, 1])
    same(r.linsert("l", "AFTER", "a", "x"), 5)
    same(r.lset("l", 0, ""), True)
    same(r.lindex("l", 0), "")
    same(r.lmove("l", "m", "LEFT", "RIGHT"), "")
    same(r.lmpop(2, "nothing", "l", direction="RIGHT", count=2), ["l", ["b", "c"]])
    same(r.lpop("l", 10), ["x", "b"])
    same(r.lpop("l"), None)
    same(r.llen("m"), 1)
    fails("WRONGTYPE", r.incr, "m")
    fails("no such key", r.lset, "nothing", 0, "x")
    same(r.rpush("big", *range(5000)), 5000)
    same(r.lrange("big", 2000, 2002), ["2000", "2001", "2002"])


@check
def sets(r):
    same(r.sadd("s", 1, 2, 3), 3)
    same(r.sadd("t", 2, 3, "x"), 3)
    same(r.smembers("s"), {"1", "2", "3"})
    same(set(r.sinter("s", "t")), {"2", "3"})
    same(r.sunionstore("u", "s", "t"), 4)
    same(r.sintercard(2, ["s", "t"], limit=1), 1)
    same(r.smismember("s", [1, 9]), [1, 0])
    same(r.smove("s", "t", 1), True)
    same(len(r.srandmember("u", -10)), 10)
    popped = r.spop("u", 3)
    same((len(popped), r.scard("u")), (3, 1))
    same(r.sadd("big", *range(2000)), 2000)
    same(set(r.sscan_iter("big", count=100)), {str(n) for n in range(2000)})


@check
def hashes(r):
    same(r.hset("h", mapping={"a": 1, "b": 2}), 2)
    same(r.hgetall("h"), {"a": "1", "b": "2"})
    same(r.hmget("h", ["a", "nothing"]), ["1", None])
    same(r.hincrby("h", "a", 41), 42)
    same(r.hincrbyfloat("h", "b", 0.5), 2.5)
    same(r.hsetnx("h", "a", 1), 0)
    same(r.hstrlen("h", "a"), 2)
    same(r.hdel("h", "b", "nothing"), 1)
    same(r.hrandfield("h", 2), ["a"])
    same(r.hset("big", mapping={f"field:{n}": n for n in range(2000)}), 2000)
    same(dict(r.hscan_iter("big", count=100)), {f"field:{n}": str(n) for n in range(2000)})


@newer
def deadlines_of_fields(r):
    r.hset("h", mapping={"a": 1, "b": 2})
    same(r.hexpire("h", 100, "a", "nothing"), [1, -2])
    same(r.httl("h", "a", "b", "nothing"), [100, -1, -2])
    same(r.hpersist("h", "a"), [1])
    same(r.hpexpire("h", 20, "b"), [1])
    wait_until(lambda: r.hgetall("h") == {"a": "1"})
    same(r.hgetdel("h", "a"), ["1"])
    same(r.exists("h"), 0)


@check
def sorted_sets(r):
    same(r.zadd("z", {"a": 1, "b": 2.5, "c": float("-inf")}), 3)
    same(r.zadd("z", {"a": 3}, gt=True, ch=True), 1)
    same(r.zscore("z", "c"), float("-inf"))
    same(r.zmscore("z", ["b", "nothing"]), [2.5, None])
    same(r.zrange("z", 0, -1), ["c", "b", "a"])
    same(r.zrange("z", "(2.5", "+inf", byscore=True), ["a"])
    same(r.zrank("z", "a"), 2)
    same(r.zrevrangebyscore("z", "+inf", "-inf", start=0, num=1), ["a"])
    same(r.zincrby("z", 1.5, "a"), 4.5)
    same(r.zunionstore("u", {"z": 2, "nothing": 1}), 3)
    same([list(pair) for pair in r.zpopmax("u", 1)], [["a", 9.0]])
    same(r.zdiff(["z", "u"]), ["a"])
    same(r.zintercard(2, ["z", "u"]), 2)
    same(r.zremrangebyrank("z", 0, 0), 1)
    same(r.zadd("big", {f"m:{n:04}": 0 for n in range(2000)}), 2000)
    same(r.zrangebylex("big", "[m:1998", "+"), ["m:1998", "m:1999"])
    same(len(set(member for member, _ in r.zscan_iter("big"))), 2000)


@check
def streams(r):
    for n in range(1, 4):
        same(r.xadd("s", {"n": n}, id=f"{n}-0"), f"{n}-0")
    fails("The ID specified in XADD", lambda: r.xadd("s", {"n": 0}, id="2-0"))
    same(r.xrange("s", "2-0", "+"), [("2-0", {"n": "2"}), ("3-0", {"n": "3"})])
    same(r.xtrim("s", maxlen=2, approximate=False), 1)
    same(r.xgroup_create("s", "g", id="0"), True)
    fails("BUSYGROUP", r.xgroup_create, "s", "g")
    read = r.xreadgroup("g", "alice", {"s": ">"}, count=1)
    entries = read["s"][0] if isinstance(read, dict) else read[0][1]
    same([identifier for identifier, _ in entries], ["2-0"])
    same(r.xpending("s", "g")["pending"], 1)
    claimed = r.xautoclaim("s", "g", "bob", 0)
    same(claimed[1], [("2-0", {"n": "2"})])
    same(r.xpending_range("s", "g", "-", "+", 10)[0]["consumer"], "bob")
    same(r.xack("s", "g", "2-0"), 1)
    info = r.xinfo_stream("s")
    same((info["length"], info["last-generated-id"]), (2, "3-0"))
    same(r.xinfo_groups("s")[0]["lag"], 1)
    same(len(r.xinfo_consumers("s", "g")), 2)
    same(r.xdel("s", "3-0"), 1)


@check
def bits_and_hyperloglogs(r):
    same(r.setbit("b", 7, 1), 0)
    same(r.bitcount("b"), 1)
    same(r.bitpos("b", 1), 7)
    same(r.bitop("NOT", "n", "b"), 1)
    same(r.bitfield("b").get("u8", 0).incrby("u2", 100, 1).execute(), [1, 1])
    same(r.pfadd("p", *range(1000)), 1)
    assert 970 < r.pfcount("p") < 1030
    same(r.pfmerge("q", "p", "nothing"), True)
    same(r.pfcount("q"), r.pfcount("p"))


@check
def positions(r):
    same(r.geoadd("g", [13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania"]), 2)
    same(r.geodist("g", "Palermo", "Catania", "km"), 166.2742)
    same(r.geohash("g", "Palermo"), ["sqc8b49rny0"])
    assert abs(r.geopos("g", "Palermo")[0][0] - 13.361389) < 1e-5
    same(r.geosearch("g", longitude=15, latitude=37, radius=200, unit="km", sort="ASC"), ["Catania", "Palermo"])
    found = r.geosearch("g", member="Palermo", width=400, height=400, unit="km", withdist=True, sort="DESC")
    same([list(place) for place in found], [["Catania", 166.2742], ["Palermo", 0.0]])
    same(r.geosearchstore("h", "g", member="Palermo", radius=1, unit="m"), 1)


@check
def generic(r):
    r.rpush("l", 3, 1, 2)
    r.mset({"w_1": 30, "w_2": 20, "w_3": 10})
    same(r.sort("l", by="w_*", get=["#", "w_*"], groups=True), [("3", "10"), ("2", "20"), ("1", "30")])
    same(r.sort("l", desc=True, store="sorted"), 3)
    same(r.lrange("sorted", 0, -1), ["3", "2", "1"])
    same(r.copy("l", "copy"), True)
    same(r.type("copy"), "list")
    raw = redis.Redis(port=r.connection_pool.connection_kwargs["port"], **under_tls())
    same(raw.restore("restored", 0, raw.dump("l")), b"OK")
    same(r.lrange("restored", 0, -1), ["3", "1", "2"])
    r.expire("l", 100)
    same(r.ttl("l"), 100)
    with r.pipeline(transaction=True) as pipe:
        replies = pipe.lpop("l").sadd("s", "x").smembers("s").hset("h", "f", 1).hgetall("h").zscore("z", "m").execute()
    same(replies, ["3", 1, {"x"}, 1, {"f": "1"}, None])


def waits(r, count):
    wait_until(lambda: r.info("clients")["blocked_clients"] == count)


class Waiting(threading.Thread):
    """Runs `function` in a thread, which gets a connection of its own from the pool."""

    def __init__(self, r, function):
        super().__init__(daemon=True)
        self.redis = r
        self.function = function
        self.start()

    def run(self):
        try:
            self.reply = self.function(self.redis)
        except redis.RedisError as error:
            self.reply = error

    def result(self):
        self.join(LIMIT_S)
        assert not self.is_alive(), "it still waits"
        return self.reply


@check
def waiting_in_order(r):
    threads = []
    for n in range(4):
        threads.append(Waiting(r, lambda own: own.brpop(["a", "b"], 0)))
        waits(r, n + 1)
    for n, thread in enumerate(threads):
        r.lpush("ab"[n % 2], n)
        same(list(thread.result()), ["ab"[n % 2], str(n)])
        waits(r, 3 - n)


@check
def waiting_for_all_kinds(r):
    kinds = [
        (lambda own: own.blmove("l", "m", 0), lambda: r.rpush("l", "x"), "x"),
        (lambda own: own.blmpop(0, 2, "k", "l", direction="LEFT"), lambda: r.rpush("l", "y"), ["l", ["y"]]),
        (lambda own: list(own.bzpopmin(["z"], 0)), lambda: r.zadd("z", {"m": 1.5}), ["z", "m", 1.5]),
    ]
    for function, serve, expected in kinds:
        thread = Waiting(r, function)
        waits(r, 1)
        serve()
        same(thread.result(), expected)
    thread = Waiting(r, lambda own: own.xread({"s": "$"}, block=0))
    waits(r, 1)
    r.xadd("s", {"f": "v"}, id="5-0")
    assert "5-0" in str(thread.result())


@check
def waiting_ends(r):
    begin = time.monotonic()
    same(r.blpop("a", 0.05), None)
    same(r.bzpopmax("a", 0.05), None)
    assert not r.xread({"a": "$"}, block=50)
    assert 0.15 <= time.monotonic() - begin < LIMIT_S
    thread = Waiting(r, lambda own: own.blpop("a", 0))
    waits(r, 1)
    clients = [client["id"] for client in r.client_list() if client["cmd"] == "blpop" and "b" in client["flags"]]
    same(r.client_unblock(clients[0], error=True), 1)
    assert "UNBLOCKED" in str(thread.result()), thread.result()


@newer
def a_cache(r):
    kwargs = r.connection_pool.connection_kwargs
    if kwargs["protocol"] == 2:
        return  # Redis-py caches in RESP3 only, and with servers that say they are Redis 7.4 or newer.
    port = kwargs["port"]
    cached = redis.Redis(port=port, protocol=3, decode_responses=True, cache_config=CacheConfig(), **under_tls())
    r.mset({"a": 1, "b": 2})
    same(cached.get("a"), "1")
    same(cached.mget("a", "b"), ["1", "2"])
    same(cached.get_cache().size, 2)
    r.set("a", 5)
    wait_until(lambda: cached.get("a") == "5")
    same(cached.get_cache().size, 1)
    r.pexpire("b", 30)
    wait_until(lambda: cached.mget("a", "b") == ["5", None])
    r.flushall()
    wait_until(lambda: cached.get("a") is None)
    keys = [f"k{n}" for n in range(50)]
    for n in range(20):
        r.mset({key: n for key in keys})
        for key in keys:
            cached.get(key)
    wait_until(lambda: all(cached.get(key) == "19" for key in keys))
    cached.close()


main()
