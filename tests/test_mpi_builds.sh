#!/bin/sh
# test_mpi_builds.sh SOURCE WORK: communication built with each MPI that is installed (Open MPI and MPICH may stand side
# by side) and without any: its tests pass with each, and what was built for one says so under the launcher of another.
set -eu
source=$1
work=$2
export CMAKE_BUILD_PARALLEL_LEVEL=2

build() { # build NAME "TARGET …" TESTS OPTION ...
    name=$1
    targets=$2
    tests=$3
    shift 3
    # shellcheck disable=SC2086 # words are meant
    cmake -S "$source" -B "$work/$name" -G Ninja -DCMAKE_BUILD_TYPE=Release "$@" >"$work/$name.log" 2>&1 &&
        cmake --build "$work/$name" --target $targets >>"$work/$name.log" 2>&1 || {
        tail -n 20 "$work/$name.log"
        echo "$name: not built"
        exit 1
    }
    (cd "$work/$name" && ctest -R "$tests" --output-on-failure)
}

mkdir -p "$work"
kinds=
for kind in openmpi mpich; do
    command -v mpicc.$kind >/dev/null 2>&1 && command -v mpirun.$kind >/dev/null 2>&1 || {
        echo "$kind: not installed"
        continue
    }
    kinds="$kinds $kind"
    # With MPICH whole runs too: those with Open MPI are tests of their own.
    case $kind in
    mpich) build $kind 'test_comm comm_fault teng' '^(test_comm|ranks_data$|ranks_expert$)' -DTENG_MPI=$kind ;;
    *) build $kind 'test_comm comm_fault' '^test_comm' -DTENG_MPI=$kind ;;
    esac
done
[ -n "$kinds" ] || {
    echo "skipped: neither mpicc.openmpi nor mpicc.mpich is here"
    exit 77
}
if [ "$kinds" = " openmpi mpich" ]; then
    for pair in openmpi:mpich mpich:openmpi; do
        TENG_MPIRUN=mpirun.${pair#*:} "$source/tests/mpi_run.sh" 2 "$work/${pair%:*}/tests/comm_fault" >"$work/out" 2>&1 || true
        grep -q "2 ranks were started, and each is alone" "$work/out" || {
            cat "$work/out"
            echo "$pair: nothing says that the launcher is another's"
            exit 1
        }
    done
fi
cmake -S "$source" -B "$work/none" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTENG_MPI=off >"$work/none.log" 2>&1
cmake --build "$work/none" --target test_comm >>"$work/none.log" 2>&1
(cd "$work/none" && ctest -R '^test_comm$' --output-on-failure)
if PMI_SIZE=2 "$work/none/tests/test_comm" >"$work/out" 2>&1 || ! grep -q "built without MPI" "$work/out"; then
    cat "$work/out"
    echo "none: does not say that it was built without MPI"
    exit 1
fi
