#!/usr/bin/env python3
"""How long PING takes beside whatever one client can send: beside.py PORT PID [CASE...]

One connection sends a PING each millisecond and notes how long its reply took; beside it another client does one thing after
the other, each for some seconds at most. Pin the server to one core and this program to another. Prints p99.9 and the longest
of each case, and p99.9 of all."""
import multiprocessing as mp, os, socket, sys, time

PORT, PID = int(sys.argv[1]), int(sys.argv[2])
ONLY = sys.argv[3:]
LIMIT_S = 6.0


def enc(*args):
    out = [b"*%d\r\n" % len(args)]
    for a in args:
        if not isinstance(a, bytes):
            a = str(a).encode()
        out.append(b"$%d\r\n%s\r\n" % (len(a), a))
    return b"".join(out)


def connect():
    s = socket.create_connection(("127.0.0.1", PORT))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def read_reply(f):
    line = f.readline()
    if not line:
        raise EOFError
    kind, rest = line[:1], line[1:-2]
    if kind in b"+-:":
        return line[:-2]
    if kind == b"$":
        n = int(rest)
        return None if n < 0 else f.read(n + 2)[:-2]
    if kind in b"*>~%":
        n = int(rest) * (2 if kind == b"%" else 1)
        for _ in range(max(n, 0)):
            read_reply(f)
        return n
    return line


def pinger(stop, results, name):
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    except OSError:
        pass
    s = connect()
    lat = []
    nxt = time.perf_counter()
    while True:
        if stop.value:
            break
        now = time.perf_counter()
        if now < nxt:
            time.sleep(nxt - now)
        t0 = time.perf_counter()
        s.sendall(b"*1\r\n$4\r\nPING\r\n")
        got = s.recv(64)
        t1 = time.perf_counter()
        lat.append((name.value, t1 - t0, got[:5] != b"+PONG"))
        nxt = max(nxt + 0.001, t1)
    results.put(lat)


class Client:
    def __init__(self):
        self.s = connect()
        self.f = self.s.makefile("rb", 1 << 20)
        self.s.settimeout(LIMIT_S)

    def __call__(self, *args):
        self.s.sendall(enc(*args))
        return read_reply(self.f)

    def raw(self, data, replies=None):
        self.s.sendall(data)
        for _ in range(replies or 0):
            read_reply(self.f)


def preload():
    c = Client()
    c.s.settimeout(120)
    c("FLUSHALL")
    ev = c
    ev("EVAL", "for i=1,1000000 do redis.call('SET','k:'..i,i) end", 0)
    ev("EVAL", "for i=1,1000000,1000 do local t={} for j=0,999 do t[#t+1]=i+j end redis.call('SADD','set',unpack(t)) redis.call('SADD','set2',unpack(t)) redis.call('RPUSH','list',unpack(t)) end", 3, "set", "set2", "list")
    ev("EVAL", "for i=1,1000000,1000 do local z,h={},{} for j=0,999 do z[#z+1]=i+j z[#z+1]='m'..(i+j) h[#h+1]='f'..(i+j) h[#h+1]=i end redis.call('ZADD','zset',unpack(z)) redis.call('ZADD','zset2',unpack(z)) redis.call('HSET','hash',unpack(h)) end", 3, "zset", "zset2", "hash")
    ev("EVAL", "for i=1,300000 do redis.call('XADD','stream','*','f',i) end redis.call('XGROUP','CREATE','stream','g','0')", 1, "stream")
    ev("EVAL", "local t={} for i=1,300000 do redis.call('GEOADD','geo',(i%360)-180,(i%170)-85+i/1e6,'m'..i) end", 1, "geo")
    c.raw(enc("SET", "huge", b"x" * (200 << 20)), 1)
    c("DEBUG", "SLEEP", "0")


def many(n, f):
    return b"".join(f(i) for i in range(n))


def case_list():
    big = b"y" * (200 << 20)
    cases = {}

    def case(f):
        cases[f.__name__] = f
        return f

    @case
    def set_200mb(c): c.raw(enc("SET", "h2", big), 1)
    @case
    def append_to_huge(c): c("APPEND", "huge", "z"); c("APPEND", "huge", "z")
    @case
    def setrange_huge(c): c("SETRANGE", "sr", 300 << 20, "x")
    @case
    def get_huge_unread(c): c.raw(enc("GET", "huge")); time.sleep(1)
    @case
    def get_huge_read(c): c("GET", "huge")
    @case
    def getrange_many(c): c.raw(many(20, lambda i: enc("GETRANGE", "huge", 0, 10 << 20)), 20)
    @case
    def bitcount_huge(c): c("BITCOUNT", "huge"); c("BITPOS", "huge", 1, 0); c("BITPOS", "huge", 0)
    @case
    def bitop_huge(c): c("BITOP", "NOT", "bo", "huge"); c("BITOP", "XOR", "bo", "huge", "h2")
    @case
    def copy_huge(c): c("COPY", "huge", "h3", "REPLACE"); c("RENAME", "h3", "h4"); c("DEL", "h4")
    @case
    def dump_huge(c): c("DUMP", "huge")
    @case
    def lcs(c): c("SET", "{l}a", b"ab" * 10000); c("SET", "{l}b", b"ba" * 10000); c("LCS", "{l}a", "{l}b", "LEN")
    @case
    def pipeline_of_gets(c): c.raw(many(500_000, lambda i: enc("GET", "k:%d" % (i + 1))), 500_000)
    @case
    def pipeline_unread(c):
        c.s.settimeout(2)
        try: c.raw(many(300_000, lambda i: enc("LRANGE", "list", 0, 100)))
        except OSError: pass
    @case
    def exec_of_many(c): c.raw(enc("MULTI") + many(1_000_000, lambda i: enc("GET", "k:%d" % (i + 1))) + enc("EXEC"), 1_000_002)
    @case
    def mget_many(c): c("MGET", *["k:%d" % i for i in range(1_000_000)])
    @case
    def mset_many(c): c("MSET", *[x for i in range(500_000) for x in ("n:%d" % i, "v")])
    @case
    def del_many(c): c("DEL", *["n:%d" % i for i in range(500_000)])
    @case
    def exists_same(c): c("EXISTS", *["k:1"] * 1_000_000)
    @case
    def lrange_all(c): c("LRANGE", "list", 0, -1)
    @case
    def smembers_all(c): c("SMEMBERS", "set")
    @case
    def hgetall_all(c): c("HGETALL", "hash")
    @case
    def zrange_all(c): c("ZRANGE", "zset", 0, -1, "WITHSCORES")
    @case
    def zrange_lex(c): c("ZRANGEBYLEX", "zset", "-", "+", "LIMIT", 999_000, 10); c("ZREVRANGEBYSCORE", "zset", "+inf", "-inf", "LIMIT", 500_000, 10)
    @case
    def xrange_all(c): c("XRANGE", "stream", "-", "+")
    @case
    def xread_group(c): c("XREADGROUP", "GROUP", "g", "c", "STREAMS", "stream", ">"); c("XPENDING", "stream", "g", "-", "+", 300_000); c("XAUTOCLAIM", "stream", "g", "d", 0, 0, "COUNT", 300_000); c("XINFO", "STREAM", "stream", "FULL", "COUNT", 0)
    @case
    def xtrim(c): c("COPY", "stream", "stream2"); c("XTRIM", "stream2", "MAXLEN", 1); c("XDEL", "stream2", "1-1")
    @case
    def sort_list(c): c("SORT", "list", "LIMIT", 0, 10); c("SORT", "list", "ALPHA", "DESC", "LIMIT", 0, 10)
    @case
    def sort_by_get(c): c("SORT", "set", "BY", "k:*", "GET", "k:*", "LIMIT", 0, 100)
    @case
    def sort_store(c): c("SORT", "list", "STORE", "sorted")
    @case
    def sunionstore(c): c("SUNIONSTORE", "su", "set", "set2"); c("SINTER", "set", "set2"); c("SDIFFSTORE", "sd", "set", "su"); c("SINTERCARD", 2, "set", "set2")
    @case
    def zunionstore(c): c("ZUNIONSTORE", "zu", 2, "zset", "zset2"); c("ZINTERSTORE", "zi", 2, "zset", "zset2"); c("ZDIFF", 2, "zset", "zset2"); c("ZRANGESTORE", "zr", "zset", 0, -1)
    @case
    def spop_many(c): c("COPY", "set", "setc"); c("SPOP", "setc", 500_000); c("SRANDMEMBER", "set", -1_000_000); c("SRANDMEMBER", "set", 600_000)
    @case
    def hrandfield(c): c("HRANDFIELD", "hash", -1_000_000); c("HRANDFIELD", "hash", 600_000, "WITHVALUES"); c("ZRANDMEMBER", "zset", -1_000_000)
    @case
    def lpop_many(c): c("COPY", "list", "listc"); c("LPOP", "listc", 500_000); c("LPOS", "list", "none", "COUNT", 0); c("LREM", "listc", 0, "none"); c("LINSERT", "list", "BEFORE", "none", "x"); c("LTRIM", "listc", 1, 1)
    @case
    def dump_restore(c): 
        for key in ("list", "set", "zset", "hash", "stream"):
            p = c("DUMP", key); c("RESTORE", "r:" + key, 0, p, "REPLACE")
    @case
    def copy_all(c):
        for key in ("list", "set", "zset", "hash"): c("COPY", key, "c:" + key, "REPLACE")
    @case
    def unlink_all(c): c("DEL", "c:list", "c:set"); c("UNLINK", "c:zset", "c:hash"); c("DEL", "r:list", "r:set", "r:zset", "r:hash", "r:stream")
    @case
    def rename_over(c): c("COPY", "zset", "zc"); c("SET", "other", 1); c("RENAME", "other", "zc"); c("COPY", "set", "sc"); c("SET", "sc", 1)
    @case
    def georadius(c): c("GEOSEARCH", "geo", "FROMLONLAT", 0, 0, "BYRADIUS", 30000, "km", "ASC", "COUNT", 10); c("GEOSEARCHSTORE", "gs", "geo", "FROMLONLAT", 0, 0, "BYBOX", 40000, 20000, "km")
    @case
    def pf(c): 
        c("PFADD", "pf", *["%d" % i for i in range(500_000)]); c("PFCOUNT", *["pf"] * 3000); c("PFMERGE", "pf2", *["pf"] * 3000)
    @case
    def keys_all(c): c("KEYS", "*"); c("KEYS", "*9*9*9*9*x")
    @case
    def scan_all(c): c("SCAN", 0, "COUNT", 2_000_000); c("SSCAN", "set", 0, "COUNT", 2_000_000); c("HSCAN", "hash", 0, "COUNT", 2_000_000, "MATCH", "*a*b*c*")
    @case
    def hard_pattern(c): c("SET", "a" * 20000, 1); c("KEYS", "a*" * 200 + "b")
    @case
    def eval_endless(c):
        c.s.settimeout(2)
        try: c("EVAL", "while true do end", 0)
        except OSError: pass
    @case
    def eval_endless_with_key(c):
        c.s.settimeout(2)
        try: c("EVAL", "while true do redis.call('GET', KEYS[1]) end", 1, "k:1")
        except OSError: pass
    @case
    def eval_sha1hex(c): c("EVAL", "local s=string.rep('x',50*1024*1024) for i=1,3 do redis.sha1hex(s) end", 0)
    @case
    def eval_find(c):
        c.s.settimeout(2)
        try: c("EVAL", "return string.find(string.rep('a',1e5), string.rep('a?',1e4)..string.rep('a',1e5))", 0)
        except OSError: pass
    @case
    def eval_tables(c): c("EVAL", "local t={} for i=1,3000000 do t[i]=i end table.sort(t,function(a,b) return a>b end) return #table.concat(t,',')", 0)
    @case
    def eval_table_insert(c): c("EVAL", "local t={} for i=1,200000 do t[i]=i end for i=1,2000 do table.insert(t,1,i) end table.remove(t,1) return #t", 0)
    @case
    def eval_cjson(c): c("EVAL", "local t={} for i=1,1000000 do t[i]='v'..i end local s=cjson.encode(t) return #cjson.decode(s)", 0)
    @case
    def eval_cmsgpack(c): c("EVAL", "local t={} for i=1,1000000 do t[i]='v'..i end local s=cmsgpack.pack(t) return #cmsgpack.unpack(s)", 0)
    @case
    def eval_gsub(c): c("EVAL", "local s=string.rep('ab',5e6) return #string.gsub(s,'a','cc')..#string.upper(s)..#string.reverse(s)", 0)
    @case
    def eval_concat(c): c("EVAL", "local s=string.rep('x',20*1024*1024) local t='' for i=1,5 do t=t..s end return #t", 0)
    @case
    def eval_loadstring(c): c("EVAL", "return loadstring('if x then '..string.rep(' elseif x then ',2e5)..' end') and 1", 0)
    @case
    def eval_source(c): c("EVAL", b"local x=1 " * 1_500_000, 0)
    @case
    def eval_args(c): c("EVAL", "return #ARGV", 0, *["x"] * 1_000_000)
    @case
    def eval_reply(c): c("EVAL", "local t={} for i=1,1000000 do t[i]=i end return t", 0)
    @case
    def eval_big_reply(c): c("EVAL", "return redis.call('GET','huge')", 1, "huge")
    @case
    def eval_lrange(c): c("EVAL", "return #redis.call('LRANGE','list',0,-1)", 1, "list")
    @case
    def eval_keys_undeclared(c): c("EVAL", "for i=1,200000 do redis.call('GET','k:'..i) end return redis.call('DBSIZE')", 0)
    @case
    def eval_collect(c): c("EVAL", "local t={} for i=1,2000000 do t[i]={i} end t=nil collectgarbage() return 1", 0)
    @case
    def script_load_many(c): c.raw(many(20000, lambda i: enc("SCRIPT", "LOAD", "return %d" % i)), 20000); c("SCRIPT", "FLUSH")
    @case
    def function_load(c): c("FUNCTION", "LOAD", "REPLACE", "#!lua name=big\n" + "".join("redis.register_function('f%d', function() return 1 end)\n" % i for i in range(20000))); c("FUNCTION", "LIST", "WITHCODE"); c("FUNCTION", "DUMP"); c("FUNCTION", "FLUSH")
    @case
    def blpop_many(c):
        c.s.settimeout(2)
        try: c("BLPOP", *["none:%d" % i for i in range(500_000)], 1)
        except OSError: pass
    @case
    def subscribe_many(c): c.raw(enc("SUBSCRIBE", *["ch:%d" % i for i in range(500_000)]), 500_000)
    @case
    def psubscribe_many(c): c.raw(enc("PSUBSCRIBE", *["p:%d*" % i for i in range(100_000)]), 100_000); d = Client(); d.raw(many(200, lambda i: enc("PUBLISH", "zzz%d" % i, "x")), 200)
    @case
    def tracking_prefixes(c): c("HELLO", 3); c("CLIENT", "TRACKING", "ON", "BCAST", *[x for i in range(20000) for x in ("PREFIX", "q:%d:%s" % (i, "x" * (i % 1000)))]); d = Client(); d("SET", "q:1:" + "x" * 1000, 1)
    @case
    def client_list_ids(c): c("CLIENT", "LIST", "ID", *range(1, 500_000))
    @case
    def watch_many(c): c("WATCH", *["k:%d" % i for i in range(500_000)]); c("UNWATCH")
    @case
    def multi_hangs_up(c): c.raw(enc("MULTI") + many(500_000, lambda i: enc("GET", "k:1"))); c.s.close()
    @case
    def arguments(c): c.raw(b"*1048576\r\n" + b"$1\r\na\r\n" * 1048575 + b"$1\r\na\r\n", 1)
    @case
    def inline_many(c): c.raw(b"PING\r\n" * 500_000, 500_000)
    @case
    def info_all(c): c.raw(many(2000, lambda i: enc("INFO", "everything")), 2000)
    @case
    def command_docs(c): c.raw(many(50, lambda i: enc("COMMAND", "DOCS")) + many(50, lambda i: enc("COMMAND")), 100)
    @case
    def memory_usage(c): c("MEMORY", "USAGE", "zset", "SAMPLES", 0); c("MEMORY", "USAGE", "hash", "SAMPLES", 0); c("MEMORY", "DOCTOR"); c("MEMORY", "STATS")
    @case
    def object_debug(c): c("DEBUG", "OBJECT", "zset"); c("OBJECT", "ENCODING", "zset"); c("DEBUG", "DIGEST"); c("DEBUG", "DIGEST-VALUE", "zset", "hash")
    @case
    def acl_many(c): c.raw(many(2000, lambda i: enc("ACL", "SETUSER", "u%d" % i, "on", ">p", "~a*", "+@all")), 2000); c("ACL", "LIST"); c("ACL", "DELUSER", *["u%d" % i for i in range(2000)])
    @case
    def auth_many(c): c.raw(many(20000, lambda i: enc("AUTH", "x", "y" * 1000)), 20000)
    @case
    def bgsave(c): c("BGSAVE"); time.sleep(4)
    @case
    def save(c): c("SAVE")
    @case
    def config_set(c): c.raw(many(5000, lambda i: enc("CONFIG", "SET", "maxmemory-samples", 5 + i % 3)), 5000); c.raw(many(500, lambda i: enc("CONFIG", "GET", "*")), 500)
    @case
    def maxmemory(c): c("CONFIG", "SET", "maxmemory-policy", "allkeys-lru"); c("CONFIG", "SET", "maxmemory", "600mb"); time.sleep(2); c("CONFIG", "SET", "maxmemory", 0); c("CONFIG", "SET", "maxmemory-policy", "noeviction")
    @case
    def expire_all(c): c.raw(many(300_000, lambda i: enc("PEXPIRE", "k:%d" % (i + 1), 1500)), 300_000); time.sleep(2.5)
    @case
    def swapdb(c): c.raw(many(2000, lambda i: enc("SWAPDB", 0, 1)), 2000)
    @case
    def hpexpire_all(c): c("HPEXPIRE", "hash", 500, "FIELDS", 500_000, *["f%d" % i for i in range(1, 500_001)]); time.sleep(2)
    @case
    def monitor_unread(c):
        c.raw(enc("MONITOR")); d = Client(); d.raw(many(300_000, lambda i: enc("GET", "k:%d" % i)), 300_000)
    @case
    def flushall(c): c("FLUSHALL", "SYNC")
    return cases


def main():
    cases = case_list()
    chosen = ONLY or list(cases)
    t0 = time.time()
    preload()
    print("loaded in %.0f s" % (time.time() - t0), flush=True)
    stop, name, results = mp.Value("i", 0), mp.Value("i", -1), mp.Queue()
    p = mp.Process(target=pinger, args=(stop, results, name))
    p.start()
    time.sleep(1)
    took = {}
    for n, k in enumerate(chosen):
        c = Client()
        try:
            name.value = n
            b = time.time()
            cases[k](c)
            took[k] = time.time() - b
        except (OSError, EOFError) as e:
            took[k] = time.time() - b
            print(k, "ended:", repr(e)[:80], flush=True)
        finally:
            c.f.close(); c.s.close()
        time.sleep(0.3)
        name.value = -1
    stop.value = 1
    lat = results.get(); p.join()
    by = {}
    for n, l, wrong in lat:
        by.setdefault(n, []).append(l * 1000)
        if wrong: print("not PONG in", chosen[n] if n >= 0 else "-")
    q = lambda v, f: sorted(v)[min(len(v) - 1, int(len(v) * f))]
    for n, k in enumerate(chosen):
        v = by.get(n, [0])
        print("%-24s %6.2f s  p50 %7.2f  p99.9 %8.2f  longest %8.2f ms" % (k, took[k], q(v, .5), q(v, .999), max(v)))
    of_all = [l for n, v in by.items() if n >= 0 for l in v]
    print("all: %d, p99.9 %.2f ms, longest %.2f ms; quiet p99.9 %.2f" % (len(of_all), q(of_all, .999), max(of_all), q(by.get(-1, [0]), .999)))


main()
