"""What the programs of checks beside this file share.

usage: PROGRAM PORT [--newer] [CHECK...]    --newer: also what redis-server 7.0 does not have
Every check runs, on an empty server, in both protocols; the exit status says whether all succeeded.
"""

import os
import sys
import time
import traceback

import redis

LIMIT_S = 10
CHECKS = []
NEWER = []


def check(function):
    CHECKS.append(function)
    return function


def newer(function):
    NEWER.append(function)
    return function


def same(got, expected):
    assert got == expected, f"got {got!r}, expected {expected!r}"


def fails(code, function, *args, **kwargs):
    try:
        reply = function(*args, **kwargs)
    except redis.ResponseError as error:
        assert str(error).startswith(code), f"{error} does not begin with {code}"
    else:
        raise AssertionError(f"got {reply!r}, expected {code}")


def wait_until(condition):
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.005)


def under_tls():
    """What a client has to be told besides the port: CHECK_CA is the authority whose servers are trusted under TLS."""
    ca = os.environ.get("CHECK_CA")
    return {"host": "localhost", "ssl": True, "ssl_ca_certs": ca} if ca else {}


def address(r, database=0):
    """The server's address in the form that packages on top of redis-py take, with the protocol of this client."""
    kwargs = r.connection_pool.connection_kwargs
    return f"redis://127.0.0.1:{kwargs['port']}/{database}?protocol={kwargs['protocol']}"


def main():
    names = [arg for arg in sys.argv[2:] if not arg.startswith("--")]
    checks = CHECKS + (NEWER if "--newer" in sys.argv else [])
    failures = 0
    for protocol in (2, 3):
        r = redis.Redis(port=int(sys.argv[1]), protocol=protocol, decode_responses=True, **under_tls())
        for function in checks:
            if names and function.__name__ not in names:
                continue
            r.flushall()
            try:
                function(r)
            except Exception:
                failures += 1
                print(f"--- {function.__name__}, RESP{protocol}:\n{traceback.format_exc(limit=-3)}")
    sys.exit(1 if failures else 0)
