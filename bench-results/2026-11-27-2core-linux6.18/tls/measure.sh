# TLS P=1, 16; with full-sync etc later
B=${B:-target/release}; d=$(mktemp -d); pids=()
cd $d; openssl req -x509 -newkey rsa:2048 -nodes -keyout k.pem -out c.pem -days 30 -subj /CN=localhost -addext "subjectAltName=DNS:localhost,IP:127.0.0.1" 2>/dev/null; 
st() { n=$1; p=$2; shift 2; mkdir -p $d/$n; taskset -c 0 "$@" --port 0 --tls-port $p --tls-cert-file $d/c.pem --tls-key-file $d/k.pem --tls-ca-cert-file $d/c.pem --tls-auth-clients no --dir $d/$n --save "" >$d/$n.log 2>&1 & pids+=($!); eval "pid_$n=$!"; for i in $(seq 100); do redis-cli --tls --cacert $d/c.pem -p $p ping >/dev/null 2>&1 && break; sleep 0.1; done; }
st redis 7401 redis-server --appendonly no
st ember 7402 $B/emberdb --shards 1
for w in get set; do for P in 1 16; do
 l=--no-load; [ $w$P = get1 ] && l=--load
 taskset -c 1 $B/emberdb-bench --cores 1 --rounds 5 --seconds 3 --warmup 0.5 --tls --insecure --target redis=127.0.0.1:7401,pid=$pid_redis --target ember=127.0.0.1:7402,pid=$pid_ember --workload $w --keys 100000 --value-size 3 --pipeline $P $l --out ./tls-$w-p$P > ./tls-$w-p$P.txt 2>&1
done; done
kill ${pids[@]}; wait; rm -rf $d
