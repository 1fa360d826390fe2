B=target/release; d=$(mktemp -d); pids=()
st() { n=$1; p=$2; shift 2; mkdir -p $d/$n; taskset -c 0 "$@" --port $p --dir $d/$n --save "" >$d/$n.log 2>&1 & pids+=($!); eval "pid_$n=$!"; for i in $(seq 100); do redis-cli -p $p ping >/dev/null 2>&1 && break; sleep 0.1; done; }
st none 7401 $B/emberdb --shards 1
st ten 7402 $B/emberdb --shards 1
st all 7403 $B/emberdb --shards 1
taskset -c 1 python3 - <<'P' &
import socket,threading,time
def go(port,prefixes):
    s=socket.create_connection(('127.0.0.1',port))
    s.sendall(b'HELLO 3\r\n'); time.sleep(.2); s.recv(65536)
    for p in prefixes:
        p=p.encode(); s.sendall(b'*3\r\n$4\r\nLIVE\r\n$5\r\nCOUNT\r\n$%d\r\n%s\r\n'%(len(p),p)); time.sleep(.05)
    while True:
        try:
            if not s.recv(65536): return
        except OSError: return
t=[threading.Thread(target=go,args=(7402,['sess:%d:'%i for i in range(10)]),daemon=True),threading.Thread(target=go,args=(7403,['']+['']*0+['k','ke','key','key:','m','me','mem','x','y']),daemon=True)]
[x.start() for x in t]; time.sleep(60)
P
PY=$!
sleep 2
for P in 1 16; do
 l=--no-load; [ $P = 1 ] && l=--load
 taskset -c 1 $B/emberdb-bench --cores 1 --rounds 5 --seconds 1.5 --warmup 0.3 --target none=127.0.0.1:7401,pid=$pid_none --target ten=127.0.0.1:7402,pid=$pid_ten --target all=127.0.0.1:7403,pid=$pid_all --workload set --keys 100000 --value-size 3 --pipeline $P $l --out live-set-p$P > live-set-p$P.txt 2>&1
done
redis-cli -p 7403 randomkey; redis-cli -p 7403 info | grep live
kill ${pids[@]} $PY; wait; rm -rf $d
