B=${B:-target/release}; d=$(mktemp -d); pids=(); O=${O:-.}
st() { n=$1; p=$2; c=$3; shift 3; mkdir -p $d/$n; taskset -c $c "$@" --port $p --dir $d/$n --save "" --repl-diskless-sync-delay 0 >$d/$n.log 2>&1 & pids+=($!); eval "pid_$n=$!"; for i in $(seq 100); do [ "$(redis-cli -p $p ping 2>/dev/null)" = PONG ] && break; sleep 0.1; done; }
st redis 7401 0 redis-server --appendonly no
st redisr 7402 0 redis-server --appendonly no
st ember 7403 0 $B/emberdb --shards 1
st emberr 7404 0 $B/emberdb --shards 1
taskset -c 1 python3 ./sink.py 7402 & pids+=($!)
taskset -c 1 python3 ./sink.py 7404 & pids+=($!)
sleep 2
for P in 1 16; do
 l=--no-load; [ $P = 1 ] && l=--load
 taskset -c 1 $B/emberdb-bench --cores 1 --rounds 5 --seconds 2 --warmup 0.5 --target redis=127.0.0.1:7401,pid=$pid_redis --target redis-replica=127.0.0.1:7402,pid=$pid_redisr --target ember=127.0.0.1:7403,pid=$pid_ember --target ember-replica=127.0.0.1:7404,pid=$pid_emberr --workload set --keys 100000 --value-size 3 --pipeline $P $l --out $O/sink-set-p$P > $O/sink-set-p$P.txt 2>&1
done
redis-cli -p 7402 info replication | grep -E "slave0|master_repl_offset|connected"; redis-cli -p 7404 info replication | grep -E "slave0|master_repl_offset|connected"; kill ${pids[@]}; wait; rm -rf $d
