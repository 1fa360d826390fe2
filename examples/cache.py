"""A cache whose popular values are computed once a life, however many read them.

usage: cache.py [PORT]    without PORT: that of EMBERDB_PORT, or 6379

When a popular value dies in an ordinary cache all its readers find nothing, and all compute it. GETFRESH tells one of
them to: shortly before the value's deadline, while all others go on using it, or, where there is none yet, while all
others wait.
"""

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import redis

PREFIX = "example:cache:"
COST_MS = 50
# Nobody else is told to compute a value while it is leased, even if whoever was told went away. An application leaves
# this at ten times the cost; here a machine that stands still must not look like a value that is computed twice.
LEASE = "30s"
READERS = 20
READS_FOR_S = 3
# Who looks so rarely may miss the time in which somebody is told.
PAUSE_MAX_S = 0.1


class Cache:
    """An ordinary cache: whoever finds nothing computes."""

    def __init__(self, r, life_ms):
        self.redis = r
        self.life_ms = life_ms

    def get(self, key, compute):
        value = self.redis.get(PREFIX + key)
        return self.put(key, compute()) if value is None else value

    def put(self, key, value):
        self.redis.set(PREFIX + key, value, px=self.life_ms)
        return value


class FreshCache(Cache):
    """Whoever is told to computes."""

    def __init__(self, r, life_ms):
        super().__init__(r, life_ms)
        self.lock = threading.Lock()
        self.found_nothing = 0

    def get(self, key, compute):
        while True:
            reply = self.redis.execute_command("GETFRESH", PREFIX + key, "COST", f"{COST_MS}ms", "LEASE", LEASE)
            value, advice, _remaining_ms, _leased_ms = reply
            if value is None:
                with self.lock:
                    self.found_nothing += 1
            if advice == "hit":
                return value
            if advice == "refresh":
                # A thread in the background could do this, too, while the reader uses the old value.
                return self.put(key, compute())
            # Another reader was told, and there is nothing yet.
            time.sleep(COST_MS / 5000)


class Page:
    """A popular value that takes a while to compute, and knows how often that was done."""

    def __init__(self):
        self.lock = threading.Lock()
        self.computations = self.running = self.most_at_once = 0

    def compute(self):
        with self.lock:
            self.computations += 1
            self.running += 1
            self.most_at_once = max(self.most_at_once, self.running)
            edition = self.computations
        time.sleep(COST_MS / 1000)
        with self.lock:
            self.running -= 1
        return f"edition {edition}"


def together(function):
    """What the readers return, threads that run `function` from the same moment on."""
    begin = threading.Barrier(READERS)

    def reader(_):
        begin.wait()
        return function()

    with ThreadPoolExecutor(READERS) as pool:
        return list(pool.map(reader, range(READERS)))


def read_for_a_while(cache, page, now):
    """Reads the page again and again; returns how often, and the longest time from one read to the next."""
    reads, longest_s = 0, 0
    end = now + READS_FOR_S
    while now < end:
        begin = now
        cache.get("page", page.compute)
        time.sleep(0.005)
        now = time.monotonic()
        reads, longest_s = reads + 1, max(longest_s, now - begin)
    return reads, longest_s


def demonstrate(r):
    page, cache = Page(), Cache(r, life_ms=60_000)
    together(lambda: cache.get("page", page.compute))
    print(f"an ordinary cache: {READERS} readers find nothing and compute the page {page.computations} times")

    r.delete(PREFIX + "page")
    page, cache = Page(), FreshCache(r, life_ms=60_000)
    pages = together(lambda: cache.get("page", page.compute))
    assert pages == ["edition 1"] * READERS, f"for {READERS} readers it was computed {page.computations} times: {pages}"
    print(f"GETFRESH: {READERS} readers find nothing, one computes the page, and all get it")

    page, cache = Page(), FreshCache(r, life_ms=1000)
    first = page.compute()
    begin = time.monotonic()
    cache.put("page", first)
    counts = together(lambda: read_for_a_while(cache, page, begin))
    took_s = time.monotonic() - begin
    reads, longest_s = sum(reads for reads, _ in counts), max(longest_s for _, longest_s in counts)
    print(
        f"GETFRESH: a page of one second, read {reads} times in {took_s:.1f} s, is computed {page.computations} times; "
        f"{cache.found_nothing} reads found nothing"
    )
    assert page.most_at_once == 1, f"the page was computed {page.most_at_once} times at once"
    # A life is not used to its end, but to much more than a half of it.
    assert page.computations <= 2 + 2 * took_s, "the page was computed more than once a life"
    if longest_s < PAUSE_MAX_S:
        assert cache.found_nothing == 0, "readers found nothing, although there was time to compute the page"
    else:
        print(f"(the machine was busy: a reader was kept from reading for {longest_s:.2f} s)")


def main():
    port = int(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("EMBERDB_PORT", 6379))
    r = redis.Redis(port=port, decode_responses=True)
    # A run that was interrupted may have left something.
    r.delete(PREFIX + "page")
    try:
        demonstrate(r)
    finally:
        r.delete(PREFIX + "page")


if __name__ == "__main__":
    main()
