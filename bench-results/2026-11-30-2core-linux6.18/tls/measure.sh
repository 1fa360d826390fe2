# TLS: two shards beside one redis-server; what a storm of handshakes does to others
B=${B:-target/release}; d=$(mktemp -d); O=${O:-.}; pids=()
openssl req -x509 -newkey rsa:2048 -nodes -keyout $d/k.pem -out $d/c.pem -days 30 -subj /CN=localhost -addext "subjectAltName=DNS:localhost,IP:127.0.0.1" 2>/dev/null
st() { n=$1; p=$2; cpu=$3; shift 3; mkdir -p $d/$n; taskset -c $cpu "$@" --port 0 --tls-port $p --tls-cert-file $d/c.pem --tls-key-file $d/k.pem --tls-ca-cert-file $d/c.pem --tls-auth-clients no --dir $d/$n --save "" >$d/$n.log 2>&1 & pids+=($!); eval "pid_$n=$!"; for i in $(seq 100); do redis-cli --tls --cacert $d/c.pem -p $p ping >/dev/null 2>&1 && break; sleep 0.1; done; }
if [[ ${1:-two} == two ]]; then
st redis 7401 0 redis-server --appendonly no
st ember 7402 0,1 $B/emberdb --shards 2
for w in get set; do for P in 1 16; do
 l=--no-load; [ $w$P = get1 ] && l=--load
 taskset -c 1 $B/emberdb-bench --cores 1 --rounds 7 --seconds 2 --warmup 0.5 --tls --insecure --target redis=127.0.0.1:7401,pid=$pid_redis --target ember=127.0.0.1:7402,pid=$pid_ember --workload $w --keys 100000 --value-size 3 --pipeline $P $l --out $O/two-$w-p$P > $O/two-$w-p$P.txt 2>&1
done; done
kill ${pids[@]}; wait; pids=()
fi
st redis 7401 0,1 redis-server --appendonly no
st ember 7402 0,1 $B/emberdb --shards 1
for s in ember redis; do
 p=7402; [ $s = redis ] && p=7401; pid=pid_$s
 for k in quiet storm quiet storm quiet storm; do
  if [ $k = storm ]; then for i in 1 2; do python3 $(dirname "$0")/storm.py 127.0.0.1 $p 500 9 >> $O/storm-$s.txt 2>&1 & w[$i]=$!; done; sleep 1; fi
  echo "== $s $k" >> $O/storm-$s.txt
  $B/emberdb-bench --rounds 1 --seconds 6 --warmup 0.5 --tls --insecure --target $s=127.0.0.1:$p,pid=${!pid} --workload get --keys 100000 --value-size 3 --connections 10 --rate 5000 --out $O/storm-$s-$k >> $O/storm-$s.txt 2>&1
  [ $k = storm ] && wait ${w[@]}
 done
 for k in quiet storm; do
  if [ $k = storm ]; then for i in 1 2; do python3 $(dirname "$0")/storm.py 127.0.0.1 $p 500 14 >> $O/storm-$s.txt 2>&1 & w[$i]=$!; done; sleep 1; fi
  echo "== $s lag $k" >> $O/storm-$s.txt
  timeout 60 $B/emberdb-bench --rounds 2 --tls --insecure --target $s=127.0.0.1:$p,pid=${!pid} --workload lag --keys 100000 --out $O/lag-$s-$k >> $O/storm-$s.txt 2>&1
  [ $k = storm ] && wait ${w[@]}
 done
done
kill ${pids[@]}; wait; rm -rf $d; echo tlsmdone >> $O/done
