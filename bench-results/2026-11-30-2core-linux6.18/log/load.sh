#!/bin/bash
# How long logs load that 50 clients have written without pipelines: load.sh BINARY, on a machine that is left alone.
BIN=${1:-target/release/emberdb}; N=${2:-1000000}; D=$(mktemp -d)
wait_for() { for j in $(seq 3000); do [[ $(redis-cli -p $1 ping 2>/dev/null) == PONG ]] && return; sleep 0.02; done; echo no answer; }
go() { # name port cmd...
 n=$1; p=$2; shift 2; mkdir -p $D/$n; "$@" --port $p --dir $D/$n --save '' --appendonly yes --auto-aof-rewrite-percentage 0 > $D/$n.out 2>&1 & pid=$!; wait_for $p; }
i=7201
for k in redis e1 e2 e4; do
 case $k in redis) c="redis-server";; e*) c="$BIN --shards ${k#e}";; esac
 go $k $i $c; redis-benchmark -p $i -q -t set -n $N -r $N -d 16 -c 50 -P 1 > /dev/null; redis-cli -p $i dbsize; redis-cli -p $i shutdown nosave; wait $pid; i=$((i+1))
done
for r in 1 2 3 4 5; do i=7301; for k in redis e1 e2 e4; do
 cat $D/$k/appendonlydir/* > /dev/null
 case $k in redis) c="redis-server";; e*) c="$BIN --shards ${k#e}";; esac
 go $k $i $c; s=$(grep -o 'DB loaded from append only file: [0-9.]*' $D/$k.out | grep -o '[0-9.]*$'); echo "round $r $k $s"; kill -9 $pid; wait $pid 2>/dev/null; i=$((i+1)); done; done
rm -rf $D
