#!/bin/sh
# Installs the Debian packages that the tests need, and starts no service while doing so.
# Anywhere but on Debian as root it lists what is missing and stops.
set -eu

sh "$(dirname "$0")/node.sh"

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
