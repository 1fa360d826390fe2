# CPU of the primary with and without a replica, and a full sync of 5 million keys. B=binary folder
B=${B:-target/release}; d=$(mktemp -d); pids=(); O=${O:-.}
st() { n=$1; p=$2; c=$3; shift 3; mkdir -p $d/$n; taskset -c $c "$@" --port $p --dir $d/$n --save "" --enable-debug-command yes >$d/$n.log 2>&1 & pids+=($!); eval "pid_$n=$!"; for i in $(seq 100); do [ "$(redis-cli -p $p ping 2>/dev/null)" = PONG ] && break; sleep 0.1; done; }
up() { for i in $(seq 6000); do redis-cli -p $1 info replication | grep -q master_link_status:up && return; sleep 0.02; done; echo "not up $1"; }
if [ "$1" != sync ]; then
st redis 7401 0 redis-server --appendonly no
st redisr 7402 0 redis-server --appendonly no
st ember 7403 0 $B/emberdb --shards 1
st emberr 7404 0 $B/emberdb --shards 1
st rr 7405 1 redis-server --appendonly no --replicaof "127.0.0.1 7402"
st er 7406 1 $B/emberdb --shards 1 --replicaof "127.0.0.1 7404"
up 7405; up 7406
for P in 1 16; do
 l=--no-load; [ $P = 1 ] && l=--load
 taskset -c 1 $B/emberdb-bench --cores 1 --rounds 5 --seconds 3 --warmup 0.5 --target redis=127.0.0.1:7401,pid=$pid_redis --target redis-replica=127.0.0.1:7402,pid=$pid_redisr --target ember=127.0.0.1:7403,pid=$pid_ember --target ember-replica=127.0.0.1:7404,pid=$pid_emberr --workload set --keys 100000 --value-size 3 --pipeline $P $l --out $O/repl-set-p$P > $O/repl-set-p$P.txt 2>&1
done
for i in $(seq 200); do sleep 0.2; [ "$(redis-cli -p 7404 info replication | grep -c lag=0)" = 1 ] && [ "$(redis-cli -p 7404 info replication | sed -n 's/master_repl_offset:\([0-9]*\).*/\1/p')" = "$(redis-cli -p 7406 info replication | sed -n 's/slave_repl_offset:\([0-9]*\).*/\1/p')" ] && break; done
redis-cli -p 7404 info replication | grep -E "slave0|master_repl_offset"; echo "sync_full $(redis-cli -p 7404 info stats | grep sync_full)"
kill ${pids[@]}; wait; pids=()
fi
for round in 1 2 3 4 5; do for s in redis ember; do
 if [ $s = redis ]; then prog="redis-server --appendonly no --repl-diskless-sync-delay 0"; else prog="$B/emberdb --shards 1 --repl-diskless-sync-delay 0"; fi
 st p 7411 0 $prog; 
 redis-cli -p 7411 debug populate 5000000 key 16 >/dev/null
 before=$(grep VmRSS /proc/$pid_p/status | awk '{print $2}'); echo 5 > /proc/$pid_p/clear_refs
 cpu0=$(awk '{print $14+$15}' /proc/$pid_p/stat)
 st r 7412 1 $prog
 taskset -c 1 $B/emberdb-bench --cores 1 --rounds 1 --seconds 6 --warmup 0.1 --rate 5000 --target p=127.0.0.1:7411,pid=$pid_p --workload get --keys 100000 --no-load --out $d/lat > $d/lat.txt 2>&1 & lat=$!
 sleep 0.5
 t0=$(date +%s.%N); redis-cli -p 7412 replicaof 127.0.0.1 7411 >/dev/null; up 7412; t1=$(date +%s.%N)
 cpu1=$(awk '{print $14+$15}' /proc/$pid_p/stat)
 peak=$(grep VmHWM /proc/$pid_p/status | awk '{print $2}')
 wait $lat; l=$(grep "^p " $d/lat.txt)
 echo "$s round $round: $(echo "$t1 - $t0" | bc) s, keys $(redis-cli -p 7412 dbsize), primary RSS $before -> peak $peak kB, cpu ticks $((cpu1-cpu0)), children $(awk '{print $16+$17}' /proc/$pid_p/stat); latency: $l"
 kill ${pids[@]}; wait ${pids[@]} 2>/dev/null; pids=(); rm -rf $d/p $d/r
done; done
rm -rf $d
