#!/bin/bash
# uapi.sh DIR: unpacks the newest kernel headers of Debian sid below DIR, for the generators of internal/constant
# and internal/syscalls:
#   DIR/usr/include, DIR/usr/lib/linux/uapi   linux-libc-dev (user space's headers, all architectures)
#   DIR/usr/src/linux-headers-*-common        the kernel's own headers
# The machine's own package lists stay as they are. Afterwards: SONDE_UAPI=DIR go generate ./internal/...
set -euo pipefail
dir=${1:?usage: uapi.sh DIR}
mirror=${SONDE_MIRROR:-$(sed -n 's/^URIs: *\([^ ]*\).*/\1/p; s/^deb \(\[[^]]*\] \)*\([^ ]*\).*/\2/p' /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list 2>/dev/null | head -1 || true)}
mirror=${mirror:-http://deb.debian.org/debian}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/lists/partial "$work"/cache/archives/partial "$dir"
echo "deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror sid main" >"$work/sources.list"
apt=(-o APT::Architecture=amd64 -o APT::Architectures=amd64 -o APT::Sandbox::User=root
	-o "Dir::State::Lists=$work/lists" -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=/dev/null
	-o "Dir::Cache=$work/cache")
apt-get "${apt[@]}" -qq update
common=$(apt-cache "${apt[@]}" search --names-only '^linux-headers-[0-9].*-common$' | awk '!/-rt/ {print $1}' | sort -V | tail -1)
cd "$work"
apt-get "${apt[@]}" -qq download linux-libc-dev "$common"
for deb in *.deb; do
	dpkg-deb -x "$deb" "$dir"
done
echo "$dir: $(ls "$work"/*.deb | xargs -n1 basename | tr '\n' ' ')"
