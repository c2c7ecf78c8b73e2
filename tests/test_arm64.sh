#!/bin/sh
# test_arm64.sh SOURCE WORK ROOT: built for arm64 and run under QEMU: every operator's cases with the NEON kernels against
# their references, products and instruction sets. Needs what scripts/arm64-root.sh fetches
# (ROOT); it fetches nothing itself.
set -eu
source=$1
work=$2
root=$3
for tool in aarch64-linux-gnu-gcc qemu-aarch64; do
    command -v $tool >/dev/null 2>&1 || {
        echo "skipped: $tool is not here (gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user)"
        exit 77
    }
done
[ -e "$root/complete" ] || {
    echo "skipped: no arm64 libraries in $root (scripts/arm64-root.sh fetches them)"
    exit 77
}
tests=${TENG_ARM64_TESTS:-"test_cpu_isa test_device test_tensor test_gemm test_ops"}
mkdir -p "$work"
{
    cmake -S "$source" -B "$work" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTENG_MPI=off \
        -DCMAKE_TOOLCHAIN_FILE="$source/cmake/arm64.cmake" -DTENG_ARM64_ROOT="$root" &&
        cmake --build "$work" -j 2 --target $tests
} >"$work/build.log" 2>&1 || {
    tail -n 30 "$work/build.log"
    echo "not built"
    exit 1
}
file_type=$(od -An -tx1 -j18 -N1 "$work/tests/test_ops" | tr -d ' ') # e_machine of ELF: b7 is AArch64
[ "$file_type" = b7 ] || {
    echo "test_ops is not for arm64"
    exit 1
}
cd "$work"
OMP_WAIT_POLICY=passive ctest --no-tests=error --output-on-failure -R "^($(echo $tests | tr ' ' '|'))$"
