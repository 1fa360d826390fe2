"""Sessions that live on while they are used, and whose ends nobody misses.

usage: session_store.py [PORT]    without PORT: that of EMBERDB_PORT, or 6379

An expiry policy says once, for all keys of a prefix, how long a session lives and that use renews it, so no command of
the shop below names a deadline. A session that nobody uses any more dies, and its end is written to a stream, with what
was in it. From there a consumer group reads it: once, and also if nobody was reading when it happened.
"""

import os
import secrets
import sys
import time

import redis

SESSIONS = "example:session:"
ENDS = "example:session-ends"
ABANDONED = "example:abandoned:"
LIFE = "30m"
# Nobody wants to wait half an hour for the end of this demonstration.
SHORT_LIFE, SHORT_LIFE_S = "1s", 1
WEEK_MS = 7 * 24 * 3600 * 1000
LIMIT_S = 30


class Sessions:
    def __init__(self, r):
        self.redis = r
        self.live(LIFE)

    def live(self, life):
        """How long a session lives that nobody uses. APPLY says it of those that are there, too, which MAX shortens."""
        events = ["EVENTS", ENDS, "WITHVALUE", "MAXLEN", 100_000]
        self.redis.execute_command("EXPIRY", "POLICY", "SET", SESSIONS, life, "MAX", life, "SLIDING", *events, "APPLY")

    def login(self, user):
        token = secrets.token_hex(8)
        # The policy gives the new key its deadline.
        self.redis.hset(SESSIONS + token, mapping={"user": user, "cart": ""})
        return token

    def put_into_cart(self, token, thing):
        """Whether the session was there still. FXX changes only what is there; HSET would begin a session of nobody."""
        return self.redis.execute_command("HSETEX", SESSIONS + token, "FXX", "FIELDS", 1, "cart", thing) == 1

    def read(self, token):
        """What is in a session, None if it has ended. To read it is to use it: its life begins anew."""
        return self.redis.hgetall(SESSIONS + token) or None

    def logout(self, token):
        """Nothing expires here, so no end is told."""
        return self.redis.delete(SESSIONS + token) == 1


class Reminders:
    """Keeps for a week what was in sessions that ended by themselves, for a letter about the cart that was left."""

    def __init__(self, port):
        # The value of a hash comes as DUMP gives it, which is not text.
        self.redis = redis.Redis(port=port, protocol=2)
        self.redis.xgroup_create(ENDS, "reminders", id="0", mkstream=True)

    def take(self):
        """The tokens of sessions that have ended; waits a moment for the first."""
        tokens = []
        for _, entries in self.redis.xreadgroup("reminders", "worker-1", {ENDS: ">"}, block=50) or []:
            for entry, fields in entries:
                token = fields[b"key"].decode().removeprefix(SESSIONS)
                self.redis.restore(ABANDONED + token, WEEK_MS, fields[b"value"], replace=True)
                # Only now: what a worker has not acknowledged, because it failed, another one can take (XAUTOCLAIM).
                self.redis.xack(ENDS, "reminders", entry)
                print(f"session {token} ended; deleted {float(fields[b'lag']):.1f} ms after its deadline")
                tokens.append(token)
        return tokens


def demonstrate(r, port):
    sessions, reminders = Sessions(r), Reminders(port)
    alice, bob, carol = (sessions.login(user) for user in ("alice", "bob", "carol"))
    assert 1700 < r.ttl(SESSIONS + alice) <= 1800, "the policy gave the session no deadline"
    assert sessions.put_into_cart(alice, "a lamp"), "a session of a moment ago is gone"
    assert sessions.logout(carol), "a session of a moment ago is gone"
    assert not sessions.put_into_cart(carol, "a chair"), "a session that has ended was changed"

    # From here on Alice is away. Bob stays for longer than a life.
    used = time.monotonic()
    stays_until, end = used + 1.5 * SHORT_LIFE_S, used + LIMIT_S
    sessions.live(SHORT_LIFE)
    ended = []
    while alice not in ended or time.monotonic() < stays_until:
        assert time.monotonic() < end, "the end of the abandoned session was never told"
        reading = time.monotonic()
        session = sessions.read(bob)
        if session is None:
            # Where the machine stood still for a life Bob was away, too. Lives are renewed in steps of a hundredth.
            assert time.monotonic() - used >= 0.98 * SHORT_LIFE_S, "a session ended although it was used"
            bob = sessions.login("bob")
        else:
            assert session["user"] == "bob", f"the session of another: {session}"
        used = reading
        ended += reminders.take()

    assert sessions.read(alice) is None, "a session was seen after its end"
    assert ended.count(alice) == 1, "an end was told more than once"
    assert carol not in ended, "who logged out was told as one who went away"
    kept = r.hgetall(ABANDONED + alice)
    assert kept == {"user": "alice", "cart": "a lamp"}, f"what was in the session is lost: {kept}"
    print(f"{kept['user']} left {kept['cart']} behind; the session of bob, who stayed, goes on")


def clean_up(r):
    r.execute_command("EXPIRY", "POLICY", "DEL", SESSIONS)
    for key in [ENDS, *r.scan_iter(SESSIONS + "*"), *r.scan_iter(ABANDONED + "*")]:
        r.delete(key)


def main():
    port = int(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("EMBERDB_PORT", 6379))
    r = redis.Redis(port=port, decode_responses=True)
    # A run that was interrupted may have left something.
    clean_up(r)
    try:
        demonstrate(r, port)
    finally:
        clean_up(r)


if __name__ == "__main__":
    main()
