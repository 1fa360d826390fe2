"""Packages that live on Lua scripts, against a server: redis-py's locks and scripts, limits, and Django's cache.

usage: scripts.py PORT [--newer] [CHECK...]    as harness.py says
"""

import asyncio
import threading
import time

import redis
import redis.asyncio
from redis.exceptions import LockError, LockNotOwnedError, NoScriptError

from harness import address, check, fails, main, same, wait_until


def refused(error, function, *args, **kwargs):
    """For what redis-py itself refuses once a script has said no."""
    try:
        reply = function(*args, **kwargs)
    except error:
        return
    raise AssertionError(f"got {reply!r}, expected {error.__name__}")


def together(count, function):
    """What `function` returns in each of so many threads, which begin at once."""
    barrier = threading.Barrier(count)
    results = []

    def run(n):
        barrier.wait()
        results.append(function(n))

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive(), "a thread never ends"
    same(len(results), count)
    return results


@check
def a_lock_for_many_threads(r):
    workers, rounds = 4, 15
    inside = []

    def work(n):
        for _ in range(rounds):
            with r.lock("lock", timeout=20, sleep=0.001, blocking_timeout=20):
                inside.append(n)
                # Without the lock two threads would write the same number.
                number = int(r.get("number") or 0)
                same(inside, [n])
                r.set("number", number + 1)
                inside.pop()

    together(workers, work)
    same(r.get("number"), str(workers * rounds))
    same(r.exists("lock"), 0)


@check
def a_lock_is_extended_and_lost(r):
    lock = r.lock("lock", timeout=10)
    same(lock.acquire(blocking=False), True)
    same((lock.locked(), lock.owned()), (True, True))
    other = r.lock("lock", timeout=10)
    same(other.acquire(blocking=False), False)
    begin = time.monotonic()
    same(other.acquire(blocking_timeout=0.05, sleep=0.01), False)
    assert time.monotonic() - begin < 5
    refused(LockError, other.release)
    same(lock.extend(30), True)
    assert 38_000 < r.pttl("lock") <= 40_000, r.pttl("lock")
    same(lock.extend(20, replace_ttl=True), True)
    assert 18_000 < r.pttl("lock") <= 20_000, r.pttl("lock")
    same(lock.reacquire(), True)
    assert 8_000 < r.pttl("lock") <= 10_000, r.pttl("lock")
    # Another one takes the name over, as if the deadline had passed.
    r.set("lock", "another's")
    same(lock.owned(), False)
    refused(LockNotOwnedError, lock.extend, 1)
    refused(LockNotOwnedError, lock.reacquire)
    refused(LockNotOwnedError, lock.release)
    same(r.get("lock"), "another's")
    r.delete("lock")
    short = r.lock("lock", timeout=0.02)
    same(short.acquire(), True)
    wait_until(lambda: not short.locked())
    same(other.acquire(blocking=False), True)
    refused(LockNotOwnedError, short.release)
    same(other.release(), None)
    same(r.exists("lock"), 0)


@check
def scripts_are_registered(r):
    total = r.register_script("local n = 0; for i = 1, #KEYS do n = n + redis.call('INCRBY', KEYS[i], ARGV[1]) end return n")
    same(total(keys=["a", "b", "c"], args=[2]), 6)
    same(r.script_exists(total.sha, "0" * 40), [True, False])
    # The package loads a script again once the server has forgotten it.
    same(r.script_flush(), True)
    refused(NoScriptError, r.evalsha, total.sha, 1, "a", 1)
    same(total(keys=["a", "b"], args=[1]), 6)
    r.script_flush("ASYNC")
    with r.pipeline(transaction=True) as pipe:
        pipe.set("d", 10)
        total(keys=["c", "d"], args=[1], client=pipe)
        pipe.mget("a", "b", "c", "d")
        same(pipe.execute(), [True, 14, ["3", "3", "3", "11"]])
    with r.pipeline(transaction=False) as pipe:
        for n in range(100):
            total(keys=[f"key:{n}", f"other:{n}"], args=[n], client=pipe)
        same(pipe.execute(), [2 * n for n in range(100)])
    same(r.script_load("return 1"), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db")
    same(r.evalsha("E0E1F9FABFC9D4800C877A703B823AC0578FF8DB", 0), 1)


@check
def replies_of_scripts(r):
    same(r.eval("return {1, 2.9, 'three', false, {4, {}}, nil, 5}", 0), [1, 2, "three", None, [4, []]])
    same(r.eval("return {ok = 'FINE'}", 0), "FINE")
    same(r.eval("return redis.status_reply('FINE')", 0), "FINE")
    same(r.eval("return tostring(3.25)", 0), "3.25")
    same(r.eval("return redis.call('HGETALL', KEYS[1])", 1, "nothing"), [])
    same(r.eval("return redis.call('GET', KEYS[1]) == false", 1, "nothing"), 1)
    same(r.eval("return cjson.decode(ARGV[1]).list[2]", 0, '{"list": [1, "two"]}'), "two")
    same(r.eval("return cmsgpack.unpack(cmsgpack.pack({7, 8}))", 0), [7, 8])
    same(r.eval("return redis.sha1hex('')", 0), "da39a3ee5e6b4b0d3255bfef95601890afd80709")
    fails("MINE it failed", r.eval, "return redis.error_reply('MINE it failed')", 0)
    fails("WRONGTYPE", r.eval, "redis.call('RPUSH', KEYS[1], 'a') return redis.call('INCR', KEYS[1])", 1, "l")
    same(r.eval("return redis.pcall('INCR', KEYS[1]).err ~= nil", 1, "l"), 1)
    same(r.lrange("l", 0, -1), ["a"])
    fails("", r.eval, "return nothing.at.all", 0)
    fails("", r.eval, "this is no script", 0)
    same(r.eval_ro("return redis.call('LLEN', KEYS[1])", 1, "l"), 1)
    fails("", r.eval_ro, "return redis.call('RPUSH', KEYS[1], 'b')", 1, "l")
    raw = redis.Redis.from_url(address(r))
    binary = bytes(range(256))
    same(raw.eval("redis.call('SET', KEYS[1], ARGV[1]) return redis.call('GET', KEYS[1])", 1, binary, binary), binary)
    raw.close()


@check
def scripts_of_a_client_of_asyncio(r):
    async def work():
        own = redis.asyncio.Redis.from_url(address(r), decode_responses=True)
        # Only one of each pair may take the last piece.
        take = own.register_script(
            "if tonumber(redis.call('GET', KEYS[1]) or 0) > 0 then redis.call('DECR', KEYS[1]) return 1 end return 0"
        )
        await own.mset({f"stock:{n}": 3 for n in range(10)})
        taken = await asyncio.gather(*(take(keys=[f"stock:{n % 10}"]) for n in range(60)))
        same(sum(taken), 30)
        same(await own.mget([f"stock:{n}" for n in range(10)]), ["0"] * 10)
        async with own.lock("lock", timeout=10) as lock:
            same(await lock.owned(), True)
            same(await lock.extend(10), True)
            assert 18_000 < await own.pttl("lock") <= 20_000
        same(await own.exists("lock"), 0)
        await own.aclose()

    asyncio.run(work())


def of_ten(r):
    """Each of the limiters of `limits` on this server, and a limit that no midnight of an hour or minute resets."""
    from limits import parse, storage, strategies

    store = storage.storage_from_string(address(r))
    same(store.check(), True)
    kinds = ["FixedWindowRateLimiter", "MovingWindowRateLimiter", "SlidingWindowCounterRateLimiter"]
    return store, [getattr(strategies, kind)(store) for kind in kinds], parse("10/day")


@check
def limits_refuse_the_eleventh(r):
    store, limiters, ten = of_ten(r)
    for limiter in limiters:
        name = type(limiter).__name__
        begin = time.time()
        same(limiter.test(ten, name), True)
        same(limiter.get_window_stats(ten, name).remaining, 10)
        same([limiter.hit(ten, name) for _ in range(11)], [True] * 10 + [False])
        same(limiter.test(ten, name), False)
        stats = limiter.get_window_stats(ten, name)
        same(stats.remaining, 0)
        assert begin <= stats.reset_time <= time.time() + 86_400, stats
        same(limiter.hit(ten, name, "other"), True)
        same(limiter.get_window_stats(ten, name, "other").remaining, 9)
        limiter.clear(ten, name)
        same(limiter.hit(ten, name, cost=7), True)
        same(limiter.hit(ten, name, cost=4), False)
        # What a fixed window refuses counts too.
        if name != "FixedWindowRateLimiter":
            same(limiter.hit(ten, name, cost=3), True)
    # Its script finds the keys by their pattern, and deletes them.
    r.set("mine", 1)
    assert store.reset() >= 6
    same(r.keys(), ["mine"])


@check
def limits_admit_ten_of_many_threads(r):
    _, limiters, ten = of_ten(r)
    for limiter in limiters:
        name = type(limiter).__name__
        admitted = together(4, lambda _: sum(limiter.hit(ten, name) for _ in range(8)))
        same(sum(admitted), 10)


@check
def limits_forget_with_time(r):
    from limits import parse

    _, limiters, _ = of_ten(r)
    two = parse("2/second")
    for limiter in limiters:
        name = type(limiter).__name__
        wait_until(lambda: limiter.hit(two, name) and limiter.hit(two, name) and not limiter.hit(two, name))
        wait_until(lambda: limiter.hit(two, name))


@check
def limits_of_asyncio(r):
    from limits import parse, storage
    from limits.aio import strategies

    async def work():
        store = storage.storage_from_string(f"async+{address(r)}", implementation="redispy")
        ten = parse("10/day")
        for kind in ["FixedWindowRateLimiter", "MovingWindowRateLimiter", "SlidingWindowCounterRateLimiter"]:
            limiter = getattr(strategies, kind)(store)
            hits = await asyncio.gather(*(limiter.hit(ten, kind) for _ in range(15)))
            same(sum(hits), 10)
            same((await limiter.get_window_stats(ten, kind)).remaining, 0)
            same(await limiter.test(ten, kind), False)
        assert await store.reset() >= 3
        same(r.keys(), [])

    asyncio.run(work())


@check
def a_cache_of_django(r):
    from django.conf import settings
    from django.core.cache.backends.redis import RedisCache

    if not settings.configured:
        settings.configure()
    cache = RedisCache(address(r), {"TIMEOUT": 300, "KEY_PREFIX": "site", "VERSION": 2})
    same(cache.get("nothing", "default"), "default")
    cache.set("k", {"a": [1, 2.5, None], "b": "ü"}, 100)
    same(cache.get("k"), {"a": [1, 2.5, None], "b": "ü"})
    assert 98 <= r.ttl("site:2:k") <= 100
    same(cache.add("k", "other"), False)
    same(cache.add("l", "new", timeout=None), True)
    same(r.ttl("site:2:l"), -1)
    same(cache.touch("l", 50), True)
    assert 48 <= r.ttl("site:2:l") <= 50
    same(cache.touch("nothing", 50), False)
    same(cache.touch("l", None), True)
    same(r.ttl("site:2:l"), -1)
    cache.set("n", 41)
    same((cache.incr("n"), cache.incr("n", 10), cache.decr("n", 2)), (42, 52, 50))
    try:
        cache.incr("nothing")
    except ValueError:
        pass
    else:
        raise AssertionError("there is nothing to be counted")
    same(cache.incr_version("n"), 3)
    same((cache.get("n"), cache.get("n", version=3)), (None, 50))
    same(cache.set_many({f"many:{n}": n for n in range(50)}, 60), [])
    same(cache.get_many([f"many:{n}" for n in range(0, 60, 10)]), {f"many:{n}": n for n in range(0, 50, 10)})
    cache.delete_many([f"many:{n}" for n in range(40)])
    same(len(cache.get_many([f"many:{n}" for n in range(50)])), 10)
    calls = []
    compute = lambda: calls.append(1) or "computed"
    same([cache.get_or_set("computed", compute) for _ in range(3)], ["computed"] * 3)
    same(len(calls), 1)
    same(("computed" in cache, cache.delete("computed"), cache.delete("computed")), (True, True, False))
    cache.set("gone", 1, timeout=0)
    same(cache.has_key("gone"), False)
    cache.set("soon", 1, timeout=1)
    wait_until(lambda: cache.get("soon") is None)
    same(cache.clear(), True)
    same((cache.get("k"), r.dbsize()), (None, 0))
    # Threads add one key: one of them wins.
    same(sum(together(4, lambda n: cache.add("one", n))), 1)
    cache.close()


main()
