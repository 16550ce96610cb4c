#!/bin/sh
# Fails unless a version of Node that can build the web page is installed. Debian 12 has an older one.
set -eu

needed=20.19
found=$(node --version 2>/dev/null || true)
oldest=$(printf '%s\n' "$needed" "${found#v}" | sort --version-sort | head -n 1)
if [ -z "$found" ] || [ "$oldest" != "$needed" ]; then
    echo "the web page needs Node $needed or later and its npm; this machine has ${found:-none}" >&2
    exit 1
fi
