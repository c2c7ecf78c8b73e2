#!/bin/sh
# Installs the Debian/Ubuntu packages that teng needs and that are missing; says nothing when all are there.
# The one list of packages: the Makefile, ./run and .ci/run all come here. Not for other distributions: there it
# names the packages and stops.
#
#   scripts/install-packages.sh [--corpus] [--lint] [--interop] [--arm64] [--mpich] [--check | --list]
#
#   --corpus   also the texts that ./run trains on
#   --lint     also what `make lint` and the clang build use
#   --interop  also Python, for the tests against other people's libraries
#   --arm64    also the cross compiler and the emulator of the arm64 test
#   --mpich    also MPICH, beside Open MPI, for the tests of the other MPI
#   --check    install nothing; print the missing packages, exit 1 if there are any
#   --list     print the whole list
set -eu

packages="gcc libc6-dev make cmake ninja-build pkg-config libdnnl-dev libjansson-dev libpcre2-dev libxxhash-dev
libutf8proc-dev libyaml-dev libcmocka-dev openmpi-bin libopenmpi-dev"
action=install
for option in "$@"; do
    case $option in
    --corpus) packages="$packages anarchism bible-kjv bible-kjv-text" ;;
    --lint) packages="$packages clang clang-format libomp-dev cppcheck" ;;
    --interop) packages="$packages python3 python3-venv" ;;
    --arm64) packages="$packages gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user" ;;
    --mpich) packages="$packages mpich libmpich-dev" ;;
    --check) action=check ;;
    --list) action=list ;;
    *)
        echo "install-packages.sh: unknown option $option (known: --corpus --lint --interop --arm64 --mpich --check --list)" >&2
        exit 2
        ;;
    esac
done

if [ $action = list ]; then
    printf '%s\n' $packages
    exit 0
fi

by_hand() {
    echo "install-packages.sh: $1" >&2
    echo "Install these packages, or what your distribution calls them, then build with \`make PACKAGES=no\`:" >&2
    echo "  $2" >&2
    exit 1
}

command -v dpkg-query >/dev/null 2>&1 || by_hand "this distribution has no dpkg." "$(echo $packages)"

missing=
for package in $packages; do
    state=$(dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | head -n 1) || state=
    [ "$state" = installed ] || missing="$missing $package"
done
missing=${missing# }
[ -n "$missing" ] || exit 0

if [ $action = check ]; then
    printf '%s\n' $missing
    exit 1
fi

command -v apt-get >/dev/null 2>&1 || by_hand "packages are missing and this distribution has no apt-get." "$missing"
if [ "$(id -u)" = 0 ]; then
    root=
elif command -v sudo >/dev/null 2>&1; then
    root=sudo
else
    by_hand "packages are missing; installing them needs root, and there is no sudo." "$missing"
fi

as_root() {
    $root env DEBIAN_FRONTEND=noninteractive LC_ALL=C "$@"
}

echo "Installing packages: $missing"
# With sudo, ask for the password once and early, so that a refusal is not taken for a network problem.
if [ -n "$root" ] && ! $root true; then
    by_hand "packages are missing, and sudo did not let us in." "$missing"
fi
if ! as_root apt-get update -qq; then
    echo "install-packages.sh: the package lists could not be refreshed; trying once more" >&2
    sleep 5
    as_root apt-get update -qq || echo "install-packages.sh: going on with the lists that are here" >&2
fi
as_root apt-get install -y -qq --no-install-recommends $missing ||
    by_hand "apt-get could not install them (its message is above)." "$missing"
