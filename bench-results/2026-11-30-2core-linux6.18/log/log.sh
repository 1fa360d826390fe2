#!/bin/bash
# Three servers with a log on core 0, the generator on core 1: 15 alternating rounds.
data=$(mktemp -d data.XXXX); pids=()
st() { n=$1; p=$2; shift 2; mkdir -p $data/$n; taskset -c 0 "$@" --port $p --dir $data/$n --save '' --auto-aof-rewrite-percentage 0 > $data/$n.log 2>&1 & eval "pid_$n=$!"; pids+=($!); for i in $(seq 100); do [[ $(redis-cli -p $p ping 2>/dev/null) == PONG ]] && return; sleep 0.1; done; }
for fsync in always everysec; do
 f="--appendonly yes --appendfsync $fsync"
 st new 7101 NEW --shards 1 $f
 st old 7102 OLD --shards 1 $f
 st redis 7103 redis-server $f
 for P in 1 16; do
  taskset -c 1 emberdb-bench --cores 1 --rounds 15 --seconds 1.5 --warmup 0.3 --target redis=127.0.0.1:7103,pid=$pid_redis --target old=127.0.0.1:7102,pid=$pid_old --target new=127.0.0.1:7101,pid=$pid_new --workload set --keys 100000 --value-size 16 --connections 50 --pipeline $P --out $fsync-P$P > $fsync-P$P.txt 2>&1
 done
 kill -9 ${pids[@]}; pids=(); wait 2>/dev/null
done
rm -rf $data; echo q1done > done
