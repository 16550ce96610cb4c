#!/bin/sh
# Installs the Debian packages that the tests need, and starts no service while doing so.
# Anywhere but on Debian as root it lists what is missing and stops.
#
# With FIRN_BUILD_HELM=1 it also builds Helm for the test of the chart, and with FIRN_BUILD_VERSITYGW=1 the
# S3 server for the tests of clusters, once for each user: each takes two minutes on two cores. Without them
# these tests are skipped.
set -eu

sh "$(dirname "$0")/node.sh"

# build VARIABLE PROGRAM MODULE@VERSION: builds a program in Go unless it exists or the variable is empty.
build() {
    built=${XDG_CACHE_HOME:-$HOME/.cache}/firn/$2
    if [ -z "$1" ] || [ -x "$built" ] || command -v "$2" >/dev/null 2>&1 || ! command -v go >/dev/null 2>&1; then
        return
    fi
    echo "building $2" >&2
    cache=$(mktemp -d)
    GOBIN="$(dirname "$built")" GOCACHE="$cache" CGO_ENABLED=0 GOTOOLCHAIN=local \
        timeout 600 go install -ldflags='-s -w' "$3" ||
        echo "$2 could not be built; its tests will be skipped" >&2
    rm -rf "$cache"
}

build "${FIRN_BUILD_HELM:-}" helm helm.sh/helm/v3/cmd/helm@v3.20.2
# The version of deploy/cluster/run.sh.
build "${FIRN_BUILD_VERSITYGW:-}" versitygw github.com/versity/versitygw/cmd/versitygw@v1.8.0

# program:package
needs="prometheus:prometheus prometheus-node-exporter:prometheus-node-exporter chromium:chromium"
# The tests of packages: a package's scripts, debug information, a network of the test's own, units.
needs="$needs adduser:adduser objcopy:binutils ip:iproute2 systemd-analyze:systemd deb-systemd-helper:init-system-helpers"

missing=""
for need in $needs; do
    command -v "${need%%:*}" >/dev/null 2>&1 || missing="$missing ${need##*:}"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" != 0 ] || [ ! -f /etc/debian_version ]; then
    echo "the tests need these Debian packages, please install them:$missing" >&2
    exit 1
fi

policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT
fi

export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086  # a list of names
apt-get install -y -qq --no-install-recommends $missing
