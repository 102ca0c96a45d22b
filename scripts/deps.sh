#!/bin/bash
# deps.sh: installs the Debian packages that building and testing need, if any is missing. Go itself is not one of them:
# Debian's is too old.
set -euo pipefail
declare -A package=(
	[gcc]=gcc [g++]=g++ [make]=make [readelf]=binutils [strace]=strace [cpio]=cpio [aarch64-linux-gnu-gcc]=gcc-aarch64-linux-gnu
	[qemu-system-x86_64]=qemu-system-x86 [qemu-system-aarch64]=qemu-system-arm [dpkg-deb]=dpkg
)
missing=()
for tool in "${!package[@]}"; do
	command -v "$tool" >/dev/null || missing+=("${package[$tool]}")
done
[ -e /usr/aarch64-linux-gnu/lib/libc.a ] || missing+=(libc6-dev-arm64-cross)
[ -n "$(echo /usr/lib/*-linux-gnu/libc.a)" ] && [ -e /usr/include/linux/version.h ] || missing+=(libc6-dev)
if [ ${#missing[@]} -gt 0 ]; then
	as_root=()
	[ "$(id -u)" = 0 ] || as_root=(sudo)
	echo "deps: installing ${missing[*]}"
	"${as_root[@]}" apt-get -qq update
	DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
fi
if ! command -v go >/dev/null; then
	echo "deps: no go; install Go $(sed -n 's/^go //p' go.mod) or newer from https://go.dev/dl/ and put it into PATH" >&2
	exit 1
fi
