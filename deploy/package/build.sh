#!/bin/sh
# Builds the packages of a firn binary:
#
#   firn_VERSION_ARCH.deb                   for Debian and Ubuntu
#   firn-VERSION-linux-ARCH.tar.gz          for any Linux with the glibc that the binary needs
#   firn-VERSION-linux-ARCH-debug.tar.gz    debug information, to be unpacked at /
#
# The binary runs on this machine to print its man pages and completions. Equal input gives equal
# output: owners, order and times are fixed, times by SOURCE_DATE_EPOCH or the last commit.
set -eu

if [ $# != 4 ]; then
    echo "usage: build.sh BINARY VERSION ARCHITECTURE OUTPUT_FOLDER" >&2
    exit 2
fi
binary=$1
version=$2
arch=$3
out=$4

package=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$package/../.." && pwd)
# Address of the maintainers in the Debian package.
maintainer=${FIRN_MAINTAINER:-Firn maintainers <maintainers@firn.example>}
# For tests: fast builds instead of small packages.
if [ -n "${FIRN_PACKAGE_QUICK:-}" ]; then
    gzip_level=-1 deb_level='-Zgzip -z1' debug_sections=none
else
    gzip_level=-9 deb_level='-Zxz -z6' debug_sections=zlib
fi
objcopy=${OBJCOPY:-objcopy}
epoch=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct)}
export SOURCE_DATE_EPOCH="$epoch"
export LC_ALL=C TZ=UTC
umask 022

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"

# Puts a file at a place, whose folder is made: put MODE FROM TO
put() {
    install -D -m "$1" "$2" "$3"
}

# Packs an entry of a folder: archive FOLDER ENTRY FILE
archive() {
    tar --create --directory="$1" --format=gnu --sort=name --mtime="@$epoch" \
        --owner=0 --group=0 --numeric-owner "$2" |
        gzip --no-name "$gzip_level" >"$3"
}

# The binary without debug information. Its symbol table stays: CPU profiles and backtraces take
# the names of functions from it.
shipped=$work/firn
"$objcopy" --only-keep-debug "--compress-debug-sections=$debug_sections" \
    "$binary" "$work/firn.debug"
"$objcopy" --strip-debug --remove-section=.comment --add-gnu-debuglink="$work/firn.debug" \
    "$binary" "$shipped"
chmod 755 "$shipped"

# Man pages and completions of this binary.
mkdir "$work/man"
"$shipped" man --dir "$work/man"
gzip --no-name -9 "$work"/man/*
for shell in bash zsh fish; do
    "$shipped" completions "$shell" >"$work/completions.$shell"
done

# The newest symbol version of glibc that the binary refers to.
glibc=$(objdump -T "$shipped" | sed -n 's/.*GLIBC_\([0-9.]*\).*/\1/p' | sort -uV | tail -n 1)

debian() {
    tree=$work/debian
    doc=$tree/usr/share/doc/firn
    put 755 "$shipped" "$tree/usr/bin/firn"
    put 644 "$package/firn.service" "$tree/usr/lib/systemd/system/firn.service"
    put 644 "$package/firn.yml" "$tree/etc/firn/firn.yml"
    put 644 "$package/firn.default" "$tree/etc/default/firn"
    for part in firn cluster; do
        put 644 "$root/deploy/alerts/$part.yml" "$tree/usr/share/firn/alerts/$part.yml"
        put 644 "$root/deploy/dashboards/$part.json" "$tree/usr/share/firn/dashboards/$part.json"
    done
    put 644 "$work/completions.bash" "$tree/usr/share/bash-completion/completions/firn"
    put 644 "$work/completions.zsh" "$tree/usr/share/zsh/vendor-completions/_firn"
    put 644 "$work/completions.fish" "$tree/usr/share/fish/vendor_completions.d/firn.fish"
    for page in "$work"/man/*; do
        put 644 "$page" "$tree/usr/share/man/man1/${page##*/}"
    done
    put 644 "$package/copyright" "$doc/copyright"
    gzip --no-name -9 --stdout "$root/CHANGELOG.md" >"$doc/changelog.gz"
    printf 'firn (%s-1) unstable; urgency=medium\n\n  * Release %s. See changelog.gz.\n\n -- %s  %s\n' \
        "$version" "$version" "$maintainer" "$(date -u -R -d "@$epoch")" |
        gzip --no-name -9 --stdout >"$doc/changelog.Debian.gz"
    put 644 "$package/lintian-overrides" "$tree/usr/share/lintian/overrides/firn"

    # Before the control files, which the sums do not cover.
    sums=$(cd "$tree" && find . -type f ! -path './etc/*' -printf '%P\0' | sort -z |
        xargs -0 md5sum)
    mkdir "$tree/DEBIAN"
    printf '%s\n' "$sums" >"$tree/DEBIAN/md5sums"
    printf '%s\n' /etc/default/firn /etc/firn/firn.yml >"$tree/DEBIAN/conffiles"
    for script in postinst prerm postrm; do
        put 755 "$package/$script" "$tree/DEBIAN/$script"
    done
    cat >"$tree/DEBIAN/control" <<CONTROL
Package: firn
Version: $version-1
Architecture: $arch
Maintainer: $maintainer
Installed-Size: $(du -sk --apparent-size --exclude=DEBIAN "$tree" | cut -f 1)
Depends: adduser, init-system-helpers (>= 1.54~), libc6 (>= $glibc), libgcc-s1 (>= 4.2)
Suggests: prometheus-alertmanager, prometheus-node-exporter
Section: net
Priority: optional
Description: Prometheus-compatible metrics database
 Firn scrapes targets, accepts remote write and OTLP, evaluates rules, sends
 alerts and answers PromQL with the API of Prometheus. It stores samples in a
 crash-safe log and in compressed blocks.
 .
 The package contains the server, which runs as a systemd service, and its
 command-line tools.
CONTROL
    find "$tree" -exec touch --no-dereference --date="@$epoch" {} +
    # shellcheck disable=SC2086  # two words
    dpkg-deb --root-owner-group $deb_level --build "$tree" "$out/firn_${version}_$arch.deb" \
        >/dev/null
}

tarball() {
    name=firn-$version-linux-$arch
    tree=$work/tarball/$name
    put 755 "$shipped" "$tree/firn"
    put 644 "$root/LICENSE" "$tree/LICENSE"
    put 644 "$root/README.md" "$tree/README.md"
    put 644 "$package/INSTALL.md" "$tree/INSTALL.md"
    put 644 "$package/firn.service" "$tree/firn.service"
    put 644 "$package/firn.yml" "$tree/firn.yml"
    for part in firn cluster; do
        put 644 "$root/deploy/alerts/$part.yml" "$tree/alerts/$part.yml"
        put 644 "$root/deploy/dashboards/$part.json" "$tree/dashboards/$part.json"
    done
    for shell in bash zsh fish; do
        put 644 "$work/completions.$shell" "$tree/completions/firn.$shell"
    done
    for page in "$work"/man/*; do
        put 644 "$page" "$tree/man/man1/${page##*/}"
    done
    archive "$work/tarball" "$name" "$out/$name.tar.gz"
}

# Debuggers find the file by the build id, or else by the debug link beside /usr/bin/firn.
debug() {
    tree=$work/debug/usr/lib/debug
    id=$(readelf --notes "$shipped" | sed -n 's/.*Build ID: //p')
    if [ -n "$id" ]; then
        rest=${id#??}
        put 644 "$work/firn.debug" "$tree/.build-id/${id%"$rest"}/$rest.debug"
    else
        put 644 "$work/firn.debug" "$tree/usr/bin/firn.debug"
    fi
    archive "$work/debug" usr "$out/firn-$version-linux-$arch-debug.tar.gz"
}

debian
tarball
debug
