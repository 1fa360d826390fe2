B=${B:-target/release}; d=$(mktemp -d); pids=()
st() { n=$1; p=$2; shift 2; mkdir -p $d/$n; taskset -c 0 "$@" --port $p --dir $d/$n --save "" >$d/$n.log 2>&1 & pids+=($!); eval "pid_$n=$!"; for i in $(seq 100); do redis-cli -p $p ping >/dev/null 2>&1 && break; sleep 0.1; done; }
st redis 7401 redis-server --appendonly no
st ember 7402 $B/emberdb --shards 1
st epoll 7403 $B/emberdb --shards 1 --network epoll
for w in get set; do for P in 1 16 64; do
 l=--no-load; [ $w$P = get1 ] && l=--load
 taskset -c 1 $B/emberdb-bench --cores 1 --rounds 5 --seconds 3 --warmup 0.5 --target redis=127.0.0.1:7401,pid=$pid_redis --target ember=127.0.0.1:7402,pid=$pid_ember --target epoll=127.0.0.1:7403,pid=$pid_epoll --workload $w --keys 100000 --value-size 3 --pipeline $P $l --out ./m1-$w-p$P > m1-$w-p$P.txt 2>&1
done; done
kill ${pids[@]}; wait; rm -rf $d
