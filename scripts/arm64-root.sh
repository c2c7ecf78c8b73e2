#!/bin/sh
# Fetches Debian's arm64 packages of the libraries that teng links and unpacks them into a folder, for a cross build
# (preset "arm64"). It installs nothing, needs no root and no foreign architecture in dpkg: apt works on lists of its
# own, kept beside the folder. The cross compiler and the emulator are packages of this machine; a missing one is named.
#
#   scripts/arm64-root.sh [FOLDER]     default: build/arm64-root; a folder that is complete is left as it is
set -eu
cd "$(dirname "$0")/.."
root=${1:-build/arm64-root}

command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || {
    echo "arm64-root.sh: needs apt-get and dpkg-deb; elsewhere give an own tree: cmake --preset arm64 -DTENG_ARM64_ROOT=DIR" >&2
    exit 1
}
for tool in aarch64-linux-gnu-gcc qemu-aarch64; do
    command -v $tool >/dev/null ||
        echo "arm64-root.sh: $tool is missing: scripts/install-packages.sh --arm64" >&2
done
[ ! -e "$root/complete" ] || exit 0

rm -rf "$root"
mkdir -p "$root/apt/lists/partial" "$root/apt/cache/archives/partial" "$root/debs"
root=$(cd "$root" && pwd)
: >"$root/apt/status"
printf '%s\n' 'APT::Architecture "arm64";' 'APT::Architectures { "arm64"; };' 'APT::Sandbox::User "";' \
    "Dir::State \"$root/apt\";" "Dir::State::status \"$root/apt/status\";" "Dir::Cache \"$root/apt/cache\";" >"$root/apt/conf"
export APT_CONFIG="$root/apt/conf"
apt-get update -qq
# The -dev packages, and the library of the same release that each needs by its exact version.
wanted="libdnnl-dev libjansson-dev libpcre2-dev libxxhash-dev libutf8proc-dev libyaml-dev libcmocka-dev"
list=$wanted
for package in $wanted; do
    list="$list $(apt-cache depends --no-recommends --no-suggests "$package" |
        awk '$1 == "Depends:" && $2 ~ /^lib(dnnl|jansson|pcre2-8|xxhash|utf8proc|yaml|cmocka)[-0-9]/ { print $2 }')"
done
(cd "$root/debs" && apt-get download -qq $list)
for deb in "$root"/debs/*.deb; do
    dpkg-deb -x "$deb" "$root"
done
rm -rf "$root/debs" "$root/apt"
: >"$root/complete"
echo "arm64-root.sh: $root holds" $list
