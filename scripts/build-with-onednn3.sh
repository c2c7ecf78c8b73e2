#!/bin/sh
# Builds and tests teng against oneDNN 3, whose files for the GNU OpenMP runtime come as a Python package.
#
#   scripts/build-with-onednn3.sh [FOLDER] [CTEST ARGUMENTS...]
#
# FOLDER (default build/onednn3) receives a virtual environment with the library and the build. Further arguments go to
# ctest ("-L fast", "-R test_gemm"). TARGETS names what to build (default: everything).
set -eu
cd "$(dirname "$0")/.."
folder=${1:-build/onednn3}
[ $# -gt 0 ] && shift
# The version is fixed so that the result does not change from one day to the next.
package=onednn-devel-cpu-gomp==2023.2.0

if [ "$(uname -m)" != x86_64 ]; then
    echo "build-with-onednn3: $package exists for x86_64 only, this machine is $(uname -m)" >&2
    exit 1
fi
if [ ! -f "$folder/onednn/include/oneapi/dnnl/dnnl.h" ]; then
    python3 -m venv "$folder/onednn" || {
        echo "build-with-onednn3: no virtual environment: install the package python3-venv" >&2
        exit 1
    }
    "$folder/onednn/bin/pip" --quiet install "$package"
fi
root=$(cd "$folder/onednn" && pwd)
cmake --preset release -B "$folder" -DTENG_DNNL_ROOT="$root" ${CMAKE_ARGS:-}
# TARGETS and CMAKE_ARGS are lists of words.
# shellcheck disable=SC2086
cmake --build "$folder" ${TARGETS:+--target $TARGETS}
ctest --test-dir "$folder" --output-on-failure "$@"
