#!/bin/sh
# Starts a cluster of three nodes on this machine, with a load, and stops it with Ctrl-C:
#
#   sh deploy/cluster/run.sh FIRN [file|s3]
#
# FIRN is the binary. The bucket is a folder, or with `s3` the same folder behind versitygw, an S3
# server, which Go builds if it is not on the PATH. The nodes a, b and c serve HTTP at 127.0.0.1:9091
# to 9093 and each other at 9191 to 9193; versitygw serves at 9190. All files are in a temporary
# folder, which the end of the script removes.
#
# HTTP_PORT=, PEER_PORT= and S3_PORT= set the first port of each kind, SERIES= the size of the load.
# A node may be killed and started again: the script prints the commands.
set -eu

firn=${1:?usage: run.sh FIRN [file|s3]}
kind=${2:-file}
http=${HTTP_PORT:-9091}
peer=${PEER_PORT:-9191}
s3=${S3_PORT:-9190}
series=${SERIES:-3000}
# Seconds until the nodes must be ready.
deadline=60

fail() {
    echo "cluster: $*" >&2
    exit 1
}

case $kind in file | s3) ;; *) fail "BUCKET=$kind: expected file or s3" ;; esac
[ -x "$firn" ] || fail "$firn is not a program: run make build"

for port in "$http" $((http + 1)) $((http + 2)); do
    if "$firn" check healthy --url="http://127.0.0.1:$port" >/dev/null 2>&1; then
        fail "port $port is taken by another server: set HTTP_PORT, PEER_PORT and S3_PORT"
    fi
done

# With job control, Ctrl-C reaches the script alone, which then stops the nodes one time each.
if (: </dev/tty) 2>/dev/null; then set -m; fi

folder=$(mktemp -d "${TMPDIR:-/tmp}/firn-cluster.XXXXXX")
pids=

# Ends all processes and waits for them. The store ends last, since nodes that stop write to it.
stop() {
    trap '' INT TERM HUP
    for pid in $pids; do
        kill -TERM "$pid" 2>/dev/null || :
        wait "$pid" 2>/dev/null || :
    done
    rm -rf "$folder"
}
trap stop EXIT
trap 'echo; echo "stopping"; exit 0' INT TERM HUP

# Waits until a command succeeds while the process $1, called $2, runs.
await() {
    pid=$1 name=$2 tries=$((deadline * 5))
    shift 2
    until "$@" >/dev/null 2>&1; do
        kill -0 "$pid" 2>/dev/null || {
            cat "$folder/$name.log" >&2
            fail "$name ended"
        }
        tries=$((tries - 1))
        [ $tries -gt 0 ] || {
            cat "$folder/$name.log" >&2
            fail "$name is not ready after $deadline s"
        }
        sleep 0.2
    done
}

# Prints the path of versitygw, after building it if it is not installed.
find_versitygw() {
    command -v versitygw && return
    command -v go >/dev/null || fail "BUCKET=s3 needs versitygw or Go on the PATH"
    echo "building versitygw" >&2
    GOBIN=$folder/bin go install github.com/versity/versitygw/cmd/versitygw@v1.8.0 >&2 ||
        fail "versitygw could not be built"
    echo "$folder/bin/versitygw"
}

mkdir "$folder/buckets" "$folder/buckets/metrics"
gateway=
case $kind in
file)
    bucket="bucket: \"file://$folder/buckets/metrics\""
    ;;
s3)
    program=$(find_versitygw)
    echo cluster >"$folder/access.key"
    echo cluster-secret >"$folder/secret.key"
    # Its metadata is in files beside the objects, because not every file system has attributes.
    "$program" --access cluster --secret cluster-secret --port "127.0.0.1:$s3" --quiet \
        posix --sidecar "$folder/metadata" "$folder/buckets" >"$folder/versitygw.log" 2>&1 &
    gateway=$!
    pids=$gateway
    bucket="bucket: s3://metrics/demo
    bucket_options:
      endpoint: http://127.0.0.1:$s3
      region: us-east-1
      access_key_file: $folder/access.key
      secret_key_file: $folder/secret.key"
    mkdir "$folder/metadata"
    await "$gateway" versitygw env AWS_ENDPOINT_URL="http://127.0.0.1:$s3" \
        AWS_ACCESS_KEY_ID=cluster AWS_SECRET_ACCESS_KEY=cluster-secret \
        "$firn" cluster check s3://metrics/check
    ;;
esac

peers="127.0.0.1:$peer, 127.0.0.1:$((peer + 1)), 127.0.0.1:$((peer + 2))"
number=0
for node in a b c; do
    cat >"$folder/$node.yml" <<END
global: {scrape_interval: 5s}
firn:
  cluster:
    $bucket
    node: $node
    listen: 127.0.0.1:$((peer + number))
    peers: [$peers]
    partitions: 12
END
    cat >"$folder/$node.sh" <<END
exec "$firn" serve --config "$folder/$node.yml" --data "$folder/data-$node" \\
    --listen 127.0.0.1:$((http + number)) --web.enable-lifecycle
END
    sh "$folder/$node.sh" >"$folder/$node.log" 2>&1 &
    pids="$! $pids"
    eval "pid_$node=$!"
    number=$((number + 1))
done

number=0
for node in a b c; do
    eval "pid=\$pid_$node"
    await "$pid" "$node" "$firn" check ready --url="http://127.0.0.1:$((http + number))"
    number=$((number + 1))
done

"$firn" load --url "http://127.0.0.1:$http" --series "$series" --live --duration 87600h \
    --keep-going >"$folder/load.log" 2>&1 &
load=$!
pids="$load $pids"

echo "three nodes on one bucket, with a load of $series series:"
number=0
for node in a b c; do
    eval "pid=\$pid_$node"
    echo "  $node  http://127.0.0.1:$((http + number))/cluster  pid $pid"
    number=$((number + 1))
done
cat <<END
state:    $firn cluster status http://127.0.0.1:$http
drain:    $firn cluster drain http://127.0.0.1:$http [--undo]
failure:  kill -9 $pid, then watch the state; start it again: sh $folder/c.sh
logs:     $folder/*.log
Ctrl-C stops all and removes $folder
END

# Goes on when a node ends, so that a failure can be watched.
running="a b c"
while kill -0 "$load" 2>/dev/null; do
    left=
    for node in $running; do
        eval "pid=\$pid_$node"
        if kill -0 "$pid" 2>/dev/null; then left="$left $node"; else echo "node $node ended"; fi
    done
    running=$left
    sleep 1
done
cat "$folder/load.log" >&2
fail "the load ended"
