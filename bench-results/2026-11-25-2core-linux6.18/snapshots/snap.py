import socket, sys, os, time, subprocess, gc, random, threading
# snap.py NAME PORT PID KIND
name, port, pid, kind = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
os.sched_setaffinity(0, {1})
def conn():
    s = socket.create_connection(('127.0.0.1', port)); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1); return s
def enc(*p): return b'*%d\r\n' % len(p) + b''.join(b'$%d\r\n%s\r\n' % (len(x), x) for x in p)
def call(s, *p):
    s.sendall(enc(*[x if isinstance(x, bytes) else str(x).encode() for x in p])); return s.recv(1 << 16)
def rss(): return int([l for l in open(f'/proc/{pid}/status') if l.startswith('VmRSS')][0].split()[1]) // 1024
def load():
    s = conn(); n = 10_000_000 if kind == 'hash' else 5_000_000
    out, sent = [], 0
    if kind == 'hash':
        for a in range(0, n, 100):
            p = [b'HSET', b'big']
            for i in range(a, a + 100): p += [b'field:%010d' % i, b'value:%020d' % i]
            out.append(enc(*p))
            if len(out) == 100: s.sendall(b''.join(out)); want = len(out); out = []; got = 0
            else: continue
            while got < want: got += s.recv(1 << 20).count(b'\r\n')
    else:
        for a in range(0, n, 1000):
            s.sendall(b''.join(enc(b'SET', b'key:%012d' % i, b'v' * 32, b'EX', b'%d' % (100000 + i % 1000)) for i in range(a, a + 1000))); got = 0
            while got < 1000: got += s.recv(1 << 20).count(b'\r\n')
load()
time.sleep(2)
base = rss()
def writer():
    if kind == 'hash': args = ['HSET', 'big', 'field:__rand_int__', 'xvalue']
    else: args = ['SET', 'key:__rand_int__', 'v' * 32]
    n = 10_000_000 if kind == 'hash' else 5_000_000
    rand = '__rand_int__'
    return subprocess.Popen(['taskset', '-c', '1', 'redis-benchmark', '-p', str(port), '-P', '16', '-c', '20', '-n', '1000000000', '-r', str(n), '-q'] + args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
gc.disable()
def pings(until):
    s = conn(); lat = []; ping = enc(b'PING')
    while not until():
        t = time.perf_counter(); s.sendall(ping); s.recv(64); lat.append(time.perf_counter() - t); time.sleep(0.0005)
    lat.sort(); f = lambda q: lat[min(len(lat) - 1, int(len(lat) * q))] * 1e3
    return f"n {len(lat)} p50 {f(.5):.2f} p99 {f(.99):.2f} p99.9 {f(.999):.2f} max {lat[-1]*1e3:.2f} ms"
def info(field):
    s = conn(); s.sendall(enc(b'INFO', b'persistence')); r = b''
    while b'aof_enabled' not in r: r += s.recv(1 << 16)
    s.close()
    return [l.split(b':')[1] for l in r.split(b'\r\n') if l.startswith(field)][0]
for load_on in (False, True):
    w = writer() if load_on else None
    time.sleep(1)
    end = time.time() + 5
    print(name, kind, 'writes' if load_on else 'quiet', 'without', pings(lambda: time.time() > end))
    peak, stop = [rss()], threading.Event()
    c = conn(); t0 = time.time(); last = [0]
    before = rss()
    print(name, 'BGSAVE at', time.time()); call(c, 'BGSAVE')
    state = {'done': False, 'at': 0}
    def done():
        now = time.time()
        if now - state['at'] > 0.05:
            state['at'] = now; peak[0] = max(peak[0], rss())
            kids = subprocess.run(['pgrep', '-P', str(pid)], capture_output=True, text=True).stdout.split() if name == 'redis' else []
            for k in kids:
                try: peak.append(int([l for l in open(f'/proc/{k}/smaps_rollup') if l.startswith('Private_Dirty')][0].split()[1]) // 1024)
                except Exception: pass
            over = info(b'rdb_bgsave_in_progress') == b'0'
            if over: state['n'] = state.get('n', 0) + 1
            state['done'] = over and now - t0 > 12
            if over and not state['done']: call(c, 'BGSAVE')
        return state['done']
    print(name, 'ended at', time.time()); print(name, kind, 'writes' if load_on else 'quiet', 'BGSAVE ', pings(done), f"{time.time()-t0:.1f} s; {state['n']} snapshots; resident {before} -> {peak[0]} MB", 'child private', max(peak[1:], default=0))
    if w: w.kill()
