#!/bin/sh
# Builds programs in Go that some tests need, once for each user: with FIRN_BUILD_HELM=1 Helm, for the test of
# the chart, and with FIRN_BUILD_VERSITYGW=1 the S3 server, for the tests of clusters. Each takes two minutes on
# two cores. Without them, and without Go, these tests are skipped.
set -eu

# build VARIABLE PROGRAM MODULE@VERSION: builds a program unless it exists or the variable is empty.
build() {
    built=${XDG_CACHE_HOME:-$HOME/.cache}/firn/$2
    if [ -z "$1" ] || [ -x "$built" ] || command -v "$2" >/dev/null 2>&1 || ! command -v go >/dev/null 2>&1; then
        return
    fi
    echo "building $2" >&2
    cache=$(mktemp -d)
    GOBIN="$(dirname "$built")" GOCACHE="$cache" CGO_ENABLED=0 GOTOOLCHAIN=local \
        timeout 900 go install -ldflags='-s -w' "$3" ||
        echo "$2 could not be built; its tests will be skipped" >&2
    rm -rf "$cache"
}

build "${FIRN_BUILD_HELM:-}" helm helm.sh/helm/v3/cmd/helm@v3.20.2
# The version of deploy/cluster/run.sh.
build "${FIRN_BUILD_VERSITYGW:-}" versitygw github.com/versity/versitygw/cmd/versitygw@v1.8.0
